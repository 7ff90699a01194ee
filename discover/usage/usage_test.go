package usage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
	"weak"

	json "github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/store/postgres"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
	"github.com/toolkeep/toolkeep/store/sqlite"
)

// life makes changes like a busy tenant.
type life struct {
	t   testing.TB
	r   *rand.Rand
	now time.Time
	n   int
	at  atomic.Int64 // now, for others
}

// clock is the time of the newest change.
func (l *life) clock() time.Time { return begin.Add(time.Duration(l.at.Load())) }

func (l *life) next() toolkeep.Change {
	l.n++
	l.now = l.now.Add(time.Duration(l.r.IntN(40)) * time.Minute)
	l.at.Store(int64(l.now.Sub(begin)))
	tenant := fmt.Sprint("t", l.r.IntN(2))
	user, session := fmt.Sprint("user", l.r.IntN(4)), ""
	if k := l.r.IntN(5); k > 0 {
		session = fmt.Sprint("s", k)
	}
	tool := func() string { return fmt.Sprint("a.tool", l.r.IntN(15)) }
	switch k := l.r.IntN(20); {
	case k < 5:
		tools := []string{tool(), tool(), tool()}
		slices.Sort(tools)
		return searchEvent(l.t, l.now, tenant, fmt.Sprint("r", l.n), user, session, fmt.Sprint("question ", l.r.IntN(30)), slices.Compact(tools)...)
	case k == 5:
		rel := l.r.Float64()
		e, err := eventOf(EventFeedback, tenant, "", l.now, feedbackData{EventID: fmt.Sprint("r", l.n-l.r.IntN(20)), UserID: user, Tool: tool(), Relevance: &rel})
		if err != nil {
			l.t.Fatal(err)
		}
		return toolkeep.AppendEvent{Event: e}
	case k == 6 && l.r.IntN(20) == 0:
		e, err := eventOf(EventForgotten, tenant, "", l.now, forgottenData{UserID: userMark(tenant, user)})
		if err != nil {
			l.t.Fatal(err)
		}
		return toolkeep.AppendEvent{Event: e}
	}
	v := callOf(l.now, tenant, user, session, tool(), arguments(byte(l.r.IntN(3))))
	v.ID, v.ToolUS = fmt.Sprintf("00000000-0000-7000-8000-%012d", l.n), l.r.Int64N(1_000_000)
	if l.r.IntN(5) == 0 {
		failing(toolkeep.Codes()[l.r.IntN(40)].Code)(v)
	}
	return toolkeep.RecordCall{Invocation: v}
}

// start starts a node whose daily job is never due by the checkpoint's age: test clocks run ahead
// of the timer.
func start(t testing.TB, s Store, node string, clock func() time.Time) *Usage {
	t.Helper()
	u := New(Config{Store: s, Node: node, Clock: clock, Every: 100 * 365 * day})
	if err := u.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.Stop)
	return u
}

func settle(t testing.TB, s Store, us ...*Usage) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, u := range us {
		if err := errors.Join(u.take(ctx), u.feed.Await(ctx, s), u.catchUp(ctx)); err != nil {
			t.Fatal(err)
		}
		u.refresh()
	}
}

func apply(t testing.TB, s Store, changes ...toolkeep.Change) {
	t.Helper()
	if err := s.Apply(t.Context(), changes...); err != nil {
		t.Fatal(err)
	}
}

