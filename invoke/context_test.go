package invoke_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/overlay"
)

// fakeContext gives every call the same context.
type fakeContext struct {
	context atomic.Pointer[overlay.Context]
	refuse  atomic.Pointer[toolkeep.Error]
	asked   atomic.Int64
	left    atomic.Int64
	taken   atomic.Int64
}

func (c *fakeContext) Of(context.Context, *toolkeep.Principal, *toolkeep.Tool) (*overlay.Context, error) {
	c.asked.Add(1)
	if e := c.refuse.Load(); e != nil {
		own := *e
		return nil, &own
	}
	return c.context.Load(), nil
}

func (c *fakeContext) Peek(*toolkeep.Principal, *toolkeep.Tool, *overlay.Context) error {
	if c.left.Load() <= 0 {
		return toolkeep.NewError(toolkeep.RateLimitExceeded, "too many").After(time.Second)
	}
	return nil
}

func (c *fakeContext) Take(p *toolkeep.Principal, t *toolkeep.Tool, x *overlay.Context) (toolkeep.RateLeft, error) {
	if err := c.Peek(p, t, x); err != nil {
		return toolkeep.RateLeft{}, err
	}
	c.taken.Add(1)
	return toolkeep.RateLeft{Kind: "context", PerMinute: 1000, Left: int(c.left.Add(-1))}, nil
}

// withContext returns a harness whose callers have a context.
func withContext(t *testing.T, body string, change ...func(*invoke.Config)) (*harness, *fakeContext) {
	t.Helper()
	f := &fakeContext{}
	f.left.Store(1000)
	f.set(t, body)
	return newHarness(t, append([]func(*invoke.Config){func(c *invoke.Config) { c.Overlays = f }}, change...)...), f
}

func (c *fakeContext) set(t *testing.T, body string) {
	t.Helper()
	if body == "" {
		c.context.Store(nil)
		return
	}
	x, err := overlay.Parse([]byte(body), true)
	if err != nil {
		t.Fatal(err)
	}
	c.context.Store(x)
}

func TestContextNarrowsLimits(t *testing.T) {
	t.Run("attempts", func(t *testing.T) {
		for body, want := range map[string]int64{"": 3, `{"config":{"retry_max_attempts":2}}`: 2, `{"config":{"retry_max_attempts":100}}`: 3} {
			h, _ := withContext(t, body)
			h.executor.do = func(context.Context, *toolkeep.Execution) (*toolkeep.Output, error) {
				return nil, toolkeep.NewError(toolkeep.UpstreamServerError, "down")
			}
			h.tool("down")
			res, err := h.call(&toolkeep.Call{Tool: "std.down"})
			if err != nil || res.Error.Code != toolkeep.UpstreamServerError || h.executor.calls.Load() != want {
				t.Errorf("%q: %d attempts, want %d (%v %v)", body, h.executor.calls.Load(), want, res, err)
			}
		}
	})
	t.Run("time", func(t *testing.T) {
		h, _ := withContext(t, `{"config":{"timeout":30}}`)
		h.executor.do = hold(make(chan struct{}, 1), nil)
		h.tool("slow")
		res, err := h.call(&toolkeep.Call{Tool: "std.slow", Timeout: 20 * time.Second})
		if err != nil || res.Error == nil || res.Error.Code != toolkeep.Timeout {
			t.Errorf("%+v %v", res, err)
		}
	})
	t.Run("rate", func(t *testing.T) {
		h, f := withContext(t, `{"config":{"rate_limit_per_minute":1}}`)
		f.left.Store(1)
		h.tool("some")
		// A refusal by another limit takes nothing from this one.
		h.limits.refuse.Store(toolkeep.NewError(toolkeep.ConcurrencyLimitExceeded, "full"))
		_, err := h.call(&toolkeep.Call{Tool: "std.some"})
		wantCode(t, err, toolkeep.ConcurrencyLimitExceeded)
		h.limits.refuse.Store(nil)
		if _, err := h.call(&toolkeep.Call{Tool: "std.some"}); err != nil {
			t.Fatal(err)
		}
		_, err = h.call(&toolkeep.Call{Tool: "std.some"})
		wantCode(t, err, toolkeep.RateLimitExceeded)
		if f.taken.Load() != 1 || h.limits.held() != 0 {
			t.Errorf("%d taken, %d slots held", f.taken.Load(), h.limits.held())
		}
	})
}

