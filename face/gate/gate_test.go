package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/signing"
)

type fakeAuth func(bearer, addr string) (*toolkeep.Principal, error)

func (f fakeAuth) Authenticate(_ context.Context, bearer, addr string) (*toolkeep.Principal, error) {
	return f(bearer, addr)
}

var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })

// do sends a request of this machine through a gate; headers are "Name: value".
func do(g *Gate, next http.Handler, method, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, http.NoBody)
	r.Host = "127.0.0.1:8080"
	for _, h := range headers {
		k, v, _ := strings.Cut(h, ": ")
		if k == "Host" {
			r.Host = v
			continue
		}
		r.Header.Add(k, v)
	}
	w := httptest.NewRecorder()
	g.Serve(w, r, next)
	return w
}

func refused(t *testing.T, w *httptest.ResponseRecorder, status int, code toolkeep.Code) Problem {
	t.Helper()
	var p Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Header().Get("Content-Type") != ProblemType {
		t.Fatalf("no problem document: %v in %d %s", err, w.Code, w.Body)
	}
	info := code.Info()
	if w.Code != status || p.Status != status || p.Code != string(code) || p.Name != info.Name || p.Class != info.Class || p.Instance == "" {
		t.Fatalf("%d %s, want %d %s", w.Code, w.Body, status, code)
	}
	return p
}

func TestHostAndOrigin(t *testing.T) {
	for _, x := range []struct {
		name    string
		allowed []string
		path    string
		headers []string
		refused bool
	}{
		{"loopback v4", nil, "", nil, false},
		{"loopback without port", nil, "", []string{"Host: 127.0.0.1"}, false},
		{"loopback v6", nil, "", []string{"Host: [::1]:8080"}, false},
		{"other loopback address", nil, "", []string{"Host: 127.8.8.8"}, false},
		{"localhost", nil, "", []string{"Host: LocalHost:8080"}, false},
		{"rebound name", nil, "", []string{"Host: evil.example"}, true},
		{"name that begins like loopback", nil, "", []string{"Host: 127.0.0.1.evil.example"}, true},
		{"no host", nil, "", []string{"Host: "}, true},
		{"broken v6", nil, "", []string{"Host: [::1"}, true},
		{"public address", nil, "", []string{"Host: 192.0.2.1:8080"}, true},
		{"configured", []string{"tools.example"}, "", []string{"Host: Tools.example:8443"}, false},
		{"configured with port", []string{"tools.example:8443"}, "", []string{"Host: tools.example:8443"}, false},
		{"configured with another port", []string{"tools.example:8443"}, "", []string{"Host: tools.example:9"}, true},
		{"any", []string{"*"}, "", []string{"Host: evil.example"}, false},
		{"health by address", nil, "/health/live", []string{"Host: 10.0.0.7:8080"}, false},
		{"own page", nil, "", []string{"Origin: http://127.0.0.1:8080"}, false},
		{"other site", nil, "", []string{"Origin: https://evil.example"}, true},
		{"other port", nil, "", []string{"Origin: http://127.0.0.1:9999"}, true},
		{"opaque origin", nil, "", []string{"Origin: null"}, true},
		{"other site, health", nil, "/health", []string{"Origin: https://evil.example"}, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			path := x.path
			if path == "" {
				path = "/openapi.json"
			}
			w := do(New(Config{Auth: fakeAuth(nil), Hosts: x.allowed}), ok, "GET", path, x.headers...)
			if !x.refused {
				if w.Code != 200 {
					t.Errorf("%d %s", w.Code, w.Body)
				}
				return
			}
			refused(t, w, 403, toolkeep.PermissionDenied)
		})
	}
}

func TestHeaderBlockLimit(t *testing.T) {
	g := New(Config{Auth: fakeAuth(nil), Limits: Limits{HeaderBytes: 2000}})
	refused(t, do(g, ok, "GET", "/", "X-Long: "+strings.Repeat("x", 2000)), http.StatusRequestHeaderFieldsTooLarge, toolkeep.RequestTooLarge)
}

func TestRequestID(t *testing.T) {
	g := New(Config{Auth: fakeAuth(nil)})
	id := func(headers ...string) string { return do(g, ok, "GET", "/", headers...).Header().Get("X-Request-ID") }
	if got := id("X-Request-ID: abc-1:2.3"); got != "abc-1:2.3" {
		t.Errorf("own id came back as %q", got)
	}
	if one, two := id(), id(); one == "" || one == two {
		t.Errorf("%q and %q", one, two)
	}
	for _, bad := range []string{"a b", "<script>", strings.Repeat("x", 129)} {
		if got := id("X-Request-ID: " + bad); got == bad {
			t.Errorf("%q was taken over", bad)
		}
	}
}

