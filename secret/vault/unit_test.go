package vault

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/secret/vault/vaulttest"
)

// fake is Vault's KV plugin with one secret; a test may replace its responses.
type fake struct {
	*httptest.Server
	requests atomic.Int64

	mu     sync.Mutex
	answer func(w http.ResponseWriter, r *http.Request) bool // reports whether it answered
	seen   []*http.Request
}

func newFake(t *testing.T) *fake {
	t.Helper()
	engine := vaulttest.StartKV(t, "secret=2")
	vaulttest.PutKV(t, engine, "secret/data/acme/x", `{"data":{"k":"v"}}`)
	to, err := url.Parse(engine)
	if err != nil {
		t.Fatal(err)
	}
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	pass := httputil.NewSingleHostReverseProxy(to)
	pass.Transport = base
	f := &fake{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.requests.Add(1)
		f.mu.Lock()
		answer := f.answer
		f.seen = append(f.seen, r)
		f.mu.Unlock()
		if answer != nil && answer(w, r) {
			return
		}
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil { // else a body that is not yet read to its end cuts the answer
			t.Error(err)
		}
		pass.ServeHTTP(w, r)
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *fake) set(answer func(http.ResponseWriter, *http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

// on handles requests for one path.
func (f *fake) on(path string, answer http.HandlerFunc) {
	f.set(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != path {
			return false
		}
		answer(w, r)
		return true
	})
}

const fakeToken = "hvs.the-token-of-the-server"

func openFake(t *testing.T, f *fake, change func(*Config)) *Store {
	t.Helper()
	c := Config{Address: f.URL, Auth: Auth{Token: fakeToken}, Paths: []string{"secret/data/{tenant}/"}, Timeout: 5 * time.Second}
	if change != nil {
		change(&c)
	}
	v, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeStore(v) })
	return v
}

const secretPath = "/v1/secret/data/acme/x"

func TestHeaders(t *testing.T) {
	t.Setenv("VAULT_TOKEN", "the-environment's")
	t.Setenv("VAULT_NAMESPACE", "the-environment's")
	t.Setenv("VAULT_HEADERS", `{"X-Extra":"the-environment's"}`)
	t.Setenv("VAULT_ADDR", "http://127.0.0.1:1")
	t.Setenv("VAULT_SKIP_VERIFY", "true")
	f := newFake(t)
	v := openFake(t, f, func(c *Config) { c.Namespace = "teams/shop" })
	want(t, v, acme, "secret/acme/x#k", "v", "")
	plain := openFake(t, f, nil)
	want(t, plain, acme, "secret/acme/x#k", "v", "")
	closeStore(v)
	closeStore(plain)
	f.mu.Lock()
	defer f.mu.Unlock()
	namespaces := make(map[string]int)
	for _, r := range f.seen {
		if got := r.Header.Get("X-Vault-Token"); got != fakeToken {
			t.Errorf("%s was asked with the token %q", r.URL, got)
		}
		if r.Header.Get("X-Extra") != "" {
			t.Errorf("%s was asked with the environment's header", r.URL)
		}
		if r.Header.Get("X-Vault-Request") != "true" {
			t.Errorf("%s lacks the header against forgery", r.URL)
		}
		namespaces[r.Header.Get("X-Vault-Namespace")]++
	}
	if namespaces["teams/shop"] < 2 || namespaces[""] < 2 || len(namespaces) != 2 {
		t.Errorf("namespaces: %v", namespaces)
	}
}

