package invoke

import (
	"context"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
)

// authorise decides, then gives what the key already got: an answer is given
// again only to those who may still call.
func (p *Pipeline) authorise(ctx context.Context, f *flight) (*toolkeep.Result, error) {
	d := p.Access.Authorise(f.principal, f.tool(), f.call)
	f.decision = d
	if !d.Allowed {
		if !f.looks() {
			p.Access.NoteDenied(f.principal)
		}
		return nil, denied(d)
	}
	switch {
	case f.kept == nil || f.worker:
		return nil, nil
	case f.kept.AskHash != f.row.AskHash:
		return nil, keyConflict(f.kept)
	case f.looks():
		return nil, nil
	}
	return p.answerKept(ctx, f)
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
