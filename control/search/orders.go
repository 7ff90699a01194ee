package search

import (
	"slices"
	"sync"
)

// reindexer carries out orders one at a time: taking many tools apart takes seconds of a
// core. Those that come meanwhile are folded into one.
type reindexer struct {
	do    func(folded) // one call at a time
	spawn func(func()) // runs what calls do

	mu      sync.Mutex
	waiting folded
	running bool
}

// folded are orders, one for each tenant and kind. It holds no more ids than were asked
// for since the last one was carried out, each once.
type folded map[orderOf]order

type orderOf struct {
	tenant     string
	embeddings bool
}

// take is given an order and does not wait for it.
func (r *reindexer) take(tenant string, o order) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting == nil {
		r.waiting = folded{}
	}
	of := orderOf{tenant, o.Embeddings}
	all := r.waiting[of]
	all.Embeddings = o.Embeddings
	if all.All = all.All || o.All; all.All {
		all.IDs = nil
	} else {
		all.IDs = slices.Concat(all.IDs, o.IDs)
		slices.Sort(all.IDs)
		all.IDs = slices.Compact(all.IDs)
	}
	r.waiting[of] = all
	if !r.running {
		r.running = true
		r.spawn(r.work)
	}
}

func (r *reindexer) work() {
	for {
		r.mu.Lock()
		now := r.waiting
		r.waiting = nil
		if r.running = len(now) > 0; !r.running {
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		r.do(now)
	}
}
