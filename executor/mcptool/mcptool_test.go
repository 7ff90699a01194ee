package mcptool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/executor/executortest"
	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/upstream"
)

func manifest(binding string, edit ...func(*toolkeep.Manifest)) *toolkeep.Manifest {
	m := &toolkeep.Manifest{
		SchemaVersion: 1, ToolID: "test.tool", Version: "1.0.0", Description: "A tool of the tests.",
		ParametersSchema: []byte(`{"type":"object"}`), SideEffects: "writes",
		Execution: toolkeep.ExecutionSpec{Kind: "mcp", Binding: []byte(binding)},
	}
	for _, f := range edit {
		f(m)
	}
	return m
}

func bound(server, tool string, edit ...func(*toolkeep.Manifest)) *toolkeep.Tool {
	return executortest.Tool(manifest(fmt.Sprintf(`{"server":%s,"tool":%s}`, mcp.Quote(server), mcp.Quote(tool)), edit...))
}

func object(t testing.TB, s string) map[string]any {
	t.Helper()
	m, err := canon.ParseObject([]byte(s), canon.Limits{})
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return m
}

func TestConformance(t *testing.T) {
	executortest.Run(t, func(t *testing.T) executortest.Harness {
		s := newServer(t)
		call := func(name, server, tool, args string, code toolkeep.Code) *executortest.Case {
			return &executortest.Case{Name: name, Tool: bound(server, tool), Args: object(t, args), Code: code}
		}
		leaky := func(c *executortest.Case) *executortest.Case {
			c.Credentials = []toolkeep.Credential{{Spec: toolkeep.AuthSpec{Type: "bearer"}, Value: `s3cr/et+v"al`}}
			return c
		}
		slow := call("slow", "test", "slow", `{}`, "")
		slow.Started, slow.Stopped = s.started, s.stopped
		bad := func(name, binding, pointer string, edit ...func(*toolkeep.Manifest)) executortest.Bad {
			return executortest.Bad{Name: name, Manifest: manifest(binding, edit...), Pointer: pointer}
		}
		secret := string(canon.Append(nil, `it was s3cr/et+v"al, and s3cr%2Fet%2Bv%22al`))
		return executortest.Harness{
			Executor: start(t, s), Kind: "mcp",
			Lacks: map[string]string{"Counted": "an answer is one message, counted when it is there"},
			Good:  manifest(`{"server":"test","tool":"any name at all/日本"}`),
			Works: call("works", "test", "echo", `{"n":1.50,"list":[1,{"a":null}],"text":"x"}`, ""),
			Slow:  slow,
			Large: call("large", "test", "large", `{}`, ""),
			Bad: []executortest.Bad{
				bad("no tool", `{"server":"test"}`, "/execution/binding/tool"),
				bad("no server", `{"tool":"a"}`, "/execution/binding/server"),
				bad("bad server", `{"server":"No","tool":"a"}`, "/execution/binding/server"),
				bad("long tool", `{"server":"test","tool":"`+strings.Repeat("x", 600)+`"}`, "/execution/binding/tool"),
				bad("unknown field", `{"server":"test","tool":"a","url":"x"}`, "/execution/binding/url"),
				bad("over 4 KiB", `{"server":"test","tool":"a"}`+strings.Repeat(" ", 4<<10), "/execution/binding"),
				bad("no object", `[]`, "/execution/binding"),
				bad("credentials", `{"server":"test","tool":"a"}`, "/auth", func(m *toolkeep.Manifest) { m.Auth = []toolkeep.AuthSpec{{Type: "bearer"}} }),
			},
			Unsent: []*executortest.Case{
				call("unknown server", "none", "echo", `{}`, toolkeep.MCPUnavailable),
				call("connection refused", "closed", "echo", `{}`, toolkeep.MCPUnavailable),
			},
			Sent: []*executortest.Case{
				call("the tool fails", "test", "unknown", `{}`, toolkeep.MCPError),
				call("refused", "test", "refuse", `{"message":"no"}`, toolkeep.MCPError),
				call("reset", "test", "reset", `{}`, ""),
				call("no result", "test", "result", `{"raw":"{\"content\":7}"}`, toolkeep.MCPError),
			},
			Retryable: []*executortest.Case{call("connection refused", "closed", "echo", `{}`, toolkeep.MCPUnavailable)},
			Permanent: []*executortest.Case{
				call("the tool fails", "test", "unknown", `{}`, toolkeep.MCPError),
				call("refused", "test", "refuse", `{"message":"no"}`, toolkeep.MCPError),
			},
			Malformed: []*executortest.Case{
				call("content of another type", "test", "result", `{"raw":"{\"content\":7}"}`, toolkeep.MCPError),
				call("no object", "test", "result", `{"raw":"[]"}`, toolkeep.MCPError),
			},
			Told: []*executortest.Case{
				leaky(call("in a result", "test", "echo", `{"said":`+secret+`}`, "")),
			},
			Leaky: []*executortest.Case{
				leaky(call("text of a failure", "test", "result", `{"raw":`+string(canon.Append(nil, `{"isError":true,"content":[{"type":"text","text":`+secret+`}],"structuredContent":{"why":`+secret+`}}`))+`}`, toolkeep.MCPError)),
				leaky(call("words of a refusal", "test", "refuse", `{"message":`+secret+`,"data":{"more":[`+secret+`]}}`, toolkeep.MCPError)),
			},
		}
	})
}

