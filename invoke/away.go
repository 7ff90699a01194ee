package invoke

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
)

// probeEvery is how often a store that does not answer is asked again, and how long each
// question may take.
const probeEvery = time.Second

// errAway means that the store counts as away: one reading call found out that it does not
// answer in time, and the others do not ask it.
var errAway = errors.New("the store does not answer")

// StoreHealth is an error while the store does not answer calls.
func (p *Pipeline) StoreHealth() error {
	if p.away.Load() {
		return errAway
	}
	return nil
}

// record stores what a reading call leaves behind, within RecordWait. After that the store
// counts as away. pending is not nil if the commit is still under way, or ended in doubt; it receives the outcome.
func (p *Pipeline) record(ctx context.Context, changes ...toolkeep.Change) (pending <-chan error, err error) {
	if p.away.Load() {
		return nil, errAway
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.RecordWait)
	defer cancel()
	err = p.applyWithin(ctx, changes...)
	if errors.Is(err, toolkeep.ErrInDoubt) {
		return endedAs(err), err
	}
	if err == nil || ctx.Err() == nil {
		return nil, err
	}
	var left *toolkeep.PendingError
	if errors.As(err, &left) {
		pending = left.End
	} else if !errors.Is(err, context.DeadlineExceeded) {
		return nil, err // the store's answer
	}
	p.leave()
	return pending, errAway
}

// endedAs is the outcome of a commit that has ended.
func endedAs(err error) <-chan error {
	end := make(chan error, 1)
	end <- err
	return end
}

// applyWithin returns when ctx ends, if the store can do that.
func (p *Pipeline) applyWithin(ctx context.Context, changes ...toolkeep.Change) error {
	if s, ok := p.Store.(toolkeep.BoundedApplier); ok {
		return s.ApplyWithin(ctx, changes...)
	}
	return p.Store.Apply(ctx, changes...)
}

// leave marks the store as away until a probe finds it again.
func (p *Pipeline) leave() {
	if !p.away.CompareAndSwap(false, true) {
		return
	}
	p.Log.Warn("the store does not answer; records go to the spool", "waited", p.RecordWait)
	if p.OnStoreAway != nil {
		p.OnStoreAway()
	}
	p.spawn(func() {
		for p.run.Err() == nil {
			began := time.Now()
			ctx, cancel := context.WithTimeout(p.run, probeEvery)
			err := p.probe(ctx)
			cancel()
			if err == nil {
				p.away.Store(false)
				p.Log.Info("the store answers again")
				p.endSpooled()
				return
			}
			toolkeep.Sleep(p.run, probeEvery-time.Since(began))
		}
	})
}

// endSpooled moves the spool into the store at once if there are ends in it: other nodes give
// up calls whose leases have lapsed. What fails is left to the sweep.
func (p *Pipeline) endSpooled() {
	if !p.spool.holdsEnds() {
		return
	}
	if err := p.spool.drain(p.run, p.Store, p.Invocations); err != nil && p.run.Err() == nil {
		p.Log.Warn("the spool could not be moved to the store; it is tried again", "error", err)
	}
}

// probe is nil if the store commits and reads. It goes through the store's writer with a
// change that changes nothing: calls that the node does not hold are not renewed.
func (p *Pipeline) probe(ctx context.Context) error {
	absent := toolkeep.CallRef{Tenant: p.Node, ID: uuid.Nil.String()}
	if err := p.applyWithin(ctx, toolkeep.RenewLeases{Owner: p.Node, Calls: []toolkeep.CallRef{absent}, Until: p.Clock()}); err != nil {
		return err
	}
	if _, err := p.Invocations.Get(ctx, absent); !errors.Is(err, toolkeep.ErrNotFound) {
		return err
	}
	return nil
}

// LookUp reads from the store for a call, within RecordWait. It is an error while the store
// counts as away. A read that does not end in time makes it count so.
func (p *Pipeline) LookUp(ctx context.Context, read func(context.Context) error) error {
	if p.away.Load() {
		return errAway
	}
	limited, cancel := context.WithTimeout(ctx, p.RecordWait)
	defer cancel()
	err := read(limited)
	if err != nil && !errors.Is(err, toolkeep.ErrNotFound) && limited.Err() != nil && ctx.Err() == nil {
		p.leave()
		return errAway
	}
	return err
}
