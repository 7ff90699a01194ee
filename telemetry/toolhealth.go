package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/toolkeep/toolkeep/control/health"
)

// toolHealthCollector reads the health of tools at every scrape. Of tools of one id in several tenants it has each state that
// one of them has, as no label holds a tenant.
type toolHealthCollector struct {
	ask     func() []health.Health
	most    int // tools with series
	dropped *prometheus.CounterVec
	state   *prometheus.Desc
}

func newToolHealthCollector(ask func() []health.Health, most int, dropped *prometheus.CounterVec) *toolHealthCollector {
	return &toolHealthCollector{ask: ask, most: most, dropped: dropped, state: prometheus.NewDesc("tool_health",
		"How many tools of an id, one in each tenant, are in a state; of tools that are probed, and of those whose breaker has been open.", []string{"tool_id", "state"}, nil)}
}

func (c *toolHealthCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.state }

func (c *toolHealthCollector) Collect(ch chan<- prometheus.Metric) {
	tools := map[string]map[health.Status]float64{}
	for _, h := range c.ask() {
		states := tools[h.ToolID]
		if states == nil {
			if len(tools) >= c.most {
				c.dropped.WithLabelValues("tool_health").Inc()
				continue
			}
			states = map[health.Status]float64{}
			for _, s := range health.Statuses {
				states[s] = 0
			}
			tools[h.ToolID] = states
		}
		states[h.Status]++
	}
	for id, states := range tools {
		for s, n := range states {
			ch <- prometheus.MustNewConstMetric(c.state, prometheus.GaugeValue, n, id, string(s))
		}
	}
}
