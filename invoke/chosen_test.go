package invoke_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
)

// slowCalls is a store whose question for a call takes a while.
type slowCalls struct {
	hungStore
	takes time.Duration
}

func (s *slowCalls) Get(ctx context.Context, _ toolkeep.CallRef) (*toolkeep.Invocation, error) {
	if !toolkeep.Sleep(ctx, s.takes) {
		return nil, ctx.Err()
	}
	return nil, toolkeep.ErrNotFound
}

func (s *slowCalls) ByKey(context.Context, string, string, string) (*toolkeep.Invocation, error) {
	return nil, toolkeep.ErrNotFound
}

// TestChosenIDOfASlowStore: a call that needs the store anyway gets the id it chose, and the
// store does not count as away for it.
func TestChosenIDOfASlowStore(t *testing.T) {
	h := newHarness(t)
	h.tool("read")
	h.tool("write", writes)
	for _, c := range []struct {
		name string
		call toolkeep.Call
		away bool
	}{
		{"writing", toolkeep.Call{Tool: "std.write"}, false},
		{"waiting", toolkeep.Call{Tool: "std.read", Async: true}, false},
		{"with a key", toolkeep.Call{Tool: "std.read", Key: "k"}, false},
		{"reading", toolkeep.Call{Tool: "std.read"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &slowCalls{takes: 200 * time.Millisecond}
				var told atomic.Bool
				p := h.over(t, store, "", func() { told.Store(true) })
				defer p.Stop()
				call := c.call
				call.ID = uuid.NewString()
				res, err := p.Invoke(context.Background(), alice, &call)
				if err != nil {
					t.Fatal(err)
				}
				if got := res.InvocationID == call.ID; got == c.away || told.Load() != c.away {
					t.Errorf("the call has its id: %t, the store counts as away: %t", got, told.Load())
				}
			})
		})
	}
}
