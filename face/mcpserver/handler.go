package mcpserver

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/discover/assembly"
)

// Server is the face as an http.Handler for /mcp and everything below.
type Server struct {
	c       Config
	limits  Limits
	log     *slog.Logger
	node    [16]byte
	hosts   map[string]bool
	origins map[string]bool
	views   map[string]*view // the three that every server has
	info    []byte           // serverInfo, raw
	guide   *assembly.Guide

	indexes indexes
	parking parking
	listens listens

	closing    chan struct{} // closed by Close: streams end
	drains     chan struct{} // closed by Drain: nobody waits for a person any more
	eventBytes atomic.Int64  // of ended streams, all sessions
	background sync.WaitGroup

	mu       sync.Mutex
	draining bool
	closed   bool
	sessions map[string]*session
	owners   map[owner]map[*session]struct{}
	spread   *time.Timer // announces changed lists; nil while nothing changed
}

// New builds the face. It panics if a required part is missing, which is a
// mistake of the wiring.
func New(c Config) *Server {
	if c.Auth == nil || c.Invoker == nil || c.Calls == nil || c.Catalog == nil || c.Visible == nil || c.Search == nil || c.Sealer == nil {
		panic("mcpserver: Auth, Invoker, Calls, Catalog, Visible, Search and Sealer are required")
	}
	if c.View == "" {
		c.View = "auto"
	}
	or(&c.AutoTools, 40)
	s := &Server{
		c: c, limits: c.Limits.withDefaults(), log: c.Log, node: nodeID(c.Node), hosts: map[string]bool{}, origins: map[string]bool{},
		closing: make(chan struct{}), drains: make(chan struct{}), sessions: map[string]*session{}, owners: map[owner]map[*session]struct{}{},
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	if s.guide = c.Guide; s.guide == nil {
		s.guide = &assembly.Guide{Search: c.Search}
	}
	for _, h := range c.AllowedHosts {
		s.hosts[strings.ToLower(h)] = true
	}
	for _, o := range c.Origins {
		s.origins[strings.ToLower(strings.TrimSuffix(o, "/"))] = true
	}
	s.views = builtinViews()
	if s.views[c.View] == nil {
		panic("mcpserver: there is no view " + c.View)
	}
	s.info = serverInfo(c.Version)
	s.indexes.collide = func(name, id, other string) {
		s.log.Error("two tools have one MCP name; only the first can be called by it", "name", name, "tool", other, "hidden", id)
	}
	s.parking.init(s)
	s.listens.init()
	c.Catalog.OnChange(func(now *catalog.Snapshot) {
		s.indexes.note(now)
		s.changed()
	})
	return s
}

// Drain ends the streams on which nothing is being answered, so that clients go
// elsewhere, and refuses new sessions. Requests go on being answered. A call that
// waits for a person's answer, which may take as long as the person likes, goes on
// without one, so that the server's end does not wait for it.
func (s *Server) Drain() {
	s.mu.Lock()
	s.drain()
	all := s.all()
	s.mu.Unlock()
	for _, ses := range all {
		ses.own.end()
	}
	s.listens.end()
}

// drain is the part of Drain that s.mu is held for.
func (s *Server) drain() {
	if !s.draining {
		s.draining = true
		close(s.drains)
	}
}

// spawn runs fn in a goroutine that Close waits for; false once the server ends.
func (s *Server) spawn(fn func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.background.Go(fn)
	return true
}

// all gives the sessions of now. s.mu is held.
func (s *Server) all() []*session {
	list := make([]*session, 0, len(s.sessions))
	for _, ses := range s.sessions {
		list = append(list, ses)
	}
	return list
}

// Close ends every session, stream and parked call, and waits for the
// goroutines that are not a request's. It may be called more than once.
func (s *Server) Close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		s.background.Wait()
		return
	}
	s.closed = true
	s.drain()
	all := s.all()
	clear(s.sessions)
	clear(s.owners)
	if s.spread != nil && s.spread.Stop() {
		s.background.Done()
	}
	s.spread = nil
	s.mu.Unlock()
	close(s.closing)
	for _, ses := range all {
		ses.close("the server ends")
	}
	s.listens.end()
	s.parking.close()
	s.background.Wait()
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// A deadline of the connection's previous answer must not end this one.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
	h := w.Header()
	if !s.hostAllowed(r.Host) {
		s.refuse(w, toolkeep.NewError(toolkeep.PermissionDenied,
			"the Host %q is not one of this server's names; add it to the setting http.hosts", clip(r.Host, 100)).With("reason", "HOST_NOT_ALLOWED"), 0)
		return
	}
	if origin := r.Header["Origin"]; origin != nil {
		allowed, cross := s.originAllowed(origin, r.Host)
		if !allowed {
			s.refuse(w, toolkeep.NewError(toolkeep.PermissionDenied, "requests from the web page of another site are refused").
				With("reason", "ORIGIN_NOT_ALLOWED"), 0)
			return
		}
		if cross {
			corsHeaders(h, origin[0], r.Header.Get("Access-Control-Request-Headers"))
			if r.Method == http.MethodOptions {
				w.WriteHeader(http.StatusNoContent)
				return
			}
		}
	}
	p, err := s.authenticate(r)
	if err != nil {
		if c := s.challenge(r, err); c != "" {
			h["Www-Authenticate"] = []string{c}
		}
		s.refuse(w, err, 0)
		return
	}
	v, err := s.viewAt(r.URL.Path, p)
	if err != nil {
		s.refuse(w, err, 0)
		return
	}
	switch r.Method {
	case http.MethodPost:
		s.post(w, r, v, p)
	case http.MethodGet:
		s.get(w, r, v, p)
	case http.MethodDelete:
		s.delete(w, r, v, p)
	default:
		s.refuseMethod(w, r.Method, "GET, POST, DELETE")
	}
}

