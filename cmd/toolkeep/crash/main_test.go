package crash_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/toolkeep/toolkeep/servertest"
)

// program is the command with the hook of hook_crashtest.go, built once for all tests.
var program string

func TestMain(m *testing.M) {
	_ = os.Unsetenv("GOGC") // which make test sets and which would stop the pacing of toolkeep's collector
	dir, err := os.MkdirTemp("", "toolkeep-crash")
	if err == nil {
		program = filepath.Join(dir, "toolkeep")
		err = servertest.Build(program, "..", "-tags", "crashtest")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}
