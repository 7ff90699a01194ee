package usage

import (
	"slices"
	"time"
)

const (
	maxWaiting = 2000 // searches per tenant that may still lead to a choice
	maxChosen  = 2000 // searches per tenant with a choice
	maxKept    = 20   // tools kept in memory per search
	maxAsked   = 4    // searches of a conversation that a call may be attributed to
	poor       = 0.5  // relevance below which a choice was a mistake
)

// retrieval is a search and the tools chosen from it.
type retrieval struct {
	ID       string
	At       int64 // microseconds
	User     string
	Session  string
	Query    string // see plain; "" if not kept
	Strategy string
	Offered  []offer
	Chosen   bool // one of Offered was
	Rated    []rating
}

func (r *retrieval) key() string { return r.ID }

// day is the day that the search counts on, with its choices and ratings: so it does not matter
// when the entries of other nodes are read.
func (r *retrieval) day() int32 { return dayOf(time.UnixMicro(r.At)) }

type offer struct {
	Tool  int32
	Parts [5]float32
	// Chosen: it was called or named in feedback; Learned: the query counts for it; Poor: feedback
	// calls it a mistake.
	Chosen, Learned, Poor bool
}

// rating is the feedback on one tool, or with "" on the whole search.
type rating struct {
	Tool      string
	Relevance float64 // -1: not given
	Success   int8    // 1, 0, or -1: not given
	Learned   bool    // the search had not offered the tool, and the query counts for it
}

// bad reports whether the choice was a mistake.
func (r *rating) bad() bool { return r.Relevance >= 0 && r.Relevance < poor }

func ratingOf(tool string, relevance *float64, success *bool) rating {
	r := rating{Tool: tool, Relevance: -1, Success: -1}
	if relevance != nil {
		r.Relevance = max(0, min(1, *relevance))
	}
	if success != nil {
		r.Success = 0
		if *success {
			r.Success = 1
		}
	}
	return r
}

// retrievals returns the stored searches.
func (t *tenant) retrievals() [2]*lru[string, *retrieval] {
	return [2]*lru[string, *retrieval]{&t.Chosen, &t.Waiting}
}

func (t *tenant) retrieval(id string) *retrieval {
	for _, l := range t.retrievals() {
		if r, ok := l.get(id); ok {
			return r
		}
	}
	return nil
}

// keep adds a search that waits for a choice.
func (t *tenant) keep(r *retrieval) {
	t.Waiting.put(r)
	for old := range t.Waiting.evict(maxWaiting) {
		if old.Chosen {
			t.Chosen.put(old)
		}
	}
	for range t.Chosen.evict(maxChosen) {
	}
}

// asked holds the ids of a conversation's newest searches, newest first: a caller may search for
// several tools before calling the first.
type asked []string

// ask adds a search to a conversation.
func (t *tenant) ask(l *asked, r *retrieval) {
	list := slices.DeleteFunc(*l, func(id string) bool { return t.retrieval(id) == nil })
	at := slices.IndexFunc(list, func(id string) bool { return t.retrieval(id).At <= r.At })
	if at < 0 {
		at = len(list)
	}
	list = slices.Insert(list, at, r.ID)
	*l = list[:min(len(list), maxAsked)]
}

// called attributes a call to the newest search, no older than within, that offered its tool. A
// tool that none had offered was found elsewhere, and a refused or cancelled call chooses nothing.
// A call belongs to one search: a newer search folded later takes it over. calls are those of the
// conversation.
func (t *tenant) called(list asked, c *call, calls []call, within time.Duration) {
	if !c.Counted {
		return
	}
	for _, id := range list {
		r := t.retrieval(id)
		if r == nil || c.At < r.At || c.At-r.At > within.Microseconds() {
			continue
		}
		i := r.offers(c.Tool)
		if i < 0 {
			continue
		}
		if c.By != "" {
			before := t.retrieval(c.By)
			if before == nil || before.At >= r.At {
				return
			}
			t.release(before, c, calls)
		}
		c.By = r.ID
		t.choose(r, i)
		if c.OK {
			t.learn(r, i)
		}
		if f := r.first(c, calls); f == nil || c.At < f.At {
			t.firstCall(r, f, c)
		}
		return
	}
}

// first returns the first other call of c's tool that is attributed to the search, nil if there is
// none.
func (r *retrieval) first(c *call, calls []call) (f *call) {
	for i := range calls {
		if o := &calls[i]; o != c && o.By == r.ID && o.Tool == c.Tool && (f == nil || o.At < f.At) {
			f = o
		}
	}
	return f
}

// firstCall counts a call for the search's strategy, instead of the one that was the first before;
// either may be nil.
func (t *tenant) firstCall(r *retrieval, before, c *call) {
	if before != nil && before.First {
		before.First = false
		t.byStrategy(r, func(s *counts) { s.call(before, -1) })
	}
	if c != nil {
		c.First = true
		t.byStrategy(r, func(s *counts) { s.call(c, 1) })
	}
}

