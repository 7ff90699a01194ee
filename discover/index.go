package discover

import (
	"cmp"
	"encoding/json"
	"iter"
	"log/slog"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Masterminds/semver/v3"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/pack"
)

// Fields of a tool, with the weight of a word and how much a field's length reduces it. Measured on
// the sets that recall_test.go reads.
const (
	fieldName = iota
	fieldDescription
	fieldParameters
	fieldLabels   // tags, capabilities, category, namespace
	fieldMore     // short description, explanation, guidance
	fieldExamples // examples in words, use cases, and common errors with what to do
	fieldCount
)

var (
	fieldWeight = [fieldCount]float64{2, 1, 0.6, 0.5, 0.3, 0.3}
	fieldLength = [fieldCount]float64{0.4, 0.4, 0.5, 0.5, 0.7, 0.9}
)

const k1 = 1.2

// Config of an Index. The zero value works.
type Config struct {
	// Embedder adds comparison by meaning; nil: words only. Start starts it.
	Embedder Embedder
	// Vectors stores the vectors of tools, and is closed with the index; nil: process memory, so
	// that every start embeds every tool.
	Vectors Backend
	// Other returns the embedder of the previous model, whose vectors the backend still has, so
	// that it answers until all tools are embedded with Embedder; nil if that model is no longer
	// available. Without it only words count meanwhile.
	Other func(Space) Embedder
	// EmbedTime bounds the embedding of one query, after which only words count; default 2 s.
	EmbedTime time.Duration
	// Weights of the parts of a score; the zero value means DefaultWeights, any other value is used
	// as it is, including zeros.
	Weights Weights
	// Threshold leaves out tools with a lower relevance to the query: the cosine of their meanings
	// or the share of the query's words, weighted by rarity, whichever is higher, from 0 to 1.
	// Default 0: nothing is left out.
	Threshold float64
	// Last reports whether a tool stands behind all others that a query finds, unless the query names it;
	// nil: none does.
	Last func(*toolkeep.Tool) bool
	// About returns what the server or API behind a tool says of itself, "" for nothing; it is the same for all
	// tools of a namespace and owner. nil: nothing is said. If it changes, Update or Change must bring all of them.
	About func(*toolkeep.Tool) string
	// Usage makes search learn from how tools were used; nil: only the query counts.
	Usage Usage
	Log   *slog.Logger // nil: nothing is logged
}

// Weights are the weights of a score's parts. Each part is between 0 and 1.
type Weights struct {
	Semantic   float64 // similarity of meaning; default 0.4
	Keyword    float64 // match of words; default 0.3
	History    float64 // calls in the conversation and by the user; default 0.2
	Success    float64 // success rate of the tenant's calls; default 0.1
	Complexity float64 // penalty of a complex tool, half of it for a medium one; default 0.1
}

// Index is the search index. All methods are safe for concurrent use.
type Index struct {
	weights     Weights
	threshold   float64
	last        func(*toolkeep.Tool) bool   // nil: no tool
	about       func(*toolkeep.Tool) string // nil: nothing is said
	usage       Usage                       // nil: only the query counts
	exampleSets *exampleSets                // nil without usage
	meaning     *meaning                    // nil without an embedder
	current     atomic.Pointer[postings]
	sums        atomic.Pointer[viewSums]
	rankers     sync.Pool // of *ranker

	turn   sync.Mutex
	turned chan struct{} // closed at the next change; nil if no goroutine waits

	mu       sync.Mutex // serialises Update; guards the fields below
	abouts   abouts
	aboutsBy map[string][]*about // of the newest postings, by stem; never written again
	docs     map[docKey]*doc
	long     lengthSum // over docs
	vocab    vocabulary
	stems    map[string]uint32 // the term of every word seen, since few words make up most text
}

type docKey struct{ id, tenant string }

// doc holds the terms of one tool. It is immutable except for its position.
type doc struct {
	at      uint32 // in docs of the newest postings; guarded by Index.mu
	action  action
	tool    *toolkeep.Tool
	id      string // lower case
	name    string // lower case, without the namespace
	terms   []docTerm
	lengths lengths
	means   Digest // of the text that was embedded
	// Part of View's sum, from the version's digest, the about text and the owner; stored here so that summing stays
	// local in memory.
	low, high uint64
	owner     string
}

// docTerm is how often a tool has a term in each field, at most 255. There are hundreds of
// thousands of them.
type docTerm struct {
	term   uint32
	counts [fieldCount]uint8
}

// vocabulary numbers the terms. The maps of a published index are never written again: new terms go
// into a fresh copy of the small map, which is merged into the big one now and then.
type vocabulary struct {
	big, small map[string]uint32
	shared     bool // small belongs to a published index
	size       uint32
}

