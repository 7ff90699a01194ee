package sqltool

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
)

// idleSession is a session that only counts itself.
type idleSession struct {
	live *atomic.Int64
	bad  bool
}

func (s *idleSession) begin(context.Context, *binding, time.Duration) error { return nil }
func (s *idleSession) run(context.Context, *round) error                    { return nil }
func (s *idleSession) end(context.Context, bool) error                      { return nil }
func (s *idleSession) stop(context.Context)                                 {}
func (s *idleSession) usable() bool                                         { return !s.bad }
func (s *idleSession) traffic() (int64, int64)                              { return 0, 0 }
func (s *idleSession) close()                                               { s.live.Add(-1) }

func dialCounted(live *atomic.Int64) func(context.Context) (session, error) {
	return func(context.Context) (session, error) {
		live.Add(1)
		return &idleSession{live: live}, nil
	}
}

// TestPoolHammer takes and gives from many goroutines and checks the bounds.
func TestPoolHammer(t *testing.T) {
	var live atomic.Int64
	p := newPools(3, 5, time.Minute, time.Minute, time.Hour)
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 300 {
				key := poolKey{tenant: string(rune('a' + (g+i)%4))}
				m, err := p.take(t.Context(), key, func(ctx context.Context) (session, error) {
					if i%17 == 0 {
						return nil, errors.New("no")
					}
					return dialCounted(&live)(ctx)
				})
				if err != nil {
					continue
				}
				if n := live.Load(); n > 5+4 { // an evicted session is closed just after its place is taken
					t.Errorf("%d are open", n)
				}
				m.session.(*idleSession).bad = i%13 == 0
				p.give(m)
			}
		})
	}
	wg.Wait()
	if open, idle := p.counts(); open != idle || int64(open) != live.Load() || open > 5 {
		t.Errorf("%d open, %d idle, %d live", open, idle, live.Load())
	}
	p.close()
	p.close()
	if open, _ := p.counts(); open != 0 || live.Load() != 0 || len(p.byKey) != 0 {
		t.Errorf("%d open, %d live after close", open, live.Load())
	}
}

func TestPoolTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var live atomic.Int64
		p := newPools(1, 4, 5*time.Second, time.Minute, 10*time.Minute)
		defer p.close()
		key := poolKey{tenant: "a"}
		take := func() *member {
			m, err := p.take(t.Context(), key, dialCounted(&live))
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		m := take()
		// The second waits 5 s and fails with nothing sent.
		start := time.Now()
		_, err := p.take(t.Context(), key, dialCounted(&live))
		if e := toolkeep.AsError(err); e.Code != toolkeep.DBConnectionFailed || !e.NothingSent || time.Since(start) != 5*time.Second {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.take(ctx, key, dialCounted(&live)); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		go func() {
			time.Sleep(time.Second)
			p.give(m)
		}()
		if again := take(); again != m {
			t.Error("another session was made")
		}
		p.give(m)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if live.Load() != 0 {
			t.Error("an idle session stays open")
		}
		m = take()
		time.Sleep(11 * time.Minute)
		p.give(m)
		if live.Load() != 0 {
			t.Error("a session serves beyond its age")
		}
		p.close()
		m = take()
		p.give(m)
		if live.Load() != 0 {
			t.Error("a closed pool keeps sessions")
		}
	})
}

// counts returns the number of open and of idle sessions.
func (p *pools) counts() (open, idle int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, own := range p.byKey {
		idle += len(own.idle)
	}
	return p.open, idle
}

// leasedLogin: a connection is closed with the call for which its login was made, also when
// the call fails; other logins' connections are kept.
func leasedLogin(t *testing.T, b *bench) {
	own := *b
	own.e = New(b.e.config)
	defer own.e.Close()
	for _, leased := range []bool{true, false} {
		own.creds = []toolkeep.Credential{{Spec: toolkeep.AuthSpec{Type: "bearer"}, Value: password, Leased: leased}}
		own.must(query("SELECT 1 AS n"), `{}`)
		_, err := own.call(t.Context(), query("SELECT nothing FROM nowhere"), `{}`)
		if toolkeep.AsError(err).Code != toolkeep.QueryFailed {
			t.Errorf("the failing statement: %v", err)
		}
		if open, _ := own.e.pools.counts(); leased != (open == 0) {
			t.Errorf("leased %t: %d connections are open after the call", leased, open)
		}
	}
}
