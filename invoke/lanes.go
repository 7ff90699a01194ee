package invoke

import (
	"context"
	"sync"

	"github.com/toolkeep/toolkeep/resultcache"
)

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
