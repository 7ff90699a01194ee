package job

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

// ticking runs periodic work, one function at a time, in one goroutine.
type ticking struct {
	tasks []Periodic
	log   *slog.Logger
	stop  context.CancelFunc
	done  chan struct{}
}

func newTicking(tasks []Periodic, log *slog.Logger) (*ticking, error) {
	for _, t := range tasks {
		if t.Run == nil || t.Every <= 0 {
			return nil, fmt.Errorf("job: the periodic work %q needs a Run and an Every above 0", t.Name)
		}
	}
	return &ticking{tasks: tasks, log: log}, nil
}

func (t *ticking) start() {
	ctx, cancel := context.WithCancel(context.Background())
	t.stop, t.done = cancel, make(chan struct{})
	go func() {
		defer close(t.done)
		t.loop(ctx)
	}()
}

func (t *ticking) cancel() { t.stop() }
func (t *ticking) wait()   { <-t.done }

func (t *ticking) loop(ctx context.Context) {
	next := make([]time.Time, len(t.tasks)) // zero: at once
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		for i := range t.tasks {
			if ctx.Err() != nil {
				return
			}
			if now := time.Now(); !next[i].After(now) {
				next[i] = now.Add(t.tasks[i].Every)
				t.run(ctx, &t.tasks[i])
			}
		}
		timer.Reset(time.Until(earliest(next)))
	}
}

// run logs errors; the work recurs regardless.
func (t *ticking) run(ctx context.Context, p *Periodic) {
	defer func() {
		if r := recover(); r != nil {
			t.log.Error("periodic work panicked", "work", p.Name,
				"panic", fmt.Sprint(r), "stack", string(debug.Stack()))
		}
	}()
	if err := p.Run(ctx); err != nil && ctx.Err() == nil {
		t.log.Warn("periodic work failed", "work", p.Name, "error", err)
	}
}

func earliest(ts []time.Time) time.Time {
	e := ts[0]
	for _, t := range ts[1:] {
		if t.Before(e) {
			e = t
		}
	}
	return e
}
