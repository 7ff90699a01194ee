//go:build !race

package invoke_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/access/capability"
	"github.com/toolkeep/toolkeep/access/policy"
	"github.com/toolkeep/toolkeep/approval"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/store/sqlite"
)

// The dimensions of TestEveryDecision. What each value means is what docs/tokens.md, docs/access.md,
// docs/policies.md and docs/approvals.md say of it.
var (
	cellTokens = map[string]toolkeep.Code{ // the refusal by the token, where one was sent or is demanded
		"no token": toolkeep.TokenMissing, "a token": "", "a token of other tools": toolkeep.TokenScopeMismatch,
		"an expired token": toolkeep.TokenExpired, "a revoked token": toolkeep.TokenRevoked,
		"an attenuated token": "", "a token attenuated from a revoked one": toolkeep.TokenRevoked,
		"a token to read": toolkeep.TokenScopeMismatch, // the tool writes
	}
	cellRoles = map[string]string{ // as they are configured
		"granted nothing": "permissions: [nothing]",
		"only sees":       `allow: [{tools: ["*"], actions: [see]}]`,
		"calls":           `allow: [{tools: ["std.*"]}]`,
		"calls by tag":    `allow: [{tags: [open], max_risk: medium}]`,
		"is denied calls": `allow: [{tools: ["*"]}], deny: [{tags: [open], actions: [invoke]}]`,
		// What is inherited counts as the role's own, denials too, and a role of other tenants is none.
		"inherits calls":          "inherits: [here]",
		"inherits a denial":       `inherits: [is-denied-calls], allow: [{tools: ["std.*"]}]`,
		"inherits from elsewhere": "inherits: [elsewhere]",
		"inherits trust":          "inherits: [trusted]", // an approval rule waives for it what the risk alone asks for
	}
	inheritedRoles = `
  here: {tenants: [acme, globex], allow: [{tools: ["std.*"]}]}
  elsewhere: {tenants: [globex], allow: [{tools: ["std.*"]}]}
  trusted: {allow: [{tools: ["std.*"]}]}
`
	cellRules    = "rules: [{name: trust, roles: [trusted], waive_risk: true}]"
	cellPolicies = map[string]string{ // rules
		"no policy": "", "allow": "allow := true", "deny": `deny contains "not on Sundays" if true`,
		"undefined":   `allow if input.tool.id == "another.tool"`,
		"approval":    "allow := true\n\nrequire_approval contains \"it is late\" if true",
		"unavailable": `allow if to_number(input.tool.id) > 1`,
	}
	cellRisks = map[string]func(*toolkeep.Manifest){
		"low":               func(m *toolkeep.Manifest) { m.Risk = "low" },
		"medium":            func(m *toolkeep.Manifest) { m.Risk = "medium" },
		"high":              func(m *toolkeep.Manifest) { m.Risk = "high" },
		"requires_approval": func(m *toolkeep.Manifest) { m.RequiresApproval = true },
	}
)

// expected is what the documents say of a cell.
type expected struct {
	hidden  toolkeep.Code // the caller is told E3001, since it may neither call nor see the tool; this is why
	code    toolkeep.Code // "" for a call that is not refused
	says    string        // a part of the reason, if it is documented
	reason  string        // details.reason
	waits   []string      // parts of which one is in why a person is asked; none: it runs
	failing []string      // the checks that fail, in a call
	shown   []string      // and in an explanation, which asks the policy also after others refused
}

