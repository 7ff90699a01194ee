package resultcache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"

	"github.com/toolkeep/toolkeep"
)

// sharedRun is one run that several callers share.
type sharedRun struct {
	cancel  context.CancelFunc
	waiters int        // guarded by Cache.mu; 0 means abandoned
	began   int64      // tick
	seq     int64      // position in the feed when it began
	before  *sharedRun // an abandoned run of the key that went on when this one began
	over    bool       // guarded by Cache.mu
	done    chan struct{}

	// Set before done is closed, read-only afterwards.
	result *toolkeep.Result
	err    error
}

// Do runs fn once for all concurrent callers with key k and returns each its own copy
// of the result; shared reports that another caller's fn was run. The copies share the
// bytes of Output, which must not be modified.
//
// fn runs on its own goroutine. Its context has no deadline and no values except those
// of Config.carry; it ends when the last caller has left, so fn sets its own deadline.
// A caller whose ctx ends returns at once with E3901 (deadline) or E3902. A panic in fn
// is E3999 for all callers, with the stack in the cause. Errors of fn are returned, an
// *toolkeep.Error as a copy for each caller.
//
// Do neither reads nor fills the cache, and must not be used for calls that write.
func (c *Cache) Do(ctx context.Context, k Key, fn func(context.Context) (*toolkeep.Result, error)) (r *toolkeep.Result, shared bool, err error) {
	if ctx.Err() != nil {
		return nil, false, left(ctx)
	}
	f, shared := c.join(ctx, k, fn)
	if f == nil { // stopped
		r, err = guarded(ctx, fn)
		return r, false, err
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		c.leave(f)
		select {
		case <-f.done: // the result arrived at the same moment
		default:
			return nil, shared, left(ctx)
		}
	}
	if shared {
		c.shared.Add(1)
	}
	return copyResult(f.result), shared, copyError(f.err)
}

// Running reports whether a run of k is under way that Do would join.
func (c *Cache) Running(k Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.runs[k]
	return f != nil && f.waiters > 0
}

// join joins the run of k or starts it; nil after Stop.
func (c *Cache) join(ctx context.Context, k Key, fn func(context.Context) (*toolkeep.Result, error)) (*sharedRun, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil, false
	}
	old := c.runs[k]
	if old != nil && old.waiters > 0 {
		old.waiters++
		return old, true
	}
	run, cancel := context.WithCancel(context.Background())
	if c.config.carry != nil {
		run = c.config.carry(run, ctx)
	}
	c.ticks++
	f := &sharedRun{cancel: cancel, waiters: 1, began: c.ticks, seq: c.sharing.position.Applied(), done: make(chan struct{})}
	if old != nil {
		// The abandoned run may still store its result under the same key: an
		// invalidation since it began counts for both.
		f.began, f.seq, f.before = old.began, old.seq, old
	}
	c.runs[k] = f
	c.running.Go(func() { c.run(run, k, f, fn) })
	return f, false
}

// leave stops waiting. The last caller to leave cancels the run.
func (c *Cache) leave(f *sharedRun) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.waiters--; f.waiters == 0 {
		f.cancel()
	}
}

// run runs fn and releases the callers, whatever fn does.
func (c *Cache) run(ctx context.Context, k Key, f *sharedRun, fn func(context.Context) (*toolkeep.Result, error)) {
	defer func() {
		f.cancel()
		c.mu.Lock()
		f.over = true
		if c.runs[k] = c.runs[k].unfinished(); c.runs[k] == nil {
			delete(c.runs, k)
		}
		if len(c.runs) == 0 {
			clear(c.dropped)
			c.floor = 0
		}
		c.mu.Unlock()
		close(f.done)
	}()
	// Stays set if fn ends its goroutine instead of returning.
	f.err = internal(errors.New("the shared run ended its goroutine"))
	f.result, f.err = guarded(ctx, fn)
}

// unfinished returns f, or the newest run before it that goes on, nil for none.
func (f *sharedRun) unfinished() *sharedRun {
	if f == nil {
		return nil
	}
	if f.before = f.before.unfinished(); f.over {
		return f.before
	}
	return f
}

// guarded runs fn and turns a panic into E3999.
func guarded(ctx context.Context, fn func(context.Context) (*toolkeep.Result, error)) (r *toolkeep.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			r, err = nil, internal(fmt.Errorf("panic in a shared run: %v\n%s", p, debug.Stack()))
		}
	}()
	return fn(ctx)
}

func internal(cause error) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.InternalError, "an internal error occurred; the server's log has the cause").Because(cause)
}

// left returns the error for a caller that leaves.
func left(ctx context.Context) *toolkeep.Error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return toolkeep.NewError(toolkeep.Timeout, "the call's deadline passed before its result was there").Because(context.Cause(ctx))
	}
	return toolkeep.NewError(toolkeep.Cancelled, "the caller left before the result was there").Because(context.Cause(ctx))
}

// copyResult returns a caller's own copy: its additions and changes are not visible to
// others.
func copyResult(r *toolkeep.Result) *toolkeep.Result {
	if r == nil {
		return nil
	}
	own := *r
	own.Warnings = cloneWarnings(r.Warnings)
	own.Attachments = append([]toolkeep.Attachment(nil), r.Attachments...)
	if r.Error != nil {
		own.Error = copyOf(r.Error)
	}
	return &own
}

func copyError(err error) error {
	var e *toolkeep.Error
	if errors.As(err, &e) {
		return copyOf(e)
	}
	return err
}

func copyOf(e *toolkeep.Error) *toolkeep.Error {
	own := *e
	own.Details = maps.Clone(e.Details)
	return &own
}

// begin returns the tick at which the shared run of k began; 0 if there is none.
func (c *Cache) begin(k Key) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.runs[k]; f != nil {
		return f.began
	}
	return 0
}

// runSeq returns the position in the feed at which the shared run of k began; ok is false if there is none.
func (c *Cache) runSeq(k Key) (seq int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.runs[k]
	if f == nil {
		return 0, false
	}
	return f.seq, true
}

// maxMarks bounds the tools whose invalidation is remembered for runs in progress.
const maxMarks = 1024

// mark records that results of the tool's runs in progress are outdated.
func (c *Cache) mark(toolID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.runs) == 0 {
		return
	}
	c.ticks++
	if len(c.dropped) >= maxMarks {
		clear(c.dropped)
		c.floor = c.ticks
	}
	c.dropped[toolID] = c.ticks
}

// markAll marks the results of all runs in progress as outdated.
func (c *Cache) markAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.runs) == 0 {
		return
	}
	c.ticks++
	clear(c.dropped)
	c.floor = c.ticks
}

// outdated reports whether the tool was invalidated after a run began.
func (c *Cache) outdated(toolID string, began int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return began > 0 && (began <= c.floor || began < c.dropped[toolID])
}
