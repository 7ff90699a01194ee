package storetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

func testRecord(t *testing.T, f *fixture) {
	full := FullCall("a", toolkeep.CallFailed, 1)
	f.apply(toolkeep.RecordCall{Invocation: full})
	f.same(f.get("a"), without(full, WaitingOnly()...))

	// A recorded call holds no key, and its id is taken.
	if _, err := f.store.Invocations().ByKey(t.Context(), "t", full.Subject, full.Key); !errors.Is(err, toolkeep.ErrNotFound) {
		t.Errorf("a recorded call holds its key: %v", err)
	}
	f.refused(toolkeep.ErrIDTaken, toolkeep.ClaimCall{Invocation: call("a", toolkeep.CallRunning)})
	// The same before the call has been read.
	f.apply(toolkeep.RecordCall{Invocation: call("b", toolkeep.CallRefused)})
	f.refused(toolkeep.ErrIDTaken, toolkeep.ClaimCall{Invocation: call("b", toolkeep.CallRunning)})
	// Ids are per tenant.
	other := call("b", toolkeep.CallRunning)
	other.Tenant = "u"
	f.apply(toolkeep.ClaimCall{Invocation: other})
	f.same(f.get("b"), call("b", toolkeep.CallRefused))
}

// testRecordTaken: a recorded call whose id is taken changes nothing.
func testRecordTaken(t *testing.T, f *fixture) {
	f.apply(toolkeep.ClaimCall{Invocation: call("a", toolkeep.CallRunning)})
	again := toolkeep.RecordCall{Invocation: call("b", toolkeep.CallFailed)}
	f.apply(toolkeep.RecordCall{Invocation: call("a", toolkeep.CallSucceeded)},
		toolkeep.RecordCall{Invocation: call("b", toolkeep.CallSucceeded)}, again)
	f.same(f.get("a"), call("a", toolkeep.CallRunning))
	f.same(f.get("b"), call("b", toolkeep.CallSucceeded))
	f.apply(again)
	f.same(f.get("b"), call("b", toolkeep.CallSucceeded))
}

func testClaim(t *testing.T, f *fixture) {
	f.apply(toolkeep.ClaimCall{Invocation: call("a", toolkeep.CallRunning)})
	f.same(f.get("a"), call("a", toolkeep.CallRunning))
	f.refused(toolkeep.ErrIDTaken, toolkeep.ClaimCall{Invocation: call("a", toolkeep.CallQueued)})
	f.same(f.get("a"), call("a", toolkeep.CallRunning))
	f.missing("b")
}

func testClaimKey(t *testing.T, f *fixture) {
	f.apply(toolkeep.ClaimCall{Invocation: keyed("a", "k")})
	f.refused(toolkeep.ErrKeyTaken, toolkeep.ClaimCall{Invocation: keyed("b", "k")})
	f.missing("b")
	f.refused(toolkeep.ErrIDTaken, toolkeep.ClaimCall{Invocation: keyed("a", "k")})

	subject, tenant := keyed("c", "k"), keyed("a", "k")
	subject.Subject, tenant.Tenant = "s2", "u"
	f.apply(toolkeep.ClaimCall{Invocation: subject}, toolkeep.ClaimCall{Invocation: tenant})
	f.apply(toolkeep.ClaimCall{Invocation: keyed("d", "")}, toolkeep.ClaimCall{Invocation: keyed("e", "")})

	for subject, want := range map[string]string{"s": "a", "s2": "c"} {
		v, err := f.store.Invocations().ByKey(t.Context(), "t", subject, "k")
		if err != nil || v.ID != want || v.Key != "k" {
			t.Errorf("ByKey of %s gave %+v, %v, want %s", subject, v, err, want)
		}
	}
	for _, key := range []string{"", "other"} {
		if v, err := f.store.Invocations().ByKey(t.Context(), "t", "s", key); !errors.Is(err, toolkeep.ErrNotFound) {
			t.Errorf("ByKey(%q) gave %v, %v", key, v, err)
		}
	}
}

