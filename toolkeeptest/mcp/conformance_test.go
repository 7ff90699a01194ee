package mcp

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/toolkeep/toolkeep/servertest"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

const everythingServer = "github.com/modelcontextprotocol/go-sdk/conformance/everything-server"

// TestConformance runs the official suite against the SDK's own server, directly
// and through Toolkeep's view of that server. What passes directly must pass
// through the view, check by check; the SDK knows no tasks, so they fail on both.
func TestConformance(t *testing.T) {
	dir := installed(t)
	const old, alpha = "@modelcontextprotocol/conformance", "conformance-alpha"
	for _, c := range []struct {
		name      string
		suite     []string
		stateless bool
		least     int // checks that the SDK passes directly
	}{
		{"0.1.16", []string{old, "--suite", "all"}, false, 44},
		{"2025-11-25", []string{alpha, "--requirements", "2025-11-25"}, false, 82},
		{"2026-07-28", []string{alpha, "--requirements", "2026-07-28"}, true, 165},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			index := filepath.Join(modules(dir), c.suite[0], "dist", "index.js")
			conform := func(url string) checks {
				return readChecks(t, append([]string{nodeJS(dir), index, "server", "--url", url}, c.suite[1:]...))
			}
			direct := conform(everything(t, c.stateless))
			if passed, _ := direct.total(); passed < c.least {
				t.Fatalf("the SDK's server passes %d checks directly, fewer than %d", passed, c.least)
			}
			k := start(t)
			put(t, k, "everything", map[string]any{"transport": "http", "url": everything(t, c.stateless),
				"network": []map[string]any{{"host": "127.0.0.1"}}, "capabilities": []string{"sampling", "elicitation", "roots"}})
			through := conform(keyed(t, k, k.Key("default", "suite", "agent")) + "/mcp/servers/everything")
			compare(t, direct, through)
			for _, run := range []struct {
				name string
				all  checks
			}{{"directly", direct}, {"through Toolkeep", through}} {
				passed, failed := run.all.total()
				t.Logf("%s: %d checks passed, %d failed", run.name, passed, failed)
			}
		})
	}
}

// checks are the results of a run, by scenario and check.
type checks map[string]result

// result is how often a check came to which status, and what was said of that.
type result struct {
	status map[string]int
	said   []string
}

const success, failure = "SUCCESS", "FAILURE"

func (all checks) total() (passed, failed int) {
	for _, n := range all {
		passed += n.status[success]
		failed += n.status[failure]
	}
	return passed, failed
}

// lost is the scenario in which the SDK's server closes the stream of an answer and
// keeps no events, so that there is no answer to pass on. Toolkeep says E3541: in
// JSON, or on a busy machine, where that takes longer than a stream is waited for, on
// an event stream, which the suite then looks at as well. What must hold is that
// the scenario ran and got an answer.
const lost = "server-sse-polling/"

func compare(t *testing.T, direct, through checks) {
	t.Helper()
	if answered := slices.ContainsFunc(slices.Collect(maps.Keys(through)), func(name string) bool { return strings.HasPrefix(name, lost) }); !answered &&
		slices.ContainsFunc(slices.Collect(maps.Keys(direct)), func(name string) bool { return strings.HasPrefix(name, lost) }) {
		t.Errorf("no check of %s ran through Toolkeep", lost)
	}
	for _, name := range slices.Sorted(maps.Keys(direct)) {
		if strings.HasPrefix(name, lost) {
			continue
		}
		want, got := direct[name].status, through[name].status
		said := strings.Join(through[name].said, "\n  ")
		if got[failure] > want[failure] {
			t.Errorf("%s fails %d times through Toolkeep, %d times directly:\n  %s", name, got[failure], want[failure], said)
		}
		if got[success] != want[success] {
			t.Errorf("%s passes %d times through Toolkeep, %d times directly; %v:\n  %s", name, got[success], want[success], got, said)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(through)) {
		if _, known := direct[name]; !known && !strings.HasPrefix(name, lost) && through[name].status[failure] > 0 {
			t.Errorf("%s fails through Toolkeep and is not there directly:\n  %s", name, strings.Join(through[name].said, "\n  "))
		}
	}
}

var scenarioDir = regexp.MustCompile(`^server-(.+)-\d{4}-\d\d-\d\dT`)

// readChecks runs the suite and reads the checks that it writes. Its exit code
// says whether everything passed, which the checks say better.
func readChecks(t *testing.T, argv []string) checks {
	t.Helper()
	out := t.TempDir()
	cmd := exec.CommandContext(t.Context(), argv[0], append(argv[1:], "-o", out)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	said, _ := cmd.CombinedOutput()
	found, err := os.ReadDir(out)
	if err != nil || len(found) == 0 {
		t.Fatalf("the suite wrote no results (%v):\n%s", err, tail(string(said)))
	}
	all := checks{}
	for _, d := range found {
		scenario := scenarioDir.FindStringSubmatch(d.Name())
		if scenario == nil {
			t.Fatalf("%s is not named as a scenario's results", d.Name())
		}
		raw, err := os.ReadFile(filepath.Join(out, d.Name(), "checks.json"))
		if err != nil {
			t.Fatal(err)
		}
		var list []struct {
			ID, Status, ErrorMessage string
			Details                  json.RawMessage
		}
		if err := json.Unmarshal(raw, &list); err != nil {
			t.Fatal(err)
		}
		for _, c := range list {
			name := scenario[1] + "/" + c.ID
			r := all[name]
			if r.status == nil {
				r.status = map[string]int{}
			}
			r.status[c.Status]++
			if c.ErrorMessage != "" {
				r.said = append(r.said, fmt.Sprintf("%s: %s %.600s", c.Status, c.ErrorMessage, c.Details))
			}
			all[name] = r
		}
	}
	return all
}

// everything starts the SDK's conformance server and gives its address.
func everything(t *testing.T, stateless bool) string {
	t.Helper()
	port, err := servertest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	cmd := exec.Command(built(t, everythingServer), "-http", addr, fmt.Sprintf("-stateless=%v", stateless))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	within(t, "the SDK's server listens", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	return "http://" + addr + "/mcp"
}

// keyed is a proxy that adds a key, for clients that know none. Host and Origin
// stay what the client sent.
func keyed(t *testing.T, k *toolkeeptest.Toolkeep, key string) string {
	t.Helper()
	to, err := url.Parse(k.URL())
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	s := httptest.NewServer(&httputil.ReverseProxy{
		FlushInterval: -1, Transport: transport, ErrorLog: log.New(io.Discard, "", 0), // clients that leave are no news
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host
			r.Out.Header.Set("Authorization", "Bearer "+key)
		},
	})
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
		transport.CloseIdleConnections()
	})
	return s.URL
}
