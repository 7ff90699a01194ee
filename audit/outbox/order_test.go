package outbox_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit/outbox"
	"github.com/toolkeep/toolkeep/store/postgres"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

// inOrder checks that of each call every event was delivered, and first deliveries are in the order of their numbers. Ids
// are CALL/NUMBER.
func inOrder(t *testing.T, got []string, steps map[string]int) {
	t.Helper()
	next := map[string]int{}
	for _, id := range firsts(got) {
		call, n, _ := strings.Cut(id, "/")
		if want := fmt.Sprint(next[call]); n != want {
			t.Errorf("of call %s event %s came where %s was to come", call, n, want)
		}
		next[call]++
	}
	for call, n := range steps {
		if next[call] != n {
			t.Errorf("of call %s %d of %d events came", call, next[call], n)
		}
	}
}

// TestOrderOfACall: whichever writers record the events of a call, however late they commit and whenever a leader dies or a
// second one leads too, each sink gets them in their order, and all of them.
func TestOrderOfACall(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { schedule(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

// under is an entry of a transaction that has not committed.
type under struct {
	call  string
	step  int
	stamp int64
}

func schedule(t *testing.T, r *rand.Rand) {
	const writers, calls, most = 4, 12, 5
	store, sink := newStore(), &fakeSink{}
	settings := outbox.Settings{Name: "sink", FromStart: true, Batch: 1 + r.IntN(25), Flush: 100 * time.Millisecond}
	if r.IntN(3) == 0 {
		settings.Types = []string{"step"} // a sink of events alone
	}
	var dies atomic.Int64 // after how many deliveries a leader dies before it moves its cursors
	lead := func() (stop func()) {
		_, stop = startWith(t, outbox.Config{Sinks: []outbox.Settings{settings}, Store: store, Dir: t.TempDir(), Hook: func(string) {
			if dies.Add(-1) == 0 {
				runtime.Goexit()
			}
		}, Open: func(outbox.Settings) (outbox.Sink, error) { return sink, nil }})
		return stop
	}
	stops := []func(){lead()}
	steps := map[string]int{} // committed
	open := map[int64]*under{}
	busy := func(call string) bool {
		for _, u := range open {
			if u.call == call {
				return true
			}
		}
		return false
	}
	commit := func(w int64) {
		if u := open[w]; u != nil {
			id := fmt.Sprint(u.call, "/", u.step)
			store.commit(w, u.stamp, &toolkeep.Entry{Event: &toolkeep.Event{ID: id, Type: "step", Tenant: "t", Data: []byte(`{}`)}}, "t", id)
			steps[u.call]++
			delete(open, w)
		}
	}
	for range 400 {
		w, call := 1+r.Int64N(writers), fmt.Sprint("c", r.IntN(calls))
		switch n := r.IntN(20); {
		case n < 8: // who makes an entry has read the one before, which is committed
			if open[w] == nil && !busy(call) && steps[call] < most {
				open[w] = &under{call, steps[call], store.draw()}
			}
		case n < 15:
			commit(w)
		case n < 16:
			if settings.Types == nil && open[w] == nil { // a call with no other entry draws no stamp
				id := fmt.Sprint("single", len(steps), "/0")
				steps[strings.TrimSuffix(id, "/0")] = 1
				store.commit(w, 0, &toolkeep.Entry{Event: &toolkeep.Event{ID: id, Type: "step", Tenant: "t", Data: []byte(`{}`)}}, "t", id)
			}
		case n < 17:
			dies.Store(1 + r.Int64N(3))
		case n < 18: // another one leads, for a while beside the first
			stops = append(stops, lead())
		case n < 19:
			stops[0]()
			if stops = stops[1:]; len(stops) == 0 {
				stops = append(stops, lead())
			}
		default:
			time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
		}
	}
	for w := range int64(writers) {
		commit(w + 1)
	}
	dies.Store(0)
	for _, stop := range stops {
		stop()
	}
	lead()
	time.Sleep(time.Minute)
	synctest.Wait()
	inOrder(t, sink.ids(), steps)
}

// TestOrderOfACallOnTwoNodes: two nodes that share PostgreSQL record the events of a call in turn; a sink that begins
// afterwards, with the node first whose events are later, gets them in their order.
func TestOrderOfACallOnTwoNodes(t *testing.T) {
	dsn := pgtest.NewDatabase(t)
	var nodes []*postgres.Store
	for range 2 {
		s, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		nodes = append(nodes, s)
	}
	apply := func(node int, changes ...toolkeep.Change) {
		t.Helper()
		if err := nodes[node].Apply(t.Context(), changes...); err != nil {
			t.Fatal(err)
		}
	}
	event := func(id string) toolkeep.Change {
		return toolkeep.AppendEvent{Event: toolkeep.Event{ID: id, Type: "ai.agent.tool.approval.requested", Tenant: "t", Time: time.Now(), Data: []byte(`{}`)}}
	}
	var want []string
	for i := range 30 {
		id, later := fmt.Sprint("c", i), i%2 // the second node ends the even calls, the first the odd ones
		at := time.Now()
		call := toolkeep.Invocation{ID: id, Tenant: "t", Subject: "agent", ToolID: "a.b", State: toolkeep.CallPendingApproval, CreatedAt: at}
		apply(1-later, toolkeep.ClaimCall{Invocation: &call}, event(id+"-asked"))
		apply(later, event(id+"-decided"))
		end := call
		end.State, end.EndedAt = toolkeep.CallFailed, at
		apply(1-later, toolkeep.MoveCall{Invocation: &end, From: []toolkeep.CallState{toolkeep.CallPendingApproval}})
		want = append(want, id+"-asked", id+"-decided", id)
	}
	sink := &expecting{n: len(want), done: make(chan struct{})}
	o, _ := start(t, nodes[0], sink, outbox.Settings{FromStart: true, Batch: 7, Flush: 10 * time.Millisecond})
	select {
	case <-sink.done:
	case <-time.After(time.Minute):
		t.Errorf("not all came: %+v", o.Told())
	}
	if got := sink.ids(); !slices.Equal(got, want) {
		t.Errorf("delivered %v, want %v", got, want)
	}
}

// expecting closes done when n events have come.
type expecting struct {
	fakeSink
	n    int
	done chan struct{}
}

func (s *expecting) Deliver(ctx context.Context, events []outbox.Event) (int, error) {
	n, err := s.fakeSink.Deliver(ctx, events)
	if len(s.ids()) == s.n {
		close(s.done)
	}
	return n, err
}
