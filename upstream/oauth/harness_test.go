package oauth_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/redact"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/servertest"
	"github.com/toolkeep/toolkeep/upstream/oauth"
)

// items is a document store with a feed, shared by a test's nodes.
type items struct {
	mu      sync.Mutex
	now     map[[3]string]toolkeep.Document
	count   map[[3]string]int64
	nodes   []*oauth.Logins
	before  func(toolkeep.Change) error // may refuse a change; called without mu
	reading func() error
}

var errDown = errors.New("the database is away")

func newItems() *items {
	return &items{now: map[[3]string]toolkeep.Document{}, count: map[[3]string]int64{}}
}

func (s *items) hook(f func(toolkeep.Change) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = f
}

func (s *items) Apply(_ context.Context, changes ...toolkeep.Change) error {
	s.mu.Lock()
	hook := s.before
	s.mu.Unlock()
	if hook != nil {
		if err := hook(changes[0]); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range changes {
		switch c := c.(type) {
		case toolkeep.PutDocument:
			key := [3]string{c.Document.Kind, c.Document.Tenant, c.Document.ID}
			old, has := s.now[key]
			if c.Expect == toolkeep.NoRevision && has || c.Expect > 0 && old.Revision != c.Expect {
				return toolkeep.ErrStale
			}
			s.count[key]++
			it := c.Document
			it.Revision = s.count[key]
			s.now[key] = it
			c.Document = it
			s.tell(c)
		case toolkeep.DeleteDocument:
			key := [3]string{c.Kind, c.Tenant, c.ID}
			old, has := s.now[key]
			if !has {
				return errors.Join(toolkeep.ErrNotFound, toolkeep.ErrStale)
			}
			if c.Expect > 0 && old.Revision != c.Expect {
				return toolkeep.ErrStale
			}
			delete(s.now, key)
			s.tell(c)
		}
	}
	return nil
}

func (s *items) tell(c toolkeep.Change) {
	for _, n := range s.nodes {
		n.Follow(toolkeep.Committed{Change: c})
	}
}

func (s *items) Document(_ context.Context, kind, tenant, id string) (toolkeep.Document, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reading != nil {
		if err := s.reading(); err != nil {
			return toolkeep.Document{}, err
		}
	}
	it, ok := s.now[[3]string{kind, tenant, id}]
	if !ok {
		return it, toolkeep.ErrNotFound
	}
	return it, nil
}

func (s *items) Documents(_ context.Context, kind string) (list []toolkeep.Document, seq int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, it := range s.now {
		if it.Kind == kind {
			list = append(list, it)
		}
	}
	return list, 0, nil
}

func (s *items) all(kind string) []toolkeep.Document {
	list, _, _ := s.Documents(context.Background(), kind)
	return list
}

// clock is a time that tests advance.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time       { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *clock) pass(d time.Duration) { c.ahead.Add(int64(d)) }

// world is one MCP server that requires logins, its authorization server, and the
// Toolkeep nodes in front.
type world struct {
	t      *testing.T
	store  *items
	clock  *clock
	log    *servertest.Log
	redact *redact.Redactor
	as     *authServer
	mcp    *resource
	public *httptest.Server // address at which people reach the nodes
	front  atomic.Pointer[oauth.Logins]
	sealer *secret.Sealer
	change func(*oauth.Config)
	nodes  []*oauth.Logins
}

func newWorld(t *testing.T, change func(*oauth.Config)) *world {
	t.Helper()
	w := &world{t: t, store: newItems(), clock: &clock{}, log: &servertest.Log{}, change: change}
	w.redact = redact.NewRedactor(w.clock.now)
	var err error
	if w.sealer, err = secret.OpenSealer(filepath.Join(t.TempDir(), "key")); err != nil {
		t.Fatal(err)
	}
	w.as = newAuthServer(t)
	w.mcp = newResource(t, w.as)
	w.public = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.front.Load().Handler().ServeHTTP(rw, r) }))
	t.Cleanup(w.public.Close)
	w.node()
	return w
}

