package catalog

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Fresh is the catalogue for calls: while the store is unreachable, known definitions serve for at most
// catalog.stale_for, since blocks made meanwhile are unknown. Without Watch they serve without limit.
type Fresh struct {
	*Catalog
	stale atomic.Bool
}

// Resolve is Catalog.Resolve, or E3003 if the known definitions are too old.
func (f *Fresh) Resolve(ctx context.Context, p *toolkeep.Principal, tool, rng string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error) {
	if f.stale.Load() {
		return toolkeep.Version{}, nil, toolkeep.NewError(toolkeep.RegistryUnavailable,
			"the store has been unreachable for longer than catalog.stale_for allows; try again when it is back").After(5 * time.Second)
	}
	return f.Catalog.Resolve(ctx, p, tool, rng, visible)
}

// Watch checks the store until ctx ends; limit is catalog.stale_for.
func (f *Fresh) Watch(ctx context.Context, check func(context.Context) error, limit time.Duration, now func() time.Time) {
	every := min(max(limit/20, 100*time.Millisecond), 5*time.Second)
	t := time.NewTicker(every)
	defer t.Stop()
	seen := now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		look, cancel := context.WithTimeout(ctx, max(every, time.Second))
		err := check(look)
		cancel()
		if err == nil {
			seen = now()
		}
		f.stale.Store(err != nil && now().Sub(seen) > limit)
	}
}