// TestRestarts: after any number of restarts, from any checkpoint, a node has the same state as one
// that ran all the time: nothing is lost or counted twice.
func TestRestarts(t *testing.T) {
	l := &life{t: t, r: rand.New(rand.NewPCG(1, 2)), now: begin}
	clock := l.clock
	store := newMemory(clock)
	steady := start(t, store, "steady", clock)
	for round := range 25 {
		for range 120 {
			apply(t, store, l.next())
		}
		u := start(t, store, fmt.Sprint("n", round), clock)
		if round%3 == 1 { // and sometimes in the middle of unread changes
			settle(t, store, u)
			if err := u.Checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
			apply(t, store, l.next(), l.next())
		}
		u.Stop()
	}
	settle(t, store, steady)
	last := start(t, store, "last", clock)
	settle(t, store, steady, last)
	if n := store.count(isHead); n != 8 {
		t.Errorf("%d checkpoints", n)
	}
	a, b := steady.dump(t), last.dump(t)
	if a != b || len(a) < 10_000 {
		t.Errorf("they know different things:\n%s\n%s", firstDiff(a, b), firstDiff(b, a))
	}
	for _, tenant := range []string{"t0", "t1"} {
		if x, y := steady.Examples(tenant), last.Examples(tenant); !slices.Equal(x, y) || len(x) == 0 {
			t.Errorf("%s: %v and %v", tenant, x, y)
		}
		for i := range 15 {
			tool := fmt.Sprint("a.tool", i)
			x, ok := steady.Analytics(tenant, tool)
			if y, _ := last.Analytics(tenant, tool); !reflect.DeepEqual(x, y) || !ok {
				t.Errorf("%s %s: %+v and %+v", tenant, tool, x, y)
			}
			if x, y := steady.SuccessRates(tenant, []string{tool}), last.SuccessRates(tenant, []string{tool}); !slices.Equal(x, y) || x[0] < 0 {
				t.Errorf("%s %s: %v and %v", tenant, tool, x, y)
			}
			if x, y := steady.Pairings(tenant, tool, 10), last.Pairings(tenant, tool, 10); !slices.Equal(x, y) {
				t.Errorf("%s %s: %+v and %+v", tenant, tool, x, y)
			}
		}
	}
}

func firstDiff(a, b string) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return a[max(0, i-100):min(len(a), i+100)]
		}
	}
	return fmt.Sprint(len(a), " bytes")
}

// TestCheckpointWithoutItsParts: unreadable parts are skipped, and the feed is folded.
func TestCheckpointWithoutItsParts(t *testing.T) {
	for name, harm := range map[string]func(m *memory){
		"part gone": func(m *memory) {
			for key := range m.items {
				if key[0] == KindState && key[2] != headID {
					delete(m.items, key)
					return
				}
			}
		},
		"part broken": func(m *memory) {
			for key, it := range m.items {
				if key[0] == KindState && key[2] != headID {
					it.Body = it.Body[:len(it.Body)/2]
					m.items[key] = it
				}
			}
		},
		"format of tomorrow": func(m *memory) {
			it := m.items[[3]string{KindState, "", headID}]
			it.Body = []byte(strings.Replace(string(it.Body), `"format":3`, `"format":4`, 1))
			m.items[[3]string{KindState, "", headID}] = it
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := &life{t: t, r: rand.New(rand.NewPCG(3, 4)), now: begin}
			clock := l.clock
			store := newMemory(clock)
			a := start(t, store, "a", clock)
			for range 200 {
				apply(t, store, l.next())
			}
			settle(t, store, a)
			if err := a.Checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
			store.mu.Lock()
			harm(store)
			store.mu.Unlock()
			b := start(t, store, "b", clock)
			settle(t, store, a, b)
			if a.dump(t) != b.dump(t) {
				t.Error("they know different things")
			}
			// And the next checkpoint is complete again.
			if err := b.Checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
			c := start(t, store, "c", clock)
			settle(t, store, b, c)
			if b.dump(t) != c.dump(t) {
				t.Error("after another checkpoint: different things")
			}
		})
	}
}

// TestStores: two nodes on one real store have the same state.
func TestStores(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		l := &life{t: t, r: rand.New(rand.NewPCG(7, 8)), now: begin}
		s, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "db"), Clock: l.clock})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		agree(t, l, s, s)
	})
	t.Run("postgres", func(t *testing.T) {
		dsn := pgtest.NewDatabase(t)
		l := &life{t: t, r: rand.New(rand.NewPCG(9, 10)), now: begin}
		open := func(node string) Store {
			s, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn, Node: node, Clock: l.clock})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return s
		}
		agree(t, l, open("one"), open("two"))
	})
}

