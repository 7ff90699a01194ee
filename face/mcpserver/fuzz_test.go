package mcpserver

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep/mcp"
)

// FuzzPost: every POST gets an answer: a JSON-RPC message that parses, an accepted notification, or
// a problem document. Nothing panics.
func FuzzPost(f *testing.F) {
	modernBody, _ := modern("tools/call", echoParams, `{"elicitation":{}}`)
	for _, seed := range []string{
		callEcho, slowCall, modernBody, listCall,
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`,
		`[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}]`,
		own("", "find_tools", `{"query":"echo","limit":"3"}`), own("", "call_tool", `{"tool_id":"demo.echo","arguments":{"a":[1e400]},"version":"^1"}`),
		own("", "describe_tool", `{"tool_id":"demo__echo"}`), own("", "get_invocation", `{"invocation_id":"x"}`),
		`{"jsonrpc":"2.0","id":"\ud800","method":"tools/list","params":{"cursor":"MWE"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"a__b"},"argument":{"name":"x"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"toolkeep+a:b"}}`,
		strings.Replace(callEcho, `"arguments"`, `"requestState":"AAAA","inputResponses":{},"arguments"`, 1),
	} {
		f.Add("auto", "", seed)
		f.Add("search", "2026-07-28", seed)
		f.Add("all", "2025-11-25", seed)
	}
	s := newSystem(f)
	s.publish(manifest("demo.echo"), mcpManifest("files", "read", ""))
	s.server = s.face()
	f.Cleanup(s.server.Close)
	f.Fuzz(func(t *testing.T, view, version, body string) {
		r := httptest.NewRequest("POST", "/mcp", strings.NewReader(body))
		r.URL.Path = "/mcp/" + view
		r.Host = "localhost"
		r.Header = http.Header{"Authorization": {"Bearer alice"}, "Content-Type": {"application/json"}, "Accept": {"application/json"}}
		if version != "" {
			r.Header.Set("Mcp-Protocol-Version", version)
		}
		if m, err := mcp.Parse([]byte(body), canonLimits); err == nil && mcp.Modern(version) {
			mcp.SetHeaders(r.Header, m, nil)
		}
		w := httptest.NewRecorder()
		s.server.ServeHTTP(w, r)
		ct := w.Header().Get("Content-Type")
		switch {
		case w.Code == http.StatusAccepted && w.Body.Len() == 0:
		case ct == "application/problem+json" && w.Code >= 400 && w.Code < 500:
		case ct == "application/json":
			list, _, err := mcp.ParseBatch(w.Body.Bytes(), canonLimits)
			if err != nil {
				t.Fatalf("%v in %s", err, w.Body)
			}
			for _, m := range list {
				if !m.IsResponse() || m.Err != nil && m.Err.Code == mcp.CodeInternal && strings.Contains(m.Err.Message, "internal error") {
					t.Fatalf("%s", w.Body)
				}
			}
		default:
			t.Fatalf("%d %s %s", w.Code, ct, w.Body)
		}
	})
}
