package invoke

import (
	"context"
	"time"

	"github.com/toolkeep/toolkeep"
)

// know makes sure that the node knows enough of what others changed to decide the call. After a
// gap, such as a stop of the process since the caller was authenticated, the key is looked at again.
func (p *Pipeline) know(ctx context.Context, a *activeCall) error {
	if p.Knowledge == nil {
		return nil
	}
	a.knew = p.Knowledge.Applied()
	looked, err := p.Knowledge.Check(ctx)
	if err != nil || !looked {
		return err
	}
	return p.refreshKey(ctx, a)
}

// refreshKey looks the key of the call up again. A token's roles are not changed by other nodes.
func (p *Pipeline) refreshKey(ctx context.Context, a *activeCall) error {
	if a.principal.KeyID == "" {
		return nil
	}
	now, err := p.Access.Refresh(ctx, a.principal)
	if err == nil {
		a.principal = now
	}
	return err
}

// recheck decides the call again, before anything is sent, if the node may have decided it by
// knowledge that was too old: it slept meanwhile, or the commit of the claim saw changes that were
// not applied when the call came. A call that is refused now leaves its key free. If the node
// slept, or the claim is old, another node may have ended the call: then its caller gets what the
// record says, and nothing is sent.
func (p *Pipeline) recheck(ctx context.Context, a *activeCall) (*toolkeep.Result, error) {
	slept, err := false, error(nil)
	if p.Knowledge != nil {
		slept, err = p.decideAgain(ctx, a)
	}
	var lost *toolkeep.Invocation
	if err == nil && a.stored && (slept || p.leaseIsOld(a)) {
		lost, err = p.lost(ctx, a)
	}
	switch {
	case err != nil:
		a.row.Sent = false
		e := toolkeep.AsError(err)
		e.NothingSent = true
		return nil, e
	case lost == nil:
		return nil, nil
	case a.mode == modeWorker:
		return nil, takenOver()
	}
	p.Log.Warn("a call was not sent: before it was, its lease lapsed and another node ended it", "invocation_id", a.row.ID, "tool_id", a.row.ToolID)
	return p.answerOf(lost)
}

// leaseIsOld reports whether half the time of a call's lease is over since it was taken, by the
// monotonic clock or by the wall clock, which goes on while a machine sleeps.
func (p *Pipeline) leaseIsOld(a *activeCall) bool {
	now, until := p.storeNow(), a.row.LeaseUntil
	return min(until.Sub(now), until.Round(0).Sub(now.Round(0))) < p.Lease/2
}

// lost returns the row of a call that is not this node's any more, nil if it is.
func (p *Pipeline) lost(ctx context.Context, a *activeCall) (*toolkeep.Invocation, error) {
	ctx, cancel := context.WithTimeout(ctx, rowTimeout)
	defer cancel()
	row, err := p.Invocations.Get(ctx, a.row.Ref())
	if err != nil {
		return nil, recordUnavailable(err)
	}
	if row.State == toolkeep.CallRunning && row.LeaseOwner == p.Node {
		return nil, nil
	}
	return row, nil
}

// decideAgain tells whether the node had to look up what others changed since the call came.
func (p *Pipeline) decideAgain(ctx context.Context, a *activeCall) (slept bool, err error) {
	if slept, err = p.Knowledge.Check(ctx); err == nil {
		err = p.decideBy(ctx, a, slept)
	}
	if err != nil { // what allowed the call before does not any more
		a.row.AllowedRole, a.row.AllowedPolicy = "", ""
	}
	return slept, err
}

// decideBy decides the call again if again says so, or if its claim saw changes that were not
// applied when the call came.
func (p *Pipeline) decideBy(ctx context.Context, a *activeCall, again bool) error {
	if s, ok := p.Store.(HeadSeer); ok && a.stored {
		if seen := s.SeenHead(); seen > a.knew {
			again = true
			if err := p.awaitApplied(ctx, seen); err != nil {
				return err
			}
		}
	}
	if again || a.stored {
		if err := p.refreshKey(ctx, a); err != nil {
			return err
		}
	}
	if !again {
		return nil
	}
	visible := func(t *toolkeep.Tool) bool { return p.Access.Visible(a.principal, t) }
	if _, _, err := p.Catalog.Resolve(ctx, a.principal, a.tool.ID, a.tool.Version, visible); err != nil {
		p.unseen(ctx, a, a.tool.ID, a.tool.Version, err)
		return err
	}
	if a.standing != nil && p.Approvals.Standing(&a.row, a.owed) == nil {
		return toolkeep.NewError(toolkeep.ApprovalUnavailable, "the standing approval that covered the call was taken back; send the call again").With("reason", "ESCALATION_ERROR")
	}
	owed := a.decision.Approval
	if err := p.decide(ctx, a); err != nil {
		return err
	}
	if need := a.decision.Approval; need != nil && owed == nil {
		return toolkeep.NewError(toolkeep.PolicyDenied, "while the call was under way the policy changed, and now demands a person's approval (%s); send the call again", need.Reason).
			With("reason", "ABAC_DENIED")
	}
	return nil
}

// awaitApplied waits for what the commit of a claim saw, at most rowTimeout.
func (p *Pipeline) awaitApplied(ctx context.Context, seen int64) error {
	ctx, cancel := context.WithTimeout(ctx, rowTimeout)
	defer cancel()
	err := p.Knowledge.AwaitApplied(ctx, seen)
	if err == nil {
		return nil
	}
	return toolkeep.NewError(toolkeep.RegistryUnavailable,
		"this node has not read yet what others have changed, and the call may not be allowed any more; nothing was executed").
		After(time.Second).Because(err)
}
