package invoke_test

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/secret"
)

// downStore is a store that can be switched off.
type downStore struct {
	toolkeep.Applier
	down atomic.Bool
}

func (s *downStore) Apply(ctx context.Context, c ...toolkeep.Change) error {
	if s.down.Load() {
		return errBroken
	}
	return s.Applier.Apply(ctx, c...)
}

func TestWaitingCallRunsInAWorker(t *testing.T) {
	h := newHarness(t)
	h.tool("read")
	res, err := h.call(&toolkeep.Call{Tool: "std.read", Async: true, Arguments: []byte(`{"s":"very private"}`)})
	if err != nil || res.State != toolkeep.CallQueued || h.executor.calls.Load() != 0 {
		t.Fatalf("%+v %v", res, err)
	}
	if row := h.row(res.InvocationID); len(row.SealedArgs) == 0 || bytes.Contains(row.SealedArgs, []byte("private")) {
		t.Error("the arguments are not sealed at rest")
	}
	h.work()
	row := h.row(res.InvocationID)
	if row.State != toolkeep.CallSucceeded || string(row.Output) != `{"run":1}` || row.SealedArgs != nil || row.LeaseOwner != "" {
		t.Errorf("row %+v", row)
	}
	got, e := h.pipeline.Get(context.Background(), alice, res.InvocationID)
	if e != nil || got.FetchedAt.IsZero() || h.row(res.InvocationID).FetchedAt.IsZero() {
		t.Errorf("the fetch was not noted: %v", e)
	}
	h.mu.Lock()
	h.queue = append(h.queue, toolkeep.Enqueue{Call: got.Ref()})
	h.mu.Unlock()
	h.work()
	if h.executor.calls.Load() != 1 {
		t.Error("a finished call was run again")
	}
}

func TestWaitingCallIsCheckedAfresh(t *testing.T) {
	h := newHarness(t)
	h.tool("read")
	h.access.policy = &fakePolicy{decide: func(*access.Question) (access.Verdict, error) { return access.Verdict{Allow: true, Rule: "day"}, nil }}
	res, _ := h.call(&toolkeep.Call{Tool: "std.read", Async: true})
	if row := h.row(res.InvocationID); row.AllowedPolicy != "day" {
		t.Errorf("it waits by %q", row.AllowedPolicy)
	}
	h.access.revoked.Store(true)
	h.work()
	if row := h.row(res.InvocationID); row.State != toolkeep.CallRefused || row.Code != toolkeep.Unauthenticated || row.AllowedBy() != nil {
		t.Errorf("row %s %s, allowed by %v", row.State, row.Code, row.AllowedBy())
	}
}

func TestCancelBeforeAndDuringTheRun(t *testing.T) {
	h := newHarness(t)
	h.tool("read")
	ctx := context.Background()
	res, _ := h.call(&toolkeep.Call{Tool: "std.read", Async: true})
	if ok, _, err := h.pipeline.Cancel(ctx, alice, res.InvocationID, "not needed"); !ok || err != nil {
		t.Fatal(ok, err)
	}
	h.work()
	if row := h.row(res.InvocationID); row.State != toolkeep.CallCancelled || row.CancelBy != "alice" || h.executor.calls.Load() != 0 {
		t.Errorf("row %+v", row)
	}
	if ok, msg, err := h.pipeline.Cancel(ctx, alice, res.InvocationID, ""); !ok || err != nil || msg != "Already cancelled" {
		t.Error(ok, msg, err)
	}

	started, goOn := make(chan struct{}, 1), make(chan struct{})
	h.executor.do = hold(started, goOn)
	res, _ = h.call(&toolkeep.Call{Tool: "std.read", Async: true})
	done := make(chan struct{})
	go func() { h.work(); close(done) }()
	<-started
	mallory := &toolkeep.Principal{Subject: "mallory", Tenant: "acme"}
	if _, _, err := h.pipeline.Cancel(ctx, mallory, res.InvocationID, ""); !toolkeep.IsCode(err, toolkeep.ResourceNotFound) {
		t.Errorf("another's call: %v", err)
	}
	if ok, _, err := h.pipeline.Cancel(ctx, alice, res.InvocationID, ""); !ok || err != nil {
		t.Fatal(ok, err)
	}
	<-done
	if row := h.row(res.InvocationID); row.State != toolkeep.CallCancelled || row.Code != toolkeep.Cancelled {
		t.Errorf("row %s %s", row.State, row.Code)
	}
}

