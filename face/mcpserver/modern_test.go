package mcpserver

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
)

func TestModernRequests(t *testing.T) {
	s := newSystem(t)
	s.publish(manifest("demo.echo"))
	s.start()
	a := s.modern("/mcp", "server/discover", "{}", "{}")
	if a.header.Get("Mcp-Session-Id") != "" || !strings.Contains(a.result(t, "supportedVersions"), "2026-07-28") || a.result(t, "resultType") != `"complete"` ||
		a.result(t, "cacheScope") != `"private"` || a.result(t, "ttlMs") != "5000" || a.result(t, "_meta", mcp.MetaServerInfo, "name") != `"toolkeep"` || a.result(t, "capabilities", "logging") != "" {
		t.Errorf("%s", a.body)
	}
	a = s.modern("/mcp", "tools/list", "{}", "{}")
	if a.result(t, "resultType") != `"complete"` || a.result(t, "ttlMs") != "5000" || !strings.Contains(a.result(t, "tools"), "demo__echo") {
		t.Errorf("%s", a.body)
	}
	a = s.modern("/mcp", "tools/call", echoParams, "{}")
	if a.result(t, "resultType") != `"complete"` || a.result(t, "structuredContent") != `{"text":"x"}` || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("%s", a.body)
	}
	// A session id is ignored.
	if a = s.modern("/mcp", "tools/list", "{}", "{}", "Mcp-Session-Id: nonsense"); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, method := range []string{"ping", "initialize", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "nonsense"} {
		s.modern("/mcp", method, "{}", "{}").failure(t, 404, mcp.CodeMethodNotFound)
	}
	s.modern("/mcp", "tools/call", `{"name":"nothing"}`, "{}").failure(t, 400, mcp.CodeInvalidParams)
	s.do("GET", "/mcp", "", "Accept: text/event-stream", "Mcp-Session-Id: x", "Mcp-Protocol-Version: 2026-07-28").problem(t, 405, toolkeep.MalformedRequest)
}

func TestModernHeadersAndMeta(t *testing.T) {
	s := newSystem(t)
	s.publish(manifest("demo.echo"), strings.Replace(manifest("demo.marked"), `"text":{"type":"string"}`, `"text":{"type":"string","x-mcp-header":"Text"}`, 1))
	s.start()
	body, good := modern("tools/call", echoParams, "{}")
	change := func(from, to string) string { return strings.Replace(body, from, to, 1) }
	for name, c := range map[string]struct {
		body    string
		headers []string
		code    int64
	}{
		"no version header":     {body, append(slices.Clone(good), "Mcp-Protocol-Version: "), mcp.CodeHeaderMismatch},
		"another version":       {body, append(slices.Clone(good), "Mcp-Protocol-Version: 2027-01-01"), mcp.CodeHeaderMismatch},
		"no method header":      {body, append(slices.Clone(good), "Mcp-Method: "), mcp.CodeHeaderMismatch},
		"another method":        {body, append(slices.Clone(good), "Mcp-Method: tools/list"), mcp.CodeHeaderMismatch},
		"no name header":        {body, append(slices.Clone(good), "Mcp-Name: "), mcp.CodeHeaderMismatch},
		"another name":          {body, append(slices.Clone(good), "Mcp-Name: x"), mcp.CodeHeaderMismatch},
		"no version in meta":    {change("io.modelcontextprotocol/protocolVersion", "x"), good, mcp.CodeInvalidParams},
		"no capabilities":       {change("io.modelcontextprotocol/clientCapabilities", "x"), good, mcp.CodeInvalidParams},
		"client info is a text": {change(`{"name":"test","version":"1"}`, `"test"`), good, mcp.CodeInvalidParams},
		"a batch":               {"[" + body + "]", good, mcp.CodeInvalidRequest},
		"an answer":             {`{"jsonrpc":"2.0","id":1,"result":{}}`, good, mcp.CodeInvalidRequest},
	} {
		t.Run(name, func(t *testing.T) { s.post("/mcp", c.body, c.headers...).failure(t, 400, c.code) })
	}
	future := strings.ReplaceAll(body, "2026-07-28", "2027-01-01")
	e := s.post("/mcp", future, append(slices.Clone(good), "Mcp-Protocol-Version: 2027-01-01")...).failure(t, 400, mcp.CodeUnsupportedVersion)
	if mcp.Text(e.Data, "requested") != "2027-01-01" || !strings.Contains(string(mcp.Get(e.Data, "supported")), "2026-07-28") {
		t.Errorf("%s", e.Data)
	}
	if a := s.post("/mcp", `{"jsonrpc":"2.0","method":"notifications/cancelled"}`, good...); a.status != 202 {
		t.Error(a.status)
	}
	marked := strings.Replace(echoParams, "echo", "marked", 1)
	s.modern("/mcp", "tools/call", marked, "{}").failure(t, 400, mcp.CodeHeaderMismatch)
	s.modern("/mcp", "tools/call", marked, "{}", "Mcp-Param-Text: y").failure(t, 400, mcp.CodeHeaderMismatch)
	if a := s.modern("/mcp", "tools/call", marked, "{}", "Mcp-Param-Text: =?base64?eA==?="); a.status != 200 {
		t.Errorf("%s", a.body)
	}
}

