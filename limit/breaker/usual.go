package breaker

import (
	"sync/atomic"
	"time"
)

// usual is how long the attempts of a tool that succeed, or are outlasted, take on this node, in nanoseconds: half of them at most mid, and
// 95 in 100 at most high. Each attempt moves both by a small part, up where it took longer and else down, so that they
// settle where these shares lie on either side. They are 0 before the first. One at a time adds.
type usual struct{ mid, high atomic.Int64 }

// nudge is the part by which an attempt moves them.
const nudge = 0.08

func (u *usual) add(ns int64) {
	d, mid, high := max(ns, 1), u.mid.Load(), u.high.Load()
	if mid == 0 {
		u.mid.Store(d)
		u.high.Store(d)
		return
	}
	mid = moved(mid, d, 0.5)
	u.mid.Store(mid)
	u.high.Store(max(mid, moved(high, d, 0.95)))
}

func moved(at, d int64, share float64) int64 {
	if d <= at {
		share--
	}
	return max(1, at+int64(nudge*share*float64(at)))
}

// Usual returns how long an attempt of the tool takes as a rule, and what 95 in 100 do not exceed; 0 if that is not
// known. Only attempts that succeeded on this node count, and those that another one of their call outran, by the time until then.
func (g Guard) Usual() (mid, high time.Duration) {
	if g.tool == nil {
		return 0, 0
	}
	return time.Duration(g.tool.usual.mid.Load()), time.Duration(g.tool.usual.high.Load())
}
