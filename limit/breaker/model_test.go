package breaker

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// model is a breaker written as simply as the rules read: it keeps every call, and counts them each time.
type model struct {
	r      Rule
	state  State
	age    int // how often the state changed
	ended  []ended
	row    int
	until  time.Duration
	passed int
	tests  int // under way
	credit int
}

type ended struct {
	at           time.Duration
	failed, slow bool
}

func (m *model) move(to State) {
	m.state = to
	m.age++
	m.ended, m.row, m.tests = nil, 0, 0
}

func (m *model) share() int { return []int{1, 10, 50, 100}[min(m.passed/m.r.HalfOpenCalls, 3)] }

func (m *model) take(now time.Duration) (ok, test bool) {
	if !m.r.On || m.state == Closed {
		return true, false
	}
	if m.state == Open {
		if now < m.until {
			return false, false
		}
		m.move(HalfOpen)
		m.passed, m.credit = 0, 99
	}
	if m.r.Canary {
		if m.credit += m.share(); m.credit < 100 {
			return false, false
		}
		m.credit -= 100
	} else if m.tests > 0 && m.passed+m.tests >= m.r.HalfOpenCalls {
		return false, false
	}
	m.tests++
	return true, true
}

func (m *model) done(age int, test bool, o Outcome, now, took time.Duration) {
	slow := o != Ignored && took >= m.r.Slow
	switch {
	case age != m.age:
		return
	case test:
		m.tests--
		switch {
		case o == Failed || slow && m.r.SlowRate > 0:
			m.move(Open)
			m.until = now + m.r.Open
		case o == Ignored:
			if m.r.Canary {
				m.credit += 100
			}
		default:
			m.passed++
			stages := 1
			if m.r.Canary {
				stages = 4
			}
			if m.passed >= m.r.HalfOpenCalls*stages {
				m.move(Closed)
			}
		}
		return
	case o == Ignored || !m.r.On:
		return
	}
	m.ended = append(m.ended, ended{now, o == Failed, slow})
	if m.row++; o != Failed {
		m.row = 0
	}
	part := time.Duration(m.r.Window) * time.Second / slots
	for m.r.Count && len(m.ended) > m.r.Window || !m.r.Count && m.ended[0].at/part <= now/part-slots {
		m.ended = m.ended[1:]
	}
	calls, failures, slows := len(m.ended), 0, 0
	for _, e := range m.ended {
		if e.failed {
			failures++
		}
		if e.slow {
			slows++
		}
	}
	over := func(n int, percent float64) bool {
		return float64(n)/float64(calls) > percent/100 || percent == 100 && n == calls
	}
	if m.state == Closed && (o == Failed || slow) && (m.r.Consecutive > 0 && m.row >= m.r.Consecutive || m.r.Failures > 0 && failures >= m.r.Failures ||
		calls >= m.r.MinCalls && ((failures > 1 || m.r.MinCalls <= 1) && over(failures, m.r.FailureRate) || m.r.SlowRate > 0 && over(slows, m.r.SlowRate))) {
		m.move(Open)
		m.until = now + m.r.Open
	}
}

// TestModel walks breakers of a thousand rules through a million random steps beside the model. Now and then another version of
// the tool is called, which asks for another number of test calls.
func TestModel(t *testing.T) {
	t.Parallel()
	rules, steps := 1000, 1000
	seen := map[State]int{}
	for n := range rules {
		rnd := rand.New(rand.NewPCG(uint64(n), 7))
		pick := func(list ...int) int { return list[rnd.IntN(len(list))] }
		r := Rule{On: n%50 != 0, Count: n%2 == 0, Window: pick(1, 3, 10, 60), MinCalls: pick(1, 2, 5, 10), FailureRate: float64(pick(0, 25, 50, 75, 100)),
			Consecutive: pick(0, 0, 3, 10), Failures: pick(0, 0, 4), SlowRate: float64(pick(0, 50, 100, 100)), Slow: time.Second,
			Open: time.Duration(pick(1, 2000, 30000)) * time.Millisecond, Canary: n%3 == 0, HalfOpenCalls: pick(1, 1, 2, 5)}.bounded()
		now := time.Duration(0)
		base := time.Now()
		s := New(Config{Rule: &r, Clock: func() time.Time { return base.Add(now) }})
		guard := s.Of(&toolkeep.Tool{ID: "a.b", Manifest: &toolkeep.Manifest{}}, "")
		m := &model{r: r, state: Closed}
		type pending struct {
			a     Attempt
			age   int
			test  bool
			began time.Duration
		}
		var running []pending
		ctx := t.Context()
		bad := 1 + rnd.IntN(10)
		for step := range steps {
			if rnd.IntN(50) == 0 {
				m.r.Canary, m.r.HalfOpenCalls = rnd.IntN(3) == 0, pick(1, 1, 2, 5)
				spec := &toolkeep.BreakerSpec{HalfOpen: "fixed", HalfOpenCalls: &m.r.HalfOpenCalls}
				if m.r.Canary {
					spec.HalfOpen = "canary"
				}
				guard = s.Of(&toolkeep.Tool{ID: "a.b", Manifest: &toolkeep.Manifest{Breaker: spec}}, "")
			}
			switch {
			case len(running) > 0 && rnd.IntN(2) == 0:
				i := rnd.IntN(len(running))
				p := running[i]
				running = append(running[:i], running[i+1:]...)
				o := Succeeded
				if x := rnd.IntN(20); x < bad {
					o = Failed
				} else if x == 19 {
					o = Ignored
				}
				p.a.Done(o, Ignored)
				m.done(p.age, p.test, o, now, now-p.began)
			default:
				now += time.Duration(pick(0, 1, 10, 100, 900)) * time.Millisecond
				if rnd.IntN(100) == 0 {
					now += time.Duration(rnd.IntN(60)) * time.Second
				}
				peeked := guard.Peek() == nil
				a, err := guard.Take(ctx)
				ok, test := m.take(now)
				if (err == nil) != ok || peeked != ok {
					t.Fatalf("rule %d %+v, step %d: Take says %v and Peek %v, the model %v in %s", n, r, step, err, peeked, ok, m.state)
				}
				if ok {
					running = append(running, pending{a, m.age, test, now})
				} else if e := toolkeep.AsError(err); e.Code != toolkeep.CircuitBreakerOpen || !e.NothingSent || e.RetryAfter <= 0 || e.Details["breaker"] != "tool:a.b" {
					t.Fatalf("refused with %v, %v", e, e.Details)
				}
			}
			if is := guard.tool.state; is != m.state {
				t.Fatalf("rule %d %+v, step %d: the breaker is %s, the model %s", n, r, step, is, m.state)
			}
			seen[m.state]++
		}
	}
	if seen[Closed] < 10_000 || seen[Open] < 10_000 || seen[HalfOpen] < 10_000 {
		t.Errorf("the walk was seldom in a state: %s", fmt.Sprint(seen))
	}
}
