package tokenexchange

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/egress"
)

// server is an OAuth server that accepts one client and counts requests.
type server struct {
	*httptest.Server
	requests atomic.Int64

	mu    sync.Mutex
	serve func(w http.ResponseWriter, r *http.Request, n int64)
	forms []url.Values
	basic []string // user:password of each request, "" for none
}

func newServer(t *testing.T, serve func(w http.ResponseWriter, r *http.Request, n int64)) *server {
	s := &server{serve: serve}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/x-www-form-urlencoded" || r.URL.RawQuery != "" {
			t.Errorf("the request is %s %s with %v", r.Method, r.URL, r.Header)
		}
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		basic := ""
		if user, password, ok := r.BasicAuth(); ok {
			user, _ = url.QueryUnescape(user)
			password, _ = url.QueryUnescape(password)
			basic = user + ":" + password
		}
		s.mu.Lock()
		s.forms, s.basic = append(s.forms, r.PostForm), append(s.basic, basic)
		serve := s.serve
		s.mu.Unlock()
		serve(w, r, s.requests.Add(1))
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) last() (url.Values, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.forms[len(s.forms)-1], s.basic[len(s.basic)-1]
}

func (s *server) set(serve func(w http.ResponseWriter, r *http.Request, n int64)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serve = serve
}

// tokens answers with token-1, token-2 and so on, each for an hour.
func tokens(w http.ResponseWriter, _ *http.Request, n int64) {
	w.Header().Set("Content-Type", "application/json;charset=UTF-8")
	fmt.Fprintf(w, `{"access_token":"token-%d","token_type":"Bearer","expires_in":3600}`, n)
}

// loopback is the allow list for the test servers.
var loopback = []toolkeep.HostPort{{Host: "127.0.0.1"}}

type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func newMinter(t *testing.T, change func(*Config)) (*Minter, *clock) {
	t.Helper()
	pool := egress.NewPool(egress.PoolConfig{})
	t.Cleanup(pool.Close)
	c := &clock{now: time.Now()}
	config := Config{Clock: c.Now, Client: func(tenant string, allow []toolkeep.HostPort) *http.Client {
		return &http.Client{Transport: pool.Transport(tenant, egress.NewAllowList(allow))}
	}}
	if change != nil {
		change(&config)
	}
	m := New(config)
	t.Cleanup(m.Close)
	return m, c
}

func credentials(s *server) toolkeep.AuthSpec {
	return toolkeep.AuthSpec{Type: ClientCredentials, TokenURL: s.URL + "/token", Scopes: []string{"read", "write"}}
}

var acme = &toolkeep.Principal{Tenant: "acme"}

const plain = "the-client:the secret+/%"

func mint(t *testing.T, m *Minter, spec toolkeep.AuthSpec, secret string, fresh bool) (token, rotated string) {
	t.Helper()
	v, rotated, err := m.Mint(t.Context(), acme, loopback, spec, secret, fresh)
	if err != nil {
		t.Fatalf("%v because %v", err, errors.Unwrap(err))
	}
	return v.Text(), rotated
}

