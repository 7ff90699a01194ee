package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/toolkeep/toolkeep"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeStore has the rules of toolkeep.Members, a clock of its own, and faults for each node.
type fakeStore struct {
	mu    sync.Mutex
	ahead time.Duration // of its clock
	fail  map[string]bool
	slow  map[string]time.Duration // until a node's request is answered
	nodes map[string]toolkeep.NodeState
	leads map[string]fakeLead
}

type fakeLead struct {
	owner string
	until time.Time
}

func newStore() *fakeStore {
	return &fakeStore{fail: map[string]bool{}, slow: map[string]time.Duration{}, nodes: map[string]toolkeep.NodeState{}, leads: map[string]fakeLead{}}
}

var errAway = errors.New("the store is away")

// do runs f as one request: it is carried out at once and answered later.
func (s *fakeStore) do(ctx context.Context, name string, f func(now time.Time) error) error {
	s.mu.Lock()
	if s.fail[name] {
		s.mu.Unlock()
		return errAway
	}
	err, slow := f(time.Now().Add(s.ahead)), s.slow[name]
	s.mu.Unlock()
	if slow > 0 && !toolkeep.Sleep(ctx, slow) {
		return ctx.Err()
	}
	return err
}

func (s *fakeStore) Join(ctx context.Context, n toolkeep.NodeState) (before *toolkeep.NodeState, err error) {
	err = s.do(ctx, n.Name, func(now time.Time) error {
		if was, ok := s.nodes[n.Name]; ok && was.Run != n.Run {
			before = &was
		}
		n.SeenAt = now
		s.nodes[n.Name] = n
		return nil
	})
	return before, err
}

func (s *fakeStore) Beat(ctx context.Context, n toolkeep.NodeState) (list []toolkeep.NodeState, at time.Time, err error) {
	err = s.do(ctx, n.Name, func(now time.Time) error {
		if was, ok := s.nodes[n.Name]; ok && was.Run != n.Run {
			return toolkeep.ErrStale
		}
		n.SeenAt, at = now, now
		s.nodes[n.Name] = n
		for _, o := range s.nodes {
			if now.Sub(o.SeenAt) < toolkeep.NodeGone {
				list = append(list, o)
			}
		}
		slices.SortFunc(list, func(a, b toolkeep.NodeState) int { return strings.Compare(a.Name, b.Name) })
		return nil
	})
	return list, at, err
}

func (s *fakeStore) Leave(ctx context.Context, name, run string) error {
	return s.do(ctx, name, func(time.Time) error {
		if s.nodes[name].Run == run {
			delete(s.nodes, name)
		}
		for w, l := range s.leads {
			if l.owner == owner(name, run) {
				delete(s.leads, w)
			}
		}
		return nil
	})
}

func (s *fakeStore) Lead(ctx context.Context, work, name, run string, period time.Duration) (got bool, err error) {
	err = s.do(ctx, name, func(now time.Time) error {
		if has := s.leads[work]; s.nodes[name].Run == run && (has.owner == owner(name, run) || !has.until.After(now)) {
			s.leads[work], got = fakeLead{owner(name, run), now.Add(period)}, true
		}
		return nil
	})
	return got, err
}

func (s *fakeStore) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func start(t *testing.T, s *fakeStore, c Config) *Members {
	t.Helper()
	m := New(c)
	if err := m.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return m
}

func self(name, run string) Config {
	return Config{Self: toolkeep.NodeState{Name: name, Run: run, Version: "1"}}
}

func names(m *Members) string {
	list, _ := m.Live()
	var out []string
	for _, n := range list {
		out = append(out, owner(n.Name, n.Run))
	}
	return strings.Join(out, " ")
}

// leaders counts who does a work at the moment; two at once is the error.
type leaders struct {
	t   *testing.T
	mu  sync.Mutex
	now []string
	log []string
}