func agree(t *testing.T, l *life, one, two Store) {
	clock := func() time.Time { return begin }
	a := start(t, one, "a", clock)
	var b *Usage
	for i := range 300 {
		apply(t, []Store{one, two}[i%2], l.next())
		switch i {
		case 100:
			b = start(t, two, "b", clock)
		case 200: // b stops and restarts, on a's checkpoint
			settle(t, one, a)
			if err := a.Checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.Stop()
		case 250:
			b = start(t, two, "b2", clock)
		}
	}
	settle(t, two, a, b)
	if x, y := a.known(t), b.known(t); x != y || len(x) < 4000 {
		t.Errorf("they know different things:\n%s\n%s", firstDiff(x, y), firstDiff(y, x))
	}
}

func isHead(c toolkeep.Change) bool {
	p, ok := c.(toolkeep.PutDocument)
	return ok && p.Document.Kind == KindState && p.Document.ID == headID
}

// TestDailyJob: one of two nodes runs the job, ten minutes after the first start and then once a
// day, and the other takes over when it is gone.
func TestDailyJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(time.Now)
		run := func(node string) *Usage {
			u := New(Config{Store: store, Node: node, Keep: 5 * day})
			if err := u.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			return u
		}
		a, b := run("a"), run("b")
		apply(t, store, toolkeep.RecordCall{Invocation: callOf(time.Now(), "t", "ann", "s", "a.one")})
		// Old calls leave with the job even without new events.
		heads := func(want int) {
			t.Helper()
			synctest.Wait()
			if n := store.count(isHead); n != want {
				t.Errorf("after %v: %d checkpoints, want %d", time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)), n, want)
			}
		}
		time.Sleep(firstAfter - time.Second)
		heads(0)
		time.Sleep(2 * time.Second)
		heads(1)
		time.Sleep(day + time.Second)
		heads(2)
		a.Stop()
		time.Sleep(3 * (day + time.Second))
		heads(5)
		if parts := store.stored(); parts > 3 { // the head, one part, the training
			t.Errorf("%d items are left", parts)
		}
		time.Sleep(3 * day)
		if got := b.Report("t", time.Now().Add(-60*day), time.Now(), ByTool); len(got.Rows) != 0 {
			t.Errorf("%+v", got.Rows)
		}
		b.Stop()
	})
}

// TestJobThatFails: a failed job is retried.
func TestJobThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(time.Now)
		u := start(t, store, "a", time.Now)
		apply(t, store, toolkeep.RecordCall{Invocation: callOf(time.Now(), "t", "ann", "s", "a.one")})
		store.refusing(errors.New("away"))
		time.Sleep(firstAfter + time.Second)
		store.refusing(nil)
		time.Sleep(retryAfter + time.Second)
		synctest.Wait()
		if n := store.count(isHead); n != 1 {
			t.Errorf("%d checkpoints", n)
		}
		u.Stop()
	})
}

func aSearch(query string) Retrieval {
	return Retrieval{Query: query, Strategy: "hybrid", Session: discover.Session{Tenant: "t", Subject: "ann", ID: "s"},
		Tools: []Offered{{Tool: "a.one", Parts: discover.Parts{Semantic: 0.51239, Keyword: 1}}}, Took: 12 * time.Millisecond, Face: "rest", Agent: "curl/8"}
}

var ann = &toolkeep.Principal{Subject: "ann", Tenant: "t", Addr: "203.0.113.7"}

// TestRecordsOfOddBytes: invalid UTF-8 does not prevent a record.
func TestRecordsOfOddBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(time.Now)
		u := New(Config{Store: store})
		if err := u.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		r := aSearch("caf\xe9 nearby")
		r.Agent, r.Session.ID = "Caf\xe9/1", "s\xff"
		u.Retrieved(ann, r)
		u.Stop()
		var d retrievedData
		if s := u.Stats(); s.Written != 1 || s.Dropped != 0 {
			t.Fatalf("%+v", s)
		}
		if err := json.Unmarshal(store.changes[0].(toolkeep.AppendEvent).Event.Data, &d); err != nil {
			t.Fatal(err)
		}
		if d.Query != "caf\uFFFD nearby" || d.Agent != "Caf\uFFFD/1" || d.SessionID != "s\uFFFD" {
			t.Errorf("%+v", d)
		}
	})
}

