package invoke_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/capability"
	"github.com/toolkeep/toolkeep/approval"
	"github.com/toolkeep/toolkeep/control/approvals"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/store/storetest"
)

// desk is a harness with approvals, as a node wires them.
type desk struct {
	*harness
	rules   string
	now     func() time.Time
	book    *approval.Book
	control *approvals.Approvals
	feed    *toolkeep.Following
}

var (
	boss    = &toolkeep.Principal{Subject: "boss", Tenant: "acme", Permissions: []string{toolkeep.PermApprove}, KeyID: "k2"}
	chief   = &toolkeep.Principal{Subject: "chief", Tenant: "acme", Permissions: []string{toolkeep.PermApprove}, KeyID: "k3"}
	foreign = &toolkeep.Principal{Subject: "boss", Tenant: "other", Permissions: []string{"*"}, KeyID: "k4"}
)

func newDesk(t *testing.T, rules string, change ...func(*invoke.Config)) *desk {
	t.Helper()
	d := &desk{rules: rules, now: time.Now}
	d.harness = newHarness(t, append(change, d.wire)...)
	d.ready()
	t.Cleanup(func() { d.feed.Stop() })
	d.tool("risky", writes, func(m *toolkeep.Manifest) { m.Risk = "high" })
	return d
}

// lateStore is the store, which is open before the book and after the pipeline's configuration.
type lateStore struct{ h **harness }

func (s lateStore) Documents(ctx context.Context, kind string) ([]toolkeep.Document, int64, error) {
	return (*s.h).store.Documents(ctx, kind)
}

func (s lateStore) Document(ctx context.Context, kind, tenant, id string) (toolkeep.Document, error) {
	return (*s.h).store.Document(ctx, kind, tenant, id)
}

func (d *desk) wire(c *invoke.Config) {
	rules, err := approval.ParseRules(nil, approval.Defaults{})
	if d.rules != "" {
		rules, err = approval.ParseRules([]byte(d.rules), approval.Defaults{})
	}
	if err != nil {
		panic(err)
	}
	d.book, err = approval.New(approval.Config{Store: lateStore{&d.harness}, Rules: rules, MaxPendingAgent: 5, Clock: func() time.Time { return d.now() }})
	if err != nil {
		panic(err)
	}
	c.Approvals, c.Clock = d.book, func() time.Time { return d.now() }
}

// ready has the book follow the feed.
func (d *desk) ready() {
	d.t.Helper()
	d.feed = toolkeep.NewFollowing(d.store, func(string) *slog.Logger { return slog.New(slog.DiscardHandler) })
	if err := d.feed.Start(d.t.Context(), "approvals", "approvals", d.book); err != nil {
		d.t.Fatal(err)
	}
	d.control = approvals.New(approvals.Config{Book: d.book, Calls: d.pipeline, Store: d.store, Clock: func() time.Time { return d.now() }})
}

// reopen is a restart of the node.
func (d *desk) reopen() {
	d.feed.Stop()
	d.close()
	d.open(d.wire)
	d.ready()
}

