package httptool

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	xjson "github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/executor/executortest"
	"github.com/toolkeep/toolkeep/servertest"
)

// manifest returns a manifest for a binding in which SERVER stands for base.
func manifest(t testing.TB, base, binding string, edit ...func(*toolkeep.Manifest)) *toolkeep.Manifest {
	t.Helper()
	binding = strings.ReplaceAll(binding, "SERVER", base)
	m := &toolkeep.Manifest{
		SchemaVersion: 1, ToolID: "test.tool", Version: "1.0.0", Description: "A tool of the tests.",
		ParametersSchema: []byte(`{"type":"object"}`), SideEffects: "reads",
		Execution: toolkeep.ExecutionSpec{Kind: "http", Binding: []byte(binding)},
	}
	if u, err := url.Parse(base); err == nil && u.Port() != "" {
		n, _ := strconv.Atoi(u.Port())
		m.Permissions = &toolkeep.Permissions{Network: []toolkeep.HostPort{{Host: u.Hostname(), Port: n}}}
	}
	for _, f := range edit {
		f(m)
	}
	return m
}

func args(t testing.TB, s string) map[string]any {
	t.Helper()
	return tree(t, s).(map[string]any)
}

func newExecutor(t testing.TB) *Executor {
	e := New(Config{})
	t.Cleanup(e.Close)
	return e
}

// closedPort returns a port without a listener.
func closedPort(t testing.TB) string {
	port, err := servertest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return "http://127.0.0.1:" + strconv.Itoa(port)
}

