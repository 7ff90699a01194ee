package cache

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	json "github.com/go-json-experiment/json"
)

// maxRemote bounds values of the shared store, in bytes.
const maxRemote = 100 << 10

// fetch returns L2's answer for a key; nil if it has none or fails.
func (c *Cache) fetch(ctx context.Context, k key) *answer {
	if c.config.Remote == nil || !c.remote.ready() {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, c.config.Patience)
	defer cancel()
	name := k.String()
	raw, err := c.config.Remote.Get(wait, name)
	c.remote.report(ctx, err)
	if err != nil || raw == nil || len(raw) > maxRemote {
		return nil
	}
	plain, err := c.seals.open(raw, name)
	if err != nil {
		c.remote.foreign.Add(1)
		c.config.Log.Debug("a cached search result is skipped", "error", err)
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
	if c.config.Remote == nil || !c.remote.ready() {
		return
	}
	plain, err := json.Marshal(a)
	if err != nil || len(plain) > maxRemote-64 {
		return
	}
	wait, cancel := context.WithTimeout(ctx, c.config.Patience)
	defer cancel()
	name := k.String()
	c.remote.report(ctx, c.config.Remote.Put(wait, name, c.seals.seal(plain, name), c.config.RemoteLife))
}

// guard pauses the use of a store after a failure, so that searches do not wait for it one by one.
type guard struct {
	clock func() time.Time
	log   *slog.Logger

	failures, foreign atomic.Int64
	down              atomic.Bool

	mu    sync.Mutex // guards what follows
	err   error      // of the last attempt; nil if it succeeded
	again time.Time  // when the next attempt is allowed
}

// ready reports whether the store may be used; while it fails, for one search at a time.
func (g *guard) ready() bool {
	if !g.down.Load() {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		return true
	}
	now := g.clock()
	if now.Before(g.again) {
		return false
	}
	g.again = now.Add(pause)
	return true
}

// report records the outcome of an attempt. ctx is the search's: its end says nothing about the
// store.
func (g *guard) report(ctx context.Context, err error) {
	if err == nil && !g.down.Load() || ctx.Err() != nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil {
		if g.err != nil {
			g.log.Info("the shared cache of searches answers again")
		}
		g.err = nil
		g.down.Store(false)
		return
	}
	g.failures.Add(1)
	if g.err == nil {
		g.log.Warn("the shared cache of searches does not answer; search goes on without it", "error", err)
	}
	g.err, g.again = err, g.clock().Add(pause)
	g.down.Store(true)
}

func (g *guard) state() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}
