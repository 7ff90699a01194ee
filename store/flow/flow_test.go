package flow

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
)

func newRing(head int64) *Ring[toolkeep.Committed] {
	r := &Ring[toolkeep.Committed]{}
	r.Start(head, func(c *toolkeep.Committed) int64 { return c.Seq })
	return r
}

func rows(seqs ...int64) (list []toolkeep.Committed, cost []int32) {
	for _, seq := range seqs {
		list, cost = append(list, toolkeep.Committed{Seq: seq}), append(cost, 1)
	}
	return list, cost
}

func TestRingBounds(t *testing.T) {
	r := newRing(0)
	for i := range int64(100) {
		r.Publish(i, []toolkeep.Committed{{Seq: i + 1}}, []int32{RingBytes / 10})
	}
	if r.head != 100 || r.from != 90 || r.n != 10 || r.bytes > RingBytes {
		t.Errorf("from %d, head %d, %d bytes", r.from, r.head, r.bytes)
	}
	r = newRing(0)
	for i := range int64(RingRows + 5) {
		r.Publish(i, []toolkeep.Committed{{Seq: i + 1}}, []int32{1})
	}
	if r.head != RingRows+5 || r.from != 5 || r.n != RingRows {
		t.Errorf("from %d, head %d, %d rows", r.from, r.head, r.n)
	}
}

func TestRingGaps(t *testing.T) {
	r := newRing(10)
	for _, c := range []struct {
		after int64
		seqs  []int64
		want  bool
		head  int64
	}{
		{11, []int64{12}, false, 10},    // what is after 10 is not known
		{10, []int64{12, 15}, true, 15}, // there is nothing at 11, 13, 14
		{10, []int64{12, 15}, true, 15}, // again
		{12, []int64{15, 16}, true, 16}, // an overlap
		{16, nil, true, 16},             // nothing
		{18, []int64{19}, false, 16},    // a hole
		{16, []int64{17, 19, 20}, true, 20},
	} {
		list, cost := rows(c.seqs...)
		if got := r.Publish(c.after, list, cost); got != c.want {
			t.Errorf("Publish(%d, %v) gave %v", c.after, c.seqs, got)
		}
		if head, _ := r.Head(); head != c.head {
			t.Errorf("after %v the head is %d", c.seqs, head)
		}
	}
	buf := make([]toolkeep.Committed, 8)
	for seq, want := range map[int64][]int64{10: {12, 15, 16, 17, 19, 20}, 13: {15, 16, 17, 19, 20}, 15: {16, 17, 19, 20}, 18: {19, 20}} {
		n, _, _, _ := r.next(seq, buf)
		var got []int64
		for _, c := range buf[:n] {
			got = append(got, c.Seq)
		}
		if !slices.Equal(got, want) {
			t.Errorf("after %d come %v, want %v", seq, got, want)
		}
	}
	if n, upTo, _, _ := r.next(9, buf); n != 0 || upTo != 10 {
		t.Errorf("what the ring does not have is read up to %d", upTo)
	}
	r.Skip(30)
	r.Skip(25)
	if head, _ := r.Head(); head != 30 || r.from != 30 {
		t.Errorf("after Skip from %d to %d", r.from, head)
	}
	if _, upTo, _, _ := r.next(14, buf); upTo != 30 {
		t.Errorf("what was skipped is read up to %d", upTo)
	}
}

