package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/face/gate"
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
		calls = append(calls, fmt.Sprintf(`{"id":"call_Zp81xw2nQ0vB7t%04d","type":"function","function":{"name":%q,"arguments":"{\"n\":%d}"}}`, i, name, i))
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
		{"r__cut", "success", "half\nThe result was too long and is cut.\nThe whole result is at /api/v1/blobs/b1; fetch it with the same credentials."},
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
		if got.Form != "openai" || len(got.Messages) != 1 || got.Messages[0]["tool_call_id"] != "call_Zp81xw2nQ0vB7t0000" || got.Messages[0]["content"] != c.text {
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
	for body, status := range map[string]int{`{"tool_id":"r.ok"}`: 400, `{`: 400, `{"role":"assistant","role":"assistant"}`: 400, strings.Replace(chatCalls("r__ok"), "call_Zp81xw2nQ0vB7t0000", "", 1): 400} {
		wantStatus(t, s.do(t, "POST", modelRoute, body), status)
	}
	wantStatus(t, s.do(t, "POST", modelRoute, chatCalls("r__ok"), "Authorization: Bearer wrong"), 401)
}

// TestModelCallKeys: a message that is sent again in its session has the keys of the first one. Ids that are counted are none, and so
// is any without a session.
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
		return strings.TrimSpace(strings.Join(got, " "))
	}
	const talk = "X-Session-ID: talk"
	first := keys(chatCalls("w__a", "w__b"), talk)
	if again := keys(chatCalls("w__a", "w__b"), talk); again != first || strings.Count(first, "model-") != 2 || strings.Fields(first)[0] == strings.Fields(first)[1] {
		t.Errorf("keys %q, again %q", first, again)
	}
	if other := keys(chatCalls("w__a", "w__b"), "X-Session-ID: other"); other == first {
		t.Errorf("in another session %q", other)
	}
	if none := keys(chatCalls("w__a", "w__b")); none != "" {
		t.Errorf("without a session %q", none)
	}
	seen := map[string]bool{}
	for _, names := range [][]string{{"w__a"}, {"w__b"}, {"r__1", "w__a"}} { // the same id at another place, or of another tool
		for key := range strings.FieldsSeq(keys(strings.ReplaceAll(chatCalls(names...), "t0001", "t0000"), talk)) {
			if seen[key] {
				t.Errorf("%v has the key of another call", names)
			}
			seen[key] = true
		}
	}
	for _, id := range []string{"toolu_01A09q90qw90lq917835lq9", "toolu_vrtx_01A09q90qw90lq917835lq9", "chatcmpl-tool-2cf24dba5fb0a30e26e83b2ac5b9e29e"} {
		if own := keys(strings.Replace(chatCalls("w__a"), "call_Zp81xw2nQ0vB7t0000", id, 1), talk); !strings.HasPrefix(own, "model-") {
			t.Errorf("id %s has the key %q", id, own)
		}
	}
	for _, id := range []string{"call_0", "tool_call_0", "functions.a:0", "0", "call_00001", "call_0000000000000000000001", "call_20261130230218123456", "call_aaaaaaaaaaaaaaaa0001", "7d92kfa0Q", "my_Zp81xw2nQ0vB7t0000"} {
		if own := keys(strings.Replace(chatCalls("w__a"), "call_Zp81xw2nQ0vB7t0000", id, 1), talk); own != "" {
			t.Errorf("id %s has the key %q", id, own)
		}
	}
	if own := keys(chatCalls("w__a", "w__b"), "Idempotency-Key: mine"); own != "mine/1 mine/2" {
		t.Errorf("with a key %q", own)
	}
	if own := keys(chatCalls("w__a"), "Idempotency-Key: mine", talk); own != "mine" {
		t.Errorf("of one call with a key %q", own)
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

// TestModelAnswerIsBounded: of results that are too many bytes together those that came later are told of, and how to get them. What
// went wrong, or waits, is told all the same, and a result that fits has its place beside one that did not.
func TestModelAnswerIsBounded(t *testing.T) {
	big := func(n int) []byte { return append(append([]byte{'"'}, strings.Repeat("x", n-2)...), '"') }
	s := modelSystem(func(_ context.Context, _ *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Result, error) {
		res := succeeded()
		switch c.Tool {
		case "w__refused":
			return nil, toolkeep.NewError(toolkeep.PermissionDenied, "you may not")
		case "w__waits":
			res.State = toolkeep.CallPendingApproval
		case "w__small":
			res.Output = []byte(`"small"`)
		case "w__huge":
			res.Output = big(maxModelAnswer + 1)
		default:
			res.Output = big(maxModelAnswer - 100)
		}
		return res, nil
	})
	contents := func(body string, headers ...string) (all []string) {
		w := s.do(t, "POST", modelRoute, body, headers...)
		wantStatus(t, w, 200)
		var got struct{ Messages []struct{ Content string } }
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Body.Len() > maxModelAnswer+10_000 {
			t.Fatalf("%d bytes %v", w.Body.Len(), err)
		}
		for _, m := range got.Messages {
			all = append(all, m.Content)
		}
		return all
	}
	all := contents(chatCalls("w__1", "w__2", "r__3", "w__refused", "w__waits", "w__small", "w__huge"))
	for i, want := range []string{"xxx", "The result has 8388508 bytes, too many beside the others. The call was carried out: do not repeat it.",
		"The result has 8388508 bytes, too many beside the others. Call the tool again, alone, to get it.", "E3201 permission_denied: you may not", "The call is pending_approval as invocation ", "small",
		"The result has 8388609 bytes, too many beside the others. The call was carried out: do not repeat it."} {
		if !strings.HasPrefix(all[i], want) {
			t.Errorf("message %d: %.200s", i, all[i])
		}
	}
	at := "It is at /api/v1/invocations/01900000-0000-7000-8000-000000000001."
	if all = contents(chatCalls("w__1", "r__2"), "X-Session-ID: talk"); !strings.HasSuffix(all[1], at) {
		t.Errorf("with a key: %.200s", all[1])
	}
	for header, want := range map[string]string{"X-User-ID: ": "The call was carried out: do not repeat it.", "Idempotency-Key: k": at} {
		if all = contents(chatCalls("w__huge"), header); !strings.HasPrefix(all[0], `"xxx`) || !strings.HasSuffix(all[0], "x\nThe result has 8388609 bytes and is cut here. "+want) || len(all[0]) > cutModelResult+200 {
			t.Errorf("alone with %s: %d bytes, %s", header, len(all[0]), all[0][len(all[0])-200:])
		}
	}
}

// TestModelCallsThatWrite: whether a call writes is decided by the tool as it exists for who acts in it; one that is not found counts as
// one that writes, so it runs alone.
func TestModelCallsThatWrite(t *testing.T) {
	var running, most atomic.Int32
	s := modelSystem(func(context.Context, *toolkeep.Principal, *toolkeep.Call) (*toolkeep.Result, error) {
		n := running.Add(1)
		defer running.Add(-1)
		for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
		}
		runtime.Gosched()
		return succeeded(), nil
	})
	s.Auth = actingAuth{s.Auth}
	find := s.catalog.resolve
	s.catalog.resolve = func(p *toolkeep.Principal, name, rng string) (toolkeep.Version, []toolkeep.Warning, error) {
		if p.OnBehalf != "did:ann" {
			t.Errorf("%s is looked for by %+v", name, p)
		}
		if strings.HasPrefix(name, "capability:") {
			return toolkeep.Version{}, nil, toolkeep.NewError(toolkeep.ToolNotFound, "none")
		}
		return find(p, name, rng)
	}
	wantStatus(t, s.do(t, "POST", modelRoute, chatCalls("capability:a", "capability:b", "w__c", "capability:d"), "X-User-ID: did:ann"), 200)
	if most.Load() != 1 {
		t.Errorf("%d calls ran beside each other", most.Load())
	}
}