func TestContextDown(t *testing.T) {
	h, f := withContext(t, "")
	h.tool("some", func(m *toolkeep.Manifest) { m.SideEffects = "writes" })
	f.refuse.Store(toolkeep.NewError(toolkeep.PolicyEngineUnavailable, "no answer").With("reason", "CONTEXT_UNAVAILABLE"))
	for _, c := range []*toolkeep.Call{{Tool: "std.some"}, {Tool: "std.some", Key: "k"}, {Tool: "std.some", Async: true}} {
		_, err := h.call(c)
		wantCode(t, err, toolkeep.PolicyEngineUnavailable)
		if !err.Retryable {
			t.Errorf("%+v", err)
		}
	}
	if h.executor.calls.Load() != 0 || h.limits.held() != 0 {
		t.Error("the tool ran, or a slot is held")
	}
	f.refuse.Store(nil)
	if _, err := h.call(&toolkeep.Call{Tool: "std.some", Key: "k"}); err != nil {
		t.Errorf("the key was not left free: %v", err)
	}
}

// TestContextOfWaitingCalls: a worker looks the context up again.
func TestContextOfWaitingCalls(t *testing.T) {
	h, f := withContext(t, `{"session_context":{"a":"then"}}`)
	var facts atomic.Pointer[map[string]string]
	h.executor.do = func(_ context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		own := maps.Clone(x.Facts)
		facts.Store(&own)
		return &toolkeep.Output{Value: "ok", HasValue: true}, nil
	}
	h.tool("some")
	res, err := h.call(&toolkeep.Call{Tool: "std.some", Async: true})
	if err != nil {
		t.Fatal(err)
	}
	f.set(t, `{"session_context":{"a":"now"}}`)
	h.work()
	if row := h.row(res.InvocationID); row.State != toolkeep.CallSucceeded || (*facts.Load())["a"] != "now" {
		t.Errorf("%s %v", row.State, *facts.Load())
	}
}

// TestContextDownForWorker: a waiting call is postponed while its context is
// unavailable.
func TestContextDownForWorker(t *testing.T) {
	h, f := withContext(t, "")
	h.tool("some")
	res, err := h.call(&toolkeep.Call{Tool: "std.some", Async: true})
	if err != nil {
		t.Fatal(err)
	}
	f.refuse.Store(toolkeep.NewError(toolkeep.PolicyEngineUnavailable, "no answer").After(time.Second))
	h.mu.Lock()
	first := h.queue[0]
	h.queue = nil
	h.mu.Unlock()
	if err := h.pipeline.Run(context.Background(), first.Call); err != nil {
		t.Fatal(err)
	}
	if row := h.row(res.InvocationID); row.State != toolkeep.CallQueued || row.Code != "" {
		t.Errorf("%s %s", row.State, row.Code)
	}
	f.refuse.Store(nil)
	h.work()
	if row := h.row(res.InvocationID); row.State != toolkeep.CallSucceeded || h.executor.calls.Load() != 1 {
		t.Errorf("%s, %d executions", row.State, h.executor.calls.Load())
	}
}

func TestContextCredentials(t *testing.T) {
	h, f := withContext(t, `{"credentials":{"token":"env://AGENT"}}`)
	var got atomic.Pointer[[]toolkeep.Credential]
	h.executor.do = func(_ context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		got.Store(&x.Credentials)
		return &toolkeep.Output{Value: "ok", HasValue: true}, nil
	}
	asks := func(listed ...string) func(*toolkeep.Manifest) {
		return func(m *toolkeep.Manifest) {
			m.Auth = []toolkeep.AuthSpec{{Type: "bearer", Secret: "context://token"}}
			m.Permissions = &toolkeep.Permissions{Credentials: listed}
		}
	}
	h.tool("lists", asks("env://AGENT"))
	h.tool("other", asks("env://OTHER"))
	h.tool("nothing", asks())
	if res, err := h.call(&toolkeep.Call{Tool: "std.lists"}); err != nil || res.Error != nil {
		t.Fatalf("%+v %v", res, err)
	}
	if creds := *got.Load(); len(creds) != 1 || creds[0].Value != "s3cret-value-of-AGENT" {
		t.Errorf("%+v", creds)
	}
	before := h.executor.calls.Load()
	for _, name := range []string{"std.other", "std.nothing"} {
		_, err := h.call(&toolkeep.Call{Tool: name})
		wantCode(t, err, toolkeep.CredentialDenied)
	}
	f.set(t, "")
	_, err := h.call(&toolkeep.Call{Tool: "std.lists"})
	wantCode(t, err, toolkeep.SecretNotFound)
	if h.executor.calls.Load() != before {
		t.Error("a tool ran without its credential")
	}
}

