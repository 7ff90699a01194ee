package invoke

import (
	"context"
	"slices"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Start renews leases from now on, and takes over the calls that an earlier process left
// running, if no other process shares the store or the earlier one is known to be dead. Among
// other nodes it asks for what they change in calls.
func (p *Pipeline) Start(ctx context.Context) error {
	p.spawn(func() { p.renewLeases(p.run) })
	takeOver := p.takeUp
	if p.Alone {
		takeOver = func(ctx context.Context) error { return p.lapse(ctx, p.Node) }
	} else {
		p.spawn(func() { p.followMarks(p.run) })
	}
	if err := takeOver(ctx); err != nil {
		p.Stop()
		return err
	}
	return nil
}

// Drain refuses new calls with E3912; those under way go on.
func (p *Pipeline) Drain() {
	if !p.draining.Swap(true) {
		close(p.drain)
	}
}

// Idle waits until the synchronous calls that began before Drain, or ctx, have ended.
// Call Drain first.
func (p *Pipeline) Idle(ctx context.Context) {
	for p.underway.Load() > 0 {
		select {
		case <-p.idle:
		case <-ctx.Done():
			return
		}
	}
}

// callEnded counts the end of a synchronous call.
func (p *Pipeline) callEnded() {
	if p.underway.Add(-1) > 0 || !p.draining.Load() {
		return
	}
	select {
	case p.idle <- struct{}{}:
	default:
	}
}

// Interrupt cancels what still runs at the end of the drain time. Waiting calls that
// cannot have written return to the queue; of the others, those that cannot have
// written end as E3912 and may be repeated, the rest as E3909. A call without a key is
// cancelled through its face's context.
func (p *Pipeline) Interrupt() {
	p.interrupted.Store(true)
	p.running.cancelAll(causeDraining)
}

// Stop ends the pipeline's goroutines and waits for them.
func (p *Pipeline) Stop() {
	p.Drain()
	p.spawning.Lock()
	p.stopped = true
	p.spawning.Unlock()
	p.stop()
	p.overload.Stop()
	p.done.Wait()
}

// spawn runs f in a goroutine that Stop waits for. After Stop, which a call may outlive, it
// does nothing and returns false.
func (p *Pipeline) spawn(f func()) bool {
	p.spawning.Lock()
	defer p.spawning.Unlock()
	if p.stopped {
		return false
	}
	p.done.Go(f)
	return true
}

// renewBatch is how many leases one Apply renews: others wait for it.
const renewBatch = 500

func (p *Pipeline) renewLeases(ctx context.Context) {
	tick := time.NewTicker(p.Lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for held := range slices.Chunk(p.running.held(), renewBatch) {
			if err := p.apply(ctx, toolkeep.RenewLeases{Owner: p.Node, Calls: held, Until: p.storeNow().Add(p.Lease)}); err != nil {
				p.Log.Warn("leases could not be renewed", "calls", len(held), "error", err)
			}
		}
	}
}
