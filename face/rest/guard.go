package rest

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
)

// ServeHTTP passes a request through the gates that every route has and then
// to the route.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h["X-Request-Id"] = []string{a.requestID(r)}
	h["X-Content-Type-Options"] = noSniff
	defer a.recovered(w, r)
	if err := a.guard(r); err != nil {
		a.refuse(w, r, err)
		return
	}
	if r.ContentLength != 0 {
		a.timeBody(w, r)
	}
	a.mux.ServeHTTP(w, r)
}

// requestID is the caller's X-Request-ID if it is harmless, else a new one.
func (a *API) requestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); id != "" && len(id) <= 128 && harmless(id) {
		return id
	}
	return a.idPrefix + strconv.FormatUint(a.idCount.Add(1), 36)
}

func harmless(id string) bool {
	for i := range len(id) {
		c := id[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			c == '-' || c == '_' || c == '.' || c == ':') {
			return false
		}
	}
	return true
}

// recovered turns a panic into E3999. Streams panic with http.ErrAbortHandler,
// because their answer has begun; that goes on to net/http.
func (a *API) recovered(w http.ResponseWriter, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(v)
	}
	a.logPanic(w, r, v)
	a.refuse(w, r, toolkeep.NewError(toolkeep.InternalError, "an internal error occurred; the server's log has the cause"))
}

func (a *API) logPanic(w http.ResponseWriter, r *http.Request, v any) {
	a.log.ErrorContext(r.Context(), "a request handler panicked", "request_id", w.Header().Get("X-Request-Id"),
		"method", r.Method, "path", r.URL.Path, "panic", v, "stack", string(debug.Stack()))
}

// streaming is for handlers that begin their answer before they end. They own
// their deadlines, and a panic in them can only cut the connection.
func (a *API) streaming(h http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		// A deadline of the connection's previous answer must not end this one.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if err, ok := v.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				a.logPanic(w, r, v)
			}
			panic(http.ErrAbortHandler)
		}()
		h.ServeHTTP(w, r)
	}
}

// guard refuses what a browser was tricked into sending, and headers over the
// limit.
func (a *API) guard(r *http.Request) error {
	if !a.hostAllowed(r) {
		return toolkeep.NewError(toolkeep.PermissionDenied,
			"the Host %q is not one of this server's names; add it to the setting http.hosts", clip(r.Host, 100)).
			With("reason", "HOST_NOT_ALLOWED")
	}
	if origin := r.Header["Origin"]; origin != nil && !sameHost(origin, r.Host) && !a.ownOrigins(r.URL.Path) {
		return toolkeep.NewError(toolkeep.PermissionDenied, "requests from the web page of another site are refused").
			With("reason", "ORIGIN_NOT_ALLOWED")
	}
	n := len(r.RequestURI) + len(r.Host)
	for k, vs := range r.Header {
		for _, v := range vs {
			n += len(k) + len(v) + 4
		}
	}
	if n > a.limits.HeaderBytes {
		return withStatus(http.StatusRequestHeaderFieldsTooLarge, toolkeep.NewError(toolkeep.RequestTooLarge,
			"the request's header block has more than %d bytes", a.limits.HeaderBytes).With("limit_bytes", a.limits.HeaderBytes))
	}
	if r.URL.RawQuery != "" && strings.HasPrefix(r.URL.Path, "/api/") {
		return checkQuery(r.URL.RawQuery)
	}
	return nil
}

// repeatable are the query parameters that are lists.
var repeatable = map[string]bool{"tool": true}

// checkQuery refuses what net/url would pass over: a part that cannot be decoded, of two
// values all but the first, and characters that no JSON body may have.
func checkQuery(raw string) error {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return toolkeep.NewError(toolkeep.MalformedRequest, "the query string cannot be read: %v", err)
	}
	for name, values := range query {
		if len(values) > 1 && !repeatable[name] {
			return toolkeep.NewError(toolkeep.InvalidEncoding, "the query parameter %q is given %d times", clip(name, 100), len(values))
		}
		for _, v := range values {
			if name == "q" { // which the other faces have too, with the same words
				if err := discover.CheckQuestion(v); err != nil {
					return err
				}
			}
			if !utf8.ValidString(v) || strings.ContainsRune(v, 0) {
				return toolkeep.NewError(toolkeep.InvalidEncoding, "the query parameter %q holds a NUL or bytes that are not UTF-8", clip(name, 100))
			}
		}
	}
	return nil
}