// A handler that is mounted below another does not pass the gate again.
func TestLeave(t *testing.T) {
	g := New(Config{Auth: fakeAuth(nil)})
	fine := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	if w := do(g, fine, "GET", "/"); w.Header().Get("Connection") != "" {
		t.Error(w.Header())
	}
	g.Leave()
	if w := do(g, fine, "GET", "/"); w.Code != 200 || w.Header().Get("Connection") != "close" {
		t.Error(w.Code, w.Header())
	}
}

func TestPassed(t *testing.T) {
	g := New(Config{Auth: fakeAuth(nil)})
	if w := httptest.NewRecorder(); Passed(w) {
		t.Error("a request that came now has passed")
	}
	w := do(g, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !Passed(w) {
			t.Error("it does not count as passed")
		}
	}), "GET", "/")
	if w.Code != 200 {
		t.Error(w.Code)
	}
}

func TestPagesOfOtherOrigins(t *testing.T) {
	g := New(Config{Auth: fakeAuth(nil), Pages: []Pages{
		{Path: "/mcp", Origins: []string{"https://App.example/"}, Allow: func(h http.Header, origin, asked string) { h.Set("Access-Control-Allow-Origin", origin+" "+asked) }},
		{Path: "/open", Origins: []string{"*"}},
	}})
	for _, x := range []struct {
		method, path, origin string
		status               int
		allow                string
	}{
		{"POST", "/mcp", "https://app.example", 200, "https://app.example a"},
		{"POST", "/mcp/all", "https://APP.example", 200, "https://APP.example a"},
		{"OPTIONS", "/mcp", "https://app.example", 204, "https://app.example a"},
		{"OPTIONS", "/mcp", "https://other.example", 403, ""},
		{"POST", "/mcpx", "https://app.example", 403, ""},
		{"POST", "/api", "https://app.example", 403, ""},
		{"POST", "/mcp", "http://127.0.0.1:8080", 200, ""}, // its own
		{"OPTIONS", "/open/x", "https://any.example", 200, ""},
	} {
		w := do(g, ok, x.method, x.path, "Origin: "+x.origin, "Access-Control-Request-Headers: a")
		if w.Code != x.status || w.Header().Get("Access-Control-Allow-Origin") != x.allow {
			t.Errorf("%+v: %d %v", x, w.Code, w.Header())
		}
	}
	refused(t, do(g, ok, "POST", "/mcp", "Origin: https://app.example", "Origin: https://app.example"), 403, toolkeep.PermissionDenied)
}

func TestPanics(t *testing.T) {
	var log strings.Builder
	g := New(Config{Auth: fakeAuth(nil), Log: slog.New(slog.NewTextHandler(&log, nil))})
	boom := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("secret-inside") })
	w := do(g, boom, "GET", "/x", "X-Request-Id: mine")
	refused(t, w, 500, toolkeep.InternalError)
	if strings.Contains(w.Body.String(), "secret-inside") || strings.Contains(w.Body.String(), "goroutine") {
		t.Errorf("the inside is shown: %s", w.Body)
	}
	if l := log.String(); !strings.Contains(l, "secret-inside") || !strings.Contains(l, "gate_test.go") || !strings.Contains(l, "request_id=mine") {
		t.Errorf("panic, stack or request is not in the log: %s", l)
	}
	defer func() {
		if v := recover(); v != http.ErrAbortHandler {
			t.Errorf("panic %v", v)
		}
		if strings.Count(log.String(), "a request handler panicked") != 2 {
			t.Errorf("%s", log.String())
		}
	}()
	do(g, g.Streaming(boom), "GET", "/x")
}

// TestFailedRequestsDoNotFloodTheLog: of requests that fail in one way the log has a few a minute.
func TestFailedRequestsDoNotFloodTheLog(t *testing.T) {
	var log strings.Builder
	g := New(Config{Auth: fakeAuth(nil), Log: slog.New(slog.NewTextHandler(&log, nil))})
	for _, code := range []toolkeep.Code{toolkeep.PolicyEngineUnavailable, toolkeep.InternalError} {
		fails := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.Refuse(w, r, toolkeep.NewError(code, "it cannot")) })
		for range 100 {
			refused(t, do(g, fails, "GET", "/x"), code.Info().HTTP, code)
		}
		if n := strings.Count(log.String(), "code="+string(code)); n != failedLines {
			t.Errorf("%d lines of 100 refusals with %s", n, code)
		}
	}
}

