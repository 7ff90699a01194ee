package invoke

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// end is step 12: the row's end, and the answer. Exactly one of the two results
// is non-nil, and a refusal names its record.
func (p *Pipeline) end(ctx context.Context, f *flight, res *toolkeep.Result, err error) (*toolkeep.Result, error) {
	if f.looks() {
		return nil, nil
	}
	e := toolkeep.AsError(err)
	if res != nil && (res.Replayed || res.State == toolkeep.CallQueued) {
		return p.answerRecorded(f, res, e)
	}
	if f.worker && p.interrupted(ctx, f, &e) {
		return nil, e
	}
	if !f.worker && e != nil && e.Code == toolkeep.Cancelled && p.cutOff.Load() && !errors.Is(e, causeCancelled) {
		e = f.drained(e)
	}
	p.enter(f, StepRecord)
	f.settle(res, e)
	if lost := p.write(ctx, f); lost != nil {
		res, e = nil, lost
		f.settle(nil, lost)
	}
	f.leave(StepRecord)
	p.observe(f, e)
	if e != nil {
		e.InvocationID = f.row.ID
		// What arose from execution on is a result; a secret that could not be had, or
		// the like, before anything was sent is a refusal whatever its code is mostly.
		if e.Code.Info().Kind != toolkeep.KindResult || e.NothingSent {
			return nil, e
		}
		res = &toolkeep.Result{Error: e, Attempts: f.row.Attempts}
	}
	f.fill(res)
	return res, nil
}

// answerRecorded answers a call whose record exists: a kept answer, or a waiting
// call just queued.
func (p *Pipeline) answerRecorded(f *flight, res *toolkeep.Result, e *toolkeep.Error) (*toolkeep.Result, error) {
	res.Warnings = append(res.Warnings, f.warnings...)
	f.row.State, f.row.Replayed = res.State, res.Replayed
	f.row.EndedAt = f.p.Clock()
	f.row.TotalUS = f.row.EndedAt.Sub(f.began).Microseconds()
	if res.Error != nil {
		f.row.Code = res.Error.Code
	}
	p.observe(f, e)
	if e != nil {
		e.InvocationID = res.InvocationID
		return nil, e
	}
	return res, nil
}

// interrupted handles the ends of a worker's run that are not the call's: the
// lease is another's, the node drains, or a limit asks to wait.
func (p *Pipeline) interrupted(ctx context.Context, f *flight, e **toolkeep.Error) bool {
	switch {
	case *e == nil:
		return false
	case errors.Is(*e, causeLeaseLost):
		return true
	case (f.sealed || requeueable(*e) || f.unseen(*e)) && !f.row.Sent:
		f.putOff = true
		return true
	case (*e).Code != toolkeep.Cancelled || errors.Is(context.Cause(ctx), causeCancelled):
		return false
	}
	// The node stops. What cannot have been written waits for another worker.
	if f.row.Lapsed(f.idempotent() || (*e).NothingSent) == toolkeep.CallQueued {
		f.putOff = true
		return true
	}
	*e = outcomeUnknown()
	return false
}

// drained is the end of a synchronous call that the node's end cut off.
func (f *flight) drained(e *toolkeep.Error) *toolkeep.Error {
	if f.row.Lapsed(f.idempotent() || e.NothingSent) == toolkeep.CallUnknown {
		return outcomeUnknown().Because(e)
	}
	f.again = true
	end := toolkeep.NewError(toolkeep.Draining, "the server stopped while the call ran; send it again").After(time.Second).Because(e)
	end.NothingSent = e.NothingSent
	return end
}

func outcomeUnknown() *toolkeep.Error {
	return toolkeep.NewError(toolkeep.OutcomeUnknown,
		"the server stopped after the call was sent; it may or may not have taken effect and is not repeated by itself")
}

func (f *flight) idempotent() bool { return f.tool() != nil && f.tool().Manifest.Idempotent }

// settle writes the outcome into the row.
func (f *flight) settle(res *toolkeep.Result, e *toolkeep.Error) {
	row := &f.row
	row.EndedAt = f.p.Clock()
	row.TotalUS = row.EndedAt.Sub(f.began).Microseconds()
	if row.Async {
		row.ExpiresAt = row.EndedAt.Add(f.p.ResultLife)
	}
	if res != nil {
		row.Attempts, row.Cached, row.Truncated = res.Attempts, res.Cached, res.Truncated
		row.ToolUS = res.ToolTime.Microseconds()
		row.BytesSent, row.BytesRecv, row.CostUSD = res.BytesSent, res.BytesRecv, res.CostUSD
		row.OutputSize, row.Attachments, row.Secrets = len(res.Output), res.Attachments, res.Secrets
		row.Warnings = append(f.warnings, res.Warnings...)
		if f.claimed {
			row.Output = res.Output
		}
		if e == nil && res.Error != nil {
			f.settleError(res.Error)
			row.State = toolkeep.CallFailed
			return
		}
	}
	if e == nil {
		row.State = toolkeep.CallSucceeded
		return
	}
	f.settleError(e)
	switch {
	case e.Code == toolkeep.Cancelled:
		row.State = toolkeep.CallCancelled
	case e.Code == toolkeep.OutcomeUnknown:
		row.State = toolkeep.CallUnknown
	case e.Code.Info().Kind == toolkeep.KindResult:
		row.State = toolkeep.CallFailed
	default:
		row.State = toolkeep.CallRefused
	}
}

