package invoke

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/limit/breaker"
	"github.com/toolkeep/toolkeep/limit/bulkhead"
)

// execute makes attempts until one succeeds, fails for good, or time is up.
func (p *Pipeline) execute(ctx context.Context, w *prepared, k *credentialSet, res *toolkeep.Result, held *resultMemory) (*toolkeep.Output, error) {
	ex := p.Executors[w.tool.Manifest.Execution.Kind]
	r := retryOf(w.tool)
	r.attempts = w.overlay.AttemptsWithin(r.attempts)
	x := &toolkeep.Execution{
		Tool: w.tool, Args: w.args, Credentials: k.creds, Principal: w.principal, InvocationID: w.id,
		Session: w.call.Session, Key: w.call.Key, Traceparent: w.call.Traceparent, Tracestate: w.call.Tracestate, Caller: w.call.Caller,
		MaxBytes: p.HardBytes, Clean: w.cleaner, Facts: w.overlay.FactsCopy(), Grant: w.call.Grant,
	}
	var last *toolkeep.Error
	var timedOut bool // an attempt exceeded its own limit
	sent := false     // an attempt may have reached the upstream
	more := 0         // 1 after the extra attempt with refreshed secrets
	if err := p.memory.admit(ctx, w.id); err != nil {
		return nil, err
	}
	start := time.Now()
	for attempt, began := 1, start; ; attempt, began = attempt+1, time.Now() {
		held.free()        // what an earlier attempt read
		w.slots.Await(ctx) // an earlier attempt may have left a question open
		w.within.Retake()
		x.Attempt = attempt
		res.Attempts++
		noted := len(res.Tries)
		out, err, refused := p.tries(ctx, ex, x, w, res, held)
		if !refused && len(res.Tries) == noted && (err != nil || noted > 0) { // else tries did, or it answered at once
			noteTry(res, start, began, time.Since(began), err, "")
		}
		if out != nil {
			res.BytesSent += out.BytesSent
			res.BytesRecv += out.BytesRecv
			res.CostUSD += out.CostUSD
		}
		if err == nil {
			if out.Kept == nil {
				held.note(max(out.BytesRecv, int64(len(out.Body))))
			}
			return out, nil
		}
		if refused || err.Code == toolkeep.CircuitBreakerOpen && err.NothingSent { // what it waits for takes longer than a retry
			switch {
			case last == nil:
				return nil, err
			case ctx.Err() != nil && !late(ctx):
				last = ended(ctx, w.id, last, timedOut)
			}
			res.Attempts--
			return nil, last
		}
		last = err
		timedOut = timedOut || err.Code == toolkeep.UpstreamTimeout
		if ctx.Err() != nil {
			return nil, ended(ctx, w.id, last, timedOut)
		}
		if p.refresh(ctx, w, k, last) {
			more, x.Credentials = 1, k.creds
			continue
		}
		last.NothingSent = last.NothingSent && !sent
		sent = !last.NothingSent
		if attempt >= r.attempts+more || !r.repeats(last) {
			return nil, last
		}
		pause := r.pause(attempt-more, last)
		if deadline, ok := toolkeep.Deadline(ctx); ok && time.Until(deadline) <= pause {
			if ctx.Err() != nil {
				return nil, ended(ctx, w.id, last, timedOut)
			}
			return nil, last // and no retry is counted
		}
		if !w.guard.Retry() {
			return nil, last.With("retry_refused", "RETRY_BUDGET")
		}
		if !toolkeep.Sleep(ctx, pause) {
			return nil, ended(ctx, w.id, last, timedOut)
		}
	}
}

// attempt is one try that has a place in its bulkheads and that the breakers let through, and are told of. refused: it was not
// sent, because it got no place (E3802, E3910, E3902) or a breaker is open (E3903).
func (p *Pipeline) attempt(ctx context.Context, ex toolkeep.Executor, x *toolkeep.Execution, w *prepared, held *resultMemory, of *hedge) (out *toolkeep.Output, fault *toolkeep.Error, refused bool) {
	below := &child{p: p, parent: w, ctx: ctx}
	x.Child = below
	// What an open breaker refuses does not wait for a place, nor is it refused one: its fallback is to be asked.
	if err := w.guard.Look(); err != nil {
		return nil, toolkeep.AsError(err), true
	}
	defer below.hold.Release()
	switch second := of != nil && of.second; {
	case second && !(p.Bulkheads.Try(&below.hold, w.within, w.tool) && w.guard.Retry()):
		return nil, nil, true
	case !second:
		if fault = p.takePlace(ctx, w, &below.hold, x.Attempt); fault != nil {
			return nil, fault, true
		}
	}
	pass, err := w.guard.Take(ctx)
	if err != nil {
		return nil, toolkeep.AsError(err), true
	}
	if x.Attempt == 1 {
		w.guard.Began()
	}
	tool, host, code := breaker.Ignored, breaker.Ignored, toolkeep.Code("") // of a panic
	var parked atomic.Int64
	defer func() {
		if of != nil && of.sent != nil && context.Cause(ctx) == causeAnswered {
			pass.Outlasted()
		}
		pass.Without(time.Duration(parked.Load()))
		pass.With(code)
		pass.Done(tool, host)
	}()
	if of != nil && of.sent != nil {
		of.sent()
	}
	out, fault = p.send(ctx, ex, x, w, below, held, &parked)
	tool, host, code = verdictOf(ctx, w.id, fault)
	return out, fault, false
}

