package access

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// toolOf returns a low-risk, read-only tool, modified by change.
func toolOf(id string, change func(*toolkeep.Manifest)) *toolkeep.Tool {
	m := &toolkeep.Manifest{ToolID: id, Version: "1.0.0", SideEffects: "reads", Risk: "low", Category: "weather", Tags: []string{"public"}}
	if change != nil {
		change(m)
	}
	return &toolkeep.Tool{ID: id, Version: "1.0.0", Digest: fmt.Sprintf("sha256:%x", fmt.Sprintf("%+v", *m)), Manifest: m}
}

func principal(roles ...string) *toolkeep.Principal {
	return &toolkeep.Principal{Tenant: "acme", Subject: "bot", Roles: roles}
}

const weatherRoles = `
roles:
  weather-reader:
    description: reads the weather
    permissions: [act-as, "weather:extra"]
    allow:
      - tools: ["weather.*"]
        tags: [public]
        categories: [weather]
        side_effects: [none, reads]
        max_risk: low
    deny:
      - tools: ["weather.delete*"]
  looker:
    allow:
      - tools: ["*"]
        actions: [see]
  careful:
    deny:
      - min_risk: high
      - tags: [internal]
        actions: [invoke]
`

func TestRoles(t *testing.T) {
	own := must[[]Role](t)(ParseRoles([]byte(weatherRoles)))
	a := open(t, Config{Roles: own})
	with := func(change func(*toolkeep.Manifest)) func(string) *toolkeep.Tool {
		return func(id string) *toolkeep.Tool { return toolOf(id, change) }
	}
	plain := with(nil)
	writes := with(func(m *toolkeep.Manifest) { m.SideEffects = "writes" })
	medium := with(func(m *toolkeep.Manifest) { m.Risk = "medium" })
	high := with(func(m *toolkeep.Manifest) { m.Risk = "high" })
	internal := with(func(m *toolkeep.Manifest) { m.Tags = []string{"internal"} })
	odd := with(func(m *toolkeep.Manifest) { m.Risk, m.SideEffects = "extreme", "explodes" })
	bare := with(func(m *toolkeep.Manifest) { m.Risk, m.SideEffects = "", "" })
	for _, tc := range []struct {
		roles       string
		tool        *toolkeep.Tool
		see, invoke bool
		reason      string
	}{
		{"admin", high("mail.send"), true, true, "role admin, allow rule 1"},
		{"admin", odd("mail.send"), true, true, ""},
		{"publisher", writes("mail.send"), true, false, "no role of [publisher] allows calling mail.send"},
		{"publisher", plain("mail.read"), true, true, "role publisher, allow rule 2"},
		{"publisher", medium("mail.read"), true, false, ""},
		{"operator", plain("mail.read"), true, false, ""},
		{"auditor", plain("mail.read"), true, false, ""},
		{"agent", writes("mail.send"), true, true, ""},
		{"agent", medium("mail.send"), true, true, ""},
		{"agent", high("mail.send"), false, false, "it needs a role with an allow rule"},
		{"agent", odd("mail.send"), false, false, ""},
		{"agent", bare("mail.send"), true, true, ""},
		{"publisher", bare("mail.send"), true, false, ""}, // unset side effects count as writes
		{"weather-reader", plain("weather.now"), true, true, "role weather-reader, allow rule 1"},
		{"weather-reader", plain("weather.delete-all"), false, false, "role weather-reader, deny rule 1"},
		{"weather-reader", plain("mail.send"), false, false, ""},
		{"weather-reader", writes("weather.now"), false, false, ""},
		{"weather-reader", medium("weather.now"), false, false, ""},
		{"weather-reader", internal("weather.now"), false, false, ""},
		{"weather-reader", toolOf("weather.now", func(m *toolkeep.Manifest) { m.Category = "mail" }), false, false, ""},
		{"weather-reader admin", plain("weather.delete-all"), false, false, "role weather-reader, deny rule 1"},
		{"admin weather-reader", plain("weather.delete-all"), false, false, "role weather-reader, deny rule 1"},
		{"admin careful", high("mail.send"), false, false, "role careful, deny rule 1"},
		{"admin careful", internal("mail.send"), true, false, "role careful, deny rule 2"},
		{"looker", plain("mail.send"), true, false, ""},
		{"looker weather-reader", plain("weather.now"), true, true, ""},
		{"nosuch", plain("mail.send"), false, false, "not defined here: [nosuch]"},
		{"", plain("mail.send"), false, false, "no role of []"},
	} {
		t.Run(tc.roles+" "+tc.tool.ID+" "+tc.tool.Manifest.SideEffects+" "+tc.tool.Manifest.Risk, func(t *testing.T) {
			p := principal(strings.Fields(tc.roles)...)
			for range 2 { // computed, then remembered
				if got := a.Visible(p, tc.tool); got != tc.see {
					t.Errorf("visible %v, want %v", got, tc.see)
				}
				if got := a.Callable(p, tc.tool); got != tc.invoke {
					t.Errorf("callable %v, want %v", got, tc.invoke)
				}
				d := a.Authorise(p, tc.tool, &toolkeep.Call{})
				if d.Allowed != tc.invoke || !strings.Contains(d.Reason, tc.reason) {
					t.Errorf("allowed %v (%s), want %v (%s)", d.Allowed, d.Reason, tc.invoke, tc.reason)
				}
				if (d.Code == "") != d.Allowed || d.Reason == "" || len(d.Checks) != 6 {
					t.Errorf("decision %+v", d)
				}
			}
		})
	}
	if got := a.current.Load().rules.permissions([]string{"weather-reader", "auditor", "weather-reader"}); fmt.Sprint(got) != "[act-as invocations:read weather:extra]" {
		t.Errorf("permissions %v", got)
	}
}