func (v *vocabulary) find(term string) (uint32, bool) {
	if n, ok := v.small[term]; ok {
		return n, true
	}
	n, ok := v.big[term]
	return n, ok
}

func (v *vocabulary) add(term string) uint32 {
	if n, ok := v.find(term); ok {
		return n
	}
	switch {
	case len(v.small) >= 2000 && (v.shared || len(v.small) >= len(v.big)): // a first index is merged at each doubling
		big := make(map[string]uint32, len(v.big)+len(v.small))
		maps.Copy(big, v.big)
		maps.Copy(big, v.small)
		v.big, v.small, v.shared = big, map[string]uint32{}, false
	case v.shared || v.small == nil:
		small := make(map[string]uint32, len(v.small)+16)
		maps.Copy(small, v.small)
		v.small, v.shared = small, false
	}
	n := v.size
	v.small[strings.Clone(term)] = n
	v.size++
	return n
}

// New creates an empty index; Update fills it.
func New(cfg Config) *Index {
	x := &Index{docs: map[docKey]*doc{}, stems: map[string]uint32{}}
	if x.weights = cfg.Weights; x.weights == (Weights{}) {
		x.weights = DefaultWeights
	}
	x.threshold, x.usage, x.last, x.about = cfg.Threshold, cfg.Usage, cfg.Last, cfg.About
	if cfg.Usage != nil {
		x.exampleSets = newExampleSets(x, cfg.Usage, cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)))
	}
	if cfg.Embedder != nil {
		x.meaning = &meaning{e: cfg.Embedder, backend: cfg.Vectors, other: cfg.Other, limit: cmp.Or(cfg.EmbedTime, 2*time.Second),
			log: cfg.Log, wake: make(chan struct{}, 1), muted: make(chan struct{}, 1), now: &space{e: cfg.Embedder}}
		if cfg.Log == nil {
			x.meaning.log = slog.New(slog.DiscardHandler)
		}
		if cfg.Vectors == nil {
			x.meaning.backend = NewMemory("", nil)
		}
	}
	x.current.Store(&postings{})
	return x
}

// Len returns the number of tools in the index.
func (x *Index) Len() int { return len(x.current.Load().sorted) }

// Update makes the index show the latest active version of each tool among versions, the complete
// set, in any order; that of the tools' ids costs least. Only tools with a changed digest are tokenised again.
func (x *Index) Update(versions iter.Seq[toolkeep.Version]) {
	x.mu.Lock()
	defer x.mu.Unlock()
	latest := latestActive(versions)
	if len(x.docs) == 0 {
		x.docs = make(map[docKey]*doc, len(latest))
	} else {
		named := make(map[docKey]bool, len(latest))
		for _, l := range latest {
			named[l.key] = true
		}
		for k := range x.docs {
			if !named[k] {
				latest = append(latest, showing{key: k})
			}
		}
	}
	x.show(latest)
}

// Change is Update where versions are all versions of the changed tools only. It takes a fraction
// of a millisecond per tool, unless everything has to be rebuilt.
func (x *Index) Change(versions iter.Seq[toolkeep.Version]) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.show(latestActive(versions))
}

// showing is what the index is to show of a tool; nil removes it.
type showing struct {
	key  docKey
	tool *toolkeep.Tool
}

// show replaces tools in the index. x.mu is held.
func (x *Index) show(latest []showing) {
	d := delta{rebuild: x.forget()}
	var fresh []*toolkeep.Tool // not in the index with this digest
	changed := x.hear(latest)
	for _, l := range latest {
		old := x.docs[l.key]
		again := changed[aboutKeyOf(l.key.id, l.key.tenant)]
		switch {
		case old == nil && l.tool == nil, old != nil && old.tool == l.tool && !again:
		case l.tool == nil:
			d.remove(x, l.key, old)
		case old != nil && old.tool.Digest != "" && old.tool.Digest == l.tool.Digest && !again:
			unchanged := *old
			unchanged.tool = l.tool
			x.docs[l.key] = &unchanged
			d.unchanged = append(d.unchanged, &unchanged)
		default:
			fresh = append(fresh, l.tool)
		}
	}
	d.added = make([]*doc, 0, len(fresh))
	x.takeAllApart(fresh, func(by *doc) { d.replace(x, by.key(), x.docs[by.key()], by) })
	x.apply(d)
}

// forget starts a new vocabulary when most terms may belong to removed tools.
func (x *Index) forget() bool {
	const most = 500_000
	if x.vocab.size <= most && len(x.stems) <= most {
		return false
	}
	x.vocab, x.stems = vocabulary{}, map[string]uint32{}
	for k, d := range x.docs {
		x.docs[k] = x.takeApart(d.tool)
	}
	return true
}

