package invoke

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
)

// timeout is how long the call may run: what was asked, within the tool's own
// limit, and for a caller who is connected within the synchronous limit.
func (f *flight) timeout() time.Duration {
	d := f.longest()
	if f.call.Timeout > 0 {
		d = min(d, f.call.Timeout)
	}
	if f.worker {
		d = min(d, f.row.Deadline.Sub(f.p.Clock()))
	}
	return d
}

// longest is timeout without what this one call asked for.
func (f *flight) longest() time.Duration {
	d := f.context.Within(f.tool().Manifest.Timeout())
	if !f.worker && !f.call.Async {
		d = min(d, f.p.SyncLimit)
	}
	return d
}

// bound gives the call's own deadline, nested in the caller's. A keyed call
// outlives its caller's connection: who lost the answer asks again with the key
// and must not find the work cancelled half way. Cancel still reaches it.
func (p *Pipeline) bound(ctx context.Context, f *flight) (context.Context, context.CancelFunc) {
	if f.claimed && f.row.Key != "" && !f.worker && !f.isChild() {
		ctx = context.WithoutCancel(ctx)
	}
	return limited(ctx, f.timeout(), f.call.Caller)
}

// limited is context.WithTimeout, and where the caller can be asked a limit that
// waits while it is.
func limited(ctx context.Context, d time.Duration, c toolkeep.Caller) (context.Context, context.CancelFunc) {
	if _, ok := c.(toolkeep.Asker); ok {
		return toolkeep.WithPausableTimeout(ctx, d)
	}
	return context.WithTimeout(ctx, d)
}

// late tells whether a context ended because its time was over.
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

const deadlinePassed = "the call's deadline passed before the tool answered"

// sayLimit says in an E3901 whose limit it was, because what can be done about it
// depends on that.
func (f *flight) sayLimit(e *toolkeep.Error) *toolkeep.Error {
	if e.Code != toolkeep.Timeout || !strings.HasPrefix(e.Message, deadlinePassed) {
		return e
	}
	said := *e
	longest, own := f.longest(), f.tool().Manifest.Timeout()
	say := func(format string, args ...any) { said.Message = deadlinePassed + ": " + fmt.Sprintf(format, args...) }
	switch {
	case f.worker && f.row.Deadline.Sub(f.row.StartedAt) < longest:
		say("a waiting call may wait and run until the deadline that it was given")
	case f.call.Timeout > 0 && f.call.Timeout <= longest:
		say("the call asked for %s; ask for more, or call with async_mode", f.call.Timeout)
	case f.context.Within(own) < own && f.context.Within(own) == longest:
		say("what the agent's context adds to this tool gives its calls %s, and only whoever keeps the context can give more", longest)
	case longest < own:
		say("a call whose caller waits may take %s; call with async_mode", longest)
	default:
		say("the tool's own limit is %s (execution.timeout_ms), and only its publisher can raise it", own)
	}
	return &said
}

// ended says why a context is over, as an error for the caller. last is the
// newest attempt's error, nil without one; timedOut says that some attempt did
// not answer within its own limit.
func ended(ctx context.Context, last *toolkeep.Error, timedOut bool) *toolkeep.Error {
	if late(ctx) {
		e := toolkeep.NewError(toolkeep.Timeout, "%s; raise the timeout or call it with async_mode", deadlinePassed)
		if last != nil {
			e.NothingSent = last.NothingSent
			e.Because(last)
		}
		if timedOut {
			e.With("cause", string(toolkeep.UpstreamTimeout))
		}
		return e
	}
	e := toolkeep.NewError(toolkeep.Cancelled, "the call was cancelled").Because(context.Cause(ctx))
	if last != nil {
		e.NothingSent = last.NothingSent
	}
	return e
}
