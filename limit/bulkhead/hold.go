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

	mu    sync.Mutex
	holds bool
	over  bool
	since time.Duration // when it got them, from the start of the process
}

func (h *Hold) got(b *Bulkheads, s set, above *Hold) {
	h.b, h.own, h.covers, h.since, h.holds = b, s, s, time.Since(b.start), true
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
	h.over = h.over || over
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

// Resume takes them again when the answer is there, over the limit if it must be: the tool waits for it already.
func (h *Hold) Resume() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.b == nil || h.holds || h.over {
		return
	}
	h.holds, h.since = true, time.Since(h.b.start)
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
