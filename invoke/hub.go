package invoke

import (
	"context"
	"sync"

	"github.com/toolkeep/toolkeep"
)

// hub tells those who wait for a call that its row changed. It lives off the
// feed; a signal says only "look again", so a slow reader misses nothing that
// matters and slows nobody.
type hub struct {
	mu   sync.Mutex
	subs map[toolkeep.CallRef]map[chan struct{}]struct{}
	// cancels are the running calls of this node.
	cancels map[toolkeep.CallRef]context.CancelCauseFunc
}

func newHub() *hub {
	return &hub{
		subs:    make(map[toolkeep.CallRef]map[chan struct{}]struct{}),
		cancels: make(map[toolkeep.CallRef]context.CancelCauseFunc),
	}
}

// join gives a channel that holds a signal after every change of the call.
func (h *hub) join(ref toolkeep.CallRef) (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subs[ref] == nil {
		h.subs[ref] = make(map[chan struct{}]struct{}, 1)
	}
	h.subs[ref][ch] = struct{}{}
	return ch, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.subs[ref], ch)
		if len(h.subs[ref]) == 0 {
			delete(h.subs, ref)
		}
	}
}

// hold lets a cancel request reach the running call until the returned func is called.
func (h *hub) hold(ref toolkeep.CallRef, cancel context.CancelCauseFunc) func() {
	h.mu.Lock()
	h.cancels[ref] = cancel
	h.mu.Unlock()
	return func() {
		h.mu.Lock()
		delete(h.cancels, ref)
		h.mu.Unlock()
	}
}

// holds tells whether this node runs the call.
func (h *hub) holds(ref toolkeep.CallRef) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cancels[ref] != nil
}

// stopAll cancels every held call.
func (h *hub) stopAll(cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, cancel := range h.cancels {
		cancel(cause)
	}
}

// saw handles one committed change.
func (h *hub) saw(c toolkeep.Change) {
	var ref toolkeep.CallRef
	switch t := c.(type) {
	case toolkeep.MoveCall:
		ref = t.Invocation.Ref()
	case toolkeep.ReportProgress:
		ref = t.Call
	case toolkeep.RequestCancel:
		ref = t.Call
	default:
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := c.(toolkeep.RequestCancel); ok {
		if cancel := h.cancels[ref]; cancel != nil {
			cancel(causeCancelled)
		}
	}
	for ch := range h.subs[ref] {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}
