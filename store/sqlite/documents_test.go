package sqlite

import (
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

func putDocument(id, body string, expect int64) toolkeep.PutDocument {
	return toolkeep.PutDocument{Document: toolkeep.Document{Kind: "k", Tenant: "t", ID: id, Body: []byte(body)}, Expect: expect}
}

func revision(t *testing.T, s *Store, id string) int64 {
	t.Helper()
	it, err := s.Document(t.Context(), "k", "t", id)
	if err != nil {
		t.Fatalf("Document(%s): %v", id, err)
	}
	return it.Revision
}

// TestKeepItems: items stay whatever their age; the remains of dropped items do not,
// nor do item changes in the feed.
func TestKeepItems(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var mu sync.Mutex
	s := mustOpen(t, Config{Path: path(t), feedKeepRows: 1, Clock: func() time.Time { mu.Lock(); defer mu.Unlock(); return now }})
	later := func(days int) {
		t.Helper()
		mu.Lock()
		now = now.Add(time.Duration(days) * 24 * time.Hour)
		mu.Unlock()
		if err := s.tend(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	drop := toolkeep.DeleteDocument{Kind: "k", Tenant: "t", ID: "gone", Expect: 1}
	mustApply(t, s, putDocument("stays", "1", 0), putDocument("gone", "1", 0), drop)
	for range 3 * tendRows { // more than one removal transaction
		mustApply(t, s, putDocument("many", "1", 0), toolkeep.DeleteDocument{Kind: "k", Tenant: "t", ID: "many", Expect: toolkeep.AnyRevision})
	}
	later(89)
	mustApply(t, s, putDocument("gone", "2", 0))
	if r := revision(t, s, "gone"); r != 2 {
		t.Errorf("made anew within 90 days it has revision %d", r)
	}
	drop.Expect = 2
	mustApply(t, s, drop)
	later(91)
	if n := count(t, s, "SELECT count(*) FROM items"); n != 1 {
		t.Errorf("%d rows of items are left", n)
	}
	mustApply(t, s, putDocument("gone", "3", 0))
	if r := revision(t, s, "gone"); r != 1 {
		t.Errorf("made anew after 90 days it has revision %d", r)
	}
	if r := revision(t, s, "stays"); r != 1 {
		t.Errorf("what was not dropped has revision %d", r)
	}
	later(0)
	if n := count(t, s, "SELECT count(*) FROM feed"); n > 2 {
		t.Errorf("%d changes are left in the feed", n)
	}
}

func TestBackupItems(t *testing.T) {
	from, to := path(t), filepath.Join(t.TempDir(), "copy.db")
	s := mustOpen(t, Config{Path: from})
	mustApply(t, s, putDocument("i", "1", 0), putDocument("i", "2", 1))
	if err := Backup(t.Context(), from, to); err != nil {
		t.Fatal(err)
	}
	mustApply(t, s, putDocument("i", "3", 2))
	restored := mustOpen(t, Config{Path: to})
	it, err := restored.Document(t.Context(), "k", "t", "i")
	if err != nil || string(it.Body) != "2" || it.Revision != 2 {
		t.Errorf("the copy has %+v, %v", it, err)
	}
	mustApply(t, restored, putDocument("i", "x", 2))
}

// TestMigrateItems migrates up from a database without items.
func TestMigrateItems(t *testing.T) {
	p := path(t)
	mustMigrate(t, p, 4)
	s := mustOpen(t, Config{Path: p})
	mustApply(t, s, putDocument("i", "1", 0))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if from, to := mustMigrate(t, p, 4); from < 5 || to != 4 {
		t.Errorf("went from %d to %d", from, to)
	}
	s = mustOpen(t, Config{Path: p})
	if list, _, err := s.Documents(t.Context(), "k"); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	mustApply(t, s, putDocument("i", "1", 0))
}
