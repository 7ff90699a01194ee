package cache

import (
	"sync"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
)

// maxCounts bounds the cached counts; above it they are dropped.
const maxCounts = 4096

// counts are the numbers of tools that audiences see.
type counts struct {
	mu sync.Mutex
	of map[countKey]count
}

type countKey struct{ tenant, audience string }

type count struct {
	sum [32]byte // of the snapshot
	n   int
}

var _ discover.Counter = (*Cache)(nil)

// Count returns how many tools of the index visible lets through, computed once per audience and
// state of the index.
func (c *Cache) Count(ask discover.Query, visible func(*toolkeep.Tool) bool) int {
	if ask.Audience == "" {
		return len(c.index.Tools(visible))
	}
	k, view := countKey{ask.Session.Tenant, ask.Audience}, c.index.Snapshot(ask.Session.Tenant)
	c.counts.mu.Lock()
	known, ok := c.counts.of[k]
	c.counts.mu.Unlock()
	if ok && known.sum == view.Sum() {
		return known.n
	}
	n := len(c.index.Tools(visible))
	if c.index.Snapshot(ask.Session.Tenant) != view {
		return n
	}
	c.counts.mu.Lock()
	defer c.counts.mu.Unlock()
	if c.counts.of == nil || len(c.counts.of) >= maxCounts {
		c.counts.of = map[countKey]count{}
	}
	c.counts.of[k] = count{view.Sum(), n}
	return n
}
