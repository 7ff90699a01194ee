package node

import (
	"encoding/json"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/contracts"
)

// planned are the kinds of the contract that no executor carries out; publishing a tool of
// one is refused.
var planned = []string{"agent", "code", "workflow"}

// TestKinds: a manifest may name the kind of every executor, and besides only the planned.
func TestKinds(t *testing.T) {
	var manifest struct {
		Properties struct {
			Execution struct {
				Properties struct {
					Kind struct {
						Enum []string `json:"enum"`
					} `json:"kind"`
				} `json:"properties"`
			} `json:"execution"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(contracts.ManifestSchema(), &manifest); err != nil {
		t.Fatal(err)
	}
	enum := manifest.Properties.Execution.Properties.Kind.Enum
	c, err := config.Load(config.Sources{Flags: map[string]string{"data": filepath.Join(t.TempDir(), "data")}})
	if err != nil {
		t.Fatal(err)
	}
	n, err := New(t.Context(), c, Options{LogTo: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Stop(t.Context())
	kinds := slices.Sorted(maps.Keys(n.kinds))
	for _, kind := range kinds {
		if !slices.Contains(enum, kind) {
			t.Errorf("no manifest can name the kind %q: add it to execution.kind in contracts/manifest.schema.json", kind)
		}
		if slices.Contains(planned, kind) {
			t.Errorf("%q has an executor: delete it from planned", kind)
		}
	}
	for _, kind := range planned {
		if !slices.Contains(enum, kind) {
			t.Errorf("execution.kind has lost %q; a contract only grows", kind)
		}
	}
	for _, kind := range enum {
		if !slices.Contains(kinds, kind) && !slices.Contains(planned, kind) {
			t.Errorf("execution.kind has %q, which no executor carries out: add the executor to node/executors.go, or the kind to planned", kind)
		}
	}
}