func TestWorkerWaitsForALimit(t *testing.T) {
	h := newHarness(t)
	h.tool("read")
	res, _ := h.call(&toolkeep.Call{Tool: "std.read", Async: true})
	h.limits.refuse.Store(toolkeep.NewError(toolkeep.RateLimitExceeded, "slow down").After(time.Minute))
	h.mu.Lock()
	first := h.queue[0]
	h.queue = nil
	h.mu.Unlock()
	if err := h.pipeline.Run(context.Background(), first.Call); err != nil {
		t.Fatal(err)
	}
	if row := h.row(res.InvocationID); row.State != toolkeep.CallQueued || row.LeaseOwner != "" {
		t.Fatalf("row %s of %q", row.State, row.LeaseOwner)
	}
	h.mu.Lock()
	if len(h.queue) != 1 || time.Until(h.queue[0].At) < 50*time.Second {
		t.Errorf("queue %+v", h.queue)
	}
	h.mu.Unlock()
	h.limits.refuse.Store(nil)
	h.work()
	if row := h.row(res.InvocationID); row.State != toolkeep.CallSucceeded {
		t.Errorf("row %s", row.State)
	}
}

// TestWorkerBehind: a node that cannot tell whether a key is still valid requeues the call, and
// refuses it once it knows that it is not.
func TestWorkerBehind(t *testing.T) {
	h := newHarness(t)
	h.tool("read")
	run := func() {
		h.mu.Lock()
		first := h.queue[0]
		h.queue = h.queue[1:]
		h.mu.Unlock()
		if err := h.pipeline.Run(context.Background(), first.Call); err != nil {
			t.Fatal(err)
		}
	}
	seen, _ := h.call(&toolkeep.Call{Tool: "std.read", Async: true})
	h.access.unknown.Store(true)
	run()
	if row := h.row(seen.InvocationID); row.State != toolkeep.CallQueued || row.Code != "" {
		t.Fatalf("the call is %s %s", row.State, row.Code)
	}
	h.access.unknown.Store(false)
	run()
	if row := h.row(seen.InvocationID); row.State != toolkeep.CallSucceeded {
		t.Fatalf("the call is %s %s", row.State, row.Code)
	}
	never, _ := h.call(&toolkeep.Call{Tool: "std.read", Async: true})
	h.access.revoked.Store(true)
	run()
	if row := h.row(never.InvocationID); row.State != toolkeep.CallRefused || row.Code != toolkeep.Unauthenticated {
		t.Fatalf("the call is %s %s", row.State, row.Code)
	}
}

// TestRestart leaves calls as a killed process would, and restarts: as the only process of
// the store, and as a node that knows that its earlier run is dead.
func TestRestart(t *testing.T) {
	for name, again := range map[string]func(c *invoke.Config){
		"alone":        func(c *invoke.Config) { c.Node = "node-2" },
		"one of nodes": func(c *invoke.Config) { c.Node, c.Earlier, c.Alone = "node-2", "dead-node", false },
	} {
		t.Run(name, func(t *testing.T) { testRestart(t, again) })
	}
}

