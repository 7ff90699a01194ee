package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

func written(m prometheus.Metric) *dto.Metric {
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		panic(err)
	}
	return &out
}

func value(m prometheus.Metric) float64 { return written(m).GetCounter().GetValue() }

func hasLabel(m prometheus.Metric, value string) bool {
	for _, l := range written(m).GetLabel() {
		if l.GetValue() == value {
			return true
		}
	}
	return false
}