// The same table holds for HTTP headers and for metadata.
func TestHeaders(t *testing.T) {
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	auth := fakeAuth(func(bearer, addr string) (*toolkeep.Principal, error) {
		return &toolkeep.Principal{Subject: bearer, Addr: addr}, nil
	})
	for _, x := range []struct {
		name    string
		headers []string // name, value, …
		bearer  string
		code    toolkeep.Code // of authenticating
		call    toolkeep.Call
		fault   toolkeep.Code // of a call
		check   toolkeep.Code // of what is no call
	}{
		{name: "nothing"},
		{name: "a key", headers: []string{"authorization", "bEaReR  k "}, bearer: "k"},
		{name: "16 KiB", headers: []string{"authorization", "Bearer " + strings.Repeat("k", 16<<10)}, bearer: strings.Repeat("k", 16<<10)},
		{name: "longer", headers: []string{"authorization", "Bearer " + strings.Repeat("k", 16<<10+1)}, code: toolkeep.Unauthenticated},
		{name: "another scheme", headers: []string{"authorization", "Basic k"}, code: toolkeep.Unauthenticated},
		{name: "no scheme", headers: []string{"authorization", "k"}, code: toolkeep.Unauthenticated},
		{name: "two keys", headers: []string{"authorization", "Bearer a", "authorization", "Bearer b"}, code: toolkeep.Unauthenticated},
		{name: "all of a call", headers: []string{"x-session-id", "s", "x-user-id", "u", "idempotency-key", "i", "traceparent", trace},
			call: toolkeep.Call{Session: "s", User: "u", Key: "i", Traceparent: trace}, check: toolkeep.PermissionDenied},
		{name: "its own user", headers: []string{"authorization", "Bearer me", "x-user-id", "me"}, bearer: "me", call: toolkeep.Call{User: "me"}},
		{name: "a tracestate", headers: []string{"traceparent", trace, "tracestate", "a=1", "tracestate", "b=2"}, call: toolkeep.Call{Traceparent: trace, Tracestate: "a=1,b=2"}},
		{name: "a long tracestate", headers: []string{"traceparent", trace, "tracestate", strings.Repeat("x", 513)}, call: toolkeep.Call{Traceparent: trace}},
		{name: "a tracestate alone", headers: []string{"tracestate", "a=1"}},
		{name: "no traceparent", headers: []string{"traceparent", strings.ToUpper(trace)}},
		{name: "a short traceparent", headers: []string{"traceparent", "00-zz"}},
		{name: "an empty key", headers: []string{"idempotency-key", ""}, fault: toolkeep.MalformedRequest},
		{name: "a key twice", headers: []string{"idempotency-key", "i", "idempotency-key", "i"}, call: toolkeep.Call{Key: "i"}},
		{name: "two idempotency keys", headers: []string{"idempotency-key", "i", "idempotency-key", "j"}, call: toolkeep.Call{Key: "i"}, fault: toolkeep.InvalidParameters},
		{name: "an empty token", headers: []string{"x-capability-token", ""}, fault: toolkeep.TokenInvalid, check: toolkeep.TokenInvalid},
		{name: "a token", headers: []string{"x-capability-token", "t"}, call: toolkeep.Call{Token: "t"}, check: toolkeep.TokenInvalid}, // the fake Auth verifies none
		{name: "a token twice", headers: []string{"x-capability-token", "t", "x-capability-token", "t"}, call: toolkeep.Call{Token: "t"}, check: toolkeep.TokenInvalid},
		{name: "two tokens", headers: []string{"x-capability-token", "t", "x-capability-token", "u"}, call: toolkeep.Call{Token: "t"}, fault: toolkeep.InvalidParameters, check: toolkeep.InvalidParameters},
		{name: "a signature", headers: []string{"x-request-signature", "ab"}, fault: toolkeep.SignatureInvalid, check: toolkeep.SignatureInvalid},
		{name: "a timestamp", headers: []string{"x-request-timestamp", "1"}, fault: toolkeep.SignatureInvalid, check: toolkeep.SignatureInvalid},
	} {
		h, md := http.Header{}, map[string][]string{}
		for i := 0; i < len(x.headers); i += 2 {
			h.Add(x.headers[i], x.headers[i+1])
			md[x.headers[i]] = append(md[x.headers[i]], x.headers[i+1])
		}
		for form, headers := range map[string]Headers{"HTTP": HTTP(h), "metadata": Metadata(md)} {
			t.Run(x.name+" in "+form, func(t *testing.T) {
				g := New(Config{Auth: auth})
				p, err := g.Authenticate(t.Context(), &Request{Headers: headers, Peer: "a"})
				if err != nil {
					if toolkeep.AsError(err).Code != x.code {
						t.Error(err)
					}
					return
				}
				if x.code != "" || p.Subject != x.bearer || p.Addr != "a" {
					t.Errorf("%+v", p)
				}
				c := toolkeep.Call{}
				g.Call(headers, &c)
				if f := c.Fault; (f == nil) != (x.fault == "") || f != nil && f.Code != x.fault {
					t.Errorf("fault %v, want %s", f, x.fault)
				}
				if c.Session != x.call.Session || c.User != x.call.User || c.Key != x.call.Key || c.Traceparent != x.call.Traceparent || c.Tracestate != x.call.Tracestate || c.Token != x.call.Token {
					t.Errorf("%+v", c)
				}
				if _, err := g.Acting(headers, p); (err == nil) != (x.check == "") || err != nil && toolkeep.AsError(err).Code != x.check {
					t.Errorf("check %v, want %s", err, x.check)
				}
			})
		}
	}
	if g, c := New(Config{Auth: auth}), (toolkeep.Call{Session: "mine"}); true {
		g.Call(HTTP(http.Header{"X-Session-Id": {"other"}}), &c)
		if c.Session != "mine" {
			t.Errorf("%+v", c)
		}
	}
}

