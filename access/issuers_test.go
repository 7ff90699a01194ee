package access

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// issuersFile writes a document of issuers.
func issuersFile(t testing.TB, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "issuers.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestSeveralIssuers: each issuer's tokens are verified by its own keys, have its own scopes, and name its own tenants alone;
// one that rotates its keys or is down does not concern the others.
func TestSeveralIssuers(t *testing.T) {
	first, partner := listen(t), listen(t)
	partner.publish(jwkOf(t, "rsa2", nil))
	now := &clock{}
	file := issuersFile(t, fmt.Sprintf("issuers:\n  - issuer: %s\n    tenants: [partner, lab]\n    scopes: {\"api:use\": agent, \"tools:call\": auditor}\n", partner.url))
	own := first.config()
	own.Floor = time.Nanosecond
	a := open(t, Config{OAuth: own, IssuersFile: file, BaseURL: func() string { return here }, Clock: now.Now, Failures: FailureLimits{PerAgent: -1, PerAddr: -1}})
	of := func(s *authServer, kid string, more map[string]any) string {
		return signed(t, map[string]any{"alg": "RS256", "kid": kid}, s.claims(more), kid)
	}
	for name, c := range map[string]struct {
		token string
		roles []string // nil is refused
		says  string
	}{
		"of the first one":                           {of(first, "rsa", nil), []string{Agent}, ""},
		"of the partner":                             {of(partner, "rsa2", map[string]any{"tenant": "partner", "scope": "api:use"}), []string{Agent}, ""},
		"scopes are each issuer's own":               {of(partner, "rsa2", map[string]any{"tenant": "lab", "scope": "tools:call tools:admin"}), []string{Auditor}, ""},
		"a tenant of the first one":                  {of(partner, "rsa2", map[string]any{"scope": "api:use"}), nil, "has no callers of the tenant"},
		"a tenant of the partner":                    {of(first, "rsa", map[string]any{"tenant": "lab"}), nil, "has no callers of the tenant"},
		"the first one's name, the partner's key":    {of(first, "rsa2", nil), nil, "does not publish the key"},
		"the partner's name, the first one's key":    {of(partner, "rsa", map[string]any{"tenant": "partner"}), nil, "does not publish the key"},
		"the partner's name, a key with its id":      {signed(t, map[string]any{"alg": "RS256", "kid": "rsa2"}, partner.claims(map[string]any{"tenant": "partner"}), "rsa"), nil, "signature is not valid"},
		"another issuer's name, the first one's key": {of(first, "rsa", map[string]any{"iss": "https://evil.example"}), nil, "issuer (iss) is none of those"},
		"no name":        {of(first, "rsa", map[string]any{"iss": nil}), nil, "issuer (iss) is none of those"},
		"two names":      {signedRaw(t, `{"alg":"RS256","kid":"rsa2"}`, `{"iss":"`+first.url+`","iss":"`+partner.url+`"}`, "RS256", "rsa2"), nil, "issuer (iss) is none of those"},
		"a list of both": {of(partner, "rsa2", map[string]any{"iss": []any{first.url, partner.url}}), nil, "issuer (iss) is none of those"},
	} {
		for range 2 { // the second time from the cache
			p, err := a.Authenticate(t.Context(), c.token, addr)
			switch {
			case c.roles == nil && (err == nil || codeOf(err) != toolkeep.Unauthenticated || !strings.Contains(err.Error(), c.says)):
				t.Errorf("%s: %+v %v", name, p, err)
			case c.roles != nil && (err != nil || !slices.Equal(p.Roles, c.roles)):
				t.Errorf("%s: %+v %v", name, p, err)
			}
		}
	}
	stored := func(tenant string, roles ...string) *toolkeep.Principal {
		return must[*toolkeep.Principal](t)(a.Refresh(t.Context(), &toolkeep.Principal{Tenant: tenant, Subject: "alice", Method: MethodOAuth, Roles: roles}))
	}
	if p := stored("partner", Admin, Agent); !slices.Equal(p.Roles, []string{Agent}) {
		t.Errorf("a stored caller of the partner keeps %v", p.Roles)
	}
	if p := stored("acme", Admin, Agent); !slices.Equal(p.Roles, []string{Admin, Agent}) {
		t.Errorf("a stored caller of the first issuer keeps %v", p.Roles)
	}

	// Discovery names both, and asks for no scope that only one of them has.
	w := httptest.NewRecorder()
	a.ResourceMetadata().ServeHTTP(w, httptest.NewRequest("GET", ResourceMetadataPath, nil))
	for _, want := range []string{`"authorization_servers":["` + first.url + `","` + partner.url + `"]`, `"scopes_supported":["also:call","api:use","tools:admin","tools:audit","tools:call"]`} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("the metadata has no %s: %s", want, w.Body)
		}
	}
	if got := a.Challenge("/mcp", toolkeep.NewError(toolkeep.Unauthenticated, "no"), false); strings.Contains(got, "scope=") || !strings.Contains(got, "resource_metadata=") {
		t.Error(got)
	}

	// The first one rotates, and the partner goes down.
	first.publish(jwkOf(t, "ec", nil))
	partner.set(func() { partner.down = true })
	now.pass(time.Minute)
	if _, err := a.Authenticate(t.Context(), signed(t, map[string]any{"alg": "ES256", "kid": "ec"}, first.claims(nil), "ec"), addr); err != nil {
		t.Errorf("the rotated key: %v", err)
	}
	if _, err := a.Authenticate(t.Context(), of(partner, "rsa2", map[string]any{"tenant": "lab", "scope": "api:use"}), addr); err != nil {
		t.Errorf("the partner's keys are not kept: %v", err)
	}
	a.issuers[1].ask(t.Context())
	if err := a.OAuthHealth(t.Context()); err == nil || !strings.Contains(err.Error(), partner.url) || strings.Contains(err.Error(), first.url+":") {
		t.Errorf("health: %v", err)
	}
}

