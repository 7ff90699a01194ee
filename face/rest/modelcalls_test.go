package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/toolkeep/toolkeep"
)

const modelRoute = "/api/v1/tools/invoke/model"

// modelSystem knows tools by the names that they have in exports; those that begin with w write, and m is of an MCP server.
func modelSystem(invoke fakeInvoker) *system {
	s := newSystem()
	s.catalog.resolve = func(_ *toolkeep.Principal, name, _ string) (toolkeep.Version, []toolkeep.Warning, error) {
		t := demoTool()
		t.ID = strings.Replace(name, "__", ".", 1)
		t.Manifest.SideEffects, t.Manifest.Execution.Kind = "reads", "http"
		switch {
		case strings.HasPrefix(name, "w"):
			t.Manifest.SideEffects = "writes"
		case strings.HasPrefix(name, "m"):
			t.Manifest.Execution.Kind = "mcp"
		}
		return toolkeep.Version{Tool: t}, nil, nil
	}
	s.Invoker = invoke
	return s
}

func chatCalls(names ...string) string {
	var calls []string
	for i, name := range names {
		calls = append(calls, fmt.Sprintf(`{"id":"call_%012d","type":"function","function":{"name":%q,"arguments":"{\"n\":%d}"}}`, i, name, i))
	}
	return `{"role":"assistant","content":null,"tool_calls":[` + strings.Join(calls, ",") + `]}`
}

// TestModelCalls: what comes of a call is a message of the provider's form, whatever it is, and the calls are those of
// the message.
func TestModelCalls(t *testing.T) {
	var mu sync.Mutex
	keys := map[string]string{}
	s := modelSystem(func(_ context.Context, _ *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Result, error) {
		mu.Lock()
		keys[c.Tool] = c.Key + "|" + c.Session + "|" + string(c.Arguments)
		mu.Unlock()
		res := succeeded()
		switch name := strings.TrimPrefix(c.Tool, "m__"); name {
		case "r__refused":
			e := toolkeep.NewError(toolkeep.InvalidParameters, "n must be text")
			e.InvocationID = "refused-1"
			return nil, e
		case "r__failed":
			res.State, res.Error = toolkeep.CallFailed, toolkeep.NewError(toolkeep.UpstreamClientError, "HTTP 404")
		case "r__waits":
			res.State = toolkeep.CallPendingApproval
		case "r__cut":
			res.Truncated, res.Output = true, []byte(`"half"`)
			res.Attachments = []toolkeep.Attachment{{Kind: "result", URL: "/api/v1/blobs/b1"}}
		case "text":
			res.Output = []byte(`{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`)
		case "picture":
			res.Output = []byte(`{"content":[{"type":"text","text":"a"},{"type":"image","data":"="}]}`)
		}
		return res, nil
	})
	const ok = `{"n":9007199254740993,"html":"<b>"}`
	for _, c := range []struct{ tool, status, text string }{
		{"r__ok", "success", ok},
		{"r__refused", "error", "E3301 invalid_parameters: n must be text"},
		{"r__failed", "error", "E3510 upstream_client_error: HTTP 404\nThe same call will probably fail again: change the arguments, or use another tool."},
		{"r__waits", "pending_approval", "The call is pending_approval as invocation 01900000-0000-7000-8000-000000000001. A person has to approve it first; do not call the tool again for it. Its result will be at /api/v1/invocations/01900000-0000-7000-8000-000000000001."},
		{"r__cut", "success", "half\nThe result was longer than the tool allows and is cut.\nThe whole result is at /api/v1/blobs/b1; fetch it with the same credentials."},
		{"m__text", "success", "a\nb"},
		{"m__picture", "success", `{"content":[{"type":"text","text":"a"},{"type":"image","data":"="}]}`},
	} {
		w := s.do(t, "POST", modelRoute, chatCalls(c.tool), "X-Session-ID: talk")
		wantStatus(t, w, http.StatusOK)
		var got struct {
			Form     string
			Messages []map[string]any
			Calls    []ModelCalled
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if got.Form != "openai" || len(got.Messages) != 1 || got.Messages[0]["tool_call_id"] != "call_000000000000" || got.Messages[0]["content"] != c.text {
			t.Errorf("%s: %s", c.tool, w.Body)
		}
		if len(got.Calls) != 1 || got.Calls[0].Status != c.status || got.Calls[0].InvocationID == "" || got.Calls[0].Name != c.tool || (got.Calls[0].ErrorCode != "") != (c.status == "error") {
			t.Errorf("%s: %+v", c.tool, got.Calls)
		}
	}
	for _, c := range []struct{ name, body, messages string }{
		{"anthropic", `{"type":"message","role":"assistant","content":[{"type":"tool_use","id":"toolu_1","name":"r__ok","input":{"n":1}},{"type":"tool_use","id":"toolu_2","name":"r__refused","input":{}}]}`,
			`[{"content":[{"content":"{\"n\":9007199254740993,\"html\":\"<b>\"}","tool_use_id":"toolu_1","type":"tool_result"},{"content":"E3301 invalid_parameters: n must be text","is_error":true,"tool_use_id":"toolu_2","type":"tool_result"}],"role":"user"}]`},
		{"gemini", `{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":"r__ok","args":{"n":1}},"thoughtSignature":"c2ln"},{"functionCall":{"name":"r__refused","args":{}}}]}}]}`,
			`[{"parts":[{"functionResponse":{"name":"r__ok","response":{"output":{"n":9007199254740993,"html":"<b>"}}}},{"functionResponse":{"name":"r__refused","response":{"error":"E3301 invalid_parameters: n must be text"}}}],"role":"user"}]`},
		{"openai-responses", `{"object":"response","output":[{"type":"function_call","id":"fc_1","call_id":"call_1","name":"r__ok","arguments":"no JSON"}]}`,
			`[{"call_id":"call_1","output":"{\"n\":9007199254740993,\"html\":\"<b>\"}","type":"function_call_output"}]`},
		{"openai", `{"choices":[{"message":{"role":"assistant","content":"no calls"}}]}`, `[]`},
	} {
		w := s.do(t, "POST", modelRoute, c.body)
		wantStatus(t, w, http.StatusOK)
		if want := `{"form":"` + c.name + `","messages":` + c.messages + `,"calls":[`; !strings.HasPrefix(w.Body.String(), want) {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, w.Body, want)
		}
	}
	if keys["r__ok"] != "||no JSON" { // of call_1, which no other call has to have
		t.Errorf("the last call is %q", keys["r__ok"])
	}
	for body, status := range map[string]int{`{"tool_id":"r.ok"}`: 400, `{`: 400, `{"role":"assistant","role":"assistant"}`: 400, strings.Replace(chatCalls("r__ok"), "call_000000000000", "", 1): 400} {
		wantStatus(t, s.do(t, "POST", modelRoute, body), status)
	}
	wantStatus(t, s.do(t, "POST", modelRoute, chatCalls("r__ok"), "Authorization: Bearer wrong"), 401)
}

