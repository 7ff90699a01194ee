package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/servertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is an in-memory store of versions.
type memory struct {
	mu    sync.Mutex
	log   []toolkeep.Committed
	grown chan struct{}
}

func (m *memory) Apply(_ context.Context, changes ...toolkeep.Change) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range changes {
		m.log = append(m.log, toolkeep.Committed{Seq: int64(len(m.log) + 1), Change: c})
	}
	close(m.grown)
	m.grown = make(chan struct{})
	return nil
}

func (m *memory) Head(context.Context) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return int64(len(m.log)), nil
}

func (m *memory) Watch(ctx context.Context, after int64) iter.Seq2[toolkeep.Committed, error] {
	return func(yield func(toolkeep.Committed, error) bool) {
		for {
			m.mu.Lock()
			batch, grown := m.log[after:], m.grown
			m.mu.Unlock()
			for _, c := range batch {
				if !yield(c, nil) {
					return
				}
				after = c.Seq
			}
			if len(batch) > 0 {
				continue
			}
			select {
			case <-ctx.Done():
				return
			case <-grown:
			}
		}
	}
}

type fakeAuth func(bearer string) (*toolkeep.Principal, error)

func (f fakeAuth) Authenticate(_ context.Context, bearer, _ string) (*toolkeep.Principal, error) {
	return f(bearer)
}

type fakeInvoker func(context.Context, *toolkeep.Principal, *toolkeep.Call) (*toolkeep.Result, error)

func (f fakeInvoker) Invoke(ctx context.Context, p *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Result, error) {
	if c.Fault != nil {
		c.Fault.InvocationID = "refused-1"
		return nil, c.Fault
	}
	return f(ctx, p, c)
}

// fakeCalls maps ids to rows.
type fakeCalls map[string]*toolkeep.Invocation

func (f fakeCalls) Get(_ context.Context, _ *toolkeep.Principal, id string) (*toolkeep.Invocation, error) {
	if v := f[id]; v != nil {
		return v, nil
	}
	return nil, toolkeep.NewError(toolkeep.ResourceNotFound, "there is no such invocation")
}

func (f fakeCalls) Watch(ctx context.Context, p *toolkeep.Principal, id string) iter.Seq2[*toolkeep.Invocation, error] {
	return func(yield func(*toolkeep.Invocation, error) bool) { yield(f.Get(ctx, p, id)) }
}

func (f fakeCalls) Result(v *toolkeep.Invocation) *toolkeep.Result {
	return &toolkeep.Result{InvocationID: v.ID, State: v.State, Output: v.Output, Attachments: v.Attachments}
}

// system is the face over a real catalogue and index; everything else is a fake.
type system struct {
	Config
	front   gate.Config // of the gate in front of the face
	t       testing.TB
	store   *memory
	catalog *catalog.Catalog
	calls   fakeCalls
	log     servertest.Log
	server  *Server
	url     string
}

