// Package overview is what people see of what a node has done lately, and of its limits: counts by minute for each tenant, kept in
// memory, and who was refused by which limit. Each node tells of itself.
package overview

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
)

const (
	minutes    = 360 // that are kept
	maxTenants = 256 // that are counted; of more, the one that was idle longest goes
	maxRefused = 32  // who was refused by what, of a tenant; the one of longest ago goes
)

// bounds of the durations that are counted, in milliseconds; the last count has what took longer.
var bounds = [15]float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000}

// Recent counts the calls of a node. Its methods do not block.
type Recent struct {
	since   time.Time
	mu      sync.Mutex
	tenants map[string]*tenant
}

// NewRecent counts from now on.
func NewRecent(now time.Time) *Recent {
	return &Recent{since: now, tenants: map[string]*tenant{}}
}

type tenant struct {
	mu      sync.Mutex
	last    int64 // minute
	cells   [minutes]cell
	refused map[refusal]*refusedBy
}

// cell is a minute.
type cell struct {
	counts
	minute int64 // since 1970; 0 for none
}

// counts are of calls that ended in a minute, or in several.
type counts struct {
	calls, succeeded, failed, refused, hits int
	cost                                    float64
	took                                    [len(bounds) + 1]int // of calls that were not refused
	codes                                   map[toolkeep.Code]int
}

type refusal struct{ limit, subject, tool string }

type refusedBy struct {
	count int
	last  time.Time
}

func (r *Recent) of(name string, minute int64) *tenant {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tenants[name]
	if t != nil {
		t.last = max(t.last, minute)
		return t
	}
	if len(r.tenants) >= maxTenants {
		oldest := ""
		for n, other := range r.tenants {
			if oldest == "" || other.last < r.tenants[oldest].last {
				oldest = n
			}
		}
		delete(r.tenants, oldest)
	}
	t = &tenant{last: minute, refused: map[refusal]*refusedBy{}}
	r.tenants[name] = t
	return t
}

// Called counts a call that ended; e is why it failed, nil for nothing.
func (r *Recent) Called(v *toolkeep.Invocation, e *toolkeep.Error) {
	if !v.State.Ended() || v.Replayed || v.EndedAt.IsZero() {
		return
	}
	minute := v.EndedAt.Unix() / 60
	t := r.of(v.Tenant, minute)
	t.mu.Lock()
	defer t.mu.Unlock()
	if v.State == toolkeep.CallRefused && limits(v.Code) {
		t.limited(e, v.Subject, v.ToolID, v.EndedAt)
	}
	c := &t.cells[minute%minutes]
	if c.minute > minute {
		return // of a clock that was set back
	}
	if c.minute < minute {
		*c = cell{minute: minute}
	}
	c.calls++
	switch v.State {
	case toolkeep.CallSucceeded:
		c.succeeded++
	case toolkeep.CallRefused:
		c.refused++
	case toolkeep.CallFailed, toolkeep.CallUnknown:
		c.failed++
	}
	if v.State != toolkeep.CallRefused && v.TotalUS > 0 { // a call that ended as lost or while it waited has no duration
		i, _ := slices.BinarySearch(bounds[:], float64(v.TotalUS)/1000)
		c.took[i]++
	}
	if v.Cached {
		c.hits++
	}
	c.cost += v.CostUSD
	if v.Code != "" {
		if c.codes == nil {
			c.codes = map[toolkeep.Code]int{}
		}
		c.codes[v.Code]++
	}
}

// Limited counts a request of the principal that is no call, and that e refuses by a limit.
func (r *Recent) Limited(pr *toolkeep.Principal, e *toolkeep.Error) {
	now := time.Now()
	t := r.of(pr.Tenant, now.Unix()/60)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.limited(e, pr.Subject, "", now)
}

// limits reports whether a code is that of a limit.
func limits(c toolkeep.Code) bool {
	return c == toolkeep.RateLimitExceeded || c == toolkeep.ConcurrencyLimitExceeded || c == toolkeep.DeadlineUnreachable
}

func (t *tenant) limited(e *toolkeep.Error, subject, tool string, now time.Time) {
	k := refusal{limit: "concurrency", subject: subject, tool: tool}
	if e != nil {
		kind, _ := e.Details["limit_type"].(string)
		k.limit = cmp.Or(kind, k.limit)
	}
	by := t.refused[k]
	if by == nil {
		if len(t.refused) >= maxRefused {
			var oldest refusal
			for k, by := range t.refused {
				if o := t.refused[oldest]; o == nil || by.last.Before(o.last) {
					oldest = k
				}
			}
			delete(t.refused, oldest)
		}
		by = &refusedBy{}
		t.refused[k] = by
	}
	by.count++
	by.last = now
}

// add adds the counts of another time.
func (c *counts) add(o *counts) {
	c.calls, c.succeeded, c.failed, c.refused, c.hits = c.calls+o.calls, c.succeeded+o.succeeded, c.failed+o.failed, c.refused+o.refused, c.hits+o.hits
	c.cost += o.cost
	for i, n := range o.took {
		c.took[i] += n
	}
	for code, n := range o.codes {
		if c.codes == nil {
			c.codes = map[toolkeep.Code]int{}
		}
		c.codes[code] += n
	}
}

// quantile is the duration that a share of the calls did not exceed, in milliseconds: within the bounds that were counted, 0 without calls.
func (c *counts) quantile(share float64) float64 {
	all := 0
	for _, n := range c.took {
		all += n
	}
	if all == 0 {
		return 0
	}
	rank, before, from := share*float64(all), 0, 0.0
	for i, n := range c.took {
		if i == len(bounds) {
			break
		}
		if n > 0 && float64(before+n) >= rank {
			return from + (bounds[i]-from)*(rank-float64(before))/float64(n)
		}
		before, from = before+n, bounds[i]
	}
	return bounds[len(bounds)-1]
}
