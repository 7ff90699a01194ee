package invoke_test

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
)

func TestReadingCallIsRecordedOnce(t *testing.T) {
	h := newHarness(t)
	h.tool("read")
	res, err := h.call(&toolkeep.Call{Tool: "std.read", Arguments: []byte(`{"n":"12"}`), Session: "s1", Face: "rest"})
	if err != nil {
		t.Fatal(err)
	}
	if res.State != toolkeep.CallSucceeded || string(res.Output) != `{"run":1}` || res.ToolVersion != "1.0.0" || res.CallID == "" {
		t.Errorf("result %+v with output %s", res, res.Output)
	}
	row := h.row(res.InvocationID)
	if row.State != toolkeep.CallSucceeded || row.Subject != "alice" || row.Session != "s1" || row.Attempts != 1 || row.TotalUS <= 0 {
		t.Errorf("row %+v", row)
	}
	if row.Output != nil {
		t.Error("the answer of a reading call without a key is kept; nobody can ask for it")
	}
	if n := len(h.observed); n != 1 {
		t.Errorf("the observer was told %d times, want once", n)
	}
	if h.limits.held() != 0 {
		t.Error("a slot was not given back")
	}
}

func TestRefusalsAreRecordedWithTheirCode(t *testing.T) {
	h := newHarness(t)
	h.tool("read")
	h.tool("risky", func(m *toolkeep.Manifest) { m.RequiresApproval = true })
	h.tool("foreign", func(m *toolkeep.Manifest) { m.Execution.Kind = "grpc" })
	h.tool("locked", func(m *toolkeep.Manifest) {
		m.Auth = []toolkeep.AuthSpec{{Type: "bearer", Secret: "env://MISSING"}}
	})
	for _, c := range []struct {
		name string
		call toolkeep.Call
		code toolkeep.Code
	}{
		{"no tool", toolkeep.Call{}, toolkeep.MissingParameter},
		{"unknown tool", toolkeep.Call{Tool: "std.none"}, toolkeep.ToolNotFound},
		{"face's fault", toolkeep.Call{Tool: "std.read", Fault: toolkeep.NewError(toolkeep.MalformedRequest, "bad")}, toolkeep.MalformedRequest},
		{"not JSON", toolkeep.Call{Tool: "std.read", Arguments: []byte(`{`)}, toolkeep.MalformedRequest},
		{"duplicate key", toolkeep.Call{Tool: "std.read", Arguments: []byte(`{"n":1,"n":2}`)}, toolkeep.InvalidEncoding},
		{"too deep", toolkeep.Call{Tool: "std.read", Arguments: []byte(`{"n":` + strings.Repeat("[", 60) + strings.Repeat("]", 60) + `}`)}, toolkeep.InvalidEncoding},
		{"wrong type", toolkeep.Call{Tool: "std.read", Arguments: []byte(`{"n":"x"}`)}, toolkeep.InvalidParameters},
		{"two faults", toolkeep.Call{Tool: "std.read", Arguments: []byte(`{"n":"x","z":1}`)}, toolkeep.InputValidationFailed},
		{"long key", toolkeep.Call{Tool: "std.read", Key: strings.Repeat("k", 5000)}, toolkeep.RequestTooLarge},
		{"long agent", toolkeep.Call{Tool: "std.read", Subject: strings.Repeat("k", 5000)}, toolkeep.RequestTooLarge},
		{"NUL in the agent", toolkeep.Call{Tool: "std.read", Subject: "a\x00b"}, toolkeep.InvalidEncoding},
		{"NUL in the tool", toolkeep.Call{Tool: "std.read\x00"}, toolkeep.InvalidEncoding},
		{"bad id", toolkeep.Call{Tool: "std.read", ID: "nope"}, toolkeep.InvalidParameters},
		{"bad priority", toolkeep.Call{Tool: "std.read", Priority: "urgent"}, toolkeep.InvalidParameters},
		{"another's name", toolkeep.Call{Tool: "std.read", Subject: "bob"}, toolkeep.PermissionDenied},
		{"owes approval", toolkeep.Call{Tool: "std.risky"}, toolkeep.ApprovalUnavailable},
		{"asks for approval", toolkeep.Call{Tool: "std.read", RequireApproval: true}, toolkeep.ApprovalUnavailable},
		{"no executor", toolkeep.Call{Tool: "std.foreign"}, toolkeep.SandboxUnavailable},
		{"no secret", toolkeep.Call{Tool: "std.locked"}, toolkeep.SecretNotFound},
		{"child's key", toolkeep.Call{Tool: "std.read", Key: "\x1fchild:1"}, toolkeep.InvalidParameters},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := h.call(&c.call)
			wantCode(t, err, c.code)
			row := h.row(err.InvocationID)
			if row.State != toolkeep.CallRefused || row.Code != c.code || row.Message == "" {
				t.Errorf("row %s %s %q", row.State, row.Code, row.Message)
			}
		})
	}
	if h.executor.calls.Load() != 0 {
		t.Error("a refused call was executed")
	}
}