// TestInheritedRoles: who has a role has those that it inherits, with their denials and permissions, and what a
// role gives ends at its tenants. Each way to come in counts alike.
func TestInheritedRoles(t *testing.T) {
	roles, err := ParseRoles([]byte(`
roles:
  reader: {permissions: [reports], allow: [{tools: ["a.*"]}], deny: [{tools: ["a.secret"]}]}
  writer: {inherits: [reader], permissions: [act-as], allow: [{tools: ["b.*"]}]}
  lead: {inherits: [writer, agents-of-acme], allow: [{tools: ["a.secret"]}]}
  agents-of-acme: {tenants: [acme], allow: [{tools: ["c.*"]}]}
  head: {inherits: [boss-of-acme, reader]}
  boss-of-acme: {tenants: [acme], inherits: [admin]}
`))
	if err != nil {
		t.Fatal(err)
	}
	a := open(t, Config{Roles: roles})
	for _, c := range []struct {
		tenant, given, means, permissions, may string
	}{
		{"acme", "reader", "reader", "reports", "a.x"},
		{"acme", "writer", "writer reader", "act-as reports", "a.x b.x"},
		{"acme", "lead", "lead writer agents-of-acme reader", "act-as reports", "a.x b.x c.x"},
		{"acme", "reader lead", "reader lead writer agents-of-acme", "act-as reports", "a.x b.x c.x"},
		{"other", "lead", "lead writer reader", "act-as reports", "a.x b.x"},
		{"other", "agents-of-acme", "", "", ""},
		{"other", "head", "head reader", "reports", "a.x"},
		{"acme", "head", "head boss-of-acme reader admin", "* reports", "a.x b.x c.x"},
		{"other", "unknown reader", "unknown reader", "reports", "a.x"},
	} {
		p := a.PrincipalOf(&toolkeep.APIKey{ID: "k", Tenant: c.tenant, Subject: "s", Roles: strings.Fields(c.given)})
		var may []string
		for _, id := range []string{"a.x", "a.secret", "b.x", "c.x"} {
			if a.Authorise(p, toolOf(id, nil), &toolkeep.Call{Tool: id}).Allowed {
				may = append(may, id)
			}
		}
		if got := strings.Join(p.Roles, " "); got != c.means || strings.Join(p.Permissions, " ") != c.permissions || strings.Join(may, " ") != c.may {
			t.Errorf("%s in %s: roles %v, permissions %v, may call %v", c.given, c.tenant, p.Roles, p.Permissions, may)
		}
	}
	p := a.PrincipalOf(&toolkeep.APIKey{ID: "k", Tenant: "acme", Subject: "s", Roles: []string{"lead"}})
	if d := a.Authorise(p, required("reader"), &toolkeep.Call{Tool: "a.b"}); !d.Allowed {
		t.Errorf("a tool that requires an inherited role: %+v", d)
	}
	admin := &toolkeep.Principal{Tenant: "other", Subject: "root", Roles: []string{Admin}, Permissions: []string{"*"}}
	if _, _, err := a.CreateKey(t.Context(), admin, toolkeep.APIKey{Tenant: "other", Subject: "s", Roles: []string{"agents-of-acme"}}); err == nil || strings.Contains(fmt.Sprint(toolkeep.AsError(err).Details), "acme, ") {
		t.Errorf("a key with a role of another tenant: %v", err)
	}
	for text, says := range map[string]string{
		"a: {inherits: [b]}": `there is no role "b"`,
		"a: {inherits: [a]}": "inherits itself",
		"{a: {inherits: [b]}, b: {inherits: [c]}, c: {inherits: [a]}}": "inherits itself",
		"a: {tenants: []}":         "the list is empty",
		`a: {tenants: ["\u0001"]}`: "control characters",
	} {
		if _, err := ParseRoles([]byte("roles: " + strings.TrimSpace(indented(text)))); err == nil || !strings.Contains(toolkeep.AsError(err).Message, says) {
			t.Errorf("%s: %v", text, err)
		}
	}
	many := "roles:\n"
	for i := range 102 {
		many += fmt.Sprintf("  r%d: {description: x, inherits: [r%d]}\n", i, i+1)
	}
	if _, err := ParseRoles([]byte(many + "  r102: {description: x}\n")); err == nil || !strings.Contains(err.Error(), "more than 100 roles") {
		t.Error(err)
	}
}

