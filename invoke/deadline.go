package invoke

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/toolkeep/toolkeep"
)

// timeLimit is a call's time limit and its origin. It is the cause of a context that it
// ended.
type timeLimit struct {
	whose toolkeep.TimeLimit
	after time.Duration
	call  string // id of the limited call
}

func (*timeLimit) Error() string   { return context.DeadlineExceeded.Error() }
func (*timeLimit) Timeout() bool   { return true }
func (*timeLimit) Temporary() bool { return true }
func (*timeLimit) Unwrap() error   { return context.DeadlineExceeded }

// timeLimit returns the shortest of the call's limits, except those of its connection
// and parent.
func (p *Pipeline) timeLimit(a *activeCall) timeLimit {
	l := p.sharedTimeLimit(a)
	if d := a.call.Timeout; d > 0 && d <= l.after {
		l.whose, l.after = toolkeep.LimitCall, d
	}
	if a.mode == modeWorker {
		if d := a.row.Deadline.Sub(p.Clock()); d < l.after {
			l.whose, l.after = toolkeep.LimitWaiting, d
		}
	}
	return l
}

// sharedTimeLimit is timeLimit without the call's own request.
func (p *Pipeline) sharedTimeLimit(a *activeCall) timeLimit {
	l := timeLimit{toolkeep.LimitTool, a.tool.Manifest.Timeout(), a.row.ID}
	if d := a.overlay.Within(l.after); d < l.after {
		l.whose, l.after = toolkeep.LimitOverlay, d
	}
	// A call below another has the limit of the outermost, in whose context it runs.
	if a.mode != modeWorker && a.mode != modeChild && !a.call.Async && !a.call.Connected && p.SyncLimit < l.after {
		l.whose, l.after = toolkeep.LimitSynchronous, p.SyncLimit
	}
	return l
}

// bound returns the call's own deadline, nested in the caller's.
func (p *Pipeline) bound(ctx context.Context, a *activeCall) (context.Context, context.CancelFunc) {
	return limited(ctx, p.timeLimit(a), a.call.Caller)
}

// limited is context.WithTimeout; if the caller can answer requests, the limit pauses
// while it does.
func limited(ctx context.Context, l timeLimit, c toolkeep.Caller) (context.Context, context.CancelFunc) {
	if _, ok := c.(toolkeep.Asker); ok {
		return toolkeep.WithPausableTimeout(ctx, l.after, &l)
	}
	return context.WithTimeoutCause(ctx, l.after, &l)
}

// late reports whether a context's time was over.
func late(ctx context.Context) bool {
	return ctx.Err() != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded)
}

// errCause is the cause of a cancelled context.
type errCause struct{ error }

var (
	causeCancelled = errCause{errors.New("cancelled on request")}
	causeDraining  = errCause{errors.New("the node is draining")}
	causeLeaseLost = errCause{errors.New("the lease was lost")}
)

// ended returns the caller's error for why the context of the call with that id ended.
// last is the newest attempt's error, or nil; timedOut says that an attempt exceeded
// its own limit.
func ended(ctx context.Context, id string, last *toolkeep.Error, timedOut bool) *toolkeep.Error {
	if !late(ctx) {
		e := toolkeep.NewError(toolkeep.Cancelled, "the call was cancelled").Because(context.Cause(ctx))
		if last != nil {
			e.NothingSent = last.NothingSent
		}
		return e
	}
	var limit *timeLimit
	if !errors.As(context.Cause(ctx), &limit) || limit.call != id { // the limit of the connection or of a parent call
		limit = &timeLimit{whose: toolkeep.LimitCaller}
	}
	e := toolkeep.NewError(toolkeep.Timeout, "the call's deadline passed before the tool answered: %s", limit.advice()).
		With("time_limit", string(limit.whose))
	if last != nil {
		e.NothingSent = last.NothingSent
		e.Because(last)
	}
	if timedOut {
		e.With("cause", string(toolkeep.UpstreamTimeout))
	}
	return e
}

// advice names the origin of the limit, because the remedy depends on it.
func (l *timeLimit) advice() string {
	switch l.whose {
	case toolkeep.LimitCall:
		return fmt.Sprintf("the call asked for %s; ask for more, or call with async_mode", l.after)
	case toolkeep.LimitTool:
		return fmt.Sprintf("the tool's own limit is %s (execution.timeout_ms); only its publisher can raise it", l.after)
	case toolkeep.LimitOverlay:
		return fmt.Sprintf("the agent's context for this tool limits its calls to %s; only the owner of that context can raise it", l.after)
	case toolkeep.LimitSynchronous:
		return fmt.Sprintf("a synchronous call may take %s; call with async_mode", l.after)
	case toolkeep.LimitWaiting:
		return "a waiting call must end by the deadline that it got when it was queued"
	}
	return "the caller's own limit was shorter than the tool's; raise the timeout or call with async_mode"
}
