package invoke

import (
	"context"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
)

// reporter keeps the latest progress of a waiting call, at most once a second.
type reporter struct {
	p    *Pipeline
	ref  toolkeep.CallRef
	row  *toolkeep.Invocation // the call as it was when its run began, which does not change; nil in tests
	of   *activeCall          // for redaction; its cleaner is set before the executor begins
	mu   sync.Mutex
	last time.Time         // time of the latest write
	kept toolkeep.Progress // latest written
	next toolkeep.Progress // to be written
	busy bool              // a write is under way
	wait *time.Timer       // delays the write of next; nil if none waits
	over bool
}

// Progress never blocks: there is at most one write at a time, and the latest wins.
func (r *reporter) Progress(g toolkeep.Progress) {
	clean := r.p.Redact.All()
	if r.of != nil && r.of.cleaner != nil {
		clean = r.of.cleaner
	}
	g.Message = clean.Clean(g.Message)
	g.Phase = clean.Clean(g.Phase)
	g.Percent = min(max(g.Percent, 0), 100)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next = g
	r.write()
}

// write is called with mu held.
func (r *reporter) write() {
	if r.over || r.busy || r.wait != nil || r.next == r.kept {
		return
	}
	now := r.p.Clock()
	if left := time.Second - now.Sub(r.last); left > 0 {
		r.wait = time.AfterFunc(left, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.wait = nil
			r.write()
		})
		return
	}
	g := r.next
	r.kept, r.last = g, now
	r.busy = r.p.spawn(func() {
		if err := r.p.apply(context.Background(), toolkeep.ReportProgress{Call: r.ref, Progress: g}); err != nil {
			r.p.Log.Warn("progress could not be stored", "invocation_id", r.ref.ID, "error", err)
		} else if r.row != nil && r.p.live.any() {
			own := *r.row
			own.Progress = g
			r.p.live.tell(LiveProgress, &own)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.busy = false
		r.write()
	})
}

// stop is called when the call has ended.
func (r *reporter) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	if r.wait != nil {
		r.wait.Stop()
	}
}
