package discover

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
)

const (
	// leastAlike is the cosine from which a tool is found by meaning alone. Unrelated texts have
	// 0.0 to 0.2.
	leastAlike = 0.2
	// Weight of the whole query against its best subquery: with meanings, and with words alone.
	wholeShare      = 0.5
	wholeShareWords = 1
	// spare is how many tools beyond the limit are examined, so that usage can lift them.
	spare = 64
	// neverCalled is the success rate of a tool without calls.
	neverCalled = 0.9
	// Recent calls of a conversation count by rank, and halve every hour.
	recentFade   = 0.85
	recentHalf   = time.Hour
	failedCounts = 0.5
	// preferCounts is the weight of the user's preferences against the current conversation.
	preferCounts = 0.5
	// sessionTimes multiplies the weight of history in InSession.
	sessionTimes = 3
	leastScore   = 0.001 // of a tool that is found
	// diversity is the weight of dissimilarity to earlier results in Semantic.
	diversity = 0.2
)

// DefaultWeights are those of Discovery 4.2.1 and 4.3.
var DefaultWeights = Weights{Semantic: 0.4, Keyword: 0.3, History: 0.2, Success: 0.1, Complexity: 0.1}

// weightsOf returns the weights of one search.
func (x *Index) weightsOf(ask Query, meanings bool) Weights {
	w := x.weights
	if l, ok := x.usage.(Learned); ok && ask.Session.Tenant != "" {
		if learned, ok := l.Weights(ask.Session.Tenant); ok {
			w = learned
		}
	}
	switch {
	case ask.Strategy == Semantic && meanings:
		return Weights{Semantic: 1}
	case ask.Strategy == Semantic, ask.Strategy == Keyword:
		return Weights{Keyword: 1}
	case ask.Strategy == InSession:
		w.History = math.Round(sessionTimes*1e6*w.History) / 1e6
	}
	if !meanings {
		// Usage must not weigh more when meanings are missing.
		w.Keyword, w.Semantic = w.Keyword+w.Semantic, 0
	}
	return w
}

// ranker is the state of one search. Its slices are pooled.
type ranker struct {
	x         *Index
	p         *postings
	q         *query
	weights   Weights
	threshold float32
	alike     [][]float32 // of query.texts; nil if meanings are not compared

	visible    func(*toolkeep.Tool) bool
	category   string
	visibility []uint8 // by tool: unknown, shown or hidden

	scores, whole, fits, here, means []float32
	best                             float32 // of fits
	order                            []uint32
	named                            map[uint32]bool // nil: none
}

const (
	shown  = 1
	hidden = 2
)

func (x *Index) ranker(p *postings, q *query, ask Query, visible func(*toolkeep.Tool) bool) *ranker {
	r, _ := x.rankers.Get().(*ranker)
	if r == nil {
		r = &ranker{x: x}
	}
	n := len(p.docs)
	r.p, r.q, r.visible, r.category = p, q, visible, ask.Category
	for _, s := range []*[]float32{&r.scores, &r.whole, &r.fits, &r.here} {
		*s = zeroed(*s, n)
	}
	r.visibility = zeroed(r.visibility, n)
	return r
}

func zeroed[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/8)
	}
	s = s[:n]
	clear(s)
	return s
}

// done returns the slices to the pool.
func (r *ranker) done() {
	r.p, r.q, r.visible, r.alike, r.means, r.named = nil, nil, nil, nil, nil, nil
	r.order = r.order[:0]
	r.x.rankers.Put(r)
}

// sees reports whether a tool may be found. visible is called once per tool.
func (r *ranker) sees(i int) bool {
	if r.visibility[i] == 0 {
		r.visibility[i] = hidden
		d := r.p.docs[i]
		if d == nil {
			return false
		}
		if t := d.tool; (r.category == "" || t.Manifest.Category == r.category) && (r.visible == nil || r.visible(t)) {
			r.visibility[i] = shown
		}
	}
	return r.visibility[i] == shown
}

// bestOf returns the maximum of a part over visible tools: hidden tools affect no score.
func (r *ranker) bestOf(part []float32) (best float32) {
	for i, v := range part {
		if v > best && r.sees(i) {
			best = v
		}
	}
	return best
}

