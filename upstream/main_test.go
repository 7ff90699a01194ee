//go:build linux

package upstream

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// The test binary is also the keeper, the servers behind it and the Toolkeep that
// is killed: it runs itself anew, and the environment says as what.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "__keep" {
		os.Exit(Keep(os.Args[2:]))
	}
	if name := os.Getenv("UPSTREAM_TEST_PROGRAM"); name != "" {
		os.Exit(programs[name]())
	}
	goleak.VerifyTestMain(m)
}