// TestAnswerDoesNotWaitForMemory: an answer that arrived whole is a result also while there is no memory for results.
func TestAnswerDoesNotWaitForMemory(t *testing.T) {
	e := start(t, newServer(t))
	for _, ended := range []error{context.DeadlineExceeded, context.Canceled} {
		x := execution(bound("test", "echo"), object(t, `{"text":"x"}`))
		x.Grow = func(int64) error { return ended }
		if got, err := run(t, e, x); err != nil || !strings.Contains(got, `"text":"x"`) {
			t.Errorf("%v: %s, %v", ended, got, err)
		}
	}
}

func execution(tool *toolkeep.Tool, args map[string]any) *toolkeep.Execution {
	return &toolkeep.Execution{Tool: tool, Args: args, Principal: &toolkeep.Principal{Subject: "agent", Tenant: "acme"},
		InvocationID: "0190aaaa-0000-7000-8000-000000000000", Attempt: 1}
}

func run(t *testing.T, e *Executor, x *toolkeep.Execution) (string, *toolkeep.Error) {
	t.Helper()
	out, err := e.Execute(t.Context(), x)
	if err != nil {
		var own *toolkeep.Error
		if !errors.As(err, &own) {
			t.Fatalf("a %T: %v", err, err)
		}
		return "", own
	}
	return string(canon.Append(nil, out.Value)), nil
}

func TestResult(t *testing.T) {
	e := start(t, newServer(t))
	got, err := run(t, e, execution(bound("test", "echo"), object(t, `{"n":12345678901234567890.10,"s":"é"}`)))
	if want := `{"_meta":{"com.example/a":[1.50]},"content":[],"structuredContent":{"n":12345678901234567890.10,"s":"é"}}`; err != nil || got != want {
		t.Errorf("%s %v", got, err)
	}
	out, xerr := e.Execute(t.Context(), execution(bound("test", "result"), map[string]any{"raw": `{"content":[{"type":"text","text":"a\u0000"}]}`}))
	if xerr != nil || len(out.Warnings) != 1 || !strings.Contains(out.Warnings[0].Message, "replaced by U+FFFD") {
		t.Errorf("%+v, %v", out, xerr)
	}
	for raw, want := range map[string]string{
		`{}`:                                `{"content":[]}`,
		`{"content":null,"vendor":{"a":1}}`: `{"content":[],"vendor":{"a":1}}`,
		`{"content":[{"type":"text","text":"a\u0000b\\u0000\\\u0000"}]}`:                                            `{"content":[{"text":"a` + "\ufffd" + `b\\u0000\\` + "\ufffd" + `","type":"text"}]}`,
		`{"content":[{"type":"image","data":"AA==","mimeType":"image/png"},{"type":"new","x":[]}],"isError":"yes"}`: `{"content":[{"data":"AA==","mimeType":"image/png","type":"image"},{"type":"new","x":[]}]}`,
	} {
		got, err := run(t, e, execution(bound("test", "result"), map[string]any{"raw": raw}))
		if err != nil || got != want {
			t.Errorf("%s: got %s %v, want %s", raw, got, err, want)
		}
	}
}

