package upstream

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/toolkeep/toolkeep/mcp"
)

// maxQueued bounds the notifications queued for one peer.
const maxQueued = 256

// notifier delivers notifications to one Peer in order, on a goroutine that lives only
// while some are queued. Pushing never blocks: for a slow peer, newer progress replaces
// older, and what does not fit is dropped and counted.
type notifier struct {
	peer    Peer
	dropped *atomic.Int64

	mu     sync.Mutex
	queue  []note
	busy   bool
	closed bool
	idle   chan struct{} // closed when the queue is empty; nil without a waiter
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

// push queues a notification. A nil notifier ignores it.
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

// flush waits until the queue is delivered or ctx ends: notifications must reach the
// caller before the response they preceded.
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

// close drops the queue and ignores later notifications.
func (o *notifier) close() {
	if o == nil {
		return
	}
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
}
