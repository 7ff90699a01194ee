package overload

import (
	"container/heap"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/toolkeep/toolkeep"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// event is what happens in a world at a moment.
type event struct {
	at time.Duration
	do func()
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(a, b int) bool { return e[a].at < e[b].at }
func (e events) Swap(a, b int)      { e[a], e[b] = e[b], e[a] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// world has one processor, which works off in the order of arrival, and callers who call again when they have their answer, or
// when they may after a refusal.
type world struct {
	now, busy, free time.Duration // free: when the processor has done all that has arrived
	next            events
	guard           *Guard
	inFlight        int64
	took            map[toolkeep.Priority][]time.Duration
	refused         map[toolkeep.Priority]int
}

const (
	second  = time.Second
	reading = 300 * time.Microsecond // to read and check a call
	rest    = 700 * time.Microsecond // of its work
)

func newWorld(wait time.Duration) *world {
	w := &world{now: second, took: map[toolkeep.Priority][]time.Duration{}, refused: map[toolkeep.Priority]int{}}
	r := rand.New(rand.NewPCG(1, 2))
	w.guard = &Guard{c: Config{Wait: wait}, now: func() time.Duration { return w.now }, random: r.Float64}
	w.guard.send = func() { w.run(time.Microsecond, w.guard.heard) }
	return w
}

func (w *world) after(d time.Duration, do func()) { heap.Push(&w.next, event{w.now + d, do}) }

// run has the processor do something, which begins when all that came before is done, and takes cost.
func (w *world) run(cost time.Duration, do func()) {
	w.free = max(w.free, w.now)
	w.after(w.free-w.now, do)
	w.free += cost
	w.busy += cost
}

func (w *world) call(p toolkeep.Priority) {
	came := w.now
	w.run(reading, func() {
		w.inFlight++
		err := toolkeep.AsError(w.guard.Check(p, w.inFlight))
		if err != nil {
			w.inFlight--
			w.refused[p]++
			w.after(err.RetryAfter, func() { w.call(p) })
			return
		}
		w.run(rest, func() {
			w.inFlight--
			w.took[p] = append(w.took[p], w.now-came)
			w.call(p)
		})
	})
}

// pass lets callers of each priority call for a while, of which the second half counts.
func (w *world) pass(callers map[toolkeep.Priority]int, d time.Duration) (busy float64) {
	for _, p := range []toolkeep.Priority{toolkeep.Low, toolkeep.Normal, toolkeep.High} {
		for i := range callers[p] {
			w.after(d/2*time.Duration(i)/time.Duration(callers[p]), func() { w.call(p) })
		}
	}
	half, end := w.now+d/2, w.now+d
	var before time.Duration
	for w.next[0].at < end {
		e := heap.Pop(&w.next).(event)
		if w.now < half && e.at >= half {
			before = w.busy
			clear(w.took)
			clear(w.refused)
		}
		w.now = e.at
		e.do()
	}
	return float64(w.busy-before) / float64(d/2)
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// TestOverload: where more callers come than the processor serves in time, those that are taken are served about within the bound
// for each of their two waits, the processor has work all the time, and the lowest priority is refused first.
func TestOverload(t *testing.T) {
	t.Parallel()
	const bound = 100 * time.Millisecond
	many := map[toolkeep.Priority]int{toolkeep.Low: 200, toolkeep.Normal: 600, toolkeep.High: 20}
	open := newWorld(time.Hour)
	open.pass(many, 8*second)
	w := newWorld(bound)
	busy := w.pass(many, 8*second)
	all, got := median(open.took[toolkeep.Normal]), median(w.took[toolkeep.Normal])
	t.Logf("p50 %s instead of %s, busy %.2f, %v refused", got, all, busy, w.refused)
	if all < 4*bound || got > 4*bound || got > all/2 {
		t.Errorf("half of the calls took %s, and %s where none is refused", got, all)
	}
	if busy < 0.97 {
		t.Errorf("the processor worked %.0f %% of the time", busy*100)
	}
	if w.refused[toolkeep.High] != 0 || w.refused[toolkeep.Normal] == 0 || len(w.took[toolkeep.Low]) > len(w.took[toolkeep.Normal])/100 {
		t.Errorf("%v were refused, %d of priority low taken", w.refused, len(w.took[toolkeep.Low]))
	}
}

// TestNoOverload: as many callers as are served in time are all taken, and so is a burst.
func TestNoOverload(t *testing.T) {
	t.Parallel()
	w := newWorld(100 * time.Millisecond)
	w.pass(map[toolkeep.Priority]int{toolkeep.Normal: 60, toolkeep.Low: 10}, 4*second)
	w.guard.send = func() {} // what is measured now has not come to its end
	for range 3000 {         // 300 ms of work in a moment
		w.inFlight++
		if err := w.guard.Check(toolkeep.Low, w.inFlight); err != nil {
			t.Fatal(err)
		}
		w.now += 100 * time.Microsecond
	}
	if len(w.refused) != 0 {
		t.Errorf("%v were refused", w.refused)
	}
}

// TestShares: of each priority a share is refused from one wait on, and all at twice that; few calls are not refused.
func TestShares(t *testing.T) {
	t.Parallel()
	const bound = 100 * time.Millisecond
	for p, from := range map[toolkeep.Priority]time.Duration{toolkeep.Low: bound / 2, toolkeep.Normal: bound, "": bound, toolkeep.High: 2 * bound} {
		for wait, least := range map[time.Duration]float64{0: 0, from: 0, from * 5 / 4: 0.25, from * 3 / 2: 0.5, 2 * from: 1, 10 * from: 1} {
			for _, drawn := range []float64{0, 0.249, 0.251, 0.499, 0.501, 0.999} {
				g := &Guard{random: func() float64 { return drawn }}
				if got := g.Sheds(p, few+1, wait, bound); got != (drawn < least) {
					t.Errorf("%q, %s: %t for %v", p, wait, got, drawn)
				}
				if g.Sheds(p, few, wait, bound) {
					t.Errorf("%q, %s: one of few is refused", p, wait)
				}
			}
		}
	}
}

// TestInFlight: calls in flight have a bound, for each priority its own.
func TestInFlight(t *testing.T) {
	t.Parallel()
	g, err := New(Config{InFlight: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Stop()
	for p, limit := range map[toolkeep.Priority]int64{toolkeep.Low: 75, "": 100, toolkeep.Normal: 100, "odd": 100, toolkeep.High: 125} {
		if err := g.Check(p, limit); err != nil {
			t.Errorf("%q: %v", p, err)
		}
		e := toolkeep.AsError(g.Check(p, limit+1))
		if e == nil || e.Code != toolkeep.Backpressure || !e.NothingSent || e.Details["reason"] != InFlight || e.RetryAfter <= 0 || e.RetryAfter > 3*second {
			t.Errorf("%q: %v", p, e)
		}
	}
	if n := g.Refused(); n != 5 {
		t.Errorf("%d are counted", n)
	}
	none, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	none.Stop()
	for _, g := range []*Guard{nil, none} {
		if err := g.Check(toolkeep.Low, 1e9); err != nil || g.Wait() != 0 || g.Refused() != 0 || g == nil && g.Sheds(toolkeep.Low, few+1, 10, 1) {
			t.Errorf("without bounds: %v", err)
		}
		g.Stop()
	}
}

// TestMeasured: a process measures how long its requests wait.
func TestMeasured(t *testing.T) {
	t.Parallel()
	g, err := New(Config{Wait: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Stop()
	for end := time.Now().Add(time.Minute); g.Wait() == 0; runtime.Gosched() {
		if err := g.Check(toolkeep.High, few); err != nil {
			t.Fatalf("a call among few: %v", err)
		}
		if time.Now().After(end) {
			t.Fatal("nothing was measured within a minute")
		}
	}
}

// TestWait: of two measurements that follow each other the shorter one counts, and none after a second.
func TestWait(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	now := second
	g := &Guard{c: Config{Wait: ms}, now: func() time.Duration { return now }, random: func() float64 { return 0 }, send: func() {}}
	begin := func(after time.Duration) {
		t.Helper()
		now += after
		if err := g.Check(toolkeep.High, few); err != nil {
			t.Fatalf("a call among few: %v", err)
		}
	}
	measured := func(after, took time.Duration) {
		t.Helper()
		begin(after)
		now += took
		g.heard()
	}
	want := func(what string, wait time.Duration) {
		t.Helper()
		if got := g.Wait(); got != wait {
			t.Errorf("%s: the wait is %s, want %s", what, got, wait)
		}
	}
	measured(pause, 30*ms)
	want("one alone", 0)
	measured(pause, 20*ms)
	want("the last one is shorter", 20*ms)
	e := toolkeep.AsError(g.Check(toolkeep.High, few+1))
	if e == nil || e.Code != toolkeep.Backpressure || !e.NothingSent || e.Details["reason"] != CPUWait || g.Refused() != 1 {
		t.Errorf("a call among many: %v", e)
	}
	measured(pause, 40*ms)
	want("the last one is longer", 20*ms)
	begin(pause)
	now += 50 * ms
	want("one is under way", 40*ms)
	g.heard()
	now += stale + 1
	want("after a second", 0)
	measured(time.Hour, 300*ms)
	want("one an hour after the others", 0)
	measured(pause, 200*ms)
	want("and a second one", 200*ms)
}

// BenchmarkCheck is what the guard costs each call.
func BenchmarkCheck(b *testing.B) {
	g, err := New(Config{Wait: time.Hour, InFlight: 1e6})
	if err != nil {
		b.Fatal(err)
	}
	defer g.Stop()
	for b.Loop() {
		if g.Check(toolkeep.Normal, few+1) != nil {
			b.Fatal("refused")
		}
	}
}
