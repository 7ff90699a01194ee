package invoke

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/approval"
)

// sweepBatch bounds the rows of one query of the sweep.
const sweepBatch = 200

// Sweep periodically handles waiting calls: lapsed leases, passed deadlines, answers
// not fetched, and spooled records. All but the spooled records are swept for every node by
// the one that leads. While the store is away, which was logged once, it asks
// nothing of it.
func (p *Pipeline) Sweep(ctx context.Context) error {
	p.spool.retry()
	if p.away.Load() {
		return nil
	}
	err := p.spool.drain(ctx, p.Store, p.Invocations)
	if p.Leads != nil && !p.Leads() {
		return errors.Join(err, p.touch(ctx))
	}
	return errors.Join(err, p.lapse(ctx, ""), p.overdue(ctx), p.expire(ctx))
}

// touch is for a node that does not lead, which must know when it does since when it reaches
// the store.
func (p *Pipeline) touch(ctx context.Context) error {
	_, err := p.Invocations.Lapsed(ctx, p.storeNow(), "", 1)
	p.contact.note(p.Clock(), err, p.Lease)
	return err
}

// maxRequeues ends a call that repeatedly crashed its worker.
const maxRequeues = 5

// contact is since when the sweep reaches the store without a gap. It begins with the first
// sweep: until a process started the store may have been away. Only the goroutine of the sweep
// uses it, but for steady.
type contact struct {
	last, since time.Time
	steady      atomic.Int64 // since, in Unix nanoseconds
}

// note notes an answer of the store, or that it did not come.
func (c *contact) note(now time.Time, err error, gap time.Duration) {
	switch {
	case err != nil:
		c.since = now.Add(gap) // it ends later
	case c.since.After(now), now.Sub(c.last) > gap:
		c.since = now
	}
	c.last = now
	c.steady.Store(c.since.UnixNano())
}

// reached tells since when the store is reached, to any goroutine; false before the first sweep.
func (c *contact) reached() (since time.Time, ok bool) {
	ns := c.steady.Load()
	return time.Unix(0, ns), ns != 0
}

// storeNow is the store's time, which leases follow: nodes whose clocks differ take no lease for
// lapsed that its node renews.
func (p *Pipeline) storeNow() time.Time {
	now := p.Clock()
	if p.StoreClock == nil || p.Alone {
		return now
	}
	ahead, _, _ := p.StoreClock() // 0 until it is known
	return now.Add(ahead)
}

// storeTimeWithin is how far the store's time may be wrong for a node that gives up calls of others.
const storeTimeWithin = 2 * time.Second

func (p *Pipeline) knowsStoreTime() bool {
	if p.StoreClock == nil {
		return true
	}
	_, within, known := p.StoreClock()
	return known && within <= storeTimeWithin
}

// lapse ends or requeues running calls whose node is gone. With notOwner, every other node is.
// Else a node that could not reach the store itself until now lets a lease's time pass first:
// the nodes whose leases lapsed meanwhile are back, too, and renew them.
func (p *Pipeline) lapse(ctx context.Context, notOwner string) error {
	for {
		rows, err := p.Invocations.Lapsed(ctx, p.storeNow(), notOwner, sweepBatch)
		now := p.Clock()
		p.contact.note(now, err, p.Lease)
		if err != nil {
			return err
		}
		if !p.Alone && (now.Sub(p.contact.since) < p.Lease || !p.knowsStoreTime()) {
			return nil
		}
		if more, err := p.lapseAll(ctx, rows, notOwner != ""); !more {
			return err
		}
	}
}

// lapseAll ends or requeues the calls of one query, and tells whether another may have more.
func (p *Pipeline) lapseAll(ctx context.Context, rows []*toolkeep.Invocation, stopped bool) (more bool, err error) {
	for _, row := range rows {
		if p.spool.holds(row.Ref()) { // it has ended, and the store will learn how
			continue
		}
		if err := p.lapseOne(ctx, row, stopped); err != nil {
			return false, err
		}
		more = true
	}
	return more && len(rows) == sweepBatch, nil
}

// takeUp ends or requeues the calls of this node's earlier run.
func (p *Pipeline) takeUp(ctx context.Context) error {
	for p.Earlier != "" {
		rows, err := p.Invocations.Leased(ctx, p.Earlier, sweepBatch)
		if err != nil {
			return err
		}
		if more, err := p.lapseAll(ctx, rows, true); !more {
			return err
		}
	}
	return nil
}

