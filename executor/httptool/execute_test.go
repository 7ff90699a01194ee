package httptool

import (
	"compress/gzip"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/executor/executortest"
)

// serve starts a server with handler h.
func serve(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// seen is what the server received of a request.
type seen struct {
	line, body string
	header     http.Header
}

// recorder answers {} and records requests.
func recorder(t testing.TB) (base string, last func() seen) {
	var mu sync.Mutex
	var s seen
	base = serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		s = seen{r.Method + " " + r.RequestURI, string(b), r.Header.Clone()}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, "{}")
	})
	return base, func() seen { mu.Lock(); defer mu.Unlock(); return s }
}

func execute(t testing.TB, e *Executor, m *toolkeep.Manifest, a string, edit ...func(*toolkeep.Execution)) (*toolkeep.Output, *toolkeep.Error) {
	t.Helper()
	x := &toolkeep.Execution{Tool: executortest.Tool(m), Args: args(t, a), MaxBytes: 1 << 20, Principal: &toolkeep.Principal{Tenant: "acme", Subject: "a"}}
	for _, f := range edit {
		f(x)
	}
	out, err := e.Execute(t.Context(), x)
	return out, toolkeep.AsError(err)
}

func TestRequest(t *testing.T) {
	base, last := recorder(t)
	const post = `{"method":"POST","server":"SERVER/api/","path":"/x","body":{"arg":"body","content_type":`
	tests := []struct {
		name, binding, args string
		line, body          string
		header              map[string]string
		creds               []toolkeep.Credential
	}{
		{name: "all places", binding: `{"method":"GET","server":"SERVER/api/","path":"/pets/{petId}/x y","parameters":[
			{"name":"petId","arg":"pet","in":"path"},{"name":"q","in":"query"},{"name":"tags[]","arg":"tags","in":"query","explode":true},
			{"name":"X-Trace","arg":"trace","in":"header"},{"name":"sid","in":"cookie"},{"name":"f","in":"cookie"},{"name":"unused","in":"query"}],
			"headers":{"Accept":"text/csv","X-Fixed":"1"}}`,
			args: `{"pet":"a/b","q":"x&y","tags":[1,2],"trace":"t","sid":"s 1","f":["a","b"]}`,
			line: "GET /api/pets/a%2Fb/x%20y?q=x%26y&tags%5B%5D=1&tags%5B%5D=2",
			header: map[string]string{"X-Trace": "t", "Cookie": "sid=s%201; f=a,b", "Accept": "text/csv", "X-Fixed": "1",
				"Accept-Encoding": acceptEncoding, "User-Agent": "toolkeep", "Content-Type": ""}},
		{name: "JSON body keeps numbers", binding: post + `"application/json"}}`, args: `{"body":{"b":9007199254740993,"a":1.10,"h":"<&>"}}`,
			line: "POST /api/x", body: `{"a":1.10,"b":9007199254740993,"h":"<&>"}`, header: map[string]string{"Content-Type": "application/json"}},
		{name: "JSON body that is null", binding: post + `"application/json"}}`, args: `{"body":null}`, line: "POST /api/x", body: `null`},
		{name: "no body", binding: post + `"application/json"}}`, args: `{}`, line: "POST /api/x", header: map[string]string{"Content-Type": "", "Content-Length": "0"}},
		{name: "text", binding: post + `"text/plain; charset=utf-8"}}`, args: `{"body":"line 1\nline 2"}`, line: "POST /api/x", body: "line 1\nline 2",
			header: map[string]string{"Content-Type": "text/plain; charset=utf-8"}},
		{name: "form", binding: post + `"application/x-www-form-urlencoded","encoding":{"o":{"style":"deepObject"},"l":{"style":"form","explode":false},"j":{"content_type":"application/json"}}}}`,
			args: `{"body":{"s":"a b&c","n":1.50,"e":[1,2],"obj":{"x":1},"o":{"y":{"z":2}},"l":["a","b"],"j":[1],"nil":null}}`,
			line: "POST /api/x", body: "e=1&e=2&j=%5B1%5D&l=a,b&n=1.50&o%5By%5D%5Bz%5D=2&obj=%7B%22x%22%3A1%7D&s=a+b%26c"},
		{name: "bearer and basic cannot both be, keys can", binding: post + `"application/json"}}`, args: `{"body":{}}`,
			line: "POST /api/x?k=a%2Bb", body: `{"token":"t1"}`,
			header: map[string]string{"Authorization": "Bearer b1", "X-Api-Key": "Token a b", "Cookie": "sess=c/=1"},
			creds: []toolkeep.Credential{
				{Spec: toolkeep.AuthSpec{Type: "bearer"}, Value: "b1"},
				{Spec: toolkeep.AuthSpec{Type: "api_key", In: "query", Name: "k"}, Value: "a+b"},
				{Spec: toolkeep.AuthSpec{Type: "api_key", Name: "X-API-Key", Prefix: "Token"}, Value: "a b"},
				{Spec: toolkeep.AuthSpec{Type: "api_key", In: "cookie", Name: "sess"}, Value: "c/=1"},
				{Spec: toolkeep.AuthSpec{Type: "api_key", In: "body", Name: "token"}, Value: "t1"},
				{Spec: toolkeep.AuthSpec{Type: "none"}}}},
		{name: "basic", binding: `{"method":"GET","server":"SERVER","path":"/"}`, args: `{}`, line: "GET /",
			header: map[string]string{"Authorization": "Basic dTpwOnE="},
			creds:  []toolkeep.Credential{{Spec: toolkeep.AuthSpec{Type: "basic"}, Value: "u:p:q"}}},
		{name: "credential beats argument", binding: `{"method":"POST","server":"SERVER","path":"/","parameters":[{"name":"Authorization","arg":"a","in":"header"}],"body":{"arg":"body","content_type":"application/x-www-form-urlencoded"}}`,
			args: `{"a":"mine","body":{"key":"mine","x":1}}`, line: "POST /", body: "x=1&key=real",
			header: map[string]string{"Authorization": "Bearer real"},
			creds: []toolkeep.Credential{{Spec: toolkeep.AuthSpec{Type: "bearer"}, Value: "real"},
				{Spec: toolkeep.AuthSpec{Type: "api_key", In: "body", Name: "key"}, Value: "real"}}},
	}
	e := newExecutor(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := manifest(t, base, tt.binding)
			out, err := execute(t, e, m, tt.args, func(x *toolkeep.Execution) { x.Credentials = tt.creds })
			if err != nil {
				t.Fatalf("%v: %v", err, err.Details)
			}
			got := last()
			if got.line != tt.line || got.body != tt.body {
				t.Errorf("got  %s\n%s\nwant %s\n%s", got.line, got.body, tt.line, tt.body)
			}
			for k, v := range tt.header {
				if got.header.Get(k) != v {
					t.Errorf("%s: %q, want %q", k, got.header.Get(k), v)
				}
			}
			if string(out.Body) != "{}" || out.ContentType != "application/json" || out.BytesRecv != 2 || out.BytesSent != int64(len(tt.body)) {
				t.Errorf("output = %+v", out)
			}
		})
	}
}

