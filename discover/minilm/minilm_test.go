package minilm

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/toolkeep/toolkeep/servertest"
)

type reference struct {
	Texts []struct {
		Text   string  `json:"text"`
		IDs    []int32 `json:"ids"`
		Vector string  `json:"vector"`
	} `json:"texts"`
}

func readReference(t testing.TB) reference {
	t.Helper()
	raw, err := os.ReadFile("testdata/reference.json")
	if err != nil {
		t.Fatal(err)
	}
	var r reference
	if err := json.Unmarshal(raw, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Texts) != 100 {
		t.Fatalf("%d reference texts", len(r.Texts))
	}
	return r
}

func TestParity(t *testing.T) {
	m := open(t)
	for _, ref := range readReference(t).Texts {
		if ids := m.t.ids(nil, ref.Text); !slices.Equal(ids, ref.IDs) {
			t.Errorf("%q has the tokens\n%v, the original's are\n%v", ref.Text, ids, ref.IDs)
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(ref.Vector)
		if err != nil {
			t.Fatal(err)
		}
		want := floats(raw)
		got, err := m.Embed(t.Context(), []string{ref.Text})
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for i := range want {
			sum += float64(want[i]) * float64(got[0][i])
		}
		if !(sum >= 0.99999) { // also catches NaN
			t.Errorf("%q: cosine %.6f", ref.Text, sum)
		}
	}
}

// TestOtherKernels compares texts embedded as on older processors with the same texts
// embedded as on this one.
func TestOtherKernels(t *testing.T) {
	defer func(a, w bool) { accelerated, wide = a, w }(accelerated, wide)
	m := open(t)
	texts := []string{"", "Get the weather of a city", "Find a restaurant near the station that is open now"}
	want, err := m.Embed(t.Context(), texts)
	if err != nil {
		t.Fatal(err)
	}
	for _, on := range [][2]bool{{accelerated, false}, {false, false}} {
		accelerated, wide = on[0], on[1]
		got, err := m.Embed(t.Context(), texts)
		if err != nil {
			t.Fatal(err)
		}
		for k, text := range texts {
			sum := 0.0
			for i := range want[k] {
				sum += float64(want[k][i]) * float64(got[k][i])
			}
			if !(sum >= 0.99999) {
				t.Errorf("%q with AVX2 %v, AVX-512 %v: cosine %.6f", text, accelerated, wide, sum)
			}
		}
	}
}

// modelDir is where scripts/model.sh put the model. Without it the tests say so; where
// everything has to run they fail.
func modelDir(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("TOOLKEEP_TEST_MODEL")
	if dir == "" {
		dir = filepath.Join("..", "..", "models", Name)
	}
	if !Installed(dir) {
		servertest.Missing(t, "the model is missing at "+dir+"; `make model` fetches it")
	}
	return dir
}

func open(t testing.TB) *Model {
	t.Helper()
	m, err := Open(Config{Dir: modelDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// TestBeside has many callers embed concurrently, for the race detector.
func TestBeside(t *testing.T) {
	dir := modelDir(t)
	m, err := Open(Config{Dir: dir, Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{"Get the weather of a city", "x", "", "Delete a file"}
	want, err := m.Embed(t.Context(), texts)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			for k := range texts {
				n := (i + k) % len(texts)
				got, err := m.Embed(t.Context(), texts[n:n+1])
				if err != nil || !slices.Equal(got[0], want[n]) {
					t.Errorf("%q: %v, or another vector than before", texts[n], err)
				}
			}
		})
	}
	all.Wait()
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestTogether has the vectors of texts that go through the model in one pass be those
// that they have alone, and is about each way that texts can fill passes.
func TestTogether(t *testing.T) {
	m := open(t)
	long := strings.Repeat("word ", 400)
	for name, texts := range map[string][]string{
		"no text":             nil,
		"short ones":          {"Get the weather of a city", "x", "", "Delete a file", "Book it", "Find a restaurant near the station"},
		"cut ones":            {long, "x", long, long, "Delete a file"},
		"as long as one pass": {long[:5*120], long[:5*132], "x"},
		"many":                slices.Repeat([]string{"Get the weather of a city", "x"}, 40),
	} {
		got, err := m.Embed(t.Context(), texts)
		if err != nil || len(got) != len(texts) {
			t.Fatalf("%s: %d vectors, %v", name, len(got), err)
		}
		for i, text := range texts {
			alone, err := m.Embed(t.Context(), []string{text})
			if err != nil || !slices.Equal(alone[0], got[i]) {
				t.Errorf("%s: the vector of text %d is another one alone (%v)", name, i, err)
			}
		}
	}
}

func FuzzTokens(f *testing.F) {
	m := open(f)
	for _, s := range []string{"", "[CLS]", "[MASK", "a\x00b", "\xff", "天気", "İ", "[[PAD]]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ids := m.t.ids(nil, s)
		if len(ids) < 2 || len(ids) > maxTokens || ids[0] != m.t.cls || ids[len(ids)-1] != m.t.sep {
			t.Fatalf("%v", ids)
		}
		for _, id := range ids {
			if id < 0 || id >= vocabulary {
				t.Fatalf("token %d", id)
			}
		}
	})
}

func BenchmarkEmbed(b *testing.B) {
	m := open(b)
	for _, c := range []struct{ name, text string }{
		{"8 tokens", "Get the weather of a city"},
		{"16 tokens", "Find a restaurant near the station that is open now and book it"},
		{"64 tokens", "Find a restaurant near the station that is open now and book it. Find a restaurant near the station that is open now and book it. Find a restaurant near the station that is open now and book it. Find a restaurant near the station that is open now and book a table"},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportMetric(float64(len(m.t.ids(nil, c.text))), "tokens")
			b.ReportAllocs()
			for b.Loop() {
				if _, err := m.Embed(b.Context(), []string{c.text}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestQuestionsDoNotWait embeds a question while every pass of Embed is taken.
func TestQuestionsDoNotWait(t *testing.T) {
	m := open(t)
	for range cap(m.threads) {
		m.threads <- struct{}{}
	}
	got, err := m.EmbedNow(t.Context(), []string{"Get the weather of a city"})
	if err != nil || len(got) != 1 {
		t.Fatal(err)
	}
	for range cap(m.threads) {
		<-m.threads
	}
	want, err := m.Embed(t.Context(), []string{"Get the weather of a city"})
	if err != nil || !slices.Equal(got[0], want[0]) {
		t.Errorf("another vector: %v", err)
	}
}
