package discover

import (
	"cmp"
	"hash/fnv"
	"slices"
	"sort"
	"strings"

	"github.com/toolkeep/toolkeep"
)

// aboutWeight is the weight of a word of an about text against one that a tool itself says often.
const aboutWeight = 0.3

// aboutKey names the tools that share an about text: those of one namespace and owner.
type aboutKey struct{ namespace, tenant string }

func aboutKeyOf(id, tenant string) aboutKey {
	namespace, _, _ := strings.Cut(id, ".")
	return aboutKey{namespace, tenant}
}

// about is what the server or API behind a namespace's tools says of itself. It is held once for all of them: its
// words are looked for here and not in each tool's list.
type about struct {
	key   aboutKey
	text  string
	stems map[string]bool
}

// hear takes the about texts of tools, and returns the namespaces whose text has changed. x.mu is held.
func (x *Index) hear(latest []showing) (changed map[aboutKey]bool) {
	if x.about == nil {
		return nil
	}
	var last aboutKey
	for _, l := range latest {
		key := aboutKeyOf(l.key.id, l.key.tenant)
		if l.tool == nil || key == last {
			continue
		}
		last = key
		text := x.about(l.tool)
		at, have := x.abouts.find(key)
		if have && x.abouts[at].text == text || !have && text == "" {
			continue
		}
		if changed == nil {
			changed = map[aboutKey]bool{}
		}
		changed[key] = true
		if have {
			x.abouts = slices.Delete(x.abouts, at, at+1)
		}
		if text != "" {
			a := &about{key: key, text: text, stems: map[string]bool{}}
			words(text, func(w string) {
				if !isStop(w) {
					a.stems[stem(w)] = true
				}
			})
			x.abouts = slices.Insert(x.abouts, at, a)
		}
	}
	if changed != nil {
		x.aboutsBy = map[string][]*about{}
		for _, a := range x.abouts {
			for s := range a.stems {
				x.aboutsBy[s] = append(x.aboutsBy[s], a)
			}
		}
	}
	return changed
}

// abouts are sorted by key.
type abouts []*about

func (l abouts) find(k aboutKey) (int, bool) {
	return slices.BinarySearchFunc(l, k, func(a *about, k aboutKey) int {
		return cmp.Or(strings.Compare(a.key.namespace, k.namespace), strings.Compare(a.key.tenant, k.tenant))
	})
}

// sumOf is what an about text changes in the sum of a Snapshot.
func sumOf(text string) uint64 {
	if text == "" {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	return h.Sum64()
}

// namespace returns the positions of a namespace's tools, of all owners.
func (p *postings) namespace(name string) []uint32 {
	from, _ := p.search(docKey{id: name + "."})
	after := docKey{id: name + "/"} // the character after the dot
	n := sort.Search(len(p.sorted)-from, func(i int) bool { return p.docs[p.sorted[from+i]].key().compare(after) >= 0 })
	return p.sorted[from : from+n]
}

// addAbouts adds what about texts match to the tools' scores. A word is as rare as the tools that it is about, so that
// what many tools share says little of each.
func (r *ranker) addAbouts(to []float32, terms []int) {
	for _, t := range terms {
		stem := r.q.terms[t].stem
		var its []uint32
		n := 0
		for _, a := range r.p.aboutsBy[stem] {
			for _, at := range r.p.namespace(a.key.namespace) {
				if r.p.docs[at].owner == a.key.tenant {
					its = append(its, at)
				}
			}
		}
		if n = len(its); n == 0 {
			continue
		}
		weight := aboutWeight * inverse(max(n, len(r.p.term(stem).tools)), len(r.p.sorted))
		for _, at := range its {
			to[at] += weight
		}
	}
}

// aboutOf is what is said of a tool's server or API.
func (x *Index) aboutOf(t *toolkeep.Tool) string {
	if x.about == nil {
		return ""
	}
	return x.about(t)
}
