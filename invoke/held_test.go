package invoke_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
)

// TestNothingIsSentAfterItsClaimWasGivenUp: a node that slept, or took long, between a call's claim
// and its execution sends nothing if another node ended the call meanwhile: the caller has what
// the record says, and the write is done once if it is sent again as that advises.
func TestNothingIsSentAfterItsClaimWasGivenUp(t *testing.T) {
	ended := func(state toolkeep.CallState, code toolkeep.Code, free bool) func(*toolkeep.Invocation) []toolkeep.Change {
		return func(v *toolkeep.Invocation) []toolkeep.Change {
			v.State, v.Code, v.Message, v.Retryable, v.EndedAt = state, code, "said by node-2", free, time.Now()
			if free {
				v.Key = ""
			}
			return []toolkeep.Change{toolkeep.MoveCall{Invocation: v, From: []toolkeep.CallState{toolkeep.CallRunning}, FreeKey: free}}
		}
	}
	refused, unknown := ended(toolkeep.CallRefused, toolkeep.Draining, true), ended(toolkeep.CallUnknown, toolkeep.OutcomeUnknown, false)
	requeued := func(v *toolkeep.Invocation) []toolkeep.Change {
		v.State, v.LeaseOwner, v.LeaseUntil, v.Requeued = toolkeep.CallQueued, "", time.Time{}, 1
		return []toolkeep.Change{toolkeep.MoveCall{Invocation: v, From: []toolkeep.CallState{toolkeep.CallRunning}}}
	}
	leased := func(v *toolkeep.Invocation) []toolkeep.Change {
		again := *v
		first := requeued(&again)
		mine := again
		mine.State, mine.LeaseOwner, mine.LeaseUntil = toolkeep.CallRunning, "node-2", time.Now().Add(time.Minute)
		return append(first, toolkeep.MoveCall{Invocation: &mine, From: []toolkeep.CallState{toolkeep.CallQueued}})
	}
	for _, c := range []struct {
		name      string
		slept     bool          // knowledge had to be looked up
		took      time.Duration // since the claim
		async     bool
		meanwhile func(*toolkeep.Invocation) []toolkeep.Change
		state     toolkeep.CallState
		code      toolkeep.Code
		sent      int64
	}{
		{name: "it slept, and its key is free", slept: true, meanwhile: refused, state: toolkeep.CallRefused, code: toolkeep.Draining},
		{name: "it slept, and the outcome counts as unknown", slept: true, meanwhile: unknown, state: toolkeep.CallUnknown, code: toolkeep.OutcomeUnknown},
		{name: "it slept, and the call is still its own", slept: true, state: toolkeep.CallSucceeded, sent: 1},
		{name: "it took long, and its key is free", took: 6 * time.Second, meanwhile: refused, state: toolkeep.CallRefused, code: toolkeep.Draining},
		{name: "it took long, and the outcome counts as unknown", took: time.Minute, meanwhile: unknown, state: toolkeep.CallUnknown, code: toolkeep.OutcomeUnknown},
		{name: "it took long, and the call is still its own", took: time.Minute, state: toolkeep.CallSucceeded, sent: 1},
		{name: "a worker's call was queued again", async: true, slept: true, meanwhile: requeued, state: toolkeep.CallQueued},
		{name: "a worker's call runs elsewhere", async: true, took: time.Minute, meanwhile: leased, state: toolkeep.CallRunning},
		{name: "a worker's call is still its own", async: true, slept: true, state: toolkeep.CallSucceeded, sent: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var h *harness
			var later atomic.Int64
			started := false
			k := &fakeKnowledge{}
			k.check = func(n int64) (bool, error) {
				if !started || n != 2 { // the second is after the claim
					return false, nil
				}
				rows, err := h.store.Invocations().Leased(t.Context(), "node-1", 2)
				if err != nil || len(rows) != 1 {
					t.Errorf("%d calls are claimed, %v", len(rows), err)
					return false, nil
				}
				if c.meanwhile != nil {
					if err := h.store.Apply(t.Context(), c.meanwhile(h.row(rows[0].ID))...); err != nil {
						t.Error(err)
					}
				}
				later.Add(int64(c.took))
				return c.slept, nil
			}
			h = newHarness(t, func(i *invoke.Config) {
				i.Knowledge, i.Alone = k, false
				i.Clock = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
			})
			h.tool("write", writes)
			call := &toolkeep.Call{Tool: "std.write", Key: "k", Async: c.async}
			var res *toolkeep.Result
			var err *toolkeep.Error
			id := ""
			if c.async {
				res, _ := h.call(call)
				id, started = res.InvocationID, true
				k.checks.Store(0)
				if err := h.pipeline.Run(t.Context(), toolkeep.CallRef{Tenant: "acme", ID: id}); err != nil {
					t.Fatal(err)
				}
			} else {
				started = true
				if res, err = h.call(call); err == nil {
					id, err = res.InvocationID, res.Error
				} else {
					id = err.InvocationID
				}
				if err == nil && c.code != "" || err != nil && err.Code != c.code {
					t.Errorf("its caller has %v, want %q", err, c.code)
				}
			}
			if n := h.executor.calls.Load(); n != c.sent {
				t.Errorf("it was sent %d times, want %d", n, c.sent)
			}
			if row := h.row(id); row.State != c.state || row.Code != c.code {
				t.Errorf("the record is %s %s, want %s %s", row.State, row.Code, c.state, c.code)
			}
			if c.state != toolkeep.CallRefused {
				return
			}
			started = false
			if res, err := h.call(call); err != nil || res.Error != nil || res.Replayed || h.executor.calls.Load() != 1 {
				t.Errorf("sent again: %+v %v, %d executions", res, err, h.executor.calls.Load())
			}
		})
	}
}

// TestLeaseIsKeptFromTheClaimOn: a call whose node waits after the claim for what others changed
// keeps its lease, and can be cancelled.
func TestLeaseIsKeptFromTheClaimOn(t *testing.T) {
	var h *harness
	k := &fakeKnowledge{}
	k.check = func(n int64) (bool, error) {
		if n != 2 {
			return false, nil
		}
		rows, err := h.store.Invocations().Leased(t.Context(), "node-1", 2)
		if err != nil || len(rows) != 1 {
			t.Errorf("%d calls are claimed, %v", len(rows), err)
			return false, nil
		}
		for row := rows[0]; !row.LeaseUntil.After(rows[0].LeaseUntil); row = h.row(row.ID) {
			if t.Context().Err() != nil {
				return false, nil
			}
			time.Sleep(5 * time.Millisecond)
		}
		if ok, _, err := h.pipeline.Cancel(context.Background(), alice, rows[0].ID, ""); !ok || err != nil {
			t.Error(ok, err)
		}
		return false, nil
	}
	h = newHarness(t, func(c *invoke.Config) { c.Knowledge, c.Alone, c.Lease = k, false, 200*time.Millisecond })
	h.tool("write", writes)
	h.executor.do = func(ctx context.Context, _ *toolkeep.Execution) (*toolkeep.Output, error) {
		<-ctx.Done()
		return nil, toolkeep.NewError(toolkeep.Cancelled, "stopped").Because(context.Cause(ctx))
	}
	_, err := h.call(&toolkeep.Call{Tool: "std.write", Key: "k"})
	wantCode(t, err, toolkeep.Cancelled)
	if row := h.row(err.InvocationID); row.State != toolkeep.CallCancelled {
		t.Errorf("the record is %s %s", row.State, row.Code)
	}
}
