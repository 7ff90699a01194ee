package invoke_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
)

// TestRequeue: a call is put into the queue again only if it is lost and cannot have taken effect.
func TestRequeue(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	h := newHarness(t, func(c *invoke.Config) {
		c.Alone, c.Leads = false, func() bool { return false }
		c.Clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	h.tool("reads")
	h.tool("writes", writes)
	operator := &toolkeep.Principal{Subject: "root", Tenant: "acme", Permissions: []string{"*"}}
	queued := func(tool string) string {
		t.Helper()
		res, err := h.call(&toolkeep.Call{Tool: "std." + tool, Async: true})
		if err != nil {
			t.Fatal(err)
		}
		return res.InvocationID
	}
	// lost is a call that a node which is gone ran.
	lost := func(tool string, sent bool) string {
		t.Helper()
		id := queued(tool)
		row := h.row(id)
		row.State, row.Sent, row.LeaseOwner, row.LeaseUntil = toolkeep.CallRunning, sent, "gone", h.config.Clock().Add(10*time.Second)
		if err := h.store.Apply(context.Background(), toolkeep.MoveCall{Invocation: row, From: []toolkeep.CallState{toolkeep.CallQueued}}); err != nil {
			t.Fatal(err)
		}
		return id
	}
	refused := func(id string) {
		t.Helper()
		if _, err := h.pipeline.Requeue(t.Context(), operator, id); !toolkeep.IsCode(err, toolkeep.StateConflict) {
			t.Errorf("%s: %v", h.row(id).State, err)
		}
	}
	waits, runs, sent := queued("reads"), lost("reads", false), lost("writes", true)
	for _, id := range []string{waits, runs, sent} {
		refused(id) // its time is not over
	}
	ahead.Store(int64(2 * time.Minute))
	if _, err := h.pipeline.Requeue(t.Context(), &toolkeep.Principal{Subject: "alice", Tenant: "acme"}, waits); !toolkeep.IsCode(err, toolkeep.PermissionDenied) {
		t.Errorf("its caller: %v", err)
	}
	if _, err := h.pipeline.Requeue(t.Context(), &toolkeep.Principal{Subject: "root", Tenant: "other", Permissions: []string{"*"}}, waits); !toolkeep.IsCode(err, toolkeep.ResourceNotFound) {
		t.Errorf("another tenant: %v", err)
	}
	refused(sent)
	// Until the store was reached for as long as a lease, the call's node may be about to renew its own.
	for range 2 {
		refused(runs)
		if err := h.pipeline.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		ahead.Add(int64(4 * time.Second)) // of a lease of 10 s
		if err := h.pipeline.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	h.mu.Lock()
	h.queue = nil // as if the queue had lost them
	h.mu.Unlock()
	for _, id := range []string{waits, runs} {
		if v, err := h.pipeline.Requeue(t.Context(), operator, id); err != nil || v.State != toolkeep.CallQueued {
			t.Fatalf("%v, %v", v, err)
		}
	}
	if v := h.row(runs); v.Requeued != 1 || v.LeaseOwner != "" {
		t.Errorf("%+v", v)
	}
	h.work()
	for _, id := range []string{waits, runs} {
		if v := h.row(id); v.State != toolkeep.CallSucceeded {
			t.Errorf("%s %s", v.State, v.Message)
		}
		refused(id) // it has ended
	}
}
