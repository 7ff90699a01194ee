package postgres

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

// TestPlans: a query that runs often uses its partial index. Only the choice of a scan, which
// is right for a table as small as that of a test, is ruled out.
func TestPlans(t *testing.T) {
	dsn := pgtest.Start(t).NewDatabase(t)
	mustMigrate(t, dsn, -1)
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `SET enable_seqscan = off; SET enable_bitmapscan = off; SET plan_cache_mode = force_generic_plan;
		PREPARE cancel AS SELECT tenant, id FROM invocations WHERE `+cancelWhere, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	rows, err := conn.Query(t.Context(), `EXPLAIN EXECUTE cancel ('n')`, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(plan, "\n"); !strings.Contains(text, "Index Scan using invocations_cancel") {
		t.Error(text)
	}
}