// documented computes what the documents say, without the product's code.
func documented(required bool, token, role, rules, risk string) (e expected) {
	calls := map[string]bool{"calls": true, "calls by tag": risk != "high", "inherits calls": true, "inherits trust": true}[role]
	sees := role == "only sees" // by an allow rule with see; what may be called is seen
	denies := map[string]string{"only sees": "only-sees"}[role]
	defer func() {
		if why := e.code; !sees && (!calls || rules == "deny" || rules == "undefined") {
			e = expected{hidden: why, code: toolkeep.ToolNotFound}
		}
	}()
	refuse := func(check string, code toolkeep.Code, reason, says string) {
		if e.code == "" {
			e.code, e.reason, e.says = code, reason, says
		}
		e.failing, e.shown = append(e.failing, check), append(e.shown, check)
	}
	if code := cellTokens[token]; code != "" && (token != "no token" || required) {
		refuse("token", code, "", "")
	}
	if !calls {
		refuse("roles", toolkeep.PermissionDenied, "RBAC_DENIED", denies)
	}
	asked := e.code == ""
	switch rules {
	case "deny":
		refuse("policy", toolkeep.PolicyDenied, "ABAC_DENIED", "not on Sundays")
	case "undefined":
		refuse("policy", toolkeep.PolicyDenied, "ABAC_DENIED", "no rule of the policy allows the call")
	case "unavailable":
		refuse("policy", toolkeep.PolicyEngineUnavailable, "ABAC_ERROR", "cannot decide")
	}
	if !asked { // a call asks the policy only if all other checks passed
		e.failing = slices.DeleteFunc(e.failing, func(check string) bool { return check == "policy" })
	}
	if e.code == "" {
		for _, owes := range []struct {
			is  bool
			why string
		}{{risk == "high" && role != "inherits trust", "risk is high"}, {risk == "requires_approval", "manifest requires approval"}, {rules == "approval", "it is late"}} {
			if owes.is {
				e.waits = append(e.waits, owes.why)
			}
		}
	}
	return e
}

// cells is a pipeline with real access, tokens, policy and approvals.
type cells struct {
	*harness
	required bool
	rules    string
	tokens   map[string]toolkeep.CapabilityToken
	callers  map[string]*toolkeep.Principal
}

func newCells(t *testing.T, required bool, rules string) *cells {
	c := &cells{required: required, rules: rules, callers: map[string]*toolkeep.Principal{}}
	var acc *access.Access
	var roles strings.Builder
	roles.WriteString("roles:" + inheritedRoles)
	for _, name := range slices.Sorted(maps.Keys(cellRoles)) {
		fmt.Fprintf(&roles, "  %s: {%s}\n", strings.ReplaceAll(name, " ", "-"), cellRoles[name])
	}
	c.harness = newHarness(t, func(conf *invoke.Config) {
		store := conf.Store.(*sqlite.Store)
		list := must(access.ParseRoles([]byte(roles.String())))
		now := time.Now()
		tokens := must(capability.New(capability.Config{Store: store, Sealer: conf.Sealer, Algorithm: "EdDSA", Clock: func() time.Time { return now }}))
		config := access.Config{Store: store, Roles: list, Tokens: tokens, TokenRequired: required, Failures: access.FailureLimits{PerAgent: -1, Global: -1},
			Load: func(context.Context) ([]toolkeep.APIKey, int64, error) { return nil, 0, nil }}
		if text := cellPolicies[rules]; text != "" {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "p.rego"), []byte("package toolkeep\n\n"+text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			config.Policy = must(policy.New(t.Context(), policy.Config{Path: dir, Timeout: 20 * time.Second}))
		}
		acc = must(access.New(config))
		if err := acc.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		admin := &toolkeep.Principal{Tenant: "acme", Subject: "root", Roles: []string{access.Admin}, Permissions: []string{"*"}}
		for name := range cellRoles {
			_, text, err := acc.CreateKey(t.Context(), admin, toolkeep.APIKey{Subject: "bot", Roles: []string{strings.ReplaceAll(name, " ", "-")}})
			if err != nil {
				t.Fatal(err)
			}
			c.callers[name] = must(acc.Authenticate(t.Context(), text, "192.0.2.1"))
		}
		book := must(approval.New(approval.Config{Store: store, Rules: must(approval.ParseRules([]byte(cellRules), approval.Defaults{}))}))
		conf.Access, conf.Approvals = acc, book
		c.mint(t, tokens, &now)
	})
	t.Cleanup(acc.Stop) // before the harness closes
	for name, change := range cellRisks {
		c.tool(name, writes, func(m *toolkeep.Manifest) { m.Tags = []string{"open"} }, change)
	}
	return c
}

