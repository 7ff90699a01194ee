package discover

import (
	"cmp"
	"context"
	"crypto/sha256"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/viterin/vek/vek32"
)

// Limits of learning from queries.
const (
	maxToolExamples   = 20     // queries that count per tool, newest first
	maxExamples       = 20_000 // per tenant
	maxExampleBytes   = 1000   // of a query; the rest is cut off
	maxExampleTerms   = 96     // different words of a query that are compared with those of examples
	maxExampleTenants = 64     // tenants whose queries are held at once
	exampleRetry      = 30 * time.Second
	// After processing, learning pauses for this multiple of the time it took.
	exampleRest    = 20
	examplePublish = time.Second // between two publications while queries are embedded
	// Weight of similarity to a query that led to a tool, relative to the score: for a query with
	// one request, and for one with several, which says less about each tool.
	learnedShare  = 1
	learnedShares = 0.3
	// exampleMeaning is the weight of meaning against words between two queries.
	exampleMeaning = 0.6
	// maxCompared is how many stored queries are compared in one search, for the query and its
	// subqueries.
	maxCompared = 40_000
	// A tool without any other match is found if a query that led to it is this similar.
	learnedAlone = 0.6
	// A tool is shown if a query that led to it is this similar.
	learnedAgain = 0.9
)

// exampleSets holds the queries that led to tools, by tenant. One tenant's queries are never used
// for another.
type exampleSets struct {
	x     *Index
	usage Usage
	log   *slog.Logger

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	// One map is learned at a time, of all tenants, and none from its end until mapAfter.
	learning atomic.Bool
	mapAfter atomic.Int64

	mu      sync.Mutex
	closed  bool
	tenants map[string]*tenantExamples
}

// tenantExamples are those of one tenant.
type tenantExamples struct {
	now   atomic.Pointer[learned]
	used  atomic.Int64 // last use; the least recently used tenant is evicted
	busy  atomic.Bool  // a goroutine is reading new examples
	after atomic.Int64 // not before this time, since the embedder failed

	mapped atomic.Pointer[questionMap] // nil: none, or no better one than the identity

	mapping atomic.Bool             // a map is being learned
	tried   atomic.Pointer[attempt] // of the map that was learned last, used or not

	known map[string]*exampleText // by query; owned by the busy goroutine
}

// exampleText is an analysed query. It is immutable except for its vector, which the busy goroutine
// replaces together with the whole.
type exampleText struct {
	stems  []string
	vector []float32
	by     *space // the space of vector
}

// learned is what a tenant's searches use. It is immutable.
type learned struct {
	of     *Example // the first of its examples, and their number
	n      int
	by     *space              // the space of its vectors; nil: none
	have   int                 // queries with vectors
	texts  []*exampleText      // distinct
	tools  map[string][]uint32 // indexes into texts
	stems  map[string][]uint32 // indexes into texts, by stem
	length []float32           // of each text's words, weighted
}

func newExampleSets(x *Index, usage Usage, log *slog.Logger) *exampleSets {
	ctx, cancel := context.WithCancel(context.Background())
	return &exampleSets{x: x, usage: usage, log: log, ctx: ctx, cancel: cancel, tenants: map[string]*tenantExamples{}}
}

// close stops the background work and waits for it.
func (l *exampleSets) close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.cancel()
	l.wg.Wait()
}

// of returns what a tenant's queries have taught so far, nil if nothing. New queries are processed
// in the background.
func (l *exampleSets) of(tenant string, by *space) *learned {
	var forgotten int64
	if m, ok := l.usage.(Mapping); ok {
		_, forgotten = m.MapsQuestions(tenant) // before what was learned from is read
	}
	examples := l.usage.Examples(tenant)
	l.mu.Lock()
	t := l.tenants[tenant]
	if t == nil && len(examples) > 0 && !l.closed && (len(l.tenants) < maxExampleTenants || l.forgetOne()) {
		t = &tenantExamples{known: map[string]*exampleText{}}
		l.tenants[tenant] = t
	}
	l.mu.Unlock()
	if t == nil {
		return nil
	}
	now := time.Now().UnixNano()
	t.used.Store(now)
	have := t.now.Load()
	fits := have.fits(examples, by)
	if fits && !l.mapDue(tenant, t, have, forgotten) || now < t.after.Load() || !t.busy.CompareAndSwap(false, true) {
		return have
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		t.busy.Store(false)
		return have
	}
	l.wg.Go(func() {
		defer t.busy.Store(false)
		n := have
		if !fits {
			n = l.take(t, examples, by)
		}
		if l.mapDue(tenant, t, n, forgotten) {
			l.startMap(tenant, t, n, forgotten)
		}
	})
	return have
}

// forgetOne evicts a tenant to make room, unless all are busy.
func (l *exampleSets) forgetOne() bool {
	oldest, found := "", false
	var at int64 = math.MaxInt64
	for tenant, t := range l.tenants {
		if u := t.used.Load(); u < at && !t.busy.Load() && !t.mapping.Load() {
			oldest, at, found = tenant, u, true
		}
	}
	delete(l.tenants, oldest)
	return found
}

