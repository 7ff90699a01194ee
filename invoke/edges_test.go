package invoke_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
)

// TestChildrenOfASecondAttempt: a retried parent gets its children's first results.
func TestChildrenOfASecondAttempt(t *testing.T) {
	h := newHarness(t)
	h.tool("parent")
	h.tool("leaf", writes)
	var leaves atomic.Int64
	var seen []string
	h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		if x.Tool.ID == "std.leaf" {
			leaves.Add(1)
			return &toolkeep.Output{Value: "leaf", HasValue: true}, nil
		}
		res, err := x.Child.Invoke(ctx, nil, &toolkeep.Call{Tool: "std.leaf"})
		if err != nil {
			return nil, err
		}
		seen = append(seen, res.InvocationID)
		if x.Attempt == 1 {
			return nil, toolkeep.NewError(toolkeep.NetworkError, "reset")
		}
		return &toolkeep.Output{Value: "done", HasValue: true}, nil
	}
	res, err := h.call(&toolkeep.Call{Tool: "std.parent"})
	if err != nil || res.Attempts != 2 {
		t.Fatalf("%+v %v", res, err)
	}
	if leaves.Load() != 1 || len(seen) != 2 || seen[0] != seen[1] {
		t.Errorf("the child that writes was executed %d times, as %v", leaves.Load(), seen)
	}
}

// TestChildCallsWhileDraining: a call under way can finish its work.
func TestChildCallsWhileDraining(t *testing.T) {
	h := newHarness(t)
	h.tool("parent")
	h.tool("leaf")
	h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		if x.Tool.ID == "std.leaf" {
			return &toolkeep.Output{Value: "leaf", HasValue: true}, nil
		}
		h.pipeline.Drain()
		if _, err := x.Child.Invoke(ctx, nil, &toolkeep.Call{Tool: "std.leaf"}); err != nil {
			return nil, err
		}
		return &toolkeep.Output{Value: "done", HasValue: true}, nil
	}
	if res, err := h.call(&toolkeep.Call{Tool: "std.parent"}); err != nil || res.State != toolkeep.CallSucceeded {
		t.Errorf("%+v %v", res, err)
	}
}

// TestRefusedCallTakesNoID: a refused call is recorded beside the call whose id it
// requested, whatever the reason.
func TestRefusedCallTakesNoID(t *testing.T) {
	h := newHarness(t)
	h.tool("read")
	const id = "0193a6b2-0000-7000-8000-000000000001"
	if _, err := h.call(&toolkeep.Call{Tool: "std.read", ID: id}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]toolkeep.Call{
		"priority":    {Tool: "std.read", ID: id, Priority: "urgent"},
		"no tool":     {ID: id},
		"long id":     {Tool: "std.read", ID: strings.Repeat("0", 5000)},
		"other form":  {Tool: "std.read", ID: "{" + id + "}"},
		"long tool":   {Tool: strings.Repeat("t", 1<<20)},
		"long name":   {Tool: "std.read", Subject: strings.Repeat("s", 5000)},
		"broken text": {Tool: "std.read", Session: "a\xff\x00b"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := h.call(&c)
			if err == nil || err.InvocationID == "" || err.InvocationID == c.ID {
				t.Fatalf("refused as %v", err)
			}
			row := h.row(err.InvocationID)
			if row.Code != err.Code || len(row.ToolID) > 4096 || !utf8.ValidString(row.Session) || strings.Contains(row.Session, "\x00") {
				t.Errorf("row %s with a tool id of %d bytes in session %q", row.Code, len(row.ToolID), row.Session)
			}
		})
	}
	if row := h.row(id); row.State != toolkeep.CallSucceeded {
		t.Errorf("the first call is %s", row.State)
	}
}

