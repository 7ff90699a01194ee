package discover

import (
	"cmp"
	"container/heap"
	"context"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
)

// Bounds of a search.
const (
	MaxResults = 200
	maxTerms   = 96
	maxClauses = 16
)

// Match is one tool that was found.
type Match struct {
	Tool  *toolkeep.Tool
	Score float64  // comparable within one answer only
	Why   []string // words of the query that the tool has, in their order
	// The parts of the score before they are weighed: how much the meanings are alike
	// (the cosine), and how well the words fit, 1 for the tool whose words fit best.
	Semantic, Keyword float64
}

// Strategy is how tools are searched for (Discovery 4.2).
type Strategy string

// Strategies.
const (
	Hybrid   Strategy = "hybrid"   // words and meaning; the default
	Semantic Strategy = "semantic" // meaning alone, for vague questions
	Keyword  Strategy = "keyword"  // words alone
)

// Query is one search.
type Query struct {
	Text     string
	Limit    int      // at most 200; 0 is 10
	Strategy Strategy // "" is hybrid
	// Session is what went before, which Config.Usage knows; the zero value counts
	// nothing but the question.
	Session Session
	// Audience names all that the visible of the search depends on, beside the tool: who
	// sees what (Access.Audience) and what the face leaves out by itself. Answers are
	// kept, and given again, only to the same audience of the same Session.Tenant; ""
	// keeps none.
	Audience string
}

// Report is how a search went.
type Report struct {
	Strategy Strategy // that was followed
	// Degraded says why meanings were not compared although they should be, "" if they
	// were.
	Degraded string
	Terms    []string // words of the query that the index looked for
	// CacheHit says that the answer was kept from an earlier search.
	CacheHit bool
}

// Search is Find with the default strategy.
func (x *Index) Search(query string, limit int, visible func(*toolkeep.Tool) bool) []Match {
	found, _ := x.Find(context.Background(), Query{Text: query, Limit: limit}, visible)
	return found
}

// Find gives the best tools for a query among those that visible lets
// through (nil lets all through; it alone keeps tenants apart), best first and
// equal ones by id. A query that names a tool's
// id or name exactly finds it first. It returns nil if nothing matches.
//
// Where meanings cannot be compared, because there is no embedder or it fails, words
// alone count, and the report says so.
func (x *Index) Find(ctx context.Context, ask Query, visible func(*toolkeep.Tool) bool) ([]Match, Report) {
	limit, query := ask.Limit, ask.Text
	if limit <= 0 {
		limit = 10
	}
	limit = min(limit, MaxResults)
	if len(query) > x.maxQuery {
		query = strings.ToValidUTF8(query[:x.maxQuery], "")
	}
	p := x.current.Load()
	q := readQuery(query)
	report := Report{Strategy: cmp.Or(ask.Strategy, Hybrid)}
	for _, t := range q.terms {
		report.Terms = append(report.Terms, t.word)
	}
	fits := p.score(q)
	var alike [][]float32
	if report.Strategy != Keyword && strings.TrimSpace(query) != "" && len(p.docs) > 0 {
		alike, report.Degraded = x.compare(ctx, p, append([]string{query}, q.wishes()...))
	}
	best := max(1e-9, slices.Max(append(fits, 0)))
	r := &ranking{scores: fits}
	var means []float32
	if alike != nil {
		r.scores, means = x.blend(p, q, report.Strategy, fits, alike)
	} else {
		report.Strategy = Keyword
	}
	for i, s := range r.scores {
		if s > 0 {
			r.order = append(r.order, uint32(i))
		}
	}
	p.preferNamed(query, r)
	heap.Init(r)
	var out []Match
	for len(out) < limit && r.Len() > 0 {
		i := heap.Pop(r).(uint32)
		tool := p.docs[i].tool
		if visible != nil && !visible(tool) {
			continue
		}
		m := Match{Tool: tool, Score: float64(r.scores[i]), Why: p.why(q, i), Keyword: float64(fits[i] / best)}
		if means != nil {
			m.Semantic = float64(means[i])
		}
		out = append(out, m)
	}
	return out, report
}

