package invoke_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/limit/breaker"
)

func fallsBackTo(ref string) func(*toolkeep.Manifest) {
	return func(m *toolkeep.Manifest) { m.Fallback, m.Retry.MaxAttempts = ref, 1 }
}

func offers(capability string) func(*toolkeep.Manifest) {
	return func(m *toolkeep.Manifest) { m.Capabilities = []string{capability} }
}

func takes(schema string) func(*toolkeep.Manifest) {
	return func(m *toolkeep.Manifest) { m.ParametersSchema = json.RawMessage(schema) }
}

// fallbackHarness has the tool std.main, which fails with fault, and others that bring their id, or fail as failing says.
type fallbackHarness struct {
	*harness
	fault   *toolkeep.Error
	failing map[string]*toolkeep.Error
	called  []string
}

func newFallbackHarness(t *testing.T, change ...func(*invoke.Config)) *fallbackHarness {
	f := &fallbackHarness{harness: newHarness(t, change...), failing: map[string]*toolkeep.Error{}}
	f.executor.do = func(_ context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		f.called = append(f.called, x.Tool.ID)
		e := f.failing[x.Tool.ID]
		if x.Tool.ID == "std.main" {
			e = f.fault
		}
		if e != nil {
			own := *e
			return nil, &own
		}
		return &toolkeep.Output{Value: x.Tool.ID, HasValue: true}, nil
	}
	return f
}

func unsent(c toolkeep.Code) *toolkeep.Error {
	e := toolkeep.NewError(c, "down")
	e.NothingSent = true
	return e
}

// TestFallbackIsAsked: which failures of a tool another tool answers for.
func TestFallbackIsAsked(t *testing.T) {
	t.Parallel()
	down := toolkeep.NewError(toolkeep.UpstreamServerError, "down")
	idempotent := func(m *toolkeep.Manifest) { m.Idempotent = true }
	approved := func(m *toolkeep.Manifest) { m.RequiresApproval = true }
	for name, c := range map[string]struct {
		fault  *toolkeep.Error
		main   []func(*toolkeep.Manifest)
		other  []func(*toolkeep.Manifest)
		hidden bool
		asked  bool
		writes bool          // why it is not asked
		said   toolkeep.Code // of details.fallback
	}{
		"a server error":              {fault: down, asked: true},
		"no connection":               {fault: unsent(toolkeep.NetworkError), asked: true},
		"no answer in time":           {fault: toolkeep.NewError(toolkeep.UpstreamTimeout, "late"), asked: true},
		"bad arguments":               {fault: toolkeep.NewError(toolkeep.UpstreamClientError, "bad")},
		"a limit":                     {fault: toolkeep.NewError(toolkeep.RateLimitExceeded, "later")},
		"a write that was sent":       {fault: down, main: []func(*toolkeep.Manifest){writes}},
		"an idempotent write too":     {fault: down, main: []func(*toolkeep.Manifest){writes, idempotent}},
		"a write that was not sent":   {fault: unsent(toolkeep.NetworkError), main: []func(*toolkeep.Manifest){writes}, asked: true},
		"both write":                  {fault: unsent(toolkeep.NetworkError), main: []func(*toolkeep.Manifest){writes}, other: []func(*toolkeep.Manifest){writes}, asked: true},
		"only the other tool writes":  {fault: down, other: []func(*toolkeep.Manifest){writes}, writes: true},
		"other parameters":            {fault: down, other: []func(*toolkeep.Manifest){takes(`{"type":"object","required":["x"]}`)}, said: toolkeep.MissingParameter},
		"an approval":                 {fault: down, other: []func(*toolkeep.Manifest){approved}, said: toolkeep.ApprovalUnavailable},
		"a secret that is missing":    {fault: down, other: []func(*toolkeep.Manifest){func(m *toolkeep.Manifest) { m.Auth = []toolkeep.AuthSpec{{Type: "bearer", Secret: "env://MISSING"}} }}, said: toolkeep.SecretNotFound},
		"a tool that cannot be seen":  {fault: down, hidden: true},
		"a tool that would go on too": {fault: down, other: []func(*toolkeep.Manifest){fallsBackTo("std.third")}, asked: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newFallbackHarness(t)
			h.fault = c.fault
			h.tool("main", append(c.main, fallsBackTo("std.other@^1"))...)
			h.tool("other", c.other...)
			h.tool("third")
			if c.hidden {
				h.access.hidden = "std.other"
			}
			res, err := h.call(&toolkeep.Call{Tool: "std.main", Arguments: []byte(`{"n":1}`)})
			if err != nil { // a refusal, such as of a limit
				res = &toolkeep.Result{InvocationID: err.InvocationID, Error: err}
			}
			row := h.row(res.InvocationID)
			if !c.asked {
				details, _ := res.Error.Details["fallback"].(map[string]any)
				if len(h.called) != 1 || res.Error.Code != c.fault.Code || res.Fallback != nil || row.Fallback != nil || fmt.Sprint(details["error_code"]) != fmt.Sprint(map[bool]any{true: string(c.said), false: nil}[c.said != ""]) {
					t.Errorf("%v were called: %+v", h.called, res.Error)
				}
				if reason, _ := details["reason"].(string); strings.HasPrefix(reason, "it writes") != c.writes {
					t.Errorf("not asked because %q", reason)
				}
				if h.access.denials.Load() != 0 {
					t.Error("a fallback that was not asked counts as a denial")
				}
				return
			}
			if res.Error != nil || string(res.Output) != `"std.other"` || res.ToolID != "std.main" || fmt.Sprint(h.called) != "[std.main std.other]" {
				t.Fatalf("%v were called: %s, %v", h.called, res.Output, res.Error)
			}
			if f := res.Fallback; f == nil || f.Tool != "std.other" || f.Version != "1.0.0" || f.Reason != c.fault.Code || row.Fallback == nil || *row.Fallback != *f || row.State != toolkeep.CallSucceeded {
				t.Fatalf("told %+v, recorded %+v", f, row.Fallback)
			}
			if own := h.row(res.Fallback.InvocationID); own.ToolID != "std.other" || own.Parent != row.ID || own.Subject != "alice" || own.State != toolkeep.CallSucceeded {
				t.Errorf("its own record is %+v", own)
			}
		})
	}
}

