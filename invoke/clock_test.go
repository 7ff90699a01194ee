package invoke_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
)

// TestLeasesFollowTheStoresClock: a node whose clock is off gives up no call that another node
// runs, and none of its own is given up; until it knows the store's time it gives up nothing.
func TestLeasesFollowTheStoresClock(t *testing.T) {
	for _, c := range []struct {
		name   string
		off    time.Duration // of this node's clock
		within time.Duration
		known  bool
		gives  bool // up, what did lapse
	}{
		{name: "its clock is right", known: true, gives: true},
		{name: "it is ahead", off: 30 * time.Second, known: true, gives: true},
		{name: "it is behind", off: -30 * time.Second, known: true, gives: true},
		{name: "it is known coarsely", off: 30 * time.Second, within: 2 * time.Second, known: true, gives: true},
		{name: "it is known too coarsely", within: 2*time.Second + 1, known: true},
		{name: "it is not known", off: 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var passed atomic.Int64
			now := func() time.Time { return time.Now().Add(time.Duration(passed.Load())) } // the store's
			h := newHarness(t, func(k *invoke.Config) {
				k.Alone = false
				k.Clock = func() time.Time { return now().Add(c.off) }
				k.StoreClock = func() (time.Duration, time.Duration, bool) { return -c.off, c.within, c.known }
			})
			h.tool("write", writes)
			claim := func(id string, left time.Duration) toolkeep.CallRef {
				v := &toolkeep.Invocation{ID: id, Tenant: "acme", Subject: "alice", ToolID: "std.write", State: toolkeep.CallRunning, Writes: true, Sent: true,
					LeaseOwner: "node-2", LeaseUntil: now().Add(left), CreatedAt: now(), StartedAt: now()}
				if err := h.store.Apply(t.Context(), toolkeep.ClaimCall{Invocation: v}); err != nil {
					t.Fatal(err)
				}
				return v.Ref()
			}
			lost := claim("lost", 5*time.Second)
			for range 12 {
				passed.Add(int64(time.Second))
				if err := h.pipeline.Sweep(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			runs := claim("runs", 8*time.Second)
			if err := h.pipeline.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			if row := h.row(runs.ID); row.State != toolkeep.CallRunning {
				t.Errorf("a call whose node renews its lease is %s", row.State)
			}
			if row := h.row(lost.ID); (row.State == toolkeep.CallUnknown) != c.gives {
				t.Errorf("a call whose lease lapsed is %s", row.State)
			}
			own := func(how string, id string) {
				t.Helper()
				if left := h.row(id).LeaseUntil.Sub(now()); left <= 0 || left > 10*time.Second {
					t.Errorf("%s: %s are left of a lease of 10 s", how, left)
				}
			}
			h.executor.do = func(_ context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
				rows, err := h.store.Invocations().Leased(t.Context(), "node-1", 2)
				if err != nil || len(rows) != 1 {
					t.Errorf("%d calls are claimed, %v", len(rows), err)
				} else {
					own(x.Tool.ID, rows[0].ID)
				}
				return &toolkeep.Output{Value: "done", HasValue: true}, nil
			}
			for _, async := range []bool{false, true} {
				if _, err := h.call(&toolkeep.Call{Tool: "std.write", Async: async}); err != nil {
					t.Fatal(err)
				}
			}
			h.work()
		})
	}
}