// newSystem sets up the callers alice and bob of tenant t, eve of another tenant, and narrow, who
// sees only demo.echo.
func newSystem(t testing.TB) *system {
	t.Helper()
	s := &system{t: t, store: &memory{grown: make(chan struct{})}, calls: fakeCalls{}}
	any := func(*toolkeep.Manifest) []toolkeep.Fault { return nil }
	s.catalog = catalog.New(catalog.Config{Store: s.store, Checkers: map[string]catalog.Checker{"builtin": any, "mcp": any}, Log: slog.New(slog.DiscardHandler)})
	index := discover.New(discover.Config{})
	s.catalog.OnChange(func(sn *catalog.Snapshot) { index.Update(sn.All()) })
	if err := s.catalog.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.catalog.Stop)
	sealer, err := secret.OpenSealer(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	s.front.Auth = fakeAuth(func(bearer string) (*toolkeep.Principal, error) {
		switch bearer {
		case "alice", "bob":
			return &toolkeep.Principal{Subject: bearer, Tenant: "t"}, nil
		case "alice for ann":
			return &toolkeep.Principal{Subject: "alice", Tenant: "t", OnBehalf: "ann"}, nil
		case "alice at home":
			return &toolkeep.Principal{Subject: "alice", Tenant: "t", Workspace: "home"}, nil
		case "eve":
			return &toolkeep.Principal{Subject: bearer, Tenant: "u"}, nil
		case "narrow":
			return &toolkeep.Principal{Subject: bearer, Tenant: "t", Scope: []string{"demo.echo"}}, nil
		}
		return nil, toolkeep.NewError(toolkeep.Unauthenticated, "send a valid key")
	})
	s.Config = Config{
		Invoker: fakeInvoker(echo), Calls: s.calls, Catalog: s.catalog, Search: index, Sealer: sealer,
		Visible: func(p *toolkeep.Principal, t *toolkeep.Tool) bool {
			return (t.Tenant == "" || t.Tenant == p.Tenant) && (len(p.Scope) == 0 || slices.Contains(p.Scope, t.ID))
		},
		View: "all", Version: "1.2.3", Log: slog.New(slog.NewTextHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	s.Callable = func(p *toolkeep.Principal, t *toolkeep.Tool) bool { return s.Visible(p, t) }
	return s
}

// echo returns its arguments.
func echo(_ context.Context, _ *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Result, error) {
	out := c.Arguments
	if out == nil {
		out = []byte("{}")
	}
	return &toolkeep.Result{InvocationID: "inv-1", ToolID: c.Tool, ToolVersion: "1.0.0", State: toolkeep.CallSucceeded, Output: slices.Clone(out)}, nil
}

// manifest builds a tool's manifest; more lists members to add.
func manifest(id string, more ...string) string {
	return fmt.Sprintf(`{"schema_version":1,"tool_id":%q,"version":"1.0.0","description":"Does what %s does.","side_effects":"reads",
		"parameters_schema":{"type":"object","properties":{"text":{"type":"string"},"n":{"type":"integer"}},"required":["text"]},
		"execution":{"kind":"builtin","binding":{"name":"x"}}%s}`, id, id, strings.Join(more, ""))
}

// mcpManifest builds a manifest as the importer does for an MCP tool.
func mcpManifest(server, tool, more string) string {
	return fmt.Sprintf(`{"schema_version":1,"tool_id":"%s.%s","version":"1.0.0","description":"From an upstream.","side_effects":"reads",
		"parameters_schema":{"type":"object","$defs":{"a":{"type":"string"}},"properties":{"x":{"$ref":"#/$defs/a"}}},
		"execution":{"kind":"mcp","binding":{"server":%q,"tool":%q}}%s}`, server, strings.ReplaceAll(tool, ".", "_"), server, tool, more)
}

func (s *system) publish(manifests ...string) {
	s.t.Helper()
	s.publishFor("", manifests...)
}

func (s *system) publishFor(tenant string, manifests ...string) {
	s.t.Helper()
	raw := make([][]byte, len(manifests))
	for i, m := range manifests {
		raw[i] = []byte(m)
	}
	p := &toolkeep.Principal{Subject: "publisher", Tenant: "t", Permissions: []string{"*"}}
	if tenant != "" {
		p.Tenant = tenant
	}
	if _, err := s.catalog.Publish(context.Background(), p, raw, catalog.PublishOptions{Shared: tenant == ""}); err != nil {
		s.t.Fatal(err)
	}
}

// face is the face behind its gate.
func (s *system) face() *Server {
	s.front.Log = s.Log
	s.Gate = gate.New(s.front)
	return New(s.Config)
}

// start serves the face on loopback.
func (s *system) start() *system {
	s.t.Helper()
	s.server = s.face()
	srv := httptest.NewServer(s.server)
	s.url = srv.URL
	s.t.Cleanup(func() {
		s.server.Close()
		srv.CloseClientConnections()
		srv.Close()
	})
	return s
}

// answer is an HTTP response.
type answer struct {
	status int
	header http.Header
	body   string
}

// message is the body as a JSON-RPC message.
func (a answer) message(t testing.TB) *mcp.Message {
	t.Helper()
	body := a.body
	if strings.HasPrefix(body, ": ok\n") { // an event stream, whose last event is the answer
		body = body[strings.LastIndex(body, "data: ")+len("data: "):]
	}
	m, err := mcp.Parse([]byte(body), canonLimits)
	if err != nil {
		t.Fatalf("%v in %d %s", err, a.status, a.body)
	}
	return m
}

// result returns the JSON value at a path of the result.
func (a answer) result(t testing.TB, path ...string) string {
	t.Helper()
	m := a.message(t)
	if m.Err != nil {
		t.Fatalf("an error came back: %s", a.body)
	}
	return string(mcp.Get(m.Result, path...))
}

func (a answer) failure(t testing.TB, status int, code int64) *mcp.Error {
	t.Helper()
	m := a.message(t)
	if m.Err == nil || m.Err.Code != code || a.status != status {
		t.Fatalf("got %d %s, want status %d and code %d", a.status, a.body, status, code)
	}
	return m.Err
}

// problem reads a problem document.
func (a answer) problem(t testing.TB, status int, code toolkeep.Code) {
	t.Helper()
	var p struct {
		Code   toolkeep.Code `json:"code"`
		Status int           `json:"status"`
	}
	if a.header.Get("Content-Type") != "application/problem+json" || json.Unmarshal([]byte(a.body), &p) != nil ||
		p.Code != code || p.Status != status || a.status != status {
		t.Fatalf("got %d %s, want a problem of %d %s", a.status, a.body, status, code)
	}
}

// request builds a request from alice; headers are "Name: value".
func (s *system) request(method, path, body string, headers ...string) *http.Request {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer alice")
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
	}
	for _, h := range headers {
		k, v, _ := strings.Cut(h, ": ")
		switch {
		case k == "Host":
			req.Host = v
		case v == "":
			req.Header.Del(k)
		default:
			req.Header.Set(k, v)
		}
	}
	return req
}

func (s *system) do(method, path, body string, headers ...string) answer {
	s.t.Helper()
	resp, err := http.DefaultClient.Do(s.request(method, path, body, headers...))
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(raw)}
}