// TestUnlearned: a search of which nothing is to be learned is in the journal, and changes nothing.
func TestUnlearned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(time.Now)
		u := start(t, store, "a", time.Now)
		before := u.dump(t)
		r := aSearch("browse")
		r.Unlearned = true
		if id := u.Retrieved(ann, r); id != "" {
			t.Errorf("feedback could name it: %s", id)
		}
		u.writer.write(t.Context(), 1)
		settle(t, store, u)
		if u.Stats().Written != 1 || u.dump(t) != before {
			t.Errorf("%+v\n%s", u.Stats(), firstDiff(before, u.dump(t)))
		}
		u.Retrieved(ann, aSearch("browse"))
		u.writer.write(t.Context(), 1)
		settle(t, store, u)
		if u.dump(t) == before {
			t.Error("the test does not see what is learned")
		}
	})
}

// TestRecordsInBatches: at most a hundred, and none waits for more than a second.
func TestRecordsInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(time.Now)
		u := start(t, store, "a", time.Now)
		u.Retrieved(ann, aSearch("x"))
		time.Sleep(writeEvery - time.Millisecond)
		synctest.Wait()
		if len(store.sizes()) != 0 {
			t.Errorf("too early: %v", store.sizes())
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		for range 250 {
			u.Retrieved(ann, aSearch("x"))
		}
		synctest.Wait()
		if !slices.Equal(store.sizes(), []int{1, 100, 100}) {
			t.Errorf("%v", store.sizes())
		}
		time.Sleep(writeEvery)
		synctest.Wait()
		u.Retrieved(ann, aSearch("x"))
		u.Stop() // writes the rest
		if !slices.Equal(store.sizes(), []int{1, 100, 100, 50, 1}) {
			t.Errorf("%v", store.sizes())
		}
		if s := u.Stats(); s.Written != 252 || s.Dropped != 0 || u.Health(t.Context()) != nil {
			t.Errorf("%+v", s)
		}
	})
}

// TestRecordsOfABusyTime: an unavailable store delays no caller; dropped events are counted and
// reported for a while.
func TestRecordsOfABusyTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(time.Now)
		u := start(t, store, "a", time.Now)
		store.refusing(errors.New("away"))
		for range waiting + 500 {
			u.Retrieved(ann, aSearch("x"))
			synctest.Wait()
		}
		s := u.Stats()
		if s.Dropped != 500 || u.Health(t.Context()) == nil {
			t.Errorf("%+v, %v", s, u.Health(t.Context()))
		}
		store.refusing(nil)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if s := u.Stats(); s.Written != waiting || s.Waiting != 0 {
			t.Errorf("%+v", s)
		}
		if time.Sleep(lossTold); u.Health(t.Context()) != nil {
			t.Errorf("told for ever: %v", u.Health(t.Context()))
		}
		store.refusing(errors.New("away for good"))
		u.Retrieved(ann, aSearch("x"))
		if u.Stop(); u.Stats().Dropped != 501 {
			t.Errorf("%+v", u.Stats())
		}
	})
}

// TestWhatIsRecorded: the fields of Discovery 7.1 and 10.3, without secrets, cut to
// size.
func TestWhatIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, off := range []bool{false, true} {
			store := newMemory(time.Now)
			u := New(Config{Store: store, NoHistory: off, Clean: func(s string) string { return strings.ReplaceAll(s, "s3cr3t", "***") }})
			if err := u.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			r := aSearch("with s3cr3t " + strings.Repeat("é", 600))
			for i := range 70 {
				r.Tools = append(r.Tools, Offered{Tool: fmt.Sprint("b.tool", i)})
			}
			id := u.Retrieved(ann, r)
			u.Stop()
			e := store.changes[0].(toolkeep.AppendEvent).Event
			var d retrievedData
			if err := json.Unmarshal(e.Data, &d); err != nil {
				t.Fatal(err)
			}
			if e.ID != id || e.Type != EventRetrieved || e.Tenant != "t" || d.EventID != id || d.UserID != "ann" || d.AgentDID != "ann" || d.SessionID != "s" ||
				d.Strategy != "hybrid" || len(d.Tools) != maxOffered || d.Found != 71 || d.Parts[0] != [5]float64{0.5124, 1} || d.TookMS != 12 || d.Face != "rest" ||
				d.Address != "203.0.113.7" || d.Agent != "curl/8" {
				t.Errorf("%+v %+v", e, d)
			}
			if off && d.Query != "" || !off && (!strings.HasPrefix(d.Query, "with *** éé") || len(d.Query) > maxQuery || !strings.HasSuffix(d.Query, "é")) {
				t.Errorf("history off %v: %q", off, d.Query)
			}
		}
	})
}

