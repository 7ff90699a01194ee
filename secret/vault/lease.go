package vault

import (
	"context"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
)

const (
	maxLeases = 10_000
	// leaseGrace is how long a lease may outlive the deadline of its call, so that it does not expire under a slow
	// last request.
	leaseGrace = 10 * time.Second
	// revokeTimeout limits a revocation; if it fails, the lease expires by itself.
	revokeTimeout = 10 * time.Second
)

// leases holds the credentials in use. A lease lives as long as the context it was read with; its goroutines end
// with close.
type leases struct {
	client *client

	mu     sync.Mutex
	held   map[*lease]struct{}
	closed bool
	wg     sync.WaitGroup
}

type lease struct {
	id        string
	ctx       context.Context // of the call that uses it
	unwatch   func() bool     // stops watching ctx
	timer     *time.Timer     // renews; nil if not needed
	duration  time.Duration
	renewable bool
}

// full returns an error if no further lease may be made.
func (ls *leases) full() error {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	switch {
	case ls.closed:
		return errClosed()
	case len(ls.held) >= maxLeases:
		return refuse(toolkeep.SecretRetrievalFailed, "%d credentials of Vault are in use at once; more are not made", maxLeases)
	}
	return nil
}

// hold keeps a lease until ctx ends and returns when it expires.
func (ls *leases) hold(ctx context.Context, id string, d time.Duration, renewable bool) time.Time {
	now := ls.client.config.Now()
	l := &lease{id: id, ctx: ctx, duration: d, renewable: renewable && d > 0}
	expires := now.Add(d)
	var left time.Duration
	deadline, bounded := ctx.Deadline()
	if bounded {
		left = time.Until(deadline) + leaseGrace
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		ls.revokeSoon(l)
		return expires
	}
	ls.held[l] = struct{}{}
	switch {
	case ctx.Done() == nil: // ctx never ends, so nothing would stop the renewal
		l.timer = time.AfterFunc(d, func() { ls.release(l) })
	case !l.renewable:
	case bounded && left < d:
		expires = now.Add(left)
		ls.renewIn(l, 0, left) // shorter
	case !bounded || left > d:
		ls.renewIn(l, d/2, d)
	}
	l.unwatch = context.AfterFunc(ctx, func() { ls.release(l) })
	return expires
}

// release revokes a lease that is no longer used.
func (ls *leases) release(l *lease) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if _, ok := ls.held[l]; !ok || ls.closed {
		return
	}
	delete(ls.held, l)
	if l.timer != nil {
		l.timer.Stop()
	}
	ls.revokeSoon(l)
}

// revokeSoon revokes in the background. ls.mu is held.
func (ls *leases) revokeSoon(l *lease) {
	ls.wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), revokeTimeout)
		defer cancel()
		ls.revoke(ctx, l)
	})
}

func (ls *leases) revoke(ctx context.Context, l *lease) {
	b, err := ls.client.do(ctx, "revoke a lease", put(ctx, "sys/leases/revoke", map[string]any{"lease_id": l.id}))
	clear(b)
	if err != nil {
		ls.client.config.Log.Warn("a credential of Vault could not be revoked; it ends by itself", "lease", l.id, "error", toolkeep.AsError(err).Cause)
	}
}

// renewIn schedules a renewal that asks for length. ls.mu is held.
func (ls *leases) renewIn(l *lease, in, length time.Duration) {
	l.timer = time.AfterFunc(in, func() {
		ls.mu.Lock()
		if _, ok := ls.held[l]; !ok || ls.closed {
			ls.mu.Unlock()
			return
		}
		ls.wg.Add(1)
		ls.mu.Unlock()
		defer ls.wg.Done()
		ls.renew(l, length)
	})
}

func (ls *leases) renew(l *lease, length time.Duration) {
	s, err := ls.client.current(l.ctx)
	var answer struct {
		Duration  int64 `json:"lease_duration"`
		Renewable bool  `json:"renewable"`
	}
	if err == nil {
		seconds := int64((length + time.Second - 1) / time.Second)
		err = ls.client.ask(s, put(l.ctx, "sys/leases/renew", map[string]any{"lease_id": l.id, "increment": seconds}), &answer)
	}
	if err != nil {
		if l.ctx.Err() == nil {
			ls.client.config.Log.Warn("a credential of Vault could not be renewed", "lease", l.id, "error", cause(err))
		}
		return
	}
	d := time.Duration(answer.Duration) * time.Second
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if _, ok := ls.held[l]; !ok || ls.closed || !answer.Renewable || d <= 0 {
		return
	}
	if deadline, ok := l.ctx.Deadline(); ok && time.Until(deadline) < d {
		return // it lasts long enough
	}
	ls.renewIn(l, max(d/2, time.Second), l.duration)
}

// close revokes all leases, until ctx ends.
func (ls *leases) close(ctx context.Context) {
	ls.mu.Lock()
	if ls.closed {
		ls.mu.Unlock()
		ls.wg.Wait()
		return
	}
	ls.closed = true
	slots := make(chan struct{}, 8) // a shutdown must not flood Vault
	for l := range ls.held {
		if l.timer != nil {
			l.timer.Stop()
		}
		l.unwatch()
		ls.wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			ls.revoke(ctx, l)
		})
	}
	clear(ls.held)
	ls.mu.Unlock()
	ls.wg.Wait()
}
