package usage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Ways to group a Report.
const (
	ByTool     = "tool"
	ByUser     = "user"
	ByStrategy = "strategy"
)

// Report is what happened in a tenant in a span of days, in UTC.
type Report struct {
	From, To time.Time // the days that it is about, both included
	Since    time.Time // of the oldest that is known; zero where nothing is
	Rows     []Row     // by group, those with most calls and retrievals first
	Total    Row       // of all groups; for groups of tools, Retrievals counts each tool that was offered
	Training *Training // the newest learning of weights; nil before the first
	Learning Learning
	Dropped  int64 // retrieval events that this node could not write
	Folded   int64 // the newest change of the feed that is in it
}

// Row is one group of a Report.
type Row struct {
	Group         string  // id of the tool, the user or the name of the strategy
	Retrievals    int     // that offered the tool, that the user made, or that followed the strategy
	Chosen        int     // of those, after how many the tool, or any that was offered, was called
	SelectionRate float64 // Chosen / Retrievals
	MeanPlace     float64 // of the tool that was chosen first, from 1; 0 where none was
	Rated         int
	Relevance     float64 // mean of what people and agents said
	Calls         int     // that worked or failed; by strategy: those that followed such a retrieval
	SuccessRate   float64
	MeanMS        float64 // of calls that were carried out
	P95MS         float64 // exact to a fifth
}

func rowOf(group string, t *tally) Row {
	r := Row{Group: group, Retrievals: int(t.Offered), Chosen: int(t.Chosen), Rated: int(t.Rated), Calls: int(t.Calls)}
	ratio := func(a, b float64) float64 {
		if b == 0 {
			return 0
		}
		return a / b
	}
	r.SelectionRate = ratio(float64(t.Chosen), float64(t.Offered))
	r.MeanPlace = ratio(float64(t.Places), float64(t.Chosen))
	r.Relevance = ratio(t.Relevance, float64(t.Rated))
	r.SuccessRate = ratio(float64(t.Worked), float64(t.Calls))
	r.MeanMS = ratio(float64(t.Micros)/1000, float64(t.Timed))
	r.P95MS = float64(t.quantile(0.95)) / 1000
	return r
}

// Report tells what happened in a tenant from one day to another.
func (u *Usage) Report(tenant string, from, to time.Time, by string) Report {
	first, last := dayOf(from), dayOf(to)
	r := Report{From: dayStart(first), To: dayStart(last), Rows: []Row{}, Learning: u.c.Learning, Dropped: u.writer.dropped.Load(), Folded: u.seq.Load()}
	if k, ok := u.rankings.get(tenant); ok {
		tr := k.training
		r.Training = &tr
	}
	t, ok := u.tenants.get(tenant)
	if !ok {
		return r
	}
	var total tally
	add := func(group string, d days) {
		sum := d.sum(first, last)
		if sum.Offered == 0 && sum.Calls == 0 && sum.Chosen == 0 {
			return
		}
		total.add(&sum)
		r.Rows = append(r.Rows, rowOf(group, &sum))
	}
	u.mu.Lock()
	r.Since = time.UnixMilli(t.since)
	switch by {
	case ByTool:
		for x := range t.byTool.all() {
			add(x.id, x.days)
		}
	case ByUser:
		for us := range t.byUser.all() {
			add(us.id, us.days)
		}
	case ByStrategy:
		for name, d := range t.strategy {
			add(name, d)
		}
	}
	u.mu.Unlock()
	slices.SortFunc(r.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(b.Retrievals, a.Retrievals), cmp.Compare(a.Group, b.Group))
	})
	r.Total = rowOf("", &total)
	return r
}

