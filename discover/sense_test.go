package discover

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// withParameters is a tool with a parameter of that description.
func withParameters(id, description, parameter string) toolkeep.Version {
	v := tool(id, "1.0.0", description)
	v.Tool.Manifest.ParametersSchema = fmt.Appendf(nil, `{"type":"object","properties":{"x":{"description":%q}}}`, parameter)
	return v
}

// TestSense has a tool's vector be the mean of those of its texts, and its digest name all of them.
func TestSense(t *testing.T) {
	plain := senseOf(tool("a.b", "1.0.0", "Get the weather").Tool, "")
	if n := len(plain.texts()); n != 1 || plain.digest() != (sense{purpose: plain.purpose}).digest() {
		t.Errorf("%d texts", n)
	}
	both := senseOf(withParameters("a.b", "Get the weather", "of a letter").Tool, "mail and more")
	if got := both.texts(); len(got) != 3 || !strings.Contains(got[1], "of a letter") || got[2] != "mail and more" {
		t.Errorf("%q", got)
	}
	vectors := map[string][]float32{both.purpose: {1, 0, 0}, both.parameters: {0, 1, 0}, both.about: {0, 0, 1}}
	got := both.vector(func(text string) []float32 { return vectors[text] })
	length := math.Sqrt(1 + parameterShare*parameterShare)
	for i, want := range []float64{1 / length, parameterShare / length, aboutShare} {
		if math.Abs(float64(got[i])-want) > 1e-6 {
			t.Errorf("%v", got)
		}
	}
	if vectors[both.purpose][0] != 1 {
		t.Error("a text's own vector was changed, and other tools may share it")
	}
	digests := map[Digest]bool{}
	for _, m := range []sense{plain, both, {purpose: both.purpose, parameters: both.parameters}, {purpose: both.purpose, about: both.about}, {purpose: both.purpose, parameters: both.about}} {
		digests[m.digest()] = true
	}
	if len(digests) != 5 {
		t.Errorf("%d digests", len(digests))
	}
}

// TestParametersHaveMeaning has a tool be found by what its parameters mean, and embedded again if they change.
func TestParametersHaveMeaning(t *testing.T) {
	e := &topics{}
	x := meaningIndex(t, e, withParameters("a.one", "Do it", "how much rain"), withParameters("a.two", "Do that", "which of the two"))
	embedded(t, x, 2)
	if got := found(x.Search("do I need an umbrella", 0, nil)); !slices.Equal(got, []string{"a.one@1.0.0"}) {
		t.Errorf("%v", got)
	}
	changed := withParameters("a.one", "Do it", "whose letter")
	changed.Tool.Digest = "another"
	x.Change(slices.Values([]toolkeep.Version{changed}))
	embedded(t, x, 2)
	if got := found(x.Search("do I need an umbrella", 0, nil)); len(got) != 0 {
		t.Errorf("%v", got)
	}
	if got := found(x.Search("write a message", 0, nil)); !slices.Equal(got, []string{"a.one@1.0.0"}) {
		t.Errorf("%v", got)
	}
}

