package invoke_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/servertest"
)

// TestEndWhileTheStoreIsClosed: the caller gets the answer of a call whose end the store cannot
// take, and the next process stores the end instead of giving the call up.
func TestEndWhileTheStoreIsClosed(t *testing.T) {
	for name, again := range map[string]func(c *invoke.Config){
		"alone":        func(c *invoke.Config) { c.Node = "node-2" },
		"one of nodes": func(c *invoke.Config) { c.Node, c.Earlier, c.Alone = "node-2", "node-1", false },
	} {
		t.Run(name, func(t *testing.T) { testEndWhileTheStoreIsClosed(t, again) })
	}
}

func testEndWhileTheStoreIsClosed(t *testing.T, again func(c *invoke.Config)) {
	h := newHarness(t)
	h.tool("write", writes)
	h.executor.do = func(context.Context, *toolkeep.Execution) (*toolkeep.Output, error) {
		if err := h.store.Close(); err != nil {
			t.Error(err)
		}
		return &toolkeep.Output{Value: json.Number("1"), HasValue: true}, nil
	}
	res, err := h.call(&toolkeep.Call{Tool: "std.write", Key: "k"})
	if err != nil || res.Error != nil || res.State != toolkeep.CallSucceeded || string(res.Output) != "1" || len(res.Warnings) != 0 {
		t.Fatalf("%+v %v", res, err)
	}
	if v := <-h.observed; v.State != toolkeep.CallSucceeded {
		t.Errorf("observed %s %s", v.State, v.Code)
	}
	h.close()
	h.open(again)
	if err := h.pipeline.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if row := h.row(res.InvocationID); row.State != toolkeep.CallSucceeded || row.LeaseOwner != "" {
		t.Errorf("the record is %s %s of %q", row.State, row.Code, row.LeaseOwner)
	}
	replay, err := h.call(&toolkeep.Call{Tool: "std.write", Key: "k"})
	if err != nil || !replay.Replayed || string(replay.Output) != "1" || h.executor.calls.Load() != 1 {
		t.Errorf("%+v %v after %d executions", replay, err, h.executor.calls.Load())
	}
	if n, lost := h.pipeline.Spooled(); n != 0 || lost != 0 {
		t.Errorf("%d are spooled and %d lost", n, lost)
	}
}

// endStore fails to end calls as its test says.
type endStore struct {
	toolkeep.Applier
	fail atomic.Pointer[func(context.Context, ...toolkeep.Change) error]
}

func (s *endStore) Apply(ctx context.Context, c ...toolkeep.Change) error {
	return s.ApplyWithin(ctx, c...)
}

func (s *endStore) ApplyWithin(ctx context.Context, c ...toolkeep.Change) error {
	if m, ok := c[0].(toolkeep.MoveCall); ok && m.Invocation.State.Ended() {
		if f := s.fail.Load(); f != nil {
			return (*f)(ctx, c...)
		}
	}
	return s.Applier.Apply(ctx, c...)
}

