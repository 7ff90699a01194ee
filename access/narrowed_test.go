package access

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/capability"
)

// TestTokensNarrowWhatIsSeen: the holder of a token sees what both its roles and the token allow, and the
// same subject without it, or with another one, is shown neither more nor less by what is remembered.
func TestTokensNarrowWhatIsSeen(t *testing.T) {
	a := open(t, Config{Tokens: openTokens(t), Roles: must[[]Role](t)(ParseRoles([]byte(weatherRoles)))})
	var tools []*toolkeep.Tool
	for _, id := range []string{"weather.current", "weather.set", "weather.delete-all", "mail.send"} {
		for _, version := range []string{"1.4.0", "2.0.0"} {
			tool := *toolOf(id, func(m *toolkeep.Manifest) {
				if m.Version = version; id != "weather.current" {
					m.SideEffects = "writes"
				}
			})
			tool.Version = version
			tools = append(tools, &tool)
		}
	}
	read, execute := []string{toolkeep.OperationRead}, []string{toolkeep.OperationExecute, "other"}
	names := map[string]string{} // audience by what is seen
	for range 2 {
		for _, x := range []struct {
			role  string
			grant *toolkeep.Grant // nil: no token
			want  string
		}{
			{"looker", nil, "weather.current@1.4.0 weather.current@2.0.0 weather.set@1.4.0 weather.set@2.0.0 weather.delete-all@1.4.0 weather.delete-all@2.0.0 mail.send@1.4.0 mail.send@2.0.0"},
			{"looker", &toolkeep.Grant{Tools: []string{"mail.send", "weather.current"}}, "weather.current@1.4.0 weather.current@2.0.0 mail.send@1.4.0 mail.send@2.0.0"},
			{"looker", &toolkeep.Grant{Tools: []string{"*"}, Version: "^1"}, "weather.current@1.4.0 weather.set@1.4.0 weather.delete-all@1.4.0 mail.send@1.4.0"},
			{"looker", &toolkeep.Grant{Tools: []string{"*"}, Operations: read}, "weather.current@1.4.0 weather.current@2.0.0"},
			{"looker", &toolkeep.Grant{Tools: []string{"*.se*"}, Version: "2.0.0", Operations: execute}, "weather.set@2.0.0 mail.send@2.0.0"},
			{"looker", &toolkeep.Grant{Tools: []string{"*"}, Operations: []string{}}, ""},
			{"looker", &toolkeep.Grant{Tools: []string{}}, ""},
			{"weather-reader", nil, "weather.current@1.4.0 weather.current@2.0.0"},
			{"weather-reader", &toolkeep.Grant{Tools: []string{"*"}, Version: ">=2"}, "weather.current@2.0.0"},
			{"weather-reader", &toolkeep.Grant{Tools: []string{"mail.*"}}, ""},
		} {
			p := principal(x.role)
			if x.grant != nil {
				p.Narrowed = capability.OfGrant(x.grant)
			}
			got := ""
			for _, tool := range tools {
				if a.Visible(p, tool) {
					got += " " + tool.ID + "@" + tool.Version
				}
			}
			if got != "" {
				got = got[1:]
			}
			if got != x.want {
				t.Errorf("%s with %+v sees %q, want %q", x.role, x.grant, got, x.want)
			}
			name := a.Audience(p)
			if seen, there := names[name]; there && seen != x.role+got || name == "" {
				t.Errorf("%s with %+v has the audience of %q", x.role, x.grant, seen)
			}
			names[name] = x.role + got
		}
	}
	one, same := principal("looker"), principal("looker")
	one.Narrowed = capability.OfGrant(&toolkeep.Grant{ID: "a", Tools: []string{"a.*", "b.*"}, Network: &toolkeep.NetworkGrant{}})
	same.Narrowed = capability.OfGrant(&toolkeep.Grant{ID: "b", Tools: []string{"b.*", "a.*"}, Operations: execute})
	if a.Audience(one) != a.Audience(same) {
		t.Error("tokens that show the same share no answers")
	}
}

// TestRevokedTokensEndStreams: who opened a stream with a token is not let on once it is revoked, and has
// no permissions meanwhile.
func TestRevokedTokensEndStreams(t *testing.T) {
	tokens := openTokens(t)
	a := open(t, Config{Tokens: tokens})
	_, key, err := a.CreateKey(t.Context(), &toolkeep.Principal{Tenant: "acme", Subject: "root", Roles: []string{Admin}, Permissions: []string{"*"}}, toolkeep.APIKey{Subject: "bot", Roles: []string{Admin}})
	if err != nil {
		t.Fatal(err)
	}
	p := must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), key, "192.0.2.1"))
	p = must[*toolkeep.Principal](t)(a.WithToken(p, mint(t, tokens, toolkeep.Grant{Tenant: p.Tenant, Agent: "bot", Tools: []string{"*"}})))
	if p.Until.IsZero() {
		t.Error("the stream outlives the token")
	}
	now, err := a.Refresh(t.Context(), p)
	if err != nil || now.Narrowed != p.Narrowed || now.May(toolkeep.PermKeys) || !slices.Equal(now.Roles, p.Roles) {
		t.Errorf("%+v %v", now, err)
	}
	for _, c := range must[[]toolkeep.Change](t)(tokens.Revoke(p.Tenant, p.Narrowed.(*capability.Token).Grant.ID, "admin")) {
		tokens.Follow(toolkeep.Committed{Change: c})
	}
	_, err = a.Refresh(t.Context(), p)
	is(t, err, toolkeep.TokenRevoked)
}

