package toolkeep

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// cutStore is a store whose head can be out of reach: it then does not answer, or fails.
type cutStore struct {
	hangs, fails atomic.Bool
	head, reads  atomic.Int64
}

func (s *cutStore) Head(ctx context.Context) (int64, error) {
	s.reads.Add(1)
	if s.hangs.Load() {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	if s.fails.Load() {
		return 0, errors.New("the store is away")
	}
	return s.head.Load(), nil
}

// TestFreshness: while the feed cannot be read, no caller waits for it; what is known serves for a
// while and is then refused, until the feed is read again.
func TestFreshness(t *testing.T) {
	const limit = 10 * time.Second
	check := func(t *testing.T, f *Freshness) (looked bool, took time.Duration, err error) {
		t.Helper()
		began := time.Now()
		looked, err = f.Check(t.Context())
		return looked, time.Since(began), err
	}
	for name, out := range map[string]func(*cutStore) *atomic.Bool{
		"the store fails": func(s *cutStore) *atomic.Bool { return &s.fails },
		"the store hangs": func(s *cutStore) *atomic.Bool { return &s.hangs },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &cutStore{}
				var keys FeedPosition
				f := NewFreshness(store, limit, &keys)
				if f.Health(t.Context()) == nil {
					t.Error("it is well before anything was read")
				}
				run, stop := context.WithCancel(t.Context())
				var done sync.WaitGroup
				done.Go(func() { f.Run(run) })
				defer func() { stop(); done.Wait() }()
				time.Sleep(time.Minute + time.Millisecond)
				if looked, took, err := check(t, f); looked || took != 0 || err != nil {
					t.Errorf("while all is well it looked %t for %s: %v", looked, took, err)
				}
				if n := store.reads.Load(); n != 61 {
					t.Errorf("the head was read %d times in a minute", n)
				}
				out(store).Store(true)
				for since := time.Duration(0); since < time.Minute; since += 100 * time.Millisecond {
					_, took, err := check(t, f)
					switch {
					case took != 0:
						t.Fatalf("a caller waited %s, %s after the store was lost", took, since)
					case since <= limit-freshBeat && err != nil:
						t.Fatalf("refused %s after the store was lost: %v", since, err)
					case since > limit && (!IsCode(err, RegistryUnavailable) || AsError(err).RetryAfter == 0 || f.Health(t.Context()) == nil):
						t.Fatalf("%s after the store was lost: %v, health %v", since, err, f.Health(t.Context()))
					}
					time.Sleep(100 * time.Millisecond)
				}
				out(store).Store(false)
				time.Sleep(2 * time.Second)
				if looked, took, err := check(t, f); looked || took != 0 || err != nil || f.Health(t.Context()) != nil {
					t.Errorf("then it looked %t for %s: %v", looked, took, err)
				}
			})
		})
	}
}

// TestFreshnessAfterAGap: the first caller after a gap waits until the followers have come to
// the head as it is then, and no other reads it again for that.
func TestFreshnessAfterAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &cutStore{}
		var keys, tools FeedPosition
		f := NewFreshness(store, 10*time.Second, &keys, &tools)
		run, stop := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { f.Run(run) })
		defer func() { stop(); done.Wait() }()
		slept := func() { // the clocks went on for an hour, and nothing else
			f.mu.Lock()
			defer f.mu.Unlock()
			f.known = f.known.Add(-time.Hour)
		}
		time.Sleep(time.Millisecond)
		slept()
		store.head.Store(7)
		before := store.reads.Load()
		var callers sync.WaitGroup
		var through atomic.Int64
		for range 50 {
			callers.Go(func() {
				if looked, err := f.Check(t.Context()); !looked || err != nil {
					t.Errorf("it looked %t: %v", looked, err)
				}
				through.Add(1)
			})
		}
		synctest.Wait()
		keys.Reach(7)
		synctest.Wait()
		if n := through.Load(); n != 0 || f.Applied() != 0 {
			t.Errorf("%d were let through by half of the changes, %d applied", n, f.Applied())
		}
		tools.Reach(7)
		callers.Wait()
		if n := store.reads.Load() - before; n != 1 || f.Applied() != 7 {
			t.Errorf("the head was read %d times, and %d is applied", n, f.Applied())
		}
		if err := f.AwaitApplied(t.Context(), 7); err != nil {
			t.Error(err)
		}
		slept()
		store.head.Store(8) // and the followers never come to it
		if _, err := f.Check(t.Context()); !IsCode(err, RegistryUnavailable) {
			t.Errorf("got %v", err)
		}
		if err := f.Health(t.Context()); err == nil || !strings.Contains(err.Error(), "not been seen") {
			t.Errorf("health %v", err)
		}
	})
}

// TestPassed: a gap shows by whichever clock it was.
func TestPassed(t *testing.T) {
	now := time.Now()
	for name, at := range map[string]time.Time{
		"by both clocks":       now.Add(-time.Hour),
		"a machine that slept": now.Round(0).Add(-time.Hour), // the monotonic clock did not go on
		"never":                {},
	} {
		if got := passed(at); got < time.Hour {
			t.Errorf("%s: %s", name, got)
		}
	}
}
