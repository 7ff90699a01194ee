package invoke_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/limit/breaker"
	"github.com/toolkeep/toolkeep/limit/bulkhead"
)

// onePlace is a pipeline with one place for all attempts.
func onePlace(t *testing.T, h *harness) *invoke.Pipeline {
	h.config.Bulkheads = bulkhead.New(bulkhead.Config{Total: 1})
	h.config.Breakers = breaker.New(breaker.Config{})
	return h.over(t, discard{}, "", nil)
}

// TestBulkhead: an attempt waits for its place, and one that gets none in time is refused without having been sent.
func TestBulkhead(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.tool("slow", func(m *toolkeep.Manifest) { m.Cost = &toolkeep.CostSpec{EstimatedUSD: 1} })
	h.executor.do = func(ctx context.Context, _ *toolkeep.Execution) (*toolkeep.Output, error) {
		if !toolkeep.Sleep(ctx, 10*time.Second) {
			return nil, ctx.Err()
		}
		return &toolkeep.Output{HasValue: true}, nil
	}
	synctest.Test(t, func(t *testing.T) {
		p := onePlace(t, h)
		defer p.Stop()
		b := p.Bulkheads
		var tools time.Duration // of the last call that ended
		call := func(timeout time.Duration) (took time.Duration, err *toolkeep.Error) {
			began := time.Now()
			res, fail := p.Invoke(t.Context(), alice, &toolkeep.Call{Tool: "std.slow", Timeout: timeout})
			if fail == nil && res.Error != nil {
				fail = res.Error
			}
			if fail == nil && timeout > 0 {
				tools = res.ToolTime
			}
			return time.Since(began), toolkeep.AsError(fail)
		}
		explained := func() invoke.StepVerdict {
			x, err := p.Explain(t.Context(), alice, &toolkeep.Call{Tool: "std.slow", Timeout: 15 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			return x.(*invoke.Explanation).Steps[invoke.StepLimit]
		}
		first := make(chan *toolkeep.Error)
		go func() {
			_, err := call(0)
			first <- err
		}()
		synctest.Wait()
		if v := explained(); v.Verdict != "pass" || !strings.Contains(v.Reason, "the bulkhead total of this node is full") {
			t.Errorf("while nothing is known of the tool: %+v", v)
		}
		if took, err := call(4 * time.Second); took != 4*time.Second || err == nil || err.Code != toolkeep.ConcurrencyLimitExceeded || !err.NothingSent {
			t.Errorf("after %s: %v", took, err)
		}
		at := time.Now()
		if err := b.Take(t.Context(), new(bulkhead.Hold), nil, bulkhead.Call{Tool: &toolkeep.Tool{Manifest: &toolkeep.Manifest{}}, Most: time.Second}); toolkeep.AsError(err) == nil ||
			toolkeep.AsError(err).Code != toolkeep.ConcurrencyLimitExceeded || time.Since(at) != time.Second {
			t.Errorf("a call that may wait for a second: %v after %s", err, time.Since(at))
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := p.Invoke(ctx, alice, &toolkeep.Call{Tool: "std.slow"}); toolkeep.AsError(err) == nil || toolkeep.AsError(err).Code != toolkeep.Cancelled {
			t.Errorf("cancelled: %v", err)
		}
		if took, err := call(20 * time.Second); took != 14*time.Second || err != nil || tools != 10*time.Second { // 4 s until the place is free
			t.Errorf("after %s, %s of it the tool's: %v", took, tools, err)
		}
		if err := <-first; err != nil {
			t.Error(err)
		}
		if n := h.executor.calls.Load(); n != 2 {
			t.Errorf("%d attempts were sent, want 2", n)
		}
		// Now the tool is known to take 10 s, as a place is held for.
		go func() {
			_, err := call(0)
			first <- err
		}()
		synctest.Wait()
		if v := explained(); v.Verdict != "refuse" || v.Code != toolkeep.DeadlineUnreachable {
			t.Errorf("of a tool that is known: %+v", v)
		}
		if err := b.Take(t.Context(), new(bulkhead.Hold), nil, bulkhead.Call{Tool: &toolkeep.Tool{Manifest: &toolkeep.Manifest{}}, Most: time.Second}); toolkeep.AsError(err) == nil ||
			toolkeep.AsError(err).Details["reason"] != bulkhead.TooLate || toolkeep.AsError(err).RetryAfter != 10*time.Second {
			t.Errorf("a call that may wait for a second: %v", err)
		}
		if took, err := call(15 * time.Second); took != 0 || err == nil || err.Details["reason"] != bulkhead.TooLate {
			t.Errorf("after %s: %v", took, err)
		}
		if err := <-first; err != nil {
			t.Error(err)
		}
	})
}

// TestBulkheadBetweenAttempts: the pause before a retry holds no place, and a retry that gets none ends the call with what the
// attempt before it brought.
func TestBulkheadBetweenAttempts(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	pause := int64(5000)
	h.tool("frail", func(m *toolkeep.Manifest) {
		m.Retry = &toolkeep.RetrySpec{MaxAttempts: 2, BaseDelayMS: &pause, Jitter: "none"}
	})
	h.tool("slow")
	h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		if x.Tool.ID == "std.frail" {
			return nil, toolkeep.NewError(toolkeep.UpstreamServerError, "down")
		}
		if !toolkeep.Sleep(ctx, 20*time.Second) {
			return nil, ctx.Err()
		}
		return &toolkeep.Output{HasValue: true}, nil
	}
	synctest.Test(t, func(t *testing.T) {
		p := onePlace(t, h)
		defer p.Stop()
		ended := make(chan *toolkeep.Result)
		call := func(tool string, timeout time.Duration) {
			res, err := p.Invoke(t.Context(), alice, &toolkeep.Call{Tool: tool, Timeout: timeout})
			if err != nil {
				t.Errorf("%s: %v", tool, err)
			}
			ended <- res
		}
		go call("std.frail", 30*time.Second)
		synctest.Wait()
		began := time.Now()
		go call("std.slow", 30*time.Second) // gets its place during the pause
		if res := <-ended; res.ToolID != "std.slow" || res.Error != nil || time.Since(began) != 20*time.Second {
			t.Errorf("first: %+v after %s", res, time.Since(began))
		}
		if res := <-ended; res.Error == nil || res.Error.Code != toolkeep.UpstreamServerError || res.Attempts != 2 || time.Since(began) != 20*time.Second {
			t.Errorf("then: %+v after %s", res, time.Since(began))
		}
		// The second attempt waits for a place until the call's deadline.
		began = time.Now()
		go call("std.frail", 10*time.Second)
		synctest.Wait()
		go call("std.slow", 30*time.Second)
		if res := <-ended; res.ToolID != "std.frail" || res.Error == nil || res.Error.Code != toolkeep.UpstreamServerError || res.Attempts != 1 || time.Since(began) != 10*time.Second {
			t.Errorf("a retry without a place: %+v after %s", res, time.Since(began))
		}
		<-ended
	})
}

// TestBulkheadsOfOtherCalls: a call below another, and the fallback of one that failed, do not wait for its place; one that waits
// for its caller's answer lends it to others.
func TestBulkheadsOfOtherCalls(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.tool("below")
	h.tool("parent", func(m *toolkeep.Manifest) { m.Fallback, m.Retry.MaxAttempts = "std.below", 1 })
	h.tool("asks")
	h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		var err error
		switch x.Tool.ID {
		case "std.parent":
			if _, err = x.Child.Invoke(ctx, alice, &toolkeep.Call{Tool: "std.below"}); err == nil {
				err = toolkeep.NewError(toolkeep.UpstreamServerError, "the fallback is to be asked")
			}
		case "std.asks":
			_, err = x.Caller.(toolkeep.Asker).Ask(ctx, "elicitation/create", nil)
		}
		return &toolkeep.Output{HasValue: true}, err
	}
	synctest.Test(t, func(t *testing.T) {
		p := onePlace(t, h)
		defer p.Stop()
		began := time.Now()
		res, err := p.Invoke(t.Context(), alice, &toolkeep.Call{Tool: "std.parent"})
		if err != nil || res.Error != nil || res.Fallback == nil || h.executor.calls.Load() != 3 || time.Since(began) != 0 {
			t.Errorf("%+v, %v, after %d calls and %s", res, err, h.executor.calls.Load(), time.Since(began))
		}
		c, ended := newAsker(), make(chan error)
		go func() {
			_, err := p.Invoke(t.Context(), alice, &toolkeep.Call{Tool: "std.asks", Caller: c})
			ended <- err
		}()
		<-c.asked
		if _, err := p.Invoke(t.Context(), alice, &toolkeep.Call{Tool: "std.below"}); err != nil || time.Since(began) != 0 {
			t.Errorf("while another one is asked: %v, after %s", err, time.Since(began))
		}
		c.answer <- struct{}{}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for _, s := range p.Bulkheads.Stats() {
			if s.InUse != 0 || s.Waiting != 0 || s.Refused != 0 {
				t.Errorf("at the end: %+v", s)
			}
		}
	})
}

// TestAnsweredCallsAndPlaces: a call whose answer has come waits for the slot of its tool without a place, since the one that has
// the slot may wait for that place.
func TestAnsweredCallsAndPlaces(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.tool("asks", alone)
	h.tool("other")
	h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		switch c, asks := x.Caller.(toolkeep.Asker); {
		case asks:
			if _, err := c.Ask(ctx, "elicitation/create", nil); err != nil {
				return nil, err
			}
		case x.Tool.ID == "std.other":
			time.Sleep(5 * time.Second)
		}
		return &toolkeep.Output{HasValue: true}, nil
	}
	synctest.Test(t, func(t *testing.T) {
		p := onePlace(t, h)
		defer p.Stop()
		began, c, ended := time.Now(), newAsker(), make(chan error)
		call := func(tool string, caller toolkeep.Caller) {
			res, err := p.Invoke(t.Context(), alice, &toolkeep.Call{Tool: tool, Caller: caller})
			if err == nil && res.Error != nil {
				err = res.Error
			}
			ended <- err
		}
		go call("std.asks", c)
		<-c.asked
		go call("std.other", nil) // takes the place
		synctest.Wait()
		go call("std.asks", nil) // takes the slot, and waits for the place
		synctest.Wait()
		c.answer <- struct{}{}
		for range 3 {
			if err := <-ended; err != nil || time.Since(began) != 5*time.Second {
				t.Errorf("a call ended after %s: %v", time.Since(began), err)
			}
		}
	})
}

