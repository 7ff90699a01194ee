package invoke_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
)

// TestTimeoutSaysWhoseItWas: the remedy for E3901 depends on whose limit ended the
// call.
func TestTimeoutSaysWhoseItWas(t *testing.T) {
	// Each is long enough for the call to reach its tool on a busy machine.
	for _, tt := range []struct {
		name, context string
		timeout       time.Duration // of the call
		caller        time.Duration // of its connection
		own           int64         // of the tool
		limit         toolkeep.TimeLimit
		want          string
	}{
		{"the call", "", 400 * time.Millisecond, 0, 60_000, toolkeep.LimitCall, "the call asked for 400ms; ask for more"},
		{"the tool", "", 0, 0, 400, toolkeep.LimitTool, "the tool's own limit is 400ms"},
		{"the context", `{"config":{"timeout":400}}`, 0, 0, 60_000, toolkeep.LimitOverlay, "the agent's context for this tool limits its calls to 400ms"},
		{"the context, over what was asked", `{"config":{"timeout":400}}`, time.Minute, 0, 60_000, toolkeep.LimitOverlay, "the agent's context"},
		{"waiting for an answer", "", 0, 0, 60_000, toolkeep.LimitSynchronous, "a synchronous call may take 800ms; call with async_mode"},
		{"a caller that waits", "", 0, 0, 1500, toolkeep.LimitTool, "the tool's own limit is 1.5s"},
		{"the caller's connection", "", 0, 400 * time.Millisecond, 60_000, toolkeep.LimitCaller, "raise the timeout"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, _ := withContext(t, tt.context, func(c *invoke.Config) { c.SyncLimit = 800 * time.Millisecond })
			h.tool("slow", func(m *toolkeep.Manifest) { m.Execution.TimeoutMS = tt.own })
			h.executor.do = func(ctx context.Context, _ *toolkeep.Execution) (*toolkeep.Output, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			ctx := t.Context()
			if tt.caller > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, tt.caller)
				defer cancel()
			}
			res, err := h.pipeline.Invoke(ctx, alice, &toolkeep.Call{Tool: "std.slow", Timeout: tt.timeout, Connected: tt.name == "a caller that waits"})
			if err != nil || res.Error == nil || res.Error.Code != toolkeep.Timeout || !strings.Contains(res.Error.Message, tt.want) ||
				res.Error.Details["time_limit"] != string(tt.limit) {
				t.Fatalf("%+v %v, want %q", res, err, tt.want)
			}
			if row := h.row(res.InvocationID); row.Message != res.Error.Message {
				t.Errorf("the record says %q", row.Message)
			}
		})
	}
}

// TestTimeoutOfAParent: a child ended by its parent's limit does not name its own
// tool's limit.
func TestTimeoutOfAParent(t *testing.T) {
	h := newHarness(t)
	h.tool("parent", func(m *toolkeep.Manifest) { m.Execution.TimeoutMS = 400 })
	h.tool("slow")
	inner := make(chan *toolkeep.Error, 1)
	h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		if x.Tool.ID == "std.slow" {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		res, err := x.Child.Invoke(ctx, alice, &toolkeep.Call{Tool: "std.slow"})
		if err == nil {
			inner <- res.Error
		}
		return nil, ctx.Err()
	}
	res, err := h.call(&toolkeep.Call{Tool: "std.parent"})
	if err != nil || res.Error == nil || res.Error.Details["time_limit"] != "tool" {
		t.Fatalf("%+v %v", res, err)
	}
	if e := <-inner; e == nil || e.Details["time_limit"] != "caller" {
		t.Errorf("the child got %+v", e)
	}
}

// TestNoRetryPastAPausableLimit: a call that may ask its caller does not wait for a retry that its
// limit forbids.
func TestNoRetryPastAPausableLimit(t *testing.T) {
	for name, caller := range map[string]toolkeep.Caller{"asks": asker{}, "does not ask": nil} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			h.tool("rests", func(m *toolkeep.Manifest) { m.Execution.TimeoutMS = 2000 })
			h.executor.do = func(context.Context, *toolkeep.Execution) (*toolkeep.Output, error) {
				e := toolkeep.NewError(toolkeep.MCPUnavailable, "it rests").After(time.Minute)
				e.NothingSent = true
				return nil, e
			}
			res, err := h.pipeline.Invoke(t.Context(), alice, &toolkeep.Call{Tool: "std.rests", Caller: caller})
			if err != nil || res.Error == nil || res.Error.Code != toolkeep.MCPUnavailable {
				t.Errorf("%+v %v", res, err)
			}
		})
	}
}

// TestRetryOfACallThatMayAsk: what parks a call that asks its caller is no limit of its time.
func TestRetryOfACallThatMayAsk(t *testing.T) {
	for name, caller := range map[string]toolkeep.Caller{"asks": asker{}, "does not ask": nil} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			h.tool("fails", func(m *toolkeep.Manifest) { m.Retry.MaxAttempts = 2 })
			h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
				if at, ok := toolkeep.Deadline(ctx); ok && time.Until(at) <= 0 {
					t.Errorf("attempt %d has to end at %v", x.Attempt, at)
				}
				if x.Attempt == 1 {
					return nil, toolkeep.NewError(toolkeep.UpstreamServerError, "HTTP 503").With("status", 503)
				}
				return &toolkeep.Output{Value: "ok", HasValue: true}, nil
			}
			res, err := h.pipeline.Invoke(t.Context(), alice, &toolkeep.Call{Tool: "std.fails", Caller: caller})
			if err != nil || res.Error != nil || res.Attempts != 2 {
				t.Errorf("%+v %v", res, err)
			}
		})
	}
}

type asker struct{}

func (asker) Progress(toolkeep.Progress) {}

func (asker) Ask(context.Context, string, []byte) ([]byte, error) { return nil, context.Canceled }
