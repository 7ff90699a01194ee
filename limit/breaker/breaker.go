package breaker

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
)

// State is a breaker's state; the values are those of documents, events and answers.
type State string

// The states.
const (
	Closed       State = "closed"
	Open         State = "open"
	HalfOpen     State = "half_open"
	ForcedOpen   State = "forced_open"
	ForcedClosed State = "forced_closed"
)

// States are all states.
var States = [...]State{Closed, Open, HalfOpen, ForcedOpen, ForcedClosed}

// Reasons why a breaker opened.
const (
	ReasonFailureRate = "failure_rate"
	ReasonSlowRate    = "slow_call_rate"
	ReasonErrorCount  = "error_count"
	ReasonConsecutive = "consecutive_failures"
	ReasonTestFailed  = "test_failed"
)

// Values of details.reason of E3903: why it refuses besides being open.
const (
	refusedOpen     = "open"              // it waits for the end of its time
	refusedTesting  = "testing"           // test calls are under way
	refusedForced   = "forced_open"       // an operator forced it open
	refusedNoStore  = "state_unavailable" // its state cannot be read or written
	refusedUnstored = "state_unwritten"   // its tests have passed, and that cannot be written yet
)

// canary are the shares of calls, in percent, that go through while a canary is half open, one after the other.
var canary = [...]int{1, 10, 50, 100}

// intent is what this node has decided and the store does not have yet.
type intent int

const (
	none intent = iota
	opens
	reopens
	closes
	progresses
)

// Breaker is the breaker of one tool or one upstream.
type Breaker struct {
	key  key
	rule atomic.Pointer[Rule]
	// passing is whether calls go through without a lock: closed, forced closed, or off.
	passing atomic.Bool
	epoch   atomic.Int64 // increases with each change of state: what a call of before ends with says nothing
	refused atomic.Int64 // calls, since the node's start
	retries budget       // of a tool
	others  atomic.Int32 // calls in a row whose rule has a window of another form

	io chan struct{} // holds one of those that read and write the document

	mu       sync.Mutex // guards all below
	claiming bool       // a call asks the store whether this node may test
	state    State
	window   window
	usual    usual
	record   Record // of the state, unless it is Closed
	until    int64  // Open: its end; HalfOpen by another: when it counts as given up
	intent   intent
	last     int64 // when a call ended last
	mine     bool  // HalfOpen: this node makes the test calls
	running  int   // test calls under way
	share    int   // hundredths of a call that the canary owes
	// moves and tests count since the breaker was made: changes of state, and test calls that failed and that succeeded.
	moves [len(States)][len(States)]int64
	tests [2]int64
}

// Pass is a call that went through; Done must be told of its end.
type Pass struct {
	b         *Breaker
	epoch     int64
	test      bool
	began     int64
	outlasted bool // see Attempt.Outlasted
	code      toolkeep.Code
}

// Outcome is how an attempt ended for a breaker.
type Outcome int

// The outcomes. Ignored says nothing about the tool: the caller left, or nothing was sent.
const (
	Ignored Outcome = iota
	Succeeded
	Failed
)

// needs is how many test calls must succeed.
func needs(r *Rule) int {
	if r.Canary {
		return r.HalfOpenCalls * len(canary)
	}
	return r.HalfOpenCalls
}

// setState changes the state. b.mu is held.
func (b *Breaker) setState(s State) {
	if s != b.state {
		b.moves[slices.Index(States[:], b.state)][slices.Index(States[:], s)]++
	}
	b.state = s
	b.epoch.Add(1)
	b.running, b.share, b.mine = 0, 0, false
	b.passing.Store(s == Closed || s == ForcedClosed)
}

// look says whether a call would go through now: nil, or why not. tests means that it would be a test call.
// b.mu is held.
func (b *Breaker) look(now int64) (refusal string, wait time.Duration, tests bool) {
	r := b.rule.Load()
	if !r.On {
		if b.state == ForcedOpen {
			return refusedForced, r.Open, false
		}
		return "", 0, false
	}
	switch b.state {
	case Closed, ForcedClosed:
		return "", 0, false
	case ForcedOpen:
		return refusedForced, r.Open, false
	case Open:
		if wait := b.until - now; wait > 0 {
			return refusedOpen, time.Duration(wait), false
		}
		return "", 0, true
	}
	switch {
	case b.mine && b.intent == closes:
		return refusedUnstored, time.Second, false
	case b.mine && r.Canary:
		if b.share+b.percent(r) < 100 {
			return refusedTesting, time.Second, false
		}
	case b.mine:
		// One always goes: its end decides, also if another version's rule asks for fewer than have passed.
		if b.running > 0 && b.record.Passed+b.running >= needs(r) {
			return refusedTesting, time.Second, false
		}
	case b.until > now:
		return refusedTesting, min(time.Second, time.Duration(b.until-now)), false
	}
	return "", 0, true
}

