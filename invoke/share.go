package invoke

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/resultcache"
)

// perform is steps 9 to 11, and the fallback of a tool that failed.
func (p *Pipeline) perform(ctx context.Context, a *activeCall) (*toolkeep.Result, error) {
	ctx, cancel := p.bound(ctx, a)
	defer cancel()
	res, err := p.performOnce(ctx, a)
	return p.fallBack(ctx, a, res, err)
}

// performOnce is steps 9 to 11, run once for all concurrent calls with the same cache key.
func (p *Pipeline) performOnce(ctx context.Context, a *activeCall) (*toolkeep.Result, error) {
	w := p.prepare(a)
	if !a.cache.on() {
		return p.once(ctx, w, &a.steps)
	}
	if !p.Results.Running(a.cache.key) { // else its result may come in time
		if err := p.Bulkheads.Look(ctx, a.within, placeOf(a.principal, a.tool, a.call, a.guard)); err != nil {
			if res := p.heldBack(ctx, a, err); res != nil {
				return res, nil
			}
			return nil, err
		}
	}
	// Callers that share the run may have more time than its first caller.
	limit := p.sharedTimeLimit(a)
	steps, began, hit, shares := new(Steps), time.Now(), false, p.shares(a)
	var personal *outcome
	run := func(ctx context.Context) (*toolkeep.Result, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, limit.after, &limit)
		defer cancel()
		// A run that ended after recall has stored its result.
		if res := p.lookAgain(a); res != nil {
			hit = true
			return res, nil
		}
		if shares {
			if res, ok := p.Results.Fetch(ctx, a.cache.key, w.principal.Tenant, w.tool.ID); ok {
				hit = true
				return res, nil
			}
		}
		res, err := p.once(ctx, w, steps)
		if w.personal() {
			personal = &outcome{res, err}
			return nil, errPersonal
		}
		if err == nil && res.Error == nil {
			kept := *res
			kept.Secrets, kept.Tries = nil, nil // a call that gets it from the cache uses none
			kept.Warnings = slices.DeleteFunc(slices.Clone(res.Warnings), func(w toolkeep.Warning) bool { return w.Code == toolkeep.Hedged })
			if p.Results.Put(a.cache.key, w.principal.Tenant, w.tool.ID, &kept, &a.cache.rule) && shares {
				p.Results.Share(a.cache.key)
			}
		} else if old := p.stale(a, res, err); old != nil {
			hit = true
			return old, nil
		}
		return res, err
	}
	var res *toolkeep.Result
	var shared bool
	var err error
	for range sharedRounds {
		if res, shared, err = p.Results.Do(ctx, a.cache.key, run); !shared || !errors.Is(err, errPersonal) && !placeless(err) {
			break
		}
	}
	switch {
	case shared && (errors.Is(err, errPersonal) || placeless(err)):
		return p.unshared(ctx, a, w)
	case errors.Is(err, errPersonal):
		res, err = personal.res, personal.err
	}
	if err != nil && ctx.Err() != nil {
		return nil, ended(ctx, w.id, nil, false)
	}
	shared = shared || hit
	if res != nil {
		own := *res
		own.Cached = shared
		if shared { // the secrets are on the record of the call that began the run
			own.BytesSent, own.BytesRecv, own.CostUSD, own.Secrets = 0, 0, 0, nil
			own.ToolTime = min(own.ToolTime, time.Since(began))
			p.cleanShared(a, &own)
		}
		res = &own
	}
	if !shared { // the run is over, since ctx is not
		a.steps.add(steps)
	}
	return res, err
}

// placeless reports whether a run got no place in a bulkhead. That is by the agent and the deadline of the call that began it, so
// those that shared it run again.
func placeless(err error) bool {
	e := toolkeep.AsError(err)
	return e != nil && e.NothingSent && e.Details["bulkhead"] != nil
}

type outcome struct {
	res *toolkeep.Result
	err error
}

// errPersonal tells callers of a shared run that its result is not for them.
var errPersonal = errors.New("the result is for its caller alone")

const (
	// sharedRounds is how often callers of a public result share another run because
	// the last result was personal: the run of a caller with nothing to redact serves
	// the others. So does that of one that gets a place.
	sharedRounds = 2
	// maxUnshared is how many of them then run at once, each alone.
	maxUnshared = 4
)

// unshared runs separately for one of several callers whose results are personal, or whose shared runs got no place.
func (p *Pipeline) unshared(ctx context.Context, a *activeCall, w *prepared) (*toolkeep.Result, error) {
	release, err := p.unsharedRuns.acquire(ctx, a.cache.key)
	if err != nil {
		e := ended(ctx, w.id, nil, false)
		e.NothingSent = true
		return nil, e
	}
	defer release()
	if res := p.lookAgain(a); res != nil {
		return res, nil
	}
	return p.once(ctx, w, &a.steps)
}

// lookAgain is cached without counting a miss.
func (p *Pipeline) lookAgain(a *activeCall) *toolkeep.Result {
	if !p.Results.Peek(a.cache.key) {
		return nil
	}
	return p.cached(a)
}

func (s *Steps) add(t *Steps) {
	for i, d := range t.Durations {
		s.Durations[i] += d
	}
}

// keyedSemaphore bounds the concurrent runs per cache key.
type keyedSemaphore struct {
	mu sync.Mutex
	of map[resultcache.Key]*semaphore
}

type semaphore struct {
	users int // running or waiting; at 0 the entry is dropped
	slots chan struct{}
}

// acquire waits for a slot; the error is that of ctx.
func (l *keyedSemaphore) acquire(ctx context.Context, k resultcache.Key) (release func(), err error) {
	l.mu.Lock()
	if l.of == nil {
		l.of = make(map[resultcache.Key]*semaphore)
	}
	s := l.of[k]
	if s == nil {
		s = &semaphore{slots: make(chan struct{}, maxUnshared)}
		l.of[k] = s
	}
	s.users++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if s.users--; s.users == 0 {
			delete(l.of, k)
		}
	}
	select {
	case s.slots <- struct{}{}:
		return func() { <-s.slots; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
