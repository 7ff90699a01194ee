package usage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/postgres"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

var ids atomic.Int64 // of calls

// leads lets a test say who leads: several may, as when a lead is lost and not noticed yet.
type leads struct {
	mu   sync.Mutex
	runs map[string]func(context.Context)
	ends map[string]func()
}

// of is the Lead of a node's Config.
func (l *leads) of(node string) func(string, func(context.Context)) {
	return func(_ string, run func(context.Context)) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.runs == nil {
			l.runs, l.ends = map[string]func(context.Context){}, map[string]func(){}
		}
		l.runs[node] = run
	}
}

// give makes a node lead until take.
func (l *leads) give(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ends[node] != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	run := l.runs[node]
	go func() {
		defer close(ended)
		run(ctx)
	}()
	l.ends[node] = func() {
		cancel()
		<-ended
	}
}

// take ends the lead of a node, if it has it.
func (l *leads) take(node string) {
	l.mu.Lock()
	end := l.ends[node]
	delete(l.ends, node)
	l.mu.Unlock()
	if end != nil {
		end()
	}
}

// join starts one of several nodes, which leads when it is told.
func join(t testing.TB, l *leads, s Store, node string, clock func() time.Time) *Usage {
	t.Helper()
	u := New(Config{Store: s, Node: node, Clock: clock, Every: 100 * 365 * day, Lead: l.of(node), Shared: func() bool { return true }})
	if err := u.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.take(node)
		u.Stop()
	})
	return u
}

// calls are the calls of a tool that are known.
func (u *Usage) calls(tool string) int {
	a, _ := u.Analytics("t", tool)
	return a.TotalExecutions
}

// TestThreeNodes: a node shows its own calls at once and those of others within about a minute, reads
// no call of another unless it leads, and never shows less than before.
func TestThreeNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := newMemory(time.Now), &leads{}
		var nodes []*Usage
		for i := range 3 {
			nodes = append(nodes, join(t, l, &member{m, int64(i + 1)}, fmt.Sprint("n", i), time.Now))
		}
		l.give("n0")
		seen := [3]int{}
		for i := range 200 {
			k := i % 3
			apply(t, nodes[k].c.Store, toolkeep.RecordCall{Invocation: callOf(time.Now(), "t", "ann", fmt.Sprint("s", i), fmt.Sprint("a.node", k))})
			synctest.Wait()
			if got := nodes[k].calls(fmt.Sprint("a.node", k)); got != i/3+1 {
				t.Fatalf("node %d has %d of its own %d calls", k, got, i/3+1)
			}
			time.Sleep(700 * time.Millisecond)
			for k, u := range nodes {
				all := u.calls("a.node0") + u.calls("a.node1") + u.calls("a.node2")
				if all < seen[k] {
					t.Fatalf("node %d showed %d calls and shows %d", k, seen[k], all)
				}
				seen[k] = all
			}
		}
		time.Sleep(sharedEvery + 2*readEvery)
		synctest.Wait()
		for k, u := range nodes {
			for tool, want := range []int{67, 67, 66} {
				if got := u.calls(fmt.Sprint("a.node", tool)); got != want {
					t.Errorf("node %d knows of %d calls on node %d", k, got, tool)
				}
			}
			if asOf := u.Report("t", begin, begin, ByTool).AsOf; time.Since(asOf) > 2*sharedEvery {
				t.Errorf("node %d is as of %v", k, asOf)
			}
		}
		if m.read[1] != 133 || m.read[2] != 0 || m.read[3] != 0 {
			t.Errorf("entries of others that were read: %v", m.read)
		}
		if n := m.count(isHead); n < 3 || n > 6 {
			t.Errorf("%d checkpoints", n)
		}
		// Where nothing happens, nothing is written.
		before := m.count(isHead)
		time.Sleep(time.Hour)
		if n := m.count(isHead); n != before {
			t.Errorf("%d checkpoints of nothing", n-before)
		}
		for k, u := range nodes {
			l.take(fmt.Sprint("n", k))
			u.Stop()
		}
	})
}

// TestLeadMoves: whichever node leads, however often that moves, with restarts, two leaders at once and
// checkpoints of both, each entry counts exactly once on every node.
func TestLeadMoves(t *testing.T) {
	t.Run("postgres", func(t *testing.T) {
		dsn, life := pgtest.NewDatabase(t), &life{t: t, r: rand.New(rand.NewPCG(8, 31)), now: begin}
		leadMoves(t, life, 400, func() Store {
			s, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn, Clock: life.clock})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return s
		})
	})
}