func TestExplainTellsWhoseTheKeyIs(t *testing.T) {
	h := newHarness(t)
	h.tool("read")
	if _, err := h.call(&toolkeep.Call{Tool: "std.read", Key: "k", Arguments: []byte(`{"n":1}`)}); err != nil {
		t.Fatal(err)
	}
	for arguments, want := range map[string]toolkeep.Code{`{"n":1}`: "", `{"n":2}`: toolkeep.IdempotencyConflict} {
		got, err := h.pipeline.Explain(context.Background(), alice, &toolkeep.Call{Tool: "std.read", Key: "k", Arguments: []byte(arguments)})
		if err != nil {
			t.Fatal(err)
		}
		if s := got.(*invoke.Explanation).Steps[invoke.StepAuthorise]; s.Code != want {
			t.Errorf("%s: %+v", arguments, s)
		}
	}
}

// A dry run of a call whose signature is not known to be right ends with the error, whatever else is
// wrong before the signature is checked: it explains nothing to a caller whom it may not be of.
func TestExplainEndsAtTheSignature(t *testing.T) {
	for name, x := range map[string]struct {
		change func(h *harness, c *toolkeep.Call)
		want   toolkeep.Code
	}{
		"wrong":                      {func(*harness, *toolkeep.Call) {}, toolkeep.SignatureInvalid},
		"arguments that are no JSON": {func(_ *harness, c *toolkeep.Call) { c.Arguments = []byte("{") }, toolkeep.MalformedRequest},
		"an unknown priority":        {func(_ *harness, c *toolkeep.Call) { c.Priority = "x" }, toolkeep.SignatureInvalid},
		"a fault of the face":        {func(_ *harness, c *toolkeep.Call) { c.Fault = toolkeep.NewError(toolkeep.TokenInvalid, "two tokens") }, toolkeep.TokenInvalid},
		"a node that drains":         {func(h *harness, _ *toolkeep.Call) { h.pipeline.Drain() }, toolkeep.Draining},
	} {
		h := newHarness(t)
		h.tool("read")
		c := &toolkeep.Call{Tool: "std.read", Arguments: []byte(`{"n":1}`), Signature: &toolkeep.CallSignature{Value: "00"}}
		x.change(h, c)
		if got, err := h.pipeline.Explain(t.Context(), alice, c); got != nil || !toolkeep.IsCode(err, x.want) {
			t.Errorf("%s: %+v %v, want %s", name, got, err, x.want)
		}
	}
}