func TestConformance(t *testing.T) {
	executortest.Run(t, func(t *testing.T) executortest.Harness {
		started, stopped := make(chan struct{}, 10), make(chan struct{}, 10)
		mux := http.NewServeMux()
		mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.Copy(w, r.Body)
		})
		mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
			started <- struct{}{}
			<-r.Context().Done()
			stopped <- struct{}{}
		})
		mux.HandleFunc("/large", func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, strings.Repeat("x", 5000))
		})
		mux.HandleFunc("/leak", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusTeapot)
			io.WriteString(w, r.Header.Get("Authorization")+r.URL.String()+r.Header.Get("Cookie"))
		})
		mux.HandleFunc("/told", func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, r.Header.Get("Authorization")+r.URL.String())
		})
		mux.HandleFunc("/status/{code}", func(w http.ResponseWriter, r *http.Request) {
			code, _ := strconv.Atoi(r.PathValue("code"))
			w.WriteHeader(code)
		})
		mux.HandleFunc("/broken", func(w http.ResponseWriter, r *http.Request) {
			c, _, _ := w.(http.Hijacker).Hijack()
			io.WriteString(c, "nonsense "+r.URL.String()+"\r\n\r\n")
			c.Close()
		})
		mux.HandleFunc("/reset", func(w http.ResponseWriter, r *http.Request) {
			c, _, _ := w.(http.Hijacker).Hijack()
			c.(*net.TCPConn).SetLinger(0)
			c.Close()
		})
		s := httptest.NewServer(mux)
		t.Cleanup(s.Close)
		e := newExecutor(t)
		call := func(name, base, method, path string, code toolkeep.Code, edit ...func(*toolkeep.Manifest)) *executortest.Case {
			body := ""
			if method == "POST" {
				body = `,"body":{"arg":"body","content_type":"application/json"}`
			}
			m := manifest(t, base, `{"method":"`+method+`","server":"SERVER","path":"`+path+`"`+body+`}`, edit...)
			return &executortest.Case{Name: name, Tool: executortest.Tool(m), Code: code,
				Args: args(t, `{"body":{"n":1.50,"list":[1,{"a":null}]}}`)}
		}
		with := func(c *executortest.Case, spec toolkeep.AuthSpec, secret string) *executortest.Case {
			c.Credentials = []toolkeep.Credential{{Spec: spec, Value: secret}}
			return c
		}
		forbidden := func(m *toolkeep.Manifest) { m.Permissions = nil }
		slow := call("slow", s.URL, "GET", "/slow", "")
		slow.Started, slow.Stopped = started, stopped
		bad := func(name, binding, pointer string) executortest.Bad {
			return executortest.Bad{Name: name, Manifest: manifest(t, s.URL, binding), Pointer: pointer}
		}
		const secret = "s3cr/et+v&lue \"x\""
		query := toolkeep.AuthSpec{Type: "api_key", In: "query", Name: "key"}
		signature := toolkeep.AuthSpec{Type: "aws_sigv4", Settings: map[string]any{"region": "eu-central-1", "service": "execute-api"}}
		return executortest.Harness{
			Executor: e, Kind: "http",
			Good:  manifest(t, s.URL, `{"method":"GET","server":"SERVER","path":"/echo"}`),
			Works: call("works", s.URL, "POST", "/echo", ""),
			Slow:  slow,
			Large: call("large", s.URL, "GET", "/large", ""),
			Bad: []executortest.Bad{
				bad("no method", `{"server":"SERVER","path":"/"}`, "/execution/binding/method"),
				bad("unknown field", `{"method":"GET","server":"SERVER","path":"/","timeout":1}`, "/execution/binding/timeout"),
			},
			Unsent: []*executortest.Case{
				call("forbidden", s.URL, "GET", "/echo", toolkeep.DestinationForbidden, forbidden),
				call("connection refused", closedPort(t), "GET", "/", toolkeep.NetworkError),
				call("no such host", "http://no-such-host.invalid", "GET", "/", toolkeep.NetworkError),
				{Name: "missing argument of a template", Tool: executortest.Tool(manifest(t, s.URL, `{"method":"GET","server":"SERVER","template":{"path":"/{{a}}"}}`)), Code: toolkeep.MissingParameter, Args: args(t, `{}`)},
				{Name: "file that is none", Tool: executortest.Tool(manifest(t, s.URL, `{"method":"PUT","server":"SERVER","path":"/","body":{"arg":"f","content_type":"image/png"}}`)), Code: toolkeep.UnsafeArgument, Args: args(t, `{"f":"!"}`)},
				call("TLS to a plain server", strings.Replace(s.URL, "http", "https", 1), "GET", "/", toolkeep.TLSError),
			},
			Sent: []*executortest.Case{
				call("reset", s.URL, "POST", "/reset", toolkeep.NetworkError),
				call("not HTTP", s.URL, "GET", "/broken", toolkeep.InvalidResponse),
				call("refused", s.URL, "GET", "/nothing", toolkeep.UpstreamClientError),
			},
			Retryable: []*executortest.Case{
				call("server error", s.URL, "GET", "/status/503", toolkeep.UpstreamServerError),
				call("connection refused", closedPort(t), "GET", "/", toolkeep.NetworkError),
				call("reset", s.URL, "POST", "/reset", toolkeep.NetworkError),
			},
			Permanent: []*executortest.Case{
				call("client error", s.URL, "GET", "/status/400", toolkeep.UpstreamClientError),
				call("certificate", strings.Replace(s.URL, "http", "https", 1), "GET", "/", toolkeep.TLSError),
			},
			Malformed: []*executortest.Case{
				call("not HTTP", s.URL, "GET", "/broken", toolkeep.InvalidResponse),
			},
			Told: []*executortest.Case{
				with(call("header in the answer", s.URL, "GET", "/told", ""), toolkeep.AuthSpec{Type: "bearer"}, secret),
				with(call("query in the answer", s.URL, "GET", "/told", ""), query, secret),
			},
			Leaky: []*executortest.Case{
				with(call("body of the answer", s.URL, "GET", "/leak", toolkeep.UpstreamClientError), toolkeep.AuthSpec{Type: "bearer"}, secret),
				with(call("query in the answer", s.URL, "GET", "/leak", toolkeep.UpstreamClientError), query, secret),
				with(call("connection refused", closedPort(t), "GET", "/", toolkeep.NetworkError), query, secret),
				with(call("signature", s.URL, "GET", "/leak", toolkeep.UpstreamClientError), signature, `{"access_key_id":"AKID","secret_access_key":"wJalr/XUt+nFE","session_token":"tok/en+=="}`),
				with(call("signature without a key", s.URL, "GET", "/leak", toolkeep.SecretAccessDenied), signature, `{"secret_access_key":"wJalr/XUt+nFE"}`),
				with(call("certificate that is none", s.URL, "GET", "/leak", toolkeep.SecretAccessDenied), toolkeep.AuthSpec{Type: "mtls"}, "-----BEGIN PRIVATE KEY-----\nMIGH\n-----END PRIVATE KEY-----\n"),
				with(call("token in a cookie", s.URL, "GET", "/leak", toolkeep.UpstreamClientError), toolkeep.AuthSpec{Type: "oauth2_refresh", In: "cookie", Name: "sid"}, "s3cr/et+v=lue"),
				with(call("token of Azure", s.URL, "GET", "/leak", toolkeep.UpstreamClientError), toolkeep.AuthSpec{Type: "azure_ad"}, secret),
				with(call("broken answer", s.URL, "GET", "/broken", toolkeep.InvalidResponse), query, secret),
				with(call("secret that a header cannot hold", s.URL, "GET", "/leak", toolkeep.SecretAccessDenied), toolkeep.AuthSpec{Type: "bearer"}, "two\r\nlines"),
			},
		}
	})
}

func tree(t testing.TB, s string) any {
	t.Helper()
	v, err := parseTree(s)
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return v
}

// specs parses auth entries.
func specs(t testing.TB, s string) []toolkeep.AuthSpec {
	t.Helper()
	var out []toolkeep.AuthSpec
	if err := xjson.Unmarshal([]byte(s), &out); err != nil {
		t.Fatal(err)
	}
	return out
}
