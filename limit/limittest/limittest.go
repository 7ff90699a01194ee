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

// Request takes a request.
func Request(l *limit.Limits, ctx context.Context, p *toolkeep.Principal) error {
	_, err := l.TakeRequest(ctx, p)
	return err
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
	t.Run("every rate", h.rates)
	t.Run("rates of all tenants", h.untold)
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
				minute := time.Now().Unix() / 60
				for n := range s.admit {
					must(t, l.Peek(ctx, Agent("a"), tool, "", false))
					if _, err := l.Take(ctx, Agent(fmt.Sprint(n)), tool, "", nil); err != nil {
						t.Fatalf("step %d: call %d refused: %v", i, n, err)
					}
				}
				if s.wait == 0 {
					continue
				}
				_, err := l.Take(ctx, Agent("a"), tool, "", nil)
				ended := h.Pass == nil && tc.spec.Algorithm == "fixed_window" && time.Now().Unix()/60 != minute
				for n := 0; n < s.admit && err == nil && ended; n++ {
					_, err = l.Take(ctx, Agent("a"), tool, "", nil)
				}
				e := Refused(t, err, toolkeep.RateLimitExceeded, limit.TypeTool)
				if h.Pass != nil && !h.near(e.RetryAfter, s.wait) || e.RetryAfter > s.wait+h.Grain {
					t.Fatalf("step %d: RetryAfter %v, want %v", i, e.RetryAfter, s.wait)
				}
				Refused(t, l.Peek(ctx, Agent("b"), tool, "", false), toolkeep.RateLimitExceeded, limit.TypeTool)
			}
		})
	}
}

func (h Harness) requests(t *testing.T) {
	l, ctx := h.one(t, limit.Config{PerAgentRPM: 100, GlobalRPM: 150}), t.Context()
	p := Agent("a")
	for range 99 {
		must(t, Request(l, ctx, p))
	}
	left, err := l.TakeRequest(ctx, p)
	if err != nil || left.Kind != limit.TypeAgent || left.PerMinute != 100 || left.Left > 0 && h.Pass != nil || left.Reset > time.Minute {
		t.Errorf("%+v are left, %v", left, err)
	}
	if h.Pass != nil {
		e := Refused(t, Request(l, ctx, p), toolkeep.RateLimitExceeded, limit.TypeAgent)
		if !h.near(e.RetryAfter, 600*time.Millisecond) || e.Details["limit_per_minute"] != 100 {
			t.Errorf("%v %v", e.RetryAfter, e.Details)
		}
		for range 50 { // the same name in another tenant
			must(t, Request(l, ctx, &toolkeep.Principal{Tenant: "other", Subject: "a"}))
		}
		Refused(t, Request(l, ctx, Agent("b")), toolkeep.RateLimitExceeded, limit.TypeGlobal)
		h.Pass(t, e.RetryAfter)
		must(t, Request(l, ctx, p))
		Refused(t, Request(l, ctx, p), toolkeep.RateLimitExceeded, limit.TypeAgent)
	}
}