// TestModelReadsThatAreCrowded: reads for which there was no place beside the others run again alone, once.
func TestModelReadsThatAreCrowded(t *testing.T) {
	var mu sync.Mutex
	var ran []string
	var first sync.WaitGroup
	first.Add(3)
	s := modelSystem(func(_ context.Context, _ *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Result, error) {
		mu.Lock()
		ran = append(ran, c.Tool)
		n := len(ran)
		mu.Unlock()
		if n <= 3 {
			first.Done()
			first.Wait()
		}
		if n <= 3 && c.Tool != "r__1" || c.Tool == "r__4" || c.Tool == "w__5" {
			return nil, toolkeep.NewError(toolkeep.ConcurrencyLimitExceeded, "no place")
		}
		return succeeded(), nil
	})
	var got struct{ Calls []ModelCalled }
	w := s.do(t, "POST", modelRoute, chatCalls("r__1", "r__2", "r__3", "w__5", "r__4"))
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for i, code := range []string{"", "", "", "E3802", "E3802"} {
		if got.Calls[i].ErrorCode != code {
			t.Errorf("call %d: %+v", i, got.Calls[i])
		}
	}
	if again := strings.Join(ran[3:], " "); again != "r__2 r__3 w__5 r__4" {
		t.Errorf("after the first three ran %s", again)
	}
}

type requestCount func() (toolkeep.RateLeft, error)

func (f requestCount) TakeRequest(context.Context, *toolkeep.Principal) (toolkeep.RateLeft, error) {
	return f()
}

// actingAuth lets callers act for the users that they name.
type actingAuth struct{ gate.Auth }

func (actingAuth) ActingAs(p *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Principal, error) {
	return p.As("", c.User)
}

// TestModelMessageWithoutCalls counts as a request, as one with calls does in each.
func TestModelMessageWithoutCalls(t *testing.T) {
	counted := 0
	s := modelSystem(nil)
	s.Requests = requestCount(func() (toolkeep.RateLeft, error) {
		counted++
		if counted > 1 {
			return toolkeep.RateLeft{}, toolkeep.NewError(toolkeep.RateLimitExceeded, "too many")
		}
		return toolkeep.RateLeft{Kind: "agent", PerMinute: 1}, nil
	})
	w := s.do(t, "POST", modelRoute, `{"role":"assistant","content":"hi"}`)
	if wantStatus(t, w, 200); w.Header().Get("RateLimit") == "" {
		t.Error("the answer does not say what the limit has left")
	}
	wantStatus(t, s.do(t, "POST", modelRoute, `{"role":"assistant","content":"hi"}`), 429)
}
