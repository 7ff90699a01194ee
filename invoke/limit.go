package invoke

import (
	"cmp"
	"context"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
)

// limit reads the agent's overlay for the tool, on which rate, cache key, deadline,
// attempts and secrets depend. Then it asks the breakers of the tool and its upstream, and
// takes the tool's bucket and a slot; for a waiting call the worker does, once it is expected to get a place in its bulkheads. A refusal by a
// breaker costs nothing of the limits; where a cached result stands in for it, that is returned here, and a call whose tool
// has a fallback goes on. Test calls of a breaker are counted when they are sent.
func (p *Pipeline) limit(ctx context.Context, a *activeCall) (_ *toolkeep.Result, err error) {
	defer a.tell() // before its progress
	// What has a key or is to be queued met this in admit.
	if a.tool.Writes() && a.call.Key == "" && !a.call.Async {
		if err := p.shed(a); err != nil {
			return nil, err
		}
	}
	if p.Overlays != nil {
		if a.overlay, err = p.Overlays.Of(ctx, a.principal, a.tool); err != nil {
			return nil, err
		}
	}
	a.service = p.ServiceOf(a.principal, a.tool)
	if p.Breakers != nil {
		a.guard = p.Breakers.Of(a.tool, a.service)
	}
	switch {
	case a.waits():
		return nil, nil
	case a.mode == modeDryRun:
		return nil, cmp.Or(p.peekBreakers(ctx, a), p.peekLimits(ctx, a), p.peekPlace(ctx, a))
	}
	refusal := a.guard.Peek()
	if refusal == nil && a.mode == modeWorker { // it comes again, and is to take its tokens once
		place := placeOf(a.principal, a.tool, a.call, a.guard)
		place.Most = workerWait
		if _, err := p.Bulkheads.Peek(ctx, a.within, place); err != nil {
			return nil, err
		}
	}
	if refusal != nil && !p.mayFallBack(a) { // else execute counts the refusal
		if res := p.heldBack(ctx, a, refusal); res != nil {
			if err := p.takeLimits(ctx, a); err != nil {
				return nil, err
			}
			return res, nil
		}
		if err := a.guard.Look(); err != nil {
			return nil, err
		}
	}
	return nil, p.takeLimits(ctx, a)
}

// loaded refuses a new call where this node has more of them than it does in time. What is refused has no record, as in shed.
func (p *Pipeline) loaded(a *activeCall) error {
	if a.mode != modeLive || a.instead { // it belongs to a call that was taken, or is none
		return nil
	}
	err := p.overload.Check(a.call.Priority, p.underway.Load())
	a.unrecorded = err != nil
	return err
}

// Overload is how long requests wait for the processor of this node at present, and how many calls were refused for that or for
// the number of those in flight.
func (p *Pipeline) Overload() (wait time.Duration, refused int64) {
	return p.overload.Wait(), p.overload.Refused()
}

// shed refuses a new call that would add to the store's queue, if a change that comes now is
// expected to wait there for longer than StoreWait: those of the calls under way, which go on, are
// before it. While many calls are in flight it refuses a share of them, as overload does, from a quarter of StoreWait on, by the pace
// of the store alone: one commit that takes long is not its pace. It refuses no share of dry runs, which chance is not to decide. A call
// whose answer is kept under its key adds nothing. What is refused has no record, which would be one more change for the store.
func (p *Pipeline) shed(a *activeCall) error {
	if p.StoreWait <= 0 || a.mode == modeWorker || a.mode == modeChild || a.kept != nil {
		return nil
	}
	queue, ok := p.Store.(toolkeep.QueueWaiter)
	if !ok {
		return nil
	}
	wait, paced := queue.QueueWait()
	if wait <= p.StoreWait {
		if a.mode == modeDryRun || !p.overload.Sheds(a.call.Priority, p.underway.Load(), paced, p.StoreWait/4) {
			return nil
		}
		wait = paced
	}
	a.unrecorded = true
	e := toolkeep.NewError(toolkeep.Backpressure,
		"the store has changes of other calls for %s (store.max_wait is %s), so this call was not begun; try again", wait.Round(time.Millisecond), p.StoreWait).
		With("waited_ms", wait.Milliseconds()).After(wait + p.overload.Pause())
	e.NothingSent = true
	return e
}

// takeLimits takes the overlay's own bucket last, so that a refusal by another limit
// costs nothing there.
func (p *Pipeline) takeLimits(ctx context.Context, a *activeCall) (err error) {
	var left toolkeep.RateLeft
	defer func() { a.leaves(left, err) }()
	own := a.overlay != nil && a.overlay.PerMinute != 0
	if own {
		if err := p.Overlays.Peek(a.principal, a.tool, a.overlay); err != nil {
			return err
		}
	}
	if a.slots, err = p.Limits.Take(ctx, a.principal, a.tool, a.service, a.above); err != nil {
		return err
	}
	if left = a.slots.Left; !own {
		return nil
	}
	rest, err := p.Overlays.Take(a.principal, a.tool, a.overlay)
	if err != nil {
		a.free()
		return err
	}
	left = left.Least(rest)
	return nil
}

// peekBreakers returns what the breakers would refuse, unless a cached result would be returned or the tool's fallback be
// asked then.
func (p *Pipeline) peekBreakers(ctx context.Context, a *activeCall) error {
	err := a.guard.Peek()
	if err == nil || !a.decision.Allowed {
		return err
	}
	if _, fault := p.recall(ctx, a); fault == nil && (a.cache.hit || a.cache.on() && p.stale(a, nil, err) != nil) {
		a.explained.held = true
		return nil
	}
	if !p.mayFallBack(a) || !mends(a.tool, toolkeep.AsError(err)) {
		return err
	}
	if a.explained.Fallback = p.fallbackFor(ctx, a); !a.explained.Fallback.Execute {
		return err
	}
	a.explained.broken = true
	return nil
}

func (p *Pipeline) peekLimits(ctx context.Context, a *activeCall) error {
	if a.overlay != nil {
		if err := p.Overlays.Peek(a.principal, a.tool, a.overlay); err != nil {
			return err
		}
	}
	return p.Limits.Peek(ctx, a.principal, a.tool, a.service, a.instead)
}

// peekPlace returns what the bulkheads would refuse. In that they would have the call wait it passes.
func (p *Pipeline) peekPlace(ctx context.Context, a *activeCall) (err error) {
	if a.explained.held || a.explained.broken { // it is not sent
		return nil
	}
	ctx, cancel := p.bound(ctx, a)
	defer cancel()
	a.explained.hedge = p.hedgeAfter(a.tool, a.call, a.guard)
	a.explained.full, err = p.Bulkheads.Peek(ctx, a.within, placeOf(a.principal, a.tool, a.call, a.guard))
	return err
}

// servicer is an executor that names the services of an upstream, other than by host and port.
type servicer interface {
	ServiceOf(t *toolkeep.Tool) string
}

// ServiceOf names what answers a tool's calls, as the id of its breaker and of its limit, "" for the tool itself: the services of one host fail each by itself.
func (p *Pipeline) ServiceOf(pr *toolkeep.Principal, t *toolkeep.Tool) string {
	switch ex := p.Executors[t.Manifest.Execution.Kind].(type) {
	case servicer:
		return ex.ServiceOf(t)
	case toolkeep.Reacher:
		if to, err := ex.Reach(t); err == nil && len(to.Hosts) == 1 {
			h := to.Hosts[0]
			return "host:" + strings.ToLower(net.JoinHostPort(strings.Trim(h.Host, "[]"), strconv.Itoa(h.Port)))
		}
	}
	return p.upstreamOf(pr, t)
}