// node adds a node and sends people to it from now on.
func (w *world) node() *oauth.Logins {
	c := oauth.Config{
		Store: w.store, Sealer: w.sealer, PublicURL: func() string { return w.public.URL }, Redact: w.redact,
		Client: func(string, []toolkeep.HostPort) *http.Client { return w.as.Client() },
		Clock:  w.clock.now, Log: slog.New(slog.NewJSONHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if w.change != nil {
		w.change(&c)
	}
	l := oauth.New(c)
	w.t.Cleanup(l.Stop)
	w.store.mu.Lock()
	w.store.nodes = append(w.store.nodes, l)
	w.store.mu.Unlock()
	w.nodes = append(w.nodes, l)
	w.front.Store(l)
	return l
}

// leave cuts a node off the feed.
func (w *world) leave(l *oauth.Logins) {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	w.store.nodes = slices.DeleteFunc(w.store.nodes, func(n *oauth.Logins) bool { return n == l })
}

func (w *world) ref(tenant, subject string) oauth.Ref {
	return oauth.Ref{Server: "crm", URL: w.mcp.URL + "/mcp", Tenant: tenant, Subject: subject}
}

// call sends one request of an account as the transport does: again after a Challenge
// that allows a retry.
func (w *world) call(l *oauth.Logins, r oauth.Ref) (body string, err error) {
	return w.callTo(l, r, r.URL)
}

func (w *world) callTo(l *oauth.Logins, r oauth.Ref, at string) (body string, err error) {
	ctx := context.Background()
	for again := false; ; again = true {
		token, err := l.Token(ctx, r)
		if err != nil {
			return "", err
		}
		req, _ := http.NewRequest("POST", at, nil)
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := w.as.Client().Do(req)
		if err != nil {
			return "", err
		}
		data, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		switch {
		case resp.StatusCode == http.StatusOK:
			return string(data), nil
		case again || resp.StatusCode != 401 && resp.StatusCode != 403:
			return "", fmt.Errorf("HTTP %d", resp.StatusCode)
		}
		if retry, err := l.Challenge(ctx, r, token, resp); err != nil || !retry {
			return "", err
		}
	}
}

// wantLogin makes a call that requires a login and returns its address.
func (w *world) wantLogin(l *oauth.Logins, r oauth.Ref) string {
	w.t.Helper()
	_, err := w.call(l, r)
	return w.address(err)
}

func (w *world) address(err error) string {
	w.t.Helper()
	e := wantCode(w.t, err, toolkeep.LoginRequired)
	at, _ := e.Details["url"].(string)
	if !strings.HasPrefix(at, w.public.URL+"/oauth/login/") || !e.NothingSent {
		w.t.Fatalf("E3407 with url %q, nothing sent %v", at, e.NothingSent)
	}
	return at
}

func wantCode(t *testing.T, err error, code toolkeep.Code) *toolkeep.Error {
	t.Helper()
	var e *toolkeep.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("got %v (%v), want %s", err, errors.Unwrap(err), code)
	}
	return e
}

// logIn completes a login for an account.
func (w *world) logIn(l *oauth.Logins, r oauth.Ref) {
	w.t.Helper()
	status, page := newBrowser(w.t, w).logIn(w.wantLogin(l, r))
	if status != http.StatusOK {
		w.t.Fatalf("the login ended with %d: %s\n%s", status, page, w.log)
	}
	if _, err := w.call(l, r); err != nil {
		w.t.Fatalf("after the login: %v (%v)\n%s", err, errors.Unwrap(err), w.log)
	}
}

// browser is one person's browser.
type browser struct {
	t      *testing.T
	client *http.Client
}

func newBrowser(t *testing.T, w *world) *browser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &browser{t, &http.Client{Jar: jar, Transport: w.public.Client().Transport}}
}

