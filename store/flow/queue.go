// Package flow connects the callers of a store to its database: a queue in which
// Applies wait for the process's single writer, and a ring of the newest changes that
// serves watchers.
//
// queue.mu and ring.mu are leaf locks: no other lock is taken while one is held.
package flow

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Request is one Apply on its way to the writer. S is the store's prepared form of a
// change.
type Request[S any] struct {
	Ctx   context.Context
	Steps []S
	Plain bool // for the store's use: no change in it can fail on its own
	Leave bool // the caller leaves when Ctx ends, also if the request was taken

	one   [1]S
	at    time.Time // when it was queued
	state atomic.Int32
	done  chan error
}

const (
	waiting = iota
	taken
	abandoned
)

// Answer completes a request that was taken.
func (r *Request[S]) Answer(err error) { r.done <- err }

// Queue holds Applies until the writer takes them.
type Queue[S any] struct {
	mu     sync.Mutex
	items  []*Request[S]
	group  time.Time // when the oldest request of the group under way was queued, zero without one
	under  int       // requests of that group
	busy   time.Time // since when the writer has worked for that group
	pace   pace
	closed bool
	max    int
	wake   chan struct{} // signalled when the queue becomes non-empty or is closed
	full   chan struct{} // signalled when a full group is queued

	spare    sync.Pool    // of *Request
	inflight atomic.Int64 // Applies in progress

	// The fields below belong to the writer: the size of the last group, a smoothed
	// rate of Applies a second, and the counts for the next estimate.
	last        int
	rate        float64
	counted     int
	countedFrom time.Time
	timer       *time.Timer
}

// worthGathering is how many more Applies must be expected within the delay. For fewer,
// waiting costs each caller more than a group saves.
const worthGathering = 2

// rateWindow is the period over which the rate of Applies is estimated; over a shorter
// one, a burst of three looks like a flood.
const rateWindow = 5 * time.Millisecond

// Start initialises the queue; max bounds the requests of one group.
func (q *Queue[S]) Start(max int) {
	q.max = max
	q.wake = make(chan struct{}, 1)
	q.full = make(chan struct{}, 1)
	q.timer = time.NewTimer(time.Hour)
	q.timer.Stop()
}

// Request returns an empty request. Pass it to Do or, if it is not needed, to Release.
func (q *Queue[S]) Request(ctx context.Context) *Request[S] {
	r, _ := q.spare.Get().(*Request[S])
	if r == nil {
		r = &Request[S]{done: make(chan error, 1)}
	}
	r.Ctx = ctx
	r.Plain, r.Leave = true, false
	r.Steps = r.one[:0]
	r.state.Store(waiting)
	return r
}

// Release recycles a request.
func (q *Queue[S]) Release(r *Request[S]) {
	clear(r.one[:])
	r.Steps = nil
	r.Ctx = nil
	q.spare.Put(r)
}

// Do queues the request and waits for its answer. When the request's context ends and the
// writer has not taken the request yet, Do gives up with the context's error. If it has, Do
// waits on; with Leave it returns a *toolkeep.PendingError.
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
				return ctx.Err() // still in the queue, so not reused
			}
			if r.Leave && len(r.done) == 0 {
				return &toolkeep.PendingError{End: r.done} // the writer has it, so not reused
			}
		}
	}
	err := <-r.done
	q.Release(r)
	return err
}

func (q *Queue[S]) put(r *Request[S]) error {
	r.at = time.Now()
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

// Gather waits for a group to form: while several callers Apply at a high rate, it
// waits a little for more requests. At a low rate each is committed at once. A negative
// delay disables gathering.
func (q *Queue[S]) Gather(delay time.Duration) {
	if alone := q.inflight.Load() <= 1 && q.last <= 1; alone || delay < 0 || q.rate*delay.Seconds() < worthGathering {
		return
	}
	select {
	case <-q.full: // from an earlier group
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

// Take moves the next group to dst. It drops requests whose callers gave up.
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
	if len(dst) == 0 { // their callers gave up, and the writer waits
		q.busy = time.Time{}
	} else {
		q.group, q.under = dst[0].at, len(dst)
		if q.busy.IsZero() {
			q.busy = time.Now()
		}
		q.count(len(dst))
	}
	return dst
}

// Answered is called by the writer when it has answered all that it took.
func (q *Queue[S]) Answered() {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	q.pace.add(q.under, now.Sub(q.busy))
	q.group, q.under, q.busy = time.Time{}, 0, time.Time{}
	if len(q.items) != 0 { // what the writer does before it takes them delays them
		q.busy = now
	}
}

// Wait is how long a request that comes now will wait, as far as is known: paced is what the requests before
// it will take at the pace of the last groups, and wait is that, and at least as long as the oldest of them has waited.
// 0 if there is none before it.
func (q *Queue[S]) Wait() (wait, paced time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, oldest := len(q.items)+q.under, q.group
	if n == 0 {
		return 0, 0
	}
	if oldest.IsZero() {
		oldest = q.items[0].at
	}
	paced = q.pace.expect(n, q.max)
	return max(time.Since(oldest), paced), paced
}

// count updates the rate.
func (q *Queue[S]) count(n int) {
	q.last = n
	q.counted += n
	now := time.Now()
	if passed := now.Sub(q.countedFrom); passed >= rateWindow {
		q.rate += (float64(q.counted)/passed.Seconds() - q.rate) / 2
		q.counted, q.countedFrom = 0, now
	}
}

// Len returns the number of queued requests.
func (q *Queue[S]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}

// Wake receives a value when something was queued or the queue was closed.
func (q *Queue[S]) Wake() <-chan struct{} { return q.wake }

// Over reports whether the queue is closed and empty.
func (q *Queue[S]) Over() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed && len(q.items) == 0
}

// Close stops accepting requests: Do returns ErrClosed. Queued requests are still
// taken.
func (q *Queue[S]) Close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	signal(q.wake)
}

// signal signals c, unless a signal is already pending.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