// TestBackoff: pauses grow with each attempt, by a random share; Vault's own Retry-After wins, up to 32 s.
func TestBackoff(t *testing.T) {
	for attempt, most := range []time.Duration{110 * time.Millisecond, 210 * time.Millisecond} {
		longest := time.Duration(0)
		for range 200 {
			d := backoff(0, 0, attempt, nil)
			if longest = max(longest, d); d < 10*time.Millisecond || d >= most {
				t.Fatalf("the pause after attempt %d is %s, want up to %s", attempt, d, most)
			}
		}
		if longest < most/2 { // once in 10^60 runs
			t.Errorf("the longest of 200 pauses after attempt %d is %s, want up to %s", attempt, longest, most)
		}
	}
	for header, want := range map[string]time.Duration{"2": 2 * time.Second, "32": maxDelay, "3600": maxDelay} {
		if d := backoff(0, 0, 0, &http.Response{Header: http.Header{"Retry-After": {header}}}); d != want {
			t.Errorf("Retry-After: %s is a pause of %s, want %s", header, d, want)
		}
	}
}

// TestRetries: three attempts for temporary failures, one for permanent ones.
func TestRetries(t *testing.T) {
	for _, tt := range []struct {
		name     string
		fail     http.HandlerFunc
		failures int // then the secret
		attempts int // 0 is not counted: net/http adds its own on a broken connection
		code     toolkeep.Code
	}{
		{"twice 503", status503, 2, 3, ""},
		{"always 503", status503, 9, 3, toolkeep.SecretRetrievalFailed},
		{"always 429", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Retry-After", "0"); w.WriteHeader(429) }, 9, 3, toolkeep.SecretRetrievalFailed},
		{"a broken connection", hangUp, 1, 0, ""},
		{"always a broken connection", hangUp, 99, 0, toolkeep.SecretRetrievalFailed},
		{"not there", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, 9, 1, toolkeep.SecretNotFound},
		{"not allowed", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) }, 9, 1, toolkeep.SecretAccessDenied},
		{"100 MB", hundredMB, 9, 1, toolkeep.SecretRetrievalFailed},
		{"100 MB of an error", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(400); hundredMB(w, r) }, 9, 1, toolkeep.SecretRetrievalFailed},
		{"garbage", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `<html>`) }, 9, 1, toolkeep.SecretRetrievalFailed},
		{"a list", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"data":["k"]}`) }, 9, 1, toolkeep.SecretRetrievalFailed},
		{"a name twice", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"data":{"data":{"k":"a","k":"b"},"metadata":{}}}`)
		}, 9, 1, toolkeep.SecretRetrievalFailed},
		{"nothing", func(http.ResponseWriter, *http.Request) {}, 9, 1, toolkeep.SecretRetrievalFailed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t)
			v := openFake(t, f, nil)
			var attempts atomic.Int64
			f.set(func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != secretPath || int(attempts.Add(1)) > tt.failures {
					return false
				}
				tt.fail(w, r)
				return true
			})
			value := "v"
			if tt.code != "" {
				value = ""
			}
			want(t, v, acme, "secret/acme/x#k", value, tt.code)
			if n := int(attempts.Load()); tt.attempts > 0 && n != tt.attempts {
				t.Errorf("%d attempts, want %d", n, tt.attempts)
			}
		})
	}
}

func status503(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }

func hangUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func hundredMB(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprint(w, `{"data":{"data":{"k":"`)
	chunk := []byte(strings.Repeat("x", 1<<20))
	for range 100 {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

// TestSlow: an attempt ends at its timeout, and all end with the call.
func TestSlow(t *testing.T) {
	f := newFake(t)
	v := openFake(t, f, func(c *Config) { c.Timeout = 500 * time.Millisecond })
	want(t, v, acme, "secret/acme/x#k", "v", "")
	var attempts atomic.Int64
	arrived := make(chan struct{}, 16)
	f.on(secretPath, func(_ http.ResponseWriter, r *http.Request) {
		attempts.Add(1)
		arrived <- struct{}{}
		<-r.Context().Done()
	})
	want(t, v, acme, "secret/acme/x#k", "", toolkeep.SecretRetrievalFailed)
	if n := attempts.Load(); n != 3 {
		t.Errorf("%d attempts", n)
	}
	slow := openFake(t, f, func(c *Config) { c.Timeout = time.Minute })
	for range len(arrived) {
		<-arrived
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	if _, err := slow.Read(ctx, acme, "secret/acme/x#k"); codeOf(err) != toolkeep.Cancelled {
		t.Errorf("%v", err)
	}
}

// TestQuiet: the token and the secret appear in no error and no log.
func TestQuiet(t *testing.T) {
	f := newFake(t)
	var log strings.Builder
	v := openFake(t, f, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	for _, body := range []string{
		`{"errors":["the token ` + fakeToken + ` is bad", "and\nso on"]}`,
		`the token ` + fakeToken + ` as it is`,
		`{"data":{"data":{"k":"hidden-value", "k":2}}}`,
	} {
		for _, code := range []int{200, 400, 403, 404, 500} {
			f.on(secretPath, func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(code)
				fmt.Fprint(w, body)
			})
			ctx, cancel := context.WithTimeout(t.Context(), 80*time.Millisecond)
			_, err := v.Read(ctx, acme, "secret/acme/x#k")
			cancel()
			if err == nil {
				t.Fatalf("%d %s is taken", code, body)
			}
			for e := err; e != nil; e = errors.Unwrap(e) {
				if s := e.Error(); strings.Contains(s, fakeToken) || strings.Contains(s, "hidden-value") || strings.Contains(s, "\n") {
					t.Errorf("%d: %s", code, s)
				}
			}
		}
	}
	if strings.Contains(log.String(), fakeToken) {
		t.Error(log.String())
	}
}

// TestUpgrade notices that a mount was upgraded from version 1 to 2.
func TestUpgrade(t *testing.T) {
	f := newFake(t)
	v := openFake(t, f, func(c *Config) { c.Paths = []string{"secret/acme/", "secret/data/acme/"} })
	version := "1"
	f.set(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case strings.HasPrefix(r.URL.Path, "/v1/sys/internal/ui/mounts/"):
			fmt.Fprintf(w, `{"data":{"path":"secret/","type":"kv","options":{"version":%q}}}`, version)
		case r.URL.Path == "/v1/secret/acme/x" && version == "1":
			fmt.Fprint(w, `{"data":{"k":"one"}}`)
		default:
			return false
		}
		return true
	})
	want(t, v, acme, "secret/acme/x#k", "one", "")
	version = "2"
	want(t, v, acme, "secret/acme/x#k", "", toolkeep.SecretNotFound) // and the mount is queried again
	want(t, v, acme, "secret/acme/x#k", "v", "")
}

// TestNothingIsAsked: paths that no setting allows are refused without a request to Vault.
func TestNothingIsAsked(t *testing.T) {
	f := newFake(t)
	v := openFake(t, f, nil)
	for _, ref := range []string{"secret/other/x#k", "secret/acme#k", "kv/acme/x#k", "sys/mounts", "secret/data/../data/acme/x#k", "secret/acme/%2e%2e/other/x#k",
		"secret/acme%2Fx#k", "secret/acme/x", "secret//acme/x#k", "/secret/acme/x#k"} {
		p := acme
		if ref == "secret/acme/x" {
			p = &toolkeep.Principal{Tenant: "../acme"}
		}
		if _, err := v.Read(t.Context(), p, ref); codeOf(err) != toolkeep.SecretAccessDenied && codeOf(err) != toolkeep.SecretNotFound {
			t.Errorf("%s: %v", ref, err)
		}
	}
	none := openFake(t, f, func(c *Config) { c.Paths = nil })
	if _, err := none.Read(t.Context(), acme, "secret/acme/x#k"); codeOf(err) != toolkeep.SecretAccessDenied {
		t.Errorf("without paths: %v", err)
	}
	if n := f.requests.Load(); n != 0 {
		t.Errorf("%d requests", n)
	}
}

func TestReference(t *testing.T) {
	for rest, want := range map[string]reference{
		"secret/a/b#c":                {path: "secret/a/b", key: "c"},
		"secret/a/b":                  {path: "secret/a/b"},
		"secret/a%20b/c#d%23e":        {path: "secret/a b/c", key: "d#e"},
		"secret/a?version=3#c":        {path: "secret/a", key: "c", version: 3},
		"aws/sts/x?ttl=15m":           {path: "aws/sts/x", ttl: "15m"},
		"./mail.send/key#k":           {path: "secret/tool-execution/mail.send/key", key: "k"},
		"secret/a/ü@x:y#k":            {path: "secret/a/ü@x:y", key: "k"},
		"secret/.hidden/...#k":        {path: "secret/.hidden/...", key: "k"},
		"secret/{tenant}/x#k":         {path: "secret/{tenant}/x", key: "k"}, // not a placeholder here, just a name
		"secret/a/b#k?version=2":      {path: "secret/a/b", key: "k?version=2"},
		"secret/a/b?version=2&ttl=1h": {path: "secret/a/b", version: 2, ttl: "1h"},
	} {
		got, err := parseReference(rest, defaultPrefix, acme)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", rest, got, err)
		}
	}
	for _, rest := range []string{"", "secret", "secret/", "/secret/a", "secret//a", "secret/../a", "secret/./a", "secret/a/..", "secret/%2e%2e/a", "secret/a%2fb",
		"secret/a%00b", "secret/a\nb", "secret/a\x7fb", "secret/a%25b", `secret/a\b`, "secret/a*", "secret/+/a", "secret/a ", "secret/a%zz", "secret/a#", "secret/a#%00",
		"secret/a?version=0#k", "secret/a?version=-1", "secret/a?version=x", "secret/a?version=1&version=2", "secret/a?other=1", "secret/a?ttl=long", "../a/b", "./", "./..",
		"secret/" + strings.Repeat("a", maxReference)} {
		if got, err := parseReference(rest, defaultPrefix, acme); codeOf(err) != toolkeep.SecretNotFound {
			t.Errorf("%q: %+v, %v", rest, got, err)
		}
	}
	if _, err := parseReference("./a/b", "secret/{workspace}", &toolkeep.Principal{Tenant: "acme"}); codeOf(err) != toolkeep.SecretAccessDenied {
		t.Errorf("without a workspace: %v", err)
	}
}