// Analytics is how a tool did for a tenant; false for one that it did not call.
func (u *Usage) Analytics(tenant, tool string) (ToolAnalytics, bool) {
	t, ok := u.tenants.get(tenant)
	if !ok {
		return ToolAnalytics{}, false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	x, ok := t.tools.get(tool)
	if !ok || x.lastUsed == 0 {
		return ToolAnalytics{}, false
	}
	a := ToolAnalytics{TotalExecutions: int(x.total), LastUsed: time.UnixMilli(x.lastUsed).UTC(), ErrorPatterns: []ErrorPattern{}}
	switch {
	case x.calls30 > 0:
		a.SuccessRate = float64(x.ok30) / float64(x.calls30)
	case x.total > 0:
		a.SuccessRate = float64(x.totalOK) / float64(x.total)
	}
	if x.timed > 0 {
		a.AvgExecutionTimeMs = int64((x.micros/x.timed + 500) / 1000)
	}
	for _, e := range x.errors {
		a.ErrorPatterns = append(a.ErrorPatterns, ErrorPattern{ErrorType: e.Code, Frequency: int(e.Count), CommonResolution: e.resolution()})
	}
	slices.SortStableFunc(a.ErrorPatterns, func(a, b ErrorPattern) int {
		return cmp.Or(cmp.Compare(b.Frequency, a.Frequency), cmp.Compare(a.ErrorType, b.ErrorType))
	})
	return a, true
}

// leastRemedies is how often something must have worked to be called common.
const leastRemedies = 2

// resolution says what usually worked after the error. It names no other tool, which
// the reader might not be allowed to see.
func (e *seenError) resolution() string {
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

// Feedback is what somebody says of a search.
type Feedback struct {
	Retrieval string // id of its event; "" where Session and Query name it
	Session   string
	Query     string
	Tool      string   // that was chosen; "" where none fits
	Relevance *float64 // 0 to 1: how well it, or the whole answer, fits
	Success   *bool    // whether its call worked
}

// feedbackWait bounds the wait for a search that was made a moment ago.
const feedbackWait = 2 * time.Second

// Feedback records what the principal says of one of its own searches and gives the id
// of the search. again is true where the same was said before: nothing is recorded
// then. A search of somebody else, or one that is too long ago, is E3013.
func (u *Usage) Feedback(ctx context.Context, p *toolkeep.Principal, f Feedback) (id string, again bool, err error) {
	id, again, found := u.lookUp(p, &f)
	if !found {
		// It may be on its way to the store, or from there.
		wait, cancel := context.WithTimeout(ctx, feedbackWait)
		defer cancel()
		if u.writer.flush(wait) {
			if seq, err := u.c.Store.Head(wait); err == nil && u.Await(wait, seq) == nil {
				id, again, found = u.lookUp(p, &f)
			}
		}
	}
	if !found {
		return "", false, toolkeep.NewError(toolkeep.ResourceNotFound,
			"you made no such search lately; name it by metadata.retrievalId of its answer, or by the session and the query as they were sent")
	}
	if again {
		return id, true, nil
	}
	subject := short(p.Subject)
	e, err := eventOf(EventFeedback, p.Tenant, "", u.c.Clock(), feedbackData{EventID: id, UserID: subject, AgentDID: subject, Tool: f.Tool, Relevance: f.Relevance, Success: f.Success})
	if err != nil {
		return "", false, err
	}
	return id, false, u.c.Store.Apply(ctx, toolkeep.AppendEvent{Event: e})
}

// lookUp finds the search that feedback is about, and whether the same was said of it.
func (u *Usage) lookUp(p *toolkeep.Principal, f *Feedback) (id string, again, ok bool) {
	t, ok := u.tenants.get(p.Tenant)
	if !ok {
		return "", false, false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	subject := short(p.Subject)
	r := t.retrieval(f.Retrieval)
	if f.Retrieval == "" {
		query := plain(clip(u.c.Clean(p.Tenant, f.Query), maxQuery))
		for _, l := range []*retrievals{&t.chosen, &t.waiting} {
			for o := range l.order.all() {
				if o.user == subject && o.session == short(f.Session) && o.query == query && (r == nil || o.at >= r.at) {
					r = o
				}
			}
		}
	}
	if r == nil || r.user != subject {
		return "", false, false
	}
	said := ratingOf(f.Tool, f.Relevance, f.Success)
	again = slices.ContainsFunc(r.rated, func(o rating) bool {
		o.Learned = false // which nobody said
		return o == said
	})
	return r.id, again, true
}

// forgetTries is how often Forget begins a checkpoint anew where another node is faster.
const forgetTries = 5

// Forget has all nodes forget what is known of a user of the principal's tenant. It is
// written to the feed, and into a new checkpoint at once, beside which none of before
// stays; the events of the user's searches stay in the store's log of events for as
// long as that keeps events. Errors: those of the store; ErrStale if other nodes wrote
// checkpoints all the while, which the next two of the daily job make good.
func (u *Usage) Forget(ctx context.Context, p *toolkeep.Principal, user string) error {
	e, err := eventOf(EventForgotten, p.Tenant, "", u.c.Clock(), forgottenData{UserID: userMark(p.Tenant, short(user)), By: p.Subject})
	if err != nil {
		return err
	}
	u.writer.flush(ctx) // what the user did on this node comes before
	if err := u.c.Store.Apply(ctx, toolkeep.AppendEvent{Event: e}); err != nil {
		return err
	}
	for range forgetTries {
		if err = u.catchUp(ctx); err != nil {
			return err
		}
		// The checkpoint of another node that came first may be of before.
		if err = u.checkpoint(ctx, false); !errors.Is(err, toolkeep.ErrStale) {
			break
		}
	}
	return err
}

// lossTold is for how long a loss of events is told as a fault.
const lossTold = 5 * time.Minute

// Health tells of searches that could not be recorded lately.
func (u *Usage) Health(context.Context) error {
	n := u.writer.dropped.Load()
	if n > 0 && u.c.Clock().Sub(time.UnixMilli(u.writer.dropTime.Load())) < lossTold {
		return fmt.Errorf("%d records of searches could not be written since the start; the newest loss is less than %s ago", n, lossTold)
	}
	return nil
}

// Stats are numbers for metrics.
type Stats struct {
	Written, Dropped, Waiting int64 // records of searches
	Folded                    int64 // the newest change of the feed that counts
}

// Stats gives numbers for metrics and never waits.
func (u *Usage) Stats() Stats {
	return Stats{Written: u.writer.written.Load(), Dropped: u.writer.dropped.Load(), Waiting: int64(len(u.writer.in)), Folded: u.seq.Load()}
}
