package resultcache

import (
	"context"
	"time"
)

const (
	// listEvery is how often the list of warm results is written.
	listEvery = time.Minute
	// maxWarm bounds the list, so that it fits in a shared value.
	maxWarm = 3000
)

// warmName is what names the list among the shared values.
var warmName = []byte("warm results")

// sendWarm writes which results of tools with cache.warm are used most on this node, for the nodes that start later.
func (c *Cache) sendWarm(ctx context.Context) {
	most := min(c.config.Warm, maxWarm)
	if most <= 0 || !c.sharing.warms.Load() {
		return
	}
	var list []byte
	for e := range c.store.Hottest() {
		if e.Value.warm {
			if list = append(list, e.Key[:]...); len(list) >= most*len(e.Key) {
				break
			}
		}
	}
	if len(list) > 0 {
		c.config.Shared.Put(ctx, c.config.Shared.Name(warmName), list, maxShared)
	}
}

// warmUp reads the results of the list into memory, hottest first, for as long as Config.Shared answers.
func (c *Cache) warmUp(ctx context.Context) {
	if c.config.Warm <= 0 || c.config.Off {
		return
	}
	list := c.config.Shared.Get(ctx, c.config.Shared.Name(warmName))
	n := 0
	for ; len(list) >= len(Key{}) && n < c.config.Warm && ctx.Err() == nil && c.config.Shared.Err() == nil; n++ {
		c.fetch(ctx, Key(list[:len(Key{})]))
		list = list[len(Key{}):]
	}
	if n > 0 {
		c.config.Log.Info("the result cache was warmed", "results", c.Stats().Entries, "listed", n)
	}
}
