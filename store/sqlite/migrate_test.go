package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/record"
)

// schema returns everything that the migrations created, as SQL.
func schema(t *testing.T, p string) (text string) {
	t.Helper()
	withDB(t, p, func(db *sql.DB) {
		rows, err := db.Query(`SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' AND name <> ? ORDER BY name`, versionTable)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var s string
			if err := rows.Scan(&s); err != nil {
				t.Fatal(err)
			}
			text += s + "\n"
		}
	})
	return text
}

func withDB(t *testing.T, p string, f func(db *sql.DB)) {
	t.Helper()
	c := Config{Path: p}
	if err := c.fill(); err != nil {
		t.Fatal(err)
	}
	db, err := openDB(c.dsn(false), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	f(db)
}

func mustMigrate(t *testing.T, p string, target int64) (from, to int64) {
	t.Helper()
	from, to, err := Migrate(context.Background(), p, target)
	if err != nil {
		t.Fatalf("Migrate to %d: %v", target, err)
	}
	return from, to
}

// TestMigrations migrates up, down and up again at every step, with data, and checks
// that the tables of other steps keep theirs.
func TestMigrations(t *testing.T) {
	p := path(t)
	_, newest := mustMigrate(t, p, -1)
	var up []string
	for v := newest; v > 0; v-- {
		up = append([]string{schema(t, p)}, up...)
		mustMigrate(t, p, v-1)
	}
	if s := schema(t, p); s != "" {
		t.Errorf("going all the way back leaves %s", s)
	}
	for v := int64(1); v <= newest; v++ {
		mustMigrate(t, p, v)
		mustMigrate(t, p, v-1)
		mustMigrate(t, p, v)
		if got := schema(t, p); got != up[v-1] {
			t.Errorf("step %d makes\n%s\nwhere it was\n%s", v, got, up[v-1])
		}
	}

	s := mustOpen(t, Config{Path: p})
	version := toolkeep.Version{Tool: &toolkeep.Tool{ID: "ns.a", Version: "1.0.0", Digest: "d", Raw: []byte(`{}`), Manifest: &toolkeep.Manifest{}}}
	mustApply(t, s, toolkeep.PublishVersion{Version: version}, toolkeep.PutKey{Key: toolkeep.APIKey{Tenant: "t", ID: "k"}},
		recorded("a"), toolkeep.ClaimCall{Invocation: call("b", toolkeep.CallRunning)})
	s.Close()
	mustMigrate(t, p, 3) // without invocations
	withDB(t, p, func(db *sql.DB) {
		for table, want := range map[string]int{"feed": 3, "versions": 1, "api_keys": 1} {
			var n int
			if err := db.QueryRow("SELECT count(*) FROM " + table).Scan(&n); err != nil || n != want {
				t.Errorf("%s has %d rows, %v", table, n, err)
			}
		}
	})
	// Opening migrates up again and re-indexes the journal.
	s = mustOpen(t, Config{Path: p})
	if _, err := s.Invocations().Get(t.Context(), toolkeep.CallRef{Tenant: "t", ID: "a"}); err != nil {
		t.Errorf("the recorded call is gone: %v", err)
	}
	mustApply(t, s, recorded("c"))
	mustApply(t, s, toolkeep.PutKey{Key: toolkeep.APIKey{Tenant: "t", ID: "l"}})
	if head, _ := s.Head(t.Context()); head != 4 {
		t.Errorf("the feed goes on at %d", head)
	}
}

func TestMigrateRefuses(t *testing.T) {
	p := path(t)
	_, newest := mustMigrate(t, p, -1)
	if _, _, err := Migrate(t.Context(), p, newest+1); err == nil {
		t.Error("there is a step that does not exist")
	}
	withDB(t, p, func(db *sql.DB) {
		if _, err := db.Exec(fmt.Sprintf("INSERT INTO %s (version_id, is_applied) VALUES (?, 1)", versionTable), newest+1); err != nil {
			t.Fatal(err)
		}
	})
	for name, open := range map[string]func() error{
		"Open":    func() error { _, err := Open(t.Context(), Config{Path: p, Log: quiet()}); return err },
		"Migrate": func() error { _, _, err := Migrate(t.Context(), p, 1); return err },
	} {
		if err := open(); err == nil || !strings.Contains(err.Error(), "newer version of Toolkeep") {
			t.Errorf("%s of a newer database: %v", name, err)
		}
	}
}

// TestMigrateKeepsClaims: calls that a killed server left in the table claims are not dropped.
func TestMigrateKeepsClaims(t *testing.T) {
	p, copied := path(t), path(t)
	s := mustOpen(t, Config{Path: p})
	keepClaims(t, s)
	mustApply(t, s, toolkeep.ClaimCall{Invocation: call("a", toolkeep.CallRunning)})
	if err := Backup(t.Context(), p, copied); err != nil {
		t.Fatal(err)
	}
	if _, to, err := Migrate(t.Context(), copied, claimsVersion-1); err == nil || !strings.Contains(err.Error(), "start it once and stop it") {
		t.Errorf("to %d: %v", to, err)
	}
	mustOpen(t, Config{Path: copied}).Close()
	mustMigrate(t, copied, claimsVersion-1)
	again := mustOpen(t, Config{Path: copied})
	if _, err := again.Invocations().Get(t.Context(), toolkeep.CallRef{Tenant: "t", ID: "a"}); err != nil {
		t.Error(err)
	}
}

// TestMigrateJournal: what happened in calls leaves the feed with its numbers, and goes back
// to its end.
func TestMigrateJournal(t *testing.T) {
	p := path(t)
	mustMigrate(t, p, 5)
	changes := []toolkeep.Change{
		recorded("a"),
		toolkeep.PutDocument{Document: toolkeep.Document{Kind: "kind", ID: "i", Body: []byte("b")}},
		toolkeep.AppendEvent{Event: toolkeep.Event{ID: "e", Type: "invoked", Tenant: "t"}},
		toolkeep.PutKey{Key: toolkeep.APIKey{Tenant: "t", ID: "k"}},
		recorded("b"),
	}
	withDB(t, p, func(db *sql.DB) {
		for i, c := range changes {
			e, err := record.Encode(c, time.Now)
			if err == nil {
				_, err = db.Exec("INSERT INTO feed (seq, at, kind, tenant, ref, data) VALUES (?, 1, ?, ?, ?, ?)", 10*(i+1), e.Kind, e.Tenant, e.Ref, e.Data)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		// A progress, which is in the table of calls; call a is there already.
		if _, err := db.Exec("INSERT INTO feed (seq, at, kind, tenant, ref, data) VALUES (51, 1, 6, 't', 'c', x'0100')"); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec("INSERT INTO marks (name, seq) VALUES ('indexed', 10)"); err != nil {
			t.Fatal(err)
		}
	})
	s := mustOpen(t, Config{Path: p})
	var feed, journal []int64
	head, err := s.Head(t.Context())
	if err != nil || head != 51 {
		t.Fatalf("the feed is at %d, %v", head, err)
	}
	mustApply(t, s, toolkeep.PutKey{Key: toolkeep.APIKey{Tenant: "t", ID: "l"}}, recorded("c"))
	for c, err := range s.Watch(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if feed = append(feed, c.Seq); c.Seq == head+1 {
			break
		}
	}
	list, _, err := s.ReadJournal(t.Context(), toolkeep.JournalPosition{0: 10}, 10)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		journal = append(journal, e.Seq)
	}
	if fmt.Sprint(feed, journal) != "[20 40 52] [30 50 52]" {
		t.Errorf("the feed has %v, the journal after 10 has %v", feed, journal)
	}
	for id, want := range map[string]bool{"a": false, "b": true, "c": true} { // those after the mark
		if _, err := s.Invocations().Get(t.Context(), toolkeep.CallRef{Tenant: "t", ID: id}); (err == nil) != want {
			t.Errorf("call %s: %v", id, err)
		}
	}
	s.Close()
	mustMigrate(t, p, 5)
	withDB(t, p, func(db *sql.DB) {
		var n, calls int
		if err := db.QueryRow("SELECT count(*), sum(kind = 1 AND seq > 52) FROM feed").Scan(&n, &calls); err != nil || n != 7 || calls != 3 {
			t.Errorf("the feed has %d rows with %d calls at its end, %v", n, calls, err)
		}
	})
}
