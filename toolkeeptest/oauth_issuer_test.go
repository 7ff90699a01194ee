package toolkeeptest_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep/node"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// issuer is an authorization server: it publishes its key, registers clients, issues
// codes for a person who always consents, and exchanges codes for tokens.
type issuer struct {
	*httptest.Server
	key *ecdsa.PrivateKey
	kid string

	mu     sync.Mutex
	down   bool
	person string
	grants string // scopes that it grants instead of the requested ones
	codes  map[string]code
	steps  []string // requests, as method and path
	wanted []string // resource and scope of every token request
}

type code struct{ challenge, resource, scope string }

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s := &issuer{key: key, kid: rand.Text(), person: "alice", codes: map[string]code{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *issuer) set(f func()) { s.mu.Lock(); defer s.mu.Unlock(); f() }

func (s *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = append(s.steps, r.Method+" "+r.URL.Path)
	reply := func(status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v) // a client that has left needs no response
	}
	switch {
	case s.down:
		w.WriteHeader(http.StatusBadGateway)
	case r.URL.Path == "/.well-known/oauth-authorization-server":
		reply(200, map[string]any{"issuer": s.URL, "jwks_uri": s.URL + "/keys", "authorization_endpoint": s.URL + "/authorize",
			"token_endpoint": s.URL + "/token", "registration_endpoint": s.URL + "/register",
			"response_types_supported": []string{"code"}, "code_challenge_methods_supported": []string{"S256"}})
	case r.URL.Path == "/keys":
		point, err := s.key.PublicKey.Bytes()
		if err != nil {
			panic(err)
		}
		reply(200, map[string]any{"keys": []any{map[string]any{"kty": "EC", "crv": "P-256", "kid": s.kid, "use": "sig",
			"x": base64url(point[1:33]), "y": base64url(point[33:])}}})
	case r.URL.Path == "/register":
		reply(201, map[string]any{"client_id": "agent", "token_endpoint_auth_method": "none"})
	case r.URL.Path == "/authorize":
		q := r.URL.Query()
		c := rand.Text()
		s.codes[c] = code{q.Get("code_challenge"), q.Get("resource"), q.Get("scope")}
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"code": {c}, "state": {q.Get("state")}}.Encode(), http.StatusFound)
	case r.URL.Path == "/token":
		c, ok := s.codes[r.FormValue("code")]
		delete(s.codes, r.FormValue("code"))
		sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
		if !ok || c.challenge != base64url(sum[:]) || c.resource != r.FormValue("resource") {
			reply(400, map[string]any{"error": "invalid_grant"})
			return
		}
		s.wanted = append(s.wanted, c.resource+" "+c.scope)
		scope := c.scope
		if s.grants != "" {
			scope = s.grants
		}
		reply(200, map[string]any{"token_type": "Bearer", "expires_in": 3600, "scope": scope,
			"access_token": s.sign(map[string]any{"sub": s.person, "aud": c.resource, "scope": scope})})
	default:
		http.NotFound(w, r)
	}
}

func base64url(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// sign returns a token of the issuer, valid for an hour; claims override the usual
// ones, and nil removes one.
func (s *issuer) sign(claims map[string]any) string {
	all := map[string]any{"iss": s.URL, "sub": "alice", "tenant": "default", "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(all, claims)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	head, err := json.Marshal(map[string]any{"alg": "ES256", "typ": "at+jwt", "kid": s.kid})
	if err != nil {
		panic(err)
	}
	body, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	text := base64url(head) + "." + base64url(body)
	sum := sha256.Sum256([]byte(text))
	r, v, err := ecdsa.Sign(rand.Reader, s.key, sum[:])
	if err != nil {
		panic(err)
	}
	return text + "." + base64url(append(r.FillBytes(make([]byte, 32)), v.FillBytes(make([]byte, 32))...))
}

// token returns a token for the system with a scope.
func (s *issuer) token(k *toolkeeptest.Toolkeep, scope string, more ...map[string]any) string {
	claims := map[string]any{"aud": k.URL(), "scope": scope}
	for _, m := range more {
		maps.Copy(claims, m)
	}
	return s.sign(claims)
}

// start starts a system that accepts the issuer's tokens.
func (s *issuer) start(t *testing.T, settings map[string]string, o node.Options) *toolkeeptest.Toolkeep {
	t.Helper()
	all := map[string]string{"oauth.issuer": s.URL, "oauth.scopes": "tools:call=agent,tools:admin=admin,tools:watch=auditor"}
	maps.Copy(all, settings)
	return toolkeeptest.New(t, toolkeeptest.Option{Settings: all, Options: o})
}

// views lists the MCP endpoints of a system with a server named pages and a set named
// office.
var views = []string{"", "/all", "/search", "/auto", "/sets/office", "/servers/pages"}

// initialize is an MCP client's first message.
const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// says sends one MCP message to a view.
func (c *client) says(view, session, message string) answer {
	c.t.Helper()
	header := []string{"Accept", "application/json, text/event-stream"}
	if session != "" {
		header = append(header, "Mcp-Session-Id", session, "Mcp-Protocol-Version", "2025-11-25")
	}
	return c.do("POST", "/mcp"+view, message, header...)
}

// challengeOf returns the parameters of a Bearer challenge.
func challengeOf(t *testing.T, a answer) map[string]string {
	t.Helper()
	text, ok := strings.CutPrefix(a.header.Get("WWW-Authenticate"), "Bearer ")
	if !ok {
		t.Fatalf("no challenge: %s", a)
	}
	params := map[string]string{}
	for part := range strings.SplitSeq(text, `", `) {
		name, value, _ := strings.Cut(part, `="`)
		params[name] = strings.TrimSuffix(value, `"`)
	}
	return params
}