func FuzzReference(f *testing.F) {
	f.Add("secret/a/b?version=3#c", "acme")
	f.Add("./%2e%2e/x#%23", "../other")
	f.Fuzz(func(t *testing.T, rest, tenant string) {
		p := &toolkeep.Principal{Tenant: tenant}
		r, err := parseReference(rest, "secret/{tenant}", p)
		if err != nil {
			return
		}
		for s := range strings.SplitSeq(r.path, "/") {
			if s == "" || s == "." || s == ".." {
				t.Fatalf("%q gives the path %q", rest, r.path)
			}
		}
		x, err := parsePrefix("secret/data/{tenant}/")
		if err != nil {
			t.Fatal(err)
		}
		if x.covers(r.path, p) && !strings.HasPrefix(r.path, "secret/data/"+tenant+"/") {
			t.Fatalf("%q is covered for %q", r.path, tenant)
		}
	})
}

func TestPrefixes(t *testing.T) {
	for _, tt := range []struct {
		prefix, path string
		p            *toolkeep.Principal
		ok           bool
	}{
		{"secret/data/{tenant}/", "secret/data/acme/x", acme, true},
		{"secret/data/{tenant}/", "secret/data/acme", acme, false},
		{"secret/data/{tenant}", "secret/data/acme", acme, true},
		{"secret/data/{tenant}", "secret/data/acme/x", acme, true},
		{"secret/data/{tenant}", "secret/data/acmes", acme, false},
		{"secret/data/{tenant}/", "secret/data/acme2/x", acme, false},
		{"secret/data/{tenant}/{workspace}/{subject}/", "secret/data/acme/sales/ann/x", acme, true},
		{"secret/data/{tenant}/{workspace}/", "secret/data/acme//x", &toolkeep.Principal{Tenant: "acme"}, false},
		{"secret/data/{tenant}/", "secret/data/a/b/x", &toolkeep.Principal{Tenant: "a/b"}, false},
		{"secret/data/{tenant}/", "secret/data/*/x", &toolkeep.Principal{Tenant: "*"}, false},
		{"secret/data/{tenant}/{subject}/", "secret/data/{subject}/ann/x", &toolkeep.Principal{Tenant: "{subject}", Subject: "ann"}, false},
		{"secret/data/{tenant}/", "secret/data//x", nil, false},
		{"database/creds/ro", "database/creds/ro", nil, true},
		{"database/creds/ro", "database/creds/rw", nil, false},
	} {
		x, err := parsePrefix(tt.prefix)
		if err != nil {
			t.Fatal(err)
		}
		if got := x.covers(tt.path, tt.p); got != tt.ok {
			t.Errorf("%s covers %s for %+v: %v", tt.prefix, tt.path, tt.p, got)
		}
	}
}

