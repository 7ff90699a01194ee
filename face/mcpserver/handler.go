package mcpserver

import (
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/discover/assembly"
	"github.com/toolkeep/toolkeep/face/gate"
)

// Server is the face as an http.Handler for /mcp and everything below.
type Server struct {
	c      Config
	gate   *gate.Gate
	behind http.Handler // what runs behind the gate: the server itself
	limits limits
	log    *slog.Logger
	failed *slog.Logger // see gate.Failed
	node   [16]byte
	views  map[string]*view // the three views every server has
	info   []byte           // serverInfo, raw
	guide  *assembly.Guide

	indexes indexes
	parking parking
	listens listens

	closing    chan struct{} // closed by Close: streams end
	drains     chan struct{} // closed by Drain: calls stop waiting for people
	eventBytes atomic.Int64  // of ended streams, all sessions
	background sync.WaitGroup

	mu         sync.Mutex
	draining   bool
	closed     bool
	sessions   map[string]*session
	owners     map[owner]map[*session]struct{}
	announcing sync.Mutex  // one announcement at a time
	spread     *time.Timer // announces changed lists; nil while nothing has changed
}

// New builds the face. It panics if a required part is missing, which is a wiring error.
func New(c Config) *Server {
	if c.Gate == nil || c.Invoker == nil || c.Calls == nil || c.Catalog == nil || c.Visible == nil || c.Callable == nil || c.Search == nil || c.Sealer == nil {
		panic("mcpserver: Gate, Invoker, Calls, Catalog, Visible, Callable, Search and Sealer are required")
	}
	if c.View == "" {
		c.View = "auto"
	}
	gate.Default(&c.AutoTools, 40)
	s := &Server{
		c: c, gate: c.Gate, limits: limits{c.Gate.Limits(), c.Limits.withDefaults()}, log: c.Log, node: nodeID(c.Node),
		closing: make(chan struct{}), drains: make(chan struct{}), sessions: map[string]*session{}, owners: map[owner]map[*session]struct{}{},
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	s.failed = gate.Failed(s.log)
	s.behind = s.gate.Streaming(s)
	if s.guide = c.Guide; s.guide == nil {
		s.guide = &assembly.Guide{Search: c.Search}
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

// Drain ends idle streams, so that clients move to other nodes, and refuses new sessions. Requests
// are still answered. A call waiting for a person continues without an answer, because that wait
// has no limit and would hold up shutdown.
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

// drain is the part of Drain that holds s.mu.
func (s *Server) drain() {
	if !s.draining {
		s.draining = true
		close(s.drains)
	}
}

// spawn runs fn in a goroutine that Close waits for; false once the server is closing.
func (s *Server) spawn(fn func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.background.Go(fn)
	return true
}

// all returns the current sessions. s.mu is held.
func (s *Server) all() []*session {
	list := make([]*session, 0, len(s.sessions))
	for _, ses := range s.sessions {
		list = append(list, ses)
	}
	return list
}

// Close ends every session, stream and parked call, and waits for the goroutines that do not belong
// to a request. It may be called more than once.
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

// ServeHTTP implements http.Handler. A request from another handler has already passed the gate.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !gate.Passed(w) {
		s.gate.Serve(w, r, s.behind)
		return
	}
	p, err := s.gate.AuthenticateHTTP(r)
	if err != nil {
		s.refuse(w, r, err, 0)
		return
	}
	whole := p
	if r.Method != http.MethodPost { // in a POST, messages other than calls are checked where they are read
		p, err = s.gate.Acting(gate.HTTP(r.Header), p)
		whole = widened(p, whole)
	}
	var v *view
	if err == nil {
		v, err = s.viewAt(r.URL.Path, p)
	}
	if err != nil {
		s.refuse(w, r, err, 0)
		return
	}
	switch r.Method {
	case http.MethodPost:
		s.post(w, r, v, p)
	case http.MethodGet:
		s.get(w, r, v, p, whole)
	case http.MethodDelete:
		s.delete(w, r, v, whole)
	default:
		s.refuseMethod(w, r, "GET, POST, DELETE")
	}
}

// widened is p, which Acting has made of whole, without the capability token of its request: a session
// outlives the request.
func widened(p, whole *toolkeep.Principal) *toolkeep.Principal {
	if p == nil || p.Narrowed == nil {
		return p
	}
	own := *p
	own.Narrowed, own.Permissions, own.Until = nil, whole.Permissions, whole.Until
	return &own
}

// reachedAt returns the server's address as the client sees it.
func (s *Server) reachedAt(r *http.Request) string {
	switch {
	case s.c.BaseURL != "":
		return strings.TrimSuffix(s.c.BaseURL, "/")
	case r.TLS != nil:
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

func (s *Server) refuseMethod(w http.ResponseWriter, r *http.Request, allow string) {
	w.Header().Set("Allow", allow)
	s.refuse(w, r, toolkeep.NewError(toolkeep.MalformedRequest, "%s is not possible here; use %s", toolkeep.ClipBytes(r.Method, 20), allow), http.StatusMethodNotAllowed)
}

// AllowPage sets the headers that let a web page of another origin use an answer; it is for
// gate.Pages.
func AllowPage(h http.Header, origin, asked string) {
	// Credentials are bearer tokens, never cookies, so Allow-Credentials is not needed and a page
	// can only use credentials it holds itself.
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
	allow := "Authorization, Content-Type, Accept, Mcp-Session-Id, Mcp-Protocol-Version, Mcp-Method, Mcp-Name, " +
		"Last-Event-Id, X-Capability-Token, X-User-ID, Traceparent, Tracestate, " +
		"X-Request-Signature, X-Request-Timestamp, X-Request-Nonce, X-Content-SHA256"
	for name := range strings.SplitSeq(strings.ToLower(toolkeep.ClipBytes(asked, 4096)), ",") {
		// The tools define these header names.
		if name = strings.TrimSpace(name); strings.HasPrefix(name, "mcp-param-") && !strings.ContainsAny(name, " \t\r\n") {
			allow += ", " + name
		}
	}
	h.Set("Access-Control-Allow-Headers", allow)
	h.Set("Access-Control-Expose-Headers", "Mcp-Session-Id, WWW-Authenticate, Retry-After, RateLimit, RateLimit-Policy")
	h.Set("Access-Control-Max-Age", "600")
}

// refuse answers with a problem document, as REST does. A client must not take it for a JSON-RPC
// answer: with 404 it means that the session is gone. status 0 selects the code's own status.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error, status int) {
	if status != 0 {
		err = gate.WithStatus(status, toolkeep.AsError(err))
	}
	s.gate.Refuse(w, r, err)
}

func draining() *toolkeep.Error {
	return toolkeep.NewError(toolkeep.Draining, "this node is shutting down; another takes the session").After(time.Second)
}

// panicked turns a panic into an error and logs it.
func (s *Server) panicked(v any) *toolkeep.Error {
	return gate.Panicked(context.Background(), s.log, v, debug.Stack())
}
