package discover

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
)

// Limits of a search.
const (
	MaxResults = 200
	// MaxQuestion is how many characters of a query are read; the rest is cut off, and Report.Cut says so.
	MaxQuestion   = 16_000
	maxTerms      = 2000 // different words of a query
	maxSubqueries = 24
	maxWhy        = 32 // words of a match explanation
)

// Match is one tool that was found.
type Match struct {
	Tool  *toolkeep.Tool
	Score float64  // comparable only within one answer
	Why   []string // words of the query that match the tool, in order, at most 32
	Parts
}

// Parts are the components of a score, before weighting by Report.Weights.
type Parts struct {
	// Semantic is the cosine similarity of query and tool, for the whole query or the nearest
	// subquery, and half of that with what the tool's server or API says of itself; 1 at most. In the score it is divided by the maximum of all tools.
	Semantic float64
	// Keyword is how well the words of the whole query match, 1 for the best tool.
	Keyword float64
	// History is how much the tool belongs to earlier calls of the conversation and the user, 0 to
	// 1.
	History float64
	// Success is the success rate of the tenant's calls; a tool without calls counts as 0.9, so
	// that it is not buried.
	Success float64
	// Complexity is 0 for a simple tool, 0.5 for a medium, 1 for a complex one. It is subtracted.
	Complexity float64
	// Action is how well the tool's verb matches the query's: 1 if it does what is wanted (read,
	// create, change, remove), 1.4 if it lists what is asked for in the plural, -1 if it does
	// something else, 0 if unknown. Its weight is 0.05.
	Action float64
	// Learned is the similarity of the query to those that led to the tool before, 0 to 1. It
	// reorders tools that have such queries among their own ranks, and is not part of a score.
	Learned float64
	// Named is set if the query names the tool itself, which puts it first.
	Named bool
}

// Strategy selects how tools are searched for (Discovery 4.2).
type Strategy string

// Strategies.
const (
	Hybrid   Strategy = "hybrid"   // words, meaning and usage; the default
	Semantic Strategy = "semantic" // meaning only, with diverse results, for vague queries
	Keyword  Strategy = "keyword"  // words alone
	Category Strategy = "category" // hybrid within Query.Category
	// InSession is for conversations: tools called in it, and those often called with them, weigh
	// heavily, and are found even if the query does not match them.
	InSession Strategy = "session"
)

// Counter is a search that counts the visible tools by category without listing them. The map is
// shared and is not written.
type Counter interface {
	Count(ask Query, visible func(*toolkeep.Tool) bool) (byCategory map[string]int)
}

// ByCategory counts tools.
func ByCategory(tools []*toolkeep.Tool) map[string]int {
	n := map[string]int{}
	for _, t := range tools {
		n[t.Manifest.Category]++
	}
	return n
}

// Query is one search.
type Query struct {
	Text     string
	Limit    int      // at most 200; 0 means 10
	Strategy Strategy // "" means hybrid
	Category string   // only tools of this category; "" means all
	// Session identifies the earlier calls in Config.Usage; with the zero value only the query
	// counts.
	Session Session
	// Audience identifies everything that visible depends on besides the tool: the principal's
	// access (Access.Audience) and the face's own exclusions. Answers are cached only for the same
	// audience of the same Session.Tenant; "" disables caching.
	Audience string
}

// Report is how a search went.
type Report struct {
	Strategy Strategy // the strategy used
	// Degraded says why meanings were not compared although configured, or for how many of the
	// tools the search may find they were not; "" if for none.
	Degraded string
	// Partial is set if Degraded is only about such tools: they wait for their vectors, as in Snapshot,
	// and meanings were compared by the configured model.
	Partial bool
	// WordsAlone is set if Degraded is not a failure: no embedder is configured or installed, and
	// the answer stays the same until that changes.
	WordsAlone bool
	// Cut is set if the query is longer than MaxQuestion.
	Cut     bool
	Terms   []string // words of the query that were searched for
	Weights Weights  // of the parts of each score
	// CacheHit is set if the answer came from the cache.
	CacheHit bool
}

// Search is Find with the default strategy.
func (x *Index) Search(query string, limit int, visible func(*toolkeep.Tool) bool) []Match {
	found, _ := x.Find(context.Background(), Query{Text: query, Limit: limit}, visible)
	return found
}