// settleError writes an error into the row. A caller is told to try again only
// if the code can pass and trying again cannot do the work twice.
func (f *flight) settleError(e *toolkeep.Error) {
	// A worker commits Sent before it sends anything that writes.
	f.unsent = e.NothingSent || !f.claimed || f.row.Writes && !f.row.Sent
	if t := f.tool(); t != nil && !f.unsent && t.Writes() && !t.Manifest.Idempotent {
		e.Retryable = false
	}
	f.row.Code, f.row.Message = e.Code, e.Message
	f.row.Retryable, f.row.RetryS = e.Retryable, e.RetryAfterSeconds()
	details := e.Details
	if len(f.faults) > 0 {
		f.row.Message, details = f.recordedFaults()
	}
	if len(details) > 0 {
		if raw, err := jsonv2.Marshal(details, jsonv2.Deterministic(true)); err == nil {
			f.row.Details = json.RawMessage(raw)
		}
	}
}

// recordedFaults is what is kept of arguments that do not fit: where and which
// rule. The words for the caller quote its values, and no value is ever recorded.
func (f *flight) recordedFaults() (string, map[string]any) {
	kept := make([]any, len(f.faults))
	for i, v := range f.faults {
		kept[i] = map[string]any{"pointer": v.Pointer, "rule": v.Rule}
	}
	text := fmt.Sprintf("the arguments do not fit %s: rule %s at %q", f.tool().Ref(), f.faults[0].Rule, f.faults[0].Pointer)
	if len(kept) > 1 {
		text += fmt.Sprintf(", %d faults in all", len(kept))
	}
	return text, map[string]any{"errors": kept}
}

// write commits the row's end. The answer is given only after it.
func (p *Pipeline) write(ctx context.Context, f *flight) *toolkeep.Error {
	if !f.claimed {
		f.row.Key = "" // nothing is stored under the key
		if f.row.Code == toolkeep.RecordUnavailable {
			p.keepForLater(f) // the store has just failed; waiting for it again would double the time
			return nil
		}
		if err := p.apply(ctx, append([]toolkeep.Change{toolkeep.RecordCall{Invocation: f.rowCopy()}}, f.accesses()...)...); err != nil {
			p.Log.Error("a call's record could not be written", "invocation_id", f.row.ID, "error", err)
			p.keepForLater(f)
		}
		return nil
	}
	move := toolkeep.MoveCall{Invocation: f.rowCopy(), From: []toolkeep.CallState{toolkeep.CallRunning}, Owner: p.Node}
	refused := f.row.State == toolkeep.CallRefused && f.unsent // of a missing secret, say: the operator mends it
	if refused || (f.row.Retryable || f.row.State == toolkeep.CallCancelled) && f.nothingSent() || f.again {
		move.FreeKey = true
		move.Invocation.Key = ""
	}
	err := p.apply(ctx, append([]toolkeep.Change{move}, f.accesses()...)...)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, toolkeep.ErrStale):
		return toolkeep.NewError(toolkeep.OutcomeUnknown, "the call was taken over while it ran; look its record up").Because(causeLeaseLost)
	}
	p.Log.Error("the end of a claimed call could not be written", "invocation_id", f.row.ID, "error", err)
	return toolkeep.NewError(toolkeep.OutcomeUnknown, "the call ran and its outcome could not be recorded; it is not repeated by itself").Because(err)
}

func (f *flight) nothingSent() bool { return f.unsent || !f.row.Writes }

func (p *Pipeline) observe(f *flight, e *toolkeep.Error) {
	if p.Observer != nil {
		p.Observer.Called(&f.row, f.version.Tool, e, &f.steps)
	}
}

// fill writes the receipt.
func (f *flight) fill(res *toolkeep.Result) {
	row := &f.row
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

// accesses are the events of a call's secrets (Execution 8.6), to be committed with
// its record. They name secrets by hash.
func (f *flight) accesses() []toolkeep.Change {
	var all []toolkeep.Change
	for _, u := range f.row.Secrets {
		id, err := uuid.NewV7()
		if err != nil {
			continue
		}
		data := map[string]any{"agent_id": f.row.Subject, "tool_id": f.row.ToolID, "invocation_id": f.row.ID, "secret_hash": u.Hash, "status": "success"}
		for name, v := range map[string]string{"on_behalf_of": f.row.OnBehalf, "scope": u.Scope, "store": u.Store, "version": u.Version, "error_code": string(u.Code)} {
			if v != "" {
				data[name] = v
			}
		}
		if u.Code != "" {
			data["status"] = "failure"
		}
		all = append(all, toolkeep.AppendEvent{Event: toolkeep.Event{ID: id.String(), Type: eventSecretAccessed, Tenant: f.row.Tenant, Time: f.row.EndedAt, Data: canon.Append(nil, data)}})
	}
	return all
}