// delta is a change of the postings.
type delta struct {
	removed          []uint32
	added, unchanged []*doc
	rebuild          bool // rebuild everything, if anything changed
}

func (d *delta) remove(x *Index, k docKey, old *doc) {
	x.long.add(old, -1)
	delete(x.docs, k)
	d.removed = append(d.removed, old.at)
}

func (d *delta) replace(x *Index, k docKey, old, by *doc) {
	if old != nil {
		d.remove(x, k, old)
	}
	x.long.add(by, 1)
	x.docs[k] = by
	d.added = append(d.added, by)
}

// apply publishes a change. x.mu is held.
func (x *Index) apply(d delta) {
	if !d.rebuild && len(d.removed)+len(d.added)+len(d.unchanged) == 0 {
		return
	}
	x.vocab.shared = true
	p, now := x.current.Load(), len(x.docs)
	average := x.long.average(p.average, now)
	empty := len(p.docs) + len(d.added) - now
	if d.rebuild || average != p.average || len(d.removed)+len(d.added) > now/manyChanges || empty > now/manyEmpty+fewTools {
		all := d.added // in order, where a first catalogue came in order
		if len(all) != now {
			all = slices.Collect(maps.Values(x.docs))
		}
		slices.SortFunc(all, func(a, b *doc) int { return a.key().compare(b.key()) })
		p = build(all, x.vocab, average)
		if x.meaning != nil {
			x.meaning.fill(p)
		}
	} else {
		before := p
		p = p.change(d.removed, d.added, d.unchanged, x.vocab)
		if x.meaning != nil {
			x.meaning.follow(p, before, d.removed, d.added)
		}
	}
	p.aboutsBy = x.aboutsBy
	x.publish(p)
	if x.meaning != nil {
		x.meaning.nudge() // wakes it to examine the published index
	}
}

// latestActive chooses like the catalogue's "latest": stable before prerelease. It has each tool once, and
// keeps the order of tools that come by their ids.
func latestActive(versions iter.Seq[toolkeep.Version]) (list []showing) {
	var best *semver.Version // of the last tool; nil until it has two versions
	ordered := true
	for v := range versions {
		k := docKey{v.Tool.ID, v.Tool.Tenant}
		if n := len(list); n == 0 || list[n-1].key != k {
			ordered = ordered && (n == 0 || list[n-1].key.compare(k) < 0)
			list, best = append(list, showing{key: k}), nil
		}
		last := &list[len(list)-1]
		if v.Life.State != toolkeep.Active || v.Tool.Manifest == nil {
			continue
		}
		if last.tool == nil {
			// Most tools have one version, which needs no version comparison.
			last.tool = v.Tool
			continue
		}
		if best == nil {
			best = parseVersion(last.tool)
		}
		if sem := parseVersion(v.Tool); newer(sem, best) {
			last.tool, best = v.Tool, sem
		}
	}
	if !ordered {
		return merged(list)
	}
	return list
}

// merged sorts and has each tool once, for versions of a tool that did not follow one another.
func merged(list []showing) []showing {
	slices.SortStableFunc(list, func(a, b showing) int { return a.key.compare(b.key) })
	out := list[:0]
	for _, l := range list {
		last := len(out) - 1
		switch {
		case last < 0 || out[last].key != l.key:
			out = append(out, l)
		case out[last].tool == nil || l.tool != nil && newer(parseVersion(l.tool), parseVersion(out[last].tool)):
			out[last] = l
		}
	}
	return out
}

func parseVersion(t *toolkeep.Tool) *semver.Version {
	v, err := semver.StrictNewVersion(t.Version)
	if err != nil {
		return semver.New(0, 0, 0, "0", "")
	}
	return v
}

func newer(a, b *semver.Version) bool {
	if stable := a.Prerelease() == ""; stable != (b.Prerelease() == "") {
		return stable
	}
	return a.GreaterThan(b)
}

// togetherReads is how many tools are read at a time, on all processors.
const togetherReads = 1024

// takeAllApart is takeApart for many tools; it passes each to done, in order.
func (x *Index) takeAllApart(tools []*toolkeep.Tool, done func(*doc)) {
	said := make([]wordList, min(len(tools), togetherReads))
	docs := make([]*doc, len(said))
	for some := range slices.Chunk(tools, togetherReads) {
		n := min(runtime.GOMAXPROCS(0), len(some))
		together := func(do func(i int)) {
			var wg sync.WaitGroup
			for first := range n {
				wg.Go(func() {
					for i := first; i < len(some); i += n {
						do(i)
					}
				})
			}
			wg.Wait()
		}
		together(func(i int) { x.read(some[i], &said[i]) })
		for i := range some {
			x.learn(&said[i])
		}
		together(func(i int) { docs[i] = count(some[i], &said[i]) })
		for _, d := range docs[:len(some)] {
			done(d)
		}
	}
}

