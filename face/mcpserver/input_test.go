package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
)

const formQuestion = `{"mode":"form","message":"Which city?","requestedSchema":{"type":"object","properties":{"city":{"type":"string"}}}}`

// asking is an invoker whose tool asks its caller and returns the answers.
func asking(times int) fakeInvoker {
	return func(ctx context.Context, p *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Result, error) {
		a, ok := c.Caller.(toolkeep.Asker)
		if !ok {
			return nil, toolkeep.NewError(toolkeep.InvalidParameters, "the caller cannot be asked")
		}
		out := []byte{'['}
		for i := range times {
			got, err := a.Ask(ctx, mcp.MethodElicit, []byte(formQuestion))
			if err != nil {
				return &toolkeep.Result{InvocationID: "inv-1", State: toolkeep.CallFailed, Error: toolkeep.AsError(err)}, nil
			}
			if i > 0 {
				out = append(out, ',')
			}
			c.Caller.Progress(toolkeep.Progress{Percent: 50 + i})
			out = append(out, got...)
		}
		return &toolkeep.Result{InvocationID: "inv-1", State: toolkeep.CallSucceeded, Output: append(out, ']')}, nil
	}
}

func TestQuestionsReachTheOfficialClient(t *testing.T) {
	s := newSystem(t)
	s.Invoker = asking(2)
	s.publish(manifest("demo.echo"))
	s.start()
	for _, version := range []string{"2025-06-18", "2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			asked := 0
			cs := sdkClient(t, s, "/mcp/all", &sdk.ClientOptions{
				ElicitationHandler: func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
					asked++
					if r.Params.Message != "Which city?" {
						t.Errorf("asked %q", r.Params.Message)
					}
					return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"city": "Paris"}}, nil
				},
			}, version)
			res, err := cs.CallTool(t.Context(), &sdk.CallToolParams{Name: "demo__echo", Arguments: map[string]any{"text": "x"}})
			if err != nil || res.IsError || asked != 2 {
				t.Fatalf("%v %v, asked %d times", res, err, asked)
			}
			if got := res.Content[0].(*sdk.TextContent).Text; strings.Count(got, "Paris") != 2 {
				t.Error(got)
			}
		})
	}
}

// endsAtAnswer is a call that ends while it waits to go on.
type endsAtAnswer struct{ end func() }

func (endsAtAnswer) Pause()   {}
func (endsAtAnswer) Resume()  {}
func (h endsAtAnswer) Await() { h.end() }

// TestAnswersToACallThatEnds: an answer is an error if the call ended before it could go on.
func TestAnswersToACallThatEnds(t *testing.T) {
	s := newSystem(t)
	got := make(chan error, 2)
	s.Invoker = fakeInvoker(func(ctx context.Context, _ *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Result, error) {
		for _, ask := range []func(context.Context) error{
			func(ctx context.Context) error {
				_, err := c.Caller.(toolkeep.Asker).Ask(ctx, mcp.MethodElicit, []byte(formQuestion))
				return err
			},
			func(ctx context.Context) error {
				_, err := c.Caller.(toolkeep.BatchAsker).AskAll(ctx, []byte(`{"q":{"method":"elicitation/create","params":`+formQuestion+`}}`))
				return err
			},
		} {
			ctx, cancel := context.WithCancel(ctx)
			ctx, over := toolkeep.OnPause(ctx, endsAtAnswer{cancel})
			got <- ask(ctx)
			over()
		}
		return &toolkeep.Result{State: toolkeep.CallSucceeded, Output: []byte(`{}`)}, nil
	})
	s.publish(manifest("demo.echo"))
	s.start()
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		asked := 0
		cs := sdkClient(t, s, "/mcp/all", &sdk.ClientOptions{
			ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
				asked++
				return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"city": "Paris"}}, nil
			},
		}, version)
		if _, err := cs.CallTool(t.Context(), &sdk.CallToolParams{Name: "demo__echo", Arguments: map[string]any{"text": "x"}}); err != nil || asked != 2 {
			t.Fatalf("%s: %v, asked %d times", version, err, asked)
		}
		for range 2 {
			if err := <-got; !errors.Is(err, context.Canceled) {
				t.Errorf("%s: the call that ended got an answer, or %v", version, err)
			}
		}
	}
}

