package invoke_test

import (
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/limit"
)

// TestTold: the caller is told once which limit has the fewest requests left, or which one refuses; of a call that waits, of its
// request.
func TestTold(t *testing.T) {
	at := time.Now()
	h := newHarness(t, func(c *invoke.Config) {
		c.Limits = limit.New(limit.Config{PerAgentRPM: 6, PerToolRPM: 2, Concurrent: -1, Clock: func() time.Time { return at }})
	})
	h.tool("read")
	for _, x := range []struct {
		name string
		call toolkeep.Call
		kind string
		left int
		code toolkeep.Code
	}{
		{"a call", toolkeep.Call{Tool: "std.read"}, limit.TypeAgentTool, 1, ""},
		{"no such tool", toolkeep.Call{Tool: "std.none"}, limit.TypeAgent, 4, toolkeep.ToolNotFound},
		{"it waits", toolkeep.Call{Tool: "std.read", Async: true}, limit.TypeAgent, 3, ""},
		{"the last of the tool", toolkeep.Call{Tool: "std.read"}, limit.TypeAgentTool, 0, ""},
		{"refused by the tool's", toolkeep.Call{Tool: "std.read"}, limit.TypeAgentTool, 0, toolkeep.RateLimitExceeded},
		{"the last of the agent", toolkeep.Call{Tool: "std.none"}, limit.TypeAgent, 0, toolkeep.ToolNotFound},
		{"refused by the agent's", toolkeep.Call{Tool: "std.read"}, limit.TypeAgent, 0, toolkeep.RateLimitExceeded},
	} {
		var told []toolkeep.RateLeft
		x.call.Told = func(left toolkeep.RateLeft) { told = append(told, left) }
		_, err := h.call(&x.call)
		if got := toolkeep.Code(""); err != nil {
			got = err.Code
			if got != x.code {
				t.Errorf("%s: %s, want %s", x.name, got, x.code)
			}
		}
		if len(told) != 1 || told[0].Kind != x.kind || told[0].Left != x.left {
			t.Errorf("%s: told %+v, want %d of %s", x.name, told, x.left, x.kind)
		}
	}
}

// TestToldOfContext: the rate of the caller's own context counts among the limits that the caller is told of.
func TestToldOfContext(t *testing.T) {
	h, own := withContext(t, `{"config": {"rate_limit_per_minute": 1000}}`, func(c *invoke.Config) {
		c.Limits = limit.New(limit.Config{PerToolRPM: 3, Concurrent: -1, Clock: func() time.Time { return time.Unix(1_800_000_000, 0) }})
	})
	h.tool("read")
	own.left.Store(2)
	var told []toolkeep.RateLeft
	call := toolkeep.Call{Tool: "std.read", Told: func(left toolkeep.RateLeft) { told = append(told, left) }}
	if _, err := h.call(&call); err != nil {
		t.Fatal(err)
	}
	if len(told) != 1 || told[0].Kind != "context" || told[0].Left != 1 {
		t.Errorf("told %+v", told)
	}
}