func testClaimKeyTakeOver(t *testing.T, f *fixture) {
	first := keyed("a", "k")
	first.CreatedAt = f.clock()
	f.apply(toolkeep.ClaimCall{Invocation: first})

	f.pass(24*time.Hour - time.Second)
	f.refused(toolkeep.ErrKeyTaken, toolkeep.ClaimCall{Invocation: keyed("b", "k")})
	if v, err := f.store.Invocations().ByKey(t.Context(), "t", "s", "k"); err != nil || v.ID != "a" {
		t.Errorf("ByKey just before 24 hours: %v, %v", v, err)
	}
	f.pass(2 * time.Second)
	if v, err := f.store.Invocations().ByKey(t.Context(), "t", "s", "k"); !errors.Is(err, toolkeep.ErrNotFound) {
		t.Errorf("ByKey after 24 hours: %v, %v", v, err)
	}
	// A claim that fails for another reason does not take the key.
	f.apply(toolkeep.ClaimCall{Invocation: call("x", toolkeep.CallRunning)})
	f.refused(toolkeep.ErrIDTaken, toolkeep.ClaimCall{Invocation: keyed("x", "k")})
	second := keyed("b", "k")
	second.CreatedAt = f.clock()
	f.refused(toolkeep.ErrNotFound, toolkeep.ClaimCall{Invocation: second},
		toolkeep.RequestCancel{Call: ref("nobody"), By: "s"})
	f.apply(toolkeep.ClaimCall{Invocation: second})
	if v, err := f.store.Invocations().ByKey(t.Context(), "t", "s", "k"); err != nil || v.ID != "b" {
		t.Errorf("ByKey after the take-over: %v, %v", v, err)
	}
	f.refused(toolkeep.ErrKeyTaken, toolkeep.ClaimCall{Invocation: keyed("c", "k")})
	f.same(f.get("a"), first)
}

// KeyKeep checks that a store which keeps idempotency keys for a time that was set frees them after it.
func KeyKeep(t *testing.T, open func(keep time.Duration, clock func() time.Time) Store) {
	var passed atomic.Int64
	clock := func() time.Time {
		return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(passed.Load()))
	}
	s := open(2*time.Hour, clock)
	claim := func(id string) error {
		c := keyed(id, "k")
		c.CreatedAt = clock()
		return s.Apply(t.Context(), toolkeep.ClaimCall{Invocation: c})
	}
	if err := claim("a"); err != nil {
		t.Fatal(err)
	}
	passed.Add(int64(2*time.Hour - time.Second))
	if err := claim("b"); !errors.Is(err, toolkeep.ErrKeyTaken) {
		t.Errorf("before its time is over: %v", err)
	}
	passed.Add(int64(2 * time.Second))
	if v, err := s.Invocations().ByKey(t.Context(), "t", "s", "k"); !errors.Is(err, toolkeep.ErrNotFound) {
		t.Errorf("after its time: %v, %v", v, err)
	}
	if err := claim("b"); err != nil {
		t.Errorf("after its time: %v", err)
	}
}

func testClaimRace(t *testing.T, f *fixture) {
	const n = 50
	var won atomic.Int32
	together(n, func(i int) {
		err := f.store.Apply(t.Context(), toolkeep.ClaimCall{Invocation: keyed(fmt.Sprint("c", i), "k")})
		switch {
		case err == nil:
			won.Add(1)
		case !errors.Is(err, toolkeep.ErrKeyTaken):
			t.Errorf("claim %d: %v", i, err)
		}
	})
	if won.Load() != 1 {
		t.Errorf("%d of %d claims of one key won", won.Load(), n)
	}
	if _, total := f.list(toolkeep.InvocationFilter{}); total != 1 {
		t.Errorf("there are %d calls", total)
	}
}

// together runs f n times concurrently and waits.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}

func testEveryField(t *testing.T, f *fixture) {
	claimed := FullCall("a", toolkeep.CallQueued, 1)
	sent := *claimed
	f.apply(toolkeep.ClaimCall{Invocation: &sent})
	f.same(f.get("a"), claimed)

	// The caller may continue with the same object after Apply.
	moved := FullCall("a", toolkeep.CallRunning, 2)
	sent = *moved
	f.apply(toolkeep.MoveCall{Invocation: &sent, From: []toolkeep.CallState{toolkeep.CallQueued}, Owner: claimed.LeaseOwner})
	want := *moved
	want.Progress, want.CancelBy, want.CancelWhy = claimed.Progress, claimed.CancelBy, claimed.CancelWhy
	want.FetchedAt = claimed.FetchedAt
	f.same(f.get("a"), &want)
	for _, v := range f.mustList(toolkeep.InvocationFilter{Subject: moved.Subject}) {
		f.same(v, without(&want, "SealedArgs", "Output"))
	}
	if _, total := f.list(toolkeep.InvocationFilter{Subject: claimed.Subject}); total != 0 {
		t.Errorf("a moved call is still found by what it was")
	}
}

