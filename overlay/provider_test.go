package overlay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/store/sqlite"
)

var (
	agent = &toolkeep.Principal{Tenant: "acme", Subject: "agent"}
	admin = &toolkeep.Principal{Tenant: "acme", Subject: "admin", Permissions: []string{toolkeep.PermContext}}
	tool  = &toolkeep.Tool{ID: "t.x", Version: "1.0.0", Manifest: &toolkeep.Manifest{}}
)

// world is a store shared by several nodes.
type world struct {
	t      *testing.T
	store  *sqlite.Store
	sealer *secret.Sealer
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(dir, "db")})
	check(t, err)
	t.Cleanup(func() { check(t, store.Close()) })
	sealer, err := secret.OpenSealer(filepath.Join(dir, "key"))
	check(t, err)
	return &world{t, store, sealer}
}

// node is a Provider that follows the feed until the test ends.
func (w *world) node(change ...func(*Config)) *Provider {
	w.t.Helper()
	c := Config{Store: w.store, Sealer: w.sealer}
	for _, f := range change {
		f(&c)
	}
	p, err := New(c)
	check(w.t, err)
	after, err := p.Start(w.t.Context())
	check(w.t, err)
	ctx, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for c, err := range w.store.Watch(ctx, after) {
			if err != nil {
				return
			}
			p.Follow(c)
		}
	})
	w.t.Cleanup(func() { stop(); done.Wait(); p.Stop(); p.Stop() })
	return p
}

func of(t testing.TB, p *Provider, who *toolkeep.Principal, tl *toolkeep.Tool) *Context {
	t.Helper()
	c, err := p.Of(t.Context(), who, tl)
	check(t, err)
	return c
}

func TestStored(t *testing.T) {
	w := newWorld(t)
	p := w.node()
	if c := of(t, p, agent, tool); c != nil {
		t.Fatalf("%+v", c)
	}
	check(t, p.Put(t.Context(), admin, "agent", "t.x", []byte(`{"config":{"timeout":100},"session_context":{"user":"Ada Lovelace"}}`)))
	check(t, p.Put(t.Context(), admin, "agent", "*", []byte(`{"config":{"timeout":50,"retry_max_attempts":2},"session_context":{"user":"all","team":"red"}}`)))
	c := of(t, p, agent, tool)
	if c.Timeout != 50*time.Millisecond || c.Attempts != 2 || c.Facts["user"] != "Ada Lovelace" || c.Facts["team"] != "red" {
		t.Errorf("%s", c.JSON())
	}
	if c := of(t, p, agent, &toolkeep.Tool{ID: "t.y"}); c.Facts["user"] != "all" {
		t.Errorf("%s", c.JSON())
	}
	for _, other := range []*toolkeep.Principal{{Tenant: "other", Subject: "agent"}, {Tenant: "acme", Subject: "other"}} {
		if c := of(t, p, other, tool); c != nil {
			t.Errorf("%v has the context of another: %s", other, c.JSON())
		}
	}
	// A node that starts now and one that was already running both have it.
	late := w.node()
	if c := of(t, late, agent, tool); c.Attempts != 2 {
		t.Errorf("%s", c.JSON())
	}
	check(t, p.Delete(t.Context(), admin, "agent", "*"))
	if c := of(t, p, agent, tool); c.Attempts != 0 || c.Timeout != 100*time.Millisecond {
		t.Errorf("%s", c.JSON())
	}
	check(t, late.position.Await(t.Context(), w.store))
	if c := of(t, late, agent, tool); c.Attempts != 0 {
		t.Errorf("the other node: %s", c.JSON())
	}
	raw, err := p.Get(t.Context(), admin, "agent", "t.x")
	check(t, err)
	if string(raw) != `{"config":{"timeout":100},"session_context":{"user":"Ada Lovelace"}}` {
		t.Errorf("%s", raw)
	}
	items, _, err := w.store.Documents(t.Context(), DocumentKind)
	check(t, err)
	if len(items) != 1 || strings.Contains(string(items[0].Body), "Ada") || items[0].UpdatedBy != "admin" {
		t.Errorf("%+v", items)
	}
}

