package access

import (
	"reflect"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
)

func TestParseRoles(t *testing.T) {
	roles := must[[]Role](t)(ParseRoles([]byte(weatherRoles)))
	want := Role{Name: "weather-reader", Description: "reads the weather", Permissions: []string{"act-as", "weather:extra"},
		Allow: []Rule{{Tools: []string{"weather.*"}, Tags: []string{"public"}, Categories: []string{"weather"}, SideEffects: []string{"none", "reads"}, MaxRisk: "low"}},
		Deny:  []Rule{{Tools: []string{"weather.delete*"}}}}
	if len(roles) != 3 || !reflect.DeepEqual(roles[0], want) {
		t.Errorf("roles %+v", roles)
	}
	if roles := must[[]Role](t)(ParseRoles([]byte("roles: {}"))); len(roles) != 0 {
		t.Errorf("roles %+v", roles)
	}
}

func TestParseRolesFaults(t *testing.T) {
	for name, tc := range map[string]struct {
		yaml string
		want []string // pairs of pointer and part of the message
	}{
		"empty":              {"", []string{"", "not readable"}},
		"not YAML":           {"roles: [", []string{"", "not readable"}},
		"two documents":      {"roles: {}\n---\nroles: {}", []string{"", "more than one"}},
		"not a mapping":      {"- a", []string{"", "line 1: must be a mapping with roles"}},
		"no roles":           {"roles:", []string{"/roles", "line 1: must be a mapping"}},
		"unknown at the top": {"role: {}", []string{"/role", "line 1: unknown key \"role\"; the nearest known key is roles"}},
		"unknown in a role":  {"roles:\n  a:\n    alow: []", []string{"/roles/a/alow", "line 3: unknown key \"alow\"; the nearest known key is allow"}},
		"unknown in a rule": {"roles:\n  a:\n    allow:\n      - tool: [x.y]",
			[]string{"/roles/a/allow/0/tool", "line 4: unknown key \"tool\"; the nearest known key is tools"}},
		"two keys":     {"roles:\n  a: {description: x, description: y}", []string{"/roles/a/description", "line 2: the key description is there twice"}},
		"two roles":    {"roles:\n  a: {description: x}\n  a: {description: y}", []string{"/roles/a", "line 3: the key a is there twice"}},
		"built in":     {"roles:\n  agent: {description: x}", []string{"/roles/agent", "line 2: the built-in role agent cannot be redefined"}},
		"bad name":     {"roles:\n  My Role: {description: x}", []string{"/roles/My Role", "line 2: a role's name"}},
		"slash":        {"roles:\n  a/b: {description: x}", []string{"/roles/a~1b", "line 2: a role's name"}},
		"empty rule":   {"roles:\n  a:\n    allow:\n      - {}", []string{"/roles/a/allow/0", `line 4: the rule selects nothing; write tools: ["*"]`}},
		"only actions": {"roles:\n  a:\n    deny:\n      - actions: [see]", []string{"/roles/a/deny/0", "line 4: the rule selects nothing"}},
		"empty list":   {"roles:\n  a:\n    allow:\n      - tools: []", []string{"/roles/a/allow/0/tools", "line 4: the list is empty"}},
		"bad pattern":  {"roles:\n  a:\n    allow:\n      - tools: [x.y, '[']", []string{"/roles/a/allow/0/tools/1", "line 4: \"[\" is not a pattern"}},
		"bad effect":   {"roles:\n  a:\n    allow:\n      - side_effects: [read]", []string{"/roles/a/allow/0/side_effects/0", "line 4: must be none, reads or writes"}},
		"bad risk":     {"roles:\n  a:\n    allow:\n      - max_risk: lo", []string{"/roles/a/allow/0/max_risk", "line 4: must be low, medium or high"}},
		"max in deny":  {"roles:\n  a:\n    deny:\n      - max_risk: low", []string{"/roles/a/deny/0/max_risk", "line 4: max_risk is for allow rules"}},
		"min in allow": {"roles:\n  a:\n    allow:\n      - min_risk: low", []string{"/roles/a/allow/0/min_risk", "line 4: min_risk is for deny rules"}},
		"bad action":   {"roles:\n  a:\n    allow:\n      - {tools: [x.y], actions: [look]}", []string{"/roles/a/allow/0/actions/0", "line 4: must be see or invoke"}},
		"bad right":    {"roles:\n  a: {permissions: ['Act As']}", []string{"/roles/a/permissions/0", "line 2: a permission has"}},
		"not a text":   {"roles:\n  a: {permissions: [1.0]}", []string{"/roles/a/permissions/0", "line 2: must be a text"}},
		"not a list":   {"roles:\n  a: {allow: x}", []string{"/roles/a/allow", "line 2: must be a list"}},
		"alias":        {"roles:\n  a: &x {description: d}\n  b: *x", []string{"", "line 3, column 6: aliases are not read here"}},
		"merge":        {"roles:\n  a: &x {description: d}\n  b: {<<: *x}", []string{"", "line 3, column 7: merge keys are not read here"}},
		"several": {"roles:\n  a:\n    permisions: [x]\n    allow:\n      - max_risk: lo\n      - {}\n", []string{
			"/roles/a/permisions", "line 3: unknown key", "/roles/a/allow/0/max_risk", "line 5: must be", "/roles/a/allow/1", "line 6: the rule selects nothing"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseRoles([]byte(tc.yaml))
			e := is(t, err, toolkeep.InvalidManifest)
			faults := e.Details["errors"].([]toolkeep.Fault)
			if len(faults) != len(tc.want)/2 {
				t.Fatalf("faults %+v, want %v", faults, tc.want)
			}
			for i, f := range faults {
				if f.Pointer != tc.want[2*i] || !strings.Contains(f.Message, tc.want[2*i+1]) || f.Rule == "" {
					t.Errorf("fault %+v, want %v", f, tc.want[2*i:2*i+2])
				}
			}
		})
	}
	big := "roles:\n  a: {description: " + strings.Repeat("x", maxYAML) + "}"
	_, err := ParseRoles([]byte(big))
	is(t, err, toolkeep.InvalidManifest)
}

// FuzzParseRoles: whatever parses must be usable as roles, and nothing panics.
func FuzzParseRoles(f *testing.F) {
	for _, s := range []string{weatherRoles, "", "roles: {}", "roles: &a {b: *a}", "roles:\n  ? [a]\n  : b", "---\n...\n", "roles:\n  a: {allow: [{}]}", "%YAML 1.1\n---\nroles: !!map {}", "\"\\u0000\": 1", "#"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		roles, err := ParseRoles(data)
		if err != nil {
			e := is(t, err, toolkeep.InvalidManifest)
			if len(e.Details["errors"].([]toolkeep.Fault)) == 0 {
				t.Error("an error without a fault")
			}
			return
		}
		if _, faults := compile(roles); len(faults) > 0 {
			t.Errorf("read, but not usable: %v", faults)
		}
	})
}

// FuzzParseKey: only texts that NewKey could have produced parse.
func FuzzParseKey(f *testing.F) {
	f.Add("tk_abcdefghijkl_0123456789012345678901234567890123456789012abcd")
	f.Add(strings.Repeat("é", 40))
	f.Fuzz(func(t *testing.T, text string) {
		if id, secret, ok := parseKey(text); ok && keyPrefix+id+"_"+secret+sum(keyPrefix+id+"_"+secret) != text {
			t.Errorf("%q was taken for a key", text)
		}
	})
}
