package policy

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/toolkeep/toolkeep"
)

// shelf serves one archive at /bundle.tar.gz and, as an OCI registry does, as policies/p:stable.
type shelf struct {
	*httptest.Server
	mu        sync.Mutex
	archive   []byte
	layer     string // its media type
	stored    []byte // the blob, "" is archive
	down      bool
	fetched   int // archives sent
	etags     bool
	password  string
	elsewhere string // where /bundle.tar.gz redirects to, "" nowhere
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	s := &shelf{layer: ocispec.MediaTypeImageLayerGzip, etags: true, password: "s3cret"}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *shelf) set(t *testing.T, files ...*tar.Header) {
	t.Helper()
	at := filepath.Join(t.TempDir(), "b")
	bundle(t, at, files...)
	raw, err := os.ReadFile(at)
	if err != nil {
		t.Fatal(err)
	}
	s.do(func() { s.archive = raw })
}

func (s *shelf) do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func sum(raw []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(raw)) }

func (s *shelf) manifest() []byte {
	raw, _ := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": ocispec.MediaTypeImageManifest,
		"config": map[string]any{"mediaType": ocispec.MediaTypeImageConfig, "digest": sum([]byte("{}")), "size": 2},
		"layers": []any{map[string]any{"mediaType": s.layer, "digest": sum(s.archive), "size": len(s.archive)}}})
	return raw
}

