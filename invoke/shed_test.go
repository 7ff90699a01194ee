package invoke_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
)

// busyStore is a store in which a new change is expected to wait.
type busyStore struct {
	toolkeep.Applier
	wait atomic.Int64
}

func (s *busyStore) QueueWait() time.Duration { return time.Duration(s.wait.Load()) }

// TestLongQueueRefusesNewCalls: while a change would wait for the store longer than StoreWait, a new
// call that needs a row is refused before anything is taken or sent, and leaves no record, which would
// wait there as well. Calls that add nothing to the queue, and calls under way, go on.
func TestLongQueueRefusesNewCalls(t *testing.T) {
	store := &busyStore{}
	h := newHarness(t, func(c *invoke.Config) {
		store.Applier = c.Store
		c.Store, c.StoreWait = store, 500*time.Millisecond
	})
	h.tool("read")
	h.tool("write", writes)
	kept := toolkeep.Call{Tool: "std.write", Key: "before"}
	first, err := h.call(&kept)
	if err != nil {
		t.Fatal(err)
	}
	waiting, err := h.call(&toolkeep.Call{Tool: "std.write", Async: true})
	if err != nil {
		t.Fatal(err)
	}

	store.wait.Store(int64(500 * time.Millisecond)) // the limit itself is allowed
	if _, err := h.call(&toolkeep.Call{Tool: "std.write"}); err != nil {
		t.Fatal(err)
	}

	store.wait.Store(int64(2500 * time.Millisecond))
	ran := h.executor.calls.Load()
	refused := []*toolkeep.Call{{Tool: "std.write"}, {Tool: "std.read", Key: "now"}, {Tool: "std.read", Async: true}}
	for _, c := range refused {
		_, err := h.call(c)
		if err == nil || err.Code != toolkeep.Backpressure || !err.NothingSent || err.InvocationID != "" || err.RetryAfter != 2500*time.Millisecond {
			t.Fatalf("%+v gave %v", c, err)
		}
	}
	if n := h.executor.calls.Load(); n != ran {
		t.Errorf("%d refused calls were executed", n-ran)
	}
	if n, lost := h.pipeline.Spooled(); n != 0 || lost != 0 {
		t.Errorf("%d records are in the spool and %d are lost", n, lost)
	}
	if _, err := h.call(&toolkeep.Call{Tool: "std.read", Key: "now", Arguments: []byte(`{`)}); err == nil || err.Code != toolkeep.Backpressure {
		t.Errorf("arguments were read before the refusal: %v", err)
	}
	if _, err := h.call(&toolkeep.Call{Tool: "std.read"}); err != nil {
		t.Errorf("a reading call gave %v", err)
	}
	if again, err := h.call(&kept); err != nil || !again.Replayed || again.InvocationID != first.InvocationID {
		t.Errorf("a kept answer gave %+v %v", again, err)
	}
	h.work()
	if v := h.row(waiting.InvocationID); v.State != toolkeep.CallSucceeded {
		t.Errorf("the waiting call is %s", v.State)
	}

	store.wait.Store(0)
	if _, err := h.call(refused[1]); err != nil {
		t.Errorf("the same call gave %v afterwards", err)
	}
}
