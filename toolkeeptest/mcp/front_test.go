package mcp

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// behind starts a system with one reference server behind, whose tools ask, count
// and last.
func behind(t *testing.T, dir string) *toolkeeptest.Toolkeep {
	t.Helper()
	k := start(t)
	spec := reference(dir, marked(t), "everything")
	spec["capabilities"] = []string{"sampling", "elicitation"}
	put(t, k, "everything", spec)
	return k
}

// asked are the arguments of the programs in testdata.
type asked map[string]any

func (a asked) with(name string, v any) asked {
	out := asked{name: v}
	for k, v := range a {
		if _, ok := out[k]; !ok {
			out[k] = v
		}
	}
	return out
}

// question is what a program is told: how the server is reached, as whom, and what
// it publishes.
func question(k *toolkeeptest.Toolkeep, dir, view, revision, late string) asked {
	return asked{"modules": modules(dir), "url": k.URL() + view, "key": k.Key("default", "agent-"+late, "agent"), "revision": revision,
		"api": k.URL() + "/api/v1/tools/register", "admin": k.AdminKey, "manifest": `{"manifest":` + toolkeeptest.Manifest("late."+late, "1.0.0", "hash") + `}`}
}

func (a asked) json(t *testing.T) string {
	t.Helper()
	raw, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// story is what the programs saw.
type story struct {
	Server, Revision string
	Tools, After     []string
	Echo, Long       string
	Structured       map[string]any
	Progress         []float64
	Asked            []string
	Elicited         string
	Cancelled, Still string
}

func (s *story) check(t *testing.T, k *toolkeeptest.Toolkeep, revision, late string) {
	t.Helper()
	if s.Server != "toolkeep" || s.Revision != revision {
		t.Errorf("the server is %q in revision %q", s.Server, s.Revision)
	}
	if !slices.Contains(s.Tools, "everything__echo") || len(s.Tools) < 14 || slices.Contains(s.Tools, "late__"+late) {
		t.Errorf("tools: %v", s.Tools)
	}
	if !slices.Contains(s.After, "late__"+late) || len(s.After) <= len(s.Tools) {
		t.Errorf("tools after one was published: %v", s.After)
	}
	if s.Echo != "Echo: hello" || s.Still != "Echo: still here" {
		t.Errorf("echoes: %q, %q", s.Echo, s.Still)
	}
	if fmt.Sprint(s.Structured) != "map[conditions:Light rain / drizzle humidity:82 temperature:36]" {
		t.Errorf("structured content: %v", s.Structured)
	}
	contains(t, "long", s.Long, "Steps: 4")
	// A client may take the result before the progress that came just before it.
	if n := len(s.Progress); n == 0 || !slices.IsSorted(s.Progress) || s.Progress[0] < 1 || s.Progress[n-1] > 4 {
		t.Errorf("progress: %v", s.Progress)
	}
	if len(s.Asked) != 1 || !strings.Contains(s.Asked[0], "Please provide inputs") {
		t.Errorf("asked: %q", s.Asked)
	}
	contains(t, "elicited", s.Elicited, "Name: Ada")
	if !strings.HasPrefix(s.Cancelled, "given up: ") {
		t.Errorf("cancelled: %q", s.Cancelled)
	}
	within(t, "the record says that the call was cancelled", func() bool { return recorded(t, k, "agent_id=agent-"+late+"&state=cancelled") == 1 })
}

// tell runs a program and reads its story.
func tell(t *testing.T, p program, into any) {
	t.Helper()
	out := run(t, p)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		t.Fatalf("%v: %s", err, tail(out))
	}
}

