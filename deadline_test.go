package toolkeep_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
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

// TestDeadline: a limit that can pause is known to whoever waits.
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
		for ctx, want := range map[context.Context]time.Duration{outer: 10 * time.Second, inner: 10 * time.Second, short: time.Second} {
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

// TestWhoWaitsKnowsItsLimit: ctx.Deadline does not know the limits that can pause, so that a wait that
// asks it lasts until the call's time is over.
func TestWhoWaitsKnowsItsLimit(t *testing.T) {
	seen := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || d.Name() == "tools" || d.Name() == "bench" || strings.HasPrefix(d.Name(), ".") && path != ".") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) > 0 {
				return true
			}
			if f, ok := call.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Deadline" {
				path := filepath.ToSlash(path)
				seen[path] = true
				if ownDeadline[path] == "" {
					t.Errorf("%s: ask toolkeep.Deadline(ctx), which knows the limits that can pause", files.Position(n.Pos()))
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for path := range ownDeadline {
		if !seen[path] {
			t.Errorf("%s asks no context for its deadline; take it off the list", path)
		}
	}
}