func TestDeniedCallTellsItsChecks(t *testing.T) {
	h := newHarness(t)
	h.tool("read")
	h.access.deny.Store(true)
	_, err := h.call(&toolkeep.Call{Tool: "std.read"})
	wantCode(t, err, toolkeep.PermissionDenied)
	if err.Details["reason"] != "RBAC_DENIED" || err.Details["checks"] == nil {
		t.Errorf("details %v", err.Details)
	}
}

// TestBlockedCallIsRefused: who is blocked after denials gets E3810 and a record in place of the reasons of a further one,
// and makes the calls that are allowed.
func TestBlockedCallIsRefused(t *testing.T) {
	h := newHarness(t)
	h.tool("read")
	h.access.blocked.Store(toolkeep.NewError(toolkeep.AuthFailuresLimited, "blocked").After(time.Minute))
	if _, err := h.call(&toolkeep.Call{Tool: "std.read"}); err != nil || h.executor.calls.Load() != 1 || h.access.denials.Load() != 0 {
		t.Fatalf("an allowed call: %v, %d executed, %d noted", err, h.executor.calls.Load(), h.access.denials.Load())
	}
	h.access.deny.Store(true)
	_, err := h.call(&toolkeep.Call{Tool: "std.read"})
	wantCode(t, err, toolkeep.AuthFailuresLimited)
	if row := h.row(err.InvocationID); row.State != toolkeep.CallRefused || row.Code != toolkeep.PermissionDenied || h.executor.calls.Load() != 1 || h.access.denials.Load() != 1 {
		t.Errorf("row %s, %d executed, %d noted", row.State, h.executor.calls.Load(), h.access.denials.Load())
	}
	got, xErr := h.pipeline.Explain(t.Context(), alice, &toolkeep.Call{Tool: "std.read"})
	if xErr != nil || h.access.denials.Load() != 1 {
		t.Fatalf("explain %+v %v", got, xErr)
	}
	if step := got.(*invoke.Explanation).Steps[invoke.StepAuthorise]; step.Code != toolkeep.AuthFailuresLimited || step.Checks != nil {
		t.Errorf("explain %+v", step)
	}
}

