package rest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/face/gate"
)

const hashCall = `{"tool_id":"demo.hash","parameters":{"text":"a"}}`

func TestInvoke(t *testing.T) {
	s := newSystem()
	var got *toolkeep.Call
	s.Invoker = fakeInvoker(func(_ context.Context, p *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Result, error) {
		got = c
		c.Told(toolkeep.RateLeft{Kind: "agent", PerMinute: 100, Left: 42, Reset: 1500 * time.Millisecond})
		if p.Subject != "admin" || p.Addr != "192.0.2.1" {
			t.Errorf("principal %+v", p)
		}
		return succeeded(), nil
	})
	w := s.do(t, "POST", "/api/v1/tools/invoke", hashCall)
	wantStatus(t, w, 200)
	if got.Tool != "demo.hash" || string(got.Arguments) != `{"text":"a"}` || got.Face != "rest" {
		t.Errorf("call %+v", got)
	}
	want := `{"invocation_id":"01900000-0000-7000-8000-000000000001","status":"success","result":{"n":9007199254740993,"html":"<b>"},` +
		`"execution_metadata":{"duration_ms":15,"started_at":"2026-01-02T03:04:05.6Z","completed_at":"2026-01-02T03:04:05.615Z",` +
		`"cpu_used_millicore_seconds":0,"memory_peak_mb":0,"network_bytes_sent":0,"network_bytes_received":0,"documents_accessed":[],"checkpoints_created":[],` +
		`"tool_version":"1.2.0","overhead_us":300,"source":"executed","cache_hit":false,"idempotency_replayed":false,"retry_count":0,"truncated":false,"cost_usd":0,"attachments":[],"warnings":[]},"call_id":"call-1"}`
	if w.Body.String() != want {
		t.Errorf("body %s", w.Body)
	}
	for k, v := range map[string]string{"Content-Type": gate.JSONType, "RateLimit": `"agent";r=42;t=2`, "RateLimit-Policy": `"agent";q=100;w=60`,
		"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"} {
		if w.Header().Get(k) != v {
			t.Errorf("%s: %q, want %q", k, w.Header().Get(k), v)
		}
	}
}

// TestInvokeFallback: the answer and the list say which tool answered instead.
func TestInvokeFallback(t *testing.T) {
	s := newSystem()
	res := succeeded()
	res.Fallback = &toolkeep.Fallback{Tool: "demo.other", Version: "2.0.0", InvocationID: "j", Reason: toolkeep.CircuitBreakerOpen}
	s.Invoker = okInvoker(res)
	w := s.do(t, "POST", "/api/v1/tools/invoke", hashCall)
	if want := `"warnings":[],"fallback":{"tool_id":"demo.other","tool_version":"2.0.0","invocation_id":"j","reason":"E3903"}}`; !strings.Contains(w.Body.String(), want) {
		t.Errorf("body %s", w.Body)
	}
}

func TestInvokeWaits(t *testing.T) {
	for state, status := range map[toolkeep.CallState]string{
		toolkeep.CallAccepted: "pending", toolkeep.CallQueued: "pending", toolkeep.CallPendingApproval: "pending_approval",
		toolkeep.CallInputRequired: "pending_approval", toolkeep.CallRunning: "running",
	} {
		s := newSystem()
		s.Invoker = okInvoker(&toolkeep.Result{InvocationID: "i1", State: state, ToolVersion: "1.0.0"})
		w := s.do(t, "POST", "/api/v1/tools/invoke", `{"tool_id":"demo.hash","execution_options":{"async_mode":true}}`)
		wantStatus(t, w, 202)
		m := decode(t, w)
		if m["status"] != status || w.Header().Get("Location") != "/api/v1/invocations/i1" {
			t.Errorf("%s: %v, Location %s", state, m, w.Header().Get("Location"))
		}
		if u := m["polling_info"].(map[string]any)["status_url"]; u != "/api/v1/invocations/i1" {
			t.Errorf("status_url %v", u)
		}
		if md := m["execution_metadata"].(map[string]any); md["started_at"] != nil || md["completed_at"] != nil {
			t.Errorf("times of a call that has not begun: %v", md)
		}
	}
}

// A tool that failed is an answer: 200, whatever HTTP status its code has.
func TestInvokeToolFailed(t *testing.T) {
	for _, info := range toolkeep.Codes() {
		if info.Kind != toolkeep.KindResult {
			continue
		}
		s := newSystem()
		e := toolkeep.NewError(info.Code, "it <failed>").With("upstream_status", 503).After(1500 * time.Millisecond)
		e.Retryable = true
		s.Invoker = okInvoker(&toolkeep.Result{InvocationID: "i1", State: toolkeep.CallFailed, Error: e, Attempts: 3, StartedAt: at, EndedAt: at})
		w := s.do(t, "POST", "/api/v1/tools/invoke", hashCall)
		wantStatus(t, w, 200)
		m := decode(t, w)
		if want := toolkeep.CallFailed.BC2(info.Code); m["status"] != want {
			t.Errorf("%s: status %v, want %s", info.Code, m["status"], want)
		}
		x := m["error"].(map[string]any)
		if x["code"] != info.BC2 || x["error_code"] != string(info.Code) || x["name"] != info.Name || x["class"] != info.Class ||
			x["message"] != "it <failed>" || x["retryable"] != true || x["retry_after_s"].(fmt.Stringer).String() != "2" {
			t.Errorf("%s: %v", info.Code, x)
		}
	}
}

