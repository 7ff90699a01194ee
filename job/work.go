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
	// writeLimit bounds the transaction that requeues a job.
	writeLimit = 10 * time.Second
)

// callWorker is River's worker.
type callWorker struct {
	river.WorkerDefaults[callArgs]
	run     func(ctx context.Context, ref toolkeep.CallRef) error
	again   func(ctx context.Context, j *river.Job[callArgs], at time.Time, failed int) error
	held    *atomic.Bool
	working *working
	log     *slog.Logger
}

// working holds the jobs that this process runs. The database may list more: if the
// response to a fetch was lost, jobs are assigned to a node that never received them.
type working struct {
	mu  sync.Mutex
	ids map[int64]struct{}
}

// on registers a job until the returned func is called.
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

// Timeout disables River's job timeout.
func (*callWorker) Timeout(*river.Job[callArgs]) time.Duration { return -1 }

// Work runs one job. Its only error is a snooze, if not even the replacement job could
// be written.
func (w *callWorker) Work(ctx context.Context, j *river.Job[callArgs]) error {
	defer w.working.on(j.ID)()
	ref := toolkeep.CallRef{Tenant: j.Args.Tenant, ID: j.Args.ID}
	at, failed := j.ScheduledAt, j.Args.Failed // not the job's fault: it keeps its place
	if !w.held.Load() {
		err := w.run(ctx, ref)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil { // not interrupted by Stop
			at = time.Now().Add(backoff(failed))
			failed++
		}
		w.log.Warn("a waiting call is tried again later",
			"invocation_id", ref.ID, "failed", failed, "wait", max(time.Until(at), 0), "error", err)
	}
	if err := w.again(ctx, j, at, failed); err != nil {
		w.log.Error("a waiting call could not be queued again; its job is kept back instead",
			"invocation_id", ref.ID, "error", err)
		return river.JobSnooze(time.Second) // short, so that River keeps it available
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

// again writes the job that replaces j. It continues after Stop has cancelled ctx.
func (q *Queue[TTx]) again(ctx context.Context, j *river.Job[callArgs], at time.Time, failed int) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeLimit)
	defer cancel()
	a := j.Args
	a.Failed = failed
	return q.store.inTx(ctx, func(tx TTx) error { return q.insert(ctx, tx, a, j.Priority, at) })
}

// backoff doubles from 250 ms to 30 s, with jitter over the upper half, so that calls
// that failed together do not return together.
func backoff(failed int) time.Duration {
	d := againMost
	if failed < 7 { // 250 ms << 7 exceeds the maximum
		d = againFirst << failed
	}
	return d/2 + rand.N(d/2+1)
}

// quiet passes on River's log records from warning level up.
type quiet struct{ slog.Handler }

func (h *quiet) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && h.Handler.Enabled(ctx, l)
}

func (h *quiet) WithAttrs(a []slog.Attr) slog.Handler { return &quiet{h.Handler.WithAttrs(a)} }
func (h *quiet) WithGroup(n string) slog.Handler      { return &quiet{h.Handler.WithGroup(n)} }