func TestRefusedArguments(t *testing.T) {
	base, last := recorder(t)
	tests := []struct {
		name, binding, args string
		code                toolkeep.Code
		pointer             string
	}{
		{"header break", `{"method":"GET","server":"SERVER","path":"/","parameters":[{"name":"X-A","arg":"a","in":"header"}]}`, `{"a":"x\r\nHost: evil"}`, toolkeep.UnsafeArgument, "/a"},
		{"path", `{"method":"GET","server":"SERVER","path":"/{a}","parameters":[{"name":"a","in":"path"}]}`, `{"a":".."}`, toolkeep.UnsafeArgument, "/a"},
		{"path is missing", `{"method":"GET","server":"SERVER","path":"/{a}","parameters":[{"name":"a","in":"path"}]}`, `{}`, toolkeep.MissingParameter, "/a"},
		{"body is missing", `{"method":"POST","server":"SERVER","path":"/","body":{"arg":"b","content_type":"application/json","required":true}}`, `{}`, toolkeep.MissingParameter, "/b"},
		{"text of an object", `{"method":"POST","server":"SERVER","path":"/","body":{"arg":"b","content_type":"text/plain"}}`, `{"b":{}}`, toolkeep.UnsafeArgument, "/b"},
		{"form of a list", `{"method":"POST","server":"SERVER","path":"/","body":{"arg":"b","content_type":"application/x-www-form-urlencoded"}}`, `{"b":[1]}`, toolkeep.UnsafeArgument, "/b"},
		{"form field", `{"method":"POST","server":"SERVER","path":"/","body":{"arg":"b","content_type":"application/x-www-form-urlencoded","encoding":{"f":{"style":"form"}}}}`, `{"b":{"f":[[1]]}}`, toolkeep.UnsafeArgument, "/b/f/0"},
		{"cookie name", `{"method":"GET","server":"SERVER","path":"/","parameters":[{"name":"a","in":"cookie","explode":true}]}`, `{"a":{"x;y":1}}`, toolkeep.UnsafeArgument, "/a/x;y"},
	}
	e := newExecutor(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := execute(t, e, manifest(t, base, tt.binding), tt.args)
			if err == nil || err.Code != tt.code || !err.NothingSent || err.Details["pointer"] != tt.pointer {
				t.Errorf("error = %+v", err)
			}
		})
	}
	for _, c := range []toolkeep.Credential{
		{Spec: toolkeep.AuthSpec{Type: "basic"}, Value: "no colon"},
		{Spec: toolkeep.AuthSpec{Type: "bearer"}, Value: "a\nb"},
		{Spec: toolkeep.AuthSpec{Type: "api_key", In: "cookie", Name: "c"}, Value: "a;b"},
		{Spec: toolkeep.AuthSpec{Type: "aws_sigv4"}, Value: "x"},
	} {
		_, err := execute(t, e, manifest(t, base, `{"method":"GET","server":"SERVER","path":"/"}`), `{}`, func(x *toolkeep.Execution) { x.Credentials = []toolkeep.Credential{c} })
		if err == nil || err.Code != toolkeep.SecretAccessDenied || !err.NothingSent || strings.Contains(err.Message, c.Value) {
			t.Errorf("%s: error = %+v", c.Spec.Type, err)
		}
	}
	if got := last(); got.line != "" {
		t.Errorf("the server got %s", got.line)
	}
}