func TestReportedError(t *testing.T) {
	e := start(t, newServer(t))
	for raw, want := range map[string]string{
		`{"isError":true}`: "the tool reports an error without details",
		`{"isError":true,"content":[{"type":"image","text":"no"},7,{"type":"text","text":" \n"},{"type":"text","text":" first \n"},{"type":"text","text":"second"}]}`: "first",
		`{"isError":true,"content":[{"type":"text","text":"` + strings.Repeat("é", 3000) + `"}]}`:                                                                     strings.Repeat("é", 1999) + "…",
	} {
		_, err := run(t, e, execution(bound("test", "result"), map[string]any{"raw": raw}))
		if err == nil || err.Code != toolkeep.MCPError || err.Message != want || err.NothingSent || err.Retryable || err.Details["server"] != "test" || err.Details["tool"] != "result" {
			t.Errorf("%.80s: %+v", raw, err)
		}
	}
	_, err := run(t, e, execution(bound("test", "result"), map[string]any{"raw": `{"isError":true,"content":[{"type":"text","text":"a"},{"type":"image","data":"AA=="}],"structuredContent":{"code":7}}`}))
	if got := string(canon.Append(nil, err.Details["content"])); got != `[{"text":"a","type":"text"},{"data":"AA==","type":"image"}]` {
		t.Errorf("content: %s", got)
	}
	if got := string(canon.Append(nil, err.Details["structured_content"])); got != `{"code":7}` {
		t.Errorf("structured content: %s", got)
	}
	// Large parts are truncated or left out, with a note.
	big := func(n int) string { return strings.Repeat("x", n) }
	_, err = run(t, e, execution(bound("test", "result"), map[string]any{"raw": `{"isError":true,"content":[{"type":"text","text":"` + big(200<<10) + `"},{"type":"image","data":"` +
		big(100<<10) + `"},{"type":"text","text":"` + big(100<<10) + `"},{"type":"text","text":"end"}],"structuredContent":{"a":"` + big(10) + `"}}`}))
	content := canon.Append(nil, err.Details["content"])
	if len(content) > maxDetails+1000 || !strings.Contains(string(content), "(2 parts of the answer are left out") || err.Details["structured_content"] != nil || utf8.RuneCountInString(err.Message) != maxMessage {
		t.Errorf("%d bytes, %d characters, %.100s … %s", len(content), utf8.RuneCountInString(err.Message), content, content[len(content)-200:])
	}
}

func TestRefused(t *testing.T) {
	e := start(t, newServer(t))
	_, err := run(t, e, execution(bound("test", "refuse"), object(t, `{"message":"no \n way","data":{"why":[1]}}`)))
	if err == nil || err.Code != toolkeep.MCPError || err.Message != "the MCP server test refused the call: no \n way" || err.Details["jsonrpc_code"] != int64(-32050) || string(canon.Append(nil, err.Details["data"])) != `{"why":[1]}` {
		t.Errorf("%+v", err)
	}
	_, err = run(t, e, execution(bound("test", "visit"), object(t, `{"elicitations":[{"mode":"url","url":"javascript:alert(1)"},{"mode":"url","url":"https://example.com/login?state=1"}]}`)))
	if err == nil || err.Code != toolkeep.LoginRequired || err.Details["url"] != "https://example.com/login?state=1" {
		t.Errorf("%+v", err)
	}
	_, err = run(t, e, execution(bound("test", "visit"), object(t, `{"elicitations":[{"mode":"url","url":"file:///etc/passwd"}]}`)))
	if err == nil || err.Code != toolkeep.MCPError || err.Details["url"] != nil {
		t.Errorf("%+v", err)
	}
}

// TestParams checks what is sent to the server.
func TestParams(t *testing.T) {
	e := start(t, newServer(t))
	idempotent := func(m *toolkeep.Manifest) { m.Idempotent = true }
	for _, c := range []struct {
		name string
		tool *toolkeep.Tool
		edit func(*toolkeep.Execution)
		want string
	}{
		{"bare", bound("test", "params"), func(*toolkeep.Execution) {}, `{"arguments":{},"name":"params"}`},
		{"a key of a tool that is not idempotent", bound("test", "params"), func(x *toolkeep.Execution) { x.Key = "k" }, `{"arguments":{},"name":"params"}`},
		{"all", bound("test", "params", idempotent), func(x *toolkeep.Execution) {
			x.Tracestate = "vendor=1"
			x.Key, x.Traceparent, x.Args = "k", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", map[string]any{"a": json.Number("1.0")}
		}, `{"_meta":{"toolkeep/idempotency-key":"k","traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","tracestate":"vendor=1"},"arguments":{"a":1.0},"name":"params"}`},
	} {
		x := execution(c.tool, nil)
		c.edit(x)
		got, err := run(t, e, x)
		if want := `{"content":[],"structuredContent":` + c.want + `}`; err != nil || got != want {
			t.Errorf("%s: got %s %v, want %s", c.name, got, err, want)
		}
	}
}