// ownOrigins tells whether a mounted handler decides itself which origins it takes.
func (a *API) ownOrigins(path string) bool {
	for _, prefix := range a.c.OwnOrigins {
		if path == prefix || strings.HasPrefix(path, prefix+"/") {
			return true
		}
	}
	return false
}

// hostAllowed keeps DNS rebinding out: a page that made its own name point here
// still sends that name. Health probes come by address and learn nothing, so
// they pass.
func (a *API) hostAllowed(r *http.Request) bool {
	if a.anyHost || loopbackName(r.Host) || isHealth(r.URL.Path) {
		return true
	}
	host := strings.ToLower(r.Host)
	return a.hosts[host] || a.hosts[withoutPort(host)]
}

func isHealth(path string) bool {
	return path == "/health" || path == "/ready" || strings.HasPrefix(path, "/health/")
}

func loopbackName(hostport string) bool {
	host := withoutPort(hostport)
	switch host {
	case "127.0.0.1", "localhost", "::1":
		return true
	case "":
		return false
	}
	if c := host[0]; c != '1' && c != ':' {
		return strings.EqualFold(host, "localhost")
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// withoutPort takes the port and the brackets off.
func withoutPort(hostport string) string {
	if strings.HasPrefix(hostport, "[") {
		if i := strings.IndexByte(hostport, ']'); i > 0 {
			return hostport[1:i]
		}
		return ""
	}
	if i := strings.LastIndexByte(hostport, ':'); i >= 0 && strings.IndexByte(hostport, ':') == i {
		return hostport[:i]
	}
	return hostport
}

func sameHost(origin []string, host string) bool {
	if len(origin) != 1 {
		return false
	}
	u, err := url.Parse(origin[0])
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, host)
}

// maxBearer is the longest credential; tokens of large organisations are long.
const maxBearer = 16 << 10

// authenticate names the caller.
func (a *API) authenticate(r *http.Request) (*toolkeep.Principal, error) {
	bearer := ""
	if hs := r.Header["Authorization"]; len(hs) > 0 {
		scheme, rest, ok := strings.Cut(hs[0], " ")
		if len(hs) > 1 || !ok || !strings.EqualFold(scheme, "Bearer") || len(rest) > maxBearer {
			return nil, toolkeep.NewError(toolkeep.Unauthenticated, "send one header of the form Authorization: Bearer <key>")
		}
		bearer = strings.TrimSpace(rest)
	}
	addr := r.RemoteAddr
	if i := strings.LastIndexByte(addr, ':'); i >= 0 {
		addr = withoutPort(addr)
	}
	return a.c.Auth.Authenticate(r.Context(), bearer, addr)
}

// unverifiable refuses proofs that this build cannot check; passing over them
// would let a call through that its sender meant to narrow.
func unverifiable(h http.Header) *toolkeep.Error {
	if h["X-Request-Signature"] != nil || h["X-Request-Timestamp"] != nil {
		return toolkeep.NewError(toolkeep.SignatureInvalid,
			"request signatures are not configured on this server; leave X-Request-Signature and X-Request-Timestamp out")
	}
	if h["X-Capability-Token"] != nil {
		return tokenRefused()
	}
	return nil
}

func tokenRefused() *toolkeep.Error {
	return toolkeep.NewError(toolkeep.TokenInvalid,
		"capability tokens are not configured on this server, so the one that was sent cannot be verified; leave it out")
}

// need is the check of a named permission.
func need(p *toolkeep.Principal, permission string) error {
	if permission == "" || p.May(permission) {
		return nil
	}
	return toolkeep.NewError(toolkeep.PermissionDenied, "this needs the permission %s, which none of your roles grants", permission).
		With("reason", "RBAC_DENIED").With("permission", permission)
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
