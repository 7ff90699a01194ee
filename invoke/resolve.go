package invoke

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
)

// unresolved are the codes of a range that no version fits, or none that the caller may see.
var unresolved = []toolkeep.Code{toolkeep.ToolNotFound, toolkeep.ToolVersionNotFound, toolkeep.VersionConflict}

// resolve finds the version to call, of those that the call's capability token allows.
func (p *Pipeline) resolve(ctx context.Context, a *activeCall) (*toolkeep.Result, error) {
	seen, exists := p.Access.Sees(a.principal, a.call), p.Access.Visible
	if strings.HasPrefix(a.call.Tool, catalog.CapabilityPrefix) { // one among those that may be called
		exists = p.Access.Callable
	}
	v, warnings, err := p.Catalog.Resolve(ctx, a.principal, a.call.Tool, a.call.Range, func(t *toolkeep.Tool) bool { return exists(seen, t) })
	if seen != a.principal && err != nil && slices.Contains(unresolved, toolkeep.AsError(err).Code) { // what the token alone does not allow, the decision refuses and says so
		if whole, more, e := p.Catalog.Resolve(ctx, a.principal, a.call.Tool, a.call.Range, func(t *toolkeep.Tool) bool { return exists(a.principal, t) }); e == nil {
			v, warnings, err = whole, more, nil
		}
	}
	unseen := err
	if err != nil {
		p.unseen(ctx, a, cmp.Or(a.call.Meant, a.call.Tool), a.call.Range, err)
		if a.asker == nil {
			return nil, err
		}
		if v, warnings, err = p.Catalog.Resolve(ctx, a.asker, a.call.Tool, a.call.Range, func(t *toolkeep.Tool) bool { return p.Access.Visible(a.asker, t) }); err != nil {
			return nil, unseen
		}
	}
	if a.asker != nil && !p.Access.Visible(a.asker, v.Tool) {
		return nil, toolkeep.NewError(toolkeep.ToolNotFound, "the caller would get a version that you may not see")
	}
	a.tool, a.warnings = v.Tool, warnings
	a.row.ToolID = a.tool.ID // a capability may have been asked for
	m := a.tool.Manifest
	a.row.Version, a.row.Digest, a.row.Category = a.tool.Version, a.tool.Digest, m.Category
	a.row.Kind, a.row.Writes = m.Execution.Kind, a.tool.Writes()
	if _, ok := p.Executors[m.Execution.Kind]; !ok {
		return nil, toolkeep.NewError(toolkeep.SandboxUnavailable, "this build cannot execute tools of kind %s", m.Execution.Kind)
	}
	if err := catalog.Unmet(m); err != nil {
		return nil, err
	}
	if unseen != nil {
		a.hidden = true
		return nil, unseen
	}
	return nil, checkComposition(&a.asked, a.tool.ID)
}

// checkComposition refuses a tool that would call itself, and a composition that is too
// large; both before the cache is read.
func checkComposition(a *asked, tool string) error {
	if slices.Contains(a.ancestors, tool) {
		return toolkeep.NewError(toolkeep.CompositionCycle, "%s would call itself", tool).
			With("chain", append(slices.Clone(a.ancestors), tool))
	}
	if a.composition.calls.Add(1) > maxComposition {
		return toolkeep.NewError(toolkeep.CompositionTooLarge, "one composition may have %d invocations", maxComposition)
	}
	return nil
}
