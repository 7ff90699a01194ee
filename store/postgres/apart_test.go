package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
	"github.com/toolkeep/toolkeep/store/storetest"
)

// TestCallsWaitForNoOther: while another node is in the middle of a commit to the feed and of a
// commit of its own calls, everything that happens in calls is committed here, and nothing of
// it is read by the other.
func TestCallsWaitForNoOther(t *testing.T) {
	ctx, dsn := testContext(t), pgtest.NewDatabase(t)
	s, other := mustOpen(t, Config{DSN: dsn, Enqueue: func(context.Context, pgx.Tx, toolkeep.Enqueue) error { return nil }}), mustOpen(t, Config{DSN: dsn})
	mustApply(t, s, recorded("first"), key("a"))
	mustApply(t, other, recorded("other"))
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	tx, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	for _, lock := range []string{
		"SELECT seq FROM feed_head FOR UPDATE",
		"SELECT number FROM writers WHERE id = (SELECT max(id) FROM writers) FOR UPDATE",
		"SELECT id FROM invocations WHERE id = 'other' FOR UPDATE",
	} {
		if tag, err := tx.Exec(ctx, lock); err != nil || tag.RowsAffected() != 1 {
			t.Fatalf("%s: %v, %v", lock, tag, err)
		}
	}
	ref := toolkeep.CallRef{Tenant: "t", ID: "c"}
	leased := call("c", toolkeep.CallRunning)
	leased.LeaseOwner, leased.LeaseUntil, leased.Key = "n", time.Now().Add(time.Minute), "k"
	ended := *leased
	ended.State = toolkeep.CallSucceeded
	for _, c := range []toolkeep.Change{
		recorded("r"),
		toolkeep.AppendEvent{Event: toolkeep.Event{ID: "e", Tenant: "t"}},
		toolkeep.ClaimCall{Invocation: leased},
		toolkeep.Enqueue{Call: ref},
		toolkeep.RenewLeases{Owner: "n", Calls: []toolkeep.CallRef{ref}, Until: time.Now().Add(time.Hour)},
		toolkeep.ReportProgress{Call: ref, Progress: toolkeep.Progress{Percent: 1}},
		toolkeep.RequestCancel{Call: ref, By: "s"},
		toolkeep.MoveCall{Invocation: &ended, From: []toolkeep.CallState{toolkeep.CallRunning}, Owner: "n", FreeKey: true},
		toolkeep.MarkFetched{Call: ref, At: time.Now()},
	} {
		limited, cancel := context.WithTimeout(ctx, time.Minute)
		if err := s.ApplyWithin(limited, c); err != nil {
			t.Errorf("%T waits for another node: %v", c, err)
		}
		cancel()
	}
	if n := len(storetest.Entries(ctx, t, s)); n != 5 {
		t.Errorf("the journal has %d entries", n)
	}
	limited, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if err := s.ApplyWithin(limited, key("b")); err == nil {
		t.Error("a change of the feed did not wait for the one before")
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	for _, node := range []*Store{s, other} { // the writer, too, learns of its commit after the commit
		if _, err := until(ctx, node, 0, 2); err != nil {
			t.Fatal(err)
		}
	}
	if n := other.Stats().Head; n != 2 || s.SeenHead() != 2 {
		t.Errorf("the feed is at %d, and %d was seen", n, s.SeenHead())
	}
	if n := number(t, dsn, "SELECT count(*) FROM feed"); n != 2 {
		t.Errorf("the feed has %d rows", n)
	}
}
