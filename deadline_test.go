package toolkeep_test

import (
	"context"
	"errors"
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
