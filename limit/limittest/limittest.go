// Package limittest is what limits must do however they are counted: in a process, or by a
// limit.Counter for all nodes.
package limittest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/limit"
)

// Harness makes the limits of a test.
type Harness struct {
	// New returns the limits of one or more nodes that are to keep c together. Nothing but Pass moves
	// their time, if that is set.
	New func(t *testing.T, nodes int, c limit.Config) []*limit.Limits
	// Pass lets time pass; nil if it cannot, and cases that need it are left out.
	Pass func(t *testing.T, d time.Duration)
	// Grain is how exact times are.
	Grain time.Duration
}

const off = -1

// Agent returns a principal.
func Agent(subject string) *toolkeep.Principal {
	return &toolkeep.Principal{Tenant: "acme", Subject: subject}
}

// Tool returns a tool with a limit of its own.
func Tool(id string, spec *toolkeep.RateLimitSpec) *toolkeep.Tool {
	return &toolkeep.Tool{ID: id, Version: "1.0.0", Tenant: "acme", Manifest: &toolkeep.Manifest{ToolID: id, RateLimit: spec}}
}

// Refused asserts that err is a refusal by a limit, and returns it.
func Refused(t *testing.T, err error, code toolkeep.Code, kind string) *toolkeep.Error {
	t.Helper()
	var e *toolkeep.Error
	if !errors.As(err, &e) || e.Code != code || e.Details["limit_type"] != kind || e.RetryAfter <= 0 {
		t.Fatalf("got %v, want %s of %s with a time", err, code, kind)
	}
	return e
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("refused: %v", err)
	}
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	t.Run("algorithms", h.algorithms)
	t.Run("requests", h.requests)
	t.Run("refused costs nothing", h.free)
	t.Run("slots", h.slots)
	t.Run("at once", h.atOnce)
}

func (h Harness) one(t *testing.T, c limit.Config) *limit.Limits { return h.New(t, 1, c)[0] }

func (h Harness) near(got, want time.Duration) bool { return (got - want).Abs() <= h.Grain }

// step lets time pass, admits some calls, then refuses one with a wait.
type step struct {
	pass  time.Duration
	admit int
	wait  time.Duration
}

func (h Harness) algorithms(t *testing.T) {
	const second = time.Second
	for _, tc := range []struct {
		spec  toolkeep.RateLimitSpec
		steps []step
	}{
		{toolkeep.RateLimitSpec{PerMinute: 6},
			[]step{{0, 6, 10 * second}, {10 * second, 1, 10 * second}, {25 * second, 2, 5 * second}, {time.Hour, 6, 10 * second}}},
		{toolkeep.RateLimitSpec{Algorithm: "token_bucket", PerMinute: 6, Burst: 2}, []step{{0, 2, 10 * second}, {10 * second, 1, 10 * second}}},
		{toolkeep.RateLimitSpec{Algorithm: "leaky_bucket", PerMinute: 6}, []step{{0, 1, 10 * second}, {9 * second, 0, second}, {time.Hour, 1, 10 * second}}},
		{toolkeep.RateLimitSpec{Algorithm: "leaky_bucket", PerMinute: 6, Burst: 3}, []step{{0, 3, 10 * second}}},
		{toolkeep.RateLimitSpec{Algorithm: "fixed_window", PerMinute: 6},
			[]step{{0, 6, 60 * second}, {59 * second, 0, second}, {second, 6, 60 * second}, {time.Hour, 6, 60 * second}}},
		{toolkeep.RateLimitSpec{Algorithm: "sliding_window", PerMinute: 6},
			[]step{{0, 4, 0}, {30 * second, 2, 31 * second}, {30 * second, 0, second}, {second, 4, 30 * second}, {30 * second, 2, 31 * second}, {time.Hour, 6, 61 * second}}},
	} {
		t.Run(fmt.Sprintf("%s %d %d", tc.spec.Algorithm, tc.spec.PerMinute, tc.spec.Burst), func(t *testing.T) {
			l := h.one(t, limit.Config{PerToolRPM: off, Concurrent: off})
			tool, ctx := Tool("x.y", &tc.spec), t.Context()
			for i, s := range tc.steps {
				if s.pass > 0 {
					if h.Pass == nil {
						return
					}
					h.Pass(t, s.pass)
				}
				for n := range s.admit {
					must(t, l.Peek(ctx, Agent("a"), tool, false))
					if _, err := l.Take(ctx, Agent(fmt.Sprint(n)), tool, nil); err != nil {
						t.Fatalf("step %d: call %d refused: %v", i, n, err)
					}
				}
				if s.wait == 0 {
					continue
				}
				_, err := l.Take(ctx, Agent("a"), tool, nil)
				e := Refused(t, err, toolkeep.RateLimitExceeded, limit.TypeTool)
				if h.Pass != nil && !h.near(e.RetryAfter, s.wait) || e.RetryAfter > s.wait+h.Grain {
					t.Fatalf("step %d: RetryAfter %v, want %v", i, e.RetryAfter, s.wait)
				}
				Refused(t, l.Peek(ctx, Agent("b"), tool, false), toolkeep.RateLimitExceeded, limit.TypeTool)
			}
		})
	}
}

