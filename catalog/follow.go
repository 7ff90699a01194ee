package catalog

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
)

// follower connects the goroutine that reads the feed to the one that builds snapshots.
//
// Invariants: pending holds the catalogue's changes that are read but not built, in order; shown <= read; every
// change up to shown is in the current snapshot.
type follower struct {
	mu      sync.Mutex
	pending []toolkeep.Committed
	read    int64
	shown   int64
	waiting int           // waiting callers of await and catchUp
	moved   chan struct{} // closed and replaced when shown moves
	wake    chan struct{} // capacity one: there is something to build or to show
	closed  bool

	position toolkeep.FeedPosition // shown, for catchUp
}

func (f *follower) reset(seq int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pending, f.read, f.shown, f.closed = nil, seq, seq, false
	f.position.Reach(seq)
	f.moved = make(chan struct{})
	f.wake = make(chan struct{}, 1)
}

// close releases all waiters.
func (f *follower) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.closed = true
		close(f.moved)
	}
}

func (f *follower) poke() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// put accepts one change of the feed. Most are calls, which it ignores.
func (f *follower) put(c toolkeep.Committed) {
	ours := sideDocument(c.Change) != nil
	switch c.Change.(type) {
	case toolkeep.PublishVersion, toolkeep.SetLifecycle:
		ours = true
	}
	f.mu.Lock()
	if ours {
		f.pending = append(f.pending, c)
	}
	f.read = max(f.read, c.Seq)
	if ours || f.waiting > 0 {
		f.poke()
	}
	f.mu.Unlock()
}

// take returns all pending changes and the feed position they reach.
func (f *follower) take() ([]toolkeep.Committed, int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changes := f.pending
	f.pending = nil
	return changes, f.read
}

func (f *follower) reached(seq int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if seq > f.shown && !f.closed {
		f.shown = seq
		f.position.Reach(seq)
		close(f.moved)
		f.moved = make(chan struct{})
	}
}

// follow reads the feed and resumes after a failure.
func (c *Catalog) follow(ctx context.Context, after int64) {
	const shortest, longest = 50 * time.Millisecond, 5 * time.Second
	pause := shortest
	for ctx.Err() == nil {
		var broken error
		for change, err := range c.store.Watch(ctx, after) {
			if err != nil {
				broken = err
				break
			}
			after = change.Seq
			pause = shortest
			c.follower.put(change)
		}
		if ctx.Err() != nil {
			return
		}
		if broken == nil {
			broken = errors.New("the feed ended")
		}
		c.log.Warn("the catalogue lost the change feed; it is read again", "error", broken, "after", after, "pause", pause)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		pause = min(2*pause, longest)
	}
}

// build makes a snapshot from the changes collected while the last one was made.
func (c *Catalog) build(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.follower.wake:
		}
		changes, seq := c.follower.take()
		if len(changes) > 0 {
			c.show(c.current.Load().next(changes, c.unreadable))
		}
		c.follower.reached(seq)
	}
}

// catchUp returns when the snapshot includes everything that is committed now, on any node.
func (c *Catalog) catchUp(ctx context.Context) error {
	f := &c.follower
	f.mu.Lock()
	f.waiting++
	f.poke()
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.waiting--
		f.mu.Unlock()
	}()
	return f.position.Await(ctx, c.store)
}

// Applied and AwaitApplied make Catalog a toolkeep.FeedFollower.
func (c *Catalog) Applied() int64 { return c.follower.position.Applied() }

func (c *Catalog) AwaitApplied(ctx context.Context, seq int64) error { return c.await(ctx, seq) }

// await returns when the snapshot includes the feed up to seq.
func (c *Catalog) await(ctx context.Context, seq int64) error {
	f := &c.follower
	f.mu.Lock()
	f.waiting++
	defer func() {
		f.mu.Lock()
		f.waiting--
		f.mu.Unlock()
	}()
	for f.shown < seq {
		if f.closed {
			f.mu.Unlock()
			return toolkeep.ErrClosed
		}
		moved := f.moved
		f.poke()
		f.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
		f.mu.Lock()
	}
	f.mu.Unlock()
	return nil
}