func TestQuestionsToAClientThatCannotBeAsked(t *testing.T) {
	s := newSystem(t)
	s.Invoker = asking(1)
	s.publish(manifest("demo.echo"))
	s.start()
	h := s.session("/mcp", "2025-11-25", `{"roots":{}}`)
	if a := s.post("/mcp", callEcho, h...); !strings.Contains(a.body, "did not declare the capability elicitation") {
		t.Errorf("%s", a.body)
	}
	for _, caps := range []string{`{}`, `{"experimental":{}}`} {
		h = s.session("/mcp", "2025-11-25", caps)
		if a := s.post("/mcp", callEcho, h...); !strings.Contains(a.body, "cannot be asked") {
			t.Errorf("%s", a.body)
		}
	}
	h = s.session("/mcp", "2025-11-25", `{"elicitation":{}}`)
	if a := s.post("/mcp", callEcho, append(h, "Accept: application/json")...); !strings.Contains(a.body, "no event stream open") {
		t.Errorf("%s", a.body)
	}
}

func TestQuestionOnTheCallsOwnStream(t *testing.T) {
	s := newSystem(t)
	s.Invoker = asking(1)
	s.publish(manifest("demo.echo"))
	s.start()
	h := s.session("/mcp", "2025-06-18", `{"elicitation":{}}`)
	// An id is free only once its answer is written to the end.
	call := func(id int) string { return strings.Replace(callEcho, `"id":1`, fmt.Sprint(`"id":`, id), 1) }
	rd, _ := s.events("POST", "/mcp", call(31), h...)
	m, _ := next(t, rd)
	if m.Method != mcp.MethodElicit || m.ID == nil || string(m.Params) != formQuestion {
		t.Fatalf("%s", m.Bytes())
	}
	// Another client's session cannot answer it.
	other := s.session("/mcp", "2025-06-18", `{}`)
	s.post("/mcp", string(mcp.Reply(m.ID, []byte(`{"action":"accept"}`)).Bytes()), other...)
	if a := s.post("/mcp", string(mcp.Reply(m.ID, []byte(`{"action":"decline"}`)).Bytes()), h...); a.status != 202 {
		t.Error(a.status)
	}
	if m, _ = next(t, rd); !strings.Contains(string(m.Result), "decline") {
		t.Errorf("%s", m.Result)
	}
	// The tool handles an error.
	rd, _ = s.events("POST", "/mcp", call(32), h...)
	m, _ = next(t, rd)
	s.post("/mcp", string(mcp.Refuse(m.ID, mcp.NewError(-1, "no")).Bytes()), h...)
	if m, _ = next(t, rd); !strings.Contains(string(m.Result), `"isError":true`) {
		t.Errorf("%s", m.Result)
	}
	// Ending the session ends the wait.
	rd, _ = s.events("POST", "/mcp", call(33), h...)
	next(t, rd)
	s.do("DELETE", "/mcp", "", h...)
	if m, _ = next(t, rd); !strings.Contains(string(m.Result), `"isError":true`) {
		t.Errorf("%s", m.Result)
	}
}

const echoParams = `{"name":"demo__echo","arguments":{"text":"x"}}`

// park calls until the questions come, and returns the state.
func (s *system) park(t *testing.T, headers ...string) string {
	t.Helper()
	a := s.modern("/mcp", "tools/call", echoParams, `{"elicitation":{}}`, headers...)
	if a.result(t, "resultType") != `"input_required"` || a.result(t, "inputRequests", "q1", "method") != `"elicitation/create"` || a.result(t, "inputRequests", "q1", "params") != formQuestion {
		t.Fatalf("%s", a.body)
	}
	return a.result(t, "requestState")
}

