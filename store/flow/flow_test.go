package flow

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/toolkeep/toolkeep"
)

func TestRingBytes(t *testing.T) {
	var r Ring
	r.Start(0)
	for i := range 100 {
		r.Publish([]toolkeep.Committed{{Seq: int64(i) + 1}}, []int32{RingBytes / 10})
	}
	if r.head != 100 || r.first != 91 || r.bytes > RingBytes {
		t.Errorf("first %d, head %d, %d bytes", r.first, r.head, r.bytes)
	}
}

func row(seq int64) []toolkeep.Committed { return []toolkeep.Committed{{Seq: seq}} }

func TestRingGaps(t *testing.T) {
	var r Ring
	r.Start(10)
	for _, c := range []struct {
		seq  int64
		want bool
		head int64
	}{{12, false, 10}, {11, true, 11}, {11, true, 11}, {12, true, 12}, {14, false, 12}, {13, true, 13}} {
		if got := r.Publish(row(c.seq), []int32{1}); got != c.want {
			t.Errorf("Publish(%d) gave %v", c.seq, got)
		}
		if _, head, _ := r.Bounds(); head != c.head {
			t.Errorf("after %d the head is %d", c.seq, head)
		}
	}
	// Rows of which the first are already in the ring.
	both := append(row(13), row(14)...)
	if !r.Publish(both, []int32{1, 1}) {
		t.Error("an overlap was refused")
	}
	r.Skip(20)
	r.Skip(15)
	if first, head, _ := r.Bounds(); first != 21 || head != 20 {
		t.Errorf("after Skip %d to %d", first, head)
	}
	if _, upTo, _, _ := r.Next(14, make([]toolkeep.Committed, 4)); upTo != 20 {
		t.Errorf("what was skipped is read up to %d", upTo)
	}
}

// TestRingWatch: a watcher that has fallen behind the ring reads the database, then
// continues with the ring.
func TestRingWatch(t *testing.T) {
	var r Ring
	r.Start(0)
	r.Skip(600)
	r.Publish(row(601), []int32{1})
	reads := 0
	read := func(_ context.Context, seq, upTo int64) (list []toolkeep.Committed, err error) {
		reads++
		for seq++; seq <= upTo && len(list) < WatchRows; seq++ {
			list = append(list, toolkeep.Committed{Seq: seq})
		}
		return list, nil
	}
	next := int64(1)
	err := r.Watch(t.Context(), 0, read, func(c toolkeep.Committed) bool {
		if c.Seq != next {
			t.Fatalf("got %d, want %d", c.Seq, next)
		}
		next++
		if next > 601 {
			r.Close()
		}
		return true
	})
	if !errors.Is(err, toolkeep.ErrClosed) || reads != 3 {
		t.Errorf("ended with %v after %d reads", err, reads)
	}
	boom := errors.New("boom")
	fail := func(context.Context, int64, int64) ([]toolkeep.Committed, error) { return nil, boom }
	if err := r.Watch(t.Context(), 0, fail, nil); !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
}

func TestQueue(t *testing.T) {
	var q Queue[int]
	q.Start(8)
	var done sync.WaitGroup
	var sum, answered atomic.Int64
	done.Go(func() {
		var group []*Request[int]
		for !q.Over() {
			<-q.Wake()
			for q.Len() > 0 {
				q.Gather(0)
				group = q.Take(group[:0])
				if len(group) > 8 {
					t.Errorf("a group of %d", len(group))
				}
				for _, r := range group {
					for _, n := range r.Steps {
						sum.Add(int64(n))
					}
					r.Answer(nil)
				}
			}
		}
	})
	var callers sync.WaitGroup
	for range 50 {
		callers.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for i := range 40 {
				r := q.Request(ctx)
				r.Steps = append(r.Steps, 1)
				if i == 39 {
					cancel()
				}
				if err := q.Do(r); err == nil {
					answered.Add(1)
				} else if i != 39 || !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	q.Close()
	done.Wait()
	if sum.Load() != answered.Load() || answered.Load() < 50*39 {
		t.Errorf("%d were taken, %d answered", sum.Load(), answered.Load())
	}
	if err := q.Do(q.Request(t.Context())); !errors.Is(err, toolkeep.ErrClosed) {
		t.Errorf("a closed queue gave %v", err)
	}
}

// TestQueueLeave: at its deadline a caller that may leave gives up what is queued for good, and
// of what the writer took it gets the outcome later; another caller waits for the outcome.
func TestQueueLeave(t *testing.T) {
	var q Queue[int]
	q.Start(8)
	ended, end := context.WithCancel(t.Context())
	end()
	do := func(ctx context.Context, leave bool) chan error {
		got, queued := make(chan error, 1), q.Len()
		go func() {
			r := q.Request(ctx)
			r.Leave = leave
			got <- q.Do(r)
		}()
		for ctx.Err() == nil && q.Len() == queued {
			runtime.Gosched()
		}
		return got
	}
	if err := <-do(ended, true); !errors.Is(err, context.Canceled) {
		t.Errorf("a queued request gave %v", err)
	}
	if taken := q.Take(nil); len(taken) != 0 {
		t.Error("a request was taken whose caller had given up")
	}

	boom := errors.New("boom")
	for _, outcome := range []error{nil, boom} {
		ctx, leave := context.WithCancel(t.Context())
		leaves, stays := do(ctx, true), do(ctx, false)
		taken := q.Take(nil)
		leave()
		err := <-leaves
		var pending *toolkeep.PendingError
		if !errors.As(err, &pending) {
			t.Fatalf("a request that was taken gave %v", err)
		}
		select {
		case err := <-pending.End:
			t.Errorf("it ended with %v before the writer answered", err)
		case err := <-stays:
			t.Errorf("the other caller left with %v", err)
		default:
		}
		for _, r := range taken {
			r.Answer(outcome)
		}
		if err := <-pending.End; err != outcome {
			t.Errorf("the end is %v, want %v", err, outcome)
		}
		if err := <-stays; err != outcome {
			t.Errorf("the other caller got %v, want %v", err, outcome)
		}
		if r := q.Request(t.Context()); r.Leave {
			t.Error("a reused request leaves")
		}
	}
}
