package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// CheckChains recomputes all chains and returns the entries of each tenant.
func CheckChains(t *testing.T, store toolkeep.Chains) (entries map[string][]toolkeep.Link) {
	t.Helper()
	writers, err := store.ChainWriters(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	entries = map[string][]toolkeep.Link{}
	var h toolkeep.Hasher
	for _, w := range writers {
		heads := map[string]toolkeep.ChainHash{}
		for from := int64(0); from < w.Newest; {
			list, read, err := store.Links(context.Background(), toolkeep.LinkQuery{Writer: w.ID, After: from, UpTo: w.Newest, All: true, Content: true, Limit: 7})
			if err != nil {
				t.Fatal(err)
			}
			for i := range list {
				l := &list[i]
				head, ok := heads[l.Tenant]
				if !ok {
					head = h.ChainStart(w.ID, l.Tenant)
				}
				if head = h.ChainNext(&head, l); string(l.Hash) != string(head[:]) {
					t.Errorf("entry %d of writer %d, %s of %s, has another hash", l.Seq, w.ID, l.Ref, l.Tenant)
				}
				heads[l.Tenant] = head
				entries[l.Tenant] = append(entries[l.Tenant], *l)
			}
			from = read
		}
	}
	return entries
}

func refs(list []toolkeep.Link) (refs []string) {
	for _, l := range list {
		refs = append(refs, l.Ref)
	}
	return refs
}

// testChain: every entry is in its tenant's chain, also beside changes that fail, after a call's answer
// expired, and when another process goes on.
func testChain(t *testing.T, f *fixture) {
	chains := toolkeep.Chains(f.store)
	event := func(tenant, id string) toolkeep.Change {
		return toolkeep.AppendEvent{Event: toolkeep.Event{ID: id, Tenant: tenant, Type: "x", Time: f.clock(), Data: []byte(`{"id":"` + id + `"}`)}}
	}
	of := func(tenant, id string, state toolkeep.CallState) *toolkeep.Invocation {
		v := call(id, state)
		v.Tenant = tenant
		return v
	}
	f.apply(toolkeep.RecordCall{Invocation: of("a", "r1", toolkeep.CallSucceeded)}, event("b", "e1"))
	running := of("a", "c1", toolkeep.CallRunning)
	f.apply(toolkeep.ClaimCall{Invocation: running})
	ended := *running
	ended.State, ended.EndedAt, ended.Attempts = toolkeep.CallFailed, f.clock(), 7
	move := toolkeep.MoveCall{Invocation: &ended, From: []toolkeep.CallState{toolkeep.CallRunning}}
	f.apply(move)
	for range 2 { // stale: alone, and with others in one Apply
		if err := f.store.Apply(t.Context(), move); !errors.Is(err, toolkeep.ErrStale) {
			t.Fatalf("a stale move gave %v", err)
		}
		if err := f.store.Apply(t.Context(), event("a", "lost"), move, event("b", "lost")); !errors.Is(err, toolkeep.ErrStale) {
			t.Fatalf("a stale move gave %v", err)
		}
	}
	expired := ended
	expired.State, expired.Attempts = toolkeep.CallExpired, 8
	f.apply(toolkeep.MoveCall{Invocation: &expired, From: []toolkeep.CallState{toolkeep.CallFailed}})
	again := expired
	again.Attempts = 9
	f.apply(toolkeep.MoveCall{Invocation: &again, From: []toolkeep.CallState{toolkeep.CallExpired}})

	// Many at once: some fail after others were sent in the same group.
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			id := fmt.Sprint("m", i)
			v := of("a", id, toolkeep.CallRunning)
			if err := f.store.Apply(context.Background(), toolkeep.ClaimCall{Invocation: v}); err != nil {
				t.Error(err)
				return
			}
			done := *v
			done.State, done.EndedAt = toolkeep.CallSucceeded, f.clock()
			end := toolkeep.MoveCall{Invocation: &done, From: []toolkeep.CallState{toolkeep.CallRunning}}
			var each sync.WaitGroup
			for range 3 { // one of them ends the call
				each.Go(func() {
					if err := f.store.Apply(context.Background(), end); err != nil && !errors.Is(err, toolkeep.ErrStale) {
						t.Error(err)
					}
				})
			}
			each.Go(func() {
				_ = f.store.Apply(context.Background(), toolkeep.RecordCall{Invocation: of("a", "q"+id, toolkeep.CallSucceeded)})
			})
			each.Go(func() { _ = f.store.Apply(context.Background(), event("b", "q"+id)) })
			each.Wait()
		})
	}
	all.Wait()
	got := CheckChains(t, chains)
	if len(got["a"]) != 2+80 || len(got["b"]) != 1+40 {
		t.Fatalf("%d and %d entries: %v", len(got["a"]), len(got["b"]), refs(got["a"]))
	}
	e, err := chains.Entry(got["a"][1])
	if err != nil || e.Call == nil || e.Call.State != toolkeep.CallFailed || e.Call.Attempts != 7 {
		t.Errorf("the entry of the expired call is %+v, %v", e, err)
	}
	if e, err := chains.Entry(got["b"][0]); err != nil || e.Event == nil || e.Event.ID != "e1" {
		t.Errorf("the entry of the event is %+v, %v", e, err)
	}

	if first, later := got["b"][0].Stamp, got["a"][1].Stamp; first == 0 || later <= first {
		t.Errorf("an event has the stamp %d, and the end of a call that was moved after it %d", first, later)
	}

	// Of one tenant, without content.
	w, err := chains.ChainWriters(t.Context(), nil)
	if err != nil || len(w) != 1 {
		t.Fatalf("writers %v, %v", w, err)
	}
	list, read, err := chains.Links(t.Context(), toolkeep.LinkQuery{Writer: w[0].ID, UpTo: math.MaxInt64, Tenant: "b", Limit: 1000})
	if err != nil || len(list) != len(got["b"]) || read != math.MaxInt64 {
		t.Fatalf("%d links of b, up to %d: %v", len(list), read, err)
	}
	for i, l := range list {
		if l.Seq != got["b"][i].Seq || string(l.Hash) != string(got["b"][i].Hash) || l.Tenant != "b" || l.Data != nil {
			t.Fatalf("link %+v, want %+v", l, got["b"][i])
		}
	}
	if w, err := chains.ChainWriters(t.Context(), toolkeep.JournalPosition{w[0].ID: w[0].Newest}); err != nil || len(w) != 0 {
		t.Errorf("after the newest entry there are writers %v, %v", w, err)
	}

	if f.reopen == nil {
		return
	}
	f.store = f.reopen()
	f.store = f.reopen() // a process that writes nothing is no writer with entries
	chains = f.store
	f.pass(time.Minute)
	f.apply(event("a", "after"), toolkeep.RecordCall{Invocation: of("a", "r2", toolkeep.CallSucceeded)})
	got = CheckChains(t, chains)
	if n := len(got["a"]); n != 84 || got["a"][n-1].Ref != "r2" {
		t.Errorf("after another start there are %d entries: %v", n, refs(got["a"]))
	}
	if w, err := chains.ChainWriters(t.Context(), nil); err != nil || len(w) != 2 {
		t.Errorf("after another start there are writers %v, %v", w, err)
	}
}

// testChainTaken: a recorded call whose id is taken is in the chain, or in no place of it.
func testChainTaken(t *testing.T, f *fixture) {
	record := func(id, subject string) toolkeep.Change {
		v := call(id, toolkeep.CallSucceeded)
		v.Subject = subject
		return toolkeep.RecordCall{Invocation: v}
	}
	f.apply(record("x", "first"))
	f.apply(record("x", "second"))
	f.apply(record("y", "s"), record("x", "third"), record("z", "s"))
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			id := "x"
			if i%2 == 0 {
				id = fmt.Sprint("n", i)
			}
			if err := f.store.Apply(context.Background(), record(id, "s")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	there := map[string]bool{}
	for _, l := range CheckChains(t, f.store)["t"] {
		there[l.Ref] = true
	}
	if len(there) != 13 {
		t.Errorf("entries of %d calls", len(there))
	}
}
