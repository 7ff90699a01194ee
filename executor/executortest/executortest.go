// Package executortest is the conformance suite for executors: what the pipeline relies
// on, for every kind of tool.
package executortest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// Harness is an executor with calls that exercise its behaviour. A case that does not
// apply to the executor is nil, with the reason in Lacks under the case's name; Good and
// Works apply to all.
type Harness struct {
	Executor toolkeep.Executor
	Kind     string

	// Good is a manifest that passes Check.
	Good *toolkeep.Manifest
	// Bad lists manifests that Check refuses.
	Bad []Bad

	// Works is a call that succeeds, with arguments and a sizable result.
	Works *Case
	// Slow is a call that does not end on its own within a minute.
	Slow *Case
	// Late is the error code of a Slow call past its deadline; "" is E3502.
	Late toolkeep.Code
	// Large is a call whose result is over 1 KiB. Its bytes are told as they arrive, or Lacks
	// has the reason under Counted.
	Large *Case
	// Unsent lists calls that fail before anything is sent or done.
	Unsent []*Case
	// Sent lists calls that fail after something was sent or done.
	Sent []*Case
	// Retryable lists failing calls that an idempotent tool may retry, Permanent those
	// that it may not.
	Retryable []*Case
	Permanent []*Case
	// Malformed lists calls whose upstream response does not match its declared format.
	// Each has its Code.
	Malformed []*Case
	// Leaky lists calls with Credentials that fail, if the upstream allows it, with a
	// response that contains the secret.
	Leaky []*Case
	// Told lists calls with Credentials that succeed with a response that contains the
	// secret.
	Told []*Case

	Lacks map[string]string
}

// Bad is a manifest with one fault.
type Bad struct {
	Name     string
	Manifest *toolkeep.Manifest
	Pointer  string // JSON Pointer of a fault that must be reported
}

// Case is one call.
type Case struct {
	Name        string
	Tool        *toolkeep.Tool
	Args        map[string]any
	Credentials []toolkeep.Credential
	Code        toolkeep.Code // expected of a failure; "" is any
	// Started, if set, is closed or sent to once the call of a Slow case is in
	// progress; Stopped likewise once the upstream knows that the call was cancelled.
	// Without Stopped, Lacks has the reason.
	Started, Stopped <-chan struct{}
}

// promptly is how long an executor may take to return after its context ended. It is
// generous, because test machines are busy.
const promptly = 10 * time.Second

// Run runs the suite. make returns a fresh harness for each part.
func Run(t *testing.T, make func(t *testing.T) Harness) {
	t.Helper()
	parts := []struct {
		name string
		run  func(t *testing.T, h Harness)
	}{
		{"Kind", testKind},
		{"Check", testCheck},
		{"Works", testWorks},
		{"MaxBytes", testMaxBytes},
		{"Counted", testCounted},
		{"CancelBefore", testCancelBefore},
		{"Cancel", func(t *testing.T, h Harness) { testEnd(t, h, toolkeep.Cancelled) }},
		{"Deadline", func(t *testing.T, h Harness) { testEnd(t, h, toolkeep.UpstreamTimeout) }},
		{"NothingSent", testNothingSent},
		{"Retryable", func(t *testing.T, h Harness) { testRetryable(t, h, "Retryable", h.Retryable, true) }},
		{"Permanent", func(t *testing.T, h Harness) { testRetryable(t, h, "Permanent", h.Permanent, false) }},
		{"Malformed", testMalformed},
		{"Credentials", testCredentials},
		{"Told", testTold},
		{"UnknownBinding", testUnknownBinding},
	}
	for _, p := range parts {
		t.Run(p.name, func(t *testing.T) { p.run(t, make(t)) })
	}
}

// lacking skips a part that does not apply to the executor, with the reason.
func lacking(t *testing.T, h Harness, name string) {
	t.Helper()
	reason := h.Lacks[name]
	if reason == "" {
		t.Fatalf("the harness has no case %s and gives no reason in Lacks", name)
	}
	t.Logf("left out: %s: %s", name, reason)
}

// execution returns what the pipeline would pass.
func execution(c *Case) *toolkeep.Execution {
	return &toolkeep.Execution{
		Tool: c.Tool, Args: c.Args, Credentials: c.Credentials,
		Principal:    &toolkeep.Principal{Subject: "agent", Tenant: "acme"},
		InvocationID: "0190aaaa-0000-7000-8000-000000000000", Attempt: 1,
		MaxBytes: 10 << 20,
	}
}