// indented puts a mapping in braces if it has none.
func indented(text string) string {
	if strings.HasPrefix(text, "{") {
		return text
	}
	return "{" + text + "}"
}

func TestChecks(t *testing.T) {
	a := open(t, Config{})
	base := func() *toolkeep.Principal { return principal(Agent) }
	for name, tc := range map[string]struct {
		p      *toolkeep.Principal
		tool   *toolkeep.Tool
		failed []string
	}{
		"all well":               {base(), toolOf("a.b", nil), nil},
		"own tenant's tool":      {base(), tenantTool("acme"), nil},
		"another tenant's tool":  {base(), tenantTool("other"), []string{CheckTenant}},
		"no tenant":              {&toolkeep.Principal{Subject: "x", Roles: []string{Agent}}, toolOf("a.b", nil), []string{CheckTenant}},
		"in scope":               {scoped("x.y", "a.*"), toolOf("a.b", nil), nil},
		"out of scope":           {scoped("x.y"), toolOf("a.b", nil), []string{CheckScope}},
		"a broken scope":         {scoped("[a"), toolOf("a.b", nil), []string{CheckScope}},
		"required role held":     {base(), required("x", Agent), nil},
		"required role missing":  {base(), required("x", "y"), []string{CheckRequiredRoles}},
		"levels all":             {granted("deploy"), levels("public", "authenticated", "role:agent", "permission:deploy"), nil},
		"levels some":            {base(), levels("authenticated", "permission:deploy"), []string{CheckPermissionLevels}},
		"levels role":            {base(), levels("role:admin"), []string{CheckPermissionLevels}},
		"levels unknown":         {base(), levels("magic"), []string{CheckPermissionLevels}},
		"levels without subject": {&toolkeep.Principal{Tenant: "acme", Roles: []string{Agent}}, levels("authenticated"), []string{CheckPermissionLevels}},
		"everything at once": {&toolkeep.Principal{Tenant: "acme", Subject: "x", Roles: []string{Auditor}, Scope: []string{"x.*"}},
			func() *toolkeep.Tool {
				t := toolOf("a.b", func(m *toolkeep.Manifest) {
					m.RequiredRoles, m.PermissionLevels = []string{"x"}, []string{"permission:y"}
				})
				t.Tenant = "other"
				return t
			}(), []string{CheckTenant, CheckScope, CheckRoles, CheckRequiredRoles, CheckPermissionLevels}},
	} {
		t.Run(name, func(t *testing.T) {
			d := a.Authorise(tc.p, tc.tool, nil)
			var failed []string
			for _, c := range d.Checks {
				if c.Reason == "" {
					t.Errorf("check %s has no reason", c.Name)
				}
				if !c.Allowed {
					failed = append(failed, c.Name)
				}
			}
			if fmt.Sprint(failed) != fmt.Sprint(tc.failed) || d.Allowed != (len(tc.failed) == 0) {
				t.Fatalf("failed %v (%+v), want %v", failed, d, tc.failed)
			}
			if len(failed) > 0 && (d.Code != toolkeep.PermissionDenied || d.Reason != firstReason(d)) {
				t.Errorf("decision %+v", d)
			}
			if a.Callable(tc.p, tc.tool) != d.Allowed || a.Visible(tc.p, tc.tool) != d.Allowed {
				t.Errorf("callable %v, visible %v", a.Callable(tc.p, tc.tool), a.Visible(tc.p, tc.tool))
			}
			looker := *tc.p // see shows what roles, required_roles and levels refuse, and neither other tenants nor what is out of scope
			looker.Roles = append(slices.Clone(looker.Roles), Auditor)
			hidden := slices.Contains(failed, CheckTenant) || slices.Contains(failed, CheckScope)
			if a.Callable(&looker, tc.tool) != d.Allowed || a.Visible(&looker, tc.tool) == hidden {
				t.Errorf("to who may see it: callable %v, visible %v", a.Callable(&looker, tc.tool), a.Visible(&looker, tc.tool))
			}
		})
	}
}

