package gate

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Config is what the gate needs. Auth is required.
type Config struct {
	Auth Auth
	// Hosts are the names beside loopback under which the server is reached, with
	// or without port; "*" allows any.
	Hosts []string
	// Proxies are believed when they name the client's address.
	Proxies Proxies
	// Pages lets web pages of other origins use parts of the server.
	Pages []Pages
	// Challenge is the value of WWW-Authenticate for a refused path, its error, and
	// whether credentials were sent; nil names the scheme alone.
	Challenge func(path string, err error, sent bool) string
	Limits    Limits
	// BaseURL is the address under which browsers reach the server: over https its cookies are secure, and they are for its path;
	// nil: http and /.
	BaseURL func() string
	// Requests counts requests that are no calls; nil: nothing does.
	Requests Requests
	// Limited is told of each request that is no call and that Requests refuses; nil: nothing is.
	Limited func(*toolkeep.Principal, *toolkeep.Error)
	// Sealer lets a node tell another what it checked of a request; nil: nodes check each again.
	Sealer Sealer
	// Clean removes what looks like a secret from the name that a client gives itself; nil: nothing is
	// removed.
	Clean func(text string) string
	Log   *slog.Logger // default slog.Default()
}

// Limits on what comes in and goes out, the same for all faces. Zero fields take
// the default.
type Limits struct {
	BodyBytes     int64         // one body or message; default 1 MiB
	BulkBytes     int64         // one body of batch-register and import; default 16 MiB
	HeaderBytes   int           // the header block or the metadata; default 64 KiB
	KeyBytes      int           // a key, id, name or cursor; default 4 KiB
	HeaderTimeout time.Duration // until the header block is read; default 10 s
	BodyTimeout   time.Duration // until the body or the first message is read; default 30 s
	WriteTimeout  time.Duration // until an answer or event is taken; default 30 s
	IdleTimeout   time.Duration // of HTTP, between requests; default 2 min
	KeepAlive     time.Duration // between comments of an event stream; default 15 s
}

func (l Limits) withDefaults() Limits {
	Default(&l.BodyBytes, 1<<20)
	Default(&l.BulkBytes, 16<<20)
	Default(&l.HeaderBytes, 64<<10)
	Default(&l.KeyBytes, 4<<10)
	Default(&l.HeaderTimeout, 10*time.Second)
	Default(&l.BodyTimeout, 30*time.Second)
	Default(&l.WriteTimeout, 30*time.Second)
	Default(&l.IdleTimeout, 2*time.Minute)
	Default(&l.KeepAlive, 15*time.Second)
	return l
}

// Default sets a limit that is not set.
func Default[T ~int | ~int64](limit *T, value T) {
	if *limit <= 0 {
		*limit = value
	}
}

// Gate is shared by all faces of a server.
type Gate struct {
	auth        Auth
	hosts       map[string]bool
	proxies     Proxies
	pages       []Pages
	challenge   func(path string, err error, sent bool) string
	limits      Limits
	baseURL     func() string
	requests    Requests
	limited     func(*toolkeep.Principal, *toolkeep.Error)
	sealer      Sealer
	clean       func(text string) string
	log         *slog.Logger
	failed      *slog.Logger // of requests that fail; see Failed
	compressors [encodings]*sync.Pool

	idPrefix string
	idCount  atomic.Uint64
	leaving  atomic.Bool
}

// New builds the gate. It panics without Auth, which is a mistake of the wiring.
func New(c Config) *Gate {
	if c.Auth == nil {
		panic("gate: Auth is required")
	}
	g := &Gate{auth: c.Auth, hosts: map[string]bool{}, proxies: c.Proxies, challenge: c.Challenge, limits: c.Limits.withDefaults(), baseURL: c.BaseURL, requests: c.Requests, limited: c.Limited, sealer: c.Sealer, clean: c.Clean, log: c.Log,
		compressors: newCompressors()}
	if g.log == nil {
		g.log = slog.Default()
	}
	g.failed = Failed(g.log)
	for _, h := range c.Hosts {
		g.hosts[strings.ToLower(h)] = true
	}
	for _, p := range c.Pages {
		p.Origins = slices.Clone(p.Origins)
		for i, o := range p.Origins {
			p.Origins[i] = strings.ToLower(strings.TrimSuffix(o, "/"))
		}
		g.pages = append(g.pages, p)
	}
	var prefix [6]byte
	_, _ = rand.Read(prefix[:]) // never fails
	g.idPrefix = "req-" + hex.EncodeToString(prefix[:]) + "-"
	return g
}

