package console

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/andybalholm/brotli"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/face/gate"
)

type noAuth struct{}

func (noAuth) Authenticate(context.Context, string, string) (*toolkeep.Principal, error) {
	return nil, toolkeep.NewError(toolkeep.Unauthenticated, "no")
}

func packed(t testing.TB, text string) *fstest.MapFile {
	t.Helper()
	var b bytes.Buffer
	w := brotli.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	return &fstest.MapFile{Data: b.Bytes()}
}

const script = "assets/main-Ab3_x-9Z.js"

// served is a console behind its gate, of a small build.
func served(t testing.TB, base string, change func(fstest.MapFS)) http.Handler {
	t.Helper()
	files := fstest.MapFS{
		"README.md":              {Data: []byte("x")},
		"index.html.br":          packed(t, `<base href="{{base}}"><meta property="csp-nonce" content="{{nonce}}"><meta name="toolkeep-login" content="{{login}}">`),
		script + ".br":           packed(t, "export const a = 1"),
		"assets/licenses.txt.br": packed(t, "MIT"),
		"routes.json":            {Data: []byte(`["/", "/login", "/tools/:id/:view?", "/a.b/*"]`)},
	}
	if change != nil {
		change(files)
	}
	g := gate.New(gate.Config{Auth: noAuth{}, Log: slog.New(slog.DiscardHandler)})
	c := New(Config{Gate: g, Files: files, BaseURL: func() string { return base }, Login: []string{"key"}})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !c.Serve(w, r) {
			http.Error(w, "not the console's", http.StatusTeapot)
		}
	})
}

func get(h http.Handler, method, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestPages(t *testing.T) {
	t.Parallel()
	h := served(t, `https://x.example/a"b/tools/`, nil)
	for path, want := range map[string]int{
		"/": 200, "/login": 200, "/tools/std.hash": 200, "/tools/std.hash/form": 200, "/a.b/x/y": 200, "/a.b": 200, "/" + script: 200,
		"/tools": 418, "/tools/a/b/c": 418, "/axb": 418, "/index.html": 418, "/index.html.br": 418, "/routes.json": 418, "/README.md": 418, "/" + script + ".br": 418, "/assets/": 418, "/assets/../console.go": 418,
		"/api/v1/tools": 418, "/assets/%2e%2e/routes.json": 418, "//login": 418,
	} {
		w := get(h, "GET", "http://x"+path)
		if w.Code != want {
			t.Errorf("%s: %d", path, w.Code)
		}
		if want != 200 {
			continue
		}
		csp := w.Header().Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'; script-src 'self';", "frame-ancestors 'none'", "base-uri 'self'", "form-action 'self'", "connect-src 'self'"} {
			if !strings.Contains(csp, part) {
				t.Errorf("%s: CSP %q", path, csp)
			}
		}
		if strings.Contains(csp, "unsafe") || w.Header().Get("X-Frame-Options") != "DENY" || w.Header().Get("Cross-Origin-Opener-Policy") != "same-origin" || w.Header().Get("Cross-Origin-Resource-Policy") != "same-origin" {
			t.Errorf("%s: headers %v", path, w.Header())
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS", "PATCH"} {
		if w := get(h, method, "http://x/"); w.Code != 418 {
			t.Errorf("%s: %d", method, w.Code)
		}
	}
	one, two := get(h, "GET", "http://x/"), get(h, "HEAD", "http://x/login")
	if one.Header().Get("Cache-Control") != "no-store" || two.Body.Len() > 0 || two.Code != 200 {
		t.Errorf("%v %v", one.Header(), two)
	}
	nonce := func(w *httptest.ResponseRecorder) string {
		_, after, _ := strings.Cut(w.Header().Get("Content-Security-Policy"), "'nonce-")
		at, _, _ := strings.Cut(after, "'")
		return at
	}
	if nonce(one) == "" || nonce(one) == nonce(two) || !strings.Contains(one.Body.String(), `content="`+nonce(one)+`"`) {
		t.Errorf("nonces %q, %q in %s", nonce(one), nonce(two), one.Body)
	}
	if !strings.Contains(one.Body.String(), `<base href="/a%22b/tools/">`) || !strings.Contains(one.Body.String(), `content="key"`) || strings.Contains(one.Body.String(), "{{") {
		t.Errorf("page %s", one.Body)
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	h := served(t, "http://x", nil)
	for accept, want := range map[string]string{"": "", "gzip": "gzip", "gzip, deflate, br, zstd": "br", "br;q=0, gzip": "gzip", "identity": ""} {
		w := get(h, "GET", "http://x/"+script, "Accept-Encoding", accept)
		var body io.Reader = w.Body
		switch want {
		case "br":
			body = brotli.NewReader(body)
		case "gzip":
			r, err := gzip.NewReader(body)
			if err != nil {
				t.Fatal(err)
			}
			body = r
		}
		text, err := io.ReadAll(body)
		if err != nil || string(text) != "export const a = 1" || w.Header().Get("Content-Encoding") != want || w.Header().Get("Vary") != "Accept-Encoding" {
			t.Errorf("%q: %q %v %v", accept, text, err, w.Header())
		}
		if w.Header().Get("Content-Type") != "text/javascript; charset=utf-8" || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("headers %v", w.Header())
		}
	}
	if w := get(h, "GET", "http://x/assets/licenses.txt"); strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
		t.Error("a file without a hash in its name is kept for ever")
	}
}

func TestNotBuilt(t *testing.T) {
	t.Parallel()
	h := served(t, "http://x", func(f fstest.MapFS) {
		for name := range f {
			if name != "README.md" {
				delete(f, name)
			}
		}
	})
	for path, want := range map[string]int{"/": 503, "/login": 503, "/tools/x": 418} {
		if w := get(h, "GET", "http://x"+path); w.Code != want || want == 503 && !strings.Contains(w.Body.String(), "make console") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// What is in the program can be served, built or not.
func TestOwnFiles(t *testing.T) {
	t.Parallel()
	if c := New(Config{BaseURL: func() string { return "" }}); len(c.pages) == 0 {
		t.Error("it has no pages")
	}
	if New(Config{Off: true}).Serve(httptest.NewRecorder(), httptest.NewRequest("GET", "http://x/", nil)) {
		t.Error("it is off, and answers")
	}
	defer func() {
		if recover() == nil {
			t.Error("a build without routes is served")
		}
	}()
	served(t, "http://x", func(f fstest.MapFS) { delete(f, "routes.json") })
}