func firstReason(d Decision) string {
	for _, c := range d.Checks {
		if !c.Allowed {
			return c.Reason
		}
	}
	return ""
}

func tenantTool(tenant string) *toolkeep.Tool {
	t := toolOf("a.b", nil)
	t.Tenant = tenant
	return t
}

func scoped(patterns ...string) *toolkeep.Principal {
	p := principal(Agent)
	p.Scope = patterns
	return p
}

func granted(permissions ...string) *toolkeep.Principal {
	p := principal(Agent)
	p.Permissions = permissions
	return p
}

func required(roles ...string) *toolkeep.Tool {
	return toolOf("a.b", func(m *toolkeep.Manifest) { m.RequiredRoles = roles })
}

func levels(levels ...string) *toolkeep.Tool {
	return toolOf("a.b", func(m *toolkeep.Manifest) { m.PermissionLevels = levels })
}

func TestNeedsApproval(t *testing.T) {
	high := toolOf("a.b", func(m *toolkeep.Manifest) { m.Risk = "high" })
	for name, tc := range map[string]struct {
		tool   *toolkeep.Tool
		call   *toolkeep.Call
		policy *ApprovalNeed
		want   string
		byRisk bool
	}{
		"plain":                  {toolOf("a.b", nil), &toolkeep.Call{}, nil, "", false},
		"no call":                {toolOf("a.b", nil), nil, nil, "", false},
		"manifest":               {toolOf("a.b", func(m *toolkeep.Manifest) { m.RequiresApproval = true }), nil, nil, "the tool's manifest requires approval", false},
		"manifest and high":      {toolOf("a.b", func(m *toolkeep.Manifest) { m.RequiresApproval, m.Risk = true, "high" }), nil, nil, "the tool's manifest requires approval", false},
		"high":                   {high, nil, nil, "the tool's risk is high", true},
		"unknown":                {toolOf("a.b", func(m *toolkeep.Manifest) { m.Risk = "extreme" }), nil, nil, "the tool's risk is not known", false},
		"call":                   {toolOf("a.b", nil), &toolkeep.Call{RequireApproval: true}, nil, "the caller asked for approval", false},
		"call of high risk":      {high, &toolkeep.Call{RequireApproval: true}, nil, "the caller asked for approval", false},
		"policy":                 {toolOf("a.b", nil), nil, &ApprovalNeed{Reason: "late"}, "late", false},
		"policy about high risk": {high, nil, &ApprovalNeed{Reason: "late"}, "late", false},
	} {
		if why, byRisk := NeedsApproval(tc.tool, tc.call, tc.policy); why != tc.want || byRisk != tc.byRisk {
			t.Errorf("%s: %q %v", name, why, byRisk)
		}
	}
}