// mint makes the tokens of the table.
func (c *cells) mint(t *testing.T, tokens *capability.Tokens, now *time.Time) {
	make := func(g toolkeep.Grant, parent toolkeep.CapabilityToken) (toolkeep.CapabilityToken, string) {
		g.Tenant, g.Agent = "acme", "bot"
		var of *capability.Token
		if parent != "" {
			var err *toolkeep.Error
			if of, err = tokens.Verify(parent); err != nil {
				t.Fatal(err)
			}
		}
		text, claims, err := tokens.Mint(t.Context(), capability.Claims{Grant: g, Expires: now.Add(time.Hour)}, of)
		if err != nil {
			t.Fatal(err)
		}
		return toolkeep.CapabilityToken(text), claims.Grant.ID
	}
	all, some := toolkeep.Grant{Tools: []string{"std.*"}}, toolkeep.Grant{Tools: slices.Collect(maps.Keys(toolIDs()))}
	c.tokens = map[string]toolkeep.CapabilityToken{"no token": ""}
	at := *now
	*now = at.Add(-2 * time.Hour)
	c.tokens["an expired token"], _ = make(all, "")
	*now = at
	c.tokens["a token"], _ = make(all, "")
	c.tokens["a token of other tools"], _ = make(toolkeep.Grant{Tools: []string{"mail.*"}}, "")
	c.tokens["a token to read"], _ = make(toolkeep.Grant{Tools: []string{"std.*"}, Operations: []string{toolkeep.OperationRead}}, "")
	c.tokens["an attenuated token"], _ = make(some, c.tokens["a token"])
	var gone string
	c.tokens["a revoked token"], gone = make(all, "")
	c.tokens["a token attenuated from a revoked one"], _ = make(some, c.tokens["a revoked token"])
	for _, change := range must(tokens.Revoke("acme", gone, "root")) {
		tokens.Follow(toolkeep.Committed{Change: change})
	}
}

func toolIDs() map[string]bool {
	ids := map[string]bool{}
	for name := range cellRisks {
		ids["std."+name] = true
	}
	return ids
}

// outcome is what a call or an explanation of it said.
type outcome struct {
	code    toolkeep.Code
	record  toolkeep.Code // of a call, why it was refused
	message string
	waits   string // why a person is asked; "" for nothing
	ran     int64
}

// called makes the call, synchronous or asynchronous, and follows it to its end or to a person.
func (c *cells) called(t *testing.T, p *toolkeep.Principal, call toolkeep.Call) (o outcome, refused *toolkeep.Error) {
	before := c.executor.calls.Load()
	res, err := c.pipeline.Invoke(t.Context(), p, &call)
	e := toolkeep.AsError(err)
	if err == nil {
		e = nil
	}
	c.work()
	row := <-c.observed
	for len(c.observed) > 0 {
		row = <-c.observed
	}
	o.ran = c.executor.calls.Load() - before
	switch {
	case e != nil:
		o.code, o.message = e.Code, e.Message
		if o.record = row.Code; row.State != toolkeep.CallRefused || (row.Code != e.Code || row.Message != e.Message) && e.Code != toolkeep.ToolNotFound {
			t.Errorf("the record has %s %s %q of %v", row.State, row.Code, row.Message, e)
		}
		if own, err := c.pipeline.Get(t.Context(), p, row.ID); err != nil || own.Code != e.Code || own.Message != e.Message || (e.Code == toolkeep.ToolNotFound) != (own.Version == "") {
			t.Errorf("the caller reads in its record %+v %v, and was told %v", own, err, e)
		}
		return o, e
	case res.State == toolkeep.CallPendingApproval:
		q, err := c.config.Approvals.(*approval.Book).Get(t.Context(), toolkeep.CallRef{Tenant: "acme", ID: res.InvocationID})
		if err != nil {
			t.Fatal(err)
		}
		o.waits = q.Why
	case row.State != toolkeep.CallSucceeded:
		t.Errorf("the call ended as %s %s", row.State, row.Message)
	}
	return o, nil
}

