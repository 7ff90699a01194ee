package storetest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// HistoryDays is over how many days the calls of a History lie.
const HistoryDays = 30

// HistoryRows is how many calls a benchmark lays down for a History: TOOLKEEP_HISTORY, default 20,000.
func HistoryRows(b *testing.B) int64 {
	text := os.Getenv("TOOLKEEP_HISTORY")
	if text == "" {
		return 20_000
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < HistoryDays {
		b.Fatalf("TOOLKEEP_HISTORY is %q; write a number of calls", text)
	}
	return n
}

// HistoryColumns are, as SQL over a number n from 0, subject, tool, session, parent and state of the calls of a History.
const HistoryColumns = `'agent-' || (n % 100), 'ns.tool-' || (n % 500), CASE WHEN n % 4 = 0 THEN 'session-' || (n / 200) ELSE '' END, '',
	CASE WHEN n % 50 = 0 THEN 'failed' ELSE 'succeeded' END`

// History are the calls of a store that lie evenly over HistoryDays days from Began on, with HistoryColumns.
type History struct {
	Store interface {
		toolkeep.Applier
		Invocations() toolkeep.Invocations
	}
	Tenant string
	Began  time.Time
	// Tend removes, at its n-th call, what has become too old since the one before.
	Tend func(ctx context.Context, n int) error
	// Claim returns the i-th call of another caller meanwhile, with an id of its own.
	Claim func(i int) *toolkeep.Invocation
}

// Run reports the 95th percentile of pages by several filters, how long a retention pass takes, and how long claims took
// meanwhile: half of them, and the longest.
func (h History) Run(b *testing.B) {
	day := 24 * time.Hour
	for _, c := range []struct {
		name   string
		filter toolkeep.InvocationFilter
	}{
		{"all", toolkeep.InvocationFilter{}},
		{"agent", toolkeep.InvocationFilter{Subject: "agent-7"}},
		{"tool", toolkeep.InvocationFilter{ToolID: "ns.tool-7"}},
		{"state", toolkeep.InvocationFilter{State: toolkeep.CallFailed}},
		{"tool_and_state", toolkeep.InvocationFilter{State: toolkeep.CallSucceeded, ToolID: "ns.tool-7"}},
		{"agent_and_state", toolkeep.InvocationFilter{State: toolkeep.CallSucceeded, Subject: "agent-7"}},
		{"session", toolkeep.InvocationFilter{Session: "session-8"}},
		{"day", toolkeep.InvocationFilter{Since: h.Began.Add(day), Until: h.Began.Add(2 * day)}},
		{"tool_and_day", toolkeep.InvocationFilter{ToolID: "ns.tool-7", Since: h.Began.Add(day), Until: h.Began.Add(2 * day)}},
		{"page_100", toolkeep.InvocationFilter{Offset: 4950}},
	} {
		b.Run(c.name, func(b *testing.B) {
			c.filter.Tenant, c.filter.Limit = h.Tenant, 50
			var took []time.Duration
			for b.Loop() {
				start := time.Now()
				if _, total, err := h.Store.Invocations().List(b.Context(), c.filter); err != nil || total == 0 {
					b.Fatal(total, err)
				}
				took = append(took, time.Since(start))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "ms-p95")
		})
	}
	claims, passes := 0, 0
	b.Run("retention", func(b *testing.B) {
		stop, waited := make(chan struct{}), make(chan []time.Duration)
		go func() {
			var all []time.Duration
			for ; ; claims++ {
				select {
				case <-stop:
					waited <- all
					return
				case <-time.After(time.Millisecond):
				}
				start := time.Now()
				if err := h.Store.Apply(b.Context(), toolkeep.ClaimCall{Invocation: h.Claim(claims)}); err != nil {
					b.Error(err)
				}
				all = append(all, time.Since(start))
			}
		}()
		var took []string
		for range b.N {
			start := time.Now()
			if err := h.Tend(b.Context(), passes); err != nil {
				b.Fatal(err)
			}
			passes++
			took = append(took, time.Since(start).Round(time.Millisecond).String())
		}
		close(stop)
		if all := <-waited; len(all) > 0 {
			slices.Sort(all)
			b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "ms-median-claim")
			b.ReportMetric(float64(all[len(all)-1].Microseconds())/1000, "ms-longest-claim")
		}
		b.Log(fmt.Sprint("the passes took ", took))
	})
}