// TestRestrictionsNeverWiden: a restriction that is added, to a role or one that it inherits, to the key,
// to the tool, or by a token, never lets a caller see or call what it could not.
func TestRestrictionsNeverWiden(t *testing.T) {
	a := open(t, Config{})
	r := rand.New(rand.NewPCG(7, 11))
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	rule := func() Rule {
		x := Rule{Tools: []string{pick("a.*", "b.*", "*", "a.read", "*.write")}}
		if r.IntN(3) == 0 {
			x.Tags = []string{pick("open", "inner")}
		}
		if r.IntN(3) == 0 {
			x.Actions = []string{pick(See, Invoke)}
		}
		return x
	}
	var tools []*toolkeep.Tool
	for _, id := range []string{"a.read", "a.write", "b.read", "b.write"} {
		tools = append(tools, toolOf(id, func(m *toolkeep.Manifest) { m.Tags, m.SideEffects = []string{pick("open", "inner")}, id[2:]+"s" }))
	}
	names := []string{"top", "middle", "low", "abroad"}
	lost := map[string]int{}
	for range 1500 {
		roles := []Role{{Name: "top", Inherits: []string{"middle"}}, {Name: "middle", Inherits: []string{"low", "abroad"}}, {Name: "low"}, {Name: "abroad", Tenants: []string{pick("acme", "globex")}}}
		for i := range roles {
			roles[i].Permissions = []string{"p" + roles[i].Name}
			for range r.IntN(3) {
				roles[i].Allow = append(roles[i].Allow, rule())
			}
			if r.IntN(4) == 0 {
				roles[i].Deny = append(roles[i].Deny, rule())
			}
		}
		p := &toolkeep.Principal{Tenant: "acme", Subject: "bot"}
		given := []string{pick(names...)}
		may := func() (list []string) {
			if err := a.SetRoles(roles); err != nil {
				t.Fatal(err)
			}
			means := a.current.Load().rights("acme", given)
			p.Roles, p.Permissions = means.roles, means.permissions
			for _, tool := range tools {
				if a.Visible(p, tool) {
					list = append(list, "see "+tool.ID)
				}
				if a.Authorise(p, tool, nil).Allowed {
					list = append(list, "call "+tool.ID)
				}
			}
			return list
		}
		before := may()
		what, i := pick("deny", "less", "scope", "token", "required", "level"), r.IntN(len(roles))
		tool := r.IntN(len(tools))
		kept := tools[tool]
		require := func(change func(*toolkeep.Manifest)) {
			own, m := *kept, *kept.Manifest
			change(&m)
			own.Manifest, own.Digest = &m, kept.Digest+what
			tools[tool] = &own
		}
		switch what {
		case "deny":
			roles[i].Deny = append(slices.Clip(roles[i].Deny), rule())
		case "less":
			roles[i].Allow = roles[i].Allow[:len(roles[i].Allow)/2]
		case "scope":
			p.Scope = []string{pick("a.*", "*.read")}
		case "token":
			p.Narrowed = capability.OfGrant(&toolkeep.Grant{Tools: []string{pick("a.*", "*.read")}, Operations: []string{pick("read", "execute")}})
		case "required":
			require(func(m *toolkeep.Manifest) { m.RequiredRoles = []string{pick(names...)} })
		case "level":
			require(func(m *toolkeep.Manifest) { m.PermissionLevels = []string{"permission:p" + pick(names...)} })
		}
		after := may()
		tools[tool] = kept
		for _, x := range after {
			if !slices.Contains(before, x) {
				t.Fatalf("%s of %s lets %s, which it did not before: %+v", what, given, x, roles)
			}
		}
		if len(after) < len(before) {
			lost[what]++
		}
	}
	if len(lost) != 6 {
		t.Errorf("the restrictions took something away in %v: the test shows little", lost)
	}
}

// BenchmarkVisible10000 is what a search asks of 10,000 tools.
func BenchmarkVisible10000(b *testing.B) {
	a := open(b, Config{})
	tools := make([]*toolkeep.Tool, 10_000)
	for i := range tools {
		tools[i] = toolOf(fmt.Sprintf("n%d.t%d", i%100, i), nil)
		tools[i].Digest = fmt.Sprintf("sha256:%064x", i)
	}
	g := &toolkeep.Grant{Version: "^1", Operations: []string{"read"}}
	for i := range capability.MaxEntries {
		g.Tools = append(g.Tools, fmt.Sprintf("n%d.*", i))
	}
	narrowed := principal(Agent)
	narrowed.Narrowed = capability.OfGrant(g)
	for name, p := range map[string]*toolkeep.Principal{"none": principal(Agent), "token": narrowed} {
		b.Run(name, func(b *testing.B) {
			all := func() {
				for _, tool := range tools {
					if !a.Visible(p, tool) {
						b.Fatal("hidden")
					}
				}
			}
			all() // decides each once
			b.ReportAllocs()
			for b.Loop() {
				all()
			}
		})
	}
}