// TestDecisionsFollow checks that no remembered decision survives a change.
func TestDecisionsFollow(t *testing.T) {
	role := func(pattern string) []Role { return []Role{{Name: "own", Allow: []Rule{{Tools: []string{pattern}}}}} }
	a := open(t, Config{Roles: role("a.*")})
	p, tool := principal("own"), toolOf("a.b", nil)
	ask := func(want bool) {
		t.Helper()
		for range 2 {
			if a.Authorise(p, tool, nil).Allowed != want || a.Visible(p, tool) != want {
				t.Fatalf("want %v", want)
			}
		}
	}
	ask(true)
	if err := a.SetRoles(role("x.*")); err != nil {
		t.Fatal(err)
	}
	ask(false)
	if err := a.SetRoles(role("a.b")); err != nil {
		t.Fatal(err)
	}
	ask(true)
	is(t, a.SetRoles([]Role{{Name: "agent"}}), toolkeep.InvalidManifest)
	ask(true) // faulty roles change nothing
	p.Scope = []string{"x.*"}
	ask(false)
	p.Scope, p.Tenant = nil, ""
	ask(false)
	p.Tenant, p.Roles = "acme", []string{"other"}
	ask(false)
	p.Roles = []string{"own"}
	ask(true)
	tool = &toolkeep.Tool{ID: "a.b", Version: "1.0.0", Digest: tool.Digest, Tenant: "other", Manifest: tool.Manifest}
	ask(false)
	tool = &toolkeep.Tool{ID: "x.y", Version: "1.0.0", Manifest: tool.Manifest} // no digest: not remembered
	ask(false)
}

func TestDecisionsAreBounded(t *testing.T) {
	a := open(t, Config{})
	first := a.current.Load()
	for i := range maxIdentities + 10 {
		p := principal(Agent, fmt.Sprint(i))
		if !a.Authorise(p, toolOf("a.b", nil), nil).Allowed {
			t.Fatal("refused")
		}
	}
	if g := a.current.Load(); g == first || g.known.Load() > maxIdentities {
		t.Error("the generation grows without end")
	}
	p := principal(Agent)
	m := toolOf("a.b", nil).Manifest
	for i := range maxDecisions + 5000 {
		tool := &toolkeep.Tool{ID: "a.b", Digest: fmt.Sprintf("sha256:%064x", i), Manifest: m}
		a.Authorise(p, tool, nil)
	}
	n := 0
	for i := range a.current.Load().decided.shards {
		n += len(a.current.Load().decided.shards[i].m)
	}
	if n == 0 || n > maxDecisions {
		t.Errorf("%d decisions kept", n)
	}
}

