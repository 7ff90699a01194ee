package node_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/node"
)

// TestArchive: a node with audit.archive archives what was recorded.
func TestArchive(t *testing.T) {
	c := settings(t, filepath.Join(t.TempDir(), "data"))
	c.Examples.Tools = true // that they are registered is what is recorded
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
			searched(t, n, c.Data)
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

// searched asks the server for what is in the archive.
func searched(t *testing.T, n *node.Node, data string) {
	t.Helper()
	key, err := os.ReadFile(filepath.Join(data, datadir.AdminKey))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"events?archive=true&type=registered": `"type":"ai.agent.tool.registered"`,
		"verify?archive=true":                 `"intact":true`,
		"archive":                             `"whole":true`,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.URL()+"/api/v1/audit/"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(key)))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(raw), want) {
			t.Errorf("%s: %s %s, %v", path, resp.Status, raw, err)
		}
	}
}
