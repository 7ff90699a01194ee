package node_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep/node"
)

// TestArchive: a node with audit.archive archives what was recorded.
func TestArchive(t *testing.T) {
	c := settings(t, filepath.Join(t.TempDir(), "data"))
	c.Audit.Archive = filepath.Join(t.TempDir(), "archive")
	moved := make(chan struct{}, 1)
	run := func(ahead time.Duration, wait bool) {
		t.Helper()
		n, err := node.New(t.Context(), c, node.Options{LogTo: io.Discard, Clock: func() time.Time { return time.Now().Add(ahead) }, Hook: func(step, id string) {
			if step == "archive" && id == "moved" {
				select {
				case moved <- struct{}{}:
				default:
				}
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if wait {
			<-moved
		}
		if err := n.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	run(0, false)
	run(time.Hour, true) // what the first run recorded is due
	found := false
	err := filepath.WalkDir(c.Audit.Archive, func(path string, d os.DirEntry, err error) error {
		found = found || strings.HasSuffix(path, ".seg")
		return err
	})
	if err != nil || !found {
		t.Errorf("there is no segment: %v", err)
	}
}