func codeOf(err error) toolkeep.Code {
	var e *toolkeep.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func TestClientCredentials(t *testing.T) {
	s := newServer(t, tokens)
	for _, tt := range []struct {
		name, secret, basic string
		settings            map[string]any
		form                url.Values
	}{
		{"header", plain, plain, nil, url.Values{}},
		{"JSON", `{"client_id":"the-client","client_secret":"the secret+/%"}`, plain, map[string]any{"auth_style": "header"}, url.Values{}},
		{"id in the settings", "the secret+/%", plain, map[string]any{"client_id": "the-client"}, url.Values{}},
		{"a colon in the secret", "id:a:b", "id:a:b", nil, url.Values{}},
		{"body", plain, "", map[string]any{"auth_style": "body"}, url.Values{"client_id": {"the-client"}, "client_secret": {"the secret+/%"}}},
		{"more", plain, plain, map[string]any{"audience": "https://api.example", "resource": "r", "params": map[string]any{"tier": "gold"}},
			url.Values{"audience": {"https://api.example"}, "resource": {"r"}, "tier": {"gold"}}},
	} {
		m, _ := newMinter(t, nil)
		spec := credentials(s)
		spec.Settings = tt.settings
		token, rotated := mint(t, m, spec, tt.secret, false)
		form, basic := s.last()
		tt.form.Set("grant_type", "client_credentials")
		tt.form.Set("scope", "read write")
		if !strings.HasPrefix(token, "token-") || rotated != "" || basic != tt.basic || form.Encode() != tt.form.Encode() {
			t.Errorf("%s: %s %s, %q sent %v", tt.name, token, rotated, basic, form)
		}
	}
}

// TestKept: a token serves its tenant, entry and secret only, until shortly before it expires.
func TestKept(t *testing.T) {
	s := newServer(t, tokens)
	m, c := newMinter(t, nil)
	spec := credentials(s)
	first, _ := mint(t, m, spec, plain, false)
	v, _, err := m.Mint(t.Context(), acme, loopback, spec, plain, false)
	if err != nil || v.Text() != first || !v.Expires.Equal(c.Now().Add(time.Hour)) {
		t.Fatalf("%+v, %v", v, err)
	}
	v.Wipe() // the caller's copy
	if again, _ := mint(t, m, spec, plain, false); again != first {
		t.Error("wiping a value reached the kept one")
	}
	c.add(time.Hour - 31*time.Second)
	if again, _ := mint(t, m, spec, plain, false); again != first {
		t.Error("too early a new one")
	}
	c.add(time.Second)
	if again, _ := mint(t, m, spec, plain, false); again == first {
		t.Error("the old one within 30 s of its end")
	}
	before := s.requests.Load()
	if again, _ := mint(t, m, spec, plain, true); again == first || s.requests.Load() != before+1 {
		t.Error("fresh gave a kept one")
	}
	// Other entries get their own token.
	wider := spec
	wider.Scopes = []string{"read"}
	body := spec
	body.Settings = map[string]any{"auth_style": "body"}
	seen := map[string]bool{}
	for name, f := range map[string]func() (string, error){
		"tenant": func() (string, error) {
			v, _, err := m.Mint(t.Context(), &toolkeep.Principal{Tenant: "other"}, loopback, spec, plain, false)
			return v.Text(), err
		},
		"no principal": func() (string, error) {
			v, _, err := m.Mint(t.Context(), nil, loopback, spec, plain, false)
			return v.Text(), err
		},
		"scopes":   func() (string, error) { token, _ := mint(t, m, wider, plain, false); return token, nil },
		"settings": func() (string, error) { token, _ := mint(t, m, body, plain, false); return token, nil },
		"secret":   func() (string, error) { token, _ := mint(t, m, spec, plain+"x", false); return token, nil },
		"itself":   func() (string, error) { token, _ := mint(t, m, spec, plain, false); return token, nil },
	} {
		token, err := f()
		if err != nil || seen[token] {
			t.Errorf("%s: %s, %v", name, token, err)
		}
		seen[token] = true
	}
}

// TestLives: a short token is kept for half its life, one of unknown life for the default.
func TestLives(t *testing.T) {
	for _, tt := range []struct {
		name, expires string
		kept          time.Duration
		known         bool
	}{
		{"seconds", `40`, 20 * time.Second, true},
		{"text", `"7200"`, 2*time.Hour - 30*time.Second, true},
		{"fraction", `100.5`, 70 * time.Second, true},
		{"none", `null`, defaultLife - 30*time.Second, false},
		{"negative", `-5`, defaultLife - 30*time.Second, false},
		{"zero", `0`, defaultLife - 30*time.Second, false},
		{"nonsense", `"soon"`, defaultLife - 30*time.Second, false},
		{"NaN", `"NaN"`, defaultLife - 30*time.Second, false},
		{"huge", `1e300`, maxExpires - 30*time.Second, true},
	} {
		s := newServer(t, func(w http.ResponseWriter, _ *http.Request, n int64) {
			fmt.Fprintf(w, `{"access_token":"token-%d","expires_in":%s}`, n, tt.expires)
		})
		m, c := newMinter(t, nil)
		v, _, err := m.Mint(t.Context(), acme, loopback, credentials(s), plain, false)
		if err != nil || v.Expires.IsZero() == tt.known {
			t.Fatalf("%s: %+v, %v", tt.name, v, err)
		}
		c.add(tt.kept - time.Millisecond)
		mint(t, m, credentials(s), plain, false)
		if n := s.requests.Load(); n != 1 {
			t.Errorf("%s: %d requests before its end", tt.name, n)
		}
		c.add(time.Millisecond)
		mint(t, m, credentials(s), plain, false)
		if n := s.requests.Load(); n != 2 {
			t.Errorf("%s: %d requests after its end", tt.name, n)
		}
	}
}

// TestTogether: a hundred callers share one request, although the first gives up.
func TestTogether(t *testing.T) {
	arrived, goOn := make(chan struct{}), make(chan struct{})
	s := newServer(t, func(w http.ResponseWriter, r *http.Request, n int64) {
		close(arrived) // a second request would panic
		<-goOn
		fmt.Fprintf(w, `{"access_token":"token-%d","refresh_token":"next","expires_in":3600}`, n)
	})
	m, _ := newMinter(t, nil)
	spec := credentials(s)
	spec.Type = Refresh
	const secret = `{"client_id":"c","client_secret":"s","refresh_token":"first"}`
	ctx, cancel := context.WithCancel(t.Context())
	var first, wg sync.WaitGroup
	first.Go(func() {
		if _, _, err := m.Mint(ctx, acme, loopback, spec, secret, false); codeOf(err) != toolkeep.Cancelled {
			t.Errorf("the first: %v", err)
		}
	})
	<-arrived
	var stored atomic.Int64
	for i := range 100 {
		wg.Go(func() {
			v, rotated, err := m.Mint(t.Context(), acme, loopback, spec, secret, i%2 == 0)
			if err != nil || v.Text() != "token-1" {
				t.Errorf("%q, %v", v.Text(), err)
			}
			if rotated == "next" {
				stored.Add(1)
			}
		})
	}
	cancel()
	first.Wait()
	// All hundred must wait before the request ends: those with fresh would start another one after it.
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for joined := 0; joined < 100; <-tick.C {
		m.mu.Lock()
		joined = m.waiting
		m.mu.Unlock()
	}
	close(goOn)
	wg.Wait()
	if n := stored.Load(); n != 1 {
		t.Errorf("%d callers were asked to store the new refresh token", n)
	}
}

// TestRefresh tests a server that rotates the refresh token at each use.
func TestRefresh(t *testing.T) {
	current := "r0"
	s := newServer(t, func(w http.ResponseWriter, r *http.Request, n int64) {
		if r.PostForm.Get("refresh_token") != current || r.PostForm.Get("grant_type") != "refresh_token" {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"error":"invalid_grant"}`)
			return
		}
		current = "r" + strconv.FormatInt(n, 10)
		fmt.Fprintf(w, `{"access_token":"token-%d","refresh_token":%q,"expires_in":3600}`, n, current)
	})
	m, c := newMinter(t, nil)
	spec := toolkeep.AuthSpec{Type: Refresh, TokenURL: s.URL}
	secret := func(refresh string) string {
		return `{"client_id":"c","client_secret":"s","refresh_token":"` + refresh + `"}`
	}
	token, rotated := mint(t, m, spec, secret("r0"), false)
	if token != "token-1" || rotated != "r1" {
		t.Fatalf("%s, %s", token, rotated)
	}
	// Once stored, the same token serves; it is returned once.
	if token, rotated := mint(t, m, spec, secret("r1"), false); token != "token-1" || rotated != "" {
		t.Errorf("%s, %s", token, rotated)
	}
	// If it cannot be stored, the new one is used all the same.
	c.add(2 * time.Hour)
	if token, rotated := mint(t, m, spec, secret("r0"), false); token != "token-2" || rotated != "r2" {
		t.Errorf("%s, %s", token, rotated)
	}
	for i := 3; i < 20; i++ { // and many times over
		if token, _ := mint(t, m, spec, secret("r0"), true); token != "token-"+strconv.Itoa(i) {
			t.Fatalf("%d: %s", i, token)
		}
	}
	m.mu.Lock()
	if n := len(m.holders); n > keysPerHolder+1 {
		t.Errorf("%d names lead to one token", n)
	}
	m.mu.Unlock()
	if _, _, err := m.Mint(t.Context(), acme, loopback, spec, secret("stolen"), false); codeOf(err) != toolkeep.SecretAccessDenied || !strings.Contains(err.Error(), "invalid_grant") {
		t.Errorf("%v", err)
	}
	// A public client has no secret and so no header.
	s.set(tokens)
	mint(t, m, spec, `{"client_id":"public","refresh_token":"x"}`, false)
	if form, basic := s.last(); form.Get("client_id") != "public" || form.Has("client_secret") || basic != "" {
		t.Errorf("%v %q", form, basic)
	}
}

func keyPair(t *testing.T) (key *rsa.PrivateKey, keyPEM, certPEM string, cert []byte) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tool"}, NotAfter: time.Now().Add(time.Hour)}
	cert, err = x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})), cert
}

// claims verifies a signature and returns header and payload.
func claims(t *testing.T, token string, key *rsa.PublicKey) (header, payload map[string]any) {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("%q is no JWT", token)
	}
	for i, into := range []*map[string]any{&header, &payload} {
		b, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, into); err != nil {
			t.Fatal(err)
		}
	}
	sig, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	switch header["alg"] {
	case "RS256":
		err = rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], sig)
	case "PS256":
		err = rsa.VerifyPSS(key, crypto.SHA256, sum[:], sig, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash})
	default:
		t.Fatalf("algorithm %v", header["alg"])
	}
	if err != nil {
		t.Fatal(err)
	}
	return header, payload
}

func TestGoogle(t *testing.T) {
	key, keyPEM, _, _ := keyPair(t)
	s := newServer(t, func(w http.ResponseWriter, r *http.Request, n int64) {
		_, c := claims(t, r.PostForm.Get("assertion"), key.Public().(*rsa.PublicKey))
		if c["target_audience"] != nil {
			fmt.Fprintf(w, `{"id_token":"identity-%d"}`, n)
			return
		}
		tokens(w, r, n)
	})
	account := func(uri string) string {
		b, err := json.Marshal(map[string]string{"type": "service_account", "client_email": "me@project.example", "private_key_id": "k1", "private_key": keyPEM, "token_uri": uri,
			"client_id": "1234", "project_id": "p", "universe_domain": "googleapis.com"})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	m, c := newMinter(t, nil)
	spec := toolkeep.AuthSpec{Type: GoogleAccount, Scopes: []string{"a", "b"}, Settings: map[string]any{"subject": "boss@project.example"}}
	if token, _ := mint(t, m, spec, account(s.URL+"/token"), false); token != "token-1" {
		t.Error(token)
	}
	form, basic := s.last()
	if form.Get("grant_type") != jwtBearer || len(form) != 2 || basic != "" {
		t.Errorf("%v %q", form, basic)
	}
	h, p := claims(t, form.Get("assertion"), key.Public().(*rsa.PublicKey))
	now := float64(c.Now().Unix())
	if h["kid"] != "k1" || h["alg"] != "RS256" || p["iss"] != "me@project.example" || p["sub"] != "boss@project.example" || p["scope"] != "a b" ||
		p["aud"] != s.URL+"/token" || p["iat"] != now || p["exp"] != now+3600 {
		t.Errorf("%v %v", h, p)
	}
	// An identity token for an audience; the entry names the endpoint.
	spec = toolkeep.AuthSpec{Type: GoogleAccount, Settings: map[string]any{"audience": "https://run.example", "token_url": s.URL + "/other"}}
	if token, _ := mint(t, m, spec, account("https://elsewhere.example"), false); token != "identity-2" {
		t.Error(token)
	}
	form, _ = s.last()
	_, p = claims(t, form.Get("assertion"), key.Public().(*rsa.PublicKey))
	if p["target_audience"] != "https://run.example" || p["scope"] != nil || p["aud"] != s.URL+"/other" || form.Has("audience") {
		t.Errorf("%v %v", p, form)
	}
}

func TestAzure(t *testing.T) {
	key, keyPEM, certPEM, cert := keyPair(t)
	s := newServer(t, tokens)
	m, _ := newMinter(t, nil)
	spec := toolkeep.AuthSpec{Type: AzureAD, Scopes: []string{"https://graph.example/.default"},
		Settings: map[string]any{"tenant": "contoso.onmicrosoft.com", "authority": s.URL + "/"}}
	mint(t, m, spec, "app:hush", false)
	form, basic := s.last()
	if want := "client_id=app&client_secret=hush&grant_type=client_credentials&scope=https%3A%2F%2Fgraph.example%2F.default"; form.Encode() != want || basic != "" {
		t.Errorf("%v %q", form, basic)
	}
	spec = toolkeep.AuthSpec{Type: AzureAD, Settings: map[string]any{"tenant": "contoso.onmicrosoft.com", "authority": s.URL, "resource": "https://vault.example"}}
	pair, err := json.Marshal(map[string]string{"client_id": "app", "certificate": certPEM, "private_key": keyPEM})
	if err != nil {
		t.Fatal(err)
	}
	spec.Settings["client_id"] = "app"
	for _, secret := range []string{string(pair), keyPEM + certPEM} {
		mint(t, m, spec, secret, false)
		form, _ = s.last()
		h, p := claims(t, form.Get("client_assertion"), key.Public().(*rsa.PublicKey))
		sum := sha256.Sum256(cert)
		endpoint := s.URL + "/contoso.onmicrosoft.com/oauth2/v2.0/token"
		if form.Get("client_assertion_type") != jwtAssertion || form.Has("client_secret") || form.Get("scope") != "https://vault.example/.default" || form.Has("resource") ||
			h["x5t#S256"] != base64.RawURLEncoding.EncodeToString(sum[:]) || p["aud"] != endpoint || p["iss"] != "app" || p["sub"] != "app" || p["jti"] == "" {
			t.Errorf("%v %v %v", form, h, p)
		}
	}
	if got := (&settings{spec: toolkeep.AuthSpec{Type: AzureAD, Scopes: []string{"s"}, Settings: map[string]any{"tenant": "t1"}}}).check(); got.String() != "https://login.microsoftonline.com/t1/oauth2/v2.0/token" {
		t.Error(got)
	}
}

// TestFailures separates refusals from unreachable servers; errors reveal only known codes.
func TestFailures(t *testing.T) {
	answer := func(status int, body string) func(http.ResponseWriter, *http.Request, int64) {
		return func(w http.ResponseWriter, _ *http.Request, _ int64) { w.WriteHeader(status); fmt.Fprint(w, body) }
	}
	for _, tt := range []struct {
		name  string
		serve func(http.ResponseWriter, *http.Request, int64)
		code  toolkeep.Code
		says  string
	}{
		{"refused", answer(401, `{"error":"invalid_client","error_description":"the secret+/% is wrong"}`), toolkeep.SecretAccessDenied, "invalid_client"},
		{"Microsoft", answer(401, `{"error":"invalid_client","error_codes":[7000215]}`), toolkeep.SecretAccessDenied, "AADSTS7000215"},
		{"refused with 200", answer(200, `{"error":"bad_refresh_token"}`), toolkeep.SecretAccessDenied, "bad_refresh_token"},
		{"the secret as a code", answer(400, `{"error":"the secret+/%"}`), toolkeep.SecretAccessDenied, "refuses"},
		{"refused in words", answer(403, `the secret+/% is not the-client's`), toolkeep.SecretAccessDenied, "refuses"},
		{"away", answer(503, `the secret+/%`), toolkeep.SecretRetrievalFailed, "503"},
		{"for a while", answer(400, `{"error":"temporarily_unavailable"}`), toolkeep.SecretRetrievalFailed, ""},
		{"too many", func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(429)
		}, toolkeep.SecretRetrievalFailed, "429"},
		{"garbage", answer(200, `<html>the secret+/%`), toolkeep.SecretRetrievalFailed, "not a token"},
		{"nothing", answer(200, ``), toolkeep.SecretRetrievalFailed, "not a token"},
		{"no content", answer(204, ``), toolkeep.SecretRetrievalFailed, "not a token"},
		{"no token", answer(200, `{}`), toolkeep.SecretRetrievalFailed, "without a token"},
		{"a number", answer(200, `{"access_token":5}`), toolkeep.SecretRetrievalFailed, "without a token"},
		{"another header", answer(200, `{"access_token":"a\r\nX: y"}`), toolkeep.SecretRetrievalFailed, "can be sent"},
		{"two tokens", answer(200, `{"access_token":"a","access_token":"b"}`), toolkeep.SecretRetrievalFailed, "not a token"},
		{"another type", answer(200, `{"access_token":"a","token_type":"mac"}`), toolkeep.SecretAccessDenied, "another type"},
		{"a redirect", func(w http.ResponseWriter, r *http.Request, _ int64) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusTemporaryRedirect)
		}, toolkeep.SecretRetrievalFailed, "redirect"},
		{"100 MB", func(w http.ResponseWriter, _ *http.Request, _ int64) {
			chunk := []byte(strings.Repeat(" ", 1<<20))
			for range 100 {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}, toolkeep.SecretRetrievalFailed, "limit"},
		{"half an answer", func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, `{"access_token":`)
		}, toolkeep.SecretRetrievalFailed, ""},
		{"a broken connection", func(http.ResponseWriter, *http.Request, int64) { panic(http.ErrAbortHandler) }, toolkeep.SecretRetrievalFailed, "reached"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer(t, tt.serve)
			m, _ := newMinter(t, nil)
			_, _, err := m.Mint(t.Context(), acme, loopback, credentials(s), plain, false)
			var e *toolkeep.Error
			if !errors.As(err, &e) || e.Code != tt.code || !strings.Contains(e.Message, tt.says) || !e.NothingSent || e.Retryable != (tt.code == toolkeep.SecretRetrievalFailed) {
				t.Fatalf("%v", err)
			}
			for cause := err; cause != nil; cause = errors.Unwrap(cause) {
				if text := cause.Error() + fmt.Sprint(e.Details); strings.Contains(text, "the secret") || strings.Contains(text, s.URL) {
					t.Error(text)
				}
			}
			if tt.name == "too many" && e.RetryAfter != 7*time.Second {
				t.Errorf("after %s", e.RetryAfter)
			}
			s.set(tokens) // a failure is not kept
			if token, _ := mint(t, m, credentials(s), plain, false); !strings.HasPrefix(token, "token-") {
				t.Error(token)
			}
		})
	}
}

