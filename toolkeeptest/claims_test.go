package toolkeeptest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/node"
)

// TestClaims: a policy decides by the claims of access tokens, also of calls that waited, and the claims are in nothing that
// is answered, recorded, logged or stored.
func TestClaims(t *testing.T) {
	t.Parallel()
	const canary = "canary-department-4711"
	dir := t.TempDir()
	rules := `package toolkeep
allow if input.caller.claims.dept == "` + canary + `"
deny contains sprintf("%v of %v", [input.caller.claims.dept, input.caller.session]) if input.arguments.text == "quoted"
deny contains "no" if { input.arguments.text == "broken"; to_number(input.caller.claims.dept) > 1 }
require_approval contains sprintf("of %v", [input.caller.claims.dept]) if input.arguments.text == "risky"`
	if err := os.WriteFile(filepath.Join(dir, "p.rego"), []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newIssuer(t)
	k := s.start(t, map[string]string{"access.mode": "rbac+abac", "policy.path": dir, "policy.timeout": "10s"}, node.Options{})
	token := func(dept string) string {
		return s.token(k, "tools:call", map[string]any{"dept": dept, "jti": "canary-token-id", "sid": "canary-session", "email": "canary@example.com"})
	}
	ann, root := as(t, k, token(canary)), admin(t, k)
	var said strings.Builder
	hear := func(a answer) answer {
		said.WriteString(a.String())
		return a
	}
	id := hear(ann.call("std.hash", `{"text":"yes"}`)).success(t).id(t)
	hear(as(t, k, token("sales")).call("std.hash", `{"text":"yes"}`)).refused(t, toolkeep.ToolNotFound)
	hear(root.call("std.hash", `{"text":"yes"}`)).refused(t, toolkeep.PolicyDenied) // it sees all tools
	if a := hear(ann.call("std.hash", `{"text":"quoted"}`)).refused(t, toolkeep.PolicyDenied); !strings.Contains(a.body, "[claim] of") {
		t.Errorf("%s", a)
	}
	hear(ann.call("std.hash", `{"text":"broken"}`)).refused(t, toolkeep.PolicyEngineUnavailable)
	hear(ann.call("std.hash", `{"text":"quoted"}`, `"dry_run":true`)).want(t, 200)
	later := hear(ann.call("std.hash", `{"text":"later"}`, async)).want(t, 202).id(t)
	hear(ann.ended(later)).success(t)
	risky := hear(ann.call("std.hash", `{"text":"risky"}`, async)).want(t, 202).id(t)
	ann.reaches(risky, toolkeep.CallPendingApproval)
	hear(root.do("GET", "/api/v1/approvals/"+risky, "")).want(t, 200)
	hear(root.do("POST", "/api/v1/approvals/"+risky+"/approve", `{}`)).want(t, 200)
	hear(ann.ended(risky)).success(t)
	for _, path := range []string{"/invocations?page_size=100", "/audit/events?page_size=100", "/policies"} {
		hear(root.do("GET", "/api/v1"+path, "")).want(t, 200)
	}
	for id, by := range map[string]string{id: "data.toolkeep.allow", later: "data.toolkeep.allow", risky: "data.toolkeep.require_approval"} {
		by = `"allowed_by":["role agent, allow rule 1","policy ` + by + `"]`
		if a := root.do("GET", "/api/v1/invocations/"+id, ""); !strings.Contains(a.body, by) {
			t.Errorf("want %s: %s", by, a)
		}
	}
	if n := strings.Count(said.String(), `"allowed_by":["role agent, allow rule 1","policy data.toolkeep.allow"]`); n < 4 { // two calls in two lists
		t.Errorf("the lists have %d times what permitted a call", n)
	}
	files := map[string]string{"what was answered": said.String(), "the log": k.Log()}
	k.Close()
	err := filepath.WalkDir(k.Dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var b []byte
			b, err = os.ReadFile(path)
			files[path] = string(b)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range files {
		if i := strings.Index(text, "canary"); i >= 0 {
			t.Errorf("%s has a claim: %.200s", where, text[max(0, i-100):])
		}
	}
}