// TestIssuersAreChecked: a document of issuers that cannot be used says what is wrong, and where.
func TestIssuersAreChecked(t *testing.T) {
	s := listen(t)
	ok := func(more string) string {
		return "issuers:\n  - {issuer: 'https://a.example', tenants: [a], scopes: {x: agent}" + more + "}\n"
	}
	for name, c := range map[string]struct{ text, says string }{
		"nothing wrong":            {ok(""), ""},
		"no tenants":               {"issuers:\n  - {issuer: 'https://a.example', scopes: {x: agent}}\n", "line 2: the issuer has no tenants"},
		"no scopes":                {"issuers:\n  - {issuer: 'https://a.example', tenants: [a]}\n", "no scope is mapped"},
		"no issuer":                {"issuers:\n  - {tenants: [a], scopes: {x: agent}}\n", "it is not a URL"},
		"http":                     {strings.Replace(ok(""), "https", "http", 1), "must begin with https://"},
		"an unknown role":          {strings.Replace(ok(""), "agent", "agnet", 1), "there is no role"},
		"an unknown member":        {ok(", tenant: b"), "tenant"},
		"a default of another":     {ok(", default_tenant: b"), "the default tenant b is not one of"},
		"the same issuer twice":    {ok("") + "  - {issuer: 'https://a.example', tenants: [b], scopes: {x: agent}}\n", "is there twice"},
		"the same tenant twice":    {ok("") + "  - {issuer: 'https://b.example', tenants: [b, a], scopes: {x: agent}}\n", "is that of https://a.example already"},
		"the issuer of settings":   {strings.Replace(ok(""), "https://a.example", s.url, 1), "is there twice"},
		"nothing":                  {"{}\n", "names no issuer"},
		"no list":                  {"issuers: {}\n", "list"},
		"the default of settings'": {strings.Replace(ok(""), "[a]", "[home]", 1), "the default tenant home is not one of"},
	} {
		own := s.config()
		own.DefaultTenant = "home"
		err := ReadIssuers(issuersFile(t, c.text), own, nil)
		if c.says == "" != (err == nil) || err != nil && (codeOf(err) != toolkeep.InvalidManifest || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := ReadIssuers("none.yaml", nil, nil); err == nil || !strings.Contains(err.Error(), "oauth.issuers_file cannot be read") {
		t.Error(err)
	}
}

// TestIssuersSum: files that say the same have one sum, however they are laid out, and others have others.
func TestIssuersSum(t *testing.T) {
	const one = "issuers:\n  - issuer: https://a.example/\n    tenants: [a]\n    scopes: {x: agent}\n"
	sum := IssuersSum(issuersFile(t, one))
	for name, c := range map[string]struct {
		text string
		same bool
	}{
		"laid out otherwise": {"# ours\nissuers: [{scopes: {\"x\": agent}, tenants: [\"a\"], issuer: \"https://a.example/\"}]\n", true},
		"another role":       {strings.ReplaceAll(one, "agent", "auditor"), false},
		"another claim":      {one + "    subject_claim: email\n", false},
		"no issuer":          {"issuers: []", false},
	} {
		if got := IssuersSum(issuersFile(t, c.text)); (got == sum) != c.same {
			t.Errorf("%s: %s and %s", name, got, sum)
		}
	}
	a := open(t, Config{IssuersFile: issuersFile(t, one), BaseURL: func() string { return "https://here.example" }})
	if a.IssuersSum() != sum || open(t, Config{}).IssuersSum() != IssuersSum("") {
		t.Error("New reads another sum")
	}
}