func TestStatus(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		status int
		after  string
		code   toolkeep.Code
		class  string
		wait   time.Duration
	}{
		{400, "", toolkeep.UpstreamClientError, "VALIDATION_ERROR", 0},
		{401, "", toolkeep.SecretAccessDenied, "", 0},
		{402, "", toolkeep.UpstreamClientError, "", 0},
		{403, "", toolkeep.SecretAccessDenied, "", 0},
		{404, "", toolkeep.UpstreamClientError, "VALIDATION_ERROR", 0},
		{408, "", toolkeep.UpstreamTimeout, "", 0},
		{409, "", toolkeep.UpstreamClientError, "VALIDATION_ERROR", 0},
		{410, "", toolkeep.UpstreamClientError, "", 0},
		{422, "", toolkeep.UpstreamClientError, "VALIDATION_ERROR", 0},
		{429, "7", toolkeep.RateLimitExceeded, "", 7 * time.Second},
		{429, "Sun, 01 Mar 2026 12:00:30 GMT", toolkeep.RateLimitExceeded, "", 30 * time.Second},
		{429, "Sun, 01 Mar 2026 11:00:00 GMT", toolkeep.RateLimitExceeded, "", 0},
		{429, "Sun, 08 Mar 2026 11:00:00 GMT", toolkeep.RateLimitExceeded, "", time.Hour},
		{429, "-5", toolkeep.RateLimitExceeded, "", 0},
		{429, "soon", toolkeep.RateLimitExceeded, "", 0},
		{429, "", toolkeep.RateLimitExceeded, "", 0},
		{500, "", toolkeep.UpstreamServerError, "", 0},
		{503, "99999999999", toolkeep.UpstreamServerError, "", time.Hour},
		{504, "3", toolkeep.UpstreamServerError, "", 3 * time.Second},
		{304, "", toolkeep.InvalidResponse, "", 0},
		{300, "", toolkeep.InvalidResponse, "", 0},
		{999, "", toolkeep.InvalidResponse, "", 0},
	}
	e := New(Config{Clock: func() time.Time { return now }})
	defer e.Close()
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.status, tt.after), func(t *testing.T) {
			base := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if tt.after != "" {
					w.Header().Set("Retry-After", tt.after)
				}
				w.WriteHeader(tt.status)
				if tt.status != 304 {
					io.WriteString(w, "what was wrong")
				}
			})
			_, err := execute(t, e, manifest(t, base, `{"method":"GET","server":"SERVER","path":"/"}`), `{}`)
			if err == nil || err.Code != tt.code || err.NothingSent || err.RetryAfter != tt.wait || err.Details["status"] != tt.status {
				t.Fatalf("error = %+v", err)
			}
			if class, _ := err.Details["class"].(string); class != tt.class {
				t.Errorf("class = %q", class)
			}
			if tt.status >= 400 && err.Details["body"] != "what was wrong" {
				t.Errorf("body = %v", err.Details["body"])
			}
			if strings.Contains(err.Message, "127.0.0.1") {
				t.Errorf("the message shows the address: %s", err.Message)
			}
		})
	}
}