// refusal makes the error of a call that does not go through. b.mu is held.
func (b *Breaker) refusal(reason string, wait time.Duration) *toolkeep.Error {
	what := "the tool " + b.key.name
	if !b.key.tool {
		what = "the upstream " + b.key.name + " of the tool"
	}
	why := "failed too often, and no calls are sent to it for a while"
	switch reason {
	case refusedForced:
		why = "is blocked by an operator (toolkeep breakers show)"
	case refusedTesting:
		why = "failed too often, and test calls show whether it works again"
	case refusedNoStore, refusedUnstored:
		why = "failed too often, and the store, which has to record that it is tried again, does not answer"
	}
	e := toolkeep.NewError(toolkeep.CircuitBreakerOpen, "%s %s; try again in %s", what, why, max(wait, time.Millisecond).Round(time.Millisecond)).
		With("breaker", b.key.ID()).With("state", string(b.state)).With("reason", reason).After(max(wait, time.Millisecond))
	e.NothingSent = true
	return e
}

// done counts the end of a call, and reports whether the store is to be told. b.mu is held.
func (b *Breaker) done(p *Pass, o Outcome, now int64, clock func() time.Time) bool {
	r := b.rule.Load()
	b.last = now
	slow := o != Ignored && now-p.began >= int64(r.Slow)
	if p.epoch != b.epoch.Load() {
		return false
	}
	if p.test {
		b.running--
		if o == Failed || slow && r.SlowRate > 0 {
			b.tests[0]++
			b.opening(ReasonTestFailed, now, clock())
			b.intent = reopens
			return true
		}
		if o == Ignored {
			if r.Canary {
				b.share += 100
			}
			return false
		}
		b.tests[1]++
		b.record.Passed++
		if b.intent = progresses; b.record.Passed >= needs(r) {
			b.intent = closes
		}
		return true
	}
	if o == Ignored || !r.On {
		return false
	}
	b.window.add(r, now, o == Failed, slow, now-p.began)
	if b.state != Closed || o != Failed && !slow {
		return false
	}
	if why := b.window.trips(r); why != "" {
		b.opening(why, now, clock())
		b.intent = opens
		return true
	}
	return false
}

// opening opens the breaker for the time of its rule. b.mu is held.
func (b *Breaker) opening(why string, now int64, wall time.Time) {
	r := b.rule.Load()
	if why != ReasonTestFailed {
		s := b.window.sum
		b.record = Record{Calls: s.calls, Failures: s.failures, Slow: s.slow, InARow: b.window.row, LatencyMS: b.window.average()}
	}
	b.record.State, b.record.Reason, b.record.Since, b.record.Until = Open, why, wall.UTC(), wall.Add(r.Open).UTC()
	b.record.Passed = 0
	b.window.clear()
	b.setState(Open)
	b.until = now + int64(r.Open)
}

// testing makes this node the one that makes the test calls. b.mu is held.
func (b *Breaker) testing() {
	b.setState(HalfOpen)
	b.mine = true
	b.share = 99 // the call that found the time over is the first test
}

// percent is the share of calls that a canary lets through now. b.mu is held.
func (b *Breaker) percent(r *Rule) int {
	return canary[min(b.record.Passed/r.HalfOpenCalls, len(canary)-1)]
}

// take lets one test call through, after look. b.mu is held.
func (b *Breaker) take() {
	b.running++
	if r := b.rule.Load(); r.Canary {
		b.share += b.percent(r) - 100
	}
}

// refuses counts a call that does not go through; a canary owes a share of it. b.mu is held.
func (b *Breaker) refuses() {
	b.refused.Add(1)
	if r := b.rule.Load(); b.mine && r.Canary && b.intent != closes {
		b.share += b.percent(r)
	}
}

// closing closes the breaker, with nothing counted. b.mu is held.
func (b *Breaker) closing() {
	b.record = Record{}
	b.intent = none
	b.window.clear()
	b.setState(Closed)
}

// idle reports whether the breaker says nothing any more, and can be dropped.
func (b *Breaker) idle(now int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.rule.Load()
	keep := time.Hour
	if !r.Count {
		keep = max(time.Minute, time.Duration(r.Window)*time.Second)
	}
	return b.state == Closed && b.intent == none && now-b.last > int64(keep)
}
