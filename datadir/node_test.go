package datadir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNodeName(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	first, err := NodeName(dir, "")
	if err != nil || CheckNodeName(first) != nil {
		t.Fatalf("%q: %v", first, err)
	}
	if again, err := NodeName(dir, ""); again != first || err != nil {
		t.Errorf("after a restart the node is %q, it was %q: %v", again, first, err)
	}
	if name, err := NodeName(other, ""); name == first || err != nil {
		t.Errorf("two directories have the name %q: %v", name, err)
	}
	if name, err := NodeName(dir, "set"); name != "set" || err != nil {
		t.Errorf("the setting gives %q: %v", name, err)
	}
	for name, ok := range map[string]bool{"web-1.b_2": true, strings.Repeat("x", 50): true,
		"": false, "a b": false, "../x": false, "-x": false, "a/b": false, strings.Repeat("x", 51): false, "é": false} {
		if err := os.WriteFile(filepath.Join(dir, NodeFile), []byte(name+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := NodeName(dir, "")
		if ok != (err == nil) || ok && got != name {
			t.Errorf("%q in the file: %q, %v", name, got, err)
		}
		if err != nil && !strings.Contains(err.Error(), NodeFile) {
			t.Errorf("the error does not name the file: %v", err)
		}
	}
}

// TestIdentity: a directory and its copy differ, and a restart changes nothing.
func TestIdentity(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	var said [2][2]string
	for run := range said {
		for i, d := range []string{dir, other} {
			release, err := Lock(d)
			if err != nil {
				t.Fatal(err)
			}
			said[run][i] = Identity(d)
			release()
		}
	}
	if said[0] != said[1] || said[0][0] == said[0][1] || said[0][0] == "" {
		t.Errorf("two directories in two runs are %q", said)
	}
	if id := Identity(t.TempDir()); id != "" {
		t.Errorf("without a lock it is %q", id)
	}
}