// rates: each rate admits what its limit says, tells how many are left, and refuses with what its headers and details need. By every
// algorithm that agents can be counted by; those of another tenant have theirs.
func (h Harness) rates(t *testing.T) {
	const perMinute = 20
	request := func(l *limit.Limits, p *toolkeep.Principal) (toolkeep.RateLeft, error) {
		return l.TakeRequest(t.Context(), p)
	}
	call := func(l *limit.Limits, p *toolkeep.Principal) (toolkeep.RateLeft, error) {
		tool := Tool("x.y", nil)
		tool.Tenant = p.Tenant
		s, err := l.Take(t.Context(), p, tool, "host:x:443", nil)
		if err != nil {
			Refused(t, l.Peek(t.Context(), p, tool, "host:x:443", false), toolkeep.RateLimitExceeded, toolkeep.AsError(err).Rate.Kind)
			return toolkeep.RateLeft{}, err
		}
		return s.Left, err
	}
	for _, tc := range []struct {
		kind   string
		config limit.Config
		take   func(*limit.Limits, *toolkeep.Principal) (toolkeep.RateLeft, error)
		burst  int
	}{
		{limit.TypeAgent, limit.Config{PerAgentRPM: perMinute}, request, 20},
		{limit.TypeAgent, limit.Config{PerAgentRPM: perMinute, Burst: 5}, request, 5},
		{limit.TypeAgent, limit.Config{PerAgentRPM: perMinute, Algorithm: "leaky_bucket"}, request, 1},
		{limit.TypeAgent, limit.Config{PerAgentRPM: perMinute, Algorithm: "leaky_bucket", Burst: 5}, request, 5},
		{limit.TypeAgent, limit.Config{PerAgentRPM: perMinute, Algorithm: "fixed_window", Burst: 5}, request, 20},
		{limit.TypeAgent, limit.Config{PerAgentRPM: perMinute, Algorithm: "sliding_window"}, request, 20},
		{limit.TypeAgentTool, limit.Config{PerToolRPM: perMinute, Algorithm: "token_bucket", Concurrent: off}, call, 20},
		{limit.TypeAgentTool, limit.Config{PerToolRPM: perMinute, Algorithm: "leaky_bucket", Concurrent: off}, call, 1},
		{limit.TypeAgentTool, limit.Config{PerToolRPM: perMinute, Algorithm: "fixed_window", Concurrent: off}, call, 20},
		{limit.TypeAgentTool, limit.Config{PerToolRPM: perMinute, Algorithm: "sliding_window", Concurrent: off}, call, 20},
		{limit.TypeTenant, limit.Config{PerAgentRPM: off, PerTenantRPM: perMinute, Burst: 5}, request, 20},
		{limit.TypeUpstream, limit.Config{PerToolRPM: off, PerUpstreamRPM: perMinute, Concurrent: off}, call, 20},
		{limit.TypeUpstream, limit.Config{PerToolRPM: off, PerUpstreamRPM: perMinute, Burst: 5, Concurrent: off}, call, 5},
		{limit.TypeUpstream, limit.Config{PerToolRPM: off, PerUpstreamRPM: 1, Upstreams: map[string]int{"host:x:443": perMinute}, Concurrent: off}, call, 20},
	} {
		t.Run(fmt.Sprintf("%s %s %d", tc.kind, tc.config.Algorithm, tc.config.Burst), func(t *testing.T) {
			l := h.one(t, tc.config)
			for n := range tc.burst {
				left, err := tc.take(l, Agent("a"))
				must(t, err)
				want := toolkeep.RateLeft{Kind: tc.kind, PerMinute: perMinute, Left: tc.burst - 1 - n, Reset: left.Reset}
				if h.Pass == nil { // some may have come back, or a minute have ended
					want.Left = max(want.Left, min(left.Left, tc.burst-1))
				}
				if left.Reset <= 0 || left.Reset > 61*time.Second || left != want {
					t.Fatalf("after %d: %+v, want %+v", n+1, left, want)
				}
			}
			if h.Pass == nil && tc.config.Algorithm != "sliding_window" { // some may have come back
				return
			}
			_, err := tc.take(l, Agent("a"))
			e := Refused(t, err, toolkeep.RateLimitExceeded, tc.kind)
			reset := e.Rate.Reset
			if e.Rate != (toolkeep.RateLeft{Kind: tc.kind, PerMinute: perMinute, Reset: reset}) || reset < e.RetryAfter || reset > 61*time.Second {
				t.Errorf("%+v", e.Rate)
			}
			if e.Details["limit_per_minute"] != perMinute || e.Details["remaining"] != 0 || e.Details["reset_s"] != int((reset+time.Second-1)/time.Second) {
				t.Errorf("%v", e.Details)
			}
			if tool := e.Details["tool_id"]; (tool == "x.y") != (tc.kind == limit.TypeAgentTool || tc.kind == limit.TypeUpstream) {
				t.Errorf("the tool is %v", tool)
			}
			_, err = tc.take(l, &toolkeep.Principal{Tenant: "other", Subject: "a"})
			must(t, err)
			if h.Pass != nil {
				h.Pass(t, reset)
				for range tc.burst {
					_, err := tc.take(l, Agent("a"))
					must(t, err)
				}
				_, err = tc.take(l, Agent("a"))
				Refused(t, err, toolkeep.RateLimitExceeded, tc.kind)
			}
		})
	}
}

