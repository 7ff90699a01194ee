package usage

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover/assembly"
)

// Groupings of a Report.
const (
	ByTool     = "tool"
	ByUser     = "user"
	ByStrategy = "strategy"
)

// Report covers a tenant's usage in a span of days, in UTC.
type Report struct {
	From, To time.Time // the days covered, inclusive
	Since    time.Time // oldest known day; zero if there is none
	Rows     []Row     // by group, most calls and retrievals first
	Total    Row       // of all groups; when grouped by tool, Retrievals counts each offered tool
	Training *Training // the latest training; nil before the first
	Learning Learning
	Dropped  int64     // retrieval events this node could not write
	AsOf     time.Time // all that any node had written by then is included; zero: what this node did
}

// Row is one group of a Report.
type Row struct {
	Group         string  // tool id, user, or strategy name
	Retrievals    int     // that offered the tool, that the user made, or that used the strategy
	Chosen        int     // of those, how many led to a call of the tool, or of any offered tool
	SelectionRate float64 // Chosen / Retrievals
	MeanPosition  float64 // of the first chosen tool, from 1; 0 if there is none
	Rated         int
	Relevance     float64 // mean of the feedback
	Calls         int     // that succeeded or failed; by strategy: those after such a retrieval
	SuccessRate   float64
	MeanMS        float64 // of executed calls
	P95MS         float64 // to within a fifth
}

func rowOf(group string, t *counts) Row {
	r := Row{Group: group, Retrievals: int(t.Offered), Chosen: int(t.Chosen), Rated: int(t.Rated), Calls: int(t.Calls)}
	ratio := func(a, b float64) float64 {
		if b == 0 {
			return 0
		}
		return a / b
	}
	r.SelectionRate = ratio(float64(t.Chosen), float64(t.Offered))
	r.MeanPosition = ratio(float64(t.Ranks), float64(t.Chosen))
	r.Relevance = ratio(t.Relevance, float64(t.Rated))
	r.SuccessRate = ratio(float64(t.Worked), float64(t.Calls))
	r.MeanMS = ratio(float64(t.Micros)/1000, float64(t.Timed))
	r.P95MS = float64(t.quantile(0.95)) / 1000
	return r
}

// Report returns a tenant's usage between two days.
func (u *Usage) Report(tenant string, from, to time.Time, by string) Report {
	first, last := dayOf(from), dayOf(to)
	r := Report{From: dayStart(first), To: dayStart(last), Rows: []Row{}, Learning: u.c.Learning, Dropped: u.writer.dropped.Load()}
	u.mu.RLock()
	defer u.mu.RUnlock()
	r.AsOf = u.state.asOf
	if k, ok := u.rankings[tenant]; ok {
		r.Training = &k.Training
	}
	t, ok := u.state.tenants.get(tenant)
	if !ok {
		return r
	}
	r.Since = time.UnixMilli(t.Since)
	var total counts
	add := func(group string, d days) {
		sum := d.sum(first, last)
		if sum.Offered == 0 && sum.Calls == 0 && sum.Chosen == 0 {
			return
		}
		total.add(&sum)
		r.Rows = append(r.Rows, rowOf(group, &sum))
	}
	switch by {
	case ByTool:
		for x := range t.Tools.all() {
			add(x.ID, x.Days)
		}
	case ByUser:
		for us := range t.Users.all() {
			add(us.ID, us.Days)
		}
	case ByStrategy:
		for name, d := range t.Strategies {
			add(name, d)
		}
	}
	slices.SortFunc(r.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(b.Retrievals, a.Retrievals), cmp.Compare(a.Group, b.Group))
	})
	r.Total = rowOf("", &total)
	return r
}

// ToolErrorPattern is an error a tool returned (Discovery 2.2.3). CommonResolution is what usually
// worked afterwards, in words; "" if unknown.
type ToolErrorPattern struct {
	ErrorType        toolkeep.Code `json:"errorType" doc:"code of the error catalogue"`
	Frequency        int           `json:"frequency"`
	CommonResolution string        `json:"commonResolution,omitempty"`
}

