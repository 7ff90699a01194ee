package invoke_test

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/access/policy"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/store/sqlite"
)

// TestChildrenAreAuthorised: a tool that calls a tool does so with its caller's rights alone, and what is refused is
// recorded beside the call that asked for it.
func TestChildrenAreAuthorised(t *testing.T) {
	const callsBoth = `allow: [{tools: ["std.*"]}]`
	for name, c := range map[string]struct {
		role   string
		policy string
		inner  func(*toolkeep.Manifest)
		want   toolkeep.Code // what the tool that calls is told
		record toolkeep.Code // what the record has, of a leaf that does not exist for the caller; "" as want
	}{
		"may call both":         {role: callsBoth},
		"may only see the leaf": {role: `allow: [{tools: [std.outer]}, {tools: [std.inner], actions: [see]}]`, want: toolkeep.PermissionDenied},
		"does not see the leaf": {role: `allow: [{tools: [std.outer]}]`, want: toolkeep.ToolNotFound, record: toolkeep.PermissionDenied},
		"is denied the leaf":    {role: callsBoth + `, deny: [{tools: [std.inner], actions: [invoke]}]`, want: toolkeep.ToolNotFound, record: toolkeep.PermissionDenied},
		"is denied its risk":    {role: `allow: [{tools: ["std.*"], max_risk: low}]`, inner: func(m *toolkeep.Manifest) { m.Risk = "medium" }, want: toolkeep.ToolNotFound, record: toolkeep.PermissionDenied},
		"lacks its role":        {role: callsBoth, inner: func(m *toolkeep.Manifest) { m.RequiredRoles = []string{"vault"} }, want: toolkeep.ToolNotFound, record: toolkeep.PermissionDenied},
		"the policy denies it":  {role: callsBoth, policy: "deny contains \"not from here\" if input.tool.id == \"std.inner\"\n\nallow := true", want: toolkeep.ToolNotFound, record: toolkeep.PolicyDenied},
	} {
		t.Run(name, func(t *testing.T) {
			caller := &toolkeep.Principal{}
			var acc *access.Access
			h := newHarness(t, func(conf *invoke.Config) {
				config := access.Config{Store: conf.Store.(*sqlite.Store), Roles: must(access.ParseRoles([]byte("roles:\n  bot: {" + c.role + "}\n"))),
					Load: func(context.Context) ([]toolkeep.APIKey, int64, error) { return nil, 0, nil }}
				if c.policy != "" {
					dir := t.TempDir()
					if err := os.WriteFile(filepath.Join(dir, "p.rego"), []byte("package toolkeep\n\n"+c.policy+"\n"), 0o600); err != nil {
						t.Fatal(err)
					}
					config.Policy = must(policy.New(t.Context(), policy.Config{Path: dir, Timeout: 20 * time.Second}))
				}
				acc = must(access.New(config))
				if err := acc.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				admin := &toolkeep.Principal{Tenant: "acme", Subject: "root", Roles: []string{access.Admin}, Permissions: []string{"*"}}
				_, text, err := acc.CreateKey(t.Context(), admin, toolkeep.APIKey{Subject: "bot", Roles: []string{"bot"}})
				if err != nil {
					t.Fatal(err)
				}
				caller = must(acc.Authenticate(t.Context(), text, "192.0.2.1"))
				conf.Access = acc
			})
			t.Cleanup(acc.Stop) // before the harness closes
			h.tool("outer")
			if c.inner == nil {
				c.inner = func(*toolkeep.Manifest) {}
			}
			h.tool("inner", c.inner)
			var child error
			inner := 0
			h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
				if strings.HasSuffix(x.Tool.ID, "inner") {
					inner++
				} else {
					_, child = x.Child.Invoke(ctx, nil, &toolkeep.Call{Tool: "std.inner"})
				}
				return &toolkeep.Output{Value: "done", HasValue: true}, nil
			}
			res, err := h.pipeline.Invoke(t.Context(), caller, &toolkeep.Call{Tool: "std.outer"})
			if err != nil || res.Error != nil {
				t.Fatalf("the outer call: %+v %v", res, err)
			}
			if c.want == "" != (child == nil) || child != nil && toolkeep.AsError(child).Code != c.want || (inner == 1) != (c.want == "") {
				t.Errorf("the inner call ran %d times and gave %v, want %q", inner, child, c.want)
			}
			rows, n, err := h.store.Invocations().List(t.Context(), toolkeep.InvocationFilter{Tenant: "acme", Parent: res.InvocationID, Limit: 10})
			if err != nil || n != 1 || rows[0].Code != cmp.Or(c.record, c.want) || rows[0].Subject != "bot" {
				t.Errorf("the records of the inner call: %+v %v", rows, err)
			}
		})
	}
}
