//go:build unix

package discover

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover/mapped"
)

// TestFileCutWhileInUse truncates the vector file under an index: queries continue by words, lost
// vectors are embedded again, and a restart finds them.
func TestFileCutWhileInUse(t *testing.T) {
	tools := append(numbered(2100, "Of rain"), threeTools...)
	v := &vectorFile{dimensions: len(topicWords) + 1}
	for _, size := range []int64{0, 100, headBytes, v.chunkAt(1) + 8192, v.chunkAt(3) - 1} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			dir, e, log := t.TempDir(), &topics{}, &lockedBuffer{}
			path := filepath.Join(dir, vectorFileName("topics", len(topicWords)+1))
			x := New(Config{Embedder: e, Vectors: NewMemory(dir, slog.New(slog.NewTextHandler(log, nil)))})
			x.Update(slices.Values(tools))
			if err := x.Start(); err != nil {
				t.Fatal(err)
			}
			embedded(t, x, len(tools))
			ask := func(q string) ([]string, Report) {
				got, r := x.Find(t.Context(), Query{Text: q}, nil)
				return found(got), r
			}
			if got, r := ask("write a letter"); len(got) == 0 || got[0] != "post.send@1.0.0" || r.Degraded != "" {
				t.Fatalf("%v %+v", got, r)
			}
			before := e.count()
			if err := os.Truncate(path, size); err != nil {
				t.Fatal(err)
			}
			if size < v.chunkAt(3)-1 { // there, only labels are cut
				if got, r := ask("deliver a letter"); len(got) == 0 || got[0] != "post.send@1.0.0" || r.Degraded == "" {
					t.Errorf("%v %+v", got, r)
				}
			} else {
				x.Update(slices.Values(append(slices.Clone(tools), tool("sky.soon", "1.0.0", "A storm"))))
			}
			eventually(t, "what is missing is not embedded anew", func() bool {
				s := x.Embedding()
				return s.Have == s.Of && s.Err == nil && s.Serving == "topics" && e.count() > before && strings.Count(log.String(), "were lost") > 0
			})
			if got, r := ask("write a letter"); len(got) == 0 || got[0] != "post.send@1.0.0" || r.Degraded != "" {
				t.Errorf("%v %+v", got, r)
			}
			if n := strings.Count(log.String(), "were lost"); n != 1 {
				t.Errorf("the log says it %d times", n)
			}
			made := e.count() - before
			if size >= v.chunkAt(2) && made > 100 || size < v.chunkAt(1) && made < len(tools) {
				t.Errorf("%d texts were embedded", made)
			}
			if err := x.Close(); err != nil {
				t.Fatal(err)
			}
			reembed := &topics{}
			x = started(t, Config{Embedder: reembed, Vectors: NewMemory(dir, nil)}, tools)
			embedded(t, x, len(tools))
			if reembed.count() != 0 {
				t.Errorf("a restart embeds %d texts", reembed.count())
			}
		})
	}
}

// TestCutUnderQuestions truncates the file under concurrent queries; writers detect it too.
func TestCutUnderQuestions(t *testing.T) {
	dir, log := t.TempDir(), &lockedBuffer{}
	e := &topics{}
	tools := append(numbered(1500, "Of rain"), threeTools...)
	x := started(t, Config{Embedder: e, Vectors: NewMemory(dir, slog.New(slog.NewTextHandler(log, nil)))}, tools)
	embedded(t, x, len(tools))
	path := filepath.Join(dir, vectorFileName("topics", len(topicWords)+1))
	var all sync.WaitGroup
	for k := range 3 {
		all.Go(func() {
			for i := range 60 {
				got, _ := x.Find(t.Context(), Query{Text: fmt.Sprint("deliver letter ", k, i)}, nil)
				if !slices.Contains(found(got), "post.send@1.0.0") {
					t.Errorf("%v", found(got))
				}
			}
		})
	}
	for i := range 5 {
		if err := os.Truncate(path, int64(i)*1000); err != nil {
			t.Fatal(err)
		}
		x.Update(slices.Values(append(slices.Clone(tools), tool("sky.soon", fmt.Sprintf("1.0.%d", i), fmt.Sprint("A storm ", i)))))
	}
	all.Wait()
	x.Reindex([]string{"sky.now"}, true) // without queries since, the write detects it
	eventually(t, "the vectors are not made anew", func() bool {
		x.Find(t.Context(), Query{Text: "deliver letter"}, nil)
		s := x.Embedding()
		return s.Have == len(tools)+1 && s.Err == nil && s.Serving == "topics"
	})
	if strings.Count(log.String(), "were lost") == 0 {
		t.Error("the log does not say it")
	}
}

