//go:build linux

package upstream

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// The test binary is also the reaper, the servers under test and the Toolkeep that is
// killed: it runs itself, and the environment selects the role.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "__reaper" {
		os.Exit(RunReaper(os.Args[2:]))
	}
	if name := os.Getenv("UPSTREAM_TEST_PROGRAM"); name != "" {
		os.Exit(programs[name]())
	}
	// The runtime's poller opens descriptors with the first pipe, which would count as
	// a leak of the first test.
	if r, w, err := os.Pipe(); err == nil {
		r.Close()
		w.Close()
	}
	goleak.VerifyTestMain(m)
}