// untold: what all tenants take of is told by its refusals alone.
func (h Harness) untold(t *testing.T) {
	tool := Tool("x.y", &toolkeep.RateLimitSpec{PerMinute: 2})
	tool.Tenant = ""
	l := h.one(t, limit.Config{PerAgentRPM: 100, GlobalRPM: 2, PerToolRPM: 50, PerUpstreamRPM: 3, Concurrent: off})
	for range 2 {
		left, err := l.TakeRequest(t.Context(), Agent("a"))
		must(t, err)
		s, err := l.Take(t.Context(), Agent("a"), tool, "host:x:443", nil)
		must(t, err)
		if left.Kind != limit.TypeAgent || s.Left.Kind != limit.TypeAgentTool {
			t.Errorf("told %+v and %+v", left, s.Left)
		}
	}
	if h.Pass == nil {
		return
	}
	Refused(t, Request(l, t.Context(), Agent("b")), toolkeep.RateLimitExceeded, limit.TypeGlobal)
	_, err := l.Take(t.Context(), Agent("b"), tool, "host:x:443", nil)
	Refused(t, err, toolkeep.RateLimitExceeded, limit.TypeTool)
}

// free: a call that one limit refuses takes nothing of the others.
func (h Harness) free(t *testing.T) {
	ctx := t.Context()
	l := h.one(t, limit.Config{PerAgentRPM: 1, GlobalRPM: 6})
	for i := range 6 {
		must(t, Request(l, ctx, Agent(fmt.Sprint(i))))
	}
	if h.Pass != nil {
		for range 5 {
			Refused(t, Request(l, ctx, Agent("a")), toolkeep.RateLimitExceeded, limit.TypeGlobal)
		}
		h.Pass(t, 10*time.Second)
		must(t, Request(l, ctx, Agent("a")))
	}
	l = h.one(t, limit.Config{Concurrent: 1, PerToolRPM: 2})
	p, tool := Agent("b"), Tool("x.free", &toolkeep.RateLimitSpec{PerMinute: 2})
	slots, err := l.Take(ctx, p, tool, "", nil)
	must(t, err)
	for range 5 {
		_, err := l.Take(ctx, p, tool, "", nil)
		Refused(t, err, toolkeep.ConcurrencyLimitExceeded, limit.TypeAgent)
		Refused(t, l.Peek(ctx, p, tool, "", false), toolkeep.ConcurrencyLimitExceeded, limit.TypeAgent)
	}
	slots.Release()
	slots, err = l.Take(ctx, p, tool, "", nil)
	must(t, err)
	slots.Release()
	_, err = l.Take(ctx, p, tool, "", nil)
	Refused(t, err, toolkeep.RateLimitExceeded, limit.TypeAgentTool)
}

func (h Harness) slots(t *testing.T) {
	l, ctx := h.one(t, limit.Config{PerToolRPM: off}), t.Context()
	p := Agent("a")
	plain, bounded := Tool("x.plain", nil), Tool("x.bounded", &toolkeep.RateLimitSpec{MaxConcurrent: 2})
	var calls []*limit.Slots
	take := func(p *toolkeep.Principal, tool *toolkeep.Tool, above *limit.Slots) {
		t.Helper()
		s, err := l.Take(ctx, p, tool, "", above)
		must(t, err)
		calls = append(calls, s)
	}
	full := func(kind string, p *toolkeep.Principal, tool *toolkeep.Tool, above *limit.Slots) {
		t.Helper()
		_, err := l.Take(ctx, p, tool, "", above)
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
	for _, algorithm := range []string{"fixed_window", "sliding_window"} {
		t.Run(algorithm, func(t *testing.T) {
			n := h.rush(t, algorithm)
			if n != 70 && h.Pass == nil && algorithm == "fixed_window" {
				n = h.rush(t, algorithm) // a minute ended midway, which it cannot again
			}
			if n != 70 {
				t.Errorf("%d calls were admitted, want 70", n)
			}
		})
	}
}

// rush returns how many calls are admitted.
func (h Harness) rush(t *testing.T, algorithm string) int64 {
	const nodes, each, rounds = 3, 3, 40
	tool := Tool("x.rush", &toolkeep.RateLimitSpec{Algorithm: algorithm, PerMinute: 70, MaxConcurrent: 7})
	var calls, running, most atomic.Int64
	var wg sync.WaitGroup
	for _, l := range h.New(t, nodes, limit.Config{PerToolRPM: off, Concurrent: off}) {
		for i := range each {
			wg.Go(func() {
				var mine []*limit.Slots
				for range rounds {
					s, err := l.Take(context.Background(), Agent(fmt.Sprint(i)), tool, "", nil)
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
	return calls.Load()
}
