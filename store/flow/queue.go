// Package flow is what stands between the callers of a store and its database:
// the queue in which Applies wait for the one writer of the process, and the
// ring of newest changes from which watchers are served.
//
// queue.mu and ring.mu are leaves: nothing else is locked while one is held.
package flow

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Request is one Apply on its way to the writer. S is the store's own form of a change.
type Request[S any] struct {
	Ctx   context.Context
	Steps []S
	Plain bool // the store's own: nothing in it can fail by itself

	one   [1]S
	state atomic.Int32
	done  chan error
}

const (
	waiting = iota
	taken
	abandoned
)

// Answer ends a request that was taken.
func (r *Request[S]) Answer(err error) { r.done <- err }

// Queue holds Applies until the writer takes them.
type Queue[S any] struct {
	mu     sync.Mutex
	items  []*Request[S]
	closed bool
	max    int
	wake   chan struct{} // from empty to not, or closed
	full   chan struct{} // enough for a group

	spare    sync.Pool    // of *Request
	inflight atomic.Int64 // Applies between entry and answer

	// What follows belongs to the writer: the size of the last group, a smoothed
	// rate of Applies a second, and what is counted of them for the next estimate.
	last        int
	rate        float64
	counted     int
	countedFrom time.Time
	timer       *time.Timer
}

// worthGathering is how many more Applies must be expected within the delay. For
// fewer, waiting costs every caller more than a group saves.
const worthGathering = 2

// rateWindow is how long Applies are counted for one estimate of their rate;
// within less, a burst of three looks like a flood.
const rateWindow = 5 * time.Millisecond

// Start readies the queue; max bounds the requests of one group.
func (q *Queue[S]) Start(max int) {
	q.max = max
	q.wake = make(chan struct{}, 1)
	q.full = make(chan struct{}, 1)
	q.timer = time.NewTimer(time.Hour)
	q.timer.Stop()
}

// Request gives an empty request. It goes to Do or, if nothing comes of it, to Release.
func (q *Queue[S]) Request(ctx context.Context) *Request[S] {
	r, _ := q.spare.Get().(*Request[S])
	if r == nil {
		r = &Request[S]{done: make(chan error, 1)}
	}
	r.Ctx = ctx
	r.Plain = true
	r.Steps = r.one[:0]
	r.state.Store(waiting)
	return r
}

// Release takes a request back.
func (q *Queue[S]) Release(r *Request[S]) {
	clear(r.one[:])
	r.Steps = nil
	r.Ctx = nil
	q.spare.Put(r)
}

// Do queues the request and waits for its answer. The end of the request's
// context gives up only while the writer has not taken it.
func (q *Queue[S]) Do(r *Request[S]) error {
	q.inflight.Add(1)
	defer q.inflight.Add(-1)
	if err := q.put(r); err != nil {
		q.Release(r)
		return err
	}
	if cancel := r.Ctx.Done(); cancel != nil {
		select {
		case err := <-r.done:
			q.Release(r)
			return err
		case <-cancel:
			ctx := r.Ctx
			if r.state.CompareAndSwap(waiting, abandoned) {
				return ctx.Err() // the queue still has it, so it is not reused
			}
		}
	}
	err := <-r.done
	q.Release(r)
	return err
}

func (q *Queue[S]) put(r *Request[S]) error {
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

// Gather waits for a group: while Applies of several callers arrive fast, it
// gives further ones a little time to come. At a low rate each is committed at
// once. A negative delay does not gather.
func (q *Queue[S]) Gather(delay time.Duration) {
	if alone := q.inflight.Load() <= 1 && q.last <= 1; alone || delay < 0 || q.rate*delay.Seconds() < worthGathering {
		return
	}
	select {
	case <-q.full: // of an earlier group
	default:
	}
	if q.Len() >= q.max {
		return
	}
	q.timer.Reset(delay)
	select {
	case <-q.timer.C:
	case <-q.full:
		q.timer.Stop()
	}
}

// Take moves the next group to dst. Requests whose callers gave up are dropped.
func (q *Queue[S]) Take(dst []*Request[S]) []*Request[S] {
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
	if len(dst) != 0 {
		q.count(len(dst))
	}
	return dst
}

// count keeps the rate.
func (q *Queue[S]) count(n int) {
	q.last = n
	q.counted += n
	now := time.Now()
	if passed := now.Sub(q.countedFrom); passed >= rateWindow {
		q.rate += (float64(q.counted)/passed.Seconds() - q.rate) / 2
		q.counted, q.countedFrom = 0, now
	}
}

// Len counts what is queued.
func (q *Queue[S]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}

// Wake carries a value when something was queued, or the queue was closed.
func (q *Queue[S]) Wake() <-chan struct{} { return q.wake }

// Over tells whether nothing is queued and nothing ever will be.
func (q *Queue[S]) Over() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed && len(q.items) == 0
}

// Close lets nothing more in: Do gives ErrClosed. What is queued is still taken.
func (q *Queue[S]) Close() {
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
