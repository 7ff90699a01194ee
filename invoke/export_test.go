package invoke

import (
	"context"

	"github.com/toolkeep/toolkeep"
)

// UnsharedRuns returns how many calls run alone, or wait to, because their results are
// personal.
func (p *Pipeline) UnsharedRuns() (n int) {
	p.unsharedRuns.mu.Lock()
	defer p.unsharedRuns.mu.Unlock()
	for _, s := range p.unsharedRuns.of {
		n += s.users
	}
	return n
}

// PendingRecords returns how many spooled records are in a commit that is under way.
func (p *Pipeline) PendingRecords() int {
	p.spool.mu.Lock()
	defer p.spool.mu.Unlock()
	return len(p.spool.pending)
}

// Drained moves the spool into the store.
func (p *Pipeline) Drained(ctx context.Context) error {
	return p.spool.drain(ctx, p.Store, p.Invocations)
}

// Notify wakes who waits for a call, as a change of it does.
func (p *Pipeline) Notify(ref toolkeep.CallRef) { p.watchers.notify(ref) }