// fits reports whether all of examples have been processed, with the vectors of by.
func (n *learned) fits(examples []Example, by *space) bool {
	if n == nil {
		return len(examples) == 0
	}
	if len(examples) != n.n || n.n > 0 && &examples[0] != n.of {
		return false
	}
	return by == nil || n.by == by && n.have == len(n.texts)
}

// take processes and embeds examples, and returns them if all have vectors.
func (l *exampleSets) take(t *tenantExamples, examples []Example, by *space) *learned {
	begin := time.Now()
	n := t.read(examples)
	n.by = by
	// With a constant flow of queries this uses at most 5 % of one core.
	t.after.Store(begin.Add(exampleRest * time.Since(begin)).UnixNano())
	n.count()
	t.now.Store(n)
	if by == nil {
		return nil
	}
	var missing []int
	var questions []string
	for question, text := range t.known {
		if text.by != by {
			questions = append(questions, question)
		}
	}
	slices.Sort(questions)
	at := make(map[*exampleText]int, len(n.texts))
	for i, text := range n.texts {
		at[text] = i
	}
	for _, question := range questions {
		missing = append(missing, at[t.known[question]])
	}
	texts := slices.Clone(n.texts)
	last := time.Now()
	for len(questions) > 0 && l.ctx.Err() == nil {
		k := min(batch, len(questions))
		got, err := by.e.Embed(l.ctx, questions[:k])
		if err == nil {
			err = CheckVectors(by.e.Model(), by.e.Dimensions(), k, got)
		}
		if err != nil {
			if l.ctx.Err() == nil {
				t.after.Store(time.Now().Add(exampleRetry).UnixNano())
				l.log.Warn("queries that led to tools cannot be embedded; they are compared by their words", "error", err, "again_in", exampleRetry.String())
			}
			break
		}
		for i, v := range got {
			text := *texts[missing[i]]
			text.vector, text.by = v, by
			texts[missing[i]] = &text
			t.known[questions[i]] = &text
		}
		questions, missing = questions[k:], missing[k:]
		if time.Since(last) >= examplePublish && len(questions) > 0 {
			n = n.with(texts)
			t.now.Store(n)
			last = time.Now()
		}
	}
	n = n.with(texts)
	t.now.Store(n)
	if n.have < len(n.texts) {
		return nil
	}
	return n
}

// with returns a copy with other vectors.
func (n *learned) with(texts []*exampleText) *learned {
	m := *n
	m.texts = slices.Clone(texts)
	m.count()
	return &m
}

func (n *learned) count() {
	n.have = 0
	for _, t := range n.texts {
		if n.by != nil && t.by == n.by {
			n.have++
		}
	}
}

// read analyses each query once and drops those that are gone.
func (t *tenantExamples) read(examples []Example) *learned {
	n := &learned{n: len(examples), tools: map[string][]uint32{}, stems: map[string][]uint32{}}
	if len(examples) > 0 {
		n.of = &examples[0]
	}
	known := make(map[string]*exampleText, len(examples))
	position := make(map[string]uint32, len(examples))
	total := 0
	for _, e := range examples {
		question := e.Query
		if len(question) > maxExampleBytes {
			question = strings.ToValidUTF8(question[:maxExampleBytes], "")
		}
		if question == "" || len(n.tools[e.Tool]) >= maxToolExamples || total >= maxExamples {
			continue
		}
		at, ok := position[question]
		if !ok {
			text := t.known[question]
			if text == nil {
				text = &exampleText{stems: stemsOf(question)}
			}
			at = uint32(len(n.texts))
			position[question], known[question] = at, text
			n.texts = append(n.texts, text)
			for _, s := range text.stems {
				n.stems[s] = append(n.stems[s], at)
			}
		}
		n.tools[e.Tool] = append(n.tools[e.Tool], at)
		total++
	}
	t.known = known
	n.length = make([]float32, len(n.texts))
	for i, text := range n.texts {
		n.length[i] = n.weigh(text.stems)
	}
	return n
}

// weigh returns the vector length of words, weighted by rarity.
func (n *learned) weigh(stems []string) float32 {
	var sum float64
	for _, s := range stems {
		v := float64(inverse(len(n.stems[s]), len(n.texts)))
		sum += v * v
	}
	return float32(math.Sqrt(sum))
}

func stemsOf(text string) []string {
	var out []string
	words(text, func(w string) {
		if saysNothing(w) || len(out) >= maxExampleTerms {
			return
		}
		if s := stem(w); !slices.Contains(out, s) {
			out = append(out, s)
		}
	})
	return out
}

// like raises to to the similarity between the query and each stored query: by meaning and words if
// they have vectors, else by words. asked is the query's vector, nil if there is none; here is
// scratch space.
func (n *learned) like(to, here []float32, stems []string, asked []float32) {
	clear(here)
	length := n.weigh(stems)
	for _, s := range stems {
		at := n.stems[s]
		v := inverse(len(at), len(n.texts))
		for _, i := range at {
			here[i] += v * v / (length * n.length[i])
		}
	}
	for i, t := range n.texts {
		v := here[i]
		if asked != nil && t.vector != nil && t.by == n.by {
			v = exampleMeaning*max(0, vek32.Dot(asked, t.vector)) + (1-exampleMeaning)*v
		}
		to[i] = max(to[i], v)
	}
}

