package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit/outbox"
)

// TestDamagedEntries: an entry that no event can be made of is left out and counted, and what follows is delivered.
func TestDamagedEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, sink := newStore(), &fakeSink{}
		o, _ := start(t, store, sink, outbox.Settings{})
		synctest.Wait()
		store.event(1, "a0", "x")
		store.add(1, &toolkeep.Entry{Event: &toolkeep.Event{ID: "bad", Type: "x", Tenant: "t", Time: time.Now(), Data: []byte(`{"cut`)}}, "t", "bad")
		store.event(1, "a1", "x")
		time.Sleep(time.Minute)
		synctest.Wait()
		same(t, "delivered", sink.ids(), []string{"a0", "a1"})
		if st := o.Told()["sink"]; st.Damaged != 1 || st.Error != "" || o.Stats().Damaged != 1 {
			t.Errorf("%+v", st)
		}
	})
}

// TestPartIsReadInWindows: a sink of one tenant, or of events alone, looks at a bounded number of entries at once.
func TestPartIsReadInWindows(t *testing.T) {
	for name, s := range map[string]outbox.Settings{
		"one tenant": {Tenants: []string{"t"}, FromStart: true},
		"events":     {Types: []string{"x"}, FromStart: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, sink := newStore(), &fakeSink{}
				for range 50_000 {
					store.add(1, &toolkeep.Entry{Call: &toolkeep.Invocation{ID: "c", Tenant: "u", State: toolkeep.CallSucceeded}}, "u", "c")
				}
				store.event(1, "a0", "x")
				o, _ := start(t, store, sink, s)
				synctest.Wait()
				same(t, "delivered", sink.ids(), []string{"a0"})
				if list, err := o.Statuses(t.Context()); err != nil || list[0].Behind != 0 || list[0].Lost != 0 {
					t.Errorf("%+v, %v", list, err)
				}
				if store.widest > 20_000 {
					t.Errorf("a query went over %d numbers", store.widest)
				}
			})
		})
	}
}

// TestStoreErrorIsTold: one that stays is seen in State and by health, and not any longer once the store is back.
func TestStoreErrorIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, sink := newStore(), &fakeSink{}
		o, _ := start(t, store, sink, outbox.Settings{})
		synctest.Wait()
		store.set(func() { store.away = true })
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if st := o.Told()["sink"]; st.Error != errAway.Error() || o.Health(t.Context()) == nil {
			t.Errorf("%+v, health %v", st, o.Health(t.Context()))
		}
		store.set(func() { store.away = false })
		time.Sleep(time.Minute)
		synctest.Wait()
		if st := o.Told()["sink"]; st.Error != "" || o.Health(t.Context()) != nil {
			t.Errorf("%+v, health %v", st, o.Health(t.Context()))
		}
	})
}

// TestPanic: a sink that panics is tried again, tells of it without the panic's text, and stops no other sink.
func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, sinks := newStore(), map[string]*fakeSink{"bad": {}, "good": {}}
		o, err := outbox.New(outbox.Config{Sinks: []outbox.Settings{{Name: "bad"}, {Name: "good"}}, Store: store, Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler),
			Open: func(s outbox.Settings) (outbox.Sink, error) { return sinks[s.Name], nil }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); o.Run(ctx) }()
		defer func() { cancel(); <-done; o.Stop() }()
		synctest.Wait()
		sinks["bad"].set(func([]outbox.Event) error { panic("s3cret") })
		store.event(1, "a0", "x")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		same(t, "delivered by the other", sinks["good"].ids(), []string{"a0"})
		if st := o.Told()["bad"]; st.Error == "" || strings.Contains(st.Error, "s3cret") || o.Health(t.Context()) == nil || sinks["bad"].tries > 100 {
			t.Errorf("%+v after %d tries, health %v", st, sinks["bad"].tries, o.Health(t.Context()))
		}
		sinks["bad"].set(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		same(t, "delivered", sinks["bad"].ids(), []string{"a0"})
		if st := o.Told()["bad"]; st.Error != "" || o.Health(t.Context()) != nil {
			t.Errorf("%+v, health %v", st, o.Health(t.Context()))
		}
	})
}

// TestNoLongerLeads: a node whose sink failed while it led does not tell of it after that.
func TestNoLongerLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, sink := newStore(), &fakeSink{}
		o, stop := start(t, store, sink, outbox.Settings{})
		synctest.Wait()
		sink.set(func([]outbox.Event) error { return errors.New("connection refused") })
		store.event(1, "a0", "x")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if o.Health(t.Context()) == nil {
			t.Fatal("health does not tell of a sink that is down")
		}
		stop()
		time.Sleep(time.Hour)
		if st := o.Told()["sink"]; st.Error != "" || !st.FailingSince.IsZero() || o.Health(t.Context()) != nil {
			t.Errorf("%+v, health %v", st, o.Health(t.Context()))
		}
	})
}

