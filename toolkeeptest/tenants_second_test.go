package toolkeeptest_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/node"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// TestSecondTenant: an admin token for another tenant administers that tenant,
// including its keys, and cannot change what belongs to all tenants (docs/access.md).
func TestSecondTenant(t *testing.T) {
	t.Parallel()
	s := newIssuer(t)
	k := s.start(t, nil, node.Options{})
	first := as(t, k, s.token(k, "tools:admin", map[string]any{"tenant": "acme", "sub": "ann"}))
	made := first.do("POST", "/api/v1/keys", `{"subject":"robot","roles":["admin"]}`).want(t, 201)
	var key struct{ Secret string }
	if err := json.Unmarshal([]byte(made.body), &key); err != nil || key.Secret == "" {
		t.Fatalf("%v %s", err, made)
	}
	robot := as(t, k, key.Secret)
	robot.secret("crm", "a-secret-of-acme", `"scope":"organisation"`)
	if a := admin(t, k).do("GET", "/api/v1/secrets", ""); a.status != 200 || containsName(a.body, "crm") {
		t.Errorf("the tenant default sees the secret of acme: %s", a)
	}
	robot.call("std.echo", `{"a":1}`).success(t)
	for what, a := range map[string]answer{
		"the sealing key":       robot.do("POST", "/api/v1/secrets/rotate", `{"new_key":true}`),
		"a tool of all tenants": robot.do("DELETE", "/api/v1/tools/std.echo", ""),
		"a command":             robot.do("PUT", "/api/v1/servers/mine", `{"transport":"stdio","command":["/bin/true"]}`),
		"a server of all":       robot.do("PUT", "/api/v1/servers/theirs?shared=true", `{"transport":"http","url":"https://mcp.example/mcp"}`),
	} {
		if a.status != 403 {
			t.Errorf("%s: %s", what, a)
			continue
		}
		a.refused(t, toolkeep.PermissionDenied)
	}
}

// TestWhoIsToldOfSecrets: only principals that may call a tool with an organisation's
// secret, publish such tools, or administer secrets see the secret's name.
func TestWhoIsToldOfSecrets(t *testing.T) {
	t.Parallel()
	roles := filepath.Join(t.TempDir(), "roles.yaml")
	const own = "roles:\n  namer:\n    permissions: [\"secrets:use\"]\n  half:\n    allow:\n      - tools: [\"shop.*\"]\n        actions: [see]\n"
	if err := os.WriteFile(roles, []byte(own), 0o600); err != nil {
		t.Fatal(err)
	}
	up := newKeyShop(t)
	k := toolkeeptest.New(t, toolkeeptest.Option{Settings: map[string]string{"access.roles_file": roles}})
	k.Publish(up.tool(t, "shop.read", "secret://named", nil),
		up.tool(t, "shop.swap", "context://other", map[string]any{"permissions": map[string]any{"credentials": []string{"secret://listed"},
			"network": []any{map[string]any{"host": "127.0.0.1"}}}}))
	root := admin(t, k)
	for _, name := range []string{"named", "listed", "apart"} {
		root.secret(name, "value-of-"+name, `"scope":"organisation"`)
	}
	root.secret("desk", "value-of-the-desk", `"scope":"workspace","workspace":"billing"`)
	for who, want := range map[string]string{"agent": "listed named", "auditor": "", "operator": "", "half": "", "namer": "apart listed named", "admin": "apart desk listed named"} {
		c := as(t, k, k.Key("default", "a-"+who, who))
		var got []string
		a := c.do("GET", "/api/v1/secrets", "").want(t, 200)
		for _, name := range []string{"apart", "desk", "listed", "named"} {
			if containsName(a.body, name) {
				got = append(got, name)
			}
			if name == "desk" {
				continue
			}
			test := c.do("POST", "/api/v1/secrets/test", `{"reference":"`+name+`"}`).want(t, 200).text(t, "state")
			if told := containsName(a.body, name); (test == "ready") != told {
				t.Errorf("%s: the test of %s says %s, and the list has it: %v", who, name, test, told)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s sees %q, want %q", who, got, want)
		}
		// The same rule decides who sees which secret a tool uses.
		for what, a := range map[string]answer{
			"describe": c.do("GET", "/api/v1/tools/shop.read", ""),
			"explain":  c.do("POST", "/api/v1/tools/invoke", `{"tool_id":"shop.read","parameters":{},"dry_run":true}`),
		} {
			if who == "namer" {
				continue // an administrator of secrets need not see tools
			}
			if told := strings.Contains(a.body, "organisation"); told != strings.Contains(want, "named") {
				t.Errorf("%s tells %s of the scope: %v; %s", what, who, told, a.body)
			}
		}
	}
	narrow := as(t, k, k.AddKey(toolkeep.APIKey{Tenant: "default", Subject: "narrow", Roles: []string{"agent"}, Scope: []string{"std.*"}, Workspace: "billing"}))
	if a := narrow.do("GET", "/api/v1/secrets", "").want(t, 200); strings.Contains(a.body, `"name"`) {
		t.Errorf("a key with a narrow scope sees %s", a)
	}
}

func containsName(list, name string) bool {
	var l struct{ Secrets []struct{ Name string } }
	if json.Unmarshal([]byte(list), &l) != nil {
		return true
	}
	for _, s := range l.Secrets {
		if s.Name == name {
			return true
		}
	}
	return false
}
