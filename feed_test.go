package toolkeep

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

type headAt int64

func (h headAt) Head(context.Context) (int64, error) {
	if h < 0 {
		return 0, errors.New("the store is away")
	}
	return int64(h), nil
}

func TestFeedPosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f FeedPosition
		if err := f.Await(t.Context(), headAt(0)); err != nil {
			t.Error(err)
		}
		if err := f.Await(t.Context(), headAt(-1)); err == nil {
			t.Error("a head that cannot be read was reached")
		}
		done := make(chan error, 2)
		for range cap(done) {
			go func() { done <- f.Await(t.Context(), headAt(7)) }()
		}
		for _, seq := range []int64{3, 6, 5} {
			f.Reach(seq)
			synctest.Wait()
			if len(done) != 0 {
				t.Fatalf("change 7 was reached at %d", seq)
			}
		}
		f.Reach(9)
		for range cap(done) {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		start := time.Now()
		if err := f.Await(t.Context(), headAt(10)); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != maxFeedWait {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// TestHeadIsShared: however many wait, one reading of the head is under way, and each caller's began after it came.
func TestHeadIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f FeedPosition
		h := &slowHead{}
		var ended atomic.Int64
		for i := range 100 {
			go func() {
				before := h.head.Load()
				head, err := f.head(t.Context(), h.Head)
				if err != nil || head < before {
					t.Errorf("read %d, %v after %d was committed", head, err, before)
				}
				ended.Add(1)
			}()
			if i%10 == 0 {
				time.Sleep(300 * time.Millisecond)
				h.head.Add(1)
			}
		}
		time.Sleep(time.Minute)
		if n := h.reads.Load(); ended.Load() != 100 || n > 5 {
			t.Errorf("%d ended, after %d readings", ended.Load(), n)
		}
		// A caller that leaves does not end the reading that others wait for.
		gone, leave := context.WithTimeout(t.Context(), time.Millisecond)
		defer leave()
		left, stayed := make(chan error, 1), make(chan error, 1)
		go func() { _, err := f.head(gone, h.Head); left <- err }()
		synctest.Wait()
		go func() { _, err := f.head(t.Context(), h.Head); stayed <- err }()
		if err := <-left; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the caller that left got %v", err)
		}
		if err := <-stayed; err != nil {
			t.Errorf("the caller that stayed got %v", err)
		}
	})
}

// slowHead takes a second to read.
type slowHead struct{ head, reads, busy atomic.Int64 }

func (h *slowHead) Head(ctx context.Context) (int64, error) {
	h.reads.Add(1)
	if h.busy.Add(1) > 1 {
		return 0, errors.New("two readings at once")
	}
	defer h.busy.Add(-1)
	head := h.head.Load()
	select {
	case <-time.After(time.Second):
		return head, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
