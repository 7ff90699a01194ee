package postgres

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

// TestMigratePacked: manifests of the schema before come back to the byte after the migration, and after the way back.
func TestMigratePacked(t *testing.T) {
	dsn := pgtest.NewDatabase(t)
	mustMigrate(t, dsn, packVersion-1)
	large := `{"description":"` + strings.Repeat("said at length; ", 64) + `"}`
	raw := func(id string) string {
		return `{"description":"d","execution":{"binding":{"a":1},"kind":"http"},"parameters_schema":{"$defs":{"large":` + large + `},"type":"object"},"tool_id":"` + id + `","version":"1.0.0"}`
	}
	ids := []string{}
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for i := range 450 { // more than are in memory at a time
		id := "ns.t" + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + string(rune('a'+i/26))
		ids = append(ids, id)
		if _, err := conn.Exec(t.Context(), `INSERT INTO versions (tenant, id, version, digest, life, raw, manifest) VALUES ($1, $2, '1.0.0', $3, '{"state":"active","published_at":"2026-02-03T04:05:06Z"}', $4, '{}')`,
			[]string{"", "t"}[i%2], id, "sha256:"+id, []byte(raw(id))); err != nil {
			t.Fatal(err)
		}
	}
	s := mustOpen(t, Config{DSN: dsn}) // migrates up
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
	if n := number(t, dsn, "SELECT count(*) FROM manifest_parts"); n != 2 { // one for each tenant
		t.Errorf("%d parts", n)
	}
	if n := number(t, dsn, "SELECT version FROM toolkeep_floor"); n != 12 { // migration 12 raises it again
		t.Errorf("programs since schema version %d may use the database", n)
	}
	mustMigrate(t, dsn, packVersion-1)
	for _, id := range ids {
		var have string
		if err := conn.QueryRow(t.Context(), "SELECT convert_from(raw, 'UTF8') FROM versions WHERE id = $1 AND manifest = '{}'", id).Scan(&have); err != nil || have != raw(id) {
			t.Errorf("%s went back as %s, %v", id, have, err)
		}
	}
}
