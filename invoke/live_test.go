package invoke_test

import (
	"context"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/capability"
	"github.com/toolkeep/toolkeep/invoke"
)

// following pulls the events that a principal is told; the first, open, was received.
func following(t *testing.T, h *harness, pr *toolkeep.Principal, f toolkeep.InvocationFilter) func() string {
	t.Helper()
	next, stop := iter.Pull2(h.pipeline.Follow(t.Context(), pr, f))
	t.Cleanup(stop)
	if e, err, ok := next(); !ok || err != nil || e.Kind != invoke.LiveOpen {
		t.Fatalf("the first event is %v, %v", e, err)
	}
	return func() string {
		t.Helper()
		e, err, ok := next()
		if !ok || err != nil {
			t.Fatalf("no event: %v", err)
		}
		v := e.Call
		if v.Output != nil || v.Input != nil || v.SealedArgs != nil {
			t.Errorf("an event has what lists leave out: %+v", v)
		}
		return strings.TrimSpace(e.Kind + " " + v.Subject + " " + strings.TrimPrefix(v.ToolID, "std.") + " " + string(v.State) + " " + string(v.Code))
	}
}

// TestFollow: who follows is told of the calls that it may read, and that its filter selects. A call by bob in the tenant of
// each ends what is told, so that what was not told is known.
func TestFollow(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.tool("reads")
	h.tool("writes", writes)
	h.tool("last")
	h.executor.do = func(_ context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		if x.Caller != nil {
			x.Caller.Progress(toolkeep.Progress{Percent: 40, Message: "row 4"})
		}
		return &toolkeep.Output{Value: "done", HasValue: true}, nil
	}
	auditor := &toolkeep.Principal{Subject: "carol", Tenant: "acme", Permissions: []string{toolkeep.PermInvocations}}
	narrowed := *auditor
	narrowed.Narrowed = capability.OfGrant(&toolkeep.Grant{Tools: []string{"std.last"}})
	for _, tt := range []struct {
		name string
		pr   *toolkeep.Principal
		f    toolkeep.InvocationFilter
		want []string
	}{
		{"an auditor", auditor, toolkeep.InvocationFilter{}, []string{"started alice reads running", "ended alice reads succeeded", "ended alice reads refused E3301", "started bob last running", "ended bob last succeeded"}},
		{"the caller", alice, toolkeep.InvocationFilter{}, []string{"started alice reads running", "ended alice reads succeeded", "ended alice reads refused E3301", "started alice last running"}},
		{"by code", auditor, toolkeep.InvocationFilter{Code: toolkeep.InvalidParameters}, []string{"ended alice reads refused E3301"}},
		{"by state", auditor, toolkeep.InvocationFilter{States: []toolkeep.CallState{toolkeep.CallRefused, toolkeep.CallSucceeded}}, []string{"ended alice reads succeeded", "ended alice reads refused E3301", "ended bob last succeeded"}},
		{"a token that shows one tool", &narrowed, toolkeep.InvocationFilter{}, []string{"started bob last running"}},
		{"another tenant", &toolkeep.Principal{Subject: "alice", Tenant: "other", Permissions: []string{"*"}}, toolkeep.InvocationFilter{}, []string{"started bob last running"}},
	} {
		next := following(t, h, tt.pr, tt.f)
		_, _ = h.call(&toolkeep.Call{Tool: "std.reads"})
		_, _ = h.call(&toolkeep.Call{Tool: "std.reads", Arguments: []byte(`{"n":"x"}`)})
		for _, tenant := range []string{"acme", "other"} {
			if _, err := h.pipeline.Invoke(t.Context(), &toolkeep.Principal{Subject: "bob", Tenant: tenant}, &toolkeep.Call{Tool: "std.last"}); err != nil && tt.pr.Tenant == tenant {
				t.Fatal(err)
			}
		}
		_, _ = h.call(&toolkeep.Call{Tool: "std.last"})
		for _, want := range tt.want {
			if got := next(); got != want {
				t.Fatalf("%s: got %q, want %q", tt.name, got, want)
			}
		}
	}
}