func TestRequestStateIsBound(t *testing.T) {
	s := newSystem(t)
	s.Invoker = asking(1)
	s.publish(manifest("demo.echo"), manifest("demo.other"))
	s.start()
	state := s.park(t)
	if strings.Contains(state, "demo") || len(state) < 200 {
		t.Errorf("the state is not sealed: %s", state)
	}
	with := func(params, state, answers string) string {
		return strings.TrimSuffix(params, "}") + `,"requestState":` + state + `,"inputResponses":` + answers + `}`
	}
	const yes = `{"q1":{"action":"accept","content":{"city":"Paris"}}}`
	caps := `{"elicitation":{}}`
	bad := func(name, in, params, state, path string, headers ...string) {
		t.Helper()
		a := s.modern(path, "tools/call", with(params, state, yes), caps, headers...)
		if e := a.failure(t, 400, mcp.CodeInvalidParams); !strings.Contains(e.Message, in) {
			t.Errorf("%s: %s", name, e.Message)
		}
	}
	bad("another caller", "another caller", echoParams, state, "/mcp", "Authorization: Bearer bob")
	bad("for another person", "another caller", echoParams, state, "/mcp", "Authorization: Bearer alice for ann")
	bad("from another workspace", "another caller", echoParams, state, "/mcp", "Authorization: Bearer alice at home")
	bad("another view", "another view", echoParams, state, "/mcp/auto")
	bad("another tool", "another request", strings.Replace(echoParams, "echo", "other", 1), state, "/mcp")
	bad("other arguments", "arguments", strings.Replace(echoParams, `"x"`, `"y"`, 1), state, "/mcp")
	bad("another text", "not what this server sent", echoParams, `"`+strings.Repeat("A", 200)+`"`, "/mcp")
	bad("no text", "not what this server sent", echoParams, `5`, "/mcp")
	// Without a state it is a new call with its own questions.
	if a := s.modern("/mcp", "tools/call", strings.TrimSuffix(echoParams, "}")+`,"inputResponses":`+yes+`}`, caps); a.result(t, "resultType") != `"input_required"` {
		t.Errorf("%s", a.body)
	}
	// Without an answer it asks again with a new state; the old state is used up.
	a := s.modern("/mcp", "tools/call", with(echoParams, state, `{"q7":{}}`), caps)
	second := a.result(t, "requestState")
	if a.result(t, "inputRequests", "q1") == "" || second == state {
		t.Fatalf("%s", a.body)
	}
	bad("used", "used already", echoParams, state, "/mcp")
	// Member order does not matter in arguments.
	a = s.modern("/mcp", "tools/call", with(`{"arguments":{ "text" : "x" },"name":"demo__echo"}`, second, yes), caps)
	if !strings.Contains(a.result(t, "content"), "Paris") || a.result(t, "resultType") != `"complete"` {
		t.Errorf("%s", a.body)
	}
	bad("ended", "the call has ended", echoParams, second, "/mcp")
	if n := len(s.server.parking.all); n != 1 { // the other call
		t.Errorf("%d calls are still parked", n)
	}
}

func TestParkedCallsEnd(t *testing.T) {
	s := newSystem(t)
	ended := make(chan error, 10)
	s.Invoker = fakeInvoker(func(ctx context.Context, _ *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Result, error) {
		_, err := c.Caller.(toolkeep.Asker).Ask(ctx, mcp.MethodElicit, []byte(formQuestion))
		ended <- err
		return nil, toolkeep.AsError(err)
	})
	s.Limits.answerWithin, s.Limits.principalParked = 500*time.Millisecond, 2
	s.publish(manifest("demo.echo"))
	s.start()
	state := s.park(t)
	if err := <-ended; err == nil {
		t.Error("an abandoned call got an answer")
	}
	a := s.modern("/mcp", "tools/call", strings.TrimSuffix(echoParams, "}")+`,"requestState":`+state+`,"inputResponses":{"q1":{}}}`, `{"elicitation":{}}`)
	a.failure(t, 400, mcp.CodeInvalidParams)
	s.server.limits.answerWithin = time.Minute
	s.park(t)
	s.park(t)
	if a := s.modern("/mcp", "tools/call", echoParams, `{"elicitation":{}}`); !strings.Contains(a.body, "no room") {
		t.Errorf("%s", a.body)
	}
	<-ended
	s.park(t, "Authorization: Bearer bob")
	s.server.Close()
	for range 3 {
		if err := <-ended; err == nil {
			t.Error("Close answered a question")
		}
	}
}

