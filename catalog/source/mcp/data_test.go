package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep/catalog"
)

const dataFolder = "../../../../shared/data/retrieval"

// dataTools builds definitions of the tools in the shared data, by set. Without the folder there
// are none, and the test passes.
func dataTools(t testing.TB) map[string][][]byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dataFolder, "*", "tools.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Logf("NOT TESTED: the shared tools are missing at %s; this test passes without having looked at one", dataFolder)
	}
	sets := map[string][][]byte{}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		set := filepath.Base(filepath.Dir(path))
		lines := bufio.NewScanner(bytes.NewReader(data))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var tool struct {
				Name, Description string
				Parameters        map[string]map[string]any
			}
			if err := json.Unmarshal(lines.Bytes(), &tool); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			properties := map[string]any{}
			for name, p := range tool.Parameters {
				property := map[string]any{}
				if s, ok := p["description"].(string); ok {
					property["description"] = s
				}
				properties[name] = property
			}
			raw, err := json.Marshal(map[string]any{"name": tool.Name, "description": tool.Description,
				"inputSchema": map[string]any{"type": "object", "properties": properties}})
			if err != nil {
				t.Fatal(err)
			}
			sets[set] = append(sets[set], raw)
		}
		if err := lines.Err(); err != nil {
			t.Fatal(err)
		}
	}
	return sets
}

// TestFalsePositives scans thousands of public tool descriptions, none of which is an attack. A
// scanner with many false alarms is ignored, so the share of tools with a finding is bounded.
func TestFalsePositives(t *testing.T) {
	sets := dataTools(t)
	known := NewNames()
	for set, defs := range sets {
		for _, def := range defs {
			var d struct{ Name string }
			if err := json.Unmarshal(def, &d); err != nil {
				t.Fatal(err)
			}
			known.Add(set, d.Name)
		}
	}
	tools, found := 0, map[Severity]int{}
	for set, defs := range sets {
		for _, def := range defs {
			tools++
			worst := Severity("")
			for _, f := range scanText(t, def, set, known) {
				if worst == "" || f.Severity == High || worst == Low {
					worst = f.Severity
				}
				if f.Severity == High {
					t.Errorf("%s: %+v", set, f)
				}
				t.Logf("%s: %s %s %s: %s (%s)", set, f.Severity, f.Rule, f.Pointer, f.Text, f.Message)
			}
			found[worst]++
		}
	}
	if tools == 0 {
		return
	}
	share := func(n int) string { return fmt.Sprintf("%d (%.2f %%)", n, 100*float64(n)/float64(tools)) }
	t.Logf("%d tools: high %s, medium %s, low %s", tools, share(found[High]), share(found[Medium]), share(found[Low]))
	if found[Medium]*200 > tools || found[Low]*100 > tools {
		t.Error("too many tools have findings")
	}
}

// TestPlanData plans all shared tools as one server's.
func TestPlanData(t *testing.T) {
	for set, defs := range dataTools(t) {
		start := time.Now()
		plan, err := Read(t.Context(), defs, Options{Server: "data", Namespace: set})
		if err != nil {
			t.Fatal(err)
		}
		if len(plan.Tools)+len(plan.Refused) != len(defs) {
			t.Errorf("%s: %d tools and %d refused of %d", set, len(plan.Tools), len(plan.Refused), len(defs))
		}
		for _, r := range plan.Refused {
			t.Logf("%s: refused %q: %s", set, r.Tool, r.Reason)
		}
		ids := map[string]bool{}
		for _, tool := range plan.Tools {
			if ids[tool.ID] {
				t.Errorf("%s stands for two tools", tool.ID)
			}
			ids[tool.ID] = true
			parsed, err := catalog.ParseManifest(tool.Manifest)
			if err != nil {
				t.Fatalf("%s: %v", tool.ID, err)
			}
			checkDefinition(t, parsed)
		}
		t.Logf("%s: %d tools in %s", set, len(plan.Tools), time.Since(start))
	}
}