func leadMoves(t *testing.T, life *life, n int, open func() Store) {
	r, l := life.r, &leads{}
	one := New(Config{Store: newMemory(life.clock), Clock: life.clock}) // has all entries in one order
	name := func(k int) string { return fmt.Sprint("n", k) }
	start := func(k int) *Usage { return join(t, l, open(), name(k), life.clock) }
	nodes := []*Usage{start(0), start(1), start(2)}
	for i := range n {
		c, k := life.next(), r.IntN(3)
		apply(t, nodes[k].c.Store, c)
		one.fold(*entryOf(t, int64(i+1), life.now, c))
		switch r.IntN(40) {
		case 0:
			l.give(name(k))
		case 1:
			l.take(name(k))
		case 2:
			for j := range nodes {
				l.take(name(j))
			}
			l.give(name(k))
		case 3:
			if err := nodes[k].Checkpoint(t.Context()); err != nil && !lostRace(err) {
				t.Fatal(err)
			}
		case 4:
			l.take(name(k))
			nodes[k].Stop()
			nodes[k] = start(k)
		case 5:
			if err := nodes[k].catchUp(t.Context()); err != nil {
				t.Fatal(err)
			}
		case 6:
			if err := nodes[k].take(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for k := range nodes {
		l.take(name(k))
	}
	settle(t, nodes[0].c.Store, nodes...)
	want := one.counts(t)
	for k, u := range nodes {
		if got := u.counts(t); got != want || len(want) < 2000 {
			t.Errorf("node %d:\n%s\n%s", k, firstDiff(want, got), firstDiff(got, want))
		}
	}
	// And so does the next start, from the checkpoint of any of them.
	if err := nodes[r.IntN(3)].Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	last := join(t, l, open(), "last", life.clock)
	if got := last.counts(t); got != want {
		t.Errorf("after a start: %s\n%s", firstDiff(want, got), firstDiff(got, want))
	}
}

// TestFeedbackOnAnotherNode: feedback reaches a search wherever it was made, and the leader learns
// from it though it may read the feedback first.
func TestFeedbackOnAnotherNode(t *testing.T) {
	onEveryStore(t, func(t *testing.T, _ *life, one, two Store) {
		l := &leads{}
		a, b := join(t, l, one, "a", time.Now), join(t, l, two, "b", time.Now)
		id := a.Retrieved(ann, aSearch("do it"))
		a.writer.write(t.Context(), 1)
		good := 0.9
		for i, f := range []Feedback{{Retrieval: id, Tool: "b.missed", Relevance: &good}, {Session: "s", Query: "Do it", Tool: "a.one", Relevance: &good}} {
			if got, again, err := b.Feedback(t.Context(), ann, f); got != id || again || err != nil {
				t.Fatalf("feedback %d: %q %v %v", i, got, again, err)
			}
		}
		if _, _, err := b.Feedback(t.Context(), &toolkeep.Principal{Subject: "ben", Tenant: "t"}, Feedback{Retrieval: id, Tool: "a.one"}); !toolkeep.IsCode(err, toolkeep.ResourceNotFound) {
			t.Errorf("another user: %v", err)
		}
		settle(t, one, a, b)
		for _, u := range []*Usage{a, b} {
			if got := learned(u); !slices.Equal(got, []string{"do it > a.one 1", "do it > b.missed 1"}) && !slices.Equal(got, []string{"do it > b.missed 1", "do it > a.one 1"}) {
				t.Errorf("%s: %v", u.c.Node, got)
			}
		}
	})
}

// TestFeedbackBeforeItsSearch: in the order of the journal.
func TestFeedbackBeforeItsSearch(t *testing.T) {
	f := newFolder(t)
	f.said("r", "ann", "b.missed", 0.9)
	f.said("r", "ben", "b.other", 0.9) // not his search
	f.searched("r", "ann", "s", "do it", "a.one")
	if got := learned(f.Usage); !slices.Equal(got, []string{"do it > b.missed 1"}) {
		t.Errorf("%v", got)
	}
	x, _ := f.state.tenants.get("t")
	if x.Early.len() != 0 {
		t.Errorf("%d wait still", x.Early.len())
	}
	for i := range maxEarly + 50 {
		f.said(fmt.Sprint("none", i), "ann", "b.missed", 0.9)
	}
	if x.Early.len() != maxEarly {
		t.Errorf("%d wait", x.Early.len())
	}
	f.after(3*day).used("ann", "", "a.one")
	if x.Early.len() != 0 {
		t.Errorf("%d wait for days", x.Early.len())
	}
}

// TestForgetFromAnyNode: the node that is asked forgets at once, the others with the checkpoint that
// it writes, and what another node wrote of the user before and is read later does not come back.
func TestForgetFromAnyNode(t *testing.T) {
	onEveryStore(t, func(t *testing.T, _ *life, one, two Store) {
		l := &leads{}
		a, b := join(t, l, one, "a", time.Now), join(t, l, two, "b", time.Now)
		l.give("a")
		call := func(s Store, user string) {
			apply(t, s, toolkeep.RecordCall{Invocation: callOf(time.Now(), "t", user, "private", "a.one", func(v *toolkeep.Invocation) {
				v.ID = fmt.Sprintf("00000000-0000-7000-8000-%012d", ids.Add(1))
			})})
		}
		for range 3 {
			call(one, "ann")
			call(two, "ann")
		}
		a.Retrieved(ann, aSearch("private words"))
		a.writer.write(t.Context(), 1)
		root := &toolkeep.Principal{Subject: "root", Tenant: "t"}
		if k, err := b.Known(t.Context(), root, "ann"); err != nil || k.Searches != 1 || k.Conversations != 2 {
			t.Errorf("%+v %v", k, err)
		}
		if err := b.Forget(t.Context(), root, "ann"); err != nil {
			t.Fatal(err)
		}
		if s := b.dump(t); strings.Contains(s, "ann") || strings.Contains(s, "private") {
			t.Errorf("the node that was asked: %s", s)
		}
		if err := a.take(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := a.dump(t); strings.Contains(s, "ann") || strings.Contains(s, "private") {
			t.Errorf("the leader: %s", s)
		}
		settle(t, one, a, b)
		for _, u := range []*Usage{a, b} {
			if got := u.calls("a.one"); got != 6 {
				t.Errorf("%s: the numbers of tools stay: %d calls", u.c.Node, got)
			}
		}
	})
}

// TestForgottenInAnyOrder: what another writer wrote before a user was forgotten counts for its tools
// alone, though it is read afterwards; what comes after is the user's again.
func TestForgottenInAnyOrder(t *testing.T) {
	forget := func(at time.Time) *toolkeep.Entry {
		e, err := eventOf(EventForgotten, "t", "", at, forgottenData{UserID: userMark("t", "ann"), By: "root"})
		if err != nil {
			t.Fatal(err)
		}
		return &toolkeep.Entry{Writer: 2, Seq: 1, At: at, Event: &e}
	}
	at := begin.Add(time.Minute)
	before := []toolkeep.Change{searchEvent(t, begin, "t", "r", "ann", "private", "private words", "a.one"),
		toolkeep.RecordCall{Invocation: callOf(begin.Add(time.Second), "t", "ann", "private", "a.one")},
		toolkeep.RecordCall{Invocation: callOf(begin.Add(time.Second), "t", "ann", "", "a.two", failing(toolkeep.UpstreamServerError))}}
	rating := 0.9
	e, err := eventOf(EventFeedback, "t", "", begin.Add(2*time.Second), feedbackData{EventID: "r", UserID: "ann", Tool: "a.one", Relevance: &rating})
	if err != nil {
		t.Fatal(err)
	}
	before = append(before, toolkeep.AppendEvent{Event: e})
	fold := func(first bool) *Usage {
		u := New(Config{Store: newMemory(time.Now), Clock: func() time.Time { return begin }})
		if first {
			u.fold(*forget(at))
		}
		for i, c := range before {
			e := entryOf(t, int64(i+1), begin.Add(time.Duration(i)*time.Second), c)
			e.Writer = 1
			u.fold(*e)
		}
		if !first {
			u.fold(*forget(at))
		}
		return u
	}
	want, got := fold(false), fold(true)
	for _, u := range []*Usage{want, got} {
		if s := u.dump(t); strings.Contains(s, "ann") || strings.Contains(s, "private") {
			t.Error(s)
		}
	}
	if a, b := want.counts(t), got.counts(t); a != b || len(a) < 100 {
		t.Errorf("%s\n%s", a, b)
	}
	later := entryOf(t, 10, at.Add(clocksDiffer+time.Second), before[1])
	later.Writer = 1
	got.fold(*later)
	if !strings.Contains(got.dump(t), "ann") {
		t.Error("what comes after is not the user's")
	}
}

// TestCheckpointOfTheVersionBefore: it has one position, which is that of writer 0.
func TestCheckpointOfTheVersionBefore(t *testing.T) {
	life := &life{t: t, r: rand.New(rand.NewPCG(41, 42)), now: begin}
	m := newMemory(life.clock)
	a := start(t, m, "a", life.clock)
	for range 200 {
		apply(t, m, life.next())
	}
	settle(t, m, a)
	if err := a.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	key := [3]string{KindState, "", headID}
	it := m.items[key]
	it.Body = fmt.Appendf(nil, `{"format":2,"seq":%d,"parts":1}`, a.state.position[0])
	m.items[key] = it
	m.journal[0] = m.journal[0][150:] // retention took the rest
	m.mu.Unlock()
	for range 100 {
		apply(t, m, life.next())
	}
	b := start(t, &member{m, 7}, "b", life.clock)
	settle(t, m, a, b)
	if x, y := a.dump(t), b.dump(t); x != y || len(x) < 5000 {
		t.Errorf("they know different things:\n%s\n%s", firstDiff(x, y), firstDiff(y, x))
	}
}

// TestLeadLost: a run ends with its lead, also while the store answers nothing, and Stop waits for it.
func TestLeadLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &leads{}
		m := newMemory(time.Now)
		u := join(t, l, &stuck{member{m, 1}}, "a", time.Now)
		l.give("a")
		time.Sleep(time.Minute)
		l.take("a")
		l.give("a")
		synctest.Wait()
		u.Stop()
		if err := u.catchUp(t.Context()); !errors.Is(err, errKilled) {
			t.Errorf("the run did not give the journal back: %v", err)
		}
		l.take("a")
	})
}

// stuck is a store that reads no journal until its reader leaves.
type stuck struct{ member }

func (s *stuck) ReadJournal(ctx context.Context, _ toolkeep.JournalPosition, _ int) ([]toolkeep.Entry, toolkeep.JournalPosition, error) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Hour):
	}
	return nil, nil, errKilled
}
