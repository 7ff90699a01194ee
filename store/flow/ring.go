package flow

import (
	"sync"

	"github.com/toolkeep/toolkeep"
)

const (
	RingRows  = 8192     // most changes in a ring
	RingBytes = 16 << 20 // most bytes of all changes
	RowCost   = 256      // approximate bytes of a change besides its data
)

// Ring holds the newest committed changes for watchers that keep up. Its sequence
// numbers are consecutive. A watcher copies a few rows under the lock and releases it
// before passing them on, so no watcher delays the writer.
type Ring struct {
	mu     sync.Mutex
	rows   []toolkeep.Committed // circular
	size   []int32
	first  int64 // sequence number of the oldest row, head+1 if there is none
	head   int64
	bytes  int64
	more   chan struct{} // closed at the next change; nil while there are no waiters
	closed bool
}

// Start initialises an empty ring whose next change follows head.
func (r *Ring) Start(head int64) {
	r.rows = make([]toolkeep.Committed, RingRows)
	r.size = make([]int32, RingRows)
	r.first, r.head = head+1, head
}

// Publish adds committed changes with consecutive numbers. cost[i] is the approximate
// size of changes[i] in bytes. Changes already in the ring are skipped. If there is a
// gap before the first, nothing is added and Publish returns false.
func (r *Ring) Publish(changes []toolkeep.Committed, cost []int32) bool {
	if len(changes) == 0 {
		return true
	}
	r.mu.Lock()
	if changes[0].Seq > r.head+1 {
		r.mu.Unlock()
		return false
	}
	for i := range changes {
		if changes[i].Seq <= r.head {
			continue
		}
		if r.head-r.first+1 == RingRows {
			r.drop()
		}
		r.head++
		slot := r.head % RingRows
		r.rows[slot], r.size[slot] = changes[i], cost[i]
		r.bytes += int64(cost[i])
	}
	for r.bytes > RingBytes && r.first < r.head {
		r.drop()
	}
	r.unlockAndWake()
	return true
}

// Skip records that changes from the head up to seq are not available, or only in the
// database.
func (r *Ring) Skip(seq int64) {
	r.mu.Lock()
	if seq > r.head {
		clear(r.rows)
		r.first, r.head, r.bytes = seq+1, seq, 0
	}
	r.unlockAndWake()
}

func (r *Ring) drop() {
	slot := r.first % RingRows
	r.bytes -= int64(r.size[slot])
	r.rows[slot] = toolkeep.Committed{}
	r.first++
}

func (r *Ring) unlockAndWake() {
	more := r.more
	r.more = nil
	r.mu.Unlock()
	if more != nil {
		close(more)
	}
}

// Close ends Next for every watcher that has seen all changes.
func (r *Ring) Close() {
	r.mu.Lock()
	r.closed = true
	r.unlockAndWake()
}

// Bounds returns the numbers of the ring's oldest and newest change, and whether it is
// closed.
func (r *Ring) Bounds() (first, head int64, closed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.first, r.head, r.closed
}

// Next copies changes after seq to dst. If the ring no longer has the next one, read
// the database up to upTo. If there is nothing new, more is closed at the next change.
func (r *Ring) Next(seq int64, dst []toolkeep.Committed) (n int, upTo int64, more <-chan struct{}, closed bool) {
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
	case seq+1 < r.first:
		return 0, r.first - 1, nil, false
	}
	for n < len(dst) && seq < r.head {
		seq++
		dst[n] = r.rows[seq%RingRows]
		n++
	}
	return n, 0, nil, false
}