// workerWait is how long the first attempt of an asynchronous call waits for a place; then the call goes back to the queue, so that
// its worker does others.
const workerWait = time.Second

// takePlace waits until the attempt of that number has a place in its bulkheads.
func (p *Pipeline) takePlace(ctx context.Context, w *prepared, h *bulkhead.Hold, attempt int) *toolkeep.Error {
	if p.Bulkheads.Try(h, w.within, w.tool) {
		return nil
	}
	began := time.Now()
	defer func() { w.waited += time.Since(began) }()
	place := placeOf(w.principal, w.tool, w.call, w.guard)
	if w.call.Async && attempt == 1 {
		place.Most = workerWait
	}
	err := p.Bulkheads.Take(ctx, h, w.within, place)
	var full *toolkeep.Error
	if err == nil || errors.As(err, &full) {
		return full
	}
	e := ended(ctx, w.id, nil, false)
	e.NothingSent = true
	return e
}

func placeOf(pr *toolkeep.Principal, t *toolkeep.Tool, c *toolkeep.Call, g breaker.Guard) bulkhead.Call {
	usual, _ := g.Usual()
	return bulkhead.Call{Tool: t, Tenant: pr.Tenant, Subject: pr.Subject, Priority: c.Priority, Usual: usual}
}

// verdictOf is what an attempt's end says of the tool and of its host, and the code that it counts for. The tool's own time limit
// counts as a failure, as that of an attempt does; a cancel, and the limit of the caller or the server, say nothing. An answer that is
// no failure of the upstream, such as to a bad request, is a success.
func verdictOf(ctx context.Context, id string, e *toolkeep.Error) (tool, host breaker.Outcome, code toolkeep.Code) {
	if e == nil {
		return breaker.Succeeded, breaker.Succeeded, ""
	}
	if ctx.Err() != nil {
		var limit *timeLimit
		if late(ctx) && errors.As(context.Cause(ctx), &limit) && limit.call == id && limit.whose == toolkeep.LimitTool {
			return breaker.Failed, breaker.Failed, toolkeep.UpstreamTimeout
		}
		return breaker.Ignored, breaker.Ignored, ""
	}
	outcome := func(failed bool) breaker.Outcome {
		switch {
		case failed:
			return breaker.Failed
		case e.NothingSent:
			return breaker.Ignored
		}
		return breaker.Succeeded
	}
	t, h := breaker.Counts(e)
	return outcome(t), outcome(h), e.Code
}

// send is an attempt within its own limit. A tool without one only has the
// call's: two limits that end together would make E3502 or E3901 a matter of chance.
func (p *Pipeline) send(ctx context.Context, ex toolkeep.Executor, x *toolkeep.Execution, w *prepared, below *child, held *resultMemory, parked *atomic.Int64) (*toolkeep.Output, *toolkeep.Error) {
	limit, own := x.Tool.Manifest.AttemptTimeout(), ctx
	if limit < x.Tool.Manifest.Timeout() {
		var cancel context.CancelFunc
		own, cancel = limited(ctx, timeLimit{after: limit}, x.Caller)
		defer cancel()
	}
	own, over := parks(own, ctx, w, &below.hold, parked)
	defer over()
	x.Grow = func(bytes int64) error { return held.grow(own, bytes) }
	x.Keep = func(o *toolkeep.Output, body io.Reader) (bool, error) { return p.keep(own, w, x.Grow, o, body) }
	out, err := ex.Execute(own, x)
	if err == nil {
		return out, nil
	}
	if ctx.Err() == nil && late(own) {
		var inner *toolkeep.Error
		switch {
		case !errors.As(err, &inner):
		case inner.Code == toolkeep.DBTimeout:
			return out, inner // it is more specific: the database stopped the statement
		}
		e := toolkeep.NewError(toolkeep.UpstreamTimeout, "the tool did not answer within %s", limit).Because(err)
		e.NothingSent = inner != nil && inner.NothingSent
		return out, e
	}
	return out, toolkeep.AsError(err)
}
