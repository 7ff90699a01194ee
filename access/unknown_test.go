package access

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
)

// TestKeyOfAnotherNode: a key that this node has not read yet is looked for among all that is committed before it is
// refused, and counts as wrong only then.
func TestKeyOfAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		var told atomic.Int32
		a := open(t, Config{Store: store, OnFailure: func(Failure) { told.Add(1) }})
		spec := agentSpec
		made := func() string {
			key, text := NewKey(spec, time.Now())
			if err := store.Apply(t.Context(), toolkeep.PutKey{Key: key}); err != nil {
				t.Fatal(err)
			}
			return text
		}

		store.hold(true)
		text := made()
		start := time.Now()
		time.AfterFunc(300*time.Millisecond, func() { store.hold(false) })
		p := must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), text, "192.0.2.1"))
		if took := time.Since(start); took != 300*time.Millisecond {
			t.Errorf("the key was known after %v", took)
		}

		store.hold(true)
		text = made()
		id, _, _ := parseKey(text)
		start = time.Now()
		e := is(t, second(a.Authenticate(t.Context(), text, "192.0.2.1")), toolkeep.RegistryUnavailable)
		if took := time.Since(start); took != unknownWait || e.RetryAfter == 0 {
			t.Errorf("refused after %v, try again in %v", took, e.RetryAfter)
		}
		later := *p
		later.KeyID = id
		is(t, second(a.Refresh(t.Context(), &later)), toolkeep.RegistryUnavailable)
		store.hold(false)
		must[*toolkeep.Principal](t)(a.Refresh(t.Context(), &later))

		synctest.Wait()
		if n := told.Load(); n != 0 {
			t.Errorf("%d failures were told of valid keys", n)
		}
		_, text = NewKey(spec, time.Now())
		is(t, second(a.Authenticate(t.Context(), text, "192.0.2.1")), toolkeep.Unauthenticated)
		if n := told.Load(); n != 1 {
			t.Errorf("a wrong key was told %d times", n)
		}
		a.Stop()

		a = open(t, Config{Store: headless{store}})
		is(t, second(a.Authenticate(t.Context(), text, "192.0.2.1")), toolkeep.RegistryUnavailable)
		a.Stop()
	})
}

// headless is a store whose head cannot be read.
type headless struct{ *memory }

func (headless) Head(context.Context) (int64, error) { return 0, errors.New("the store is away") }
