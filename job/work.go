package job

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/riverqueue/river"

	"github.com/toolkeep/toolkeep"
)

const (
	againFirst = 250 * time.Millisecond
	againMost  = 30 * time.Second
	// writeLimit bounds the one short transaction that sends a job back.
	writeLimit = 10 * time.Second
)

// callWorker is what River calls.
type callWorker struct {
	river.WorkerDefaults[callArgs]
	run     func(ctx context.Context, ref toolkeep.CallRef) error
	again   func(ctx context.Context, j *river.Job[callArgs], at time.Time, failed int) error
	held    *atomic.Bool
	working *working
	log     *slog.Logger
}

// working are the jobs that this process works. The database may say otherwise:
// where the answer to a fetch was lost it has jobs as taken by a node that never
// heard of them.
type working struct {
	mu  sync.Mutex
	ids map[int64]struct{}
}

// on counts a job in until the returned func is called.
func (w *working) on(id int64) (done func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ids == nil {
		w.ids = make(map[int64]struct{})
	}
	w.ids[id] = struct{}{}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.ids, id)
	}
}

func (w *working) list() []int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.ids))
}

// Timeout turns River's off.
func (*callWorker) Timeout(*river.Job[callArgs]) time.Duration { return -1 }

// Work runs one job. Its only error is a snooze, for the case that not even the
// job that replaces this one could be written.
func (w *callWorker) Work(ctx context.Context, j *river.Job[callArgs]) error {
	defer w.working.on(j.ID)()
	ref := toolkeep.CallRef{Tenant: j.Args.Tenant, ID: j.Args.ID}
	at, failed := j.ScheduledAt, j.Args.Failed // not at fault, it keeps its place in the line
	if !w.held.Load() {
		err := w.run(ctx, ref)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil { // not cut off by Stop
			at = time.Now().Add(backoff(failed))
			failed++
		}
		w.log.Warn("a waiting call is tried again later",
			"invocation_id", ref.ID, "failed", failed, "wait", max(time.Until(at), 0), "error", err)
	}
	if err := w.again(ctx, j, at, failed); err != nil {
		w.log.Error("a waiting call could not be queued again; its job is kept back instead",
			"invocation_id", ref.ID, "error", err)
		return river.JobSnooze(time.Second) // short, so that River keeps it in the line
	}
	return nil
}

// run calls the Runner and turns a panic into an error.
func (q *Queue[TTx]) run(ctx context.Context, ref toolkeep.CallRef) (err error) {
	defer func() {
		if r := recover(); r != nil {
			q.log.Error("the runner panicked", "invocation_id", ref.ID,
				"panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			err = fmt.Errorf("the runner panicked: %v", r)
		}
	}()
	return q.runner.Run(ctx, ref)
}

// again writes the job that replaces j. It runs on after Stop has cancelled ctx.
func (q *Queue[TTx]) again(ctx context.Context, j *river.Job[callArgs], at time.Time, failed int) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeLimit)
	defer cancel()
	a := j.Args
	a.Failed = failed
	return q.store.inTx(ctx, func(tx TTx) error { return q.insert(ctx, tx, a, j.Priority, at) })
}

// backoff doubles from 250 ms to 30 s; each is spread over its upper half, so
// that calls that failed together do not come back together.
func backoff(failed int) time.Duration {
	d := againMost
	if failed < 7 { // 250 ms << 7 is past the most
		d = againFirst << failed
	}
	return d/2 + rand.N(d/2+1)
}

// quiet passes on what River says from warnings up.
type quiet struct{ slog.Handler }

func (h *quiet) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && h.Handler.Enabled(ctx, l)
}

func (h *quiet) WithAttrs(a []slog.Attr) slog.Handler { return &quiet{h.Handler.WithAttrs(a)} }
func (h *quiet) WithGroup(n string) slog.Handler      { return &quiet{h.Handler.WithGroup(n)} }