// settle waits until the book knows everything that is committed.
func (d *desk) settle() {
	d.t.Helper()
	head, err := d.store.Head(d.t.Context())
	if err == nil {
		err = d.book.AwaitApplied(d.t.Context(), head)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// parked makes a call that does not wait for its answer, and returns its id.
func (d *desk) parked(c *toolkeep.Call) string {
	d.t.Helper()
	c.Async = true
	res, err := d.call(c)
	if err != nil || res.State != toolkeep.CallPendingApproval {
		d.t.Fatalf("got %+v and %v; want a parked call", res, err)
	}
	d.settle()
	return res.InvocationID
}

// pending waits for the one call that waits, and returns its id.
func (d *desk) pending() string {
	d.t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		d.settle()
		if list := d.control.List(boss, approval.Pending); len(list) == 1 {
			return list[0].InvocationID
		}
	}
	d.t.Fatal("no call waits for a person")
	return ""
}

func (d *desk) decide(p *toolkeep.Principal, id string, v approvals.Verdict) (approvals.Approval, *toolkeep.Error) {
	d.t.Helper()
	a, err := d.control.Decide(d.t.Context(), p, id, v)
	d.settle()
	return a, toolkeep.AsError(err)
}

func (d *desk) approve(p *toolkeep.Principal, id string) approvals.Approval {
	d.t.Helper()
	a, err := d.decide(p, id, approvals.Verdict{Approve: true})
	if err != nil {
		d.t.Fatal(err)
	}
	return a
}

func TestApprovedCallRunsOnce(t *testing.T) {
	d := newDesk(t, "")
	id := d.parked(&toolkeep.Call{Tool: "std.risky", Arguments: []byte(`{"n":7}`), Key: "k"})
	again, err := d.call(&toolkeep.Call{Tool: "std.risky", Arguments: []byte(`{"n":7}`), Key: "k", Async: true})
	if err != nil || again.InvocationID != id || again.State != toolkeep.CallPendingApproval {
		t.Fatalf("the same key: %+v, %v", again, err)
	}
	d.work()
	if n := d.executor.calls.Load(); n != 0 {
		t.Fatalf("it ran %d times before a person decided", n)
	}
	seen, e := d.control.Get(t.Context(), boss, id)
	if e != nil || !seen.YouDecide || seen.State != "pending" || fmt.Sprint(seen.Parameters) != "map[n:7]" {
		t.Errorf("boss sees %+v, %v", seen, e)
	}
	d.reopen()
	if got := d.approve(boss, id); got.State != "approved" || got.Have != 1 {
		t.Errorf("%+v", got)
	}
	_, late := d.decide(chief, id, approvals.Verdict{})
	wantCode(t, late, toolkeep.AlreadyDecided)
	d.work()
	d.work()
	if n := d.executor.calls.Load(); n != 1 {
		t.Errorf("it ran %d times", n)
	}
	if v := d.row(id); v.State != toolkeep.CallSucceeded || v.Approved == "" || v.SealedArgs != nil {
		t.Errorf("the row is %+v", v)
	}
}

func TestWhoDecides(t *testing.T) {
	d := newDesk(t, `
rules:
  - name: two
    tools: [std.two]
    required: true
    approvals: 2
    approvers:
      - roles: [lead]
      - roles: [head]
        after: 1h
`)
	d.tool("two", writes)
	lead := &toolkeep.Principal{Subject: "lea", Tenant: "acme", Roles: []string{"lead"}, KeyID: "kl"}
	head := &toolkeep.Principal{Subject: "hedy", Tenant: "acme", Roles: []string{"head"}, KeyID: "kh"}
	clone := &toolkeep.Principal{Subject: "lea2", Tenant: "acme", Roles: []string{"lead"}, KeyID: "kl"} // acts as another with the same key
	own := *alice
	own.Roles, own.Permissions = []string{"lead", "head"}, []string{"*"}
	scoped := *lead
	scoped.Scope = []string{"std.other"}
	narrowed := *lead
	narrowed.Narrowed = capability.OfGrant(&toolkeep.Grant{Tools: []string{"*"}}) // the request carries a capability token
	portal := &toolkeep.Principal{Subject: "portal", OnBehalf: "lea", Tenant: "acme", Roles: []string{"lead"}, KeyID: "kp"}
	delegate := &toolkeep.Principal{Subject: "bot", OnBehalf: "alice", Tenant: "acme", Roles: []string{"lead"}, KeyID: "kb"}

	id := d.parked(&toolkeep.Call{Tool: "std.two"})
	for _, c := range []struct {
		name string
		by   *toolkeep.Principal
		code toolkeep.Code
	}{
		{"the caller", &own, toolkeep.PermissionDenied},
		{"who acts for the caller", delegate, toolkeep.PermissionDenied},
		{"who has the permission and no role of the rule", boss, toolkeep.ResourceNotFound},
		{"a role of a later level", head, toolkeep.ResourceNotFound},
		{"a key whose scope leaves the tool out", &scoped, toolkeep.ResourceNotFound},
		{"a request with a capability token", &narrowed, toolkeep.ResourceNotFound},
		{"another tenant", foreign, toolkeep.ResourceNotFound},
	} {
		for _, approve := range []bool{true, false} {
			if _, err := d.decide(c.by, id, approvals.Verdict{Approve: approve}); err == nil || err.Code != c.code {
				t.Errorf("%s, approve %t: %v, want %s", c.name, approve, err, c.code)
			}
		}
	}
	if got := d.approve(lead, id); got.State != "pending" || got.Have != 1 {
		t.Errorf("after one of two: %+v", got)
	}
	for _, p := range []*toolkeep.Principal{lead, clone, portal} {
		_, err := d.decide(p, id, approvals.Verdict{Approve: true})
		wantCode(t, err, toolkeep.StateConflict)
	}
	at := time.Now().Add(61 * time.Minute)
	d.now = func() time.Time { return at }
	if err := d.control.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.settle()
	if list := d.control.List(head, approval.Pending); len(list) != 1 || !list[0].YouDecide || list[0].Level != 1 {
		t.Errorf("after the first hour the next level sees %+v", list)
	}
	if got := d.approve(head, id); got.State != "approved" {
		t.Errorf("after two: %+v", got)
	}
	d.work()
	if n := d.executor.calls.Load(); n != 1 {
		t.Errorf("it ran %d times", n)
	}
}

func TestEditedArguments(t *testing.T) {
	d := newDesk(t, `{rules: [{tools: ["*"], approvals: 2}]}`)
	id := d.parked(&toolkeep.Call{Tool: "std.risky", Arguments: []byte(`{"n":1}`)})
	_, err := d.decide(boss, id, approvals.Verdict{Approve: true, Parameters: []byte(`{"m":1}`)})
	wantCode(t, err, toolkeep.InputValidationFailed)
	before := d.approve(boss, id)
	// The second approves something else, for which the first does not count.
	edited, err := d.decide(chief, id, approvals.Verdict{Approve: true, Parameters: []byte(`{"n":2}`)})
	if err != nil || edited.State != "pending" || edited.Have != 1 || edited.Digest == before.Digest {
		t.Fatalf("%+v, %v", edited, err)
	}
	_, err = d.decide(boss, id, approvals.Verdict{Approve: true, Digest: before.Digest})
	wantCode(t, err, toolkeep.StateConflict)
	seen, e := d.control.Get(t.Context(), boss, id)
	if e != nil || fmt.Sprint(seen.Parameters, seen.Asked) != "map[n:2] map[n:1]" {
		t.Errorf("%+v, %v", seen, e)
	}
	if got, err := d.decide(boss, id, approvals.Verdict{Approve: true, Digest: edited.Digest}); err != nil || got.State != "approved" {
		t.Errorf("%+v, %v", got, err)
	}
	var ran map[string]any
	d.executor.do = func(_ context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		ran = x.Args
		return &toolkeep.Output{Value: map[string]any{}, HasValue: true}, nil
	}
	d.work()
	v := d.row(id)
	if fmt.Sprint(ran) != "map[n:2]" || v.State != toolkeep.CallSucceeded || len(v.Warnings) != 1 || v.Warnings[0].Code != toolkeep.ArgumentsEdited {
		t.Errorf("ran with %v; the row is %+v", ran, v)
	}
}

// TestApprovalIsForWhatRuns: nothing but the version and the arguments that were approved runs, and
// what would be refused now is refused.
func TestApprovalIsForWhatRuns(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(d *desk)
		want   toolkeep.Code
	}{
		{"another version", func(d *desk) { d.catalog.tools["std.risky"].Digest = "sha256:other" }, toolkeep.ApprovalUnavailable},
		{"a blocked version", func(d *desk) { d.catalog.gone.Store(true) }, toolkeep.ToolBlocked},
		{"a revoked key", func(d *desk) { d.access.revoked.Store(true) }, toolkeep.Unauthenticated},
		{"roles that are gone", func(d *desk) { d.access.deny.Store(true) }, toolkeep.PermissionDenied},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(t, "")
			id := d.parked(&toolkeep.Call{Tool: "std.risky"})
			d.approve(boss, id)
			d.catalog.mu.Lock()
			c.change(d)
			d.catalog.mu.Unlock()
			d.work()
			if v := d.row(id); v.State != toolkeep.CallRefused || v.Code != c.want {
				t.Errorf("it is %s with %s, want %s", v.State, v.Code, c.want)
			}
			if n := d.executor.calls.Load(); n != 0 {
				t.Errorf("it ran %d times", n)
			}
		})
	}
}

