package invoke

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/toolkeep/toolkeep"
)

// running are this node's running calls that have a row.
type running struct {
	mu       sync.Mutex
	calls    map[toolkeep.CallRef]runningCall
	interest chan<- struct{}
}

type runningCall struct {
	cancel    context.CancelCauseFunc
	cancelled bool
}

// add makes the call cancellable until the returned func is called.
func (r *running) add(ref toolkeep.CallRef, cancel context.CancelCauseFunc) (remove func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls == nil {
		r.calls = make(map[toolkeep.CallRef]runningCall)
	}
	r.calls[ref] = runningCall{cancel: cancel}
	signal(r.interest)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.calls, ref)
	}
}

// hold keeps the lease of a call that was claimed, and makes it cancellable, until leave is called,
// which may be called twice. A keyed call outlives its caller's connection: a caller that lost the
// answer repeats the call with the key, and must not find the work half done. Cancel still
// reaches it. What a worker runs is held already.
func (p *Pipeline) hold(ctx context.Context, a *activeCall) (held context.Context, leave func()) {
	if !a.stored || a.mode == modeWorker {
		return ctx, func() {}
	}
	if a.row.Key != "" && a.mode == modeLive {
		ctx = context.WithoutCancel(ctx)
	}
	held, stop := context.WithCancelCause(ctx)
	remove := p.running.add(a.row.Ref(), stop)
	return held, func() {
		remove()
		stop(nil)
	}
}

func (r *running) any() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.calls) > 0
}

func (r *running) has(ref toolkeep.CallRef) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.calls[ref]
	return ok
}

// cancel reports whether it cancelled a call that was not cancelled yet.
func (r *running) cancel(ref toolkeep.CallRef, cause error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.calls[ref]
	if !ok || c.cancelled {
		return false
	}
	c.cancelled = true
	r.calls[ref] = c
	c.cancel(cause)
	return true
}

func (r *running) cancelAll(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.calls {
		c.cancel(cause)
	}
}

// held returns the calls, whose leases must be renewed, ordered by id.
func (r *running) held() []toolkeep.CallRef {
	r.mu.Lock()
	defer r.mu.Unlock()
	refs := slices.Collect(maps.Keys(r.calls))
	slices.SortFunc(refs, func(a, b toolkeep.CallRef) int { return cmp.Compare(a.ID, b.ID) })
	return refs
}

// watchers wait for changes of calls. A signal only means "look again", so a slow
// reader misses nothing relevant and delays no other reader.
type watchers struct {
	mu       sync.Mutex
	subs     map[toolkeep.CallRef]map[*watcher]struct{}
	interest chan<- struct{}
}

// watcher is one reader of a call.
type watcher struct {
	of      *watchers
	ref     toolkeep.CallRef
	changed chan struct{}     // gets a signal after every change of the call
	seen    toolkeep.CallMark // what the reader last read; of.mu guards it
}

// join makes the caller a watcher of the call until it leaves. It must say what it saw.
func (w *watchers) join(ref toolkeep.CallRef) *watcher {
	one := &watcher{of: w, ref: ref, changed: make(chan struct{}, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.subs == nil {
		w.subs = make(map[toolkeep.CallRef]map[*watcher]struct{})
	}
	if w.subs[ref] == nil {
		w.subs[ref] = make(map[*watcher]struct{}, 1)
	}
	w.subs[ref][one] = struct{}{}
	signal(w.interest)
	return one
}

func (one *watcher) leave() {
	w := one.of
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.subs[one.ref], one)
	if len(w.subs[one.ref]) == 0 {
		delete(w.subs, one.ref)
	}
}

func (one *watcher) saw(v *toolkeep.Invocation) {
	one.of.mu.Lock()
	defer one.of.mu.Unlock()
	one.seen = toolkeep.CallMark{State: v.State, CancelBy: v.CancelBy, Progress: v.Progress}
}

// watched returns the calls that have watchers.
func (w *watchers) watched() []toolkeep.CallRef {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.subs))
}

func (w *watchers) notify(ref toolkeep.CallRef) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.subs[ref] {
		signal(one.changed)
	}
}

// compare signals the watchers of a call that saw another mark than the present one.
func (w *watchers) compare(ref toolkeep.CallRef, now toolkeep.CallMark) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.subs[ref] {
		if one.seen != now {
			signal(one.changed)
		}
	}
}

// signal never blocks: a signal that waits already is enough.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// onChanges handles changes that this node committed.
func (p *Pipeline) onChanges(all []toolkeep.Change) {
	for _, c := range all {
		switch c := c.(type) {
		case toolkeep.MoveCall:
			p.watchers.notify(c.Invocation.Ref())
			if p.live.any() && !c.Invocation.State.Ended() && !slices.Contains(c.From, c.Invocation.State) {
				p.live.tell(LiveState, c.Invocation)
			}
		case toolkeep.ReportProgress:
			p.watchers.notify(c.Call)
		case toolkeep.RequestCancel:
			p.running.cancel(c.Call, causeCancelled)
			p.watchers.notify(c.Call)
		}
	}
}
