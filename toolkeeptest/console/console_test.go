// Package console tests the web console in a browser: it starts the whole system and runs the Playwright tests of
// web/e2e against it.
package console

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolkeep/toolkeep/servertest"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

const web = "../../web"

var (
	update = flag.Bool("update", false, "write web/openapi.json")
	all    = flag.Bool("all", false, "run the browser tests that CI leaves out too")
	only   = flag.String("e2e", "", "run the browser tests whose file names have this")
)

// start starts a system with every part that has routes: approval rules, and a policy.
func start(t *testing.T) *toolkeeptest.Toolkeep {
	t.Helper()
	dir := t.TempDir()
	rules := filepath.Join(dir, "approvals.yaml")
	if err := os.WriteFile(rules, []byte("rules:\n  - name: hashes\n    tools: [std.hash]\n    required: true\n    min_risk: low\n    subjects: [bot]\n    approvers:\n      - roles: [approver]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	roles := filepath.Join(dir, "roles.yaml")
	if err := os.WriteFile(roles, []byte("roles:\n  approver:\n    description: decides about calls that wait\n    permissions: [approvals:decide]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return toolkeeptest.New(t, toolkeeptest.Option{Limits: true, Settings: map[string]string{
		"examples.enabled": "true", "node.name": "node-1", "approvals.rules_file": rules, "access.roles_file": roles,
		"limits.agent_per_minute": "-1", "limits.global_per_minute": "-1",
	}})
}

// perLine writes each member down to a depth on a line of its own, so that a change of one route or schema is a change of its line.
func perLine(v any, depth int) []byte {
	members, ok := v.(map[string]any)
	if !ok || depth == 0 {
		out, err := json.Marshal(v)
		if err != nil {
			panic(err) // it came from JSON
		}
		return out
	}
	out := []byte{'{'}
	for i, name := range slices.Sorted(maps.Keys(members)) {
		if i > 0 {
			out = append(out, ',')
		}
		out = fmt.Appendf(out, "\n%s%s:%s", strings.Repeat(" ", 3-depth), perLine(name, 0), perLine(members[name], depth-1))
	}
	return append(out, '}')
}

// TestDocument holds web/openapi.json, of which the console's types are made, against what the server says. -update
// writes it.
func TestDocument(t *testing.T) {
	k := start(t)
	status, body := k.Do("GET", "/openapi.json", "")
	if status != http.StatusOK {
		t.Fatal(status, body)
	}
	var document map[string]any
	if err := json.Unmarshal([]byte(body), &document); err != nil {
		t.Fatal(err)
	}
	// The addresses are those of the test.
	delete(document, "servers")
	want := append(perLine(document, 3), '\n')
	path := filepath.Join(web, "openapi.json")
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != string(want) {
		t.Error("web/openapi.json is stale: run go test ./toolkeeptest/console -run TestDocument -update, and make console")
	}
}

// changing is an MCP server whose tool's description the browser test changes by POST /change.
func changing(t *testing.T) string {
	t.Helper()
	var version atomic.Int32
	echo := func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: r.Params.Name}}}, nil
	}
	mcp := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server {
		s := sdk.NewServer(&sdk.Implementation{Name: "notes", Version: "1"}, nil)
		what := "Finds a note by its words."
		if version.Load() > 0 {
			what = fmt.Sprintf("Finds a note by its words, and those of others too (%d).", version.Load())
		}
		s.AddTool(&sdk.Tool{Name: "find", Description: what, InputSchema: json.RawMessage(`{"type":"object","properties":{"words":{"type":"string"}}}`)}, echo)
		return s
	}, &sdk.StreamableHTTPOptions{Stateless: true})
	mux := http.NewServeMux()
	mux.Handle("/", mcp)
	mux.HandleFunc("POST /change", func(http.ResponseWriter, *http.Request) { version.Add(1) })
	s := httptest.NewServer(mux)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

// browser is what the tests of web/ run in.
type browser struct{ chromium string }

// find finds the browser and what it is driven by. Without them the test is left out.
func find(t *testing.T) *browser {
	t.Helper()
	chromium, err := exec.LookPath("chromium-headless-shell")
	if err != nil {
		servertest.Missing(t, "chromium-headless-shell is not installed; scripts/test-deps.sh installs it")
	}
	if _, err := os.Stat(filepath.Join(web, ".installed")); err != nil {
		servertest.Missing(t, "the packages of web/ are not installed; scripts/test-deps.sh installs them")
	}
	return &browser{chromium}
}

// run runs Playwright against the system and returns what it printed; a test that fails there fails here. The console is
// what face/console/dist has.
func (b *browser) run(t *testing.T, k *toolkeeptest.Toolkeep, environ []string, args ...string) string {
	t.Helper()
	resp, err := http.Get(k.URL() + "/")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		servertest.Missing(t, "the console is not built; make console builds it")
	}
	keys, err := json.Marshal(map[string]string{
		"admin": k.AdminKey, "agent": k.Key("default", "bot", "agent"), "approver": k.Key("default", "ann", "approver"), "auditor": k.Key("default", "carl", "auditor"),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "node", append([]string{"node_modules/@playwright/test/cli.js", "test"}, args...)...)
	c.Dir = web
	c.Env = append(append(os.Environ(), environ...), "TOOLKEEP_URL="+k.URL(), "TOOLKEEP_KEYS="+string(keys), "TOOLKEEP_CHROMIUM="+b.chromium, "TOOLKEEP_E2E_ALL="+strconv.FormatBool(*all))
	// The browsers that it started end with it.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = 10 * time.Second
	out, err := c.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return string(out)
}

// TestInBrowser runs the tests of web/e2e in Chromium.
func TestInBrowser(t *testing.T) {
	b := find(t)
	k := start(t)
	notes := changing(t)
	name, port, _ := strings.Cut(strings.TrimPrefix(notes, "http://"), ":")
	status, body := k.Do("PUT", "/api/v1/servers/notes", fmt.Sprintf(`{"transport":"http","url":%q,"network":[{"host":%q,"port":%s}]}`, notes, name, port))
	if status != http.StatusOK {
		t.Fatal(status, body)
	}
	var args []string
	if *only != "" {
		args = strings.Fields(*only)
	}
	t.Log(b.run(t, k, []string{"TOOLKEEP_NOTES=" + notes}, args...))
}
