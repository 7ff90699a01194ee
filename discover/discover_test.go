package discover

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/toolkeep/toolkeep"
)

func tool(id, version, description string, edit ...func(*toolkeep.Manifest)) toolkeep.Version {
	m := &toolkeep.Manifest{ToolID: id, Version: version, Description: description, Category: "utility",
		ParametersSchema: []byte(`{"type":"object"}`)}
	for _, e := range edit {
		e(m)
	}
	return toolkeep.Version{
		Tool: &toolkeep.Tool{ID: id, Version: version, Digest: fmt.Sprint(id, version, description), Manifest: m},
		Life: toolkeep.Lifecycle{State: toolkeep.Active},
	}
}

func index(versions ...toolkeep.Version) *Index {
	x := New(Config{})
	x.Update(slices.Values(versions))
	return x
}

func found(matches []Match) []string {
	var ids []string
	for _, m := range matches {
		ids = append(ids, m.Tool.ID+"@"+m.Tool.Version)
	}
	return ids
}

func TestWords(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"getUserInfo", "get user info"},
		{"HTTPServer2", "http server2"},
		{"snake_case-and.dots", "snake case and dots"},
		{"parseURLs", "parse ur ls"}, // a known error of splitting by capitals
		{"Café Zürich", "cafe zurich"},
		{"straße", "straße"},
		{"天気予報", "天気 気予 予報"},
		{"猫", "猫"},
		{"x=3.14", "x 3 14"},
		{strings.Repeat("a", 65) + " b", "b"},
		{"", ""},
		{"\xff bad \xfe", "bad"},
	} {
		var got []string
		words(c.text, func(w string) { got = append(got, w) })
		if strings.Join(got, " ") != c.want {
			t.Errorf("words(%q) = %q, want %q", c.text, strings.Join(got, " "), c.want)
		}
	}
}

func TestSearch(t *testing.T) {
	x := index(
		tool("weather.current", "1.0.0", "Get the current weather of a city"),
		tool("weather.forecast", "1.0.0", "Predict the weather of the coming days", func(m *toolkeep.Manifest) {
			m.ParametersSchema = []byte(`{"type":"object","properties":{"postalCode":{"type":"string","description":"zip of the place"}}}`)
		}),
		tool("mail.send", "1.0.0", "Deliver a message to an address", func(m *toolkeep.Manifest) {
			m.Tags = []string{"email"}
			m.Examples = []toolkeep.Example{{Scenario: "invite colleagues to a birthday", Explanation: "several recipients at once"}}
			m.CommonErrors = []byte(`[{"error":"quota exhausted","resolution":"wait until tomorrow"}]`)
		}),
		tool("math.add", "1.0.0", "Add numbers"),
		tool("math.sum", "1.0.0", "Add numbers"),
	)
	for _, c := range []struct {
		name, query string
		want        []string
		why         []string
	}{
		{"stems", "predicting days", []string{"weather.forecast@1.0.0"}, []string{"predicting", "days"}},
		{"parameter names", "postal code", []string{"weather.forecast@1.0.0"}, []string{"postal", "code"}},
		{"tags", "emails", []string{"mail.send@1.0.0"}, []string{"emails"}},
		{"examples", "birthday", []string{"mail.send@1.0.0"}, []string{"birthday"}},
		{"explanations of examples", "recipient", []string{"mail.send@1.0.0"}, []string{"recipient"}},
		{"common errors", "quota exhausted", []string{"mail.send@1.0.0"}, []string{"quota", "exhausted"}},
		{"what to do about them", "tomorrow", []string{"mail.send@1.0.0"}, []string{"tomorrow"}},
		{"equal scores by id", "numbers", []string{"math.add@1.0.0", "math.sum@1.0.0"}, []string{"numbers"}},
		{"exact id first", "weather.current", []string{"weather.current@1.0.0", "weather.forecast@1.0.0"}, []string{"weather", "current"}},
		{"exact name first", "SUM", []string{"math.sum@1.0.0"}, []string{"sum"}},
		{"nothing", "submarine", nil, nil},
		{"empty", "  ", nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := x.Search(c.query, 0, nil)
			if !slices.Equal(found(got), c.want) {
				t.Fatalf("got %v, want %v", found(got), c.want)
			}
			if len(got) > 0 && !slices.Equal(got[0].Why, c.why) {
				t.Errorf("why %v, want %v", got[0].Why, c.why)
			}
		})
	}
	t.Run("clauses", func(t *testing.T) {
		got := x.Search("Deliver an email message to my address, then add two numbers", 2, nil)
		if ids := found(got); ids[0] != "mail.send@1.0.0" || !strings.HasPrefix(ids[1], "math.") {
			t.Errorf("got %v", ids)
		}
	})
	t.Run("visible", func(t *testing.T) {
		got := x.Search("add numbers", 1, func(t *toolkeep.Tool) bool { return t.ID != "math.add" })
		if !slices.Equal(found(got), []string{"math.sum@1.0.0"}) {
			t.Errorf("got %v", found(got))
		}
	})
	t.Run("long query", func(t *testing.T) {
		got := x.Search("numbers "+strings.Repeat("é word ", 10_000), 5, nil)
		if len(got) != 2 {
			t.Errorf("got %v", found(got))
		}
	})
}

