package invoke

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/toolkeep/toolkeep"
)

// running are this node's running calls that have a row.
type running struct {
	mu    sync.Mutex
	calls map[toolkeep.CallRef]runningCall
}

type runningCall struct {
	cancel context.CancelCauseFunc
	leased bool // a worker runs it, and renews its lease
}

// add makes the call cancellable until the returned func is called.
func (r *running) add(ref toolkeep.CallRef, cancel context.CancelCauseFunc, leased bool) (remove func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls == nil {
		r.calls = make(map[toolkeep.CallRef]runningCall)
	}
	r.calls[ref] = runningCall{cancel, leased}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.calls, ref)
	}
}

func (r *running) has(ref toolkeep.CallRef) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.calls[ref]
	return ok
}

func (r *running) cancel(ref toolkeep.CallRef, cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := r.calls[ref]; ok {
		c.cancel(cause)
	}
}

func (r *running) cancelAll(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.calls {
		c.cancel(cause)
	}
}

// leased returns the calls whose leases must be renewed, ordered by id.
func (r *running) leased() []toolkeep.CallRef {
	r.mu.Lock()
	defer r.mu.Unlock()
	var refs []toolkeep.CallRef
	for ref, c := range r.calls {
		if c.leased {
			refs = append(refs, ref)
		}
	}
	slices.SortFunc(refs, func(a, b toolkeep.CallRef) int { return cmp.Compare(a.ID, b.ID) })
	return refs
}

// watchers wait for changes of calls. A signal only means "look again", so a slow
// reader misses nothing relevant and delays no other reader.
type watchers struct {
	mu   sync.Mutex
	subs map[toolkeep.CallRef]map[chan struct{}]struct{}
}

// join returns a channel that gets a signal after every change of the call.
func (w *watchers) join(ref toolkeep.CallRef) (changed <-chan struct{}, leave func()) {
	ch := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.subs == nil {
		w.subs = make(map[toolkeep.CallRef]map[chan struct{}]struct{})
	}
	if w.subs[ref] == nil {
		w.subs[ref] = make(map[chan struct{}]struct{}, 1)
	}
	w.subs[ref][ch] = struct{}{}
	return ch, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.subs[ref], ch)
		if len(w.subs[ref]) == 0 {
			delete(w.subs, ref)
		}
	}
}

func (w *watchers) notify(ref toolkeep.CallRef) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.subs[ref] {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// onChange handles one committed change of the feed.
func (p *Pipeline) onChange(c toolkeep.Change) {
	switch c := c.(type) {
	case toolkeep.MoveCall:
		p.watchers.notify(c.Invocation.Ref())
	case toolkeep.ReportProgress:
		p.watchers.notify(c.Call)
	case toolkeep.RequestCancel:
		p.running.cancel(c.Call, causeCancelled)
		p.watchers.notify(c.Call)
	}
}