func TestConfig(t *testing.T) {
	good := Config{Address: "https://vault.example:8200", Auth: Auth{Token: "t"}}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Config){
		"no address":       func(c *Config) { c.Address = "" },
		"http":             func(c *Config) { c.Address = "http://vault.example:8200" },
		"user":             func(c *Config) { c.Address = "https://u:p@vault.example:8200" },
		"relative socket":  func(c *Config) { c.Address = "unix://agent.sock" },
		"no token":         func(c *Config) { c.Auth.Token = "" },
		"unknown method":   func(c *Config) { c.Auth.Method = "ldap" },
		"approle":          func(c *Config) { c.Auth = Auth{Method: AppRole, Role: "r"} },
		"gcp":              func(c *Config) { c.Auth = Auth{Method: GCPIAM} },
		"auth mount":       func(c *Config) { c.Auth.Mount = "../sys" },
		"half a pair":      func(c *Config) { c.TLS.CertFile = "x" },
		"all of sys":       func(c *Config) { c.Paths = []string{"sys/"} },
		"tenant first":     func(c *Config) { c.Paths = []string{"{tenant}/data/"} },
		"everything":       func(c *Config) { c.Paths = []string{"/"} },
		"empty path":       func(c *Config) { c.Paths = []string{""} },
		"star":             func(c *Config) { c.Paths = []string{"secret/data/*"} },
		"unknown name":     func(c *Config) { c.Paths = []string{"secret/data/{team}/"} },
		"prefix":           func(c *Config) { c.Prefix = "secret/../x" },
		"mounts":           func(c *Config) { c.Mounts = []string{"secret"} },
		"mounts' versions": func(c *Config) { c.Mounts = []string{"secret=3"} },
	} {
		c := good
		change(&c)
		if _, err := New(c); codeOf(err) != toolkeep.InvalidManifest {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := good
	c.TLS.CAFile = filepath.Join(t.TempDir(), "none")
	if _, err := New(c); codeOf(err) != toolkeep.InvalidManifest {
		t.Errorf("CA file: %v", err)
	}
}

// TestSocket talks to an agent's Unix socket.
func TestSocket(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "tkv")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ln, err := net.Listen("unix", dir+"/agent")
	if err != nil {
		t.Fatal(err)
	}
	f := newFake(t)
	agent := &http.Server{Handler: f.Config.Handler}
	done := make(chan struct{})
	go func() { defer close(done); _ = agent.Serve(ln) }()
	v := openFake(t, f, func(c *Config) { c.Address = "unix://" + dir + "/agent" })
	want(t, v, acme, "secret/acme/x#k", "v", "")
	closeStore(v)
	agent.Close()
	<-done
}

// login makes a Store that logs in with a cloud's method and returns the login request.
func login(t *testing.T, a Auth, change func(*Store)) map[string]any {
	t.Helper()
	f := newFake(t)
	var got map[string]any
	f.on("/v1/auth/cloud/login", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(b, &got); err != nil {
			t.Errorf("%v in %s", err, b)
		}
		fmt.Fprintf(w, `{"auth":{"client_token":%q,"lease_duration":3600,"renewable":true}}`, fakeToken)
	})
	a.Mount = "cloud"
	v := openFake(t, f, func(c *Config) { c.Auth = a })
	if change != nil {
		change(v)
	}
	want(t, v, acme, "secret/acme/x#k", "v", "")
	return got
}

