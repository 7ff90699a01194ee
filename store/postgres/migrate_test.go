package postgres

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

// schema returns everything that the migrations created: columns, defaults, indexes,
// constraints.
func schema(t *testing.T, dsn string) string {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, `
		SELECT table_name || '.' || column_name || ' ' || data_type || ' ' || is_nullable || ' ' || coalesce(column_default, '')
			FROM information_schema.columns WHERE table_schema = 'public' AND table_name <> $1
		UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' AND tablename <> $1
		UNION ALL SELECT conrelid::regclass || ' ' || pg_get_constraintdef(oid) FROM pg_constraint
			WHERE connamespace = 'public'::regnamespace AND conrelid <> $1::regclass`, versionTable)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func mustMigrate(t *testing.T, dsn string, target int64) (from, to int64) {
	t.Helper()
	from, to, err := Migrate(context.Background(), dsn, target)
	if err != nil {
		t.Fatalf("Migrate to %d: %v", target, err)
	}
	return from, to
}

// TestMigrations migrates up, down and up again at every step, with data, and checks
// that the tables of other steps keep theirs.
func TestMigrations(t *testing.T) {
	dsn := pgtest.Start(t).NewDatabase(t)
	_, newest := mustMigrate(t, dsn, -1)
	var up []string
	for v := newest; v > 0; v-- {
		up = append([]string{schema(t, dsn)}, up...)
		mustMigrate(t, dsn, v-1)
	}
	if s := schema(t, dsn); s != "" {
		t.Errorf("going all the way back leaves %s", s)
	}
	for v := int64(1); v <= newest; v++ {
		mustMigrate(t, dsn, v)
		mustMigrate(t, dsn, v-1)
		mustMigrate(t, dsn, v)
		if got := schema(t, dsn); got != up[v-1] {
			t.Errorf("step %d makes\n%s\nwhere it was\n%s", v, got, up[v-1])
		}
	}

	s := mustOpen(t, Config{DSN: dsn})
	version := toolkeep.Version{Tool: &toolkeep.Tool{ID: "ns.a", Version: "1.0.0", Digest: "d", Raw: []byte(`{}`), Manifest: &toolkeep.Manifest{}}}
	mustApply(t, s, toolkeep.PublishVersion{Version: version}, toolkeep.PutKey{Key: toolkeep.APIKey{Tenant: "t", ID: "k"}},
		recorded("a"), toolkeep.ClaimCall{Invocation: call("b", toolkeep.CallRunning)})
	s.Close()
	mustMigrate(t, dsn, 3) // without invocations
	for table, want := range map[string]int{"feed": 2, "versions": 1, "api_keys": 1} {
		if n := number(t, dsn, "SELECT count(*) FROM "+table); n != want {
			t.Errorf("%s has %d rows", table, n)
		}
	}
	s = mustOpen(t, Config{DSN: dsn}) // migrates up again
	mustApply(t, s, recorded("c"), key("l"))
	if head, _ := s.Head(t.Context()); head != 3 {
		t.Errorf("the feed goes on at %d", head)
	}
}

// TestOpenTogether: several nodes start on an empty database at once.
func TestOpenTogether(t *testing.T) {
	dsn := pgtest.Start(t).NewDatabase(t)
	nodes := make([]*Store, 5)
	parallel(len(nodes), func(i int) {
		s, err := Open(context.Background(), Config{DSN: dsn, Log: quiet()})
		if err != nil {
			t.Error(err)
			return
		}
		nodes[i] = s
	})
	for i, s := range nodes {
		if s == nil {
			continue
		}
		mustApply(t, s, recorded(fmt.Sprint(i)))
		s.Close()
	}
	if n := number(t, dsn, "SELECT count(*) FROM invocations"); n != len(nodes) {
		t.Errorf("%d calls", n)
	}
	if n := number(t, dsn, "SELECT count(DISTINCT id) FROM writers"); n != len(nodes) {
		t.Errorf("%d writers", n)
	}
}

// TestNewerSchema: after a newer node has migrated, this one keeps working unless the
// newer one has forbidden it, and never migrates.
func TestNewerSchema(t *testing.T) {
	dsn := pgtest.Start(t).NewDatabase(t)
	_, newest := mustMigrate(t, dsn, -1)
	if _, _, err := Migrate(t.Context(), dsn, newest+1); err == nil {
		t.Error("there is a step that does not exist")
	}
	old := mustOpen(t, Config{DSN: dsn}) // runs while the other migrates
	execute(t, dsn, fmt.Sprintf("INSERT INTO %s (version_id, is_applied) VALUES (%d, true)", versionTable, newest+1),
		"ALTER TABLE invocations ADD COLUMN later TEXT NOT NULL DEFAULT 'x'", "ALTER TABLE feed ADD COLUMN later TEXT",
		"ALTER TABLE versions ADD COLUMN later TEXT")
	var log bytes.Buffer
	for i, s := range []*Store{old, mustOpen(t, Config{DSN: dsn, Log: slog.New(slog.NewTextHandler(&log, nil))})} {
		id := fmt.Sprint(i)
		mustApply(t, s, recorded(id), toolkeep.ClaimCall{Invocation: call(id+"c", toolkeep.CallRunning)})
		if _, err := s.Invocations().Get(t.Context(), toolkeep.CallRef{Tenant: "t", ID: id}); err != nil {
			t.Error(err)
		}
	}
	if !strings.Contains(log.String(), "newer version") {
		t.Errorf("nothing was said: %s", log.String())
	}
	if _, _, err := Migrate(t.Context(), dsn, 1); err == nil || !strings.Contains(err.Error(), "newer version of Toolkeep") {
		t.Errorf("Migrate of a newer database: %v", err)
	}
	execute(t, dsn, fmt.Sprintf("UPDATE toolkeep_floor SET version = %d", newest+1))
	if _, err := Open(t.Context(), Config{DSN: dsn, Log: quiet()}); err == nil || !strings.Contains(err.Error(), "newer version of Toolkeep") {
		t.Errorf("Open of a newer database: %v", err)
	}
}
