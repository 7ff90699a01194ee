package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Ager is a Store whose clock the suite does not set: Age makes all that nodes said and
// lead older.
type Ager interface {
	Age(t *testing.T, d time.Duration)
}

// age lets time pass for nodes and leads.
func (f *fixture) age(d time.Duration) {
	f.Helper()
	if a, ok := f.store.(Ager); ok {
		a.Age(f.T, d)
	}
	f.pass(d)
}

func node(name, run string) toolkeep.NodeState {
	return toolkeep.NodeState{Name: name, Run: run, Version: "1.2.3", URL: "https://" + name + ".internal:8080",
		StartedAt: time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC), Data: []byte(`{"from":"` + name + `"}`)}
}

func (f *fixture) join(n toolkeep.NodeState) *toolkeep.NodeState {
	f.Helper()
	before, err := f.store.Join(f.Context(), n)
	if err != nil {
		f.Fatalf("Join(%s): %v", n.Name, err)
	}
	return before
}

func (f *fixture) beat(n toolkeep.NodeState) []toolkeep.NodeState {
	f.Helper()
	list, now, err := f.store.Beat(f.Context(), n)
	if err != nil {
		f.Fatalf("Beat(%s): %v", n.Name, err)
	}
	for _, one := range list {
		if one.Name == n.Name && one.Run == n.Run {
			if !one.SeenAt.Equal(now) {
				f.Errorf("the node that beats was seen at %s, and it is %s", one.SeenAt, now)
			}
			return list
		}
	}
	f.Fatalf("%s is not among the nodes: %v", n.Name, list)
	return nil
}

// lead asks for a work for 10 s.
func (f *fixture) lead(n toolkeep.NodeState, work string) bool {
	f.Helper()
	got, err := f.store.Lead(f.Context(), work, n.Name, n.Run, 10*time.Second)
	if err != nil {
		f.Fatalf("Lead(%s) by %s: %v", work, n.Name, err)
	}
	return got
}

func (f *fixture) leads(want bool, n toolkeep.NodeState, work string) {
	f.Helper()
	if got := f.lead(n, work); got != want {
		f.Fatalf("%s leads %s: %t, want %t", n.Name, work, got, want)
	}
}

// say is what a list of nodes says, in a line.
func say(list []toolkeep.NodeState) string {
	var parts []string
	for _, n := range list {
		parts = append(parts, fmt.Sprintf("%s/%s %s %s %s %v", n.Name, n.Run, n.Version, n.URL, n.Data, n.Leads))
	}
	return strings.Join(parts, "; ")
}

func (f *fixture) nodes(got []toolkeep.NodeState, want string) {
	f.Helper()
	if s := say(got); s != want {
		f.Errorf("nodes:\n got %s\nwant %s", s, want)
	}
}

const saidA, saidB = `a/1 1.2.3 https://a.internal:8080 {"from":"a"} `, `b/1 1.2.3 https://b.internal:8080 {"from":"b"} `

func testNodes(t *testing.T, f *fixture) {
	a, b := node("a", "1"), node("b", "1")
	head := f.head()
	if before := f.join(b); before != nil {
		t.Errorf("no process was here before, and Join gave %v", before)
	}
	f.join(a)
	f.nodes(f.beat(a), saidA+"[]; "+saidB+"[]")
	if got := f.beat(a)[0].StartedAt; !got.Equal(a.StartedAt) {
		t.Errorf("started at %s, want %s", got, a.StartedAt)
	}
	// A silent node is gone, and comes back.
	f.age(toolkeep.NodeGone - time.Second)
	b.Data, b.URL = []byte(`{"from":"b","more":[1]}`), ""
	f.beat(b)
	f.age(2 * time.Second)
	f.nodes(f.beat(b), `b/1 1.2.3  {"from":"b","more":[1]} []`)
	f.nodes(f.beat(a), saidA+`[]; b/1 1.2.3  {"from":"b","more":[1]} []`)
	// One that left is gone at once, a second time is no error, and others stay.
	for range 2 {
		if err := f.store.Leave(t.Context(), "b", "1"); err != nil {
			t.Fatal(err)
		}
	}
	f.nodes(f.beat(a), saidA+"[]")
	if now := f.head(); now != head {
		t.Errorf("nodes wrote %d changes into the feed", now-head)
	}
}

func testNodeStale(t *testing.T, f *fixture) {
	first, second := node("a", "1"), node("a", "2")
	second.StartedAt = first.StartedAt.Add(-time.Hour) // its machine's clock was wrong
	f.join(first)
	f.leads(true, first, "sweep")
	before := f.join(second)
	if before == nil || before.Run != "1" || string(before.Data) != `{"from":"a"}` || before.SeenAt.IsZero() {
		t.Fatalf("Join gave %+v of the run before", before)
	}
	if before := f.join(second); before != nil {
		t.Errorf("joined again, Join gave %+v", before)
	}
	if _, _, err := f.store.Beat(t.Context(), first); !errors.Is(err, toolkeep.ErrStale) {
		t.Errorf("the run before beats: %v, want ErrStale", err)
	}
	f.beat(second)
	// It leads nothing new and renews nothing; what it leads is its own until it lapses.
	f.leads(false, first, "sweep")
	f.leads(false, first, "other")
	f.leads(false, second, "sweep")
	if err := f.store.Leave(t.Context(), "a", "1"); err != nil { // leaves the name to the newer run
		t.Fatal(err)
	}
	f.nodes(f.beat(second), strings.Replace(saidA, "a/1", "a/2", 1)+"[]")
	f.leads(true, second, "sweep")
	f.nodes(f.beat(second), strings.Replace(saidA, "a/1", "a/2", 1)+"[sweep]")
}