// fit writes how well a subquery's words match each tool.
func (r *ranker) fit(to []float32, terms []int) {
	clear(to)
	for _, t := range terms {
		r.p.addTo(to, r.p.term(r.q.terms[t].stem))
	}
	r.addAbouts(to, terms)
}

// blend combines words and meanings, for the whole query and for each subquery, of which the best
// counts. Each part is first divided by its maximum, so that weights mean the same for every query
// and a short subquery counts as much as a long one; adding parts this way measured better than
// rank fusion.
func (r *ranker) blend() {
	share := float32(wholeShare)
	if r.alike == nil {
		share = wholeShareWords
	}
	r.fit(r.fits, r.q.all)
	r.best = r.bestOf(r.fits)
	r.fuse(r.whole, r.fits, r.best, 0, 1)
	if len(r.q.subqueries) == 0 {
		copy(r.scores, r.whole)
	}
	for _, w := range r.q.subqueries {
		r.fit(r.here, w.terms)
		r.fuse(r.scores, r.here, r.bestOf(r.here), w.alike, w.share)
	}
	if r.alike != nil {
		r.means = r.alike[0]
		for _, alike := range r.alike[1:] {
			for i, v := range alike {
				r.means[i] = max(r.means[i], v)
			}
		}
	}
	least := r.threshold
	var all float32
	if least > 0 {
		all = r.termWeight(r.q.all)
	}
	for i, v := range r.whole {
		r.scores[i] = (r.scores[i] + share*v) / (1 + share)
		if least > 0 && r.scores[i] > 0 && r.relevance(i, all) < least {
			r.scores[i] = 0
		}
	}
}

// fuse raises scores to those of a subquery.
func (r *ranker) fuse(scores, fits []float32, best float32, at int, share float32) {
	keyword := float32(r.weights.Keyword) * share
	if best > 0 {
		keyword /= best
	}
	if r.alike == nil || at < 0 {
		for i, v := range fits {
			scores[i] = max(scores[i], keyword*v)
		}
		return
	}
	alike := r.alike[at]
	semantic := float32(r.weights.Semantic) * share
	if most := r.bestOf(alike); most > 0 {
		semantic /= most
	}
	// For a tool without a vector words get both weights: otherwise it would be buried until it is
	// embedded.
	of, alone := r.p.alike.of, float32(0)
	if best > 0 {
		alone = float32(r.weights.Keyword+r.weights.Semantic) * share / best
	}
	for i, v := range alike {
		switch {
		case fits[i] > 0 && v == 0 && !of.Has(i):
			scores[i] = max(scores[i], alone*fits[i])
		case v >= leastAlike || fits[i] > 0 && keyword > 0:
			scores[i] = max(scores[i], semantic*v+keyword*fits[i])
		}
	}
}

// termWeight returns the weight of a subquery's words, by rarity.
func (r *ranker) termWeight(terms []int) (sum float32) {
	for _, t := range terms {
		sum += r.p.rarity(r.p.term(r.q.terms[t].stem))
	}
	return sum
}

// relevance returns how well a tool matches the query, independent of other tools: the cosine of
// their meanings, or the weighted share of the query's words, whichever is higher. all is the
// weight of all the query's words.
func (r *ranker) relevance(i int, all float32) float32 {
	var out float32
	if r.means != nil {
		out = r.means[i]
	}
	if r.weights.Keyword == 0 || r.fits[i] == 0 || all == 0 {
		return out
	}
	has := func(terms []int) (sum float32) {
		for _, t := range terms {
			if l := r.p.term(r.q.terms[t].stem); l.has(uint32(i)) {
				sum += r.p.rarity(l)
			}
		}
		return sum
	}
	out = max(out, has(r.q.all)/all)
	for _, w := range r.q.subqueries {
		if s := r.termWeight(w.terms); s > 0 && out < r.threshold {
			out = max(out, has(w.terms)/s)
		}
	}
	return out
}

