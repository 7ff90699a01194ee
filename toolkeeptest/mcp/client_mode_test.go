package mcp

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

const (
	everythingClient = "github.com/modelcontextprotocol/go-sdk/conformance/everything-client"
	ourClient        = "github.com/toolkeep/toolkeep/tools/mcpconform"
)

// TestClientConformance has the official suite call the SDK's own client and ours,
// which is the one that Toolkeep reaches MCP servers with. What the SDK's client
// passes ours passes, and nothing fails more often.
//
// The suite counts some checks once for each request: a client that asks a server
// twice that refuses it passes them twice. So checks are compared by name.
func TestClientConformance(t *testing.T) {
	dir := installed(t)
	const old, alpha = "@modelcontextprotocol/conformance", "conformance-alpha"
	for _, c := range []struct {
		name  string
		suite []string
		least int // checks that the SDK's client passes
	}{
		{"0.1.16", []string{old, "--suite", "all"}, 282},
		{"2025-11-25", []string{alpha, "--requirements", "2025-11-25"}, 272},
		{"2026-07-28", []string{alpha, "--requirements", "2026-07-28"}, 445},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			conform := func(client string) checks {
				index := filepath.Join(modules(dir), c.suite[0], "dist", "index.js")
				return readClientChecks(t, append([]string{nodeJS(dir), index, "client", "--command", built(t, client)}, c.suite[1:]...))
			}
			// The suite measures how long a client waits, so that a busy machine can cost the SDK's client a check. What ours
			// is compared with is a whole run.
			sdk := conform(everythingClient)
			for again := 0; again < 2 && sdk.count() < c.least; again++ {
				t.Logf("the SDK's client passes %d checks, fewer than %d; it is asked again", sdk.count(), c.least)
				sdk = conform(everythingClient)
			}
			if sdk.count() < c.least {
				t.Fatalf("the SDK's client passes %d checks, fewer than %d", sdk.count(), c.least)
			}
			ours := conform(ourClient)
			compareClients(t, sdk, ours)
			for _, run := range []struct {
				name string
				all  checks
			}{{"the SDK's client", sdk}, {"ours", ours}} {
				passed, failed := run.all.total()
				t.Logf("%s: %d checks passed, %d of them different, %d failed", run.name, passed, run.all.passing(), failed)
			}
		})
	}
}

// count is how many checks passed.
func (all checks) count() int {
	passed, _ := all.total()
	return passed
}

// passing is how many different checks passed and never failed.
func (all checks) passing() (n int) {
	for _, r := range all {
		if r.status[success] > 0 && r.status[failure] == 0 {
			n++
		}
	}
	return n
}

func compareClients(t *testing.T, sdk, ours checks) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(sdk)) {
		want, got := sdk[name].status, ours[name].status
		said := strings.Join(ours[name].said, "\n  ")
		if got[failure] > want[failure] {
			t.Errorf("%s fails %d times with our client, %d times with the SDK's:\n  %s", name, got[failure], want[failure], said)
		}
		if want[success] > 0 && want[failure] == 0 && got[success] == 0 {
			t.Errorf("%s passes with the SDK's client and comes to %v with ours:\n  %s", name, got, said)
		}
	}
	for name, r := range ours {
		if _, known := sdk[name]; !known && r.status[failure] > 0 {
			t.Errorf("%s fails with our client and is not there with the SDK's:\n  %s", name, strings.Join(r.said, "\n  "))
		}
	}
	if a, b := sdk.passing(), ours.passing(); b < a {
		t.Errorf("our client passes %d different checks, the SDK's %d", b, a)
	}
}

var clientScenario = regexp.MustCompile(`^(.+)-\d{4}-\d\d-\d\dT[^/]*/checks\.json$`)

// readClientChecks runs the suite in client mode, where scenarios have folders, and
// reads the checks that it writes.
func readClientChecks(t *testing.T, argv []string) checks {
	t.Helper()
	out := t.TempDir()
	cmd := exec.CommandContext(t.Context(), argv[0], append(argv[1:], "-o", out)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	said, _ := cmd.CombinedOutput() // its exit code says whether everything passed
	all := checks{}
	err := fs.WalkDir(os.DirFS(out), ".", func(path string, d fs.DirEntry, err error) error {
		scenario := clientScenario.FindStringSubmatch(path)
		if err != nil || scenario == nil {
			return err
		}
		raw, err := os.ReadFile(filepath.Join(out, path))
		if err != nil {
			return err
		}
		var list []struct{ ID, Status, Description, ErrorMessage string }
		if err := json.Unmarshal(raw, &list); err != nil {
			return err
		}
		for _, c := range list {
			name := scenario[1] + "/" + c.ID
			r := all[name]
			if r.status == nil {
				r.status = map[string]int{}
			}
			r.status[c.Status]++
			if c.Status != success {
				r.said = append(r.said, c.Status+": "+c.Description+" "+c.ErrorMessage)
			}
			all[name] = r
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatalf("the suite wrote no results:\n%s", tail(string(said)))
	}
	return all
}