// explained is what the explanation of the call says, with the checks that it shows as failing.
func (c *cells) explained(t *testing.T, p *toolkeep.Principal, call toolkeep.Call) (o outcome, failing []string) {
	before := c.executor.calls.Load()
	v, err := c.pipeline.Explain(t.Context(), p, &call)
	if err != nil {
		t.Fatal(err)
	}
	x := v.(*invoke.Explanation)
	for i, s := range x.Steps {
		if s.Verdict == "refuse" && o.code == "" {
			o.code, o.message = s.Code, s.Reason
		}
		if s.Verdict == "wait" {
			o.waits = s.Reason
		}
		if i == int(invoke.StepAuthorise) {
			for _, check := range s.Checks {
				if m := check.(map[string]any); m["allowed"] == false {
					failing = append(failing, m["check"].(string))
				}
			}
		}
	}
	if o.code != "" {
		o.waits = ""
	}
	o.ran = c.executor.calls.Load() - before
	if x.Execute != (o.code == "" && o.waits == "") {
		t.Errorf("would_execute is %v of %+v", x.Execute, o)
	}
	return o, failing
}

// TestEveryDecision: every combination of token, role, policy and risk, called, called asynchronously
// and explained, decides what the documents say, with its reason, and explain says the same. (dry_run of
// REST, gRPC and MCP is Explain.)
func TestEveryDecision(t *testing.T) {
	n := 0
	for _, rules := range slices.Sorted(maps.Keys(cellPolicies)) {
		for _, required := range []bool{false, true} {
			c := newCells(t, required, rules)
			for _, token := range slices.Sorted(maps.Keys(cellTokens)) {
				for _, role := range slices.Sorted(maps.Keys(cellRoles)) {
					for _, risk := range slices.Sorted(maps.Keys(cellRisks)) {
						want := documented(required, token, role, rules, risk)
						for _, async := range []bool{false, true} {
							n++
							c.cell(t, fmt.Sprintf("%s (required %v), caller %s, policy %s, %s, async %v", token, required, role, rules, risk, async), want,
								c.callers[role], toolkeep.Call{Tool: "std." + risk, Token: c.tokens[token], Async: async, ApprovalWait: 1})
						}
					}
				}
			}
		}
	}
	if n != 2*2*len(cellTokens)*len(cellRoles)*len(cellPolicies)*len(cellRisks) {
		t.Errorf("only %d cells", n)
	}
}

func (c *cells) cell(t *testing.T, name string, want expected, p *toolkeep.Principal, call toolkeep.Call) {
	t.Helper()
	told, shown := c.explained(t, p, call)
	got, refused := c.called(t, p, call)
	ran := int64(0)
	if want.code == "" && want.waits == nil {
		ran = 1
	}
	contains := func(s string, parts []string) bool {
		return len(parts) == 0 && s == "" || slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(s, part) })
	}
	if got.code != want.code || !strings.Contains(got.message, want.says) || !contains(got.waits, want.waits) || got.ran != ran {
		t.Errorf("%s: the call gave %+v, documented is %+v", name, got, want)
	}
	if told.code != got.code || told.message != got.message || told.ran != 0 || (told.waits == "") != (got.waits == "") || !strings.Contains(told.waits, got.waits) {
		t.Errorf("%s: the call gave %+v, explain said %+v", name, got, told)
	}
	if !slices.Equal(shown, want.shown) {
		t.Errorf("%s: explain shows %q as failing, documented is %q", name, shown, want.shown)
	}
	if refused == nil {
		return
	}
	if why := cmp.Or(want.hidden, want.code); got.record != why {
		t.Errorf("%s: the record says %s, documented is %s", name, got.record, why)
	}
	if want.hidden != "" {
		return
	}
	reason, _ := refused.Details["reason"].(string)
	var failing []string
	list, _ := refused.Details["checks"].([]any)
	for _, check := range list {
		failing = append(failing, check.(map[string]any)["check"].(string))
	}
	if reason != want.reason || !slices.Equal(failing, want.failing) {
		t.Errorf("%s: details.reason %q with the checks %q, documented is %q with %q", name, reason, failing, want.reason, want.failing)
	}
}
