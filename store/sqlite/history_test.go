package sqlite

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/record"
	"github.com/toolkeep/toolkeep/store/storetest"
)

// BenchmarkHistory: see storetest.History. A pass removes one day of thirty.
func BenchmarkHistory(b *testing.B) {
	const kept = storetest.HistoryDays * 24 * time.Hour
	rows, now := storetest.HistoryRows(b), time.Now()
	var passed atomic.Int64
	clock := func() time.Time { return now.Add(time.Duration(passed.Load())) }
	s := mustOpen(b, Config{Path: path(b), InvocationKeep: kept, Clock: clock})
	first := benchCall(0)
	mustApply(b, s, toolkeep.RecordCall{Invocation: first})
	if err := s.catchUp(b.Context()); err != nil {
		b.Fatal(err)
	}
	if _, err := s.write.ExecContext(b.Context(), `INSERT INTO invocations (tenant, id, subject, tool, session, parent, state, created, data)
		WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?1 - 1)
		SELECT tenant, printf('%012x', n), `+storetest.HistoryColumns+`, ?2 + n * (?3 / ?1), data FROM invocations, numbers`,
		rows, record.Nanos(now.Add(-kept)), int64(kept)); err != nil {
		b.Fatal(err)
	}
	if _, err := s.write.ExecContext(b.Context(), `PRAGMA wal_checkpoint(TRUNCATE)`); err != nil {
		b.Fatal(err)
	}
	storetest.History{Store: s, Tenant: first.Tenant, Began: now.Add(-kept),
		Tend: func(ctx context.Context, _ int) error {
			passed.Add(int64(24 * time.Hour))
			return s.tend(ctx)
		},
		Claim: func(i int) *toolkeep.Invocation {
			v := call(fmt.Sprint("meanwhile", passed.Load(), "-", i), toolkeep.CallRunning)
			v.CreatedAt = clock()
			return v
		},
	}.Run(b)
}
