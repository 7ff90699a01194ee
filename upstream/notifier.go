package upstream

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/toolkeep/toolkeep/mcp"
)

// maxQueued is how many notifications wait for one peer.
const maxQueued = 256

// notifier hands notifications to one Peer in their order, on a goroutine that lives
// only while there are some. Whoever pushes never waits: of a peer that is too slow
// the latest progress replaces the one before it, and what does not fit is dropped
// and counted.
type notifier struct {
	peer    Peer
	dropped *atomic.Int64

	mu     sync.Mutex
	queue  []note
	busy   bool
	closed bool
	idle   chan struct{} // closed when the queue has run empty; nil if nobody waits
}

type note struct {
	method string
	params []byte
}

func newNotifier(p Peer, dropped *atomic.Int64) *notifier {
	if p == nil {
		return nil
	}
	return &notifier{peer: p, dropped: dropped}
}

// push queues a notification. A nil notifier takes and forgets everything.
func (o *notifier) push(method string, params []byte) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch n := len(o.queue); {
	case o.closed:
		return
	case n >= maxQueued && method == mcp.NotificationProgress && o.queue[n-1].method == method:
		o.queue[n-1].params = params
		o.dropped.Add(1)
		return
	case n >= maxQueued:
		o.dropped.Add(1)
		return
	}
	o.queue = append(o.queue, note{method, params})
	if !o.busy {
		o.busy = true
		go o.drain()
	}
}

func (o *notifier) drain() {
	for {
		o.mu.Lock()
		if len(o.queue) == 0 || o.closed {
			o.busy, o.queue = false, nil
			if o.idle != nil {
				close(o.idle)
				o.idle = nil
			}
			o.mu.Unlock()
			return
		}
		n := o.queue[0]
		o.queue = o.queue[1:]
		o.mu.Unlock()
		o.peer.Notify(n.method, n.params)
	}
}

// flush waits until everything was handed over or ctx ends. What came before an
// answer must reach the caller before it.
func (o *notifier) flush(ctx context.Context) {
	if o == nil {
		return
	}
	o.mu.Lock()
	if !o.busy {
		o.mu.Unlock()
		return
	}
	if o.idle == nil {
		o.idle = make(chan struct{})
	}
	idle := o.idle
	o.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// close drops what waits; nothing new is handed over from now on.
func (o *notifier) close() {
	if o == nil {
		return
	}
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
}
