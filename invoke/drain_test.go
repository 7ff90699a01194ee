package invoke_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
)

// TestInterruptedCalls interrupts synchronous calls at the end of the drain time.
func TestInterruptedCalls(t *testing.T) {
	for name, c := range map[string]struct {
		tool  string
		key   string
		state toolkeep.CallState
		code  toolkeep.Code
		held  bool // the key
	}{
		"reading":                    {"std.read", "", toolkeep.CallRefused, toolkeep.Draining, false},
		"reading with key":           {"std.read", "k", toolkeep.CallRefused, toolkeep.Draining, false},
		"writing":                    {"std.write", "", toolkeep.CallUnknown, toolkeep.OutcomeUnknown, false},
		"writing with key":           {"std.write", "k", toolkeep.CallUnknown, toolkeep.OutcomeUnknown, true},
		"writing again and again":    {"std.again", "k", toolkeep.CallRefused, toolkeep.Draining, false},
		"writing, nothing was sent":  {"std.late", "k", toolkeep.CallRefused, toolkeep.Draining, false},
		"writing, cancelled by hand": {"std.write", "cancel", toolkeep.CallCancelled, toolkeep.Cancelled, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			h.tool("read")
			h.tool("write", writes)
			h.tool("late", writes)
			h.tool("again", writes, func(m *toolkeep.Manifest) { m.Idempotent = true })
			started := make(chan struct{}, 1)
			h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
				started <- struct{}{}
				<-ctx.Done()
				err := toolkeep.NewError(toolkeep.Cancelled, "stopped").Because(context.Cause(ctx))
				err.NothingSent = x.Tool.ID == "std.late"
				return nil, err
			}
			face, hangUp := context.WithCancel(context.Background())
			defer hangUp()
			got := make(chan *toolkeep.Error, 1)
			go func() {
				res, err := h.pipeline.Invoke(face, alice, &toolkeep.Call{Tool: c.tool, Key: c.key})
				if err == nil && res.Error != nil { // of kind result
					err = res.Error
				}
				got <- toolkeep.AsError(err)
			}()
			<-started
			h.pipeline.Drain()
			if c.state == toolkeep.CallCancelled {
				rows, _, err := h.pipeline.List(context.Background(), alice, toolkeep.InvocationFilter{Limit: 1})
				if err != nil {
					t.Fatal(err)
				}
				if ok, _, err := h.pipeline.Cancel(context.Background(), alice, rows[0].ID, "no need"); !ok || err != nil {
					t.Fatal(ok, err)
				}
			} else {
				h.pipeline.Interrupt()
				hangUp() // as the face does
			}
			h.pipeline.Idle(context.Background())
			err := <-got
			wantCode(t, err, c.code)
			if row := h.row(err.InvocationID); row.State != c.state || row.Code != c.code || row.Retryable != (c.code == toolkeep.Draining) {
				t.Errorf("row %s %s, retryable %t", row.State, row.Code, row.Retryable)
			}
			if c.key == "" {
				return
			}
			if _, err := h.store.Invocations().ByKey(context.Background(), "acme", "alice", c.key); (err == nil) != c.held {
				t.Errorf("the key: %v, want it held: %t", err, c.held)
			}
		})
	}
}

// TestIdle waits only for calls that began before Drain.
func TestIdle(t *testing.T) {
	h := newHarness(t)
	h.tool("read")
	started, goOn := make(chan struct{}, 1), make(chan struct{})
	h.executor.do = hold(started, goOn)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := h.call(&toolkeep.Call{Tool: "std.read"}); err != nil {
			t.Error(err)
		}
	}()
	<-started
	h.pipeline.Drain()
	_, err := h.call(&toolkeep.Call{Tool: "std.read"})
	wantCode(t, err, toolkeep.Draining)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	h.pipeline.Idle(over) // returns despite a call under way
	close(goOn)
	h.pipeline.Idle(context.Background())
	<-done
}

// takenStore says of some claims that their keys are taken.
type takenStore struct {
	toolkeep.Applier
	taken, claims atomic.Int64
}

func (s *takenStore) Apply(ctx context.Context, changes ...toolkeep.Change) error {
	if c, ok := changes[0].(toolkeep.ClaimCall); ok && c.Invocation.Key != "" {
		s.claims.Add(1)
		if s.taken.Add(-1) >= 0 {
			return toolkeep.ErrKeyTaken
		}
	}
	return s.Applier.Apply(ctx, changes...)
}

// TestKeyOfNoCall: a claim whose key is taken by a call that cannot be found is tried again, but not without end.
func TestKeyOfNoCall(t *testing.T) {
	store := &takenStore{}
	h := newHarness(t, func(c *invoke.Config) { store.Applier, c.Store = c.Store, store })
	tool := h.tool("x", writes)
	store.taken.Store(3)
	if _, err := h.call(&toolkeep.Call{Tool: tool.ID, Key: "freed"}); err != nil || store.claims.Load() != 4 {
		t.Errorf("freed after 3 claims: %v after %d", err, store.claims.Load())
	}
	store.taken.Store(1e9)
	for _, async := range []bool{false, true} {
		store.claims.Store(0)
		_, err := h.call(&toolkeep.Call{Tool: tool.ID, Key: "never", Async: async})
		wantCode(t, err, toolkeep.RecordUnavailable)
		if n := store.claims.Load(); n < 2 || n > 100 {
			t.Errorf("%d claims", n)
		}
	}
}
