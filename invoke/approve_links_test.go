package invoke_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/capability"
	"github.com/toolkeep/toolkeep/approval"
	"github.com/toolkeep/toolkeep/control/approvals"
)

// fakeCallers are those who have keys.
type fakeCallers map[string]*toolkeep.Principal

func (f fakeCallers) Holders(tenant, subject string) (all []*toolkeep.Principal) {
	if p := f[subject]; p != nil && p.Tenant == tenant {
		all = append(all, p)
	}
	return all
}

func (f fakeCallers) Refresh(_ context.Context, p *toolkeep.Principal) (*toolkeep.Principal, error) {
	now := f[p.Subject]
	if now == nil || now.KeyID != p.KeyID || now.Tenant != p.Tenant {
		return nil, toolkeep.NewError(toolkeep.Unauthenticated, "the key was revoked")
	}
	own := *now
	own.OnBehalf = p.OnBehalf
	return &own, nil
}

// linked is a desk whose decisions may come by links.
func linked(t *testing.T, rules string) (*desk, fakeCallers) {
	d := newDesk(t, rules)
	callers := fakeCallers{"boss": boss, "chief": chief, "alice": alice}
	d.control = approvals.New(approvals.Config{Book: d.book, Calls: d.pipeline, Store: d.store, Callers: callers, Clock: func() time.Time { return d.now() }})
	return d, callers
}

func (d *desk) link(p *toolkeep.Principal, id, approver string, until time.Time) (*approvals.DecisionLink, *toolkeep.Error) {
	d.t.Helper()
	l, err := d.control.MakeLink(d.t.Context(), p, id, approver, until)
	d.settle()
	return l, toolkeep.AsError(err)
}

func (d *desk) byLink(token string, v approvals.Verdict) (approvals.Approval, *toolkeep.Error) {
	d.t.Helper()
	a, err := d.control.DecideByLink(d.t.Context(), token, v)
	d.settle()
	return a, toolkeep.AsError(err)
}

