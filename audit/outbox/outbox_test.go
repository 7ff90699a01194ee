package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit/outbox"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		child(dir)
		return
	}
	goleak.VerifyTestMain(pgtest.Main{M: m})
}

// TestDelivers: what is recorded after a sink began reaches it, in order and in batches; another run goes on
// where the first was.
func TestDelivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, sink := newStore(), &fakeSink{}
		store.event(1, "old", "x")
		o, stop := start(t, store, sink, outbox.Settings{Batch: 10})
		synctest.Wait()
		if list, err := o.Statuses(t.Context()); err != nil || !list[0].Begun || list[0].Behind != 0 {
			t.Fatalf("%+v, %v", list, err)
		}
		for i := range 25 {
			store.event(1, fmt.Sprint("a", i), "x")
		}
		store.call(1, "a25")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		same(t, "delivered", sink.ids(), names("a", 0, 26))
		if !slices.Equal(sink.batches, []int{10, 10, 6}) {
			t.Errorf("batches of %v", sink.batches)
		}
		stop()
		if !sink.closed {
			t.Error("the sink was not closed")
		}
		store.event(1, "a26", "x")
		store.event(2, "b0", "x") // of a process that came later
		if list, err := o.Statuses(t.Context()); err != nil || list[0].Behind != 2 || list[0].Oldest.IsZero() {
			t.Fatalf("%+v, %v", list, err)
		}
		start(t, store, sink, outbox.Settings{})
		synctest.Wait()
		same(t, "delivered", sink.ids(), append(names("a", 0, 27), "b0"))

		before := store.applied
		time.Sleep(time.Hour)
		synctest.Wait()
		if store.applied != before {
			t.Error("the store was changed although nothing was recorded")
		}
	})
}

// TestFilters: only what the settings name is delivered, and the cursor passes the rest.
func TestFilters(t *testing.T) {
	for _, c := range []struct {
		name string
		s    outbox.Settings
		want []string
	}{
		{"all, from the start", outbox.Settings{}, []string{"login", "asked", "other", "done", "decided"}},
		{"a type after ai.agent.tool.", outbox.Settings{Types: []string{"approval.*"}}, []string{"asked", "other", "decided"}},
		{"a type after ai.agent.", outbox.Settings{Types: []string{"auth.*"}}, []string{"login"}},
		{"a whole type", outbox.Settings{Types: []string{"ai.agent.tool.succeeded"}}, []string{"done"}},
		{"of one tenant", outbox.Settings{Types: []string{"approval.*"}, Tenants: []string{"u"}}, []string{"other"}},
		{"of two tenants", outbox.Settings{Types: []string{"approval.requested", "succeeded"}, Tenants: []string{"u", "t"}}, []string{"asked", "other", "done"}},
		{"nothing", outbox.Settings{Types: []string{"none"}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, sink := newStore(), &fakeSink{}
				store.event(1, "login", "ai.agent.auth.failed")
				store.event(1, "asked", "ai.agent.tool.approval.requested")
				store.eventOf("u", 1, "other", "ai.agent.tool.approval.requested")
				store.call(1, "done")
				store.event(1, "decided", "ai.agent.tool.approval.decided")
				c.s.FromStart = true
				start(t, store, sink, c.s)
				synctest.Wait()
				same(t, "delivered", sink.ids(), c.want)
				if at := store.cursors["sink"][1].Seq; at != 5 {
					t.Errorf("the cursor is at %d", at)
				}
			})
		})
	}
}

// TestCallTypes: a sink that takes no ends of calls is known by their types, so all of them are in the list.
func TestCallTypes(t *testing.T) {
	states := []toolkeep.CallState{toolkeep.CallSucceeded, toolkeep.CallFailed, toolkeep.CallRefused, toolkeep.CallCancelled, toolkeep.CallExpired, toolkeep.CallUnknown}
	known := outbox.CallTypes()
	for _, state := range states {
		for _, info := range append(toolkeep.Codes(), toolkeep.CodeInfo{}) {
			for _, cached := range []bool{false, true} {
				v := toolkeep.Invocation{State: state, Code: info.Code, Cached: cached}
				if kind := v.EventType(); !slices.Contains(known, kind) {
					t.Fatalf("%s is the type of a call that ends as %s with %q", kind, state, info.Code)
				}
			}
		}
	}
}

