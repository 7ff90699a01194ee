package invoke_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
)

// TestNamedAsExported: a call by the name of an export is the call of the tool, for its record and its idempotency key; of
// a tool that the caller does not see the record keeps the name.
func TestNamedAsExported(t *testing.T) {
	h := newHarness(t)
	h.tool("write", writes)
	h.tool("hidden")
	first, err := h.call(&toolkeep.Call{Tool: "std__write", Key: "k", Arguments: []byte(`{"n":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	again, err := h.call(&toolkeep.Call{Tool: "std.write", Key: "k", Arguments: []byte(`{"n":1}`)})
	if err != nil || !again.Replayed || again.InvocationID != first.InvocationID || h.row(first.InvocationID).ToolID != "std.write" {
		t.Errorf("by the id: %+v %v, recorded as %s", again, err, h.row(first.InvocationID).ToolID)
	}
	h.catalog.gone.Store(true)
	_, err = h.call(&toolkeep.Call{Tool: "std__write"})
	if wantCode(t, err, toolkeep.ToolBlocked); h.row(err.InvocationID).ToolID != "std.write" {
		t.Errorf("of a tool that does not run it is recorded as %s", h.row(err.InvocationID).ToolID)
	}
	h.catalog.gone.Store(false)
	h.access.hidden = "std.hidden"
	h.access.deny.Store(true)
	_, err = h.call(&toolkeep.Call{Tool: "std__hidden"})
	wantCode(t, err, toolkeep.ToolNotFound)
	row := h.row(err.InvocationID)
	if row.ToolID != "std__hidden" || row.Code != toolkeep.PermissionDenied || !strings.Contains(string(row.Details), `"tool_id":"std.hidden"`) || !strings.Contains(string(row.Details), `"key_id":"k1"`) {
		t.Errorf("the record has %s %s %s", row.ToolID, row.Code, row.Details)
	}
	if own := must(h.pipeline.Get(t.Context(), alice, err.InvocationID)); strings.Contains(own.ToolID+own.Message+string(own.Details), "std.hidden") || strings.Contains(string(own.Details), "key_id") {
		t.Errorf("the caller reads %+v", own)
	}
}

// TestExplainAs: for another, an explanation goes on where the tool does not exist for the principal, also during a block,
// and takes nothing of the principal's limits; a tool that does not exist for who asks stays unknown.
func TestExplainAs(t *testing.T) {
	h := newHarness(t)
	h.tool("hidden")
	h.tool("open", func(m *toolkeep.Manifest) { m.Fallback = "std.hidden" })
	h.access.hiddenFrom, h.access.hidden = "alice", "std.hidden"
	h.access.deny.Store(true)
	h.access.blocked.Store(toolkeep.NewError(toolkeep.AuthFailuresLimited, "blocked"))
	eve := &toolkeep.Principal{Tenant: "acme", Subject: "eve"}
	explain := func(asker, as *toolkeep.Principal, tool string) *invoke.Explanation {
		t.Helper()
		x, err := h.pipeline.ExplainAs(t.Context(), asker, as, &toolkeep.Call{Tool: tool, Arguments: []byte(`{"n":1}`)})
		if err != nil {
			t.Fatal(err)
		}
		return x.(*invoke.Explanation)
	}
	x := explain(eve, alice, "std.hidden")
	resolve, authorise := x.Steps[invoke.StepResolve], x.Steps[invoke.StepAuthorise]
	if x.Execute || x.Caller != "alice" || resolve.Code != toolkeep.ToolNotFound || authorise.Verdict != "refuse" || len(authorise.Checks) != 1 || x.Steps[invoke.StepClaim].Verdict != "pass" {
		t.Errorf("of a hidden tool: %+v", x)
	}
	if h.limits.taken.Load() != 0 || h.access.denials.Load()+h.access.unknowns.Load() != 0 {
		t.Errorf("%d requests are taken, %d denials counted", h.limits.taken.Load(), h.access.denials.Load())
	}
	h.access.deny.Store(false)
	h.access.policy = &fakePolicy{decide: allow, hides: "std.hidden"}
	if x = explain(eve, alice, "std.hidden"); x.Steps[invoke.StepAuthorise].Verdict != "refuse" || !strings.Contains(fmt.Sprint(x.Steps[invoke.StepAuthorise].Checks), "the policy's rule visible hides the tool") {
		t.Errorf("of a tool that the policy hides: %+v", x.Steps[invoke.StepAuthorise])
	}
	h.access.policy = nil
	h.access.deny.Store(true)
	x = explain(alice, alice, "std.hidden")
	if x.Version != "" || x.Steps[invoke.StepAuthorise].Verdict != "unknown" {
		t.Errorf("of a tool that exists for neither: %+v", x)
	}
	if x = explain(alice, eve, "std.hidden"); x.Version != "" || x.Steps[invoke.StepResolve].Code != toolkeep.ToolNotFound {
		t.Errorf("of a version that the caller sees and who asks does not: %+v", x)
	}
	h.access.deny.Store(false)
	if x = explain(alice, eve, "std.open"); !x.Execute || x.Fallback == nil || x.Fallback.Tool != "" {
		t.Errorf("the fallback that who asks does not see is told: %+v", x.Fallback)
	}
	if x = explain(eve, eve, "std.open"); x.Fallback == nil || x.Fallback.Tool != "std.hidden" {
		t.Errorf("the fallback is %+v", x.Fallback)
	}
}
