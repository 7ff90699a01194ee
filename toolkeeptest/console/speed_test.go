//go:build consoleperf

package console

import (
	"fmt"
	"testing"

	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// TestSpeed measures the console in a browser with 10,000 tools and 100,000 calls; make console-perf runs it.
func TestSpeed(t *testing.T) {
	b := find(t)
	k := start(t)
	const tools, calls, batch = 10_000, 100_000, 500
	for from := 0; from < tools; from += batch {
		manifests := make([]string, batch)
		for i := range manifests {
			n := from + i
			manifests[i] = toolkeeptest.Manifest(fmt.Sprintf("area%02d.tool%05d", n%40, n), "1.0.0", "echo",
				fmt.Sprintf(`"category":"area%02d","tags":["t%d"]`, n%40, n%7))
		}
		k.Publish(manifests...)
	}
	for i := range calls {
		// Some fail, so that there is something to filter.
		tool, arguments := fmt.Sprintf("area%02d.tool%05d", i%40, i%tools), `{}`
		if i%10 == 0 {
			tool, arguments = "std.fail", `{"code":"E3503"}`
		}
		if _, err := k.Call(tool, arguments); err != nil && i%10 != 0 {
			t.Fatal(err)
		}
	}
	t.Log(b.run(t, k, nil, "--config", "playwright.perf.config.ts"))
}
