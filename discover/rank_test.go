package discover

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// pastUse is a Usage for one tenant and conversation, with the test's data.
type pastUse struct {
	tenant   string
	session  string
	history  History
	success  map[string]float64
	examples []Example
	weights  *Weights
}

func (u *pastUse) History(s Session) History {
	if s.Tenant != u.tenant {
		return History{}
	}
	h := u.history
	if s.ID != u.session {
		h.Recent, h.Paired = nil, nil
	}
	return h
}

func (u *pastUse) SuccessRates(tenant string, tools []string) (out []float64) {
	for _, id := range tools {
		rate, ok := u.success[id]
		if !ok || tenant != u.tenant {
			rate = -1
		}
		out = append(out, rate)
	}
	return out
}

func (u *pastUse) Examples(tenant string) []Example {
	if tenant != u.tenant {
		return nil
	}
	return u.examples
}

func (u *pastUse) Weights(tenant string) (Weights, bool) {
	if u.weights == nil || tenant != u.tenant {
		return Weights{}, false
	}
	return *u.weights, true
}

func usedIndex(u Usage, cfg Config, tools ...toolkeep.Version) *Index {
	cfg.Usage = u
	x := New(cfg)
	x.Update(slices.Values(tools))
	return x
}

// three tools that the words "read a file" fit equally.
var files = []toolkeep.Version{
	tool("a.read", "1.0.0", "Read a file"),
	tool("b.read", "1.0.0", "Read a file"),
	tool("c.read", "1.0.0", "Read a file"),
	tool("d.print", "1.0.0", "Print on paper"),
}