// Find returns the best tools for a query among those that visible lets through, best first, ties
// by id. A nil visible lets all through; visible alone separates tenants. A tool whose id or name
// is exactly the query comes first. It returns nil if nothing matches.
//
// If meanings cannot be compared, for lack of an embedder or because it fails, only words count,
// and the report says so.
func (x *Index) Find(ctx context.Context, ask Query, visible func(*toolkeep.Tool) bool) ([]Match, Report) {
	var m *questionMap
	if ask.Strategy != Semantic && ask.Strategy != Keyword {
		m = x.mapFor(ask.Session.Tenant)
	}
	return x.find(ctx, ask, visible, m, nil)
}

// find is Find with questions moved by m, unless that is nil. vectors gives their vectors in place of the cache; nil: the cache.
func (x *Index) find(ctx context.Context, ask Query, visible func(*toolkeep.Tool) bool, m *questionMap, vectors embedding) ([]Match, Report) {
	limit := ask.Limit
	if limit <= 0 {
		limit = 10
	}
	limit = min(limit, MaxResults)
	text, cut := CutQuestion(ask.Text)
	p := x.current.Load()
	q := readQuery(text)
	report := Report{Strategy: cmp.Or(ask.Strategy, Hybrid), Cut: cut}
	for _, t := range q.terms {
		report.Terms = append(report.Terms, t.word)
	}
	r := x.ranker(p, &q, ask, visible)
	defer r.done()
	r.threshold = float32(x.threshold)
	if report.Strategy != Keyword && strings.TrimSpace(text) != "" && len(p.sorted) > 0 {
		r.alike, report.Degraded = x.compare(ctx, r, q.texts(text), m, vectors)
		if r.alike != nil {
			report.Degraded = r.partialReason()
			report.Partial = report.Degraded != "" && p.alike.own
		}
		report.WordsAlone = x.meaning == nil
	}
	r.weights = x.weightsOf(ask, r.alike != nil)
	report.Weights = r.weights
	if r.alike == nil && (report.Strategy == Hybrid || report.Strategy == Semantic) {
		report.Strategy = Keyword
	}
	r.blend()
	r.liftNamed(text)
	pool := limit + spare
	if report.Strategy == Semantic {
		pool = min(pool, 3*limit+10) // beyond that, diverse results are wrong ones
	}
	list := r.candidates(pool)
	list = r.rankByAction(text, list)
	list = x.rankByUsage(r, ask, list)
	list = x.rankByExamples(r, ask, text, list)
	if report.Strategy == Semantic {
		list = r.diversify(list, limit)
	}
	return r.matches(r.putLast(list), limit), report
}

// query is an analysed query.
type query struct {
	terms []queryTerm
	all   []int // indexes into terms, of all
	// subqueries are the separate requests in it, if there are several: sentences, and the clauses
	// of sentences.
	subqueries []subquery
	embeds     int // how many of their texts are compared by meaning
}

// subquery is a self-contained part of a query.
type subquery struct {
	terms []int
	text  string
	share float32 // its weight
	// alike is its index in texts: 0 is the whole query, -1 means that only words are compared.
	alike int
}

// The minimum number of meaningful words in a subquery, and the maximum number of subqueries
// compared by meaning, which takes some milliseconds each.
const (
	subqueryWords = 3
	maxEmbeds     = 8
	clausePart    = 0.9 // weight of a clause relative to a sentence
)

type queryTerm struct{ stem, word string }

// splitters are the words that join two requests.
var splitters = set("and then also finally additionally lastly next afterwards after furthermore moreover plus")

// texts returns the texts to compare by meaning: the whole query, then the subqueries.
func (q *query) texts(whole string) []string {
	out := make([]string, 1+q.embeds)
	out[0] = whole
	for _, w := range q.subqueries {
		if w.alike > 0 {
			out[w.alike] = w.text
		}
	}
	return out
}

// readQuery analyses a query. Sentences are subqueries; so are the clauses of a sentence with
// several clauses of some length.
func readQuery(text string) query {
	r := reader{known: map[string]int{}}
	var list []sentence
	subqueries := 0
	for s := range split(text, sentenceEnds) {
		if one := r.sentence(s); one.said >= subqueryWords {
			list = append(list, one)
			subqueries += max(1, len(one.clauses))
		}
	}
	if len(r.terms) == 0 {
		// The query has only stop words and numbers: better those than nothing.
		words(text, func(w string) { r.take(w) })
	}
	if subqueries > 1 {
		r.subquery(list)
	}
	return r.query
}

// reader is the state of readQuery.
type reader struct {
	query
	known map[string]int // index into terms, by stem
}

// sentence is a subquery that may contain others.
type sentence struct {
	subquery
	clauses []subquery // none, or at least two
	said    int        // meaningful words
}