func (b *browser) do(method, at string, header ...string) (*http.Response, string) {
	b.t.Helper()
	req, err := http.NewRequest(method, at, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := b.client.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp, string(data)
}

// press posts the page's button.
func (b *browser) press(at string) (*http.Response, string) {
	u, _ := url.Parse(at)
	return b.do("POST", at, "Origin", u.Scheme+"://"+u.Host, "Sec-Fetch-Site", "same-origin")
}

// logIn opens the page, presses its button and follows the redirects.
func (b *browser) logIn(at string) (int, string) {
	b.t.Helper()
	resp, page := b.do("GET", at)
	if resp.StatusCode != http.StatusOK || !strings.Contains(page, `<form method="post">`) {
		b.t.Fatalf("the page: %d %s", resp.StatusCode, page)
	}
	resp, page = b.press(at)
	return resp.StatusCode, page
}

// until returns the address to which the authorization server redirects the browser,
// without following it.
func (b *browser) until(at string) string {
	b.t.Helper()
	stop := b.client.CheckRedirect
	defer func() { b.client.CheckRedirect = stop }()
	back := ""
	b.client.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if r.URL.Path == "/oauth/callback" {
			back = r.URL.String()
			return http.ErrUseLastResponse
		}
		return nil
	}
	if resp, page := b.press(at); back == "" {
		b.t.Fatalf("no way back: %d %s", resp.StatusCode, page)
	}
	return back
}

// resource is the OAuth side of an MCP server.
type resource struct {
	*httptest.Server
	as *authServer

	mu       sync.Mutex
	header   string // of 401; "" none
	meta     map[string]any
	at       string   // path of the metadata; "" for none
	need     []string // scopes
	needMore []string // scopes of /mcp/admin
	calls    atomic.Int64
}

func newResource(t *testing.T, as *authServer) *resource {
	r := &resource{as: as, at: "/.well-known/oauth-protected-resource/mcp"}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	r.meta = map[string]any{"resource": r.URL + "/mcp", "authorization_servers": []string{as.issuer()}}
	return r
}

func (s *resource) set(f func()) { s.mu.Lock(); defer s.mu.Unlock(); f() }