// failedLines is how many failed requests of one code a face logs within a minute.
const failedLines = 10

// Failed returns the logger for requests that fail. Callers can make as many as they like fail, such as
// while a policy cannot answer, so of each code only some a minute are logged.
func Failed(log *slog.Logger) *slog.Logger { return toolkeep.Seldom(log, failedLines, nil) }

// Limits are the limits of all faces, with their defaults.
func (g *Gate) Limits() Limits { return g.limits }

var noSniff = []string{"nosniff"}

var closeConnection = []string{"close"}

// Leave ends each connection with its next answer: the server is about to stop, and a client's next
// connection may reach another node.
func (g *Gate) Leave() { g.leaving.Store(true) }

// Serve passes an HTTP request on to next, or refuses it.
func (g *Gate) Serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	h := w.Header()
	h[requestIDHeader] = []string{g.RequestID(HTTP(r.Header))}
	h["X-Content-Type-Options"] = noSniff
	if g.leaving.Load() {
		h["Connection"] = closeConnection
	}
	defer g.recovered(w, r)
	done, err := g.guard(h, r)
	switch {
	case err != nil:
		g.Refuse(w, r, err)
	case done:
		w.WriteHeader(http.StatusNoContent)
	default:
		if r.ContentLength != 0 {
			g.timeBody(w, r)
		}
		next.ServeHTTP(w, r)
	}
}

const requestIDHeader = "X-Request-Id"

// Passed tells whether the request of w has passed a gate.
func Passed(w http.ResponseWriter) bool { return w.Header()[requestIDHeader] != nil }

// RequestID is the caller's id if it is harmless, else a new one.
func (g *Gate) RequestID(h Headers) string {
	if id := h.first(h.names.requestID); id != "" && len(id) <= 128 && harmless(id) {
		return id
	}
	return g.idPrefix + strconv.FormatUint(g.idCount.Add(1), 36)
}

// harmless tells whether an id can stand in a log or a header as it is.
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
func (g *Gate) recovered(w http.ResponseWriter, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if aborted(v) {
		panic(v)
	}
	g.Refuse(w, r, Panicked(r.Context(), g.log, v, debug.Stack(), about(w, r)...))
}

func aborted(v any) bool {
	err, ok := v.(error)
	return ok && errors.Is(err, http.ErrAbortHandler)
}

// about names a request in the log.
func about(w http.ResponseWriter, r *http.Request) []any {
	return []any{"request_id", w.Header().Get(requestIDHeader), "method", r.Method, "path", r.URL.Path}
}

// Panicked logs a panic with what is known of its request, and gives the error
// that the caller may see. E3999.
func Panicked(ctx context.Context, log *slog.Logger, v any, stack []byte, about ...any) *toolkeep.Error {
	log.ErrorContext(ctx, "a request handler panicked", append(about, "panic", v, "stack", string(stack))...)
	return toolkeep.NewError(toolkeep.InternalError, "an internal error occurred; the server's log has the cause")
}

// Streaming is for handlers that begin their answer before they end. They set
// their own write deadlines, and a panic in them can only cut the connection.
func (g *Gate) Streaming(h http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		// A deadline of the connection's previous answer must not end this one.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if !aborted(v) {
				_ = Panicked(r.Context(), g.log, v, debug.Stack(), about(w, r)...)
			}
			panic(http.ErrAbortHandler)
		}()
		h.ServeHTTP(w, r)
	}
}