func (l *leaders) work(name string) func(context.Context) {
	return func(ctx context.Context) {
		l.mu.Lock()
		l.now, l.log = append(l.now, name), append(l.log, name)
		if len(l.now) > 1 {
			l.t.Errorf("%v do the same work at once", l.now)
		}
		l.mu.Unlock()
		<-ctx.Done()
		l.mu.Lock()
		l.now = slices.DeleteFunc(l.now, func(n string) bool { return n == name })
		l.mu.Unlock()
	}
}

func (l *leaders) who() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.now, " ")
}

func TestNodesKnowEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.ahead = 7 * time.Second
		var url atomic.Value
		url.Store("")
		ca := self("a", "1")
		ca.URL = func() string { return url.Load().(string) }
		a, b := start(t, s, ca), start(t, s, self("b", "1"))
		if names(a) != "a/1" || names(b) != "a/1 b/1" {
			t.Errorf("a knows %q, b %q", names(a), names(b))
		}
		var beats atomic.Int64
		a.Tell(t.Context(), func() any { return map[string]any{"seal": "x"} }, func() { beats.Add(1) })
		if n := beats.Load(); n != 1 {
			t.Errorf("%d beats were told of, want that of Tell", n)
		}
		url.Store("http://a:1")
		time.Sleep(2*beatEvery + time.Millisecond)
		if names(a) != "a/1 b/1" {
			t.Errorf("a knows %q after a beat", names(a))
		}
		list, age := b.Live()
		if list[0].URL != "http://a:1" || string(list[0].Data) != `{"seal":"x"}` || age > beatEvery {
			t.Errorf("b knows %+v of a, %s ago", list[0], age)
		}
		if d, within, known := a.ClockDifference(); !known || d != 7*time.Second || within != 0 {
			t.Errorf("the store's clock is ahead by %s ± %s, %t", d, within, known)
		}
		for n, want := range map[*Members][2]int{a: {0, 2}, b: {1, 2}} {
			if rank, of := n.Rank(); rank != want[0] || of != want[1] {
				t.Errorf("the rank of %s is %d of %d", n.c.Self.Name, rank, of)
			}
		}
		// A node that dies is gone after 15 s, one that leaves with its next beat.
		s.set(func() { s.fail["b"] = true })
		time.Sleep(toolkeep.NodeGone + beatEvery)
		if names(a) != "a/1" {
			t.Errorf("a knows %q after b died", names(a))
		}
		if _, age := b.Live(); age < toolkeep.NodeGone {
			t.Errorf("b's list is %s old, and the store does not answer it", age)
		}
		s.set(func() { s.fail["b"] = false })
		time.Sleep(2 * beatEvery)
		if names(a) != "a/1 b/1" || a.Health(t.Context()) != nil {
			t.Errorf("a knows %q after b came back", names(a))
		}
		b.Stop()
		b.Stop()
		time.Sleep(beatEvery)
		if names(a) != "a/1" {
			t.Errorf("a knows %q after b left", names(a))
		}
		a.Stop()
	})
}

// TestClockOfSlowStore: a slow answer says nothing of the clock while a quick one of the last minute does.
func TestClockOfSlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		a := start(t, s, self("a", "1"))
		s.set(func() { s.slow["a"] = 4 * time.Second })
		time.Sleep(3 * beatEvery)
		if d, within, _ := a.ClockDifference(); d != 0 || within != 0 {
			t.Errorf("the clock is ahead by %s ± %s", d, within)
		}
		s.set(func() { s.ahead = 30 * time.Second })
		time.Sleep(clockAge + 2*beatLimit)
		if d, within, _ := a.ClockDifference(); d-within > 30*time.Second || d+within < 30*time.Second || within == 0 {
			t.Errorf("after a minute of slow answers the clock is ahead by %s ± %s, want 30s", d, within)
		}
		s.set(func() { s.slow["a"] = 0 })
		time.Sleep(2 * beatLimit)
		if d, within, _ := a.ClockDifference(); d != 30*time.Second || within != 0 {
			t.Errorf("after a quick answer the clock is ahead by %s ± %s", d, within)
		}
		a.Stop()
	})
}

