package toolkeeptest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolkeep/toolkeep/node"
	"github.com/toolkeep/toolkeep/store/storetest"
	"github.com/toolkeep/toolkeep/toolkeeptest"
	servers "github.com/toolkeep/toolkeep/upstream"
)

// otherProgram runs the test binary's other programs.
func otherProgram() (code int, ran bool) {
	if len(os.Args) > 1 && os.Args[1] == "__reaper" {
		return servers.RunReaper(os.Args[2:]), true
	}
	if os.Getenv("TEST_MCP_OFFER") != "" {
		(&program{out: bufio.NewWriter(os.Stdout)}).run(os.Stdin)
		return 0, true
	}
	return 0, false
}

// program is an MCP server over stdio, revision 2025-11-25. Its tools are read from the
// file TEST_MCP_OFFER at every listing. Calls return what the process is and knows:
//
//	remember    keeps text; returns all text kept in this process
//	pid         the process
//	fork        starts a process that only a signal ends; returns its pid
//	announce    sends list_changed
//	anything    the name of the tool
//
// With TEST_MCP_LATE it offers nothing at first: empty returns an empty list, refuse
// returns -32601, and a moment after the handshake it sends list_changed. TEST_MCP_ASKS
// names a tool offered only to clients with the capability sampling.
type program struct {
	mu    sync.Mutex
	out   *bufio.Writer
	late  string
	asked bool // the client accepts questions
	notes []string
}

