package main

import (
	"bufio"
	"bytes"
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/mcp"
)

const (
	mcpClients = 16
	mcpRate    = 500 // calls a second in the open loop
)

// Names of the MCP servers that the part mcp puts behind Toolkeep.
const (
	leanHTTP  = "lean"
	leanStdio = "pipe"
	sdkHTTP   = "official"
)

// What an upstream offers: the same tool twice, once announced as one that only
// reads. Both schemas are checked on every call.
const (
	toolSchema   = `{"type":"object","properties":{"message":{"type":"string","maxLength":2000},"limit":{"type":"integer","minimum":1,"maximum":100},"tags":{"type":"array","items":{"type":"string"},"maxItems":10}},"required":["message"],"additionalProperties":false}`
	resultSchema = `{"type":"object","properties":{"total":{"type":"integer","minimum":0},"matches":{"type":"array","items":{"type":"object","properties":{"id":{"type":"string"},"title":{"type":"string"},"score":{"type":"number","minimum":0,"maximum":1}},"required":["id","title","score"]}}},"required":["total","matches"]}`
	arguments    = `{"message":"which rows mention the quick brown fox, and in what order","limit":5,"tags":["fox","brown"]}`
	structured   = `{"total":3,"matches":[{"id":"row-0017","title":"The quick brown fox jumps","score":0.98},{"id":"row-0042","title":"A fox in the garden","score":0.71},{"id":"row-0113","title":"Brown, quick and late","score":0.52}]}`
)

// toolResult is what each call answers, about 600 bytes.
var toolResult = []byte(`{"content":[{"type":"text","text":` + string(mcp.Quote(structured+"\nThree rows were found; the best of them is row-0017.")) +
	`}],"structuredContent":` + structured + `}`)

func toolList() []byte {
	tool := func(name, more string) string {
		return `{"name":"` + name + `","description":"Finds rows by words.","inputSchema":` + toolSchema + `,"outputSchema":` + resultSchema + more + `}`
	}
	return []byte(`{"tools":[` + tool("look", `,"annotations":{"readOnlyHint":true}`) + `,` + tool("act", "") + `]}`)
}

// serveMCP is bench as an MCP server: "stdio", "http:ADDR" or "sdk:ADDR".
func serveMCP(how string) {
	kind, addr, _ := strings.Cut(how, ":")
	switch kind {
	case "stdio":
		serveMCPLines()
	case "http":
		serveMCPHandler(addr, leanServer{newLean()})
	case "sdk":
		serveMCPHandler(addr, officialServer())
	default:
		fail(fmt.Errorf("-mcp-server %q: there is no such server", how))
	}
}

func serveMCPHandler(addr string, h http.Handler) {
	mux := http.NewServeMux()
	mux.HandleFunc("/health/live", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.Handle("/mcp", h)
	srv := &http.Server{Addr: addr, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	fail(srv.ListenAndServe())
}

// lean answers with what was made before.
type lean struct{ results map[string][]byte }

// newLean makes the results, each with the members of 2026-07-28, which clients of
// the older revisions pass over.
func newLean() lean {
	of := func(result []byte) []byte { return mcp.Set(result, []byte(`"complete"`), "resultType") }
	listed := mcp.Set(mcp.Set(of(toolList()), []byte("60000"), "ttlMs"), []byte(`"private"`), "cacheScope")
	return lean{map[string][]byte{
		mcp.MethodInitialize: []byte(`{"protocolVersion":"` + mcp.LatestLegacy + `","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}}`),
		mcp.MethodDiscover: of([]byte(`{"supportedVersions":["` + mcp.Latest + `","` + mcp.LatestLegacy + `"],"capabilities":{"tools":{}},"ttlMs":60000,"cacheScope":"private",` +
			`"_meta":{"` + mcp.MetaServerInfo + `":{"name":"bench","version":"1"}}}`)),
		mcp.MethodPing:      []byte(`{}`),
		mcp.MethodListTools: listed,
		mcp.MethodCallTool:  of(toolResult),
	}}
}

// answer is nil for what gets none.
func (l lean) answer(body []byte) []byte {
	m, err := mcp.Parse(body, canon.Limits{Bytes: 1 << 20})
	switch {
	case err != nil:
		return mcp.Refuse(nil, mcp.NewError(mcp.CodeParse, "bad")).Bytes()
	case !m.IsRequest():
		return nil
	case l.results[m.Method] == nil:
		return mcp.Refuse(m.ID, mcp.NewError(mcp.CodeMethodNotFound, "there is no such method")).Bytes()
	}
	return mcp.Reply(m.ID, l.results[m.Method]).Bytes()
}

type leanServer struct{ lean }

func (l leanServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	data := l.answer(body)
	if data == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	_, _ = w.Write(data)
}

func serveMCPLines() {
	l := newLean()
	in := bufio.NewReaderSize(os.Stdin, 64<<10)
	out := bufio.NewWriterSize(os.Stdout, 64<<10)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return
		}
		if data := l.answer(line); data != nil {
			_, _ = out.Write(append(data, '\n'))
		}
		if in.Buffered() == 0 && out.Flush() != nil {
			return
		}
	}
}