func TestAddress(t *testing.T) {
	for addr, want := range map[string]string{"10.0.0.1:80": "10.0.0.1", "[::1]:80": "::1", "[fe80::1%eth0]:80": "fe80::1%eth0", "bufconn": "bufconn", "": ""} {
		if got := Address(addr); got != want {
			t.Errorf("%s: %s", addr, got)
		}
	}
}

func TestReadBody(t *testing.T) {
	for _, x := range []struct {
		name, body string
		header     string
		lax        bool
		status     int // 0: it is read
	}{
		{"JSON", "{}", "Content-Type: application/json", false, 0},
		{"JSON in UTF-8", "{}", "Content-Type: application/json; charset=UTF-8", false, 0},
		{"JSON in Latin-1", "{}", "Content-Type: application/json; charset=latin1", true, 415},
		{"no type", "{}", "", false, 415},
		{"no type, lax", "{}", "", true, 0},
		{"form", "{}", "Content-Type: application/x-www-form-urlencoded", false, 415},
		{"form, lax", "{}", "Content-Type: application/x-www-form-urlencoded", true, 0},
		{"+json", "{}", "Content-Type: application/ld+json", false, 415},
		{"+json, lax", "{}", "Content-Type: application/ld+json", true, 0},
		{"text", "{}", "Content-Type: text/plain", true, 415},
		{"compressed", "{}", "Content-Encoding: gzip", true, 415},
		{"identity", "{}", "Content-Encoding: identity", true, 0},
		{"large", "12345678901", "", true, 413},
	} {
		for _, chunked := range []bool{false, true} {
			r := httptest.NewRequest("POST", "/", strings.NewReader(x.body))
			if chunked {
				r.ContentLength = -1
			}
			if k, v, found := strings.Cut(x.header, ": "); found {
				r.Header.Set(k, v)
			}
			body, err := ReadBody(r, 10, x.lax)
			if x.status == 0 && (err != nil || string(body) != x.body) {
				t.Errorf("%s: %v", x.name, err)
			}
			if x.status != 0 && (err == nil || NewProblem(err, "").Status != x.status) {
				t.Errorf("%s: %v", x.name, err)
			}
		}
	}
	short := httptest.NewRequest("POST", "/", strings.NewReader("{}"))
	short.ContentLength = 5
	if _, err := ReadBody(short, 10, true); err == nil || !toolkeep.IsCode(err, toolkeep.MalformedRequest) {
		t.Error(err)
	}
	slow := httptest.NewRequest("POST", "/", io.MultiReader(strings.NewReader("{"), failing{os.ErrDeadlineExceeded}))
	if _, err := ReadBody(slow, 10, true); err == nil || NewProblem(err, "").Status != http.StatusRequestTimeout {
		t.Error(err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// Every code of the catalogue has a problem document; those that no caller may see
// are E3999.
func TestProblemOfEveryCode(t *testing.T) {
	for _, i := range toolkeep.Codes() {
		e := toolkeep.NewError(i.Code, "why")
		e.InvocationID = "inv"
		p := NewProblem(e, "req")
		want := i
		if i.Kind == toolkeep.KindWarning || i.Kind == toolkeep.KindInternal {
			want = toolkeep.InternalError.Info()
		} else if p.InvocationID != "inv" || p.Instance != InvocationPath+"inv" {
			t.Errorf("%+v", p)
		}
		if p.Code != string(want.Code) || p.Status != want.HTTP || p.Error.Code != want.BC2 || p.Title == "" || p.InvocationStatus == "" {
			t.Errorf("%s: %+v", i.Code, p)
		}
	}
	if p := NewProblem(errors.New("inside"), "req"); p.Code != "E3999" || strings.Contains(p.Detail, "inside") || p.Instance != "urn:toolkeep:request:req" {
		t.Errorf("%+v", p)
	}
}

func TestRefusalsSayHowToComeBack(t *testing.T) {
	g := New(Config{Auth: fakeAuth(nil), Challenge: func(path string, err error, sent bool) string {
		if sent {
			return ""
		}
		return path + " " + string(toolkeep.AsError(err).Code)
	}})
	with := func(err error) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.Refuse(w, r, err) })
	}
	w := do(g, with(toolkeep.NewError(toolkeep.Unauthenticated, "no")), "GET", "/mcp")
	if got := w.Header().Get("WWW-Authenticate"); got != "/mcp E3214" {
		t.Errorf("%q", got)
	}
	if w = do(g, with(toolkeep.NewError(toolkeep.Unauthenticated, "no")), "GET", "/", "Authorization: Bearer x"); w.Header()["Www-Authenticate"] != nil {
		t.Errorf("%v", w.Header())
	}
	w = do(g, with(toolkeep.NewError(toolkeep.AuthFailuresLimited, "no").After(90*time.Second)), "GET", "/")
	if w.Header().Get("Retry-After") != "90" || w.Header().Get("WWW-Authenticate") != "" {
		t.Errorf("%v", w.Header())
	}
	// A detail that is no JSON does not keep the refusal back.
	p := refused(t, do(g, with(toolkeep.NewError(toolkeep.PermissionDenied, "no").With("bad", func() {})), "GET", "/"), 403, toolkeep.PermissionDenied)
	if p.Details != nil {
		t.Errorf("%+v", p)
	}
}

