package usage

import (
	"container/list"
	"slices"
	"time"
)

const (
	maxWaiting = 2000 // retrievals of a tenant of which something may still be chosen
	maxChosen  = 2000 // retrievals of which something was
	maxKept    = 20   // tools of a retrieval that are kept in memory
	poor       = 0.5  // relevance below which a choice was a mistake
)

// retrieval is a search in memory.
type retrieval struct {
	id       string
	at       int64 // milliseconds
	user     string
	session  string
	query    string // plain; "" once nothing is learned from it any more
	strategy string
	offered  []offer
	chosen   bool // something was
	rated    []rating
	in       *retrievals
	place    *list.Element
}

type offer struct {
	tool  *tool
	parts [5]float32
	// chosen: it was called or named in feedback; worked: and did; learned: the question
	// counts for it; poor: feedback says that it was a mistake.
	chosen, worked, learned, poor bool
}

// rating is what feedback said about one tool, or "" about the whole.
type rating struct {
	Tool      string  `json:"t"`
	Relevance float64 `json:"r"` // -1: nothing
	Success   int8    `json:"s"` // 1, 0, or -1: nothing
	// Learned: the search had not offered the tool, and the question counts for it.
	Learned bool `json:"l,omitzero"`
}

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

// retrievals are kept up to a number, the oldest first.
type retrievals struct {
	byID  map[string]*retrieval
	order recency[*retrieval]
}

func (l *retrievals) put(r *retrieval) {
	if l.byID == nil {
		l.byID = map[string]*retrieval{}
	}
	r.in = l
	l.byID[r.id] = r
	r.place = l.order.touch(r, nil)
}

func (l *retrievals) remove(r *retrieval) {
	delete(l.byID, r.id)
	l.order.remove(r.place)
	r.in = nil
}

func (l *retrievals) drop(before int64) {
	for r := range l.order.all() {
		if r.at < before {
			l.remove(r)
		}
	}
}

func (t *tenant) retrieval(id string) *retrieval {
	if r := t.waiting.byID[id]; r != nil {
		return r
	}
	return t.chosen.byID[id]
}

// keepRetrieval puts a retrieval where it waits for a choice.
func (t *tenant) keepRetrieval(r *retrieval) {
	t.waiting.put(r)
	for t.waiting.order.len() > maxWaiting {
		old, _ := t.waiting.order.oldest()
		t.waiting.remove(old)
		if old.chosen {
			t.chosen.put(old)
		}
	}
	for t.chosen.order.len() > maxChosen {
		old, _ := t.chosen.order.oldest()
		t.chosen.remove(old)
	}
}

// asked are the newest retrievals of a conversation, the newest first: whoever looks for
// several tools before the first is called has chosen them all.
type asked []*retrieval

const maxAsked = 4

func (l *asked) add(r *retrieval) {
	list := slices.DeleteFunc(*l, func(o *retrieval) bool { return o.in == nil })
	at := slices.IndexFunc(list, func(o *retrieval) bool { return o.at <= r.at })
	if at < 0 {
		at = len(list)
	}
	list = slices.Insert(list, at, r)
	*l = list[:min(len(list), maxAsked)]
}

func (l asked) names() (ids []string) {
	for _, r := range l {
		if r.in != nil {
			ids = append(ids, r.id)
		}
	}
	return ids
}

// called tells the newest retrieval that offered a call's tool, no longer than within
// before, that the call followed it. What none had offered was found elsewhere, and a
// call that was refused or cancelled chose nothing. A call is the choice of one retrieval:
// one that is told of later than an older one, see Usage.retrieved, takes it over.
func (t *tenant) called(list asked, c *call, within time.Duration) {
	if !c.counted {
		return
	}
	for _, r := range list {
		if r.in == nil || c.at < r.at || c.at-r.at > within.Milliseconds() {
			continue
		}
		i := r.offers(c.tool)
		if i < 0 {
			continue
		}
		if c.by != "" {
			before := t.retrieval(c.by)
			if before == nil || before.at >= r.at {
				return
			}
			if c.first {
				t.unchoose(before, c.tool)
			}
		}
		taken := c.by != ""
		c.by, c.first = r.id, t.choose(r, i, t.day)
		if c.ok {
			t.worked(r, i)
		}
		if !c.first || taken {
			return
		}
		t.byStrategy(r.strategy, t.day, func(s *tally) {
			s.Calls++
			if c.ok {
				s.Worked++
			}
			if c.timed {
				s.time(c.us)
			}
		})
		return
	}
}

