package storetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

func (f *fixture) list(q toolkeep.InvocationFilter) ([]*toolkeep.Invocation, int) {
	f.Helper()
	if q.Tenant == "" {
		q.Tenant = "t"
	}
	if q.Limit == 0 {
		q.Limit = 200
	}
	list, total, err := f.store.Invocations().List(f.Context(), q)
	if err != nil {
		f.Fatalf("List(%+v): %v", q, err)
	}
	return list, total
}

func (f *fixture) mustList(q toolkeep.InvocationFilter) []*toolkeep.Invocation {
	f.Helper()
	list, total := f.list(q)
	if len(list) == 0 || total != len(list) {
		f.Errorf("List(%+v) gave %d of %d", q, len(list), total)
	}
	return list
}

func ids(list []*toolkeep.Invocation) []string {
	names := []string{}
	for _, v := range list {
		names = append(names, v.ID)
	}
	return names
}

func testFilters(t *testing.T, f *fixture) {
	start := f.clock()
	for i := range 6 {
		v := call(fmt.Sprint(i), toolkeep.CallSucceeded)
		v.CreatedAt = start.Add(time.Duration(i) * time.Minute)
		if i%2 == 1 {
			v.Subject, v.State = "odd", toolkeep.CallFailed
		}
		if i >= 3 {
			v.ToolID, v.Session, v.Parent = "ns.other", "session", "0"
		}
		if i == 4 { // a claimed one between recorded ones
			f.apply(toolkeep.ClaimCall{Invocation: v})
		} else {
			f.apply(toolkeep.RecordCall{Invocation: v})
		}
	}
	alien := call("alien", toolkeep.CallSucceeded)
	alien.Tenant, alien.CreatedAt = "u", start
	f.apply(toolkeep.RecordCall{Invocation: alien})

	for _, c := range []struct {
		name   string
		filter toolkeep.InvocationFilter
		want   []string
	}{
		{"all", toolkeep.InvocationFilter{}, []string{"5", "4", "3", "2", "1", "0"}},
		{"tenant", toolkeep.InvocationFilter{Tenant: "u"}, []string{"alien"}},
		{"subject", toolkeep.InvocationFilter{Subject: "odd"}, []string{"5", "3", "1"}},
		{"tool", toolkeep.InvocationFilter{ToolID: "ns.tool"}, []string{"2", "1", "0"}},
		{"state", toolkeep.InvocationFilter{State: toolkeep.CallFailed}, []string{"5", "3", "1"}},
		{"states", toolkeep.InvocationFilter{States: []toolkeep.CallState{toolkeep.CallFailed, toolkeep.CallSucceeded}}, []string{"5", "4", "3", "2", "1", "0"}},
		{"states of trouble", toolkeep.InvocationFilter{States: []toolkeep.CallState{toolkeep.CallFailed, toolkeep.CallRefused}, ToolID: "ns.other"}, []string{"5", "3"}},
		{"session", toolkeep.InvocationFilter{Session: "session"}, []string{"5", "4", "3"}},
		{"parent", toolkeep.InvocationFilter{Parent: "0"}, []string{"5", "4", "3"}},
		{"since", toolkeep.InvocationFilter{Since: start.Add(4 * time.Minute)}, []string{"5", "4"}},
		{"until", toolkeep.InvocationFilter{Until: start.Add(2 * time.Minute)}, []string{"1", "0"}},
		{"several", toolkeep.InvocationFilter{Subject: "odd", ToolID: "ns.other", State: toolkeep.CallFailed, Session: "session", Parent: "0",
			Since: start, Until: start.Add(5 * time.Minute)}, []string{"3"}},
		{"none", toolkeep.InvocationFilter{Subject: "nobody"}, []string{}},
	} {
		list, total := f.list(c.filter)
		if got := ids(list); !slices.Equal(got, c.want) || total != len(c.want) {
			t.Errorf("%s: got %v of %d, want %v", c.name, got, total, c.want)
		}
	}
	for _, q := range []toolkeep.InvocationFilter{{Limit: 10}, {Tenant: "t"}, {Tenant: "t", Limit: 201}, {Tenant: "t", Limit: 1, Offset: -1}} {
		if _, _, err := f.store.Invocations().List(t.Context(), q); err == nil {
			t.Errorf("List(%+v) was answered", q)
		}
	}
}

