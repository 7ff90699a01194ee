package postgres

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

func putDocument(id, body string, expect int64) toolkeep.PutDocument {
	return toolkeep.PutDocument{Document: toolkeep.Document{Kind: "k", Tenant: "t", ID: id, Body: []byte(body)}, Expect: expect}
}

// TestItemsAcrossNodes: two nodes count in one item by compare and set, and each sees
// every step.
func TestItemsAcrossNodes(t *testing.T) {
	dsn, ctx := pgtest.NewDatabase(t), testContext(t)
	nodes := []*Store{mustOpen(t, Config{DSN: dsn}), mustOpen(t, Config{DSN: dsn})}
	mustApply(t, nodes[0], putDocument("n", "0", toolkeep.NoRevision))
	const workers, each = 6, 15
	count := func(s *Store) error {
		for {
			it, err := s.Document(ctx, "k", "t", "n")
			if err != nil {
				return err
			}
			var n int
			if _, err := fmt.Sscan(string(it.Body), &n); err != nil {
				return err
			}
			if err = s.Apply(ctx, putDocument("n", fmt.Sprint(n+1), it.Revision)); !errors.Is(err, toolkeep.ErrStale) {
				return err
			}
		}
	}
	parallel(workers, func(i int) {
		for range each {
			if err := count(nodes[i%2]); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for i, s := range nodes {
		list, err := until(ctx, s, 0, workers*each+1)
		if err != nil {
			t.Fatal(err)
		}
		for n, c := range list {
			it := c.Change.(toolkeep.PutDocument).Document
			if string(it.Body) != fmt.Sprint(n) || it.Revision != int64(n)+1 {
				t.Fatalf("node %d hears of revision %d with %s at %d", i, it.Revision, it.Body, c.Seq)
			}
		}
	}
	// Two nodes create items concurrently, in opposite order: each item is created
	// once.
	for round := range 10 {
		a, b := fmt.Sprint("a", round), fmt.Sprint("b", round)
		won := make(chan int, 2)
		parallel(2, func(i int) {
			changes := []toolkeep.Change{putDocument(a, fmt.Sprint(i), 0), putDocument(b, fmt.Sprint(i), 0)}
			if i == 1 {
				changes[0], changes[1] = changes[1], changes[0]
			}
			switch err := nodes[i].Apply(ctx, changes...); {
			case err == nil:
				won <- i
			case !errors.Is(err, toolkeep.ErrStale):
				t.Error(err)
			}
		})
		if len(won) != 1 {
			t.Fatalf("%d nodes made the items", len(won))
		}
		winner := fmt.Sprint(<-won)
		for _, id := range []string{a, b} {
			if it, err := nodes[0].Document(ctx, "k", "t", id); err != nil || string(it.Body) != winner || it.Revision != 1 {
				t.Errorf("%+v, %v, want the one of %s", it, err, winner)
			}
		}
	}
}

// TestKeepItems: items stay whatever their age; the remains of dropped items do not,
// nor do item changes in the feed.
func TestKeepItems(t *testing.T) {
	dsn := pgtest.NewDatabase(t)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var mu sync.Mutex
	s := mustOpen(t, Config{DSN: dsn, feedKeepRows: 1, tendEvery: time.Hour, Clock: func() time.Time { mu.Lock(); defer mu.Unlock(); return now }})
	later := func(days int) {
		t.Helper()
		mu.Lock()
		now = now.Add(time.Duration(days) * 24 * time.Hour)
		mu.Unlock()
		if err := s.tend(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	revision := func(id string, want int64) {
		t.Helper()
		if it, err := s.Document(t.Context(), "k", "t", id); err != nil || it.Revision != want {
			t.Errorf("%s has revision %d, %v, want %d", id, it.Revision, err, want)
		}
	}
	drop := toolkeep.DeleteDocument{Kind: "k", Tenant: "t", ID: "gone", Expect: 1}
	mustApply(t, s, putDocument("stays", "1", 0), putDocument("gone", "1", 0), drop)
	later(89)
	mustApply(t, s, putDocument("gone", "2", 0))
	revision("gone", 2)
	drop.Expect = 2
	mustApply(t, s, drop)
	later(91)
	if n := number(t, dsn, "SELECT count(*) FROM items"); n != 1 {
		t.Errorf("%d rows of items are left", n)
	}
	mustApply(t, s, putDocument("gone", "3", 0))
	revision("gone", 1)
	revision("stays", 1)
	later(0)
	if n := number(t, dsn, "SELECT count(*) FROM feed"); n > 2 {
		t.Errorf("%d changes are left in the feed", n)
	}
}
