package upstream

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
)

// health tracks how the sessions of one server and tenant ended, and decides when the
// next may start.
//
//	ok ── failure ──→ backoff (0 the first time, then Base, doubled up to Max)
//	                     │ restartLimit failures within restartWindow
//	                     ↓
//	                  failed (for cooling) ── one more start ──┬─ works → ok
//	                                                           └─ fails → failed
type health struct {
	mu     sync.Mutex
	starts int           // under way
	freed  chan struct{} // closed when a start ends; nil without a waiter
	fails  []time.Time   // within the window, oldest first
	until  time.Time     // no start before this
	failed bool
	why    string // of the latest failure, for callers
	last   string // the same for the operator, redacted
	lastAt time.Time
	login  *toolkeep.Error // E3407 of the latest start, or nil
	lost   int64           // sessions that ended by themselves
}

// gate returns nil if a session may start, else E3541.
func (h *health) gate(name string, now time.Time) *toolkeep.Error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !now.Before(h.until) {
		return nil
	}
	what := "it is being restarted"
	if h.failed {
		what = "it failed too often and is paused"
	}
	e := down(name, what+" ("+h.why+")", true).After(h.until.Sub(now))
	return e.With("state", h.stateLocked(now)).With("reason", h.why)
}

// begin waits until a session may start: of callers that come at once, only as many start
// one as failures are allowed, and one after a pause. The caller calls over when the
// start has worked or failed. It returns E3541 if the server is paused meanwhile, or
// ctx ends.
func (h *health) begin(ctx context.Context, c *Config, name string) *toolkeep.Error {
	for {
		if e := h.gate(name, c.Clock()); e != nil {
			return e
		}
		h.mu.Lock()
		h.forget(c, c.Clock())
		room := max(c.restartLimit-len(h.fails), 1)
		if h.failed {
			room = 1
		}
		if h.starts < room {
			h.starts++
			h.mu.Unlock()
			return nil
		}
		if h.freed == nil {
			h.freed = make(chan struct{})
		}
		freed := h.freed
		h.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return down(name, "other callers' sessions are being started", true)
		}
	}
}

// over ends what begin began.
func (h *health) over() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.starts--
	if h.freed != nil {
		close(h.freed)
		h.freed = nil
	}
}

// forget drops failures that are too old to count. It is called with mu held.
func (h *health) forget(c *Config, now time.Time) {
	for len(h.fails) > 0 && now.Sub(h.fails[0]) > c.restartWindow {
		h.fails = h.fails[1:]
	}
}

// fail counts a failure. why is for callers, last for the operator.
func (h *health) fail(c *Config, now time.Time, why, last string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forget(c, now)
	h.fails = append(h.fails, now)
	h.why, h.last, h.lastAt = why, last, now
	switch n := len(h.fails); {
	case n >= c.restartLimit || h.failed:
		h.failed = true
		h.until = now.Add(c.cooling)
		h.fails = h.fails[max(0, n-c.restartLimit):]
	case n == 1:
		h.until = now
	default:
		d := c.backoffBase << min(n-2, 20)
		d = min(d, c.backoffMax)
		// Jitter of a quarter, so that servers that failed together do not restart
		// together.
		h.until = now.Add(d - time.Duration(rand.Int64N(int64(d)/4+1)))
	}
}

// note records an error that does not count against the server, such as a missing
// secret or a required login.
func (h *health) note(now time.Time, e *toolkeep.Error, last string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last, h.lastAt = last, now
	if h.login = nil; e.Code == toolkeep.LoginRequired {
		h.login = e
	}
}

// started records that a session works.
func (h *health) started() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed, h.until, h.login = false, time.Time{}, nil
}

// forgive clears everything but the latest error.
func (h *health) forgive() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fails, h.failed, h.until, h.login = nil, false, time.Time{}, nil
}

func (h *health) ended() {
	h.mu.Lock()
	h.lost++
	h.mu.Unlock()
}

func (h *health) stateLocked(now time.Time) State {
	switch {
	case h.login != nil:
		return StateLogin
	case h.failed:
		return StateFailed
	case now.Before(h.until):
		return StateBackoff
	}
	return StateIdle
}
