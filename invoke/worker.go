package invoke

import (
	"context"
	"errors"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// Run runs a waiting call taken from the queue; it implements job.Runner. nil means
// that the queue is done with the id, whatever the row says; an error requests another
// try later.
func (p *Pipeline) Run(ctx context.Context, ref toolkeep.CallRef) error {
	row, err := p.Invocations.Get(ctx, ref)
	if errors.Is(err, toolkeep.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if row.State != toolkeep.CallQueued && row.State != toolkeep.CallAccepted {
		return nil
	}
	if row.CancelBy != "" {
		return p.finish(ctx, row, toolkeep.CallCancelled, toolkeep.NewError(toolkeep.Cancelled, "the call was cancelled"))
	}
	if !p.Clock().Before(row.Deadline) {
		return p.finish(ctx, row, toolkeep.CallFailed, tooLate())
	}
	// This node lost the lease, another queued the call again, and the old run has not
	// noticed yet. Two runs would do the work twice.
	if p.running.has(ref) || p.spool.holds(ref) {
		return errors.New("an earlier run of the call has not ended on this node")
	}
	p.hook("lease", ref.ID)
	if taken, err := p.takeLease(ctx, row); !taken {
		return err
	}
	p.hook("leased", ref.ID)
	return p.runLeased(ctx, row)
}

func tooLate() *toolkeep.Error {
	return toolkeep.NewError(toolkeep.Timeout, "the call's deadline passed before a worker could carry it out")
}

// takeLease moves the row to running under this node's lease.
func (p *Pipeline) takeLease(ctx context.Context, row *toolkeep.Invocation) (bool, error) {
	now := p.Clock()
	if row.StartedAt.IsZero() {
		row.StartedAt = now
	}
	row.State, row.LeaseOwner, row.LeaseUntil = toolkeep.CallRunning, p.Node, p.storeNow().Add(p.Lease)
	row.Steps = toolkeep.CallSteps{} // they are those of the run before, which did not end
	mine := *row
	err := p.apply(ctx, toolkeep.MoveCall{Invocation: &mine, From: []toolkeep.CallState{toolkeep.CallQueued, toolkeep.CallAccepted}})
	if errors.Is(err, toolkeep.ErrStale) {
		return false, nil
	}
	return err == nil, err
}

func (p *Pipeline) runLeased(ctx context.Context, row *toolkeep.Invocation) error {
	ref := row.Ref()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer p.running.add(ref, cancel)()
	// The call may have been cancelled before it was registered.
	if now, err := p.Invocations.Get(ctx, ref); err == nil && now.CancelBy != "" {
		cancel(causeCancelled)
	}
	a := &activeCall{
		asked:  asked{mode: modeWorker, call: callOf(row), from: origin{row.Addr, row.UserAgent, row.Actor}, began: p.Clock(), composition: &composition{}, principal: callerOf(row)},
		record: record{row: *row, stored: true},
	}
	a.row.AllowedRole, a.row.AllowedPolicy = "", "" // it is decided again
	report := &reporter{p: p, ref: ref, of: a, row: row}
	defer report.stop()
	a.call.Caller = report
	_, err := p.carry(ctx, a) // the row holds the answer
	p.hook("ended", ref.ID)
	if a.next != nextQueue {
		return nil
	}
	e := toolkeep.AsError(err)
	after := e.RetryAfter
	if p.passes(a, e) {
		after = max(after, time.Second) // an upstream's 429 may not name a delay
	}
	return p.requeue(ctx, &a.row, p.Node, after)
}

// callerOf is the principal that a row stores.
func callerOf(v *toolkeep.Invocation) *toolkeep.Principal {
	return &toolkeep.Principal{Subject: v.Subject, Tenant: v.Tenant, Roles: v.Roles, Scope: v.Scope,
		KeyID: v.KeyID, OnBehalf: v.OnBehalf, Chain: v.Chain, Workspace: v.Workspace, Method: v.Method}
}

// callOf is the call that a row stores: of the version that was approved, else of what its range
// resolves to now.
func callOf(v *toolkeep.Invocation) *toolkeep.Call {
	version := v.Range
	if v.Approved != "" {
		version = v.Version
	}
	return &toolkeep.Call{
		ID: v.ID, Tool: v.ToolID, Range: version, Key: v.Key, Timeout: v.Timeout, Async: true, Priority: v.Priority,
		SkipCache: v.SkipCache, CacheTTL: v.CacheTTL, Session: v.Session, Plan: v.Plan, Task: v.Task,
		Parent: v.Parent, Ordinal: v.Ordinal, Traceparent: v.Traceparent, Face: v.Face, Grant: v.Grant,
	}
}

// reopen is a worker's admit: it looks the stored subject up again and opens the sealed
// arguments.
func (p *Pipeline) reopen(ctx context.Context, a *activeCall) error {
	if err := p.know(ctx, a); err != nil {
		return err
	}
	now, err := p.Access.Refresh(ctx, a.principal)
	if err != nil {
		return err
	}
	if a.principal, err = p.openCaller(now, &a.row); err != nil {
		return err
	}
	raw, err := p.unseal(a.row.SealedArgs, sealContext(&a.row))
	if err != nil {
		return err
	}
	a.arguments, err = canon.ParseObject(raw, p.Arguments)
	return err
}

// unseal opens what was stored with a call that waits.
func (p *Pipeline) unseal(sealed, context []byte) ([]byte, error) {
	raw, err := p.Sealer.Open(sealed, context)
	if e := toolkeep.AsError(err); e != nil && e.Code == toolkeep.SecretRetrievalFailed {
		return nil, e.Because(errors.Join(errSealerUnavailable, e.Cause))
	}
	if err != nil {
		return nil, toolkeep.NewError(toolkeep.ResumeFailed, "what was stored with the call cannot be opened; the key file may have been replaced").Because(err)
	}
	return raw, nil
}

var errSealerUnavailable = errors.New("the key that opens the stored arguments cannot be reached") // such as Vault's transit

// passes reports whether a worker's refusal may be temporary: then the call waits,
// until its deadline, instead of ending.
func (p *Pipeline) passes(a *activeCall, e *toolkeep.Error) bool {
	switch e.Code {
	case toolkeep.RateLimitExceeded, toolkeep.ConcurrencyLimitExceeded, toolkeep.DeadlineUnreachable, toolkeep.Backpressure,
		toolkeep.PolicyEngineUnavailable, // the agent's context is unavailable now
		toolkeep.RegistryUnavailable:     // as are the keys or tools that another node may have changed
		return true
	}
	return errors.Is(e, errSealerUnavailable)
}

// requeue returns a running row to the queue.
func (p *Pipeline) requeue(ctx context.Context, row *toolkeep.Invocation, owner string, after time.Duration) error {
	back := *row
	back.State, back.LeaseOwner, back.LeaseUntil = toolkeep.CallQueued, "", time.Time{}
	back.Sent, back.EndedAt, back.Code, back.Message, back.Details = false, time.Time{}, "", "", nil
	q := toolkeep.Enqueue{Call: back.Ref(), Priority: back.Priority}
	if after > 0 {
		q.At = p.Clock().Add(after)
	}
	err := p.apply(ctx, toolkeep.MoveCall{Invocation: &back, From: []toolkeep.CallState{toolkeep.CallRunning}, Owner: owner}, q)
	if errors.Is(err, toolkeep.ErrStale) {
		return nil
	}
	return err
}

// finish ends a row that no worker runs, unless it is in another state meanwhile.
func (p *Pipeline) finish(ctx context.Context, row *toolkeep.Invocation, to toolkeep.CallState, e *toolkeep.Error) error {
	if err := p.finishWith(ctx, row, to, e); !errors.Is(err, toolkeep.ErrStale) {
		return err
	}
	return nil
}

// eventsFirst puts the events among changes first: of a call they come before its end, also in the journal.
func eventsFirst(changes []toolkeep.Change) []toolkeep.Change {
	var events, others []toolkeep.Change
	for _, c := range changes {
		if _, ok := c.(toolkeep.AppendEvent); ok {
			events = append(events, c)
		} else {
			others = append(others, c)
		}
	}
	return append(events, others...)
}

// finishWith ends a row that no worker runs, together with other changes. If nothing was sent and
// it may be repeated, its key is freed, as at the end of a run. ErrStale if it is in another state
// meanwhile.
func (p *Pipeline) finishWith(ctx context.Context, row *toolkeep.Invocation, to toolkeep.CallState, e *toolkeep.Error, with ...toolkeep.Change) error {
	from, owner := row.State, row.LeaseOwner
	row.State, row.EndedAt = to, p.Clock()
	if row.Async {
		row.ExpiresAt = row.EndedAt.Add(p.ResultLife)
	}
	row.Code, row.Message, row.Retryable = e.Code, e.Message, e.Retryable
	end := *row
	free := (e.Retryable || to == toolkeep.CallCancelled) && !(row.Writes && row.Sent)
	if free {
		end.Key = ""
	}
	move := toolkeep.MoveCall{Invocation: &end, From: []toolkeep.CallState{from}, Owner: owner, FreeKey: free}
	err := p.apply(ctx, eventsFirst(append([]toolkeep.Change{move}, with...))...)
	if err == nil {
		p.called(&end, nil, e, nil)
	}
	return err
}
