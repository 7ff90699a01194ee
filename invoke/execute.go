package invoke

import (
	"context"
	"errors"

	"github.com/toolkeep/toolkeep"
)

// execute makes attempts until one succeeds, fails for good, or time is up.
func (p *Pipeline) execute(ctx context.Context, j *job, k *kit, res *toolkeep.Result) (*toolkeep.Output, error) {
	ex := p.Executors[j.tool.Manifest.Execution.Kind]
	r := retryOf(j.tool)
	r.attempts = j.context.AttemptsWithin(r.attempts)
	x := &toolkeep.Execution{
		Tool: j.tool, Args: j.args, Credentials: k.creds, Principal: j.principal, InvocationID: j.id,
		Session: j.call.Session, Key: j.call.Key, Traceparent: j.call.Traceparent, Caller: j.caller,
		MaxBytes: p.HardBytes, Clean: j.clean, Facts: j.context.FactsCopy(),
	}
	var last *toolkeep.Error
	var timedOut bool // an attempt did not answer within its own limit
	more := 0         // the attempt with secrets fetched afresh, which is beyond the tool's own
	for attempt := 1; ; attempt++ {
		x.Attempt, res.Attempts = attempt, attempt
		x.Child = j.child()
		out, err := p.attempt(ctx, ex, x)
		if out != nil {
			res.BytesSent += out.BytesSent
			res.BytesRecv += out.BytesRecv
			res.CostUSD += out.CostUSD
		}
		if err == nil {
			return out, nil
		}
		last = err
		timedOut = timedOut || err.Code == toolkeep.UpstreamTimeout
		if ctx.Err() != nil {
			return nil, ended(ctx, last, timedOut)
		}
		if p.renew(ctx, j, k, last) {
			more, x.Credentials = 1, k.creds
			continue
		}
		if attempt >= r.attempts+more || !r.again(last) {
			return nil, last
		}
		if !r.wait(ctx, attempt-more, last) {
			if ctx.Err() != nil {
				return nil, ended(ctx, last, timedOut)
			}
			return nil, last // the wait would outlast the deadline
		}
	}
}

// attempt is one try within the attempt's own limit. A tool that names none has the
// call's alone: two limits that end together would end a call as E3502 or E3901 by
// chance.
func (p *Pipeline) attempt(ctx context.Context, ex toolkeep.Executor, x *toolkeep.Execution) (*toolkeep.Output, *toolkeep.Error) {
	limit, own := x.Tool.Manifest.AttemptTimeout(), ctx
	if limit < x.Tool.Manifest.Timeout() {
		var cancel context.CancelFunc
		own, cancel = limited(ctx, limit, x.Caller)
		defer cancel()
	}
	out, err := ex.Execute(own, x)
	if err == nil {
		return out, nil
	}
	if ctx.Err() == nil && late(own) {
		var inner *toolkeep.Error
		switch {
		case !errors.As(err, &inner):
		case inner.Code == toolkeep.DBTimeout:
			return out, inner // it says more: the database stopped the statement
		}
		e := toolkeep.NewError(toolkeep.UpstreamTimeout, "the tool did not answer within %s", limit).Because(err)
		e.NothingSent = inner != nil && inner.NothingSent
		return out, e
	}
	return out, toolkeep.AsError(err)
}
