package invoke_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
)

// TestResultsShareMemory: eight large results at once stay within the budget, except that
// one of them always goes on, and all of them end.
func TestResultsShareMemory(t *testing.T) {
	const budget, each, piece = 60 << 20, 10 << 20, 1 << 20 // a result takes three times its bytes
	h := newHarness(t, func(c *invoke.Config) { c.ResultMemory = budget })
	h.tool("large")
	var now, most atomic.Int64
	h.executor.do = func(_ context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		got := int64(0)
		defer func() { now.Add(-got) }()
		for range each / piece {
			if err := x.Grow(piece); err != nil {
				return nil, err
			}
			got += piece
			for n := now.Add(piece); ; {
				if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
					break
				}
			}
		}
		return &toolkeep.Output{HasValue: true, BytesRecv: got}, nil
	}
	ended := make(chan *toolkeep.Error, 8)
	for range 8 {
		go func() {
			res, err := h.pipeline.Invoke(context.Background(), alice, &toolkeep.Call{Tool: "std.large"})
			if err == nil && res.Error != nil {
				err = res.Error
			}
			ended <- toolkeep.AsError(err)
		}()
	}
	for range 8 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if n := most.Load() * 3; n > budget+3*each {
		t.Errorf("the results took %d bytes of %d", n, budget)
	}
}

// TestNoMemoryForResults: a call that finds no room is refused in time, before it is sent,
// and one that has begun to read waits for its deadline.
func TestNoMemoryForResults(t *testing.T) { synctest.Test(t, noMemoryForResults) }

func noMemoryForResults(t *testing.T) {
	h := newHarness(t, func(c *invoke.Config) { c.ResultMemory = 8 << 20 })
	h.tool("large")
	full, goOn := make(chan struct{}), make(chan struct{})
	h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		if x.Session == "first" {
			if err := x.Grow(2 << 20); err != nil {
				return nil, err
			}
			full <- struct{}{}
			<-goOn
			if err := x.Grow(2 << 20); err != nil {
				return nil, err
			}
			full <- struct{}{}
			<-goOn
			return &toolkeep.Output{HasValue: true}, nil
		}
		return &toolkeep.Output{HasValue: true}, x.Grow(2 << 20)
	}
	first := make(chan error)
	go func() {
		_, err := h.pipeline.Invoke(context.Background(), alice, &toolkeep.Call{Tool: "std.large", Session: "first"})
		first <- err
	}()
	<-full // it holds 8 MiB: the budget
	if used, limit := h.pipeline.HeldByResults(); used != 8<<20 || limit != 8<<20 {
		t.Errorf("%d of %d bytes are held", used, limit)
	}
	c := &toolkeep.Call{Tool: "std.large", Timeout: 200 * time.Millisecond}
	_, err := h.call(c)
	wantCode(t, err, toolkeep.Backpressure)
	if n := h.executor.calls.Load(); n != 1 || !err.NothingSent || !err.Retryable || err.RetryAfter <= 0 {
		t.Errorf("%d calls were sent, %+v", n, err)
	}
	// A waiting call goes back to the queue.
	h.tool("brief", func(m *toolkeep.Manifest) { m.Execution.TimeoutMS = 200 })
	queued, err := h.call(&toolkeep.Call{Tool: "std.brief", Async: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.pipeline.Run(t.Context(), toolkeep.CallRef{Tenant: "acme", ID: queued.InvocationID}); err != nil {
		t.Fatal(err)
	}
	if row := h.row(queued.InvocationID); row.State != toolkeep.CallQueued {
		t.Errorf("the waiting call is %s %s", row.State, row.Code)
	}
	goOn <- struct{}{}
	<-full // the oldest goes on over the budget
	goOn <- struct{}{}
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	if _, err := h.call(c); err != nil {
		t.Errorf("after the others ended: %v", err)
	}
	if used, _ := h.pipeline.HeldByResults(); used != 0 {
		t.Errorf("%d bytes are held after all calls", used)
	}
}

// TestMemoryIsWaitedForInTheMiddle: a result that finds no room while it arrives ends with its call's deadline.
func TestMemoryIsWaitedForInTheMiddle(t *testing.T) { synctest.Test(t, memoryIsWaitedForInTheMiddle) }

func memoryIsWaitedForInTheMiddle(t *testing.T) {
	h := newHarness(t, func(c *invoke.Config) { c.ResultMemory = 8 << 20 })
	h.tool("large")
	reading, full, goOn := make(chan struct{}), make(chan struct{}), make(chan struct{})
	h.executor.do = func(_ context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		if x.Session == "late" { // it is sent before the other takes the memory
			reading <- struct{}{}
			<-full
			return &toolkeep.Output{HasValue: true}, x.Grow(2 << 20)
		}
		err := x.Grow(2 << 20)
		full <- struct{}{}
		<-goOn
		return &toolkeep.Output{HasValue: true}, err
	}
	ended := make(chan *toolkeep.Error, 1)
	go func() {
		res, err := h.pipeline.Invoke(context.Background(), alice, &toolkeep.Call{Tool: "std.large", Session: "late", Timeout: time.Second})
		if err == nil {
			err = res.Error
		}
		ended <- toolkeep.AsError(err)
	}()
	<-reading
	other := make(chan error, 1)
	go func() {
		_, err := h.pipeline.Invoke(context.Background(), alice, &toolkeep.Call{Tool: "std.large"})
		other <- err
	}()
	wantCode(t, <-ended, toolkeep.Timeout)
	close(goOn)
	if err := <-other; err != nil {
		t.Error(err)
	}
}
