package invoke_test

import (
	"context"
	"testing"

	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
)

// signedAccess finds one signature right; the tenth failure and those after it are blocked.
type signedAccess struct {
	*fakeAccess
	failed int
}

func (a *signedAccess) SignedCall(_ context.Context, _ *toolkeep.Principal, c *toolkeep.Call, _ map[string]any) error {
	if c.Signature.Value == "right" {
		return nil
	}
	if a.failed++; a.failed >= 10 {
		return toolkeep.NewError(toolkeep.AuthFailuresLimited, "blocked")
	}
	return toolkeep.NewError(toolkeep.SignatureInvalid, "wrong")
}

// TestWrongCallSignature: a call with a wrong signature takes no id in the record, whatever else is
// wrong with it, and what a block refuses leaves no record.
func TestWrongCallSignature(t *testing.T) {
	a := &signedAccess{}
	h := newHarness(t, func(c *invoke.Config) {
		a.fakeAccess = c.Access.(*fakeAccess)
		c.Access = a
	})
	h.tool("read")
	rows := func() int {
		all, _, err := h.store.ReadJournal(t.Context(), toolkeep.JournalPosition{}, 1000)
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	fault := func() *toolkeep.Error { return toolkeep.NewError(toolkeep.InvalidParameters, "a fault") }
	wrong := func(change func(*toolkeep.Call)) (*toolkeep.Call, string) {
		id := uuid.NewString()
		c := &toolkeep.Call{Tool: "std.read", ID: id, Signature: &toolkeep.CallSignature{Value: "wrong"}}
		change(c)
		return c, id
	}
	for name, x := range map[string]struct {
		change func(*toolkeep.Call)
		want   toolkeep.Code
	}{
		"a wrong signature":                {func(*toolkeep.Call) {}, toolkeep.SignatureInvalid},
		"and an unreadable message":        {func(c *toolkeep.Call) { c.Fault = fault() }, toolkeep.InvalidParameters},
		"and arguments that are no object": {func(c *toolkeep.Call) { c.Arguments = []byte("[") }, toolkeep.MalformedRequest},
		"and an id that is none":           {func(c *toolkeep.Call) { c.Session = "a\x00" }, toolkeep.SignatureInvalid},
		"and no tool":                      {func(c *toolkeep.Call) { c.Tool = "" }, toolkeep.SignatureInvalid},
	} {
		c, id := wrong(x.change)
		failed := a.failed
		_, err := h.call(c)
		wantCode(t, err, x.want)
		if a.failed != failed+1 {
			t.Errorf("%s was not counted", name)
		}
		if err.InvocationID == id || err.InvocationID == "" || h.row(err.InvocationID).Code != x.want {
			t.Errorf("%s is recorded as %s", name, err.InvocationID)
		}
		right := &toolkeep.Call{Tool: "std.read", ID: id, Signature: &toolkeep.CallSignature{Value: "right"}}
		if res, err := h.call(right); err != nil || res.InvocationID != id {
			t.Errorf("%s: the call itself got %+v, %v", name, res, err)
		}
	}
	a.failed = 10
	before := rows()
	for _, change := range []func(*toolkeep.Call){func(*toolkeep.Call) {}, func(c *toolkeep.Call) { c.Fault = fault() }, func(c *toolkeep.Call) { c.Key = "k" }} {
		c, _ := wrong(change)
		_, err := h.call(c)
		wantCode(t, err, toolkeep.AuthFailuresLimited)
		if err.InvocationID != "" {
			t.Errorf("a blocked call is recorded as %s", err.InvocationID)
		}
	}
	if after := rows(); after != before || before == 0 {
		t.Errorf("%d rows before the block, %d after", before, after)
	}
}