// TestClients has the SDKs' clients use Toolkeep as programs do: list, call, see
// progress, hear of a change, answer a question, give a call up.
func TestClients(t *testing.T) {
	t.Parallel()
	dir := installed(t)
	k := behind(t, dir)
	js := func(a asked, sdk int) []string {
		return []string{nodeJS(dir), filepath.Join("testdata", "client.mjs"), a.with("sdk", sdk).json(t)}
	}
	python := func(a asked) []string {
		return []string{filepath.Join(dir, "venv-mcp", "bin", "python"), filepath.Join("testdata", "client.py"), a.json(t)}
	}
	for _, c := range []struct {
		name, revision string
		args           func(a asked) []string
	}{
		{"typescript1", "2025-11-25", func(a asked) []string { return js(a, 1) }},
		{"typescript2-legacy", "2025-11-25", func(a asked) []string { return js(a, 2) }},
		{"typescript2", "2026-07-28", func(a asked) []string { return js(a, 2) }},
		{"python-legacy", "2025-11-25", python},
		{"python", "2026-07-28", python},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			late := strings.ReplaceAll(c.name, "-", "_")
			var s story
			tell(t, program{args: c.args(question(k, dir, "/mcp/all", c.revision, late))}, &s)
			s.check(t, k, c.revision, late)
		})
	}
}

// TestLangChain loads the tools with langchain-mcp-adapters.
func TestLangChain(t *testing.T) {
	t.Parallel()
	dir := installed(t)
	k := behind(t, dir)
	var s struct {
		Tools      []string
		Schema     map[string]any
		Echo       []string
		Structured map[string]any
		Refused    string
	}
	tell(t, program{args: []string{filepath.Join(dir, "venv-langchain", "bin", "python"), filepath.Join("testdata", "langchain.py"),
		question(k, dir, "/mcp/all", "2025-11-25", "chain").json(t)}}, &s)
	if len(s.Tools) < 14 || !slices.Contains(s.Tools, "everything__echo") {
		t.Errorf("tools: %v", s.Tools)
	}
	if len(s.Echo) != 5 || !strings.Contains(s.Echo[4], "Echo: 4") {
		t.Errorf("echo: %q", s.Echo)
	}
	contains(t, "schema", fmt.Sprint(s.Schema), "message")
	contains(t, "structured", fmt.Sprint(s.Structured), "humidity:82")
	contains(t, "refused", s.Refused, "message")
}

// TestInspector uses the Inspector's command line in both eras.
func TestInspector(t *testing.T) {
	t.Parallel()
	dir := installed(t)
	k := behind(t, dir)
	home := t.TempDir()
	inspect := func(t *testing.T, code int, view, era string, args ...string) (out map[string]any) {
		t.Helper()
		index := filepath.Join(modules(dir), "@modelcontextprotocol", "inspector", "clients", "launcher", "build", "index.js")
		args = append([]string{nodeJS(dir), index, "--cli", k.URL() + view, "--transport", "http", "--format", "json", "--protocol-era", era,
			"--header", "Authorization: Bearer " + k.AdminKey}, args...)
		said := run(t, program{args: args, code: code, env: []string{"HOME=" + home, "MCP_CATALOG_PATH=" + filepath.Join(home, "catalog.json")}})
		if err := json.Unmarshal([]byte(said), &out); err != nil {
			t.Fatalf("%v: %s", err, tail(said))
		}
		return out
	}
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			contains(t, "list", fmt.Sprint(inspect(t, 0, "/mcp/all", era, "--method", "tools/list")), "name:everything__echo")
			contains(t, "call", fmt.Sprint(inspect(t, 0, "/mcp/servers/everything", era, "--method", "tools/call", "--tool-name", "echo", "--tool-args-json", `{"message":"hello"}`)), "Echo: hello")
			contains(t, "refused", fmt.Sprint(inspect(t, 5, "/mcp/all", era, "--method", "tools/call", "--tool-name", "everything__echo", "--tool-args-json", `{}`)), "isError:true")
			contains(t, "read", fmt.Sprint(inspect(t, 0, "/mcp/all", era, "--method", "resources/read", "--uri", "toolkeep+everything:demo://resource/static/document/features.md")), "text/markdown")
		})
	}
}
