package invoke

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Kinds of LiveEvent.
const (
	LiveOpen     = "open"     // the first one: from now on all is told
	LiveStarted  = "started"  // a call was taken and is carried out
	LiveState    = "state"    // a call waits, or a worker took it
	LiveProgress = "progress" // of an asynchronous call
	LiveEnded    = "ended"    // the record is made
	LiveGap      = "gap"      // events were left out; the list has what became of the calls
)

// LiveEvent is something that happened in calls.
type LiveEvent struct {
	Kind   string
	Call   *toolkeep.Invocation // without output, arguments and what is sealed; nil of open and of a gap. It must not be changed
	Missed int                  // of a gap: how many events
}

const (
	// maxFollowers, maxTenantFollowers and maxOwnFollowers are how many follow the calls of a node at once, all together, of one tenant and
	// of one subject.
	maxFollowers, maxTenantFollowers, maxOwnFollowers = 64, 32, 8
	// followBuffer is how many events wait for a follower that is slow, followRate how many a second it is told at most.
	followBuffer, followRate = 256, 50
	// followOthers is how often the list is asked for calls of other nodes, and followBack how long ago those were created.
	followOthers, followBack = 2 * time.Second, time.Minute
)

// live tells those who follow the calls of this node. Its lock is a leaf but for those of followers.
type live struct {
	count atomic.Int32 // of followers: without one a call does nothing for them
	mu    sync.RWMutex
	all   map[*follower]struct{}
}

type follower struct {
	principal *toolkeep.Principal
	filter    toolkeep.InvocationFilter
	events    chan LiveEvent
	mu        sync.Mutex
	second    int64 // told is what was told in it
	told      int
	missed    int
}

func (l *live) any() bool { return l.count.Load() > 0 }

// join is E3802 if there are too many followers.
func (l *live) join(pr *toolkeep.Principal, f toolkeep.InvocationFilter) (*follower, error) {
	w := &follower{principal: pr, filter: f, events: make(chan LiveEvent, followBuffer)}
	l.mu.Lock()
	defer l.mu.Unlock()
	tenants, own := 0, 0
	for o := range l.all {
		if o.principal.Tenant == pr.Tenant {
			tenants++
			if o.principal.Subject == pr.Subject {
				own++
			}
		}
	}
	if len(l.all) >= maxFollowers || tenants >= maxTenantFollowers || own >= maxOwnFollowers {
		return nil, toolkeep.NewError(toolkeep.ConcurrencyLimitExceeded, "too many follow the calls of this node, %d times you; at most %d of all, %d of a tenant and %d of one subject can: close one", own, maxFollowers, maxTenantFollowers, maxOwnFollowers).After(5 * time.Second)
	}
	if l.all == nil {
		l.all = map[*follower]struct{}{}
	}
	l.all[w] = struct{}{}
	l.count.Add(1)
	return w, nil
}

func (l *live) leave(w *follower) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, w)
	l.count.Add(-1)
}

// tell tells of a call those who may see it and whose filter selects it. It never blocks.
func (l *live) tell(kind string, v *toolkeep.Invocation) {
	row := *v
	row.Output, row.Input, row.SealedArgs, row.SealedCaller, row.Warnings, row.Attachments, row.Secrets = nil, nil, nil, nil, nil, nil, nil
	if !row.State.Ended() {
		row.EndedAt, row.TotalUS = time.Time{}, 0
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	for w := range l.all {
		if w.principal.Tenant != row.Tenant || row.Subject != w.principal.Subject && !w.principal.May(toolkeep.PermInvocations) {
			continue
		}
		if shown := told(w.principal, &row); mayFollow(w.principal, shown) && w.filter.Selects(shown) {
			w.offer(LiveEvent{Kind: kind, Call: shown})
		}
	}
}

func mayFollow(pr *toolkeep.Principal, v *toolkeep.Invocation) bool {
	return (v.Subject == pr.Subject || pr.May(toolkeep.PermInvocations)) && pr.Shows(v.ToolID, v.Version, v.Writes)
}

func (w *follower) offer(e LiveEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now().Unix(); now != w.second {
		w.second, w.told = now, 0
	}
	if w.told >= followRate {
		w.missed++
		return
	}
	select {
	case w.events <- e:
		w.told++
	default:
		w.missed++
	}
}

func (w *follower) gap() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.missed
	w.missed = 0
	return n
}

// Follow yields what happens in the calls that the principal may see and the filter selects, until ctx ends: each that starts,
// waits, tells progress or ends on this node, and within some seconds those of other nodes that wait or have ended and were
// created in the last minute. Calls of before are in List. Events that are too many are left out, and counted in one of kind gap.
// E3802 if too many follow.
func (p *Pipeline) Follow(ctx context.Context, pr *toolkeep.Principal, f toolkeep.InvocationFilter) iter.Seq2[LiveEvent, error] {
	return func(yield func(LiveEvent, error) bool) {
		f.Tenant = pr.Tenant
		w, err := p.live.join(pr, f)
		if err != nil {
			yield(LiveEvent{}, err)
			return
		}
		defer p.live.leave(w)
		began := p.Clock()
		if !yield(LiveEvent{Kind: LiveOpen}, nil) {
			return
		}
		known := map[string]*toolkeep.Invocation{} // the newest of each call, for those that the list has too
		next := func(e LiveEvent) bool {
			if !p.Alone {
				if was := known[e.Call.ID]; was != nil && was.State.Ended() {
					return true
				}
				known[e.Call.ID] = e.Call
			}
			return yield(e, nil)
		}
		every := time.NewTicker(followOthers)
		defer every.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case e := <-w.events:
				if !next(e) {
					return
				}
				continue
			case <-every.C:
			}
			if n := w.gap(); n > 0 && !yield(LiveEvent{Kind: LiveGap, Missed: n}, nil) {
				return
			}
			for id, v := range known {
				if p.Clock().Sub(v.CreatedAt) > 2*followBack {
					delete(known, id)
				}
			}
			if p.Alone || p.away.Load() {
				continue
			}
			rows, missed := p.elsewhere(ctx, pr, f, began)
			if missed > 0 && !yield(LiveEvent{Kind: LiveGap, Missed: missed}, nil) {
				return
			}
			for _, v := range rows {
				was := known[v.ID]
				kind := LiveState
				if v.State.Ended() {
					kind = LiveEnded
				}
				if was != nil && (was.State == v.State || was.State.Ended()) || p.running.has(v.Ref()) {
					continue
				}
				if !next(LiveEvent{Kind: kind, Call: v}) {
					return
				}
			}
		}
	}
}

// elsewhere is the newest calls of all nodes, oldest first, and how many more there are, at least.
func (p *Pipeline) elsewhere(ctx context.Context, pr *toolkeep.Principal, f toolkeep.InvocationFilter, began time.Time) (rows []*toolkeep.Invocation, missed int) {
	since := p.Clock().Add(-followBack)
	if since.Before(began) {
		since = began
	}
	if f.Since.Before(since) {
		f.Since = since
	}
	f.Offset, f.Limit = 0, 200
	rows, of, err := p.List(ctx, pr, f)
	if err != nil {
		if ctx.Err() == nil {
			p.seldom.Warn("the calls of other nodes cannot be read for those who follow", "error", err)
		}
		return nil, 1
	}
	for i, j := 0, len(rows)-1; i < j; i, j = i+1, j-1 {
		rows[i], rows[j] = rows[j], rows[i]
	}
	return rows, of - len(rows)
}
