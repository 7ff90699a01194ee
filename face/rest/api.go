package rest

import (
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover/assembly"
	"github.com/toolkeep/toolkeep/face/gate"
)

// API is the face as an http.Handler.
type API struct {
	c          Config
	guide      *assembly.Guide // nil without a search
	gate       *gate.Gate
	limits     gate.Limits
	log        *slog.Logger
	mux        *http.ServeMux
	behind     http.Handler // the gate
	components *components
	paths      tree     // of the document
	patterns   []string // of the mux, for tests
	document   struct{ json, yaml func() []byte }

	closing   chan struct{}
	closeOnce sync.Once
}

// New builds the routes. It panics if a required part is missing or two mounts
// collide, which are mistakes of the wiring.
func New(c Config) *API {
	if c.Gate == nil || c.Invoker == nil || c.Calls == nil || c.Catalog == nil || c.Visible == nil || c.Callable == nil {
		panic("rest: Gate, Invoker, Calls, Catalog, Visible and Callable are required")
	}
	a := &API{c: c, gate: c.Gate, limits: c.Gate.Limits(), log: c.Log, mux: http.NewServeMux(),
		components: &components{schemas: tree{}, types: map[string]reflect.Type{}}, paths: tree{}, closing: make(chan struct{})}
	a.behind = http.HandlerFunc(a.serve)
	// Both are written when they are first asked for: that takes some milliseconds and
	// megabytes.
	a.document.json = sync.OnceValue(a.writeDocument)
	a.document.yaml = sync.OnceValue(func() []byte { return asYAML(a.document.json()) })
	if a.guide = c.Guide; a.guide == nil && c.Search != nil {
		a.guide = &assembly.Guide{Search: c.Search}
	}
	if a.log == nil {
		a.log = slog.Default()
	}
	a.rawRoutes()
	a.operations()
	a.mounts()
	return a
}

// ServeHTTP passes a request through the gate and on to its route.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.gate.Serve(w, r, a.behind)
}

func (a *API) serve(w http.ResponseWriter, r *http.Request) {
	api := strings.HasPrefix(r.URL.Path, "/api/")
	if api {
		a.gate.RenewSession(w.Header(), r)
	}
	if api && r.URL.RawQuery != "" {
		if err := checkQuery(r.URL.RawQuery); err != nil {
			a.gate.Refuse(w, r, err)
			return
		}
	}
	a.mux.ServeHTTP(w, r)
}

// Server is the face behind a server that is safe to show to a network: every phase
// of a connection has one of the gate's limits. Serve it, and end it with Shutdown,
// which also ends the event streams.
func (a *API) Server() *http.Server {
	addr := a.c.Addr
	if addr == "" {
		addr = "127.0.0.1:8080"
	}
	s := &http.Server{
		Addr:    addr,
		Handler: a,
		// No ReadTimeout and WriteTimeout: they would end long calls and streams.
		// Bodies and answers have deadlines of their own.
		ReadHeaderTimeout: a.limits.HeaderTimeout,
		IdleTimeout:       a.limits.IdleTimeout,
		// net/http refuses larger ones without a problem document; ours comes first.
		MaxHeaderBytes: 2 * a.limits.HeaderBytes,
		ErrorLog: slog.NewLogLogger(toolkeep.Seldom(a.log, 10, func(r slog.Record) string { // a handshake that fails names its client
			kind, _, _ := strings.Cut(r.Message, " from ")
			return kind
		}).Handler(), slog.LevelWarn),
	}
	s.RegisterOnShutdown(a.Close)
	return s
}

// Close ends the event streams; requests go on being answered.
func (a *API) Close() { a.closeOnce.Do(func() { close(a.closing) }) }

func (a *API) route(pattern string, h http.HandlerFunc) {
	a.patterns = append(a.patterns, pattern)
	a.mux.HandleFunc(pattern, h)
}

// mounts adds the other handlers of the port, and the answer for paths that have
// no handler.
func (a *API) mounts() {
	root := false
	for pattern, h := range a.c.Mounts {
		a.mux.Handle(pattern, a.gate.Streaming(h))
		root = root || pattern == "/"
	}
	if !root {
		a.mux.HandleFunc("/", a.page)
		return
	}
	// A console under / must not swallow mistakes in API paths.
	a.mux.HandleFunc("/api/", a.notFound)
}

// page is a page of the console, or what notFound says.
func (a *API) page(w http.ResponseWriter, r *http.Request) {
	if a.c.Console == nil || !a.c.Console(w, r) {
		a.notFound(w, r)
	}
}

// notFound is 404, or 405 if the path exists with other methods.
func (a *API) notFound(w http.ResponseWriter, r *http.Request) {
	var allow []string
	for _, m := range []string{"GET", "HEAD", "POST", "PUT", "DELETE"} {
		probe := &http.Request{Method: m, URL: r.URL, Host: r.Host}
		if _, pattern := a.mux.Handler(probe); pattern != "/" && pattern != "/api/" && pattern != "" {
			allow = append(allow, m)
		}
	}
	if len(allow) == 0 {
		a.gate.Refuse(w, r, toolkeep.NewError(toolkeep.ResourceNotFound, "there is nothing at %s; /openapi.json lists all paths", toolkeep.ClipBytes(r.URL.Path, 200)))
		return
	}
	w.Header().Set("Allow", strings.Join(allow, ", "))
	a.gate.Refuse(w, r, gate.WithStatus(http.StatusMethodNotAllowed, toolkeep.NewError(toolkeep.MalformedRequest,
		"%s is not possible here; use %s", toolkeep.ClipBytes(r.Method, 20), strings.Join(allow, ", "))))
}

// serveDocument answers with the document.
func (a *API) serveDocument(contentType string, body func() []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age="+seconds(5*time.Minute))
		a.gate.Send(w, r, http.StatusOK, contentType, body())
	}
}
