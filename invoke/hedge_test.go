package invoke_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/limit/breaker"
	"github.com/toolkeep/toolkeep/limit/bulkhead"
)

// reply is how an attempt of the test ends, and when.
type reply struct {
	after time.Duration
	code  toolkeep.Code // "" is an answer
}

// TestHedge: a reading attempt that is slow gets a second one beside it. The first answer wins, and the other attempt is cancelled.
func TestHedge(t *testing.T) {
	t.Parallel()
	const s = time.Second
	remote := func(m *toolkeep.Manifest) { m.Execution.Kind, m.Retry.MaxAttempts = "http", 1 }
	for _, tt := range []struct {
		name     string
		replies  []reply // of the attempts, in the order in which they are sent
		tool     []func(*toolkeep.Manifest)
		config   func(*invoke.Config)
		caller   toolkeep.Caller
		earlier  time.Duration // what the tool has taken until now
		want     time.Duration // when the call ends
		attempts int
		answer   string // the warning's; "" for none
		code     toolkeep.Code
		counted  int  // by the breaker
		left     bool // a retry is left
	}{
		{name: "the second answers first", replies: []reply{{10 * s, ""}, {1 * s, ""}}, want: 3 * s, attempts: 2, answer: "second", counted: 1},
		{name: "the first answers first", replies: []reply{{3 * s, ""}, {10 * s, ""}}, want: 3 * s, attempts: 2, answer: "first", counted: 1},
		{name: "the first answers in time", replies: []reply{{2*s - 1, ""}}, want: 2*s - 1, attempts: 1, counted: 1},
		{name: "the first fails later", replies: []reply{{3 * s, toolkeep.UpstreamServerError}, {2 * s, ""}}, want: 4 * s, attempts: 2, answer: "second", counted: 2},
		{name: "the second fails", replies: []reply{{5 * s, ""}, {1 * s, toolkeep.UpstreamServerError}}, want: 5 * s, attempts: 2, answer: "first", counted: 2},
		{name: "both fail", replies: []reply{{5 * s, toolkeep.UpstreamServerError}, {1 * s, toolkeep.NetworkError}}, want: 5 * s, attempts: 2, code: toolkeep.UpstreamServerError, counted: 2},
		{name: "neither answers", replies: []reply{{time.Hour, ""}, {time.Hour, ""}}, want: 30 * s, attempts: 2, code: toolkeep.Timeout, counted: 2},
		{name: "the tool is slow as a rule", earlier: 4 * s, replies: []reply{{10 * s, ""}, {1 * s, ""}}, want: 5 * s, attempts: 2, answer: "second", counted: 2},
		{name: "it writes", tool: []func(*toolkeep.Manifest){writes, func(m *toolkeep.Manifest) { m.Idempotent = true }}, replies: []reply{{10 * s, ""}}, want: 10 * s, attempts: 1, counted: 1},
		{name: "it costs", tool: []func(*toolkeep.Manifest){func(m *toolkeep.Manifest) { m.Cost = &toolkeep.CostSpec{EstimatedUSD: 0.001} }}, replies: []reply{{10 * s, ""}}, want: 10 * s, attempts: 1, counted: 1},
		{name: "it is here", tool: []func(*toolkeep.Manifest){func(m *toolkeep.Manifest) { m.Execution.Kind = "builtin" }}, replies: []reply{{10 * s, ""}}, want: 10 * s, attempts: 1, counted: 1},
		{name: "the caller is told of progress", caller: quiet{}, replies: []reply{{10 * s, ""}}, want: 10 * s, attempts: 1, counted: 1},
		{name: "it is off", config: func(c *invoke.Config) { c.HedgeAfter = 0 }, replies: []reply{{10 * s, ""}}, want: 10 * s, attempts: 1, counted: 1},
		{name: "no retry is left", config: func(c *invoke.Config) {
			c.Breakers = breaker.New(breaker.Config{Retries: &breaker.Retries{}})
		}, replies: []reply{{10 * s, ""}}, want: 10 * s, attempts: 1, counted: 1},
		{name: "no place is free", config: func(c *invoke.Config) {
			c.Bulkheads, c.Breakers = bulkhead.New(bulkhead.Config{HTTP: 1}), breaker.New(breaker.Config{Retries: &breaker.Retries{Floor: 1}})
		}, replies: []reply{{10 * s, ""}}, want: 10 * s, attempts: 1, counted: 1, left: true},
		{name: "it may run once", tool: []func(*toolkeep.Manifest){alone}, replies: []reply{{10 * s, ""}}, want: 10 * s, attempts: 1, counted: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			h.tool("read", append([]func(*toolkeep.Manifest){remote}, tt.tool...)...)
			h.config.Executors["http"] = h.executor
			synctest.Test(t, func(t *testing.T) {
				h.config.HedgeAfter, h.config.Breakers, h.config.Bulkheads = 2*s, breaker.New(breaker.Config{}), bulkhead.New(bulkhead.Config{})
				if tt.config != nil {
					tt.config(&h.config)
				}
				p := h.over(t, discard{}, "", nil)
				defer p.Stop()
				var mu sync.Mutex
				replies := []reply{{tt.earlier, ""}}
				var ended atomic.Int64
				h.executor.do = func(ctx context.Context, _ *toolkeep.Execution) (*toolkeep.Output, error) {
					mu.Lock()
					r := replies[0]
					replies = replies[1:]
					mu.Unlock()
					defer ended.Add(1)
					if !toolkeep.Sleep(ctx, r.after) {
						return nil, ctx.Err()
					}
					if r.code != "" {
						return nil, toolkeep.NewError(r.code, "by the test")
					}
					return &toolkeep.Output{Value: r.after.String(), HasValue: true, BytesRecv: 7}, nil
				}
				call := func() *toolkeep.Result {
					res, err := p.Invoke(t.Context(), alice, &toolkeep.Call{Tool: "std.read", Caller: tt.caller})
					if err != nil {
						t.Fatal(err)
					}
					return res
				}
				if tt.earlier > 0 {
					p.HedgeAfter = time.Hour
					call()
					p.HedgeAfter = h.config.HedgeAfter
				}
				replies, began := tt.replies, time.Now()
				h.executor.calls.Store(0)
				ended.Store(0)
				res := call()
				if took := time.Since(began); took != tt.want || res.Attempts != tt.attempts || int(h.executor.calls.Load()) != tt.attempts || ended.Load() != h.executor.calls.Load() {
					t.Errorf("it took %s and %d attempts, %d were sent and %d have ended; want %s and %d", took, res.Attempts, h.executor.calls.Load(), ended.Load(), tt.want, tt.attempts)
				}
				if codeOf(res) != tt.code {
					t.Errorf("it ended with %q (%v), want %q", codeOf(res), res.Error, tt.code)
				}
				answer := ""
				for _, w := range res.Warnings {
					if w.Code == toolkeep.Hedged {
						answer, _ = w.Details["answer"].(string)
					}
				}
				if answer != tt.answer {
					t.Errorf("the warnings are %+v, want the answer %q", res.Warnings, tt.answer)
				}
				if answer == "second" && string(res.Output) != `"`+tt.replies[1].after.String()+`"` {
					t.Errorf("the output is %s", res.Output)
				}
				if info, _ := h.config.Breakers.Get("", "tool:std.read"); info.Calls != tt.counted {
					t.Errorf("the breaker counts %d calls, want %d", info.Calls, tt.counted)
				}
				for _, b := range h.config.Bulkheads.Stats() {
					if b.InUse != 0 {
						t.Errorf("at the end: %+v", b)
					}
				}
				if tt.left && !h.config.Breakers.Of(h.catalog.tools["std.read"], "").Retry() {
					t.Error("what was not sent has used up a retry")
				}
				x, err := p.Explain(t.Context(), alice, &toolkeep.Call{Tool: "std.read", Caller: tt.caller})
				if err != nil {
					t.Fatal(err)
				}
				if why := x.(*invoke.Explanation).Steps[invoke.StepLimit].Reason; strings.Contains(why, "asked a second time") != (tt.tool == nil && tt.caller == nil && h.config.HedgeAfter > 0) {
					t.Errorf("explained as %q", why)
				}
			})
		})
	}
}