// lapseOne ends or requeues a call whose lease lapsed; stopped says that its node certainly
// stopped.
func (p *Pipeline) lapseOne(ctx context.Context, row *toolkeep.Invocation, stopped bool) error {
	// After a suspend or a clock jump a process finds its own leases lapsed. What it
	// still runs is not lost.
	if row.LeaseOwner == p.Node && p.running.has(row.Ref()) {
		return p.apply(ctx, toolkeep.RenewLeases{Owner: p.Node, Calls: []toolkeep.CallRef{row.Ref()}, Until: p.storeNow().Add(p.Lease)})
	}
	p.Log.Warn("a running call lost its node", "invocation_id", row.ID, "tool_id", row.ToolID, "node", row.LeaseOwner)
	switch {
	case row.Lapsed(p.declaredIdempotent(ctx, row)) == toolkeep.CallUnknown:
		e := outcomeUnknown()
		if !stopped {
			e.Message = lostNode + "; the call was sent, may or may not have taken effect, and is not repeated automatically"
		}
		return p.finish(ctx, row, toolkeep.CallUnknown, e)
	case row.CancelBy != "":
		return p.finish(ctx, row, toolkeep.CallCancelled, toolkeep.NewError(toolkeep.Cancelled, "the call was cancelled"))
	case !row.Async:
		return p.freeLost(ctx, row, stopped)
	case row.Requeued >= maxRequeues:
		return p.finish(ctx, row, toolkeep.CallFailed, toolkeep.NewError(toolkeep.InternalError,
			"the call lost its worker %d times and is given up", row.Requeued+1))
	}
	row.Requeued++
	return p.requeue(ctx, row, row.LeaseOwner, 0)
}

// lostNode is what is known of the node of a call whose lease lapsed.
const lostNode = "the node that ran the call did not renew its lease: it stopped, or it cannot reach the store"

// freeLost ends a synchronous call whose caller and node are gone and whose work can be
// repeated: its key is freed.
func (p *Pipeline) freeLost(ctx context.Context, row *toolkeep.Invocation, stopped bool) error {
	owner := row.LeaseOwner
	end := *row
	end.State, end.EndedAt, end.Key = toolkeep.CallRefused, p.Clock(), ""
	end.Code, end.Retryable = toolkeep.Draining, true
	end.Message = lostNode + "; send the call again"
	if stopped {
		end.Message = "the server stopped while the call ran; send it again"
	}
	err := p.apply(ctx, toolkeep.MoveCall{Invocation: &end, From: []toolkeep.CallState{toolkeep.CallRunning}, Owner: owner, FreeKey: true})
	if errors.Is(err, toolkeep.ErrStale) {
		return nil
	}
	if err == nil {
		p.called(&end, nil, toolkeep.NewError(end.Code, "%s", end.Message), nil)
	}
	return err
}

// declaredIdempotent asks the catalogue; a removed version counts as not idempotent.
func (p *Pipeline) declaredIdempotent(ctx context.Context, row *toolkeep.Invocation) bool {
	if row.Version == "" {
		return false
	}
	system := &toolkeep.Principal{Tenant: row.Tenant, Subject: row.Subject}
	v, _, err := p.Catalog.Resolve(ctx, system, row.ToolID, row.Version, func(*toolkeep.Tool) bool { return true })
	return err == nil && v.Tool.Digest == row.Digest && v.Tool.Manifest.Idempotent
}

// overdue ends waiting calls that no worker took before their deadline.
func (p *Pipeline) overdue(ctx context.Context) error {
	rows, err := p.Invocations.Overdue(ctx, p.Clock(), sweepBatch)
	if err != nil {
		return err
	}
	for _, row := range rows { // one that cannot be ended keeps no other from it
		if e := p.overdueEnd(ctx, row); !errors.Is(e, toolkeep.ErrStale) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// overdueEnd ends a call whose deadline has passed while it waited: for a worker, or for a person.
func (p *Pipeline) overdueEnd(ctx context.Context, row *toolkeep.Invocation) error {
	if row.State != toolkeep.CallPendingApproval || p.Approvals == nil {
		return p.finishWith(ctx, row, toolkeep.CallFailed, tooLate())
	}
	closing, err := p.Approvals.Close(ctx, row.Ref(), approval.Expired, p.Clock())
	if err != nil {
		return err
	}
	return p.finishWith(ctx, row, toolkeep.CallRefused, approval.Expiry(row.Deadline), closing...)
}

// expire erases answers that were not fetched in time.
func (p *Pipeline) expire(ctx context.Context) error {
	rows, err := p.Invocations.Unfetched(ctx, p.Clock(), sweepBatch)
	if err != nil {
		return err
	}
	for _, row := range rows {
		from := row.State
		end := *row
		end.State, end.Output, end.Attachments = toolkeep.CallExpired, nil, nil
		end.Code, end.Retryable = toolkeep.HandleExpired, false
		end.Message = "the result was not fetched before " + row.ExpiresAt.UTC().Format(time.RFC3339)
		err := p.apply(ctx, toolkeep.MoveCall{Invocation: &end, From: []toolkeep.CallState{from}})
		if err != nil && !errors.Is(err, toolkeep.ErrStale) {
			return err
		}
	}
	return nil
}