func TestSeveralQuestionsAtOnce(t *testing.T) {
	s := newSystem(t)
	ready := make(chan struct{})
	s.Invoker = fakeInvoker(func(ctx context.Context, p *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Result, error) {
		a := c.Caller.(toolkeep.Asker)
		second := make(chan []byte)
		go func() {
			<-ready
			got, _ := a.Ask(ctx, mcp.MethodListRoots, nil)
			second <- got
		}()
		first, err := a.Ask(ctx, mcp.MethodElicit, []byte(formQuestion))
		if err != nil {
			return nil, toolkeep.AsError(err)
		}
		out := slices.Concat([]byte("["), first, []byte(","), <-second, []byte("]"))
		return &toolkeep.Result{State: toolkeep.CallSucceeded, Output: out}, nil
	})
	s.publish(manifest("demo.echo"))
	s.start()
	caps := `{"elicitation":{},"roots":{}}`
	a := s.modern("/mcp", "tools/call", echoParams, caps)
	close(ready)
	until(t, "the second question", func() bool {
		s.server.parking.mu.Lock()
		defer s.server.parking.mu.Unlock()
		for _, c := range s.server.parking.all {
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.open) == 2
		}
		return false
	})
	again := strings.TrimSuffix(echoParams, "}") + `,"requestState":` + a.result(t, "requestState") + `,"inputResponses":{"q1":{"action":"accept"}}}`
	a = s.modern("/mcp", "tools/call", again, caps)
	if a.result(t, "inputRequests", "q1") != "" || a.result(t, "inputRequests", "q2", "method") != `"roots/list"` {
		t.Fatalf("%s", a.body)
	}
	again = strings.TrimSuffix(echoParams, "}") + `,"requestState":` + a.result(t, "requestState") + `,"inputResponses":{"q2":{"roots":[]}}}`
	if a = s.modern("/mcp", "tools/call", again, caps); a.result(t, "content") != `[{"type":"text","text":"[{\"action\":\"accept\"},{\"roots\":[]}]"}]` {
		t.Errorf("%s", a.body)
	}
}

// Upstreams of 2026-07-28 ask several questions at once, under their own names.
func TestAskAll(t *testing.T) {
	s := newSystem(t)
	const requests = `{"user name":{"method":"elicitation/create","params":` + formQuestion + `},"roots":{"method":"roots/list"}}`
	s.Invoker = fakeInvoker(func(ctx context.Context, _ *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Result, error) {
		out, err := c.Caller.(toolkeep.BatchAsker).AskAll(ctx, []byte(requests))
		if err != nil {
			return nil, toolkeep.AsError(err)
		}
		return &toolkeep.Result{State: toolkeep.CallSucceeded, Output: out}, nil
	})
	s.publish(manifest("demo.echo"))
	s.start()
	caps := `{"elicitation":{},"roots":{}}`
	a := s.modern("/mcp", "tools/call", echoParams, caps)
	if a.result(t, "inputRequests", "user name", "params") != formQuestion || a.result(t, "inputRequests", "roots", "params") != "{}" {
		t.Fatalf("%s", a.body)
	}
	again := strings.TrimSuffix(echoParams, "}") + `,"requestState":` + a.result(t, "requestState") + `,"inputResponses":{"roots":{"roots":[]},"user name":{"action":"cancel"}}}`
	const answers = `{"user name":{"action":"cancel"},"roots":{"roots":[]}}`
	if a = s.modern("/mcp", "tools/call", again, caps); a.result(t, "structuredContent") != answers {
		t.Errorf("%s", a.body)
	}
	if a = s.modern("/mcp", "tools/call", echoParams, `{"roots":{}}`); !strings.Contains(a.body, "capability elicitation") {
		t.Errorf("%s", a.body)
	}
	// A client that knows the questions may answer with the first request. Missing and unusable
	// answers are asked for.
	early := func(responses string) answer {
		return s.modern("/mcp", "tools/call", strings.TrimSuffix(echoParams, "}")+`,"inputResponses":`+responses+`}`, caps)
	}
	if a = early(`{"roots":{"roots":[]},"more":{},"user name":{"action":"cancel"}}`); a.result(t, "structuredContent") != answers {
		t.Errorf("%s", a.body)
	}
	for _, responses := range []string{`{"roots":{"roots":[]},"user name":7,"q1":{}}`, `{"roots":{"roots":[]}}`} {
		if a = early(responses); a.result(t, "inputRequests", "user name", "params") != formQuestion || a.result(t, "inputRequests", "roots") != "" {
			t.Errorf("%s", a.body)
		}
	}
	for _, responses := range []string{`null`, `7`, `[]`} {
		if a = early(responses); a.result(t, "inputRequests", "roots", "method") != `"roots/list"` {
			t.Errorf("%s", a.body)
		}
	}
	// Older clients get one request per question, all at the same time.
	h := s.session("/mcp", "2025-11-25", caps)
	rd, _ := s.events("POST", "/mcp", callEcho, h...)
	for range 2 {
		m, _ := next(t, rd)
		reply := `{"roots":[]}`
		if m.Method == mcp.MethodElicit {
			reply = `{"action":"cancel"}`
		}
		s.post("/mcp", string(mcp.Reply(m.ID, []byte(reply)).Bytes()), h...)
	}
	if m, _ := next(t, rd); string(mcp.Get(m.Result, "structuredContent")) != answers {
		t.Errorf("%s", m.Bytes())
	}
}

