package postgres

import (
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

// TestListCountsToMaxTotal: a filter that more calls fit than MaxTotal counts that many, one that
// fewer fit counts all.
func TestListCountsToMaxTotal(t *testing.T) {
	ctx, dsn := testContext(t), pgtest.NewDatabase(t)
	s := mustOpen(t, Config{DSN: dsn})
	mustApply(t, s, recorded("first"))
	if _, err := s.pool.Exec(ctx, `INSERT INTO invocations (tenant, id, subject, tool, session, parent, state, created, data)
		SELECT tenant, id || n, subject, CASE WHEN n <= 20 THEN 'few' ELSE tool END, session, parent, state, created + n, data
		FROM invocations, generate_series(1, $1) AS n`, toolkeep.MaxTotal+20); err != nil {
		t.Fatal(err)
	}
	for tool, want := range map[string]int{"": toolkeep.MaxTotal, "few": 20} {
		list, total, err := s.Invocations().List(ctx, toolkeep.InvocationFilter{Tenant: "t", ToolID: tool, Limit: 3})
		if err != nil || len(list) != 3 || total != want {
			t.Errorf("%q: %d of %d, want %d: %v", tool, len(list), total, want, err)
		}
	}
}