func TestStoredRefuses(t *testing.T) {
	w := newWorld(t)
	p := w.node()
	put := func(who *toolkeep.Principal, agent, tool, body string) error {
		return p.Put(t.Context(), who, agent, tool, []byte(body))
	}
	wantCode(t, put(agent, "agent", "t.x", `{}`), toolkeep.PermissionDenied)
	wantCode(t, second(p.Get(t.Context(), agent, "agent", "t.x")), toolkeep.PermissionDenied)
	wantCode(t, p.Delete(t.Context(), agent, "agent", "t.x"), toolkeep.PermissionDenied)
	wantCode(t, put(admin, "", "t.x", `{}`), toolkeep.InvalidParameters)
	wantCode(t, put(admin, "agent", "nope", `{}`), toolkeep.InvalidParameters)
	wantCode(t, put(admin, "agent", "t.*", `{}`), toolkeep.InvalidParameters)
	wantCode(t, put(admin, strings.Repeat("ä", 200), "t.x", `{}`), toolkeep.InvalidParameters)
	wantCode(t, put(admin, "agent", "t.x", `{"x":1}`), toolkeep.InputValidationFailed)
	wantCode(t, second(p.Get(t.Context(), admin, "agent", "t.x")), toolkeep.ResourceNotFound)
	wantCode(t, p.Delete(t.Context(), admin, "agent", "t.x"), toolkeep.ResourceNotFound)
	check(t, put(admin, "did:web:a/b c", "t.x", `{"config":{"timeout":9}}`))
	if c := of(t, p, &toolkeep.Principal{Tenant: "acme", Subject: "did:web:a/b c"}, tool); c == nil || c.Timeout != 9*time.Millisecond {
		t.Errorf("%+v", c)
	}
	// A context that cannot be opened may have forbidden the call.
	other, err := secret.OpenSealer(filepath.Join(t.TempDir(), "key"))
	check(t, err)
	check(t, put(admin, "agent", "t.x", `{}`))
	strange := w.node(func(c *Config) { c.Sealer = other })
	e := wantCode(t, second(strange.Of(t.Context(), agent, tool)), toolkeep.PolicyEngineUnavailable)
	if e.Details["reason"] != "CONTEXT_UNAVAILABLE" || !e.Retryable || !e.NothingSent {
		t.Errorf("%+v", e)
	}
	wantCode(t, second(strange.Get(t.Context(), admin, "agent", "t.x")), toolkeep.PolicyEngineUnavailable)
	check(t, strange.Put(t.Context(), admin, "agent", "t.x", []byte(`{"config":{"timeout":3}}`)))
	if c := of(t, strange, agent, tool); c.Timeout != 3*time.Millisecond {
		t.Errorf("%+v", c)
	}
}

// service is a context service on loopback.
type service struct {
	*httptest.Server
	asked  atomic.Int64
	answer atomic.Pointer[http.HandlerFunc]
}

