package discover

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// postings is the index that is searched. It is never modified: what changes makes
// another one, which shares with it what stayed.
//
// Each tool has a position in docs, which it keeps. A changed tool gets a new position at
// the end, so that posting lists grow at their ends; its old position stays empty, as does
// that of a removed tool. When many are empty, all is rebuilt.
type postings struct {
	docs    []*doc   // nil: an empty place
	sorted  []uint32 // the places of tools, by id, then tenant
	vocab   vocabulary
	pages   []*termPage // by term
	average lengths     // of the fields, rounded
	alike   *similarity // what docs are compared by; nil without an embedder
}

const pageSize = 64

type termPage [pageSize]*termList

// termList are the tools that have a term.
type termList struct {
	tools   []posting // by place
	removed int       // how many of the places are empty
}

type posting struct {
	at  uint32
	fit float32 // how much the term says of the tool, from 0 to 1
}

// Postings are rebuilt rather than changed where more tools than this share of them
// change at once, or more positions than this share are empty, and some more.
const (
	manyChanges = 16
	manyEmpty   = 4
	fewTools    = 64
)

const longList = 32

// longToBuild is from how many tools on postings are not rebuilt for every step of an
// average: to make those of as many takes some 5 ms.
const longToBuild = 2000

var noTools = &termList{}

// term is the list of a stem, an empty one where no tool has it.
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

// add puts a tool at the end of the list. The list grows by an eighth, since thousands of
// them would waste megabytes by doubling.
func (l *termList) add(t posting) {
	if n := len(l.tools); n == cap(l.tools) {
		longer := make([]posting, n, n+n/8+1)
		copy(longer, l.tools)
		l.tools = longer
	}
	l.tools = append(l.tools, t)
}

// rarity is the inverse document frequency of a term.
func (p *postings) rarity(l *termList) float32 {
	return inverse(len(l.tools)-l.removed, len(p.sorted))
}

func inverse(n, of int) float32 {
	return float32(math.Log(1 + (float64(of)-float64(n)+0.5)/(float64(n)+0.5)))
}

// has tells whether the tool at a position has the term.
func (l *termList) has(at uint32) bool {
	_, ok := slices.BinarySearchFunc(l.tools, at, func(t posting, at uint32) int { return cmp.Compare(t.at, at) })
	return ok
}

// addTo adds what a term says of the tools to their scores.
func (p *postings) addTo(scores []float32, l *termList) {
	rarity := p.rarity(l)
	for _, t := range l.tools {
		scores[t.at] += rarity * t.fit
	}
}

// find gives the positions of the tools with an id, one of each tenant that has it.
func (p *postings) find(id string) (out []uint32) {
	i, _ := p.search(docKey{id: id})
	for ; i < len(p.sorted) && p.docs[p.sorted[i]].tool.ID == id; i++ {
		out = append(out, p.sorted[i])
	}
	return out
}

// position is where a tool is in docs.
func (p *postings) position(k docKey) (at uint32, ok bool) {
	i, ok := p.search(k)
	if !ok {
		return 0, false
	}
	return p.sorted[i], true
}

// search gives where in sorted a tool is or would be.
func (p *postings) search(k docKey) (int, bool) {
	return slices.BinarySearchFunc(p.sorted, k, func(at uint32, k docKey) int { return p.docs[at].key().compare(k) })
}

// before tells which of two positions comes first by id, then tenant.
func (p *postings) before(a, b uint32) int { return p.docs[a].key().compare(p.docs[b].key()) }

func (k docKey) compare(with docKey) int {
	return cmp.Or(strings.Compare(k.id, with.id), strings.Compare(k.tenant, with.tenant))
}

func (d *doc) key() docKey { return docKey{d.tool.ID, d.tool.Tenant} }

// build makes postings of tools, which are sorted.
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
	var short []posting // the short lists share memory, of which little is lost when they grow
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

// room gives p pages for so many terms, in a list of its own.
func (p *postings) room(terms uint32) {
	pages := make([]*termPage, (terms+pageSize-1)/pageSize)
	for i := copy(pages, p.pages); i < len(pages); i++ {
		pages[i] = new(termPage)
	}
	p.pages = pages
}

// change makes postings without the tools at removed positions, with added ones, and with
// unchanged ones whose words are the same in another version. It is for
// the newest postings, since lists grow within the memory that they share.
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

// merge puts the positions of added tools between those of p that stayed in docs.
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

// fits yields how much each term says of a tool: its count in each field, by what the
// field weighs and how long it is.
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

// lengths has a number of words for each field.
type lengths [fieldCount]float64

// lengthSum adds up how long the fields of the tools are.
type lengthSum struct{ words, tools lengths }

func (s *lengthSum) add(d *doc, sign float64) {
	for f, l := range d.lengths {
		if l > 0 {
			s.tools[f] += sign
			s.words[f] += sign * l
		}
	}
}

// average is over the tools that have the field at all, so that tools with examples are
// not measured against those without. It is rounded to steps of 2 %, since all weights
// have to be computed again when it changes: the postings depend on which tools there are
// and not on the order in which they were added.
//
// Of many tools, for which that takes long, kept is the average so far and stays until it
// is a whole step off, twice as far as rounding takes it: else a tool that comes and goes
// where two steps meet would have all rebuilt each time. Nodes that were told of
// tools in another order may then differ by a step, which moves no score by more than 2 %.
func (s *lengthSum) average(kept lengths, of int) (out lengths) {
	const steps = 50
	for f, n := range s.tools {
		switch {
		case n <= 0:
			out[f] = kept[f] // which nothing is measured against
		case of >= longToBuild && kept[f] > 0 && math.Abs(math.Log(s.words[f]/n/kept[f])) < 1.0/steps:
			out[f] = kept[f]
		default:
			out[f] = math.Exp(math.Round(math.Log(s.words[f]/n)*steps) / steps)
		}
	}
	return out
}