// TestAbout has what is said of a namespace find its tools by words and by meaning, those of its owner alone, and count at once
// when it changes.
func TestAbout(t *testing.T) {
	e := &topics{}
	var abouts sync.Map
	abouts.Store("sky", "Forecasts for seafarers, with rain")
	of := func(tenant string, v toolkeep.Version) toolkeep.Version {
		v.Tool.Tenant = tenant
		return v
	}
	all := []toolkeep.Version{of("acme", tool("sky.now", "1.0.0", "Look")), of("globex", tool("sky.now", "1.0.0", "Look")), of("acme", tool("skyline.now", "1.0.0", "Look"))}
	x := New(Config{Embedder: e, About: func(t *toolkeep.Tool) string {
		namespace, _, _ := strings.Cut(t.ID, ".")
		if t.Tenant != "acme" {
			return ""
		}
		text, _ := abouts.Load(namespace)
		said, _ := text.(string)
		return said
	}})
	x.Update(slices.Values(all))
	if err := x.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}()
	embedded(t, x, 3)
	ask := func(text string, s Strategy) (got []string) {
		list, _ := x.Find(context.Background(), Query{Text: text, Strategy: s}, nil)
		for _, m := range list {
			got = append(got, m.Tool.Tenant+" "+m.Tool.ID)
		}
		return got
	}
	own := []string{"acme sky.now"}
	if got := ask("for a seafarer", Keyword); !slices.Equal(got, own) {
		t.Errorf("by words: %v", got)
	}
	if got := ask("do I need an umbrella", Semantic); !slices.Equal(got, own) {
		t.Errorf("by meaning: %v", got)
	}
	before := x.Snapshot("acme").Sum()
	elsewhere := x.Snapshot("globex").Sum()
	abouts.Store("sky", "Letters for pilots")
	x.Update(slices.Values(all))
	embedded(t, x, 3)
	if got := ask("for a seafarer", Keyword); len(got) != 0 {
		t.Errorf("by words of before: %v", got)
	}
	if got := ask("for a pilot", Keyword); !slices.Equal(got, own) {
		t.Errorf("by new words: %v", got)
	}
	eventually(t, "the new text is not embedded", func() bool { return slices.Equal(ask("send a message", Semantic), own) })
	if x.Snapshot("acme").Sum() == before {
		t.Error("answers of before would be taken for current ones")
	}
	if x.Snapshot("globex").Sum() != elsewhere {
		t.Error("what is said of another's tools is part of a tenant's state")
	}
	abouts.Delete("sky")
	x.Update(slices.Values(all))
	if got := ask("for a pilot", Keyword); len(got) != 0 || len(x.current.Load().aboutsBy) != 0 {
		t.Errorf("what is said no more: %v", got)
	}
}

// TestAboutAddsNoListEntries holds the words of what many tools share once.
func TestAboutAddsNoListEntries(t *testing.T) {
	text := strings.Repeat("alpha beta gamma delta ", 20)
	var all []toolkeep.Version
	for i := range 100 {
		all = append(all, tool(fmt.Sprintf("big.t%d", i), "1.0.0", fmt.Sprint("Do ", i)))
	}
	x := New(Config{About: func(*toolkeep.Tool) string { return text }})
	x.Update(slices.Values(all))
	p := x.current.Load()
	if n := len(p.term(stem("gamma")).tools); n != 0 || len(x.abouts) != 1 {
		t.Errorf("%d entries, %d texts", n, len(x.abouts))
	}
	if got := x.Search("gamma", 200, nil); len(got) != 100 {
		t.Errorf("%d tools", len(got))
	}
}

// TestNewRecipeIsEmbeddedOnce has tools whose stored vectors are made of other texts be found by their words until they are embedded
// again, and then be embedded no more.
func TestNewRecipeIsEmbeddedOnce(t *testing.T) {
	dir := t.TempDir()
	said := func(*toolkeep.Tool) string { return "Mail for pilots" }
	run := func(e Embedder, about func(*toolkeep.Tool) string) *Index {
		x := New(Config{Embedder: e, Vectors: NewMemory(dir, nil), About: about, EmbedTime: 5 * time.Second})
		x.Update(slices.Values(threeTools))
		if err := x.Start(); err != nil {
			t.Fatal(err)
		}
		return x
	}
	closed := func(x *Index) {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}
	before := run(&named{name: "one"}, nil)
	embedded(t, before, 3)
	closed(before)

	e := &named{name: "one", pass: make(chan struct{})}
	x := run(e, said)
	got, r := x.Find(t.Context(), Query{Text: "the weather"}, nil)
	if !slices.Equal(found(got), []string{"sky.now@1.0.0"}) || r.Strategy != Keyword || !strings.Contains(r.Degraded, "0 of 3 tools are embedded") {
		t.Errorf("meanwhile: %v, %+v", found(got), r)
	}
	close(e.pass)
	embedded(t, x, 3)
	closed(x)

	again := &named{name: "one"}
	x = run(again, said)
	defer closed(x)
	embedded(t, x, 3)
	if n := again.count(); n != 0 {
		t.Errorf("%d texts were embedded once more", n)
	}
}
