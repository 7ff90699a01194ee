package invoke

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// end is step 12: it completes the row and returns the answer. Exactly one of the two
// results is non-nil, and a refusal names its record.
func (p *Pipeline) end(ctx context.Context, a *activeCall, res *toolkeep.Result, err error) (*toolkeep.Result, error) {
	if a.mode == modeDryRun {
		if a.unverified() {
			return nil, err
		}
		return nil, nil
	}
	e := toolkeep.AsError(err)
	if a.parked || res != nil && (res.Replayed || res.State == toolkeep.CallQueued) {
		return p.answerRecorded(a, res, e)
	}
	switch {
	case e == nil:
	case a.mode == modeWorker:
		if a.next = p.whoGoesOn(ctx, a, e); a.next != nextNobody {
			return nil, e
		}
		if stoppedByNode(ctx, e) {
			e = outcomeUnknown()
		}
	case e.Code == toolkeep.Cancelled && p.interrupted.Load() && !errors.Is(e, causeCancelled):
		e = a.drained(e)
	}
	p.enter(a, StepRecord)
	p.settle(a, res, e)
	p.summarise(a, res)
	if a.unrecorded {
		a.leave(StepRecord)
		p.observe(a, e)
		return nil, e
	}
	if lost := p.write(ctx, a, failure(res, e)); lost != nil {
		res, e = nil, lost
		p.settle(a, nil, lost)
	}
	a.leave(StepRecord)
	p.observe(a, e)
	if e != nil {
		e.InvocationID = a.row.ID
		// An error from execution on is a result; an error before anything was sent,
		// such as a missing secret, is a refusal, whatever kind its code usually is.
		if e.Code.Info().Kind != toolkeep.KindResult || e.NothingSent {
			return nil, e
		}
		res = &toolkeep.Result{Error: e, Attempts: a.row.Attempts}
	}
	a.fill(res)
	return res, nil
}

// failure returns why the call failed: the refusal, or the tool's failure.
func failure(res *toolkeep.Result, e *toolkeep.Error) *toolkeep.Error {
	if e == nil && res != nil {
		return res.Error
	}
	return e
}

// answerRecorded answers a call whose record exists: a stored answer, a newly queued waiting
// call, or one that waited for a person.
func (p *Pipeline) answerRecorded(a *activeCall, res *toolkeep.Result, e *toolkeep.Error) (*toolkeep.Result, error) {
	if a.parked {
		if e != nil {
			e.InvocationID = a.row.ID
			return nil, e
		}
		return res, nil
	}
	res.Warnings = append(res.Warnings, a.warnings...)
	a.row.State, a.row.Replayed = res.State, res.Replayed
	a.row.EndedAt = p.Clock()
	a.row.TotalUS = a.row.EndedAt.Sub(a.began).Microseconds()
	if res.Error != nil {
		a.row.Code = res.Error.Code
	}
	p.observe(a, e)
	if e != nil {
		e.InvocationID = res.InvocationID
		return nil, e
	}
	return res, nil
}

// whoGoesOn determines whether a worker's run ends the call. It does not if another
// worker has the lease, a limit asks to wait, or the node stops and another worker can
// take over.
func (p *Pipeline) whoGoesOn(ctx context.Context, a *activeCall, e *toolkeep.Error) next {
	switch {
	case errors.Is(e, causeLeaseLost):
		return nextOtherWorker
	case p.passes(a, e) && (!a.row.Sent || e.NothingSent):
		return nextQueue
	case stoppedByNode(ctx, e) && a.row.Lapsed(a.idempotent() || e.NothingSent) == toolkeep.CallQueued:
		return nextQueue
	}
	return nextNobody
}

// stoppedByNode reports whether the node's stop cancelled a worker's run.
func stoppedByNode(ctx context.Context, e *toolkeep.Error) bool {
	return e.Code == toolkeep.Cancelled && ctx.Err() != nil && !errors.Is(context.Cause(ctx), causeCancelled)
}

// drained is the end of a synchronous call that the node's stop interrupted.
func (a *activeCall) drained(e *toolkeep.Error) *toolkeep.Error {
	if a.row.Lapsed(a.idempotent() || e.NothingSent) == toolkeep.CallUnknown {
		return outcomeUnknown().Because(e)
	}
	end := toolkeep.NewError(toolkeep.Draining, "the server stopped while the call ran; send it again").After(time.Second).Because(e)
	end.NothingSent = e.NothingSent
	return end
}

func outcomeUnknown() *toolkeep.Error {
	return toolkeep.NewError(toolkeep.OutcomeUnknown,
		"the server stopped after the call was sent; it may or may not have taken effect and is not repeated automatically")
}

