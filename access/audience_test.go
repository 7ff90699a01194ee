package access

import (
	"fmt"
	"testing"

	"github.com/toolkeep/toolkeep"
)

// TestAudience: principals with equal names see the same tools.
func TestAudience(t *testing.T) {
	role := func(pattern string) []Role {
		return []Role{{Name: "own", Allow: []Rule{{Tools: []string{pattern}}}}, {Name: "other", Allow: []Rule{{Tools: []string{"*"}}}}}
	}
	a, again := open(t, Config{Roles: role("a.*")}), open(t, Config{Roles: role("a.*")})
	base := func() *toolkeep.Principal {
		return &toolkeep.Principal{Tenant: "acme", Subject: "bot", Roles: []string{"own"}, Scope: []string{"x.*"}, Permissions: []string{"p"}}
	}
	name := a.Audience(base())
	for what, p := range map[string]*toolkeep.Principal{
		"again":          base(),
		"another person": {Tenant: "acme", Subject: "ann", Roles: []string{"own"}, Scope: []string{"x.*"}, Permissions: []string{"p"}, KeyID: "k", Addr: "192.0.2.1", Workspace: "w"},
	} {
		if got := a.Audience(p); got != name || got == "" {
			t.Errorf("%s: %q, want %q", what, got, name)
		}
	}
	if got := again.Audience(base()); got != name {
		t.Error("another node with the same roles has another name")
	}
	seen := map[string]string{name: "base"}
	other := func(what, got string) {
		t.Helper()
		if before, ok := seen[got]; ok {
			t.Errorf("%s has the name of %s", what, before)
		}
		seen[got] = what
	}
	for what, change := range map[string]func(*toolkeep.Principal){
		"another tenant":   func(p *toolkeep.Principal) { p.Tenant = "rival" },
		"nobody":           func(p *toolkeep.Principal) { p.Subject = "" },
		"a role less":      func(p *toolkeep.Principal) { p.Roles = nil },
		"a role more":      func(p *toolkeep.Principal) { p.Roles = []string{"own", "other"} },
		"an unknown role":  func(p *toolkeep.Principal) { p.Roles = []string{"own", "nosuch"} },
		"another scope":    func(p *toolkeep.Principal) { p.Scope = []string{"y.*"} },
		"no scope":         func(p *toolkeep.Principal) { p.Scope = nil },
		"a scope in two":   func(p *toolkeep.Principal) { p.Scope = []string{"x.", "*"} },
		"scope as a right": func(p *toolkeep.Principal) { p.Scope, p.Permissions = nil, []string{"p", "x.*"} },
		"no permissions":   func(p *toolkeep.Principal) { p.Permissions = nil },
	} {
		p := base()
		change(p)
		other(what, a.Audience(p))
	}
	other("a category", a.Audience(base(), "category", "mail"))
	other("another category", a.Audience(base(), "category", "post"))
	other("two in one", a.Audience(base(), "categorymail"))
	other("nothing said", a.Audience(base(), ""))

	// Every part of a rule counts, in the principal's own roles.
	for i, rule := range []Rule{
		{Tools: []string{"b.*"}}, {Tools: []string{"a.*", "b"}}, {Tags: []string{"a.*"}}, {Categories: []string{"a.*"}},
		{Tools: []string{"a.*"}, SideEffects: []string{"reads"}}, {Tools: []string{"a.*"}, MaxRisk: "low"}, {Tools: []string{"a.*"}, Actions: []string{See}},
	} {
		if err := a.SetRoles([]Role{{Name: "own", Allow: []Rule{rule}}}); err != nil {
			t.Fatal(err)
		}
		other(fmt.Sprint("rule ", i), a.Audience(base()))
	}
	for i, roles := range [][]Role{
		{{Name: "own", Allow: []Rule{{Tools: []string{"a.*"}}}, Deny: []Rule{{Tools: []string{"a.b"}}}}},
		{{Name: "own", Deny: []Rule{{Tools: []string{"a.*"}}}}},
		{{Name: "own", Deny: []Rule{{Tools: []string{"a.*"}, MinRisk: "high"}}}},
	} {
		if err := a.SetRoles(roles); err != nil {
			t.Fatal(err)
		}
		other(fmt.Sprint("denial ", i), a.Audience(base()))
	}
	// Roles that the principal does not have do not count.
	roles := role("a.*")
	roles[1].Allow[0].Tools[0] = "z"
	if err := a.SetRoles(roles); err != nil {
		t.Fatal(err)
	}
	if got := a.Audience(base()); got != name {
		t.Error("a role that the principal has not changes its name")
	}
}

func TestAudienceBeyondWhatIsRemembered(t *testing.T) {
	a := open(t, Config{})
	seen := map[string]bool{}
	for i := range maxIdentities + 100 {
		p := principal(Agent)
		p.Scope = []string{fmt.Sprint("x", i)}
		name := a.Audience(p)
		if seen[name] || a.Audience(p) != name {
			t.Fatalf("%d: %s", i, name)
		}
		seen[name] = true
	}
}

func BenchmarkAudience(b *testing.B) {
	a := open(b, Config{})
	p := principal(Agent)
	b.ReportAllocs()
	for b.Loop() {
		a.Audience(p)
	}
}
