package invoke_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
)

// TestSentWriteMayHaveTakenEffect: whatever stops waiting for a write that was sent, its
// caller is told that it may have taken effect, and never to ask for more time.
func TestSentWriteMayHaveTakenEffect(t *testing.T) {
	const effect = "may have taken effect"
	for _, end := range []struct {
		name string
		code toolkeep.Code
		call toolkeep.Call
		stop bool  // the caller leaves
		own  int64 // attempt_timeout_ms
	}{
		{"the deadline passes", toolkeep.Timeout, toolkeep.Call{Timeout: 100 * time.Millisecond}, false, 0},
		{"the deadline of a keyed call passes", toolkeep.Timeout, toolkeep.Call{Timeout: 100 * time.Millisecond, Key: "k"}, false, 0},
		{"the attempt's limit passes", toolkeep.UpstreamTimeout, toolkeep.Call{}, false, 100},
		{"the caller cancels", toolkeep.Cancelled, toolkeep.Call{}, true, 0},
		{"the deadline of a waiting call passes", toolkeep.Timeout, toolkeep.Call{Async: true, Timeout: 100 * time.Millisecond}, false, 0},
	} {
		for _, tool := range []struct {
			name string
			is   func(*toolkeep.Manifest)
			sent bool
			want string // "" for none
		}{
			{"writes", writes, true, "look whether it did"},
			{"idempotent", func(m *toolkeep.Manifest) { writes(m); m.Idempotent = true }, true, "may be sent again"},
			{"unsent", writes, false, ""},
			{"reads", func(*toolkeep.Manifest) {}, true, ""},
		} {
			t.Run(end.name+", "+tool.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := newHarness(t)
					h.tool("slow", tool.is, func(m *toolkeep.Manifest) {
						m.Execution.AttemptTimeoutMS = end.own
						m.Retry.MaxAttempts = 1
					})
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					h.executor.do = func(ctx context.Context, _ *toolkeep.Execution) (*toolkeep.Output, error) {
						if end.stop {
							cancel()
						}
						<-ctx.Done()
						e := toolkeep.AsError(ctx.Err())
						e.NothingSent = !tool.sent
						return nil, e
					}
					c := end.call
					c.Tool = "std.slow"
					res, err := h.pipeline.Invoke(ctx, alice, &c)
					e := toolkeep.AsError(err)
					if err == nil && res.State == toolkeep.CallQueued {
						h.work()
						row := h.row(res.InvocationID)
						e = &toolkeep.Error{Code: row.Code, Message: row.Message}
					} else if err == nil {
						e = res.Error
					}
					wantCode(t, e, end.code)
					if has := strings.Contains(e.Message, effect); has != (tool.want != "") || !strings.Contains(e.Message, tool.want) {
						t.Errorf("told %q", e.Message)
					}
					if tool.want != "" && (strings.Contains(e.Message, "async_mode") || strings.Contains(e.Message, "ask for more")) {
						t.Errorf("told %q", e.Message)
					}
				})
			})
		}
	}
}