type refreshing struct {
	fakeAuth
	now *toolkeep.Principal // nil: the same
	err error
}

func (r refreshing) Refresh(_ context.Context, p *toolkeep.Principal) (*toolkeep.Principal, error) {
	if r.now != nil {
		return r.now, nil
	}
	return p, r.err
}

func TestStill(t *testing.T) {
	p, past := &toolkeep.Principal{}, &toolkeep.Principal{Until: time.Now().Add(-time.Second)}
	full := toolkeep.Principal{Roles: []string{"agent", "reader"}, Permissions: []string{"a", "b"}, Scope: []string{"std.*", "x.*"}, Workspace: "w"}
	narrowed := func(change func(*toolkeep.Principal)) Auth {
		now := full
		change(&now)
		return refreshing{now: &now}
	}
	for _, x := range []struct {
		auth Auth
		p    *toolkeep.Principal
		want bool
	}{
		{narrowed(func(*toolkeep.Principal) {}), &full, true},
		{narrowed(func(p *toolkeep.Principal) { p.Roles = []string{"more", "reader", "agent"} }), &full, true},
		{narrowed(func(p *toolkeep.Principal) { p.Roles = p.Roles[:1] }), &full, false},
		{narrowed(func(p *toolkeep.Principal) { p.Permissions = p.Permissions[:1] }), &full, false},
		{narrowed(func(p *toolkeep.Principal) { p.Scope = p.Scope[:1] }), &full, false},
		{narrowed(func(p *toolkeep.Principal) { p.Workspace = "" }), &full, false},
		{refreshing{err: toolkeep.NewError(toolkeep.PermissionDenied, "not any more")}, p, false},
		{fakeAuth(nil), p, true}, {fakeAuth(nil), past, false}, {refreshing{}, p, true}, {refreshing{}, past, false},
		{refreshing{err: toolkeep.NewError(toolkeep.Unauthenticated, "gone")}, p, false},
		{refreshing{err: toolkeep.NewError(toolkeep.RecordUnavailable, "away")}, p, true},
	} {
		if got := New(Config{Auth: x.auth}).Still(x.p); got != x.want {
			t.Errorf("%+v: %t", x, got)
		}
	}
}

// trailing is an Auth that keeps what it is told.
type trailing struct {
	fakeAuth
	told *[]string
}

func (t trailing) NoteRefused(p *toolkeep.Principal, permission string) {
	*t.told = append(*t.told, p.Subject+" "+permission)
}