func TestUsageInScores(t *testing.T) {
	now := time.Now()
	session := Session{Tenant: "t", Subject: "me", ID: "s"}
	for _, c := range []struct {
		name string
		use  pastUse
		ask  Query
		want string
	}{
		{"nothing is known", pastUse{}, Query{}, "a b c"},
		{"called just now", pastUse{history: History{Recent: []Recent{{"c.read", now, true}}}}, Query{}, "c a b"},
		{"the newest call counts most", pastUse{history: History{Recent: []Recent{{"b.read", now, true}, {"c.read", now, true}}}}, Query{}, "b c a"},
		{"yesterday fades", pastUse{history: History{Recent: []Recent{{"b.read", now.Add(-24 * time.Hour), true}, {"c.read", now, true}}}}, Query{}, "c b a"},
		{"a failed call counts half", pastUse{history: History{Recent: []Recent{{"b.read", now, false}, {"c.read", now, true}}}}, Query{}, "c b a"},
		{"preferred by the user", pastUse{history: History{Preferred: map[string]float64{"b.read": 1}}}, Query{}, "b a c"},
		{"failing", pastUse{success: map[string]float64{"a.read": 0.2}}, Query{}, "b c a"},
		{"never called is not buried", pastUse{success: map[string]float64{"c.read": 0.6}}, Query{}, "a b c"},
		{"paired without words", pastUse{history: History{Paired: map[string]float64{"d.print": 1}}}, Query{}, "a b c"},
		{"paired, in session", pastUse{history: History{Paired: map[string]float64{"d.print": 1}}}, Query{Strategy: InSession}, "a b c d"},
		{"recent, in session", pastUse{history: History{Recent: []Recent{{"d.print", now, true}, {"c.read", now, true}}}}, Query{Strategy: InSession}, "c a b d"},
		{"words alone", pastUse{history: History{Recent: []Recent{{"c.read", now, true}}}}, Query{Strategy: Keyword}, "a b c"},
		{"another conversation", pastUse{history: History{Recent: []Recent{{"c.read", now, true}}}}, Query{Session: Session{Tenant: "t", ID: "other"}}, "a b c"},
		{"another tenant", pastUse{history: History{Preferred: map[string]float64{"c.read": 1}}, success: map[string]float64{"a.read": 0}}, Query{Session: Session{Tenant: "u", ID: "s"}}, "a b c"},
		{"nobody", pastUse{tenant: "", history: History{Preferred: map[string]float64{"c.read": 1}}}, Query{Session: Session{ID: "s"}}, "a b c"},
		{"learned weights", pastUse{history: History{Recent: []Recent{{"c.read", now, true}}}, weights: &Weights{Keyword: 1}}, Query{}, "a b c"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.use.tenant = "t"; c.name == "nobody" {
				c.use.tenant = ""
			}
			c.use.session = "s"
			if c.ask.Session == (Session{}) {
				c.ask.Session = session
			}
			c.ask.Text = "read a file"
			x := usedIndex(&c.use, Config{}, files...)
			got, _ := x.Find(t.Context(), c.ask, nil)
			var names []string
			for i, m := range got {
				name, _, _ := strings.Cut(m.Tool.ID, ".")
				names = append(names, name)
				if i > 0 && m.Score > got[i-1].Score || m.Score <= 0 {
					t.Errorf("scores %v", got)
				}
			}
			if strings.Join(names, " ") != c.want {
				t.Errorf("got %v, want %s: %+v", names, c.want, got)
			}
		})
	}
	t.Run("hidden tools are not pulled in", func(t *testing.T) {
		u := &pastUse{tenant: "t", session: "s", history: History{Paired: map[string]float64{"d.print": 1}}}
		got, _ := usedIndex(u, Config{}, files...).Find(t.Context(), Query{Text: "read", Strategy: InSession, Session: session},
			func(t *toolkeep.Tool) bool { return t.ID != "d.print" })
		if len(got) != 3 {
			t.Errorf("%v", found(got))
		}
	})
	t.Run("weights of zero", func(t *testing.T) {
		u := &pastUse{tenant: "t", session: "s", history: History{Recent: []Recent{{"c.read", now, true}}}, success: map[string]float64{"a.read": 0}}
		got, r := usedIndex(u, Config{Weights: Weights{Semantic: 0.4, Keyword: 0.3}}, files...).Find(t.Context(), Query{Text: "read a file", Session: session}, nil)
		if got[0].Tool.ID != "a.read" || r.Weights != (Weights{Keyword: 0.7}) {
			t.Errorf("%v %+v", found(got), r.Weights)
		}
	})
	t.Run("parts", func(t *testing.T) {
		u := &pastUse{tenant: "t", session: "s", history: History{Recent: []Recent{{"c.read", now.Add(time.Hour), true}}}, success: map[string]float64{"c.read": 0.5}}
		got, r := usedIndex(u, Config{}, files...).Find(t.Context(), Query{Text: "read a file", Session: session}, nil)
		want := Parts{Keyword: 1, History: 1, Success: 0.5, Action: 1}
		if got[0].Parts != want || r.Weights != (Weights{Keyword: 0.7, History: 0.2, Success: 0.1, Complexity: 0.1}) {
			t.Errorf("%+v %+v", got[0].Parts, r.Weights)
		}
		if s := got[0].Score; s < 0.9999 || s > 1.0001 { // 0.7 + 0.2 + 0.05, and 0.05 for the action
			t.Errorf("score %f", s)
		}
	})
}

func TestComplexity(t *testing.T) {
	level := func(l string) func(*toolkeep.Manifest) { return func(m *toolkeep.Manifest) { m.Complexity = l } }
	x := index(tool("a.read", "1.0.0", "Read a file", level("high")), tool("b.read", "1.0.0", "Read a file", level("medium")),
		tool("c.read", "1.0.0", "Read a file", level("low")), tool("d.read", "1.0.0", "Read a file"))
	got, _ := x.Find(t.Context(), Query{Text: "read a file"}, nil)
	if ids := fmt.Sprint(found(got)); ids != "[c.read@1.0.0 d.read@1.0.0 b.read@1.0.0 a.read@1.0.0]" {
		t.Error(ids)
	}
	if d := got[0].Score - got[3].Score; d < 0.0999 || d > 0.1001 {
		t.Errorf("a complex tool loses %f", d)
	}
}