// TestErrorBody: the body is redacted before it is cut, so that no partial secret
// remains at the edge.
func TestErrorBody(t *testing.T) {
	const secret = "0123456789abcdef"
	for _, before := range []int{0, maxErrorShown - 8, maxErrorShown - 1, maxErrorBody - 8, maxErrorBody} {
		base := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(404)
			io.WriteString(w, strings.Repeat("é", before/2)+secret+strings.Repeat("y", 100))
		})
		_, err := execute(t, newExecutor(t), manifest(t, base, `{"method":"GET","server":"SERVER","path":"/"}`), `{}`, func(x *toolkeep.Execution) {
			x.Credentials = []toolkeep.Credential{{Spec: toolkeep.AuthSpec{Type: "bearer"}, Value: secret}}
		})
		body, _ := err.Details["body"].(string)
		if strings.Contains(body, "0123") || len(body) > maxErrorShown || strings.Contains(body, "\uFFFD") {
			t.Errorf("with %d bytes before the secret the body is %d bytes: …%s", before, len(body), body[max(0, len(body)-30):])
		}
	}
}

func TestEmptyAnswers(t *testing.T) {
	e := newExecutor(t)
	for _, tt := range []struct {
		method string
		status int
	}{{"GET", 204}, {"GET", 205}, {"GET", 200}, {"DELETE", 202}} {
		base := serve(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(tt.status) })
		out, err := execute(t, e, manifest(t, base, `{"method":"`+tt.method+`","server":"SERVER","path":"/"}`), `{}`)
		if err != nil || !out.HasValue || out.Value != nil || out.Body != nil {
			t.Errorf("%s %d: %+v, %v", tt.method, tt.status, out, err)
		}
	}
}