func testMove(t *testing.T, f *fixture) {
	f.apply(toolkeep.ClaimCall{Invocation: call("a", toolkeep.CallQueued)})
	run := call("a", toolkeep.CallRunning)
	run.Attempts = 1
	f.refused(toolkeep.ErrStale, toolkeep.MoveCall{Invocation: run, From: []toolkeep.CallState{toolkeep.CallRunning}})
	f.refused(toolkeep.ErrStale, toolkeep.MoveCall{Invocation: run})
	f.same(f.get("a"), call("a", toolkeep.CallQueued))
	f.apply(toolkeep.MoveCall{Invocation: run, From: []toolkeep.CallState{toolkeep.CallAccepted, toolkeep.CallQueued}})
	f.same(f.get("a"), run)
	f.refused(toolkeep.ErrStale, toolkeep.MoveCall{Invocation: call("nobody", toolkeep.CallRunning),
		From: []toolkeep.CallState{toolkeep.CallRunning}})
	f.refused(toolkeep.ErrNotFound, toolkeep.MoveCall{Invocation: call("nobody", toolkeep.CallRunning),
		From: []toolkeep.CallState{toolkeep.CallRunning}})

	// A recorded call can be moved too, even right after it was recorded.
	f.apply(toolkeep.RecordCall{Invocation: call("r", toolkeep.CallSucceeded)})
	f.apply(toolkeep.MoveCall{Invocation: call("r", toolkeep.CallExpired), From: []toolkeep.CallState{toolkeep.CallSucceeded}})
	f.same(f.get("r"), call("r", toolkeep.CallExpired))
}

func testMoveRace(t *testing.T, f *fixture) {
	f.apply(toolkeep.ClaimCall{Invocation: call("a", toolkeep.CallQueued)})
	var won atomic.Int32
	together(50, func(i int) {
		v := call("a", toolkeep.CallRunning)
		v.LeaseOwner, v.LeaseUntil = fmt.Sprint("node", i), f.clock().Add(time.Minute)
		err := f.store.Apply(t.Context(), toolkeep.MoveCall{Invocation: v,
			From: []toolkeep.CallState{toolkeep.CallQueued}, Owner: v.LeaseOwner})
		switch {
		case err == nil:
			won.Add(1)
		case !errors.Is(err, toolkeep.ErrStale):
			t.Errorf("move %d: %v", i, err)
		}
	})
	if won.Load() != 1 {
		t.Errorf("%d moves won", won.Load())
	}
}

func leased(id string, state toolkeep.CallState, owner string, until time.Time) *toolkeep.Invocation {
	v := call(id, state)
	v.LeaseOwner, v.LeaseUntil = owner, until
	return v
}

func testMoveKeeps(t *testing.T, f *fixture) {
	running := []toolkeep.CallState{toolkeep.CallRunning}
	until := f.clock().Add(time.Minute)
	f.apply(toolkeep.ClaimCall{Invocation: leased("a", toolkeep.CallRunning, "n1", until)})
	progress := toolkeep.Progress{Percent: 40, Phase: "half", Message: "way"}
	f.apply(toolkeep.ReportProgress{Call: ref("a"), Progress: progress},
		toolkeep.RequestCancel{Call: ref("a"), By: "boss", Why: "late"})

	// Another owner cannot move it, its own can, and neither changes what others wrote.
	other := leased("a", toolkeep.CallRunning, "n2", until)
	f.refused(toolkeep.ErrStale, toolkeep.MoveCall{Invocation: other, From: running, Owner: "n2"})
	own := leased("a", toolkeep.CallRunning, "n1", until.Add(time.Minute))
	own.Attempts = 2
	f.apply(toolkeep.MoveCall{Invocation: own, From: running, Owner: "n1"})
	want := *own
	want.Progress, want.CancelBy, want.CancelWhy = progress, "boss", "late"
	f.same(f.get("a"), &want)

	// Without an owner: the call continues under its existing lease.
	f.apply(toolkeep.MoveCall{Invocation: call("a", toolkeep.CallInputRequired), From: running})
	if v := f.get("a"); v.LeaseOwner != "n1" || !v.LeaseUntil.Equal(own.LeaseUntil) {
		t.Errorf("the lease of another was lost: %s until %s", v.LeaseOwner, v.LeaseUntil)
	}
	// Queued again: it is not running, so it has no lease.
	f.apply(toolkeep.MoveCall{Invocation: call("a", toolkeep.CallQueued), From: []toolkeep.CallState{toolkeep.CallInputRequired}})
	if v := f.get("a"); v.LeaseOwner != "" || !v.LeaseUntil.IsZero() {
		t.Errorf("a queued call is held by %q until %s", v.LeaseOwner, v.LeaseUntil)
	}
	// A lapsed lease blocks no other owner.
	f.apply(toolkeep.MoveCall{Invocation: leased("a", toolkeep.CallRunning, "n3", f.clock().Add(time.Second)),
		From: []toolkeep.CallState{toolkeep.CallQueued}, Owner: "n3"})
	f.pass(time.Second)
	f.apply(toolkeep.MoveCall{Invocation: leased("a", toolkeep.CallRunning, "n4", f.clock().Add(time.Second)), From: running, Owner: "n4"})
	f.refused(toolkeep.ErrStale, toolkeep.MoveCall{Invocation: leased("a", toolkeep.CallSucceeded, "n3", until), From: running, Owner: "n3"})
}

