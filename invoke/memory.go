package invoke

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
)

const (
	// memoryFactor is what a result takes in memory for each byte received: the body, its
	// tree and its text.
	memoryFactor = 3
	// memoryFree is what each result may take without being counted.
	memoryFree = 1 << 20
	// memoryStep is what a result reserves at once.
	memoryStep = 4 << 20
)

// memory bounds what all results take together while they are read and inspected. A call
// that is over the bound waits before it is sent, and where more of its result arrives; the
// oldest of them always goes on, so that they do not wait for each other.
type memory struct {
	limit int64 // bytes; 0 is no limit

	mu      sync.Mutex
	used    int64
	holders list.List     // of *resultMemory, oldest first
	changed chan struct{} // closed when used falls
}

// HeldByResults returns the bytes that results take now, about, and what they may take together; limit 0 is none.
func (p *Pipeline) HeldByResults() (used, limit int64) {
	p.memory.mu.Lock()
	defer p.memory.mu.Unlock()
	return p.memory.used, p.memory.limit
}

// admit waits until the call with that id may be sent. E3811 if its time ends before, E3902 if it is cancelled.
func (m *memory) admit(ctx context.Context, id string) *toolkeep.Error {
	if m.limit <= 0 {
		return nil
	}
	for {
		m.mu.Lock()
		if m.used < m.limit {
			m.mu.Unlock()
			return nil
		}
		changed := m.wait()
		m.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			if !late(ctx) {
				e := ended(ctx, id, nil, false)
				e.NothingSent = true
				return e
			}
			e := toolkeep.NewError(toolkeep.Backpressure, "the results of other calls take the memory that there is for results (calls.result_memory); nothing was sent, so try again").
				After(time.Second).Because(context.Cause(ctx))
			e.NothingSent = true
			return e
		}
	}
}

// wait returns what is closed when memory becomes free. m.mu is held.
func (m *memory) wait() <-chan struct{} {
	if m.changed == nil {
		m.changed = make(chan struct{})
	}
	return m.changed
}

// resultMemory is what one call's result takes. One goroutine uses it at a time.
type resultMemory struct {
	of       *memory
	received int64
	held     int64
	place    *list.Element // among the holders; nil if nothing is held
}

// grow adds received bytes and waits until there is room for them. The error is that of ctx.
func (r *resultMemory) grow(ctx context.Context, bytes int64) error {
	r.received += bytes
	want := r.want()
	if want <= r.held {
		return nil
	}
	m := r.of
	for {
		m.mu.Lock()
		if front := m.holders.Front(); m.used+want-r.held <= m.limit || front == nil || front == r.place {
			r.take(want)
			m.mu.Unlock()
			return nil
		}
		changed := m.wait()
		m.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// note counts a result that is there, of which received bytes are known.
func (r *resultMemory) note(received int64) {
	r.received = max(r.received, received)
	if want := r.want(); want > r.held {
		r.of.mu.Lock()
		r.take(want)
		r.of.mu.Unlock()
	}
}

// want is what has to be held for the bytes received.
func (r *resultMemory) want() int64 {
	if n := r.received * memoryFactor; r.of.limit > 0 && n > memoryFree {
		return (n + memoryStep - 1) / memoryStep * memoryStep
	}
	return 0
}

// take holds want bytes. The memory's lock is held.
func (r *resultMemory) take(want int64) {
	r.of.used += want - r.held
	r.held = want
	if r.place == nil {
		r.place = r.of.holders.PushBack(r)
	}
}

// free gives everything back.
func (r *resultMemory) free() {
	r.received = 0
	if r.place == nil {
		return
	}
	m := r.of
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= r.held
	m.holders.Remove(r.place)
	r.held, r.place = 0, nil
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
}
