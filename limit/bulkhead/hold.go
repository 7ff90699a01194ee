package bulkhead

import (
	"sync"
	"time"
)

// Hold is the places of one attempt. The zero Hold has none.
type Hold struct {
	b      *Bulkheads
	own    set
	covers set // own, and those of the calls above it
	above  *Hold

	mu    sync.Mutex
	holds bool
	due   bool // the answer came, and it is to have them again
	over  bool
	since time.Duration // when it got them, from the start of the process
}

func (h *Hold) got(b *Bulkheads, s set, above *Hold) {
	h.b, h.own, h.covers, h.above, h.since, h.holds = b, s, s, above, time.Since(b.start), true
	if above != nil {
		h.covers |= above.covers
	}
}

// Release gives the places back when the attempt ends. Whatever is called after it has no effect.
func (h *Hold) Release() { h.give(true) }

// Pause gives them back while the attempt waits for its caller's answer.
func (h *Hold) Pause() { h.give(false) }

func (h *Hold) give(over bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over, h.due = h.over || over, false
	if !h.holds || h.own == 0 {
		h.holds = false
		return
	}
	h.holds = false
	took := time.Since(h.b.start) - h.since
	for i := range h.b.gates {
		if h.own&(1<<i) != 0 {
			h.b.gates[i].was(took)
		}
	}
	h.b.put(h.own)
	h.b.wake()
}

// Resume ends a pause. The places are taken again by Retake, once the call has all else that it must wait for: what waits for
// them must not wait for a call that has them already.
func (h *Hold) Resume() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.due = h.b != nil && !h.holds && !h.over
}

// Retake takes the places again whose pause has ended, also those of the calls above, over the limit if it must be: the tool has
// waited for its answer already. A nil Hold has none.
func (h *Hold) Retake() {
	for ; h != nil; h = h.above {
		h.retake()
	}
}

func (h *Hold) retake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.due {
		return
	}
	h.due, h.holds, h.since = false, true, time.Since(h.b.start)
	for i := range h.b.gates {
		if h.own&(1<<i) != 0 {
			h.b.gates[i].used.Add(1)
		}
	}
}

// was learns how long a place was held: an eighth of the difference. Of two at the same moment one may be lost.
func (g *gate) was(d time.Duration) {
	old := g.held.Load()
	if old == 0 {
		g.held.Store(max(1, int64(d)))
		return
	}
	g.held.Store(max(1, old+(int64(d)-old)/8))
}
