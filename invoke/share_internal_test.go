package invoke

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/toolkeep/toolkeep/resultcache"
)

// TestKeyedSemaphore: a few runs per key at once, other keys do not wait, and a
// cancelled waiter takes no slot.
func TestKeyedSemaphore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l keyedSemaphore
		var mu sync.Mutex
		running := map[resultcache.Key]int{}
		one, other := resultcache.Key{1}, resultcache.Key{2}
		next, ctx := make(chan struct{}), t.Context()
		run := func(ctx context.Context, k resultcache.Key) error {
			leave, err := l.acquire(ctx, k)
			if err != nil {
				return err
			}
			defer leave()
			mu.Lock()
			running[k]++
			mu.Unlock()
			<-next
			mu.Lock()
			running[k]--
			mu.Unlock()
			return nil
		}
		for range 3 * maxUnshared {
			go func() {
				if err := run(ctx, one); err != nil {
					t.Error(err)
				}
			}()
		}
		go func() { _ = run(ctx, other) }()
		synctest.Wait()
		want := func(ofOne, ofOther int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if running[one] != ofOne || running[other] != ofOther {
				t.Fatalf("%d and %d run, want %d and %d", running[one], running[other], ofOne, ofOther)
			}
		}
		want(maxUnshared, 1)
		gone, leave := context.WithCancel(ctx)
		given := make(chan error, 1)
		go func() { given <- run(gone, one) }()
		synctest.Wait()
		leave()
		if err := <-given; !errors.Is(err, context.Canceled) {
			t.Errorf("who left got %v", err)
		}
		for range 2*maxUnshared + 1 {
			next <- struct{}{}
		}
		synctest.Wait()
		mu.Lock()
		if n := running[one] + running[other]; n != maxUnshared && n != maxUnshared+1 {
			t.Errorf("%d run", n)
		}
		mu.Unlock()
		close(next)
		want(0, 0)
		if len(l.of) != 0 {
			t.Errorf("%d questions are kept", len(l.of))
		}
	})
}