// TestContextAndCache keeps one context's results from another.
func TestContextAndCache(t *testing.T) {
	h, f := withContext(t, "")
	h.tool("cached", func(m *toolkeep.Manifest) { m.Cache = &toolkeep.CacheSpec{Policy: "ttl", TTLSeconds: 60} })
	run := func() (string, bool) {
		t.Helper()
		res, err := h.call(&toolkeep.Call{Tool: "std.cached"})
		if err != nil || res.Error != nil {
			t.Fatalf("%+v %v", res, err)
		}
		return string(res.Output), res.Cached
	}
	bodies := []string{"", `{"session_context":{"project":"a"}}`, `{"session_context":{"project":"b"}}`, `{"credentials":{"t":"env://A"}}`}
	outputs := map[string]bool{}
	for _, b := range bodies {
		f.set(t, b)
		out, cached := run()
		if cached || outputs[out] {
			t.Errorf("%q got the result of another context: %s", b, out)
		}
		outputs[out] = true
		if again, cached := run(); !cached || again != out {
			t.Errorf("%q: the second call: %s, cached %t", b, again, cached)
		}
	}
	// Limits change no result.
	f.set(t, `{"config":{"timeout":5000}}`)
	if _, cached := run(); !cached {
		t.Error("a time limit made another question of it")
	}
}

func TestContextInExplain(t *testing.T) {
	h, f := withContext(t, `{"credentials":{"token":"env://AGENT"},"config":{"timeout":100,"rate_limit_per_minute":5},"session_context":{"user_id":"user_123"}}`)
	h.tool("some", func(m *toolkeep.Manifest) {
		m.Auth = []toolkeep.AuthSpec{{Type: "bearer", Secret: "context://token"}}
		m.Permissions = &toolkeep.Permissions{Credentials: []string{"env://AGENT"}}
	})
	explain := func() (*invoke.Explanation, string) {
		t.Helper()
		v, err := h.pipeline.Explain(context.Background(), alice, &toolkeep.Call{Tool: "std.some"})
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return v.(*invoke.Explanation), string(raw)
	}
	x, raw := explain()
	limit := x.Steps[invoke.StepLimit]
	if !x.Execute || limit.Reason != "the agent's context: timeout lowered to 100 ms; rate_limit_per_minute is 5; credentials token; facts user_id" {
		t.Errorf("%t %q\n%s", x.Execute, limit.Reason, raw)
	}
	if strings.Contains(raw, "user_123") || strings.Contains(raw, "AGENT") || f.taken.Load() != 0 {
		t.Errorf("explain shows a value, or takes: %s", raw)
	}
	f.left.Store(0)
	if x, _ := explain(); x.Execute || x.Steps[invoke.StepLimit].Code != toolkeep.RateLimitExceeded {
		t.Errorf("%+v", x.Steps[invoke.StepLimit])
	}
	f.left.Store(9)
	f.refuse.Store(toolkeep.NewError(toolkeep.PolicyEngineUnavailable, "no answer"))
	if x, _ := explain(); x.Execute || x.Steps[invoke.StepLimit].Code != toolkeep.PolicyEngineUnavailable {
		t.Errorf("%+v", x.Steps[invoke.StepLimit])
	}
}

// TestContextIsNotRecorded searches all that a call leaves for facts and references.
func TestContextIsNotRecorded(t *testing.T) {
	h, _ := withContext(t, `{"credentials":{"token":"env://AGENT"},"session_context":{"user":"Ada Lovelace"}}`)
	h.executor.do = func(_ context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		x.Facts["user"] = "changed by the executor" // it has its own copy
		return nil, toolkeep.NewError(toolkeep.UpstreamClientError, "no")
	}
	h.tool("some")
	for range 2 {
		if _, err := h.call(&toolkeep.Call{Tool: "std.some", Key: "", Async: false}); err != nil {
			t.Fatal(err)
		}
		if raw := fmt.Sprintf("%+v", <-h.observed); strings.Contains(raw, "Ada") || strings.Contains(raw, "AGENT") {
			t.Errorf("the record: %s", raw)
		}
	}
	if f := h.config.Overlays.(*fakeContext).context.Load().Facts["user"]; f != "Ada Lovelace" {
		t.Errorf("an executor changed the context: %q", f)
	}
}