func testNodeMalformed(t *testing.T, f *fixture) {
	large := node("a", "1")
	large.Data = make([]byte, toolkeep.MaxNodeData+1)
	for what, n := range map[string]toolkeep.NodeState{"without a name": node("", "1"), "without a run": node("a", ""), "too large": large} {
		if _, err := f.store.Join(t.Context(), n); err == nil {
			t.Errorf("Join took a node %s", what)
		}
		if _, _, err := f.store.Beat(t.Context(), n); err == nil {
			t.Errorf("Beat took a node %s", what)
		}
	}
	odd := node("a\x00b", "1")
	odd.Data = nil
	f.join(odd)
	f.nodes(f.beat(odd), "a\x00b/1 1.2.3 https://a\x00b.internal:8080  []")
	ended, end := context.WithCancel(t.Context())
	end()
	if _, _, err := f.store.Beat(ended, odd); err == nil {
		t.Error("Beat ignores that its context ended")
	}
}

func testLead(t *testing.T, f *fixture) {
	a, b := node("a", "1"), node("b", "1")
	f.leads(false, a, "sweep") // has not joined
	f.join(a)
	f.join(b)
	f.leads(true, a, "sweep")
	f.leads(false, b, "sweep")
	f.leads(true, b, "blobs")
	f.leads(true, b, "aging")
	f.nodes(f.beat(a), saidA+"[sweep]; "+saidB+"[aging blobs]")
	// Renewed, it goes on; else the next one takes it.
	f.age(9 * time.Second)
	f.leads(true, a, "sweep")
	f.beat(b)
	f.age(9 * time.Second)
	f.leads(false, b, "sweep")
	f.nodes(f.beat(a), saidA+"[sweep]; "+saidB+"[]")
	f.age(2 * time.Second)
	f.leads(true, b, "sweep")
	f.leads(false, a, "sweep")
	// Who leaves releases its works and no other's.
	f.leads(true, a, "blobs")
	if err := f.store.Leave(t.Context(), "b", "1"); err != nil {
		t.Fatal(err)
	}
	f.leads(false, b, "sweep")
	f.leads(true, a, "sweep")
	f.nodes(f.beat(a), saidA+"[blobs sweep]")
}

// testLeadRace: of many nodes that ask at once for a free work, exactly one gets it, also
// for a lapsed one, and it keeps it.
func testLeadRace(t *testing.T, f *fixture) {
	const nodes = 8
	for round := range 20 {
		work := fmt.Sprintf("work %d", round/2)
		var mu sync.Mutex
		var leaders []string
		var all sync.WaitGroup
		for i := range nodes {
			n := node(fmt.Sprintf("n%d", i), "1")
			f.join(n)
			all.Go(func() {
				for range 3 {
					got, err := f.store.Lead(t.Context(), work, n.Name, n.Run, 10*time.Second)
					if err != nil {
						t.Error(err)
					}
					if got {
						mu.Lock()
						leaders = append(leaders, n.Name)
						mu.Unlock()
					}
				}
			})
		}
		all.Wait()
		if len(leaders) == 0 {
			t.Fatalf("round %d: no node leads", round)
		}
		for _, name := range leaders {
			if name != leaders[0] {
				t.Fatalf("round %d: %v lead at once", round, leaders)
			}
		}
		f.age(11 * time.Second)
	}
}

func testLeased(t *testing.T, f *fixture) {
	now := f.clock()
	for id, owner := range map[string]string{"1": "a/1", "2": "a/2", "3": "a/1", "4": "a/1"} {
		f.apply(toolkeep.ClaimCall{Invocation: leased(id, toolkeep.CallRunning, owner, now.Add(time.Hour))})
	}
	end := leased("4", toolkeep.CallSucceeded, "a/1", now)
	f.apply(toolkeep.MoveCall{Invocation: end, From: []toolkeep.CallState{toolkeep.CallRunning}})
	f.apply(toolkeep.ClaimCall{Invocation: leased("5", toolkeep.CallRunning, "", time.Time{})})
	list, err := f.store.Invocations().Leased(t.Context(), "a/1", 10)
	if err != nil || len(list) != 2 || list[0].LeaseOwner != "a/1" || list[1].LeaseOwner != "a/1" {
		t.Fatalf("Leased gave %d calls: %v", len(list), err)
	}
	if list, err = f.store.Invocations().Leased(t.Context(), "a/1", 1); err != nil || len(list) != 1 {
		t.Fatalf("Leased gave %d calls of at most one: %v", len(list), err)
	}
}