func TestCategory(t *testing.T) {
	in := func(c string) func(*toolkeep.Manifest) { return func(m *toolkeep.Manifest) { m.Category = c } }
	x := index(tool("a.read", "1.0.0", "Read a file and a file and a file", in("disk")), tool("b.read", "1.0.0", "Read what is in a file", in("cloud")))
	got, r := x.Find(t.Context(), Query{Text: "read file", Strategy: Category, Category: "cloud"}, nil)
	// The best of the category has the full keyword score, whatever other tools have.
	if len(got) != 1 || got[0].Tool.ID != "b.read" || got[0].Keyword != 1 || r.Strategy != Category {
		t.Errorf("%v %+v", got, r)
	}
}

func TestHiddenToolsMoveNoScore(t *testing.T) {
	tools := slices.Concat(files, []toolkeep.Version{tool("z.secret", "1.0.0", "file file file", func(m *toolkeep.Manifest) { m.Tags = []string{"file", "read"} })})
	x := index(tools...)
	visible := func(t *toolkeep.Tool) bool { return t.ID != "z.secret" }
	got := x.Search("file on paper", 9, visible)
	if len(got) != 4 || got[0].Keyword != 1 || got[0].Score < 0.69 {
		t.Errorf("%+v", got)
	}
}

func TestThreshold(t *testing.T) {
	x := usedIndex(nil, Config{Threshold: 0.5}, files...)
	for q, want := range map[string]int{"read a file": 3, "read a file and print it on paper": 1, "read the letters of distant ancestors aloud": 0, "d.print": 1} {
		if got := x.Search(q, 9, nil); len(got) != want {
			t.Errorf("%q finds %v", q, found(got))
		}
	}
}

func TestNamedInTheQuery(t *testing.T) {
	x := index(tool("shop.create_order", "1.0.0", "Make it"), tool("shop.list_orders", "1.0.0", "List orders of a customer in the shop"))
	for _, q := range []string{"for this customer, list orders of the shop with `create_order`", "orders of a customer (shop.create_order)", "SHOP.CREATE_ORDER"} {
		if got := x.Search(q, 9, nil); got[0].Tool.ID != "shop.create_order" || !got[0].Named || len(got) < 2 || got[1].Named {
			t.Errorf("%q finds %v", q, found(got))
		}
	}
}

func TestVariety(t *testing.T) {
	e := &topics{}
	x := meaningIndex(t, e, tool("a.rain", "1.0.0", "Tell if rain comes"), tool("b.rain", "1.0.0", "Tell if rain comes"), tool("c.rain", "1.0.0", "Measure the umbrella"))
	embedded(t, x, 3)
	got, _ := x.Find(t.Context(), Query{Text: "weather", Strategy: Semantic}, nil)
	if ids := fmt.Sprint(found(got)); ids != "[a.rain@1.0.0 c.rain@1.0.0 b.rain@1.0.0]" {
		t.Error(ids)
	}
}

func TestReadQuery(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"Order a good book", ""},
		{"Order a good book. Thanks!", ""},
		{"Order the good book today, then send the long letter home", "Order the good book today|send the long letter home"},
		{"Order the good book today. Send the long letter home", "Order the good book today|Send the long letter home"},
		{"Order the good book. Send the long letter home and water all green plants", "Order the good book|Send the long letter home and water all green plants|Send the long letter home|water all green plants"},
		{"Version 1.5 of the.name, x", ""},
	} {
		q := readQuery(c.text)
		var got []string
		for _, w := range q.subqueries {
			got = append(got, w.text)
		}
		if strings.Join(got, "|") != c.want || len(q.texts(c.text)) != 1+len(got) {
			t.Errorf("%q: %q", c.text, got)
		}
	}
	q := readQuery(strings.Repeat("Order the good book today. ", 40))
	if len(q.subqueries) != maxSubqueries || len(q.texts("")) != 1+maxEmbeds {
		t.Errorf("%d wishes, %d embedded", len(q.subqueries), len(q.texts("")))
	}
}

