package assembly

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/catalog/source/openapi"
)

const documents = "../../../shared/data/openapi"

// imported returns n tools of real API descriptions. If there are fewer, they repeat under other
// namespaces, like further accounts of a service.
func imported(t testing.TB, n int) []*toolkeep.Tool {
	t.Helper()
	distinct := realTools(t)
	tools := make([]*toolkeep.Tool, n)
	for i := range n {
		// Spread over the documents, so that a small number of tools covers many services too.
		at := i % len(distinct)
		if n < len(distinct) {
			at = i * len(distinct) / n
		}
		tool := *distinct[at]
		if round := i / len(distinct); round > 0 {
			tool.ID = fmt.Sprintf("copy%d-%s", round, tool.ID)
			tool.Digest += fmt.Sprint(round)
		}
		tools[i] = &tool
	}
	t.Logf("%d tools of real API descriptions, %d of them distinct", n, min(n, len(distinct)))
	return tools
}

var kept []*toolkeep.Tool

// realTools imports the documents once, under -short the smaller ones.
func realTools(t testing.TB) []*toolkeep.Tool {
	t.Helper()
	if kept != nil {
		return kept
	}
	for i, path := range []string{"twilio/twilio_api_v2010.json", "openai/openai-1.2.0.openapi.yaml", "docker-engine/swagger.yaml", "discourse/openapi.yml", "influxdb/oss.yml",
		"kubernetes/v3_api.v1.json", "adyen/CheckoutService-v72.yaml", "adyen/BalancePlatformService-v2.json"} {
		if large := strings.HasPrefix(path, "twilio/") || strings.HasPrefix(path, "influxdb/") || strings.HasPrefix(path, "kubernetes/"); large && testing.Short() {
			continue
		}
		plan, err := openapi.Read(t.Context(), openapi.Options{Location: filepath.Join(documents, path), Namespace: fmt.Sprintf("api%d", i), Server: "https://service.example"})
		if err != nil {
			t.Fatal(path, err)
		}
		for _, p := range plan.Tools {
			tool, err := catalog.ParseManifest(p.Manifest)
			if err != nil {
				t.Fatal(path, p.Name, err)
			}
			kept = append(kept, tool)
		}
	}
	return kept
}

// TestReduction measures a context's cost against showing all manifests in full, and asserts the
// goal of 95 % at 1,000 tools. Both sides count manifests as shown here, without bindings, so
// leaving those out saves nothing.
func TestReduction(t *testing.T) {
	sets := map[string]func(testing.TB, int) []*toolkeep.Tool{"generated": generated}
	if _, err := os.Stat(documents); err == nil {
		sets["real"] = imported
	} else {
		t.Logf("NOT MEASURED with real API descriptions: they are missing at %s", documents)
	}
	for _, name := range []string{"generated", "real"} {
		make := sets[name]
		if make == nil {
			continue
		}
		t.Log("set        tools  all manifests  initial_planning  tool_selection  execution_preparation  error_recovery")
		for _, n := range sizes() {
			tools := make(t, n)
			all := 0
			for i, tool := range tools {
				every := 1
				if n > 2000 {
					every = 50 // one sample stands for 50
				}
				if i%every == 0 {
					raw, _ := manifestAt(tool, levelWhole)
					all += every * Tokens(string(raw))
				}
			}
			row := fmt.Sprintf("%-9s %6d %14d", name, n, all)
			rs := requests(indexed(tools), "create an invoice and send a message about it", []string{tools[0].ID}, nil)
			for _, p := range Phases() {
				used := built(t, rs[p]).Metadata.TokensUsed
				saved := 100 * (1 - float64(used)/float64(all))
				row += fmt.Sprintf("  %6d (%5.2f %%)", used, saved)
				if n >= 1000 && saved < 95 {
					t.Errorf("%s, %d tools, %s: %d tokens of %d", name, n, p, used, all)
				}
			}
			t.Log(row)
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		tools := generated(b, n)
		x := indexed(tools)
		rs := requests(x, question, []string{tools[0].ID}, nil)
		for _, p := range Phases() {
			b.Run(fmt.Sprintf("%s/%d", p, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := Build(rs[p]); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkTokens(b *testing.B) {
	raw, _ := manifestAt(generated(b, 1)[0], levelWhole)
	b.ReportAllocs()
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		Tokens(string(raw))
	}
}