func TestDeniedAndExpired(t *testing.T) {
	d := newDesk(t, "")
	id := d.parked(&toolkeep.Call{Tool: "std.risky", Key: "k"})
	if got, err := d.decide(boss, id, approvals.Verdict{Reason: "not today"}); err != nil || got.State != "denied" {
		t.Fatalf("%+v, %v", got, err)
	}
	res, err := d.call(&toolkeep.Call{Tool: "std.risky", Key: "k", Async: true}) // a person's decision is kept under the key
	if res != nil || err == nil || err.Code != toolkeep.ApprovalDenied || err.InvocationID != id || !strings.Contains(err.Message, "not today") {
		t.Errorf("%+v, %v", res, err)
	}
	id = d.parked(&toolkeep.Call{Tool: "std.risky"})
	at := time.Now().Add(25 * time.Hour)
	d.now = func() time.Time { return at }
	_, early := d.decide(boss, id, approvals.Verdict{Approve: true}) // the sweep is late
	wantCode(t, early, toolkeep.AlreadyDecided)
	for range 2 { // the second finds nothing to do
		if err := errors.Join(d.pipeline.Sweep(t.Context()), d.control.Sweep(t.Context())); err != nil {
			t.Fatal(err)
		}
		d.settle()
	}
	_, late := d.decide(boss, id, approvals.Verdict{Approve: true})
	wantCode(t, late, toolkeep.AlreadyDecided)
	if v := d.row(id); v.State != toolkeep.CallRefused || v.Code != toolkeep.ApprovalExpired {
		t.Errorf("%s %s", v.State, v.Code)
	}
	if list := d.control.List(boss, ""); len(list) != 1 || list[0].State != "expired" {
		t.Errorf("the denied one is forgotten after a day: %+v", list)
	}
	d.work()
	if n := d.executor.calls.Load(); n != 0 {
		t.Errorf("it ran %d times", n)
	}
	var order []string
	for _, e := range storetest.Entries(t.Context(), t, d.store) {
		if e.Event != nil {
			order = append(order, strings.TrimPrefix(e.Event.Type, "ai.agent.tool."))
		} else if e.Call.ToolID == "std.risky" {
			order = append(order, string(e.Call.State))
		}
	}
	each := []string{"approval.requested", "approval.decided", "refused"}
	if want := append(slices.Clone(each), each...); !slices.Equal(order, want) {
		t.Errorf("the journal has %v, want %v", order, want)
	}
}

