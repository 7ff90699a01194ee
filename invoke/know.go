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
// not applied when the call came. A call that is refused now leaves its key free.
func (p *Pipeline) recheck(ctx context.Context, a *activeCall) error {
	if p.Knowledge == nil {
		return nil
	}
	err := p.decideAgain(ctx, a)
	if err == nil {
		return nil
	}
	a.row.Sent = false
	e := toolkeep.AsError(err)
	e.NothingSent = true
	return e
}

func (p *Pipeline) decideAgain(ctx context.Context, a *activeCall) error {
	again, err := p.Knowledge.Check(ctx)
	if err != nil {
		return err
	}
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
		return err
	}
	return p.decide(a)
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
