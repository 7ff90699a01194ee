package invoke

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// Run carries out a waiting call that was taken from the queue; it implements
// job.Runner. nil means that the queue is done with the id, whatever the row
// says; an error asks for another try later.
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
	// This node lost the lease, another queued the call again, and the run that lost
	// it has not noticed yet. Two at once would do the work twice.
	if p.hub.holds(ref) {
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
	row.State, row.LeaseOwner, row.LeaseUntil = toolkeep.CallRunning, p.Node, now.Add(p.Lease)
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
	drop := p.hub.hold(ref, cancel)
	defer drop()
	release := p.leases.hold(ref)
	defer release()
	// A cancel that was asked for before the hub held the call.
	if now, err := p.Invocations.Get(ctx, ref); err == nil && now.CancelBy != "" {
		cancel(causeCancelled)
	}
	f := &flight{
		p: p, gate: taking{p}, began: p.Clock(), root: &composition{}, row: *row, claimed: true, worker: true,
		principal: &toolkeep.Principal{Subject: row.Subject, Tenant: row.Tenant, Roles: row.Roles, Scope: row.Scope,
			KeyID: row.KeyID, OnBehalf: row.OnBehalf, Workspace: row.Workspace},
	}
	f.call = callOf(row)
	report := &reporter{p: p, ref: ref, of: f}
	defer report.stop()
	f.call.Caller = report
	_, err := p.carry(ctx, f) // the row holds the answer
	p.hook("ended", ref.ID)
	return p.afterRun(ctx, f, toolkeep.AsError(err))
}

// callOf is the call that a row stores.
func callOf(v *toolkeep.Invocation) *toolkeep.Call {
	return &toolkeep.Call{
		ID: v.ID, Tool: v.ToolID, Range: v.Range, Key: v.Key, Timeout: v.Timeout, Async: true, Priority: v.Priority,
		SkipCache: v.SkipCache, CacheTTL: v.CacheTTL, Session: v.Session, Plan: v.Plan, Task: v.Task,
		Parent: v.Parent, Ordinal: v.Ordinal, Traceparent: v.Traceparent, Face: v.Face,
	}
}

// reopen is a worker's admit: the stored subject looked up afresh, and the
// sealed arguments. While what opens them cannot be reached (Vault's transit), the
// call waits until its deadline.
func (p *Pipeline) reopen(f *flight) error {
	now, err := p.Access.Refresh(f.principal)
	if err != nil {
		return err
	}
	f.principal = now
	raw, err := p.Sealer.Open(f.row.SealedArgs, sealContext(&f.row))
	if e := toolkeep.AsError(err); e != nil && e.Code == toolkeep.SecretRetrievalFailed {
		f.sealed = true
		return e
	}
	if err != nil {
		return toolkeep.NewError(toolkeep.ResumeFailed, "the call's stored arguments cannot be opened; the key file may have been replaced").Because(err)
	}
	f.asked, err = canon.ParseObject(raw, p.Arguments)
	return err
}

// requeueable tells whether a worker's refusal is one that passes: the call
// waits its turn instead of ending.
func requeueable(e *toolkeep.Error) bool {
	if e == nil {
		return false
	}
	switch e.Code {
	case toolkeep.RateLimitExceeded, toolkeep.ConcurrencyLimitExceeded,
		toolkeep.PolicyEngineUnavailable: // the agent's context cannot be had now
		return true
	}
	return false
}

// feedLag is how far this node may be behind the one that admitted a call.
const feedLag = 10 * time.Second

// unseen tells whether a worker's refusal may come from what this node has not
// read in the feed yet: the key or the version that another node admitted the
// call with. Such a call waits until the node must have seen them.
func (f *flight) unseen(e *toolkeep.Error) bool {
	if !f.worker || f.p.Alone || f.p.Clock().Sub(f.row.CreatedAt) > feedLag {
		return false
	}
	switch e.Code {
	case toolkeep.Unauthenticated, toolkeep.ToolNotFound, toolkeep.ToolVersionNotFound, toolkeep.VersionConflict:
		return true
	}
	return false
}

// afterRun is told how the run ended. The row is at its end already, unless the
// run was put off.
func (p *Pipeline) afterRun(ctx context.Context, f *flight, e *toolkeep.Error) error {
	if !f.putOff {
		return nil
	}
	after := e.RetryAfter
	if f.sealed || requeueable(e) || e != nil && f.unseen(e) {
		after = max(after, time.Second) // an upstream's 429 need not say when
	}
	return p.requeue(ctx, &f.row, p.Node, after)
}

// requeue gives a running row back to the queue.
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

// finish ends a row that nobody runs. What was not sent and may be sent again
// lets its key go, as at the end of a run.
func (p *Pipeline) finish(ctx context.Context, row *toolkeep.Invocation, to toolkeep.CallState, e *toolkeep.Error) error {
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
	err := p.apply(ctx, toolkeep.MoveCall{Invocation: &end, From: []toolkeep.CallState{from}, Owner: owner, FreeKey: free})
	if errors.Is(err, toolkeep.ErrStale) {
		return nil
	}
	if err == nil && p.Observer != nil {
		p.Observer.Called(&end, nil, e, &Steps{})
	}
	return err
}

// leases are the rows that this node runs as a worker.
type leases struct {
	mu   sync.Mutex
	held map[toolkeep.CallRef]struct{}
}

func newLeases() *leases { return &leases{held: make(map[toolkeep.CallRef]struct{})} }

func (l *leases) hold(ref toolkeep.CallRef) func() {
	l.mu.Lock()
	l.held[ref] = struct{}{}
	l.mu.Unlock()
	return func() {
		l.mu.Lock()
		delete(l.held, ref)
		l.mu.Unlock()
	}
}

func (l *leases) list() []toolkeep.CallRef {
	l.mu.Lock()
	defer l.mu.Unlock()
	refs := make([]toolkeep.CallRef, 0, len(l.held))
	for ref := range l.held {
		refs = append(refs, ref)
	}
	slices.SortFunc(refs, func(a, b toolkeep.CallRef) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return refs
}
