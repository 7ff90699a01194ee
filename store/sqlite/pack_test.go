package sqlite

import (
	"bytes"
	"database/sql"
	"log/slog"
	"strings"
	"testing"
)

// TestMigratePacked: manifests of the schema before come back to the byte after the migration, and after the way back.
func TestMigratePacked(t *testing.T) {
	p := path(t)
	mustMigrate(t, p, packVersion-1)
	large := `{"description":"` + strings.Repeat("said at length; ", 64) + `"}`
	raw := func(id string) string {
		return `{"description":"d","execution":{"binding":{"a":1},"kind":"http"},"parameters_schema":{"$defs":{"large":` + large + `},"type":"object"},"tool_id":"` + id + `","version":"1.0.0"}`
	}
	ids := []string{}
	withDB(t, p, func(db *sql.DB) {
		for i := range 450 { // more than are in memory at a time
			id := "ns.t" + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + string(rune('a'+i/26))
			ids = append(ids, id)
			if _, err := db.Exec(`INSERT INTO versions (tenant, id, version, digest, life, raw, manifest) VALUES (?, ?, '1.0.0', ?, CAST('{"state":"active","published_at":"2026-02-03T04:05:06Z"}' AS BLOB), ?, x'7b7d')`,
				[]string{"", "t"}[i%2], id, "sha256:"+id, []byte(raw(id))); err != nil {
				t.Fatal(err)
			}
		}
	})
	s := mustOpen(t, Config{Path: p}) // migrates up
	list, _, err := s.Versions(t.Context())
	if err != nil || len(list) != len(ids) {
		t.Fatalf("%d versions, %v", len(list), err)
	}
	for _, v := range list {
		whole, err := v.Tool.Whole()
		if err != nil || string(whole.Raw) != raw(v.Tool.ID) || v.Tool.Digest != "sha256:"+v.Tool.ID || v.Tool.Manifest.Execution.Kind != "http" {
			t.Errorf("%s came back as %+v, %v", v.Tool.ID, whole, err)
		}
	}
	s.Close()
	withDB(t, p, func(db *sql.DB) {
		var n int
		if err := db.QueryRow("SELECT count(*) FROM manifest_parts").Scan(&n); err != nil || n != 2 { // one for each tenant
			t.Errorf("%d parts, %v", n, err)
		}
	})
	mustMigrate(t, p, packVersion-1)
	withDB(t, p, func(db *sql.DB) {
		for _, id := range ids {
			var have string
			if err := db.QueryRow("SELECT raw FROM versions WHERE id = ? AND manifest = ?", id, []byte(`{}`)).Scan(&have); err != nil || have != raw(id) {
				t.Errorf("%s went back as %s, %v", id, have, err)
			}
		}
	})
}

// TestMigrateDamaged: a manifest that cannot be packed stops the migration, which changes nothing and names the way
// out; after that way the store opens.
func TestMigrateDamaged(t *testing.T) {
	p := path(t)
	mustMigrate(t, p, packVersion-1)
	withDB(t, p, func(db *sql.DB) {
		if _, err := db.Exec(`INSERT INTO versions (tenant, id, version, digest, life, raw, manifest) VALUES ('t', 'ns.a', '1.0.0', 'd', x'7b7d', x'7b', x'7b7d')`); err != nil {
			t.Fatal(err)
		}
	})
	_, _, err := Migrate(t.Context(), p, -1)
	if err == nil || !strings.Contains(err.Error(), "ns.a@1.0.0") {
		t.Fatalf("the migration says %v", err)
	}
	at := strings.Index(err.Error(), "DELETE FROM versions")
	if at < 0 {
		t.Fatalf("the migration names no way out: %v", err)
	}
	withDB(t, p, func(db *sql.DB) {
		if r, err := db.Exec(err.Error()[at:]); err != nil {
			t.Fatal(err)
		} else if n, err := r.RowsAffected(); n != 1 || err != nil {
			t.Fatalf("%d rows are deleted, %v", n, err)
		}
	})
	mustOpen(t, Config{Path: p}).Close()
}

// TestShrinkFails: a file that cannot be made smaller is a warning.
func TestShrinkFails(t *testing.T) {
	p := path(t)
	mustMigrate(t, p, -1)
	withDB(t, p, func(db *sql.DB) {
		if _, err := db.Exec("PRAGMA query_only = on"); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		shrink(t.Context(), db, slog.New(slog.NewTextHandler(&log, nil)))
		if !strings.Contains(log.String(), "level=WARN") {
			t.Errorf("the log says %q", log.String())
		}
	})
}
