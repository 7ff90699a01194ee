package mcpserver

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
)

// answering returns an invoker that always gives the same answer.
func answering(r *toolkeep.Result, err error) fakeInvoker {
	return func(context.Context, *toolkeep.Principal, *toolkeep.Call) (*toolkeep.Result, error) { return r, err }
}

func TestResultsOfCalls(t *testing.T) {
	s := newSystem(t)
	s.publish(manifest("demo.echo"), manifest("demo.typed", `,"result_schema":{"type":"object"}`), mcpManifest("files", "read", ""))
	s.start()
	done := func(output string) *toolkeep.Result {
		return &toolkeep.Result{InvocationID: "i", ToolVersion: "1.0.0", State: toolkeep.CallSucceeded, Output: []byte(output)}
	}
	with := func(r *toolkeep.Result, f func(*toolkeep.Result)) *toolkeep.Result { f(r); return r }
	upstream := toolkeep.NewError(toolkeep.MCPError, "no such file").
		With("content", []any{map[string]any{"type": "text", "text": "no such file"}}).With("structured_content", map[string]any{"n": "1"}).With("tool", "read")
	limited := toolkeep.NewError(toolkeep.RateLimitExceeded, "too many").After(1500 * time.Millisecond)
	limited.InvocationID = "refused-7"
	const begun = `"_meta":{"toolkeep/invocation_id":"i","toolkeep/tool_version":"1.0.0"`
	const receipt = begun + `,"toolkeep/source":"executed"`
	for name, c := range map[string]struct {
		tool string
		res  *toolkeep.Result
		err  error
		want string
	}{
		"an object": {"demo__echo", done(`{"n":9007199254740993}`), nil, `{"content":[{"type":"text","text":"{\"n\":9007199254740993}"}],"structuredContent":{"n":9007199254740993},` + receipt + `}}`},
		"a string":  {"demo__echo", done(`"a \u00e9 \"b\""`), nil, `{"content":[{"type":"text","text":"a \u00e9 \"b\""}],` + receipt + `}}`},
		"a list":    {"demo__echo", done(`[1,"a"]`), nil, `{"content":[{"type":"text","text":"[1,\"a\"]"}],` + receipt + `}}`},
		"null":      {"demo__echo", done(`null`), nil, `{"content":[{"type":"text","text":"null"}],` + receipt + `}}`},
		"nothing":   {"demo__echo", done(``), nil, `{"content":[{"type":"text","text":"null"}],` + receipt + `}}`},
		"warned, kept": {"demo__echo", with(done(`1`), func(r *toolkeep.Result) {
			r.Cached, r.Replayed, r.Age, r.Attempts, r.CostUSD = true, true, 1500*time.Millisecond, 3, 0.25
			r.Fallback = &toolkeep.Fallback{Tool: "demo.other", Version: "2.0.0", InvocationID: "j", Reason: "E3520"}
			r.Warnings = []toolkeep.Warning{{Code: "E3006", Message: "old"}}
		}), nil, `{"content":[{"type":"text","text":"1"}],` + begun + `,"toolkeep/source":"replay","toolkeep/cached":true,"toolkeep/cache_age_s":1.500,"toolkeep/replayed":true,"toolkeep/retry_count":2,"toolkeep/cost_usd":0.25,"toolkeep/fallback":{"tool_id":"demo.other","tool_version":"2.0.0","invocation_id":"j","reason":"E3520"},"toolkeep/warnings":[{"code":"E3006","message":"old"}]}}`},
		"an attachment": {"demo__echo", with(done(`"cut"`), func(r *toolkeep.Result) {
			r.Truncated = true
			r.Attachments = []toolkeep.Attachment{{Kind: "blob", URL: "/api/v1/blobs/b", ContentType: "text/plain", Bytes: 5, SHA256: "2cf2"}}
		}), nil, `{"content":[{"type":"text","text":"cut"},{"type":"resource_link","uri":"URL/api/v1/blobs/b","name":"the whole blob","mimeType":"text/plain","size":5,"_meta":{"toolkeep/sha256":"2cf2"}},{"type":"text","text":"The whole is at URL/api/v1/blobs/b; fetch it with the same credentials."},{"type":"text","text":"The result was longer than the tool allows and is cut."}],` + receipt + `,"toolkeep/truncated":true}}`},
		"of an upstream":  {"files__read", done(`{"content":[{"type":"resource_link","uri":"file:///a","name":"a"},{"type":"resource_link","uri":"https://x.example/","name":"b"},{"type":"resource","resource":{"uri":"file:///b","text":"x"}}],"structuredContent":[1],"_meta":{"a/b":1,"toolkeep/code":"forged"}}`), nil, `{"content":[{"type":"resource_link","uri":"toolkeep+files:file:///a","name":"a"},{"type":"resource_link","uri":"https://x.example/","name":"b"},{"type":"resource","resource":{"uri":"toolkeep+files:file:///b","text":"x"}}],"structuredContent":[1],"_meta":{"a/b":1,"toolkeep/invocation_id":"i","toolkeep/tool_version":"1.0.0","toolkeep/source":"executed"}}`},
		"empty content":   {"files__read", done(`{"content":[]}`), nil, `{"content":[],` + receipt + `}}`},
		"cut upstream":    {"files__read", done(`{"truncated_preview":"{"}`), nil, `{"content":[{"type":"text","text":"{\"truncated_preview\":\"{\"}"}],"structuredContent":{"truncated_preview":"{"},` + receipt + `}}`},
		"a refusal":       {"demo__echo", nil, limited, `{"content":[{"type":"text","text":"E3801 rate_limit_exceeded: too many (try again after 2s)"}],"isError":true,"structuredContent":{"code":"E3801","name":"rate_limit_exceeded","class":"RATE_LIMIT","retryable":true,"retry_after_s":2,"invocation_id":"refused-7","message":"too many"},"_meta":{"toolkeep/code":"E3801","toolkeep/name":"rate_limit_exceeded","toolkeep/class":"RATE_LIMIT","toolkeep/retryable":true,"toolkeep/retry_after_s":2,"toolkeep/invocation_id":"refused-7"}}`},
		"a typed refusal": {"demo__typed", nil, limited, `{"content":[{"type":"text","text":"E3801 rate_limit_exceeded: too many (try again after 2s)"}],"isError":true,"_meta":{"toolkeep/code":"E3801","toolkeep/name":"rate_limit_exceeded","toolkeep/class":"RATE_LIMIT","toolkeep/retryable":true,"toolkeep/retry_after_s":2,"toolkeep/invocation_id":"refused-7"}}`},
		"an HTTP upstream's words, of a typed tool": {"demo__typed", with(done(""), func(r *toolkeep.Result) {
			r.State, r.Output = toolkeep.CallFailed, nil
			r.Error = toolkeep.NewError(toolkeep.UpstreamClientError, "HTTP 409").With("body", "the seat is taken")
		}), nil, `"text":"E3510 upstream_client_error: HTTP 409\nThe upstream said: the seat is taken\nThe same call`},
		"faults of the arguments": {"demo__typed", nil, toolkeep.FaultsError(toolkeep.InputValidationFailed, "two places", []toolkeep.Fault{{Pointer: "/a", Message: "must be a number"}, {Pointer: "/b", Message: "is missing"}}),
			`"text":"E3310 input_validation_failed: two places\n- at /a: must be a number\n- at /b: is missing\nCorrect this and call again."`},
		"upstream's error": {"files__read", with(done(""), func(r *toolkeep.Result) { r.State, r.Output, r.Error = toolkeep.CallFailed, nil, upstream }), nil, `{"content":[{"text":"no such file","type":"text"},{"type":"text","text":"E3540 mcp_error: the tool reports this error\nThe same call will probably fail again: change the arguments, or use another tool."}],"isError":true,"structuredContent":{"code":"E3540","name":"mcp_error","class":"PROVIDER_ERROR","retryable":false,"invocation_id":"i","message":"no such file","details":{"tool":"read"}},"_meta":{"toolkeep/code":"E3540","toolkeep/name":"mcp_error","toolkeep/class":"PROVIDER_ERROR","toolkeep/retryable":false,"toolkeep/invocation_id":"i","toolkeep/details":{"tool":"read"},"toolkeep/status":"error","toolkeep/tool_version":"1.0.0","toolkeep/source":"executed"}}`},
		"a tool's error from the cache": {"demo__typed", with(done(""), func(r *toolkeep.Result) {
			r.State, r.Output, r.Cached, r.Age, r.Attempts, r.CostUSD = toolkeep.CallFailed, nil, true, 2*time.Second, 2, 1e-7
			r.Fallback = &toolkeep.Fallback{Tool: "demo.other", Version: "2.0.0", InvocationID: "j", Reason: "E3520"}
			r.Error = toolkeep.NewError(toolkeep.UpstreamClientError, "HTTP 409")
		}), nil, `"toolkeep/tool_version":"1.0.0","toolkeep/source":"cache","toolkeep/cached":true,"toolkeep/cache_age_s":2.000,"toolkeep/retry_count":1,"toolkeep/cost_usd":0.0000001,"toolkeep/fallback":{"tool_id":"demo.other"`},
		"a warning's code is never shown": {"demo__echo", nil, toolkeep.NewError(toolkeep.CacheCorrupt, "inside"), `E3999`},
		"waiting":                         {"demo__echo", with(done(""), func(r *toolkeep.Result) { r.State, r.Output = toolkeep.CallQueued, nil }), nil, `{"content":[{"type":"text","text":"The call is pending as invocation i. Its result: call the tool get_invocation with this invocation_id, or GET /api/v1/invocations/i."}],"structuredContent":{"invocation_id":"i","status":"pending","state":"queued"},"_meta":{"toolkeep/status":"pending",` + begun[len(`"_meta":{`):] + `}}`},
	} {
		t.Run(name, func(t *testing.T) {
			s.server.c.Invoker = answering(c.res, c.err)
			a := s.post("/mcp", own("", c.tool, `{"text":"a"}`), "Mcp-Protocol-Version: 2025-06-18")
			got := strings.ReplaceAll(a.result(t), s.url, "URL")
			if !strings.HasPrefix(c.want, "{") {
				if !strings.Contains(got, c.want) {
					t.Errorf("%s", got)
				}
				return
			}
			if got != c.want {
				t.Errorf("\ngot  %s\nwant %s", got, c.want)
			}
			s.modern("/mcp", "tools/call", `{"name":"`+c.tool+`","arguments":{}}`, "{}").result(t, "resultType")
		})
	}
	// Clients before 2025-06-18 do not support links.
	s.server.c.Invoker = answering(with(done(`"cut"`), func(r *toolkeep.Result) { r.Attachments = []toolkeep.Attachment{{Kind: "blob", URL: "/b"}} }), nil)
	if a := s.post("/mcp", callEcho, s.session("/mcp", "2024-11-05", "{}")...); strings.Contains(a.body, "resource_link") || !strings.Contains(a.body, "/b; fetch") {
		t.Errorf("%s", a.body)
	}
}

