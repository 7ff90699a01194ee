package sqlite

import (
	"database/sql"
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
