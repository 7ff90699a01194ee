package rest

import (
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover/assembly"
)

// API is the face as an http.Handler.
type API struct {
	c           Config
	guide       *assembly.Guide // nil without a search
	limits      Limits
	log         *slog.Logger
	mux         *http.ServeMux
	huma        huma.API
	patterns    []string // of the mux, for tests
	hosts       map[string]bool
	anyHost     bool
	compressors [encodings]*sync.Pool
	document    struct{ json, yaml []byte }

	idPrefix string
	idCount  atomic.Uint64

	closing   chan struct{}
	closeOnce sync.Once
}

// New builds the routes. It panics if a required part is missing or two mounts
// collide, which are mistakes of the wiring.
func New(c Config) *API {
	if c.Auth == nil || c.Invoker == nil || c.Calls == nil || c.Catalog == nil || c.Visible == nil {
		panic("rest: Auth, Invoker, Calls, Catalog and Visible are required")
	}
	a := &API{
		c: c, limits: c.Limits.withDefaults(), log: c.Log, mux: http.NewServeMux(), hosts: map[string]bool{},
		compressors: newCompressors(), closing: make(chan struct{}),
	}
	if a.guide = c.Guide; a.guide == nil && c.Search != nil {
		a.guide = &assembly.Guide{Search: c.Search}
	}
	if a.log == nil {
		a.log = slog.Default()
	}
	for _, h := range c.AllowedHosts {
		a.hosts[strings.ToLower(h)] = true
	}
	a.anyHost = a.hosts["*"]
	var prefix [6]byte
	_, _ = rand.Read(prefix[:]) // never fails
	a.idPrefix = "req-" + hex.EncodeToString(prefix[:]) + "-"

	a.huma = a.newHuma()
	a.rawRoutes()
	a.operations()
	a.mounts()
	a.finishDocument()
	return a
}

// Server is the face behind a server that is safe to show to a network: every phase
// of a connection has one of Config's limits. Serve it, and end it with Shutdown,
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
		ErrorLog:       slog.NewLogLogger(a.log.Handler(), slog.LevelWarn),
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

// mounts adds the other handlers of the port, and the answer for paths that
// nobody has.
func (a *API) mounts() {
	root := false
	for pattern, h := range a.c.Mounts {
		a.mux.Handle(pattern, a.streaming(h))
		root = root || pattern == "/"
	}
	if !root {
		a.mux.HandleFunc("/", a.notFound)
		return
	}
	// A console under / must not swallow mistakes in API paths.
	a.mux.HandleFunc("/api/", a.notFound)
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
		a.refuse(w, r, toolkeep.NewError(toolkeep.ResourceNotFound, "there is nothing at %s; /openapi.json lists all paths", clip(r.URL.Path, 200)))
		return
	}
	w.Header().Set("Allow", strings.Join(allow, ", "))
	a.refuse(w, r, withStatus(http.StatusMethodNotAllowed, toolkeep.NewError(toolkeep.MalformedRequest,
		"%s is not possible here; use %s", clip(r.Method, 20), strings.Join(allow, ", "))))
}

// serveDocument answers with the prepared document.
func (a *API) serveDocument(contentType string, body *[]byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age="+seconds(5*time.Minute))
		a.send(w, r, http.StatusOK, contentType, *body)
	}
}
