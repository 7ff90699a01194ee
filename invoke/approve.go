package invoke

import (
	"context"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
)

// approve stops a call that owes an approval: this build has no approval queue,
// so nobody could decide it.
func (p *Pipeline) approve(_ context.Context, f *flight) (*toolkeep.Result, error) {
	owes, why := access.NeedsApproval(f.tool(), f.call)
	if !owes {
		return nil, nil
	}
	return nil, toolkeep.NewError(toolkeep.ApprovalUnavailable, "%s needs a person's approval (%s) and no approval service is configured", f.tool().Ref(), why).
		With("reason", "ESCALATION_ERROR")
}
