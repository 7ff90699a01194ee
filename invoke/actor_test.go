package invoke_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
)

// TestActor: the record and the events of the secrets say who sent a call in another's name, and the chain of who
// acts for whom is that of the call and not that of the credential.
func TestActor(t *testing.T) {
	for name, async := range map[string]bool{"at once": false, "it waited": true} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, func(c *invoke.Config) { c.Secrets = &countingSecrets{} })
			h.access.actAs = true
			tool := h.tool("x", func(m *toolkeep.Manifest) { m.Auth = []toolkeep.AuthSpec{{Type: "bearer", Secret: "secret://k"}} })
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
			if got := h.events("ai.agent.tool.secret.accessed"); len(got) != 1 || !strings.Contains(got[0], `"actor_did":"`+p.Subject+`"`) {
				t.Errorf("%s", got)
			}
		})
	}
}
