package invoke_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
)

// TestAStartIsNoContact: a node that starts while the store comes back lets a lease's time pass
// before it gives up calls of others.
func TestAStartIsNoContact(t *testing.T) {
	h := newHarness(t)
	h.pipeline.Stop()
	synctest.Test(t, func(t *testing.T) {
		store := &lapsedStore{}
		p := h.over(t, store, "", nil)
		defer p.Stop()
		began := time.Now()
		for store.moved.Load() == 0 {
			if time.Since(began) > time.Minute {
				t.Fatal("it gives up no call")
			}
			if err := p.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if after := time.Since(began); after < 10*time.Second {
			t.Errorf("it gave up another node's call %s after its start, which is less than a lease", after)
		}
	})
}

// lapsedStore has a call whose lease lapsed.
type lapsedStore struct {
	discard
	moved atomic.Int64
}

func (s *lapsedStore) Lapsed(_ context.Context, now time.Time, _ string, _ int) ([]*toolkeep.Invocation, error) {
	return []*toolkeep.Invocation{{ID: "a", Tenant: "acme", ToolID: "std.write", State: toolkeep.CallRunning, Writes: true, Sent: true,
		LeaseOwner: "node-2", LeaseUntil: now.Add(-time.Minute)}}, nil
}

func (s *lapsedStore) Apply(_ context.Context, all ...toolkeep.Change) error {
	if _, ok := all[0].(toolkeep.MoveCall); ok {
		s.moved.Add(1)
	}
	return nil
}

func (s *lapsedStore) Overdue(context.Context, time.Time, int) ([]*toolkeep.Invocation, error) {
	return nil, nil
}

func (s *lapsedStore) Unfetched(context.Context, time.Time, int) ([]*toolkeep.Invocation, error) {
	return nil, nil
}