// TestSinkIsDownForAnHour: nothing is lost, it catches up, and it is asked about twice a minute meanwhile.
func TestSinkIsDownForAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, sink := newStore(), &fakeSink{}
		o, _ := start(t, store, sink, outbox.Settings{})
		synctest.Wait()
		sink.set(func([]outbox.Event) error { return errors.New("connection refused") })
		n := 0
		for range 3600 {
			for range 3 {
				store.event(1, fmt.Sprint("a", n), "x")
				n++
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if len(sink.ids()) != 0 || sink.tries < 100 || sink.tries > 1000 {
			t.Errorf("%d events, %d tries", len(sink.ids()), sink.tries)
		}
		st := o.Told()["sink"]
		if st.Error != "connection refused" || time.Since(st.FailingSince) < 59*time.Minute || st.Full {
			t.Errorf("the state is %+v", st)
		}
		if o.Health(t.Context()) == nil {
			t.Error("health does not tell of it")
		}
		if list, err := o.Statuses(t.Context()); err != nil || list[0].Behind != int64(n) || time.Since(list[0].Oldest) < 59*time.Minute {
			t.Errorf("%+v, %v", list, err)
		}
		sink.set(nil)
		time.Sleep(40 * time.Second)
		synctest.Wait()
		same(t, "delivered", sink.ids(), names("a", 0, n))
		if st := o.Told()["sink"]; st.Error != "" || o.Health(t.Context()) != nil {
			t.Errorf("the state is %+v, health %v", st, o.Health(t.Context()))
		}
	})
}

// TestSinkSaysWhenToComeAgain: it is not asked earlier.
func TestSinkSaysWhenToComeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, sink := newStore(), &fakeSink{}
		start(t, store, sink, outbox.Settings{})
		synctest.Wait()
		sink.set(func([]outbox.Event) error { return &outbox.Later{Err: errors.New("busy"), After: 2 * time.Minute} })
		store.event(1, "a0", "x")
		time.Sleep(119 * time.Second)
		synctest.Wait()
		if sink.tries != 1 {
			t.Errorf("%d tries", sink.tries)
		}
	})
}

// TestStoreIsAway: the sink goes on when it is back.
func TestStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, sink := newStore(), &fakeSink{}
		start(t, store, sink, outbox.Settings{})
		synctest.Wait()
		store.event(1, "a0", "x")
		store.set(func() { store.away = true })
		time.Sleep(10 * time.Minute)
		store.set(func() { store.away = false })
		store.event(1, "a1", "x")
		time.Sleep(time.Minute)
		synctest.Wait()
		same(t, "delivered", sink.ids(), []string{"a0", "a1"})
	})
}

func refuse(id string) func([]outbox.Event) error {
	return func(events []outbox.Event) error {
		if slices.ContainsFunc(events, func(e outbox.Event) bool { return e.ID == id }) {
			return fmt.Errorf("wrapped: %w", &outbox.Refused{Err: errors.New("too large")})
		}
		return nil
	}
}

// TestRefused: an event that a sink refuses becomes a dead letter after the retries, the others are delivered in
// order, and a replay sends it when the sink takes it.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, sink, dir := newStore(), &fakeSink{}, t.TempDir()
		o, stop := startIn(t, dir, store, sink, outbox.Settings{Retries: 2})
		synctest.Wait()
		alone := 0
		sink.set(func(events []outbox.Event) error {
			if len(events) == 1 && events[0].ID == "a57" {
				alone++
			}
			return refuse("a57")(events)
		})
		for i := range 150 {
			store.event(1, fmt.Sprint("a", i), "x")
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		rest := append(names("a", 0, 57), names("a", 58, 150)...)
		same(t, "delivered", sink.ids(), rest)
		if st := o.Told()["sink"]; st.DeadLetters != 1 || st.Error != "" || alone != 3 {
			t.Errorf("%+v, tried %d times alone", st, alone)
		}
		raw, err := os.ReadFile(filepath.Join(dir, "sink.jsonl"))
		if info, _ := os.Stat(filepath.Join(dir, "sink.jsonl")); err != nil || info.Mode().Perm() != 0o600 || !strings.Contains(string(raw), `"error":"too large"`) || !strings.Contains(string(raw), `"id":"a57"`) {
			t.Errorf("the file has %s, %v", raw, err)
		}
		if r, err := o.Replay(t.Context(), "sink"); err != nil || r.Sent != 0 || r.Remaining != 1 || r.Error == "" {
			t.Errorf("the replay of what is refused still: %+v, %v", r, err)
		}
		stop()

		o, _ = startIn(t, dir, store, sink, outbox.Settings{}) // another run
		sink.set(nil)
		if st := o.Told()["sink"]; st.DeadLetters != 1 {
			t.Errorf("after a start: %+v", st)
		}
		if r, err := o.Replay(t.Context(), "sink"); err != nil || r.Sent != 1 || r.Remaining != 0 || r.Error != "" {
			t.Errorf("the replay: %+v, %v", r, err)
		}
		same(t, "delivered", sink.ids(), append(rest, "a57"))
		if r, err := o.Replay(t.Context(), "sink"); err != nil || r != (outbox.Replayed{}) {
			t.Errorf("another replay: %+v, %v", r, err)
		}
		if _, err := o.Replay(t.Context(), "none"); toolkeep.AsError(err).Code != toolkeep.ToolNotFound {
			t.Errorf("a replay of no sink: %v", err)
		}
	})
}

