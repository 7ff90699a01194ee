package sqlite

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/toolkeep/toolkeep"
)

// request is one Apply on its way to the writer.
type request struct {
	ctx   context.Context
	steps []step
	plain bool // nothing but feed rows: it cannot fail by itself
	one   [1]step
	state atomic.Int32
	done  chan error
}

const (
	waiting = iota
	taken
	abandoned
)

// queue holds Applies until the writer takes them.
type queue struct {
	mu     sync.Mutex
	items  []*request
	closed bool
	max    int
	wake   chan struct{} // from empty to not, or closed
	full   chan struct{} // enough for a group
}

func (q *queue) start(max int) {
	q.max = max
	q.wake = make(chan struct{}, 1)
	q.full = make(chan struct{}, 1)
}

func (q *queue) put(r *request) error {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return toolkeep.ErrClosed
	}
	q.items = append(q.items, r)
	n := len(q.items)
	q.mu.Unlock()
	switch n {
	case 1:
		signal(q.wake)
	case q.max:
		signal(q.full)
	}
	return nil
}

// take moves up to max requests to dst. Those whose callers gave up are dropped.
func (q *queue) take(dst []*request) []*request {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for _, r := range q.items {
		if len(dst) == q.max {
			break
		}
		n++
		if r.state.CompareAndSwap(waiting, taken) {
			dst = append(dst, r)
		}
	}
	rest := copy(q.items, q.items[n:])
	clear(q.items[rest:])
	q.items = q.items[:rest]
	return dst
}

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}

// over tells whether nothing is queued and nothing ever will be.
func (q *queue) over() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed && len(q.items) == 0
}

func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	signal(q.wake)
}

// signal leaves a mark for whoever waits, or finds that one is there.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
