package invoke

import (
	"context"

	"github.com/toolkeep/toolkeep"
)

// limit reads the agent's overlay for the tool, on which rate, cache key, deadline,
// attempts and secrets depend. Then it takes the tool's bucket and a slot; for a
// waiting call the worker takes them.
func (p *Pipeline) limit(ctx context.Context, a *activeCall) (_ *toolkeep.Result, err error) {
	if p.Overlays != nil {
		if a.overlay, err = p.Overlays.Of(ctx, a.principal, a.tool); err != nil {
			return nil, err
		}
	}
	switch {
	case a.waits():
		return nil, nil
	case a.mode == modeDryRun:
		return nil, p.peekLimits(a)
	}
	return nil, p.takeLimits(a)
}

// takeLimits takes the overlay's own bucket last, so that a refusal by another limit
// costs nothing there.
func (p *Pipeline) takeLimits(a *activeCall) (err error) {
	own := a.overlay != nil && a.overlay.PerMinute != 0
	if own {
		if err := p.Overlays.Peek(a.principal, a.tool, a.overlay); err != nil {
			return err
		}
	}
	if a.slots, err = p.Limits.Take(a.principal, a.tool, a.above); err != nil || !own {
		return err
	}
	if err = p.Overlays.Take(a.principal, a.tool, a.overlay); err != nil {
		a.free()
	}
	return err
}

func (p *Pipeline) peekLimits(a *activeCall) error {
	if a.overlay != nil {
		if err := p.Overlays.Peek(a.principal, a.tool, a.overlay); err != nil {
			return err
		}
	}
	return p.Limits.Peek(a.principal, a.tool, false)
}