// quiet is a Caller that is told of progress.
type quiet struct{}

func (quiet) Progress(toolkeep.Progress) {}

// TestHedgesShareMemory: an attempt that has failed keeps no memory for results from the one that goes on.
func TestHedgesShareMemory(t *testing.T) {
	t.Parallel()
	for _, failing := range []int{1, 2} {
		h := newHarness(t)
		h.tool("read", func(m *toolkeep.Manifest) { m.Execution.Kind, m.Retry.MaxAttempts = "http", 1 })
		h.config.Executors["http"], h.config.HedgeAfter, h.config.ResultMemory = h.executor, time.Second, 8<<20
		h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
			if x.Attempt == failing {
				if err := x.Grow(2 << 20); err != nil {
					return nil, err
				}
				time.Sleep(3 * time.Second)
				return nil, toolkeep.NewError(toolkeep.UpstreamServerError, "by the test")
			}
			if !toolkeep.Sleep(ctx, 2*time.Second) {
				return nil, ctx.Err()
			}
			return &toolkeep.Output{HasValue: true}, x.Grow(2 << 20)
		}
		synctest.Test(t, func(t *testing.T) {
			p := h.over(t, discard{}, "", nil)
			defer p.Stop()
			began := time.Now()
			res, err := p.Invoke(t.Context(), alice, &toolkeep.Call{Tool: "std.read"})
			if err != nil || res.Error != nil || time.Since(began) > 5*time.Second {
				t.Errorf("where attempt %d fails: %+v, %v, after %s", failing, res, err, time.Since(began))
			}
			if used, _ := p.HeldByResults(); used != 0 {
				t.Errorf("%d bytes are held at the end", used)
			}
		})
	}
}

// TestPanicOfAHedgedAttempt: after a panic in the first attempt no second one is sent, and one that was sent has ended.
func TestPanicOfAHedgedAttempt(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{time.Second, 3 * time.Second} {
		h := newHarness(t)
		h.tool("read", func(m *toolkeep.Manifest) { m.Execution.Kind = "http" })
		h.config.Executors["http"], h.config.HedgeAfter = h.executor, 2*time.Second
		var running atomic.Int64
		h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
			running.Add(1)
			defer running.Add(-1)
			if x.Attempt == 1 {
				time.Sleep(after)
				panic("by the test")
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		synctest.Test(t, func(t *testing.T) {
			p := h.over(t, discard{}, "", nil)
			defer p.Stop()
			if _, err := p.Invoke(t.Context(), alice, &toolkeep.Call{Tool: "std.read"}); toolkeep.AsError(err) == nil || running.Load() != 0 {
				t.Errorf("%v, and %d attempts run", err, running.Load())
			}
			time.Sleep(time.Minute)
			if n := h.executor.calls.Load(); n != 1+int64(after/(2*time.Second)) {
				t.Errorf("after a panic at %s %d attempts were sent", after, n)
			}
		})
	}
}
