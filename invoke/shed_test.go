package invoke_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/limit/overload"
)

// busyStore is a store in which a new change is expected to wait.
type busyStore struct {
	toolkeep.Applier
	wait, paced atomic.Int64
}

func (s *busyStore) QueueWait() (wait, paced time.Duration) {
	return time.Duration(s.wait.Load()), time.Duration(s.paced.Load())
}

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
		taken := h.limits.taken.Load()
		_, err := h.call(c)
		if n := h.limits.taken.Load(); c.Async && n != taken {
			t.Errorf("%+v counts against the limits of requests", c)
		}
		if err == nil || err.Code != toolkeep.Backpressure || !err.NothingSent || err.InvocationID != "" || err.RetryAfter < 2500*time.Millisecond || err.RetryAfter > 5500*time.Millisecond {
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

// TestLongQueueAndManyCalls: with many calls in flight a queue of half the bound refuses all new ones that would add to it, but those of priority
// high, and no dry run; one commit that takes as long refuses none.
func TestLongQueueAndManyCalls(t *testing.T) {
	store := &busyStore{}
	h := newHarness(t, func(c *invoke.Config) {
		store.Applier = c.Store
		c.Store, c.StoreWait = store, time.Second
	})
	h.tool("held")
	h.tool("write", writes)
	const many = 33
	started, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		if x.Tool.ID == "std.held" {
			return hold(started, goOn)(ctx, x)
		}
		return &toolkeep.Output{HasValue: true}, nil
	}
	store.wait.Store(int64(500 * time.Millisecond))
	store.paced.Store(int64(500 * time.Millisecond))
	if _, err := h.call(&toolkeep.Call{Tool: "std.write"}); err != nil {
		t.Errorf("among few: %v", err)
	}
	for range many {
		go func() {
			_, err := h.pipeline.Invoke(context.Background(), alice, &toolkeep.Call{Tool: "std.held"})
			ended <- err
		}()
		<-started
	}
	for _, c := range []*toolkeep.Call{{Tool: "std.write"}, {Tool: "std.write", Async: true, Priority: toolkeep.Low}} {
		if _, err := h.call(c); err == nil || err.Code != toolkeep.Backpressure {
			t.Errorf("%+v gave %v", c, err)
		}
	}
	if _, err := h.call(&toolkeep.Call{Tool: "std.write", Priority: toolkeep.High}); err != nil {
		t.Errorf("of priority high: %v", err)
	}
	if _, err := h.pipeline.Explain(t.Context(), alice, &toolkeep.Call{Tool: "std.write"}); err != nil {
		t.Errorf("a dry run: %v", err)
	}
	store.paced.Store(int64(10 * time.Millisecond)) // one commit takes long
	if _, err := h.call(&toolkeep.Call{Tool: "std.write"}); err != nil {
		t.Errorf("while one commit takes long: %v", err)
	}
	close(goOn)
	for range many {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestCallsInFlightHaveABound: a call beyond the bound is refused before anything is taken or sent, and without a record; calls below one
// that was taken, those that waited in the queue, and dry runs are not.
func TestCallsInFlightHaveABound(t *testing.T) {
	h := newHarness(t, func(c *invoke.Config) { c.Load = overload.Config{InFlight: 1} })
	h.tool("held")
	h.tool("parent")
	h.tool("queued")
	started, goOn := make(chan struct{}), make(chan struct{})
	held := hold(started, goOn)
	h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		switch x.Tool.ID {
		case "std.held":
			return held(ctx, x)
		case "std.parent":
			if _, err := x.Child.Invoke(ctx, alice, &toolkeep.Call{Tool: "std.queued"}); err != nil {
				return nil, err
			}
		}
		return &toolkeep.Output{HasValue: true}, nil
	}
	if res, err := h.call(&toolkeep.Call{Tool: "std.parent"}); err != nil || res.Error != nil {
		t.Fatalf("with a call below it: %+v, %v", res, err)
	}
	waiting, err := h.call(&toolkeep.Call{Tool: "std.queued", Async: true})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		_, err := h.pipeline.Invoke(context.Background(), alice, &toolkeep.Call{Tool: "std.held"})
		ended <- err
	}()
	<-started
	taken := h.limits.taken.Load()
	for _, c := range []*toolkeep.Call{{Tool: "std.queued"}, {Tool: "std.queued", Async: true}, {Tool: "std.queued", Key: "k"}} {
		if _, err := h.call(c); err == nil || err.Code != toolkeep.Backpressure || !err.NothingSent || err.InvocationID != "" || err.RetryAfter <= 0 {
			t.Errorf("%+v gave %v", c, err)
		}
	}
	if _, refused := h.pipeline.Overload(); refused != 3 || h.limits.taken.Load() != taken {
		t.Errorf("%d were refused, and %d took from the limits", refused, h.limits.taken.Load()-taken)
	}
	if _, err := h.pipeline.Explain(t.Context(), alice, &toolkeep.Call{Tool: "std.queued"}); err != nil {
		t.Errorf("a dry run: %v", err)
	}
	h.work()
	if v := h.row(waiting.InvocationID); v.State != toolkeep.CallSucceeded {
		t.Errorf("the waiting call is %s", v.State)
	}
	close(goOn)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := h.call(&toolkeep.Call{Tool: "std.queued"}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
