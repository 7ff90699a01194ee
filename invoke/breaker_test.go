package invoke_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/limit/breaker"
)

// TestBreaker fails a tool until its breaker opens, and lets it come back.
func TestBreaker(t *testing.T) {
	var now atomic.Int64
	base := time.Now()
	breakers := breaker.New(breaker.Config{Clock: func() time.Time { return base.Add(time.Duration(now.Load())) }})
	h := newHarness(t, func(c *invoke.Config) { c.Breakers = breakers })
	few, once, never := 4, 1, 100.0
	rule := func(m *toolkeep.Manifest) {
		m.Breaker = &toolkeep.BreakerSpec{ConsecutiveFailures: &few, FailureRate: &never, HalfOpenCalls: &once}
		m.Retry.MaxAttempts = 3
	}
	h.tool("frail", rule)
	h.tool("slow", rule, func(m *toolkeep.Manifest) { m.Execution.TimeoutMS = 50 })
	h.tool("fine", rule, writes)
	var fault *toolkeep.Error
	h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		switch {
		case x.Tool.ID == "std.slow":
			<-ctx.Done()
			return nil, ctx.Err()
		case fault != nil:
			return nil, fault
		}
		return &toolkeep.Output{Value: "done", HasValue: true}, nil
	}
	state := func(tool string) breaker.State {
		info, _ := breakers.Get("", "tool:std."+tool)
		return info.State
	}
	call := func(tool string) (*toolkeep.Result, *toolkeep.Error) {
		return h.call(&toolkeep.Call{Tool: "std." + tool})
	}

	// What the caller is to blame for opens nothing.
	for _, c := range []toolkeep.Code{toolkeep.UpstreamClientError, toolkeep.RateLimitExceeded, toolkeep.SecretAccessDenied} {
		fault = toolkeep.NewError(c, "no")
		fault.Retryable = false
		for range few {
			_, _ = call("frail")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range few {
		_, _ = h.pipeline.Invoke(ctx, alice, &toolkeep.Call{Tool: "std.slow"})
		_, _ = h.call(&toolkeep.Call{Tool: "std.slow", Timeout: time.Millisecond})
	}
	if state("frail") != breaker.Closed || state("slow") != breaker.Closed {
		t.Errorf("%s and %s after bad calls", state("frail"), state("slow"))
	}
	// Nor does what its rule ignores, an attempt's own end among it.
	ignores := func(m *toolkeep.Manifest) {
		m.Breaker.IgnoreErrors = []toolkeep.Code{toolkeep.UpstreamServerError, toolkeep.UpstreamTimeout}
	}
	h.tool("spared", rule, ignores)
	h.tool("slow", rule, ignores, func(m *toolkeep.Manifest) { m.Execution.TimeoutMS, m.Retry.MaxAttempts = 1, 1 })
	fault = toolkeep.NewError(toolkeep.UpstreamServerError, "down")
	for range 2 * few {
		_, _ = call("spared")
		_, _ = call("slow")
	}
	for _, name := range []string{"spared", "slow"} {
		if info, _ := breakers.Get("", "tool:std."+name); info.State != breaker.Closed || info.Calls != 0 {
			t.Errorf("what %s ignores: %+v", name, info)
		}
	}
	h.tool("slow", rule, func(m *toolkeep.Manifest) { m.Execution.TimeoutMS = 50 })
	// Each attempt counts: three of the first call, one of the second, whose answer is what the tool said.
	fault = toolkeep.NewError(toolkeep.UpstreamServerError, "down")
	before := h.executor.calls.Load()
	for i, attempts := range []int{3, 1} {
		res, err := call("frail")
		if err != nil || res.Error == nil || res.Error.Code != toolkeep.UpstreamServerError || res.Attempts != attempts {
			t.Fatalf("call %d: %+v, %v", i, res, err)
		}
	}
	if n := h.executor.calls.Load() - before; n != 4 || state("frail") != breaker.Open {
		t.Errorf("%d attempts, and the breaker is %s", n, state("frail"))
	}
	_, err := call("frail")
	if err == nil || err.Code != toolkeep.CircuitBreakerOpen || err.RetryAfter != 30*time.Second || err.Details["breaker"] != "tool:std.frail" || !err.NothingSent {
		t.Errorf("refused with %v %v", err, err)
	}
	if row := h.row(err.InvocationID); row.State != toolkeep.CallRefused {
		t.Errorf("it is recorded as %s", row.State)
	}
	x, fail := h.pipeline.Explain(t.Context(), alice, &toolkeep.Call{Tool: "std.frail"})
	if fail != nil || x.(*invoke.Explanation).Steps[invoke.StepLimit].Code != toolkeep.CircuitBreakerOpen {
		t.Errorf("explained as %+v, %v", x, fail)
	}
	if info, _ := breakers.Get("", "tool:std.frail"); info.Refused != 2 { // a retry, and the call
		t.Errorf("%d refusals are counted", info.Refused)
	}
	now.Add(int64(31 * time.Second))
	fault = nil
	if _, err := h.pipeline.Explain(t.Context(), alice, &toolkeep.Call{Tool: "std.frail"}); err != nil || state("frail") != breaker.Open {
		t.Errorf("explaining makes it %s, %v", state("frail"), err)
	}
	if res, err := call("frail"); err != nil || res.Error != nil || state("frail") != breaker.Closed {
		t.Errorf("the test call: %+v, %v; %s", res, err, state("frail"))
	}
	// The tool's own time limit counts.
	for range few {
		_, _ = call("slow")
	}
	if state("slow") != breaker.Open {
		t.Errorf("a tool that never answers is %s", state("slow"))
	}
	// A call with a key that is refused may be sent again.
	b := &toolkeep.Call{Tool: "std.fine", Key: "k"}
	fault = toolkeep.NewError(toolkeep.NetworkError, "down")
	fault.NothingSent = true
	for range few {
		_, _ = call("fine")
	}
	if _, err := h.call(b); err == nil || err.Code != toolkeep.CircuitBreakerOpen {
		t.Errorf("%v", err)
	}
	now.Add(int64(31 * time.Second))
	fault = nil
	if res, err := h.call(b); err != nil || res.Error != nil {
		t.Errorf("again: %+v, %v", res, err)
	}
}

// reaching is an executor that knows the hosts of its tools.
type reaching struct {
	*fakeExecutor
	hosts map[string]toolkeep.HostPort
}

func (e reaching) Reach(t *toolkeep.Tool) (toolkeep.Reach, error) {
	return toolkeep.Reach{Hosts: []toolkeep.HostPort{e.hosts[t.ID]}}, nil
}

// TestServicesOfAHost fails one service of a host: its other tools are refused, those of a service on another port are not.
func TestServicesOfAHost(t *testing.T) {
	rule := breaker.Defaults()
	rule.Consecutive = 2
	breakers := breaker.New(breaker.Config{Rule: &rule})
	h := newHarness(t, func(c *invoke.Config) {
		c.Breakers = breakers
		c.Executors["builtin"] = reaching{c.Executors["builtin"].(*fakeExecutor), map[string]toolkeep.HostPort{
			"std.down": {Host: "Shop.example", Port: 80}, "std.sibling": {Host: "shop.example", Port: 80}, "std.other": {Host: "shop.example", Port: 8080}}}
	})
	h.executor.from = map[string]string{"std.down": "host:shop.example", "std.sibling": "host:shop.example", "std.other": "host:shop.example"}
	once := func(m *toolkeep.Manifest) { m.Retry.MaxAttempts = 1 }
	for _, name := range []string{"down", "sibling", "other"} {
		h.tool(name, once)
	}
	h.executor.do = func(_ context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		if x.Tool.ID == "std.down" {
			return nil, toolkeep.NewError(toolkeep.NetworkError, "down")
		}
		return &toolkeep.Output{Value: "done", HasValue: true}, nil
	}
	for range 2 {
		_, _ = h.call(&toolkeep.Call{Tool: "std.down"})
	}
	if _, err := h.call(&toolkeep.Call{Tool: "std.sibling"}); err == nil || err.Code != toolkeep.CircuitBreakerOpen || err.Details["breaker"] != "host:shop.example:80" {
		t.Errorf("another tool of the service: %v", err)
	}
	if res, err := h.call(&toolkeep.Call{Tool: "std.other"}); err != nil || res.Error != nil {
		t.Errorf("a tool of another service: %+v, %v", res, err)
	}
}

// TestRetryBudget: a call whose retries are used up ends with what its attempt brought, and says so.
func TestRetryBudget(t *testing.T) {
	never := 100.0
	h := newHarness(t, func(c *invoke.Config) {
		c.Breakers = breaker.New(breaker.Config{Rule: &breaker.Rule{}, Retries: &breaker.Retries{Share: 25, Floor: 3}})
	})
	h.tool("frail", func(m *toolkeep.Manifest) {
		m.Breaker, m.Retry.MaxAttempts = &toolkeep.BreakerSpec{FailureRate: &never}, 3
	})
	h.executor.do = func(context.Context, *toolkeep.Execution) (*toolkeep.Output, error) {
		return nil, toolkeep.NewError(toolkeep.UpstreamServerError, "down")
	}
	// Three retries come by themselves; the sixteenth call gives the fourth.
	for i := 1; i <= 16; i++ {
		attempts := map[int]int{1: 3, 2: 2, 16: 2}[i]
		res, err := h.call(&toolkeep.Call{Tool: "std.frail"})
		if err != nil || res.Error.Code != toolkeep.UpstreamServerError || res.Attempts != max(attempts, 1) {
			t.Fatalf("call %d: %+v, %v", i, res, err)
		}
		if refused := res.Error.Details["retry_refused"]; (refused == "RETRY_BUDGET") != (i > 1) {
			t.Errorf("call %d: %v", i, res.Error.Details)
		}
	}
}

// TestRetryWithoutTime: a retry for which there is no time left uses up none of the tool's.
func TestRetryWithoutTime(t *testing.T) {
	t.Parallel()
	breakers := breaker.New(breaker.Config{Rule: &breaker.Rule{}, Retries: &breaker.Retries{Floor: 1}})
	h := newHarness(t, func(c *invoke.Config) { c.Breakers = breakers })
	tool := h.tool("busy", func(m *toolkeep.Manifest) { m.Retry.MaxAttempts = 3 })
	h.executor.do = func(context.Context, *toolkeep.Execution) (*toolkeep.Output, error) {
		return nil, toolkeep.NewError(toolkeep.UpstreamServerError, "down").After(time.Hour)
	}
	res, err := h.call(&toolkeep.Call{Tool: "std.busy"})
	if err != nil || res.Attempts != 1 || res.Error.Details["retry_refused"] != nil {
		t.Fatalf("%+v, %v", res, err)
	}
	if g := breakers.Of(tool, ""); !g.Retry() || g.Retry() {
		t.Error("the tool has not one retry")
	}
}