// ToolAnalytics are a tool's statistics for a tenant (Discovery 2.2.3).
type ToolAnalytics struct {
	TotalExecutions    int                `json:"totalExecutions"`                         // calls that succeeded or failed, in all recorded time
	SuccessRate        float64            `json:"successRate" doc:"0 to 1"`                // success rate in the last Keep days; of all calls if there were none
	AvgExecutionTimeMs int64              `json:"avgExecutionTimeMs"`                      // of calls that were executed and not answered from a cache
	LastUsed           time.Time          `json:"lastUsed,omitzero"`                       // to the millisecond
	ErrorPatterns      []ToolErrorPattern `json:"errorPatterns" doc:"most frequent first"` // at most 16
}

// Analytics returns a tool's statistics for a tenant; false if the tenant never called it.
func (u *Usage) Analytics(tenant, tool string) (ToolAnalytics, bool) {
	u.mu.RLock()
	defer u.mu.RUnlock()
	_, x := u.find(tenant, tool)
	if x == nil || x.LastUsed == 0 {
		return ToolAnalytics{}, false
	}
	a := ToolAnalytics{TotalExecutions: int(x.Total), LastUsed: time.UnixMicro(x.LastUsed).UTC().Truncate(time.Millisecond), ErrorPatterns: []ToolErrorPattern{}}
	switch {
	case x.calls > 0:
		a.SuccessRate = float64(x.ok) / float64(x.calls)
	case x.Total > 0:
		a.SuccessRate = float64(x.OK) / float64(x.Total)
	}
	if x.Timed > 0 {
		a.AvgExecutionTimeMs = int64((x.Micros/x.Timed + 500) / 1000)
	}
	for _, e := range x.Errors {
		a.ErrorPatterns = append(a.ErrorPatterns, ToolErrorPattern{ErrorType: e.Code, Frequency: int(e.Count), CommonResolution: e.resolution()})
	}
	slices.SortStableFunc(a.ErrorPatterns, func(a, b ToolErrorPattern) int {
		return cmp.Or(cmp.Compare(b.Frequency, a.Frequency), cmp.Compare(a.ErrorType, b.ErrorType))
	})
	return a, true
}

// Failures implements assembly.Usage.
func (u *Usage) Failures(tenant, tool string) []assembly.SeenError {
	a, _ := u.Analytics(tenant, tool)
	out := make([]assembly.SeenError, len(a.ErrorPatterns))
	for i, e := range a.ErrorPatterns {
		out[i] = assembly.SeenError{Code: e.ErrorType, Count: e.Frequency, Resolution: e.CommonResolution}
	}
	return out
}

// leastRemedies is how often something must have worked to be called common.
const leastRemedies = 2

// resolution says what usually worked after the error. It names no other tool, which the reader may
// not be allowed to see.
func (e *errorCount) resolution() string {
	best, all := 0, uint32(0)
	for i, n := range e.After {
		all += n
		if n > e.After[best] {
			best = i
		}
	}
	if e.After[best] < leastRemedies {
		return ""
	}
	what := [...]string{again: "the same call worked when it was made again", other: "the call worked with other arguments", instead: "another tool was used instead"}[best]
	return fmt.Sprintf("%s (%d of %d times)", what, e.After[best], all)
}

// lossTold is how long a loss of events is reported as a fault.
const lossTold = 5 * time.Minute

// Health returns an error if searches could not be recorded recently.
func (u *Usage) Health(context.Context) error {
	n := u.writer.dropped.Load()
	if n > 0 && u.c.Clock().Sub(time.UnixMilli(u.writer.lostAt.Load())) < lossTold {
		return fmt.Errorf("%d records of searches could not be written since the start; the newest loss is less than %s ago", n, lossTold)
	}
	return nil
}

// Stats are values for metrics.
type Stats struct {
	Written, Dropped, Waiting int64 // records of searches
}

// Stats returns values for metrics without blocking.
func (u *Usage) Stats() Stats {
	return Stats{Written: u.writer.written.Load(), Dropped: u.writer.dropped.Load(), Waiting: u.writer.waits()}
}
