package invoke

import (
	"context"
	"time"

	"github.com/toolkeep/toolkeep"
)

// queuedLong is how old a queued call is, at least, that is put into the queue again: until then a worker may just be about to take it.
const queuedLong = time.Minute

// reachedFor tells whether the store was reached without a gap for a time.
func (p *Pipeline) reachedFor(d time.Duration) bool {
	since, ok := p.contact.reached()
	return ok && p.Clock().Sub(since) >= d
}

// Requeue puts a call into the queue again that is lost: one that runs although its lease lapsed twice its time ago, and a queued one
// that no worker takes. Of a synchronous call, whose caller is gone, it ends the record and frees the key, as the sweep does. It returns
// the call as it is then. E3013; E3963 with the reason where the call is not lost, or may have taken effect.
func (p *Pipeline) Requeue(ctx context.Context, pr *toolkeep.Principal, id string) (*toolkeep.Invocation, error) {
	row, err := p.find(ctx, pr, id)
	if err != nil {
		return nil, err
	}
	if !pr.May(toolkeep.PermCancel) {
		return nil, toolkeep.NewError(toolkeep.PermissionDenied, "this needs the permission %s, which none of your roles grants", toolkeep.PermCancel)
	}
	refuse := func(format string, args ...any) error {
		return toolkeep.NewError(toolkeep.StateConflict, "the call is not lost: "+format, args...).With("state", string(row.State))
	}
	switch row.State {
	case toolkeep.CallRunning:
		sure := row.LeaseUntil.Add(p.Lease)
		switch {
		case p.running.has(row.Ref()) || p.spool.holds(row.Ref()):
			return nil, refuse("this node runs it")
		case !p.knowsStoreTime():
			return nil, refuse("the time of the store is not known here, so whether its node lives is not; ask again")
		case !p.Alone && !p.reachedFor(p.Lease):
			return nil, refuse("the store was away until a moment ago, and its node may still renew its lease; ask again in %s", p.Lease)
		case row.LeaseUntil.IsZero() || !p.storeNow().After(sure):
			return nil, refuse("its node %s renewed its lease, or may still do it until %s", row.LeaseOwner, sure.UTC().Format(time.RFC3339))
		case row.Lapsed(p.declaredIdempotent(ctx, row)) == toolkeep.CallUnknown:
			return nil, toolkeep.NewError(toolkeep.StateConflict, "the call was sent and may have taken effect, so it is not repeated; it ends as unknown (E3909) by itself").With("state", string(row.State))
		}
		if err := p.lapseOne(ctx, row, false); err != nil {
			return nil, recordUnavailable(err)
		}
	case toolkeep.CallQueued, toolkeep.CallAccepted:
		if since := p.Clock().Sub(row.CreatedAt); since < queuedLong {
			return nil, refuse("it was made %s ago, and waits for its turn; that is possible after %s", since.Round(time.Second), queuedLong)
		}
		if err := p.apply(ctx, toolkeep.Enqueue{Call: row.Ref(), Priority: row.Priority}); err != nil {
			return nil, recordUnavailable(err)
		}
	case toolkeep.CallPendingApproval, toolkeep.CallInputRequired:
		return nil, refuse("it waits for a person")
	default:
		return nil, refuse("it has ended as %s", row.State)
	}
	return p.find(ctx, pr, id)
}
