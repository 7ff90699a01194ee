//go:build linux

package upstream

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/mcp"
)

// web is an HTTP server of the older revisions whose sessions can be invalidated.
type web struct {
	*httptest.Server
	mu       sync.Mutex
	sessions map[string]bool
	made     int
	calls    atomic.Int64 // tools/call executed
	deletes  atomic.Int64
	gets     atomic.Int64

	// before may answer instead; otherwise the server goes on.
	before func(w http.ResponseWriter, r *http.Request, m *mcp.Message) bool
}

func newWeb(t *testing.T, before func(w http.ResponseWriter, r *http.Request, m *mcp.Message) bool) *web {
	b := &web{sessions: map[string]bool{}, before: before}
	b.Server = httptest.NewServer(b)
	t.Cleanup(b.Close)
	return b
}

func (b *web) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.sessions)
}

func (b *web) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
		b.gets.Add(1)
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	case http.MethodDelete:
		b.deletes.Add(1)
		return
	}
	data, _ := io.ReadAll(r.Body)
	m, err := mcp.Parse(data, canon.Limits{})
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if b.before != nil && b.before(w, r, m) {
		return
	}
	b.mu.Lock()
	known := b.sessions[r.Header.Get(mcp.HeaderSession)]
	b.mu.Unlock()
	answer := func(result string) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(mcp.Reply(m.ID, []byte(result)).Bytes())
	}
	switch {
	case m.Method == mcp.MethodDiscover:
		w.WriteHeader(http.StatusBadRequest)
	case m.Method == mcp.MethodInitialize:
		b.mu.Lock()
		b.made++
		id := strconv.Itoa(b.made)
		b.sessions[id] = true
		b.mu.Unlock()
		w.Header().Set(mcp.HeaderSession, id)
		answer(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"web","version":"1"}}`)
	case !known:
		w.WriteHeader(http.StatusNotFound)
	case m.ID == nil:
		w.WriteHeader(http.StatusAccepted)
	case m.Method == mcp.MethodListTools:
		answer(`{"tools":[]}`)
	case m.Method == mcp.MethodCallTool:
		b.calls.Add(1)
		answer(`{"content":[{"type":"text","text":"session ` + r.Header.Get(mcp.HeaderSession) + `"}]}`)
	default:
		answer(`{}`)
	}
}

func httpSpec(u string) Spec { return Spec{Name: "s", Transport: HTTP, URL: u} }

func httpConfig(t *testing.T) Config {
	c := testConfig(t)
	client := &http.Client{Transport: &http.Transport{}}
	c.HTTPClient = func(string, []toolkeep.HostPort) *http.Client { return client }
	return c
}

func TestHTTPSessionIsForgotten(t *testing.T) {
	b := newWeb(t, nil)
	s := start(t, httpConfig(t), httpSpec(b.URL))
	if got := call(t, s, toolCall(alice(), "x", "")); got != "session 1" {
		t.Error(got)
	}
	b.forget()
	// The caller sees no error, and the call ran once.
	if got := call(t, s, toolCall(alice(), "x", "")); got != "session 2" {
		t.Error(got)
	}
	if n := b.calls.Load(); n != 2 {
		t.Errorf("%d calls were carried out", n)
	}
	if st := status(t, s, alice()); st.State != StateReady || st.Lost != 1 || st.Sessions != 1 {
		t.Errorf("%+v", st)
	}
	// A GET answered with 405 is no failure, and the session ends with DELETE.
	if b.gets.Load() == 0 {
		t.Error("the server's own stream was not asked for")
	}
	if err := s.Restart(alice(), "s"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the session is ended by DELETE", func() bool { return b.deletes.Load() == 1 })
}

func TestHTTPServerKnowsNoSessionEver(t *testing.T) {
	var b *web
	b = newWeb(t, func(w http.ResponseWriter, r *http.Request, m *mcp.Message) bool {
		if m.Method == mcp.MethodCallTool {
			b.forget()
		}
		return false
	})
	s := start(t, httpConfig(t), httpSpec(b.URL))
	e := fails(t, s, toolCall(alice(), "x", ""), toolkeep.MCPUnavailable)
	if !e.NothingSent || !strings.Contains(e.Message, "no longer has the session") || b.calls.Load() != 0 {
		t.Errorf("%v", e)
	}
	if b.made != 2 {
		t.Errorf("%d sessions were made, want the first and one more", b.made)
	}
}

func TestHTTPStatuses(t *testing.T) {
	for status, code := range map[int]toolkeep.Code{
		400: toolkeep.UpstreamClientError, 401: toolkeep.SecretAccessDenied, 403: toolkeep.SecretAccessDenied, 408: toolkeep.UpstreamTimeout,
		429: toolkeep.RateLimitExceeded, 500: toolkeep.UpstreamServerError, 502: toolkeep.MCPUnavailable, 503: toolkeep.MCPUnavailable,
	} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			b := newWeb(t, func(w http.ResponseWriter, r *http.Request, m *mcp.Message) bool {
				if m.Method != mcp.MethodCallTool {
					return false
				}
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(status)
				_, _ = io.WriteString(w, "inner words")
				return true
			})
			s := start(t, httpConfig(t), httpSpec(b.URL))
			e := fails(t, s, toolCall(alice(), "x", ""), code)
			if status == 429 && e.RetryAfter != 7*time.Second {
				t.Errorf("retry after %s", e.RetryAfter)
			}
			if e.NothingSent || strings.Contains(e.Message+fmt.Sprint(e.Cause), "inner words") || strings.Contains(e.Message+fmt.Sprint(e.Cause), b.URL) {
				t.Errorf("%v, cause %v", e, e.Cause)
			}
		})
	}
}

// TestHTTPPath: an address that is another page than the server's is told with the path that most servers have.
func TestHTTPPath(t *testing.T) {
	for answer, hint := range map[int]bool{404: true, 405: true, 400: false} {
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(answer)
		}))
		t.Cleanup(web.Close)
		for path, told := range map[string]bool{"": true, "/api": true, "/mcp": false, "/a/mcp/x": false, "/mcp/sse": true} {
			s := start(t, httpConfig(t), httpSpec(web.URL+path))
			e := fails(t, s, toolCall(alice(), "x", ""), toolkeep.UpstreamClientError)
			if path == "/mcp/sse" {
				if strings.Contains(e.Message, "import mcp --sse") != hint {
					t.Errorf("%d at %q: %v", answer, path, e)
				}
				continue
			}
			if strings.Contains(e.Message, "most MCP servers are at the path /mcp") != (told && hint) {
				t.Errorf("%d at %q: %v", answer, path, e)
			}
		}
	}
}

func TestHTTPServerIsDown(t *testing.T) {
	b := newWeb(t, nil)
	b.Close()
	s := start(t, httpConfig(t), httpSpec(b.URL))
	e := fails(t, s, toolCall(alice(), "x", ""), toolkeep.MCPUnavailable)
	if !e.NothingSent || strings.Contains(e.Message, "127.0.0.1") {
		t.Errorf("%v", e)
	}
	fails(t, s, toolCall(alice(), "x", ""), toolkeep.MCPUnavailable)
	if st := status(t, s, alice()); st.State != StateBackoff || st.LastError == "" {
		t.Errorf("%+v", st)
	}
}

func TestHTTPAnswersThatAreNone(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter, m *mcp.Message)
		code   toolkeep.Code
	}{
		"HTML": {func(w http.ResponseWriter, _ *mcp.Message) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<html>hi</html>")
		}, toolkeep.MCPError},
		"broken JSON": {func(w http.ResponseWriter, _ *mcp.Message) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"jsonrpc":`)
		}, toolkeep.MCPError},
		"another id": {func(w http.ResponseWriter, _ *mcp.Message) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":12345,"result":{}}`)
		}, toolkeep.MCPError},
		"a stream without an answer": {func(w http.ResponseWriter, _ *mcp.Message) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n")
		}, toolkeep.MCPUnavailable},
		"too much": {func(w http.ResponseWriter, m *mcp.Message) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(mcp.Reply(m.ID, []byte(`{"content":"`+strings.Repeat("x", 2<<20)+`"}`)).Bytes())
		}, toolkeep.ResultTooLarge},
		"hang up": {func(w http.ResponseWriter, _ *mcp.Message) { panic(http.ErrAbortHandler) }, toolkeep.MCPUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			b := newWeb(t, func(w http.ResponseWriter, r *http.Request, m *mcp.Message) bool {
				if m.Method != mcp.MethodCallTool {
					return false
				}
				c.answer(w, m)
				return true
			})
			spec := httpSpec(b.URL)
			spec.MaxResultBytes = 1 << 20
			s := start(t, httpConfig(t), spec)
			if e := fails(t, s, toolCall(alice(), "x", ""), c.code); e.NothingSent {
				t.Errorf("%v", e)
			}
			if st := status(t, s, alice()); st.Lost != 0 {
				t.Errorf("the session is lost: %+v", st)
			}
		})
	}
}

