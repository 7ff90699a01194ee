package invoke_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/limit/breaker"
)

// slowAsker is a caller whose answer comes when the test says so.
type slowAsker struct{ asked, answer chan struct{} }

func newAsker() slowAsker { return slowAsker{make(chan struct{}), make(chan struct{})} }

func (slowAsker) Progress(toolkeep.Progress) {}

func (a slowAsker) Ask(ctx context.Context, _ string, _ []byte) (_ []byte, err error) {
	resume := toolkeep.PauseTimeout(ctx)
	defer func() {
		if resume(); err == nil {
			err = ctx.Err()
		}
	}()
	a.asked <- struct{}{}
	select {
	case <-a.answer:
		return []byte(`{}`), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// alone is a tool of which one call may run.
func alone(m *toolkeep.Manifest) { m.RateLimit = &toolkeep.RateLimitSpec{MaxConcurrent: 1} }

// running reports whether the only slot of a tool is in use.
func (h *harness) running(tool *toolkeep.Tool) bool {
	return h.limits.Peek(context.Background(), &toolkeep.Principal{Tenant: "acme", Subject: "other"}, tool, "", false) != nil
}

// TestParkedCallsAreNotConcurrent: while a call waits for its caller's answer, it and those
// above it hold no slot of their agent or their tools; then they have them again until they end.
func TestParkedCallsAreNotConcurrent(t *testing.T) {
	for _, child := range []bool{false, true} {
		h := newHarness(t)
		parent, asks := h.tool("parent", writes, alone), h.tool("asks", alone)
		during := make(chan [3]bool, 1)
		held := func() [3]bool { return [3]bool{h.limits.held() == 1, h.running(parent), h.running(asks)} }
		h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
			if x.Tool.ID == "std.parent" {
				_, err := x.Child.Invoke(ctx, alice, &toolkeep.Call{Tool: "std.asks", Caller: x.Caller})
				return &toolkeep.Output{HasValue: true}, err
			}
			_, err := x.Caller.(toolkeep.Asker).Ask(ctx, "elicitation/create", nil)
			during <- held()
			return &toolkeep.Output{HasValue: true}, err
		}
		name := "std.asks"
		if child {
			name = "std.parent"
		}
		c := newAsker()
		ended := make(chan error)
		go func() {
			_, err := h.pipeline.Invoke(context.Background(), alice, &toolkeep.Call{Tool: name, Caller: c})
			ended <- err
		}()
		<-c.asked
		if got := held(); got != [3]bool{} {
			t.Errorf("child %t: slots of the agent, the parent and the tool while the caller is asked: %v, want none", child, got)
		}
		c.answer <- struct{}{}
		if got := <-during; got != [3]bool{true, child, true} {
			t.Errorf("child %t: slots of the agent, the parent and the tool after the answer: %v", child, got)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if got := held(); got != [3]bool{} {
			t.Errorf("child %t: slots of the agent, the parent and the tool at the end: %v", child, got)
		}
	}
}

// TestAnsweredCallsWaitForTheirTool: a call whose answer comes while another call of its tool, or of its parent's, runs
// goes on when that one ends. At its own deadline it ends.
func TestAnsweredCallsWaitForTheirTool(t *testing.T) {
	const limit = 10 * time.Second // of std.asks
	for _, tt := range []struct {
		name, tool, busy string        // what is called, and what another call is of
		other            time.Duration // how long the other runs
		want             time.Duration // when the call ends
		code             toolkeep.Code // of std.asks
	}{
		{name: "the other ends", tool: "std.asks", busy: "std.asks", other: 9 * time.Second, want: 9 * time.Second},
		{name: "the deadline passes", tool: "std.asks", busy: "std.asks", other: 11 * time.Second, want: limit, code: toolkeep.Timeout},
		{name: "below a parent, the other ends", tool: "std.parent", busy: "std.asks", other: 9 * time.Second, want: 9 * time.Second},
		{name: "below a parent, the deadline passes", tool: "std.parent", busy: "std.asks", other: 11 * time.Second, want: limit, code: toolkeep.Timeout},
		{name: "of the parent's, the other ends", tool: "std.parent", busy: "std.parent", other: 9 * time.Second, want: 9 * time.Second},
		// The parent goes on when it may, although its child has ended.
		{name: "of the parent's, the deadline passes", tool: "std.parent", busy: "std.parent", other: 11 * time.Second, want: 11 * time.Second, code: toolkeep.Timeout},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t)
			h.tool("asks", alone, func(m *toolkeep.Manifest) { m.Execution.TimeoutMS = limit.Milliseconds() })
			h.tool("parent", alone, func(m *toolkeep.Manifest) { m.Execution.TimeoutMS = time.Minute.Milliseconds() })
			synctest.Test(t, func(t *testing.T) {
				p := h.over(t, discard{}, "", nil)
				defer p.Stop()
				c, began := newAsker(), time.Now()
				var busy atomic.Bool // the other call runs
				goesOn := func(tool string) {
					if tool == tt.busy && busy.Load() {
						t.Errorf("after %s two calls of %s run", time.Since(began), tool)
					}
				}
				code := make(chan toolkeep.Code, 1)
				h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
					switch {
					case x.Caller == nil:
						busy.Store(true)
						time.Sleep(tt.other)
						busy.Store(false)
					case x.Tool.ID == "std.parent":
						res, err := x.Child.Invoke(ctx, alice, &toolkeep.Call{Tool: "std.asks", Caller: c})
						if err != nil {
							return nil, err
						}
						code <- codeOf(res)
						goesOn("std.parent")
					default:
						if _, err := c.Ask(ctx, "elicitation/create", nil); err != nil {
							return nil, err
						}
						goesOn("std.asks")
						goesOn("std.parent")
					}
					return &toolkeep.Output{HasValue: true}, nil
				}
				ended := make(chan *toolkeep.Result, 1)
				call := func(tool string, caller toolkeep.Caller) {
					res, err := p.Invoke(context.Background(), alice, &toolkeep.Call{Tool: tool, Caller: caller})
					if err != nil {
						t.Errorf("%s: %v", tool, err)
					} else if caller != nil {
						ended <- res
					}
				}
				go call(tt.tool, c)
				<-c.asked
				go call(tt.busy, nil)
				synctest.Wait()
				c.answer <- struct{}{}
				res := <-ended
				if took := time.Since(began); took != tt.want {
					t.Errorf("the call ended after %s, want %s", took, tt.want)
				}
				if tt.tool == "std.asks" {
					code <- codeOf(res)
				} else if res.Error != nil {
					t.Errorf("the parent failed: %v", res.Error)
				}
				if got := <-code; got != tt.code {
					t.Errorf("the call that asked ended with %q, want %q", got, tt.code)
				}
				time.Sleep(time.Minute) // the other call has ended too
				for _, id := range []string{"std.asks", "std.parent"} {
					if h.limits.held() != 0 || h.running(h.catalog.tools[id]) {
						t.Errorf("a slot of the agent or of %s is held at the end", id)
					}
				}
			})
		})
	}
}

