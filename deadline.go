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
	l := &pausable{left: d, running: time.Now(), over: func() { cancel(cause) }}
	l.above, _ = parent.Value(pausableKey{}).(*pausable)
	l.timer = time.AfterFunc(d, l.over)
	return context.WithValue(ctx, pausableKey{}, l), func() {
		l.timer.Stop()
		cancel(nil)
	}
}

// OnPause has hold called when a pause of ctx begins, and what it returns when the last of
// overlapping pauses ends.
func OnPause(parent context.Context, hold func() (resume func())) context.Context {
	l := &pausable{hook: hold}
	l.above, _ = parent.Value(pausableKey{}).(*pausable)
	return context.WithValue(parent, pausableKey{}, l)
}

// PauseTimeout pauses every WithPausableTimeout and OnPause above ctx until resume is called.
// Pauses may overlap; the clock continues after the last one ends.
func PauseTimeout(ctx context.Context) (resume func()) {
	first, _ := ctx.Value(pausableKey{}).(*pausable)
	for l := first; l != nil; l = l.above {
		l.hold()
	}
	var once sync.Once
	return func() {
		once.Do(func() {
			for l := first; l != nil; l = l.above {
				l.release()
			}
		})
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
	over  func()
	timer *time.Timer

	hook   func() (resume func()) // instead of a timer
	resume func()

	mu      sync.Mutex
	holders int
	left    time.Duration // remaining at the last start
	running time.Time     // the last start
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
		l.resume = l.hook()
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
		l.resume()
		return
	}
	l.running = time.Now()
	l.timer.Reset(max(l.left, 0))
}