// leastAlike is the cosine from which a tool is found by its meaning alone. Texts about
// different things have 0.0 to 0.2.
const leastAlike = 0.25

// wholeShare is how much the question as a whole counts beside the best of its wishes.
const wholeShare = 0.5

// blend puts words and meanings together: for the question as a whole, and for each
// wish in it, of which the best counts. Each part is divided by its best first, so
// that the weights mean the same for every question and a wish in few words counts as
// much as one in many; adding parts this way was measured better than fusing ranks.
// likeness is that of the whole and of the wishes. means is how much each tool means
// what is asked, the best of the whole and its wishes.
func (x *Index) blend(p *postings, q query, s Strategy, fits []float32, likeness [][]float32) (scores, means []float32) {
	semantic, keyword := float32(x.weights.Semantic), float32(x.weights.Keyword)
	if s == Semantic {
		semantic, keyword = 1, 0
	}
	means = likeness[0]
	whole := make([]float32, len(fits))
	addShare(whole, means, semantic)
	addShare(whole, fits, keyword)
	scores = make([]float32, len(fits))
	if len(likeness) == 1 {
		for i, v := range whole {
			scores[i] = (1 + wholeShare) * v
		}
	} else {
		one, here := make([]float32, len(fits)), make([]float32, len(fits))
		for k, clause := range q.wished {
			alike := likeness[1+k]
			clear(here)
			for _, t := range q.clauses[clause] {
				p.addTo(here, p.term(q.terms[t].stem))
			}
			clear(one)
			addShare(one, alike, semantic)
			addShare(one, here, keyword)
			for i, v := range one {
				scores[i] = max(scores[i], v)
				means[i] = max(means[i], alike[i])
			}
		}
		for i, v := range whole {
			scores[i] += wholeShare * v
		}
	}
	for i, v := range means {
		if v < leastAlike && (fits[i] == 0 || keyword == 0) {
			scores[i] = 0
		}
	}
	return scores, means
}

// addShare adds a part, divided by its best, times its weight.
func addShare(to, part []float32, weight float32) {
	best := slices.Max(part)
	if best <= 0 || weight == 0 {
		return
	}
	weight /= best
	for i, v := range part {
		to[i] += weight * v
	}
}

// query is a question taken apart.
type query struct {
	terms   []queryTerm
	clauses [][]int  // indexes into terms
	texts   []string // of the clauses
	wished  []int    // indexes of those clauses that can be wishes by themselves
}

// Wishes have at least so many words that say something, and at most so many are
// compared by their meaning, which takes time for each.
const (
	wishWords = 3
	maxWishes = 8
)

// wishes are the texts of what is wished in the question, if it is more than one
// thing.
func (q *query) wishes() []string {
	if len(q.wished) < 2 {
		q.wished = nil
	}
	q.wished = q.wished[:min(len(q.wished), maxWishes)]
	texts := make([]string, len(q.wished))
	for i, c := range q.wished {
		texts[i] = q.texts[c]
	}
	return texts
}

type queryTerm struct{ stem, word string }

// splitters are the words that join two wishes.
var splitters = map[string]bool{"and": true, "then": true, "also": true, "finally": true, "additionally": true, "lastly": true, "next": true, "afterwards": true, "after": true, "furthermore": true, "moreover": true, "plus": true}