// TestEndsThatWait: an end that the store could not take is stored once it can, unless it has it
// already or another node decided the call meanwhile. That stays, and the log says what happened.
func TestEndsThatWait(t *testing.T) {
	lapsed := time.Now().Add(-time.Second)
	unknown := func(v *toolkeep.Invocation) []toolkeep.Change {
		v.State, v.Code, v.EndedAt = toolkeep.CallUnknown, toolkeep.OutcomeUnknown, time.Now()
		return []toolkeep.Change{toolkeep.MoveCall{Invocation: v, From: []toolkeep.CallState{toolkeep.CallRunning}}}
	}
	requeue := func(v *toolkeep.Invocation) []toolkeep.Change {
		v.State, v.LeaseOwner, v.LeaseUntil, v.Requeued = toolkeep.CallQueued, "", time.Time{}, 1
		return []toolkeep.Change{toolkeep.MoveCall{Invocation: v, From: []toolkeep.CallState{toolkeep.CallRunning}}}
	}
	leased := func(node string) func(*toolkeep.Invocation) []toolkeep.Change {
		return func(v *toolkeep.Invocation) []toolkeep.Change {
			queued := *v
			first := requeue(&queued)
			again := queued
			again.State, again.LeaseOwner, again.LeaseUntil = toolkeep.CallRunning, node, time.Now().Add(time.Minute)
			return append(first, toolkeep.MoveCall{Invocation: &again, From: []toolkeep.CallState{toolkeep.CallQueued}})
		}
	}
	for _, c := range []struct {
		name      string
		committed bool // the commit that failed took effect
		pending   bool // it ended after its caller had left
		waits     bool // the call is a waiting one
		meanwhile func(*toolkeep.Invocation) []toolkeep.Change
		state     toolkeep.CallState
		late      bool
	}{
		{name: "nothing happened meanwhile", state: toolkeep.CallSucceeded},
		{name: "of a waiting call", waits: true, state: toolkeep.CallSucceeded},
		{name: "it was committed", committed: true, state: toolkeep.CallSucceeded},
		{name: "it was committed later", committed: true, pending: true, state: toolkeep.CallSucceeded},
		{name: "it failed later", pending: true, state: toolkeep.CallSucceeded},
		{name: "another node gave it up", meanwhile: unknown, state: toolkeep.CallUnknown, late: true},
		{name: "another node queued it", waits: true, meanwhile: requeue, state: toolkeep.CallQueued, late: true},
		{name: "another node runs it", waits: true, meanwhile: leased("node-2"), state: toolkeep.CallRunning, late: true},
		{name: "this node has its lease again", waits: true, meanwhile: leased("node-1"), state: toolkeep.CallRunning, late: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log servertest.Log
			store := &endStore{}
			h := newHarness(t, func(k *invoke.Config) {
				store.Applier, k.Store, k.Alone, k.Log = k.Store, store, false, slog.New(slog.NewTextHandler(&log, nil))
			})
			h.tool("write", writes)
			end := make(chan error, 1)
			fail := func(ctx context.Context, all ...toolkeep.Change) error {
				if c.committed {
					if err := store.Applier.Apply(ctx, all...); err != nil {
						t.Error(err)
					}
				}
				if c.pending {
					return &toolkeep.PendingError{End: end}
				}
				return errBroken
			}
			store.fail.Store(&fail)
			res, err := h.call(&toolkeep.Call{Tool: "std.write", Key: "k", Async: c.waits})
			if err != nil || !c.waits && (res.Error != nil || string(res.Output) != `{"run":1}`) {
				t.Fatalf("%+v %v", res, err)
			}
			h.work()
			if n, lost := h.pipeline.Spooled(); n != 1 || lost != 0 {
				t.Fatalf("%d are spooled and %d lost", n, lost)
			}
			ref := toolkeep.CallRef{Tenant: "acme", ID: res.InvocationID}
			if c.meanwhile != nil {
				row := h.row(ref.ID)
				row.LeaseUntil = lapsed
				if err := h.store.Apply(t.Context(), c.meanwhile(row)...); err != nil {
					t.Fatal(err)
				}
				if h.row(ref.ID).State == toolkeep.CallQueued {
					if err := h.pipeline.Run(t.Context(), ref); err == nil {
						t.Error("the call runs again before its end was looked at")
					}
				}
			}
			if c.pending {
				if err := h.pipeline.Drained(t.Context()); err != nil {
					t.Error(err)
				}
				if n, _ := h.pipeline.Spooled(); n != 1 {
					t.Errorf("%d are spooled while the commit is under way", n)
				}
				if c.committed {
					end <- nil
				} else {
					end <- errBroken
				}
			}
			store.fail.Store(nil)
			if err := h.pipeline.Drained(t.Context()); err != nil {
				t.Fatal(err)
			}
			if row := h.row(ref.ID); row.State != c.state {
				t.Errorf("the record is %s, want %s", row.State, c.state)
			}
			if n, lost := h.pipeline.Spooled(); n != 0 || lost != 0 {
				t.Errorf("%d are spooled and %d lost", n, lost)
			}
			if got := strings.Contains(log.String(), "which stays as it is"); got != c.late || c.late && !strings.Contains(log.String(), "ended_as=succeeded") {
				t.Errorf("it is logged as late %t, want %t:\n%s", got, c.late, log.String())
			}
		})
	}
}

