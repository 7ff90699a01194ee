package invoke_test

import (
	"context"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
)

// outcomes are the steps of a record, a letter each: p(ass), r(efuse), w(ait), n(ot_run); "" where it has none.
func outcomes(v *toolkeep.Invocation) string {
	var b strings.Builder
	for _, s := range invoke.StepsOf(v) {
		b.WriteByte(s.Outcome[0])
	}
	return b.String()
}

// TestStepsOfRecords: a record tells how each step went, and where the call ended or waits.
func TestStepsOfRecords(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.tool("reads", func(m *toolkeep.Manifest) { m.Cache = &toolkeep.CacheSpec{Policy: "ttl", TTLSeconds: 60} })
	h.tool("writes", writes)
	h.tool("fails", func(m *toolkeep.Manifest) { m.Retry.MaxAttempts = 1 })
	h.executor.do = func(_ context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		if x.Tool.ID == "std.fails" {
			return nil, toolkeep.NewError(toolkeep.UpstreamServerError, "it failed")
		}
		return &toolkeep.Output{Value: "done", HasValue: true}, nil
	}
	const trace = "0af7651916cd43dd8448eb211c80319c"
	parent := "00-" + trace + "-b7ad6b7169203331-01"
	for _, tt := range []struct{ name, tool, arguments, want string }{
		{"answered", "std.reads", `{}`, "pppppppppppp"},
		{"cached", "std.reads", `{}`, "ppppppnnnnnp"},
		{"invalid", "std.reads", `{"n":"x"}`, "pppr" + "nnnnnnnp"},
		{"unknown", "std.none", `{}`, "pr" + "nnnnnnnnnp"},
		{"failed", "std.fails", `{}`, "pppppppppr" + "np"},
		{"writes", "std.writes", `{}`, "pppppppppppp"},
	} {
		_, _ = h.pipeline.Invoke(context.Background(), alice, &toolkeep.Call{Tool: tt.tool, Arguments: []byte(tt.arguments), Traceparent: parent})
		v := h.row((<-h.observed).ID)
		if got := outcomes(v); got != tt.want || v.TraceID != trace || v.Tries != nil {
			t.Errorf("%s: got %s, trace %q, attempts %v; want %s", tt.name, got, v.TraceID, v.Tries, tt.want)
		}
	}
	res, err := h.call(&toolkeep.Call{Tool: "std.writes", Async: true, Traceparent: parent})
	if err != nil {
		t.Fatal(err)
	}
	if got := outcomes(h.row(res.InvocationID)); got != "pppppppwnnnn" {
		t.Errorf("queued: got %s", got)
	}
	h.work()
	if v := h.row(res.InvocationID); outcomes(v) != "pppppppppppp" || v.TraceID != trace {
		t.Errorf("done by a worker: got %s, trace %q", outcomes(v), v.TraceID)
	}
	if got := invoke.StepsOf(&toolkeep.Invocation{State: toolkeep.CallSucceeded}); got != nil {
		t.Errorf("a row of an older program has steps: %v", got)
	}
}

// TestAttemptsOfRecords: a record has its attempts where there was more than one, the first ones and the last.
func TestAttemptsOfRecords(t *testing.T) {
	t.Parallel()
	h := newFallbackHarness(t)
	h.fault = toolkeep.NewError(toolkeep.UpstreamServerError, "it failed")
	h.tool("main", fallsBackTo("std.other"), func(m *toolkeep.Manifest) { m.Retry.MaxAttempts = 2 })
	h.tool("other")
	h.tool("often", func(m *toolkeep.Manifest) { m.Retry.MaxAttempts = 10 })
	h.tool("once", func(m *toolkeep.Manifest) { m.Retry.MaxAttempts = 1 })
	h.failing["std.often"], h.failing["std.once"] = h.fault, h.fault
	codes := func(v *toolkeep.Invocation) (all []string) {
		at := int64(-1)
		for _, try := range v.Tries {
			if try.AtUS < at || try.TookUS < 0 {
				t.Errorf("an attempt began at %d µs, after one at %d, and took %d", try.AtUS, at, try.TookUS)
			}
			at = try.AtUS
			all = append(all, string(try.Code)+try.Tool)
		}
		return all
	}
	for _, tt := range []struct{ tool, want string }{
		{"main", "E3520 E3520 std.other"},
		{"often", strings.TrimSpace(strings.Repeat("E3520 ", toolkeep.MaxTries))},
		{"once", ""},
	} {
		res, err := h.call(&toolkeep.Call{Tool: "std." + tt.tool})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(codes(h.row(res.InvocationID)), " "); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.tool, got, tt.want)
		}
	}
}
