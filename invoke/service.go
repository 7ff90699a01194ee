package invoke

import (
	"context"
	"errors"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Start follows the feed and, where no other process shares the store, takes up
// what a process before this one left running.
func (p *Pipeline) Start(ctx context.Context) error {
	head, err := p.Store.Head(ctx)
	if err != nil {
		return err
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	p.stop = stop
	p.done.Add(2)
	go p.follow(run, head)
	go p.renewLeases(run)
	if p.Alone {
		if err := p.lapse(ctx, p.Node); err != nil {
			p.Stop()
			return err
		}
	}
	return nil
}

// Drain refuses new calls with E3912; those under way go on.
func (p *Pipeline) Drain() { p.draining.Store(true) }

// Idle waits until the synchronous calls that came before Drain have ended, or
// ctx has. Drain must have been called.
func (p *Pipeline) Idle(ctx context.Context) {
	for p.underway.Load() > 0 {
		select {
		case <-p.idle:
		case <-ctx.Done():
			return
		}
	}
}

// leave is the end of a call that counts as under way.
func (p *Pipeline) leave() {
	if p.underway.Add(-1) > 0 || !p.draining.Load() {
		return
	}
	select {
	case p.idle <- struct{}{}:
	default:
	}
}

// Interrupt cancels what still runs, as when the time to drain is over. Waiting
// calls that cannot have written go back to the queue; of the others, those that
// cannot have written end as E3912 and may be sent again, the rest as E3909. A
// call without a key is reached through the context that its face gave it.
func (p *Pipeline) Interrupt() {
	p.cutOff.Store(true)
	p.hub.stopAll(causeDraining)
}

// Stop ends the pipeline's goroutines and waits for them.
func (p *Pipeline) Stop() {
	p.Drain()
	if p.stop != nil {
		p.stop()
	}
	p.done.Wait()
}

// follow hands the feed to the hub. A feed that breaks is taken up again where
// it broke.
func (p *Pipeline) follow(ctx context.Context, after int64) {
	defer p.done.Done()
	for ctx.Err() == nil {
		for c, err := range p.Store.Watch(ctx, after) {
			if err != nil {
				p.Log.Warn("the feed of changes broke and is taken up again", "after", after, "error", err)
				break
			}
			after = c.Seq
			p.hub.saw(c.Change)
		}
		pause(ctx, time.Second)
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func (p *Pipeline) renewLeases(ctx context.Context) {
	defer p.done.Done()
	tick := time.NewTicker(p.Lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		held := p.leases.list()
		if len(held) == 0 {
			continue
		}
		if err := p.apply(ctx, toolkeep.RenewLeases{Owner: p.Node, Calls: held, Until: p.Clock().Add(p.Lease)}); err != nil {
			p.Log.Warn("leases could not be renewed", "calls", len(held), "error", err)
		}
	}
}

// sweepBatch is how many rows one look of the sweep takes.
const sweepBatch = 200

// Sweep is the periodic look at waiting calls: leases that lapsed, deadlines
// that passed, answers nobody fetched, records that wait for the store.
func (p *Pipeline) Sweep(ctx context.Context) error {
	return errors.Join(p.spool.drainIfAny(ctx, p.Store), p.lapse(ctx, ""), p.overdue(ctx), p.expire(ctx))
}

func (s *spool) drainIfAny(ctx context.Context, store toolkeep.Applier) error {
	if s.path == "" {
		return nil
	}
	return s.drain(ctx, store)
}

// maxRequeues ends a call that took its worker down again and again.
const maxRequeues = 5

// lapse ends or requeues running calls whose node is gone.
func (p *Pipeline) lapse(ctx context.Context, notOwner string) error {
	for {
		rows, err := p.Invocations.Lapsed(ctx, p.Clock(), notOwner, sweepBatch)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if err := p.lapseOne(ctx, row); err != nil {
				return err
			}
		}
		if len(rows) < sweepBatch {
			return nil
		}
	}
}

func (p *Pipeline) lapseOne(ctx context.Context, row *toolkeep.Invocation) error {
	// A process that slept, or whose clock jumped, finds its own leases lapsed. What
	// it still runs is not lost.
	if row.LeaseOwner == p.Node && p.hub.holds(row.Ref()) {
		return p.apply(ctx, toolkeep.RenewLeases{Owner: p.Node, Calls: []toolkeep.CallRef{row.Ref()}, Until: p.Clock().Add(p.Lease)})
	}
	p.Log.Warn("a running call lost its node", "invocation_id", row.ID, "tool_id", row.ToolID, "node", row.LeaseOwner)
	switch {
	case row.Lapsed(p.declaredIdempotent(row)) == toolkeep.CallUnknown:
		return p.finish(ctx, row, toolkeep.CallUnknown, outcomeUnknown())
	case row.CancelBy != "":
		return p.finish(ctx, row, toolkeep.CallCancelled, toolkeep.NewError(toolkeep.Cancelled, "the call was cancelled"))
	case !row.Async:
		return p.freeLost(ctx, row)
	case row.Requeued >= maxRequeues:
		return p.finish(ctx, row, toolkeep.CallFailed, toolkeep.NewError(toolkeep.InternalError,
			"the call lost its worker %d times and is given up", row.Requeued+1))
	}
	row.Requeued++
	return p.requeue(ctx, row, row.LeaseOwner, 0)
}

// freeLost ends a synchronous call whose caller and node are gone and whose work
// can be repeated: its key is free again.
func (p *Pipeline) freeLost(ctx context.Context, row *toolkeep.Invocation) error {
	owner := row.LeaseOwner
	end := *row
	end.State, end.EndedAt, end.Key = toolkeep.CallRefused, p.Clock(), ""
	end.Code, end.Retryable = toolkeep.Draining, true
	end.Message = "the server stopped while the call ran; send it again"
	err := p.apply(ctx, toolkeep.MoveCall{Invocation: &end, From: []toolkeep.CallState{toolkeep.CallRunning}, Owner: owner, FreeKey: true})
	if errors.Is(err, toolkeep.ErrStale) {
		return nil
	}
	if err == nil && p.Observer != nil {
		p.Observer.Called(&end, nil, toolkeep.NewError(end.Code, "%s", end.Message), &Steps{})
	}
	return err
}

// declaredIdempotent asks the catalogue; a version that is gone counts as not.
func (p *Pipeline) declaredIdempotent(row *toolkeep.Invocation) bool {
	if row.Version == "" {
		return false
	}
	system := &toolkeep.Principal{Tenant: row.Tenant, Subject: row.Subject}
	v, _, err := p.Catalog.Resolve(system, row.ToolID, row.Version, func(*toolkeep.Tool) bool { return true })
	return err == nil && v.Tool.Digest == row.Digest && v.Tool.Manifest.Idempotent
}

// overdue ends waiting calls that no worker took before their deadline.
func (p *Pipeline) overdue(ctx context.Context) error {
	rows, err := p.Invocations.Overdue(ctx, p.Clock(), sweepBatch)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if err := p.finish(ctx, row, toolkeep.CallFailed, tooLate()); err != nil {
			return err
		}
	}
	return nil
}

// expire erases answers that nobody fetched in time.
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