func TestContentTypePromised(t *testing.T) {
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = nil
		io.WriteString(w, "a,b")
	})
	out, err := execute(t, newExecutor(t), manifest(t, base, `{"method":"GET","server":"SERVER","path":"/","response_types":["text/csv"]}`), `{}`)
	if err != nil || out.ContentType != "text/csv" || string(out.Body) != "a,b" {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestMaxBytes(t *testing.T) {
	gzipped := func(n int) func(w http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			io.Copy(z, io.LimitReader(zeros{}, int64(n)))
			z.Close()
		}
	}
	plain := func(n int, declared bool) func(w http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			if declared {
				w.Header().Set("Content-Length", fmt.Sprint(n))
			} else {
				w.(http.Flusher).Flush()
			}
			io.Copy(w, io.LimitReader(zeros{}, int64(n)))
		}
	}
	tests := []struct {
		name   string
		answer func(http.ResponseWriter)
		code   toolkeep.Code // "" is success
	}{
		{"declared at the limit", plain(1000, true), ""},
		{"declared over", plain(1001, true), toolkeep.ResultTooLarge},
		{"streamed at the limit", plain(1000, false), ""},
		{"streamed over", plain(1001, false), toolkeep.ResultTooLarge},
		{"gzip at the limit", gzipped(1000), ""},
		{"gzip bomb", gzipped(50 << 20), toolkeep.ResultTooLarge},
		{"gzip that is none", func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			io.WriteString(w, "plain text")
		}, toolkeep.InvalidResponse},
		{"gzip cut off", func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Write([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff, 1, 2})
		}, toolkeep.InvalidResponse},
		{"not asked for", func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "br")
			io.WriteString(w, "x")
		}, toolkeep.InvalidResponse},
		{"cut off", func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "500")
			io.WriteString(w, "x")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, toolkeep.NetworkError},
	}
	e := newExecutor(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			base := serve(t, func(w http.ResponseWriter, r *http.Request) { tt.answer(w) })
			out, err := execute(t, e, manifest(t, base, `{"method":"GET","server":"SERVER","path":"/"}`), `{}`, func(x *toolkeep.Execution) { x.MaxBytes = 1000 })
			if tt.code == "" {
				if err != nil || len(out.Body) != 1000 || out.BytesRecv == 0 || out.BytesRecv > 1000 {
					t.Errorf("%+v, %v", out, err)
				}
				return
			}
			if err == nil || err.Code != tt.code || err.NothingSent || err.Details["status"] != 200 {
				t.Errorf("error = %+v", err)
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestRedirects(t *testing.T) {
	other, otherLast := recorder(t)
	var hops atomic.Int64
	var mu sync.Mutex
	var got []string
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		mu.Lock()
		got = append(got, r.Method+" "+r.RequestURI+" "+r.Header.Get("Authorization")+" "+string(b))
		mu.Unlock()
		q := r.URL.Query()
		switch {
		case r.URL.Path == "/loop":
			hops.Add(1)
			http.Redirect(w, r, "/loop", http.StatusFound)
		case q.Get("to") != "":
			status := 302
			fmt.Sscan(q.Get("status"), &status)
			w.Header().Set("Location", q.Get("to"))
			w.WriteHeader(status)
		default:
			io.WriteString(w, "end")
		}
	})
	e := newExecutor(t)
	call := func(t *testing.T, method, to, status string, creds ...toolkeep.Credential) (*toolkeep.Output, *toolkeep.Error) {
		t.Helper()
		got = nil
		body := ""
		if method == "POST" {
			body = `,"body":{"arg":"body","content_type":"application/json"}`
		}
		m := manifest(t, base, `{"method":"`+method+`","server":"SERVER","path":"/start","parameters":[{"name":"to","in":"query"},{"name":"status","in":"query"},{"name":"X-Private","arg":"p","in":"header"}]`+body+`}`)
		m.Permissions.Network = []toolkeep.HostPort{{Host: "127.0.0.1"}}
		a := args(t, `{"p":"private","body":{"b":1}}`)
		a["to"], a["status"] = to, status
		x := &toolkeep.Execution{Tool: executortest.Tool(m), Args: a, Credentials: creds}
		out, err := e.Execute(t.Context(), x)
		return out, toolkeep.AsError(err)
	}
	bearer := toolkeep.Credential{Spec: toolkeep.AuthSpec{Type: "bearer"}, Value: "tok-secret"}
	query := toolkeep.Credential{Spec: toolkeep.AuthSpec{Type: "api_key", In: "query", Name: "key"}, Value: "query-secret"}

	for _, tt := range []struct{ method, status, want string }{
		{"GET", "301", "GET /end?key=query-secret Bearer tok-secret "},
		{"GET", "307", "GET /end?key=query-secret Bearer tok-secret "},
		{"POST", "301", "GET /end?key=query-secret Bearer tok-secret "},
		{"POST", "303", "GET /end?key=query-secret Bearer tok-secret "},
		{"POST", "307", `POST /end?key=query-secret Bearer tok-secret {"b":1}`},
		{"POST", "308", `POST /end?key=query-secret Bearer tok-secret {"b":1}`},
		{"DELETE", "302", "DELETE /end?key=query-secret Bearer tok-secret "},
		{"DELETE", "303", "GET /end?key=query-secret Bearer tok-secret "},
	} {
		t.Run("within "+tt.method+" "+tt.status, func(t *testing.T) {
			out, err := call(t, tt.method, "/end", tt.status, bearer, query)
			if err != nil || string(out.Body) != "end" || got[len(got)-1] != tt.want {
				t.Errorf("%v, %v: %q", out, err, got)
			}
		})
	}
	t.Run("to another host without credentials", func(t *testing.T) {
		if _, err := call(t, "GET", other+"/in", "302", bearer, query); err != nil {
			t.Fatal(err)
		}
		g := otherLast()
		if g.line != "GET /in" || g.header.Get("Authorization") != "" || g.header.Get("X-Private") != "" {
			t.Errorf("the other host got %+v", g)
		}
	})
	refused := map[string]func() *toolkeep.Error{
		"body to another host":   func() *toolkeep.Error { _, err := call(t, "POST", other, "307"); return err },
		"secret in the location": func() *toolkeep.Error { _, err := call(t, "GET", other+"/?k=tok-secret", "302", bearer); return err },
		"another scheme":         func() *toolkeep.Error { _, err := call(t, "GET", "file:///etc/passwd", "302"); return err },
		"bad location":           func() *toolkeep.Error { _, err := call(t, "GET", "http://[::1", "302"); return err },
		"too many": func() *toolkeep.Error {
			_, err := execute(t, e, manifest(t, base, `{"method":"GET","server":"SERVER","path":"/loop"}`), `{}`)
			return err
		},
	}
	for name, f := range refused {
		t.Run(name, func(t *testing.T) {
			if err := f(); err == nil || err.Code != toolkeep.InvalidResponse || err.NothingSent {
				t.Errorf("error = %+v", err)
			}
		})
	}
	if hops.Load() != 6 {
		t.Errorf("the loop was followed %d times, want 1 + 5", hops.Load())
	}
	t.Run("to a forbidden address", func(t *testing.T) {
		m := manifest(t, base, `{"method":"GET","server":"SERVER","path":"/start","parameters":[{"name":"to","in":"query"}]}`)
		_, err := execute(t, e, m, `{"to":"`+other+`"}`)
		if err == nil || err.Code != toolkeep.DestinationForbidden || err.NothingSent {
			t.Errorf("error = %+v: the first request was sent", err)
		}
	})
}

