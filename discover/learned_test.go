package discover

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// lessonsOf returns how many queries of a tenant count in its searches, and how many of them are
// compared by meaning.
func lessonsOf(x *Index, tenant string) (questions, embedded int) {
	if x.exampleSets == nil {
		return 0, 0
	}
	x.exampleSets.mu.Lock()
	t := x.exampleSets.tenants[tenant]
	x.exampleSets.mu.Unlock()
	if t == nil {
		return 0, 0
	}
	n := t.now.Load()
	if n == nil {
		return 0, 0
	}
	return len(n.texts), n.have
}

// learnedFrom searches until all queries are processed.
func learnedFrom(t *testing.T, x *Index, tenant string, questions, vectors int) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for until := time.Now().Add(time.Minute); ; <-tick.C {
		x.Find(t.Context(), Query{Text: "anything", Session: Session{Tenant: tenant}}, nil)
		if n, have := lessonsOf(x, tenant); n == questions && have == vectors {
			return
		}
		if time.Now().After(until) {
			n, have := lessonsOf(x, tenant)
			t.Fatalf("%d questions, %d with vectors; want %d, %d", n, have, questions, vectors)
		}
	}
}

func closed(t *testing.T, x *Index) {
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestLearnedByWords(t *testing.T) {
	u := &pastUse{tenant: "t", examples: []Example{{"what does the gnu say", "c.read", 1}, {"open the old ledger", "b.read", 1}}}
	x := usedIndex(u, Config{}, files...)
	closed(t, x)
	learnedFrom(t, x, "t", 2, 0)
	in := func(tenant string) Query {
		return Query{Text: "read a file of what the gnu says", Session: Session{Tenant: tenant}}
	}
	got, _ := x.Find(t.Context(), in("t"), nil)
	// a.read has no queries and keeps its rank; c.read and b.read change theirs.
	if ids := fmt.Sprint(found(got)); ids != "[a.read@1.0.0 c.read@1.0.0 b.read@1.0.0]" || got[1].Learned <= got[2].Learned {
		t.Errorf("%s %+v", ids, got)
	}
	if strings.Contains(strings.Join(got[1].Why, " "), "gnu") {
		t.Errorf("why tells what others asked: %v", got[1].Why)
	}
	got, _ = x.Find(t.Context(), in("u"), nil)
	if ids := fmt.Sprint(found(got)); ids != "[a.read@1.0.0 b.read@1.0.0 c.read@1.0.0]" || got[2].Learned != 0 {
		t.Errorf("another tenant: %s", ids)
	}
	// A query that no tool's own words match.
	ask := Query{Text: "what does the gnu say", Session: Session{Tenant: "t"}}
	got, _ = x.Find(t.Context(), ask, nil)
	if len(got) != 1 || got[0].Tool.ID != "c.read" || got[0].Score <= 0 || got[0].Why != nil {
		t.Errorf("%+v", got)
	}
	if got, _ = x.Find(t.Context(), ask, func(t *toolkeep.Tool) bool { return t.ID != "c.read" }); len(got) != 0 {
		t.Errorf("a hidden tool is found: %v", found(got))
	}
}

func TestLearnedByMeaning(t *testing.T) {
	e := &topics{}
	tools := []toolkeep.Version{tool("a.first", "1.0.0", "Perform work"), tool("b.second", "1.0.0", "Perform work"), tool("c.third", "1.0.0", "Perform work")}
	u := &pastUse{tenant: "t", examples: []Example{{"an umbrella", "c.third", 1}, {"a letter", "b.second", 1}, {"a letter", "a.first", 2}}}
	x := usedIndex(u, Config{Embedder: e}, tools...)
	if err := x.Start(); err != nil {
		t.Fatal(err)
	}
	closed(t, x)
	embedded(t, x, 3)
	learnedFrom(t, x, "t", 2, 2) // the letter is one text
	got, _ := x.Find(t.Context(), Query{Text: "perform, rain or not", Session: Session{Tenant: "t"}}, nil)
	if len(got) != 3 || got[0].Tool.ID != "c.third" || got[0].Learned < exampleMeaning-0.01 || got[1].Learned != 0 {
		t.Errorf("%+v", got)
	}
	before := e.count()
	u.examples = append([]Example{{"a sum of numbers", "b.second", 1}}, u.examples...)
	learnedFrom(t, x, "t", 3, 3)
	e.mu.Lock()
	reembed := slices.Clone(e.asked[before:])
	e.mu.Unlock()
	if slices.Contains(reembed, "a letter") || !slices.Contains(reembed, "a sum of numbers") {
		t.Errorf("embedded %q", reembed)
	}
}

func TestLearnedIsBounded(t *testing.T) {
	u := &pastUse{tenant: "t"}
	for i := range maxToolExamples + 5 {
		u.examples = append(u.examples, Example{fmt.Sprint("question number", i), "a.read", 1})
	}
	x := usedIndex(u, Config{}, files...)
	closed(t, x)
	learnedFrom(t, x, "t", maxToolExamples, 0)
	u = &pastUse{tenant: "t"}
	for i := range maxExamples + 5 {
		u.examples = append(u.examples, Example{fmt.Sprint("question ", i), fmt.Sprint("some.tool", i), 1})
	}
	x = usedIndex(u, Config{}, files...)
	closed(t, x)
	learnedFrom(t, x, "t", maxExamples, 0)
}

func TestLearnedWhileTheEmbedderFails(t *testing.T) {
	e := &topics{}
	u := &pastUse{tenant: "t"}
	x := usedIndex(u, Config{Embedder: e}, files...)
	if err := x.Start(); err != nil {
		t.Fatal(err)
	}
	closed(t, x)
	embedded(t, x, 4)
	e.set(errors.New("no memory"), nil)
	u.examples = []Example{{"what does the gnu say", "c.read", 1}}
	learnedFrom(t, x, "t", 1, 0)
	if got, r := x.Find(t.Context(), Query{Text: "the gnu file", Session: Session{Tenant: "t"}}, nil); len(got) != 3 || got[2].Learned == 0 || r.Degraded == "" {
		t.Errorf("%+v %+v", got, r)
	}
}

// TestClosedWhileLearning leaves no goroutine, checked by goleak.
func TestClosedWhileLearning(t *testing.T) {
	block := make(chan struct{})
	e := &topics{block: block}
	x := usedIndex(&pastUse{tenant: "t", examples: []Example{{"an umbrella", "a.read", 1}}}, Config{Embedder: e, EmbedTime: time.Millisecond}, files...)
	if err := x.Start(); err != nil {
		t.Fatal(err)
	}
	x.Find(t.Context(), Query{Text: "file", Session: Session{Tenant: "t"}}, nil)
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	x.Find(t.Context(), Query{Text: "file", Session: Session{Tenant: "t"}}, nil)
}

// movingUse is a Usage of many tenants whose queries change.
type movingUse struct {
	examples sync.Map // tenant to []Example
}

func (*movingUse) History(Session) History                 { return History{} }
func (*movingUse) SuccessRates(string, []string) []float64 { return nil }
func (*movingUse) Weights(string) (Weights, bool)          { return Weights{}, false }
func (u *movingUse) Examples(tenant string) []Example {
	examples, _ := u.examples.Load(tenant)
	list, _ := examples.([]Example)
	return list
}

// TestHammerLearned searches for more tenants than are held at once, while their queries change;
// for the race detector.
func TestHammerLearned(t *testing.T) {
	u := &movingUse{}
	x := usedIndex(u, Config{Embedder: &topics{}}, files...)
	if err := x.Start(); err != nil {
		t.Fatal(err)
	}
	closed(t, x)
	embedded(t, x, len(files))
	ids := []string{"a.read", "b.read", "c.read"}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 300 {
				n := (i*4 + w) % (maxExampleTenants + 16)
				tenant, own := fmt.Sprint("t", n), ids[n%3]
				u.examples.Store(tenant, []Example{{fmt.Sprintf("what does the gnu say to %d", i%3), own, 1}})
				got, _ := x.Find(t.Context(), Query{Text: "read what the gnu says", Session: Session{Tenant: tenant}}, nil)
				for _, m := range got {
					if m.Learned > 0 && m.Tool.ID != own {
						t.Errorf("%s learned %s, which is another tenant's", tenant, m.Tool.ID)
					}
				}
			}
		})
	}
	wg.Wait()
	x.exampleSets.mu.Lock()
	defer x.exampleSets.mu.Unlock()
	if n := len(x.exampleSets.tenants); n == 0 || n > maxExampleTenants {
		t.Errorf("%d tenants are held", n)
	}
}

