package invoke_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/servertest"
)

// node starts another pipeline over the harness's store.
func (h *harness) node(name string) *invoke.Pipeline {
	h.t.Helper()
	c := h.config
	c.Node, c.Alone, c.SpoolPath = name, false, ""
	p, err := invoke.New(c)
	if err != nil {
		h.t.Fatal(err)
	}
	if err := p.Start(context.Background()); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(p.Stop)
	return p
}

// TestNodesSeeEachOthersCalls: a watcher of another node's call sees its progress and its end,
// and a cancel on any node ends it.
func TestNodesSeeEachOthersCalls(t *testing.T) {
	h := newHarness(t, func(c *invoke.Config) { c.Alone = false })
	h.tool("read")
	h.tool("write", writes)
	other := h.node("node-2")
	started, goOn := make(chan struct{}, 1), make(chan struct{})
	wait := hold(started, goOn)
	h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		if x.Caller != nil {
			x.Caller.Progress(toolkeep.Progress{Percent: 50, Message: "half"})
		}
		return wait(ctx, x)
	}
	var done sync.WaitGroup
	defer done.Wait()
	t.Run("progress and end", func(t *testing.T) {
		res, _ := h.call(&toolkeep.Call{Tool: "std.read", Async: true})
		next := make(chan *toolkeep.Invocation)
		done.Go(func() {
			defer close(next)
			for row, err := range other.Watch(context.Background(), alice, res.InvocationID) {
				if err != nil {
					t.Error(err)
					return
				}
				next <- row
			}
		})
		if row := <-next; row.State != toolkeep.CallQueued {
			t.Errorf("it begins %s", row.State)
		}
		done.Go(h.work)
		<-started
		for row := range next {
			if row.Progress.Message == "half" {
				break
			}
		}
		goOn <- struct{}{}
		var last *toolkeep.Invocation
		for last = range next {
		}
		if last == nil || last.State != toolkeep.CallSucceeded {
			t.Errorf("it ended with %+v", last)
		}
	})
	t.Run("cancel of a waiting call", func(t *testing.T) {
		res, _ := h.call(&toolkeep.Call{Tool: "std.read", Async: true})
		done.Go(h.work)
		<-started
		if ok, _, err := other.Cancel(context.Background(), alice, res.InvocationID, "why"); !ok || err != nil {
			t.Fatal(ok, err)
		}
		for row, err := range other.Watch(context.Background(), alice, res.InvocationID) {
			if err != nil {
				t.Fatal(err)
			}
			if row.State.Ended() && (row.State != toolkeep.CallCancelled || row.CancelWhy != "why") {
				t.Errorf("it ended as %s because of %q", row.State, row.CancelWhy)
			}
		}
	})
	t.Run("one key on both", func(t *testing.T) {
		first := make(chan *toolkeep.Result, 1)
		done.Go(func() {
			res, _ := h.call(&toolkeep.Call{Tool: "std.write", Key: "k"})
			first <- res
		})
		<-started
		second := make(chan *toolkeep.Result, 1)
		done.Go(func() {
			res, err := other.Invoke(context.Background(), alice, &toolkeep.Call{Tool: "std.write", Key: "k"})
			if err != nil {
				t.Error(err)
			}
			second <- res
		})
		goOn <- struct{}{}
		a, b := <-first, <-second
		if a == nil || b == nil || b.InvocationID != a.InvocationID || !b.Replayed || string(b.Output) != string(a.Output) {
			t.Errorf("the answers are %+v and %+v", a, b)
		}
	})
	t.Run("cancel of a call that its caller waits for", func(t *testing.T) {
		ended := make(chan *toolkeep.Error, 1)
		id := "019a0000-0000-7000-8000-000000000001"
		done.Go(func() {
			_, err := h.call(&toolkeep.Call{Tool: "std.write", ID: id})
			ended <- err
		})
		<-started
		if ok, _, err := other.Cancel(context.Background(), alice, id, ""); !ok || err != nil {
			t.Fatal(ok, err)
		}
		wantCode(t, <-ended, toolkeep.Cancelled)
	})
}

// marksStore keeps no call and counts what is asked about calls under way.
type marksStore struct {
	discard
	marks, cancels atomic.Int64
	fails          atomic.Bool
	mu             sync.Mutex
	ended          map[toolkeep.CallRef]bool
}