// TestOpenBreakerAndFullBulkhead: a call that an open breaker refuses asks its fallback, also where no place is free.
func TestOpenBreakerAndFullBulkhead(t *testing.T) {
	t.Parallel()
	b := bulkhead.New(bulkhead.Config{HTTP: 1, Queue: -1})
	f := newFallbackHarness(t, func(c *invoke.Config) {
		c.Bulkheads, c.Breakers = b, breaker.New(breaker.Config{})
	})
	f.config.Executors["http"] = f.executor
	once := 1
	tool := f.tool("main", fallsBackTo("std.other"), func(m *toolkeep.Manifest) {
		m.Execution.Kind, m.Breaker = "http", &toolkeep.BreakerSpec{ConsecutiveFailures: &once}
	})
	f.tool("other")
	f.fault = toolkeep.NewError(toolkeep.UpstreamServerError, "down")
	call := func() {
		t.Helper()
		res, err := f.call(&toolkeep.Call{Tool: "std.main"})
		if err != nil || res.Error != nil || res.Fallback == nil {
			t.Errorf("%+v, %v", res, err)
		}
	}
	call() // opens the breaker
	var busy bulkhead.Hold
	if err := b.Take(t.Context(), &busy, nil, bulkhead.Call{Tool: tool}); err != nil {
		t.Fatal(err)
	}
	defer busy.Release()
	x, err := f.pipeline.Explain(t.Context(), alice, &toolkeep.Call{Tool: "std.main"})
	if err != nil || x.(*invoke.Explanation).Steps[invoke.StepLimit].Verdict != "pass" {
		t.Errorf("explained as %+v, %v", x, err)
	}
	call()
}

