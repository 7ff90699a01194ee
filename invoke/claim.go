package invoke

import (
	"context"
	"errors"
	"time"

	"github.com/toolkeep/toolkeep"
)

// claim commits the row before anything is sent. Reading calls without a key
// need none; a waiting call is queued and answered here.
func (p *Pipeline) claim(ctx context.Context, f *flight) (*toolkeep.Result, error) {
	if f.looks() {
		return nil, nil
	}
	switch {
	case f.worker:
		return nil, p.claimSending(ctx, f)
	case f.call.Async:
		return p.claimWaiting(ctx, f)
	case !f.row.Writes && f.row.Key == "":
		return nil, nil
	}
	f.row.State = toolkeep.CallRunning
	f.row.Sent = f.row.Writes
	f.row.StartedAt = p.Clock()
	f.row.LeaseOwner, f.row.LeaseUntil = p.Node, p.Clock().Add(f.timeout()+p.Lease)
	return p.insert(ctx, f)
}

// claimSending notes, before a worker sends anything that writes, that it may
// have been sent.
func (p *Pipeline) claimSending(ctx context.Context, f *flight) error {
	if !f.row.Writes || f.row.Sent {
		return nil
	}
	f.row.Sent = true
	err := p.apply(ctx, toolkeep.MoveCall{Invocation: f.rowCopy(), From: []toolkeep.CallState{toolkeep.CallRunning}, Owner: p.Node})
	if err == nil {
		return nil
	}
	f.row.Sent = false
	if errors.Is(err, toolkeep.ErrStale) {
		return toolkeep.NewError(toolkeep.Cancelled, "another worker took the call over").Because(causeLeaseLost)
	}
	return recordUnavailable(err)
}

func (p *Pipeline) claimWaiting(ctx context.Context, f *flight) (*toolkeep.Result, error) {
	now := p.Clock()
	f.row.State = toolkeep.CallQueued
	f.row.StartedAt = time.Time{}
	f.row.Deadline = now.Add(p.WaitLimit)
	if f.call.Timeout > 0 {
		f.row.Deadline = now.Add(min(f.call.Timeout, p.WaitLimit))
	}
	f.row.ExpiresAt = f.row.Deadline.Add(p.ResultLife)
	f.row.Roles, f.row.Scope, f.row.Workspace = f.principal.Roles, f.principal.Scope, f.principal.Workspace
	sealed, err := p.Sealer.Seal(f.call.Arguments, sealContext(&f.row))
	if err != nil {
		return nil, recordUnavailable(err)
	}
	f.row.SealedArgs = sealed
	ref := f.row.Ref()
	return p.insert(ctx, f, toolkeep.Enqueue{Call: ref, Priority: f.row.Priority})
}

// sealContext binds sealed arguments to their call.
func sealContext(v *toolkeep.Invocation) []byte { return []byte("call:" + v.Tenant + ":" + v.ID) }

// insert claims the row; a key that another call took in the meantime is
// answered like one that was found at admission.
func (p *Pipeline) insert(ctx context.Context, f *flight, more ...toolkeep.Change) (*toolkeep.Result, error) {
	for {
		row := f.rowCopy()
		err := p.apply(ctx, append([]toolkeep.Change{toolkeep.ClaimCall{Invocation: row}}, more...)...)
		switch {
		case err == nil:
			f.claimed = true
			if row.State == toolkeep.CallQueued {
				return p.Result(row), nil
			}
			return nil, nil
		case errors.Is(err, toolkeep.ErrIDTaken):
			f.row.ID = newID()
			if f.call.Async { // what was sealed is bound to the id
				return p.claimWaiting(ctx, f)
			}
		case errors.Is(err, toolkeep.ErrKeyTaken):
			f.kept, err = p.Invocations.ByKey(ctx, f.row.Tenant, f.row.Subject, f.row.Key)
			if errors.Is(err, toolkeep.ErrNotFound) {
				continue // freed since; try again
			}
			if err != nil {
				return nil, recordUnavailable(err)
			}
			if res, err := p.answerKept(ctx, f); res != nil || err != nil {
				return res, err
			}
		default:
			return nil, recordUnavailable(err)
		}
	}
}

func recordUnavailable(err error) *toolkeep.Error {
	e := toolkeep.NewError(toolkeep.RecordUnavailable, "the call's record cannot be written now; nothing was executed").Because(err)
	e.NothingSent = true
	return e
}

// rowCopy is what goes to the store, which keeps what it is given.
func (f *flight) rowCopy() *toolkeep.Invocation {
	row := f.row
	return &row
}

// apply commits within the row's time limit, whatever became of the caller.
func (p *Pipeline) apply(ctx context.Context, changes ...toolkeep.Change) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.RowTimeout)
	defer cancel()
	return p.Store.Apply(ctx, changes...)
}