func testMoveFreesKey(t *testing.T, f *fixture) {
	f.apply(toolkeep.ClaimCall{Invocation: keyed("a", "k")})
	end := keyed("a", "k")
	end.State = toolkeep.CallFailed
	f.apply(toolkeep.MoveCall{Invocation: end, From: []toolkeep.CallState{toolkeep.CallRunning}})
	f.refused(toolkeep.ErrKeyTaken, toolkeep.ClaimCall{Invocation: keyed("b", "k")})
	f.apply(toolkeep.MoveCall{Invocation: end, From: []toolkeep.CallState{toolkeep.CallFailed}, FreeKey: true})
	if v, err := f.store.Invocations().ByKey(t.Context(), "t", "s", "k"); !errors.Is(err, toolkeep.ErrNotFound) {
		t.Errorf("a freed key is held: %v, %v", v, err)
	}
	f.apply(toolkeep.ClaimCall{Invocation: keyed("b", "k")})
	// A later move of the first call does not reclaim the key.
	f.apply(toolkeep.MoveCall{Invocation: end, From: []toolkeep.CallState{toolkeep.CallFailed}})
	if v, err := f.store.Invocations().ByKey(t.Context(), "t", "s", "k"); err != nil || v.ID != "b" {
		t.Errorf("ByKey: %v, %v", v, err)
	}
	f.same(f.get("a"), end)
}

func testMoveToTakenKey(t *testing.T, f *fixture) {
	a, b := keyed("a", "k"), keyed("b", "k")
	b.Subject = "other"
	f.apply(toolkeep.ClaimCall{Invocation: a}, toolkeep.ClaimCall{Invocation: b})
	moved := *b
	moved.Subject = a.Subject
	f.refused(toolkeep.ErrKeyTaken, toolkeep.MoveCall{Invocation: &moved, From: []toolkeep.CallState{b.State}})
	f.same(f.get("b"), b)
}

func testEndErases(t *testing.T, f *fixture) {
	v := FullCall("a", toolkeep.CallRunning, 1)
	f.apply(toolkeep.ClaimCall{Invocation: v})
	for _, state := range []toolkeep.CallState{toolkeep.CallSucceeded, toolkeep.CallExpired} {
		end := FullCall("a", state, 1)
		f.apply(toolkeep.MoveCall{Invocation: end, Owner: v.LeaseOwner,
			From: []toolkeep.CallState{toolkeep.CallRunning, toolkeep.CallSucceeded}})
		f.same(f.get("a"), without(end, "SealedArgs", "SealedCaller", "LeaseOwner", "LeaseUntil"))
	}
}

func testLeases(t *testing.T, f *fixture) {
	now := f.clock()
	f.apply(
		toolkeep.ClaimCall{Invocation: leased("a", toolkeep.CallRunning, "n1", now.Add(time.Minute))},
		toolkeep.ClaimCall{Invocation: leased("b", toolkeep.CallRunning, "n2", now.Add(time.Minute))},
		toolkeep.ClaimCall{Invocation: leased("c", toolkeep.CallSucceeded, "n1", now.Add(time.Minute))},
	)
	until := now.Add(time.Hour)
	f.apply(toolkeep.RenewLeases{Owner: "n1", Calls: []toolkeep.CallRef{ref("a"), ref("b"), ref("c"), ref("nobody")}, Until: until})
	for id, want := range map[string]time.Time{"a": until, "b": now.Add(time.Minute), "c": {}} {
		if got := f.get(id).LeaseUntil; !got.Equal(want) {
			t.Errorf("lease of %s until %s, want %s", id, got, want)
		}
	}
	// A renewal never shortens a lease.
	f.apply(toolkeep.RenewLeases{Owner: "n1", Calls: []toolkeep.CallRef{ref("a")}, Until: now})
	if got := f.get("a").LeaseUntil; !got.Equal(until) {
		t.Errorf("a renewal shortened the lease to %s", got)
	}
}