// TestUnseenCallsAreDeniedCalls: a call of a tool that its caller does not see is answered as one of a tool that does not
// exist, during a block too, and counts; the record has the reason and the version, which the caller does not read there.
// A call that a face refuses with E3001 counts for the tool that it was meant for.
func TestUnseenCallsAreDeniedCalls(t *testing.T) {
	h := newHarness(t)
	h.tool("hidden", writes)
	h.access.hidden = "std.hidden"
	h.access.deny.Store(true)
	fault := toolkeep.NewError(toolkeep.ToolNotFound, "no tool of this name")
	auditor := &toolkeep.Principal{Tenant: "acme", Subject: "eve", Permissions: []string{toolkeep.PermInvocations}}
	for i, c := range []*toolkeep.Call{{Tool: "std.hidden"}, {Tool: "std.hidden", Range: "1.0.0"}, {Tool: "std__hidden", Meant: "std.hidden", Fault: fault},
		{Tool: "std__hidden", Meant: "std.hidden"}, {Tool: "std.hidden", Range: "no range"}} {
		if i == 1 {
			h.access.blocked.Store(toolkeep.NewError(toolkeep.AuthFailuresLimited, "blocked").After(time.Minute))
		}
		_, err := h.call(c)
		wantCode(t, err, toolkeep.ToolNotFound)
		if got := h.access.denials.Load(); got != int64(i+1) || h.access.unknowns.Load() != 0 || err.Details["checks"] != nil {
			t.Errorf("call %d: %d denied, %d unknown, %v", i, got, h.access.unknowns.Load(), err.Details)
		}
		whole, own := must(h.pipeline.Get(t.Context(), auditor, err.InvocationID)), must(h.pipeline.Get(t.Context(), alice, err.InvocationID))
		if whole.Code != toolkeep.PermissionDenied || whole.Message != "denied by the test" || whole.Version == "" || !whole.Writes || whole.EventType() != "ai.agent.tool.authorization_denied" {
			t.Errorf("call %d: the record has %+v", i, whole)
		}
		list, _, lErr := h.pipeline.List(t.Context(), alice, toolkeep.InvocationFilter{Limit: 1})
		if lErr != nil {
			t.Fatal(lErr)
		}
		for _, row := range []*toolkeep.Invocation{own, list[0]} {
			if row.Code != toolkeep.ToolNotFound || row.Message != err.Message || !sameDetails(row.Details, err.Details) || row.Version+row.Digest+row.Kind+row.Category != "" || row.Writes || row.ToolID != c.Tool {
				t.Errorf("call %d: the caller reads %+v", i, row)
			}
		}
	}
	for i, c := range []*toolkeep.Call{{Tool: "std.none"}, {Tool: "std__none", Fault: fault}} {
		_, err := h.call(c)
		wantCode(t, err, toolkeep.ToolNotFound)
		if h.access.denials.Load() != 5 || h.access.unknowns.Load() != int64(i+1) || h.row(err.InvocationID).Code != toolkeep.ToolNotFound {
			t.Errorf("no tool: %d denied, %d unknown", h.access.denials.Load(), h.access.unknowns.Load())
		}
	}
	h.pipeline.Explain(t.Context(), alice, &toolkeep.Call{Tool: "std.hidden"})
	if h.access.denials.Load() != 5 {
		t.Error("an explanation counts as a call")
	}
}

// sameDetails reports whether a record has the details of an error.
func sameDetails(raw json.RawMessage, of map[string]any) bool {
	var got map[string]any
	return (raw == nil || json.Unmarshal(raw, &got) == nil) && reflect.DeepEqual(got, of)
}

func TestSentIDIsUsedOnceInATenant(t *testing.T) {
	h := newHarness(t)
	h.tool("read")
	const id = "0193a6b2-0000-7000-8000-000000000001"
	first, err := h.call(&toolkeep.Call{Tool: "std.read", ID: id})
	if err != nil || first.InvocationID != id {
		t.Fatalf("%v %v", first, err)
	}
	second, err := h.call(&toolkeep.Call{Tool: "std.read", ID: id})
	if err != nil || second.InvocationID == id {
		t.Fatalf("the taken id was used again: %v %v", second, err)
	}
}