func TestTLS(t *testing.T) {
	newServer := func(h2 bool) *httptest.Server {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) }))
		s.EnableHTTP2 = h2
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	s := newServer(true)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	e := New(Config{Egress: egress.PoolConfig{RootCAs: roots}})
	defer e.Close()
	m := manifest(t, s.URL, `{"method":"GET","server":"SERVER","path":"/"}`)
	out, err := execute(t, e, m, `{}`)
	if err != nil || string(out.Body) != "HTTP/2.0" {
		t.Fatalf("%v, %v, want HTTP/2", out, err)
	}
	if _, err := execute(t, newExecutor(t), m, `{}`); err == nil || err.Code != toolkeep.TLSError || !err.NothingSent {
		t.Errorf("unknown authority: %+v", err)
	}
	wrong := strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
	if _, err := execute(t, e, manifest(t, wrong, `{"method":"GET","server":"SERVER","path":"/"}`), `{}`); err == nil || err.Code != toolkeep.TLSError || !err.NothingSent {
		t.Errorf("wrong name: %+v", err)
	}
	plain, _ := recorder(t)
	down := httptest.NewTLSServer(http.RedirectHandler(plain, http.StatusFound))
	defer down.Close()
	if _, err := execute(t, e, manifest(t, down.URL, `{"method":"GET","server":"SERVER","path":"/"}`, func(m *toolkeep.Manifest) {
		m.Permissions.Network = []toolkeep.HostPort{{Host: "127.0.0.1"}}
	}), `{}`); err == nil || err.Code != toolkeep.InvalidResponse {
		t.Errorf("https to http: %+v", err)
	}
}