func testRestart(t *testing.T, again func(c *invoke.Config)) {
	h := newHarness(t)
	h.tool("read")
	h.tool("write", writes)
	h.tool("again", writes, func(m *toolkeep.Manifest) { m.Idempotent = true })
	ctx := context.Background()
	put := func(id, tool string, async, writing, sent bool) toolkeep.CallRef {
		v := &toolkeep.Invocation{ID: id, Tenant: "acme", Subject: "alice", ToolID: tool, Version: "1.0.0", Digest: "sha256:" + tool[4:],
			State: toolkeep.CallRunning, Key: "key-" + id, Async: async, Writes: writing, Sent: sent, LeaseOwner: "dead-node", Priority: toolkeep.Normal,
			LeaseUntil: time.Now().Add(time.Hour), CreatedAt: time.Now(), StartedAt: time.Now(), Deadline: time.Now().Add(time.Hour)}
		if async {
			var err error
			if v.SealedArgs, err = h.config.Sealer.Seal([]byte(`{}`), []byte("call:acme:"+id)); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.store.Apply(ctx, toolkeep.ClaimCall{Invocation: v}); err != nil {
			t.Fatal(err)
		}
		return v.Ref()
	}
	put("sync-read", "std.read", false, false, false)
	put("sync-write", "std.write", false, true, true)
	put("sync-again", "std.again", false, true, true)
	put("async-read", "std.read", true, false, false)
	put("async-unsent", "std.write", true, true, false)
	put("async-sent", "std.write", true, true, true)
	h.close()
	h.open(again)
	h.work()
	for _, c := range []struct {
		id    string
		state toolkeep.CallState
		code  toolkeep.Code
		key   bool
	}{
		{"sync-read", toolkeep.CallRefused, toolkeep.Draining, false},
		{"sync-write", toolkeep.CallUnknown, toolkeep.OutcomeUnknown, true},
		{"sync-again", toolkeep.CallRefused, toolkeep.Draining, false},
		{"async-read", toolkeep.CallSucceeded, "", true},
		{"async-unsent", toolkeep.CallSucceeded, "", true},
		{"async-sent", toolkeep.CallUnknown, toolkeep.OutcomeUnknown, true},
	} {
		row := h.row(c.id)
		_, err := h.store.Invocations().ByKey(ctx, "acme", "alice", "key-"+c.id)
		if row.State != c.state || row.Code != c.code || (err == nil) != c.key {
			t.Errorf("%s is %s %s, key held: %t; want %s %s %t", c.id, row.State, row.Code, err == nil, c.state, c.code, c.key)
		}
	}
	if n := h.executor.calls.Load(); n != 2 {
		t.Errorf("%d executions after the restart, want 2", n)
	}
}

// TestOthersLeasesStay: a node that starts takes up neither what another node holds nor what
// an earlier run holds that may be alive, and sweeps only if it leads.
func TestOthersLeasesStay(t *testing.T) {
	h := newHarness(t)
	h.tool("read")
	for id, lease := range map[string]time.Duration{"held": time.Hour, "lapsed": -time.Hour} {
		v := &toolkeep.Invocation{ID: id, Tenant: "acme", Subject: "alice", ToolID: "std.read", Version: "1.0.0", State: toolkeep.CallRunning,
			LeaseOwner: "other", LeaseUntil: time.Now().Add(lease), CreatedAt: time.Now(), StartedAt: time.Now()}
		if err := h.store.Apply(t.Context(), toolkeep.ClaimCall{Invocation: v}); err != nil {
			t.Fatal(err)
		}
	}
	h.close()
	leads, ahead := false, atomic.Int64{}
	h.open(func(c *invoke.Config) {
		c.Alone, c.Earlier, c.Leads = false, "earlier", func() bool { return leads }
		c.Clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	states := func(held, lapsed toolkeep.CallState) {
		t.Helper()
		if err := h.pipeline.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if a, b := h.row("held").State, h.row("lapsed").State; a != held || b != lapsed {
			t.Errorf("the calls are %s and %s, want %s and %s", a, b, held, lapsed)
		}
	}
	for range 3 { // a lease's time passes
		states(toolkeep.CallRunning, toolkeep.CallRunning)
		ahead.Add(int64(5 * time.Second))
	}
	leads = true
	states(toolkeep.CallRunning, toolkeep.CallRefused)
}

func TestUnfetchedAnswerExpires(t *testing.T) {
	now := atomic.Pointer[time.Time]{}
	set := func(at time.Time) { now.Store(&at) }
	set(time.Now())
	h := newHarness(t, func(c *invoke.Config) { c.Clock = func() time.Time { return *now.Load() } })
	h.tool("read")
	a, _ := h.call(&toolkeep.Call{Tool: "std.read", Async: true, Timeout: time.Minute})
	b, _ := h.call(&toolkeep.Call{Tool: "std.read", Async: true, Timeout: time.Minute})
	late, _ := h.call(&toolkeep.Call{Tool: "std.read", Async: true, Timeout: time.Minute})
	h.mu.Lock()
	h.queue = h.queue[:2]
	h.mu.Unlock()
	h.work()
	if _, err := h.pipeline.Get(context.Background(), alice, b.InvocationID); err != nil {
		t.Fatal(err)
	}
	set(now.Load().Add(25 * time.Hour))
	if err := h.pipeline.Sweep(context.Background()); err != nil {
		t.Fatal(err)
	}
	if row := h.row(a.InvocationID); row.State != toolkeep.CallExpired || row.Code != toolkeep.HandleExpired || row.Output != nil {
		t.Errorf("row %s %s %s", row.State, row.Code, row.Output)
	}
	if row := h.row(b.InvocationID); row.State != toolkeep.CallSucceeded || row.Output == nil {
		t.Errorf("a fetched answer is %s", row.State)
	}
	if row := h.row(late.InvocationID); row.State != toolkeep.CallFailed || row.Code != toolkeep.Timeout {
		t.Errorf("an overdue call is %s %s", row.State, row.Code)
	}
}

func TestWatchShowsEveryEnd(t *testing.T) {
	h := newHarness(t)
	h.tool("read")
	started, goOn := make(chan struct{}, 1), make(chan struct{})
	h.executor.do = hold(started, goOn)
	res, _ := h.call(&toolkeep.Call{Tool: "std.read", Async: true})
	done := make(chan struct{})
	go func() { h.work(); close(done) }()
	var states []toolkeep.CallState
	for row, err := range h.pipeline.Watch(context.Background(), alice, res.InvocationID) {
		if err != nil {
			t.Fatal(err)
		}
		states = append(states, row.State)
		if len(states) == 1 {
			<-started
			close(goOn)
		}
	}
	<-done
	if last := states[len(states)-1]; last != toolkeep.CallSucceeded {
		t.Errorf("states %v", states)
	}
}

func TestChildCalls(t *testing.T) {
	h := newHarness(t)
	h.tool("parent")
	h.tool("leaf")
	h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		if x.Tool.ID == "std.leaf" {
			return &toolkeep.Output{Value: "leaf", HasValue: true}, nil
		}
		target := "std.leaf"
		if x.Args["s"] == "self" {
			target = "std.parent"
		}
		res, err := x.Child.Invoke(ctx, nil, &toolkeep.Call{Tool: target})
		if err != nil {
			return nil, err
		}
		return &toolkeep.Output{Value: res.InvocationID, HasValue: true}, nil
	}
	res, err := h.call(&toolkeep.Call{Tool: "std.parent"})
	if err != nil || res.Error != nil {
		t.Fatalf("%+v %v", res, err)
	}
	rows, n, lerr := h.store.Invocations().List(context.Background(), toolkeep.InvocationFilter{Tenant: "acme", Parent: res.InvocationID, Limit: 10})
	if lerr != nil || n != 1 || rows[0].ToolID != "std.leaf" || rows[0].Ordinal != 1 || rows[0].Subject != "alice" {
		t.Errorf("children %v %v", rows, lerr)
	}
	if h.limits.taken.Load() != 1 {
		t.Errorf("the request bucket was taken %d times, want once for the root", h.limits.taken.Load())
	}
	_, err = h.call(&toolkeep.Call{Tool: "std.parent", Arguments: []byte(`{"s":"self"}`)})
	wantCode(t, err, toolkeep.CompositionCycle)
}

// TestExplainTakesNothing: an explanation takes one request, and nothing else.
func TestExplainTakesNothing(t *testing.T) {
	h := newHarness(t)
	h.tool("write", writes, func(m *toolkeep.Manifest) {
		m.Auth = []toolkeep.AuthSpec{{Type: "bearer", Secret: "env://MISSING"}}
	})
	h.access.deny.Store(true)
	got, err := h.pipeline.Explain(context.Background(), alice, &toolkeep.Call{Tool: "std.write", Key: "k", Arguments: []byte(`{"n":"x"}`)})
	if err != nil {
		t.Fatal(err)
	}
	x := got.(*invoke.Explanation)
	want := map[string]string{"admit": "pass", "resolve": "pass", "authorise": "refuse", "validate": "refuse", "limit": "pass",
		"recall": "pass", "approve": "pass", "claim": "pass", "equip": "refuse", "execute": "not_run", "inspect": "not_run", "record": "not_run"}
	for _, s := range x.Steps {
		if s.Verdict != want[s.Step] {
			t.Errorf("%s: %s (%s), want %s", s.Step, s.Verdict, s.Reason, want[s.Step])
		}
	}
	if x.Execute || len(x.Steps) != 12 {
		t.Errorf("%+v", x)
	}
	if h.limits.taken.Load() != 1 || h.executor.calls.Load() != 0 || len(h.observed) != 0 {
		t.Error("explaining took more than one request, executed or recorded something")
	}
	if _, n, _ := h.store.Invocations().List(context.Background(), toolkeep.InvocationFilter{Tenant: "acme", Limit: 1}); n != 0 {
		t.Errorf("%d rows after explaining", n)
	}
}

// awaySealer is a sealing service that can be switched off.
type awaySealer struct {
	secret.Sealing
	away atomic.Bool
}

func (s *awaySealer) Open(sealed, context []byte) ([]byte, error) {
	if s.away.Load() {
		e := toolkeep.NewError(toolkeep.SecretRetrievalFailed, "Vault could not be reached to open a data key")
		e.NothingSent = true
		return nil, e
	}
	return s.Sealing.Open(sealed, context)
}

// TestWorkerWaitsForTheSealer: a waiting call is requeued while the sealer is
// unavailable, runs once it is back, and ends at its deadline if it never is.
func TestWorkerWaitsForTheSealer(t *testing.T) {
	sealer := &awaySealer{}
	var ahead atomic.Int64
	h := newHarness(t, func(c *invoke.Config) {
		sealer.Sealing, c.Sealer = c.Sealer, sealer
		c.Clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	h.tool("read")
	run := func() {
		t.Helper()
		h.mu.Lock()
		first := h.queue[0]
		h.queue = h.queue[1:]
		h.mu.Unlock()
		if err := h.pipeline.Run(context.Background(), first.Call); err != nil {
			t.Fatal(err)
		}
	}
	back := func(id string) {
		t.Helper()
		if row := h.row(id); row.State != toolkeep.CallQueued || row.LeaseOwner != "" || row.Code != "" || len(row.SealedArgs) == 0 {
			t.Fatalf("row %s of %q, %s, %d bytes of arguments", row.State, row.LeaseOwner, row.Code, len(row.SealedArgs))
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.queue) != 1 || !h.queue[0].At.After(h.config.Clock()) {
			t.Fatalf("queue %+v", h.queue)
		}
	}
	goesOn, err := h.call(&toolkeep.Call{Tool: "std.read", Async: true})
	if err != nil {
		t.Fatal(err)
	}
	sealer.away.Store(true)
	for range 3 {
		run()
		back(goesOn.InvocationID)
	}
	sealer.away.Store(false)
	run()
	if row := h.row(goesOn.InvocationID); row.State != toolkeep.CallSucceeded || h.executor.calls.Load() != 1 {
		t.Errorf("row %s %s", row.State, row.Code)
	}

	ends, err := h.call(&toolkeep.Call{Tool: "std.read", Async: true})
	if err != nil {
		t.Fatal(err)
	}
	sealer.away.Store(true)
	run()
	back(ends.InvocationID)
	ahead.Store(int64(time.Until(h.row(ends.InvocationID).Deadline) + time.Second))
	run()
	if row := h.row(ends.InvocationID); row.State != toolkeep.CallFailed || row.Code != toolkeep.Timeout || h.executor.calls.Load() != 1 {
		t.Errorf("row %s %s", row.State, row.Code)
	}

	// Invalid sealed data is no reason to wait.
	sealer.away.Store(false)
	wrong, err := h.call(&toolkeep.Call{Tool: "std.read", Async: true})
	if err != nil {
		t.Fatal(err)
	}
	other, nerr := secret.NewSealer()
	if nerr != nil {
		t.Fatal(nerr)
	}
	sealer.Sealing = other
	run()
	if row := h.row(wrong.InvocationID); row.Code != toolkeep.ResumeFailed {
		t.Errorf("row %s %s", row.State, row.Code)
	}
}
