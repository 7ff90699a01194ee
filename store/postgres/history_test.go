package postgres

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
	"github.com/toolkeep/toolkeep/store/record"
	"github.com/toolkeep/toolkeep/store/storetest"
)

// BenchmarkHistory: see storetest.History. A pass drops one partition of a week.
func BenchmarkHistory(b *testing.B) {
	const kept = storetest.HistoryDays * day
	rows, began := storetest.HistoryRows(b), time.Now().UTC().Truncate(day).Add(2*day) // the first partition ends before
	var passed atomic.Int64
	clock := func() time.Time { return began.Add(time.Duration(passed.Load())) }
	s := mustOpen(b, Config{DSN: pgtest.NewDatabase(b), InvocationKeep: kept, Clock: clock, Tends: func() bool { return false }})
	for range historyWeeks {
		if err := s.makeAhead(b.Context()); err != nil {
			b.Fatal(err)
		}
		passed.Add(int64(7 * day))
	}
	first := storetest.FullCall(idBound(began)+"000-8000-000000000000", toolkeep.CallSucceeded, 1)
	first.CreatedAt = began
	mustApply(b, s, toolkeep.RecordCall{Invocation: first})
	if _, err := s.pool.Exec(b.Context(), `INSERT INTO invocations (tenant, id, subject, tool, session, parent, state, created, data)
		SELECT tenant, substr(ms, 1, 8) || '-' || substr(ms, 9) || '-7000-8000-' || lpad(to_hex(n), 12, '0'), `+storetest.HistoryColumns+`, at, data
		FROM invocations, generate_series(1, $1::bigint) AS n, LATERAL (SELECT $2::bigint + n * ($3::bigint / $1::bigint)) AS t (at),
			LATERAL (SELECT lpad(to_hex(at / 1000000), 12, '0')) AS h (ms)`, rows, record.Nanos(began), int64(kept)); err != nil {
		b.Fatal(err)
	}
	// As PostgreSQL does by itself soon after.
	if _, err := s.pool.Exec(b.Context(), `VACUUM ANALYZE invocations`); err != nil {
		b.Fatal(err)
	}
	storetest.History{Store: s, Tenant: first.Tenant, Began: began,
		Tend: func(ctx context.Context, n int) error {
			passed.Store(int64(kept + time.Duration(n+1)*7*day + day))
			return s.tend(ctx)
		},
		Claim: func(i int) *toolkeep.Invocation {
			at := clock()
			v := storetest.FullCall(fmt.Sprintf("%s000-8000-%012x", idBound(at), i), toolkeep.CallRunning, 1)
			v.CreatedAt, v.Key = at, ""
			return v
		},
	}.Run(b)
}

// historyWeeks is how many weeks of partitions BenchmarkHistory makes.
const historyWeeks = storetest.HistoryDays/7 + 2
