package telemetry

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/toolkeep/toolkeep/limit/breaker"
)

// breakerCollector reads the breakers at every scrape. Breakers of one name in several tenants are counted together, as no
// label holds a tenant.
type breakerCollector struct {
	ask     func() []breaker.Info
	most    int // names with series
	dropped *prometheus.CounterVec

	state, moves, age, tests, refused *prometheus.Desc
}

func newBreakerCollector(ask func() []breaker.Info, most int, dropped *prometheus.CounterVec) *breakerCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("tool_"+name, help, append([]string{"tool_id"}, labels...), nil)
	}
	return &breakerCollector{ask: ask, most: most, dropped: dropped,
		state:   desc("circuit_breaker_state", "0 closed, 1 open, 2 half open, of breakers that have been open; tool_id is such as host:NAME:PORT for that of an upstream.", "state"),
		moves:   desc("circuit_breaker_transitions_total", "Changes of a breaker's state that this node took.", "from_state", "to_state"),
		age:     desc("circuit_breaker_time_in_state_seconds", "How long a breaker has been in a state other than closed.", "state"),
		tests:   desc("half_open_test_requests_total", "Test calls that this node made.", "result"),
		refused: desc("circuit_breaker_open_requests_total", "Attempts that this node did not make because of a breaker."),
	}
}

func (c *breakerCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.state, c.moves, c.age, c.tests, c.refused} {
		ch <- d
	}
}

// stateValues are those of tool_circuit_breaker_state.
var stateValues = map[breaker.State]float64{breaker.Closed: 0, breaker.Open: 1, breaker.HalfOpen: 2, breaker.ForcedOpen: 1, breaker.ForcedClosed: 0}

func (c *breakerCollector) Collect(ch chan<- prometheus.Metric) {
	type labels [3]string
	type total map[labels]float64
	states, ages, moves, tests, refused := total{}, total{}, total{}, total{}, total{}
	known := map[string]bool{}
	for _, b := range c.ask() {
		id := strings.TrimPrefix(b.ID, "tool:")
		if !known[id] && len(known) >= c.most {
			c.dropped.WithLabelValues("tool_circuit_breaker_state").Inc()
			continue
		}
		known[id] = true
		state := labels{id, string(b.State)}
		states[state] = stateValues[b.State]
		if b.State != breaker.Closed {
			ages[state] = max(ages[state], b.For.Seconds())
		}
		for i, to := range b.Moves {
			for j, n := range to {
				if n > 0 {
					moves[labels{id, string(breaker.States[i]), string(breaker.States[j])}] += float64(n)
				}
			}
		}
		tests[labels{id, "success"}] += float64(b.TestsPassed)
		tests[labels{id, "failure"}] += float64(b.TestsFailed)
		refused[labels{id}] += float64(b.Refused)
	}
	send := func(desc *prometheus.Desc, kind prometheus.ValueType, n int, all total) {
		for l, v := range all {
			ch <- prometheus.MustNewConstMetric(desc, kind, v, l[:n]...)
		}
	}
	send(c.state, prometheus.GaugeValue, 2, states)
	send(c.age, prometheus.GaugeValue, 2, ages)
	send(c.moves, prometheus.CounterValue, 3, moves)
	send(c.tests, prometheus.CounterValue, 2, tests)
	send(c.refused, prometheus.CounterValue, 1, refused)
}
