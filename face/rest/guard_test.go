package rest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
)

func okInvoker(res *toolkeep.Result) toolkeep.Invoker {
	return fakeInvoker(func(context.Context, *toolkeep.Principal, *toolkeep.Call) (*toolkeep.Result, error) { return res, nil })
}

func TestAuthentication(t *testing.T) {
	for _, x := range []struct {
		name, header string
		status       int
		code         toolkeep.Code
	}{
		{"good", "Authorization: bearer admin", 200, ""},
		{"none", "Authorization: ", 401, toolkeep.Unauthenticated},
		{"wrong key", "Authorization: Bearer x", 401, toolkeep.Unauthenticated},
		{"basic", "Authorization: Basic YWRtaW4=", 401, toolkeep.Unauthenticated},
		{"long", "Authorization: Bearer " + strings.Repeat("x", 5000), 401, toolkeep.Unauthenticated},
		{"limited", "Authorization: Bearer limited", 429, toolkeep.AuthFailuresLimited},
	} {
		for _, route := range [][3]string{
			{"POST", "/api/v1/tools/invoke", `{"tool_id":"demo.hash"}`}, {"GET", "/api/v1/invocations", ""},
			{"GET", "/api/v1/invocations/i", ""}, {"GET", "/api/v1/invocations/i/events", ""}, {"GET", "/api/v1/blobs/b", ""},
			{"POST", "/api/v1/keys", `{"subject":"s","roles":["agent"]}`},
			{"PATCH", "/api/v1/keys/k", `{"scope":[]}`},
		} {
			if x.code == "" && route[0]+route[1] != "POST/api/v1/tools/invoke" {
				continue
			}
			t.Run(x.name+" "+route[1], func(t *testing.T) {
				s := newSystem()
				s.Invoker = okInvoker(succeeded())
				w := s.do(t, route[0], route[1], route[2], x.header)
				wantStatus(t, w, x.status)
				if x.code == "" {
					return
				}
				problem(t, w, x.code)
				if (w.Header().Get("WWW-Authenticate") != "") != (x.status == 401) {
					t.Errorf("WWW-Authenticate %q", w.Header().Get("WWW-Authenticate"))
				}
				if x.status == 429 && w.Header().Get("Retry-After") != "90" {
					t.Errorf("Retry-After %q", w.Header().Get("Retry-After"))
				}
			})
		}
	}
}

func TestProofsThatCannotBeCheckedAreRefused(t *testing.T) {
	s := newSystem()
	for header, code := range map[string]toolkeep.Code{
		"X-Capability-Token: a.b.c": toolkeep.TokenInvalid, "X-Request-Signature: 00": toolkeep.SignatureInvalid,
		"X-Request-Timestamp: 1767225600": toolkeep.SignatureInvalid,
	} {
		for _, path := range []string{"/api/v1/invocations", "/api/v1/invocations/i", "/api/v1/blobs/b"} {
			problem(t, s.do(t, "GET", path, "", header), code)
		}
		if code == toolkeep.TokenInvalid { // the pipeline verifies that of a call
			continue
		}
		p := problem(t, s.do(t, "POST", "/api/v1/tools/invoke", `{"tool_id":"demo.hash"}`, header), code)
		if p.InvocationID != "refused-1" {
			t.Error("the refused call was not handed to the pipeline")
		}
	}
}

func TestForeignUserNeedsActAs(t *testing.T) {
	s := newSystem()
	s.catalog.list = func(catalog.Filter) ([]catalog.Summary, int) { return nil, 0 }
	for header, status := range map[string]int{"X-User-ID: agent": 200, "X-User-ID: somebody": 403} {
		wantStatus(t, s.do(t, "GET", "/api/v1/tools", "", "Authorization: Bearer agent", header), status)
	}
	wantStatus(t, s.do(t, "GET", "/api/v1/tools", "", "X-User-ID: somebody"), 200) // admin may act as
}

func TestNoSuchPathOrMethod(t *testing.T) {
	s := newSystem()
	w := s.do(t, "GET", "/api/v2/tools", "")
	wantStatus(t, w, 404)
	problem(t, w, toolkeep.ResourceNotFound)

	w = s.do(t, "DELETE", "/api/v1/tools/invoke", "")
	// DELETE /api/v1/tools/{tool_id} is a route, so this deletes a tool called invoke.
	if w.Code == 405 {
		t.Error("unexpected 405")
	}
	for path, allow := range map[string]string{
		"/api/v1/tools/import": "GET, HEAD, POST, PUT, DELETE", "/api/v1/invocations/x/cancel": "POST", "/openapi.json": "GET, HEAD",
	} {
		w = s.do(t, "PATCH", path, "")
		wantStatus(t, w, 405)
		problem(t, w, toolkeep.MalformedRequest)
		if got := w.Header().Get("Allow"); got != allow {
			t.Errorf("%s: Allow %q, want %q", path, got, allow)
		}
	}
}