// TestWritersFindACutFile: no vector is written behind a missing part.
func TestWritersFindACutFile(t *testing.T) {
	of := make([]Digest, 2*chunkRows)
	numbers := make([][]float32, len(of))
	for i := range of {
		of[i] = Digest{byte(i), byte(i >> 8), 1}
		numbers[i] = []float32{1, 0}
	}
	for name, write := range map[string]func(v Vectors) error{
		"Put":    func(v Vectors) error { return v.Put(t.Context(), of[:1], numbers[:1]) },
		"Retain": func(v Vectors) error { return v.Retain(t.Context(), of[:1]) },
	} {
		dir := t.TempDir()
		m := NewMemory(dir, nil)
		v, err := m.Open(t.Context(), "m", 2)
		if err != nil {
			t.Fatal(err)
		}
		if err := v.Put(t.Context(), of, numbers); err != nil {
			t.Fatal(err)
		}
		before := v.Select(of)
		if err := os.Truncate(filepath.Join(dir, vectorFileName("m", 2)), headBytes+8); err != nil {
			t.Fatal(err)
		}
		if err := write(v); !toolkeep.IsCode(err, toolkeep.IndexUnavailable) || !errors.Is(err, mapped.ErrGone) {
			t.Errorf("%s: %v", name, err)
		}
		// Nothing is found until put again, and earlier selections stay empty.
		if s := v.Select(of); s.Has(0) {
			t.Errorf("%s: a vector that is lost is there", name)
		}
		if err := write(v); err != nil {
			t.Errorf("%s again: %v", name, err)
		}
		if err := v.Put(t.Context(), of[:1], numbers[:1]); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := before.Alike(t.Context(), numbers[:1], [][]float32{make([]float32, len(of))}); !errors.Is(err, mapped.ErrGone) {
			t.Errorf("%s: %v", name, err)
		}
		to := [][]float32{{0, 5}}
		if err := v.Select(of[:2]).Alike(t.Context(), numbers[:1], to); err != nil || to[0][0] != 1 || to[0][1] != 0 {
			t.Errorf("%s: %v %v", name, to, err)
		}
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestEmbedderWhoseFileIsCut loses no vectors: existing ones are still compared.
func TestEmbedderWhoseFileIsCut(t *testing.T) {
	e := &topics{}
	x := started(t, Config{Embedder: e, Vectors: NewMemory(t.TempDir(), nil)}, threeTools)
	embedded(t, x, 3)
	ask := Query{Text: "umbrella", Strategy: Semantic}
	if got, _ := x.Find(t.Context(), ask, nil); len(got) != 1 {
		t.Fatalf("%v", found(got))
	}
	e.set(toolkeep.NewError(toolkeep.EmbeddingFailed, "cut").Because(mapped.ErrGone), nil)
	x.Update(slices.Values(append(slices.Clone(threeTools), tool("sky.soon", "1.0.0", "A storm"))))
	eventually(t, "the embedder does not fail", func() bool { return x.Embedding().Err != nil })
	before := e.count()
	x.Reindex(nil, false) // start the next round
	eventually(t, "it is not tried again", func() bool { return e.count() > before+1 })
	if got, r := x.Find(t.Context(), ask, nil); fmt.Sprint(found(got)) != "[sky.now@1.0.0]" || !r.Partial || x.Embedding().Serving != "topics" {
		t.Errorf("%v %+v", found(got), r)
	}
}
