package invoke

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/limit/breaker"
)

// causeAnswered ends an attempt of a call whose other attempt answered first.
var causeAnswered = errCause{errors.New("the call's other attempt answered first")}

// hedgeAfter is how long the first attempt of a call may take before a second one is sent beside it, 0 for never: as long as 95
// in 100 of the tool's take, and at least HedgeAfter. Only a tool that is elsewhere, reads, costs nothing and bears any number of
// calls at once is asked twice, and only for a caller that is not told of progress and cannot be asked: two attempts would tell
// and ask twice.
func (p *Pipeline) hedgeAfter(t *toolkeep.Tool, c *toolkeep.Call, g breaker.Guard) time.Duration {
	if p.HedgeAfter <= 0 || t.Writes() || c.Caller != nil || t.Manifest.Cost != nil && t.Manifest.Cost.EstimatedUSD > 0 ||
		t.Manifest.RateLimit != nil && t.Manifest.RateLimit.MaxConcurrent > 0 { // the call has one slot of the tool
		return 0
	}
	switch t.Manifest.Execution.Kind {
	case "http", "grpc", "sql", "mcp":
		_, high := g.Usual()
		return max(p.HedgeAfter, high)
	}
	return 0
}

// tried is how an attempt ended; see attempt.
type tried struct {
	out     *toolkeep.Output
	fault   *toolkeep.Error
	refused bool
	began   time.Time
	took    time.Duration
}

// tries is attempt, with a second one beside it if it takes long: the first answer wins, and ends the other. Where both
// fail it is as if there had been the first alone. It returns when both have ended.
func (p *Pipeline) tries(ctx context.Context, ex toolkeep.Executor, x *toolkeep.Execution, w *prepared, res *toolkeep.Result, held *resultMemory) (*toolkeep.Output, *toolkeep.Error, bool) {
	after := p.hedgeAfter(w.tool, w.call, w.guard)
	if after == 0 || x.Attempt > 1 {
		return p.attempt(ctx, ex, x, w, held, nil)
	}
	again := *x
	again.Attempt++
	own := &resultMemory{of: &p.memory}
	defer own.free()
	first, endFirst := context.WithCancelCause(ctx)
	defer endFirst(nil)
	second, endSecond := context.WithCancelCause(ctx)
	defer endSecond(nil)
	other := make(chan tried, 1)
	beside := func() {
		t := tried{refused: true}
		defer func() {
			if r := recover(); r != nil {
				p.Log.Error("panic in a second attempt", "panic", r, "stack", string(debug.Stack()))
				t = tried{refused: true}
			}
			other <- t
		}()
		t.began = time.Now()
		t.out, t.fault, t.refused = p.attempt(second, ex, &again, w, own, &hedge{second: true})
		t.took = time.Since(t.began)
		switch {
		case t.fault != nil:
			own.free() // the first may wait for the memory
		case !t.refused:
			endFirst(causeAnswered)
		}
	}
	h, began := &hedge{}, time.Now()
	over := false
	defer func() { // a panic in the first ends the second
		if !over && h.timer != nil && !h.timer.Stop() {
			endSecond(nil)
			<-other
		}
	}()
	h.sent = func() {
		h.timer = time.AfterFunc(after, func() {
			if !p.spawn(beside) {
				other <- tried{refused: true}
			}
		})
	}
	out, fault, refused := p.attempt(first, ex, x, w, held, h)
	over = true
	took := time.Since(began)
	if h.timer == nil || h.timer.Stop() {
		return out, fault, refused
	}
	if fault == nil {
		endSecond(causeAnswered)
	} else {
		held.free() // the second may wait for the memory
	}
	o := <-other
	if o.refused {
		return out, fault, refused
	}
	res.Attempts++
	noteTry(res, began, began, took, fault, "")
	noteTry(res, began, o.began, o.took, o.fault, "")
	lost, which := o.out, "first"
	if fault != nil && o.fault == nil {
		out, fault, lost, which = o.out, nil, out, "second"
	}
	if lost != nil {
		res.BytesSent, res.BytesRecv, res.CostUSD = res.BytesSent+lost.BytesSent, res.BytesRecv+lost.BytesRecv, res.CostUSD+lost.CostUSD
		if lost.Kept != nil && lost.Kept.Blob.ID != "" {
			if err := p.Blobs.Remove(context.WithoutCancel(ctx), lost.Kept.Blob.ID); err != nil {
				p.Log.Warn("the result of an attempt whose answer was not used could not be removed", "invocation_id", w.id, "error", err)
			}
		}
	}
	if fault == nil {
		res.Warnings = append(res.Warnings, toolkeep.Warning{Code: toolkeep.Hedged, Details: map[string]any{"after_ms": after.Milliseconds(), "answer": which},
			Message: fmt.Sprintf("the tool did not answer within %s, so it was asked a second time; this is the answer to the %s request", after.Round(time.Millisecond), which)})
	}
	return out, fault, false
}

// hedge is what an attempt of two does.
type hedge struct {
	sent   func() // called when the first is sent
	timer  *time.Timer
	second bool // it takes no place for which it must wait
}
