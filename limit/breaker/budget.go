package breaker

import (
	"sync/atomic"
	"time"
)

// Retries is how many retries the calls of a tool may have in budgetSeconds, on this node: Share percent of these calls,
// or Floor where that is more.
type Retries struct {
	Share float64
	Floor int
}

// budgetSeconds is how far back calls and retries count.
const budgetSeconds = 10

// budget counts a tool's calls and retries of the last seconds. Each word has one second: its number, modulo 2^24, then the
// calls and the retries in it, up to maxCounted. It takes no lock and allocates nothing.
type budget [budgetSeconds]atomic.Uint64

const (
	countedBits = 20
	maxCounted  = 1<<countedBits - 1
	oneCall     = 1 << countedBits
	oneRetry    = 1
)

func callsIn(word uint64) uint64   { return word >> countedBits & maxCounted }
func retriesIn(word uint64) uint64 { return word & maxCounted }

// stamp is the number of a second as a word has it. The first is 1, so that a word of 0 is none of these seconds.
func stamp(second uint64) uint64 { return (second + 1) % (1 << 24) << (2 * countedBits) }

// add counts one call or retry. It reports false if no more are counted.
func (b *budget) add(now int64, one uint64) bool {
	second := uint64(now / int64(time.Second))
	word := &b[second%budgetSeconds]
	for {
		was := word.Load()
		next := was
		if was>>(2*countedBits)<<(2*countedBits) != stamp(second) {
			next = stamp(second)
		}
		if one == oneCall && callsIn(next) == maxCounted || one == oneRetry && retriesIn(next) == maxCounted {
			return false
		}
		if word.CompareAndSwap(was, next+one) {
			return true
		}
	}
}

// retry counts a retry, unless there are too many.
func (b *budget) retry(now int64, r Retries) bool {
	if !b.add(now, oneRetry) {
		return false
	}
	second := uint64(now / int64(time.Second))
	var calls, retries uint64
	for back := range min(second+1, budgetSeconds) {
		if word := b[(second-back)%budgetSeconds].Load(); word>>(2*countedBits)<<(2*countedBits) == stamp(second-back) {
			calls, retries = calls+callsIn(word), retries+retriesIn(word)
		}
	}
	if float64(retries) <= max(float64(r.Floor), r.Share/100*float64(calls)) {
		return true
	}
	// The retry is not made, so it does not count; a word of a later second has forgotten it already.
	word := &b[second%budgetSeconds]
	for {
		was := word.Load()
		if was>>(2*countedBits)<<(2*countedBits) != stamp(second) || retriesIn(was) == 0 || word.CompareAndSwap(was, was-oneRetry) {
			return false
		}
	}
}

// Began counts a call of the tool, of which its retries may be a share.
func (g Guard) Began() {
	if g.tool != nil {
		g.tool.retries.add(g.s.now(), oneCall)
	}
}

// Retry counts a retry of the tool, and reports false if it may not be made: retries must not multiply the load of a tool
// that is down. A tool that has no breaker, because too many are in use, has no retries.
func (g Guard) Retry() bool {
	return g.s == nil || g.tool != nil && g.tool.retries.retry(g.s.now(), g.s.retries)
}