// reachedAt is the server's address as the client has it.
func (s *Server) reachedAt(r *http.Request) string {
	switch {
	case s.c.BaseURL != "":
		return strings.TrimSuffix(s.c.BaseURL, "/")
	case r.TLS != nil:
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

func (s *Server) refuseMethod(w http.ResponseWriter, method, allow string) {
	w.Header().Set("Allow", allow)
	s.refuse(w, toolkeep.NewError(toolkeep.MalformedRequest, "%s is not possible here; use %s", clip(method, 20), allow), http.StatusMethodNotAllowed)
}

// hostAllowed keeps DNS rebinding out: a page that made its own name point here
// still sends that name.
func (s *Server) hostAllowed(host string) bool {
	if s.hosts["*"] {
		return true
	}
	host = strings.ToLower(host)
	name := withoutPort(host)
	if name == "localhost" || s.hosts[host] || s.hosts[name] {
		return true
	}
	ip := net.ParseIP(name)
	return ip != nil && ip.IsLoopback()
}

func withoutPort(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
}

// originAllowed tells whether a browser's page may ask, and whether it is of
// another origin than this server.
func (s *Server) originAllowed(origin []string, host string) (allowed, cross bool) {
	if len(origin) != 1 {
		return false, false
	}
	o := strings.ToLower(origin[0])
	if u, err := url.Parse(o); err == nil && u.Host != "" && strings.EqualFold(u.Host, host) {
		return true, false
	}
	return s.origins["*"] || s.origins[o], true
}

func corsHeaders(h http.Header, origin, asked string) {
	// Credentials are bearer tokens, never cookies, so that Allow-Credentials is
	// not needed and a page can use only what it holds itself.
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
	allow := "Authorization, Content-Type, Accept, Mcp-Session-Id, Mcp-Protocol-Version, Mcp-Method, Mcp-Name, " +
		"Last-Event-Id, X-Capability-Token, X-User-ID, Traceparent, Tracestate"
	for name := range strings.SplitSeq(strings.ToLower(clip(asked, 4096)), ",") {
		// The names of these are the tools'.
		if name = strings.TrimSpace(name); strings.HasPrefix(name, "mcp-param-") && !strings.ContainsAny(name, " \t\r\n") {
			allow += ", " + name
		}
	}
	h.Set("Access-Control-Allow-Headers", allow)
	h.Set("Access-Control-Expose-Headers", "Mcp-Session-Id, WWW-Authenticate, Retry-After")
	h.Set("Access-Control-Max-Age", "600")
}

// authenticate names the caller.
func (s *Server) authenticate(r *http.Request) (*toolkeep.Principal, error) {
	bearer := ""
	if hs := r.Header["Authorization"]; len(hs) > 0 {
		scheme, rest, ok := strings.Cut(hs[0], " ")
		if len(hs) > 1 || !ok || !strings.EqualFold(scheme, "Bearer") || len(rest) > maxBearer {
			return nil, toolkeep.NewError(toolkeep.Unauthenticated, "send one header of the form Authorization: Bearer <key>")
		}
		bearer = strings.TrimSpace(rest)
	}
	addr := r.RemoteAddr
	if strings.LastIndexByte(addr, ':') >= 0 {
		addr = withoutPort(addr)
	}
	return s.c.Auth.Authenticate(r.Context(), bearer, addr)
}

// still tells whether who opened a stream may come in now. A stream outlives the
// credential that opened it, so this is asked before anything is sent on it.
func (s *Server) still(p *toolkeep.Principal) bool {
	if !p.Until.IsZero() && !time.Now().Before(p.Until) {
		return false
	}
	r, ok := s.c.Auth.(Refresher)
	if !ok {
		return true
	}
	_, err := r.Refresh(p)
	return err == nil || toolkeep.AsError(err).Code != toolkeep.Unauthenticated
}

// problem is a refusal of the HTTP request itself, RFC 9457, as REST has it. A
// client must not take it for an answer of JSON-RPC: with 404 it means that the
// session is gone.
type problem struct {
	Type        string         `json:"type"`
	Title       string         `json:"title"`
	Status      int            `json:"status"`
	Detail      string         `json:"detail"`
	Code        string         `json:"code"`
	Name        string         `json:"name"`
	Class       string         `json:"class"`
	Retryable   bool           `json:"retryable"`
	RetryAfterS int            `json:"retry_after_s,omitempty"`
	Details     map[string]any `json:"details,omitempty"`
}

// refuse answers with a problem document; status 0 is the code's own.
func (s *Server) refuse(w http.ResponseWriter, err error, status int) {
	e := shown(err)
	info := e.Code.Info()
	if status == 0 {
		status = info.HTTP
	}
	h := w.Header()
	if status >= 500 {
		s.log.Error("an MCP request failed", "code", string(info.Code), "error", err, "cause", errors.Unwrap(e))
	}
	if e.Retryable && e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(e.RetryAfterSeconds()))
	}
	p := problem{Type: "urn:toolkeep:error:" + string(info.Code), Title: strings.ReplaceAll(info.Name, "_", " "), Status: status, Detail: e.Message,
		Code: string(info.Code), Name: info.Name, Class: e.Class(), Retryable: e.Retryable, RetryAfterS: e.RetryAfterSeconds(), Details: e.Details}
	body, mErr := json.Marshal(p)
	if mErr != nil {
		p.Details = nil
		body, _ = json.Marshal(p)
	}
	s.sendProblem(w, status, body)
}

