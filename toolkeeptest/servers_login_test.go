package toolkeeptest_test

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/node"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// guarded is an MCP server that requires a token, and its authorization server. Its
// only tool returns the caller's account.
type guarded struct {
	*httptest.Server
	mu       sync.Mutex
	person   string            // the person at the browser
	codes    map[string]string // code -> challenge and person
	tokens   map[string]string // access token -> person
	refresh  map[string]string
	secrets  []string
	bearers  []string // bearers received
	openList bool     // listing needs no login

	refreshes int
}

func newGuarded(t *testing.T) *guarded {
	g := &guarded{person: "ann", codes: map[string]string{}, tokens: map[string]string{}, refresh: map[string]string{}}
	mux := http.NewServeMux()
	g.Server = httptest.NewServer(mux)
	t.Cleanup(g.Close)
	reply := func(w http.ResponseWriter, status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("/.well-known/oauth-protected-resource/mcp", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, 200, map[string]any{"resource": g.URL + "/mcp", "authorization_servers": []string{g.URL}})
	})
	mux.HandleFunc("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, 200, map[string]any{"issuer": g.URL, "authorization_endpoint": g.URL + "/authorize", "token_endpoint": g.URL + "/token",
			"registration_endpoint": g.URL + "/register", "code_challenge_methods_supported": []string{"S256"}})
	})
	mux.HandleFunc("POST /register", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, 201, map[string]any{"client_id": "toolkeep", "token_endpoint_auth_method": "none"})
	})
	mux.HandleFunc("GET /authorize", func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		defer g.mu.Unlock()
		q := r.URL.Query()
		code := g.secret("code")
		g.codes[code] = q.Get("code_challenge") + " " + g.person
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"code": {code}, "state": {q.Get("state")}}.Encode(), http.StatusFound)
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		defer g.mu.Unlock()
		person, ok := g.refresh[r.FormValue("refresh_token")]
		delete(g.refresh, r.FormValue("refresh_token"))
		if r.FormValue("grant_type") == "refresh_token" {
			g.refreshes++
		}
		if r.FormValue("grant_type") == "authorization_code" {
			sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
			want, name, _ := strings.Cut(g.codes[r.FormValue("code")], " ")
			delete(g.codes, r.FormValue("code"))
			person, ok = name, want == base64.RawURLEncoding.EncodeToString(sum[:])
		}
		if !ok {
			reply(w, 400, map[string]any{"error": "invalid_grant"})
			return
		}
		access, again := g.secret("access"), g.secret("refresh")
		g.tokens[access], g.refresh[again] = person, person
		reply(w, 200, map[string]any{"access_token": access, "refresh_token": again, "token_type": "Bearer", "expires_in": 3600})
	})
	mux.HandleFunc("/mcp", g.mcp)
	return g
}

func (g *guarded) secret(kind string) string {
	s := kind + "-" + rand.Text()
	g.secrets = append(g.secrets, s)
	return s
}

func (g *guarded) set(f func()) { g.mu.Lock(); defer g.mu.Unlock(); f() }

func (g *guarded) mcp(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	var m struct {
		ID     json.RawMessage
		Method string
	}
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	bearer := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	person, ok := g.tokens[bearer]
	g.bearers = append(g.bearers, bearer)
	if !ok && (!g.openList || m.Method == "tools/call") {
		w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+g.URL+`/.well-known/oauth-protected-resource/mcp"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if m.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	result := ""
	switch m.Method {
	case "initialize":
		result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"guarded","version":"1"}}`
	case "tools/list":
		result = `{"tools":[{"name":"whoami","description":"Says who calls.","inputSchema":{"type":"object"}}]}`
	case "tools/call":
		result = fmt.Sprintf(`{"content":[{"type":"text","text":"%s with %s"}]}`, person, bearer)
	default:
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, m.ID)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

func (g *guarded) spec(more ...string) string {
	return joined(fmt.Sprintf(`{"transport":"http","url":%q,"network":[{"host":"127.0.0.1"}]}`, g.URL+"/mcp"), more)
}

// address returns the login URL from a refusal.
func (a answer) address(t *testing.T) string {
	t.Helper()
	a.want(t, http.StatusFailedDependency).refused(t, toolkeep.LoginRequired)
	at := a.text(t, "details", "url")
	if !strings.Contains(at, "/oauth/login/") || !strings.Contains(a.body, "open details.url") {
		t.Fatalf("no address: %s", a.body)
	}
	return at
}

// visit opens the URL in a fresh browser and presses the button.
func visit(t *testing.T, at string) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	b := &http.Client{Jar: jar, Transport: tr}
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{"GET", "POST"} {
		req, err := http.NewRequest(method, at, nil)
		if err != nil {
			t.Fatal(err)
		}
		if method == "POST" {
			req.Header.Set("Origin", u.Scheme+"://"+u.Host)
		}
		resp, err := b.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		page, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("X-Frame-Options") != "DENY" {
			t.Fatalf("%s %s: %d %v %s", method, at, resp.StatusCode, err, page)
		}
	}
}

