package node_test

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/node"
)

// TestPlaces: a start makes the places that datadir.Places says, and nothing else.
func TestPlaces(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	n, err := node.New(t.Context(), settings(t, data), node.Options{LogTo: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range entries(t, data) {
		if p, ok := datadir.PlaceOf(name); !ok || !p.AtStart && p.Name != datadir.Server {
			t.Errorf("a start made %s, and no row of datadir.Places says so", name)
		}
	}
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, p := range datadir.Places {
		if p.AtStart && !strings.Contains(p.Name, "*") {
			want = append(want, p.Name)
		}
	}
	slices.Sort(want)
	if got := entries(t, data); !slices.Equal(got, want) {
		t.Errorf("after a stop there are\n%q, want what datadir.Places makes at a start\n%q", got, want)
	}
}

// entries are the names in a folder, sorted.
func entries(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}
