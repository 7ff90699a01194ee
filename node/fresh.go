package node

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
)

// fresh is the catalogue as calls see it: known definitions serve while the store
// is away, and no longer than catalog.stale_for, since what was blocked meanwhile
// cannot be known.
type fresh struct {
	*catalog.Catalog
	stale atomic.Bool
}

// Resolve is the catalogue's, or E3003 where what it knows is too old.
func (f *fresh) Resolve(p *toolkeep.Principal, tool, rng string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error) {
	if f.stale.Load() {
		return toolkeep.Version{}, nil, toolkeep.NewError(toolkeep.RegistryUnavailable,
			"the store has been away for longer than known definitions may serve (catalog.stale_for); try again when it is back").After(5 * time.Second)
	}
	return f.Catalog.Resolve(p, tool, rng, visible)
}

// watch looks at the store until ctx ends.
func (f *fresh) watch(ctx context.Context, check func(context.Context) error, limit time.Duration, now func() time.Time) {
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