func (s *shelf) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	manifest := s.manifest()
	registry := strings.HasPrefix(r.URL.Path, "/v2/")
	user, password, basic := r.BasicAuth()
	switch {
	case s.down:
		w.WriteHeader(http.StatusServiceUnavailable)
	case r.URL.Path == "/token": // the registry's, for its token authentication
		if !basic || user != "reader" || password != s.password || r.URL.Query().Get("scope") != "repository:policies/p:pull" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(w, `{"token":"t-%s"}`, s.password)
	case registry && r.Header.Get("Authorization") != "Bearer t-"+s.password:
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="shelf",scope="repository:policies/p:pull"`, s.URL))
		w.WriteHeader(http.StatusUnauthorized)
	case r.URL.Path == "/v2/policies/p/manifests/stable", r.URL.Path == "/v2/policies/p/manifests/"+sum(manifest):
		w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
		w.Header().Set("Docker-Content-Digest", sum(manifest))
		w.Header().Set("Content-Length", fmt.Sprint(len(manifest)))
		if r.Method != http.MethodHead {
			_, _ = w.Write(manifest)
		}
	case r.URL.Path == "/v2/policies/p/blobs/"+sum(s.archive): // as registries that keep blobs elsewhere
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	case r.URL.Path == "/elsewhere":
		s.fetched++
		raw := s.archive
		if s.stored != nil {
			raw = s.stored
		}
		_, _ = w.Write(raw)
	case r.URL.Path == "/bundle.tar.gz" && s.elsewhere != "":
		http.Redirect(w, r, s.elsewhere, http.StatusTemporaryRedirect)
	case r.URL.Path == "/bundle.tar.gz":
		if r.Header.Get("Authorization") != "Bearer "+s.password {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if s.etags {
			w.Header().Set("ETag", `"`+sum(s.archive)+`"`)
			if r.Header.Get("If-None-Match") == `"`+sum(s.archive)+`"` {
				w.WriteHeader(http.StatusNotModified)
				return
			}
		}
		s.fetched++
		_, _ = w.Write(s.archive)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (s *shelf) bundle(kind, keep string) *Bundle {
	b := &Bundle{URL: s.URL + "/bundle.tar.gz", Every: time.Hour, Timeout: 20 * time.Second, Keep: keep,
		Client: &http.Client{CheckRedirect: Redirects}, Credential: func(context.Context) (string, error) { return "s3cret", nil }}
	if kind == "oci" {
		b.URL = "oci://" + strings.TrimPrefix(s.URL, "http://") + "/policies/p:stable"
		b.Credential = func(context.Context) (string, error) { return "reader:s3cret", nil }
	}
	return b
}

// TestBundle: a policy at an address is taken at the start and when it changes, is not fetched again
// while it does not, goes on while the address does not answer or has a bundle that fails, and
// decides after a start without the address.
func TestBundle(t *testing.T) {
	const yes, no = "package toolkeep\nallow := true", "package toolkeep\nallow := false"
	for _, kind := range []string{"http", "http without etags", "oci"} {
		t.Run(kind, func(t *testing.T) {
			s := newShelf(t)
			s.etags = kind == "http"
			s.set(t, packed("p.rego", yes), packed("p_test.rego", "package t\nimport data.toolkeep\ntest_defined if is_boolean(toolkeep.allow)"))
			keep := t.TempDir()
			told := make(chan State, 100)
			begin := func() (*Engine, error) {
				e, err := New(t.Context(), Config{Bundle: s.bundle(kind, keep), Timeout: 20 * time.Second, OnChange: func(s State) { told <- s }})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := e.Decide(t.Context(), ask()); err == nil {
					t.Error("it decides before it has a policy")
				}
				t.Cleanup(e.Stop)
				return e, e.Start(t.Context())
			}
			e, err := begin()
			if err != nil || !allows(t, e) || e.State().Tests != 1 || !strings.Contains(e.State().Source, strings.TrimPrefix(s.URL, "http://")) {
				t.Fatalf("%v %+v", err, e.State())
			}
			until := func(what string, ok func(State) bool) {
				t.Helper()
				for !ok(e.State()) {
					if !toolkeep.Sleep(t.Context(), time.Millisecond) {
						t.Fatalf("%s: %+v", what, e.State())
					}
					e.Look()
				}
			}
			s.set(t, packed("p.rego", no))
			e.Look()
			if got := <-told; got.Refused != "" || allows(t, e) {
				t.Fatalf("%+v", got)
			}
			s.do(func() { s.down = true })
			until("away", func(s State) bool { return strings.Contains(s.Refused, "cannot be fetched") })
			if allows(t, e) || e.Health(t.Context()) == nil {
				t.Errorf("%+v", e.State())
			}
			s.do(func() { s.down = false })
			fetched := 0
			s.do(func() { fetched = s.fetched })
			until("back", func(s State) bool { return s.Refused == "" })
			s.do(func() {
				if s.etags && s.fetched != fetched || kind == "oci" && s.fetched != fetched {
					t.Errorf("the bundle was fetched %d times while it had not changed", s.fetched-fetched)
				}
			})
			s.set(t, packed("p.rego", yes), packed("p_test.rego", "package t\nimport data.toolkeep\ntest_closed if not toolkeep.allow"))
			e.Look()
			if got := <-told; !strings.Contains(got.Refused, "test_closed failed") || allows(t, e) {
				t.Fatalf("%+v", got)
			}
			// A bundle that is refused stays so when the address was away meanwhile.
			s.do(func() { s.down = true })
			until("away", func(s State) bool { return strings.Contains(s.Refused, "cannot be fetched") })
			s.do(func() { s.down = false })
			until("back", func(s State) bool { return strings.Contains(s.Refused, "test_closed failed") })
			e.Stop()

			for _, down := range []bool{true, false} { // away, and with the bundle that fails
				s.do(func() { s.down = down })
				if e, err = begin(); err != nil || allows(t, e) || e.Health(t.Context()) == nil {
					t.Fatalf("%v %+v", err, e.State())
				}
				e.Stop()
			}
			kept := s.bundle(kind, keep).keptAt()
			if err := os.Rename(kept, strings.Replace(kept, "policy-", "policy-0", 1)); err != nil { // as if of another address
				t.Fatal(err)
			}
			if _, err := begin(); toolkeep.AsError(err).Code != toolkeep.InvalidManifest || !strings.Contains(err.Error(), "test_closed failed") {
				t.Error(err)
			}
		})
	}
}

// TestBundleRefused: what is no bundle, or another one than its digest says, is not taken.
func TestBundleRefused(t *testing.T) {
	for says, c := range map[string]struct {
		kind   string
		change func(*shelf, *Bundle)
	}{
		"answered 401": {"http", func(_ *shelf, b *Bundle) { b.Credential = nil }},
		"answered 404": {"http", func(_ *shelf, b *Bundle) { b.URL += "x" }},
		"cannot be read: no secret": {"http", func(_ *shelf, b *Bundle) {
			b.Credential = func(context.Context) (string, error) { return "", errors.New("no secret") }
		}},
		"more than 32 MiB":            {"http", func(s *shelf, _ *Bundle) { s.archive = make([]byte, maxArchive+1) }},
		"not a gzipped tar archive":   {"oci", func(s *shelf, _ *Bundle) { s.archive = []byte("x") }},
		"mismatch":                    {"oci", func(s *shelf, _ *Bundle) { s.stored = []byte(strings.Repeat("x", len(s.archive))) }},
		"one layer of type":           {"oci", func(s *shelf, _ *Bundle) { s.layer = "application/vnd.example" }},
		"401":                         {"oci", func(s *shelf, _ *Bundle) { s.password = "other" }},
		"127.0.0.1:1 cannot be asked": {"http", func(s *shelf, _ *Bundle) { s.elsewhere = "http://127.0.0.1:1/x?sig=s3cret" }},
		"not found":                   {"oci", func(_ *shelf, b *Bundle) { b.URL = strings.Replace(b.URL, "stable", "none", 1) }},
	} {
		t.Run(says, func(t *testing.T) {
			s := newShelf(t)
			s.set(t, packed("p.rego", "package toolkeep\nallow := true"))
			b := s.bundle(c.kind, "")
			c.change(s, b)
			e, err := New(t.Context(), Config{Bundle: b, Timeout: 20 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Stop()
			if err := e.Start(t.Context()); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "s3cret") {
				t.Error(err)
			}
		})
	}
}

// TestRedirects: a bundle's address may redirect, not without end and not out of TLS.
func TestRedirects(t *testing.T) {
	at := func(url string) *http.Request { return httptest.NewRequest(http.MethodGet, url, nil) }
	via := []*http.Request{at("https://a.example/b")}
	if err := Redirects(at("https://b.example"), via); err != nil {
		t.Error(err)
	}
	if Redirects(at("http://a.example/b"), via) == nil || Redirects(at("https://b.example"), append(make([]*http.Request, 0), via[0], via[0], via[0], via[0], via[0], via[0])) == nil {
		t.Error("it is followed")
	}
}

// TestCheckURL tests addresses of bundles.
func TestCheckURL(t *testing.T) {
	for url, good := range map[string]bool{
		"https://policies.example/bundle.tar.gz": true, "https://policies.example/bundle.tar.gz?sig=2": false, "http://127.0.0.1:8080/b": true, "http://[::1]/b": true, "oci://registry.example/policies:stable": true,
		"oci://localhost:5000/a/b@sha256:" + strings.Repeat("0", 64): true,
		"http://policies.example/b":                                  false, "oci://registry.example/policies": false, "oci://": false, "ftp://x/y": false, "https://me@x.example/b": false, "bundle.tar.gz": false,
	} {
		if err := CheckURL(url); (err == nil) != good {
			t.Errorf("%s: %v", url, err)
		}
	}
}
