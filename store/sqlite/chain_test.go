package sqlite

import (
	"database/sql"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/record"
	"github.com/toolkeep/toolkeep/store/storetest"
)

// TestMigrateChain: entries from before the chain stay as they are, forward and back.
func TestMigrateChain(t *testing.T) {
	const before = 11
	p := path(t)
	mustMigrate(t, p, before)
	event, err := record.Encode(toolkeep.AppendEvent{Event: toolkeep.Event{ID: "old", Tenant: "t", Type: "x"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	withDB(t, p, func(db *sql.DB) {
		if _, err := db.Exec(`INSERT INTO journal (at, kind, tenant, ref, data) VALUES (1, ?, 't', 'old', ?)`, event.Kind, event.Data); err != nil {
			t.Fatal(err)
		}
	})
	entries := func(s *Store) (ids []string) {
		list, _, err := s.ReadJournal(t.Context(), nil, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			if e.Event != nil {
				ids = append(ids, e.Event.ID)
			} else {
				ids = append(ids, e.Call.ID)
			}
		}
		return ids
	}
	s := mustOpen(t, Config{Path: p})
	mustApply(t, s, recorded("new"))
	if ids := entries(s); len(ids) != 2 {
		t.Errorf("after the migration there are %v", ids)
	}
	if links := storetest.CheckChains(t, s); len(links["t"]) != 1 || links["t"][0].Ref != "new" {
		t.Errorf("the chain has %v", links)
	}
	s.Close()
	mustMigrate(t, p, before)
	withDB(t, p, func(db *sql.DB) {
		var n int
		if err := db.QueryRow(`SELECT count(*) FROM journal WHERE kind IN (1, 10)`).Scan(&n); err != nil || n != 2 {
			t.Errorf("%d entries went back, %v", n, err)
		}
	})
	s = mustOpen(t, Config{Path: p})
	mustApply(t, s, recorded("newer"))
	if ids := entries(s); len(ids) != 3 {
		t.Errorf("up again there are %v", ids)
	}
	if links := storetest.CheckChains(t, s); len(links["t"]) != 1 || links["t"][0].Ref != "newer" {
		t.Errorf("up again the chain has %v", links)
	}
}