func TestModernProgressAndDisconnect(t *testing.T) {
	g := newGate()
	s := newSystem(t)
	s.Invoker = g
	s.publish(manifest("demo.echo"))
	s.start()
	for _, caps := range []string{"{}", `{"elicitation":{}}`} {
		body, h := modern("tools/call", `{"name":"demo__echo","arguments":{"text":"x"}}`, caps)
		body = strings.Replace(body, `"_meta":{`, `"_meta":{"progressToken":3,`, 1)
		rd, stop := s.events("POST", "/mcp", body, h...)
		e, err := rd.Next()
		if err != nil || e.ID != "" || !strings.Contains(string(e.Data), `"progressToken":3`) {
			t.Fatalf("%+v %v", e, err)
		}
		<-g.started
		stop()
		if err := <-g.ended; err == nil {
			t.Error("the call outlives its connection")
		}
	}
}

func TestListen(t *testing.T) {
	s := newSystem(t)
	s.Limits.listDelay = time.Millisecond
	s.publish(manifest("demo.echo"))
	s.start()
	body, h := modern("subscriptions/listen", `{"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourceSubscriptions":["a:b"]}}`, "{}")
	rd, _ := s.events("POST", "/mcp", body, h...)
	m, _ := next(t, rd)
	if m.Method != mcp.NotificationSubscriptionsAck || string(mcp.Get(m.Params, "notifications")) != `{"toolsListChanged":true}` || string(mcp.Get(m.Params, "_meta", mcp.MetaSubscriptionID)) != "7" {
		t.Fatalf("%s", m.Bytes())
	}
	s.publish(manifest("demo.more"))
	if m, _ = next(t, rd); m.Method != mcp.NotificationToolsChanged || string(mcp.Get(m.Params, "_meta", mcp.MetaSubscriptionID)) != "7" {
		t.Fatalf("%s", m.Bytes())
	}
	s.server.Drain()
	if m, _ = next(t, rd); string(m.ID) != "7" || string(mcp.Get(m.Result, "resultType")) != `"complete"` {
		t.Errorf("%s", m.Bytes())
	}
	if _, err := rd.Next(); err != io.EOF {
		t.Error(err)
	}
	s.modern("/mcp", "subscriptions/listen", `{"notifications":{}}`, "{}").failure(t, 200, mcp.CodeInternal) // the server is draining
	s.modern("/mcp", "subscriptions/listen", `{}`, "{}").failure(t, 400, mcp.CodeInvalidParams)
	s.modern("/mcp", "subscriptions/listen", `{"notifications":{}}`, "{}", "Accept: application/json").problem(t, 406, toolkeep.MalformedRequest)
}

func TestOfficialClientHearsOfChanges(t *testing.T) {
	s := newSystem(t)
	s.Limits.listDelay = time.Millisecond
	s.publish(manifest("demo.echo"))
	s.start()
	for i, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			heard := make(chan struct{}, 10)
			cs := sdkClient(t, s, "/mcp/all", &sdk.ClientOptions{
				ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) { heard <- struct{}{} },
			}, version)
			if _, err := cs.ListTools(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			until(t, "the client's stream", func() bool {
				if version == "2026-07-28" {
					return !s.server.listens.none()
				}
				s.server.mu.Lock()
				defer s.server.mu.Unlock()
				for _, ses := range s.server.sessions {
					ses.own.mu.Lock()
					defer ses.own.mu.Unlock()
					return ses.own.reader != nil
				}
				return false
			})
			s.publish(manifest("demo.more" + string(rune('a'+i))))
			select {
			case <-heard:
			case <-time.After(time.Minute):
				t.Error("nothing was heard")
			}
		})
	}
}