func TestKeyAnswersAgainAndExecutesOnce(t *testing.T) {
	h := newHarness(t)
	h.tool("write", writes)
	first, err := h.call(&toolkeep.Call{Tool: "std.write", Key: "k", Arguments: []byte(`{"n":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	again, err := h.call(&toolkeep.Call{Tool: "std.write", Key: "k", Arguments: []byte(` {"n": 1} `)})
	if err != nil {
		t.Fatal(err)
	}
	if !again.Replayed || again.InvocationID != first.InvocationID || string(again.Output) != string(first.Output) {
		t.Errorf("the kept answer differs: %+v, first %+v", again, first)
	}
	_, err = h.call(&toolkeep.Call{Tool: "std.write", Key: "k", Arguments: []byte(`{"n":2}`)})
	wantCode(t, err, toolkeep.IdempotencyConflict)
	if n := h.executor.calls.Load(); n != 1 {
		t.Errorf("executed %d times, want 1", n)
	}
	h.access.deny.Store(true)
	_, err = h.call(&toolkeep.Call{Tool: "std.write", Key: "k", Arguments: []byte(`{"n":1}`)})
	wantCode(t, err, toolkeep.PermissionDenied)
}

func TestRefusalLeavesTheKeyFree(t *testing.T) {
	h := newHarness(t)
	h.tool("write", writes)
	_, err := h.call(&toolkeep.Call{Tool: "std.write", Key: "k", Arguments: []byte(`{"n":"x"}`)})
	wantCode(t, err, toolkeep.InvalidParameters)
	if _, err := h.call(&toolkeep.Call{Tool: "std.write", Key: "k", Arguments: []byte(`{"n":1}`)}); err != nil {
		t.Fatal(err)
	}
}

func TestRetryableFailureWithNothingSentFreesTheKey(t *testing.T) {
	h := newHarness(t)
	h.tool("write", writes, func(m *toolkeep.Manifest) { m.Retry.MaxAttempts = 1 })
	h.executor.do = func(context.Context, *toolkeep.Execution) (*toolkeep.Output, error) {
		e := toolkeep.NewError(toolkeep.NetworkError, "connection refused")
		e.NothingSent = true
		return nil, e
	}
	res, err := h.call(&toolkeep.Call{Tool: "std.write", Key: "k"})
	if err != nil || res.Error == nil || res.Error.Code != toolkeep.NetworkError || !res.Error.Retryable {
		t.Fatalf("%+v %v", res, err)
	}
	h.executor.do = nil
	res, err = h.call(&toolkeep.Call{Tool: "std.write", Key: "k"})
	if err != nil || res.State != toolkeep.CallSucceeded || res.Replayed {
		t.Fatalf("%+v %v", res, err)
	}
}

func TestSentFailureOfAWriteIsKeptAndNotRetryable(t *testing.T) {
	h := newHarness(t)
	h.tool("write", writes)
	h.executor.do = func(context.Context, *toolkeep.Execution) (*toolkeep.Output, error) {
		return nil, toolkeep.NewError(toolkeep.UpstreamServerError, "HTTP 500").With("status", 500)
	}
	res, err := h.call(&toolkeep.Call{Tool: "std.write", Key: "k"})
	if err != nil || res.Error == nil || res.Error.Retryable || res.Attempts != 1 {
		t.Fatalf("%+v %v", res, err)
	}
	h.executor.do = nil
	res, err = h.call(&toolkeep.Call{Tool: "std.write", Key: "k"})
	if err != nil || !res.Replayed || res.Error == nil || res.Error.Code != toolkeep.UpstreamServerError || res.State != toolkeep.CallFailed {
		t.Fatalf("%+v %v", res, err)
	}
}

func TestRetries(t *testing.T) {
	server500 := toolkeep.NewError(toolkeep.UpstreamServerError, "HTTP 503").With("status", 503)
	for _, c := range []struct {
		name   string
		change func(*toolkeep.Manifest)
		err    *toolkeep.Error
		want   int64
	}{
		{"reading", func(*toolkeep.Manifest) {}, server500, 3},
		{"writing", writes, server500, 1},
		{"writing, idempotent", func(m *toolkeep.Manifest) { writes(m); m.Idempotent = true }, server500, 3},
		{"writing, nothing sent", writes, &toolkeep.Error{Code: toolkeep.NetworkError, Retryable: true, NothingSent: true}, 3},
		{"client error", func(*toolkeep.Manifest) {}, toolkeep.NewError(toolkeep.UpstreamClientError, "404"), 1},
		{"policy none", func(m *toolkeep.Manifest) { m.Retry.Policy = "none" }, server500, 1},
		{"status listed", func(m *toolkeep.Manifest) { m.Retry.RetryableStatusCodes = []int{404} },
			toolkeep.NewError(toolkeep.UpstreamClientError, "404").With("status", 404), 3},
		{"code not listed", func(m *toolkeep.Manifest) { m.Retry.RetryableErrors = []toolkeep.Code{toolkeep.NetworkError} }, server500, 1},
		{"wait outlasts the deadline", func(m *toolkeep.Manifest) { m.Execution.TimeoutMS = 5000 },
			toolkeep.NewError(toolkeep.UpstreamServerError, "HTTP 503").After(time.Minute), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHarness(t)
			h.tool("t", c.change)
			h.executor.do = func(context.Context, *toolkeep.Execution) (*toolkeep.Output, error) {
				own := *c.err
				return nil, &own
			}
			res, err := h.call(&toolkeep.Call{Tool: "std.t"})
			if err != nil || res.Error == nil {
				t.Fatalf("%+v %v", res, err)
			}
			if n := h.executor.calls.Load(); n != c.want || int64(res.Attempts) != c.want {
				t.Errorf("%d attempts (%d told), want %d", n, res.Attempts, c.want)
			}
		})
	}
}

func TestDeadlineCancelsTheExecutor(t *testing.T) {
	h := newHarness(t)
	h.tool("slow", func(m *toolkeep.Manifest) { m.Execution.TimeoutMS = 20 })
	stopped := make(chan struct{})
	h.executor.do = func(ctx context.Context, _ *toolkeep.Execution) (*toolkeep.Output, error) {
		<-ctx.Done()
		close(stopped)
		return nil, ctx.Err()
	}
	res, err := h.call(&toolkeep.Call{Tool: "std.slow"})
	if err != nil || res.Error == nil || res.Error.Code != toolkeep.Timeout {
		t.Fatalf("%+v %v", res, err)
	}
	<-stopped
	if row := h.row(res.InvocationID); row.State.BC2(row.Code) != "timeout" {
		t.Errorf("BC-2 status %s", row.State.BC2(row.Code))
	}
}

func TestAttemptTimeoutIsTheCauseOfTheCallsTimeout(t *testing.T) {
	h := newHarness(t)
	h.tool("slow", func(m *toolkeep.Manifest) {
		m.Execution.TimeoutMS, m.Execution.AttemptTimeoutMS = 500, 20
		m.Retry.MaxAttempts = 2
	})
	var end time.Time
	h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		<-ctx.Done()
		if x.Attempt == 2 { // it returns when the call's own limit is over
			<-time.After(time.Until(end))
		}
		return nil, ctx.Err()
	}
	end = time.Now().Add(time.Second)
	res, err := h.call(&toolkeep.Call{Tool: "std.slow"})
	if err != nil || res.Error == nil || res.Error.Code != toolkeep.Timeout || res.Error.Details["cause"] != "E3502" {
		t.Fatalf("%+v %v", res.Error, err)
	}
}

func TestCallersCancelReachesTheExecutor(t *testing.T) {
	h := newHarness(t)
	h.tool("slow")
	started, goOn := make(chan struct{}, 1), make(chan struct{})
	h.executor.do = hold(started, goOn)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-started; cancel() }()
	_, err := h.pipeline.Invoke(ctx, alice, &toolkeep.Call{Tool: "std.slow"})
	e := toolkeep.AsError(err)
	wantCode(t, e, toolkeep.Cancelled)
	if row := h.row(e.InvocationID); row.State != toolkeep.CallCancelled {
		t.Errorf("state %s", row.State)
	}
}

func TestKeyedCallOutlivesItsCaller(t *testing.T) {
	h := newHarness(t)
	h.tool("write", writes)
	started, goOn := make(chan struct{}, 1), make(chan struct{})
	h.executor.do = hold(started, goOn)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-started; cancel(); close(goOn) }()
	res, err := h.pipeline.Invoke(ctx, alice, &toolkeep.Call{Tool: "std.write", Key: "k"})
	if err != nil || res.State != toolkeep.CallSucceeded {
		t.Fatalf("%+v %v", res, err)
	}
}

func TestSecondRequestWaitsForTheFirst(t *testing.T) {
	h := newHarness(t)
	h.tool("write", writes)
	started, goOn := make(chan struct{}, 1), make(chan struct{})
	h.executor.do = hold(started, goOn)
	var first, second *toolkeep.Result
	var wg sync.WaitGroup
	wg.Go(func() {
		first, _ = h.pipeline.Invoke(context.Background(), alice, &toolkeep.Call{Tool: "std.write", Key: "k"})
	})
	<-started
	short, cancel := context.WithTimeout(context.Background(), time.Second) // enough to find the first
	defer cancel()
	early, err := h.pipeline.Invoke(short, alice, &toolkeep.Call{Tool: "std.write", Key: "k"})
	if err != nil || early.State != toolkeep.CallRunning || early.InvocationID == "" {
		t.Fatalf("%+v %v", early, err)
	}
	wg.Go(func() {
		second, _ = h.pipeline.Invoke(context.Background(), alice, &toolkeep.Call{Tool: "std.write", Key: "k"})
	})
	close(goOn)
	wg.Wait()
	if h.executor.calls.Load() != 1 || first.InvocationID != second.InvocationID || !second.Replayed {
		t.Errorf("%d executions, first %+v, second %+v", h.executor.calls.Load(), first, second)
	}
}

func TestFiftyEqualKeysExecuteOnce(t *testing.T) {
	h := newHarness(t)
	h.tool("write", writes)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			res, err := h.pipeline.Invoke(context.Background(), alice, &toolkeep.Call{Tool: "std.write", Key: "k"})
			if err != nil || string(res.Output) != `{"run":1}` {
				t.Errorf("%+v %v", res, err)
			}
		})
	}
	wg.Wait()
	if n := h.executor.calls.Load(); n != 1 {
		t.Errorf("executed %d times", n)
	}
}

// TestMissesOfTheCache: a call counts as a miss if the cache was asked, had nothing, and the tool was.
func TestMissesOfTheCache(t *testing.T) {
	h := newHarness(t)
	cached := func(m *toolkeep.Manifest) { m.Cache = &toolkeep.CacheSpec{Policy: "ttl", TTLSeconds: 60} }
	h.tool("read", cached)
	h.tool("plain")
	h.tool("write", writes, cached)
	want := func(what string, cached, missed bool, tool string, change ...func(*toolkeep.Call)) {
		t.Helper()
		c := &toolkeep.Call{Tool: "std." + tool, Arguments: []byte(`{"n":1}`)}
		for _, f := range change {
			f(c)
		}
		h.call(c)
		if v := <-h.observed; v.Cached != cached || v.Missed != missed {
			t.Errorf("%s: cached %t, missed %t", what, v.Cached, v.Missed)
		}
	}
	other := func(c *toolkeep.Call) { c.Arguments = []byte(`{"n":2}`) }
	want("the first call", false, true, "read")
	want("the second", true, false, "read")
	want("one that skips the cache", false, false, "read", func(c *toolkeep.Call) { c.SkipCache = true })
	want("a tool without a rule", false, false, "plain")
	want("one that writes", false, false, "write")
	want("bad arguments", false, false, "read", func(c *toolkeep.Call) { c.Arguments = []byte(`{`) })
	h.limits.refuse.Store(toolkeep.NewError(toolkeep.RateLimitExceeded, "too many"))
	want("one that is refused after the look", false, false, "read", other)
	h.limits.refuse.Store(nil)
	h.executor.do = func(context.Context, *toolkeep.Execution) (*toolkeep.Output, error) {
		return nil, toolkeep.NewError(toolkeep.UpstreamClientError, "no")
	}
	want("a tool that fails", false, true, "read", other)
	h.executor.do = func(context.Context, *toolkeep.Execution) (*toolkeep.Output, error) {
		return nil, &toolkeep.Error{Code: toolkeep.UpstreamClientError, Message: "no", NothingSent: true}
	}
	want("a tool that is not asked", false, false, "read", other)
}

func TestCacheAndSingleFlight(t *testing.T) {
	h := newHarness(t)
	cached := func(m *toolkeep.Manifest) { m.Cache = &toolkeep.CacheSpec{Policy: "ttl", TTLSeconds: 60} }
	h.tool("read", cached)
	h.tool("write", writes, cached)
	a, _ := h.call(&toolkeep.Call{Tool: "std.read", Arguments: []byte(`{"n":1}`)})
	b, _ := h.call(&toolkeep.Call{Tool: "std.read", Arguments: []byte(`{"n":"1"}`)})
	if !b.Cached || a.Cached || string(a.Output) != string(b.Output) || a.InvocationID == b.InvocationID {
		t.Errorf("first %+v second %+v", a, b)
	}
	if c, _ := h.call(&toolkeep.Call{Tool: "std.read", Arguments: []byte(`{"n":1}`), SkipCache: true}); c.Cached {
		t.Error("skip_cache was passed over")
	}
	bob := &toolkeep.Principal{Subject: "bob", Tenant: "acme"}
	if d, err := h.pipeline.Invoke(context.Background(), bob, &toolkeep.Call{Tool: "std.read", Arguments: []byte(`{"n":1}`)}); err != nil || d.Cached {
		t.Errorf("another principal got a cached result: %+v %v", d, err)
	}
	h.call(&toolkeep.Call{Tool: "std.write"})
	if e, _ := h.call(&toolkeep.Call{Tool: "std.write"}); e.Cached {
		t.Error("a writing call was answered from the cache")
	}

	h.executor.calls.Store(0)
	started, goOn := make(chan struct{}, 10), make(chan struct{})
	h.executor.do = hold(started, goOn)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if res, err := h.pipeline.Invoke(context.Background(), alice, &toolkeep.Call{Tool: "std.read", Arguments: []byte(`{"n":7}`)}); err != nil || string(res.Output) != `"done"` {
				t.Errorf("%+v %v", res, err)
			}
		})
	}
	<-started
	close(goOn)
	wg.Wait()
	if n := h.executor.calls.Load(); n != 1 {
		t.Errorf("%d executions for ten equal calls", n)
	}
}

func TestSecretIsInNoOutput(t *testing.T) {
	h := newHarness(t)
	h.tool("locked", func(m *toolkeep.Manifest) {
		m.Auth = []toolkeep.AuthSpec{{Type: "bearer", Secret: "env://TOKEN"}}
	})
	const value = "s3cret-value-of-TOKEN"
	h.executor.do = func(_ context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		if x.Credentials[0].Value != value {
			t.Error("the executor did not get the secret")
		}
		return &toolkeep.Output{Value: map[string]any{"echo": "Bearer " + value}, HasValue: true}, nil
	}
	res, err := h.call(&toolkeep.Call{Tool: "std.locked", Key: "k"})
	if err != nil || strings.Contains(string(res.Output), value) {
		t.Fatalf("%s %v", res.Output, err)
	}
	if strings.Contains(string(h.row(res.InvocationID).Output), value) {
		t.Error("the row holds the secret")
	}
	h.executor.do = func(context.Context, *toolkeep.Execution) (*toolkeep.Output, error) {
		return nil, toolkeep.NewError(toolkeep.UpstreamClientError, "bad token %s", value).With("body", "x "+value).With("status", 400)
	}
	res, err = h.call(&toolkeep.Call{Tool: "std.locked"})
	if err != nil || strings.Contains(res.Error.Message, value) || strings.Contains(res.Error.Details["body"].(string), value) {
		t.Fatalf("%+v %v", res.Error, err)
	}
}

func TestPanicIsAnInternalErrorAndRecorded(t *testing.T) {
	h := newHarness(t)
	h.tool("read")
	h.executor.do = func(context.Context, *toolkeep.Execution) (*toolkeep.Output, error) { panic(errBroken) }
	_, err := h.call(&toolkeep.Call{Tool: "std.read"})
	wantCode(t, err, toolkeep.InternalError)
	if strings.Contains(err.Message, "broken by the test") {
		t.Error("the caller sees the panic")
	}
	if row := h.row(err.InvocationID); row.Code != toolkeep.InternalError {
		t.Errorf("row %s", row.Code)
	}
}

func TestDrainingRefusesNewCalls(t *testing.T) {
	h := newHarness(t)
	h.tool("read")
	h.pipeline.Drain()
	_, err := h.call(&toolkeep.Call{Tool: "std.read"})
	wantCode(t, err, toolkeep.Draining)
}

func TestStoreDown(t *testing.T) {
	h := newHarness(t)
	h.tool("read")
	h.tool("write", writes)
	down := &downStore{Applier: h.store}
	h.pipeline.Stop()
	h.config.Store = down
	var err error
	if h.pipeline, err = invoke.New(h.config); err != nil {
		t.Fatal(err)
	}
	if err := h.pipeline.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	down.down.Store(true)
	_, e := h.call(&toolkeep.Call{Tool: "std.write"})
	wantCode(t, e, toolkeep.RecordUnavailable)
	if h.executor.calls.Load() != 0 {
		t.Error("a writing call was executed without its record")
	}
	res, e := h.call(&toolkeep.Call{Tool: "std.read"})
	if e != nil {
		t.Fatal(e)
	}
	if waiting, lost := h.pipeline.Spooled(); waiting == 0 || lost != 0 {
		t.Errorf("%d records wait, %d are lost", waiting, lost)
	}
	down.down.Store(false)
	if err := h.pipeline.Sweep(context.Background()); err != nil {
		t.Fatal(err)
	}
	if row := h.row(res.InvocationID); row.State != toolkeep.CallSucceeded {
		t.Errorf("the spooled record says %s", row.State)
	}
}