// TestCancelOverHTTP2: the server sees a cancelled stream, and the failure counts as
// sent.
func TestCancelOverHTTP2(t *testing.T) {
	started, stopped := make(chan struct{}), make(chan struct{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(started)
		<-r.Context().Done()
		close(stopped)
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	e := New(Config{Egress: egress.PoolConfig{RootCAs: roots}})
	defer e.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-started; cancel() }()
	_, err := e.Execute(ctx, &toolkeep.Execution{Tool: executortest.Tool(manifest(t, s.URL, `{"method":"GET","server":"SERVER","path":"/"}`))})
	if e := toolkeep.AsError(err); e == nil || e.Code != toolkeep.Cancelled || e.NothingSent {
		t.Errorf("error = %+v", e)
	}
	<-stopped
}

func TestForwarded(t *testing.T) {
	base, last := recorder(t)
	e := newExecutor(t)
	const plain = `{"method":"POST","server":"SERVER","path":"/"}`
	const withParam = `{"method":"POST","server":"SERVER","path":"/","parameters":[{"name":"idempotency-key","arg":"k","in":"header"}]}`
	idempotent := func(m *toolkeep.Manifest) { m.Idempotent = true }
	as := func(*toolkeep.Manifest) {}
	for _, tt := range []struct {
		name, binding, args, want string
		edit                      func(*toolkeep.Manifest)
	}{
		{"upstream takes none", plain, `{}`, "", as},
		{"idempotent tool", plain, `{}`, "key-1", idempotent},
		{"parameter", withParam, `{}`, "key-1", as},
		{"parameter that is given", withParam, `{"k":"own"}`, "own", as},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := execute(t, e, manifest(t, base, tt.binding, tt.edit), tt.args, func(x *toolkeep.Execution) {
				x.Tracestate = "vendor=1"
				x.Key, x.Traceparent = "key-1", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := last().header.Get(keyHeader); got != tt.want {
				t.Errorf("key = %q, want %q", got, tt.want)
			}
			if last().header.Get("Traceparent") == "" || last().header.Get("Tracestate") != "vendor=1" {
				t.Error("traceparent or tracestate is missing")
			}
		})
	}
}

// TestNoHiddenRepeat breaks a reused connection after the request arrived: net/http
// would repeat a GET by itself. A writing tool must not run twice, a reading one may.
func TestNoHiddenRepeat(t *testing.T) {
	for _, tt := range []struct {
		effects string
		method  string
		want    int64
	}{{"writes", "GET", 1}, {"writes", "POST", 1}, {"reads", "GET", 2}} {
		t.Run(tt.effects+" "+tt.method, func(t *testing.T) {
			var broken, arrived atomic.Int64
			base := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/break" {
					io.WriteString(w, "ok")
					return
				}
				arrived.Add(1)
				if broken.Add(1) == 1 {
					c, _, _ := w.(http.Hijacker).Hijack()
					c.Close()
					return
				}
				io.WriteString(w, "ok")
			})
			e := newExecutor(t)
			edit := func(m *toolkeep.Manifest) { m.SideEffects = tt.effects }
			if _, err := execute(t, e, manifest(t, base, `{"method":"GET","server":"SERVER","path":"/warm"}`, edit), `{}`); err != nil {
				t.Fatal(err)
			}
			_, err := execute(t, e, manifest(t, base, `{"method":"`+tt.method+`","server":"SERVER","path":"/break"}`, edit), `{}`)
			if n := arrived.Load(); n != tt.want {
				t.Errorf("the request arrived %d times, want %d", n, tt.want)
			}
			if tt.want == 1 && (err == nil || err.Code != toolkeep.NetworkError || err.NothingSent) {
				t.Errorf("error = %+v", err)
			}
		})
	}
}