func TestGCE(t *testing.T) {
	meta := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Metadata-Flavor") != "Google" || r.URL.Query().Get("format") != "full" || !strings.HasSuffix(r.URL.Query().Get("audience"), "/vault/shop") {
			t.Errorf("asked for %s", r.URL)
		}
		w.Header().Set("Metadata-Flavor", "Google")
		fmt.Fprintln(w, "the.machine's.identity")
	}))
	defer meta.Close()
	t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(meta.URL, "http://"))
	if got := login(t, Auth{Method: GCPGCE, Role: "shop"}, nil); got["jwt"] != "the.machine's.identity" || got["role"] != "shop" {
		t.Errorf("%v", got)
	}
}

func TestGCPIAM(t *testing.T) {
	iam := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/token" {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"access_token":"iam-token","token_type":"Bearer","expires_in":3600}`)
			return
		}
		b, _ := io.ReadAll(r.Body)
		if r.URL.Path != "/v1/projects/-/serviceAccounts/a@b.example:signJwt" || r.Header.Get("Authorization") != "Bearer iam-token" || !strings.Contains(string(b), `vault/shop`) {
			t.Errorf("%s %v %s", r.URL, r.Header, b)
		}
		fmt.Fprint(w, `{"signedJwt":"signed.by.iam"}`)
	}))
	defer iam.Close()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	account, err := json.Marshal(map[string]string{"type": "service_account", "client_email": "me@b.example", "token_uri": iam.URL + "/token",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "account.json")
	if err := os.WriteFile(file, account, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
	f := newFake(t)
	var jwt string
	f.on("/v1/auth/gcp/login", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		jwt = string(b)
		fmt.Fprintf(w, `{"auth":{"client_token":%q}}`, fakeToken)
	})
	v := openFake(t, f, nil)
	a := gcpAuth{mount: "gcp", role: "shop", account: "a@b.example", iam: iam.URL}
	c, err := v.client.newAPI("")
	if err != nil {
		t.Fatal(err)
	}
	answer, err := a.Login(t.Context(), c)
	if err != nil || answer.Auth.ClientToken != fakeToken || !strings.Contains(jwt, `"signed.by.iam"`) {
		t.Errorf("%v, %s", err, jwt)
	}
}

// TestLoginIsEverybodys: a login continues when the caller who started it gives up.
func TestLoginIsEverybodys(t *testing.T) {
	f := newFake(t)
	var logins atomic.Int64
	arrived, goOn := make(chan struct{}), make(chan struct{})
	f.on("/v1/auth/approle/login", func(w http.ResponseWriter, r *http.Request) {
		if logins.Add(1) == 1 {
			close(arrived)
		}
		<-goOn
		fmt.Fprintf(w, `{"auth":{"client_token":%q,"lease_duration":3600}}`, fakeToken)
	})
	v := openFake(t, f, func(c *Config) { c.Auth = Auth{Method: AppRole, Role: "r", SecretID: "s"} })
	first, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := v.Read(first, acme, "secret/acme/x#k"); codeOf(err) != toolkeep.Cancelled {
			t.Errorf("the first: %v", err)
		}
	})
	<-arrived
	for range 50 {
		wg.Go(func() { want(t, v, acme, "secret/acme/x#k", "v", "") })
	}
	cancel()
	close(goOn)
	wg.Wait()
	if n := logins.Load(); n != 1 {
		t.Errorf("%d logins", n)
	}
}

