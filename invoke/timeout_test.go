package invoke_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
)

// TestTimeoutIsOnTime: a call whose tool heeds its context is answered at the moment at which its time is over: the pipeline waits for
// nothing more.
func TestTimeoutIsOnTime(t *testing.T) {
	const limit = 20 * time.Millisecond
	for name, c := range map[string]toolkeep.Call{
		"reads":  {Tool: "std.read", Timeout: limit},
		"writes": {Tool: "std.write", Timeout: limit},
		"keyed":  {Tool: "std.write", Timeout: limit, Key: "k"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t)
				h.tool("read")
				h.tool("write", writes)
				h.executor.do = func(ctx context.Context, _ *toolkeep.Execution) (*toolkeep.Output, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				began := time.Now()
				res, err := h.pipeline.Invoke(t.Context(), alice, &c)
				took := time.Since(began)
				e := toolkeep.AsError(err)
				if err == nil {
					e = res.Error
				}
				wantCode(t, e, toolkeep.Timeout)
				if took != limit {
					t.Errorf("it was answered after %s", took)
				}
			})
		})
	}
}