// TestFollowWaiting: of a call that waits it is told that it is queued, runs, how far it is, and how it ended.
func TestFollowWaiting(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.tool("reads")
	next := following(t, h, alice, toolkeep.InvocationFilter{})
	told := make(chan struct{})
	h.executor.do = func(_ context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		x.Caller.Progress(toolkeep.Progress{Percent: 40, Message: "row 4"})
		<-told // it is told while the call runs
		return &toolkeep.Output{Value: "done", HasValue: true}, nil
	}
	if _, err := h.call(&toolkeep.Call{Tool: "std.reads", Async: true}); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); h.work() }()
	var got []string
	for range 3 {
		got = append(got, next())
	}
	close(told)
	got = append(got, next())
	<-done
	want := []string{"state alice reads queued", "state alice reads running", "progress alice reads running", "ended alice reads succeeded"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// TestFollowHidden: a caller is told of its call of a hidden tool what it was answered, an auditor why.
func TestFollowHidden(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.tool("secret")
	h.access.hidden = "std.secret"
	h.access.deny.Store(true)
	own := following(t, h, alice, toolkeep.InvocationFilter{})
	all := following(t, h, &toolkeep.Principal{Subject: "carol", Tenant: "acme", Permissions: []string{toolkeep.PermInvocations}}, toolkeep.InvocationFilter{})
	_, err := h.call(&toolkeep.Call{Tool: "std.secret"})
	wantCode(t, err, toolkeep.ToolNotFound)
	if got := own(); got != "ended alice secret refused E3001" {
		t.Errorf("the caller is told %q", got)
	}
	if got := all(); got != "ended alice secret refused E3201" {
		t.Errorf("an auditor is told %q", got)
	}
}

// TestFollowTwoNodes: the calls of another node are told too, each end once.
func TestFollowTwoNodes(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(c *invoke.Config) { c.Alone = false })
	h.tool("reads")
	other, err := invoke.New(func() invoke.Config { c := h.config; c.Node, c.SpoolPath = "node-2", ""; return c }())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Stop()
	next := following(t, h, alice, toolkeep.InvocationFilter{States: []toolkeep.CallState{toolkeep.CallSucceeded, toolkeep.CallRefused}})
	if _, err := h.call(&toolkeep.Call{Tool: "std.reads"}); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Invoke(t.Context(), alice, &toolkeep.Call{Tool: "std.reads", Arguments: []byte(`{"n":"x"}`)}); err == nil {
		t.Fatal("it was not refused")
	}
	if first, second := next(), next(); first != "ended alice reads succeeded" || !strings.HasPrefix(second, "ended alice reads refused") {
		t.Errorf("got %q, %q", first, second)
	}
}

// TestListLooksThrough: by code, face and person the newest calls are looked through.
func TestListLooksThrough(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.tool("reads")
	for _, c := range []toolkeep.Call{{Face: "rest"}, {Face: "mcp"}, {Face: "rest", Arguments: []byte(`{"n":"x"}`)}} {
		c.Tool = "std.reads"
		_, _ = h.pipeline.Invoke(t.Context(), alice, &c)
	}
	code := func() toolkeep.Code {
		rows, _, _ := h.pipeline.List(t.Context(), alice, toolkeep.InvocationFilter{Limit: 1})
		return rows[0].Code
	}()
	for _, tt := range []struct {
		f    toolkeep.InvocationFilter
		want int
	}{{toolkeep.InvocationFilter{Face: "rest"}, 2}, {toolkeep.InvocationFilter{Code: code}, 1}, {toolkeep.InvocationFilter{Code: code, Face: "mcp"}, 0}, {toolkeep.InvocationFilter{Person: "dora"}, 0}} {
		tt.f.Limit = 10
		if rows, n, err := h.pipeline.List(t.Context(), alice, tt.f); err != nil || n != tt.want || len(rows) != n {
			t.Errorf("%+v: %d of %d, %v", tt.f, len(rows), n, err)
		}
	}
}