func TestWhatACallCarries(t *testing.T) {
	s := newSystem(t)
	var got toolkeep.Call
	s.Invoker = fakeInvoker(func(ctx context.Context, p *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Result, error) {
		got = *c
		return echo(ctx, p, c)
	})
	s.publish(manifest("demo.echo"))
	s.start()
	h := s.session("/mcp", "2025-11-25", "{}")
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	meta := `{"toolkeep/idempotency-key":"k","toolkeep/async":true,"toolkeep/version":"^1","toolkeep/timeout-ms":1500,"toolkeep/priority":"high","toolkeep/require-approval":true,
		"toolkeep/skip-cache":true,"toolkeep/agent-id":"alice","toolkeep/plan-id":"p","toolkeep/task-id":"t","toolkeep/parent-invocation-id":"up","traceparent":"` + trace + `","other/key":1}`
	s.post("/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"demo__echo","arguments":{"text":"a"},"_meta":`+meta+`}}`, append(h, "X-User-ID: user")...)
	if got.Session == "" || strings.Contains(h[0], got.Session) {
		t.Errorf("session %q of %s", got.Session, h[0])
	}
	got.Session = ""
	want := toolkeep.Call{Tool: "demo.echo", Range: "^1", Arguments: got.Arguments, Key: "k", Timeout: 1500 * time.Millisecond, Async: true, Priority: toolkeep.High, RequireApproval: true,
		SkipCache: true, Plan: "p", Task: "t", Subject: "alice", User: "user", Parent: "up", Traceparent: trace, Face: "mcp"}
	if string(got.Arguments) != `{"text":"a"}` || got.Caller != nil || !sameCall(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for meta, code := range map[string]string{
		`{"toolkeep/asinc":true}`:         "E3312",
		`{"toolkeep/async":"yes"}`:        "E3312",
		`{"toolkeep/version":1}`:          "E3312",
		`{"toolkeep/timeout-ms":0}`:       "E3312",
		`{"toolkeep/idempotency-key":[]}`: "E3312",
	} {
		a := s.post("/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"demo__echo","_meta":`+meta+`}}`)
		if a.result(t, "structuredContent", "code") != `"`+code+`"` || a.result(t, "structuredContent", "invocation_id") != `"refused-1"` {
			t.Errorf("%s: %s", meta, a.body)
		}
	}
	s.post("/mcp", callEcho, "X-Capability-Token: a.b.c")
	if got.Token != "a.b.c" {
		t.Errorf("the token of the header is %q", string(got.Token))
	}
	s.post("/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"demo__echo","_meta":{"toolkeep/capability-token":"d.e.f"}}}`)
	if got.Token != "d.e.f" {
		t.Errorf("the token of _meta is %q", string(got.Token))
	}
	differ := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"demo__echo","_meta":{"toolkeep/capability-token":"d.e.f"}}}`
	if a := s.post("/mcp", differ, "X-Capability-Token: a.b.c"); a.result(t, "structuredContent", "code") != `"E3301"` {
		t.Errorf("two tokens that differ: %s", a.body)
	}
	for header, code := range map[string]string{"X-Request-Signature: ab": "E3404"} {
		if a := s.post("/mcp", callEcho, header); a.result(t, "structuredContent", "code") != `"`+code+`"` {
			t.Errorf("%s: %s", header, a.body)
		}
	}
	s.post("/mcp", callEcho, "Idempotency-Key: h", "Traceparent: "+trace)
	if got.Key != "h" || got.Traceparent != trace {
		t.Errorf("%+v", got)
	}
	a := s.post("/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"demo__echo","_meta":{"toolkeep/idempotency-key":"k"}}}`, "Idempotency-Key: h")
	if a.result(t, "structuredContent", "code") != `"E3301"` {
		t.Errorf("%s", a.body)
	}
}

func sameCall(a, b toolkeep.Call) bool {
	a.Arguments, b.Arguments = nil, nil
	return a.Tool == b.Tool && a.Range == b.Range && a.Key == b.Key && a.Timeout == b.Timeout && a.Async == b.Async && a.Priority == b.Priority &&
		a.RequireApproval == b.RequireApproval && a.SkipCache == b.SkipCache && a.Plan == b.Plan && a.Task == b.Task && a.Subject == b.Subject &&
		a.User == b.User && a.Parent == b.Parent && a.Traceparent == b.Traceparent && a.Face == b.Face && a.Session == b.Session
}

func TestAPanicIsAnInternalError(t *testing.T) {
	s := newSystem(t)
	s.Invoker = fakeInvoker(func(context.Context, *toolkeep.Principal, *toolkeep.Call) (*toolkeep.Result, error) {
		panic("as the test wants it")
	})
	s.publish(manifest("demo.echo"))
	s.start()
	for _, caps := range []string{"{}", `{"elicitation":{}}`} {
		s.modern("/mcp", "tools/call", echoParams, caps).failure(t, 200, mcp.CodeInternal)
	}
	s.post("/mcp", callEcho).failure(t, 200, mcp.CodeInternal)
	if log := s.log.String(); strings.Count(log, "as the test wants it") != 3 {
		t.Error(log)
	}
}

func TestGetInvocation(t *testing.T) {
	s := newSystem(t)
	s.calls["run"] = &toolkeep.Invocation{ID: "run", ToolID: "a.b", State: toolkeep.CallRunning, Progress: toolkeep.Progress{Percent: 40, Phase: "half"}}
	s.calls["done"] = &toolkeep.Invocation{ID: "done", ToolID: "a.b", Version: "1.0.0", State: toolkeep.CallSucceeded, Output: []byte(`{"a":1}`),
		Attachments: []toolkeep.Attachment{{Kind: "blob", URL: "/b", Bytes: 5, SHA256: "2cf2"}}}
	s.start()
	a := s.post("/mcp/search", own("", "get_invocation", `{"invocation_id":"run","wait_s":0.01}`))
	if a.result(t, "structuredContent", "status") != `"running"` || a.result(t, "structuredContent", "progress_percent") != "40" || a.result(t, "isError") != "" {
		t.Errorf("%s", a.body)
	}
	a = s.post("/mcp/search", own("", "get_invocation", `{"invocation_id":"done"}`))
	if a.result(t, "structuredContent", "result") != `{"a":1}` || a.result(t, "structuredContent", "status") != `"success"` ||
		a.result(t, "structuredContent", "attachments") != `[{"kind":"blob","url":"/b","bytes":5,"sha256":"2cf2"}]` {
		t.Errorf("%s", a.body)
	}
}
