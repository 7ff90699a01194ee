package flow

import (
	"sync"

	"github.com/toolkeep/toolkeep"
)

const (
	RingRows  = 8192     // changes that a ring holds at most
	RingBytes = 16 << 20 // bytes that they may take together
	RowCost   = 256      // bytes that a change costs beside its data, about
)

// Ring holds the newest committed changes for watchers that keep up. Sequence
// numbers inside are consecutive. A watcher copies a few rows under the lock
// and lets go of it before it hands them on, so none holds up the writer.
type Ring struct {
	mu     sync.Mutex
	rows   []toolkeep.Committed // circular
	size   []int32
	first  int64 // sequence number of the oldest row, head+1 if there is none
	head   int64
	bytes  int64
	more   chan struct{} // closed at the next change; nil while nobody waits
	closed bool
}

// Start readies an empty ring that goes on after head.
func (r *Ring) Start(head int64) {
	r.rows = make([]toolkeep.Committed, RingRows)
	r.size = make([]int32, RingRows)
	r.first, r.head = head+1, head
}

// Publish adds committed changes, whose numbers are consecutive from those of
// the first on. cost[i] is about how many bytes changes[i] holds. Changes that
// are there already are passed over. Where some before the first are missing
// nothing is added, and the answer is false.
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

// Skip says that what lies between the head and seq is not to be had any more,
// or only in the database.
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

// Close ends Next for everybody who has seen what there is.
func (r *Ring) Close() {
	r.mu.Lock()
	r.closed = true
	r.unlockAndWake()
}

// Bounds gives the numbers of the oldest change in the ring and of the newest
// that it had, and whether it is closed.
func (r *Ring) Bounds() (first, head int64, closed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.first, r.head, r.closed
}

// Next copies changes after seq to dst. Where the ring no longer has the next one,
// upTo says up to where the database has to be read. Where there is nothing
// new, more is closed when there is.
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