func TestFeedback(t *testing.T) {
	store := newMemory(time.Now)
	u := start(t, store, "a", time.Now)
	id := u.Retrieved(ann, aSearch("Do  it"))
	good, yes := 0.9, true
	say := func(p *toolkeep.Principal, f Feedback) (string, bool) {
		t.Helper()
		got, again, err := u.Feedback(t.Context(), p, f)
		if err != nil {
			t.Fatal(err)
		}
		settle(t, store, u)
		return got, again
	}
	// The search was recorded a moment ago, and waits to be written.
	if got, again := say(ann, Feedback{Retrieval: id, Tool: "a.one", Relevance: &good, Success: &yes}); got != id || again {
		t.Errorf("%s %v", got, again)
	}
	if _, again := say(ann, Feedback{Retrieval: id, Tool: "a.one", Relevance: &good, Success: &yes}); !again {
		t.Error("the same again was recorded")
	}
	if got, again := say(ann, Feedback{Session: "s", Query: "do it", Relevance: &good}); got != id || again {
		t.Errorf("by its query: %s %v", got, again)
	}
	if n := store.count(func(c toolkeep.Change) bool {
		e, ok := c.(toolkeep.AppendEvent)
		return ok && e.Event.Type == EventFeedback
	}); n != 2 {
		t.Errorf("%d events", n)
	}
	for _, f := range []Feedback{{Retrieval: "x", Tool: "a.one"}, {Session: "x", Query: "do it", Tool: "a.one"}, {Query: "do it", Tool: "a.one"}, {Session: "s", Query: "do", Tool: "a.one"}} {
		if _, _, err := u.Feedback(t.Context(), ann, f); !toolkeep.IsCode(err, toolkeep.ResourceNotFound) {
			t.Errorf("%+v: %v", f, err)
		}
	}
	for _, p := range []*toolkeep.Principal{{Subject: "ben", Tenant: "t"}, {Subject: "ann", Tenant: "u"}} {
		if _, _, err := u.Feedback(t.Context(), p, Feedback{Retrieval: id, Tool: "a.one"}); !toolkeep.IsCode(err, toolkeep.ResourceNotFound) {
			t.Errorf("%+v: %v", p, err)
		}
	}
	if got := learned(u); !slices.Equal(got, []string{"do it > a.one 1"}) {
		t.Errorf("%v", got)
	}
	for _, want := range []bool{false, true} { // a tool that was not offered
		if _, again := say(ann, Feedback{Retrieval: id, Tool: "b.one", Relevance: &good}); again != want {
			t.Errorf("said before: %v, want %v", again, want)
		}
	}
	if got := learned(u); !slices.Equal(got, []string{"do it > b.one 1", "do it > a.one 1"}) {
		t.Errorf("%v", got)
	}
}

// TestForgetOnAllNodes also covers a node that starts later, from the checkpoint.
func TestForgetOnAllNodes(t *testing.T) {
	store := newMemory(time.Now)
	a, b := start(t, store, "a", time.Now), start(t, store, "b", time.Now)
	apply(t, store, toolkeep.RecordCall{Invocation: callOf(time.Now(), "t", "ann", "s", "a.one")})
	a.Retrieved(ann, aSearch("private words"))
	settle(t, store, a, b)
	if err := b.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, mark := b.MapsQuestions("t"); mark != 0 {
		t.Errorf("a mark of %d before a user was forgotten", mark)
	}
	if err := a.Forget(t.Context(), &toolkeep.Principal{Subject: "root", Tenant: "t"}, "ann"); err != nil {
		t.Fatal(err)
	}
	if _, mark := a.MapsQuestions("t"); mark == 0 || len(a.Examples("t")) != 0 {
		t.Errorf("a map that was learned from the user's questions is still used, mark %d, %v", mark, a.Examples("t"))
	}
	c := start(t, store, "c", time.Now)
	settle(t, store, a, b, c)
	for i, u := range []*Usage{a, b, c} {
		if s := u.dump(t); strings.Contains(s, "ann") || strings.Contains(s, "private") {
			t.Errorf("node %d: %s", i, s)
		}
		if _, mark := u.MapsQuestions("t"); mark == 0 {
			t.Errorf("node %d does not know that a map of before is over", i)
		}
	}
	if n := store.count(isHead); n != 2 {
		t.Errorf("%d checkpoints", n)
	}
	if n := store.stored(); n != 2 { // the head and one part
		t.Errorf("%d items are left", n)
	}
	if n := store.count(func(c toolkeep.Change) bool {
		e, ok := c.(toolkeep.AppendEvent)
		return ok && e.Event.Type == EventForgotten && e.Event.Person == "ann" && !strings.Contains(string(e.Event.Data), "ann")
	}); n != 1 {
		t.Errorf("%d events that do not name the user", n)
	}
}