func (s *system) post(path, body string, headers ...string) answer {
	s.t.Helper()
	return s.do("POST", path, body, headers...)
}

// session starts a session and returns its headers.
func (s *system) session(path, version, caps string, headers ...string) []string {
	s.t.Helper()
	a := s.post(path, `{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"`+version+`","capabilities":`+caps+`,"clientInfo":{"name":"test","version":"1"}}}`, headers...)
	id := a.header.Get("Mcp-Session-Id")
	if a.status != 200 || id == "" {
		s.t.Fatalf("no session: %d %s", a.status, a.body)
	}
	got := strings.Trim(a.result(s.t, "protocolVersion"), `"`)
	return append([]string{"Mcp-Session-Id: " + id, "Mcp-Protocol-Version: " + got}, headers...)
}

// modern returns the body of a 2026-07-28 request and its headers.
func modern(method, params string, caps string) (body string, headers []string) {
	meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},"io.modelcontextprotocol/clientCapabilities":` + caps + `}`
	inner := strings.TrimSuffix(strings.TrimPrefix(params, "{"), "}")
	if inner != "" {
		meta = inner + "," + meta
	}
	m := &mcp.Message{ID: []byte("7"), Method: method, Params: []byte("{" + meta + "}")}
	headers = []string{"Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: " + method}
	if name, ok := m.Name(); ok {
		headers = append(headers, "Mcp-Name: "+name)
	}
	return string(m.Bytes()), headers
}

func (s *system) modern(path, method, params, caps string, headers ...string) answer {
	s.t.Helper()
	body, h := modern(method, params, caps)
	return s.post(path, body, append(h, headers...)...)
}

// events opens an event stream and returns its reader.
func (s *system) events(method, path, body string, headers ...string) (*mcp.EventReader, func()) {
	s.t.Helper()
	if method == "GET" {
		headers = append(headers, "Accept: text/event-stream")
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	resp, err := http.DefaultClient.Do(s.request(method, path, body, headers...).WithContext(ctx))
	if err != nil {
		cancel()
		s.t.Fatal(err)
	}
	if ct := resp.Header.Get("Content-Type"); ct != "text/event-stream" {
		raw, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		cancel()
		s.t.Fatalf("no event stream: %d %s %s", resp.StatusCode, ct, raw)
	}
	stop := sync.OnceFunc(func() { cancel(); resp.Body.Close() })
	s.t.Cleanup(stop)
	return mcp.NewEventReader(resp.Body, 1<<20), stop
}

// next reads an event with a message.
func next(t testing.TB, r *mcp.EventReader) (*mcp.Message, string) {
	t.Helper()
	for {
		e, err := r.Next()
		if err != nil {
			t.Fatalf("the stream ended: %v", err)
		}
		if len(e.Data) == 0 {
			continue
		}
		m, err := mcp.Parse(e.Data, canonLimits)
		if err != nil {
			t.Fatalf("%v in %s", err, e.Data)
		}
		return m, e.ID
	}
}

// until polls a condition.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
		<-time.After(time.Millisecond)
	}
}
