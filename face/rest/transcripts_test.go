package rest_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/face/facetest"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

func TestTranscripts(t *testing.T) {
	facetest.Run(t, func(t *testing.T) facetest.Harness {
		k, tools, keys := toolkeeptest.ForFaces(t)
		f := &restFace{url: k.URL(), keys: keys}
		return facetest.Harness{Face: f, Tools: tools, Follow: f.follow, Drain: k.Pipeline().Drain, HTTP: true}
	})
}

// restFace is a client of REST as facetest sees it.
type restFace struct {
	url  string
	keys map[string]string
}

// restAnswer has the members of a response, a status and a problem.
type restAnswer struct {
	InvocationID string          `json:"invocation_id"`
	Status       json.RawMessage `json:"status"` // a word, or a problem's number
	Result       json.RawMessage `json:"result"`
	Code         toolkeep.Code   `json:"code"`
	Name         string          `json:"name"`
	Class        string          `json:"class"`
	Retryable    bool            `json:"retryable"`
	RetryAfterS  int             `json:"retry_after_s"`
	Details      struct {
		Errors []facetest.Fault `json:"errors"`
	} `json:"details"`
	Error *struct {
		ErrorCode   toolkeep.Code `json:"error_code"`
		Name        string        `json:"name"`
		Class       string        `json:"class"`
		Retryable   bool          `json:"retryable"`
		RetryAfterS int           `json:"retry_after_s"`
	} `json:"error"`
	ExecutionMetadata struct {
		ToolVersion         string `json:"tool_version"`
		Source              string `json:"source"`
		CacheHit            bool   `json:"cache_hit"`
		IdempotencyReplayed bool   `json:"idempotency_replayed"`
		Warnings            []struct {
			Code toolkeep.Code `json:"code"`
		} `json:"warnings"`
	} `json:"execution_metadata"`
	Cancelled bool `json:"cancelled"`
}

// Send implements facetest.Sender.
func (f *restFace) Send(t *testing.T, look bool, headers ...string) facetest.Answer {
	t.Helper()
	method, path, body := "POST", "/api/v1/tools/invoke", `{"tool_id":"face.echo","parameters":{"text":"hello"}}`
	if look {
		method, path, body = "GET", "/api/v1/invocations/01900000-0000-7000-8000-00000000dead", ""
	}
	req, err := http.NewRequestWithContext(t.Context(), method, f.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = facetest.HTTPHeaders(req, "Bearer "+f.keys["agent"], headers)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var a restAnswer
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		t.Fatal(err)
	}
	return answerOf(resp.StatusCode, a)
}

func (f *restFace) send(t *testing.T, as, method, path, body string, header map[string]string, answered ...*http.Header) (int, restAnswer, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, f.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	if as != "" {
		req.Header.Set("Authorization", "Bearer "+f.keys[as])
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for _, h := range answered {
		*h = resp.Header
	}
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var a restAnswer
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/") {
		if err := json.Unmarshal(raw, &a); err != nil {
			t.Fatalf("%v in %s", err, raw)
		}
	}
	return resp.StatusCode, a, raw
}

func answerOf(status int, a restAnswer) facetest.Answer {
	if status >= 400 {
		return facetest.Answer{Refused: true, Code: a.Code, Name: a.Name, Class: a.Class, Retryable: a.Retryable, Wait: a.RetryAfterS > 0,
			Faults: a.Details.Errors, ID: a.InvocationID}
	}
	m := a.ExecutionMetadata
	out := facetest.Answer{State: strings.Trim(string(a.Status), `"`), Output: string(a.Result), Version: m.ToolVersion, Cached: m.CacheHit,
		Replayed: m.IdempotencyReplayed, ID: a.InvocationID}
	for _, w := range m.Warnings {
		out.Warnings = append(out.Warnings, w.Code)
	}
	if e := a.Error; e != nil {
		out.Code, out.Name, out.Class, out.Retryable, out.Wait = e.ErrorCode, e.Name, e.Class, e.Retryable, e.RetryAfterS > 0
	}
	return out
}

