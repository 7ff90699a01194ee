package invoke

import (
	"context"
	"slices"

	"github.com/toolkeep/toolkeep"
)

// resolve finds the one version that the call is about.
func (p *Pipeline) resolve(_ context.Context, f *flight) (*toolkeep.Result, error) {
	v, warnings, err := p.Catalog.Resolve(f.principal, f.call.Tool, f.call.Range, func(t *toolkeep.Tool) bool {
		return p.Access.Visible(f.principal, t)
	})
	if err != nil {
		return nil, err
	}
	f.version, f.warnings = v, warnings
	m := v.Tool.Manifest
	f.row.Version, f.row.Digest, f.row.Category = v.Tool.Version, v.Tool.Digest, m.Category
	f.row.Kind, f.row.Writes = m.Execution.Kind, v.Tool.Writes()
	if _, ok := p.Executors[m.Execution.Kind]; !ok {
		return nil, toolkeep.NewError(toolkeep.SandboxUnavailable, "this build cannot execute tools of kind %s", m.Execution.Kind)
	}
	if err := f.checkChain(); err != nil {
		return nil, err
	}
	return nil, nil
}

// checkChain refuses a tool that would call itself, and a composition that grew
// too large; both before anything is recalled.
func (f *flight) checkChain() error {
	if slices.Contains(f.chain, f.tool().ID) {
		return toolkeep.NewError(toolkeep.CompositionCycle, "%s would call itself", f.tool().ID).
			With("chain", append(slices.Clone(f.chain), f.tool().ID))
	}
	if n := f.root.calls.Add(1); n > maxComposition {
		return toolkeep.NewError(toolkeep.CompositionTooLarge, "one composition may have %d invocations", maxComposition)
	}
	return nil
}
