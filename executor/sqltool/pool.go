package sqltool

import (
	"context"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
)

// poolKey identifies who may share connections: one tenant, one binding's connection,
// allow-list and direction (read or write), one credential.
type poolKey struct {
	tenant string
	share  [32]byte
	secret [32]byte
}

// pools holds the open connections of all tools, at most perKey for each key and total
// in all. At the total, another key's idle connection is closed. The lock is held only
// for bookkeeping, never while connecting or closing.
type pools struct {
	perKey, total int
	wait          time.Duration // longest wait for a connection
	idleFor       time.Duration // an idle connection is closed after
	maxAge        time.Duration // a connection is not used again after

	mu      sync.Mutex
	byKey   map[poolKey]*pool
	open    int
	changed chan struct{} // closed when a connection or place became free
	sweeper *time.Timer
	closed  bool
}

type pool struct {
	open int
	idle []*member // oldest first
}

// member is a session in the pools.
type member struct {
	session
	key   poolKey
	born  time.Time
	since time.Time // idle since
	used  bool      // it has served a call
	// leased means that its login ends with the call, so no other call can use it.
	leased bool
}

func newPools(perKey, total int, wait, idleFor, maxAge time.Duration) *pools {
	return &pools{perKey: perKey, total: total, wait: wait, idleFor: idleFor, maxAge: maxAge,
		byKey: make(map[poolKey]*pool), changed: make(chan struct{})}
}

// take returns an idle session of the key, or dials one.
func (p *pools) take(ctx context.Context, key poolKey, dial func(context.Context) (session, error)) (*member, error) {
	var limit <-chan time.Time
	for {
		m, room, changed, drop := p.try(key)
		closeAll(drop)
		switch {
		case m != nil:
			return m, nil
		case room:
			s, err := dial(ctx)
			if err != nil {
				p.forget(key)
				return nil, err
			}
			return &member{session: s, key: key, born: time.Now()}, nil
		}
		if limit == nil {
			t := time.NewTimer(p.wait)
			defer t.Stop()
			limit = t.C
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-limit:
			e := toolkeep.NewError(toolkeep.DBConnectionFailed, "all connections to the tool's database are busy; call again in a moment").With("reason", "busy")
			e.NothingSent = true
			return nil, e
		}
	}
}

// try takes an idle session, or reserves a place for a new one.
func (p *pools) try(key poolKey) (m *member, room bool, changed chan struct{}, drop []*member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := p.byKey[key]
	if own == nil {
		own = &pool{}
		p.byKey[key] = own
	}
	now := time.Now()
	for n := len(own.idle); n > 0; n = len(own.idle) {
		last := own.idle[n-1]
		own.idle = own.idle[:n-1]
		if now.Sub(last.born) < p.maxAge && now.Sub(last.since) < p.idleFor {
			return last, false, nil, drop
		}
		p.gone(own)
		drop = append(drop, last)
	}
	if own.open >= p.perKey {
		return nil, false, p.changed, drop
	}
	if p.open >= p.total {
		victim := p.oldest()
		if victim == nil {
			p.tidy(key)
			return nil, false, p.changed, drop
		}
		drop = append(drop, victim)
	}
	own.open++
	p.open++
	return nil, true, nil, drop
}

// gone subtracts a closed session from the counts.
func (p *pools) gone(own *pool) {
	own.open--
	p.open--
}

// oldest removes the session idle longest.
func (p *pools) oldest() *member {
	var best *member
	for _, other := range p.byKey {
		if len(other.idle) > 0 && (best == nil || other.idle[0].since.Before(best.since)) {
			best = other.idle[0]
		}
	}
	if best == nil {
		return nil
	}
	from := p.byKey[best.key]
	from.idle = append(from.idle[:0:0], from.idle[1:]...)
	p.gone(from)
	p.tidy(best.key)
	return best
}

// tidy removes a pool without sessions.
func (p *pools) tidy(key poolKey) {
	if own := p.byKey[key]; own != nil && own.open == 0 {
		delete(p.byKey, key)
	}
}

func (p *pools) wake() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// forget releases the place of a session that could not be dialled.
func (p *pools) forget(key poolKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone(p.byKey[key])
	p.tidy(key)
	p.wake()
}

// give returns a session, or closes it if it is unusable or its login ends now.
func (p *pools) give(m *member) {
	p.mu.Lock()
	own := p.byKey[m.key]
	if p.closed || m.leased || !m.usable() || time.Since(m.born) >= p.maxAge {
		p.gone(own)
		p.tidy(m.key)
		p.wake()
		p.mu.Unlock()
		m.close()
		return
	}
	m.since, m.used = time.Now(), true
	own.idle = append(own.idle, m)
	if p.sweeper == nil {
		p.sweeper = time.AfterFunc(p.idleFor, p.sweep)
	}
	p.wake()
	p.mu.Unlock()
}

// sweep closes sessions that were idle too long.
func (p *pools) sweep() {
	var drop []*member
	p.mu.Lock()
	now := time.Now()
	left := 0
	for key, own := range p.byKey {
		n := 0
		for n < len(own.idle) && now.Sub(own.idle[n].since) >= p.idleFor {
			drop = append(drop, own.idle[n])
			p.gone(own)
			n++
		}
		own.idle = append(own.idle[:0:0], own.idle[n:]...)
		left += len(own.idle)
		p.tidy(key)
	}
	p.sweeper = nil
	if left > 0 && !p.closed {
		p.sweeper = time.AfterFunc(max(p.idleFor/2, time.Millisecond), p.sweep)
	}
	if len(drop) > 0 {
		p.wake()
	}
	p.mu.Unlock()
	closeAll(drop)
}

func closeAll(list []*member) {
	for _, m := range list {
		m.close()
	}
}

// close closes idle sessions, and busy ones when they are returned.
func (p *pools) close() {
	var drop []*member
	p.mu.Lock()
	p.closed = true
	if p.sweeper != nil {
		p.sweeper.Stop()
	}
	for key, own := range p.byKey {
		for _, m := range own.idle {
			drop = append(drop, m)
			p.gone(own)
		}
		own.idle = nil
		p.tidy(key)
	}
	p.mu.Unlock()
	closeAll(drop)
}