func testCancel(t *testing.T, f *fixture) {
	f.refused(toolkeep.ErrNotFound, toolkeep.RequestCancel{Call: ref("a"), By: "s"})
	f.apply(toolkeep.ClaimCall{Invocation: call("a", toolkeep.CallRunning)})
	f.apply(toolkeep.RequestCancel{Call: ref("a"), By: "s", Why: "because"})
	f.apply(toolkeep.RequestCancel{Call: ref("a"), By: "later", Why: "too"})
	if v := f.get("a"); v.CancelBy != "s" || v.CancelWhy != "because" || v.State != toolkeep.CallRunning {
		t.Errorf("got %q, %q in state %s", v.CancelBy, v.CancelWhy, v.State)
	}
	f.apply(toolkeep.RecordCall{Invocation: call("b", toolkeep.CallSucceeded)})
	f.apply(toolkeep.RequestCancel{Call: ref("b"), By: "s"})
	if v := f.get("b"); v.CancelBy != "" {
		t.Errorf("an ended call was marked")
	}
	f.refused(toolkeep.ErrNotFound, toolkeep.RequestCancel{Call: toolkeep.CallRef{Tenant: "u", ID: "a"}, By: "s"})
}

func testProgress(t *testing.T, f *fixture) {
	p := toolkeep.Progress{Percent: 10, Phase: "p", Message: "m"}
	f.refused(toolkeep.ErrNotFound, toolkeep.ReportProgress{Call: ref("a"), Progress: p})
	f.apply(toolkeep.ClaimCall{Invocation: call("a", toolkeep.CallRunning)}, toolkeep.ClaimCall{Invocation: call("b", toolkeep.CallFailed)})
	f.apply(toolkeep.ReportProgress{Call: ref("a"), Progress: toolkeep.Progress{Percent: 99}})
	f.apply(toolkeep.ReportProgress{Call: ref("a"), Progress: p}, toolkeep.ReportProgress{Call: ref("b"), Progress: p})
	if got := f.get("a").Progress; got != p {
		t.Errorf("got %+v", got)
	}
	if got := f.get("b").Progress; got != (toolkeep.Progress{}) {
		t.Errorf("an ended call made progress: %+v", got)
	}
}

func testFetched(t *testing.T, f *fixture) {
	at := f.clock()
	f.refused(toolkeep.ErrNotFound, toolkeep.MarkFetched{Call: ref("a"), At: at})
	f.apply(toolkeep.ClaimCall{Invocation: call("a", toolkeep.CallRunning)})
	f.apply(toolkeep.MarkFetched{Call: ref("a"), At: at})
	if got := f.get("a").FetchedAt; !got.IsZero() {
		t.Errorf("a running call has an answer that was fetched at %s", got)
	}
	f.apply(toolkeep.MoveCall{Invocation: call("a", toolkeep.CallSucceeded), From: []toolkeep.CallState{toolkeep.CallRunning}})
	f.apply(toolkeep.MarkFetched{Call: ref("a"), At: at})
	f.apply(toolkeep.MarkFetched{Call: ref("a"), At: at.Add(time.Hour)})
	f.apply(toolkeep.MoveCall{Invocation: call("a", toolkeep.CallSucceeded), From: []toolkeep.CallState{toolkeep.CallSucceeded}})
	if got := f.get("a").FetchedAt; !got.Equal(at) {
		t.Errorf("fetched at %s, want the first time, %s", got, at)
	}
}

func testEnqueue(t *testing.T, f *fixture) {
	e := toolkeep.Enqueue{Call: ref("a"), Priority: toolkeep.High, At: f.clock()}
	f.apply(toolkeep.ClaimCall{Invocation: call("a", toolkeep.CallQueued)}, e)
	sameJSON(t, "queued", f.queued, []toolkeep.Enqueue{e})
	boom := errors.New("queue is full")
	f.mu.Lock()
	f.refuse = boom
	f.mu.Unlock()
	e.Call.ID = "b"
	f.refused(boom, toolkeep.ClaimCall{Invocation: call("b", toolkeep.CallQueued)}, e)
	f.missing("b")
}