func newService(t *testing.T, h http.HandlerFunc) *service {
	s := &service{}
	s.answer.Store(&h)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		(*s.answer.Load())(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// clock is a time that tests move.
type clock struct{ ns atomic.Int64 }

func (c *clock) now() time.Time       { return time.Unix(1_800_000_000, c.ns.Load()) }
func (c *clock) pass(d time.Duration) { c.ns.Add(int64(d)) }

// remoteNode is a provider that queries the service.
func (w *world) remoteNode(s *service, c *clock, change ...func(*Config)) *Provider {
	client := &http.Client{Transport: &http.Transport{}, CheckRedirect: egress.NoRedirects}
	w.t.Cleanup(client.CloseIdleConnections)
	return w.node(append([]func(*Config){func(cfg *Config) {
		cfg.URL, cfg.Client, cfg.Required, cfg.Clock = s.URL+"/base/", client, true, c.now
		cfg.Timeout = 10 * time.Second // tests of slow services set their own
	}}, change...)...)
}

func TestRemote(t *testing.T) {
	w, c := newWorld(t), &clock{}
	var seen atomic.Pointer[http.Request]
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		seen.Store(r)
		says(200, `{"config":{"timeout":70},"later":true}`)(w, r)
	})
	p := w.remoteNode(s, c, func(cfg *Config) {
		cfg.Bearer = func(context.Context) (string, error) { return "t0ken", nil }
	})
	who := &toolkeep.Principal{Tenant: "acme", Subject: "did:web:a/b"}
	if got := of(t, p, who, tool); got.Timeout != 70*time.Millisecond {
		t.Errorf("%+v", got)
	}
	r := seen.Load()
	if r.URL.EscapedPath() != "/base/api/v1/context/agent/did:web:a%2Fb/tool/t.x" || r.Header.Get("Authorization") != "Bearer t0ken" || r.Header.Get("X-Tenant-ID") != "acme" || r.Method != "GET" {
		t.Errorf("%s %s %v", r.Method, r.URL.EscapedPath(), r.Header)
	}
	// The service is queried once in five minutes, per tenant, agent and tool.
	c.pass(5*time.Minute - 1)
	of(t, p, who, tool)
	if n := s.asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
	c.pass(1)
	of(t, p, who, tool)
	of(t, p, &toolkeep.Principal{Tenant: "other", Subject: who.Subject}, tool)
	of(t, p, who, &toolkeep.Tool{ID: "t.y"})
	if n := s.asked.Load(); n != 4 {
		t.Errorf("asked %d times, want 4", n)
	}
	// A change of the stored context queries the service again, for one tool or for all.
	check(t, p.Put(t.Context(), admin, who.Subject, "*", []byte(`{"config":{"timeout":60}}`)))
	if got := of(t, p, who, tool); got.Timeout != 60*time.Millisecond || s.asked.Load() != 5 {
		t.Errorf("%+v, asked %d times", got, s.asked.Load())
	}
	check(t, p.Put(t.Context(), admin, who.Subject, "t.x", []byte(`{"config":{"timeout":80}}`)))
	if got := of(t, p, who, tool); got.Timeout != 60*time.Millisecond || s.asked.Load() != 6 {
		t.Errorf("%+v, asked %d times", got, s.asked.Load())
	}
	// A missing context is cached for 30 seconds.
	h := says(404, "")
	s.answer.Store(&h)
	fresh := &toolkeep.Principal{Tenant: "acme", Subject: "new"}
	if got := of(t, p, fresh, tool); got != nil {
		t.Errorf("%+v", got)
	}
	c.pass(30*time.Second - 1)
	of(t, p, fresh, tool)
	if n := s.asked.Load(); n != 7 {
		t.Errorf("asked %d times", n)
	}
	c.pass(1)
	of(t, p, fresh, tool)
	if n := s.asked.Load(); n != 8 {
		t.Errorf("asked %d times", n)
	}
}