func (s *resource) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.at != "" && r.URL.Path == s.at:
		writeJSON(w, 200, s.meta)
		return
	case !strings.HasPrefix(r.URL.Path, "/mcp"):
		http.NotFound(w, r)
		return
	}
	s.calls.Add(1)
	bearer, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	who, scopes, ok := s.as.check(bearer, fmt.Sprint(s.meta["resource"]), s.URL+"/mcp")
	need := s.need
	if strings.HasSuffix(r.URL.Path, "/admin") {
		need = s.needMore
	}
	switch {
	case !ok:
		if s.header != "" {
			w.Header().Set("WWW-Authenticate", s.header)
		}
		w.WriteHeader(401)
	case slices.ContainsFunc(need, func(n string) bool { return !slices.Contains(scopes, n) }):
		w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="`+strings.Join(need, " ")+`"`)
		w.WriteHeader(403)
	default:
		fmt.Fprint(w, who)
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(data)
}

// authServer is a strict authorization server.
type authServer struct {
	*httptest.Server
	t *testing.T

	mu       sync.Mutex
	path     string   // of the issuer
	metaAt   []string // addresses of its metadata
	meta     map[string]any
	register bool
	method   string // given at registration, "" as asked
	clients  map[string]*client
	fetch    *http.Client // for client metadata documents
	person   string       // person logged in there
	deny     bool
	iss      []string // in callbacks
	grants   []string // scopes granted instead of those requested
	expires  any      // nil: not stated
	rotate   bool     // refresh tokens work once
	strict   bool     // reuse ends the token family
	broken   int      // status of the token endpoint, 0 for none
	codes    map[string]*code
	families []*family
	tokens   map[string]*family // access token
	seen     []string           // every secret sent or received
	revokes  int                // status of the revocation endpoint
	revoked  []string           // hint and token of each request there

	gate      func() // called in the token endpoint, without mu
	refreshes atomic.Int64
	exchanges atomic.Int64
	asked     atomic.Int64 // requests of any kind
}

type client struct {
	secret, method string
	redirects      []string
}

type code struct {
	client, redirect, challenge, resource, person string
	scopes                                        []string
}

type family struct {
	client, person, resource string
	scopes                   []string
	refresh                  string
	used                     []string
	dead                     bool
}

func newAuthServer(t *testing.T) *authServer {
	s := &authServer{t: t, clients: map[string]*client{}, codes: map[string]*code{}, tokens: map[string]*family{}, register: true, person: "ann", rotate: true,
		metaAt: []string{"/.well-known/oauth-authorization-server"}, expires: 3600}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	s.meta = map[string]any{"code_challenge_methods_supported": []string{"S256"}, "response_types_supported": []string{"code"}}
	return s
}

func (s *authServer) set(f func()) { s.mu.Lock(); defer s.mu.Unlock(); f() }

func (s *authServer) issuer() string { return s.URL + s.path }

func (s *authServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.asked.Add(1)
	if r.URL.Path == "/token" && s.gate != nil {
		s.gate()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case slices.Contains(s.metaAt, r.URL.Path):
		meta := map[string]any{"issuer": s.issuer(), "authorization_endpoint": s.URL + "/authorize?app=1", "token_endpoint": s.URL + "/token"}
		if s.register {
			meta["registration_endpoint"] = s.URL + "/register"
		}
		for k, v := range s.meta {
			meta[k] = v
		}
		writeJSON(w, 200, meta)
	case r.URL.Path == "/register" && s.register && r.Method == "POST":
		s.registering(w, r)
	case r.URL.Path == "/authorize":
		s.authorize(w, r)
	case r.URL.Path == "/token" && r.Method == "POST":
		s.token(w, r)
	case r.URL.Path == "/revoke" && r.Method == "POST":
		s.revoked = append(s.revoked, r.FormValue("token_type_hint")+" "+r.FormValue("token"))
		w.WriteHeader(s.revokes)
	default:
		http.NotFound(w, r)
	}
}

func (s *authServer) registering(w http.ResponseWriter, r *http.Request) {
	var ask struct {
		Redirects []string `json:"redirect_uris"`
		Method    string   `json:"token_endpoint_auth_method"`
	}
	if err := json.UnmarshalRead(r.Body, &ask); err != nil || len(ask.Redirects) == 0 {
		writeJSON(w, 400, map[string]any{"error": "invalid_client_metadata"})
		return
	}
	c := &client{method: ask.Method, redirects: ask.Redirects}
	if s.method != "" {
		c.method = s.method
	}
	id := "client-" + rand.Text()
	answer := map[string]any{"client_id": id, "token_endpoint_auth_method": c.method}
	if c.method != "none" {
		c.secret = s.secretText("client+secret/%")
		answer["client_secret"] = c.secret
	}
	s.clients[id] = c
	writeJSON(w, 201, answer)
}

// secretText returns a value that must not appear elsewhere.
func (s *authServer) secretText(kind string) string {
	text := kind + "-" + rand.Text()
	s.seen = append(s.seen, text)
	return text
}

func (s *authServer) client(id string) *client {
	if c := s.clients[id]; c != nil || s.fetch == nil || !strings.HasPrefix(id, "https://") {
		return c
	}
	resp, err := s.fetch.Get(id)
	if err != nil {
		s.t.Error(err)
		return nil
	}
	defer resp.Body.Close()
	var doc struct {
		ID        string   `json:"client_id"`
		Redirects []string `json:"redirect_uris"`
		Method    string   `json:"token_endpoint_auth_method"`
	}
	if err := json.UnmarshalRead(resp.Body, &doc); err != nil || doc.ID != id {
		s.t.Errorf("the client metadata document is of %q: %v", doc.ID, err)
		return nil
	}
	c := &client{method: doc.Method, redirects: doc.Redirects}
	s.clients[id] = c
	return c
}

func (s *authServer) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	c := s.client(q.Get("client_id"))
	if c == nil || !slices.Contains(c.redirects, q.Get("redirect_uri")) || q.Get("app") != "1" && len(s.metaAt) > 0 {
		http.Error(w, "unknown client", 400)
		return
	}
	back, _ := url.Parse(q.Get("redirect_uri"))
	a := url.Values{"state": {q.Get("state")}}
	for _, iss := range s.iss {
		a.Add("iss", iss)
	}
	switch {
	case q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || len(q.Get("code_challenge")) != 43 || q.Get("resource") == "":
		a.Set("error", "invalid_request")
	case s.deny:
		a.Set("error", "access_denied")
	default:
		scopes := strings.Fields(q.Get("scope"))
		if s.grants != nil {
			scopes = s.grants
		}
		text := s.secretText("code")
		s.codes[text] = &code{q.Get("client_id"), q.Get("redirect_uri"), q.Get("code_challenge"), q.Get("resource"), s.person, scopes}
		a.Set("code", text)
	}
	s.seen = append(s.seen, q.Get("state"))
	back.RawQuery = a.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound)
}

// who authenticates a client.
func (s *authServer) who(r *http.Request) (string, bool) {
	id, sec, basic := r.BasicAuth()
	method := "client_secret_basic"
	if basic {
		id, _ = url.QueryUnescape(id)
		sec, _ = url.QueryUnescape(sec)
	} else {
		id, sec, method = r.PostForm.Get("client_id"), r.PostForm.Get("client_secret"), "client_secret_post"
		if sec == "" {
			method = "none"
		}
	}
	c := s.clients[id]
	return id, c != nil && c.method == method && c.secret == sec
}

func (s *authServer) token(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		http.Error(w, "no form", 400)
		return
	}
	if s.broken != 0 {
		http.Error(w, "no token-"+r.PostForm.Get("refresh_token"), s.broken)
		return
	}
	id, ok := s.who(r)
	if !ok {
		writeJSON(w, 401, map[string]any{"error": "invalid_client"})
		return
	}
	var f *family
	switch r.PostForm.Get("grant_type") {
	case "authorization_code":
		s.exchanges.Add(1)
		c := s.codes[r.PostForm.Get("code")]
		delete(s.codes, r.PostForm.Get("code"))
		verifier := r.PostForm.Get("code_verifier")
		s.seen = append(s.seen, verifier)
		sum := sha256.Sum256([]byte(verifier))
		if c == nil || c.client != id || c.redirect != r.PostForm.Get("redirect_uri") || c.resource != r.PostForm.Get("resource") ||
			len(verifier) < 43 || base64.RawURLEncoding.EncodeToString(sum[:]) != c.challenge {
			writeJSON(w, 400, map[string]any{"error": "invalid_grant"})
			return
		}
		f = &family{client: id, person: c.person, resource: c.resource, scopes: c.scopes}
		s.families = append(s.families, f)
	case "refresh_token":
		s.refreshes.Add(1)
		text := r.PostForm.Get("refresh_token")
		for _, one := range s.families {
			if one.refresh == text && !one.dead && one.client == id && one.resource == r.PostForm.Get("resource") {
				f = one
			}
			if slices.Contains(one.used, text) && s.strict {
				one.dead = true
			}
		}
		if f == nil {
			writeJSON(w, 400, map[string]any{"error": "invalid_grant", "error_description": "used: " + text})
			return
		}
	default:
		writeJSON(w, 400, map[string]any{"error": "unsupported_grant_type"})
		return
	}
	for access, one := range s.tokens {
		if one == f {
			delete(s.tokens, access) // only the latest works
		}
	}
	access := s.secretText("access")
	s.tokens[access] = f
	answer := map[string]any{"access_token": access, "token_type": "Bearer", "scope": strings.Join(f.scopes, " ")}
	if s.rotate || f.refresh == "" {
		if f.refresh != "" {
			f.used = append(f.used, f.refresh)
		}
		f.refresh = s.secretText("refresh")
		answer["refresh_token"] = f.refresh
	}
	if s.expires != nil {
		answer["expires_in"] = s.expires
	}
	writeJSON(w, 200, answer)
}

// check returns the person that the access token belongs to.
func (s *authServer) check(access string, resources ...string) (person string, scopes []string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.tokens[access]
	if f == nil || f.dead || !slices.Contains(resources, f.resource) {
		return "", nil, false
	}
	return f.person, f.scopes, true
}

// revoke invalidates access tokens, and refresh tokens too if all.
func (s *authServer) revoke(all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.tokens)
	if all {
		s.families = nil
	}
}

func (s *authServer) secrets() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

// wait polls until a condition holds.
func wait(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !cond(); {
		if time.Now().After(end) {
			t.Fatalf("waited in vain until %s", what)
		}
		<-time.After(2 * time.Millisecond)
	}
}
