//go:build linux

package upstream

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// The test binary is also the reaper, the servers behind it and the Toolkeep that
// is killed: it runs itself anew, and the environment says as what.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "__reaper" {
		os.Exit(RunReaper(os.Args[2:]))
	}
	if name := os.Getenv("UPSTREAM_TEST_PROGRAM"); name != "" {
		os.Exit(programs[name]())
	}
	// The runtime's poller has descriptors of its own, which come with the first pipe
	// and would count as left by whichever test runs first.
	if r, w, err := os.Pipe(); err == nil {
		r.Close()
		w.Close()
	}
	goleak.VerifyTestMain(m)
}