func TestRemoteFails(t *testing.T) {
	var log strings.Builder
	var mu sync.Mutex
	logger := slog.New(slog.NewTextHandler(writer(func(b []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return log.Write(b)
	}), nil))
	for name, h := range map[string]http.HandlerFunc{
		"status":       says(500, "s3cret"),
		"unauthorised": says(401, "s3cret"),
		"no JSON":      says(200, "<s3cret>"),
		"an array":     says(200, `["s3cret"]`),
		"wrong type":   says(200, `{"config":{"timeout":"s3cret"}}`),
		"a secret":     says(200, `{"credentials":{"token":"s3cret"}}`),
		"too large":    says(200, `{"x":"`+strings.Repeat("s3cret", 20_000)+`"}`),
		"twice":        says(200, `{"config":{"timeout":1,"timeout":100000}}`),
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		},
		"cut off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"s3cret`)
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, c := newWorld(t), &clock{}
			s := newService(t, h)
			p := w.remoteNode(s, c, func(cfg *Config) { cfg.Log = logger })
			e := wantCode(t, second(p.Of(t.Context(), agent, tool)), toolkeep.PolicyEngineUnavailable)
			if e.Details["reason"] != "CONTEXT_UNAVAILABLE" || !e.Retryable || e.RetryAfter <= 0 || !e.NothingSent || strings.Contains(fmt.Sprintf("%+v %v", e, e.Cause), "s3cret") {
				t.Errorf("%+v %v", e, e.Cause)
			}
			// For a second the service is not queried; then it may have recovered.
			wantCode(t, second(p.Of(t.Context(), agent, tool)), toolkeep.PolicyEngineUnavailable)
			if n := s.asked.Load(); n != 1 {
				t.Errorf("asked %d times", n)
			}
			well := says(200, `{}`)
			s.answer.Store(&well)
			c.pass(failureLife)
			of(t, p, agent, tool)
		})
		t.Run(name+", not required", func(t *testing.T) {
			w, c := newWorld(t), &clock{}
			p := w.remoteNode(newService(t, h), c, func(cfg *Config) { cfg.Required = false })
			check(t, p.Put(t.Context(), admin, "agent", "t.x", []byte(`{"config":{"timeout":5}}`)))
			if got := of(t, p, agent, tool); got.Timeout != 5*time.Millisecond {
				t.Errorf("%+v", got)
			}
		})
	}
	mu.Lock()
	defer mu.Unlock()
	if strings.Contains(log.String(), "s3cret") || !strings.Contains(log.String(), "status 500") {
		t.Errorf("the log: %s", log.String())
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

func TestRemoteToken(t *testing.T) {
	w, c := newWorld(t), &clock{}
	s := newService(t, says(200, `{}`))
	p := w.remoteNode(s, c, func(cfg *Config) {
		cfg.Bearer = func(context.Context) (string, error) {
			return "", toolkeep.NewError(toolkeep.SecretNotFound, "gone")
		}
	})
	e := wantCode(t, second(p.Of(t.Context(), agent, tool)), toolkeep.PolicyEngineUnavailable)
	if s.asked.Load() != 0 || !strings.Contains(e.Cause.Error(), "E3401") {
		t.Errorf("asked %d times, %v", s.asked.Load(), e.Cause)
	}
}

// TestRemoteSlow bounds what a hanging service costs, with fake time.
func TestRemoteSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		hang := &http.Client{Transport: tripper(func(r *http.Request) (*http.Response, error) {
			asked.Add(1)
			<-r.Context().Done()
			return nil, r.Context().Err()
		})}
		p, err := New(Config{Store: emptyStore{}, Sealer: plainSealer{}, URL: "http://sessions.example", Client: hang, Required: true})
		check(t, err)
		_, err = p.Start(t.Context())
		check(t, err)
		defer p.Stop()
		began := time.Now()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { wantCode(t, second(p.Of(t.Context(), agent, tool)), toolkeep.PolicyEngineUnavailable) })
		}
		wg.Wait()
		if took := time.Since(began); took != 500*time.Millisecond || asked.Load() != 1 {
			t.Errorf("took %s and %d requests, want 500ms and 1", took, asked.Load())
		}
		// A caller that leaves does not stop the shared request.
		time.Sleep(2 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		wg.Go(func() { wantCode(t, second(p.Of(t.Context(), agent, tool)), toolkeep.PolicyEngineUnavailable) })
		wantCode(t, second(p.Of(ctx, agent, tool)), toolkeep.Cancelled)
		wg.Wait()
		if asked.Load() != 2 {
			t.Errorf("%d requests", asked.Load())
		}
		// Stop ends a running request.
		time.Sleep(2 * time.Second)
		began = time.Now()
		wg.Go(func() { wantCode(t, second(p.Of(t.Context(), agent, tool)), toolkeep.PolicyEngineUnavailable) })
		synctest.Wait()
		p.Stop()
		wg.Wait()
		if took := time.Since(began); took != 0 {
			t.Errorf("Stop took %s", took)
		}
		time.Sleep(2 * time.Second)
		wantCode(t, second(p.Of(t.Context(), agent, tool)), toolkeep.PolicyEngineUnavailable)
	})
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type emptyStore struct{}

func (emptyStore) Apply(context.Context, ...toolkeep.Change) error { return errors.New("broken") }
func (emptyStore) Head(context.Context) (int64, error)             { return 0, nil }
func (emptyStore) Documents(context.Context, string) ([]toolkeep.Document, int64, error) {
	return nil, 0, nil
}

type plainSealer struct{}

func (plainSealer) Seal(plain, _ []byte) ([]byte, error)  { return plain, nil }
func (plainSealer) Open(sealed, _ []byte) ([]byte, error) { return sealed, nil }

func TestStoreDown(t *testing.T) {
	p, err := New(Config{Store: emptyStore{}, Sealer: plainSealer{}})
	check(t, err)
	wantCode(t, p.Put(t.Context(), admin, "a", "t.x", []byte(`{}`)), toolkeep.RecordUnavailable)
}

// TestRemoteTogether has many callers use few tools while contexts change.
func TestRemoteTogether(t *testing.T) {
	w, c := newWorld(t), &clock{}
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		says(200, `{"session_context":{"path":"`+r.Header.Get("X-Tenant-ID")+r.URL.Path+`"}}`)(w, r)
	})
	p := w.remoteNode(s, c, func(cfg *Config) { cfg.entries = 3 })
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 50 {
				who := &toolkeep.Principal{Tenant: fmt.Sprint("t", j%3), Subject: fmt.Sprint("a", i%2)}
				got, err := p.Of(context.Background(), who, &toolkeep.Tool{ID: fmt.Sprint("t.x", j%2)})
				if err != nil {
					t.Error(err)
					return
				}
				if want := fmt.Sprintf("t%d/base/api/v1/context/agent/a%d/tool/t.x%d", j%3, i%2, j%2); got.Facts["path"] != want {
					t.Errorf("%q, want %q", got.Facts["path"], want)
				}
				if j%10 == 0 {
					p.forget(key{who.Tenant, who.Subject, "*"})
					c.pass(time.Minute)
				}
			}
		})
	}
	wg.Wait()
	p.remote.mu.Lock()
	defer p.remote.mu.Unlock()
	if n := len(p.remote.entries); n > 3 {
		t.Errorf("%d answers are kept", n)
	}
}

// taking is take without what is left.
func taking(r *rates) func(key, *Context, bool) error {
	return func(k key, c *Context, take bool) error {
		_, err := r.take(k, c, take)
		return err
	}
}

// TestRateLeft: a call says what its rate has left, and when that is full again.
func TestRateLeft(t *testing.T) {
	var c clock
	r := newRates(c.now, nil)
	for _, x := range []struct {
		pass, reset time.Duration
		left        int
	}{{0, 20 * time.Second, 2}, {time.Second, 39 * time.Second, 1}, {time.Second, 58 * time.Second, 0}, {time.Hour, 20 * time.Second, 2}} {
		c.pass(x.pass)
		left, err := r.take(key{"acme", "agent", "t.x"}, &Context{PerMinute: 3}, true)
		if want := (toolkeep.RateLeft{Kind: "context", PerMinute: 3, Left: x.left, Reset: x.reset}); err != nil || left != want {
			t.Errorf("%+v %v, want %+v", left, err, want)
		}
	}
}

func TestRates(t *testing.T) {
	var c clock
	take := taking(newRates(c.now, nil))
	ctx := &Context{PerMinute: 3}
	k := key{"acme", "agent", "t.x"}
	for range 3 {
		check(t, take(k, ctx, false))
		check(t, take(k, ctx, true))
	}
	e := wantCode(t, take(k, ctx, true), toolkeep.RateLimitExceeded)
	if e.RetryAfter != 20*time.Second || e.Details["limit_type"] != "context" {
		t.Errorf("%+v", e)
	}
	check(t, take(key{"acme", "other", "t.x"}, ctx, true))
	check(t, take(k, nil, true))
	check(t, take(k, &Context{}, true))
	c.pass(20*time.Second - 1)
	wantCode(t, take(k, ctx, false), toolkeep.RateLimitExceeded)
	c.pass(1)
	check(t, take(k, ctx, true))
	wantCode(t, take(k, ctx, true), toolkeep.RateLimitExceeded)
}

// TestRatesOfNodes: of several nodes each takes its share, and says so; what is used up stays so when their number
// changes.
func TestRatesOfNodes(t *testing.T) {
	var c clock
	nodes := 2
	take := taking(newRates(c.now, func(limit int) (int, int) { return max(limit/nodes, 1), nodes }))
	ctx, k := &Context{PerMinute: 6}, key{"acme", "agent", "t.x"}
	for range 3 {
		check(t, take(k, ctx, true))
	}
	e := wantCode(t, take(k, ctx, true), toolkeep.RateLimitExceeded)
	if e.RetryAfter != 20*time.Second || e.Details["limit_per_minute"] != 6 || e.Details["nodes"] != 2 || e.Details["share_per_minute"] != 3 ||
		!strings.Contains(e.Message, "6 calls a minute") || !strings.Contains(e.Message, "2 nodes") {
		t.Errorf("%+v", e)
	}
	nodes = 1
	wantCode(t, take(k, ctx, true), toolkeep.RateLimitExceeded)
	c.pass(10 * time.Second)
	check(t, take(k, ctx, true))
	wantCode(t, take(k, ctx, true), toolkeep.RateLimitExceeded)
}

func TestConfig(t *testing.T) {
	ok := Config{Store: emptyStore{}, Sealer: plainSealer{}}
	for _, c := range []Config{{}, {Store: emptyStore{}}, {Sealer: plainSealer{}}} {
		if _, err := New(c); err == nil {
			t.Error("a part is missing and New takes it")
		}
	}
	for _, u := range []string{"ftp://x", "x", "http://u:p@x", "http://x?a=1", "https://x"} {
		c := ok
		c.URL = u
		if _, err := New(c); err == nil {
			t.Errorf("%s without a client, or no address, is taken", u)
		}
	}
}