// TestRefusalsAreNoted: what the gate refuses reaches the Auth, which counts it and tells
// of it; a refused call has told already.
func TestRefusalsAreNoted(t *testing.T) {
	var told, asked []string
	g := New(Config{Auth: trailing{fakeAuth(func(bearer, addr string) (*toolkeep.Principal, error) {
		asked = append(asked, bearer+" "+addr)
		if len(asked) > 2 {
			return nil, toolkeep.NewError(toolkeep.AuthFailuresLimited, "blocked")
		}
		return nil, toolkeep.NewError(toolkeep.Unauthenticated, "no")
	}), &told}})
	for _, want := range []toolkeep.Code{toolkeep.Unauthenticated, toolkeep.Unauthenticated, toolkeep.AuthFailuresLimited} {
		if _, err := g.Authenticate(t.Context(), &Request{Headers: HTTP(http.Header{"Authorization": {"Basic a"}}), Peer: "192.0.2.1"}); !toolkeep.IsCode(err, want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if asked[0] != "? 192.0.2.1" {
		t.Errorf("asked %q", asked)
	}
	p := &toolkeep.Principal{Subject: "ann"}
	for _, h := range []http.Header{{"X-User-Id": {"bob"}}, {"X-Capability-Token": {"x"}}} {
		if _, err := g.Acting(HTTP(h), p); err == nil {
			t.Error("it was let in")
		}
	}
	g.Note(p, Need(p, toolkeep.PermKeys))
	refused := toolkeep.NewError(toolkeep.PermissionDenied, "no")
	refused.InvocationID = "i"
	for _, err := range []error{nil, refused, toolkeep.NewError(toolkeep.ResourceNotFound, "no")} {
		g.Note(p, err)
	}
	if want := []string{"ann act-as", "ann ", "ann keys:admin"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

// TestActing: who may act for others is the named user from then on; the principal itself is not changed.
func TestActing(t *testing.T) {
	g := New(Config{Auth: fakeAuth(nil), Limits: Limits{KeyBytes: 100}})
	for _, x := range []struct {
		user   string
		may    bool
		person string
		code   toolkeep.Code
	}{
		{"", true, "agent", ""}, {"agent", false, "agent", ""}, {"ann", true, "ann", ""}, {"ann", false, "", toolkeep.PermissionDenied},
		{strings.Repeat("a", 101), true, "", toolkeep.RequestTooLarge}, {"a\xff", true, "", toolkeep.InvalidEncoding},
	} {
		p := &toolkeep.Principal{Subject: "agent", Tenant: "t"}
		if x.may {
			p.Permissions = []string{toolkeep.PermActAs}
		}
		h := http.Header{}
		if x.user != "" {
			h.Set("X-User-Id", x.user)
		}
		acting, err := g.Acting(HTTP(h), p)
		if toolkeep.IsCode(err, x.code) != (x.code != "") || err == nil && (acting.Person() != x.person || acting.Subject != "agent") || p.OnBehalf != "" {
			t.Errorf("%q: %+v %v", x.user, acting, err)
		}
	}
	p := &toolkeep.Principal{Subject: "agent", Tenant: "t", OnBehalf: "ann", Chain: []string{"ann", "planner"}, Permissions: []string{toolkeep.PermActAs}}
	if acting, err := g.Acting(HTTP(http.Header{"X-User-Id": {"bob"}}), p); err != nil || !slices.Equal(acting.Chain, []string{"bob", "ann", "planner"}) {
		t.Errorf("for another than the token says: %+v %v", acting, err)
	}
}

// reversing seals by a prefix, which clients do not know.
type reversing struct{}

func (reversing) Seal(plain, context []byte) ([]byte, error) {
	return append(append([]byte("sealed"), context...), plain...), nil
}

func (reversing) Open(sealed, context []byte) ([]byte, error) {
	plain, ok := bytes.CutPrefix(sealed, append([]byte("sealed"), context...))
	if !ok {
		return nil, errors.New("it is not sealed")
	}
	return plain, nil
}

// handing is an Auth that takes each handover once.
type handing struct {
	fakeAuth
	seen map[string]bool
}

func (h *handing) TakeHandover(_ context.Context, nonce string) error {
	if nonce == "" || h.seen[nonce] {
		return toolkeep.NewError(toolkeep.ReplayDetected, "it came before")
	}
	h.seen[nonce] = true
	return nil
}

// What another node says of a request is believed for that request alone, and what a client says in
// its place is not.
func TestHandOver(t *testing.T) {
	auth := &handing{fakeAuth: func(bearer, addr string) (*toolkeep.Principal, error) {
		return nil, toolkeep.NewError(toolkeep.Unauthenticated, "there is no bearer")
	}, seen: map[string]bool{}}
	g := New(Config{Sealer: reversing{}, Auth: auth})
	request := func(path, body, handover string) *http.Request {
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
		r.Header.Set(handoverHeader, handover)
		return r
	}
	first := request("/mcp", "{}", "made up")
	if err := g.HandOver(first, &toolkeep.Principal{Subject: "ann", Method: "mtls"}, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	said := first.Header.Get(handoverHeader)
	for name, x := range map[string]struct {
		r  *http.Request
		in bool
	}{
		"the same":        {request("/mcp", "{}", said), true},
		"another path":    {request("/mcp/all", "{}", said), false},
		"another body":    {request("/mcp", "{ }", said), false},
		"made up":         {request("/mcp", "{}", "bWFkZSB1cA"), false},
		"no encoding":     {request("/mcp", "{}", "?"), false},
		"without a word":  {httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader("{}")), false},
		"with a new user": {func() *http.Request { r := request("/mcp", "{}", said); r.Header.Set("X-User-Id", "bob"); return r }(), false},
	} {
		clear(auth.seen)
		p, err := g.AuthenticateHTTP(x.r)
		if x.in && (err != nil || p.Subject != "ann") || !x.in && !toolkeep.IsCode(err, toolkeep.Unauthenticated) {
			t.Errorf("%s: %+v %v", name, p, err)
		}
		if body, err := io.ReadAll(x.r.Body); err != nil || x.in && string(body) != "{}" {
			t.Errorf("%s: the body is %q, %v", name, body, err)
		}
	}
	if _, err := g.AuthenticateHTTP(request("/mcp", "{}", said)); err != nil && !toolkeep.IsCode(err, toolkeep.ReplayDetected) {
		t.Fatal(err)
	}
	if _, err := g.AuthenticateHTTP(request("/mcp", "{}", said)); !toolkeep.IsCode(err, toolkeep.ReplayDetected) {
		t.Errorf("handed over again: %v", err)
	}
	for _, name := range append([]string{"X-Request-Signature", "X-Request-Timestamp", "X-Request-Nonce", "X-Content-Sha256"}, signing.Signed...) {
		r := request("/mcp", "{}", said)
		r.Header.Set(name, "another")
		clear(auth.seen)
		if p, err := g.AuthenticateHTTP(r); p != nil || err == nil || len(auth.seen) != 0 {
			t.Errorf("with another %s: %+v %v", name, p, err)
		}
	}
	rest := request("/api/v1/keys", "{}", "")
	if err := g.HandOver(rest, &toolkeep.Principal{Subject: "ann", Method: "mtls"}, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if p, err := g.AuthenticateHTTP(rest); p != nil || !toolkeep.IsCode(err, toolkeep.Unauthenticated) {
		t.Errorf("over REST: %+v %v", p, err)
	}
	plain := request("/mcp", "{}", "made up")
	plain.Header.Set("Authorization", "Bearer k")
	if err := g.HandOver(plain, nil, []byte("{}")); err != nil || plain.Header.Get(handoverHeader) != "" {
		t.Errorf("a bearer without certificate or signature: %q %v", plain.Header.Get(handoverHeader), err)
	}
}

// signatures finds every signature right, and blocks from the second one on that the gate refuses.
type signatures struct {
	fakeAuth
	refused int
	told    int
}

func (s *signatures) Signed(context.Context, *toolkeep.Principal, string, *signing.Request) error {
	return nil
}

func (s *signatures) MustSign(*toolkeep.Principal, string) bool { return false }

func (s *signatures) AuthenticateProxy(context.Context, *signing.Request, bool, string) (*toolkeep.Principal, error) {
	return nil, nil
}

func (s *signatures) Unsigned(_ *toolkeep.Principal, err error) error {
	if s.refused++; s.refused > 1 {
		return toolkeep.NewError(toolkeep.AuthFailuresLimited, "blocked")
	}
	return err
}

func (s *signatures) NoteRefused(*toolkeep.Principal, string) { s.told++ }

// The signature of a call alone, on a request that is none, counts as a failed one.
func TestCallSignatureOfNoCall(t *testing.T) {
	auth := &signatures{}
	g := New(Config{Auth: auth})
	h := HTTP(http.Header{"X-Request-Signature": {"aa"}, "X-Request-Timestamp": {"1"}})
	for i, want := range []toolkeep.Code{toolkeep.SignatureInvalid, toolkeep.AuthFailuresLimited} {
		if _, err := g.Acting(h, &toolkeep.Principal{Subject: "a"}); !toolkeep.IsCode(err, want) || auth.refused != i+1 || auth.told != 0 {
			t.Errorf("%d: %v, counted %d times, told %d times", i, err, auth.refused, auth.told)
		}
	}
}

// A request without a signature and without a proxy's headers costs nothing to see that.
func TestNoSignatureCostsNothing(t *testing.T) {
	for name, h := range map[string]Headers{"HTTP": HTTP(http.Header{"Authorization": {"Bearer k"}}), "gRPC": Metadata(map[string][]string{"authorization": {"Bearer k"}})} {
		r := &Request{Headers: h}
		if n := testing.AllocsPerRun(100, func() {
			if h.named() || r.signed() != nil || h.callSignature() != nil {
				t.Error("it has one")
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	for _, name := range []string{"X-Caller-Subject", "X-Caller-Tenant", "X-Caller-Roles", "X-Caller-Chain"} {
		if !HTTP(http.Header{name: {"a"}}).named() || !Metadata(map[string][]string{strings.ToLower(name): {"a"}}).named() {
			t.Errorf("%s names no caller", name)
		}
	}
}

// believing is an Auth that believes signatures.
type believing struct{ fakeAuth }

func (believing) Signed(context.Context, *toolkeep.Principal, string, *signing.Request) error {
	return nil
}

func (believing) Unsigned(_ *toolkeep.Principal, err error) error { return err }

func (believing) MustSign(*toolkeep.Principal, string) bool { return false }

func (believing) AuthenticateProxy(context.Context, *signing.Request, bool, string) (*toolkeep.Principal, error) {
	return &toolkeep.Principal{Subject: "proxied"}, nil
}

// A proxy's headers beside a bearer count as a guess, as a bearer that cannot be read does, and are
// refused by the block that follows.
func TestProxyBesideBearerCounts(t *testing.T) {
	counted := 0
	g := New(Config{Auth: believing{func(bearer, addr string) (*toolkeep.Principal, error) {
		if counted++; bearer != unreadable || addr != "192.0.2.1" {
			t.Errorf("%q of %q is counted", bearer, addr)
		}
		if counted > 2 {
			return nil, toolkeep.NewError(toolkeep.AuthFailuresLimited, "blocked")
		}
		return nil, toolkeep.NewError(toolkeep.Unauthenticated, "no")
	}}})
	h := HTTP(http.Header{"Authorization": {"Bearer k"}, "X-Caller-Subject": {"ann"}})
	for n, want := range []toolkeep.Code{toolkeep.Unauthenticated, toolkeep.Unauthenticated, toolkeep.AuthFailuresLimited} {
		if p, err := g.Authenticate(t.Context(), &Request{Headers: h, Peer: "192.0.2.1", Face: REST}); p != nil || !toolkeep.IsCode(err, want) || counted != n+1 {
			t.Errorf("%d: %+v %v, counted %d", n, p, err, counted)
		}
	}
}

// The name of a client is bounded, has no control characters and no secrets, and does not change a
// principal that the Auth keeps.
func TestUserAgent(t *testing.T) {
	kept := &toolkeep.Principal{Subject: "a"}
	g := New(Config{Clean: func(text string) string { return strings.ReplaceAll(text, "s3cret", "[secret]") },
		Auth: fakeAuth(func(string, string) (*toolkeep.Principal, error) { return kept, nil })})
	for agent, want := range map[string]string{
		"": "", "robot/1.0 (x; y)": "robot/1.0 (x; y)", "ro\x00b\x1b[31mot\u202e\xff": "rob[31mot", "s3\x7fcret": "[secret]",
		strings.Repeat("ü", 300): strings.Repeat("ü", 128), strings.Repeat("x", 253) + "s3cret": strings.Repeat("x", 253) + "[se",
	} {
		for name, h := range map[string]Headers{"HTTP": HTTP(http.Header{"User-Agent": {agent}}), "gRPC": Metadata(map[string][]string{"user-agent": {agent}})} {
			p, err := g.Authenticate(t.Context(), &Request{Headers: h, Peer: "192.0.2.1"})
			if err != nil || p.UserAgent != want || kept.UserAgent != "" {
				t.Errorf("%s %q: %q %v, the kept one has %q", name, agent, p.UserAgent, err, kept.UserAgent)
			}
		}
	}
}

// The node to which a request is handed over knows the client's address and program.
func TestHandedOverClient(t *testing.T) {
	g := New(Config{Sealer: reversing{}, Auth: &handing{fakeAuth: func(bearer, addr string) (*toolkeep.Principal, error) {
		return &toolkeep.Principal{Subject: "ann", Addr: addr}, nil
	}, seen: map[string]bool{}}})
	for bearer, sign := range map[string]string{"": "", "Bearer k": "00"} {
		r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader("{}"))
		r.Header.Set("User-Agent", "robot/1")
		if bearer != "" {
			r.Header.Set("Authorization", bearer)
			r.Header.Set("X-Request-Signature", sign)
		}
		if err := g.HandOver(r, &toolkeep.Principal{Subject: "ann", Addr: "192.0.2.9"}, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		if p, err := g.AuthenticateHTTP(r); err != nil || p.Addr != "192.0.2.9" || p.UserAgent != "robot/1" {
			t.Errorf("%q: %+v %v", bearer, p, err)
		}
	}
}
