package discover

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// postings is the inverted index. It is immutable: a change creates new postings that share the
// unchanged parts.
//
// Each tool keeps its position in docs. A changed tool gets a new position at the end, so that
// posting lists grow at their ends; its old position stays empty, like that of a removed tool. When
// many are empty, everything is rebuilt.
type postings struct {
	docs     []*doc   // nil: an empty position
	sorted   []uint32 // positions of tools, by id, then tenant
	vocab    vocabulary
	pages    []*termPage         // by term
	average  lengths             // of the fields, rounded
	aboutsBy map[string][]*about // by stem
	alike    *similarity         // what docs are compared by; nil without an embedder
}

const pageSize = 64

type termPage [pageSize]*termList

// termList is the list of the tools with a term.
type termList struct {
	tools   []posting // by position
	removed int       // how many of them are empty positions
}

type posting struct {
	at  uint32
	fit float32 // weight of the term for the tool, from 0 to 1
}

// Postings are rebuilt instead of changed if more than this share of tools changes at once, or more
// than this share of positions is empty, plus a constant.
const (
	manyChanges = 16
	manyEmpty   = 4
	fewTools    = 64
)

const longList = 32

// longToBuild is the number of tools from which postings are no longer rebuilt at every step of an
// average; building that many takes some 5 ms.
const longToBuild = 2000

var noTools = &termList{}

// term returns the list of a stem, empty if no tool has it.
func (p *postings) term(stem string) *termList {
	n, ok := p.vocab.find(stem)
	if !ok {
		return noTools
	}
	return p.list(n)
}

func (p *postings) list(term uint32) *termList {
	if l := p.pages[term/pageSize][term%pageSize]; l != nil {
		return l
	}
	return noTools
}

// add appends a tool to the list. The list grows by an eighth, since doubling thousands of lists
// would waste megabytes.
func (l *termList) add(t posting) {
	if n := len(l.tools); n == cap(l.tools) {
		longer := make([]posting, n, n+n/8+1)
		copy(longer, l.tools)
		l.tools = longer
	}
	l.tools = append(l.tools, t)
}

// rarity returns the inverse document frequency of a term.
func (p *postings) rarity(l *termList) float32 {
	return inverse(len(l.tools)-l.removed, len(p.sorted))
}

func inverse(n, of int) float32 {
	return float32(math.Log(1 + (float64(of)-float64(n)+0.5)/(float64(n)+0.5)))
}

// has reports whether the tool at a position has the term.
func (l *termList) has(at uint32) bool {
	_, ok := slices.BinarySearchFunc(l.tools, at, func(t posting, at uint32) int { return cmp.Compare(t.at, at) })
	return ok
}

// addTo adds a term's weights to the tools' scores.
func (p *postings) addTo(scores []float32, l *termList) {
	rarity := p.rarity(l)
	for _, t := range l.tools {
		scores[t.at] += rarity * t.fit
	}
}

// find returns the positions of the tools with an id, one per tenant that has it.
func (p *postings) find(id string) (out []uint32) {
	i, _ := p.search(docKey{id: id})
	for ; i < len(p.sorted) && p.docs[p.sorted[i]].tool.ID == id; i++ {
		out = append(out, p.sorted[i])
	}
	return out
}

// position returns a tool's position in docs.
func (p *postings) position(k docKey) (at uint32, ok bool) {
	i, ok := p.search(k)
	if !ok {
		return 0, false
	}
	return p.sorted[i], true
}

// search returns a tool's index in sorted, or its insertion point.
func (p *postings) search(k docKey) (int, bool) {
	return slices.BinarySearchFunc(p.sorted, k, func(at uint32, k docKey) int { return p.docs[at].key().compare(k) })
}

// before reports whether position a comes before b by id, then tenant.
func (p *postings) before(a, b uint32) int { return p.docs[a].key().compare(p.docs[b].key()) }

func (k docKey) compare(with docKey) int {
	return cmp.Or(strings.Compare(k.id, with.id), strings.Compare(k.tenant, with.tenant))
}

func (d *doc) key() docKey { return docKey{d.tool.ID, d.tool.Tenant} }

// build creates postings from sorted tools.
func build(list []*doc, vocab vocabulary, average lengths) *postings {
	p := &postings{docs: list, sorted: make([]uint32, len(list)), vocab: vocab, average: average}
	counts := make([]int, vocab.size)
	for i, d := range list {
		d.at, p.sorted[i] = uint32(i), uint32(i)
		for _, t := range d.terms {
			counts[t.term]++
		}
	}
	p.room(vocab.size)
	lists := make([]termList, vocab.size)
	var short []posting // short lists share memory, and lose little of it when they grow
	for term, n := range counts {
		switch l := &lists[term]; {
		case n == 0:
			continue
		case n >= longList:
			l.tools = make([]posting, 0, n)
		default:
			if len(short) < n {
				short = make([]posting, 1024)
			}
			l.tools, short = short[:0:n], short[n:]
		}
		p.pages[term/pageSize][term%pageSize] = &lists[term]
	}
	for i, d := range list {
		d.fits(&average, func(term uint32, fit float32) {
			lists[term].tools = append(lists[term].tools, posting{uint32(i), fit})
		})
	}
	return p
}