// take returns the index of a word among the terms, -1 if there are too many.
func (r *reader) take(word string) int {
	s := stem(word)
	i, ok := r.known[s]
	if !ok {
		if len(r.terms) == maxTerms {
			return -1
		}
		i = len(r.terms)
		r.known[s] = i
		r.terms = append(r.terms, queryTerm{s, strings.Clone(word)}) // a cached answer must not hold the whole query
		r.all = append(r.all, i)
	}
	return i
}

func (r *reader) sentence(text string) sentence {
	whole := sentence{subquery: subquery{text: strings.TrimSpace(text), share: 1}}
	for c := range split(text, clauseEnds) {
		for clause := range parts(c) {
			w, said := r.clause(clause)
			for _, i := range w.terms {
				if !slices.Contains(whole.terms, i) {
					whole.terms = append(whole.terms, i)
				}
			}
			whole.said += said
			if said >= subqueryWords {
				whole.clauses = append(whole.clauses, w)
			}
		}
	}
	if len(whole.clauses) < 2 {
		whole.clauses = nil
	}
	return whole
}

// clause also returns the number of meaningful words.
func (r *reader) clause(list []string) (w subquery, said int) {
	w = subquery{text: strings.Join(list, " "), share: clausePart}
	for _, word := range list {
		words(word, func(word string) {
			if saysNothing(word) {
				return
			}
			if len(word) > 2 && (word[0] < '0' || word[0] > '9') {
				said++
			}
			if i := r.take(word); i >= 0 && !slices.Contains(w.terms, i) {
				w.terms = append(w.terms, i)
			}
		})
	}
	return w, said
}

// subquery adds the sentences as subqueries, then their clauses.
func (r *reader) subquery(list []sentence) {
	if len(list) == 1 {
		r.subqueries = list[0].clauses // the sentence is the whole
	} else {
		for i := range list {
			r.subqueries = append(r.subqueries, list[i].subquery)
		}
		for i := range list {
			r.subqueries = append(r.subqueries, list[i].clauses...)
		}
	}
	r.subqueries = r.subqueries[:min(len(r.subqueries), maxSubqueries)]
	r.embeds = min(len(r.subqueries), maxEmbeds)
	for i := range r.subqueries {
		if r.subqueries[i].alike = i + 1; i >= maxEmbeds {
			r.subqueries[i].alike = -1
		}
	}
}

// Characters that end a sentence, and those that also end a clause.
const (
	sentenceEnds = ".;!?\n"
	clauseEnds   = ",:"
)

// split yields the parts of a text between the given ends. A dot, comma or colon inside a number or
// a name ends nothing.
func split(text, ends string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		start := 0
		for i := 0; i < len(text); i++ {
			c := text[i]
			if strings.IndexByte(ends, c) < 0 {
				continue
			}
			if c == '.' || c == ',' || c == ':' {
				if i+1 < len(text) && text[i+1] != ' ' && text[i+1] != '\n' && text[i+1] != '\t' {
					continue
				}
			}
			if !yield(text[start:i]) {
				return
			}
			start = i + 1
		}
		yield(text[start:])
	}
}

// parts yields the words of a clause, split at splitters.
func parts(clause string) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		var words []string
		for word := range strings.FieldsSeq(clause) {
			if !splitters[strings.ToLower(strings.Trim(word, "\"'()/,"))] {
				words = append(words, word)
				continue
			}
			if len(words) > 0 && !yield(words) {
				return
			}
			words = nil
		}
		if len(words) > 0 {
			yield(words)
		}
	}
}

// identifiers returns the words of a query that only a program would write, lower case: getUser,
// get_user, users.get.
func identifiers(text string) (out []string) {
	for word := range strings.FieldsSeq(text) {
		word = strings.Trim(word, "\"'`()[]{}<>.,:;!?")
		n := 0
		if strings.ContainsAny(word, "_.") || strings.IndexFunc(word, func(r rune) bool { return r >= 'A' && r <= 'Z' }) > 0 {
			words(word, func(string) { n++ })
		}
		if n > 1 && len(word) <= 256 && len(out) < 8 {
			out = append(out, strings.ToLower(word))
		}
	}
	return out
}

// matchedWords are the words of the query that the tool has.
func (p *postings) matchedWords(q *query, tool uint32) []string {
	var out []string
	for _, t := range q.terms {
		if p.term(t.stem).has(tool) && len(out) < maxWhy {
			out = append(out, t.word)
		}
	}
	return out
}
