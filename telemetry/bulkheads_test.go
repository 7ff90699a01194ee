package telemetry

import (
	"testing"

	"github.com/toolkeep/toolkeep/limit/bulkhead"
)

func TestMetricsOfBulkheads(t *testing.T) {
	t.Parallel()
	m := newMetrics(t, MetricsConfig{Bulkheads: func() []bulkhead.Stat {
		return []bulkhead.Stat{{Name: "total", Limit: 1000, InUse: 7}, {Name: "sql", Limit: 50, InUse: 50, Waiting: 3, Refused: 2}}
	}})
	compare(t, m, `
# HELP toolkeep_bulkhead_in_use Attempts of calls that run.
# TYPE toolkeep_bulkhead_in_use gauge
toolkeep_bulkhead_in_use{bulkhead="sql"} 50
toolkeep_bulkhead_in_use{bulkhead="total"} 7
# HELP toolkeep_bulkhead_limit Attempts of calls that may run at once.
# TYPE toolkeep_bulkhead_limit gauge
toolkeep_bulkhead_limit{bulkhead="sql"} 50
toolkeep_bulkhead_limit{bulkhead="total"} 1000
# HELP toolkeep_bulkhead_refused_total Attempts of calls that got no place.
# TYPE toolkeep_bulkhead_refused_total counter
toolkeep_bulkhead_refused_total{bulkhead="sql"} 2
toolkeep_bulkhead_refused_total{bulkhead="total"} 0
# HELP toolkeep_bulkhead_waiting Attempts of calls that wait for a place.
# TYPE toolkeep_bulkhead_waiting gauge
toolkeep_bulkhead_waiting{bulkhead="sql"} 3
toolkeep_bulkhead_waiting{bulkhead="total"} 0
`, "toolkeep_bulkhead_in_use", "toolkeep_bulkhead_limit", "toolkeep_bulkhead_refused_total", "toolkeep_bulkhead_waiting")
}