// TestPlaceOfASharedRun: who shares the run of a call that got no place runs again.
func TestPlaceOfASharedRun(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.tool("other")
	h.tool("cached", func(m *toolkeep.Manifest) {
		m.Cache, m.Result = &toolkeep.CacheSpec{Policy: "ttl", TTLSeconds: 60}, &toolkeep.ResultSpec{Public: true}
	})
	h.executor.do = func(_ context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		if x.Tool.ID == "std.other" {
			time.Sleep(3 * time.Second)
		}
		return &toolkeep.Output{HasValue: true}, nil
	}
	synctest.Test(t, func(t *testing.T) {
		h.config.Bulkheads, h.config.Breakers = bulkhead.New(bulkhead.Config{Total: 1, Wait: 2 * time.Second}), breaker.New(breaker.Config{})
		p := h.over(t, discard{}, "", nil)
		defer p.Stop()
		began, ended := time.Now(), make(chan error, 3)
		call := func(who, tool string) {
			_, err := p.Invoke(t.Context(), &toolkeep.Principal{Subject: who, Tenant: "acme"}, &toolkeep.Call{Tool: tool})
			ended <- err
		}
		go call("ann", "std.other")
		synctest.Wait()
		go call("ann", "std.cached")
		time.Sleep(time.Second)
		go call("bob", "std.cached")
		if err := toolkeep.AsError(<-ended); err == nil || err.Details["reason"] != bulkhead.NoPlace || time.Since(began) != 2*time.Second {
			t.Errorf("who began the run: %v after %s", err, time.Since(began))
		}
		for range 2 {
			if err := <-ended; err != nil || time.Since(began) != 3*time.Second {
				t.Errorf("%v after %s", err, time.Since(began))
			}
		}
	})
}

