package invoke_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/redact"
)

// TestRedactionIsNoOracle: nothing that repeats a caller's own text tells whether the text
// is a secret of an upstream that the call does not reach: not the result of another tool,
// a failure, progress, a child's result, a refusal of arguments or the reason of a cancel.
func TestRedactionIsNoOracle(t *testing.T) {
	const guess = "s3cret-of-the-shop"
	h := newHarness(t)
	shop := redact.Host("shop.example")
	h.executor.from = map[string]string{"std.shop": shop, "std.orders": shop, "std.bank": redact.Host("bank.example")}
	text := func(m *toolkeep.Manifest) {
		m.ParametersSchema = json.RawMessage(`{"properties":{"text":{"type":"string"},"one":{"enum":["a"]},"fail":{"type":"boolean"},"below":{"type":"string"}}}`)
		m.Result = &toolkeep.ResultSpec{Public: true}
	}
	tools := []string{"std.echo", "std.bank", "std.shop", "std.orders"}
	for _, id := range tools {
		h.tool(strings.TrimPrefix(id, "std."), text)
	}
	defer h.redact.Hold(redact.AllTenants.At(shop), guess)()
	h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		if x.Caller != nil {
			x.Caller.Progress(toolkeep.Progress{Message: fmt.Sprint(x.Args["text"])})
		}
		if x.Args["fail"] == true {
			return nil, toolkeep.NewError(toolkeep.UpstreamClientError, "no %v", x.Args["text"]).With("body", x.Args["text"]).Because(errors.New(guess))
		}
		out := map[string]any{"text": x.Args["text"]}
		if below, _ := x.Args["below"].(string); below != "" {
			res, err := x.Child.Invoke(ctx, nil, &toolkeep.Call{Tool: below, Arguments: []byte(`{"text":"` + guess + `"}`)})
			if err != nil {
				return nil, err
			}
			out["below"] = string(res.Output)
		}
		return &toolkeep.Output{Value: out, HasValue: true}, nil
	}
	for _, tt := range []struct {
		tool, args string
		taken      int // how many of the repetitions are redacted
	}{
		{"std.echo", `{"text":"` + guess + `"}`, 0},
		{"std.bank", `{"text":"` + guess + `"}`, 0},
		{"std.shop", `{"text":"` + guess + `"}`, 1},
		{"std.orders", `{"text":"` + guess + `"}`, 1}, // gets no secret, and its upstream has one
		{"std.echo", `{"text":"` + guess + `","fail":true}`, 0},
		{"std.shop", `{"text":"` + guess + `","fail":true}`, 2},
		{"std.echo", `{"below":"std.bank"}`, 0},
		{"std.echo", `{"below":"std.shop"}`, 1},
		{"std.shop", `{"below":"std.echo"}`, 1}, // what the shop sent may be in the arguments
		{"std.echo", `{"one":"` + guess + `"}`, 0},
		{"std.shop", `{"one":"` + guess + `"}`, 0}, // refused before it is sent
	} {
		for _, async := range []bool{false, true} {
			res, err := h.call(&toolkeep.Call{Tool: tt.tool, Arguments: []byte(tt.args), Async: async})
			told, e := "", toolkeep.AsError(err)
			if err == nil && async {
				h.work()
				row := h.row(res.InvocationID)
				told = string(row.Output) + row.Message + string(row.Details)
				forbidden := redact.Marker
				if tt.taken > 0 {
					forbidden = guess
				}
				if strings.Contains(row.Progress.Message, forbidden) {
					t.Errorf("progress of %s %s: %s", tt.tool, tt.args, row.Progress.Message)
				}
			} else if err == nil {
				told, e = string(res.Output), res.Error
			}
			if e != nil {
				told += e.Message + fmt.Sprint(e.Details)
			}
			if n := strings.Count(told, redact.Marker); n != tt.taken || n == 0 && !strings.Contains(told, guess) {
				t.Errorf("%s %s, async %t: %d repetitions are redacted, want %d: %s", tt.tool, tt.args, async, n, tt.taken, told)
			}
		}
	}
	// The reason of a cancel is the caller's own text, and may quote the tool.
	for tool, want := range map[string]string{"std.echo": guess, "std.shop": redact.Marker} {
		res, err := h.call(&toolkeep.Call{Tool: tool, Async: true, Arguments: []byte(`{}`)})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := h.pipeline.Cancel(t.Context(), alice, res.InvocationID, guess); err != nil {
			t.Fatal(err)
		}
		if why := h.row(res.InvocationID).CancelWhy; why != want {
			t.Errorf("the reason of the cancel of %s is %q, want %q", tool, why, want)
		}
	}
}