// TestManyLeases makes credentials for many concurrent calls: each is revoked once, when its call ends or by Close.
func TestManyLeases(t *testing.T) {
	f := newFake(t)
	var made, renewed atomic.Int64
	var mu sync.Mutex
	revoked := make(map[string]int)
	f.set(func(w http.ResponseWriter, r *http.Request) bool {
		switch r.URL.Path {
		case "/v1/db/creds/acme":
			fmt.Fprintf(w, `{"lease_id":"db/creds/acme/%d","lease_duration":2,"renewable":true,"data":{"username":"u","password":"p"}}`, made.Add(1))
		case "/v1/sys/leases/renew":
			renewed.Add(1)
			fmt.Fprint(w, `{"lease_duration":2,"renewable":true}`)
		case "/v1/sys/leases/revoke":
			b, _ := io.ReadAll(r.Body)
			mu.Lock()
			revoked[string(b)]++
			mu.Unlock()
			w.WriteHeader(http.StatusNoContent)
		default:
			return false
		}
		return true
	})
	v := openFake(t, f, func(c *Config) { c.Paths, c.Mounts = []string{"db/creds/{tenant}"}, []string{"db=0"} })
	const calls = 100
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			if i%2 == 0 { // half of the calls end before Close
				defer cancel()
			} else {
				t.Cleanup(cancel)
			}
			if got, err := v.Read(ctx, acme, "db/creds/acme#password"); got.Text() != "p" {
				t.Errorf("%q, %v", got.Text(), err)
			}
		})
	}
	wg.Wait()
	until(t, "some lease is renewed", func() bool { return renewed.Load() > 0 })
	closeStore(v)
	mu.Lock()
	defer mu.Unlock()
	if len(revoked) != calls || v.leases.len() != 0 {
		t.Errorf("%d of %d leases were revoked, %d are held", len(revoked), calls, v.leases.len())
	}
	for id, n := range revoked {
		if n != 1 {
			t.Errorf("%s was revoked %d times", id, n)
		}
	}
	if _, err := v.Read(t.Context(), acme, "db/creds/acme"); codeOf(err) != toolkeep.SecretRetrievalFailed {
		t.Errorf("after Close: %v", err)
	}
}

// TestLoginRenewed renews a login before it expires, and logs in again at its maximum TTL.
func TestLoginRenewed(t *testing.T) {
	f := newFake(t)
	var logins atomic.Int64
	renewed := make(chan struct{}, 64)
	f.set(func(w http.ResponseWriter, r *http.Request) bool {
		switch r.URL.Path {
		case "/v1/auth/approle/login":
			fmt.Fprintf(w, `{"auth":{"client_token":"token-%d","lease_duration":1,"renewable":true}}`, logins.Add(1))
		case "/v1/auth/token/renew-self":
			renewed <- struct{}{}
			fmt.Fprint(w, `{"auth":{"lease_duration":3600,"renewable":true}}`)
		default:
			return false
		}
		return true
	})
	now := &atomic.Pointer[time.Time]{}
	start := time.Now()
	now.Store(&start)
	v := openFake(t, f, func(c *Config) {
		c.Auth = Auth{Method: AppRole, Role: "r", SecretID: "s"}
		c.Now = func() time.Time { return *now.Load() }
	})
	want(t, v, acme, "secret/acme/x#k", "v", "")
	until(t, "it is renewed", func() bool { return len(renewed) > 0 })
	until(t, "the renewal is taken in", func() bool {
		v.client.mu.Lock()
		defer v.client.mu.Unlock()
		return v.client.session.expires.Equal(start.Add(time.Hour))
	})
	later := start.Add(50 * time.Minute)
	now.Store(&later)
	want(t, v, acme, "secret/acme/x#k", "v", "")
	if n := logins.Load(); n != 1 {
		t.Errorf("%d logins within the renewed life", n)
	}
	later = start.Add(time.Hour)
	now.Store(&later)
	want(t, v, acme, "secret/acme/x#k", "v", "")
	if n := logins.Load(); n != 2 || token(v) != "token-2" {
		t.Errorf("%d logins after its end", n)
	}
}

// len returns the number of leases in use.
func (ls *leases) len() int {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return len(ls.held)
}
