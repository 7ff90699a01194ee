package node

import (
	"context"

	"github.com/toolkeep/toolkeep/discover/usage"
	"github.com/toolkeep/toolkeep/telemetry"
)

// buildUsage makes what learns from how tools are used.
func (n *Node) buildUsage(context.Context) error {
	c := n.config.Search
	n.usage = usage.New(usage.Config{Store: n.store, Clean: func(tenant, text string) string { return n.redact.TenantLog(tenant).Clean(text) },
		NoHistory: c.History == "off", Learning: usage.Learning(c.Learning),
		Weights: n.searchWeights(), Keep: c.HistoryKeep, Every: usage.JobEvery(n.config.Store.KeepFeed),
		Node: n.name, Clock: n.options.Clock, Log: n.logger("usage")})
	return nil
}

func (n *Node) usageSamples() []telemetry.Sample {
	s := n.usage.Stats()
	return []telemetry.Sample{
		{Name: "toolkeep_retrieval_events_total", Help: "Records of searches that were written.", Counter: true, Value: float64(s.Written)},
		{Name: "toolkeep_retrieval_events_dropped_total", Help: "Records of searches that could not be written.", Counter: true, Value: float64(s.Dropped)},
		{Name: "toolkeep_retrieval_events_waiting", Help: "Records of searches that wait to be written.", Value: float64(s.Waiting)},
	}
}

// Usage is what learns from how tools are used.
func (n *Node) Usage() *usage.Usage { return n.usage }
