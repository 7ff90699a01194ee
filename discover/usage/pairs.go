package usage

import (
	"cmp"
	"math"
	"slices"

	"github.com/toolkeep/toolkeep/discover/assembly"
)

const (
	maxPairs    = 32 // kept per tool; up to twice as many are counted before the rest is dropped
	leastPaired = 3  // sessions in common that make two tools a pair
	// emptySessions is added to a tenant's session count, so that two tools of its first few
	// sessions do not look related.
	emptySessions = 10
	// doubt is the number of sessions at which a pair's score is halved.
	doubt = 1
)

// pair is a tool called in the same sessions, with how often it came before, after, or at the same
// time, faded by age.
type pair struct {
	Tool                    int32
	Before, After, Parallel float32
	Seen                    uint32 // sessions, not faded
}

func (p *pair) total() float64 { return float64(p.Before) + float64(p.After) + float64(p.Parallel) }

// meet counts that now was called in a session in which then had been called before.
func (t *tenant) meet(then, now met, weight float32) {
	x, y := t.byNo[then.Tool], t.byNo[now.Tool]
	if x == nil || y == nil {
		return
	}
	a, b := x.pair(now.Tool), y.pair(then.Tool)
	a.Seen++
	b.Seen++
	switch {
	case now.Start > then.End:
		a.After += weight
		b.Before += weight
	case then.Start > now.End: // another node made it, and its entry came later
		a.Before += weight
		b.After += weight
	default:
		a.Parallel += weight
		b.Parallel += weight
	}
	t.prunePairs(x)
	t.prunePairs(y)
}

func (x *tool) pair(with int32) *pair {
	i := slices.IndexFunc(x.Pairs, func(p pair) bool { return p.Tool == with })
	if i < 0 {
		i = len(x.Pairs)
		x.Pairs = append(x.Pairs, pair{Tool: with})
	}
	return &x.Pairs[i]
}

// prunePairs keeps the strongest pairs once there are twice as many.
func (t *tenant) prunePairs(x *tool) {
	if len(x.Pairs) <= 2*maxPairs {
		return
	}
	t.fadePairs(x, 1)
	slices.SortStableFunc(x.Pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(b.total(), a.total()), cmp.Compare(t.byNo[a.Tool].ID, t.byNo[b.Tool].ID))
	})
	x.Pairs = slices.Clip(x.Pairs[:min(len(x.Pairs), maxPairs)])
}

// fadePairs multiplies the counts of pairs, and removes negligible ones.
func (t *tenant) fadePairs(x *tool, by float32) {
	for i := range x.Pairs {
		p := &x.Pairs[i]
		p.Before, p.After, p.Parallel = p.Before*by, p.After*by, p.Parallel*by
	}
	x.Pairs = slices.DeleteFunc(x.Pairs, func(p pair) bool { return t.byNo[p.Tool] == nil || p.total() < 0.1 })
}

// together returns how strongly two tools are associated, 0 to 1: the normalised pointwise mutual
// information of their sessions (1: never without each other; 0: as often as by chance, or less),
// reduced if there are few. The arguments count sessions: of both, of each, and all.
func together(both, a, b, all float64) float64 {
	all += emptySessions
	if both <= 0 || a <= 0 || b <= 0 {
		return 0
	}
	both = min(both, a, b)
	npmi := math.Log(both*all/(a*b)) / -math.Log(both/all)
	return max(0, min(1, npmi)) * both / (both + doubt)
}

// partners yields the tools called before, after or with a tool.
func (t *tenant) partners(x *tool, yield func(with string, p *pair, score float64)) {
	for i := range x.Pairs {
		p := &x.Pairs[i]
		with := t.byNo[p.Tool]
		if p.Seen < leastPaired || with == nil {
			continue
		}
		if score := together(p.total(), x.Sessions, with.Sessions, t.Talks); score > 0 {
			yield(with.ID, p, score)
		}
	}
}

// maxLeading is how many tools of a conversation suggest others.
const maxLeading = 5

// pairedWith returns the tools that usually come with or after a session's newest ones.
func (t *tenant) pairedWith(s *session) map[string]float64 {
	var out map[string]float64
	var seen []int32
	for _, c := range s.Calls {
		x := t.byNo[c.Tool]
		if x == nil || slices.Contains(seen, c.Tool) {
			continue
		}
		if seen = append(seen, c.Tool); len(seen) > maxLeading {
			break
		}
		t.partners(x, func(with string, p *pair, score float64) {
			score *= float64(p.After+p.Parallel) / p.total()
			if score > out[with] {
				if out == nil {
					out = map[string]float64{}
				}
				out[with] = score
			}
		})
	}
	return out
}

// Sequences of a Pairing.
const (
	Before   = "before"
	After    = "after"
	Parallel = "parallel"
)

// Pairings returns at most n tools that a tenant often calls in the same conversations as tool,
// best first. They may include tools a principal must not see.
func (u *Usage) Pairings(tenant, tool string, n int) []assembly.Pairing {
	u.mu.RLock()
	defer u.mu.RUnlock()
	t, x := u.find(tenant, tool)
	if x == nil {
		return nil
	}
	var out []assembly.Pairing
	t.partners(x, func(with string, p *pair, score float64) {
		sequence := Parallel
		switch {
		case p.Before > p.After && p.Before > p.Parallel:
			sequence = Before
		case p.After > p.Parallel:
			sequence = After
		}
		out = append(out, assembly.Pairing{ToolID: with, Score: score, Sequence: sequence})
	})
	slices.SortFunc(out, func(a, b assembly.Pairing) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.ToolID, b.ToolID))
	})
	return out[:min(len(out), max(n, 0))]
}