func testKind(t *testing.T, h Harness) {
	if got := h.Executor.Kind(); got != h.Kind || got == "" {
		t.Fatalf("Kind() = %q, want %q", got, h.Kind)
	}
}

func testCheck(t *testing.T, h Harness) {
	if faults := h.Executor.Check(h.Good); len(faults) != 0 {
		t.Errorf("the good manifest has faults: %+v", faults)
	}
	if len(h.Bad) == 0 {
		lacking(t, h, "Bad")
		return
	}
	for _, b := range h.Bad {
		t.Run(b.Name, func(t *testing.T) {
			faults := h.Executor.Check(b.Manifest)
			for _, f := range faults {
				if f.Rule == "" || f.Message == "" {
					t.Errorf("a fault without rule or message: %+v", f)
				}
				if f.Pointer == b.Pointer {
					return
				}
			}
			t.Errorf("no fault at %s among %+v", b.Pointer, faults)
		})
	}
}

func testWorks(t *testing.T, h Harness) {
	if h.Works == nil {
		t.Fatal("the harness has no call that works")
	}
	before := canon.Append(nil, map[string]any(h.Works.Args))
	for range 2 { // again from its caches
		x := execution(h.Works)
		out, err := h.Executor.Execute(t.Context(), x)
		if err != nil {
			t.Fatalf("Execute: %v", err)
		}
		if out == nil || !out.HasValue && out.Body == nil {
			t.Fatal("a success without a value or a body")
		}
		if after := canon.Append(nil, map[string]any(h.Works.Args)); !bytes.Equal(before, after) {
			t.Fatalf("the arguments were modified:\n%s\n%s", before, after)
		}
	}
}

func testMaxBytes(t *testing.T, h Harness) {
	if h.Large == nil {
		lacking(t, h, "Large")
		return
	}
	x := execution(h.Large)
	if _, err := h.Executor.Execute(t.Context(), x); err != nil {
		t.Fatalf("within the limit: %v", err)
	}
	x = execution(h.Large)
	x.MaxBytes = 100
	_, err := h.Executor.Execute(t.Context(), x)
	if e := wantCode(t, err, toolkeep.ResultTooLarge); e != nil && e.NothingSent {
		t.Error("NothingSent is set for a call that had an answer")
	}
}

// testCounted: what arrives is told, and an attempt that finds no room ends with its context.
func testCounted(t *testing.T, h Harness) {
	if h.Large == nil || h.Lacks["Counted"] != "" {
		lacking(t, h, "Counted")
		return
	}
	x, told := execution(h.Large), int64(0)
	x.Grow = func(bytes int64) error { told += bytes; return nil }
	if _, err := h.Executor.Execute(t.Context(), x); err != nil || told < 1<<10 {
		t.Errorf("%d bytes were told: %v", told, err)
	}
	x = execution(h.Large)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	x.Grow = func(int64) error { cancel(); return ctx.Err() }
	_, err := h.Executor.Execute(ctx, x)
	wantCode(t, err, toolkeep.Cancelled)
}

