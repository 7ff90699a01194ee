package gate

import (
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

type signingAuth struct{ fakeAuth }

func (signingAuth) ResultKey() ([]byte, error) {
	return []byte("0123456789abcdef0123456789abcdef"), nil
}

// TestSignsOutcomesAlone tests that a record without its outcome is not signed as a success that brought back nothing.
func TestSignsOutcomesAlone(t *testing.T) {
	g := New(Config{Auth: signingAuth{}})
	for name, c := range map[string]struct {
		change func(*toolkeep.Result)
		signed bool
	}{
		"a result":          {func(*toolkeep.Result) {}, true},
		"a result of none":  {func(r *toolkeep.Result) { r.Output = nil }, true},
		"an erased outcome": {func(r *toolkeep.Result) { r.Output, r.NoOutcome = nil, true }, false},
		"a refusal":         {func(r *toolkeep.Result) { r.State = toolkeep.CallRefused }, false},
		"a call under way":  {func(r *toolkeep.Result) { r.State = toolkeep.CallRunning }, false},
	} {
		r := &toolkeep.Result{InvocationID: "i", ToolID: "a.b", ToolVersion: "1.0.0", State: toolkeep.CallSucceeded, Output: []byte("1"), EndedAt: time.Unix(1_800_000_000, 0)}
		c.change(r)
		over := g.SignAnswer(&toolkeep.Principal{Tenant: "default"}, r, []byte(`{"content":[]`))
		if over != c.signed || (r.Signature != nil) != c.signed || len(r.Warnings) > 0 {
			t.Errorf("%s: %v, %v, %v", name, over, r.Signature, r.Warnings)
		}
	}
}