// Every code of the catalogue has a status and a problem document.
func TestEveryCodeAsARefusal(t *testing.T) {
	for _, info := range toolkeep.Codes() {
		t.Run(string(info.Code), func(t *testing.T) {
			s := newSystem()
			cause := errors.New("the inside of it")
			s.Invoker = fakeInvoker(func(context.Context, *toolkeep.Principal, *toolkeep.Call) (*toolkeep.Result, error) {
				e := toolkeep.NewError(info.Code, "no").With("reason", "R").Because(cause).After(time.Second)
				e.InvocationID = "i1"
				return nil, e
			})
			w := s.do(t, "POST", "/api/v1/tools/invoke", hashCall)
			if strings.Contains(w.Body.String(), cause.Error()) {
				t.Errorf("the cause is shown: %s", w.Body)
			}
			if info.Kind == toolkeep.KindWarning || info.Kind == toolkeep.KindInternal {
				wantStatus(t, w, 500)
				problem(t, w, toolkeep.InternalError)
				return
			}
			wantStatus(t, w, info.HTTP)
			if w.Code < 400 || w.Code > 599 {
				t.Errorf("status %d is no refusal", w.Code)
			}
			p := problem(t, w, info.Code)
			if p.Type != "urn:toolkeep:error:"+string(info.Code) || p.Detail != "no" || p.Instance != "/api/v1/invocations/i1" || p.InvocationID != "i1" ||
				p.Retryable != info.Retryable || p.Details["reason"] != "R" || p.Error.Code != info.BC2 || p.Error.Message != "no" || p.Title == "" {
				t.Errorf("%+v", p)
			}
			want := "error"
			switch {
			case info.BC6 == "UNAUTHORIZED":
				want = "permission_denied"
			case info.Code == toolkeep.Cancelled:
				want = "cancelled"
			}
			if p.InvocationStatus != want {
				t.Errorf("status %s, want %s", p.InvocationStatus, want)
			}
			if (w.Header().Get("Retry-After") == "1") != info.Retryable {
				t.Errorf("Retry-After %q of %s", w.Header().Get("Retry-After"), info.Code)
			}
		})
	}
}

func TestForeignErrorIsE3999(t *testing.T) {
	s := newSystem()
	s.Invoker = fakeInvoker(func(context.Context, *toolkeep.Principal, *toolkeep.Call) (*toolkeep.Result, error) {
		return nil, errors.New("dial tcp 10.0.0.1: refused")
	})
	w := s.do(t, "POST", "/api/v1/tools/invoke", hashCall)
	wantStatus(t, w, 500)
	problem(t, w, toolkeep.InternalError)
	if strings.Contains(w.Body.String(), "10.0.0.1") || !strings.Contains(s.log.String(), "10.0.0.1") {
		t.Errorf("body %s log %s", w.Body, s.log.String())
	}
}

// Details that do not marshal are a bug of whoever made the error; the refusal
// stands all the same.
func TestDetailsThatAreNoJSON(t *testing.T) {
	s := newSystem()
	s.Invoker = fakeInvoker(func(context.Context, *toolkeep.Principal, *toolkeep.Call) (*toolkeep.Result, error) {
		return nil, toolkeep.NewError(toolkeep.ToolNotFound, "no").With("bad", func() {})
	})
	problem(t, s.do(t, "POST", "/api/v1/tools/invoke", hashCall), toolkeep.ToolNotFound)
}

func TestInvokeFaultsReachThePipeline(t *testing.T) {
	for name, x := range map[string]struct {
		body   string
		header string
		code   toolkeep.Code
	}{
		"not json":       {`{`, "X-A: b", toolkeep.MalformedRequest},
		"empty":          {"", "X-A: b", toolkeep.MalformedRequest},
		"wrong type":     {hashCall, "Content-Type: text/plain", toolkeep.MalformedRequest},
		"latin1":         {hashCall, "Content-Type: application/json; charset=latin1", toolkeep.MalformedRequest},
		"compressed":     {hashCall, "Content-Encoding: gzip", toolkeep.MalformedRequest},
		"over the limit": {`{"tool_id":"` + strings.Repeat("x", 2000) + `"}`, "X-A: b", toolkeep.RequestTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSystem()
			s.Limits.BodyBytes = 1000
			p := problem(t, s.do(t, "POST", "/api/v1/tools/invoke", x.body, x.header), x.code)
			if p.InvocationID != "refused-1" {
				t.Error("the refused call was not handed to the pipeline")
			}
		})
	}
}

