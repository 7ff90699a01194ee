package access

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/capability"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/store/sqlite"
)

func openTokens(t testing.TB) *capability.Tokens {
	t.Helper()
	store := must[*sqlite.Store](t)(sqlite.Open(t.Context(), sqlite.Config{Path: t.TempDir() + "/toolkeep.db"}))
	t.Cleanup(func() { store.Close() })
	return must[*capability.Tokens](t)(capability.New(capability.Config{Store: store, Sealer: must[*secret.Sealer](t)(secret.NewSealer()), Algorithm: "EdDSA"}))
}

func mint(t testing.TB, tokens *capability.Tokens, g toolkeep.Grant) toolkeep.CapabilityToken {
	t.Helper()
	text, _, err := tokens.Mint(t.Context(), capability.Claims{Grant: g, Expires: time.Now().Add(time.Hour)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return toolkeep.CapabilityToken(text)
}

// TestTokenRolesMode is every cell of token, role and mode.
func TestTokenRolesMode(t *testing.T) {
	tokens := openTokens(t)
	grant := toolkeep.Grant{Tenant: "acme", Agent: "bot", Tools: []string{"weather.*"}}
	with := func(change func(*toolkeep.Grant)) toolkeep.CapabilityToken {
		g := grant
		change(&g)
		return mint(t, tokens, g)
	}
	revoked := toolkeep.Grant{ID: "gone", Tenant: "acme", Agent: "bot", Tools: []string{"*"}}
	for _, c := range must[[]toolkeep.Change](t)(tokens.Revoke("acme", "gone", "admin")) {
		tokens.Follow(toolkeep.Committed{Change: c})
	}
	stored := grant
	stored.ID = "held"
	for _, required := range []bool{false, true} {
		a := open(t, Config{Tokens: tokens, TokenRequired: required, Roles: must[[]Role](t)(ParseRoles([]byte(weatherRoles)))})
		none := toolkeep.Code("")
		if required {
			none = toolkeep.TokenMissing
		}
		for _, c := range []struct {
			name    string
			call    *toolkeep.Call
			allowed toolkeep.Code // for a role that allows the call; "" is allowed
		}{
			{"no call", nil, ""},
			{"no token", &toolkeep.Call{}, none},
			{"a token", &toolkeep.Call{Token: with(func(*toolkeep.Grant) {})}, ""},
			{"a broken one", &toolkeep.Call{Token: "a.b.c"}, toolkeep.TokenInvalid},
			{"of another tool", &toolkeep.Call{Token: with(func(g *toolkeep.Grant) { g.Tools = []string{"x.y"} })}, toolkeep.TokenScopeMismatch},
			{"of another agent", &toolkeep.Call{Token: with(func(g *toolkeep.Grant) { g.Agent = "bot2" })}, toolkeep.TokenScopeMismatch},
			{"of another tenant", &toolkeep.Call{Token: with(func(g *toolkeep.Grant) { g.Tenant = "globex" })}, toolkeep.TokenScopeMismatch},
			{"a waiting call", &toolkeep.Call{Grant: &stored}, ""},
			{"a waiting call whose token was revoked", &toolkeep.Call{Grant: &revoked}, toolkeep.TokenRevoked},
			{"a waiting call whose parent was revoked", &toolkeep.Call{Grant: &toolkeep.Grant{ID: "x", Parents: []string{"gone"}, Tenant: "acme", Agent: "bot", Tools: []string{"*"}}}, toolkeep.TokenRevoked},
		} {
			for _, role := range []string{"weather-reader", "looker"} {
				d := a.Authorise(principal(role), toolOf("weather.current", nil), c.call)
				want := c.allowed
				if role == "looker" && want == "" { // what the token allows, the roles refuse
					want = toolkeep.PermissionDenied
				}
				if d.Allowed != (want == "") || d.Code != want {
					t.Errorf("%s, role %s, required %v: %+v, want %q", c.name, role, required, d, want)
				}
				at := slices.IndexFunc(d.Checks, func(c Check) bool { return c.Name == CheckToken })
				if asked := c.call != nil && (required || c.call.Token != "" || c.call.Grant != nil); asked != (at >= 0) || at >= 0 && d.Checks[at-1].Name != CheckScope {
					t.Errorf("%s, required %v: the check stands at %d", c.name, required, at)
				}
				if got := d.Grant != nil; got != (c.allowed == "" && c.call != nil && (c.call.Token != "" || c.call.Grant != nil)) {
					t.Errorf("%s: grant %v", c.name, d.Grant)
				}
			}
		}
	}
	if d := open(t, Config{}).Authorise(principal(Admin), toolOf("a.b", nil), &toolkeep.Call{Token: "a.b.c"}); d.Allowed || d.Code != toolkeep.TokenInvalid {
		t.Errorf("without tokens configured: %+v", d)
	}
}

// TestTokensNeverWiden: whatever a token says, what it lets is allowed without it too, and what
// it does not let is refused.
func TestTokensNeverWiden(t *testing.T) {
	tokens := openTokens(t)
	a := open(t, Config{Tokens: tokens, Roles: must[[]Role](t)(ParseRoles([]byte(weatherRoles)))})
	r := rand.New(rand.NewPCG(3, 4))
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	lets, narrows := 0, 0
	for range 600 {
		g := toolkeep.Grant{Tenant: pick("acme", "acme", "globex"), Agent: pick("bot", "bot", "cat"), Tools: []string{pick("weather.*", "*", "weather.current", "x.*")},
			Version: pick("", "^1.0.0", "^2.0.0")}
		if r.IntN(2) == 0 {
			g.Operations = []string{pick("read", "execute")}
		}
		p := principal(pick("weather-reader", "looker", Admin))
		tool := toolOf(pick("weather.current", "weather.delete", "x.y"), func(m *toolkeep.Manifest) {
			m.SideEffects, m.Risk = pick("reads", "writes"), pick("low", "medium")
		})
		without := a.Authorise(p, tool, &toolkeep.Call{})
		narrowed := a.Authorise(p, tool, &toolkeep.Call{Token: mint(t, tokens, g)})
		switch {
		case narrowed.Allowed && !without.Allowed:
			t.Fatalf("the token %+v widens: %+v", g, narrowed)
		case narrowed.Allowed:
			lets++
		case without.Allowed:
			narrows++
		}
	}
	if lets < 20 || narrows < 20 {
		t.Errorf("%d calls let, %d narrowed: the test shows little", lets, narrows)
	}
}

// TestRequestsThatAreNoCalls: a token covers calls alone.
func TestRequestsThatAreNoCalls(t *testing.T) {
	tokens := openTokens(t)
	a := open(t, Config{Tokens: tokens})
	p := principal(Admin)
	p.Permissions = []string{"*"}
	got, err := a.WithToken(p, mint(t, tokens, toolkeep.Grant{Tenant: "acme", Agent: "bot", Tools: []string{"*"}}))
	if err != nil || got.May(toolkeep.PermKeys) || got.Subject != "bot" || !p.May(toolkeep.PermKeys) {
		t.Errorf("%+v %v", got, err)
	}
	for text, code := range map[toolkeep.CapabilityToken]toolkeep.Code{"x": toolkeep.TokenInvalid,
		mint(t, tokens, toolkeep.Grant{Tenant: "acme", Agent: "cat", Tools: []string{"*"}}): toolkeep.TokenScopeMismatch} {
		if _, err := a.WithToken(p, text); !toolkeep.IsCode(err, code) {
			t.Error(err)
		}
	}
}

func BenchmarkAuthoriseToken(b *testing.B) {
	tokens := openTokens(b)
	a := open(b, Config{Tokens: tokens})
	p, tool := principal(Admin), toolOf("weather.current", nil)
	for name, c := range map[string]*toolkeep.Call{"none": {}, "cached": {Token: mint(b, tokens, toolkeep.Grant{Tenant: "acme", Agent: "bot", Tools: []string{"*"}})}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if d := a.Authorise(p, tool, c); !d.Allowed {
					b.Fatal(fmt.Sprint(d))
				}
			}
		})
	}
}
