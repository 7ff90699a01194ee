package mcpserver

import (
	"context"
	"fmt"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/signing"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/mcp"
)

var canonLimits = canon.Limits{}

const callEcho = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"demo__echo","arguments":{"text":"hi","n":9007199254740993}}}`

func TestInitializeNegotiates(t *testing.T) {
	s := newSystem(t).start()
	for asked, want := range map[string]string{
		"2024-11-05": "2024-11-05", "2025-03-26": "2025-03-26", "2025-06-18": "2025-06-18", "2025-11-25": "2025-11-25",
		"2026-07-28": "2025-11-25", "1999-01-01": "2025-11-25",
	} {
		a := s.post("/mcp", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+asked+`","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}`)
		if got := a.result(t, "protocolVersion"); got != `"`+want+`"` || len(a.header.Get("Mcp-Session-Id")) != 12+1+43 {
			t.Errorf("%s: %s %v", asked, a.body, a.header)
		}
		if a.result(t, "serverInfo", "version") != `"1.2.3"` || a.result(t, "capabilities", "tools", "listChanged") != "true" || a.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s", a.body)
		}
	}
}

func TestSessionsBelongToTheirPrincipalAndView(t *testing.T) {
	s := newSystem(t)
	s.publish(manifest("demo.echo"))
	s.start()
	h := s.session("/mcp", "2025-11-25", "{}")
	if a := s.post("/mcp", callEcho, h...); !strings.Contains(a.result(t, "structuredContent"), "9007199254740993") {
		t.Errorf("%s", a.body)
	}
	if a := s.post("/mcp/", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, h...); a.status != 202 || a.body != "" {
		t.Errorf("%d %s", a.status, a.body)
	}
	s.post("/mcp", callEcho, append(h, "Authorization: Bearer bob")...).problem(t, 404, toolkeep.ResourceNotFound)
	s.post("/mcp", callEcho, append(h, "Authorization: Bearer eve")...).problem(t, 404, toolkeep.ResourceNotFound)
	s.post("/mcp/search", callEcho, h...).problem(t, 404, toolkeep.ResourceNotFound)
	s.post("/mcp", callEcho, "Mcp-Session-Id: unknown").problem(t, 404, toolkeep.ResourceNotFound)
	s.do("GET", "/mcp", "", append(h, "Accept: text/event-stream", "Authorization: Bearer bob")...).problem(t, 404, toolkeep.ResourceNotFound)
	s.do("DELETE", "/mcp", "", append(h, "Authorization: Bearer bob")...).problem(t, 404, toolkeep.ResourceNotFound)
	if a := s.do("DELETE", "/mcp", "", h...); a.status != 204 {
		t.Errorf("%d %s", a.status, a.body)
	}
	s.post("/mcp", callEcho, h...).problem(t, 404, toolkeep.ResourceNotFound)
	s.do("DELETE", "/mcp", "").problem(t, 405, toolkeep.MalformedRequest)
	s.do("GET", "/mcp", "", "Accept: text/event-stream").problem(t, 405, toolkeep.MalformedRequest)
	s.do("PUT", "/mcp", "{}").problem(t, 405, toolkeep.MalformedRequest)
	if log := s.log.String(); strings.Contains(log, strings.TrimPrefix(h[0], "Mcp-Session-Id: ")) {
		t.Error("the log holds a session id")
	}
}

func TestWithoutASession(t *testing.T) {
	s := newSystem(t)
	s.publish(manifest("demo.echo"))
	s.start()
	if a := s.post("/mcp", callEcho); a.result(t, "content") != `[{"type":"text","text":"{\"text\":\"hi\",\"n\":9007199254740993}"}]` {
		t.Errorf("%s", a.body)
	}
	if a := s.post("/mcp", `{"jsonrpc":"2.0","id":"p","method":"ping"}`); a.body != `{"jsonrpc":"2.0","id":"p","result":{}}` {
		t.Errorf("%s", a.body)
	}
}

func TestWhatIsRefusedBeforeAnythingRuns(t *testing.T) {
	s := newSystem(t)
	s.Invoker = fakeInvoker(func(context.Context, *toolkeep.Principal, *toolkeep.Call) (*toolkeep.Result, error) {
		t.Error("something was invoked")
		return nil, nil
	})
	s.publish(manifest("demo.echo"))
	s.front.Limits.BodyBytes = 2000
	s.front.Challenge = func(path string, err error, sent bool) string {
		return fmt.Sprint("Bearer ", path, " ", toolkeep.AsError(err).Code, " ", sent)
	}
	s.start()
	a := s.post("/mcp", callEcho, "Authorization: ")
	a.problem(t, 401, toolkeep.Unauthenticated)
	if got := a.header.Get("WWW-Authenticate"); got != "Bearer /mcp E3214 false" {
		t.Error(got)
	}
	s.post("/mcp", callEcho, "Authorization: Basic YTpi").problem(t, 401, toolkeep.Unauthenticated)
	s.post("/mcp/nowhere", callEcho).problem(t, 404, toolkeep.ResourceNotFound)
	s.post("/mcp/sets/x", callEcho).problem(t, 404, toolkeep.ResourceNotFound)
	s.post("/mcp/servers/x", callEcho).problem(t, 404, toolkeep.ResourceNotFound)
	s.post("/mcp", callEcho, "Host: evil.example").problem(t, 403, toolkeep.PermissionDenied)
	s.post("/mcp", callEcho, "Origin: https://evil.example").problem(t, 403, toolkeep.PermissionDenied)
	s.post("/mcp", callEcho, "Content-Type: text/plain").problem(t, 415, toolkeep.MalformedRequest)
	s.post("/mcp", callEcho, "Content-Encoding: gzip").problem(t, 415, toolkeep.MalformedRequest)
	s.post("/mcp", callEcho, "Accept: text/html").problem(t, 406, toolkeep.MalformedRequest)
	s.post("/mcp", callEcho+strings.Repeat(" ", 2000)).problem(t, 413, toolkeep.RequestTooLarge)
	for _, version := range []string{"2025-01-01", "invalid"} {
		e := s.post("/mcp", callEcho, "Mcp-Protocol-Version: "+version).failure(t, 400, mcp.CodeUnsupportedVersion)
		if mcp.Text(e.Data, "requested") != version {
			t.Errorf("%s", e.Data)
		}
	}
	for body, want := range map[string]struct {
		code int64
		in   string
	}{
		`{"jsonrpc":"2.0","id":1,`: {mcp.CodeParse, `"code":"E3312"`},
		"{\"jsonrpc\":\"\xff\"}":   {mcp.CodeParse, `"code":"E3311"`},
		`{"id":1,"method":"ping"}`: {mcp.CodeInvalidRequest, `"code":"E3312"`},
		`[]`:                       {mcp.CodeInvalidRequest, `"code":"E3312"`},
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"demo__echo","arguments":{"a":1,"a":2}}}`: {mcp.CodeInvalidRequest, `"code":"E3311"`},
	} {
		if e := s.post("/mcp", body).failure(t, 400, want.code); !strings.Contains(string(e.Data), want.in) {
			t.Errorf("%s: %s", body, e.Data)
		}
	}
	h := s.session("/mcp", "2025-06-18", "{}")
	s.post("/mcp", `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, h...).failure(t, 400, mcp.CodeInvalidRequest)
	s.post("/mcp", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`, h...).failure(t, 400, mcp.CodeInvalidRequest)
	s.post("/mcp", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`).failure(t, 400, mcp.CodeInvalidParams)
	s.post("/mcp", `{"jsonrpc":"2.0","id":1,"method":"nonsense"}`, h...).failure(t, 200, mcp.CodeMethodNotFound)
	s.post("/mcp", `{"jsonrpc":"2.0","id":1,"method":"server/discover"}`, h...).failure(t, 200, mcp.CodeMethodNotFound)
	s.post("/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`, h...).failure(t, 200, mcp.CodeInvalidParams)
	e := s.post("/mcp", strings.Replace(callEcho, "demo__echo", "demo__nothing", 1), h...).failure(t, 200, mcp.CodeInvalidParams)
	if !strings.Contains(string(e.Data), `"code":"E3001"`) {
		t.Errorf("%s", e.Data)
	}
	s.post("/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"!"}}`, h...).failure(t, 200, mcp.CodeInvalidParams)
}