func TestMissingCapabilityOfAnUpstream(t *testing.T) {
	s := newSystem(t)
	e := toolkeep.NewError(toolkeep.MCPError, "sampling is required").With("jsonrpc_code", int64(mcp.CodeMissingCapability)).
		With("data", map[string]any{"requiredCapabilities": map[string]any{"sampling": map[string]any{}}})
	s.Invoker = answering(&toolkeep.Result{State: toolkeep.CallFailed, Error: e}, nil)
	s.publish(mcpManifest("files", "read", ""))
	s.start()
	got := s.modern("/mcp", "tools/call", `{"name":"files__read"}`, "{}").failure(t, 400, mcp.CodeMissingCapability)
	if string(got.Data) != `{"requiredCapabilities":{"sampling":{}}}` {
		t.Errorf("%s", got.Data)
	}
	if a := s.post("/mcp", own("", "files__read", "{}")); a.result(t, "isError") != "true" {
		t.Errorf("%s", a.body)
	}
}

// TestDrainWaitsForNobody: when the server drains, a call that waits for a person continues without
// an answer, in every revision, and its result can still be fetched. A call that waits for a
// program keeps waiting.
func TestDrainWaitsForNobody(t *testing.T) {
	s := newSystem(t)
	ended := make(chan error, 10)
	s.Invoker = fakeInvoker(func(ctx context.Context, _ *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Result, error) {
		method, params := mcp.MethodElicit, []byte(formQuestion)
		if strings.Contains(string(c.Arguments), "roots") {
			method, params = mcp.MethodListRoots, nil
		}
		_, err := c.Caller.(toolkeep.Asker).Ask(ctx, method, params)
		ended <- err
		if err != nil {
			return &toolkeep.Result{State: toolkeep.CallFailed, Error: toolkeep.AsError(err)}, nil
		}
		return &toolkeep.Result{State: toolkeep.CallSucceeded, Output: []byte(`"answered"`)}, nil
	})
	s.publish(manifest("demo.echo"))
	s.start()
	const caps, why = `{"elicitation":{},"roots":{}}`, "the server is shutting down"
	h := s.session("/mcp", "2025-06-18", caps)
	rd, _ := s.events("POST", "/mcp", callEcho, h...)
	q, _ := next(t, rd)
	program, _ := s.events("POST", "/mcp", `{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"demo__echo","arguments":{"text":"roots"}}}`, h...)
	roots, _ := next(t, program)
	if q.Method != mcp.MethodElicit || roots.Method != mcp.MethodListRoots {
		t.Fatalf("asked are %s and %s", q.Method, roots.Method)
	}
	state := s.park(t)

	s.server.Drain()
	for range 2 {
		if err := <-ended; err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("a question to a person ends with %v", err)
		}
	}
	if m, _ := next(t, rd); m.Method != mcp.NotificationCancelled || string(mcp.Get(m.Params, "requestId")) != string(q.ID) {
		t.Errorf("the client is told %s", m.Bytes())
	}
	if m, _ := next(t, rd); !strings.Contains(string(m.Result), why) {
		t.Errorf("the call ends with %s", m.Bytes())
	}
	a := s.modern("/mcp", "tools/call", strings.TrimSuffix(echoParams, "}")+`,"requestState":`+state+`,"inputResponses":{"q1":{"action":"accept"}}}`, caps)
	if !strings.Contains(a.result(t, "content"), why) {
		t.Errorf("the parked call ends with %s", a.body)
	}
	s.post("/mcp", string(mcp.Reply(roots.ID, []byte(`{"roots":[]}`)).Bytes()), h...)
	if m, _ := next(t, program); !strings.Contains(string(m.Result), "answered") {
		t.Errorf("what waits for a program ends with %s", m.Bytes())
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	// A question asked now does not wait either.
	if a := s.modern("/mcp", "tools/call", echoParams, caps); !strings.Contains(a.result(t, "content"), why) {
		t.Errorf("a new call: %s", a.body)
	}
}
