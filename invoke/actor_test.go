package invoke_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
)

// TestActor: the record, those of the calls that its tool made, and the events of the secrets say who sent a call in another's name, and the chain of who
// acts for whom is that of the call and not that of the credential.
func TestActor(t *testing.T) {
	for name, async := range map[string]bool{"at once": false, "it waited": true} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, func(c *invoke.Config) { c.Secrets = &countingSecrets{} })
			h.access.actAs = true
			tool := h.tool("x", func(m *toolkeep.Manifest) { m.Auth = []toolkeep.AuthSpec{{Type: "bearer", Secret: "secret://k"}} })
			below := h.tool("below")
			h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
				if x.Tool.ID == tool.ID {
					if _, err := x.Child.Invoke(ctx, nil, &toolkeep.Call{Tool: below.ID}); err != nil {
						return nil, err
					}
				}
				return &toolkeep.Output{Value: "done", HasValue: true}, nil
			}
			p := *alice
			p.OnBehalf, p.Chain = "zoe", []string{"zoe", "planner"}
			res, err := h.pipeline.Invoke(t.Context(), &p, &toolkeep.Call{Tool: tool.ID, Subject: "porter", User: "bob", Async: async})
			if err != nil {
				t.Fatal(err)
			}
			h.work()
			row := h.row(res.InvocationID)
			if row.State != toolkeep.CallSucceeded || row.Subject != "porter" || row.OnBehalf != "bob" || row.Actor != p.Subject || !slices.Equal(row.Chain, []string{"bob", "zoe", "planner", p.Subject}) {
				t.Errorf("%s of %s for %s by %q, %q", row.State, row.Subject, row.OnBehalf, row.Actor, row.Chain)
			}
			rows, n, err := h.store.Invocations().List(t.Context(), toolkeep.InvocationFilter{Tenant: p.Tenant, Parent: res.InvocationID, Limit: 10})
			if err != nil || n != 1 || rows[0].Subject != "porter" || rows[0].Actor != p.Subject {
				t.Errorf("calls of the tool: %d, %+v, %v", n, rows, err)
			}
			if got := h.events("ai.agent.tool.secret.accessed"); len(got) != 1 || !strings.Contains(got[0], `"actor_did":"`+p.Subject+`"`) {
				t.Errorf("%s", got)
			}
		})
	}
}
