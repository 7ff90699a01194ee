package toolkeep

import (
	"context"
	"errors"
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
