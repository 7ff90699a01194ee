package usage

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
)

// lessonsOf are retrievals of ten tools of which one is chosen: the one with the highest
// score by these weights, with some chance.
func lessonsOf(r *rand.Rand, n int, by features, chance float64) []lesson {
	out := make([]lesson, n)
	for i := range out {
		l := lesson{at: int64(i)}
		best, at := -10.0, 0
		for k := range 10 {
			f := features{r.Float64(), r.Float64(), r.Float64(), r.Float64(), -float64(r.IntN(3)) / 2}
			if v := by.dot(f) + chance*r.NormFloat64(); v > best {
				best, at = v, k
			}
			l.offered = append(l.offered, f)
		}
		l.chosen = make([]bool, 10)
		l.chosen[at] = true
		out[i] = l
	}
	return out
}

func TestTraining(t *testing.T) {
	inUse := discover.DefaultWeights
	for _, c := range []struct {
		name   string
		by     features
		chance float64
		n      int
		better bool
		says   string
	}{
		{"too few", features{1}, 0, leastLessons - 1, false, "too few"},
		{"meaning alone", features{1}, 0.1, 1000, true, "better"},
		{"words alone", features{0, 1}, 0.1, 1000, true, "better"},
		{"words and history", features{0, 0.6, 0.4}, 0.1, 1000, true, "better"},
		{"as now", vector(inUse), 0.02, 1000, false, "not better"},
		{"by chance", features{}, 1, 1000, false, ""},
		{"what was called before, whatever is asked", features{0, 0, 1}, 0.05, 1000, false, "too little"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := train(begin, inUse, lessonsOf(rand.New(rand.NewPCG(1, 1)), c.n, c.by, c.chance))
			if tr.Better != c.better || !strings.Contains(tr.Verdict, c.says) || tr.Lessons != c.n {
				t.Fatalf("%+v", tr)
			}
			if !tr.Better {
				return
			}
			got := vector(tr.After.Weights)
			for i := range got { // in the proportion by which was chosen
				if want := c.by[i] / c.by.sum() * vector(inUse).sum(); got[i] < want-0.25 || got[i] > want+0.25 {
					t.Errorf("weights %v, chosen by %v", got, c.by)
				}
			}
			if tr.After.NDCG < tr.Before.NDCG || tr.Held != c.n/heldShare || got.sum() > vector(inUse).sum()+0.01 {
				t.Errorf("%+v", tr)
			}
		})
	}
}

func TestMeasures(t *testing.T) {
	l := []lesson{{offered: []features{{0.9}, {0.5}, {0.1}}, chosen: []bool{false, true, false}}}
	if got := ndcg(features{1}, l); got < 0.63 || got > 0.64 { // 1/log2(3)
		t.Errorf("%v", got)
	}
	if got := ndcg(features{}, l); got > 0.501 {
		t.Errorf("a tie is no success: %v", got)
	}
	if got := logLoss(features{}, l); got < 0.693 || got > 0.694 { // guessing
		t.Errorf("%v", got)
	}
	if a, b := logLoss(features{1}, l), logLoss(features{-1}, l); a != b { // one above, one below
		t.Errorf("%v %v", a, b)
	}
}

// chosenBy has ann search and choose the tool whose words fit best, though another
// means more what was asked.
func chosenBy(f *folder, n int) {
	r := rand.New(rand.NewPCG(3, 3))
	for i := range n {
		id := fmt.Sprint("r", i)
		e := searchEvent(f.t, f.now, "t", id, "ann", id, "ask", "a.one", "a.two", "a.three")
		e.Event.Data = []byte(strings.Replace(string(e.Event.Data), `"score_parts":[[1,0.5,0,0,0],[0.5,0.3333333333333333,0,0,0]`,
			fmt.Sprintf(`"score_parts":[[%.2f,%.2f,0,0,0],[%.2f,1,0,0,0]`, 0.8+r.Float64()/5, r.Float64()/2, r.Float64()/2), 1))
		f.change(e)
		f.after(time.Second).used("ann", id, "a.two")
	}
}

func TestLearnedWeights(t *testing.T) {
	for _, mode := range []Learning{LearnOn, LearnObserve} {
		t.Run(string(mode), func(t *testing.T) {
			f := newFolder(t)
			f.c.Learning = mode
			chosenBy(f, 300)
			store := f.c.Store.(*memory)
			tr, err := f.train(t.Context(), "t")
			if err != nil || !tr.Better || tr.After.Weights.Keyword <= tr.After.Weights.Semantic {
				t.Fatalf("%+v %v", tr, err)
			}
			if _, ok := f.Weights("t"); ok {
				t.Error("weights count before they are in the feed")
			}
			// A node that starts now, and one that reads on.
			other := New(f.c)
			if err := other.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(other.Stop)
			for _, c := range store.feed {
				f.document(c)
			}
			for _, u := range []*Usage{f.Usage, other} {
				w, ok := u.Weights("t")
				if ok != (mode == LearnOn) || ok && w != tr.After.Weights {
					t.Errorf("%+v %v", w, ok)
				}
				if _, ok := u.Weights("u"); ok {
					t.Error("another tenant has them")
				}
				if got := u.Report("t", f.now, f.now, ByTool); got.Training == nil || *got.Training.Weights != tr.After.Weights || got.Learning != mode {
					t.Errorf("%+v", got.Training)
				}
			}
			// Learned again from the same they are not better than those in use, and stay.
			again, err := f.train(t.Context(), "t")
			if err != nil || again.Better != (mode == LearnObserve) || *again.Weights != tr.After.Weights {
				t.Fatalf("%+v %v", again, err)
			}
			if err := f.ResetWeights(t.Context(), &toolkeep.Principal{Subject: "root", Tenant: "t"}); err != nil {
				t.Fatal(err)
			}
			for _, c := range store.feed {
				f.document(c)
			}
			if _, ok := f.Weights("t"); ok {
				t.Error("weights count after they were given up")
			}
			if err := f.ResetWeights(t.Context(), &toolkeep.Principal{Subject: "root", Tenant: "t"}); err != nil {
				t.Errorf("given up twice: %v", err)
			}
			want := map[Learning]int{LearnOn: 2, LearnObserve: 3}[mode]
			if n := store.count(func(c toolkeep.Change) bool {
				e, ok := c.(toolkeep.AppendEvent)
				return ok && e.Event.Type == EventRanking
			}); n != want {
				t.Errorf("%d events", n)
			}
		})
	}
}

// TestLearnedWeightsOverRestarts: a node that reads the feed again from before a reset
// does not take it for a new one.
func TestLearnedWeightsOverRestarts(t *testing.T) {
	clock := func() time.Time { return begin }
	store := newMemory(clock)
	a := start(t, store, "a", clock)
	admin := &toolkeep.Principal{Subject: "root", Tenant: "t"}
	put := func(semantic string) {
		apply(t, store, toolkeep.PutDocument{Expect: toolkeep.AnyRevision, Document: toolkeep.Document{Kind: KindWeights, Tenant: "t", ID: weightsID,
			Body: []byte(`{"weights":{"Semantic":` + semantic + `}}`)}})
	}
	put("0.1")
	if err := a.ResetWeights(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	put("0.2")
	b := start(t, store, "b", clock)
	settle(t, store, a, b)
	for i, u := range []*Usage{a, b} {
		if w, ok := u.Weights("t"); !ok || w.Semantic != 0.2 {
			t.Errorf("node %d: %+v %v", i, w, ok)
		}
	}
}