// TestFallbackFails: the error has both, and a fallback has no fallback.
func TestFallbackFails(t *testing.T) {
	t.Parallel()
	h := newFallbackHarness(t)
	h.fault = toolkeep.NewError(toolkeep.UpstreamServerError, "down")
	h.failing["std.other"] = toolkeep.NewError(toolkeep.UpstreamClientError, "not you")
	h.tool("main", fallsBackTo("std.other"))
	h.tool("other", fallsBackTo("std.third"))
	h.tool("third")
	h.tool("strict", fallsBackTo("std.third"), func(m *toolkeep.Manifest) { m.ResultSchema = json.RawMessage(`{"type":"object"}`) })
	res, err := h.call(&toolkeep.Call{Tool: "std.main"})
	if err != nil || res.Error == nil || res.Error.Code != toolkeep.FallbackFailed || len(h.called) != 2 {
		t.Fatalf("%+v, %v after %v", res, err, h.called)
	}
	first, second := res.Error.Details["primary"].(map[string]any), res.Error.Details["fallback"].(map[string]any)
	if first["error_code"] != "E3520" || second["error_code"] != "E3510" || second["tool_id"] != "std.other" || res.Error.Retryable {
		t.Errorf("%+v", res.Error)
	}
	// What the callers of a tool rely on, its fallback keeps to.
	h.failing["std.strict"] = h.fault
	if res, err = h.call(&toolkeep.Call{Tool: "std.strict"}); err != nil || res.Error == nil || res.Error.Code != toolkeep.FallbackFailed || res.Output != nil {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestFallbackAfterTwoAttempts: a write of which the first attempt was sent is not done elsewhere, although the last was not.
func TestFallbackAfterTwoAttempts(t *testing.T) {
	t.Parallel()
	h := newFallbackHarness(t)
	h.tool("main", writes, fallsBackTo("std.other"), func(m *toolkeep.Manifest) { m.Idempotent, m.Retry.MaxAttempts = true, 2 })
	h.tool("other")
	h.executor.do = func(_ context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		if x.Attempt == 1 {
			return nil, toolkeep.NewError(toolkeep.UpstreamTimeout, "late")
		}
		return nil, unsent(toolkeep.NetworkError)
	}
	res, err := h.call(&toolkeep.Call{Tool: "std.main"})
	if err != nil || res.Error == nil || res.Error.Code != toolkeep.NetworkError || h.executor.calls.Load() != 2 {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestFallbackByCapability asks the first tool, by id, that has the capability and takes the arguments; an open breaker is
// reason enough, and explain tells of it. A key gets the answer again.
func TestFallbackByCapability(t *testing.T) {
	t.Parallel()
	one, never := 1, 100.0
	h := newFallbackHarness(t, func(c *invoke.Config) { c.Breakers = breaker.New(breaker.Config{}) })
	h.fault = toolkeep.NewError(toolkeep.UpstreamServerError, "down")
	h.tool("main", fallsBackTo("capability:math"), offers("math"), func(m *toolkeep.Manifest) {
		m.Breaker = &toolkeep.BreakerSpec{ConsecutiveFailures: &one, FailureRate: &never}
	})
	h.tool("a", offers("math"), takes(`{"type":"object","additionalProperties":false}`))
	h.tool("c", offers("math"))
	h.tool("b", offers("math"))
	for i, want := range []string{"[std.main std.b]", "[std.b]"} {
		h.called = nil
		res, err := h.call(&toolkeep.Call{Tool: "std.main", Arguments: []byte(`{"n":1}`), Key: fmt.Sprint("k", i)})
		if err != nil || res.Fallback == nil || res.Fallback.Tool != "std.b" || fmt.Sprint(h.called) != want {
			t.Fatalf("call %d: %v were called: %+v, %v", i, h.called, res, err)
		}
		if i == 1 && res.Fallback.Reason != toolkeep.CircuitBreakerOpen {
			t.Errorf("because of %s", res.Fallback.Reason)
		}
		again, err := h.call(&toolkeep.Call{Tool: "std.main", Arguments: []byte(`{"n":1}`), Key: fmt.Sprint("k", i)})
		if err != nil || !again.Replayed || again.Fallback == nil || *again.Fallback != *res.Fallback || fmt.Sprint(h.called) != want {
			t.Errorf("again: %+v, %v", again, err)
		}
	}
	said, err := h.pipeline.Explain(t.Context(), alice, &toolkeep.Call{Tool: "std.main", Arguments: []byte(`{"n":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	if x := said.(*invoke.Explanation); !x.Execute || x.Fallback == nil || x.Fallback.Tool != "std.b" || !x.Fallback.Execute || x.Steps[invoke.StepLimit].Verdict != "pass" {
		t.Errorf("explained as %+v, %+v", x, x.Fallback)
	}
	h.limits.refuse.Store(toolkeep.NewError(toolkeep.ConcurrencyLimitExceeded, "full"))
	said, err = h.pipeline.Explain(t.Context(), alice, &toolkeep.Call{Tool: "std.main", Arguments: []byte(`{"n":1}`)})
	if x := said.(*invoke.Explanation); err != nil || x.Execute || x.Steps[invoke.StepLimit].Code != toolkeep.CircuitBreakerOpen {
		t.Errorf("explained as %+v, %v", x, err)
	}
}

// TestFallbackIsBrokenOff: a fallback that was sent and then ended without a result may have taken effect, so the call is no
// refusal of its own tool, and its key stays.
func TestFallbackIsBrokenOff(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		by    func(h *harness, own *toolkeep.Execution)
		panic bool
		code  toolkeep.Code
		state toolkeep.CallState
		async bool
	}{
		"cancelled":            {by: cancelRow, code: toolkeep.Cancelled, state: toolkeep.CallCancelled},
		"a waiting call's too": {by: cancelRow, code: toolkeep.Cancelled, state: toolkeep.CallCancelled, async: true},
		"a panic":              {panic: true, code: toolkeep.InternalError, state: toolkeep.CallRefused},
		"the node stops":       {by: func(h *harness, _ *toolkeep.Execution) { h.pipeline.Interrupt() }, code: toolkeep.OutcomeUnknown, state: toolkeep.CallUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			h.tool("main", writes, fallsBackTo("std.other"))
			h.tool("other", writes, func(m *toolkeep.Manifest) { m.Idempotent = true })
			other := ""
			h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
				if x.Tool.ID == "std.main" {
					return nil, unsent(toolkeep.NetworkError)
				}
				other = x.InvocationID
				if c.panic {
					panic("a bug")
				}
				c.by(h, x)
				<-ctx.Done()
				return nil, toolkeep.NewError(toolkeep.Cancelled, "stopped").Because(context.Cause(ctx))
			}
			res, err := h.call(&toolkeep.Call{Tool: "std.main", Key: "k", Async: c.async})
			h.work()
			id := ""
			if err != nil {
				id = err.InvocationID
			} else {
				id = res.InvocationID
			}
			row := h.row(id)
			if row.State != c.state || row.Code != c.code || row.Retryable {
				t.Errorf("the call is %s %s, retryable %t", row.State, row.Code, row.Retryable)
			}
			if f := row.Fallback; f == nil || f.Tool != "std.other" || f.InvocationID != other || f.Reason != toolkeep.NetworkError {
				t.Errorf("recorded %+v", f)
			}
			if kept, err := h.store.Invocations().ByKey(t.Context(), "acme", "alice", "k"); err != nil || kept.ID != id {
				t.Errorf("the key was freed: %v", err)
			}
		})
	}
}

// cancelRow cancels a running call, as its caller does.
func cancelRow(h *harness, x *toolkeep.Execution) {
	if ok, _, err := h.pipeline.Cancel(context.Background(), alice, x.InvocationID, ""); !ok || err != nil {
		h.t.Error(ok, err)
	}
}

// TestTimeBelowAWaitingCall: the limit of synchronous calls holds neither for the fallback of a waiting call nor for what
// its tool calls.
func TestTimeBelowAWaitingCall(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(c *invoke.Config) { c.SyncLimit = 10 * time.Second })
	minute := func(m *toolkeep.Manifest) { m.Execution.TimeoutMS = 60_000 }
	h.tool("main", minute, fallsBackTo("std.other"))
	h.tool("other", minute)
	h.tool("child", minute)
	left := map[string]time.Duration{}
	h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		end, _ := toolkeep.Deadline(ctx)
		left[x.Tool.ID] = time.Until(end)
		if x.Tool.ID == "std.main" {
			if _, err := x.Child.Invoke(ctx, x.Principal, &toolkeep.Call{Tool: "std.child"}); err != nil {
				t.Error(err)
			}
			return nil, toolkeep.NewError(toolkeep.UpstreamServerError, "down")
		}
		return &toolkeep.Output{Value: 1, HasValue: true}, nil
	}
	for _, async := range []bool{true, false} {
		clear(left)
		if _, err := h.call(&toolkeep.Call{Tool: "std.main", Async: async}); err != nil {
			t.Fatal(err)
		}
		h.work()
		for _, tool := range []string{"std.main", "std.child", "std.other"} {
			if d := left[tool]; d <= 0 || (d > 10*time.Second) != async {
				t.Errorf("async %t: %s has %s", async, tool, d)
			}
		}
	}
}

// TestFallbackOfAnOpenBreaker: a call that the breaker refuses counts as refused once, and gives the tool no retries.
func TestFallbackOfAnOpenBreaker(t *testing.T) {
	t.Parallel()
	one, never := 1, 100.0
	breakers := breaker.New(breaker.Config{Retries: &breaker.Retries{Share: 10}})
	h := newFallbackHarness(t, func(c *invoke.Config) { c.Breakers = breakers })
	h.fault = toolkeep.NewError(toolkeep.UpstreamServerError, "down")
	tool := h.tool("main", fallsBackTo("std.other"), func(m *toolkeep.Manifest) {
		m.Breaker = &toolkeep.BreakerSpec{ConsecutiveFailures: &one, FailureRate: &never}
	})
	h.tool("other")
	for range 21 {
		if res, err := h.call(&toolkeep.Call{Tool: "std.main"}); err != nil || res.Fallback == nil {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	if info, _ := breakers.Get("", "tool:std.main"); info.Refused != 20 {
		t.Errorf("20 calls were refused, and %d counted", info.Refused)
	}
	if breakers.Of(tool, "").Retry() {
		t.Error("one call in 21 was sent, and a tenth of them may be retries")
	}
}