// TestFullFileIsMovedAway: the sink goes on, and the new file has whole lines.
func TestFullFileIsMovedAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, sink, dir := newStore(), &fakeSink{}, t.TempDir()
		o, _ := startIn(t, dir, store, sink, outbox.Settings{DeadLetterBytes: 1000, Batch: 1})
		synctest.Wait()
		sink.set(func([]outbox.Event) error { return &outbox.Refused{Err: errors.New("no")} })
		for i := range 4 {
			store.event(1, fmt.Sprint("a", i), "x")
		}
		path, moved := filepath.Join(dir, "sink.jsonl"), 0
		for range 10 {
			time.Sleep(time.Hour)
			synctest.Wait()
			if !o.Told()["sink"].Full {
				break
			}
			moved++
			if err := os.Rename(path, fmt.Sprint(path, ".", moved)); err != nil {
				t.Fatal(err)
			}
		}
		if st := o.Told()["sink"]; st.Full || moved == 0 {
			t.Fatalf("%+v, moved %d times", st, moved)
		}
		files, err := filepath.Glob(path + "*")
		if err != nil {
			t.Fatal(err)
		}
		var all strings.Builder
		for _, f := range files {
			raw, err := os.ReadFile(f)
			if err != nil || !strings.HasPrefix(string(raw), `{"at":`) || !strings.HasSuffix(string(raw), "}\n") {
				t.Errorf("%s has %q, %v", f, raw, err)
			}
			all.Write(raw)
		}
		for i := range 4 {
			if n := strings.Count(all.String(), fmt.Sprintf(`"id":"a%d"`, i)); n != 1 {
				t.Errorf("a%d is there %d times", i, n)
			}
		}
	})
}

// TestFolderOfAnotherNode: two nodes cannot write dead letters to one folder.
func TestFolderOfAnotherNode(t *testing.T) {
	dir := t.TempDir()
	c := outbox.Config{Sinks: []outbox.Settings{{Name: "sink"}}, Store: newStore(), Dir: dir, Open: func(outbox.Settings) (outbox.Sink, error) { return &fakeSink{}, nil }}
	first, err := outbox.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := outbox.New(c); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("the second one: %v", err)
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	again, err := outbox.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Stop(); err != nil {
		t.Error(err)
	}
}

// TestReplayTakesTooLong: a replay that sent a part in its time has no error, and keeps the rest as it was.
func TestReplayTakesTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, sink, dir := newStore(), &slow{}, t.TempDir()
		o, _ := startIn(t, dir, store, sink, outbox.Settings{Timeout: time.Minute})
		synctest.Wait()
		for i := range 30 {
			store.event(1, fmt.Sprint("a", i), "x")
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if st := o.Told()["sink"]; st.DeadLetters != 30 {
			t.Fatalf("%+v", st)
		}
		sink.takes.Store(true)
		first, err := o.Replay(t.Context(), "sink")
		if err != nil || first.Error != "" || first.Sent < 10 || first.Sent+first.Remaining != 30 {
			t.Fatalf("%+v, %v", first, err)
		}
		raw, err := os.ReadFile(filepath.Join(dir, "sink.jsonl"))
		if n := strings.Count(string(raw), `"error":"no"`); err != nil || n != first.Remaining {
			t.Errorf("%d letters as they were, %v", n, err)
		}
		if r, err := o.Replay(t.Context(), "sink"); err != nil || r.Error != "" || r.Remaining != 0 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// slow refuses at once, or takes an event in a second.
type slow struct{ takes atomic.Bool }

func (s *slow) Deliver(ctx context.Context, _ []outbox.Event) (int, error) {
	if !s.takes.Load() {
		return 0, &outbox.Refused{Err: errors.New("no")}
	}
	if !toolkeep.Sleep(ctx, time.Second) {
		return 0, ctx.Err()
	}
	return 1, nil
}

func (s *slow) Close() error { return nil }

// TestNoLoss: what retention removed before a sink began, and what is not there for a sink of a part, is not lost.
func TestNoLoss(t *testing.T) {
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		s    outbox.Settings
		want []string
		do   func(store *fakeStore, run func())
	}{
		"calls are trimmed before events": {outbox.Settings{FromStart: true, Batch: 2}, []string{"e0", "e1", "e2", "new"}, func(store *fakeStore, run func()) {
			for i := range 3 {
				store.event(1, fmt.Sprint("e", i), "x")
				store.call(1, "c")
				store.call(1, "c")
			}
			time.Sleep(40 * day)
			store.event(1, "new", "x")
			store.trimCalls(1, time.Now().Add(-30*day))
			run()
		}},
		"a new process after an idle time": {outbox.Settings{Types: []string{"x"}}, []string{"e0", "e1"}, func(store *fakeStore, run func()) {
			run()
			store.event(1, "e0", "x")
			run()
			time.Sleep(40 * day)
			store.trim(1, 0, time.Now().Add(-30*day))
			for range 5 {
				store.call(2, "c")
			}
			run()
			store.event(2, "e1", "x")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, sink := newStore(), &fakeSink{}
				var o *outbox.Outbox
				run := func() {
					var stop func()
					o, stop = start(t, store, sink, c.s)
					time.Sleep(10 * time.Second)
					synctest.Wait()
					stop()
				}
				c.do(store, run)
				run()
				same(t, "delivered", sink.ids(), c.want)
				if list, err := o.Statuses(t.Context()); err != nil || list[0].Lost != 0 || o.Health(t.Context()) != nil {
					t.Errorf("%+v, %v, health %v", list, err, o.Health(t.Context()))
				}
			})
		})
	}
}