// settle writes the outcome into the row.
func (p *Pipeline) settle(a *activeCall, res *toolkeep.Result, e *toolkeep.Error) {
	row := &a.row
	row.EndedAt = p.Clock()
	row.TotalUS = row.EndedAt.Sub(a.began).Microseconds()
	if a.tool == nil { // the caller's text, and no tool's name
		row.ToolID, row.Range = toolkeep.ClipBytes(row.ToolID, maxRecordedName), toolkeep.ClipBytes(row.Range, maxRecordedName)
	}
	if row.Async {
		row.ExpiresAt = row.EndedAt.Add(p.ResultLife)
	}
	if res != nil {
		row.Attempts, row.Cached, row.Truncated = res.Attempts, res.Cached, res.Truncated
		row.ToolUS, row.Fallback = res.ToolTime.Microseconds(), res.Fallback
		if row.Tries = nil; len(res.Tries) > 1 && !res.Cached {
			row.Tries = res.Tries
		}
		row.BytesSent, row.BytesRecv, row.CostUSD = res.BytesSent, res.BytesRecv, res.CostUSD
		row.OutputSize, row.Attachments, row.Secrets = len(res.Output), res.Attachments, res.Secrets
		row.Warnings = append(a.warnings, res.Warnings...)
		if a.stored {
			row.Output = res.Output
		}
	}
	why := failure(res, e)
	if why != nil {
		p.settleError(a, why)
	}
	a.noteSteps(a.endedAt(why != nil))
	switch {
	case e == nil && res != nil && res.Error != nil:
		row.State = toolkeep.CallFailed
	case e == nil:
		row.State = toolkeep.CallSucceeded
	case e.Code == toolkeep.Cancelled:
		row.State = toolkeep.CallCancelled
	case e.Code == toolkeep.OutcomeUnknown:
		row.State = toolkeep.CallUnknown
	case e.Code.Info().Kind == toolkeep.KindResult:
		row.State = toolkeep.CallFailed
	default:
		row.State = toolkeep.CallRefused
	}
	row.Missed = a.cache.on() && !row.Cached && row.State != toolkeep.CallRefused && (why == nil || !why.NothingSent)
}

// settleError writes an error into the row. It advises a retry only if the error may
// pass and a retry cannot do the work twice.
func (p *Pipeline) settleError(a *activeCall, e *toolkeep.Error) {
	if a.tool != nil && !a.nothingSent(e) && a.tool.Writes() && !a.idempotent() {
		e.Retryable = false
	}
	a.tellSent(e)
	why := a.reason(e)
	a.row.Code, a.row.Retryable, a.row.RetryS = why.Code, why.Retryable, why.RetryAfterSeconds()
	a.row.Message, a.row.Details = p.recordedError(a, why)
	if why != e {
		message, details := p.recordedError(a, e)
		a.row.Details = answer{e.Code, message, jsontext.Value(details), e.RetryAfterSeconds()}.beside(a.row.Details)
	}
}

// tellSent adds to the error of a write that was sent, and whose answer did not arrive in
// time, that it may have taken effect. It removes the advice to ask for more time.
func (a *activeCall) tellSent(e *toolkeep.Error) {
	if a.tool == nil || !a.tool.Writes() || a.nothingSent(e) {
		return
	}
	what := "look whether it did before you send it again"
	if a.idempotent() {
		what = "the tool is idempotent, so the same call may be sent again"
	}
	switch e.Code {
	case toolkeep.Timeout:
		e.Message = "the call's deadline passed after it was sent: it may have taken effect; " + what
	case toolkeep.Cancelled:
		e.Message = "the call was cancelled after it was sent: it may have taken effect; " + what
	case toolkeep.UpstreamTimeout:
		e.Message += "; the call may have taken effect, and " + what
	}
}

// nothingSent reports whether a failed call certainly did not reach its upstream.
func (a *activeCall) nothingSent(e *toolkeep.Error) bool {
	// A worker commits Sent before it sends a write.
	return e.NothingSent || !a.stored || a.row.Writes && !a.row.Sent
}

// write commits the row's end, before the answer is returned.
func (p *Pipeline) write(ctx context.Context, a *activeCall, failure *toolkeep.Error) *toolkeep.Error {
	if !a.stored {
		a.row.Key = "" // nothing is stored under the key
		if a.row.Code == toolkeep.RecordUnavailable {
			p.keepForLater(a, nil) // the store has just failed; asking it again takes time
			return nil
		}
		if pending, err := p.record(ctx, append([]toolkeep.Change{toolkeep.RecordCall{Invocation: copyRow(&a.row)}}, accesses(&a.row)...)...); err != nil {
			if err != errAway {
				p.Log.Error("a call's record could not be written", "invocation_id", a.row.ID, "error", err)
			}
			p.keepForLater(a, pending)
			return nil
		}
		p.spool.works()
		return nil
	}
	move := toolkeep.MoveCall{Invocation: copyRow(&a.row), From: []toolkeep.CallState{toolkeep.CallRunning}, Owner: p.Node}
	if a.freesKey(failure) {
		move.FreeKey = true
		move.Invocation.Key = ""
	}
	pending, err := p.applyEnd(ctx, append([]toolkeep.Change{move}, accesses(&a.row)...)...)
	switch {
	case err == nil:
	case !errors.Is(err, toolkeep.ErrStale):
		p.keepEnd(a, move, pending, err)
	case a.mode == modeWorker: // no caller waits for the answer of this run
		p.tooLateToEnd(move.Invocation)
		return toolkeep.NewError(toolkeep.OutcomeUnknown, "the call was taken over while it ran; read its record").Because(causeLeaseLost)
	default:
		p.tooLateToEnd(move.Invocation)
		a.row.Warnings = append(a.row.Warnings, toolkeep.Warning{Code: toolkeep.OutcomeUnknown,
			Message: "this is what the call did, and not what its record says: its lease lapsed while its node could not reach the store, and another node ended it"})
	}
	return nil
}

