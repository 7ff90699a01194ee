package flow

import (
	"sort"
	"sync"
)

const (
	RingRows  = 8192     // most elements in a ring
	RingBytes = 16 << 20 // most bytes of all elements
	RowCost   = 256      // approximate bytes of an element besides its data
)

// Ring holds the newest committed elements, changes of the feed or entries of the journal,
// for watchers that keep up. Its sequence numbers increase and may have gaps. A watcher
// copies a few elements under the lock and releases it before passing them on, so no watcher
// delays the writer.
type Ring[T any] struct {
	mu     sync.Mutex
	seq    func(*T) int64
	rows   []T // circular
	size   []int32
	start  int   // slot of the oldest
	n      int   // how many there are
	from   int64 // everything from here (exclusive) to head is in the ring
	head   int64
	bytes  int64
	more   chan struct{} // closed at the next element; nil while there are no waiters
	closed bool
}

// Start initialises an empty ring whose next element follows head. seq returns an element's
// number.
func (r *Ring[T]) Start(head int64, seq func(*T) int64) {
	r.rows = make([]T, RingRows)
	r.size = make([]int32, RingRows)
	r.seq = seq
	r.from, r.head = head, head
}

// at returns the i-th oldest.
func (r *Ring[T]) at(i int) *T { return &r.rows[(r.start+i)%RingRows] }

// Publish adds committed elements: all that follow the number after, in order. cost[i] is the
// approximate size of list[i] in bytes. Elements already in the ring are skipped. If the ring
// does not reach to after, nothing is added and Publish returns false.
func (r *Ring[T]) Publish(after int64, list []T, cost []int32) bool {
	if len(list) == 0 {
		return true
	}
	r.mu.Lock()
	if after > r.head {
		r.mu.Unlock()
		return false
	}
	for i := range list {
		seq := r.seq(&list[i])
		if seq <= r.head {
			continue
		}
		if r.n == RingRows {
			r.drop()
		}
		slot := (r.start + r.n) % RingRows
		r.rows[slot], r.size[slot] = list[i], cost[i]
		r.n++
		r.head = seq
		r.bytes += int64(cost[i])
	}
	for r.bytes > RingBytes && r.n > 1 {
		r.drop()
	}
	r.unlockAndWake()
	return true
}

// Skip records that elements from the head up to seq are only in the database.
func (r *Ring[T]) Skip(seq int64) {
	r.mu.Lock()
	if seq > r.head {
		clear(r.rows)
		r.start, r.n, r.bytes = 0, 0, 0
		r.from, r.head = seq, seq
	}
	r.unlockAndWake()
}

func (r *Ring[T]) drop() {
	var none T
	r.from = r.seq(&r.rows[r.start])
	r.bytes -= int64(r.size[r.start])
	r.rows[r.start] = none
	r.start = (r.start + 1) % RingRows
	r.n--
}

func (r *Ring[T]) unlockAndWake() {
	more := r.more
	r.more = nil
	r.mu.Unlock()
	if more != nil {
		close(more)
	}
}

// Close ends Next for every watcher that has seen everything.
func (r *Ring[T]) Close() {
	r.mu.Lock()
	r.closed = true
	r.unlockAndWake()
}

// Head returns the number of the newest element, and whether the ring is closed.
func (r *Ring[T]) Head() (head int64, closed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.head, r.closed
}

// next copies elements after seq to dst. If the ring no longer has the next one, read the
// database up to upTo. If there is nothing new, more is closed at the next element.
func (r *Ring[T]) next(seq int64, dst []T) (n int, upTo int64, more <-chan struct{}, closed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case seq >= r.head:
		if r.closed {
			return 0, 0, nil, true
		}
		if r.more == nil {
			r.more = make(chan struct{})
		}
		return 0, 0, r.more, false
	case seq < r.from:
		return 0, r.from, nil, false
	}
	first := sort.Search(r.n, func(i int) bool { return r.seq(r.at(i)) > seq })
	for n < len(dst) && first+n < r.n {
		dst[n] = *r.at(first + n)
		n++
	}
	return n, 0, nil, false
}
