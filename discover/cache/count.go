package cache

import (
	"sync"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
)

// maxCounts bounds the cached counts; above it they are dropped. A count has an entry for each category.
const maxCounts = 512

// counts are the numbers of tools that audiences see.
type counts struct {
	mu sync.Mutex
	of map[countKey]count
}

type countKey struct{ tenant, audience string }

type count struct {
	sum        [32]byte // of the snapshot
	byCategory map[string]int
}

var _ discover.Counter = (*Cache)(nil)

// Count returns how many tools of the index visible lets through, by category, computed once per audience and
// state of the index.
func (c *Cache) Count(ask discover.Query, visible func(*toolkeep.Tool) bool) map[string]int {
	if ask.Audience == "" {
		return discover.ByCategory(c.index.Tools(visible))
	}
	k, view := countKey{ask.Session.Tenant, ask.Audience}, c.index.Snapshot(ask.Session.Tenant)
	c.counts.mu.Lock()
	known, ok := c.counts.of[k]
	c.counts.mu.Unlock()
	if ok && known.sum == view.Sum() {
		return known.byCategory
	}
	n := discover.ByCategory(c.index.Tools(visible))
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