// TestDecisionLink: a link shows what waits and changes nothing, decides once, and its token is stored
// nowhere.
func TestDecisionLink(t *testing.T) {
	d, _ := linked(t, "")
	id := d.parked(&toolkeep.Call{Tool: "std.risky", Arguments: []byte(`{"n":7}`)})
	other := d.parked(&toolkeep.Call{Tool: "std.risky", Arguments: []byte(`{"n":8}`)})
	l, err := d.link(boss, id, "", time.Time{})
	if err != nil || l.Approver != "boss" || l.Path != approvals.LinkPath+"?token="+l.Token {
		t.Fatalf("%+v %v", l, err)
	}
	for range 3 {
		seen, until, err := d.control.ByLink(t.Context(), l.Token)
		if err != nil || seen.InvocationID != id || !seen.YouDecide || fmt.Sprint(seen.Parameters) != "map[n:7]" || !until.Equal(seen.ExpiresAt) || seen.State != "pending" {
			t.Fatalf("%+v %s %v", seen, until, err)
		}
	}
	got, err := d.byLink(l.Token, approvals.Verdict{Approve: true, Reason: "fine"})
	if err != nil || got.State != "approved" || got.Decisions[0].By != "boss" || got.Decisions[0].Link != "" {
		t.Fatalf("%+v %v", got, err)
	}
	for _, token := range []string{l.Token, l.Token + "A", "tkd_", "", "x", strings.ToUpper(l.Token)} {
		_, err = d.byLink(token, approvals.Verdict{Approve: true})
		wantCode(t, err, toolkeep.ResourceNotFound)
		if _, _, err := d.control.ByLink(t.Context(), token); toolkeep.AsError(err).Code != toolkeep.ResourceNotFound {
			t.Errorf("%q: %v", token, err)
		}
	}
	d.work()
	if n := d.executor.calls.Load(); n != 1 || d.row(id).State != toolkeep.CallSucceeded || d.row(other).State != toolkeep.CallPendingApproval {
		t.Errorf("%d executed, %s, the other %s", n, d.row(id).State, d.row(other).State)
	}
	l, err = d.link(boss, other, "boss", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err = d.byLink(l.Token, approvals.Verdict{Reason: "not now"}); err != nil || got.State != "denied" || d.row(other).Code != toolkeep.ApprovalDenied {
		t.Errorf("%+v %v", got, err)
	}
	entries, _, e := d.store.ReadJournal(t.Context(), toolkeep.JournalPosition{}, 1000)
	if e != nil {
		t.Fatal(e)
	}
	made := 0
	for _, entry := range entries {
		text := fmt.Sprintf("%+v", entry)
		if ev := entry.Event; ev != nil {
			text += string(ev.Data)
			if ev.Type == "ai.agent.tool.approval.link_made" {
				made++
			}
		}
		if strings.Contains(text, strings.TrimPrefix(l.Token, "tkd_")) {
			t.Error("the journal has a token")
		}
	}
	if docs, _, e := d.store.Documents(t.Context(), approval.LinkKind); e != nil || len(docs) != 0 || made != 2 {
		t.Errorf("%d documents of links are left (%v), %d events", len(docs), e, made)
	}
}

// TestLinksNeverWiden: a link decides nothing that both its maker and its approver could not, and counts
// as a decision of both.
func TestLinksNeverWiden(t *testing.T) {
	d, callers := linked(t, "rules: [{name: two, tools: [std.risky], approvals: 2}]")
	id := d.parked(&toolkeep.Call{Tool: "std.risky"})
	scoped := *boss
	scoped.Scope = []string{"std.other"}
	narrowed := *boss
	narrowed.Narrowed = capability.OfGrant(&toolkeep.Grant{Tools: []string{"*"}})
	delegate := &toolkeep.Principal{Subject: "bot", OnBehalf: "alice", Tenant: "acme", Permissions: []string{toolkeep.PermApprove}, KeyID: "kb"}
	clerk := &toolkeep.Principal{Subject: "clerk", Tenant: "acme", Permissions: []string{toolkeep.PermInvocations}, KeyID: "kc"}
	callers["clerk"] = clerk
	for name, c := range map[string]struct {
		p        *toolkeep.Principal
		approver string
		until    time.Time
		code     toolkeep.Code
	}{
		"the caller itself":            {alice, "", time.Time{}, toolkeep.PermissionDenied},
		"the caller for another":       {alice, "boss", time.Time{}, toolkeep.PermissionDenied},
		"an agent of the caller":       {delegate, "", time.Time{}, toolkeep.ResourceNotFound},
		"who sees and does not decide": {clerk, "boss", time.Time{}, toolkeep.PermissionDenied},
		"another tenant":               {foreign, "", time.Time{}, toolkeep.ResourceNotFound},
		"another scope":                {&scoped, "", time.Time{}, toolkeep.ResourceNotFound},
		"with a capability token":      {&narrowed, "", time.Time{}, toolkeep.ResourceNotFound},
		"for the caller":               {boss, "alice", time.Time{}, toolkeep.InvalidParameters},
		"for who may not decide":       {boss, "clerk", time.Time{}, toolkeep.InvalidParameters},
		"for who has no key":           {boss, "stranger", time.Time{}, toolkeep.InvalidParameters},
		"a time that is past":          {boss, "", time.Now().Add(-time.Second), toolkeep.InvalidParameters},
		"who may":                      {boss, "", time.Time{}, ""},
	} {
		l, err := d.link(c.p, id, c.approver, c.until)
		if c.code == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err == nil || err.Code != c.code && err.Code != toolkeep.PermissionDenied {
			t.Errorf("%s: %+v %v", name, l, err)
		}
	}
	// The maker and the approver are one of the two persons.
	l, err := d.link(boss, id, "chief", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := d.byLink(l.Token, approvals.Verdict{Approve: true}); err != nil || got.State != "pending" || got.Have != 1 || got.Decisions[0].By != "chief" || got.Decisions[0].Link != "boss" {
		t.Fatalf("%+v %v", got, err)
	}
	for _, p := range []*toolkeep.Principal{boss, chief} {
		_, err := d.decide(p, id, approvals.Verdict{Approve: true})
		wantCode(t, err, toolkeep.StateConflict)
	}
	callers["head"] = &toolkeep.Principal{Subject: "head", Tenant: "acme", Permissions: []string{toolkeep.PermApprove}, KeyID: "k9"}
	if l, err = d.link(boss, id, "head", time.Time{}); err != nil {
		t.Fatal(err)
	}
	_, err = d.byLink(l.Token, approvals.Verdict{Approve: true})
	wantCode(t, err, toolkeep.StateConflict)
	// One that lost the right, or the key, decides nothing.
	gone := *boss
	gone.Permissions = nil
	callers["boss"] = &gone
	_, err = d.byLink(l.Token, approvals.Verdict{Approve: true})
	wantCode(t, err, toolkeep.PermissionDenied)
	delete(callers, "boss")
	_, err = d.byLink(l.Token, approvals.Verdict{Approve: true})
	wantCode(t, err, toolkeep.Unauthenticated)
	if got := d.approve(callers["head"], id); got.State != "approved" {
		t.Errorf("%+v", got)
	}
}

// TestLinksEnd: a link ends at its time, with its call, and with one use, however many come at once.
func TestLinksEnd(t *testing.T) {
	d, _ := linked(t, "")
	now := time.Now()
	d.now = func() time.Time { return now }
	id := d.parked(&toolkeep.Call{Tool: "std.risky"})
	short, err := d.link(boss, id, "", now.Add(time.Minute))
	if err != nil || !short.ExpiresAt.Equal(now.Add(time.Minute).UTC()) {
		t.Fatalf("%+v %v", short, err)
	}
	long, err := d.link(boss, id, "", now.Add(1000*time.Hour))
	if err != nil || long.ExpiresAt.After(now.Add(24*time.Hour)) {
		t.Fatalf("it outlives the request: %+v %v", long, err)
	}
	now = now.Add(time.Minute)
	_, err = d.byLink(short.Token, approvals.Verdict{Approve: true})
	wantCode(t, err, toolkeep.ResourceNotFound)
	if err := d.control.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.settle()
	if docs, _, err := d.store.Documents(t.Context(), approval.LinkKind); err != nil || len(docs) != 1 {
		t.Errorf("%d links after a sweep (%v)", len(docs), err)
	}
	var all sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		all.Go(func() {
			_, errs[i] = d.control.DecideByLink(t.Context(), long.Token, approvals.Verdict{Approve: true})
		})
	}
	all.Wait()
	won := 0
	for _, err := range errs {
		switch code := toolkeep.AsError(err); {
		case err == nil:
			won++
		case code.Code != toolkeep.ResourceNotFound && code.Code != toolkeep.AlreadyDecided:
			t.Errorf("%v", err)
		}
	}
	if won != 1 {
		t.Errorf("%d uses of one link decided", won)
	}
	// A link of a call that was decided otherwise is swept away.
	d.settle()
	id = d.parked(&toolkeep.Call{Tool: "std.risky", Arguments: []byte(`{"n":2}`)})
	left, err := d.link(boss, id, "", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	d.approve(chief, id)
	_, err = d.byLink(left.Token, approvals.Verdict{})
	wantCode(t, err, toolkeep.AlreadyDecided)
	if e := d.control.Sweep(t.Context()); e != nil {
		t.Fatal(e)
	}
	d.settle()
	_, err = d.byLink(left.Token, approvals.Verdict{})
	wantCode(t, err, toolkeep.ResourceNotFound)
	id = d.parked(&toolkeep.Call{Tool: "std.risky", Arguments: []byte(`{"n":3}`)})
	for i := range approval.MaxLinks + 1 {
		if _, err = d.link(boss, id, "", time.Time{}); (err != nil) != (i == approval.MaxLinks) {
			t.Fatalf("link %d: %v", i, err)
		}
	}
	wantCode(t, err, toolkeep.StateConflict)
}

// TestLinksNeedKeys: who came without an API key makes no link, and one that such a person has from before decides
// nothing, since its roles outlive the person.
func TestLinksNeedKeys(t *testing.T) {
	d, callers := linked(t, "")
	id := d.parked(&toolkeep.Call{Tool: "std.risky"})
	visitor := &toolkeep.Principal{Subject: "vera", Tenant: "acme", Method: "oauth", Permissions: []string{toolkeep.PermApprove}}
	callers["vera"] = visitor
	for _, approver := range []string{"", "vera", "boss"} {
		_, err := d.link(visitor, id, approver, time.Time{})
		wantCode(t, err, toolkeep.PermissionDenied)
	}
	q, e := d.book.Get(t.Context(), toolkeep.CallRef{Tenant: "acme", ID: id})
	if e != nil {
		t.Fatal(e)
	}
	for _, of := range [][2]*toolkeep.Principal{{visitor, visitor}, {visitor, boss}, {boss, visitor}} {
		token, _, changes := q.Link(of[0], of[1], time.Now().Add(time.Hour), time.Now())
		if e := d.store.Apply(t.Context(), changes...); e != nil {
			t.Fatal(e)
		}
		d.settle()
		_, err := d.byLink(token, approvals.Verdict{Approve: true})
		wantCode(t, err, toolkeep.Unauthenticated)
		_, _, e := d.control.ByLink(t.Context(), token)
		wantCode(t, toolkeep.AsError(e), toolkeep.Unauthenticated)
	}
	if got := d.approve(boss, id); got.Have != 1 {
		t.Errorf("%+v", got)
	}
}

// TestLinkLosesActAs: a link made on behalf of a person decides nothing when its key may act for others no more,
// whether that is the approver's or the maker's.
func TestLinkLosesActAs(t *testing.T) {
	d, callers := linked(t, "")
	portal := &toolkeep.Principal{Subject: "portal", Tenant: "acme", KeyID: "kp", Permissions: []string{toolkeep.PermApprove, toolkeep.PermActAs}}
	callers["portal"] = portal
	acting := *portal
	acting.OnBehalf = "lea"
	id := d.parked(&toolkeep.Call{Tool: "std.risky"})
	var tokens []string
	for _, approver := range []string{"", "boss"} {
		l, err := d.link(&acting, id, approver, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, l.Token)
	}
	less := *portal
	less.Permissions = []string{toolkeep.PermApprove}
	callers["portal"] = &less
	for _, token := range tokens {
		_, err := d.byLink(token, approvals.Verdict{Approve: true})
		wantCode(t, err, toolkeep.PermissionDenied)
	}
	callers["portal"] = portal
	if got, err := d.byLink(tokens[0], approvals.Verdict{Approve: true}); err != nil || got.State != "approved" || got.Decisions[0].For != "lea" {
		t.Errorf("%+v %v", got, err)
	}
}

// TestLinkLeavesTrace: what a link decided names the link, and the person for whom it was made, in the record of the
// decision and in both events.
func TestLinkLeavesTrace(t *testing.T) {
	d, callers := linked(t, "")
	portal := &toolkeep.Principal{Subject: "portal", OnBehalf: "lea", Tenant: "acme", KeyID: "kp", Permissions: []string{toolkeep.PermApprove, toolkeep.PermActAs}}
	callers["portal"] = portal
	id := d.parked(&toolkeep.Call{Tool: "std.risky"})
	l, err := d.link(portal, id, "boss", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	docs, _, e := d.store.Documents(t.Context(), approval.LinkKind)
	if e != nil || len(docs) != 1 {
		t.Fatalf("%d links (%v)", len(docs), e)
	}
	name := docs[0].ID[:16]
	if _, err := d.byLink(l.Token, approvals.Verdict{Approve: true}); err != nil {
		t.Fatal(err)
	}
	q, e := d.book.Get(t.Context(), toolkeep.CallRef{Tenant: "acme", ID: id})
	if e != nil || q.Decisions[0].Link != name || q.Decisions[0].ViaFor != "lea" {
		t.Errorf("%+v %v", q, e)
	}
	entries, _, e := d.store.ReadJournal(t.Context(), toolkeep.JournalPosition{}, 1000)
	if e != nil {
		t.Fatal(e)
	}
	want := map[string][]string{
		"ai.agent.tool.approval.link_made": {`"link":"` + name + `"`, `"made_by":"portal"`, `"made_on_behalf_of":"lea"`, `"decider":"boss"`},
		"ai.agent.tool.approval.decided":   {`"link":"` + name + `"`, `"decided_by_link_of":"portal"`, `"link_on_behalf_of":"lea"`, `"decided_by":"boss"`},
	}
	for _, entry := range entries {
		if entry.Event == nil {
			continue
		}
		for _, part := range want[entry.Event.Type] {
			if !strings.Contains(string(entry.Event.Data), part) {
				t.Errorf("%s has no %s: %s", entry.Event.Type, part, entry.Event.Data)
			}
		}
		delete(want, entry.Event.Type)
	}
	if len(want) != 0 {
		t.Errorf("there are no events %v", want)
	}
}

// TestLinksOfCancelledCall: a sweep deletes the links of a call that was cancelled, and keeps those of calls that wait,
// also on a node that has just started.
func TestLinksOfCancelledCall(t *testing.T) {
	d, _ := linked(t, "")
	gone, waits := d.parked(&toolkeep.Call{Tool: "std.risky"}), d.parked(&toolkeep.Call{Tool: "std.risky", Arguments: []byte(`{"n":2}`)})
	for _, id := range []string{gone, gone, gone, waits} {
		if _, err := d.link(boss, id, "", time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	left := func(want int) {
		t.Helper()
		if err := d.control.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.settle()
		if docs, _, err := d.store.Documents(t.Context(), approval.LinkKind); err != nil || len(docs) != want {
			t.Errorf("%d links (%v), want %d", len(docs), err, want)
		}
	}
	left(4)
	if ok, text, err := d.pipeline.Cancel(t.Context(), alice, gone, ""); err != nil || !ok {
		t.Fatal(ok, text, err)
	}
	d.settle()
	left(1)
	d.reopen()
	left(1)
}