// TestQuestionsLeftOpen: a parent whose child left a question open, and an attempt after one that did, have their slots.
func TestQuestionsLeftOpen(t *testing.T) {
	for _, tool := range []string{"std.parent", "std.asks"} {
		h := newHarness(t)
		parent := h.tool("parent", alone)
		asks := h.tool("asks", alone, func(m *toolkeep.Manifest) { m.Retry.MaxAttempts = 2 })
		var resume func()
		held := func() [3]bool { return [3]bool{h.limits.held() == 1, h.running(parent), h.running(asks)} }
		check := func(when string, want [3]bool) {
			t.Helper()
			if got := held(); got != want {
				t.Errorf("%s: slots of the agent, the parent and the tool %s: %v, want %v", tool, when, got, want)
			}
		}
		h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
			switch {
			case x.Tool.ID == "std.parent":
				if _, err := x.Child.Invoke(ctx, alice, &toolkeep.Call{Tool: "std.asks", Caller: x.Caller}); err != nil {
					return nil, err
				}
				check("after the child", [3]bool{true, true, false})
			case x.Attempt == 1:
				resume = toolkeep.PauseTimeout(ctx)
				check("while the question is open", [3]bool{})
				if tool == "std.asks" {
					return nil, toolkeep.NewError(toolkeep.UpstreamServerError, "HTTP 503").With("status", 503)
				}
			default:
				check("of the next attempt", [3]bool{true, false, true})
				resume()
				check("after the answer", [3]bool{true, false, true})
			}
			return &toolkeep.Output{HasValue: true}, nil
		}
		if res, err := h.call(&toolkeep.Call{Tool: tool, Caller: asker{}}); err != nil || res.Error != nil {
			t.Errorf("%+v %v", res, err)
		}
		resume()
		check("at the end", [3]bool{})
	}
}

// codeOf returns the code of a failed call.
func codeOf(res *toolkeep.Result) toolkeep.Code {
	if res.Error == nil {
		return ""
	}
	return res.Error.Code
}

// TestParkedTimeIsNotSlow has a tool ask its caller, who answers after a minute: for the breaker the tool took no time.
func TestParkedTimeIsNotSlow(t *testing.T) {
	var now atomic.Int64
	base := time.Now()
	rule := breaker.Defaults()
	rule.MinCalls, rule.SlowRate = 1, 100
	breakers := breaker.New(breaker.Config{Rule: &rule, Clock: func() time.Time { return base.Add(time.Duration(now.Load())) }})
	h := newHarness(t, func(c *invoke.Config) { c.Breakers = breakers })
	h.tool("asks", func(m *toolkeep.Manifest) { m.Execution.TimeoutMS = time.Minute.Milliseconds() })
	synctest.Test(t, func(t *testing.T) {
		p := h.over(t, discard{}, "", nil)
		defer p.Stop()
		wait := func(d time.Duration) {
			time.Sleep(d)
			now.Add(int64(d))
		}
		c, own := newAsker(), 4*time.Second
		h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
			_, err := c.Ask(ctx, "elicitation/create", nil)
			wait(own)
			return &toolkeep.Output{HasValue: true}, err
		}
		for _, want := range []breaker.State{breaker.Closed, breaker.Open} {
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				if _, err := p.Invoke(t.Context(), alice, &toolkeep.Call{Tool: "std.asks", Caller: c}); err != nil {
					t.Error(err)
				}
			}()
			<-c.asked
			wait(time.Minute)
			c.answer <- struct{}{}
			<-ended
			if info, _ := breakers.Get("", "tool:std.asks"); info.State != want {
				t.Fatalf("after a call that took %s without its question it is %s, want %s", own, info.State, want)
			}
			own = 6 * time.Second
		}
	})
}