// TestEndThatIsTooLate: a caller gets what its call did also if another node decided the record
// meanwhile, with a warning.
func TestEndThatIsTooLate(t *testing.T) {
	h := newHarness(t)
	h.tool("write", writes)
	h.executor.do = func(_ context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		row := h.row(x.InvocationID)
		row.State, row.Code, row.EndedAt = toolkeep.CallUnknown, toolkeep.OutcomeUnknown, time.Now()
		if err := h.store.Apply(context.Background(), toolkeep.MoveCall{Invocation: row, From: []toolkeep.CallState{toolkeep.CallRunning}}); err != nil {
			t.Error(err)
		}
		return &toolkeep.Output{Value: json.Number("1"), HasValue: true}, nil
	}
	res, err := h.call(&toolkeep.Call{Tool: "std.write", Key: "k"})
	if err != nil || res.State != toolkeep.CallSucceeded || string(res.Output) != "1" || len(res.Warnings) != 1 || res.Warnings[0].Code != toolkeep.OutcomeUnknown {
		t.Errorf("%+v %v", res, err)
	}
	if row := h.row(res.InvocationID); row.State != toolkeep.CallUnknown {
		t.Errorf("the record is %s", row.State)
	}
	if n, _ := h.pipeline.Spooled(); n != 0 {
		t.Errorf("%d are spooled", n)
	}
}

// leaseStore notes the leases that are claimed and renewed.
type leaseStore struct {
	discard
	mu      sync.Mutex
	claimed time.Duration
	renewed map[toolkeep.CallRef]int
}

func (s *leaseStore) Apply(_ context.Context, all ...toolkeep.Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range all {
		switch c := c.(type) {
		case toolkeep.ClaimCall:
			s.claimed = time.Until(c.Invocation.LeaseUntil)
		case toolkeep.RenewLeases:
			for _, ref := range c.Calls {
				s.renewed[ref]++
			}
		}
	}
	return nil
}

// TestLeaseOfASynchronousCall is as long as that of a waiting one and renewed while the call
// runs, so that the key of a node that died is free soon.
func TestLeaseOfASynchronousCall(t *testing.T) {
	h := newHarness(t)
	h.tool("write", writes)
	synctest.Test(t, func(t *testing.T) {
		h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
			time.Sleep(21 * time.Second)
			return &toolkeep.Output{Value: "done", HasValue: true}, nil
		}
		store := &leaseStore{renewed: map[toolkeep.CallRef]int{}}
		p := h.over(t, store, "", nil)
		defer p.Stop()
		res, err := p.Invoke(context.Background(), alice, &toolkeep.Call{Tool: "std.write", Key: "k"})
		if err != nil || res.Error != nil {
			t.Fatalf("%+v %v", res, err)
		}
		time.Sleep(20 * time.Second)
		store.mu.Lock()
		defer store.mu.Unlock()
		if n := store.renewed[toolkeep.CallRef{Tenant: "acme", ID: res.InvocationID}]; store.claimed != 10*time.Second || n != 6 {
			t.Errorf("claimed for %s and renewed %d times", store.claimed, n)
		}
	})
}

// lapsing fails to say which leases lapsed while down is set.
type lapsing struct {
	toolkeep.Invocations
	down atomic.Bool
}

func (l *lapsing) Lapsed(ctx context.Context, now time.Time, notOwner string, limit int) ([]*toolkeep.Invocation, error) {
	if l.down.Load() {
		return nil, errBroken
	}
	return l.Invocations.Lapsed(ctx, now, notOwner, limit)
}

