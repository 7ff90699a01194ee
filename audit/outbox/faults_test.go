package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
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
