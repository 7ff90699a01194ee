package cache

import (
	"context"

	json "github.com/go-json-experiment/json"
)

// use names this cache among those that share the store.
const use = "search"

// fetch returns L2's answer for a key; nil if it has none or fails.
func (c *Cache) fetch(ctx context.Context, k key) *answer {
	if c.remote == nil {
		return nil
	}
	plain := c.remote.Get(ctx, k.String())
	if plain == nil {
		return nil
	}
	a := &answer{}
	if err := json.Unmarshal(plain, a); err != nil {
		return nil // another build's
	}
	left := c.config.RemoteLife - c.config.Clock().Sub(a.Made)
	if left <= 0 {
		return nil
	}
	a.life = min(left, c.config.Life)
	a.weigh()
	return a
}

// send stores an answer in L2.
func (c *Cache) send(ctx context.Context, k key, a *answer) {
	if c.remote == nil {
		return
	}
	if plain, err := json.Marshal(a); err == nil {
		c.remote.Put(ctx, k.String(), plain, c.config.RemoteLife)
	}
}
