package invoke

import (
	"context"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
)

// approve refuses a call that owes an approval: this build has no approval queue.
func (p *Pipeline) approve(_ context.Context, a *activeCall) (*toolkeep.Result, error) {
	owes, why := owesApproval(a)
	if !owes {
		return nil, nil
	}
	return nil, toolkeep.NewError(toolkeep.ApprovalUnavailable, "%s needs a person's approval (%s) and no approval service is configured", a.tool.Ref(), why).
		With("reason", "ESCALATION_ERROR")
}

// owesApproval reports whether a person must approve the call, and why: the manifest, the risk or
// the caller asks for it (access.NeedsApproval), or the policy.
func owesApproval(a *activeCall) (bool, string) {
	if owes, why := access.NeedsApproval(a.tool, a.call); owes {
		return true, why
	}
	if need := a.decision.Approval; need != nil {
		return true, need.Reason
	}
	return false, ""
}