// officialServer is the same offer on the official Go SDK.
func officialServer() http.Handler {
	server := sdk.NewServer(&sdk.Implementation{Name: "bench", Version: "1"}, nil)
	for name, hints := range map[string]*sdk.ToolAnnotations{"look": {ReadOnlyHint: true}, "act": nil} {
		server.AddTool(&sdk.Tool{Name: name, Description: "Finds rows by words.", InputSchema: stdjson.RawMessage(toolSchema),
			OutputSchema: stdjson.RawMessage(resultSchema), Annotations: hints},
			func(_ context.Context, _ *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
				return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: structured}}, StructuredContent: stdjson.RawMessage(structured)}, nil
			})
	}
	return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{JSONResponse: true})
}

// mcpCaller calls one tool at one path of a server, in a session of 2025-11-25 or
// without one in 2026-07-28.
type mcpCaller struct {
	server *process
	path   string
	tool   string
	modern bool
}

func (c *mcpCaller) target() target {
	return target{open: c.open, cpu: c.server.cpu}
}

func (c *mcpCaller) head(method, session string) string {
	h := method + " " + c.path + " HTTP/1.1\r\nHost: " + c.server.addr + "\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
	if c.server.key != "" {
		h += "Authorization: Bearer " + c.server.key + "\r\n"
	}
	version := mcp.LatestLegacy
	if c.modern {
		version = mcp.Latest
		h += mcp.HeaderMethod + ": " + mcp.MethodCallTool + "\r\n" + mcp.HeaderName + ": " + c.tool + "\r\n"
	}
	if session != "" {
		h += mcp.HeaderSession + ": " + session + "\r\n"
	}
	return h + mcp.HeaderVersion + ": " + version + "\r\nContent-Length: "
}

func (c *mcpCaller) open(int) (sender, error) {
	s := &mcpSender{c: c}
	meta := ""
	if c.modern {
		meta = `,"_meta":{"` + mcp.MetaProtocolVersion + `":"` + mcp.Latest + `","` + mcp.MetaClientInfo + `":{"name":"bench","version":"1"},"` + mcp.MetaClientCapabilities + `":{}}`
	} else if err := s.begin(); err != nil {
		return nil, err
	}
	s.front = `{"jsonrpc":"2.0","id":`
	s.back = `,"method":"tools/call","params":{"name":"` + c.tool + `","arguments":` + arguments + meta + `}}`
	s.head = c.head(http.MethodPost, s.session)
	var err error
	s.conn, err = dial(c.server.addr)
	return s, err
}

type mcpSender struct {
	c           *mcpCaller
	conn        *conn
	session     string
	head        string
	front, back string
	buf         []byte
}

