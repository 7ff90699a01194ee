package sqlite

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/record"
)

// historyDays is over how many days the calls of BenchmarkHistory lie.
const historyDays = 30

// historyRows is how many calls BenchmarkHistory lays down; TOOLKEEP_HISTORY, default 20,000.
func historyRows(b *testing.B) int64 {
	text := os.Getenv("TOOLKEEP_HISTORY")
	if text == "" {
		return 20_000
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < historyDays {
		b.Fatalf("TOOLKEEP_HISTORY is %q; write a number of calls", text)
	}
	return n
}

// BenchmarkHistory reports the 95th percentile of pages of calls by several filters, among calls of
// 30 days, and what removing the oldest day takes, with the longest that another call waited
// meanwhile.
func BenchmarkHistory(b *testing.B) {
	rows := historyRows(b)
	now := time.Now().UTC()
	var clock atomic.Int64
	clock.Store(now.UnixNano())
	s := mustOpen(b, Config{Path: path(b), InvocationKeep: historyDays * 24 * time.Hour,
		Clock: func() time.Time { return time.Unix(0, clock.Load()) }})
	began := now.Add(-historyDays * 24 * time.Hour)
	data := benchCall(0)
	mustApply(b, s, toolkeep.ClaimCall{Invocation: data})
	if _, err := s.write.ExecContext(b.Context(), `INSERT INTO invocations (tenant, id, subject, tool, session, parent, state, created, data)
		WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?1 - 1)
		SELECT tenant, printf('%012x-%d', n, n), 'agent-' || (n % 100), 'ns.tool-' || (n % 500), CASE WHEN n % 4 = 0 THEN 'session-' || (n / 200) ELSE '' END, '',
			CASE WHEN n % 50 = 0 THEN 'failed' ELSE 'succeeded' END, ?2 + n * (?3 / ?1), data
		FROM invocations, numbers`, rows, record.Nanos(began), int64(historyDays*24*time.Hour)); err != nil {
		b.Fatal(err)
	}
	for name, f := range map[string]toolkeep.InvocationFilter{
		"all":        {},
		"agent":      {Subject: "agent-7"},
		"tool":       {ToolID: "ns.tool-7"},
		"state":      {State: toolkeep.CallFailed},
		"succeeded":  {State: toolkeep.CallSucceeded, ToolID: "ns.tool-7"},
		"session":    {Session: "session-8"},
		"day":        {Since: began.Add(24 * time.Hour), Until: began.Add(48 * time.Hour)},
		"tool_a_day": {ToolID: "ns.tool-7", Since: began.Add(24 * time.Hour), Until: began.Add(48 * time.Hour)},
		"page_100":   {Offset: 5000},
	} {
		b.Run(name, func(b *testing.B) {
			f.Tenant, f.Limit = data.Tenant, 50
			var took []time.Duration
			for b.Loop() {
				start := time.Now()
				if _, total, err := s.Invocations().List(b.Context(), f); err != nil || total == 0 {
					b.Fatal(total, err)
				}
				took = append(took, time.Since(start))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "ms-p95")
		})
	}
	b.Run("retention", func(b *testing.B) {
		for day := 0; b.Loop(); day++ {
			clock.Add(int64(24 * time.Hour))
			stop, longest := make(chan struct{}), make(chan time.Duration)
			go func() {
				var most time.Duration
				for i := 0; ; i++ {
					select {
					case <-stop:
						longest <- most
						return
					case <-time.After(time.Millisecond):
					}
					v := call(fmt.Sprint("meanwhile", day, "-", i), toolkeep.CallRunning)
					v.CreatedAt = s.cfg.Clock()
					start := time.Now()
					if err := s.Apply(b.Context(), toolkeep.ClaimCall{Invocation: v}); err != nil {
						b.Error(err)
					}
					most = max(most, time.Since(start))
				}
			}()
			if err := s.tend(b.Context()); err != nil {
				b.Fatal(err)
			}
			close(stop)
			b.ReportMetric(float64((<-longest).Microseconds())/1000, "ms-longest-wait")
		}
	})
}