func (s *marksStore) state(ref toolkeep.CallRef) toolkeep.CallState {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended[ref] {
		return toolkeep.CallSucceeded
	}
	return toolkeep.CallRunning
}

func (s *marksStore) Get(_ context.Context, ref toolkeep.CallRef) (*toolkeep.Invocation, error) {
	return &toolkeep.Invocation{Tenant: ref.Tenant, ID: ref.ID, Subject: "alice", State: s.state(ref)}, nil
}

func (s *marksStore) Marks(_ context.Context, refs []toolkeep.CallRef) (map[toolkeep.CallRef]toolkeep.CallMark, error) {
	s.marks.Add(1)
	if s.fails.Load() {
		return nil, errBroken
	}
	if len(refs) > 1000 {
		return nil, errors.New("too many at once")
	}
	got := map[toolkeep.CallRef]toolkeep.CallMark{}
	for _, ref := range refs {
		got[ref] = toolkeep.CallMark{State: s.state(ref)}
	}
	return got, nil
}

func (s *marksStore) CancelRequested(context.Context, string) ([]toolkeep.CallRef, error) {
	s.cancels.Add(1)
	return nil, nil
}

// asked returns what was asked since the last time.
func (s *marksStore) asked() [2]int64 { return [2]int64{s.marks.Swap(0), s.cancels.Swap(0)} }

// TestNothingIsAskedInVain: a node asks about calls under way only while it watches calls of
// others or runs calls that have a row, four times a second, and once a second while that fails.
func TestNothingIsAskedInVain(t *testing.T) {
	var log servertest.Log
	h := newHarness(t, func(c *invoke.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	h.tool("write", writes)
	synctest.Test(t, func(t *testing.T) {
		store := &marksStore{ended: map[toolkeep.CallRef]bool{}}
		p := h.over(t, store, "", nil)
		defer p.Stop()
		// within compares what is asked in ten seconds.
		within := func(when string, want [2]int64) {
			t.Helper()
			time.Sleep(time.Millisecond) // off the beat
			store.asked()
			time.Sleep(10 * time.Second)
			if got := store.asked(); got != want {
				t.Errorf("%s: asked %v times, want %v", when, got, want)
			}
		}
		write := func() {
			if _, err := p.Invoke(context.Background(), alice, &toolkeep.Call{Tool: "std.write", Key: "k"}); err != nil {
				t.Error(err)
			}
		}
		within("nothing runs", [2]int64{})
		for range 20 {
			write()
		}
		within("short calls ended", [2]int64{})

		started, goOn := make(chan struct{}, 1), make(chan struct{})
		h.executor.do = hold(started, goOn)
		var calls sync.WaitGroup
		calls.Go(write)
		<-started
		within("a call runs", [2]int64{0, 40})
		goOn <- struct{}{}
		calls.Wait()
		within("it ended", [2]int64{})

		ctx, leave := context.WithCancel(t.Context())
		watch := func(ctx context.Context, id string, last *toolkeep.CallState) {
			for row, err := range p.Watch(ctx, alice, id) {
				if err != nil {
					t.Error(err)
					return
				}
				*last = row.State
			}
		}
		var state toolkeep.CallState
		calls.Go(func() { watch(ctx, "a", &state) })
		within("a call of another node is watched", [2]int64{40, 0})
		store.fails.Store(true)
		within("that fails", [2]int64{10, 0})
		if n := strings.Count(log.String(), "it is asked for again"); n != 1 {
			t.Errorf("it was logged %d times:\n%s", n, log.String())
		}
		store.fails.Store(false)
		time.Sleep(2 * time.Second)
		leave()
		calls.Wait()
		within("no call is watched", [2]int64{})

		// More watched calls than one question may be about: each watcher sees the end of its call.
		states := make([]toolkeep.CallState, 2500)
		for i := range states {
			calls.Go(func() { watch(t.Context(), fmt.Sprint(i), &states[i]) })
		}
		within("2,500 are watched", [2]int64{120, 0})
		store.mu.Lock()
		for i := range states {
			store.ended[toolkeep.CallRef{Tenant: "acme", ID: fmt.Sprint(i)}] = true
		}
		store.mu.Unlock()
		calls.Wait()
		for i, s := range states {
			if s != toolkeep.CallSucceeded {
				t.Fatalf("the watcher of call %d last saw %q", i, s)
			}
		}
		within("all ended", [2]int64{})
	})
}