// liftNamed puts tools first that the query names: it is exactly a tool's id or name, or contains
// an identifier.
func (r *ranker) liftNamed(raw string) {
	text := strings.ToLower(strings.TrimSpace(raw))
	if text == "" {
		return
	}
	names := identifiers(raw)
	top := float32(0)
	for i, d := range r.p.docs {
		if d == nil || d.name != text && d.id != text && !slices.Contains(names, d.name) && !slices.Contains(names, d.id) || !r.sees(i) {
			continue
		}
		if top == 0 {
			top = 1 + r.bestOf(r.scores)
			r.named = map[uint32]bool{}
		}
		r.scores[i] += top
		r.named[uint32(i)] = true
	}
}

// candidate is a tool that may be shown.
type candidate struct {
	at    uint32
	score float64
	parts Parts
}

// candidates returns the best visible tools.
func (r *ranker) candidates(n int) []candidate {
	r.order = r.order[:0]
	for i, s := range r.scores {
		if s > 0 && r.visibility[i] != hidden && r.p.docs[i] != nil {
			r.order = append(r.order, uint32(i))
		}
	}
	for i := len(r.order)/2 - 1; i >= 0; i-- {
		r.sink(i)
	}
	out := make([]candidate, 0, min(n, len(r.order)))
	for len(out) < n && len(r.order) > 0 {
		at := r.order[0]
		last := len(r.order) - 1
		r.order[0] = r.order[last]
		r.order = r.order[:last]
		r.sink(0)
		if r.sees(int(at)) {
			out = append(out, r.candidate(at))
		}
	}
	return out
}

// sink restores the heap order: the best on top, ties by id.
func (r *ranker) sink(i int) {
	for {
		best := i
		for k := 2*i + 1; k <= 2*i+2 && k < len(r.order); k++ {
			a, b := r.order[k], r.order[best]
			if r.scores[a] > r.scores[b] || r.scores[a] == r.scores[b] && r.p.before(a, b) < 0 {
				best = k
			}
		}
		if best == i {
			return
		}
		r.order[i], r.order[best] = r.order[best], r.order[i]
		i = best
	}
}

func (r *ranker) candidate(at uint32) candidate {
	c := candidate{at: at, score: float64(r.scores[at])}
	if r.best > 0 {
		c.parts.Keyword = min(1, float64(r.fits[at]/r.best))
	}
	if r.means != nil {
		c.parts.Semantic = min(1, float64(r.means[at]))
	}
	c.parts.Named = r.named[at]
	return c
}

func (p *postings) sortCandidates(list []candidate) {
	slices.SortFunc(list, func(a, b candidate) int {
		if a.score != b.score {
			return cmp.Compare(b.score, a.score)
		}
		return p.before(a.at, b.at)
	})
}

// complexity is the share of Weights.Complexity subtracted from a tool's score.
var complexity = map[string]float64{"medium": 0.5, "high": 1}

// rankByUsage adds history, success and complexity to the scores.
func (x *Index) rankByUsage(r *ranker, ask Query, list []candidate) []candidate {
	w := r.weights
	if ask.Strategy == Semantic || ask.Strategy == Keyword {
		return list
	}
	known := x.usage != nil && ask.Session.Tenant != ""
	var past map[string]float64
	var success []float64
	if known && w.History > 0 {
		past = history(x.usage.History(ask.Session), time.Now())
		if ask.Strategy == InSession {
			list = r.addHistory(list, past)
		}
	}
	if known {
		ids := make([]string, len(list))
		for i := range list {
			ids[i] = r.p.docs[list[i].at].tool.ID
		}
		success = x.usage.SuccessRates(ask.Session.Tenant, ids)
	}
	for i := range list {
		c := &list[i]
		t := r.p.docs[c.at].tool
		c.parts.History, c.parts.Success, c.parts.Complexity = past[t.ID], neverCalled, complexity[t.Manifest.Complexity]
		if known {
			if success != nil && success[i] >= 0 {
				c.parts.Success = success[i]
			}
			c.score += w.History*c.parts.History + w.Success*c.parts.Success
		}
		c.score = max(leastScore, c.score-w.Complexity*c.parts.Complexity)
	}
	r.p.sortCandidates(list)
	return list
}

