package postgres

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
	"github.com/toolkeep/toolkeep/store/storetest"
)

// TestPlans: a query that runs often uses its index in each partition. Only the choice of a scan, which
// is right for a table as small as that of a test, is ruled out.
func TestPlans(t *testing.T) {
	dsn := pgtest.NewDatabase(t)
	mustMigrate(t, dsn, -1)
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for i := range 16 { // periods
		at := time.Now().UTC().Truncate(day).AddDate(0, 0, 30+i)
		if err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			return errors.Join(partedCalls.make(t.Context(), tx, at, at.Add(day)), partedEvents.make(t.Context(), tx, at, at.Add(day)))
		}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.Exec(t.Context(), `SET enable_seqscan = off; SET enable_bitmapscan = off; SET plan_cache_mode = force_generic_plan`); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, query, args, index string }{
		{"cancel", `SELECT tenant, id FROM invocations WHERE ` + cancelWhere, `'n'`, "lease_owner"},
		{"lapsed", `SELECT id FROM invocations WHERE ` + lapsedWhere, `1, '', 10`, "lease_until"},
		{"overdue", `SELECT id FROM invocations WHERE ` + overdueWhere, `1, 10`, "deadline"},
		{"unfetched", `SELECT id FROM invocations WHERE ` + unfetchedWhere, `1, 10`, "expires"},
		{"calls", sqlReadCalls, `1, 1, 9, 10`, "writer_entry"},
		{"events", sqlReadEvents, `1, 1, 9, 10`, "pkey"},
		{"call", sqlState, `'t', 'id'`, "pkey"},
		{"move", sqlRenew, `1, 't', 'id', 'n'`, "pkey"},
		{"key", sqlByKey, `'t', 's', 'k'`, "call_keys_pkey"},
		{"first", oneCallIn("invocations_first").get, `'t', 'id'`, "invocations_first_pkey"},
		{"high", oneCallIn("invocations_high").get, `'t', 'id'`, "invocations_high_pkey"},
		{"period", oneCallIn(named("invocations", time.Now().AddDate(0, 0, 30))).get, `'t', 'id'`, "_pkey"},
		{"claim", oneCallIn("invocations_first").claimKey, `'t', 'id', '', '', '', '', '', 1, '', 1, 1, 1, '', 1, '', '', '', '', '', '', 'k'`, "invocations_first_pkey"},
	} {
		if _, err := conn.Exec(t.Context(), `PREPARE `+c.name+` AS `+c.query, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(c.name, err)
		}
		rows, err := conn.Query(t.Context(), `EXPLAIN EXECUTE `+c.name+` (`+c.args+`)`, pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			t.Fatal(c.name, err)
		}
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(c.name, err)
		}
		text := strings.Join(plan, "\n")
		if n := strings.Count(text, "Index Scan using"); n < 16 && !strings.Contains(c.index, "pkey") || strings.Contains(text, "Seq Scan") || !strings.Contains(text, c.index) {
			t.Errorf("%s uses %d indexes:\n%s", c.name, n, text)
		}
	}
}

// TestCountsOfSucceeded: succeeded calls of one tool or one agent are counted in its index. A page counts up to
// toolkeep.MaxTotal of them, which may each lie in a page of their own.
func TestCountsOfSucceeded(t *testing.T) {
	dsn := pgtest.NewDatabase(t)
	s := mustOpen(t, Config{DSN: dsn})
	first := callAt(time.Now(), 1, toolkeep.CallSucceeded)
	mustApply(t, s, toolkeep.RecordCall{Invocation: first})
	execute(t, dsn, `INSERT INTO invocations (tenant, id, subject, tool, session, parent, state, created, data)
		SELECT tenant, substr(id, 1, 24) || lpad(to_hex(n), 12, '0'), `+storetest.HistoryColumns+`, created + n, data
		FROM invocations, generate_series(1000, 6000) AS n`, `VACUUM ANALYZE invocations`)
	for index, filter := range map[string]string{"_tool_created_state_idx": `tool = 'ns.tool-7'`, "_subject_created_state_idx": `subject = 'agent-7'`} {
		rows, err := s.pool.Query(t.Context(), `EXPLAIN SELECT count(*) FROM (SELECT 1 FROM invocations WHERE tenant = $1 AND `+filter+
			` AND state = 'succeeded' LIMIT 10000) AS counted`, pgx.QueryExecModeSimpleProtocol, first.Tenant)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		uses := func(line string) bool {
			return strings.Contains(line, "Index Only Scan using") && strings.Contains(line, index)
		}
		if !slices.ContainsFunc(plan, uses) {
			t.Errorf("%s: none of the index alone:\n%s", filter, strings.Join(plan, "\n"))
		}
	}
}

// TestTroubleOfOne: a page of what went wrong with one tool, or of one agent, reads nothing of the others. The query is
// that of List.
func TestTroubleOfOne(t *testing.T) {
	dsn := pgtest.NewDatabase(t)
	s := mustOpen(t, Config{DSN: dsn})
	first := callAt(time.Now(), 1, toolkeep.CallFailed)
	mustApply(t, s, toolkeep.RecordCall{Invocation: first})
	execute(t, dsn, `INSERT INTO invocations (tenant, id, subject, tool, session, parent, state, created, data)
		SELECT tenant, substr(id, 1, 24) || lpad(to_hex(n), 12, '0'), 'agent-' || (n % 100), 'ns.tool-' || (n % 500), '', '',
			CASE WHEN n % 5 = 0 THEN 'failed' ELSE 'succeeded' END, created + n, data
		FROM invocations, generate_series(1000, 6000) AS n`, `VACUUM ANALYZE invocations`)
	for index, f := range map[string]toolkeep.InvocationFilter{
		"_tool_state_created_idx":    {Tenant: first.Tenant, ToolID: "ns.tool-7", State: toolkeep.CallFailed},
		"_subject_state_created_idx": {Tenant: first.Tenant, Subject: "agent-7", State: toolkeep.CallFailed},
	} {
		where, args := filter(f)
		for _, query := range []string{`SELECT ` + smallColumns + ` FROM invocations WHERE ` + where + ` ORDER BY created DESC, id DESC LIMIT 50`,
			`SELECT count(*) FROM (SELECT 1 FROM invocations WHERE ` + where + ` LIMIT 10000) AS counted`} {
			rows, err := s.pool.Query(t.Context(), `EXPLAIN (ANALYZE, BUFFERS) `+query, append([]any{pgx.QueryExecModeSimpleProtocol}, args...)...)
			if err != nil {
				t.Fatal(err)
			}
			plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatal(err)
			}
			if text := strings.Join(plan, "\n"); !strings.Contains(text, index) || strings.Contains(text, "Rows Removed by Filter") {
				t.Errorf("%s is not what the page uses:\n%s", index, text)
			}
		}
	}
}