// room gives p pages for that many terms, in its own slice.
func (p *postings) room(terms uint32) {
	pages := make([]*termPage, (terms+pageSize-1)/pageSize)
	for i := copy(pages, p.pages); i < len(pages); i++ {
		pages[i] = new(termPage)
	}
	p.pages = pages
}

// change creates postings without the removed positions, with added tools, and with unchanged ones,
// which are other versions with the same words. It must be called on the newest postings, since
// lists grow within shared memory.
func (p *postings) change(removed []uint32, added, unchanged []*doc, vocab vocabulary) *postings {
	n := &postings{docs: make([]*doc, len(p.docs), len(p.docs)+len(added)), vocab: vocab, average: p.average, pages: p.pages}
	copy(n.docs, p.docs)
	for _, d := range unchanged {
		n.docs[d.at] = d
	}
	n.room(vocab.size)
	own := make(map[uint32]bool)
	edit := func(term uint32) *termList {
		at := term / pageSize
		if !own[at] {
			own[at] = true
			page := *n.pages[at]
			n.pages[at] = &page
		}
		l := *n.list(term)
		n.pages[at][term%pageSize] = &l
		return &l
	}
	for _, at := range removed {
		for _, t := range p.docs[at].terms {
			edit(t.term).removed++
		}
		n.docs[at] = nil
	}
	for _, d := range added {
		d.at = uint32(len(n.docs))
		n.docs = append(n.docs, d)
		d.fits(&n.average, func(term uint32, fit float32) {
			edit(term).add(posting{d.at, fit})
		})
	}
	n.sorted = p.sorted
	if len(removed)+len(added) > 0 {
		n.sorted = p.merge(n.docs, added)
	}
	return n
}

// merge inserts the positions of added tools among those of p still in docs.
func (p *postings) merge(docs, added []*doc) []uint32 {
	added = slices.SortedFunc(slices.Values(added), func(a, b *doc) int { return a.key().compare(b.key()) })
	sorted := make([]uint32, 0, len(p.sorted)+len(added))
	stayed := func(positions []uint32) {
		for _, at := range positions {
			if docs[at] != nil {
				sorted = append(sorted, at)
			}
		}
	}
	from := 0
	for _, d := range added {
		to, _ := p.search(d.key())
		stayed(p.sorted[from:to])
		sorted = append(sorted, d.at)
		from = to
	}
	stayed(p.sorted[from:])
	return sorted
}

// fits yields each term's weight for a tool: its count per field, by the field's weight and length.
func (d *doc) fits(average *lengths, yield func(term uint32, fit float32)) {
	var scale lengths
	for f := range scale {
		if d.lengths[f] > 0 {
			scale[f] = fieldWeight[f] / (1 - fieldLength[f] + fieldLength[f]*d.lengths[f]/average[f])
		}
	}
	for _, t := range d.terms {
		weight := 0.0
		for f, n := range t.counts {
			weight += float64(n) * scale[f]
		}
		yield(t.term, float32(weight/(k1+weight)))
	}
}

// lengths has a word count per field.
type lengths [fieldCount]float64

// lengthSum sums the field lengths of the tools.
type lengthSum struct{ words, tools lengths }

func (s *lengthSum) add(d *doc, sign float64) {
	for f, l := range d.lengths {
		if l > 0 {
			s.tools[f] += sign
			s.words[f] += sign * l
		}
	}
}

// average is taken over the tools that have the field, so that tools with examples are not measured
// against those without. It is rounded to steps of 2 %, since a change requires all weights to be
// computed again: the postings depend on the set of tools and not on the order of additions.
//
// With many tools, for which that takes long, the current average (kept) stays until it is a whole
// step off, twice the rounding error: otherwise a tool that comes and goes at a step's boundary
// would cause a rebuild each time. Nodes that received tools in another order may then differ by a
// step, which changes no score by more than 2 %.
func (s *lengthSum) average(kept lengths, of int) (out lengths) {
	const steps = 50
	for f, n := range s.tools {
		switch {
		case n <= 0:
			out[f] = kept[f] // no field is measured against it
		case of >= longToBuild && kept[f] > 0 && math.Abs(math.Log(s.words[f]/n/kept[f])) < 1.0/steps:
			out[f] = kept[f]
		default:
			out[f] = math.Exp(math.Round(math.Log(s.words[f]/n)*steps) / steps)
		}
	}
	return out
}