// history returns how much each tool belongs to the earlier calls.
func history(h History, now time.Time) map[string]float64 {
	out := make(map[string]float64, len(h.Recent)+len(h.Paired)+len(h.Preferred))
	for tool, v := range h.Preferred {
		out[tool] = preferCounts * min(1, max(0, v))
	}
	for tool, v := range h.Paired {
		out[tool] = max(out[tool], min(1, max(0, v)))
	}
	position, seen := 1.0, map[string]bool{}
	for _, c := range h.Recent {
		if seen[c.Tool] {
			continue // an older call of the same tool
		}
		seen[c.Tool] = true
		v := position
		if age := now.Sub(c.At); age > 0 {
			v *= math.Exp2(-age.Hours() / recentHalf.Hours())
		}
		if !c.Success {
			v *= failedCounts
		}
		out[c.Tool] = max(out[c.Tool], v)
		position *= recentFade
	}
	return out
}

// addHistory adds earlier tools that the query does not match.
func (r *ranker) addHistory(list []candidate, past map[string]float64) []candidate {
	have := make(map[uint32]bool, len(list))
	for _, c := range list {
		have[c.at] = true
	}
	for id := range past {
		for _, at := range r.p.find(id) {
			if !have[at] && r.sees(int(at)) {
				list = append(list, r.candidate(at))
			}
		}
	}
	return list
}

// diversify moves tools down that resemble those before them (maximal marginal relevance), so that
// a vague query gets more than one kind of answer. Similarity is by the words of names and
// descriptions.
func (r *ranker) diversify(list []candidate, n int) []candidate {
	near := make([]float64, len(list)) // similarity to the closest tool before
	for i := 0; i < min(n, len(list)-1); i++ {
		best, most := i, math.Inf(-1)
		for k := i; k < len(list); k++ {
			if v := list[k].score - diversity*near[k]; v > most {
				best, most = k, v
			}
		}
		// The others keep their order.
		c, like := list[best], near[best]
		copy(list[i+1:best+1], list[i:best])
		copy(near[i+1:best+1], near[i:best])
		list[i], near[i] = c, like
		for k := i + 1; k < len(list); k++ {
			near[k] = max(near[k], r.p.alikeness(c.at, list[k].at))
		}
	}
	return list
}

// alikeness returns the share of words, weighted by rarity, that two tools' names and descriptions
// have in common.
func (p *postings) alikeness(a, b uint32) float64 {
	one, two := p.docs[a].terms, p.docs[b].terms
	var both, all float64
	weigh := func(t docTerm) float64 {
		if t.counts[fieldName] == 0 && t.counts[fieldDescription] == 0 {
			return 0
		}
		return float64(p.rarity(p.list(t.term)))
	}
	for len(one) > 0 && len(two) > 0 {
		switch {
		case one[0].term < two[0].term:
			all += weigh(one[0])
			one = one[1:]
		case one[0].term > two[0].term:
			all += weigh(two[0])
			two = two[1:]
		default:
			x, y := weigh(one[0]), weigh(two[0])
			both += min(x, y)
			all += max(x, y)
			one, two = one[1:], two[1:]
		}
	}
	for _, t := range one {
		all += weigh(t)
	}
	for _, t := range two {
		all += weigh(t)
	}
	if all == 0 {
		return 0
	}
	return both / all
}

// putLast moves the tools of Config.Last behind the others, except those that the query names. Both groups keep their order.
func (r *ranker) putLast(list []candidate) []candidate {
	if r.x.last == nil {
		return list
	}
	var last []candidate
	rest := list[:0]
	for _, c := range list {
		if !c.parts.Named && r.x.last(r.p.docs[c.at].tool) {
			last = append(last, c)
		} else {
			rest = append(rest, c)
		}
	}
	return append(rest, last...)
}

// matches returns the result. Where tools were moved other than by score, they take the score of
// their rank.
func (r *ranker) matches(list []candidate, n int) []Match {
	list = list[:min(n, len(list))]
	if len(list) == 0 {
		return nil
	}
	out := make([]Match, len(list))
	for i, c := range list {
		out[i] = Match{Tool: r.p.docs[c.at].tool, Score: c.score, Why: r.p.matchedWords(r.q, c.at), Parts: c.parts}
		if i > 0 {
			out[i].Score = min(out[i].Score, out[i-1].Score)
		}
	}
	return out
}
