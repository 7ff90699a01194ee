package discover

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
)

// Bounds of a search.
const (
	MaxResults    = 200
	maxTerms      = 96
	maxSubqueries = 24
)

// Match is one tool that was found.
type Match struct {
	Tool  *toolkeep.Tool
	Score float64  // comparable within one answer only
	Why   []string // words of the query that the tool has, in their order
	Parts
}

// Parts are what a score is made of, before Report.Weights weigh them.
type Parts struct {
	// Semantic is how much query and tool mean alike: the cosine of the whole query or
	// of the subquery that is nearest. It counts divided by the best of all tools.
	Semantic float64
	// Keyword is how well the words of the whole query fit, 1 for the tool whose words
	// fit best.
	Keyword float64
	// History is how much the tool belongs to what the conversation and the user called
	// before, 0 to 1.
	History float64
	// Success is the share of the tenant's calls that succeeded; a tool that was never
	// called counts as 0.9, so that it is not buried.
	Success float64
	// Complexity is 0 for a simple tool, 0.5 for a medium, 1 for a complex one. It is
	// taken off.
	Complexity float64
	// Action is how much the tool does what the query wants done, by its verb: 1 if it does
	// (reads, creates, changes, removes), 1.4 if it lists what is asked for in the plural,
	// -1 if it does something else, 0 where that cannot be told. It counts 0.05.
	Action float64
	// Learned is how much the query is like those that led to the tool before, 0 to 1.
	// It reorders tools that have such queries among their own ranks, and is in no score.
	Learned float64
	// Named says that the query names the tool itself, which puts it first.
	Named bool
}

// Strategy is how tools are searched for (Discovery 4.2).
type Strategy string

// Strategies.
const (
	Hybrid   Strategy = "hybrid"   // words, meaning and usage; the default
	Semantic Strategy = "semantic" // meaning alone and a varied answer, for vague questions
	Keyword  Strategy = "keyword"  // words alone
	Category Strategy = "category" // hybrid within Query.Category
	// InSession is for conversations: tools that were called in it, and those that are
	// often called with them, count heavily, and are found even if nothing in the
	// question speaks of them.
	InSession Strategy = "session"
)

// Counter is a search that counts the tools that visible lets through without listing them.
type Counter interface {
	Count(ask Query, visible func(*toolkeep.Tool) bool) int
}

// Query is one search.
type Query struct {
	Text     string
	Limit    int      // at most 200; 0 is 10
	Strategy Strategy // "" is hybrid
	Category string   // only tools of this category; "" is all
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
	// Degraded says why meanings were not compared although they should be, or of how many
	// of the tools that the search may find they were not; "" if of all.
	Degraded string
	// Partial says that Degraded tells of such tools alone: they wait for their vectors,
	// as View has it too, and meanings were compared by the configured model.
	Partial bool
	// WordsAlone says that Degraded tells of no failure: nothing that embeds texts is
	// configured or installed, and the same search is answered alike until that changes.
	WordsAlone bool
	Terms      []string // words of the query that the index looked for
	Weights    Weights  // of the parts of each score
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
	limit, text := ask.Limit, ask.Text
	if limit <= 0 {
		limit = 10
	}
	limit = min(limit, MaxResults)
	text = toolkeep.CutBytes(text, x.maxQuery)
	p := x.current.Load()
	q := readQuery(text)
	report := Report{Strategy: cmp.Or(ask.Strategy, Hybrid)}
	for _, t := range q.terms {
		report.Terms = append(report.Terms, t.word)
	}
	r := x.ranker(p, &q, ask, visible)
	defer r.done()
	r.threshold = float32(x.threshold)
	if report.Strategy != Keyword && strings.TrimSpace(text) != "" && len(p.sorted) > 0 {
		r.alike, report.Degraded = x.compare(ctx, r, q.texts(text))
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
		pool = min(pool, 3*limit+10) // beyond them an answer is varied and wrong
	}
	list := r.candidates(pool)
	list = r.rankByAction(text, list)
	list = x.rankByUsage(r, ask, list)
	list = x.rankByExamples(r, ask, text, list)
	if report.Strategy == Semantic {
		list = r.diversify(list, limit)
	}
	return r.matches(list, limit), report
}

// query is a question taken apart.
type query struct {
	terms []queryTerm
	all   []int // indexes into terms, of all
	// subqueries are what is asked for in it, if that is more than one thing: sentences, and
	// the clauses of sentences.
	subqueries []subquery
	embeds     int // how many of their texts are compared by meaning
}

// subquery is a part of a question that can stand by itself.
type subquery struct {
	terms []int
	text  string
	share float32 // how much it counts
	// alike is where its likeness stands in what texts names: 0 is the whole question,
	// -1 that words alone are compared.
	alike int
}

// A subquery has at least so many words that say something, and so many of a question are
// compared by their meaning, which takes some milliseconds for each.
const (
	subqueryWords = 3
	maxEmbeds     = 8
	clausePart    = 0.9 // how much a clause counts beside a whole sentence
)

type queryTerm struct{ stem, word string }

// splitters are the words that join two subqueries.
var splitters = set("and then also finally additionally lastly next afterwards after furthermore moreover plus")

// texts are what is to be compared by meaning: the whole question, then the subqueries.
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

// readQuery takes a question apart. Sentences are subqueries; where one has several clauses
// of some length, they are too.
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
		// Nothing but words that are passed over: better those than nothing.
		words(text, func(w string) { r.take(w) })
	}
	if subqueries > 1 {
		r.subquery(list)
	}
	return r.query
}

// reader is a question that is being taken apart.
type reader struct {
	query
	known map[string]int // index into terms, by stem
}

// sentence is a subquery that may hold others.
type sentence struct {
	subquery
	clauses []subquery // none, or at least two
	said    int        // words that say something
}

// take gives the index of a word among the terms, -1 for one too many.
func (r *reader) take(word string) int {
	s := stem(word)
	i, ok := r.known[s]
	if !ok {
		if len(r.terms) == maxTerms {
			return -1
		}
		i = len(r.terms)
		r.known[s] = i
		r.terms = append(r.terms, queryTerm{s, word})
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

// clause tells how many of its words say something, too.
func (r *reader) clause(list []string) (w subquery, said int) {
	w = subquery{text: strings.Join(list, " "), share: clausePart}
	for _, word := range list {
		words(word, func(word string) {
			if isStop(word) {
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

// subquery takes the subqueries of sentences: those first, then their clauses.
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

// What ends a sentence, and what a clause beside.
const (
	sentenceEnds = ".;!?\n"
	clauseEnds   = ",:"
)

// split yields what stands between the ends in a text. A dot, comma or colon ends
// nothing inside of numbers and names.
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

// parts yields the words of a clause, split where splitters stand.
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

// identifiers are the words of a question that only a program would write, lower case:
// getUser, get_user, users.get.
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
		if p.term(t.stem).has(tool) {
			out = append(out, t.word)
		}
	}
	return out
}
