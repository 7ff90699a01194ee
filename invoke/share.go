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
func (p *Pipeline) perform(ctx context.Context, f *flight) (*toolkeep.Result, error) {
	ctx, cancel := p.bound(ctx, f)
	defer cancel()
	if f.claimed && !f.worker {
		var stop context.CancelCauseFunc
		ctx, stop = context.WithCancelCause(ctx)
		defer p.hub.hold(f.row.Ref(), stop)()
		defer stop(nil)
	}
	if !f.cacheable {
		return p.once(ctx, f.job(), &f.steps)
	}
	job, steps, limit := f.job(), new(Steps), f.longest()
	began, hadRun := time.Now(), false
	var alone func() (*toolkeep.Result, error) // what came of a run that is private
	run := func(ctx context.Context) (*toolkeep.Result, error) {
		// Those who share the run may have more time than who began it.
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		// A run that ended between this call's look and here has left its result.
		if p.Recall.Peek(f.cacheKey) {
			if hit := f.gate.recall(f); hit != nil {
				hadRun = true
				return hit, nil
			}
		}
		res, err := p.once(ctx, job, steps)
		if job.private() {
			alone = func() (*toolkeep.Result, error) { return res, err }
			return nil, errPrivate
		}
		if err == nil && res.Error == nil {
			kept := *res
			kept.Secrets = nil // whoever gets it again uses none
			p.Recall.Put(f.cacheKey, job.principal.Tenant, job.tool.ID, &kept, f.cacheSpec())
		}
		return res, err
	}
	var res *toolkeep.Result
	var shared bool
	var err error
	for range privateRounds {
		res, shared, err = p.Recall.Do(ctx, f.cacheKey, run)
		if !shared || !errors.Is(err, errPrivate) {
			break
		}
	}
	switch {
	case errors.Is(err, errPrivate) && shared:
		return p.alone(ctx, f, job)
	case errors.Is(err, errPrivate):
		res, err = alone()
	}
	if err != nil && ctx.Err() != nil {
		return nil, ended(ctx, nil, false)
	}
	shared = shared || hadRun
	if res != nil {
		own := *res
		own.Cached = shared
		if shared { // what it took is on the record of the call that began it
			own.BytesSent, own.BytesRecv, own.CostUSD, own.Secrets = 0, 0, 0, nil
			own.ToolTime = min(own.ToolTime, time.Since(began))
			f.clear(&own)
		}
		res = &own
	}
	if !shared && err == nil {
		f.steps.add(steps)
	}
	return res, err
}

func (s *Steps) add(t *Steps) {
	for i, d := range t.Durations {
		s.Durations[i] += d
	}
}

// alone runs once for one of many whose results are for each of them alone.
func (p *Pipeline) alone(ctx context.Context, f *flight, j *job) (*toolkeep.Result, error) {
	leave, err := p.private.enter(ctx, f.cacheKey)
	if err != nil {
		e := ended(ctx, nil, false)
		e.NothingSent = true
		return nil, e
	}
	defer leave()
	if p.Recall.Peek(f.cacheKey) {
		if hit := f.gate.recall(f); hit != nil {
			return hit, nil
		}
	}
	return p.once(ctx, j, &f.steps)
}

// errPrivate tells those who share a run that its result is not for them.
var errPrivate = errors.New("the result is for its caller alone")

const (
	// privateRounds is how often those who share runs of a public result begin a run
	// together again because nothing of the last one may be shared: where one of them
	// has no words to be taken out, that run serves the others.
	privateRounds = 2
	// privateRuns is how many of them run at once, each alone, after that.
	privateRuns = 4
)

// lanes bounds how many runs of one question are under way at once.
type lanes struct {
	mu sync.Mutex
	of map[resultcache.Key]*lane
}

type lane struct {
	users int // who runs or waits; without any it is dropped
	room  chan struct{}
}

// enter waits for room; the error is that of ctx. leave gives it back.
func (l *lanes) enter(ctx context.Context, k resultcache.Key) (leave func(), err error) {
	l.mu.Lock()
	if l.of == nil {
		l.of = make(map[resultcache.Key]*lane)
	}
	at := l.of[k]
	if at == nil {
		at = &lane{room: make(chan struct{}, privateRuns)}
		l.of[k] = at
	}
	at.users++
	l.mu.Unlock()
	out := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if at.users--; at.users == 0 {
			delete(l.of, k)
		}
	}
	select {
	case at.room <- struct{}{}:
		return func() { <-at.room; out() }, nil
	case <-ctx.Done():
		out()
		return nil, ctx.Err()
	}
}