// offers is at which place a retrieval offered a tool, -1 if it did not.
func (r *retrieval) offers(x *tool) int {
	return slices.IndexFunc(r.offered, func(o offer) bool { return o.tool == x })
}

// unchoose takes back that a tool of a retrieval was chosen, which was so for a moment.
func (t *tenant) unchoose(r *retrieval, x *tool) {
	i := r.offers(x)
	if i < 0 || !r.offered[i].chosen {
		return
	}
	o := &r.offered[i]
	o.chosen, o.worked = false, false
	if o.learned {
		o.learned = false
		t.led.unlearn(r.query, r.user, x)
	}
	discount := func(d *tally) {
		if d.Chosen > 0 { // it was another day
			d.Chosen--
			d.Places -= min(d.Places, uint32(i+1))
		}
	}
	discount(x.days.on(t.day))
	if slices.ContainsFunc(r.offered, func(o offer) bool { return o.chosen }) {
		return
	}
	r.chosen = false
	if us, ok := t.users.get(r.user); ok {
		discount(us.days.on(t.day))
	}
	t.byStrategy(r.strategy, t.day, discount)
}

// choose counts that a tool of a retrieval was chosen; false where it was before.
func (t *tenant) choose(r *retrieval, i int, day int32) bool {
	o := &r.offered[i]
	if o.chosen {
		return false
	}
	o.chosen = true
	count := func(d *tally) {
		d.Chosen++
		d.Places += uint32(i + 1)
	}
	count(o.tool.days.on(day))
	if !r.chosen {
		r.chosen = true
		if us, ok := t.users.get(r.user); ok {
			count(us.days.on(day))
		}
		t.byStrategy(r.strategy, day, count)
	}
	return true
}

// worked counts the question for a tool that did what was asked.
func (t *tenant) worked(r *retrieval, i int) {
	o := &r.offered[i]
	o.worked = true
	if !o.learned && !o.poor && r.query != "" {
		o.learned = t.led.learn(r.query, r.user, o.tool, r.at)
	}
}

func (t *tenant) byStrategy(name string, day int32, count func(*tally)) {
	d, ok := t.strategy[name]
	if !ok && len(t.strategy) >= maxStrategies {
		name = "other"
		d = t.strategy[name]
	}
	count(d.on(day))
	t.strategy[name] = d
}

// rate takes in what a person or agent said of a retrieval. Said twice it counts once;
// said otherwise, the newer counts.
func (t *tenant) rate(r *retrieval, said rating, x *tool, day int32) {
	i := slices.IndexFunc(r.rated, func(o rating) bool { return o.Tool == said.Tool })
	if i >= 0 {
		said.Learned = r.rated[i].Learned
	}
	if i >= 0 && r.rated[i] == said || i < 0 && len(r.rated) == maxKept {
		return
	}
	if i < 0 {
		r.rated = append(r.rated, rating{Tool: said.Tool, Relevance: -1, Success: -1})
		i = len(r.rated) - 1
	}
	before := r.rated[i].Relevance
	r.rated[i] = said
	score := func(d *tally) {
		if before < 0 && said.Relevance >= 0 { // the first one counts in the report
			d.Rated++
			d.Relevance += said.Relevance
		}
	}
	if us, ok := t.users.get(r.user); ok {
		score(us.days.on(day))
	}
	t.byStrategy(r.strategy, day, score)
	if x == nil {
		return
	}
	score(x.days.on(day))
	bad := said.Relevance >= 0 && said.Relevance < poor
	at := r.offers(x)
	if at < 0 {
		// A tool that the search missed: the question leads to it from now on, and once,
		// unless it turns out to be a mistake.
		switch o := &r.rated[i]; {
		case !bad && said.Success != 0 && r.query != "" && !o.Learned:
			o.Learned = t.led.learn(r.query, r.user, x, r.at)
		case bad && o.Learned:
			o.Learned = false
			t.led.unlearn(r.query, r.user, x)
		}
		return
	}
	o := &r.offered[at]
	o.poor = bad
	if bad {
		if o.learned {
			o.learned = false
			t.led.unlearn(r.query, r.user, x)
		}
		return
	}
	t.choose(r, at, day)
	if said.Success != 0 {
		t.worked(r, at)
	}
}