// dense384 gives every text a vector at no cost.
type dense384 struct{}

func (dense384) Model() string   { return "dense" }
func (dense384) Dimensions() int { return 384 }
func (dense384) Embed(_ context.Context, texts []string) ([][]float32, error) {
	out := make([][]float32, len(texts))
	for i, text := range texts {
		r := rand.New(rand.NewPCG(uint64(len(text)), uint64(text[len(text)-1])))
		v, sum := make([]float32, 384), 0.0
		for k := range v {
			v[k] = float32(r.NormFloat64())
			sum += float64(v[k]) * float64(v[k])
		}
		for k := range v {
			v[k] /= float32(math.Sqrt(sum))
		}
		out[i] = v
	}
	return out, nil
}

func BenchmarkFind10000(b *testing.B) {
	u := &pastUse{tenant: "t", session: "s", history: History{Preferred: map[string]float64{}}}
	all := many(10_000)
	for i := range 2000 {
		u.examples = append(u.examples, Example{fmt.Sprintf("question w%d and w%d", i%70, i), all[i].Tool.ID, 1})
	}
	for i := range 50 {
		u.history.Recent = append(u.history.Recent, Recent{all[i*7].Tool.ID, time.Now(), true})
	}
	x := usedIndex(u, Config{Embedder: dense384{}}, all...)
	if err := x.Start(); err != nil {
		b.Fatal(err)
	}
	defer x.Close()
	for have, of, _ := x.Embedded(); have < of; have, of, _ = x.Embedded() {
		<-x.Changed()
	}
	ask := Query{Text: "get the w1 w20 of a w300, and then w7 w99 w1200; also find w4000 w12", Session: Session{Tenant: "t", Subject: "me", ID: "s"}}
	for !x.Learned("t") {
		x.Find(b.Context(), ask, nil)
	}
	for _, s := range []Strategy{Keyword, Semantic, Hybrid, InSession} {
		b.Run(string(s), func(b *testing.B) {
			ask.Strategy = s
			b.ReportAllocs()
			for b.Loop() {
				x.Find(b.Context(), ask, func(*toolkeep.Tool) bool { return true })
			}
		})
	}
}

// TestLast: what Config.Last names stands behind all others that match, in every strategy and however many are asked for; the
// query that names such a tool finds it first.
func TestLast(t *testing.T) {
	last := func(t *toolkeep.Tool) bool { return strings.HasPrefix(t.ID, "std.") }
	x := New(Config{Last: last})
	x.Update(slices.Values([]toolkeep.Version{
		tool("std.hash", "1.0.0", "Hash a text"),
		tool("std.stats", "1.0.0", "Count the words of a text"),
		tool("shop.print", "1.0.0", "Print a text with its picture, price and place on the shelf"),
		tool("kitchen.peel", "1.0.0", "Peel potatoes for a hash, the meal, and other dishes of the week"),
	}))
	for _, c := range []struct {
		query string
		limit int
		want  string
	}{
		{"hash a text", 10, "kitchen.peel shop.print std.hash std.stats"},
		{"hash a text", 2, "kitchen.peel shop.print"},
		{"hash a text", 3, "kitchen.peel shop.print std.hash"},
		{"std.hash", 1, "std.hash"},
		{"hash", 2, "std.hash kitchen.peel"},
	} {
		for _, strategy := range []Strategy{Hybrid, Semantic, Keyword, InSession} {
			list, _ := x.Find(t.Context(), Query{Text: c.query, Limit: c.limit, Strategy: strategy}, nil)
			var got []string
			for i, m := range list {
				got = append(got, m.Tool.ID)
				if i > 0 && m.Score > list[i-1].Score {
					t.Errorf("%s, %s: %s has a higher score than the one before", c.query, strategy, m.Tool.ID)
				}
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("%s, %s, %d: found %q, want %q", c.query, strategy, c.limit, got, c.want)
			}
		}
	}
}