func (h Harness) requests(t *testing.T) {
	l, ctx := h.one(t, limit.Config{PerAgentRPM: 100, GlobalRPM: 150}), t.Context()
	p := Agent("a")
	for range 100 {
		must(t, l.TakeRequest(ctx, p))
	}
	if most, left, _ := l.Status(p); most != 100 || left > 1 {
		t.Errorf("%d of %d are left", left, most)
	}
	if h.Pass != nil {
		e := Refused(t, l.TakeRequest(ctx, p), toolkeep.RateLimitExceeded, limit.TypeAgent)
		if !h.near(e.RetryAfter, 600*time.Millisecond) || e.Details["limit_per_minute"] != 100 {
			t.Errorf("%v %v", e.RetryAfter, e.Details)
		}
		for range 50 { // the same name in another tenant
			must(t, l.TakeRequest(ctx, &toolkeep.Principal{Tenant: "other", Subject: "a"}))
		}
		Refused(t, l.TakeRequest(ctx, Agent("b")), toolkeep.RateLimitExceeded, limit.TypeGlobal)
		h.Pass(t, e.RetryAfter)
		must(t, l.TakeRequest(ctx, p))
		Refused(t, l.TakeRequest(ctx, p), toolkeep.RateLimitExceeded, limit.TypeAgent)
	}
}

// free: a call that one limit refuses takes nothing of the others.
func (h Harness) free(t *testing.T) {
	ctx := t.Context()
	l := h.one(t, limit.Config{PerAgentRPM: 2, GlobalRPM: 1})
	must(t, l.TakeRequest(ctx, Agent("other")))
	for range 5 {
		Refused(t, l.TakeRequest(ctx, Agent("a")), toolkeep.RateLimitExceeded, limit.TypeGlobal)
	}
	if _, left, _ := l.Status(Agent("a")); left != 2 {
		t.Errorf("%d left, want 2", left)
	}
	l = h.one(t, limit.Config{Concurrent: 1, PerToolRPM: 2})
	p, tool := Agent("b"), Tool("x.free", &toolkeep.RateLimitSpec{PerMinute: 2})
	slots, err := l.Take(ctx, p, tool, nil)
	must(t, err)
	for range 5 {
		_, err := l.Take(ctx, p, tool, nil)
		Refused(t, err, toolkeep.ConcurrencyLimitExceeded, limit.TypeAgent)
		Refused(t, l.Peek(ctx, p, tool, false), toolkeep.ConcurrencyLimitExceeded, limit.TypeAgent)
	}
	slots.Release()
	slots, err = l.Take(ctx, p, tool, nil)
	must(t, err)
	slots.Release()
	_, err = l.Take(ctx, p, tool, nil)
	Refused(t, err, toolkeep.RateLimitExceeded, limit.TypeAgentTool)
}

