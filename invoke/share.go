package invoke

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/resultcache"
)

// perform is steps 9 to 11, run once for all that ask the same cacheable
// question at the same time.
func (p *Pipeline) perform(ctx context.Context, a *activeCall) (*toolkeep.Result, error) {
	ctx, cancel := p.bound(ctx, a)
	defer cancel()
	if a.stored && a.mode != modeWorker {
		var stop context.CancelCauseFunc
		ctx, stop = context.WithCancelCause(ctx)
		defer p.running.add(a.row.Ref(), stop, false)()
		defer stop(nil)
	}
	w := p.prepare(a)
	if !a.cache.on() {
		return p.once(ctx, w, &a.steps)
	}
	// Callers that share the run may have more time than the one that began it.
	limit := p.sharedTimeLimit(a)
	steps, began, hit := new(Steps), time.Now(), false
	var personal *outcome
	run := func(ctx context.Context) (*toolkeep.Result, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, limit.after, &limit)
		defer cancel()
		// A run that ended since recall looked has left its result.
		if res := p.lookAgain(a); res != nil {
			hit = true
			return res, nil
		}
		res, err := p.once(ctx, w, steps)
		if w.personal() {
			personal = &outcome{res, err}
			return nil, errPersonal
		}
		if err == nil && res.Error == nil {
			kept := *res
			kept.Secrets = nil // a call that gets it again uses none
			p.Results.Put(a.cache.key, w.principal.Tenant, w.tool.ID, &kept, &a.cache.rule)
		}
		return res, err
	}
	var res *toolkeep.Result
	var shared bool
	var err error
	for range sharedRounds {
		if res, shared, err = p.Results.Do(ctx, a.cache.key, run); !shared || !errors.Is(err, errPersonal) {
			break
		}
	}
	switch {
	case errors.Is(err, errPersonal) && shared:
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
		if shared { // what it took is on the record of the call that began it
			own.BytesSent, own.BytesRecv, own.CostUSD, own.Secrets = 0, 0, 0, nil
			own.ToolTime = min(own.ToolTime, time.Since(began))
			p.cleanShared(a, &own)
		}
		res = &own
	}
	if !shared && err == nil {
		a.steps.add(steps)
	}
	return res, err
}

type outcome struct {
	res *toolkeep.Result
	err error
}

// errPersonal tells callers that share a run that its result is not for them.
var errPersonal = errors.New("the result is for its caller alone")

const (
	// sharedRounds is how often callers that share runs of a public result begin a run
	// together again because the last result was for one of them alone: a run of one that
	// has nothing to be removed serves the others.
	sharedRounds = 2
	// maxUnshared is how many of them run at once, each alone, after that.
	maxUnshared = 4
)

// unshared runs once for one of several callers whose results are personal.
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

// keyedSemaphore bounds how many runs of one question are under way at once.
type keyedSemaphore struct {
	mu sync.Mutex
	of map[resultcache.Key]*semaphore
}

type semaphore struct {
	users int // that run or wait; without any it is dropped
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
