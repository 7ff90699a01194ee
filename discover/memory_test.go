package discover_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/vectortest"
)

func TestMemory(t *testing.T) {
	vectortest.Run(t, func(*testing.T) vectortest.Place {
		return vectortest.Place{Open: func(*testing.T) discover.Backend { return discover.NewMemory("", nil) }, Later: func() {}}
	})
}

func TestMemoryWithFiles(t *testing.T) {
	vectortest.Run(t, func(t *testing.T) vectortest.Place {
		dir := filepath.Join(t.TempDir(), "vectors")
		return vectortest.Place{Open: func(*testing.T) discover.Backend { return discover.NewMemory(dir, nil) }, Later: func() {}, Lasting: true}
	})
}

// TestMemoryForgetsModels: only files of models unused for 30 days are deleted, and only once the
// model in use has a vector for every text.
func TestMemoryForgetsModels(t *testing.T) {
	dir := t.TempDir()
	m := discover.NewMemory(dir, nil)
	open := func(model string) discover.Vectors {
		v, err := m.Open(t.Context(), model, 2)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	names := func() (out []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			out = append(out, e.Name()[:4])
		}
		return out
	}
	age := func(days int, prefix string) {
		found, err := filepath.Glob(filepath.Join(dir, prefix+"*"))
		if err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}
		at := time.Now().AddDate(0, 0, -days)
		if err := os.Chtimes(found[0], at, at); err != nil {
			t.Fatal(err)
		}
	}
	put := func(v discover.Vectors, d discover.Digest) {
		if err := v.Put(t.Context(), []discover.Digest{d}, [][]float32{{1, 0}}); err != nil {
			t.Fatal(err)
		}
	}
	one, two := discover.Digest{1}, discover.Digest{2}
	for _, model := range []string{"gone", "last"} {
		v := open(model)
		put(v, one)
		if err := v.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "note.vec"), []byte("of somebody else"), 0o600); err != nil {
		t.Fatal(err)
	}
	now, beside := open("main"), open("open")
	defer now.Close()
	defer beside.Close()
	for prefix, days := range map[string]int{"gone": 31, "last": 29, "note": 31, "main": 31, "open": 31} {
		age(days, prefix)
	}
	retain := func(want ...string) {
		t.Helper()
		if err := now.Retain(t.Context(), []discover.Digest{one, two}); err != nil {
			t.Fatal(err)
		}
		if got := names(); !slices.Equal(got, want) {
			t.Errorf("there are %v, want %v", got, want)
		}
	}
	put(now, one)
	retain("gone", "last", "main", "note", "open")
	put(now, two)
	retain("last", "main", "note", "open")
	// A file in use until now is kept for 30 more days, whenever it was written.
	age(31, "last")
	if err := open("last").Close(); err != nil {
		t.Fatal(err)
	}
	retain("last", "main", "note", "open")
	age(31, "last")
	retain("main", "note", "open")
}