func TestUpdate(t *testing.T) {
	x := index(
		tool("a.x", "1.0.0", "old words"),
		tool("a.x", "1.10.0", "new words"),
		tool("a.x", "1.9.0", "middle words"),
		tool("a.x", "2.0.0-beta", "future words"),
		tool("b.y", "2.0.0-beta", "only a prerelease"),
		func() toolkeep.Version {
			v := tool("c.z", "1.0.0", "hidden away")
			v.Life.State = toolkeep.Deprecated
			return v
		}(),
	)
	if got := found(x.Search("words", 9, nil)); !slices.Equal(got, []string{"a.x@1.10.0"}) {
		t.Errorf("got %v", got)
	}
	if got := found(x.Search("prerelease", 9, nil)); !slices.Equal(got, []string{"b.y@2.0.0-beta"}) {
		t.Errorf("got %v", got)
	}
	if x.Len() != 2 {
		t.Errorf("%d tools", x.Len())
	}
	kept := x.docs[docKey{"b.y", ""}]
	x.Update(slices.Values([]toolkeep.Version{tool("a.x", "1.0.0", "old words"), tool("b.y", "2.0.0-beta", "only a prerelease")}))
	if now := x.docs[docKey{"b.y", ""}]; &now.terms[0] != &kept.terms[0] {
		t.Error("a tool with the same digest was taken apart again")
	}
	if got := found(x.Search("words", 9, nil)); !slices.Equal(got, []string{"a.x@1.0.0"}) {
		t.Errorf("after the update %v", got)
	}
	x.Update(slices.Values([]toolkeep.Version{}))
	if got := x.Search("words", 9, nil); got != nil || x.Len() != 0 {
		t.Errorf("after emptying %v", found(got))
	}
}

func TestTenants(t *testing.T) {
	a, b := tool("a.x", "1.0.0", "words of one"), tool("a.x", "1.0.0", "words of two")
	a.Tool.Tenant, b.Tool.Tenant = "one", "two"
	x := index(b, a)
	got := x.Search("words", 9, func(t *toolkeep.Tool) bool { return t.Tenant == "two" })
	if len(got) != 1 || got[0].Tool != b.Tool {
		t.Errorf("got %v", got)
	}
}

// TestHammer searches while the index changes, for the race detector.
func TestHammer(t *testing.T) {
	x := New(Config{})
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			for i := range 50 {
				var all []toolkeep.Version
				for n := range 40 {
					all = append(all, tool(fmt.Sprintf("t.n%d", n), "1.0.0", fmt.Sprintf("constant words %d", (i+n+w)%7)))
				}
				x.Update(slices.Values(all))
			}
		})
	}
	for range 4 {
		wg.Go(func() {
			for range 200 {
				got := x.Search("constant words 3", 5, nil)
				if len(got) != 0 && len(got) != 5 {
					t.Errorf("%d results", len(got))
				}
			}
		})
	}
	wg.Wait()
}

func FuzzSearch(f *testing.F) {
	x := index(tool("a.x", "1.0.0", "some words"), tool("b.y", "1.0.0", "other 天気 words"))
	for _, s := range []string{"words", "a.x", "天気予報", "x, and then; y. z", "\xff\xfe", "İstanbul ﬁne", "ⅫⅫ"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, q string) {
		for _, m := range x.Search(q, 3, nil) {
			if m.Tool == nil || m.Score <= 0 {
				t.Errorf("%q gives %+v", q, m)
			}
		}
	})
}

// many returns n tools with few frequent and many rare words.
func many(n int) []toolkeep.Version {
	r := rand.New(rand.NewPCG(1, 2))
	word := func() string { return fmt.Sprintf("w%d", int(5000*r.Float64()*r.Float64()*r.Float64())) }
	text := func(n int) string {
		var b strings.Builder
		for range n {
			b.WriteString(word() + " ")
		}
		return b.String()
	}
	out := make([]toolkeep.Version, n)
	for i := range out {
		out[i] = tool(fmt.Sprintf("ns%d.get_%s_%s_%d", i%50, word(), word(), i), "1.0.0", text(25), func(m *toolkeep.Manifest) {
			m.ParametersSchema = fmt.Appendf(nil, `{"type":"object","properties":{"%s":{"description":"%s"},"%s":{"description":"%s"}}}`, "a"+word(), text(8), "b"+word(), text(8))
		})
	}
	return out
}

func BenchmarkSearch10000(b *testing.B) {
	x := index(many(10_000)...)
	visible := func(t *toolkeep.Tool) bool { return t.Tenant == "" }
	b.ReportAllocs()
	for b.Loop() {
		x.Search("get the w1 w20 of a w300, and then w7 w99 w1200; also find w4000 w12", 10, visible)
	}
}

func BenchmarkUpdateOneOf10000(b *testing.B) {
	all := many(10_000)
	x := index(all...)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		all[i%len(all)] = tool("ns.changed", "1.0.0", fmt.Sprint("changed ", i))
		x.Update(slices.Values(all))
	}
}

// TestVersionsInAnyOrder: a change in which other tools stand between the versions of one shows each tool
// once, in the version that "latest" means, and removes no other.
func TestVersionsInAnyOrder(t *testing.T) {
	blocked := tool("b.y", "3.0.0", "some words")
	blocked.Life.State = toolkeep.Blocked
	all := []toolkeep.Version{tool("a.first", "1.0.0", "first words"), tool("b.y", "1.0.0", "old words")}
	for i := range 500 {
		all = append(all, tool(fmt.Sprintf("d.n%03d", i), "1.0.0", "something else"))
	}
	x := index(all...)
	x.Change(slices.Values([]toolkeep.Version{tool("b.y", "2.0.0", "new words"), tool("c.z", "1.0.0", "other words"), blocked, tool("b.y", "1.5.0", "newer words")}))
	got := found(x.Search("words", 9, nil))
	slices.Sort(got)
	if want := []string{"a.first@1.0.0", "b.y@2.0.0", "c.z@1.0.0"}; !slices.Equal(got, want) || x.Len() != 503 {
		t.Errorf("of %d tools found %v, want %v", x.Len(), got, want)
	}
}