// begin is initialize, with the client of net/http: it is not measured.
func (s *mcpSender) begin() error {
	for _, body := range []string{
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"` + mcp.LatestLegacy + `","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
	} {
		resp, err := s.ask(http.MethodPost, body)
		if err != nil {
			return err
		}
		if v := resp.Header.Get(mcp.HeaderSession); v != "" {
			s.session = v
		}
	}
	return nil
}

func (s *mcpSender) ask(method, body string) (*http.Response, error) {
	req, err := http.NewRequest(method, s.c.server.url+s.c.path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if s.c.server.key != "" {
		req.Header.Set("Authorization", "Bearer "+s.c.server.key)
	}
	if s.session != "" {
		req.Header.Set(mcp.HeaderSession, s.session)
		req.Header.Set(mcp.HeaderVersion, mcp.LatestLegacy)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %s: %s", method, s.c.path, resp.Status, text)
	}
	return resp, err
}

var (
	isResult = []byte(`"result":`)
	isError  = []byte(`"isError":true`)
)

func (s *mcpSender) send(i int64) error {
	id := strconv.FormatInt(i, 10)
	b := append(s.buf[:0], s.head...)
	b = strconv.AppendInt(b, int64(len(s.front)+len(id)+len(s.back)), 10)
	b = append(append(append(append(b, "\r\n\r\n"...), s.front...), id...), s.back...)
	s.buf = b
	n, err := s.conn.start(b)
	if err != nil {
		return err
	}
	var body []byte
	if n < 0 { // an event stream: the answer took long
		body, err = s.conn.chunks()
		n = 0
	} else {
		body, err = s.conn.r.Peek(n)
	}
	if err != nil {
		return err
	}
	if !bytes.Contains(body, isResult) || bytes.Contains(body, isError) || !bytes.Contains(body, []byte("row-0113")) {
		return fmt.Errorf("%s answered %s", s.c.path, body)
	}
	_, err = s.conn.r.Discard(n)
	return err
}

func (s *mcpSender) close() {
	if s.conn != nil {
		s.conn.c.Close()
	}
	if s.session != "" {
		_, _ = s.ask(http.MethodDelete, "") // it ends by itself else
	}
}

// startMCP starts bench itself as an MCP server over HTTP.
func startMCP(self, kind string) (*process, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	return launch(exec.Command(self, "-mcp-server", kind+":"+addr), "http://"+addr, "/health/live")
}

// throughMCP measures tools/call of upstreams called directly and through Toolkeep,
// whose policies are all on.
func throughMCP(b *bench) (part, error) {
	self, err := os.Executable()
	if err != nil {
		return part{}, err
	}
	direct, err := startMCP(self, "http")
	if err != nil {
		return part{}, err
	}
	defer direct.stop()
	official, err := startMCP(self, "sdk")
	if err != nil {
		return part{}, err
	}
	defer official.stop()
	const raised = "100000000"
	srv, err := b.server("mcp", "L03_RATE_LIMITER_PER_AGENT_RPM="+raised, "L03_RATE_LIMITER_PER_TOOL_RPM="+raised, "L03_RATE_LIMITER_GLOBAL_RPM="+raised,
		"TOOLKEEP_LIMITS_AGENT_CONCURRENT=10000")
	if err != nil {
		return part{}, err
	}
	defer srv.stop()
	if err := b.putServers(srv, self, direct, official); err != nil {
		return part{}, err
	}
	p := part{set: fmt.Sprintf("Set: %d clients in a closed loop, then one client that sends the next call when it has the answer, then %d calls a second in an open loop, in which each call wakes an idle machine; of these two only the latency is shown. Arguments of %d bytes, results of %d. "+
		"The caller has an API key with the role agent; the input and output schema are checked; the limits are on and raised to %s a minute and 10,000 at once; "+
		"each call has its durable record (SQLite, synchronous NORMAL; one that writes is claimed first and moved to its end), its event, its log line at INFO and its metrics. "+
		"CPU is Toolkeep's process alone. The lean upstream is net/http, parses the message and answers with bytes made before; Toolkeep speaks 2026-07-28 with it.",
		mcpClients, mcpRate, len(arguments), len(toolResult), raised)}
	const goal = "6,000 a second; p50 0.4 ms"
	for _, what := range []struct {
		name, goal string
		c          mcpCaller
	}{
		{"lean upstream called directly", "-", mcpCaller{direct, "/mcp", "look", false}},
		{"/mcp/servers/{name}, session of 2025-11-25, reading", goal, mcpCaller{srv, "/mcp/servers/" + leanHTTP, "look", false}},
		{"/mcp/servers/{name}, session of 2025-11-25, writing", "-", mcpCaller{srv, "/mcp/servers/" + leanHTTP, "act", false}},
		{"/mcp/servers/{name}, 2026-07-28, reading", goal, mcpCaller{srv, "/mcp/servers/" + leanHTTP, "look", true}},
		{"/mcp/servers/{name}, 2026-07-28, writing", "-", mcpCaller{srv, "/mcp/servers/" + leanHTTP, "act", true}},
		{"/mcp/all, session of 2025-11-25, reading", goal, mcpCaller{srv, "/mcp/all", mcp.ToolName(leanHTTP + ".look"), false}},
		{"lean upstream over stdio behind, session, reading", "-", mcpCaller{srv, "/mcp/servers/" + leanStdio, "look", false}},
		{"official SDK's server called directly", "-", mcpCaller{official, "/mcp", "look", false}},
		{"official SDK's server behind, session, reading", "-", mcpCaller{srv, "/mcp/servers/" + sdkHTTP, "look", false}},
	} {
		m, err := closedLoop(what.c.target(), mcpClients, b.d)
		if err != nil {
			return part{}, fmt.Errorf("%s: %w", what.name, err)
		}
		one, err := closedLoop(what.c.target(), 1, b.d/2)
		if err != nil {
			return part{}, fmt.Errorf("%s, one client: %w", what.name, err)
		}
		paced, err := pacedLoop(what.c.target(), mcpRate, b.d)
		if err != nil {
			return part{}, fmt.Errorf("%s, open loop: %w", what.name, err)
		}
		cpu := "-"
		if what.c.server == srv {
			cpu = us(m.cpuPerCall())
		}
		p.rows = append(p.rows, []string{what.name, what.goal, cpu, rate(m), m.quantiles(), one.quantiles(), paced.quantiles()})
	}
	return p, nil
}

// putServers registers the upstreams with a toolkeep, and replaces the administrator's key with an agent's.
func (b *bench) putServers(srv *process, self string, direct, official *process) error {
	network := []any{map[string]any{"host": "127.0.0.1"}}
	for name, spec := range map[string]any{
		leanHTTP:  map[string]any{"transport": "http", "url": direct.url + "/mcp", "network": network},
		sdkHTTP:   map[string]any{"transport": "http", "url": official.url + "/mcp", "network": network},
		leanStdio: map[string]any{"transport": "stdio", "command": []string{self, "-mcp-server", "stdio"}},
	} {
		raw, err := srv.send(http.MethodPut, "/api/v1/servers/"+name, spec)
		if err != nil {
			return fmt.Errorf("server %s: %w", name, err)
		}
		var plan struct {
			Published int `json:"published"`
		}
		if err := stdjson.Unmarshal(raw, &plan); err != nil || plan.Published != 2 {
			return fmt.Errorf("server %s: two tools are due: %s", name, raw)
		}
	}
	raw, err := srv.send(http.MethodPost, "/api/v1/keys", map[string]any{"subject": "bench", "roles": []string{"agent"}})
	if err != nil {
		return err
	}
	var key struct {
		Secret string `json:"secret"`
	}
	if err := stdjson.Unmarshal(raw, &key); err != nil || key.Secret == "" {
		return errors.New("the answer to a new key holds no secret")
	}
	srv.key = key.Secret
	return nil
}