func TestStandingApproval(t *testing.T) {
	d := newDesk(t, "")
	until := time.Now().Add(time.Hour)
	ask := func(args, session string) *toolkeep.Call {
		return &toolkeep.Call{Tool: "std.risky", Arguments: []byte(args), Session: session}
	}
	for _, scope := range []approval.Scope{approval.ForArguments, approval.ForSession} {
		id := d.parked(ask(`{"n":1}`, "s"))
		if _, err := d.decide(boss, id, approvals.Verdict{Approve: true, Remember: &approvals.Remember{For: scope, Until: until}}); err != nil {
			t.Fatal(err)
		}
		d.work()
		other := ask(`{"n":2}`, "s")
		same := ask(`{"n":1}`, "other")
		covered, not := same, other
		if scope == approval.ForSession {
			covered, not = other, same
		}
		if res, err := d.call(covered); err != nil || res.State != toolkeep.CallSucceeded {
			t.Errorf("%s: a covered call got %+v, %v", scope, res, err)
		}
		d.parked(not)
		for _, who := range []*toolkeep.Principal{{Subject: "bob", Tenant: "acme", KeyID: "kx"}, {Subject: "alice", Tenant: "acme", OnBehalf: "carol", KeyID: "k1"}} {
			covered.Async = true
			if res, err := d.pipeline.Invoke(t.Context(), who, covered); err != nil || res.State != toolkeep.CallPendingApproval {
				t.Errorf("%s: it covers a call of %+v: %+v, %v", scope, who, res, err)
			}
		}
		if err := d.control.Revoke(t.Context(), boss, id); err != nil {
			t.Error(err)
		}
		d.settle()
		for _, a := range d.control.List(boss, approval.Pending) {
			d.decide(boss, a.InvocationID, approvals.Verdict{})
		}
		d.parked(covered)
		d.decide(boss, d.control.List(boss, approval.Pending)[0].InvocationID, approvals.Verdict{})
	}
	id := d.parked(ask(`{}`, ""))
	for name, r := range map[string]approvals.Remember{"too long": {For: approval.ForArguments, Until: time.Now().Add(25 * time.Hour)},
		"past": {For: approval.ForArguments, Until: time.Now().Add(-time.Second)}, "no session": {For: approval.ForSession, Until: until}, "no scope": {Until: until}} {
		if _, err := d.decide(boss, id, approvals.Verdict{Approve: true, Remember: &r}); err == nil || err.Code != toolkeep.InvalidParameters {
			t.Errorf("%s: %v", name, err)
		}
	}
	if d.row(id).State != toolkeep.CallPendingApproval {
		t.Error("a refused decision decided")
	}
}

