package postgres

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

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
	dsn := pgtest.NewDatabase(t)
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
	dsn := pgtest.NewDatabase(t)
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
	dsn := pgtest.NewDatabase(t)
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

// What a program before schema 11 executes, to the letter.
const (
	oldFence = `WITH mine AS (UPDATE writers SET number = $2, committed = $2, at = now() WHERE name = $1 AND number = $2 - 1 RETURNING 1)
		SELECT 1 / count(*), (SELECT seq FROM feed_head) FROM mine`
	oldNewWriter = `INSERT INTO writers (id, name, number, committed) VALUES ($1, $2, 0, 0) ON CONFLICT DO NOTHING`
	oldTaken     = `UPDATE writers SET number = number + 1, at = now() WHERE name = $1 RETURNING number, committed,
			(SELECT seq FROM feed_head)`
	oldTrimmed   = `SELECT coalesce((SELECT seq FROM marks WHERE name = $1), 0), seq FROM feed_head`
	oldDropCalls = `DELETE FROM invocations WHERE ctid = ANY(ARRAY(
			SELECT ctid FROM invocations WHERE created < $1 AND` + ended + ` LIMIT $2 FOR UPDATE SKIP LOCKED))`
	oldDropEvents = `DELETE FROM events WHERE ctid = ANY(ARRAY(
			SELECT ctid FROM events WHERE at < $1 LIMIT $2 FOR UPDATE SKIP LOCKED))`
)

// TestOldNode: a node of before schema 11 that runs on after the migration commits nothing and removes
// nothing, and works again after the way back.
func TestOldNode(t *testing.T) {
	ctx, dsn := testContext(t), pgtest.NewDatabase(t)
	mustMigrate(t, dsn, 10)
	conn, err := pgx.Connect(ctx, dsn) // of the node: its statements are prepared, as pgx does
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	// The first error, as where the old program gives up.
	inTurn := func(statements ...[]any) error {
		for _, s := range statements {
			if _, err := conn.Exec(ctx, s[0].(string), s[1:]...); err != nil {
				return err
			}
		}
		return nil
	}
	last := 0 // the number of its last transaction
	connect := func() error {
		err := inTurn([]any{oldNewWriter, 1000, "old"})
		if err == nil {
			var committed, seen int64
			err = conn.QueryRow(ctx, oldTaken, "old").Scan(&last, &committed, &seen)
		}
		return err
	}
	commit := func() error {
		err := inTurn([]any{oldFence, "old", last + 1})
		if err == nil {
			last++
		}
		return err
	}
	tend := func() error {
		return inTurn([]any{oldTrimmed, "trimmed calls"}, []any{oldTrimmed, "trimmed events"},
			[]any{oldDropCalls, time.Now().UnixNano(), 1000}, []any{oldDropEvents, time.Now().UnixMicro(), 1000})
	}
	works := func(when string) {
		t.Helper()
		for what, f := range map[string]func() error{"connect": connect, "tend": tend} {
			if err := f(); err != nil {
				t.Errorf("%s: %s: %v", when, what, err)
			}
		}
		for range 2 {
			if err := commit(); err != nil {
				t.Errorf("%s: commit: %v", when, err)
			}
		}
	}
	works("before")
	mustMigrate(t, dsn, 11)

	// Rows with one ctid in several partitions: what is over, and what is not.
	s := mustOpen(t, Config{DSN: dsn})
	over, running := callAt(time.Now().Add(-time.Hour), 1, toolkeep.CallSucceeded), call("running", toolkeep.CallRunning)
	mustApply(t, s, toolkeep.RecordCall{Invocation: over}, toolkeep.ClaimCall{Invocation: running}, toolkeep.AppendEvent{Event: toolkeep.Event{ID: "e", Tenant: "t"}})
	s.Close()
	if n := number(t, dsn, `SELECT count(DISTINCT ctid) FROM invocations`); n != 1 {
		t.Fatalf("the rows have %d ctids", n)
	}
	for what, c := range map[string]struct {
		f    func() error
		code string
	}{"commit": {commit, "42703"}, "connect": {connect, "42703"}, "tend": {tend, undefinedTable}} {
		if err := c.f(); code(err) != c.code {
			t.Errorf("%s after the migration: %v", what, err)
		}
	}
	for query, want := range map[string]int{`SELECT count(*) FROM invocations`: 2, `SELECT count(*) FROM events`: 1} {
		if n := number(t, dsn, query); n != want {
			t.Errorf("%s: %d", query, n)
		}
	}
	mustMigrate(t, dsn, 10)
	works("after the way back")
}

// TestMigrateBesideRetention: the tables are not partitioned in the middle of a retention pass.
func TestMigrateBesideRetention(t *testing.T) {
	ctx, dsn := testContext(t), pgtest.NewDatabase(t)
	mustMigrate(t, dsn, 10)
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	pass, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pass.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(tendLock)); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, _, err := Migrate(context.Background(), dsn, 11)
		done <- err
	}()
	eventually(t, func() bool {
		return number(t, dsn, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`) == 1
	})
	if n := number(t, dsn, `SELECT count(*) FROM pg_class WHERE relname = 'invocations_first'`); n != 0 {
		t.Error("it did not wait")
	}
	if err := pass.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestMigrateOwnIndexes: indexes of an operator keep their names, also where they begin like the others.
func TestMigrateOwnIndexes(t *testing.T) {
	dsn := pgtest.NewDatabase(t)
	mustMigrate(t, dsn, 10)
	execute(t, dsn, "CREATE INDEX my_calls ON invocations (tool)", "CREATE INDEX invocationsx ON invocations (tool)",
		"CREATE INDEX my_invocations_tool ON invocations (tool)", "CREATE INDEX my_events ON events (tenant)",
		`CREATE INDEX "by tool" ON invocations (tool)`)
	mustMigrate(t, dsn, 11)
	if n := number(t, dsn, `SELECT count(*) FROM pg_indexes WHERE tablename IN ('invocations_first', 'events_first')
		AND indexname IN ('my_calls', 'invocationsx', 'my_invocations_tool', 'my_events', 'by tool')`); n != 5 {
		t.Errorf("%d indexes have their names", n)
	}
	if n := number(t, dsn, `SELECT count(*) FROM pg_indexes WHERE tablename = 'invocations_first' AND indexname = 'invocations_first_tool'`); n != 1 {
		t.Error("an index of the table's own has another name")
	}
}
