package usage

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
)

const (
	maxPairs    = 32 // of a tool that stay; as many more are counted until it is looked through
	leastPaired = 3  // sessions from which two tools are a pair
	// absent are sessions that a tenant is credited with in which nothing was called,
	// so that two tools of its first few sessions do not look bound to each other.
	absent = 10
	// doubt is how many sessions halve the score of a pair.
	doubt = 1
)

// pair is another tool that was called in the sessions of one, with how often it came
// before it, after it, or at the same time, faded by age.
type pair struct {
	tool                    *tool
	before, after, parallel float32
	seen                    uint32 // sessions, not faded
}

func (p *pair) total() float64 { return float64(p.before) + float64(p.after) + float64(p.parallel) }

// meet counts that now was called in a session in which then had been called before.
func (t *tenant) meet(then, now seen) {
	parallel := now.start <= then.end
	a, b := then.tool.pair(now.tool), now.tool.pair(then.tool)
	a.seen++
	b.seen++
	if parallel {
		a.parallel++
		b.parallel++
	} else {
		a.after++
		b.before++
	}
	then.tool.prunePairs()
	now.tool.prunePairs()
}

func (x *tool) pair(with *tool) *pair {
	for i := range x.pairs {
		if x.pairs[i].tool == with {
			return &x.pairs[i]
		}
	}
	x.pairs = append(x.pairs, pair{tool: with})
	return &x.pairs[len(x.pairs)-1]
}

// prunePairs keeps the pairs that count most once there are twice as many.
func (x *tool) prunePairs() {
	if len(x.pairs) <= 2*maxPairs {
		return
	}
	x.pairs = slices.DeleteFunc(x.pairs, func(p pair) bool { return p.tool.gone.Load() })
	slices.SortStableFunc(x.pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(b.total(), a.total()), cmp.Compare(a.tool.id, b.tool.id))
	})
	x.pairs = slices.Clip(x.pairs[:min(len(x.pairs), maxPairs)])
}

func (x *tool) fadePairs(by float64) {
	for i := range x.pairs {
		p := &x.pairs[i]
		p.before, p.after, p.parallel = p.before*float32(by), p.after*float32(by), p.parallel*float32(by)
	}
	x.pairs = slices.DeleteFunc(x.pairs, func(p pair) bool { return p.tool.gone.Load() || p.total() < 0.1 })
}

// together says how much two tools belong together, 0 to 1: the normalised pointwise
// mutual information of their sessions (1: never one without the other; 0: as often as
// by chance, or less), less where there are few. Each argument counts sessions: those
// of both, of each, and all.
func together(both, a, b, all float64) float64 {
	all += absent
	if both <= 0 || a <= 0 || b <= 0 {
		return 0
	}
	both = min(both, a, b)
	npmi := math.Log(both*all/(a*b)) / -math.Log(both/all)
	return max(0, min(1, npmi)) * both / (both + doubt)
}

// partners are the tools of one before which, after which or with which it is called.
func (t *tenant) partners(v *toolView, each func(p *pair, score float64)) {
	all := math.Float64frombits(t.metView.Load())
	for i := range v.pairs {
		p := &v.pairs[i]
		if p.seen < leastPaired || p.tool.gone.Load() {
			continue
		}
		w := p.tool.view.Load()
		if w == nil {
			continue
		}
		if score := together(p.total(), v.met, w.met, all); score > 0 {
			each(p, score)
		}
	}
}

// lately is how many tools of a conversation lead to others.
const lately = 5

// pairedWith are the tools that usually come with or after the newest ones.
func (t *tenant) pairedWith(recent []discover.Recent) map[string]float64 {
	var out map[string]float64
	var looked [lately]string
	n := 0
	for _, r := range recent {
		if n == lately {
			break
		}
		if slices.Contains(looked[:n], r.Tool) {
			continue
		}
		looked[n] = r.Tool
		n++
		x, ok := t.tools.get(r.Tool)
		if !ok {
			continue
		}
		v := x.view.Load()
		if v == nil {
			continue
		}
		t.partners(v, func(p *pair, score float64) {
			score *= float64(p.after+p.parallel) / p.total()
			if score > out[p.tool.id] {
				if out == nil {
					out = map[string]float64{}
				}
				out[p.tool.id] = score
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

// Pairing is a tool that is often called in the conversations of another.
type Pairing struct {
	ToolID            string
	CooccurrenceScore float64 // 0 to 1: how much the two belong together
	TypicalSequence   string  // when it is called, seen from the other: before, after or parallel
}

// Pairings are the tools that a tenant often calls in the same conversations as one,
// the best first, at most n. They may be tools that a principal must not see.
func (u *Usage) Pairings(tenant, tool string, n int) []Pairing {
	t, ok := u.tenants.get(tenant)
	if !ok {
		return nil
	}
	x, ok := t.tools.get(tool)
	if !ok {
		return nil
	}
	v := x.view.Load()
	if v == nil {
		return nil
	}
	var out []Pairing
	t.partners(v, func(p *pair, score float64) {
		sequence := Parallel
		switch {
		case p.before > p.after && p.before > p.parallel:
			sequence = Before
		case p.after > p.parallel:
			sequence = After
		}
		out = append(out, Pairing{ToolID: p.tool.id, CooccurrenceScore: score, TypicalSequence: sequence})
	})
	slices.SortFunc(out, func(a, b Pairing) int {
		return cmp.Or(cmp.Compare(b.CooccurrenceScore, a.CooccurrenceScore), cmp.Compare(a.ToolID, b.ToolID))
	})
	return out[:min(len(out), max(n, 0))]
}

// ErrorPattern is an error that a tool gave (Discovery 2.2.3).
type ErrorPattern struct {
	ErrorType        toolkeep.Code
	Frequency        int    // how often
	CommonResolution string // what usually worked afterwards, in words; "" where that is not known
}

// ToolAnalytics is how a tool did for a tenant (Discovery 2.2.3).
type ToolAnalytics struct {
	TotalExecutions    int     // calls that worked or failed, since Toolkeep remembers
	SuccessRate        float64 // share of those in the last Keep days that worked; of all where there are none
	AvgExecutionTimeMs int64   // of those that were carried out and not answered from a cache
	LastUsed           time.Time
	ErrorPatterns      []ErrorPattern // the most frequent first, at most 16
}