func readQuery(text string) query {
	var q query
	known := map[string]int{}
	for _, sentence := range sentences(text) {
		var clause []int
		var text []string
		said := 0
		end := func() {
			if len(clause) > 0 && len(q.clauses) < maxClauses {
				if said >= wishWords {
					q.wished = append(q.wished, len(q.clauses))
				}
				q.clauses = append(q.clauses, clause)
				q.texts = append(q.texts, strings.Join(text, " "))
			}
			clause, text, said = nil, nil, 0
		}
		take := func(w string) {
			if isStop(w) {
				return
			}
			if len(w) > 2 && (w[0] < '0' || w[0] > '9') {
				said++
			}
			s := stem(w)
			i, ok := known[s]
			if !ok {
				if len(q.terms) == maxTerms {
					return
				}
				i = len(q.terms)
				known[s] = i
				q.terms = append(q.terms, queryTerm{s, w})
			}
			if !slices.Contains(clause, i) {
				clause = append(clause, i)
			}
		}
		for word := range strings.FieldsSeq(sentence) {
			if splitters[strings.ToLower(strings.Trim(word, "\"'()/,"))] {
				end()
				continue
			}
			text = append(text, word)
			words(word, take)
		}
		end()
	}
	if len(q.terms) == 0 {
		// Nothing but words that are passed over: better those than nothing.
		words(text, func(w string) {
			if s := stem(w); known[s] == 0 && len(q.terms) < maxTerms {
				known[s] = 1
				q.terms = append(q.terms, queryTerm{s, w})
			}
		})
	}
	return q
}

// sentences splits at punctuation, but not inside of numbers and names.
func sentences(text string) []string {
	var out []string
	start := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '.', ',', ':':
			if i+1 < len(text) && text[i+1] != ' ' && text[i+1] != '\n' && text[i+1] != '\t' {
				continue
			}
		case ';', '!', '?', '\n':
		default:
			continue
		}
		out = append(out, text[start:i])
		start = i + 1
	}
	return append(out, text[start:])
}

// score is, for each tool, what the whole query gives and what its best clause
// gives.
func (p *postings) score(q query) []float32 {
	whole := make([]float32, len(p.docs))
	spans := make([]span, len(q.terms))
	for i, t := range q.terms {
		spans[i] = p.term(t.stem)
		p.addTo(whole, spans[i])
	}
	if len(q.clauses) < 2 {
		for i := range whole {
			whole[i] *= 2 // the only clause is the whole
		}
		return whole
	}
	best := make([]float32, len(p.docs))
	here := make([]float32, len(p.docs))
	for _, clause := range q.clauses {
		clear(here)
		for _, t := range clause {
			p.addTo(here, spans[t])
		}
		for i, s := range here {
			best[i] = max(best[i], s)
		}
	}
	for i := range whole {
		whole[i] += best[i]
	}
	return whole
}

func (p *postings) addTo(scores []float32, s span) {
	impact := p.impact[s.from:s.to]
	for i, at := range p.where[s.from:s.to] {
		scores[at] += impact[i]
	}
}

// preferNamed puts a tool first that the query names exactly.
func (p *postings) preferNamed(query string, r *ranking) {
	query = strings.ToLower(strings.TrimSpace(query))
	top := float32(0)
	for i, d := range p.docs {
		if d.name != query && d.id != query || query == "" {
			continue
		}
		if top == 0 {
			top = 1 + slices.Max(r.scores)
		}
		if r.scores[i] == 0 {
			r.order = append(r.order, uint32(i))
		}
		r.scores[i] += top
	}
}

// why names the words of the query that the tool has.
func (p *postings) why(q query, tool uint32) []string {
	var out []string
	for _, t := range q.terms {
		s := p.term(t.stem)
		if _, ok := slices.BinarySearch(p.where[s.from:s.to], tool); ok {
			out = append(out, t.word)
		}
	}
	return out
}

// ranking is a heap of tools, the best on top. Only as many are taken from it
// as are shown, so that visible is asked about few.
type ranking struct {
	scores []float32
	order  []uint32
}

func (r *ranking) Len() int { return len(r.order) }
func (r *ranking) Less(i, j int) bool {
	a, b := r.order[i], r.order[j]
	if r.scores[a] != r.scores[b] {
		return r.scores[a] > r.scores[b]
	}
	return a < b // they are sorted by id
}
func (r *ranking) Swap(i, j int) { r.order[i], r.order[j] = r.order[j], r.order[i] }
func (r *ranking) Push(v any)    { r.order = append(r.order, v.(uint32)) }
func (r *ranking) Pop() any {
	last := r.order[len(r.order)-1]
	r.order = r.order[:len(r.order)-1]
	return last
}