// TestLearnedIsShown repeats a query that led to a tool whose own words do not match, among many
// tools whose words do.
func TestLearnedIsShown(t *testing.T) {
	const question = "water the plants in the hall"
	tools := []toolkeep.Version{tool("zz.far", "1.0.0", "Perform work"), tool("zz.other", "1.0.0", "Perform work")}
	for i := range 120 {
		tools = append(tools, tool(fmt.Sprintf("a.plant_%d", i), "1.0.0", "Water the plants"))
	}
	x := usedIndex(&pastUse{tenant: "t", examples: []Example{{question, "zz.far", 1}, {"feed the cat", "zz.other", 1}}}, Config{}, tools...)
	closed(t, x)
	learnedFrom(t, x, "t", 2, 0)
	for _, limit := range []int{0, 5, 20, 100} {
		ask := Query{Text: question, Limit: limit, Session: Session{Tenant: "t"}}
		got, _ := x.Find(t.Context(), ask, nil)
		shown := limit
		if shown == 0 {
			shown = 10
		}
		if len(got) != shown || got[shown-1].Tool.ID != "zz.far" || got[shown-1].Learned < learnedAgain || got[shown-1].Score > got[shown-2].Score {
			t.Errorf("limit %d: %v", limit, found(got))
		}
		ask.Session.Tenant = "u"
		if got, _ = x.Find(t.Context(), ask, nil); slices.Contains(found(got), "zz.far@1.0.0") {
			t.Errorf("limit %d: another tenant finds it", limit)
		}
	}
	got, _ := x.Find(t.Context(), Query{Text: "water the plants", Limit: 1, Session: Session{Tenant: "t"}}, nil)
	if len(got) != 1 || got[0].Tool.ID == "zz.far" {
		t.Errorf("the one place is taken: %v", found(got))
	}
}
