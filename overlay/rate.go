package overlay

import (
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
)

// maxRates bounds the number of buckets.
const maxRates = 100_000

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

func (r *rates) take(k key, c *Context, take bool) error {
	if c == nil || c.PerMinute == 0 {
		return nil
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
		return rateError(c.PerMinute, share, nodes, wait, full.Sub(now))
	}
	if !take {
		return nil
	}
	if _, has := r.tat[k]; !has && len(r.tat) >= maxRates {
		for other, t := range r.tat {
			if !t.After(now) {
				delete(r.tat, other)
			}
		}
		if len(r.tat) >= maxRates {
			return toolkeep.NewError(toolkeep.RateLimitExceeded, "more agents are active than the server can count; try again shortly").
				With("limit_type", "context").After(time.Second)
		}
	}
	r.tat[k] = full.Add(each)
	return nil
}

func rateError(perMinute, share, nodes int, wait, reset time.Duration) *toolkeep.Error {
	left := toolkeep.RateLeft{Kind: "context", PerMinute: share, Reset: reset}
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
