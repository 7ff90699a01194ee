//go:build !race

package discover

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/toolkeep/toolkeep"
)

const retrievalData = "../../shared/data/retrieval"

// TestRecall measures recall@5 by words alone on the public retrieval sets. The floors are two
// points below the measured values; `go run ./bench -parts retrieval` measures with meanings.
func TestRecall(t *testing.T) {
	for _, set := range []struct {
		name  string
		floor float64
	}{{"metatool", 0.625}, {"sealtools", 0.917}, {"bfcl", 0.823}} {
		t.Run(set.name, func(t *testing.T) {
			dir := filepath.Join(retrievalData, set.name)
			if _, err := os.Stat(dir); err != nil {
				t.Logf("NOT MEASURED: the retrieval data is missing at %s", dir)
				return
			}
			x, ids := retrievalIndex(t, dir)
			sum, n := 0.0, 0
			for q := range lines[struct {
				Query string
				Gold  []string
			}](t, filepath.Join(dir, "dev.jsonl")) {
				var got []string
				for _, m := range x.Search(q.Query, 5, nil) {
					got = append(got, ids[m.Tool.ID])
				}
				hits := 0
				for _, g := range q.Gold {
					if slices.Contains(got, g) {
						hits++
					}
				}
				sum += float64(hits) / float64(len(q.Gold))
				n++
			}
			recall := sum / float64(n)
			t.Logf("recall@5 %.4f over %d queries", recall, n)
			if recall < set.floor {
				t.Errorf("recall@5 is %.3f, want at least %.2f", recall, set.floor)
			}
		})
	}
}

// retrievalIndex indexes a set and gives the set's ids by tool id.
func retrievalIndex(t testing.TB, dir string) (*Index, map[string]string) {
	t.Helper()
	ids := map[string]string{}
	var all []toolkeep.Version
	for d := range lines[struct {
		ID, Name, Description string
		Parameters            map[string]any
	}](t, filepath.Join(dir, "tools.jsonl")) {
		schema, err := json.Marshal(map[string]any{"type": "object", "properties": d.Parameters})
		if err != nil {
			t.Fatal(err)
		}
		id := "set." + regexp.MustCompile(`[^A-Za-z0-9_-]`).ReplaceAllString(d.ID, "_")
		ids[id] = d.ID
		all = append(all, toolkeep.Version{
			Tool: &toolkeep.Tool{ID: id, Version: "1.0.0", Digest: "sha256:" + id, Manifest: &toolkeep.Manifest{
				ToolID: id, Version: "1.0.0", ToolName: d.Name, Description: d.Description, ParametersSchema: schema,
			}},
			Life: toolkeep.Lifecycle{State: toolkeep.Active},
		})
	}
	x := New(Config{})
	x.Update(slices.Values(all))
	return x, ids
}

// lines yields the values of a file of JSON lines.
func lines[T any](t testing.TB, path string) func(yield func(T) bool) {
	return func(yield func(T) bool) {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		s := bufio.NewScanner(f)
		s.Buffer(nil, 16<<20)
		for s.Scan() {
			var v T
			if err := json.Unmarshal(s.Bytes(), &v); err != nil {
				t.Fatal(err)
			}
			if !yield(v) {
				return
			}
		}
		if err := s.Err(); err != nil {
			t.Fatal(err)
		}
	}
}
