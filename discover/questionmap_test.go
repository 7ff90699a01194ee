package discover

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/toolkeep/toolkeep"
)

// turned is an embedder for which questions lie elsewhere than the tools that answer them: those of tool 7 are where tool 7 is,
// but for a turn, and a little noise.
type turned struct{}

func (turned) Model() string   { return "turned" }
func (turned) Dimensions() int { return 32 }

func (turned) Embed(_ context.Context, texts []string) ([][]float32, error) {
	out := make([][]float32, len(texts))
	for i, text := range texts {
		var n, k int
		_, question := strings.CutPrefix(text, "ask")
		if question {
			_, _ = fmt.Sscanf(text, "ask%dn%d", &n, &k)
		} else {
			_, _ = fmt.Sscanf(text, "t%d", &n)
		}
		v := spreadVector(uint64(n), 32)
		if question {
			v = append(v[1:], v[0])
			for j, noise := range spreadVector(uint64(1000+k), 32) {
				v[j] += noise / 4
			}
		}
		out[i] = unit(v)
	}
	return out, nil
}

func spreadVector(seed uint64, size int) []float32 {
	r := rand.New(rand.NewPCG(seed, 7))
	v := make([]float32, size)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	return unit(v)
}

// mapping is a Usage with questions of the tenant acme.
type mapping struct {
	asked     atomic.Pointer[[]Example]
	off       atomic.Bool
	forgotten atomic.Int64
}

func (*mapping) History(Session) History                 { return History{} }
func (*mapping) SuccessRates(string, []string) []float64 { return nil }
func (u *mapping) MapsQuestions(string) (bool, int64)    { return !u.off.Load(), u.forgotten.Load() }
func (u *mapping) Examples(tenant string) (list []Example) {
	if p := u.asked.Load(); p != nil && tenant == "acme" {
		list = *p
	}
	return list
}

func TestQuestionMap(t *testing.T) {
	const tools = 40
	var all []toolkeep.Version
	for i := range tools {
		all = append(all, tool(fmt.Sprintf("a.t%d", i), "1.0.0", "do"))
	}
	questions := func(from, to int, chosen func(i, k int) int) (list []Example) {
		for k := from; k < to; k++ {
			for i := range tools {
				list = append(list, Example{Query: fmt.Sprintf("ask%dn%d", i, k), Tool: fmt.Sprintf("a.t%d", chosen(i, k)), Count: 1})
			}
		}
		return list
	}
	right := func(i, _ int) int { return i }
	usage := &mapping{}
	x := New(Config{Embedder: turned{}, Usage: usage})
	x.Update(slices.Values(all))
	if err := x.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	embedded(t, x, tools)
	ask := func(tenant, text string) ([]Match, Report) {
		return x.Find(t.Context(), Query{Text: text, Limit: 5, Session: Session{Tenant: tenant}}, nil)
	}
	learn := func(list []Example) {
		t.Helper()
		usage.asked.Store(&list)
		usage.forgotten.Add(1) // learns again at once
		eventually(t, "the questions are not taken in", func() bool {
			ask("acme", "begin")
			return x.Learned("acme")
		})
	}
	held := questions(100, 103, right) // never shown
	found := func(tenant string) (n int) {
		for _, e := range held {
			list, _ := ask(tenant, e.Query)
			if slices.ContainsFunc(list, func(m Match) bool { return m.Tool.ID == e.Tool }) {
				n++
			}
		}
		return n
	}
	before := found("acme")
	sum := x.Snapshot("acme").Sum()

	learn(questions(0, 4, right)) // too few
	if x.mapFor("acme") != nil {
		t.Error("a map of 160 questions")
	}
	learn(questions(0, 10, right))
	after := found("acme")
	if x.mapFor("acme") == nil || after < 2*before || after < len(held)*3/4 {
		t.Fatalf("of %d questions %d find their tool, before %d", len(held), after, before)
	}
	if x.mapFor("globex") != nil || found("globex") != before {
		t.Error("another tenant's searches use it")
	}
	if _, r := x.Find(t.Context(), Query{Text: held[0].Query, Strategy: Semantic, Session: Session{Tenant: "acme"}}, nil); r.Strategy != Semantic || found("") != before {
		t.Errorf("searches that ignore usage: %+v", r)
	}
	if x.Snapshot("acme").Sum() == sum || x.Snapshot("globex").Sum() == x.Snapshot("acme").Sum() {
		t.Error("answers of before would be taken for current ones")
	}

	usage.off.Store(true)
	if alone := found("acme"); x.mapFor("acme") != nil || alone >= after {
		t.Errorf("learning is off: %d by the learned questions alone, %d with the map", alone, after)
	}
	usage.off.Store(false)
	usage.forgotten.Add(1)
	if x.mapFor("acme") != nil {
		t.Error("it is used though a user was forgotten since")
	}
	learn(questions(0, 10, right)[:tools*9])
	if x.mapFor("acme") == nil {
		t.Error("no map is learned from what is left")
	}
	learn(questions(0, 10, func(i, k int) int { return (i*7 + k*11) % tools })) // by chance
	if x.mapFor("acme") != nil {
		t.Error("a map that finds no more was adopted")
	}
	learn(nil)
	if x.mapFor("acme") != nil || found("acme") != before {
		t.Error("a map of nothing")
	}
}

