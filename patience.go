package toolkeep

import (
	"context"
	"sync"
	"time"
)

// LimitTime is context.WithTimeout for work that may ask its caller something:
// StopTime holds the limit up meanwhile. The context has no Deadline, since that
// may move; when the time is over its cause is context.DeadlineExceeded.
func LimitTime(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	l := &timeLimit{left: d, running: time.Now(), over: func() { cancel(context.DeadlineExceeded) }}
	l.above, _ = parent.Value(timeLimitKey{}).(*timeLimit)
	l.timer = time.AfterFunc(d, l.over)
	return context.WithValue(ctx, timeLimitKey{}, l), func() {
		l.timer.Stop()
		cancel(nil)
	}
}

// StopTime holds up every limit of LimitTime that ctx stands under until the
// returned func is called. Several may hold them up at once.
func StopTime(ctx context.Context) (goOn func()) {
	first, _ := ctx.Value(timeLimitKey{}).(*timeLimit)
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

type timeLimitKey struct{}

type timeLimit struct {
	above *timeLimit
	over  func()
	timer *time.Timer

	mu      sync.Mutex
	holders int
	left    time.Duration // when it ran last
	running time.Time     // since then
}

func (l *timeLimit) hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holders++; l.holders == 1 && l.timer.Stop() {
		l.left -= time.Since(l.running)
	}
}

func (l *timeLimit) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holders--; l.holders == 0 {
		l.running = time.Now()
		l.timer.Reset(max(l.left, 0))
	}
}