func (s *Server) sendProblem(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h["Cache-Control"] = noStore
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.limits.WriteTimeout))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// challenge says how to authenticate, RFC 6750 and RFC 9728.
func (s *Server) challenge(r *http.Request, err error) string {
	if s.c.Challenge == nil {
		return `Bearer realm="toolkeep"`
	}
	return s.c.Challenge(r.URL.Path, err, r.Header["Authorization"] != nil)
}

// maxBearer is the longest credential.
const maxBearer = 16 << 10

// shown is the error as a caller may see it: codes that no caller may see
// (warnings, internal ones) become E3999.
func shown(err error) *toolkeep.Error {
	e := toolkeep.AsError(err)
	info := e.Code.Info()
	if info.Code != e.Code || info.Kind == toolkeep.KindWarning || info.Kind == toolkeep.KindInternal {
		return toolkeep.AsError(errors.New(e.Error()))
	}
	return e
}

func draining() *toolkeep.Error {
	return toolkeep.NewError(toolkeep.Draining, "this node is shutting down; another takes the session").After(time.Second)
}

// panicked turns a panic into an error and logs it.
func (s *Server) panicked(v any) *toolkeep.Error {
	s.log.Error("an MCP request panicked", "panic", v, "stack", string(debug.Stack()))
	return toolkeep.NewError(toolkeep.InternalError, "an internal error occurred; the server's log has the cause")
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