// TestLapsedLeases: a node gives up calls of nodes that do not renew their leases, but not
// because it could not reach the store itself: then the others get a lease's time to renew.
func TestLapsedLeases(t *testing.T) {
	const lease = 10 * time.Second
	for _, c := range []struct {
		name string
		gap  func(sweep func(), pass func(time.Duration), down *atomic.Bool)
	}{
		{"the store failed", func(sweep func(), pass func(time.Duration), down *atomic.Bool) {
			down.Store(true)
			for range 30 {
				pass(time.Second)
				sweep()
			}
			down.Store(false)
		}},
		{"this node slept", func(_ func(), pass func(time.Duration), _ *atomic.Bool) { pass(time.Hour) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			var ahead atomic.Int64
			reads := &lapsing{}
			h := newHarness(t, func(k *invoke.Config) {
				reads.Invocations, k.Invocations, k.Alone = k.Invocations, reads, false
				k.Clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
			})
			h.tool("write", writes)
			pass := func(d time.Duration) { ahead.Add(int64(d)) }
			sweep := func() {
				if err := h.pipeline.Sweep(t.Context()); err != nil && !errors.Is(err, errBroken) {
					t.Fatal(err)
				}
			}
			claim := func(id string) toolkeep.CallRef {
				v := &toolkeep.Invocation{ID: id, Tenant: "acme", Subject: "alice", ToolID: "std.write", State: toolkeep.CallRunning, Writes: true, Sent: true,
					LeaseOwner: "node-2", LeaseUntil: h.config.Clock().Add(lease), CreatedAt: h.config.Clock(), StartedAt: h.config.Clock()}
				if err := h.store.Apply(t.Context(), toolkeep.ClaimCall{Invocation: v}); err != nil {
					t.Fatal(err)
				}
				return v.Ref()
			}
			lost := claim("lost")
			sweep()
			for range 11 {
				pass(time.Second)
				sweep()
			}
			if row := h.row(lost.ID); row.State != toolkeep.CallUnknown || strings.Contains(row.Message, "server stopped") ||
				!strings.Contains(row.Message, "did not renew its lease") {
				t.Errorf("the call of a node that does not renew its lease is %s: %s", row.State, row.Message)
			}
			renewed, given := claim("renewed"), claim("given up")
			c.gap(sweep, pass, &reads.down)
			sweep()
			pass(lease / 2)
			if err := h.store.Apply(t.Context(), toolkeep.RenewLeases{Owner: "node-2", Calls: []toolkeep.CallRef{renewed}, Until: h.config.Clock().Add(lease)}); err != nil {
				t.Fatal(err)
			}
			sweep()
			for _, ref := range []toolkeep.CallRef{renewed, given} {
				if row := h.row(ref.ID); row.State != toolkeep.CallRunning {
					t.Errorf("%s is %s before its node could renew its lease", ref.ID, row.State)
				}
			}
			pass(lease/2 + time.Second)
			sweep()
			if a, b := h.row(renewed.ID), h.row(given.ID); a.State != toolkeep.CallRunning || b.State != toolkeep.CallUnknown {
				t.Errorf("then they are %s and %s", a.State, b.State)
			}
		})
	}
}

// TestCancelledByTheTool: a waiting call whose tool cancels it was not stopped with its node.
func TestCancelledByTheTool(t *testing.T) {
	h := newHarness(t)
	h.tool("write", writes)
	h.executor.do = func(context.Context, *toolkeep.Execution) (*toolkeep.Output, error) {
		return nil, toolkeep.NewError(toolkeep.Cancelled, "the upstream cancelled the call")
	}
	res, err := h.call(&toolkeep.Call{Tool: "std.write", Async: true})
	if err != nil {
		t.Fatal(err)
	}
	h.work()
	if row := h.row(res.InvocationID); row.State != toolkeep.CallCancelled || row.Code != toolkeep.Cancelled {
		t.Errorf("it is %s %s: %s", row.State, row.Code, row.Message)
	}
}
