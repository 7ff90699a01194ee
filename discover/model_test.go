package discover

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// named is topics under another name, whose answers can be released one by one.
type named struct {
	topics
	name string
	pass chan struct{} // nil: all are
}

func (e *named) Model() string { return e.name }

func (e *named) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	if e.pass != nil {
		select {
		case <-e.pass:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return e.topics.Embed(ctx, texts)
}

func started(t *testing.T, c Config, tools []toolkeep.Version) *Index {
	t.Helper()
	c.EmbedTime = 5 * time.Second
	x := New(c)
	x.Update(slices.Values(tools))
	if err := x.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

func numbered(n int, text string) []toolkeep.Version {
	out := make([]toolkeep.Version, n)
	for i := range out {
		out[i] = tool(fmt.Sprintf("t.n%03d", i), "1.0.0", fmt.Sprintf("%s %d", text, i))
	}
	return out
}

func TestRestartEmbedsNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, vectorFileName("topics", len(topicWords)+1))
	tools := append(numbered(1100, "Of rain"), threeTools...)
	reembed := func(want int, what string) {
		t.Helper()
		e := &topics{}
		x := New(Config{Embedder: e, Vectors: NewMemory(dir, nil)})
		x.Update(slices.Values(tools))
		if err := x.Start(); err != nil {
			t.Fatal(err)
		}
		embedded(t, x, len(tools))
		got, r := x.Find(t.Context(), Query{Text: "write a letter"}, nil)
		if len(got) == 0 || got[0].Tool.ID != "post.send" || r.Degraded != "" {
			t.Errorf("%s: %v %+v", what, found(got), r)
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
		if e.count() != want+1 { // and the query
			t.Errorf("%s: %d texts were embedded, want %d", what, e.count()-1, want)
		}
	}
	reembed(len(tools), "the first start")
	reembed(0, "a restart")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write := func(b []byte) {
		t.Helper()
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	v := &vectorFile{dimensions: len(topicWords) + 1}
	rotten := slices.Clone(whole)
	rotten[v.chunkAt(0)+5] ^= 1 // a number
	rotten[v.labelAt(7)] ^= 1
	rotten[v.labelAt(9)+labelBytes-1] ^= 1
	write(rotten)
	reembed(3, "rot in three vectors")
	reembed(0, "a restart after rot")
	write(whole[:v.chunkAt(1)+v.numberBytes()-1])
	reembed(len(tools)-chunkRows, "a tail that is gone")
	reembed(0, "a restart after that")
	write(whole[:v.labelAt(1000)+10])
	reembed(len(tools)-1000, "a tail that is gone in the middle of a chunk")
	reembed(0, "a restart after that")
	write([]byte(strings.Replace(string(whole), `"topics"`, `"others"`, 1)))
	reembed(len(tools), "a file of another model")
	write([]byte("what is not a file of vectors"))
	reembed(len(tools), "another file")
	write(nil)
	reembed(len(tools), "an empty file")
	reembed(0, "a restart at last")
}

// TestVectorFileOverCrashes starts from what a crash during a rewrite leaves.
func TestVectorFileOverCrashes(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, vectorFileName("topics", len(topicWords)+1))
	tools := numbered(3, "Of rain")
	for _, want := range []int{3, 0} {
		if want == 0 {
			if err := os.WriteFile(path+".new", []byte(spaceHead("topics", len(topicWords)+1)+"and no more"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		e := &topics{}
		x := New(Config{Embedder: e, Vectors: NewMemory(dir, nil)})
		x.Update(slices.Values(tools))
		if err := x.Start(); err != nil {
			t.Fatal(err)
		}
		embedded(t, x, 3)
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
		if e.count() != want {
			t.Errorf("%d tools were embedded, want %d", e.count(), want)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Error(entries, err)
		}
	}
}

// TestVectorFileShrinks changes what tools say again and again: vectors of what they
// said before go when they outweigh the others.
func TestVectorFileShrinks(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, vectorFileName("topics", len(topicWords)+1))
	e := &topics{}
	x := started(t, Config{Embedder: e, Vectors: NewMemory(dir, nil)}, numbered(500, "Rain 0"))
	embedded(t, x, 500)
	largest := int64(0)
	for round := range 12 {
		x.Update(slices.Values(numbered(500, fmt.Sprint("Rain ", round))))
		embedded(t, x, 500)
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		largest = max(largest, info.Size())
	}
	// 6,000 vectors were made, of which 500 live: what is kept is less than thrice that
	// and two chunks, and the chunk that is being filled.
	v := &vectorFile{dimensions: e.Dimensions()}
	if most := v.chunkAt(5); largest > most {
		t.Errorf("the file grew to %d bytes, want at most %d", largest, most)
	}
	if got, r := x.Find(t.Context(), Query{Text: "umbrella", Limit: 200}, nil); len(got) != 200 || r.Degraded != "" {
		t.Errorf("%d %+v", len(got), r)
	}
}

func TestVectorFileCannotShrink(t *testing.T) {
	dir := t.TempDir()
	m := NewMemory(dir, nil)
	v, err := m.Open(t.Context(), "a", 2)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if reembed, err := m.Open(t.Context(), "a", 2); err == nil {
		t.Error("a file was opened twice", reembed)
	}
	live := Digest{1}
	put := func(d Digest) {
		t.Helper()
		if err := v.Put(t.Context(), []Digest{d}, [][]float32{{1, 0}}); err != nil {
			t.Fatal(err)
		}
	}
	put(live)
	for i := range 1100 {
		put(Digest{2, byte(i), byte(i >> 8)})
	}
	blocked := filepath.Join(dir, vectorFileName("a", 2)+".new")
	if err := os.Mkdir(blocked, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := v.Retain(t.Context(), []Digest{live}); err == nil || !strings.Contains(err.Error(), "E3104") {
		t.Error(err)
	}
	to := [][]float32{{7, 7}}
	if err := v.Select([]Digest{live, {2}}).Alike(t.Context(), [][]float32{{1, 0}}, to); err != nil || to[0][0] != 1 || to[0][1] != 1 {
		t.Error(to, err)
	}
	if err := os.Remove(blocked); err != nil {
		t.Fatal(err)
	}
	if err := v.Retain(t.Context(), []Digest{live}); err != nil {
		t.Error(err)
	}
	if have, err := v.Have(t.Context(), []Digest{live, {2}}); err != nil || !have[0] || have[1] {
		t.Error(have, err)
	}
}

// TestModelChange changes the model while the old one still answers.
func TestModelChange(t *testing.T) {
	dir := t.TempDir()
	tools := append(numbered(40, "Deliver the letter"), threeTools...)
	before := &named{name: "before"}
	x := New(Config{Embedder: before, Vectors: NewMemory(dir, nil)})
	x.Update(slices.Values(tools))
	if err := x.Start(); err != nil {
		t.Fatal(err)
	}
	embedded(t, x, len(tools))
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	tooled := before.count()

	after := &named{name: "after", pass: make(chan struct{})}
	x = started(t, Config{Embedder: after, Vectors: NewMemory(dir, nil), Other: func(s Space) Embedder {
		if s != (Space{"before", before.Dimensions(), len(tools)}) {
			t.Errorf("%+v", s)
		}
		return before
	}}, tools)
	find := func(serving string, have int, degraded string) {
		t.Helper()
		got, r := x.Find(t.Context(), Query{Text: "is an umbrella useful", Limit: 3}, nil)
		if !slices.Equal(found(got), []string{"sky.now@1.0.0"}) || r.Degraded != degraded || r.Partial || r.Strategy != Hybrid {
			t.Errorf("by %s: %v %+v", serving, found(got), r)
		}
		if e := x.Embedding(); e.Model != "after" || e.Serving != serving || e.Have != have || e.Of != len(tools) || e.Err != nil {
			t.Errorf("%+v", e)
		}
	}
	find("before", 0, "")
	if before.count() != tooled+1 {
		t.Errorf("the old model embedded %d texts, want the question", before.count()-tooled)
	}
	// A new tool is found by its words in the meantime.
	tools = append(tools, tool("sea.dive", "1.0.0", "Submarine trips"))
	x.Update(slices.Values(tools))
	if got := found(x.Search("submarine", 3, nil)); !slices.Contains(got, "sea.dive@1.0.0") {
		t.Error(got)
	}
	after.pass <- struct{}{}
	eventually(t, "the first batch is not told of", func() bool { return x.Embedding().Have == batch })
	find("before", batch, "1 of 44 tools are compared by words only until they are embedded")
	if searchable, embedded := x.Indexed("", "sky.now", "1.0.0"); !searchable {
		t.Error(searchable, embedded)
	}
	close(after.pass)
	embedded(t, x, len(tools))
	find("after", len(tools), "")
	if before.count() != tooled+2 { // "submarine", and no query twice
		t.Errorf("the old model embedded %d texts", before.count()-tooled)
	}
}

// TestModelChangeWithoutTheOldOne compares only words until most tools are embedded.
func TestModelChangeWithoutTheOldOne(t *testing.T) {
	tools := append(numbered(47, "Deliver the letter"), threeTools...)
	e := &named{name: "after", pass: make(chan struct{})}
	var serving Embedding
	x := started(t, Config{Embedder: e, Other: func(Space) Embedder { return nil }}, tools)
	look := func(want string) {
		t.Helper()
		got, r := x.Find(t.Context(), Query{Text: "weather or an umbrella", Limit: 3}, nil)
		if !slices.Contains(found(got), "sky.now@1.0.0") || r.Strategy != Keyword || !strings.HasPrefix(r.Degraded, want) {
			t.Errorf("%v %+v, want %s", found(got), r, want)
		}
		if serving = x.Embedding(); serving.Serving != "" {
			t.Errorf("%+v", serving)
		}
	}
	look("0 of 50 tools are embedded by after so far; until most are, only words are compared")
	e.pass <- struct{}{}
	eventually(t, "the first batch is not told of", func() bool { return x.Embedding().Have == batch })
	look("16 of 50 tools are embedded by after so far")
	close(e.pass)
	embedded(t, x, 50)
	if got, r := x.Find(t.Context(), Query{Text: "an umbrella"}, nil); len(got) != 1 || r.Degraded != "" || r.Strategy != Hybrid {
		t.Errorf("%v %+v", found(got), r)
	}
	// New tools are not a model change, even if there are many.
	e.topics.set(nil, make(chan struct{}))
	before := x.Changed()
	x.Update(slices.Values(append(numbered(500, "Of letters"), tools...)))
	<-before
	if e := x.Embedding(); e.Serving != "after" || e.Have != 3 || e.Of != 503 {
		t.Errorf("%+v", e)
	}
}

func TestReindex(t *testing.T) {
	e := &topics{}
	x := meaningIndex(t, e, threeTools...)
	embedded(t, x, 3)
	if n := x.Reindex(nil, false); n != 3 {
		t.Errorf("%d tools", n)
	}
	if n := x.Reindex([]string{"sky.now", "no.tool"}, true); n != 1 {
		t.Errorf("%d tools", n)
	}
	// The model counts when it is asked. An order that comes before its answer is kept is served by that answer.
	eventually(t, "the tool is not embedded again", func() bool {
		x.meaning.mu.Lock()
		defer x.meaning.mu.Unlock()
		return e.count() == 4 && len(x.meaning.redo) == 0
	})
	if n := x.Reindex([]string{}, true); n != 0 {
		t.Errorf("%d tools", n)
	}
	if n := x.Reindex(nil, true); n != 3 {
		t.Errorf("%d tools", n)
	}
	eventually(t, "the tools are not embedded again", func() bool { return e.count() == 7 })
	if got, r := x.Find(t.Context(), Query{Text: "umbrella"}, nil); len(got) != 1 || r.Degraded != "" {
		t.Errorf("%v %+v", found(got), r)
	}
	if n := index(threeTools...).Reindex(nil, true); n != 3 {
		t.Errorf("%d tools without an embedder", n)
	}
}

func TestIndexed(t *testing.T) {
	e := &named{name: "a", pass: make(chan struct{})}
	x := started(t, Config{Embedder: e}, threeTools)
	want := func(tenant, id, version string, searchable, embedded bool) {
		t.Helper()
		if s, m := x.Indexed(tenant, id, version); s != searchable || m != embedded {
			t.Errorf("%s@%s of %q: searchable %v, embedded %v", id, version, tenant, s, m)
		}
	}
	want("", "sky.now", "1.0.0", true, false)
	want("", "sky.now", "0.9.0", false, false)
	want("other", "sky.now", "1.0.0", false, false)
	want("", "no.tool", "1.0.0", false, false)
	changed := x.Changed()
	select {
	case <-changed:
		t.Error("nothing changed")
	default:
	}
	close(e.pass)
	for {
		if _, ok := x.Indexed("", "sky.now", "1.0.0"); ok {
			break
		}
		<-changed
		changed = x.Changed()
	}
	want("", "sky.now", "1.0.0", true, true)
	x.Update(slices.Values(threeTools[1:]))
	want("", "sky.now", "1.0.0", false, false)
}

// TestVectorFileThatCannotBeWritten has the file fail in the middle of a chunk, as a full
// disk does.
func TestVectorFileThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	var log strings.Builder
	m := NewMemory(dir, slog.New(slog.NewTextHandler(&log, nil)))
	opened, err := m.Open(t.Context(), "a", 2)
	if err != nil {
		t.Fatal(err)
	}
	v := opened.(*memoryVectors)
	numbers := func(i int) []float32 { return []float32{1, float32(i)} }
	put := func(from, end int) {
		t.Helper()
		for i := from; i < end; i++ {
			if err := v.Put(t.Context(), []Digest{{byte(i), byte(i >> 8)}}, [][]float32{numbers(i)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(0, 10)
	if err := v.file.f.Close(); err != nil {
		t.Fatal(err)
	}
	put(10, 2000)
	put(5, 6) // again
	if !strings.Contains(log.String(), "not kept over the next restart") || strings.Count(log.String(), "\n") > 2 {
		t.Errorf("%s", log.String())
	}
	of := make([]Digest, 2000)
	for i := range of {
		of[i] = Digest{byte(i), byte(i >> 8)}
	}
	check := func() {
		t.Helper()
		to := [][]float32{make([]float32, len(of))}
		if err := v.Select(of).Alike(t.Context(), [][]float32{{0, 1}}, to); err != nil {
			t.Fatal(err)
		}
		for i := range of {
			if to[0][i] != float32(i) {
				t.Fatalf("vector %d: %v", i, to[0][i])
			}
		}
	}
	check()
	of = of[:3]
	if err := v.Retain(t.Context(), of); err != nil {
		t.Fatal(err)
	}
	check()
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	reembed, err := m.Open(t.Context(), "a", 2)
	if err != nil {
		t.Fatal(err)
	}
	defer reembed.Close()
	if have, err := reembed.Have(t.Context(), []Digest{{9}, {10}}); err != nil || !have[0] || have[1] {
		t.Error(have, err)
	}
	// A path that is not a folder.
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	log.Reset()
	nowhere, err := NewMemory(filepath.Join(dir, "file"), m.log).Open(t.Context(), "a", 2)
	if err != nil || !strings.Contains(log.String(), "not kept over a restart") {
		t.Fatal(err, log.String())
	}
	if err := nowhere.Put(t.Context(), of[:1], [][]float32{{1, 2}}); err != nil {
		t.Error(err)
	}
	if err := nowhere.Close(); err != nil {
		t.Error(err)
	}
}

// spread embeds each text at a random place, equal texts alike.
type spread struct{}

func (spread) Model() string   { return "spread" }
func (spread) Dimensions() int { return 384 }
func (spread) Embed(_ context.Context, texts []string) ([][]float32, error) {
	out := make([][]float32, len(texts))
	for i, text := range texts {
		sum := sha256.Sum256([]byte(text))
		out[i] = make([]float32, 384)
		for k := range out[i] {
			out[i][k] = (float32(sum[k%32]^byte(k*7)) - 127.5) / 1450
		}
	}
	return out, nil
}

func meant(b *testing.B, n int) (*Index, []toolkeep.Version) {
	b.Helper()
	tools := many(n)
	x := New(Config{Embedder: spread{}, Vectors: NewMemory(b.TempDir(), nil)})
	x.Update(slices.Values(tools))
	if err := x.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { x.Close() })
	for {
		changed := x.Changed()
		have, of, err := x.Embedded()
		if err != nil {
			b.Fatal(err)
		}
		if have == of {
			return x, tools
		}
		<-changed
	}
}

const benchQuery = "get the w1 w20 of a w300, and then w7 w99 w1200; also find w4000 w12"

// BenchmarkCompare is the part of a search that compares meanings, of a question with
// three wishes.
func BenchmarkCompare(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("tools=%d", n), func(b *testing.B) {
			x, _ := meant(b, n)
			r, texts := &ranker{x: x, p: x.current.Load()}, []string{benchQuery, "get the w1 w20 of a w300", "w7 w99 w1200", "find w4000 w12"}
			b.ReportAllocs()
			for b.Loop() {
				if got, why := x.compare(b.Context(), r, texts, nil, nil); got == nil {
					b.Fatal(why)
				}
			}
		})
	}
}

// BenchmarkUpdateWithVectors changes the text of one tool of many.
func BenchmarkUpdateWithVectors(b *testing.B) {
	x, all := meant(b, 10_000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		all[i%len(all)] = tool("ns.changed", "1.0.0", fmt.Sprint("changed ", i))
		x.Update(slices.Values(all))
	}
}

// BenchmarkFill measures the share of the vectors in that.
func BenchmarkFill(b *testing.B) {
	x, _ := meant(b, 10_000)
	p := *x.current.Load()
	b.ReportAllocs()
	for b.Loop() {
		x.meaning.fill(&p)
	}
}

// TestEveryToolIsEmbedded lets tools come while others are being embedded: none may be
// forgotten between two rounds.
func TestEveryToolIsEmbedded(t *testing.T) {
	x := started(t, Config{Embedder: &topics{}}, nil)
	for n := range 300 {
		x.Update(slices.Values(numbered(n, "Of rain")))
		if n%7 == 0 {
			embedded(t, x, n)
		}
	}
	embedded(t, x, 299)
}

// TestHammerWithMeaning searches, changes and reindexes tools, whose vectors come and go,
// all at once; the race detector watches.
func TestHammerWithMeaning(t *testing.T) {
	e := &topics{}
	x := started(t, Config{Embedder: e, Vectors: NewMemory(t.TempDir(), nil)}, threeTools)
	embedded(t, x, 3)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 40 {
			x.Update(slices.Values(append(numbered(100, fmt.Sprint("Of letters ", i)), threeTools...)))
			x.Reindex([]string{"sky.now"}, true)
		}
	})
	for range 3 {
		wg.Go(func() {
			for range 100 {
				got, r := x.Find(t.Context(), Query{Text: "an umbrella", Strategy: Semantic}, nil)
				if !slices.Equal(found(got), []string{"sky.now@1.0.0"}) || r.Degraded != "" && !r.Partial {
					t.Errorf("%v %+v", found(got), r)
				}
				if searchable, embedded := x.Indexed("", "sky.now", "1.0.0"); !searchable || !embedded {
					t.Error("a tool lost its vector")
				}
				x.Embedding()
			}
		})
	}
	wg.Wait()
	embedded(t, x, 103)
}

// choosy refuses requests with an unacceptable text.
type choosy struct{ topics }

func (e *choosy) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	for _, text := range texts {
		if strings.Contains(text, "poison") {
			return nil, errors.New("too many tokens")
		}
	}
	return e.topics.Embed(ctx, texts)
}

// TestOneTextThatCannotBeEmbedded keeps no other tool from being embedded, nor meanings
// from being compared.
func TestOneTextThatCannotBeEmbedded(t *testing.T) {
	for _, n := range []int{1, 40} {
		x := started(t, Config{Embedder: &choosy{}}, append(numbered(n, "Of letters"), tool("sky.now", "1.0.0", "Weather"), tool("t.bad", "1.0.0", "A poison")))
		eventually(t, "the others are not embedded", func() bool {
			e := x.Embedding()
			return e.Have == n+1 && e.Of == n+2 && e.Err != nil
		})
		if e := x.Embedding(); e.Serving != "topics" || !strings.Contains(e.Err.Error(), "t.bad cannot be embedded: ") {
			t.Errorf("%+v", e)
		}
		for query, want := range map[string]string{"umbrella": "sky.now@1.0.0", "poison": "t.bad@1.0.0"} {
			got, r := x.Find(t.Context(), Query{Text: query}, nil)
			if degraded := fmt.Sprintf("1 of %d tools are compared by words only until they are embedded", n+2); !slices.Contains(found(got), want) || r.Degraded != degraded && query != "poison" {
				t.Errorf("%s: %v %+v, want %s", query, found(got), r, degraded)
			}
		}
		x.Update(slices.Values(append(numbered(n, "Of letters"), tool("sky.now", "1.0.0", "Weather"), tool("t.bad", "1.0.1", "A cure"))))
		embedded(t, x, n+2)
		eventually(t, "the failure stays", func() bool { return x.Embedding().Err == nil })
	}
}

// TestDamagedVectorFile: an invalid file is created again, and the log says so.
func TestDamagedVectorFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, vectorFileName("a", 2))
	if err := os.WriteFile(path, []byte(strings.Repeat("rot", 5000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{1, 0} {
		var log strings.Builder
		v, err := NewMemory(dir, slog.New(slog.NewTextHandler(&log, nil))).Open(t.Context(), "a", 2)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(log.String(), "was damaged; its vectors are computed again"); n != want {
			t.Errorf("%d warnings, want %d: %s", n, want, log.String())
		}
		if err := v.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWhoIsToldOfMissingVectors counts only tools the caller may find.
func TestWhoIsToldOfMissingVectors(t *testing.T) {
	e := &named{name: "after@http://10.0.0.1/v1", pass: make(chan struct{})}
	all := append(numbered(60, "Of letters"), tool("sky.now", "1.0.0", "Weather"))
	x := started(t, Config{Embedder: e}, all)
	degraded := func(q Query, visible func(*toolkeep.Tool) bool, want string, partial bool) {
		t.Helper()
		q.Text = "umbrella"
		if _, r := x.Find(t.Context(), q, visible); r.Degraded != want || r.Partial != partial {
			t.Errorf("%+v, want %q", r, want)
		}
	}
	only := func(ids ...string) func(*toolkeep.Tool) bool {
		return func(tool *toolkeep.Tool) bool { return slices.Contains(ids, tool.ID) }
	}
	// Nothing is compared yet.
	degraded(Query{}, nil, "0 of 61 tools are embedded by after so far; until most are, only words are compared", false)
	degraded(Query{}, only("sky.now"), "0 of 1 tools are embedded by after so far; until most are, only words are compared", false)
	degraded(Query{}, only(), "tools are being embedded by after; until most are, only words are compared", false)
	close(e.pass)
	embedded(t, x, len(all))
	degraded(Query{}, nil, "", false)
	// Two tools are added, one with a category.
	e.topics.set(nil, make(chan struct{}))
	news := []toolkeep.Version{tool("new.one", "1.0.0", "Of letters"), tool("new.two", "1.0.0", "Of letters")}
	news[1].Tool.Manifest.Category = "post"
	x.Update(slices.Values(append(news, all...)))
	degraded(Query{}, nil, "2 of 63 tools are compared by words only until they are embedded", true)
	degraded(Query{}, only("new.one", "sky.now"), "1 of 2 tools are compared by words only until they are embedded", true)
	degraded(Query{}, only("sky.now"), "", false)
	degraded(Query{Strategy: Category, Category: "post"}, nil, "1 of 1 tools are compared by words only until they are embedded", true)
	degraded(Query{Strategy: Keyword}, nil, "", false)
}

// retentive records for which models Retain was called.
type retentive struct {
	Backend
	mu    sync.Mutex
	named map[string]int
}

func (b *retentive) Open(ctx context.Context, model string, dimensions int) (Vectors, error) {
	v, err := b.Backend.Open(ctx, model, dimensions)
	return retained{v, b, model}, err
}

func (b *retentive) note(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.named[what]++
}

func (b *retentive) degraded(model string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.named[model]
}

type retained struct {
	Vectors
	b     *retentive
	model string
}

func (v retained) Retain(ctx context.Context, live []Digest) error {
	v.b.note(v.model)
	return v.Vectors.Retain(ctx, live)
}

func (v retained) Close() error {
	v.b.note("closed " + v.model)
	return v.Vectors.Close()
}

// TestUsedWhileTheEmbedderFails has the backend told of the model that answers, and of the
// new one, although nothing can be embedded by that.
func TestUsedWhileTheEmbedderFails(t *testing.T) {
	dir := t.TempDir()
	before := &named{name: "before"}
	x := New(Config{Embedder: before, Vectors: NewMemory(dir, nil)})
	x.Update(slices.Values(threeTools))
	if err := x.Start(); err != nil {
		t.Fatal(err)
	}
	embedded(t, x, 3)
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	after := &named{name: "after"}
	after.topics.set(errors.New("no memory"), nil)
	b := &retentive{Backend: NewMemory(dir, nil), named: map[string]int{}}
	x = started(t, Config{Embedder: after, Vectors: b, Other: func(Space) Embedder { return before }}, threeTools)
	eventually(t, "the backend is not told what is in use", func() bool { return b.degraded("before") == 1 && b.degraded("after") == 1 })
	if e := x.Embedding(); e.Serving != "before" || b.degraded("closed before") != 0 {
		t.Errorf("%+v", e)
	}
	// The embedder recovers: the new model takes over, and the next round closes the previous one.
	after.topics.set(nil, nil)
	x.Reindex(nil, false)
	embedded(t, x, 3)
	eventually(t, "the vectors of the model before stay open", func() bool {
		x.Reindex(nil, false)
		return b.degraded("closed before") == 1
	})
	if got, r := x.Find(t.Context(), Query{Text: "umbrella"}, nil); len(got) != 1 || r.Degraded != "" || x.Embedding().Serving != "after" {
		t.Errorf("%v %+v", found(got), r)
	}
}