func TestMounts(t *testing.T) {
	s := newSystem()
	s.Mounts = map[string]http.Handler{
		"/mcp/": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("mcp")) }),
		"/":     http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("console")) }),
		"/bad":  http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("boom") }),
	}
	a := s.api()
	for path, want := range map[string]string{"/mcp/x": "mcp", "/anything": "console"} {
		if w := send(t, a, "GET", path, ""); w.Body.String() != want {
			t.Errorf("%s: %s", path, w.Body)
		}
	}
	problem(t, send(t, a, "GET", "/api/v1/nothing", ""), toolkeep.ResourceNotFound)
	wantStatus(t, send(t, a, "PATCH", "/api/v1/keys", ""), 405)
	problem(t, send(t, a, "GET", "/mcp/x", "", "Origin: https://evil.example"), toolkeep.PermissionDenied)
	defer func() {
		if v := recover(); v != http.ErrAbortHandler {
			t.Errorf("panic %v", v)
		}
		if !strings.Contains(s.log.String(), "boom") {
			t.Error("the panic is not in the log")
		}
	}()
	send(t, a, "GET", "/bad", "")
}

func TestPanicsBecomeE3999(t *testing.T) {
	s := newSystem()
	s.Invoker = fakeInvoker(func(context.Context, *toolkeep.Principal, *toolkeep.Call) (*toolkeep.Result, error) {
		panic("secret-inside")
	})
	s.catalog.versions = nil // a nil call panics too
	for _, r := range [][3]string{{"POST", "/api/v1/tools/invoke", `{"tool_id":"demo.hash"}`}, {"GET", "/api/v1/tools/a.b/versions", ""}} {
		w := s.do(t, r[0], r[1], r[2])
		wantStatus(t, w, 500)
		problem(t, w, toolkeep.InternalError)
		if strings.Contains(w.Body.String(), "secret-inside") || strings.Contains(w.Body.String(), "goroutine") {
			t.Errorf("the inside is shown: %s", w.Body)
		}
	}
	if l := s.log.String(); !strings.Contains(l, "secret-inside") || !strings.Contains(l, "guard_test.go") {
		t.Errorf("panic or stack is not in the log: %s", l)
	}
}

func TestMissingPartsPanicAtTheStart(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a face without parts was made")
		}
	}()
	New(Config{})
}

// TestQueryStrings: what net/url passes over is refused.
func TestQueryStrings(t *testing.T) {
	for query, code := range map[string]toolkeep.Code{
		"q=hash%2":          toolkeep.MalformedRequest,
		"q=hash;limit=2":    toolkeep.MalformedRequest,
		"q=%00":             toolkeep.InvalidEncoding,
		"q=%ff%fe":          toolkeep.InvalidEncoding,
		"q=a&category=%00":  toolkeep.InvalidEncoding,
		"q=a&q=b":           toolkeep.InvalidEncoding,
		"q=a&limit=1&bog=1": toolkeep.MalformedRequest,
	} {
		w := newSystem().do(t, "GET", "/api/v1/tools/retrieval/search?"+query, "", "Authorization: Bearer agent")
		wantStatus(t, w, 400)
		problem(t, w, code)
	}
}

// TestControlCharactersInQuestions are refused as in the other faces.
func TestControlCharactersInQuestions(t *testing.T) {
	s := contextSystem()
	for _, w := range []*httptest.ResponseRecorder{
		s.do(t, "GET", "/api/v1/tools/retrieval/search?q=hash%00it", ""),
		s.do(t, "GET", "/api/v1/tools/retrieval/search?q=hash%1bit", ""),
		s.do(t, "POST", contextPath, `{"q":"hash\u001bit"}`),
	} {
		wantStatus(t, w, 400)
		problem(t, w, toolkeep.InvalidEncoding)
		if !strings.Contains(w.Body.String(), `"detail":"the query contains the control character U+00`) {
			t.Errorf("%s", w.Body)
		}
	}
	// In a message they are read as spaces.
	d := contextOf(t, s, `{"messages":[{"role":"user","content":"hash\u001ba text"}]}`)
	if len(d.LightweightIndex) == 0 || d.LightweightIndex[0].ToolID != "demo.hash" {
		t.Errorf("%+v", d)
	}
}