// TestCallerWaits: a synchronous caller gets the end of its call if a person decides in time, and
// else where to ask.
func TestCallerWaits(t *testing.T) {
	d := newDesk(t, "")
	pending := d.pending
	type answer struct {
		res *toolkeep.Result
		err error
	}
	ask := func(ctx context.Context, c *toolkeep.Call) <-chan answer {
		got := make(chan answer, 1)
		go func() {
			res, err := d.pipeline.Invoke(ctx, alice, c)
			got <- answer{res, err}
		}()
		return got
	}
	got := ask(t.Context(), &toolkeep.Call{Tool: "std.risky"})
	d.approve(boss, pending())
	d.work()
	if a := <-got; a.err != nil || a.res.State != toolkeep.CallSucceeded || a.res.Replayed {
		t.Errorf("approved: %+v, %v", a.res, a.err)
	}
	got = ask(t.Context(), &toolkeep.Call{Tool: "std.risky"})
	d.decide(boss, pending(), approvals.Verdict{})
	if a := <-got; toolkeep.AsError(a.err) == nil || toolkeep.AsError(a.err).Code != toolkeep.ApprovalDenied {
		t.Errorf("denied: %+v, %v", a.res, a.err)
	}
	if a := <-ask(t.Context(), &toolkeep.Call{Tool: "std.risky", ApprovalWait: time.Millisecond}); a.err != nil || a.res.State != toolkeep.CallPendingApproval {
		t.Errorf("not decided: %+v, %v", a.res, a.err)
	}
	d.decide(boss, pending(), approvals.Verdict{})
	// A caller that leaves without a key can never find its call: it ends. With a key it goes on.
	for key, want := range map[string]toolkeep.CallState{"": toolkeep.CallCancelled, "k": toolkeep.CallPendingApproval} {
		ctx, leave := context.WithCancel(t.Context())
		got = ask(ctx, &toolkeep.Call{Tool: "std.risky", Key: key})
		id := pending()
		leave()
		<-got
		d.settle()
		if v := d.row(id); v.State != want {
			t.Errorf("key %q: it is %s, want %s", key, v.State, want)
		}
		d.decide(boss, id, approvals.Verdict{})
	}
	// A node that stops keeps no caller waiting.
	got = ask(t.Context(), &toolkeep.Call{Tool: "std.risky"})
	pending()
	d.pipeline.Drain()
	if a := <-got; a.err != nil || a.res.State != toolkeep.CallPendingApproval {
		t.Errorf("draining: %+v, %v", a.res, a.err)
	}
}