// TestTenantsShareNoConnection counts the server's connections.
func TestTenantsShareNoConnection(t *testing.T) {
	var conns atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "{}") }))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	s.Start()
	defer s.Close()
	e := newExecutor(t)
	m := manifest(t, s.URL, `{"method":"GET","server":"SERVER","path":"/"}`)
	for _, tenant := range []string{"a", "a", "b", "b", "a"} {
		if _, err := execute(t, e, m, `{}`, func(x *toolkeep.Execution) { x.Principal = &toolkeep.Principal{Tenant: tenant} }); err != nil {
			t.Fatal(err)
		}
	}
	if n := conns.Load(); n != 2 {
		t.Errorf("%d connections for two tenants, want 2", n)
	}
}

// TestHammer calls one executor from many goroutines, with cancellation, for the race
// detector.
func TestHammer(t *testing.T) {
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // a server notices a lost client only after reading everything
		if r.URL.Query().Get("slow") == "true" {
			<-r.Context().Done()
			return
		}
		w.Write(body)
	})
	e := newExecutor(t)
	m := manifest(t, base, `{"method":"POST","server":"SERVER","path":"/","parameters":[{"name":"slow","in":"query"}],"body":{"arg":"b","content_type":"application/json"}}`)
	tool := executortest.Tool(m)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 20 {
				slow, limit := (i+j)%5 == 0, 30*time.Second
				if slow {
					limit = 5 * time.Millisecond
				}
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				out, err := e.Execute(ctx, &toolkeep.Execution{Tool: tool, Args: map[string]any{"slow": slow, "b": fmt.Sprint(i, j)}})
				cancel()
				switch {
				case slow && (err == nil || !toolkeep.IsCode(err, toolkeep.UpstreamTimeout)):
					t.Errorf("slow: %v", err)
				case !slow && (err != nil || string(out.Body) != fmt.Sprintf("%q", fmt.Sprint(i, j))):
					t.Errorf("%v, %v", out, err)
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkExecute(b *testing.B) {
	base := serve(b, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"ok":true}`)
	})
	b.Run("floor", func(b *testing.B) {
		tr := &http.Transport{}
		defer tr.CloseIdleConnections()
		c := &http.Client{Transport: tr}
		b.ReportAllocs()
		for b.Loop() {
			req, _ := http.NewRequestWithContext(b.Context(), "POST", base+"/v1/pets/42?q=x%20y", strings.NewReader(`{"name":"Rex","tags":["a","b"]}`))
			req.Header.Set("Content-Type", "application/json")
			resp, err := c.Do(req)
			if err != nil {
				b.Fatal(err)
			}
			io.ReadAll(resp.Body)
			resp.Body.Close()
		}
	})
	b.Run("execute", func(b *testing.B) {
		e := newExecutor(b)
		tool := executortest.Tool(manifest(b, base, `{"method":"POST","server":"SERVER/v1","path":"/pets/{id}","parameters":[{"name":"id","in":"path"},{"name":"q","in":"query"}],"body":{"arg":"body","content_type":"application/json"}}`))
		a := args(b, `{"id":42,"q":"x y","body":{"name":"Rex","tags":["a","b"]}}`)
		p := &toolkeep.Principal{Tenant: "acme", Subject: "a"}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := e.Execute(b.Context(), &toolkeep.Execution{Tool: tool, Args: a, Principal: p, MaxBytes: 1 << 20}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("build", func(b *testing.B) {
		bind, _ := parse(manifest(b, base, `{"method":"POST","server":"SERVER/v1","path":"/pets/{id}","parameters":[{"name":"id","in":"path"},{"name":"q","in":"query"}],"body":{"arg":"body","content_type":"application/json"}}`))
		x := &toolkeep.Execution{Args: args(b, `{"id":42,"q":"x y","body":{"name":"Rex","tags":["a","b"]}}`)}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := bind.build(x); err != nil {
				b.Fatal(err)
			}
		}
	})
}