// takeApart counts the words of every field.
func (x *Index) takeApart(t *toolkeep.Tool) *doc {
	var said wordList
	x.read(t, &said)
	x.learn(&said)
	return count(t, &said)
}

// wordList is what a tool says, without words that say nothing. It is used again for the next tool.
type wordList struct {
	terms   []uint64 // each term shifted by fieldBits, and its field
	unknown []unknownWord
	lengths lengths
	means   Digest // of what is embedded, if it is
	about   uint64 // see sumOf
}

type unknownWord struct {
	field int
	word  string
}

const fieldBits = 3

// read takes a tool's text into words. It runs beside other reads, so that it leaves unknown words to learn.
func (x *Index) read(t *toolkeep.Tool, said *wordList) {
	*said = wordList{terms: said.terms[:0], unknown: said.unknown[:0]}
	namespace, name, _ := strings.Cut(t.ID, ".")
	add := func(field int, text string) {
		words(text, func(w string) {
			if field != fieldName && isStop(w) {
				return
			}
			said.lengths[field]++
			if term, ok := x.stems[w]; ok {
				said.terms = append(said.terms, uint64(term)<<fieldBits|uint64(field))
			} else {
				said.unknown = append(said.unknown, unknownWord{field, w})
			}
		})
	}
	m := t.Manifest
	add(fieldName, name)
	add(fieldName, unsaid(m.ToolName, name))
	add(fieldName, unsaid(m.Verb, name))
	add(fieldDescription, m.Description)
	its := pack.WordsOf(t)
	add(fieldParameters, its.Parameters)
	add(fieldLabels, namespace)
	add(fieldLabels, m.Category)
	for _, list := range [][]string{m.Tags, m.Capabilities} {
		for _, s := range list {
			add(fieldLabels, s)
		}
	}
	for _, s := range []string{m.ShortDescription, m.Explanation, m.InputGuidance} {
		add(fieldMore, s)
	}
	for _, e := range its.Examples {
		add(fieldExamples, e.Scenario)
		add(fieldExamples, e.Explanation)
	}
	for _, s := range m.UseCases {
		add(fieldExamples, s)
	}
	var errors []struct {
		Error      string `json:"error"`
		Resolution string `json:"resolution"`
	}
	if len(m.CommonErrors) > 0 && json.Unmarshal(m.CommonErrors, &errors) == nil { // checked when it was published
		for _, e := range errors {
			add(fieldExamples, e.Error)
			add(fieldExamples, e.Resolution)
		}
	}
	about := x.aboutOf(t)
	said.about = sumOf(about)
	if x.meaning != nil {
		said.means = senseOf(t, about).digest()
	}
}

// learn numbers the words that read did not know.
func (x *Index) learn(said *wordList) {
	for _, u := range said.unknown {
		said.terms = append(said.terms, uint64(x.term(u.word))<<fieldBits|uint64(u.field))
	}
}

// count counts the terms of a tool.
func count(t *toolkeep.Tool, said *wordList) *doc {
	_, name, _ := strings.Cut(t.ID, ".")
	d := &doc{tool: t, action: actionOf(t), id: strings.ToLower(t.ID), name: strings.ToLower(name), owner: t.Tenant, lengths: said.lengths, means: said.means}
	d.low, d.high = digestWords(t)
	d.low ^= said.about
	slices.Sort(said.terms)
	different, last := 0, uint64(math.MaxUint64)
	for _, term := range said.terms {
		if term>>fieldBits != last {
			different, last = different+1, term>>fieldBits
		}
	}
	d.terms = make([]docTerm, 0, different)
	for _, term := range said.terms {
		if n := len(d.terms); n == 0 || d.terms[n-1].term != uint32(term>>fieldBits) {
			d.terms = append(d.terms, docTerm{term: uint32(term >> fieldBits)})
		}
		if c := &d.terms[len(d.terms)-1].counts[term&(1<<fieldBits-1)]; *c < math.MaxUint8 {
			*c++
		}
	}
	return d
}

// unsaid returns the words of s that are not in name: a title that repeats the id must not count
// twice.
func unsaid(s, name string) string {
	if s == "" {
		return ""
	}
	have := map[string]bool{}
	words(name, func(w string) { have[w] = true })
	var rest []string
	words(s, func(w string) {
		if !have[w] {
			have[w] = true
			rest = append(rest, w)
		}
	})
	return strings.Join(rest, " ")
}

// term returns the number of a word's stem.
func (x *Index) term(w string) uint32 {
	n, ok := x.stems[w]
	if !ok {
		n = x.vocab.add(stem(w))
		x.stems[strings.Clone(w)] = n
	}
	return n
}