func testPaging(t *testing.T, f *fixture) {
	const n = 25
	for i := range n { // several share a creation time
		v := call(fmt.Sprintf("%02d", i), toolkeep.CallSucceeded)
		v.CreatedAt = v.CreatedAt.Add(time.Duration(i/5) * time.Second)
		f.apply(toolkeep.RecordCall{Invocation: v})
	}
	var got []*toolkeep.Invocation
	for offset := 0; offset < n+10; offset += 10 {
		list, total := f.list(toolkeep.InvocationFilter{Offset: offset, Limit: 10})
		if total != n {
			t.Errorf("total %d", total)
		}
		got = append(got, list...)
	}
	seen := make(map[string]bool)
	for i, v := range got {
		if seen[v.ID] || i > 0 && v.CreatedAt.After(got[i-1].CreatedAt) {
			t.Errorf("%s is out of place", v.ID)
		}
		seen[v.ID] = true
	}
	if len(got) != n {
		t.Errorf("pages have %d calls", len(got))
	}
}

func testSweeps(t *testing.T, f *fixture) {
	now := f.clock()
	past, future := now.Add(-time.Second), now.Add(time.Second)
	claim := func(v *toolkeep.Invocation, set func(*toolkeep.Invocation)) {
		set(v)
		v.SealedArgs, v.Output = []byte("sealed"), []byte(`"o"`)
		f.apply(toolkeep.ClaimCall{Invocation: v})
	}
	none := func(*toolkeep.Invocation) {}
	claim(leased("lapsed", toolkeep.CallRunning, "n1", past), none)
	claim(leased("held", toolkeep.CallRunning, "n1", future), none)
	claim(leased("mine", toolkeep.CallRunning, "n2", future), none)
	claim(call("unleased", toolkeep.CallRunning), none)
	claim(call("due", toolkeep.CallQueued), func(v *toolkeep.Invocation) { v.Deadline = past })
	claim(call("parked", toolkeep.CallPendingApproval), func(v *toolkeep.Invocation) { v.Deadline = past.Add(-time.Hour) })
	claim(call("later", toolkeep.CallQueued), func(v *toolkeep.Invocation) { v.Deadline = future })
	claim(call("forever", toolkeep.CallQueued), none)
	claim(call("running", toolkeep.CallRunning), func(v *toolkeep.Invocation) { v.Deadline = past })
	claim(call("stale", toolkeep.CallSucceeded), func(v *toolkeep.Invocation) { v.ExpiresAt = past })
	claim(call("fresh", toolkeep.CallSucceeded), func(v *toolkeep.Invocation) { v.ExpiresAt = future })
	claim(call("fetched", toolkeep.CallFailed), func(v *toolkeep.Invocation) { v.ExpiresAt = past })
	f.apply(toolkeep.MarkFetched{Call: ref("fetched"), At: now})

	q := f.store.Invocations()
	check := func(name string, list []*toolkeep.Invocation, err error, want ...string) {
		t.Helper()
		got := ids(list)
		slices.Sort(got)
		slices.Sort(want)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v, want %v", name, got, err, want)
		}
		for _, v := range list { // the caller that moves them needs all fields
			if string(v.Output) != `"o"` || (!v.State.Ended() && string(v.SealedArgs) != "sealed") {
				t.Errorf("%s: %s is incomplete", name, v.ID)
			}
		}
	}
	list, err := q.Lapsed(t.Context(), now, "", 100)
	check("lapsed", list, err, "lapsed")
	list, err = q.Lapsed(t.Context(), now, "n2", 100)
	check("lapsed or another's", list, err, "lapsed", "held")
	list, err = q.Overdue(t.Context(), now, 100)
	check("overdue", list, err, "due", "parked")
	list, err = q.Overdue(t.Context(), now, 1)
	check("overdue, one", list, err, "parked")
	list, err = q.Unfetched(t.Context(), now, 100)
	check("unfetched", list, err, "stale")

	expired := call("stale", toolkeep.CallExpired)
	expired.ExpiresAt = past
	f.apply(toolkeep.MoveCall{Invocation: expired, From: []toolkeep.CallState{toolkeep.CallSucceeded}})
	list, err = q.Unfetched(t.Context(), now, 100)
	check("unfetched after it expired", list, err)
	if f.get("stale").Output != nil {
		t.Error("the answer of an expired call is still there")
	}
}

func testQueueDepth(t *testing.T, f *fixture) {
	for i, p := range []toolkeep.Priority{toolkeep.High, toolkeep.Low, toolkeep.Low, "", toolkeep.Normal} {
		v := call(fmt.Sprint(i), toolkeep.CallQueued)
		v.Priority = p
		f.apply(toolkeep.ClaimCall{Invocation: v})
	}
	f.apply(toolkeep.ClaimCall{Invocation: call("r", toolkeep.CallRunning)})
	got, err := f.store.Invocations().QueueDepth(t.Context())
	want := map[toolkeep.Priority]int{toolkeep.High: 1, toolkeep.Low: 2, toolkeep.Normal: 2}
	if err != nil {
		t.Fatal(err)
	}
	sameJSON(t, "depth", got, want)
}