// TestServerLogin covers a server that requires logins, from its import to the logout.
func TestServerLogin(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	k := toolkeeptest.New(t)
	c := admin(t, k)
	const server = "/api/v1/servers/crm"

	// The import reads the lists with the importer's own account.
	visit(t, c.do("PUT", server, g.spec()).address(t))
	if p := c.do("PUT", server, g.spec()).plan(t); p.Published != 1 {
		t.Fatalf("%+v", p)
	}
	if got := c.do("GET", server, "").want(t, 200).text(t, "spec", "session"); got != "principal" {
		t.Errorf("the session is %q", got)
	}
	if got := c.call("crm.whoami", "{}").output(t); got != "ann with [REDACTED]" {
		t.Errorf("%q", got)
	}

	// Another principal has its own account; a waiting call returns its login URL.
	bob := as(t, k, k.Key("default", "bob", "agent", "operator"))
	at := bob.call("crm.whoami", "{}", keyed("k1")).address(t)
	for _, where := range []string{server, server + "/logs"} { // others must not complete bob's login
		if a := c.do("GET", where, "").want(t, 200); strings.Contains(a.body, "/oauth/login/") {
			t.Errorf("%s shows bob's address: %s", where, a.body)
		}
	}
	waiting := bob.call("crm.whoami", "{}", async).want(t, 202).id(t)
	ended := bob.ended(waiting)
	if got := ended.failed(t, toolkeep.LoginRequired).text(t, "error", "details", "url"); got != at {
		t.Errorf("the waiting call names %q, not %q: %s", got, at, ended)
	}
	refused, err := agent(t, k, bob.key, "/all").CallTool(t.Context(), &sdk.CallToolParams{Name: "crm__whoami", Arguments: map[string]any{}})
	if err != nil || !refused.IsError {
		t.Fatalf("over MCP: %v, %v", refused, err)
	}
	if said, _ := json.Marshal(refused); !strings.Contains(string(said), at) || !strings.Contains(string(said), string(toolkeep.LoginRequired)) {
		t.Errorf("over MCP: %s", said)
	}
	g.set(func() { g.person = "bob" })
	visit(t, at)
	for _, more := range []string{keyed("k1"), async} { // the refused call's key is free
		a := bob.call("crm.whoami", "{}", more)
		if more == async {
			a = bob.ended(a.want(t, 202).id(t))
		}
		if got := a.output(t); got != "bob with [REDACTED]" {
			t.Errorf("%q", got)
		}
	}
	if got := c.call("crm.whoami", "{}").output(t); !strings.HasPrefix(got, "ann ") {
		t.Errorf("%q", got)
	}

	// Manually: login says what is missing, logout removes it.
	c.do("POST", server+"/login", "").want(t, 204)
	c.do("POST", server+"/logout", "").want(t, 204)
	c.do("POST", server+"/login", "").address(t)
	c.call("crm.whoami", "{}").address(t)
	if got := bob.call("crm.whoami", "{}").output(t); !strings.HasPrefix(got, "bob ") {
		t.Errorf("%q", got)
	}

	// A session shared by the tenant uses no personal account.
	c.do("PUT", "/api/v1/servers/team", g.spec(`"session":"shared"`)).want(t, 424).refused(t, toolkeep.SecretAccessDenied)

	// Logins survive a restart, sealed.
	k.Close()
	k2 := toolkeeptest.Open(t, k.Dir)
	again := as(t, k2, bob.key)
	if got := again.call("crm.whoami", "{}").output(t); got != "bob with [REDACTED]" {
		t.Errorf("%q", got)
	}
	k2.Close()
	g.nowhere(t, k, k2)
}

// nowhere searches the logs and every file for the tokens.
func (g *guarded) nowhere(t *testing.T, systems ...*toolkeeptest.Toolkeep) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	places := map[string]string{}
	for i, k := range systems {
		places[fmt.Sprint("log ", i)] = k.Log()
	}
	err := filepath.WalkDir(systems[0].Dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path)
		places[path] = string(raw)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(g.secrets) < 4 || len(places) < 3 {
		t.Fatalf("%d secrets, %d places", len(g.secrets), len(places))
	}
	for name, text := range places {
		for _, s := range g.secrets {
			if strings.Contains(text, s) {
				t.Errorf("%s is in %s", s, name)
			}
		}
	}
}

