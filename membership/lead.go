package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/toolkeep/toolkeep"
)

const (
	leadFor   = 10 * time.Second
	leadEvery = 3 * time.Second // between requests for a lead
	leadSlack = 2 * time.Second // what a work has to end before its lead lapses
	leadAgain = 500 * time.Millisecond
	// leadLeave is how long a node asks for no lead after a request whose answer it did not
	// get in time: the store may have granted it, and another node must be able to take it.
	leadLeave = leadFor + leadEvery
	// leadLook is how often the wall clock is looked at while a work is led.
	leadLook = time.Second
)

// Lead has this node lead a work whenever it can, until Yield or Stop; call it after Start.
// It asks once before it returns. run, unless it is nil, is called while the node leads. Its
// context ends before the lead lapses, and run must return then: until it has, this node does
// not ask for the lead again. A run that returns earlier is called again.
func (m *Members) Lead(work string, run func(ctx context.Context)) {
	if run == nil {
		run = func(ctx context.Context) { <-ctx.Done() }
	}
	sent, got, err := m.ask(m.leader, work)
	m.works.Go(func() {
		for m.leader.Err() == nil {
			wait := leadEvery
			if err != nil || got && !m.hold(work, sent, run) {
				wait = leadLeave
			}
			if toolkeep.Sleep(m.leader, wait) {
				sent, got, err = m.ask(m.leader, work)
			}
		}
	})
}

// Leads reports whether this node leads a work.
func (m *Members) Leads(work string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	sent, ok := m.held[work]
	return ok && left(sent) > 0
}

// Yield ends the works that this node leads and waits for them. Others may take them once
// Stop has released them.
func (m *Members) Yield() {
	if m.yield != nil {
		m.yield()
		m.works.Wait()
	}
}

// left is how long a lead may be used that was asked for at sent: by both clocks, since the
// monotonic one stands still while a machine sleeps, and the other may be set back.
func left(sent time.Time) time.Duration {
	now := time.Now()
	passed := max(now.Sub(sent), now.Round(0).Sub(sent.Round(0)))
	return leadFor - leadSlack - passed
}

// ask takes the lead; sent is when it asked. An answer that came too late to be used is an
// error.
func (m *Members) ask(ctx context.Context, work string) (sent time.Time, got bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, leadFor-leadSlack)
	defer cancel()
	sent = time.Now()
	got, err = m.store.Lead(ctx, work, m.c.Self.Name, m.c.Self.Run, leadFor)
	if err == nil && left(sent) <= 0 {
		err = errors.New("the answer came too late")
	}
	if err != nil && m.leader.Err() == nil {
		m.c.Log.Debug("the lead of a work was not given", "work", work, "error", err)
	}
	if got = got && err == nil; got {
		m.leading(work, sent)
	}
	return sent, got, err
}

// hold runs the work and renews its lead. It returns whether the lead is known to be this
// node's or another's at the end, and was not merely not renewed in time.
func (m *Members) hold(work string, sent time.Time, run func(context.Context)) (settled bool) {
	ctx, cancel := context.WithCancel(m.leader)
	defer cancel()
	defer m.leading(work, time.Time{})
	m.c.Log.Info("this node leads a work", "work", work)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer m.survive(work)
		run(ctx)
	}()
	renewed := make(chan time.Time)
	go m.renew(ctx, work, renewed)
	look := func() time.Duration { return min(left(sent), leadLook) }
	timer := time.NewTimer(look())
	defer timer.Stop()
	lost := false
	for !lost {
		select {
		case <-done:
			cancel()
			for range renewed {
			}
			return true
		case <-ctx.Done():
			lost = true
		case at, ok := <-renewed:
			if settled, lost = !ok, !ok; ok {
				sent = at
				m.leading(work, sent)
				timer.Reset(look())
			}
		case <-timer.C:
			lost = left(sent) <= 0
			timer.Reset(look())
		}
	}
	cancel()
	if m.leader.Err() == nil {
		m.c.Log.Warn("this node leads a work no longer: it could not renew its lead in time, or another has taken it", "work", work)
	}
	m.leading(work, time.Time{})
	<-done
	for range renewed {
	}
	return settled
}

// renew sends the time of each request that renewed the lead, and closes renewed when
// another has it or ctx ends.
func (m *Members) renew(ctx context.Context, work string, renewed chan<- time.Time) {
	defer close(renewed)
	for wait := leadEvery; toolkeep.Sleep(ctx, wait); {
		asking, cancel := context.WithTimeout(ctx, leadEvery)
		sent := time.Now()
		got, err := m.store.Lead(asking, work, m.c.Self.Name, m.c.Self.Run, leadFor)
		cancel()
		switch {
		case err != nil:
			wait = leadAgain // hold ends the work in time
			continue
		case !got:
			return
		}
		wait = leadEvery
		select {
		case renewed <- sent:
		case <-ctx.Done():
			return
		}
	}
}

// leading notes that the work is led by a request of sent, a zero one that it is not.
func (m *Members) leading(work string, sent time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if sent.IsZero() {
		delete(m.held, work)
	} else {
		m.held[work] = sent
	}
}

func (m *Members) survive(work string) {
	if r := recover(); r != nil {
		m.c.Log.Error("a work that this node leads panicked; it is run again", "work", work, "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
	}
}

// Every returns a work that calls f at once and then every so often. An error is logged.
func Every(period time.Duration, log *slog.Logger, f func(ctx context.Context) error) func(ctx context.Context) {
	return func(ctx context.Context) {
		for ctx.Err() == nil {
			if err := f(ctx); err != nil && ctx.Err() == nil {
				log.Warn("work that this node leads failed; it is done again", "after", period, "error", err)
			}
			toolkeep.Sleep(ctx, period)
		}
	}
}