func TestAuthoriseHammer(t *testing.T) {
	a := open(t, Config{})
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			for i := range 400 {
				tool := toolOf(fmt.Sprint("a.t", i%20), nil)
				if !a.Authorise(principal(Agent, fmt.Sprint(i%7)), tool, nil).Allowed || a.Authorise(principal(Auditor), tool, nil).Allowed {
					t.Error("wrong decision")
				}
				if !a.Visible(principal(Auditor), tool) || a.Visible(principal("none"), tool) {
					t.Error("wrong sight")
				}
				if w == 0 && i%20 == 0 {
					if err := a.SetRoles(nil); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
}

func TestActingAs(t *testing.T) {
	a := open(t, Config{})
	plain := &toolkeep.Principal{Tenant: "acme", Subject: "bot", OnBehalf: "carol", KeyID: "k", Roles: []string{Agent}}
	standIn := &toolkeep.Principal{Tenant: "acme", Subject: "bot", KeyID: "k", Roles: []string{Agent}, Permissions: []string{toolkeep.PermActAs}}
	for name, tc := range map[string]struct {
		p               *toolkeep.Principal
		c               toolkeep.Call
		subject, behalf string
		refused         bool
	}{
		"nothing named":             {plain, toolkeep.Call{}, "bot", "carol", false},
		"itself named":              {plain, toolkeep.Call{Subject: "bot", Tenant: "acme", User: "carol"}, "bot", "carol", false},
		"itself as user":            {plain, toolkeep.Call{User: "bot"}, "bot", "carol", false},
		"another subject":           {plain, toolkeep.Call{Subject: "alice"}, "", "", true},
		"another user":              {plain, toolkeep.Call{User: "dave"}, "", "", true},
		"another tenant":            {plain, toolkeep.Call{Tenant: "other"}, "", "", true},
		"may, another subject":      {standIn, toolkeep.Call{Subject: "alice"}, "alice", "", false},
		"may, another user":         {standIn, toolkeep.Call{User: "dave"}, "bot", "dave", false},
		"may, both":                 {standIn, toolkeep.Call{Subject: "alice", User: "dave"}, "alice", "dave", false},
		"may, but never the tenant": {standIn, toolkeep.Call{Subject: "alice", Tenant: "other"}, "", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			before := *tc.p
			before.Token = toolkeep.NewCallerToken("t", time.Now())
			p, err := a.ActingAs(&before, &tc.c)
			if err == nil && (p.Token != nil) != (p.Subject == tc.p.Subject && p.OnBehalf == tc.p.OnBehalf) {
				t.Error("a token serves in the name of another")
			}
			before = *tc.p
			p, err = a.ActingAs(tc.p, &tc.c)
			if tc.refused {
				if e := is(t, err, toolkeep.PermissionDenied); e.Details["reason"] != "RBAC_DENIED" || e.Details["field"] == nil {
					t.Errorf("details %v", e.Details)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if p.Subject != tc.subject || p.OnBehalf != tc.behalf || p.Tenant != "acme" || p.KeyID != "k" {
				t.Errorf("acting %+v", p)
			}
			if before.Subject != tc.p.Subject || before.OnBehalf != tc.p.OnBehalf {
				t.Error("the principal was modified")
			}
		})
	}
	chained := *standIn
	chained.OnBehalf, chained.Chain = "carol", []string{"carol", "planner"}
	p, err := a.ActingAs(&chained, &toolkeep.Call{Subject: "alice", User: "dave"})
	if err != nil || !slices.Equal(p.Chain, []string{"dave", "carol", "planner", "bot"}) {
		t.Errorf("%+v %v", p, err)
	}
}

// says is a policy that answers the same to all.
type says struct {
	Policy
	verdict Verdict
}

func (s says) Decide(context.Context, *Question) (Verdict, error) { return s.verdict, nil }

// TestAllowedBy: a decision names the rule of a role and that of a policy that permit the call, and none of a refused call;
// a remembered decision has them at no cost.
func TestAllowedBy(t *testing.T) {
	a := open(t, Config{Roles: must[[]Role](t)(ParseRoles([]byte(weatherRoles)))})
	for name, c := range map[string]struct {
		p            *toolkeep.Principal
		by           *Verdict
		role, policy string
	}{
		"a role":       {principal("looker", Agent), nil, "role agent, allow rule 1", ""},
		"none":         {principal("looker"), nil, "", ""},
		"a policy":     {principal(Agent), &Verdict{Allow: true, Rule: "data.toolkeep.allow"}, "role agent, allow rule 1", "data.toolkeep.allow"},
		"an approval":  {principal(Agent), &Verdict{Allow: true, Rule: "x", Obligations: []Obligation{{Kind: ObligeApproval, Rule: "night"}}}, "role agent, allow rule 1", "night"},
		"nothing more": {principal(Agent), &Verdict{Allow: true}, "role agent, allow rule 1", ""},
		"denied":       {principal(Agent), &Verdict{Rule: "data.toolkeep.deny"}, "", ""},
	} {
		tool := toolOf("a.b", nil)
		for range 2 { // computed and remembered
			d := a.Authorise(c.p, tool, &toolkeep.Call{})
			if c.by != nil {
				d = d.Consult(t.Context(), says{verdict: *c.by}, &Question{Principal: c.p, Tool: tool, Call: &toolkeep.Call{}}, func(s string) string { return s })
			}
			if role, policy := d.AllowedBy(); role != c.role || policy != c.policy {
				t.Errorf("%s: %q, %q", name, role, policy)
			}
		}
		d := a.Authorise(c.p, tool, &toolkeep.Call{})
		if n := testing.AllocsPerRun(100, func() { d.AllowedBy() }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestRulesOfPoliciesAreClean: the names of a policy's rules are cleaned and cut as its reasons are, wherever a decision has them.
func TestRulesOfPoliciesAreClean(t *testing.T) {
	a := open(t, Config{Roles: must[[]Role](t)(ParseRoles([]byte(weatherRoles)))})
	long := strings.Repeat("x", 300)
	clean := func(s string) string { return strings.ReplaceAll(s, "secret", "***") }
	for name, v := range map[string]Verdict{
		"allowed":  {Allow: true, Rule: "secret" + long},
		"denied":   {Rule: "secret" + long},
		"approval": {Allow: true, Obligations: []Obligation{{Kind: ObligeApproval, Rule: "secret 1"}, {Kind: ObligeApproval, Rule: long}}},
	} {
		tool := toolOf("a.b", nil)
		p := principal(Agent)
		d := a.Authorise(p, tool, &toolkeep.Call{}).Consult(t.Context(), says{verdict: v}, &Question{Principal: p, Tool: tool, Call: &toolkeep.Call{}}, clean)
		rules := []string{d.Checks[len(d.Checks)-1].Rule}
		if d.Approval != nil {
			rules = append(rules, d.Approval.Rule)
		}
		for _, rule := range rules {
			if !strings.HasPrefix(rule, "***") || len(rule) > maxRule+len("…") {
				t.Errorf("%s: %q", name, rule)
			}
		}
	}
}

func BenchmarkAuthoriseHit(b *testing.B) {
	b.ReportAllocs()
	a := open(b, Config{})
	p, tool, call := principal(Agent, "own"), toolOf("a.b", nil), &toolkeep.Call{}
	p.Scope = []string{"a.*"}
	for b.Loop() {
		if !a.Authorise(p, tool, call).Allowed {
			b.Fatal("refused")
		}
	}
}

func BenchmarkVisibleHit(b *testing.B) {
	b.ReportAllocs()
	a := open(b, Config{})
	p, tool := principal(Agent), toolOf("a.b", nil)
	for b.Loop() {
		if !a.Visible(p, tool) {
			b.Fatal("hidden")
		}
	}
}

func BenchmarkAuthoriseMiss(b *testing.B) {
	b.ReportAllocs()
	a := open(b, Config{})
	p, tool := principal(Agent), toolOf("a.b", nil)
	tool.Digest = ""
	for b.Loop() {
		if !a.Authorise(p, tool, nil).Allowed {
			b.Fatal("refused")
		}
	}
}