// watcher is a Caller that only receives progress.
type watcher struct {
	mu   sync.Mutex
	seen []toolkeep.Progress
}

func (w *watcher) Progress(p toolkeep.Progress) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, p)
}

// person can also answer requests.
type person struct {
	watcher
	ask func(ctx context.Context, method string, params []byte) ([]byte, error)
}

func (p *person) Ask(ctx context.Context, method string, params []byte) ([]byte, error) {
	return p.ask(ctx, method, params)
}

// client also declares its capabilities.
type client struct {
	person
	caps string
}

func (c *client) Capabilities() []byte { return []byte(c.caps) }

func TestProgress(t *testing.T) {
	e := start(t, newServer(t))
	w := &watcher{}
	x := execution(bound("test", "progress"), nil)
	x.Caller = w
	if _, err := run(t, e, x); err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if got, want := fmt.Sprint(w.seen), fmt.Sprint([]toolkeep.Progress{{Percent: 25, Message: "a"}, {Percent: 87}, {Percent: 100}, {}}); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// tally is a Caller that wants the server's own numbers.
type tally struct {
	watcher
	counts []string
}

func (w *tally) Count(done, total []byte, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts = append(w.counts, fmt.Sprintf("%s/%s %s", done, total, message))
}

func TestProgressInTheServersNumbers(t *testing.T) {
	e := start(t, newServer(t))
	w := &tally{}
	x := execution(bound("test", "progress"), nil)
	x.Caller = w
	if _, err := run(t, e, x); err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if got := strings.Join(w.counts, "; "); got != "1/4 a; 3.5/4 ; 9/4 ; 5/ " || len(w.seen) > 0 {
		t.Errorf("%s, and %v", got, w.seen)
	}
}

func TestQuestions(t *testing.T) {
	answer := func(context.Context, string, []byte) ([]byte, error) {
		return []byte(`{"action":"accept","content":{"name":"Ada"}}`), nil
	}
	refuse := func(context.Context, string, []byte) ([]byte, error) {
		return nil, mcp.NewError(mcp.CodeInternal, "nobody there")
	}
	for _, c := range []struct {
		name    string
		allowed []string
		caller  toolkeep.Caller
		caps    string // declared to the server
		want    string
	}{
		{"a person", []string{upstream.CapElicitation}, &person{ask: answer}, `{"elicitation":{}}`, `{"action":"accept","content":{"name":"Ada"}}`},
		{"a client that can", []string{upstream.CapElicitation}, &client{person{ask: answer}, `{"elicitation":{"form":{}},"sampling":{}}`}, `{"elicitation":{"form":{}}}`, `{"action":"accept","content":{"name":"Ada"}}`},
		{"a client that cannot", []string{upstream.CapElicitation}, &client{person{ask: answer}, `{"sampling":{}}`}, `{}`, "does not offer"},
		{"one who sees and cannot be asked", []string{upstream.CapElicitation}, &watcher{}, `{}`, "does not offer"},
		{"nobody", []string{upstream.CapElicitation}, nil, `{}`, "does not offer"},
		{"not allowed", nil, &person{ask: answer}, `{}`, "does not offer"},
		{"no answer", []string{upstream.CapElicitation}, &person{ask: refuse}, `{"elicitation":{}}`, "nobody there"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t)
			x := execution(bound("test", "ask"), nil)
			x.Caller, x.Session = c.caller, "session-1"
			got, err := run(t, start(t, s, c.allowed...), x)
			if err != nil {
				t.Fatal(err)
			}
			tree := object(t, got)
			block, _ := tree["content"].([]any)[0].(map[string]any)
			if text, _ := block["text"].(string); !strings.Contains(text, c.want) {
				t.Errorf("got %q, want %q", text, c.want)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if string(s.caps) != c.caps {
				t.Errorf("the server was told %s, want %s", s.caps, c.caps)
			}
		})
	}
}