// TestExplainReadsArgumentsAfterARefusal: an empty bucket does not prevent the check of
// the arguments.
func TestExplainReadsArgumentsAfterARefusal(t *testing.T) {
	h := newHarness(t)
	h.tool("read")
	h.pipeline.Drain()
	got, err := h.pipeline.Explain(context.Background(), alice, &toolkeep.Call{Tool: "std.read", Arguments: []byte(`{"n":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	x := got.(*invoke.Explanation)
	if a, v := x.Steps[invoke.StepAdmit], x.Steps[invoke.StepValidate]; a.Code != toolkeep.Draining || v.Verdict != "pass" || x.Execute {
		t.Errorf("admit %+v, validate %+v", a, v)
	}
}

// TestCancelledQueuedCall: the end is recorded and the key is freed.
func TestCancelledQueuedCall(t *testing.T) {
	h := newHarness(t)
	h.tool("write", writes)
	ask := &toolkeep.Call{Tool: "std.write", Key: "k", Async: true}
	first, err := h.call(ask)
	if err != nil {
		t.Fatal(err)
	}
	<-h.observed // queued
	if ok, _, err := h.pipeline.Cancel(context.Background(), alice, first.InvocationID, ""); !ok || err != nil {
		t.Fatal(ok, err)
	}
	select {
	case v := <-h.observed:
		if v.State != toolkeep.CallCancelled || v.Code != toolkeep.Cancelled {
			t.Errorf("observed %s %s", v.State, v.Code)
		}
	default:
		t.Error("nobody was told of the cancelled call")
	}
	again, err := h.call(ask)
	if err != nil || again.Replayed || again.InvocationID == first.InvocationID {
		t.Fatalf("the key is not free: %+v %v", again, err)
	}
	h.work()
	if row := h.row(again.InvocationID); row.State != toolkeep.CallSucceeded || h.executor.calls.Load() != 1 {
		t.Errorf("row %s after %d executions", row.State, h.executor.calls.Load())
	}
}

// TestSharedRunOutlastsWhoBeganIt: a short deadline of one caller does not end a shared
// run.
func TestSharedRunOutlastsWhoBeganIt(t *testing.T) {
	claims := make(chan struct{}, 10)
	h := newHarness(t, func(c *invoke.Config) {
		c.Hook = func(step, _ string) {
			if step == invoke.StepClaim.String() {
				claims <- struct{}{}
			}
		}
	})
	h.tool("read", func(m *toolkeep.Manifest) {
		m.Cache = &toolkeep.CacheSpec{Policy: "ttl"}
	})
	started, goOn := make(chan struct{}, 10), make(chan struct{})
	h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		out, err := hold(started, goOn)(ctx, x)
		if out != nil {
			out.CostUSD = 1
		}
		return out, err
	}
	hurry := make(chan *toolkeep.Result, 1)
	go func() {
		res, _ := h.pipeline.Invoke(context.Background(), alice, &toolkeep.Call{Tool: "std.read", Timeout: 2 * time.Second})
		hurry <- res
	}()
	<-started
	<-claims
	patient := make(chan *toolkeep.Result, 1)
	go func() {
		res, _ := h.pipeline.Invoke(context.Background(), alice, &toolkeep.Call{Tool: "std.read"})
		patient <- res
	}()
	<-claims
	if res := <-hurry; res == nil || res.Error == nil || res.Error.Code != toolkeep.Timeout {
		t.Errorf("who had 2 s got %+v", res)
	}
	close(goOn)
	res := <-patient
	if res == nil || res.Error != nil || string(res.Output) != `"done"` {
		t.Fatalf("who waited got %+v", res)
	}
	if res.Cached && res.CostUSD != 0 || res.Overhead < 0 {
		t.Errorf("a shared answer cost %v and took %s beside the tool", res.CostUSD, res.Overhead)
	}
}

// TestUpstreamThatRefusesForLoad: a waiting call does not spin.
func TestUpstreamThatRefusesForLoad(t *testing.T) {
	h := newHarness(t)
	h.tool("read", func(m *toolkeep.Manifest) { m.Retry = &toolkeep.RetrySpec{Policy: "none"} })
	h.executor.do = func(context.Context, *toolkeep.Execution) (*toolkeep.Output, error) {
		return nil, toolkeep.NewError(toolkeep.RateLimitExceeded, "the upstream answered HTTP 429")
	}
	if _, err := h.call(&toolkeep.Call{Tool: "std.read", Async: true}); err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	first := h.queue[0]
	h.queue = nil
	h.mu.Unlock()
	before := time.Now()
	if err := h.pipeline.Run(context.Background(), first.Call); err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.queue) != 1 || h.queue[0].At.Sub(before) < time.Second {
		t.Errorf("queued again as %+v", h.queue)
	}
}

// TestOneRunAtATime: a call that was queued again while this node still runs it waits
// until that run has noticed.
func TestOneRunAtATime(t *testing.T) {
	h := newHarness(t)
	h.tool("read")
	started, goOn := make(chan struct{}, 10), make(chan struct{})
	h.executor.do = hold(started, goOn)
	res, err := h.call(&toolkeep.Call{Tool: "std.read", Async: true})
	if err != nil {
		t.Fatal(err)
	}
	ref := toolkeep.CallRef{Tenant: "acme", ID: res.InvocationID}
	done := make(chan error, 1)
	go func() { done <- h.pipeline.Run(context.Background(), ref) }()
	<-started
	row := h.row(ref.ID) // as another node does when the lease has lapsed
	row.State, row.LeaseOwner, row.LeaseUntil = toolkeep.CallQueued, "", time.Time{}
	if err := h.store.Apply(context.Background(), toolkeep.MoveCall{Invocation: row, From: []toolkeep.CallState{toolkeep.CallRunning}}); err != nil {
		t.Fatal(err)
	}
	if err := h.pipeline.Run(context.Background(), ref); err == nil {
		t.Error("the queue was told that the call is done with")
	}
	if n := h.executor.calls.Load(); n != 1 {
		t.Errorf("%d runs at once", n)
	}
	close(goOn)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := h.pipeline.Run(context.Background(), ref); err != nil {
		t.Error(err)
	}
	if row := h.row(ref.ID); row.State != toolkeep.CallSucceeded || h.executor.calls.Load() != 2 {
		t.Errorf("row %s after %d runs", row.State, h.executor.calls.Load())
	}
}

// TestWatchedAnswerIsFetched: an answer delivered by the stream counts as fetched.
func TestWatchedAnswerIsFetched(t *testing.T) {
	h := newHarness(t)
	h.tool("read")
	res, err := h.call(&toolkeep.Call{Tool: "std.read", Async: true})
	if err != nil {
		t.Fatal(err)
	}
	h.work()
	if row := h.row(res.InvocationID); !row.FetchedAt.IsZero() {
		t.Fatal("nobody has fetched it yet")
	}
	for row, err := range h.pipeline.Watch(context.Background(), alice, res.InvocationID) {
		if err != nil || row.State != toolkeep.CallSucceeded {
			t.Fatal(row, err)
		}
	}
	if row := h.row(res.InvocationID); row.FetchedAt.IsZero() {
		t.Error("the stream gave the answer and it counts as not fetched")
	}
}

// TestDemandsThatCannotBeMet: a tool that demands isolation or documents never runs without.
func TestDemandsThatCannotBeMet(t *testing.T) {
	h := newHarness(t)
	for name, want := range map[string]struct {
		change func(*toolkeep.Manifest)
		code   toolkeep.Code
	}{
		"none":        {func(m *toolkeep.Manifest) { m.Execution.Sandbox = "none" }, ""},
		"nodocuments": {func(m *toolkeep.Manifest) { m.DocumentDependencies = []byte("[]") }, ""},
		"gvisor":      {func(m *toolkeep.Manifest) { m.Execution.Sandbox = "gvisor" }, toolkeep.SandboxUnavailable},
		"starlark":    {func(m *toolkeep.Manifest) { m.Execution.Sandbox = "starlark" }, toolkeep.SandboxUnavailable},
		"strict": {func(m *toolkeep.Manifest) {
			m.Result = &toolkeep.ResultSpec{Strict: new(true), StrictAsked: true}
		}, toolkeep.ResultSchemaMissing},
		"documents": {func(m *toolkeep.Manifest) { m.DocumentDependencies = []byte(`[{"document_pattern":"a"}]`) }, toolkeep.DocumentUnavailable},
	} {
		h.tool(name, want.change)
		before := h.executor.calls.Load()
		_, err := h.call(&toolkeep.Call{Tool: "std." + name})
		if ran := h.executor.calls.Load() > before; want.code == "" && (err != nil || !ran) || want.code != "" && (ran || err == nil || err.Code != want.code) {
			t.Errorf("%s: %v, ran %t; want %q", name, err, ran, want.code)
		}
	}
}

// TestCallOfACapability: the result, the record and a call that waits name the tool that was taken.
func TestCallOfACapability(t *testing.T) {
	h := newHarness(t)
	h.tool("hash")
	for _, async := range []bool{false, true} {
		res, err := h.call(&toolkeep.Call{Tool: "capability:std.hash", Async: async})
		if err != nil || res.ToolID != "std.hash" {
			t.Fatalf("%+v %v", res, err)
		}
		if async {
			h.work()
		}
		if row := h.row(res.InvocationID); row.ToolID != "std.hash" || row.State != toolkeep.CallSucceeded {
			t.Errorf("async %t: the record names %q, %s", async, row.ToolID, row.State)
		}
	}
}
