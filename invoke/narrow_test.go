package invoke_test

import (
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/capability"
)

// TestTokensNarrowRecords: the holder of a capability token neither sees nor cancels the calls of its
// subject, or their approvals, of tools that the token does not allow.
func TestTokensNarrowRecords(t *testing.T) {
	d := newDesk(t, "")
	d.tool("echo")
	ask := func(tool string) string {
		res, err := d.call(&toolkeep.Call{Tool: tool, Arguments: []byte(`{"n":1}`), Async: true})
		if err != nil {
			t.Fatal(err)
		}
		return res.InvocationID
	}
	waits, runs, again := ask("std.risky"), ask("std.echo"), ask("std.echo")
	d.settle()
	narrowed := func(g toolkeep.Grant) *toolkeep.Principal {
		p := *alice
		p.Narrowed = capability.OfGrant(&g)
		return &p
	}
	holder := narrowed(toolkeep.Grant{Tools: []string{"std.echo"}})
	ctx := t.Context()
	for name, p := range map[string]*toolkeep.Principal{"by the tool": holder, "by the operation": narrowed(toolkeep.Grant{Tools: []string{"*"}, Operations: []string{toolkeep.OperationRead}})} {
		_, err := d.pipeline.Get(ctx, p, waits)
		wantCode(t, toolkeep.AsError(err), toolkeep.ResourceNotFound)
		_, _, err = d.pipeline.Cancel(ctx, p, waits, "")
		wantCode(t, toolkeep.AsError(err), toolkeep.ResourceNotFound)
		for _, err := range d.pipeline.Watch(ctx, p, waits) {
			wantCode(t, toolkeep.AsError(err), toolkeep.ResourceNotFound)
		}
		_, err = d.control.Get(ctx, p, waits)
		wantCode(t, toolkeep.AsError(err), toolkeep.ResourceNotFound)
		if list := d.control.List(p, ""); len(list) != 0 {
			t.Errorf("%s: approvals are %+v", name, list)
		}
		if rows, n, err := d.pipeline.List(ctx, p, toolkeep.InvocationFilter{Limit: 1, Offset: 1}); err != nil || n != 2 || len(rows) != 1 || rows[0].ID != runs {
			t.Errorf("%s: the second of %d calls is %v %v", name, n, rows, err)
		}
		if got, err := d.pipeline.Get(ctx, p, again); err != nil || got.ID != again {
			t.Errorf("%s: a call that the token allows: %v", name, err)
		}
	}
	if list := d.control.List(alice, ""); len(list) != 1 {
		t.Errorf("without a token the approvals are %+v", list)
	}
	if done, _, err := d.pipeline.Cancel(ctx, holder, runs, ""); !done || err != nil {
		t.Errorf("a call that the token allows is cancelled: %v %v", done, err)
	}
	if row := d.row(waits); row.State != toolkeep.CallPendingApproval {
		t.Errorf("the hidden call is %s", row.State)
	}
}