func TestHTTPHeadersAndTheirSecrets(t *testing.T) {
	secrets := fakeSecrets{"acme env://TOKEN": "old-token-value"}
	var mu sync.Mutex
	b := newWeb(t, func(w http.ResponseWriter, r *http.Request, m *mcp.Message) bool {
		if r.Header.Get("X-Team") != "blue" {
			t.Error("a literal header is missing")
		}
		mu.Lock()
		want := "Bearer " + secrets["acme env://TOKEN"]
		mu.Unlock()
		if r.Header.Get("Authorization") != want {
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		return false
	})
	c := httpConfig(t)
	c.Secrets = resolver(func(ctx context.Context, p *toolkeep.Principal, ref string) (Value, error) {
		mu.Lock()
		defer mu.Unlock()
		return secrets.Resolve(ctx, nil, p, ref)
	})
	spec := httpSpec(b.URL)
	spec.Headers = map[string]string{"Authorization": "Bearer env://TOKEN", "X-Team": "blue"}
	s := start(t, c, spec)
	call(t, s, toolCall(alice(), "x", ""))
	// The secret changes at its source: resolving it again finds it.
	mu.Lock()
	secrets["acme env://TOKEN"] = "new-token-value"
	mu.Unlock()
	call(t, s, toolCall(alice(), "x", ""))
	if st := status(t, s, alice()); st.Lost != 0 {
		t.Errorf("%+v", st)
	}
	fails(t, s, toolCall(carol(), "x", ""), toolkeep.SecretNotFound)
}

type resolver func(context.Context, *toolkeep.Principal, string) (Value, error)

func (f resolver) Resolve(ctx context.Context, _ *Spec, p *toolkeep.Principal, ref string) (Value, error) {
	return f(ctx, p, ref)
}

// grant is an Authorizer that must first be granted access.
type grant struct {
	subject string
	in      *atomic.Bool
	token   atomic.Pointer[string]
}

func (g *grant) Header(context.Context) (http.Header, error) {
	h := http.Header{}
	if t := g.token.Load(); t != nil {
		h.Set("Authorization", "Bearer "+*t)
	}
	return h, nil
}

func (g *grant) Unauthorized(context.Context, *http.Response) error {
	if !g.in.Load() {
		return toolkeep.NewError(toolkeep.LoginRequired, "log in first").With("url", "https://login.example/"+g.subject)
	}
	t := "token-of-" + g.subject
	g.token.Store(&t)
	return nil
}

func TestHTTPLoginPassesThrough(t *testing.T) {
	b := newWeb(t, func(w http.ResponseWriter, r *http.Request, m *mcp.Message) bool {
		if r.Header.Get("Authorization") != "Bearer token-of-alice" {
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		return false
	})
	var in atomic.Bool
	c := httpConfig(t)
	c.Authorize = func(_ context.Context, s *Spec, p *toolkeep.Principal) (Authorizer, error) {
		return &grant{subject: p.Subject, in: &in}, nil
	}
	spec := httpSpec(b.URL)
	spec.Session = SessionPrincipal
	s := start(t, c, spec)
	for range 10 { // never counted as a failure of the server
		e := fails(t, s, toolCall(alice(), "x", ""), toolkeep.LoginRequired)
		if !e.NothingSent || e.Details["url"] != "https://login.example/alice" {
			t.Fatalf("%v %v", e, e.Details)
		}
	}
	if st := status(t, s, alice()); st.State != StateLogin {
		t.Errorf("%+v", st)
	}
	in.Store(true)
	call(t, s, toolCall(alice(), "x", ""))
	if st := status(t, s, alice()); st.State != StateReady {
		t.Errorf("%+v", st)
	}
}

func TestHTTPInnerAddressIsForbidden(t *testing.T) {
	b := newWeb(t, nil)
	c := testConfig(t)
	pool := egress.NewPool(egress.PoolConfig{})
	pool.Close() // so that no connection is kept
	c.HTTPClient = func(tenant string, network []toolkeep.HostPort) *http.Client {
		return &http.Client{Transport: pool.Transport(tenant, egress.NewAllowList(network))}
	}
	spec := httpSpec(b.URL)
	s := start(t, c, spec)
	if e := fails(t, s, toolCall(alice(), "x", ""), toolkeep.DestinationForbidden); !e.NothingSent {
		t.Errorf("%v", e)
	}
	u, _ := url.Parse(b.URL)
	port, _ := strconv.Atoi(u.Port())
	spec.Network = []toolkeep.HostPort{{Host: u.Hostname(), Port: port}}
	s.Set([]Spec{spec})
	call(t, s, toolCall(alice(), "x", ""))
}

// TestModernHeaders: a modern server requires an argument as a header, and refuses the
// call until its definition was read.
func TestModernHeaders(t *testing.T) {
	var calls, lists, cancelled atomic.Int64
	hold := make(chan struct{})
	b := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		m, err := mcp.Parse(data, canon.Limits{})
		if err != nil {
			t.Error(err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		reply := func(result string) { _, _ = w.Write(mcp.Reply(m.ID, []byte(result)).Bytes()) }
		switch m.Method {
		case mcp.MethodDiscover:
			reply(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`)
		case mcp.MethodListTools:
			lists.Add(1)
			reply(`{"tools":[{"name":"x","inputSchema":{"type":"object","properties":{"text":{"type":"string","x-mcp-header":"Text"}}}}]}`)
		case mcp.MethodCallTool:
			if mcp.Text(m.Params, "arguments", "text") == "hang" {
				close(hold)
				<-r.Context().Done()
				cancelled.Add(1)
				return
			}
			if r.Header.Get("Mcp-Param-Text") != "paris" || r.Header.Get(mcp.HeaderName) != "x" {
				w.WriteHeader(http.StatusBadRequest)
				_, _ = w.Write(mcp.Refuse(m.ID, mcp.NewError(mcp.CodeHeaderMismatch, "a header is missing")).Bytes())
				return
			}
			calls.Add(1)
			reply(`{"content":[{"type":"text","text":"ok"}]}`)
		}
	}))
	t.Cleanup(b.Close)
	s := start(t, httpConfig(t), httpSpec(b.URL))
	for range 3 {
		if got := call(t, s, toolCall(alice(), "x", "paris")); got != "ok" {
			t.Error(got)
		}
	}
	if calls.Load() != 3 || lists.Load() != 1 {
		t.Errorf("%d calls, %d lists", calls.Load(), lists.Load())
	}
	// Cancelling closes the request, which tells a modern server.
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-hold; cancel() }()
	failsIn(t, ctx, s, toolCall(alice(), "x", "hang"), toolkeep.Cancelled)
	eventually(t, "the server sees it", func() bool { return cancelled.Load() == 1 })
}
