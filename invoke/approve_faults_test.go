package invoke_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/approval"
	"github.com/toolkeep/toolkeep/control/approvals"
	"github.com/toolkeep/toolkeep/invoke"
)

// TestUnreadableRequest: one that cannot be read keeps no call from its end.
func TestUnreadableRequest(t *testing.T) {
	d := newDesk(t, "")
	var ids []string
	for range 3 {
		ids = append(ids, d.parked(&toolkeep.Call{Tool: "std.risky"}))
	}
	for _, id := range ids[:2] {
		bad := toolkeep.Document{Kind: approval.RequestKind, Tenant: "acme", ID: id, Body: []byte(`{"id":1}`)}
		if err := d.store.Apply(t.Context(), toolkeep.PutDocument{Document: bad, Expect: toolkeep.AnyRevision}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := d.pipeline.Cancel(t.Context(), alice, ids[0], ""); err != nil {
		t.Error(err)
	}
	at := time.Now().Add(25 * time.Hour)
	d.now = func() time.Time { return at }
	if err := d.pipeline.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	for i, want := range []toolkeep.CallState{toolkeep.CallCancelled, toolkeep.CallRefused, toolkeep.CallRefused} {
		if v := d.row(ids[i]); v.State != want {
			t.Errorf("call %d is %s, want %s", i, v.State, want)
		}
	}
}

// failingReads are invocations that cannot be read for a while.
type failingReads struct {
	toolkeep.Invocations
	fail atomic.Bool
}

func (f *failingReads) Get(ctx context.Context, ref toolkeep.CallRef) (*toolkeep.Invocation, error) {
	if f.fail.Load() {
		return nil, errors.New("the store is away")
	}
	return f.Invocations.Get(ctx, ref)
}

// TestStoreAwayWhileACallerWaits: a caller whose parked call cannot be read is not told that nothing
// was executed, but that the call waits, and its id.
func TestStoreAwayWhileACallerWaits(t *testing.T) {
	var reads *failingReads
	d := newDesk(t, "", func(c *invoke.Config) {
		reads = &failingReads{Invocations: c.Invocations}
		c.Invocations = reads
	})
	got := make(chan *toolkeep.Result, 1)
	go func() {
		res, err := d.pipeline.Invoke(t.Context(), alice, &toolkeep.Call{Tool: "std.risky"})
		if err != nil {
			t.Error(err)
		}
		got <- res
	}()
	id := d.pending()
	reads.fail.Store(true)
	d.pipeline.Notify(toolkeep.CallRef{Tenant: "acme", ID: id})
	if res := <-got; res == nil || res.State != toolkeep.CallPendingApproval || res.InvocationID != id {
		t.Errorf("got %+v", res)
	}
	reads.fail.Store(false)
}

// patient is a person who does not answer.
type patient struct {
	person
	shown chan struct{}
}

func (p *patient) Ask(ctx context.Context, _ string, _ []byte) ([]byte, error) {
	close(p.shown)
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestFormEndsWithTheDecision: what others decide ends the form, and arguments that a form does not
// show whole are not confirmed by it.
func TestFormEndsWithTheDecision(t *testing.T) {
	d := newDesk(t, `{rules: [{tools: ["*"], confirm: caller}]}`)
	p := &patient{person{caps: `{"elicitation":{}}`}, make(chan struct{})}
	got := make(chan *toolkeep.Error, 1)
	go func() {
		_, err := d.pipeline.Invoke(t.Context(), alice, &toolkeep.Call{Tool: "std.risky", Caller: p})
		got <- toolkeep.AsError(err)
	}()
	<-p.shown
	if _, err := d.decide(boss, d.pending(), approvals.Verdict{}); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err == nil || err.Code != toolkeep.ApprovalDenied {
		t.Errorf("got %v", err)
	}
	long := &person{caps: `{"elicitation":{}}`, answer: `{"action":"accept","content":{"approve":true}}`}
	res, err := d.call(&toolkeep.Call{Tool: "std.risky", Caller: long, ApprovalWait: time.Millisecond, Arguments: []byte(`{"s":"` + strings.Repeat("x", 5000) + `"}`)})
	if err != nil || res.State != toolkeep.CallPendingApproval || long.asked.Load() != 0 {
		t.Errorf("got %+v, %v; asked %d times", res, err, long.asked.Load())
	}
}