func TestTwoProcessesOfOneName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		c := self("a", "1")
		c.Place = "here"
		first := start(t, s, c)
		l := &leaders{t: t}
		first.Lead("sweep", l.work("first"))
		synctest.Wait()
		c = self("a", "2")
		c.Place = "a copy of the directory"
		second := start(t, s, c)
		if second.Earlier() != "" {
			t.Errorf("%s takes up what %s holds, which lives", second.Owner(), second.Earlier())
		}
		second.Lead("sweep", l.work("second"))
		time.Sleep(beatEvery + time.Millisecond)
		if err := first.Health(t.Context()); err == nil || !strings.Contains(err.Error(), "node.name") {
			t.Errorf("the first process says %v", err)
		}
		if err := second.Health(t.Context()); err != nil {
			t.Errorf("the second process says %v", err)
		}
		time.Sleep(leadFor + leadEvery)
		if l.who() != "second" {
			t.Errorf("%q leads", l.who())
		}
		first.Stop()
		if _, err := s.Lead(t.Context(), "sweep", "a", "2", leadFor); err != nil || len(s.nodes) != 1 {
			t.Errorf("the first process took the second one along: %v", s.nodes)
		}
		second.Stop()
	})
}

// TestRestart: a node that died takes up its own at once, if its data directory shows that
// it is dead.
func TestRestart(t *testing.T) {
	for place, atOnce := range map[string]bool{"here": true, "elsewhere": false, "": false} {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			run, die := context.WithCancel(t.Context())
			c := self("a", "1")
			c.Place = "here"
			dead := New(c)
			if err := dead.Start(run, s); err != nil {
				t.Fatal(err)
			}
			if ok, err := s.Lead(t.Context(), "sweep", "a", "1", leadFor); !ok || err != nil {
				t.Fatal(ok, err)
			}
			dead.end() // without a goodbye
			dead.beats.Wait()
			die()
			c = self("a", "2")
			c.Place = place
			again := start(t, s, c)
			want := ""
			if atOnce {
				want = "a/1"
			}
			if again.Earlier() != want {
				t.Errorf("in %q: takes up what %q holds", place, again.Earlier())
			}
			again.Lead("sweep", func(ctx context.Context) { <-ctx.Done() })
			synctest.Wait()
			if again.Leads("sweep") != atOnce {
				t.Errorf("in %q: leads at once: %t", place, again.Leads("sweep"))
			}
			time.Sleep(leadFor + leadEvery)
			if !again.Leads("sweep") {
				t.Errorf("in %q: does not lead after the lead has lapsed", place)
			}
			again.Stop()
		})
	}
}

func TestLeadMoves(t *testing.T) {
	for what, end := range map[string]func(s *fakeStore, m *Members, name string){
		"dies":                 func(s *fakeStore, m *Members, name string) { s.set(func() { s.fail[name] = true }) },
		"is not answered":      func(s *fakeStore, m *Members, name string) { s.set(func() { s.slow[name] = time.Hour }) },
		"is answered too late": func(s *fakeStore, m *Members, name string) { s.set(func() { s.slow[name] = leadFor }) },
		"stops":                func(s *fakeStore, m *Members, name string) { m.Stop() },
		"is asked to yield":    func(s *fakeStore, m *Members, name string) { m.Yield() },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l := newStore(), &leaders{t: t}
				all := map[string]*Members{}
				for i := range 3 {
					name := fmt.Sprintf("n%d", i)
					all[name] = start(t, s, self(name, "1"))
					all[name].Lead("sweep", l.work(name))
				}
				// A lead is renewed for as long as its node lives.
				synctest.Wait()
				first := l.who()
				time.Sleep(10 * time.Minute)
				if len(l.log) != 1 || l.who() != first || first == "" || !all[first].Leads("sweep") {
					t.Fatalf("%v led in turn, %q leads", l.log, l.who())
				}
				end(s, all[first], first)
				within := 15 * time.Second
				if strings.Contains(what, "answered") { // the store goes on renewing the lead until the node gives it up
					within = 25 * time.Second
				}
				time.Sleep(within)
				second := l.who()
				if second == first || second == "" || all[first].Leads("sweep") || !all[second].Leads("sweep") {
					t.Errorf("after %s %q leads, and %q did", within, second, first)
				}
				s.set(func() { clear(s.fail); clear(s.slow) })
				time.Sleep(time.Minute)
				if l.who() != second {
					t.Errorf("%q leads, and %q did and lives", l.who(), second)
				}
				for _, m := range all {
					m.Stop()
				}
				if l.who() != "" || len(s.leads) != 0 || len(s.nodes) != 0 {
					t.Errorf("all have stopped, and %q leads; the store has %v, %v", l.who(), s.leads, s.nodes)
				}
			})
		})
	}
}