// rankByExamples reorders the tools that have examples among the ranks they hold. Tools without
// examples keep their ranks, so that new tools are not buried, which raising scores would do
// (measured, see docs/discovery.md).
func (x *Index) rankByExamples(r *ranker, ask Query, text string, list []candidate) []candidate {
	if x.exampleSets == nil || ask.Session.Tenant == "" || ask.Strategy == Semantic || ask.Strategy == Keyword {
		return list
	}
	var by *space
	if r.p.alike != nil {
		by = r.p.alike.by
	}
	n := x.exampleSets.of(ask.Session.Tenant, by)
	if n == nil || len(n.texts) == 0 {
		return list
	}
	like, share := r.exampleSimilarity(n, by, text)
	of := func(tool string) (best float64, ok bool) {
		list := n.tools[tool]
		for _, i := range list {
			best = max(best, float64(like[i]))
		}
		return min(1, best), len(list) > 0
	}
	list = append(list, r.foundByExample(n, list, of)...)
	r.rerankExamples(list, share, of)
	return liftExample(list, ask.Limit)
}

// exampleSimilarity returns how similar the query, or a subquery, is to each text of n, and how
// much that counts.
func (r *ranker) exampleSimilarity(n *learned, by *space, text string) (like []float32, share float64) {
	vector := func(text string) []float32 {
		if r.alike == nil || n.by != by {
			return nil
		}
		return by.remembered(text)
	}
	numbers := make([]float32, 2*len(n.texts))
	like, here := numbers[:len(n.texts)], numbers[len(n.texts):]
	n.like(like, here, stemsOf(text), vector(text))
	if len(r.q.subqueries) == 0 {
		return like, learnedShare
	}
	for _, w := range r.q.subqueries[:min(len(r.q.subqueries), maxCompared/len(n.texts))] {
		n.like(like, here, stemsOf(w.text), vector(w.text))
	}
	return like, learnedShares
}

// foundByExample returns tools that match only by examples, in addition to list.
func (r *ranker) foundByExample(n *learned, list []candidate, of func(tool string) (float64, bool)) (alone []candidate) {
	have := map[uint32]bool{}
	for i := range list {
		have[list[i].at] = true
	}
	for tool := range n.tools {
		if best, _ := of(tool); best < learnedAlone {
			continue
		}
		for _, at := range r.p.find(tool) {
			if !have[at] && r.sees(int(at)) {
				c := r.candidate(at)
				c.score = leastScore
				alone = append(alone, c)
			}
		}
	}
	r.p.sortCandidates(alone)
	return alone
}

// rerankExamples reorders the tools of list that have examples among their ranks.
func (r *ranker) rerankExamples(list []candidate, share float64, of func(tool string) (float64, bool)) {
	type moved struct {
		candidate
		by float64
	}
	var positions []int
	var movers []moved
	for i := range list {
		c := &list[i]
		best, ok := of(r.p.docs[c.at].tool.ID)
		if !ok || c.parts.Named {
			continue
		}
		c.parts.Learned = best
		positions = append(positions, i)
		movers = append(movers, moved{*c, c.score + share*best})
	}
	slices.SortStableFunc(movers, func(a, b moved) int { return cmp.Compare(b.by, a.by) })
	for i, at := range positions {
		score := list[at].score
		list[at] = movers[i].candidate
		list[at].score = score
	}
}

// liftExample moves the tool to which this very query led to the last rank within the limit if it
// ranks below: among thousands of tools without examples, reordering alone would never show it.
func liftExample(list []candidate, limit int) []candidate {
	if limit <= 0 {
		limit = 10
	}
	if limit = min(limit, MaxResults); limit < 2 || len(list) <= limit {
		return list
	}
	best := limit
	for i := limit; i < len(list); i++ {
		if list[i].parts.Learned > list[best].parts.Learned {
			best = i
		}
	}
	c := list[best]
	if c.parts.Learned < learnedAgain {
		return list
	}
	c.score = list[limit-1].score
	return slices.Insert(slices.Delete(list, best, best+1), limit-1, c)
}

// remembered returns the vector of a text that was just compared.
func (s *space) remembered(text string) []float32 {
	key := sha256.Sum256([]byte(text))
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queries[key]
}

// Learned reports whether a tenant's searches use all its current queries, and no map is being learned from them. A search
// starts the processing.
func (x *Index) Learned(tenant string) bool {
	if x.exampleSets == nil {
		return true
	}
	var by *space
	if p := x.current.Load(); p.alike != nil {
		by = p.alike.by
	}
	var n *learned
	x.exampleSets.mu.Lock()
	busy := false
	if t := x.exampleSets.tenants[tenant]; t != nil {
		n, busy = t.now.Load(), t.busy.Load() || t.mapping.Load()
	}
	x.exampleSets.mu.Unlock()
	return n.fits(x.usage.Examples(tenant), by) && !busy
}
