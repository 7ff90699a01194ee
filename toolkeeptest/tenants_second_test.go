package toolkeeptest_test

import (
	"encoding/json"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/node"
)

// TestSecondTenant: a token that names another tenant is that tenant's administrator,
// whose keys are of it too, and what belongs to all tenants stays out of its reach
// (docs/access.md).
func TestSecondTenant(t *testing.T) {
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