// TestTogether: readers, faces and the fold at the same time.
func TestTogether(t *testing.T) {
	l := &life{t: t, r: rand.New(rand.NewPCG(11, 12)), now: begin}
	var changes []toolkeep.Change
	for range 1500 {
		changes = append(changes, l.next())
	}
	store := newMemory(time.Now)
	u := start(t, store, "a", func() time.Time { return begin })
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for k := range 4 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				tenant, user, tool := fmt.Sprint("t", i%2), fmt.Sprint("user", i%4), fmt.Sprint("a.tool", i%15)
				h := u.History(discover.Session{Tenant: tenant, Subject: user, ID: fmt.Sprint("s", i%5)})
				_, _ = len(h.Paired), len(h.Preferred)
				u.SuccessRates(tenant, []string{tool})
				u.Examples(tenant)
				u.Weights(tenant)
				u.Pairings(tenant, tool, 5)
				if k == 0 {
					u.Analytics(tenant, tool)
					u.Report(tenant, begin, begin.Add(30*day), ByTool)
					u.Retrieved(ann, aSearch("x"))
					u.Stats()
				}
			}
		})
	}
	for i, c := range changes {
		apply(t, store, c)
		if i%500 == 0 {
			if err := u.Checkpoint(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	stop()
	wg.Wait()
	settle(t, store, u) // not before: searches would go on coming
}

// TestHistorySwitchedOff: earlier queries are removed too, counts stay.
func TestHistorySwitchedOff(t *testing.T) {
	clock := func() time.Time { return begin.Add(time.Hour) }
	store := newMemory(clock)
	a := start(t, store, "a", clock)
	ask := func(id string) {
		apply(t, store, searchEvent(t, begin, "t", id, "ann", id, "private words", "a.one"))
		apply(t, store, toolkeep.RecordCall{Invocation: callOf(begin.Add(time.Second), "t", "ann", id, "a.one")})
	}
	ask("s1")
	settle(t, store, a)
	if err := a.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	ask("s2")
	b := New(Config{Store: store, NoHistory: true, Clock: clock})
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	settle(t, store, a, b)
	if len(learned(a)) != 1 || len(learned(b)) != 0 || strings.Contains(b.dump(t), "private") {
		t.Errorf("%v, %v", learned(a), learned(b))
	}
	if r := b.Report("t", begin, begin, ByStrategy); len(r.Rows) != 1 || r.Rows[0].Chosen != 2 {
		t.Errorf("%+v", r.Rows)
	}
}

// TestQuestionIsLetGo holds of a search that waits to be written no more than is read of its question.
func TestQuestionIsLetGo(t *testing.T) {
	u := New(Config{Store: newMemory(time.Now)})
	text := []byte(strings.Repeat("words ", 100_000))
	held := weak.Make(&text[0])
	u.Retrieved(ann, Retrieval{Query: unsafe.String(&text[0], len(text)), Agent: unsafe.String(&text[0], len(text))})
	text = nil
	runtime.GC()
	if held.Value() != nil {
		t.Error("the question is still held")
	}
	e, err := u.writer.queue[0]()
	if err != nil || !strings.Contains(string(e.Data), `"query":"words words`) {
		t.Errorf("%s, %v", e.Data, err)
	}
}
