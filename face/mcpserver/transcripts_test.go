package mcpserver_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/face/facetest"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/face/mcpserver"
	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

func TestTranscripts(t *testing.T) {
	for name, f := range map[string]mcpFace{
		"call_tool, 2025-11-25":  {path: "/mcp/search", version: "2025-11-25", byID: true},
		"tools/call, 2025-06-18": {path: "/mcp/all", version: "2025-06-18"},
		"tools/call, 2026-07-28": {path: "/mcp/all", version: "2026-07-28"},
	} {
		t.Run(name, func(t *testing.T) {
			facetest.Run(t, func(t *testing.T) facetest.Harness {
				k, tools, keys := toolkeeptest.ForFaces(t)
				f.url, f.rest, f.keys, f.sessions = serve(t, k), k.URL(), keys, map[string]string{}
				return facetest.Harness{Face: &f, Tools: tools, Follow: f.follow, Drain: k.Pipeline().Drain, HTTP: true}
			})
		})
	}
}

// serve puts the face in front of a complete system.
func serve(t *testing.T, k *toolkeeptest.Toolkeep) string {
	t.Helper()
	sealer, err := secret.OpenSealer(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	index := discover.New(discover.Config{})
	k.Catalog().OnChange(func(s *catalog.Snapshot) { index.Update(s.All()) })
	s := mcpserver.New(mcpserver.Config{
		Gate: gate.New(gate.Config{Auth: k.Access()}), Invoker: k.Pipeline(), Calls: k.Pipeline(), Catalog: k.Catalog(), Visible: k.Access().Visible, Callable: k.Access().Callable, Search: index, Sealer: sealer,
	})
	srv := httptest.NewServer(s)
	t.Cleanup(func() { s.Close(); srv.Close(); http.DefaultClient.CloseIdleConnections() })
	return srv.URL
}

// mcpFace is an MCP client for facetest.
type mcpFace struct {
	url, rest string
	path      string
	version   string
	byID      bool // calls go through the tool call_tool
	keys      map[string]string
	sessions  map[string]string // by role
	raw       []string          // headers that Send adds
}

func (f *mcpFace) send(t *testing.T, as, path, body string, header map[string]string) (int, http.Header, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", f.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if as != "" {
		req.Header.Set("Authorization", "Bearer "+f.keys[as])
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for k, v := range header {
		req.Header.Set(k, v)
	}
	if f.raw != nil && !strings.Contains(body, `"initialize"`) {
		req.Header = facetest.HTTPHeaders(req, req.Header.Get("Authorization"), f.raw)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, raw
}

// Send implements facetest.Sender.
func (f *mcpFace) Send(t *testing.T, look bool, headers ...string) facetest.Answer {
	t.Helper()
	f.raw = headers
	defer func() { f.raw = nil }()
	if look {
		return f.Get(t, "agent", "01900000-0000-7000-8000-00000000dead")
	}
	return f.Call(t, facetest.Ask{As: "agent", Tool: "face.echo", Arguments: `{"text":"hello"}`})
}

// session returns the role's session, started when first needed.
func (f *mcpFace) session(t *testing.T, as, path string) string {
	t.Helper()
	if id, ok := f.sessions[as+path]; ok {
		return id
	}
	_, h, _ := f.send(t, as, path, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+f.version+`","capabilities":{}}}`, nil)
	f.sessions[as+path] = h.Get("Mcp-Session-Id")
	return f.sessions[as+path]
}

// call sends tools/call of either era.
func (f *mcpFace) call(t *testing.T, as, path, name, arguments string, meta map[string]any, header map[string]string) facetest.Answer {
	t.Helper()
	status, raw := f.callRaw(t, as, path, name, arguments, meta, header)
	return answerOf(t, status, raw)
}

func (f *mcpFace) callRaw(t *testing.T, as, path, name, arguments string, meta map[string]any, header map[string]string) (int, []byte) {
	t.Helper()
	if header == nil {
		header = map[string]string{}
	}
	if meta == nil {
		meta = map[string]any{}
	}
	header["Mcp-Protocol-Version"] = f.version
	if mcp.Modern(f.version) {
		meta[mcp.MetaProtocolVersion], meta[mcp.MetaClientCapabilities] = f.version, map[string]any{}
		header["Mcp-Method"], header["Mcp-Name"] = "tools/call", name
	} else if id := f.session(t, as, path); id != "" {
		header["Mcp-Session-Id"] = id
	}
	rawMeta, err := json.Marshal(meta)
	if err != nil {
		t.Fatal(err)
	}
	if arguments != "" {
		arguments = `,"arguments":` + arguments
	}
	status, h, raw := f.send(t, as, path, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q%s,"_meta":%s}}`, name, arguments, rawMeta), header)
	if strings.HasPrefix(h.Get("Content-Type"), "text/event-stream") {
		for line := range strings.SplitSeq(string(raw), "\n") {
			if data, ok := strings.CutPrefix(line, "data: "); ok && data != "" {
				raw = []byte(data)
			}
		}
	}
	return status, raw
}

// told is the content of an error, wherever it is in the answer.
type told struct {
	Code         toolkeep.Code `json:"code"`
	Name         string        `json:"name"`
	Class        string        `json:"class"`
	Retryable    bool          `json:"retryable"`
	RetryAfterS  int           `json:"retry_after_s"`
	InvocationID string        `json:"invocation_id"`
	Details      struct {
		Errors []facetest.Fault `json:"errors"`
	} `json:"details"`
}

func (e told) refused() facetest.Answer {
	return facetest.Answer{Refused: true, Code: e.Code, Name: e.Name, Class: e.Class, Retryable: e.Retryable, Wait: e.RetryAfterS > 0, Faults: e.Details.Errors, ID: e.InvocationID}
}

func decode(t *testing.T, raw []byte, to any) {
	t.Helper()
	if err := json.Unmarshal(raw, to); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
}

func answerOf(t *testing.T, status int, raw []byte) facetest.Answer {
	t.Helper()
	if status >= 400 && bytes.HasPrefix(raw, []byte(`{"type":"urn:`)) { // a problem document
		var e told
		decode(t, raw, &e)
		return e.refused()
	}
	var m struct {
		Result json.RawMessage `json:"result"`
		Error  *struct {
			Code int64 `json:"code"`
			Data told  `json:"data"`
		} `json:"error"`
	}
	decode(t, raw, &m)
	switch {
	case m.Error != nil:
		if m.Error.Data.Code == "" {
			t.Errorf("a JSON-RPC error without a code of the catalogue: %s", raw)
		}
		return m.Error.Data.refused()
	case m.Result == nil:
		t.Fatalf("%d %s", status, raw)
	}
	var r struct {
		Content []struct{ Text string } `json:"content"`
		Object  json.RawMessage         `json:"structuredContent"`
		IsError bool                    `json:"isError"`
		Meta    struct {
			Code     toolkeep.Code `json:"toolkeep/code"`
			ID       string        `json:"toolkeep/invocation_id"`
			Version  string        `json:"toolkeep/tool_version"`
			Status   string        `json:"toolkeep/status"`
			Cached   bool          `json:"toolkeep/cached"`
			Replayed bool          `json:"toolkeep/replayed"`
			Warnings []struct {
				Code toolkeep.Code `json:"code"`
			} `json:"toolkeep/warnings"`
		} `json:"_meta"`
	}
	decode(t, m.Result, &r)
	a := facetest.Answer{State: r.Meta.Status, Version: r.Meta.Version, Cached: r.Meta.Cached, Replayed: r.Meta.Replayed, ID: r.Meta.ID}
	if r.IsError {
		var e told
		decode(t, r.Object, &e)
		if e.Code != r.Meta.Code {
			t.Errorf("two errors in one result: %s", m.Result)
		}
		if a.State == "" {
			return e.refused()
		}
		a.Code, a.Name, a.Class, a.Retryable, a.Wait = e.Code, e.Name, e.Class, e.Retryable, e.RetryAfterS > 0
	} else if a.State == "" {
		a.State, a.Output = "success", r.Content[0].Text
		if r.Object != nil && !bytes.Equal(r.Object, []byte(a.Output)) {
			t.Errorf("the text is not the object: %s", m.Result)
		}
	}
	for _, w := range r.Meta.Warnings {
		a.Warnings = append(a.Warnings, w.Code)
	}
	return a
}

func (f *mcpFace) Call(t *testing.T, a facetest.Ask) facetest.Answer {
	t.Helper()
	meta, header := map[string]any{}, map[string]string{}
	put := func(name string, v any, on bool) {
		if on {
			meta["toolkeep/"+name] = v
		}
	}
	put("idempotency-key", a.Key, a.Key != "")
	put("agent-id", a.Agent, a.Agent != "")
	put("async", true, a.Async)
	put("require-approval", true, a.Approval)
	put("timeout-ms", a.Timeout.Milliseconds(), a.Timeout > 0)
	if a.Token != "" {
		header["X-Capability-Token"] = a.Token
	}
	if a.Signature != "" {
		header["X-Request-Signature"] = a.Signature
	}
	arguments := a.Arguments
	if a.Broken {
		arguments = `{"text":nope}`
	}
	if !f.byID {
		put("version", a.Version, a.Version != "")
		return f.call(t, a.As, f.path, strings.Replace(a.Tool, ".", "__", 1), arguments, meta, header)
	}
	outer := fmt.Sprintf(`{"tool_id":%q`, a.Tool)
	if a.Version != "" {
		outer += fmt.Sprintf(`,"version":%q`, a.Version)
	}
	if arguments != "" {
		outer += `,"arguments":` + arguments
	}
	return f.call(t, a.As, f.path, "call_tool", outer+"}", meta, header)
}

// Context implements facetest.Retriever. Feedback has no tool.
func (f *mcpFace) Context(t *testing.T, a facetest.AskContext) facetest.GotContext {
	t.Helper()
	arguments := map[string]any{}
	if a.Query != "" {
		arguments["query"] = a.Query
	}
	if a.Phase != "" {
		arguments["phase"] = a.Phase
	}
	if a.Budget != 0 {
		arguments["budget_tokens"] = a.Budget
	}
	said := []map[string]any{}
	for _, m := range a.Said {
		one := map[string]any{"role": m[0], "content": m[1]}
		if m[0] == "tool" {
			one["tool_id"], one["error"] = "face.echo", map[string]any{"code": a.Failed}
		}
		said = append(said, one)
	}
	arguments["messages"] = said
	raw, err := json.Marshal(arguments)
	if err != nil {
		t.Fatal(err)
	}
	// The server of the system records searches.
	own, sessions := f.url, f.sessions
	f.url, f.sessions = f.rest, map[string]string{}
	defer func() { f.url, f.sessions = own, sessions }()
	status, answer := f.callRaw(t, a.As, "/mcp/search", "find_tools", string(raw), nil, nil)
	var m struct {
		Result struct {
			IsError bool `json:"isError"`
			Object  struct {
				DetailedTools []struct{ ToolID string }
				Metadata      struct{ Phase string }
			} `json:"structuredContent"`
			Meta map[string]any `json:"_meta"`
		} `json:"result"`
	}
	if status < 400 {
		decode(t, answer, &m)
	}
	r := m.Result
	if status >= 400 || r.IsError {
		return facetest.GotContext{Refused: answerOf(t, status, answer)}
	}
	id, _ := r.Meta["toolkeep/retrieval_id"].(string)
	out := facetest.GotContext{Phase: r.Object.Metadata.Phase, ID: id}
	for _, d := range r.Object.DetailedTools {
		out.Tools = append(out.Tools, d.ToolID)
	}
	return out
}

func (f *mcpFace) get(t *testing.T, as, id string, wait int) facetest.Answer {
	t.Helper()
	a := f.call(t, as, "/mcp/search", "get_invocation", fmt.Sprintf(`{"invocation_id":%q,"wait_s":%d}`, id, wait), nil, nil)
	if a.Refused {
		return a
	}
	var v struct {
		ID       string          `json:"invocation_id"`
		Status   string          `json:"status"`
		Version  string          `json:"tool_version"`
		Result   json.RawMessage `json:"result"`
		Error    *told           `json:"error"`
		Cached   bool            `json:"cached"`
		Warnings []struct {
			Code toolkeep.Code `json:"code"`
		} `json:"warnings"`
	}
	decode(t, []byte(a.Output), &v)
	out := facetest.Answer{State: v.Status, Output: string(v.Result), Version: v.Version, Cached: v.Cached, ID: v.ID}
	if e := v.Error; e != nil {
		out.Code, out.Name, out.Class, out.Retryable, out.Wait = e.Code, e.Name, e.Class, e.Retryable, e.RetryAfterS > 0
	}
	for _, w := range v.Warnings {
		out.Warnings = append(out.Warnings, w.Code)
	}
	return out
}

func (f *mcpFace) Get(t *testing.T, as, id string) facetest.Answer { return f.get(t, as, id, 0) }

// Cancel uses REST: MCP can cancel only a running request.
func (f *mcpFace) Cancel(t *testing.T, as, id string) (bool, facetest.Answer) {
	t.Helper()
	own := f.url
	f.url = f.rest
	defer func() { f.url = own }()
	status, _, raw := f.send(t, as, "/api/v1/invocations/"+id+"/cancel", `{"reason":"a test"}`, nil)
	if status >= 400 {
		var e told
		decode(t, raw, &e)
		return false, e.refused()
	}
	var done struct{ Cancelled bool }
	decode(t, raw, &done)
	return done.Cancelled, facetest.Answer{}
}

func (f *mcpFace) follow(t *testing.T, as, id string) facetest.Answer {
	t.Helper()
	return f.get(t, as, id, 60)
}
