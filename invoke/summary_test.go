package invoke_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/redact"
)

// returning has the executor answer with the value.
func (h *harness) returning(v any) {
	h.executor.do = func(context.Context, *toolkeep.Execution) (*toolkeep.Output, error) {
		return &toolkeep.Output{Value: v, HasValue: true}, nil
	}
}

// A record has the beginning of the result that the caller got, of every way to get one.
func TestResultSummary(t *testing.T) {
	const token = "ghp_0123456789abcdefghijklmnopqrstuvwxyzAB"
	personal, err := redact.PersonalOf([]string{"email", "card"})
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, func(c *invoke.Config) { c.Personal = personal })
	h.tool("read")
	h.tool("cached", func(m *toolkeep.Manifest) { m.Cache = &toolkeep.CacheSpec{Policy: "ttl", TTLSeconds: 3600} })
	h.tool("write", writes)
	h.tool("hides", func(m *toolkeep.Manifest) { m.Result = &toolkeep.ResultSpec{SensitiveFields: []string{"/other"}} })
	h.tool("password", func(m *toolkeep.Manifest) {
		m.ParametersSchema = []byte(`{"type":"object","properties":{"s":{"type":"string","format":"password"}}}`)
	})
	for _, x := range []struct {
		tool, arguments string
		value           any
		want            string
	}{
		{"read", `{}`, "done", "done"},
		{"read", `{}`, map[string]any{"a": []any{true, nil}}, `{"a":[true,null]}`},
		{"read", `{}`, nil, "null"},
		{"read", `{}`, map[string]any{"to": "ann@example.com"}, `{"to":"[email]"}`},
		{"read", `{}`, strings.Repeat("x", 190) + " 4111 1111 1111 1111 at 10.0.0.1", strings.Repeat("x", 190) + " [card] a…"},
		{"read", `{}`, "one\n\ttwo\x1b[31m\u202ethree ", "one  two\ufffd[31mthree"},
		{"read", `{}`, strings.Repeat("ü", 200), strings.Repeat("ü", 200)},
		{"read", `{}`, strings.Repeat("ü", 201), strings.Repeat("ü", 199) + "…"},
		{"read", `{}`, strings.Repeat("\x01a\"", 100_000), strings.Repeat("\ufffda\"", 66) + "\ufffd…"},
		{"read", `{}`, strings.Repeat("x", 190) + " " + token, strings.Repeat("x", 190) + " ["},
		{"read", `{}`, "the token " + token, "the token ["},
		{"password", `{"s":"correct horse battery"}`, "you sent correct horse battery", "you sent ["},
		{"cached", `{}`, "kept", "kept"},
		{"cached", `{}`, "another", "kept"},
		{"write", `{}`, "written", "written"},
		{"hides", `{}`, map[string]any{"open": "said"}, ""},
	} {
		h.returning(x.value)
		for _, async := range []bool{false, true} {
			res, err := h.call(&toolkeep.Call{Tool: "std." + x.tool, Arguments: []byte(x.arguments), Async: async})
			if err != nil {
				t.Fatal(err)
			}
			h.work()
			row := h.row(res.InvocationID)
			got := row.ResultSummary
			if row.State != toolkeep.CallSucceeded || utf8.RuneCountInString(got) > 200 || strings.Contains(got, "ghp_") || strings.Contains(got, "horse") ||
				!strings.HasPrefix(got, x.want) || !strings.HasSuffix(x.want, "[") && got != x.want {
				t.Errorf("%s %.40v (async %v): %s with %q", x.tool, x.value, async, row.State, got)
			}
		}
	}
	h.executor.do = func(context.Context, *toolkeep.Execution) (*toolkeep.Output, error) {
		return nil, toolkeep.NewError(toolkeep.UpstreamTimeout, "failed")
	}
	if _, err := h.call(&toolkeep.Call{Tool: "std.gone"}); err == nil || h.row(err.InvocationID).ResultSummary != "" {
		t.Errorf("a refused call: %v", err)
	}
	if res, err := h.call(&toolkeep.Call{Tool: "std.read"}); err != nil || res.Error == nil || h.row(res.InvocationID).ResultSummary != "" {
		t.Errorf("a call that failed: %+v %v", res, err)
	}
}