// TestDeadlineOfACachedCall: a call whose result would be cached, and whose own time is shorter than its tool's, is refused at once
// where that passes before it has a place, also if a fallback is there; not where another call has the tool run.
func TestDeadlineOfACachedCall(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.tool("other")
	h.tool("cached", func(m *toolkeep.Manifest) {
		m.Cache, m.Fallback = &toolkeep.CacheSpec{Policy: "ttl", TTLSeconds: 60}, "std.other"
		m.Result = &toolkeep.ResultSpec{Public: true}
	})
	h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		if x.Tool.ID == "std.other" && !toolkeep.Sleep(ctx, 10*time.Second) {
			return nil, ctx.Err()
		}
		return &toolkeep.Output{HasValue: true}, nil
	}
	synctest.Test(t, func(t *testing.T) {
		p := onePlace(t, h)
		defer p.Stop()
		ended := make(chan error, 2)
		call := func(who, tool string, timeout time.Duration) (*toolkeep.Result, *toolkeep.Error) {
			res, err := p.Invoke(t.Context(), &toolkeep.Principal{Subject: who, Tenant: "acme"}, &toolkeep.Call{Tool: tool, Timeout: timeout})
			return res, toolkeep.AsError(err)
		}
		begin := func(who, tool string) {
			go func() {
				res, err := p.Invoke(t.Context(), &toolkeep.Principal{Subject: who, Tenant: "acme"}, &toolkeep.Call{Tool: tool})
				if err == nil && res.Error != nil {
					err = res.Error
				}
				ended <- err
			}()
			synctest.Wait()
		}
		if _, err := call("ann", "std.other", 0); err != nil { // from now on a place is known to be held for 10 s
			t.Fatal(err)
		}
		began := time.Now()
		begin("ann", "std.other")
		_, err := call("bob", "std.cached", 5*time.Second)
		if err == nil || err.Code != toolkeep.DeadlineUnreachable || !err.NothingSent || time.Since(began) != 0 {
			t.Errorf("a call that has 5 s: %v after %s", err, time.Since(began))
		}
		if n := p.Bulkheads.Stats()[0].Refused; n != 1 {
			t.Errorf("%d are counted as refused", n)
		}
		begin("cid", "std.cached") // has the time of its tool
		time.Sleep(8 * time.Second)
		if res, err := call("bob", "std.cached", 5*time.Second); err != nil || !res.Cached || time.Since(began) != 10*time.Second {
			t.Errorf("a call that shares a run: %v after %s", err, time.Since(began))
		}
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestBulkheadOfWorkers: an asynchronous call that gets no place goes back to the queue, also one that writes; a synchronous one
// is recorded as refused, and its key is free.
func TestBulkheadOfWorkers(t *testing.T) {
	t.Parallel()
	b := bulkhead.New(bulkhead.Config{Total: 1, Queue: -1})
	h := newHarness(t, func(c *invoke.Config) { c.Bulkheads = b })
	tool := h.tool("writes", writes)
	var busy bulkhead.Hold
	if err := b.Take(t.Context(), &busy, nil, bulkhead.Call{Tool: tool}); err != nil {
		t.Fatal(err)
	}
	keyed := &toolkeep.Call{Tool: "std.writes", Key: "k"}
	_, err := h.call(keyed)
	wantCode(t, err, toolkeep.ConcurrencyLimitExceeded)
	if row := h.row(err.InvocationID); row.State != toolkeep.CallRefused {
		t.Errorf("the call is recorded as %s", row.State)
	}
	res, err := h.call(&toolkeep.Call{Tool: "std.writes", Async: true})
	if err != nil {
		t.Fatal(err)
	}
	id := res.InvocationID
	h.limits.called.Store(0)
	if err := h.pipeline.Run(t.Context(), toolkeep.CallRef{Tenant: "acme", ID: id}); err != nil {
		t.Fatal(err)
	}
	if row := h.row(id); row.State != toolkeep.CallQueued || row.Sent {
		t.Errorf("the asynchronous call is %s, sent %t", row.State, row.Sent)
	}
	if n := h.limits.called.Load(); n != 0 {
		t.Errorf("without a place it has taken %d times from the limits", n)
	}
	busy.Release()
	h.work()
	if row := h.row(id); row.State != toolkeep.CallSucceeded {
		t.Errorf("at last the asynchronous call is %s (%s)", row.State, row.Message)
	}
	if res, err := h.call(keyed); err != nil || res.Error != nil || res.Replayed {
		t.Errorf("again with the key: %+v, %v", res, err)
	}
	if n := h.executor.calls.Load(); n != 2 {
		t.Errorf("%d attempts were sent", n)
	}
	// A panic gives its place back.
	h.executor.do = func(context.Context, *toolkeep.Execution) (*toolkeep.Output, error) { panic(errors.New("by the test")) }
	_, _ = h.call(&toolkeep.Call{Tool: "std.writes"})
	if s := b.Stats()[0]; s.InUse != 0 {
		t.Errorf("after a panic: %+v", s)
	}
}
