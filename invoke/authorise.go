package invoke

import (
	"context"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
)

// authorise refuses a caller that is blocked after too many denials, and decides. Then it returns the key's stored answer,
// which only callers that may still call get.
func (p *Pipeline) authorise(ctx context.Context, a *activeCall) (*toolkeep.Result, error) {
	if err := p.decide(a); err != nil {
		return nil, err
	}
	switch {
	case a.kept == nil:
		return nil, nil
	case a.kept.AskHash != a.row.AskHash:
		return nil, keyConflict(a.kept)
	case a.mode == modeDryRun:
		return nil, nil
	}
	return p.answerKept(ctx, a)
}

// decide decides whether the principal may call the tool.
func (p *Pipeline) decide(a *activeCall) error {
	if a.mode != modeWorker { // the call was admitted before the block
		if err := p.Access.Blocked(a.principal); err != nil {
			p.noteDenied(a)
			return err
		}
	}
	a.decision = p.Access.Authorise(a.principal, a.tool, a.call)
	if !a.decision.Allowed {
		p.noteDenied(a)
		return denied(a.decision)
	}
	return nil
}

// noteDenied counts a refusal, except in a dry run.
func (p *Pipeline) noteDenied(a *activeCall) {
	if a.mode != modeDryRun {
		p.Access.NoteDenied(a.principal, a.row.ToolID)
	}
}

func denied(d access.Decision) *toolkeep.Error {
	e := toolkeep.NewError(d.Code, "%s", d.Reason)
	if d.Code == toolkeep.PermissionDenied {
		e.With("reason", "RBAC_DENIED")
	}
	checks := make([]any, 0, len(d.Checks))
	for _, c := range d.Checks {
		if !c.Allowed {
			checks = append(checks, map[string]any{"check": c.Name, "reason": c.Reason})
		}
	}
	return e.With("checks", checks)
}