func TestContentTypesThatAreJSON(t *testing.T) {
	s := newSystem()
	s.Invoker = okInvoker(succeeded())
	for _, ct := range []string{"application/json", "application/json; charset=UTF-8", "application/vnd.x+json", "application/x-www-form-urlencoded"} {
		wantStatus(t, s.do(t, "POST", "/api/v1/tools/invoke", hashCall, "Content-Type: "+ct), 200)
		problem(t, s.do(t, "POST", "/api/v1/tools/import", `{"type":"openapi"}`, "Content-Type: "+ct), toolkeep.MalformedRequest)
	}
}

func TestDryRunExplains(t *testing.T) {
	s := newSystem()
	s.calls.explain = func(p *toolkeep.Principal, c *toolkeep.Call) (any, error) {
		return map[string]any{"tool": c.Tool, "would": "<run>"}, nil
	}
	w := s.do(t, "POST", "/api/v1/tools/invoke", `{"tool_id":"demo.hash","dry_run":true}`)
	wantStatus(t, w, 200)
	if w.Body.String() != `{"tool":"demo.hash","would":"<run>"}` {
		t.Errorf("%s", w.Body)
	}
	s.calls.explain = func(*toolkeep.Principal, *toolkeep.Call) (any, error) {
		return nil, toolkeep.NewError(toolkeep.ToolNotFound, "no")
	}
	problem(t, s.do(t, "POST", "/api/v1/tools/invoke", `{"tool_id":"demo.hash","dry_run":true}`), toolkeep.ToolNotFound)
}

func TestDeprecationHeaders(t *testing.T) {
	s := newSystem()
	r := succeeded()
	r.Warnings = []toolkeep.Warning{{Code: toolkeep.ToolDeprecated, Message: "old", Details: map[string]any{
		"deprecated_at": "2026-01-01T00:00:00Z", "sunset_at": time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC), "successor": "2.0.0"}}}
	r.Attachments = []toolkeep.Attachment{{Kind: "blob", URL: "/api/v1/blobs/b", Bytes: 5}}
	s.Invoker = okInvoker(r)
	w := s.do(t, "POST", "/api/v1/tools/invoke", hashCall)
	if d, u := w.Header().Get("Deprecation"), w.Header().Get("Sunset"); d != "@1767225600" || u != "Mon, 01 Jun 2026 00:00:00 GMT" {
		t.Errorf("Deprecation %q Sunset %q", d, u)
	}
	md := decode(t, w)["execution_metadata"].(map[string]any)
	if len(md["warnings"].([]any)) != 1 || len(md["attachments"].([]any)) != 1 {
		t.Errorf("%v", md)
	}
}

func TestClientThatLeavesCancelsTheCall(t *testing.T) {
	s := newSystem()
	began, ended := make(chan struct{}), make(chan error, 1)
	s.Invoker = fakeInvoker(func(ctx context.Context, _ *toolkeep.Principal, _ *toolkeep.Call) (*toolkeep.Result, error) {
		close(began)
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, toolkeep.NewError(toolkeep.Cancelled, "cancelled")
	})
	srv := httptest.NewServer(s.api())
	defer srv.Close()
	ctx, cancel := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, "POST", srv.URL+"/api/v1/tools/invoke", strings.NewReader(hashCall))
	r.Header.Set("Authorization", "Bearer admin")
	go func() {
		res, err := http.DefaultClient.Do(r)
		if err == nil {
			res.Body.Close()
		}
	}()
	<-began
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// The keys of the problem document are a contract.
func TestProblemMembers(t *testing.T) {
	s := newSystem()
	s.Invoker = fakeInvoker(func(context.Context, *toolkeep.Principal, *toolkeep.Call) (*toolkeep.Result, error) {
		e := toolkeep.FaultsError(toolkeep.InputValidationFailed, "1 fault", []toolkeep.Fault{{Pointer: "/text", Rule: "type", Message: "a string"}}).After(time.Second)
		e.InvocationID = "i"
		return nil, e
	})
	m := decode(t, s.do(t, "POST", "/api/v1/tools/invoke", hashCall))
	got := slices.Sorted(maps.Keys(m))
	want := []string{"class", "code", "detail", "details", "error", "instance", "invocation_id", "invocation_status", "name", "retry_after_s", "retryable", "status", "title", "type"}
	if !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if f := m["details"].(map[string]any)["errors"].([]any)[0].(map[string]any); f["pointer"] != "/text" || f["rule"] != "type" {
		t.Errorf("%v", f)
	}
}