func TestNoSummaries(t *testing.T) {
	h := newHarness(t, func(c *invoke.Config) { c.NoSummaries = true })
	h.tool("read")
	h.returning("done")
	res, err := h.call(&toolkeep.Call{Tool: "std.read", Session: "s"})
	if err != nil || h.row(res.InvocationID).ResultSummary != "" || h.row(res.InvocationID).OutputSize == 0 {
		t.Errorf("%+v %v", res, err)
	}
}

// A record has the tools that its session called before: its caller's session alone.
func TestPriorTools(t *testing.T) {
	h := newHarness(t)
	for i := range 12 {
		h.tool(fmt.Sprint("t", i))
	}
	h.returning("done")
	prior := func(p *toolkeep.Principal, session string, tool int) []string {
		t.Helper()
		res, err := h.pipeline.Invoke(context.Background(), p, &toolkeep.Call{Tool: fmt.Sprint("std.t", tool), Session: session})
		if err != nil {
			t.Fatal(err)
		}
		v, err := h.store.Invocations().Get(context.Background(), toolkeep.CallRef{Tenant: p.Tenant, ID: res.InvocationID})
		if err != nil {
			t.Fatal(err)
		}
		return v.PriorTools
	}
	var want []string
	for i := range 12 {
		if got := prior(alice, "s", i); !slices.Equal(got, want[max(0, len(want)-10):]) {
			t.Errorf("before call %d: %v, want %v", i, got, want)
		}
		if _, err := h.call(&toolkeep.Call{Tool: "std.gone", Session: "s"}); err == nil {
			t.Error("an unknown tool was called")
		}
		want = append(want, fmt.Sprint("std.t", i))
	}
	other := *alice
	other.OnBehalf = "bob"
	foreign := *alice
	foreign.Tenant = "other"
	for name, got := range map[string][]string{
		"another session": prior(alice, "s2", 0), "another person": prior(&other, "s", 0), "another tenant": prior(&foreign, "s", 0),
		"no session": prior(alice, "", 0), "no session again": prior(alice, "", 0),
	} {
		if len(got) != 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				if _, err := h.pipeline.Invoke(context.Background(), alice, &toolkeep.Call{Tool: "std.t1", Session: "many"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if got := prior(alice, "many", 2); len(got) != 10 || slices.ContainsFunc(got, func(s string) bool { return s != "std.t1" }) {
		t.Errorf("after many calls: %v", got)
	}
}

// TestQuotedArguments: a record has the arguments without secrets and personal data, if that is asked for, and of
// a refused call those that it was sent with.
func TestQuotedArguments(t *testing.T) {
	personal, err := redact.PersonalOf([]string{"email"})
	if err != nil {
		t.Fatal(err)
	}
	for _, quotes := range []bool{true, false} {
		h := newHarness(t, func(c *invoke.Config) { c.Personal, c.QuoteArguments = personal, quotes })
		h.tool("read")
		h.tool("password", func(m *toolkeep.Manifest) {
			m.ParametersSchema = []byte(`{"type":"object","properties":{"s":{"type":"string","format":"password"},"n":{"default":1}}}`)
		})
		h.tool("redacts", func(m *toolkeep.Manifest) { m.Redact = []string{"/s"} })
		h.returning("done")
		for _, x := range []struct{ tool, arguments, want string }{
			{"read", `{}`, ``},
			{"read", `{"n":1,"s":"ann@example.com asks"}`, `{"n":1,"s":"[email] asks"}`},
			{"read", `{"n":"one ann@example.com"}`, `{"n":"one [email]"}`}, // refused
			{"read", `{"s":"ghp_0123456789abcdefghijklmnopqrstuvwxyzAB"}`, `{"s":"[REDACTED]"}`},
			{"password", `{"s":"correct horse battery"}`, `{"n":1,"s":"[REDACTED]"}`},
			{"redacts", `{"n":1,"s":"of one person"}`, `{"n":1,"s":"[REDACTED]"}`},
			{"read", `{"s":"` + strings.Repeat("x", 9<<10) + `"}`, ``},
		} {
			for _, async := range []bool{false, true} {
				res, failure := h.call(&toolkeep.Call{Tool: "std." + x.tool, Arguments: []byte(x.arguments), Async: async})
				id := ""
				if failure != nil {
					id = failure.InvocationID
				} else {
					id = res.InvocationID
				}
				h.work()
				want := x.want
				if !quotes {
					want = ""
				}
				if got := string(h.row(id).Input); got != want {
					t.Errorf("%s with %.100s, async %v: %s, want %s", x.tool, x.arguments, async, got, want)
				}
			}
		}
	}
}