// TestSlow: the request ends at its own timeout, or with the call.
func TestSlow(t *testing.T) {
	arrived := make(chan struct{}, 8)
	s := newServer(t, func(_ http.ResponseWriter, r *http.Request, _ int64) { arrived <- struct{}{}; <-r.Context().Done() })
	m, _ := newMinter(t, func(c *Config) { c.timeout = time.Second }) // enough to reach the server
	if _, _, err := m.Mint(t.Context(), acme, loopback, credentials(s), plain, false); codeOf(err) != toolkeep.SecretRetrievalFailed || !strings.Contains(err.Error(), "in time") {
		t.Errorf("%v", err)
	}
	<-arrived
	m, _ = newMinter(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := m.Mint(ctx, acme, loopback, credentials(s), plain, false); codeOf(err) != toolkeep.SecretRetrievalFailed {
		t.Errorf("%v", err)
	}
	<-arrived
	m.Close() // cancels the request without waiters
	if _, _, err := m.Mint(t.Context(), acme, loopback, credentials(s), plain, false); codeOf(err) != toolkeep.SecretRetrievalFailed {
		t.Errorf("after Close: %v", err)
	}
	m.Close()
}

// TestGuarded: requests obey the tool's network permissions.
func TestGuarded(t *testing.T) {
	s := newServer(t, tokens)
	m, _ := newMinter(t, nil)
	for name, allow := range map[string][]toolkeep.HostPort{"nothing is open": nil, "another port": {{Host: "127.0.0.1", Port: 1}}, "another host": {{Host: "10.0.0.1"}}} {
		if _, _, err := m.Mint(t.Context(), acme, allow, credentials(s), plain, false); codeOf(err) != toolkeep.SecretAccessDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
	tls := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was asked") }))
	defer tls.Close()
	spec := credentials(s)
	spec.TokenURL = tls.URL
	if _, _, err := m.Mint(t.Context(), acme, nil, spec, plain, false); codeOf(err) != toolkeep.DestinationForbidden {
		t.Errorf("loopback: %v", err)
	}
	if n := s.requests.Load(); n != 0 {
		t.Errorf("%d requests", n)
	}
}

func TestBadEntries(t *testing.T) {
	m, _ := newMinter(t, nil)
	const endpoint = "https://auth.example/token"
	for name, tt := range map[string]struct {
		spec   toolkeep.AuthSpec
		secret string
	}{
		"no endpoint":     {toolkeep.AuthSpec{Type: ClientCredentials}, plain},
		"no URL":          {toolkeep.AuthSpec{Type: ClientCredentials, TokenURL: "auth.example"}, plain},
		"user in the URL": {toolkeep.AuthSpec{Type: ClientCredentials, TokenURL: "https://u:p@auth.example/"}, plain},
		"style":           {toolkeep.AuthSpec{Type: ClientCredentials, TokenURL: endpoint, Settings: map[string]any{"auth_style": "query"}}, plain},
		"reserved":        {toolkeep.AuthSpec{Type: ClientCredentials, TokenURL: endpoint, Settings: map[string]any{"params": map[string]any{"client_id": "x"}}}, plain},
		"params":          {toolkeep.AuthSpec{Type: ClientCredentials, TokenURL: endpoint, Settings: map[string]any{"params": []any{"x"}}}, plain},
		"no colon":        {toolkeep.AuthSpec{Type: ClientCredentials, TokenURL: endpoint}, "hush-hush"},
		"half JSON":       {toolkeep.AuthSpec{Type: ClientCredentials, TokenURL: endpoint}, `{"client_id":"hush-hush`},
		"no refresh":      {toolkeep.AuthSpec{Type: Refresh, TokenURL: endpoint}, `{"client_id":"hush-hush"}`},
		"no tenant":       {toolkeep.AuthSpec{Type: AzureAD, Scopes: []string{"s"}}, plain},
		"tenant's path":   {toolkeep.AuthSpec{Type: AzureAD, Scopes: []string{"s"}, Settings: map[string]any{"tenant": "../x"}}, plain},
		"no scope":        {toolkeep.AuthSpec{Type: AzureAD, Settings: map[string]any{"tenant": "t"}}, plain},
		"bad certificate": {toolkeep.AuthSpec{Type: AzureAD, Scopes: []string{"s"}, Settings: map[string]any{"tenant": "t"}}, `{"client_id":"c","certificate":"hush-hush"}`},
		"google":          {toolkeep.AuthSpec{Type: GoogleAccount, TokenURL: endpoint, Scopes: []string{"s"}}, `{"client_email":"e","private_key":"hush-hush"}`},
		"google scopes":   {toolkeep.AuthSpec{Type: GoogleAccount, TokenURL: endpoint}, `{"client_email":"e","private_key":"hush-hush"}`},
		"google endpoint": {toolkeep.AuthSpec{Type: GoogleAccount, Scopes: []string{"s"}}, `{"client_email":"e","private_key":"hush-hush"}`},
		"not minted":      {toolkeep.AuthSpec{Type: "bearer", TokenURL: endpoint}, "hush-hush"},
	} {
		if _, _, err := m.Mint(t.Context(), acme, nil, tt.spec, tt.secret, false); codeOf(err) != toolkeep.SecretAccessDenied || strings.Contains(err.Error(), "hush-hush") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if f := checkEntry(toolkeep.AuthSpec{Type: AzureAD, Settings: map[string]any{"auth_style": 1, "client_id": 2, "params": map[string]any{"a/b": 1}}}, nil); len(f) < 4 {
		t.Errorf("%v", f)
	}
	if f := checkEntry(toolkeep.AuthSpec{Type: ClientCredentials, TokenURL: endpoint}, nil); len(f) != 0 {
		t.Errorf("%v", f)
	}
}

// TestBounded: the least recently used token is dropped.
func TestBounded(t *testing.T) {
	s := newServer(t, tokens)
	m, _ := newMinter(t, func(c *Config) { c.kept = 3 })
	for i := range 10 {
		mint(t, m, credentials(s), "c:"+strconv.Itoa(i), false)
	}
	if m.kept() != 3 {
		t.Errorf("%d are kept", m.kept())
	}
	before := s.requests.Load()
	mint(t, m, credentials(s), "c:9", false)
	if s.requests.Load() != before {
		t.Error("the latest was forgotten")
	}
}

// TestHammer mints many kinds of tokens concurrently, under the race detector.
func TestHammer(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, r *http.Request, n int64) {
		if n%7 == 0 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		fmt.Fprintf(w, `{"access_token":"token-%d","refresh_token":"r-%d","expires_in":61}`, n, n)
	})
	m, c := newMinter(t, func(c *Config) { c.kept = 5 })
	spec := toolkeep.AuthSpec{Type: Refresh, TokenURL: s.URL}
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for j := range 50 {
				secret := fmt.Sprintf(`{"client_id":"c%d","refresh_token":"r"}`, (i+j)%9)
				v, rotated, err := m.Mint(t.Context(), acme, loopback, spec, secret, j%10 == 0)
				if rotated != "" && j%2 == 0 {
					m.Stored("acme", rotated)
				}
				if err != nil && codeOf(err) != toolkeep.SecretRetrievalFailed || err == nil && !strings.HasPrefix(v.Text(), "token-") {
					t.Errorf("%q, %v", v.Text(), err)
				}
				v.Wipe()
				c.add(time.Second)
			}
		})
	}
	wg.Wait()
}

// kept returns the number of kept tokens.
func (m *Minter) kept() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.recent.Len()
}