// TestOneOfManyDecisions: of decisions at the same time one counts, and the call runs once.
func TestOneOfManyDecisions(t *testing.T) {
	d := newDesk(t, "")
	for range 5 {
		id := d.parked(&toolkeep.Call{Tool: "std.risky"})
		var wg sync.WaitGroup
		var mu sync.Mutex
		states := map[string]int{}
		for i := range 8 {
			p := &toolkeep.Principal{Subject: fmt.Sprint("p", i), Tenant: "acme", Permissions: []string{toolkeep.PermApprove}}
			wg.Go(func() {
				a, err := d.control.Decide(t.Context(), p, id, approvals.Verdict{Approve: i%2 == 0})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					states[a.State]++
				} else if toolkeep.AsError(err).Code != toolkeep.AlreadyDecided {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		d.settle()
		before := d.executor.calls.Load()
		d.work()
		want := int64(states["approved"])
		if len(states) != 1 || states["approved"]+states["denied"] != 1 || d.executor.calls.Load()-before != want {
			t.Errorf("%v, and it ran %d times", states, d.executor.calls.Load()-before)
		}
	}
}

func TestApprovalBounds(t *testing.T) {
	d := newDesk(t, "")
	for range 5 {
		d.parked(&toolkeep.Call{Tool: "std.risky"})
	}
	_, err := d.call(&toolkeep.Call{Tool: "std.risky", Async: true})
	wantCode(t, err, toolkeep.ApprovalUnavailable)
	if _, _, err := d.pipeline.Cancel(t.Context(), alice, d.control.List(boss, approval.Pending)[0].InvocationID, "not needed"); err != nil {
		t.Fatal(err)
	}
	d.settle()
	id := d.parked(&toolkeep.Call{Tool: "std.risky"})
	x, e := d.pipeline.Explain(t.Context(), alice, &toolkeep.Call{Tool: "std.risky"})
	if v := x.(*invoke.Explanation).Steps[invoke.StepApprove]; e != nil || v.Verdict != "wait" || x.(*invoke.Explanation).Execute {
		t.Errorf("explained as %+v, %v", v, e)
	}
	_, err = d.decide(boss, id, approvals.Verdict{Reason: strings.Repeat("a", approvals.MaxReason+1)})
	wantCode(t, err, toolkeep.RequestTooLarge)
	if _, err := d.decide(boss, "01a22a46-30ed-75ed-928b-7216f5b0f927", approvals.Verdict{}); err == nil || err.Code != toolkeep.ResourceNotFound {
		t.Error(err)
	}
}

// TestQueuedCallThatOwesAnApproval: a call whose tool became risky while it was queued waits too.
func TestQueuedCallThatOwesAnApproval(t *testing.T) {
	d := newDesk(t, "")
	tool := d.tool("later", writes)
	res, err := d.call(&toolkeep.Call{Tool: "std.later", Async: true})
	if err != nil || res.State != toolkeep.CallQueued {
		t.Fatalf("%+v, %v", res, err)
	}
	d.catalog.mu.Lock()
	risky := *tool.Manifest
	risky.RequiresApproval = true
	d.catalog.tools["std.later"] = &toolkeep.Tool{ID: tool.ID, Version: "1.0.1", Digest: "sha256:risky", Manifest: &risky}
	d.catalog.mu.Unlock()
	d.work()
	if v := d.row(res.InvocationID); v.State != toolkeep.CallPendingApproval || v.LeaseOwner != "" {
		t.Fatalf("it is %+v", v)
	}
	d.settle()
	d.approve(boss, res.InvocationID)
	d.work()
	if v := d.row(res.InvocationID); v.State != toolkeep.CallSucceeded || v.Version != "1.0.1" {
		t.Errorf("it is %+v", v)
	}
}

// person is the caller's own, in front of its client.
type person struct {
	answer string // "" is none
	caps   string
	asked  atomic.Int64
	saw    string
}

func (*person) Progress(toolkeep.Progress) {}

func (p *person) Capabilities() []byte { return []byte(p.caps) }

func (p *person) Ask(_ context.Context, method string, params []byte) ([]byte, error) {
	p.asked.Add(1)
	p.saw = method + " " + string(params)
	if p.answer == "" {
		return nil, errors.New("the form was not shown")
	}
	return []byte(p.answer), nil
}

// TestCallerConfirms: where a rule lets it, the caller's own person decides in its client, and only
// by an answer.
func TestCallerConfirms(t *testing.T) {
	const accepts = `{"action":"accept","content":{"approve":true}}`
	for _, c := range []struct {
		name, rules, caps, answer string
		asked                     int64
		want                      toolkeep.CallState
		code                      toolkeep.Code
	}{
		{"accepted", "confirm: caller", `{"elicitation":{}}`, accepts, 1, toolkeep.CallSucceeded, ""},
		{"not ticked", "confirm: caller", `{"elicitation":{}}`, `{"action":"accept","content":{"approve":false}}`, 1, "", toolkeep.ApprovalDenied},
		{"declined", "confirm: caller", `{"elicitation":{}}`, `{"action":"decline"}`, 1, "", toolkeep.ApprovalDenied},
		{"closed", "confirm: caller", `{"elicitation":{}}`, `{"action":"cancel"}`, 1, toolkeep.CallPendingApproval, ""},
		{"no answer", "confirm: caller", `{"elicitation":{}}`, ``, 1, toolkeep.CallPendingApproval, ""},
		{"not JSON", "confirm: caller", `{"elicitation":{}}`, `yes`, 1, toolkeep.CallPendingApproval, ""},
		{"a text", "confirm: caller", `{"elicitation":{}}`, `{"action":"accept","content":{"approve":"true"}}`, 1, toolkeep.CallPendingApproval, ""},
		{"a client without forms", "confirm: caller", `{}`, accepts, 0, toolkeep.CallPendingApproval, ""},
		{"no such rule", "approvals: 1", `{"elicitation":{}}`, accepts, 0, toolkeep.CallPendingApproval, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(t, `{rules: [{tools: ["*"], `+c.rules+`}]}`)
			stop, worked := make(chan struct{}), make(chan struct{})
			go func() { // the queue's worker, which sees what is committed
				defer close(worked)
				for {
					if _, n, _ := d.store.Invocations().List(t.Context(), toolkeep.InvocationFilter{Tenant: "acme", State: toolkeep.CallQueued, Limit: 1}); n > 0 {
						d.work()
					}
					select {
					case <-stop:
						return
					case <-time.After(time.Millisecond):
					}
				}
			}()
			p := &person{caps: c.caps, answer: c.answer}
			call := &toolkeep.Call{Tool: "std.risky", Arguments: []byte(`{"n":7}`), Caller: p}
			if c.want == toolkeep.CallPendingApproval {
				call.ApprovalWait = time.Millisecond
			}
			res, err := d.call(call)
			close(stop)
			<-worked
			switch {
			case c.want != "" && (err != nil || res.State != c.want):
				t.Errorf("got %+v, %v; want %s", res, err, c.want)
			case c.want == "" && (err == nil || err.Code != c.code):
				t.Errorf("got %+v, %v; want %s", res, err, c.code)
			}
			if p.asked.Load() != c.asked || c.asked > 0 && (!strings.HasPrefix(p.saw, "elicitation/create ") || !strings.Contains(p.saw, `std.risky@1.0.0`) || !strings.Contains(p.saw, `{\"n\":7}`)) {
				t.Errorf("asked %d times: %s", p.asked.Load(), p.saw)
			}
		})
	}
}

// TestActorIsNotAnApprover: who sends a call as another decides about it as little as that one, with
// whatever key.
func TestActorIsNotAnApprover(t *testing.T) {
	d := newDesk(t, "")
	d.access.actAs = true
	id := d.parked(&toolkeep.Call{Tool: "std.risky", Subject: "zoe"})
	if v := d.row(id); v.Subject != "zoe" || v.Actor != "alice" {
		t.Fatalf("the row says %s by %s", v.Subject, v.Actor)
	}
	for name, p := range map[string]*toolkeep.Principal{
		"another key of the actor": {Subject: "alice", Tenant: "acme", Permissions: []string{"*"}, KeyID: "k9"},
		"a token of the actor":     {Subject: "alice", Tenant: "acme", Permissions: []string{"*"}, Method: "oauth"},
		"who acts for the actor":   {Subject: "bot", OnBehalf: "alice", Tenant: "acme", Permissions: []string{"*"}},
		"the subject":              {Subject: "zoe", Tenant: "acme", Permissions: []string{"*"}},
	} {
		if _, err := d.decide(p, id, approvals.Verdict{Approve: true}); err == nil || err.Code != toolkeep.PermissionDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
	d.approve(boss, id)
}

// TestParkAndCancel: what is asked and cancelled is not kept, so that no caller fills the book.
func TestParkAndCancel(t *testing.T) {
	d := newDesk(t, "")
	for range 20 {
		id := d.parked(&toolkeep.Call{Tool: "std.risky"})
		if _, _, err := d.pipeline.Cancel(t.Context(), alice, id, ""); err != nil {
			t.Fatal(err)
		}
		d.settle()
	}
	if n := len(d.control.List(boss, "")); n != 0 {
		t.Errorf("the book holds %d requests", n)
	}
	if all, _, err := d.store.Documents(t.Context(), approval.RequestKind); err != nil || len(all) != 0 {
		t.Errorf("the store holds %d, %v", len(all), err)
	}
}

// TestRevokedStandingApproval: a call that waits for a worker is not run by a standing approval that
// was taken back meanwhile, and each that runs by one has its event.
func TestRevokedStandingApproval(t *testing.T) {
	d := newDesk(t, "")
	standing := func() string {
		id := d.parked(&toolkeep.Call{Tool: "std.risky"})
		if _, err := d.decide(boss, id, approvals.Verdict{Approve: true, Remember: &approvals.Remember{For: approval.ForArguments, Until: time.Now().Add(time.Hour)}}); err != nil {
			t.Fatal(err)
		}
		d.work()
		return id
	}
	events := func() (n int) {
		all, _, err := d.store.ReadJournal(t.Context(), toolkeep.JournalPosition{}, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			if e.Event != nil && strings.Contains(string(e.Event.Data), `"standing_approval"`) {
				n++
			}
		}
		return n
	}
	id := standing()
	for i, async := range []bool{false, true} {
		res, err := d.call(&toolkeep.Call{Tool: "std.risky", Async: async})
		d.work()
		if err != nil || d.row(res.InvocationID).State != toolkeep.CallSucceeded || events() != i+1 {
			t.Errorf("async %t: %+v, %v, %d events", async, res, err, events())
		}
	}
	res, err := d.call(&toolkeep.Call{Tool: "std.risky", Async: true})
	if err != nil || res.State != toolkeep.CallQueued {
		t.Fatalf("%+v, %v", res, err)
	}
	if err := d.control.Revoke(t.Context(), boss, id); err != nil {
		t.Fatal(err)
	}
	d.settle()
	d.work()
	if v := d.row(res.InvocationID); v.State != toolkeep.CallPendingApproval || events() != 2 {
		t.Errorf("it is %s, %d events", v.State, events())
	}
}