// TestRingWatch: a watcher that has fallen behind the ring reads the database, then
// continues with the ring.
func TestRingWatch(t *testing.T) {
	r := newRing(0)
	r.Skip(600)
	r.Publish(600, []toolkeep.Committed{{Seq: 601}}, []int32{1})
	reads := 0
	read := func(_ context.Context, seq, upTo int64) (list []toolkeep.Committed, read int64, err error) {
		reads++
		for seq++; seq <= upTo && len(list) < WatchRows; seq++ {
			list = append(list, toolkeep.Committed{Seq: seq})
		}
		return list, seq - 1, nil
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
	fail := func(context.Context, int64, int64) ([]toolkeep.Committed, int64, error) { return nil, 0, boom }
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

// TestPace: what a request adds to a group is known once there were groups of several sizes.
func TestPace(t *testing.T) {
	ms := func(n, each float64) time.Duration { return time.Duration((10 + n*each) * float64(time.Millisecond)) }
	for name, c := range map[string]struct {
		sizes []int
		each  float64 // milliseconds that each request adds to 10
		n     int
		want  time.Duration
	}{
		"none":                         {nil, 0, 1000, 0},
		"one":                          {[]int{5}, 1, 5, ms(5, 1)},
		"of one size":                  {[]int{100, 100, 100}, 1, 250, 3 * ms(100, 1)},
		"sizes too near to each other": {[]int{1, 2, 1, 2, 2, 1}, 0, 1000, 10 * ms(0, 0)},
		"of two sizes":                 {[]int{1, 60, 1, 1, 60}, 1, 1000, 9*ms(0, 0) + ms(1000, 1)},
		"nothing but requests":         {[]int{1, 60, 1, 1, 60}, 0, 1000, 10 * ms(0, 0)},
	} {
		p := &pace{}
		for _, n := range c.sizes {
			p.add(n, ms(float64(n), c.each))
		}
		if got := p.expect(c.n, 100); (got - c.want).Abs() > time.Microsecond {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	p := &pace{} // larger groups took less time by chance
	p.add(1, time.Second)
	p.add(100, time.Millisecond)
	if got := p.expect(1, 100); got < 0 {
		t.Errorf("less than nothing: %s", got)
	}
}

// TestQueueWaitIsForeseen: a queue that will take long says so before anything in it has waited, and an
// empty one takes nothing.
func TestQueueWaitIsForeseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &Queue[int]{}
		q.Start(4)
		put := func(n int) {
			for range n {
				go func() {
					if err := q.Do(q.Request(context.Background())); err != nil {
						t.Error(err)
					}
				}()
			}
			synctest.Wait()
		}
		answer := func() {
			taken := q.Take(nil)
			time.Sleep(3 * time.Second)
			for _, r := range taken {
				r.Answer(nil)
			}
			q.Answered()
		}
		put(5)
		if got, _ := q.Wait(); got != 0 {
			t.Errorf("before the first group it is %s", got)
		}
		answer()
		time.Sleep(time.Second) // such as for an index
		answer()
		if got, _ := q.Wait(); got != 0 {
			t.Errorf("an empty queue takes %s", got)
		}
		put(9)
		// The groups took 3 s and 4 s, of which the last counts for an eighth.
		want := 3 * (3*time.Second + time.Second/8)
		if wait, paced := q.Wait(); wait != want || paced != want {
			t.Errorf("three groups take %s, at the pace of the last %s, want %s", wait, paced, want)
		}
		time.Sleep(time.Hour) // of which the pace knows nothing
		if wait, paced := q.Wait(); wait != time.Hour || paced != want {
			t.Errorf("after an hour they take %s, at the pace of the last %s", wait, paced)
		}
		for q.Len() != 0 {
			answer()
		}
	})
}

// TestQueueWait: a new request waits at least as long as the oldest one without an answer, whether the writer has
// taken it or not.
func TestQueueWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &Queue[int]{}
		q.Start(1)
		want := func(age time.Duration) {
			t.Helper()
			if got, _ := q.Wait(); got != age {
				t.Errorf("the age is %s, want %s", got, age)
			}
		}
		want(0)
		for range 2 {
			go func() {
				if err := q.Do(q.Request(context.Background())); err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
			time.Sleep(time.Second)
		}
		want(2 * time.Second)
		for _, age := range []time.Duration{time.Second, 0} {
			taken := q.Take(nil)
			want(age + time.Second)
			taken[0].Answer(nil)
			q.Answered()
			want(age)
		}
	})
}

// TestIdleTimeIsNoWork has all that is queued given up while a group is written: that the writer then waits is not its pace.
func TestIdleTimeIsNoWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &Queue[int]{}
		q.Start(1)
		put := func(ctx context.Context) {
			go func() { _ = q.Do(q.Request(ctx)) }()
			synctest.Wait()
		}
		answer := func() {
			for _, r := range q.Take(nil) {
				time.Sleep(time.Second)
				r.Answer(nil)
				q.Answered()
			}
		}
		put(t.Context())
		gone, leave := context.WithCancel(t.Context())
		put(gone)
		leave()
		answer()
		answer()
		time.Sleep(time.Hour)
		put(t.Context())
		answer()
		put(t.Context())
		if got, _ := q.Wait(); got != time.Second {
			t.Errorf("groups take 1 s each, and one more %s", got)
		}
		answer()
	})
}