// TestModelCallKeys: a message that is sent again has the keys of the first one; ids that are counted are none.
func TestModelCallKeys(t *testing.T) {
	var mu sync.Mutex
	var got []string
	s := modelSystem(func(_ context.Context, _ *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, c.Key)
		return succeeded(), nil
	})
	keys := func(body string, headers ...string) string {
		t.Helper()
		got = nil
		wantStatus(t, s.do(t, "POST", modelRoute, body, headers...), 200)
		slices.Sort(got)
		return strings.Join(got, " ")
	}
	first := keys(chatCalls("w__a", "w__b"))
	if again := keys(chatCalls("w__a", "w__b")); again != first || strings.Count(first, "model-") != 2 || strings.Fields(first)[0] == strings.Fields(first)[1] {
		t.Errorf("keys %q, again %q", first, again)
	}
	talk := keys(chatCalls("w__a", "w__b"), "X-Session-ID: talk")
	if talk == first || talk != keys(chatCalls("w__a", "w__b"), "X-Session-ID: talk") {
		t.Errorf("in a session %q", talk)
	}
	if own := keys(chatCalls("w__a", "w__b"), "Idempotency-Key: mine"); own != "mine/1 mine/2" {
		t.Errorf("with a key %q", own)
	}
	if own := keys(chatCalls("w__a"), "Idempotency-Key: mine"); own != "mine" {
		t.Errorf("of one call with a key %q", own)
	}
	for _, id := range []string{"call_0", "functions.a:0", "0"} {
		if own := keys(strings.Replace(chatCalls("w__a"), "call_000000000000", id, 1)); own != "" {
			t.Errorf("id %s has the key %q", id, own)
		}
	}
}

// TestModelCallOrder: tools that read run at the same time; one that writes begins after those before it, and those after
// it begin when it has ended.
func TestModelCallOrder(t *testing.T) {
	var mu sync.Mutex
	ended, met := map[string]bool{}, make(chan struct{})
	begun := 0
	s := modelSystem(func(_ context.Context, _ *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Result, error) {
		mu.Lock()
		switch c.Tool {
		case "r__1", "r__2":
			if begun++; begun == 2 {
				close(met)
			}
			mu.Unlock()
			<-met // which only the other one lets it pass
			mu.Lock()
		case "w__3":
			if !ended["r__1"] || !ended["r__2"] {
				t.Error("a write runs before the reads that were asked for before it")
			}
		case "r__4":
			if !ended["w__3"] {
				t.Error("a read runs before the write that was asked for before it")
			}
		}
		ended[c.Tool] = true
		mu.Unlock()
		return succeeded(), nil
	})
	wantStatus(t, s.do(t, "POST", modelRoute, chatCalls("r__1", "r__2", "w__3", "r__4")), 200)
	if len(ended) != 4 {
		t.Errorf("carried out: %v", ended)
	}
}

// TestModelAnswerIsBounded: of results that are too many bytes together the later ones are told of, and whether to ask again.
func TestModelAnswerIsBounded(t *testing.T) {
	big := append(append([]byte{'"'}, strings.Repeat("x", maxModelAnswer/2)...), '"')
	s := modelSystem(func(context.Context, *toolkeep.Principal, *toolkeep.Call) (*toolkeep.Result, error) {
		res := succeeded()
		res.Output = big
		return res, nil
	})
	w := s.do(t, "POST", modelRoute, chatCalls("r__1", "r__2", "w__3"))
	wantStatus(t, w, 200)
	text := w.Body.String()
	if n := strings.Count(text, "too many beside the others"); n != 2 || !strings.Contains(text, "alone, to get it") || !strings.Contains(text, "do not repeat it") || w.Body.Len() > maxModelAnswer {
		t.Errorf("%d results are left out of %d bytes", n, w.Body.Len())
	}
}