// release takes a call from a search: what was counted stays if another call or a rating says it
// too.
func (t *tenant) release(r *retrieval, c *call, calls []call) {
	x, i, f := t.byNo[c.Tool], r.offers(c.Tool), r.first(c, calls)
	if c.First {
		t.firstCall(r, c, f)
	}
	said := slices.IndexFunc(r.Rated, func(o rating) bool { return x != nil && o.Tool == x.ID && !o.bad() })
	if f == nil && said < 0 {
		t.unchoose(r, c.Tool)
	}
	worked := said >= 0 && r.Rated[said].Success != 0
	for k := range calls {
		o := &calls[k]
		worked = worked || o != c && o.By == r.ID && o.Tool == c.Tool && o.OK
	}
	if i >= 0 && !worked {
		t.unlearn(&r.Offered[i].Learned, r, c.Tool)
	}
}

// offers returns the index at which a search offered a tool, -1 if it did not.
func (r *retrieval) offers(tool int32) int {
	return slices.IndexFunc(r.Offered, func(o offer) bool { return o.Tool == tool })
}

// choose records that a tool of a search was chosen.
func (t *tenant) choose(r *retrieval, i int) {
	o := &r.Offered[i]
	if o.Chosen {
		return
	}
	o.Chosen = true
	t.countChoice(r, o.Tool, !r.Chosen, func(d *counts) {
		d.Chosen++
		d.Ranks += uint32(i + 1)
	})
	r.Chosen = true
}

// unchoose reverts a recent choose.
func (t *tenant) unchoose(r *retrieval, tool int32) {
	i := r.offers(tool)
	if i < 0 || !r.Offered[i].Chosen {
		return
	}
	o := &r.Offered[i]
	o.Chosen = false
	r.Chosen = slices.ContainsFunc(r.Offered, func(o offer) bool { return o.Chosen })
	t.countChoice(r, tool, !r.Chosen, func(d *counts) {
		if d.Chosen > 0 { // else its day was dropped
			d.Chosen--
			d.Ranks -= min(d.Ranks, uint32(i+1))
		}
	})
}

// countChoice updates the counts of a tool, and if the search as a whole counts, of its user and
// strategy.
func (t *tenant) countChoice(r *retrieval, tool int32, whole bool, count func(*counts)) {
	if x := t.byNo[tool]; x != nil {
		count(x.Days.on(r.day()))
	}
	if whole {
		t.countSearch(r, count)
	}
}

// countSearch updates the counts of a search's user and strategy.
func (t *tenant) countSearch(r *retrieval, count func(*counts)) {
	if us, ok := t.Users.get(r.User); ok {
		count(us.Days.on(r.day()))
	}
	t.byStrategy(r, count)
}

func (t *tenant) byStrategy(r *retrieval, count func(*counts)) {
	name := r.Strategy
	d, ok := t.Strategies[name]
	if !ok && len(t.Strategies) >= maxStrategies {
		name = "other"
		d = t.Strategies[name]
	}
	count(d.on(r.day()))
	t.Strategies[name] = d
}

// learn counts the query for a tool that did what was asked.
func (t *tenant) learn(r *retrieval, i int) {
	if o := &r.Offered[i]; !o.Learned && !o.Poor {
		o.Learned = t.learnQuestion(r, t.byNo[o.Tool])
	}
}

func (t *tenant) unlearn(learned *bool, r *retrieval, tool int32) {
	if *learned {
		*learned = false
		t.unlearnQuery(learnedQueryKey{r.Query, tool}, r.User)
	}
}

// rate folds a rating of a search. A repeated rating counts once; of different ratings the newest
// counts. x is the tool it names, nil if none.
func (t *tenant) rate(r *retrieval, said rating, x *tool) {
	i := slices.IndexFunc(r.Rated, func(o rating) bool { return o.Tool == said.Tool })
	rated := i >= 0
	if !rated {
		if len(r.Rated) == maxKept {
			return
		}
		r.Rated = append(r.Rated, ratingOf(said.Tool, nil, nil))
		i = len(r.Rated) - 1
	}
	o := &r.Rated[i]
	said.Learned = o.Learned
	if rated && *o == said {
		return
	}
	first := o.Relevance < 0 && said.Relevance >= 0 // counts in the report
	*o = said
	score := func(d *counts) {
		d.Rated++
		d.Relevance += said.Relevance
	}
	if first {
		t.countSearch(r, score)
	}
	if x == nil {
		return
	}
	if first {
		score(x.Days.on(r.day()))
	}
	bad := said.bad()
	at := r.offers(x.No)
	learned := &o.Learned
	if at >= 0 {
		r.Offered[at].Poor = bad
		learned = &r.Offered[at].Learned
	}
	switch {
	case bad:
		t.unlearn(learned, r, x.No)
	case at < 0: // a tool the search missed: the query leads to it, once
		if said.Success != 0 && !o.Learned {
			o.Learned = t.learnQuestion(r, x)
		}
	default:
		t.choose(r, at)
		if said.Success != 0 {
			t.learn(r, at)
		}
	}
}
