package approval

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

func toolOf(id, risk string, tags ...string) *toolkeep.Tool {
	return &toolkeep.Tool{ID: id, Version: "1.0.0", Digest: "sha256:d", Manifest: &toolkeep.Manifest{ToolID: id, Risk: risk, Tags: tags, SideEffects: "writes"}}
}

const rulesText = `
rules:
  - name: payments
    tools: ["pay.*"]
    approvals: 2
    approvers:
      - roles: [lead]
      - roles: [cfo, finance]
        after: 90m
    expires_after: 8h
  - min_risk: medium
    roles: [intern]
    required: true
  - tools: ["notes.*"]
    confirm: caller
  - subjects: [bot]
    waive_risk: true
`

func TestRules(t *testing.T) {
	rs, err := ParseRules([]byte(rulesText), Defaults{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tool  *toolkeep.Tool
		roles string
		why   string // besides the rules; "risk" alone can be waived
		want  string
	}{
		{toolOf("a.b", "low"), "", "", "none"},
		{toolOf("a.b", "low"), "", "risk", `"" 1 [{[] 0s} {[] 1h0m0s} {[] 4h0m0s}] 24h0m0s risk false`},
		{toolOf("pay.out", "low"), "", "", "none"},
		{toolOf("pay.out", "low"), "", "risk", `"payments" 2 [{[lead] 0s} {[cfo finance] 1h30m0s}] 8h0m0s risk false`},
		{toolOf("a.b", "low"), "intern", "", "none"},
		{toolOf("a.b", "medium"), "agent", "", "none"},
		{toolOf("a.b", "medium"), "intern", "", `"rule 2" 1 [{[] 0s} {[] 1h0m0s} {[] 4h0m0s}] 24h0m0s the approval rule rule 2 requires it false`},
		{toolOf("a.b", "of another program"), "intern", "", `"rule 2" 1 [{[] 0s} {[] 1h0m0s} {[] 4h0m0s}] 24h0m0s the approval rule rule 2 requires it false`},
		// The first rule says who decides, a later one that it is owed.
		{toolOf("pay.out", "high"), "intern", "", `"payments" 2 [{[lead] 0s} {[cfo finance] 1h30m0s}] 8h0m0s the approval rule rule 2 requires it false`},
		{toolOf("notes.add", "high"), "", "risk", `"rule 3" 1 [{[] 0s} {[] 1h0m0s} {[] 4h0m0s}] 24h0m0s risk true`},
	} {
		got := "none"
		if n := rs.Of(&toolkeep.Principal{Subject: "x", Roles: []string{c.roles}}, c.tool, c.why, c.why == "risk"); n != nil {
			var levels []string
			for _, l := range n.Levels {
				levels = append(levels, fmt.Sprint(l))
			}
			got = fmt.Sprintf("%q %d %v %s %s %t", n.Rule, n.Count, levels, n.Expires, n.Why, n.Confirm)
		}
		if got != c.want {
			t.Errorf("%s by %q, why %q:\n got %s\nwant %s", c.tool.ID, c.roles, c.why, got, c.want)
		}
	}
}

// TestWaivedRisk: a rule waives what a high risk alone asks for, of its callers, and nothing else.
func TestWaivedRisk(t *testing.T) {
	rs, err := ParseRules([]byte(rulesText), Defaults{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		subject, role string
		byRisk        bool
		owes          bool
	}{
		{"bot", "agent", true, false},
		{"other", "agent", true, true},
		{"bot", "agent", false, true}, // the manifest, the policy or the caller asks
		{"bot", "intern", true, true}, // another rule requires it
	} {
		n := rs.Of(&toolkeep.Principal{Subject: c.subject, Roles: []string{c.role}}, toolOf("pay.out", "high"), "why", c.byRisk)
		if (n != nil) != c.owes || n != nil && n.Rule != "payments" {
			t.Errorf("%+v: %+v", c, n)
		}
	}
}

func TestDefaultsOfRules(t *testing.T) {
	rs, err := ParseRules(nil, Defaults{Escalate: []time.Duration{time.Hour, time.Minute, 30 * time.Hour}, Expires: 2 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if n := rs.Of(&toolkeep.Principal{}, toolOf("a.b", "high"), "risk", true); len(n.Levels) != 2 || n.Levels[1].After != time.Hour || n.Expires != 2*time.Hour {
		t.Errorf("%+v; levels that are not later than the one before, or than the end, are left out", n)
	}
}

func TestRefusedRules(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "it is empty",
		"rules: []":                              "/rules: ",
		"rules: [{}]":                            "/rules/0: the rule selects nothing",
		"rules: [{name: x}]":                     "/rules/0: the rule selects nothing",
		"rules: [{tools: []}]":                   "/rules/0/tools: ",
		"rules: [{tools: ['[']}]":                `/rules/0/tools/0: "[" is not a pattern`,
		"rules: [{tols: [a]}]":                   "/rules/0",
		"rules: [{tools: [a], approvals: 0}]":    "/rules/0/approvals: ",
		"rules: [{tools: [a], approvals: 11}]":   "/rules/0/approvals: ",
		"rules: [{tools: [a], confirm: anyone}]": "/rules/0/confirm: ",
		"rules: [{tools: [a], confirm: caller, approvals: 2}]":                                         "/rules/0/confirm: the caller's own person is one",
		"rules: [{tools: [a], min_risk: huge}]":                                                        "/rules/0/min_risk: ",
		"rules: [{tools: [a], approvers: [{after: 1h}]}]":                                              "/rules/0/approvers/0: ",
		"rules: [{tools: [a], approvers: [{roles: [x], after: 1h}]}]":                                  "/rules/0/approvers/0/after: the first approvers",
		"rules: [{tools: [a], approvers: [{roles: [x]}, {roles: [y]}]}]":                               "/rules/0/approvers/1/after: must be later",
		"rules: [{tools: [a], expires_after: 1h, approvers: [{roles: [x]}, {roles: [y], after: 2h}]}]": "/rules/0/approvers/1/after: must be before",
		"rules: [{tools: [a], expires_after: 721h}]":                                                   "/rules/0/expires_after: is more than 0 and at most",
		"rules: [{tools: [a], expires_after: soon}]":                                                   "/rules/0/expires_after: ",
		"rules: [{tools: [a], waive_risk: true}]":                                                      "/rules/0/waive_risk: name the callers",
		"rules: [{roles: [a], waive_risk: true, required: true}]":                                      "/rules/0/waive_risk: a rule that waives",
		"rules: [{tools: [a], tools: [b]}]":                                                            "yaml",
		"a: &a [*a]":                                                                                   "",
	} {
		_, err := ParseRules([]byte(text), Defaults{})
		if e := toolkeep.AsError(err); err == nil || e.Code != toolkeep.InvalidManifest || want != "yaml" && !strings.Contains(e.Message, want) {
			t.Errorf("%s:\n got %v\nwant %s", text, err, want)
		}
	}
}
