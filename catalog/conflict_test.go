package catalog

import (
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/toolkeep/toolkeep"
)

// beside starts a second node's catalogue on the same store.
func beside(t *testing.T, store *memory, now *clock) *Catalog {
	t.Helper()
	c := New(Config{Store: store, Clock: now.Now, Log: slog.New(slog.DiscardHandler), Checkers: map[string]Checker{"builtin": allow}})
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return c
}

// caughtUp waits until a catalogue shows everything in the store.
func caughtUp(t *testing.T, c *Catalog, store *memory) {
	t.Helper()
	head, err := store.Head(t.Context())
	if err == nil {
		err = c.await(t.Context(), head)
	}
	if err != nil {
		t.Error(err)
	}
}

func lifeOf(t *testing.T, c *Catalog, id, version string) toolkeep.Lifecycle {
	t.Helper()
	all, err := c.Versions(admin("acme"), id, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		if v.Tool.Version == version {
			return v.Life
		}
	}
	t.Fatalf("%s has no version %s", id, version)
	return toolkeep.Lifecycle{}
}

// TestNodesDoNotUndoEachOther: a change computed from a stale lifecycle does not overwrite another node's change.
func TestNodesDoNotUndoEachOther(t *testing.T) {
	c, store, now := open(t)
	other := beside(t, store, now)
	publish(t, c, "a.b", "1.0.0", "1.1.0", "1.2.0", "1.3.0", "1.4.0")
	meddle := func(version string, ch StateChange) {
		store.mu.Lock()
		defer store.mu.Unlock()
		store.meddle = func() {
			caughtUp(t, other, store)
			setState(t, other, "a.b", version, ch)
		}
	}
	// Two concurrent decisions: the later one gets the conflict.
	meddle("1.1.0", StateChange{State: toolkeep.Blocked, Reason: "it leaks"})
	_, err := c.SetState(t.Context(), admin("acme"), "a.b", "1.1.0", StateChange{State: toolkeep.Deprecated})
	if e := wantCode(t, err, toolkeep.StateConflict); e.Details["state"] != "blocked" {
		t.Errorf("%v %v", e, e.Details)
	}
	if life := lifeOf(t, c, "a.b", "1.1.0"); life.State != toolkeep.Blocked || life.Reason != "it leaks" {
		t.Errorf("it is %+v", life)
	}
	// A hold applies to any state.
	meddle("1.2.0", StateChange{State: toolkeep.Deprecated, Reason: "old"})
	if _, err := c.Hold(t.Context(), admin("acme"), "a.b", "1.2.0", &toolkeep.Hold{Why: "look at it"}); err != nil {
		t.Fatal(err)
	}
	if life := lifeOf(t, c, "a.b", "1.2.0"); life.State != toolkeep.Deprecated || life.Held == nil {
		t.Errorf("it is %+v", life)
	}
	// And a state change to any hold.
	store.mu.Lock()
	store.meddle = func() {
		caughtUp(t, other, store)
		if _, err := other.Hold(t.Context(), admin("acme"), "a.b", "1.3.0", &toolkeep.Hold{Why: "look at it"}); err != nil {
			t.Error(err)
		}
	}
	store.mu.Unlock()
	setState(t, c, "a.b", "1.3.0", StateChange{State: toolkeep.Deprecated})
	if life := lifeOf(t, c, "a.b", "1.3.0"); life.State != toolkeep.Deprecated || life.Held == nil {
		t.Errorf("it is %+v", life)
	}
	// A publication that deprecates the lowest surplus version does not unblock it.
	publish(t, c, "a.b", "1.5.0", "1.6.0")
	meddle("1.0.0", StateChange{State: toolkeep.Blocked, Reason: "it leaks"})
	publish(t, c, "a.b", "1.7.0", "1.8.0")
	if life := lifeOf(t, c, "a.b", "1.0.0"); life.State != toolkeep.Blocked {
		t.Errorf("it is %+v", life)
	}
}

// TestExpectedState: a change with another expected state changes nothing.
func TestExpectedState(t *testing.T) {
	c, _, _ := open(t)
	publish(t, c, "a.b", "1.0.0", "1.1.0")
	ch := StateChange{State: toolkeep.Blocked, Expect: toolkeep.Deprecated}
	_, err := c.SetState(t.Context(), admin("acme"), "a.b", "1.0.0", ch)
	wantCode(t, err, toolkeep.StateConflict)
	ch.Expect = toolkeep.Active
	if life := setState(t, c, "a.b", "1.0.0", ch); life.State != toolkeep.Blocked {
		t.Errorf("it is %+v", life)
	}
	_, err = c.SetState(t.Context(), admin("acme"), "a.b", "", ch)
	wantCode(t, err, toolkeep.StateConflict)
}

// TestTwoWhoDecideAtOnce: on one node, too, a change that waited for another gets the conflict instead of
// overwriting it.
func TestTwoWhoDecideAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, store, _ := open(t)
		publish(t, c, "a.b", "1.0.0", "1.1.0")
		var both sync.WaitGroup
		var late error
		store.mu.Lock()
		store.meddle = func() {
			both.Go(func() {
				_, late = c.SetState(t.Context(), admin("acme"), "a.b", "1.0.0", StateChange{State: toolkeep.Deprecated})
			})
			synctest.Wait() // it has seen the version and waits for its turn
		}
		store.mu.Unlock()
		setState(t, c, "a.b", "1.0.0", StateChange{State: toolkeep.Blocked, Reason: "it leaks"})
		both.Wait()
		if e := wantCode(t, late, toolkeep.StateConflict); fmt.Sprint(e.Details["version"]) != "1.0.0" {
			t.Errorf("%v", e.Details)
		}
		if life := lifeOf(t, c, "a.b", "1.0.0"); life.State != toolkeep.Blocked {
			t.Errorf("it is %+v", life)
		}
	})
}
