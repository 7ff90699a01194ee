package toolkeep

import (
	"context"
	"sync"
	"time"
)

// Sleep waits for d; it returns false as soon as ctx ends.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// WithPausableTimeout is context.WithTimeoutCause for work that may ask its caller a
// question: PauseTimeout stops the clock meanwhile. The context has no Deadline,
// because it may move (the function Deadline estimates it); when the time is up the
// context ends with the cause.
func WithPausableTimeout(parent context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	l := &pausable{left: d, running: time.Now()}
	l.above, _ = parent.Value(pausableKey{}).(*pausable)
	l.timer = time.AfterFunc(d, func() { cancel(cause) })
	return context.WithValue(ctx, pausableKey{}, l), func() {
		l.timer.Stop()
		cancel(nil)
	}
}

// PauseHook is told when work begins and ends to wait for its caller's answer.
type PauseHook interface {
	// Pause is called when a pause begins, and Resume when the last of overlapping pauses
	// ends. They do not block.
	Pause()
	Resume()
	// Await blocks until the work may go on. It is called of the innermost hook alone, at
	// the end of each pause and after the Resume of all hooks above it.
	Await()
}

// OnPause has h told of the pauses of the context that it returns. The work calls over when
// it goes on whatever is still open: that ends those pauses, without Await, and later ones
// have no effect.
func OnPause(parent context.Context, h PauseHook) (ctx context.Context, over func()) {
	l := &pausable{hook: h, open: map[*pause]bool{}}
	l.above, _ = parent.Value(pausableKey{}).(*pausable)
	return context.WithValue(parent, pausableKey{}, l), l.over
}

// PauseTimeout pauses every WithPausableTimeout and OnPause above ctx until resume is called.
// Pauses may overlap; the clock continues after the last one ends. resume returns when the
// innermost hook lets the work go on. The clock already runs meanwhile, so the work's time
// may be over then: look at ctx.
func PauseTimeout(ctx context.Context) (resume func()) {
	first, _ := ctx.Value(pausableKey{}).(*pausable)
	p := &pause{first: first}
	hooked := first
	for hooked != nil && hooked.hook == nil {
		hooked = hooked.above
	}
	if hooked == nil {
		p.begin()
		return sync.OnceFunc(p.end)
	}
	if !hooked.opens(p) {
		return func() {}
	}
	return func() {
		if hooked.closes(p) {
			hooked.hook.Await()
		}
	}
}

// pause is one pause of first and all above it.
type pause struct{ first *pausable }

func (p *pause) begin() {
	for l := p.first; l != nil; l = l.above {
		l.hold()
	}
}

func (p *pause) end() {
	for l := p.first; l != nil; l = l.above {
		l.release()
	}
}

// Deadline returns when ctx ends at the earliest: the earlier of its own deadline and
// of every WithPausableTimeout above it, which ends later if it is paused until then. ok
// is false if there is no limit. Work that waits asks this and not ctx.Deadline, which
// does not know the limits that can pause.
func Deadline(ctx context.Context) (at time.Time, ok bool) {
	at, ok = ctx.Deadline()
	l, _ := ctx.Value(pausableKey{}).(*pausable)
	for ; l != nil; l = l.above {
		if l.hook != nil {
			continue // it limits nothing
		}
		if end := l.end(); !ok || end.Before(at) {
			at, ok = end, true
		}
	}
	return at, ok
}

type pausableKey struct{}

type pausable struct {
	above *pausable
	timer *time.Timer

	hook   PauseHook // instead of a timer
	openMu sync.Mutex
	open   map[*pause]bool // the pauses of which hook is the innermost; nil when they are over

	mu      sync.Mutex
	holders int
	left    time.Duration // remaining at the last start
	running time.Time     // the last start
}

// opens begins a pause, unless pauses are over.
func (l *pausable) opens(p *pause) bool {
	l.openMu.Lock()
	defer l.openMu.Unlock()
	if l.open == nil {
		return false
	}
	l.open[p] = true
	p.begin()
	return true
}

// closes ends a pause, unless it has ended.
func (l *pausable) closes(p *pause) bool {
	l.openMu.Lock()
	defer l.openMu.Unlock()
	if !l.open[p] {
		return false
	}
	delete(l.open, p)
	p.end()
	return true
}

// over ends the open pauses, and there are no others.
func (l *pausable) over() {
	l.openMu.Lock()
	defer l.openMu.Unlock()
	for p := range l.open {
		p.end()
	}
	l.open = nil
}

// end is when the time is over if it is not paused again.
func (l *pausable) end() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holders > 0 {
		return time.Now().Add(l.left)
	}
	return l.running.Add(l.left)
}

func (l *pausable) hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holders++; l.holders > 1 {
		return
	}
	if l.hook != nil {
		l.hook.Pause()
	} else if l.timer.Stop() {
		l.left -= time.Since(l.running)
	}
}

func (l *pausable) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holders--; l.holders > 0 {
		return
	}
	if l.hook != nil {
		l.hook.Resume()
		return
	}
	l.running = time.Now()
	l.timer.Reset(max(l.left, 0))
}
