package node_test

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/node"
)

func settings(t *testing.T, data string, more ...string) *config.Config {
	t.Helper()
	flags := map[string]string{"data": data, "http.addr": "127.0.0.1:0", "metrics.addr": "127.0.0.1:0", "grpc.addr": "127.0.0.1:0"}
	for _, m := range more {
		name, value, _ := strings.Cut(m, "=")
		flags[name] = value
	}
	c, err := config.Load(config.Sources{Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestStop: a node stops twice, and one that never started too. A start that fails at its
// second listener leaves nothing: the data directory is free, and no goroutine is left,
// which TestMain sees.
func TestStop(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	fresh := func(more ...string) *node.Node {
		t.Helper()
		n, err := node.New(t.Context(), settings(t, data, more...), node.Options{LogTo: io.Discard})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	stop := func(n *node.Node) {
		t.Helper()
		for range 2 {
			if err := n.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	stop(fresh())

	n := fresh()
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	answer, err := http.Get(n.URL() + "/health/ready")
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatal(answer, err)
	}
	answer.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if _, err := node.New(t.Context(), settings(t, data), node.Options{LogTo: io.Discard}); err == nil || !strings.Contains(err.Error(), "in use by process") {
		t.Errorf("a second node on the directory: %v", err)
	}

	taken := strings.TrimPrefix(n.URL(), "http://")
	other := data
	data = filepath.Join(t.TempDir(), "other")
	late := fresh("metrics.addr=" + taken)
	if err := late.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot listen on") {
		t.Errorf("a start on an address that is taken: %v", err)
	}
	stop(late)
	stop(fresh())
	data = other
	stop(n)
	stop(fresh())
}