// TestDeadLettersAreFull: the sink waits and loses nothing; after a replay made room it goes on.
func TestDeadLettersAreFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, sink := newStore(), &fakeSink{}
		o, _ := start(t, store, sink, outbox.Settings{DeadLetterBytes: 1000, Batch: 1})
		synctest.Wait()
		sink.set(func([]outbox.Event) error { return &outbox.Refused{Err: errors.New("no")} })
		for i := range 9 {
			store.event(1, fmt.Sprint("a", i), "x")
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		st := o.Told()["sink"]
		if !st.Full || st.DeadLetters == 0 || st.DeadLetters == 9 || o.Health(t.Context()) == nil {
			t.Fatalf("%+v, health %v", st, o.Health(t.Context()))
		}
		sink.set(nil)
		if r, err := o.Replay(t.Context(), "sink"); err != nil || r.Sent != st.DeadLetters || r.Remaining != 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		got := sink.ids()
		slices.Sort(got)
		same(t, "delivered", got, names("a", 0, 9))
		if st := o.Told()["sink"]; st.Full || o.Health(t.Context()) != nil {
			t.Errorf("%+v, health %v", st, o.Health(t.Context()))
		}
	})
}

// TestRetention: what it removed before a sink had it is counted and told, and the rest is delivered.
func TestRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, sink := newStore(), &fakeSink{}
		_, stop := start(t, store, sink, outbox.Settings{})
		synctest.Wait()
		store.event(1, "a0", "x")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		stop()
		for i := 1; i < 10; i++ {
			store.event(1, fmt.Sprint("a", i), "x")
		}
		time.Sleep(40 * 24 * time.Hour)
		store.event(1, "a10", "x")
		store.trim(1, 8, time.Now().Add(-30*24*time.Hour)) // a0 to a6
		o, _ := start(t, store, sink, outbox.Settings{})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		same(t, "delivered", sink.ids(), append([]string{"a0"}, names("a", 7, 11)...))
		list, err := o.Statuses(t.Context())
		if err != nil || list[0].Lost != 6 || o.Told()["sink"].Lost != 6 || o.Health(t.Context()) == nil {
			t.Errorf("%+v, %v, health %v", list, err, o.Health(t.Context()))
		}
		time.Sleep(25 * time.Hour) // health does not tell of it for ever
		if list, err := o.Statuses(t.Context()); err != nil || list[0].Lost != 6 || o.Health(t.Context()) != nil {
			t.Errorf("a day later: %+v, %v, health %v", list, err, o.Health(t.Context()))
		}
	})
}

// TestTwoLeaders: nodes that both believe to lead lose nothing, and the first delivery of each event is in order.
func TestTwoLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, sink := newStore(), &fakeSink{}
		start(t, store, sink, outbox.Settings{Batch: 3})
		start(t, store, sink, outbox.Settings{Batch: 5})
		synctest.Wait()
		for i := range 500 {
			store.event(1, fmt.Sprint("a", i), "x")
			if i%7 == 0 {
				time.Sleep(400 * time.Millisecond)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		same(t, "first deliveries", firsts(sink.ids()), names("a", 0, 500))
	})
}

// firsts leaves the first of each.
func firsts(list []string) (out []string) {
	seen := map[string]bool{}
	for _, id := range list {
		if !seen[id] {
			out = append(out, id)
		}
		seen[id] = true
	}
	return out
}

// TestStopWhileDown: it does not wait for a sink that hangs.
func TestStopWhileDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		_, stop := start(t, store, hanging{}, outbox.Settings{})
		synctest.Wait()
		store.event(1, "a0", "x")
		time.Sleep(2 * time.Second)
		began := time.Now()
		stop()
		if d := time.Since(began); d > time.Second {
			t.Errorf("it took %s", d)
		}
	})
}

type hanging struct{}

func (hanging) Deliver(ctx context.Context, _ []outbox.Event) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}
func (hanging) Close() error { return nil }