type rpc struct {
	ID     json.RawMessage `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params struct {
		Name      string `json:"name"`
		Arguments struct {
			Text string `json:"text"`
		} `json:"arguments"`
		Capabilities map[string]any `json:"capabilities"`
	} `json:"params"`
}

func (p *program) say(v map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	v["jsonrpc"] = "2.0"
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	_, _ = p.out.Write(append(raw, '\n')) // the client may be gone
	_ = p.out.Flush()
}

func (p *program) run(in io.Reader) {
	p.late = os.Getenv("TEST_MCP_LATE")
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var m rpc
		if json.Unmarshal(lines.Bytes(), &m) != nil {
			continue
		}
		p.hear(&m)
	}
}

func (p *program) hear(m *rpc) {
	answer := func(result any) { p.say(map[string]any{"id": m.ID, "result": result}) }
	refuse := func(code int) {
		p.say(map[string]any{"id": m.ID, "error": map[string]any{"code": code, "message": "no such method"}})
	}
	changed := map[string]any{"method": "notifications/tools/list_changed"}
	p.mu.Lock()
	late := p.late
	p.mu.Unlock()
	switch m.Method {
	case "initialize":
		_, p.asked = m.Params.Capabilities["sampling"]
		answer(map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{"tools": map[string]any{"listChanged": true}},
			"serverInfo": map[string]any{"name": "offers", "version": "1"}})
	case "notifications/initialized":
		if late != "" {
			time.AfterFunc(100*time.Millisecond, func() {
				p.mu.Lock()
				p.late = ""
				p.mu.Unlock()
				p.say(changed)
			})
		}
	case "ping":
		answer(map[string]any{})
	case "tools/list":
		note(".lists", "read")
		tools, err := os.ReadFile(os.Getenv("TEST_MCP_OFFER"))
		switch {
		case late == "refuse":
			refuse(-32601)
		case late == "empty":
			answer(map[string]any{"tools": []any{}})
		case err != nil || !json.Valid(tools):
			refuse(-32603)
		default:
			answer(map[string]any{"tools": p.offered(tools)})
		}
	case "tools/call":
		text := p.call(m)
		if m.Params.Name == "announce" {
			p.say(changed)
		}
		answer(map[string]any{"content": []any{map[string]any{"type": "text", "text": text}}})
	default:
		if m.ID != nil {
			refuse(-32601)
		}
	}
}

// note appends a line to the file named by TEST_MCP_CALLS, with an ending.
func note(ending, line string) {
	f, err := os.OpenFile(os.Getenv("TEST_MCP_CALLS")+ending, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		fmt.Fprintln(f, line)
		err = f.Close()
	}
	if err != nil {
		panic(err)
	}
}

// offered removes tools that are offered only to clients that accept questions.
func (p *program) offered(tools json.RawMessage) any {
	hide := os.Getenv("TEST_MCP_ASKS")
	if hide == "" || p.asked {
		return tools
	}
	var list []map[string]any
	if err := json.Unmarshal(tools, &list); err != nil {
		return tools
	}
	return slices.DeleteFunc(list, func(t map[string]any) bool { return t["name"] == hide })
}

func (p *program) call(m *rpc) string {
	note("", m.Params.Name)
	switch m.Params.Name {
	case "remember":
		p.mu.Lock()
		defer p.mu.Unlock()
		if m.Params.Arguments.Text != "" {
			p.notes = append(p.notes, m.Params.Arguments.Text)
		}
		return strings.Join(p.notes, ",")
	case "pid":
		return fmt.Sprint(os.Getpid())
	case "fork":
		c := exec.Command("sleep", "600")
		if err := c.Start(); err != nil {
			return err.Error()
		}
		return fmt.Sprint(c.Process.Pid)
	}
	return m.Params.Name
}

// definition returns a tool definition with required text parameters.
func definition(name, description string, parameters ...string) string {
	props, required := "", []string{}
	for i, p := range parameters {
		if i > 0 {
			props += ","
		}
		props += fmt.Sprintf(`%q:{"type":"string"}`, p)
		required = append(required, fmt.Sprintf("%q", p))
	}
	return fmt.Sprintf(`{"name":%q,"description":%q,"inputSchema":{"type":"object","properties":{%s},"required":[%s]}}`,
		name, description, props, strings.Join(required, ","))
}

// offerer is an MCP server whose definitions a test can change.
type offerer interface {
	// set replaces the definitions and notifies running sessions.
	set(t *testing.T, defs ...string)
	// spec returns the body for putting the server; more are further fields.
	spec(more ...string) string
}

// byStdio runs the program of this file.
type byStdio struct {
	offer, calls string
	env          map[string]string
}

func offerByStdio(t *testing.T, defs ...string) *byStdio {
	t.Helper()
	dir := t.TempDir()
	s := &byStdio{offer: filepath.Join(dir, "offer.json"), calls: filepath.Join(dir, "calls"), env: map[string]string{}}
	s.set(t, defs...)
	return s
}

func (s *byStdio) set(t *testing.T, defs ...string) {
	t.Helper()
	next := s.offer + ".next"
	if err := os.WriteFile(next, []byte("["+strings.Join(defs, ",")+"]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, s.offer); err != nil {
		t.Fatal(err)
	}
}

// ran returns the number of calls, read that of tool listings.
func (s *byStdio) ran() int  { return lines(s.calls) }
func (s *byStdio) read() int { return lines(s.calls + ".lists") }

func lines(file string) int {
	raw, _ := os.ReadFile(file) // it does not exist before the first
	return strings.Count(string(raw), "\n")
}

func (s *byStdio) spec(more ...string) string {
	// With the race detector a program would wait a second before it exits.
	env := map[string]string{"TEST_MCP_OFFER": s.offer, "TEST_MCP_CALLS": s.calls, "GORACE": "atexit_sleep_ms=0"}
	for k, v := range s.env {
		env[k] = v
	}
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	raw, err := json.Marshal(map[string]any{"transport": "stdio", "command": []string{self}, "env": env})
	if err != nil {
		panic(err)
	}
	return joined(string(raw), more)
}

func joined(object string, more []string) string {
	for _, m := range more {
		object = strings.TrimSuffix(object, "}") + "," + m + "}"
	}
	return object
}

// byHTTP is a server built with the official SDK.
type byHTTP struct {
	url    string
	server *sdk.Server
	names  []string
}

func offerByHTTP(t *testing.T, defs ...string) *byHTTP {
	t.Helper()
	s := &byHTTP{server: sdk.NewServer(&sdk.Implementation{Name: "offers", Version: "1"}, nil)}
	s.set(t, defs...)
	s.serve(t)
	return s
}

func (s *byHTTP) serve(t *testing.T) {
	h := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s.server }, nil))
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
		for session := range s.server.Sessions() { // Toolkeep continues without its server
			_ = session.Close()
		}
	})
	s.url = h.URL
}

func (s *byHTTP) set(t *testing.T, defs ...string) {
	t.Helper()
	s.server.RemoveTools(s.names...)
	s.names = nil
	for _, def := range defs {
		tool := &sdk.Tool{}
		if err := json.Unmarshal([]byte(def), tool); err != nil {
			t.Fatal(err)
		}
		s.names = append(s.names, tool.Name)
		s.server.AddTool(tool, func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: r.Params.Name}}}, nil
		})
	}
}

func (s *byHTTP) spec(more ...string) string {
	return joined(fmt.Sprintf(`{"transport":"http","url":%q,"network":[{"host":"127.0.0.1"}]}`, s.url), more)
}

// withServers starts a system that runs programs of MCP servers.
func withServers(t *testing.T, settings map[string]string) *toolkeeptest.Toolkeep {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return toolkeeptest.New(t, toolkeeptest.Option{Settings: settings, Options: node.Options{Reaper: []string{self, "__reaper"}}})
}

// plan is the REST response about a server's tools.
type plan struct {
	Tools []struct {
		ID       string `json:"tool_id"`
		Version  string `json:"version"`
		Change   string `json:"change"`
		State    string `json:"state"`
		Additive bool   `json:"additive"`
		Findings []struct {
			Rule, Severity string
		}
		Changes []struct {
			Pointer, Kind, Message, Old, New string
		}
	}
	Refused []struct {
		ID     string `json:"tool_id"`
		Reason string `json:"reason"`
	}
	Warnings        []string
	Published, Held int
}

// states returns one line about each tool's outcome.
func (p plan) states() string {
	var all []string
	for _, t := range p.Tools {
		all = append(all, t.ID+"@"+t.Version+" "+t.Change+" "+t.State)
	}
	return strings.Join(all, ", ")
}

func (a answer) plan(t *testing.T) (p plan) {
	t.Helper()
	a.want(t, http.StatusOK)
	if err := json.Unmarshal([]byte(a.body), &p); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	return p
}

// diff requests the differences between a server's current and accepted definitions.
func (c *client) diff(t *testing.T, name string) answer {
	t.Helper()
	c.do("POST", "/api/v1/servers/"+name+"/refresh", "").want(t, http.StatusNoContent)
	return c.do("GET", "/api/v1/servers/"+name+"/diff", "")
}

func (c *client) put(t *testing.T, name string, s offerer, more ...string) plan {
	t.Helper()
	return c.do("PUT", "/api/v1/servers/"+name, s.spec(more...)).plan(t)
}

// eventsOf returns the data of the catalogue's events of a type.
func eventsOf(t *testing.T, k *toolkeeptest.Toolkeep, kind string) (out []map[string]any) {
	t.Helper()
	for _, e := range storetest.Entries(t.Context(), t, k.Store()) {
		if e.Event == nil || e.Event.Type != kind {
			continue
		}
		var data map[string]any
		if err := json.Unmarshal(e.Event.Data, &data); err != nil {
			t.Fatal(err)
		}
		out = append(out, data)
	}
	return out
}

// agent connects an MCP client of the official SDK to a view.
func agent(t *testing.T, k *toolkeeptest.Toolkeep, key, view string) *sdk.ClientSession {
	t.Helper()
	return agentWith(t, k, key, view, nil)
}

func agentWith(t *testing.T, k *toolkeeptest.Toolkeep, key, view string, o *sdk.ClientOptions) *sdk.ClientSession {
	t.Helper()
	tr := &http.Transport{}
	s, err := sdk.NewClient(&sdk.Implementation{Name: "agent", Version: "1"}, o).Connect(t.Context(), &sdk.StreamableClientTransport{
		Endpoint: k.URL() + "/mcp" + view, HTTPClient: &http.Client{Transport: bearing{key, tr}}, MaxRetries: -1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Close() // the server may be gone
		tr.CloseIdleConnections()
	})
	return s
}

type bearing struct {
	key string
	to  http.RoundTripper
}

func (b bearing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.key)
	return b.to.RoundTrip(r)
}

// said returns the text of a result.
func said(r *sdk.CallToolResult) string {
	var b strings.Builder
	for _, c := range r.Content {
		if text, ok := c.(*sdk.TextContent); ok {
			b.WriteString(text.Text)
		}
	}
	return b.String()
}

// output returns the text that a server returned over REST.
func (a answer) output(t *testing.T) string {
	t.Helper()
	return a.success(t).text(t, "result", "content", "0", "text")
}
