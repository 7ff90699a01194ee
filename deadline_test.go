package toolkeep_test

import (
	"context"
	"errors"
	"go/ast"
	"go/token"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
)

func TestPauseTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		outer, cancel := toolkeep.WithPausableTimeout(t.Context(), 10*time.Second, context.DeadlineExceeded)
		defer cancel()
		inner, done := toolkeep.WithPausableTimeout(outer, 5*time.Second, context.DeadlineExceeded)
		defer done()
		child, end := context.WithCancel(inner)
		defer end()

		time.Sleep(4 * time.Second)
		goOn, again := toolkeep.PauseTimeout(child), toolkeep.PauseTimeout(child)
		time.Sleep(time.Minute)
		goOn()
		goOn()
		time.Sleep(time.Minute) // the other pause still holds
		again()
		<-inner.Done()
		<-child.Done() // it ends a moment after
		if got := time.Since(began); got != 2*time.Minute+5*time.Second {
			t.Errorf("the inner limit ended after %s", got)
		}
		if !errors.Is(context.Cause(child), context.DeadlineExceeded) || outer.Err() != nil {
			t.Errorf("causes %v and %v", context.Cause(child), outer.Err())
		}
		<-outer.Done()
		if got := time.Since(began); got != 2*time.Minute+10*time.Second {
			t.Errorf("the outer limit ended after %s", got)
		}
		toolkeep.PauseTimeout(t.Context())() // without a timeout it has no effect
	})
}

// told is a hook that notes what it is told.
type told struct {
	log   []string
	await func()
}

func (h *told) Pause()  { h.log = append(h.log, "pause") }
func (h *told) Resume() { h.log = append(h.log, "resume") }
func (h *told) Await() {
	h.log = append(h.log, "await")
	if h.await != nil {
		h.await()
	}
}

func (h *told) is(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(h.log, want) {
		t.Errorf("the hook was told %q, want %q", h.log, want)
	}
	h.log = nil
}

// TestOnPause: hooks are told of the first and the last of overlapping pauses, the innermost may wait with the
// clock running, and work that goes on ends the pauses that are open.
func TestOnPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var outer, inner told
		ctx, cancel := toolkeep.WithPausableTimeout(t.Context(), 10*time.Second, context.DeadlineExceeded)
		defer cancel()
		above, _ := toolkeep.OnPause(ctx, &outer)
		below, over := toolkeep.OnPause(above, &inner)

		first, second, beside := toolkeep.PauseTimeout(below), toolkeep.PauseTimeout(below), toolkeep.PauseTimeout(above)
		outer.is(t, "pause")
		inner.is(t, "pause")
		time.Sleep(time.Minute)
		first()
		first()
		inner.is(t, "await")
		second()
		inner.is(t, "resume", "await")
		outer.is(t)
		beside()
		outer.is(t, "resume", "await")

		open := toolkeep.PauseTimeout(below)
		time.Sleep(time.Minute)
		over()
		outer.is(t, "pause", "resume")
		inner.is(t, "pause", "resume")
		open()
		toolkeep.PauseTimeout(below)()
		outer.is(t)
		inner.is(t)

		last := toolkeep.PauseTimeout(above)
		time.Sleep(time.Minute)
		outer.await = func() { <-ctx.Done() }
		began := time.Now()
		last()
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("the limit was over %s after the last pause", took)
		}
	})
}

// TestDeadline: Deadline knows limits that can pause.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		left := func(ctx context.Context) time.Duration {
			at, ok := toolkeep.Deadline(ctx)
			if !ok {
				return -1
			}
			return at.Sub(began)
		}
		if got := left(t.Context()); got != -1 {
			t.Errorf("without a limit: %s", got)
		}
		outer, cancel := toolkeep.WithPausableTimeout(t.Context(), 10*time.Second, nil)
		defer cancel()
		inner, done := toolkeep.WithPausableTimeout(outer, 20*time.Second, nil)
		defer done()
		short, end := context.WithTimeout(inner, time.Second)
		defer end()
		hooked := func(ctx context.Context) context.Context {
			ctx, _ = toolkeep.OnPause(ctx, &told{})
			return ctx
		}
		for ctx, want := range map[context.Context]time.Duration{hooked(short): time.Second, hooked(inner): 10 * time.Second, hooked(t.Context()): -1, outer: 10 * time.Second, inner: 10 * time.Second, short: time.Second} {
			if got := left(ctx); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		time.Sleep(2 * time.Second)
		resume := toolkeep.PauseTimeout(inner)
		time.Sleep(time.Minute)
		if got := left(inner); got != 70*time.Second {
			t.Errorf("while it pauses: %s", got)
		}
		resume()
		time.Sleep(time.Second)
		if got := left(inner); got != 70*time.Second {
			t.Errorf("after the pause: %s", got)
		}
	})
}

// ownDeadline are the places that may ask a context itself for its deadline, and why.
var ownDeadline = map[string]string{
	"deadline.go":                            "adds the limits that can pause",
	"secret/vault/lease.go":                  "a lease without a deadline is renewed until the context ends, also while a person answers",
	"executor/grpctool/grpctest/grpctest.go": "a server: what came over the wire",
}

// TestWhoWaitsKnowsItsLimit: no code asks ctx.Deadline, which does not know the limits that can pause. A wait by it
// would last until the call's time is over.
func TestWhoWaitsKnowsItsLimit(t *testing.T) {
	seen := map[string]bool{}
	eachSource(t, func(path string, at func(ast.Node) token.Position, n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) > 0 {
			return
		}
		if f, ok := call.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Deadline" {
			seen[path] = true
			if ownDeadline[path] == "" {
				t.Errorf("%s: ask toolkeep.Deadline(ctx), which knows the limits that can pause", at(n))
			}
		}
	})
	for path := range ownDeadline {
		if !seen[path] {
			t.Errorf("%s asks no context for its deadline; take it off the list", path)
		}
	}
}