// testMarks: what changes in calls under way is read for many of them at once, and requests to
// cancel by who has the lease.
func testMarks(t *testing.T, f *fixture) {
	until := f.clock().Add(time.Minute)
	progress := toolkeep.Progress{Percent: 40, Phase: "half", Message: "way"}
	other := toolkeep.CallRef{Tenant: "u", ID: "a"}
	elsewhere := leased("a", toolkeep.CallRunning, "n1", until)
	elsewhere.Tenant = other.Tenant
	f.apply(
		toolkeep.ClaimCall{Invocation: leased("a", toolkeep.CallRunning, "n1", until)},
		toolkeep.ClaimCall{Invocation: leased("b", toolkeep.CallRunning, "n1", until)},
		toolkeep.ClaimCall{Invocation: leased("c", toolkeep.CallRunning, "n2", until)},
		toolkeep.ClaimCall{Invocation: call("d", toolkeep.CallQueued)},
		toolkeep.ClaimCall{Invocation: elsewhere},
		toolkeep.RecordCall{Invocation: call("e", toolkeep.CallFailed)},
		toolkeep.ReportProgress{Call: ref("a"), Progress: progress},
	)
	for _, id := range []string{"b", "c", "d", "e"} {
		f.apply(toolkeep.RequestCancel{Call: ref(id), By: "boss"})
	}
	f.apply(toolkeep.RequestCancel{Call: other, By: "s"})
	q := f.store.CallMarks()
	marks := func(refs ...toolkeep.CallRef) map[toolkeep.CallRef]toolkeep.CallMark {
		t.Helper()
		got, err := q.Marks(t.Context(), refs)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	got := marks(ref("a"), ref("c"), ref("e"), ref("unknown"), other)
	want := map[toolkeep.CallRef]toolkeep.CallMark{
		ref("a"): {State: toolkeep.CallRunning, Progress: progress},
		ref("c"): {State: toolkeep.CallRunning, CancelBy: "boss"},
		ref("e"): {State: toolkeep.CallFailed},
		other:    {State: toolkeep.CallRunning, CancelBy: "s"},
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := marks(); len(got) != 0 {
		t.Errorf("nothing asked gave %+v", got)
	}
	many := make([]toolkeep.CallRef, 1000)
	for i := range many {
		many[i] = ref(fmt.Sprint(i))
	}
	many[999] = ref("d")
	if got := marks(many...); len(got) != 1 || got[ref("d")].State != toolkeep.CallQueued {
		t.Errorf("of 1,000 calls %+v", got)
	}
	if got, err := q.Marks(t.Context(), append(many, ref("a"))); err == nil {
		t.Errorf("1,001 calls gave %+v", got)
	}
	cancels := func(owner string, want ...toolkeep.CallRef) {
		t.Helper()
		got, err := q.CancelRequested(t.Context(), owner)
		slices.SortFunc(got, func(a, b toolkeep.CallRef) int { return strings.Compare(a.Tenant+a.ID, b.Tenant+b.ID) })
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("of %s: got %v, %v, want %v", owner, got, err, want)
		}
	}
	cancels("n1", ref("b"), other)
	cancels("n2", ref("c"))
	cancels("n3")
	f.apply(toolkeep.MoveCall{Invocation: call("b", toolkeep.CallCancelled), From: []toolkeep.CallState{toolkeep.CallRunning}, Owner: "n1"})
	cancels("n1", other)
	if m := marks(ref("b"))[ref("b")]; m.State != toolkeep.CallCancelled || m.CancelBy != "boss" {
		t.Errorf("after its end %+v", m)
	}
}

// testReadYourWrites reads each call back at once, while others write.
func testReadYourWrites(t *testing.T, f *fixture) {
	together(16, func(w int) {
		for i := range 20 {
			id := fmt.Sprintf("%d-%d", w, i)
			v := call(id, toolkeep.CallSucceeded)
			v.Session = fmt.Sprint("w", w)
			if err := f.store.Apply(t.Context(), toolkeep.RecordCall{Invocation: v}); err != nil {
				t.Errorf("Apply: %v", err)
				return
			}
			if _, err := f.store.Invocations().Get(t.Context(), ref(id)); err != nil {
				t.Errorf("Get(%s): %v", id, err)
			}
			_, total, err := f.store.Invocations().List(t.Context(), toolkeep.InvocationFilter{Tenant: "t", Session: v.Session, Limit: 1})
			if err != nil || total != i+1 {
				t.Errorf("writer %d counts %d of %d, %v", w, total, i+1, err)
			}
		}
	})
}
