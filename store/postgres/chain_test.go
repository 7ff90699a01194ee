package postgres

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
	"github.com/toolkeep/toolkeep/store/record"
)

// TestMigrateChain: entries from before the chain stay as they are, forward and back.
func TestMigrateChain(t *testing.T) {
	const before = 11
	dsn := pgtest.NewDatabase(t)
	mustMigrate(t, dsn, before)
	event, err := record.Encode(toolkeep.AppendEvent{Event: toolkeep.Event{ID: "old", Tenant: "t", Type: "x"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), `WITH w AS (INSERT INTO writers (name, number, committed_number, entry) VALUES ('old', 1, 1, 1) RETURNING id)
		INSERT INTO events (writer, entry, at, tenant, id, data) SELECT id, 1, 1, 't', 'old', $1 FROM w`, event.Data)
	if err != nil {
		t.Fatal(err)
	}
	check := func(id string, want int) {
		t.Helper()
		s := mustOpen(t, Config{DSN: dsn})
		defer s.Close()
		mustApply(t, s, recorded(id))
		list, _, err := s.ReadJournal(t.Context(), nil, 100)
		if err != nil || len(list) != want {
			t.Errorf("the journal has %v, %v", list, err)
		}
		links, _, err := s.Links(t.Context(), toolkeep.LinkQuery{Writer: s.JournalWriter(), UpTo: 10, All: true, Limit: 10})
		if err != nil || len(links) != 1 || links[0].Hash == nil {
			t.Errorf("the chain has %v, %v", links, err)
		}
	}
	check("new", 2)
	mustMigrate(t, dsn, before)
	if n := number(t, dsn, `SELECT (SELECT count(*) FROM events) + (SELECT count(*) FROM invocations WHERE entry IS NOT NULL)`); n != 2 {
		t.Errorf("%d entries went back", n)
	}
	if n := number(t, dsn, `SELECT version FROM toolkeep_floor`); n != before {
		t.Errorf("the floor is %d", n)
	}
	check("newer", 3)
}

// TestChainAfterLostCommit: the chain goes on right where the outcome of a COMMIT was unknown for a while.
func TestChainAfterLostCommit(t *testing.T) {
	for _, committed := range []bool{true, false} {
		w := &writer{}
		w.chain.Start(1)
		entry := func(id string) record.Encoded {
			e, err := record.Encode(toolkeep.AppendEvent{Event: toolkeep.Event{ID: id, Tenant: "t"}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		first, second := entry("first"), entry("second")
		w.chain.Next(&first, 1, 0)
		w.chain.Commit()
		w.chain.Next(&second, 2, 0)
		w.unsure = 7
		number := int64(6)
		if committed {
			number = 7
		}
		w.settleChain(number)
		w.chain.Undo(0) // as the next group begins
		third := entry("third")
		got := w.chain.Next(&third, 3, 0)
		var want record.Chain
		want.Start(1)
		want.Next(&first, 1, 0)
		if committed {
			want.Next(&second, 2, 0)
		}
		if want.Next(&third, 3, 0) != got {
			t.Errorf("committed %t: the chain goes on elsewhere", committed)
		}
	}
}