func TestBatches(t *testing.T) {
	s := newSystem(t)
	s.publish(manifest("demo.echo"))
	s.start()
	h := s.session("/mcp", "2025-03-26", "{}")
	a := s.post("/mcp", `[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/initialized"},`+strings.Replace(callEcho, `"id":1`, `"id":2`, 1)+`]`, h...)
	if !strings.HasPrefix(a.body, "[") || strings.Count(a.body, `"result"`) != 2 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := s.post("/mcp", `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, h...); a.body != `[{"jsonrpc":"2.0","id":1,"result":{}}]` {
		t.Errorf("%s", a.body)
	}
	a = s.post("/mcp", `[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}]`, append(h, "Accept: text/event-stream")...)
	if strings.Count(a.body, "data: {") != 2 {
		t.Errorf("%s", a.body)
	}
}

// TestBatchOfCallsByID: the requests of a batch run beside each other, and a call by id changes none of them.
func TestBatchOfCallsByID(t *testing.T) {
	s := newSystem(t)
	s.publish(manifest("demo.echo"))
	s.start()
	h := s.session("/mcp/search", "2025-03-26", "{}")
	one := `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"call_tool","arguments":{"tool_id":"demo.echo","arguments":{"text":"hi"}}}}`
	var batch []string
	for id := range 8 {
		batch = append(batch, fmt.Sprintf(one, id))
	}
	a := s.post("/mcp/search", "["+strings.Join(batch, ",")+"]", h...)
	if a.status != 200 || strings.Count(a.body, `"content"`) != len(batch) || strings.Contains(a.body, `"isError":true`) {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestBrowsersOfAllowedOrigins(t *testing.T) {
	s := newSystem(t)
	s.publish(manifest("demo.echo"))
	s.front.Pages = []gate.Pages{{Path: "/mcp", Origins: []string{"https://app.example"}, Allow: AllowPage}}
	s.start()
	a := s.do("OPTIONS", "/mcp", "", "Origin: https://app.example", "Authorization: ", "Access-Control-Request-Headers: authorization, mcp-param-city")
	if a.status != 204 || !strings.HasSuffix(a.header.Get("Access-Control-Allow-Headers"), ", mcp-param-city") || a.header.Get("Access-Control-Allow-Origin") != "https://app.example" || !strings.Contains(a.header.Get("Access-Control-Allow-Headers"), "Mcp-Session-Id") {
		t.Errorf("%d %v", a.status, a.header)
	}
	for _, name := range []string{signing.HeaderSignature, signing.HeaderTimestamp, signing.HeaderNonce, signing.HeaderDigest} {
		if !strings.Contains(strings.ToLower(a.header.Get("Access-Control-Allow-Headers")), strings.ToLower(name)) {
			t.Errorf("a page may not send %s", name)
		}
	}
	if a := s.post("/mcp", callEcho, "Origin: https://app.example"); a.status != 200 || a.header.Get("Access-Control-Expose-Headers") == "" {
		t.Errorf("%d %v", a.status, a.header)
	}
	if a := s.post("/mcp", callEcho, "Origin: "+s.url); a.status != 200 || a.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("%d %v", a.status, a.header)
	}
	s.do("OPTIONS", "/mcp", "", "Origin: https://other.example").problem(t, 403, toolkeep.PermissionDenied)
}

func sdkClient(t *testing.T, s *system, path string, o *sdk.ClientOptions, version string) *sdk.ClientSession {
	t.Helper()
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, o)
	so := &sdk.ClientSessionOptions{}
	if version != "" {
		so.ProtocolVersion = version
	}
	cs, err := c.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: s.url + path, HTTPClient: bearer("alice")}, so)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cs.Close() })
	return cs
}

func TestOfficialClientBothEras(t *testing.T) {
	s := newSystem(t)
	s.publish(manifest("demo.echo"), manifest("demo.other"))
	s.start()
	for _, version := range []string{"2025-06-18", "2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			cs := sdkClient(t, s, "/mcp/all", nil, version)
			if got := cs.InitializeResult().ProtocolVersion; got != version {
				t.Errorf("negotiated %s", got)
			}
			list, err := cs.ListTools(t.Context(), nil)
			if err != nil || len(list.Tools) != 2 || list.Tools[0].Name != "demo__echo" || !list.Tools[0].Annotations.ReadOnlyHint {
				t.Fatalf("%v %v", list, err)
			}
			res, err := cs.CallTool(t.Context(), &sdk.CallToolParams{Name: "demo__echo", Arguments: map[string]any{"text": "hi"}})
			if err != nil || res.IsError || res.Content[0].(*sdk.TextContent).Text != `{"text":"hi"}` {
				t.Fatalf("%v %v", res, err)
			}
			if _, err := cs.CallTool(t.Context(), &sdk.CallToolParams{Name: "nothing", Arguments: map[string]any{}}); err == nil || !strings.Contains(err.Error(), "no tool") {
				t.Error(err)
			}
		})
	}
}
