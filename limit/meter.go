package limit

import (
	"time"

	"github.com/toolkeep/toolkeep"
)

// minute is the unit of every rate, in nanoseconds.
const minute = int64(time.Minute)

// Algorithm names of the manifest schema.
const (
	tokenBucket   = "token_bucket"
	leakyBucket   = "leaky_bucket"
	fixedWindow   = "fixed_window"
	slidingWindow = "sliding_window"
)

// rate is a token bucket in generic cell rate algorithm form: each call moves a
// theoretical arrival time forward by step, and is admitted while that time is at most
// depth ahead of now. The state is one number.
type rate struct {
	step  int64 // nanoseconds per call, rounded up so that the limit is never exceeded
	depth int64 // burst * step
}

// newRate returns a rate of perMinute calls a minute, at most burst at once.
func newRate(perMinute, burst int) rate {
	if burst <= 0 {
		burst = perMinute
	}
	step := (minute + int64(perMinute) - 1) / int64(perMinute)
	return rate{step: step, depth: step * int64(burst)}
}

// wait returns the time until a call is admitted; 0 is now.
func (r rate) wait(tat, now int64) time.Duration {
	return time.Duration(max(0, r.next(tat, now)-now-r.depth))
}

// next returns the state after one more call.
func (r rate) next(tat, now int64) int64 { return max(tat, now) + r.step }

// meter counts calls by one algorithm. Callers hold the lock of its shard and always pass the same
// algorithm; the numbers change with the node's share.
type meter struct {
	at    int64      // buckets: theoretical arrival time; fixed window: its index; sliding window: second of the newest cell
	used  int64      // windows: cost of the calls in it
	cells *[61]int64 // sliding window: cost of calls by second, the current one and 60 before
}

// full is what a window holds. A call costs its part of it, so that a window stays as full
// as it is when the node's share of the limit changes. It is so large that exactly the
// limit fits, up to maxCount.
const full = int64(1) << 60

// cost of a call where limit calls fill a window.
func cost(limit int) int64 { return full / int64(limit) }

// windowed reports whether an algorithm counts in a window, not in a bucket.
func windowed(algorithm string) bool { return algorithm == fixedWindow || algorithm == slidingWindow }

// rateOf converts a spec to a rate. A leaky bucket without its own burst
// admits one call per step, while a token bucket may be emptied at once.
func rateOf(s *toolkeep.RateLimitSpec) rate {
	if s.Algorithm == leakyBucket && s.Burst == 0 {
		return newRate(s.PerMinute, 1)
	}
	return newRate(s.PerMinute, s.Burst)
}

// wait returns the time until the rate admits a call; 0 is now. It changes
// nothing.
func (m *meter) wait(s *toolkeep.RateLimitSpec, now int64) time.Duration {
	if s.PerMinute <= 0 {
		return 0
	}
	switch s.Algorithm {
	case fixedWindow:
		if m.at == now/minute && m.used+cost(s.PerMinute) > full {
			return time.Duration((m.at+1)*minute - now)
		}
		return 0
	case slidingWindow:
		return m.slidingWait(s.PerMinute, now)
	default:
		return rateOf(s).wait(m.at, now)
	}
}

// add counts one call, and returns how many more are admitted now.
func (m *meter) add(s *toolkeep.RateLimitSpec, now int64) (left int) {
	switch s.Algorithm {
	case fixedWindow:
		if w := now / minute; w != m.at {
			m.at, m.used = w, 0
		}
		m.used += cost(s.PerMinute)
	case slidingWindow:
		m.slide(now)
		m.cells[m.at%61] += cost(s.PerMinute)
		m.used += cost(s.PerMinute)
	default:
		r := rateOf(s)
		m.at = r.next(m.at, now)
		return int((r.depth - (m.at - now)) / r.step)
	}
	return int((full - m.used) / cost(s.PerMinute))
}

// slide clears the cells that left the window.
func (m *meter) slide(now int64) {
	sec := now / int64(time.Second)
	if m.cells == nil {
		m.cells, m.at = new([61]int64), sec
		return
	}
	if sec-m.at >= 61 {
		*m.cells, m.used, m.at = [61]int64{}, 0, max(sec, m.at)
		return
	}
	for ; m.at < sec; m.at++ {
		c := &m.cells[(m.at+1)%61]
		m.used -= *c
		*c = 0
	}
}

// slidingWait counts whole seconds, so the window is 60 to 61 seconds long: never more
// than the limit in any 60. It changes nothing, because Peek uses it.
func (m *meter) slidingWait(limit int, now int64) time.Duration {
	if m.cells == nil {
		return 0
	}
	sec := now / int64(time.Second)
	room := full - cost(limit) // the most that may be used for one more call to fit
	used := int64(0)
	for s := max(sec-60, m.at-60, 0); s <= m.at; s++ {
		used += m.cells[s%61]
	}
	if used <= room {
		return 0
	}
	for s := max(sec-60, m.at-60, 0); s <= m.at; s++ {
		if used -= m.cells[s%61]; used <= room {
			return time.Duration((s+61)*int64(time.Second) - now)
		}
	}
	return time.Minute
}

// freeAt returns the time from which the meter is equivalent to a new one.
func (m *meter) freeAt() int64 {
	switch {
	case m.cells != nil:
		return (m.at + 61) * int64(time.Second)
	case m.used > 0:
		return (m.at + 1) * minute
	}
	return m.at
}

// reset returns the time until the meter is equivalent to a new one.
func (m *meter) reset(now int64) time.Duration { return time.Duration(max(0, m.freeAt()-now)) }

// Check returns the faults of a manifest's rate_limit, before it is published; nil if
// there are none.
func Check(m *toolkeep.Manifest) []toolkeep.Fault {
	s := m.RateLimit
	if s == nil {
		return nil
	}
	var faults []toolkeep.Fault
	fault := func(field, rule, message string) {
		faults = append(faults, toolkeep.Fault{Pointer: "/rate_limit/" + field, Rule: rule, Message: message})
	}
	switch s.Algorithm {
	case "", tokenBucket, leakyBucket:
	case fixedWindow, slidingWindow:
		if s.Burst > 0 {
			fault("burst", "burst", s.Algorithm+" has no burst; leave it out, or use token_bucket or leaky_bucket")
		}
	default:
		fault("algorithm", "enum", "unknown algorithm; use token_bucket, leaky_bucket, fixed_window or sliding_window")
	}
	for _, n := range []struct {
		field string
		value int
	}{{"per_minute", s.PerMinute}, {"burst", s.Burst}, {"max_concurrent", s.MaxConcurrent}} {
		if n.value < 0 || n.value > maxCount {
			fault(n.field, "range", "must be from 1 to 100000000, or left out for no limit")
		}
	}
	if s.Burst > 0 && s.PerMinute == 0 {
		fault("per_minute", "required", "burst needs per_minute, the rate at which it fills again")
	}
	return faults
}

// maxCount keeps burst times step well within int64: a burst of 10^8 at one call a
// minute is the longest, 6e18 nanoseconds.
const maxCount = 100_000_000