func (f *restFace) Call(t *testing.T, a facetest.Ask) facetest.Answer {
	t.Helper()
	var b bytes.Buffer
	fields := map[string]any{"tool_id": a.Tool, "tool_version": a.Version, "agent_id": a.Agent,
		"execution_options": map[string]any{"async_mode": a.Async, "require_approval": a.Approval}}
	if a.Timeout > 0 {
		fields["timeout_seconds"] = a.Timeout.Seconds()
	}
	raw, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	b.Write(raw[:len(raw)-1])
	switch {
	case a.Broken:
		b.WriteString(`,"parameters":{"text":nope}`)
	case a.Arguments != "":
		b.WriteString(`,"parameters":` + a.Arguments)
	}
	b.WriteString("}")
	header := map[string]string{}
	for name, v := range map[string]string{"Idempotency-Key": a.Key, "X-Capability-Token": a.Token, "X-Request-Signature": a.Signature} {
		if v != "" {
			header[name] = v
		}
	}
	status, got, _ := f.send(t, a.As, "POST", "/api/v1/tools/invoke", b.String(), header)
	return answerOf(status, got)
}

func (f *restFace) Get(t *testing.T, as, id string) facetest.Answer {
	t.Helper()
	status, got, _ := f.send(t, as, "GET", "/api/v1/invocations/"+id, "", nil)
	return answerOf(status, got)
}

func (f *restFace) Cancel(t *testing.T, as, id string) (bool, facetest.Answer) {
	t.Helper()
	status, got, _ := f.send(t, as, "POST", "/api/v1/invocations/"+id+"/cancel", `{"reason":"a test"}`, nil)
	if status >= 400 {
		return false, answerOf(status, got)
	}
	return got.Cancelled, facetest.Answer{}
}

// Context implements facetest.Retriever.
func (f *restFace) Context(t *testing.T, a facetest.AskContext) facetest.GotContext {
	t.Helper()
	body := map[string]any{}
	if a.Query != "" {
		body["q"] = a.Query
	}
	if a.Phase != "" {
		body["phase"] = a.Phase
	}
	if a.Budget != 0 {
		body["budget"] = a.Budget
	}
	var said []map[string]any
	for _, m := range a.Said {
		one := map[string]any{"role": m[0], "content": m[1]}
		if m[0] == "tool" {
			one["toolId"], one["toolError"] = "face.echo", map[string]any{"errorCode": a.Failed}
		}
		said = append(said, one)
	}
	if said != nil {
		body["messages"] = said
	}
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	var header http.Header
	status, got, answer := f.send(t, a.As, "POST", "/api/v1/tools/retrieval/context", string(raw), nil, &header)
	if status >= 400 {
		return facetest.GotContext{Refused: answerOf(status, got)}
	}
	var c struct {
		Data struct {
			DetailedTools []struct{ ToolID string }
			Metadata      struct{ Phase string }
		}
	}
	if err := json.Unmarshal(answer, &c); err != nil {
		t.Fatal(err)
	}
	out := facetest.GotContext{Phase: c.Data.Metadata.Phase, ID: header.Get("X-Retrieval-ID")}
	for _, d := range c.Data.DetailedTools {
		out.Tools = append(out.Tools, d.ToolID)
	}
	return out
}

// Feedback implements facetest.Judge.
func (f *restFace) Feedback(t *testing.T, as string, s facetest.Feedback) (bool, facetest.Answer) {
	t.Helper()
	body := map[string]any{}
	for name, v := range map[string]string{"retrievalId": s.ID, "query": s.Query, "toolSelected": s.Tool} {
		if v != "" {
			body[name] = v
		}
	}
	if s.Relevance >= 0 {
		body["relevance"] = s.Relevance
	}
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	status, got, answer := f.send(t, as, "POST", "/api/v1/tools/retrieval/feedback", string(raw), nil)
	if status >= 400 {
		return false, answerOf(status, got)
	}
	var a struct{ Data struct{ Recorded bool } }
	if err := json.Unmarshal(answer, &a); err != nil {
		t.Fatal(err)
	}
	return a.Data.Recorded, facetest.Answer{}
}

// follow reads the event stream, which ends with the result.
func (f *restFace) follow(t *testing.T, as, id string) facetest.Answer {
	t.Helper()
	if status, _, raw := f.send(t, as, "GET", "/api/v1/invocations/"+id+"/events", "", nil); status != http.StatusOK || !bytes.Contains(raw, []byte("event: result")) {
		t.Fatalf("%d %s", status, raw)
	}
	return f.Get(t, as, id)
}