// testCancelBefore: a call with an ended context does nothing.
func testCancelBefore(t *testing.T, h Harness) {
	if h.Works == nil {
		t.Fatal("the harness has no call that works")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := h.Executor.Execute(ctx, execution(h.Works))
	if e := wantCode(t, err, toolkeep.Cancelled); e != nil && !e.NothingSent {
		t.Error("NothingSent is not set for a call that was over before it began")
	}
}

// testEnd: a slow call that is ended from outside returns promptly, and its upstream
// notices.
func testEnd(t *testing.T, h Harness, code toolkeep.Code) {
	if h.Slow == nil {
		lacking(t, h, "Slow")
		return
	}
	for limit := 200 * time.Millisecond; ; limit *= 4 {
		end(t, h, code, limit)
		if h.Slow.Stopped == nil {
			lacking(t, h, "Stopped")
			return
		}
		select {
		case <-h.Slow.Stopped:
			return
		case <-time.After(promptly):
		}
		// On a busy machine the deadline may have passed before anything was sent.
		if !waiting(h.Slow.Started) || 4*limit > promptly || code == toolkeep.Cancelled {
			t.Fatal("the upstream was not told that the call is over")
		}
	}
}

// waiting reports whether c is set and has received nothing yet.
func waiting(c <-chan struct{}) bool {
	if c == nil {
		return false
	}
	select {
	case <-c:
		return false
	default:
		return true
	}
}

// end runs the slow call and ends it: by a deadline after limit, or once it is in
// progress.
func end(t *testing.T, h Harness, code toolkeep.Code, limit time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if code == toolkeep.UpstreamTimeout {
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	result := make(chan error, 1)
	go func() {
		_, err := h.Executor.Execute(ctx, execution(h.Slow))
		result <- err
	}()
	if h.Slow.Started != nil && code == toolkeep.Cancelled {
		wait(t, h.Slow.Started, "the call did not start")
	}
	if code == toolkeep.Cancelled {
		cancel()
	}
	select {
	case err := <-result:
		if code == toolkeep.UpstreamTimeout && h.Late != "" {
			code = h.Late
		}
		wantCode(t, err, code)
	case <-time.After(limit + promptly):
		t.Fatal("Execute did not return after its context had ended")
	}
}

func wait(t *testing.T, c <-chan struct{}, otherwise string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(promptly):
		t.Fatal(otherwise)
	}
}

func testNothingSent(t *testing.T, h Harness) {
	if len(h.Unsent) == 0 {
		lacking(t, h, "Unsent")
		return
	}
	check := func(cases []*Case, want bool) {
		for _, c := range cases {
			t.Run(c.Name, func(t *testing.T) {
				_, err := h.Executor.Execute(t.Context(), execution(c))
				e := wantCode(t, err, c.Code)
				if e != nil && e.NothingSent != want {
					t.Errorf("NothingSent = %t, want %t (%v, because of %v)", e.NothingSent, want, e, e.Cause)
				}
			})
		}
	}
	check(h.Unsent, true)
	if len(h.Sent) == 0 {
		lacking(t, h, "Sent")
	}
	check(h.Sent, false)
}

// testRetryable: failures say whether a retry may help.
func testRetryable(t *testing.T, h Harness, name string, cases []*Case, want bool) {
	if len(cases) == 0 {
		lacking(t, h, name)
		return
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			_, err := h.Executor.Execute(t.Context(), execution(c))
			if e := wantCode(t, err, c.Code); e != nil && e.Retryable != want {
				t.Errorf("Retryable = %t, want %t (%v, because of %v)", e.Retryable, want, e, e.Cause)
			}
		})
	}
}

// testMalformed: an unreadable response ends the call with a message for the caller.
func testMalformed(t *testing.T, h Harness) {
	if len(h.Malformed) == 0 {
		lacking(t, h, "Malformed")
		return
	}
	for _, c := range h.Malformed {
		t.Run(c.Name, func(t *testing.T) {
			if c.Code == "" {
				t.Fatal("the case does not say its Code")
			}
			_, err := h.Executor.Execute(t.Context(), execution(c))
			e := wantCode(t, err, c.Code)
			switch {
			case e == nil:
			case e.NothingSent:
				t.Errorf("NothingSent is set for a call that had an answer (%v)", e)
			case e.Message == "":
				t.Error("the error has no words for the caller")
			}
		})
	}
}

func testUnknownBinding(t *testing.T, h Harness) {
	if len(h.Bad) == 0 {
		lacking(t, h, "Bad")
		return
	}
	c := &Case{Tool: Tool(h.Bad[0].Manifest), Args: map[string]any{}}
	_, err := h.Executor.Execute(t.Context(), execution(c))
	if e := wantCode(t, err, ""); e != nil && !e.NothingSent {
		t.Error("NothingSent is not set for a binding that cannot be carried out")
	}
}

// wantCode asserts that err is an *Error with the code, "" being any.
func wantCode(t *testing.T, err error, code toolkeep.Code) *toolkeep.Error {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want %s", code)
		return nil
	}
	var e *toolkeep.Error
	if !errors.As(err, &e) || e == nil {
		t.Errorf("the error is a %T and no *toolkeep.Error: %v", err, err)
		return nil
	}
	if code != "" && e.Code != code {
		t.Errorf("the error is %v (because of %v), want %s", e, e.Cause, code)
	}
	return e
}

// Tool wraps a manifest as the catalogue does.
func Tool(m *toolkeep.Manifest) *toolkeep.Tool {
	return &toolkeep.Tool{
		ID: m.ToolID, Version: m.Version, Manifest: m,
		Digest: canon.Digest(canon.Append(nil, map[string]any{
			"id": m.ToolID, "kind": m.Execution.Kind, "binding": string(m.Execution.Binding),
			"idempotent": m.Idempotent, "side_effects": m.SideEffects, "network": fmt.Sprint(m.Permissions),
		})),
	}
}