func (h Harness) slots(t *testing.T) {
	l, ctx := h.one(t, limit.Config{PerToolRPM: off}), t.Context()
	p := Agent("a")
	plain, bounded := Tool("x.plain", nil), Tool("x.bounded", &toolkeep.RateLimitSpec{MaxConcurrent: 2})
	var calls []*limit.Slots
	take := func(p *toolkeep.Principal, tool *toolkeep.Tool, above *limit.Slots) {
		t.Helper()
		s, err := l.Take(ctx, p, tool, above)
		must(t, err)
		calls = append(calls, s)
	}
	full := func(kind string, p *toolkeep.Principal, tool *toolkeep.Tool, above *limit.Slots) {
		t.Helper()
		_, err := l.Take(ctx, p, tool, above)
		Refused(t, err, toolkeep.ConcurrencyLimitExceeded, kind)
	}
	for range 4 {
		take(p, plain, nil)
	}
	full(limit.TypeAgent, p, plain, nil)
	take(p, bounded, calls[0])
	take(p, bounded, calls[1])
	full(limit.TypeTool, p, bounded, calls[2])
	full(limit.TypeTool, Agent("b"), bounded, nil)
	calls[0].Release()
	calls[0].Release()
	take(p, plain, nil)
	full(limit.TypeAgent, p, plain, nil)

	// A call that waits for its caller gives both back, and gets the tool's again when there is one.
	calls[4].Pause()
	take(Agent("b"), bounded, nil)
	full(limit.TypeTool, Agent("c"), bounded, nil)
	calls[4].Resume()
	full(limit.TypeTool, Agent("c"), bounded, nil)
	goesOn := make(chan struct{})
	go func() { calls[4].Await(context.Background()); close(goesOn) }()
	calls[5].Release()
	<-goesOn
	full(limit.TypeTool, Agent("c"), bounded, nil)
	for _, s := range calls {
		s.Release()
	}
	take(Agent("c"), bounded, nil)
	take(Agent("c"), bounded, nil)
	full(limit.TypeTool, Agent("d"), bounded, nil)
	for _, s := range calls {
		s.Release()
	}
}

// atOnce: whatever comes at once and to whichever node, no more is admitted than the limits say.
func (h Harness) atOnce(t *testing.T) {
	const nodes, each, rounds = 3, 3, 40
	spec := &toolkeep.RateLimitSpec{Algorithm: "fixed_window", PerMinute: 70, MaxConcurrent: 7}
	if h.Pass == nil { // a minute may end
		spec = &toolkeep.RateLimitSpec{Algorithm: "sliding_window", PerMinute: 70, MaxConcurrent: 7}
	}
	tool := Tool("x.rush", spec)
	var calls, running, most atomic.Int64
	var wg sync.WaitGroup
	for _, l := range h.New(t, nodes, limit.Config{PerToolRPM: off, Concurrent: off}) {
		for i := range each {
			wg.Go(func() {
				var mine []*limit.Slots
				for range rounds {
					s, err := l.Take(context.Background(), Agent(fmt.Sprint(i)), tool, nil)
					if err == nil {
						calls.Add(1)
						n := running.Add(1)
						for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
						}
						mine = append(mine, s)
					}
					if len(mine) > 1 || err != nil && len(mine) > 0 {
						running.Add(-1)
						mine[0].Release()
						mine = mine[1:]
					}
				}
				for _, s := range mine {
					running.Add(-1)
					s.Release()
				}
			})
		}
	}
	wg.Wait()
	if most.Load() > 7 || most.Load() < 2 {
		t.Errorf("%d calls ran at once, want up to 7", most.Load())
	}
	if n := calls.Load(); n != 70 {
		t.Errorf("%d calls were admitted, want 70", n)
	}
}