// TestLeadLapsesAlone: the store answers no node any more. Each work ends before its lead
// lapses by the store's clock, whatever that clock shows.
func TestLeadLapsesAlone(t *testing.T) {
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			s.ahead = ahead
			a := start(t, s, self("a", "1"))
			ended := make(chan time.Time, 1)
			a.Lead("sweep", func(ctx context.Context) { <-ctx.Done(); ended <- time.Now().Add(s.ahead) })
			time.Sleep(time.Minute + time.Second)
			s.set(func() { s.fail["a"] = true })
			at := <-ended
			if until := s.leads["sweep"].until; at.After(until.Add(-leadSlack)) {
				t.Errorf("the work ended at %s, its lead at %s", at, until)
			}
			s.set(func() { s.fail["a"] = false })
			a.Stop()
		})
	}
}

// TestLeadSurvives: a work that returns or panics is called again, and nothing else ends.
func TestLeadSurvives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		a := start(t, s, self("a", "1"))
		var mu sync.Mutex
		calls := 0
		a.Lead("sweep", func(context.Context) {
			mu.Lock()
			defer mu.Unlock()
			if calls++; calls == 1 {
				panic("boom")
			}
		})
		time.Sleep(time.Minute)
		mu.Lock()
		if calls < 3 {
			t.Errorf("%d calls in a minute", calls)
		}
		mu.Unlock()
		a.Stop()
	})
}

func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		a := start(t, s, self("a", "1"))
		var mu sync.Mutex
		calls := 0
		a.Lead("sweep", Every(time.Minute, a.c.Log, func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			calls++
			return errAway
		}))
		time.Sleep(10*time.Minute + time.Second)
		a.Yield()
		if calls != 11 {
			t.Errorf("%d calls in 10 minutes, want one each and one at once", calls)
		}
		a.Stop()
	})
}

// TestNamesAskForNoFacts: what is asked often does not gather what a node says of itself.
func TestNamesAskForNoFacts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		a, b := start(t, s, self("a", "1")), start(t, s, self("b", "1"))
		var asked atomic.Int64
		b.Tell(t.Context(), func() any { asked.Add(1); return map[string]any{} }, func() {})
		told := asked.Load()
		names, age := b.Names()
		rank, of := b.Rank()
		if !slices.Equal(names, []string{"a", "b"}) || age > beatEvery || rank != 1 || of != 2 || !b.Shared() {
			t.Errorf("%v, %s ago, %d of %d, shared %t", names, age, rank, of, b.Shared())
		}
		if n := asked.Load() - told; n != 0 {
			t.Errorf("the node was asked %d times for its facts", n)
		}
		if names, _ := New(self("c", "1")).Names(); names != nil {
			t.Errorf("before the first beat there are %v", names)
		}
		a.Stop()
		b.Stop()
	})
}

func TestTooMuchToSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		a := start(t, s, self("a", "1"))
		a.Tell(t.Context(), func() any { return map[string]any{"x": strings.Repeat("x", toolkeep.MaxNodeData)} }, func() {})
		if list, _ := a.Live(); len(list) != 1 || len(list[0].Data) > 100 {
			t.Errorf("it says %v", list)
		}
		a.Stop()
	})
}

func TestStoreAwayAtStart(t *testing.T) {
	s := newStore()
	s.fail["a"] = true
	a := New(self("a", "1"))
	if err := a.Start(t.Context(), s); !errors.Is(err, errAway) {
		t.Errorf("Start gave %v", err)
	}
	a.Stop()
}