// TestServerLoginOfAllTenants: on a server of all tenants each principal has its own
// account, separate per tenant.
func TestServerLoginOfAllTenants(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	k := toolkeeptest.New(t)
	c := admin(t, k)
	visit(t, c.do("PUT", "/api/v1/servers/crm?shared=true", g.spec()).address(t))
	c.do("PUT", "/api/v1/servers/crm?shared=true", g.spec()).plan(t)
	for _, tenant := range []string{"acme", "globex"} {
		one := as(t, k, k.Key(tenant, "agent", "agent", "operator"))
		g.set(func() { g.person = tenant })
		visit(t, one.call("crm.whoami", "{}").address(t))
		if got := one.call("crm.whoami", "{}").output(t); !strings.HasPrefix(got, tenant+" ") {
			t.Errorf("%s acts as %q", tenant, got)
		}
	}
	// The server's address changes: the old address's tokens are not sent to the new
	// one.
	moved := newGuarded(t)
	visit(t, c.do("PUT", "/api/v1/servers/crm?shared=true", moved.spec()).address(t))
	c.do("PUT", "/api/v1/servers/crm?shared=true", moved.spec()).plan(t)
	one := as(t, k, k.Key("acme", "agent", "agent", "operator"))
	one.call("crm.whoami", "{}").address(t)
	for _, s := range g.secrets {
		if slices.Contains(moved.bearers, s) {
			t.Errorf("%s of the old address was sent to the new one", s)
		}
	}
}

// TestLoginBeforeTheFirstCall: a server with open lists may require a login only for
// its tools; login finds that out before a call does. A server that needs no login says
// so.
func TestLoginBeforeTheFirstCall(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	g.openList = true
	k := toolkeeptest.New(t)
	c := admin(t, k)
	c.do("PUT", "/api/v1/servers/crm", g.spec(`"session":"principal"`)).plan(t)
	visit(t, c.do("POST", "/api/v1/servers/crm/login", "").address(t))
	if got := c.call("crm.whoami", "{}").output(t); !strings.HasPrefix(got, "ann ") {
		t.Errorf("%q", got)
	}
}

// TestLoginWithASecret: the secret of a manually registered client is sealed and never
// shown.
func TestLoginWithASecret(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	k := toolkeeptest.New(t)
	c := admin(t, k)
	oauth := `"session":"principal","oauth":{"client_id":"ours","client_secret":"very-secret-value","scopes":["a"]}`
	at := c.do("PUT", "/api/v1/servers/crm", g.spec(oauth)).address(t)
	visit(t, at)
	c.do("PUT", "/api/v1/servers/crm", g.spec(oauth)).plan(t)
	a := c.do("GET", "/api/v1/servers/crm", "").want(t, 200)
	if a.text(t, "spec", "oauth", "client_secret") != "(hidden)" || strings.Contains(a.body, "very-secret") {
		t.Errorf("%s", a)
	}
	// The shown definition can be put again.
	c.do("PUT", "/api/v1/servers/crm", g.spec(strings.ReplaceAll(oauth, "very-secret-value", "(hidden)"))).plan(t)
	for _, bad := range []string{`"oauth":{"client_secret":"x"}`, `"oauth":{"client_id":"x"},"headers":{"Authorization":"y"}`, `"oauth":{"scopes":["a b"]}`, `"oauth":{"client_id":"x","client_secret":"sealed://x"}`} {
		if a := c.do("PUT", "/api/v1/servers/crm", g.spec(bad)); !slices.Contains([]int{400, 422}, a.status) {
			t.Errorf("%s: %s", bad, a)
		}
	}
	k.Close()
	g.set(func() { g.secrets = append(g.secrets, "very-secret-value") })
	g.nowhere(t, k)
}

// TestLoginOnTwoNodes: with two nodes on one database behind one address, page, button
// and callback may reach either, and of fifty calls with an expired token one refreshes
// it.
func TestLoginOnTwoNodes(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	clock := new(clock)
	var nodes []*toolkeeptest.Toolkeep
	var turn atomic.Int64
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		nodes[int(turn.Add(1))%len(nodes)].Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	settings := map[string]string{"store.dsn": pgtest.NewDatabase(t), "http.public_url": front.URL,
		"secrets.seal_key": filepath.Join(t.TempDir(), "seal.key"), "store.blobs": filepath.Join(t.TempDir(), "blobs")}
	for range 2 {
		nodes = append(nodes, toolkeeptest.New(t, toolkeeptest.Option{Settings: settings, Options: node.Options{Clock: clock.now}}))
	}
	key := nodes[0].Key("default", "boss", "admin")
	both := []*client{as(t, nodes[0], key), as(t, nodes[1], key)}
	visit(t, both[0].do("PUT", "/api/v1/servers/crm", g.spec()).address(t))
	both[0].do("PUT", "/api/v1/servers/crm", g.spec()).plan(t)
	waitUntil(t, "the other node has the tool", func() bool { return both[1].call("crm.whoami", "{}").status == 200 })
	for round := 1; round <= 2; round++ {
		clock.advance(2 * time.Hour)
		var work sync.WaitGroup
		for i := range 50 {
			work.Go(func() {
				a, err := both[i%2].try(t.Context(), "POST", "/api/v1/tools/invoke", envelope("crm.whoami", "{}"))
				if err != nil || a.status != 200 || !strings.Contains(a.body, "ann with") {
					t.Errorf("call %d: %v %s", i, err, a)
				}
			})
		}
		work.Wait()
		if g.set(func() {}); g.refreshes != round {
			t.Errorf("%d refreshes in round %d", g.refreshes, round)
		}
	}
}
