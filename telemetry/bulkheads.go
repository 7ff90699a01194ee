package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/toolkeep/toolkeep/limit/bulkhead"
)

// bulkheadCollector reads the bulkheads at every scrape.
type bulkheadCollector func() []bulkhead.Stat

var (
	bulkheadLimit   = prometheus.NewDesc("toolkeep_bulkhead_limit", "Attempts of calls that may run at once.", []string{"bulkhead"}, nil)
	bulkheadInUse   = prometheus.NewDesc("toolkeep_bulkhead_in_use", "Attempts of calls that run.", []string{"bulkhead"}, nil)
	bulkheadWaiting = prometheus.NewDesc("toolkeep_bulkhead_waiting", "Attempts of calls that wait for a place.", []string{"bulkhead"}, nil)
	bulkheadRefused = prometheus.NewDesc("toolkeep_bulkhead_refused_total", "Attempts of calls that got no place.", []string{"bulkhead"}, nil)
)

func (c bulkheadCollector) Describe(to chan<- *prometheus.Desc) {
	to <- bulkheadLimit
	to <- bulkheadInUse
	to <- bulkheadWaiting
	to <- bulkheadRefused
}

func (c bulkheadCollector) Collect(to chan<- prometheus.Metric) {
	for _, s := range c() {
		to <- prometheus.MustNewConstMetric(bulkheadLimit, prometheus.GaugeValue, float64(s.Limit), s.Name)
		to <- prometheus.MustNewConstMetric(bulkheadInUse, prometheus.GaugeValue, float64(s.InUse), s.Name)
		to <- prometheus.MustNewConstMetric(bulkheadWaiting, prometheus.GaugeValue, float64(s.Waiting), s.Name)
		to <- prometheus.MustNewConstMetric(bulkheadRefused, prometheus.CounterValue, float64(s.Refused), s.Name)
	}
}
