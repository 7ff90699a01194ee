package invoke_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/invoke"
)

// fakeKnowledge is what a node knows, as a test says.
type fakeKnowledge struct {
	applied, seen atomic.Int64
	checks        atomic.Int64
	check         func(n int64) (bool, error) // n is 1 for the first of a call
	await         func(seq int64) error
}

func (k *fakeKnowledge) Check(context.Context) (bool, error) {
	n := k.checks.Add(1)
	if k.check == nil {
		return false, nil
	}
	return k.check(n)
}

func (k *fakeKnowledge) Applied() int64 { return k.applied.Load() }

func (k *fakeKnowledge) AwaitApplied(_ context.Context, seq int64) error { return k.await(seq) }

// seeingStore sees changes of others with a claim.
type seeingStore struct {
	toolkeep.Applier
	k *fakeKnowledge
}

func (s seeingStore) SeenHead() int64 { return s.k.seen.Load() }

// TestOldKnowledge: a call is decided again before anything is sent if the node slept since it
// decided it, or if its claim saw changes that were not applied when it came; if it is refused
// then, its key is free.
func TestOldKnowledge(t *testing.T) {
	const before, meanwhile, both = 1, 2, 3 // when the node has to look
	for _, c := range []struct {
		name   string
		looks  int
		sees   bool // the claim sees changes of others
		away   bool // they are not applied
		stale  int  // at which check knowledge does not serve
		change func(*harness)
		tool   string
		async  bool
		want   toolkeep.Code
		state  toolkeep.CallState // of the record
	}{
		{name: "nothing changed", tool: "std.write", state: toolkeep.CallSucceeded},
		{name: "the claim sees what changes nothing for the call", sees: true, tool: "std.write", state: toolkeep.CallSucceeded},
		{name: "the key was revoked, seen by the claim", sees: true, change: revoke, tool: "std.write", want: toolkeep.Unauthenticated, state: toolkeep.CallRefused},
		{name: "the tool was blocked, seen by the claim", sees: true, change: block, tool: "std.write", want: toolkeep.ToolBlocked, state: toolkeep.CallRefused},
		{name: "the role was taken away, seen by the claim", sees: true, change: deny, tool: "std.write", want: toolkeep.PermissionDenied, state: toolkeep.CallRefused},
		{name: "in a worker", sees: true, change: block, tool: "std.write", async: true, want: toolkeep.ToolBlocked, state: toolkeep.CallRefused},
		{name: "the claim sees what this node does not come to", sees: true, away: true, tool: "std.write", want: toolkeep.RegistryUnavailable, state: toolkeep.CallRefused},
		{name: "in a worker that does not come to it", sees: true, away: true, tool: "std.write", async: true, state: toolkeep.CallQueued},
		{name: "it slept before", looks: before, change: revoke, tool: "std.read", want: toolkeep.Unauthenticated, state: toolkeep.CallRefused},
		{name: "it slept meanwhile, a reading call of a revoked key", looks: meanwhile, change: revoke, tool: "std.read", want: toolkeep.Unauthenticated, state: toolkeep.CallRefused},
		{name: "it slept meanwhile, a reading call of a blocked tool", looks: meanwhile, change: block, tool: "std.read", want: toolkeep.ToolBlocked, state: toolkeep.CallRefused},
		{name: "it slept meanwhile, a writing call", looks: meanwhile, change: block, tool: "std.write", want: toolkeep.ToolBlocked, state: toolkeep.CallRefused},
		{name: "it slept and nothing changed", looks: both, tool: "std.write", state: toolkeep.CallSucceeded},
		{name: "it does not know enough", stale: before, tool: "std.read", want: toolkeep.RegistryUnavailable, state: toolkeep.CallRefused},
		{name: "it does not know enough any more", stale: meanwhile, tool: "std.write", want: toolkeep.RegistryUnavailable, state: toolkeep.CallRefused},
		{name: "a worker that does not know enough", stale: before, async: true, tool: "std.write", state: toolkeep.CallQueued},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := &fakeKnowledge{}
			var h *harness
			started := false // the call that the test is about
			k.check = func(n int64) (bool, error) {
				if !started {
					return false, nil
				}
				if int(n) == c.stale {
					return true, toolkeep.NewError(toolkeep.RegistryUnavailable, "too old")
				}
				looks := c.looks&int(n) != 0 && n < both
				if looks && c.change != nil {
					c.change(h)
				}
				return looks, nil
			}
			k.await = func(seq int64) error {
				if c.away {
					return errors.New("it is not there")
				}
				if c.change != nil {
					c.change(h)
				}
				k.applied.Store(seq)
				return nil
			}
			h = newHarness(t, func(i *invoke.Config) { i.Knowledge, i.Store = k, seeingStore{i.Store, k} })
			h.tool("read")
			h.tool("write", writes)
			h.access.policy = &fakePolicy{decide: func(*access.Question) (access.Verdict, error) { return access.Verdict{Allow: true, Rule: "day"}, nil }}
			key := ""
			if c.tool == "std.write" {
				key = "k"
			}
			call := &toolkeep.Call{Tool: c.tool, Key: key, Async: c.async}
			begin := func() {
				started = true
				k.checks.Store(0)
				if c.sees {
					k.seen.Store(5)
				}
			}
			var id string
			if c.async {
				res, err := h.call(call)
				if err != nil {
					t.Fatal(err)
				}
				id = res.InvocationID
				begin()
				h.mu.Lock()
				first := h.queue[0]
				h.queue = nil
				h.mu.Unlock()
				if err := h.pipeline.Run(t.Context(), first.Call); err != nil {
					t.Fatal(err)
				}
			} else {
				begin()
				res, err := h.call(call)
				if c.want == "" {
					if err != nil || res.Error != nil {
						t.Fatalf("%+v %v", res, err)
					}
					id = res.InvocationID
				} else {
					wantCode(t, err, c.want)
					id = err.InvocationID
				}
			}
			if row := h.row(id); row.State != c.state || c.state == toolkeep.CallRefused && row.Code != c.want || c.state != toolkeep.CallSucceeded && row.Sent {
				t.Errorf("the record is %s %s, sent %t", row.State, row.Code, row.Sent)
			}
			if row := h.row(id); (row.AllowedBy() != nil) != (c.state == toolkeep.CallSucceeded) {
				t.Errorf("the record is %s, allowed by %v", row.State, row.AllowedBy())
			}
			if n := h.executor.calls.Load(); (n != 0) != (c.state == toolkeep.CallSucceeded) {
				t.Errorf("%d executions", n)
			}
			if key == "" || c.state != toolkeep.CallRefused {
				return
			}
			if v, err := h.store.Invocations().ByKey(t.Context(), "acme", "alice", key); !errors.Is(err, toolkeep.ErrNotFound) {
				t.Errorf("the key is held by %v, %v", v, err)
			}
		})
	}
}

func revoke(h *harness) { h.access.revoked.Store(true) }
func block(h *harness)  { h.catalog.gone.Store(true) }
func deny(h *harness)   { h.access.deny.Store(true) }
