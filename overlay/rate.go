package overlay

import (
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
)

// maxRates bounds the number of buckets.
const maxRates = 100_000

// limitType is details.limit_type of its refusals.
const limitType = "context"

// rates holds the buckets of contexts with their own rate: one per agent and tool, with the
// capacity of one minute, refilled evenly. Of several nodes each takes its share of a rate.
type rates struct {
	clock func() time.Time
	share func(limit int) (share, nodes int)
	mu    sync.Mutex
	tat   map[key]time.Time // when the bucket is full again
}

func newRates(clock func() time.Time, share func(limit int) (share, nodes int)) *rates {
	return &rates{clock: clock, share: share, tat: map[key]time.Time{}}
}

// take returns what is left after the call; the zero value without a rate, and where take is false.
func (r *rates) take(k key, c *Context, take bool) (left toolkeep.RateLeft, err error) {
	if c == nil || c.PerMinute == 0 {
		return left, nil
	}
	share, nodes := c.PerMinute, 1
	if r.share != nil {
		share, nodes = r.share(c.PerMinute)
	}
	each := time.Minute / time.Duration(share)
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock()
	full := r.tat[k]
	if full.Before(now) {
		full = now
	}
	if wait := full.Add(each).Sub(now) - time.Duration(share)*each; wait > 0 {
		return left, rateError(c.PerMinute, share, nodes, wait, full.Sub(now))
	}
	if !take {
		return left, nil
	}
	if _, has := r.tat[k]; !has && len(r.tat) >= maxRates {
		for other, t := range r.tat {
			if !t.After(now) {
				delete(r.tat, other)
			}
		}
		if len(r.tat) >= maxRates {
			return left, toolkeep.NewError(toolkeep.RateLimitExceeded, "more agents are active than the server can count; try again shortly").
				With("limit_type", limitType).After(time.Second)
		}
	}
	full = full.Add(each)
	r.tat[k] = full
	reset := full.Sub(now)
	return toolkeep.RateLeft{Kind: limitType, PerMinute: share, Left: share - int((reset+each-1)/each), Reset: reset}, nil
}

func rateError(perMinute, share, nodes int, wait, reset time.Duration) *toolkeep.Error {
	left := toolkeep.RateLeft{Kind: limitType, PerMinute: share, Reset: reset}
	again := wait.Round(time.Millisecond)
	if nodes <= 1 {
		return toolkeep.NewError(toolkeep.RateLimitExceeded,
			"the limit of %d calls a minute that the agent's context sets for this tool is reached; try again in %s", perMinute, again).
			Over(left).With("limit_per_minute", perMinute).After(wait)
	}
	return toolkeep.NewError(toolkeep.RateLimitExceeded,
		"the limit of %d calls a minute that the agent's context sets for this tool is divided among %d nodes, and this node's share of %d is reached; try again in %s",
		perMinute, nodes, share, again).
		Over(left).With("limit_per_minute", perMinute).
		With("nodes", nodes).With("share_per_minute", share).After(wait)
}
