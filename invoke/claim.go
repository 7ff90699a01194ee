package invoke

import (
	"context"
	"errors"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/approval"
)

// claim commits the row before anything is sent. Reading calls without a key have no
// row yet; a waiting call is queued and answered here.
func (p *Pipeline) claim(ctx context.Context, a *activeCall) (*toolkeep.Result, error) {
	switch {
	case a.mode == modeDryRun:
		return nil, nil
	case a.mode == modeWorker:
		return nil, p.claimSending(ctx, a)
	case a.call.Async:
		return p.claimWaiting(ctx, a)
	case !a.row.Writes && a.row.Key == "" && a.standing == nil: // what lets a call pass is committed before it runs
		return nil, nil
	}
	a.row.State, a.row.Sent, a.row.StartedAt = toolkeep.CallRunning, a.row.Writes, p.Clock()
	a.row.LeaseOwner, a.row.LeaseUntil = p.Node, p.storeNow().Add(p.Lease)
	return p.insert(ctx, a, nil)
}

// claimSending records, before a worker sends a write, that it may have been sent.
func (p *Pipeline) claimSending(ctx context.Context, a *activeCall) error {
	if (!a.row.Writes || a.row.Sent) && a.standing == nil {
		return nil
	}
	sent := a.row.Sent
	a.row.Sent, a.row.LeaseUntil = a.row.Writes, p.storeNow().Add(p.Lease)
	err := p.apply(ctx, append([]toolkeep.Change{toolkeep.MoveCall{Invocation: copyRow(&a.row), From: []toolkeep.CallState{toolkeep.CallRunning}, Owner: p.Node}},
		p.passedBy(a)...)...)
	if err == nil {
		return nil
	}
	a.row.Sent = sent
	if errors.Is(err, toolkeep.ErrStale) {
		return takenOver()
	}
	return recordUnavailable(err)
}

// passedBy is the event of the standing approval that lets a call pass, none without one.
func (p *Pipeline) passedBy(a *activeCall) []toolkeep.Change {
	if a.standing == nil {
		return nil
	}
	return []toolkeep.Change{approval.StandingEvent(a.standing, &a.row, p.Clock())}
}

func takenOver() *toolkeep.Error {
	return toolkeep.NewError(toolkeep.Cancelled, "another worker took the call over").Because(causeLeaseLost)
}

func (p *Pipeline) claimWaiting(ctx context.Context, a *activeCall) (*toolkeep.Result, error) {
	wait := p.WaitLimit
	if a.call.Timeout > 0 {
		wait = min(wait, a.call.Timeout)
	}
	return p.insert(ctx, a, func() ([]toolkeep.Change, error) {
		err := p.prepareWaiting(a, toolkeep.CallQueued, wait)
		return []toolkeep.Change{toolkeep.Enqueue{Call: a.row.Ref(), Priority: a.row.Priority}}, err
	})
}

// prepareWaiting makes the row that of a call which waits: its caller and its arguments, sealed,
// stay with it.
func (p *Pipeline) prepareWaiting(a *activeCall, state toolkeep.CallState, wait time.Duration) error {
	a.row.State = state
	waits := StepClaim
	if state == toolkeep.CallPendingApproval {
		waits = StepApprove
	}
	a.leave(waits)
	a.noteSteps(int(waits) + 1)
	a.row.StartedAt = time.Time{}
	a.row.Deadline = p.Clock().Add(wait)
	a.row.ExpiresAt = a.row.Deadline.Add(p.ResultLife)
	a.row.Roles, a.row.Scope, a.row.Workspace, a.row.Method = a.principal.Roles, a.principal.Scope, a.principal.Workspace, a.principal.Method
	sealed, err := p.Sealer.Seal(a.call.Arguments, sealContext(&a.row))
	if err != nil {
		return recordUnavailable(err)
	}
	a.row.SealedArgs = sealed
	return p.sealCaller(a)
}

// sealContext binds sealed arguments to their call.
func sealContext(v *toolkeep.Invocation) []byte { return []byte("call:" + v.Tenant + ":" + v.ID) }

const (
	// claimTries bounds how often a claim is tried again because the call that holds its key
	// cannot be found, after claimPause each time.
	claimTries = 20
	claimPause = 5 * time.Millisecond
)

// insert claims the row; a call that waits is answered. A key that another call took meanwhile is
// answered as if admit had found it. prepare, if set, completes the row for its id, to which sealed
// arguments are bound, and returns what is committed with it.
func (p *Pipeline) insert(ctx context.Context, a *activeCall, prepare func() ([]toolkeep.Change, error)) (*toolkeep.Result, error) {
	var with []toolkeep.Change
	for freed, prepared := 0, prepare == nil; ; {
		if !prepared {
			var err error
			if with, err = prepare(); err != nil {
				return nil, err
			}
			prepared = true
		}
		row := copyRow(&a.row)
		changes := append([]toolkeep.Change{toolkeep.ClaimCall{Invocation: row}}, with...)
		if row.State == toolkeep.CallRunning {
			changes = append(changes, p.passedBy(a)...)
		}
		err := p.apply(ctx, changes...)
		switch {
		case err == nil:
			a.stored = true
			if row.State != toolkeep.CallRunning {
				return p.Result(row), nil
			}
			return nil, nil
		case errors.Is(err, toolkeep.ErrIDTaken):
			a.row.ID, prepared = newID(), prepare == nil
		case errors.Is(err, toolkeep.ErrKeyTaken):
			a.kept, err = p.Invocations.ByKey(ctx, a.row.Tenant, a.row.Subject, a.row.Key)
			if freed++; errors.Is(err, toolkeep.ErrNotFound) && freed < claimTries {
				select { // freed since; try again
				case <-ctx.Done():
				case <-time.After(claimPause):
				}
				continue
			}
			if err != nil {
				return nil, recordUnavailable(err)
			}
			if res, err := p.answerKept(ctx, a); res != nil || err != nil {
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

// copyRow is passed to the store, which keeps its argument.
func copyRow(v *toolkeep.Invocation) *toolkeep.Invocation {
	row := *v
	return &row
}

// rowTimeout is the longest wait for the store.
const rowTimeout = 5 * time.Second

// apply commits within rowTimeout, even after the caller has left.
func (p *Pipeline) apply(ctx context.Context, changes ...toolkeep.Change) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rowTimeout)
	defer cancel()
	err := p.Store.Apply(ctx, changes...)
	if err == nil {
		p.onChanges(changes)
	}
	return err
}