// applyEnd is apply for the end of a call: it leaves a commit that takes longer than rowTimeout,
// and pending receives its outcome.
func (p *Pipeline) applyEnd(ctx context.Context, changes ...toolkeep.Change) (pending <-chan error, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rowTimeout)
	defer cancel()
	err = p.applyWithin(ctx, changes...)
	if err == nil {
		p.onChanges(changes)
		return nil, nil
	}
	var left *toolkeep.PendingError
	if errors.As(err, &left) {
		pending = left.End
	}
	if ctx.Err() != nil {
		p.leave()
	}
	return pending, err
}

// endLeftSpool is told of each end that was spooled and is not any more.
func (p *Pipeline) endLeftSpool(v *toolkeep.Invocation, late bool) {
	if late {
		p.tooLateToEnd(v)
	}
	p.watchers.notify(v.Ref())
}

// tooLateToEnd logs how a call ended whose record another node decided: nothing else says it.
func (p *Pipeline) tooLateToEnd(v *toolkeep.Invocation) {
	p.Log.Error("a call ended after its lease had lapsed and another node had decided its record, which stays as it is",
		"invocation_id", v.ID, "tool_id", v.ToolID, "ended_as", v.State, "error_code", v.Code, "ended_at", v.EndedAt)
}

// freesKey reports whether the idempotency key may be used again: the call failed, and
// repeating it cannot do the work twice.
func (a *activeCall) freesKey(failure *toolkeep.Error) bool {
	if failure == nil {
		return false
	}
	unsent := a.nothingSent(failure)
	switch {
	case a.row.State == toolkeep.CallRefused && unsent: // such as a missing secret, which the operator can add
		return true
	case failure.Code == toolkeep.Draining && a.idempotent():
		return true
	}
	return (a.row.Retryable || a.row.State == toolkeep.CallCancelled) && (unsent || !a.row.Writes)
}

func (p *Pipeline) observe(a *activeCall, e *toolkeep.Error) {
	if !a.unrecorded {
		p.called(&a.row, a.tool, a.reason(e), a.steps.Durations[:])
	} else if p.Observer != nil {
		p.Observer.Called(&a.row, a.tool, a.reason(e), a.steps.Durations[:])
	}
}

// called tells of a record: the observer, and those who follow the calls.
func (p *Pipeline) called(v *toolkeep.Invocation, t *toolkeep.Tool, e *toolkeep.Error, durations []time.Duration) {
	if p.Observer != nil {
		p.Observer.Called(v, t, e, durations)
	}
	switch {
	case !p.live.any() || v.Replayed:
	case v.State.Ended():
		p.live.tell(LiveEnded, v)
	default:
		p.live.tell(LiveState, v)
	}
}

// fill writes the receipt.
func (a *activeCall) fill(res *toolkeep.Result) {
	row := &a.row
	res.InvocationID, res.CallID = row.ID, row.CallID
	res.ToolID, res.ToolVersion = row.ToolID, row.Version
	res.State = row.State
	res.StartedAt, res.EndedAt = row.StartedAt, row.EndedAt
	res.Warnings, res.Secrets = row.Warnings, row.Secrets
	res.Overhead = time.Duration(row.TotalUS-row.ToolUS) * time.Microsecond
	if res.Error != nil {
		res.Error.InvocationID = row.ID
	}
}

const eventSecretAccessed = "ai.agent.tool.secret.accessed"

// accesses are the events of a call's secrets (Execution 8.6), committed with its
// record. They name secrets by hash.
func accesses(row *toolkeep.Invocation) []toolkeep.Change {
	var all []toolkeep.Change
	for i, u := range row.Secrets {
		// The same event twice, as after a commit in doubt, has the same id.
		id := uuid.NewSHA1(uuid.NameSpaceOID, []byte(row.Tenant+"\x00"+row.ID+"\x00"+strconv.Itoa(i)))
		data := map[string]any{"agent_id": row.Subject, "tool_id": row.ToolID, "invocation_id": row.ID, "secret_hash": u.Hash, "status": "success"}
		for name, v := range map[string]string{"on_behalf_of": row.OnBehalf, "actor_did": row.Actor, "scope": u.Scope, "store": u.Store, "version": u.Version, "error_code": string(u.Code)} {
			if v != "" {
				data[name] = v
			}
		}
		if row.Chain != nil {
			data["caller_chain"] = canon.Strings(row.Chain)
		}
		if u.Code != "" {
			data["status"] = "failure"
		}
		all = append(all, toolkeep.AppendEvent{Event: toolkeep.Event{ID: id.String(), Type: eventSecretAccessed, Tenant: row.Tenant, Person: row.Person(), Time: row.EndedAt, Data: canon.Append(nil, data)}})
	}
	return all
}
