package discover

import (
	"container/heap"
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
}

// Search gives the best tools for a query among those that visible lets
// through (nil lets all through; it alone keeps tenants apart), best first and
// equal ones by id. limit is at most 200; 0 is 10. A query that names a tool's
// id or name exactly finds it first. It returns nil if nothing matches.
func (x *Index) Search(query string, limit int, visible func(*toolkeep.Tool) bool) []Match {
	if limit <= 0 {
		limit = 10
	}
	limit = min(limit, MaxResults)
	if len(query) > x.maxQuery {
		query = strings.ToValidUTF8(query[:x.maxQuery], "")
	}
	p := x.current.Load()
	q := readQuery(query)
	r := &ranking{scores: p.score(q)}
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
		out = append(out, Match{Tool: tool, Score: float64(r.scores[i]), Why: p.why(q, i)})
	}
	return out
}

// query is a question taken apart.
type query struct {
	terms   []queryTerm
	clauses [][]int // indexes into terms
}

type queryTerm struct{ stem, word string }

// splitters are the words that join two wishes.
var splitters = map[string]bool{"and": true, "then": true, "also": true, "finally": true, "additionally": true, "lastly": true, "next": true, "afterwards": true, "after": true, "furthermore": true, "moreover": true, "plus": true}

func readQuery(text string) query {
	var q query
	known := map[string]int{}
	for _, sentence := range sentences(text) {
		var clause []int
		end := func() {
			if len(clause) > 0 && len(q.clauses) < maxClauses {
				q.clauses = append(q.clauses, clause)
			}
			clause = nil
		}
		words(sentence, func(w string) {
			if splitters[w] {
				end()
				return
			}
			if isStop(w) {
				return
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
		})
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
