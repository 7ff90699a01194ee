package toolkeeptest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/node"
)

// asserter is the identity provider that exchanges tokens of an issuer for assertions, and the authorization server of an
// MCP server that takes those.
type asserter struct {
	*httptest.Server
	mu         sync.Mutex
	assertions map[string]string // person by assertion
	asserted   int
	refuse     string
}

func newAsserter(t *testing.T, trusts *issuer, g *guarded, aud func() string) *asserter {
	a := &asserter{assertions: map[string]string{}}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		no := func(code string) { w.WriteHeader(http.StatusBadRequest); fmt.Fprintf(w, `{"error":%q}`, code) }
		id, hush, _ := r.BasicAuth()
		if a.refuse != "" {
			no(a.refuse)
			return
		}
		if r.URL.Path == "/idp" {
			person := trusts.holder(r.FormValue("subject_token"), aud())
			switch {
			case id != "sso" || hush != url.QueryEscape("quiet-secret"):
				no("invalid_client")
			case person == "" || r.FormValue("requested_token_type") != "urn:ietf:params:oauth:token-type:id-jag" || r.FormValue("audience") != a.URL+"/as" || r.FormValue("resource") != g.URL+"/mcp":
				no("invalid_grant")
			default:
				a.asserted++
				jag := fmt.Sprintf("id-jag-of-%s-%d", person, a.asserted)
				a.assertions[jag] = person
				fmt.Fprintf(w, `{"access_token":%q,"issued_token_type":"urn:ietf:params:oauth:token-type:id-jag","token_type":"N_A","expires_in":300}`, jag)
			}
			return
		}
		person, ok := a.assertions[r.FormValue("assertion")]
		delete(a.assertions, r.FormValue("assertion"))
		if !ok || id != "tk" || hush != url.QueryEscape("loud-secret") || r.FormValue("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" {
			no("invalid_grant")
			return
		}
		token := fmt.Sprintf("mcp-token-of-%s-%d", person, a.asserted)
		g.set(func() { g.tokens[token] = person })
		fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":3600}`, token)
	}))
	t.Cleanup(a.Close)
	return a
}

// TestServerActsForCallers: an MCP server gets each caller's own token, by the identity provider's assertion.
func TestServerActsForCallers(t *testing.T) {
	t.Parallel()
	s := newIssuer(t)
	k := s.start(t, nil, node.Options{})
	g := newGuarded(t)
	a := newAsserter(t, s, g, k.URL)
	admin(t, k).secret("chat", `{"client_id":"tk","client_secret":"loud-secret","idp_client_id":"sso","idp_client_secret":"quiet-secret"}`, `"scope":"organisation"`)
	auth := func(kind, more string) string {
		return fmt.Sprintf(`"auth":{"type":%q,"secret":"secret://chat","token_url":%q,"settings":{"idp_token_url":%q,"audience":%q,"resource":%q}%s}`,
			kind, a.URL+"/as", a.URL+"/idp", a.URL+"/as", g.URL+"/mcp", more)
	}
	root := as(t, k, s.token(k, "tools:admin", map[string]any{"sub": "root"}))
	const server, principal = "/api/v1/servers/crm", `"session":"principal"`
	for name, bad := range map[string]string{
		"shared":         g.spec(auth("oauth2_identity_assertion", "")),
		"another kind":   g.spec(principal, auth("bearer", "")),
		"a login beside": g.spec(principal, `"oauth":{"scopes":["x"]}`, auth("oauth2_identity_assertion", "")),
		"a header":       g.spec(principal, `"headers":{"Authorization":"x"}`, auth("oauth2_identity_assertion", "")),
		"in a query":     g.spec(principal, auth("oauth2_identity_assertion", `,"in":"query"`)),
		"no provider":    g.spec(principal, fmt.Sprintf(`"auth":{"type":"oauth2_identity_assertion","secret":"secret://chat","token_url":%q}`, a.URL)),
		"a literal":      g.spec(principal, strings.Replace(auth("oauth2_identity_assertion", ""), "secret://chat", "tk:loud-secret", 1)),
	} {
		if got := root.do("PUT", server, bad); got.text(t, "code") != string(toolkeep.InvalidManifest) || strings.Contains(got.body, "loud") {
			t.Errorf("%s: %s", name, got)
		}
	}
	spec := g.spec(principal, auth("oauth2_identity_assertion", ""))
	if got := admin(t, k).do("PUT", server, spec); !strings.Contains(got.body, "CALLER_TOKEN_MISSING") {
		t.Errorf("imported with an API key: %s", got)
	}
	if p := root.do("PUT", server, spec).plan(t); p.Published != 1 {
		t.Fatalf("%+v", p)
	}
	tokens := map[string]string{"ann": s.token(k, "tools:call", map[string]any{"sub": "ann"}), "bob": s.token(k, "tools:call", map[string]any{"sub": "bob"})}
	var all sync.WaitGroup
	for i := range 20 {
		name := []string{"ann", "bob"}[i%2]
		all.Go(func() {
			if got := as(t, k, tokens[name]).do("POST", "/api/v1/tools/invoke", `{"tool_id":"crm.whoami","parameters":{}}`); !got.succeeded() || !strings.Contains(got.body, name+" with [REDACTED]") {
				t.Errorf("%s: %s", name, got)
			}
		})
	}
	all.Wait()
	a.mu.Lock()
	asserted := a.asserted
	a.mu.Unlock()
	if asserted != 3 {
		t.Errorf("%d assertions of three persons", asserted)
	}
	// A new token of ann is exchanged too, and one that the server has withdrawn is replaced.
	as(t, k, s.token(k, "tools:call", map[string]any{"sub": "ann", "jti": "2"})).call("crm.whoami", "{}").success(t)
	g.set(func() { clear(g.tokens) })
	as(t, k, tokens["bob"]).call("crm.whoami", "{}").success(t)
	if res, err := agent(t, k, tokens["ann"], "/all").CallTool(t.Context(), &sdk.CallToolParams{Name: "crm__whoami", Arguments: map[string]any{}}); err != nil || res.IsError {
		t.Errorf("over MCP: %+v %v", res, err)
	}
	ann := as(t, k, tokens["ann"])
	for name, x := range map[string]struct {
		got    answer
		reason string
	}{
		"an API key": {as(t, k, k.Key("default", "ann", "agent")).call("crm.whoami", "{}"), "CALLER_TOKEN_MISSING"},
		"async":      {ann.call("crm.whoami", "{}", async), "CALLER_TOKEN_CANNOT_WAIT"},
	} {
		if !strings.Contains(x.got.body, x.reason) || !strings.Contains(x.got.body, "E3402") {
			t.Errorf("%s: %s", name, x.got)
		}
	}
	a.mu.Lock()
	a.refuse = "consent_required"
	a.mu.Unlock()
	if got := as(t, k, s.token(k, "tools:call", map[string]any{"sub": "carol"})).call("crm.whoami", "{}"); !strings.Contains(got.body, "CALLER_CONSENT_REQUIRED") {
		t.Errorf("consent: %s", got)
	}
	shown := admin(t, k).do("GET", server, "").want(t, 200).body + k.Log()
	for _, secret := range append([]string{"loud-secret", "id-jag-of", "mcp-token-of"}, tokens["ann"][100:], tokens["bob"][100:]) {
		if strings.Contains(shown, secret) {
			t.Errorf("%s is shown", secret)
		}
	}
}