// engaged is an embedder whose slots for callers fail.
type engaged struct {
	turned
	now atomic.Int64
}

func (e *engaged) EmbedNow(_ context.Context, texts []string) ([][]float32, error) {
	if strings.HasPrefix(texts[0], "ask") { // a question that led to a tool, not a search that may still be under way
		e.now.Add(1)
	}
	return nil, fmt.Errorf("no slot")
}

// TestMapIsLearnedBehindSearches neither takes the slots of callers nor says anything of them, takes in new questions meanwhile,
// and learns one map at a time.
func TestMapIsLearnedBehindSearches(t *testing.T) {
	var all []toolkeep.Version
	var list []Example
	for i := range 40 {
		all = append(all, tool(fmt.Sprintf("a.t%d", i), "1.0.0", "do"))
		for k := range 10 {
			list = append(list, Example{Query: fmt.Sprintf("ask%dn%d", i, k), Tool: fmt.Sprintf("a.t%d", i), Count: 1})
		}
	}
	usage, e := &mapping{}, &engaged{}
	x := New(Config{Embedder: e, Usage: usage})
	x.Update(slices.Values(all))
	if err := x.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	embedded(t, x, len(all))
	ask := func() {
		x.Find(t.Context(), Query{Text: "begin", Session: Session{Tenant: "acme"}, Strategy: InSession}, nil)
	}
	taken := func() {
		t.Helper()
		eventually(t, "the questions are not taken in", func() bool { ask(); return x.Learned("acme") })
	}
	l := x.exampleSets
	l.learning.Store(true) // for another tenant
	usage.asked.Store(&list)
	taken()
	if x.mapFor("acme") != nil {
		t.Fatal("two maps are learned at once")
	}
	l.learning.Store(false)
	asked := e.now.Load()
	// The questions are the same, and a map is due.
	due := func() { l.of("acme", x.current.Load().alike.by) }
	eventually(t, "no map is learned", func() bool { due(); return x.Learned("acme") && x.mapFor("acme") != nil })
	if e.now.Load() != asked {
		t.Errorf("the map asked %d times for a caller's slot", e.now.Load()-asked)
	}
	// Its rest counts for all tenants.
	more := slices.Clone(list[:360])
	usage.asked.Store(&more)
	l.mapAfter.Store(math.MaxInt64)
	before := x.mapFor("acme")
	taken()
	if x.mapFor("acme") != before {
		t.Error("learned again before its time")
	}
	l.mapAfter.Store(0)
	eventually(t, "no map is learned after the rest", func() bool { due(); return x.Learned("acme") && x.mapFor("acme") != before })
}
