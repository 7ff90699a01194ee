package invoke_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/limit/breaker"
	"github.com/toolkeep/toolkeep/resultcache"
)

// TestStaleResultStandsInForAFailure fails a tool after its cached result has passed its TTL.
func TestStaleResultStandsInForAFailure(t *testing.T) {
	var passed atomic.Int64
	clock := func() time.Time { return time.Unix(1_700_000_000+passed.Load(), 0) }
	h := newHarness(t, func(c *invoke.Config) { c.Results = resultcache.New(resultcache.Config{Clock: clock}) })
	h.tool("stale", func(m *toolkeep.Manifest) {
		m.Cache = &toolkeep.CacheSpec{Policy: "ttl", TTLSeconds: 10, StaleIfErrorS: 100}
	})
	h.tool("strict", func(m *toolkeep.Manifest) { m.Cache = &toolkeep.CacheSpec{Policy: "ttl", TTLSeconds: 10} })
	var code atomic.Value
	h.executor.do = func(context.Context, *toolkeep.Execution) (*toolkeep.Output, error) {
		if c, _ := code.Load().(toolkeep.Code); c != "" {
			return nil, toolkeep.NewError(c, "broken")
		}
		return &toolkeep.Output{Value: "fine", HasValue: true}, nil
	}
	call := func(tool string) *toolkeep.Result {
		res, err := h.call(&toolkeep.Call{Tool: "std." + tool, Arguments: []byte(`{"n":1}`)})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	for _, tool := range []string{"stale", "strict"} {
		if res := call(tool); res.Cached || res.Age != 0 {
			t.Fatalf("%+v", res)
		}
	}
	code.Store(toolkeep.UpstreamServerError)
	if res := call("stale"); !res.Cached || len(res.Warnings) != 0 {
		t.Errorf("within the TTL: %+v", res)
	}
	passed.Store(50)
	res := call("stale")
	if res.Error != nil || string(res.Output) != `"fine"` || !res.Cached || res.Age != 50*time.Second || res.Attempts != 3 ||
		len(res.Warnings) != 1 || res.Warnings[0].Code != toolkeep.UpstreamServerError || res.Warnings[0].Details["age_s"] != 50 {
		t.Errorf("%+v", res)
	}
	if res := call("strict"); res.Error == nil {
		t.Errorf("without stale_if_error_s: %+v", res)
	}
	code.Store(toolkeep.UpstreamClientError)
	if res := call("stale"); res.Error == nil || res.Error.Code != toolkeep.UpstreamClientError {
		t.Errorf("a failure that will not pass: %+v", res)
	}
	code.Store(toolkeep.UpstreamServerError)
	passed.Store(110)
	if res := call("stale"); res.Error == nil {
		t.Errorf("after stale_if_error_s: %+v", res)
	}
	code.Store(toolkeep.Code(""))
	if res := call("stale"); res.Error != nil || res.Cached {
		t.Errorf("the tool works again: %+v", res)
	}
}

// TestCachedResultWhileTheBreakerIsOpen: a breaker refuses a tool, and its cached results are given, as far as the limits allow.
func TestCachedResultWhileTheBreakerIsOpen(t *testing.T) {
	var passed atomic.Int64
	clock := func() time.Time { return time.Unix(1_700_000_000+passed.Load(), 0) }
	breakers := breaker.New(breaker.Config{Clock: clock})
	h := newHarness(t, func(c *invoke.Config) {
		c.Results, c.Breakers = resultcache.New(resultcache.Config{Clock: clock}), breakers
	})
	few, never, long := 2, 100.0, int64(3_600_000)
	rule := func(stale int) func(m *toolkeep.Manifest) {
		return func(m *toolkeep.Manifest) {
			m.Retry.MaxAttempts = 1
			m.Cache = &toolkeep.CacheSpec{Policy: "ttl", TTLSeconds: 10, StaleIfErrorS: stale}
			m.Breaker = &toolkeep.BreakerSpec{ConsecutiveFailures: &few, FailureRate: &never, OpenMS: &long}
		}
	}
	h.tool("stale", rule(100))
	h.tool("strict", rule(0))
	var broken atomic.Bool
	h.executor.do = func(context.Context, *toolkeep.Execution) (*toolkeep.Output, error) {
		if broken.Load() {
			return nil, toolkeep.NewError(toolkeep.UpstreamServerError, "broken")
		}
		return &toolkeep.Output{Value: "fine", HasValue: true}, nil
	}
	call := func(tool, arguments string) (*toolkeep.Result, *toolkeep.Error) {
		return h.call(&toolkeep.Call{Tool: "std." + tool, Arguments: []byte(arguments)})
	}
	const known = `{"n":1}`
	for _, tool := range []string{"stale", "strict"} {
		if res, err := call(tool, known); err != nil || res.Cached {
			t.Fatalf("%+v %v", res, err)
		}
	}
	broken.Store(true)
	for range few {
		_, _ = call("stale", `{"n":2}`)
		_, _ = call("strict", `{"n":2}`)
	}
	ran := h.executor.calls.Load()
	for _, tool := range []string{"stale", "strict"} {
		if res, err := call(tool, known); err != nil || !res.Cached || len(res.Warnings) != 0 {
			t.Errorf("%s within the TTL: %+v, %v", tool, res, err)
		}
		if _, err := call(tool, `{"n":3}`); err == nil || err.Code != toolkeep.CircuitBreakerOpen {
			t.Errorf("%s without a cached result: %v", tool, err)
		}
	}
	passed.Store(50)
	res, err := call("stale", known)
	if err != nil || !res.Cached || string(res.Output) != `"fine"` || res.Age != 50*time.Second || len(res.Warnings) != 1 || res.Warnings[0].Code != toolkeep.CircuitBreakerOpen {
		t.Errorf("past the TTL: %+v, %v", res, err)
	}
	if row := h.row(res.InvocationID); row.State != toolkeep.CallSucceeded || !row.Cached {
		t.Errorf("it is recorded as %s, cached %t", row.State, row.Cached)
	}
	if _, err := call("strict", known); err == nil || err.Code != toolkeep.CircuitBreakerOpen {
		t.Errorf("without stale_if_error_s: %v", err)
	}
	for tool, gives := range map[string]bool{"stale": true, "strict": false} {
		x, err := h.pipeline.Explain(t.Context(), alice, &toolkeep.Call{Tool: "std." + tool, Arguments: []byte(known)})
		if e, _ := x.(*invoke.Explanation); err != nil || e.Execute != gives || (e.Steps[invoke.StepLimit].Code == toolkeep.CircuitBreakerOpen) == gives {
			t.Errorf("%s is explained as %+v, %v", tool, e, err)
		}
	}
	passed.Store(111)
	if _, err := call("stale", known); err == nil || err.Code != toolkeep.CircuitBreakerOpen {
		t.Errorf("after stale_if_error_s: %v", err)
	}
	if n := h.executor.calls.Load() - ran; n != 0 {
		t.Errorf("the tool was asked %d times", n)
	}
}
