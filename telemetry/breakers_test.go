package telemetry

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/control/health"
	"github.com/toolkeep/toolkeep/limit/breaker"
)

func TestMetricsOfBreakers(t *testing.T) {
	now := time.Now()
	rule := breaker.Defaults()
	rule.Consecutive = 1
	s := breaker.New(breaker.Config{Rule: &rule, Clock: func() time.Time { return now }})
	m := newMetrics(t, MetricsConfig{Breakers: s.Changed, MaxTools: 2})
	call := func(tenant, id string, o breaker.Outcome) {
		a, err := s.Of(&toolkeep.Tool{ID: id, Tenant: tenant, Manifest: &toolkeep.Manifest{}}, "host:shop.example:80").Take(t.Context())
		if err == nil {
			a.Done(o, breaker.Succeeded)
		}
	}
	call("acme", "shop.find", breaker.Failed)
	call("acme", "shop.find", breaker.Failed) // refused
	call("other", "shop.find", breaker.Failed)
	call("acme", "shop.fine", breaker.Succeeded) // never was open
	now = now.Add(30 * time.Second)
	call("acme", "shop.find", breaker.Failed)
	now = now.Add(30 * time.Second)
	call("acme", "shop.find", breaker.Succeeded)
	compare(t, m, `
# HELP tool_circuit_breaker_open_requests_total Attempts that this node did not make because of a breaker.
# TYPE tool_circuit_breaker_open_requests_total counter
tool_circuit_breaker_open_requests_total{tool_id="shop.find"} 1
# HELP tool_circuit_breaker_state 0 closed, 1 open, 2 half open, of breakers that have been open; tool_id is such as host:NAME:PORT for that of an upstream.
# TYPE tool_circuit_breaker_state gauge
tool_circuit_breaker_state{state="closed",tool_id="shop.find"} 0
tool_circuit_breaker_state{state="open",tool_id="shop.find"} 1
# HELP tool_circuit_breaker_time_in_state_seconds How long a breaker has been in a state other than closed.
# TYPE tool_circuit_breaker_time_in_state_seconds gauge
tool_circuit_breaker_time_in_state_seconds{state="open",tool_id="shop.find"} 60
# HELP tool_circuit_breaker_transitions_total Changes of a breaker's state that this node took.
# TYPE tool_circuit_breaker_transitions_total counter
tool_circuit_breaker_transitions_total{from_state="closed",to_state="open",tool_id="shop.find"} 2
tool_circuit_breaker_transitions_total{from_state="half_open",to_state="closed",tool_id="shop.find"} 1
tool_circuit_breaker_transitions_total{from_state="half_open",to_state="open",tool_id="shop.find"} 1
tool_circuit_breaker_transitions_total{from_state="open",to_state="half_open",tool_id="shop.find"} 2
# HELP tool_half_open_test_requests_total Test calls that this node made.
# TYPE tool_half_open_test_requests_total counter
tool_half_open_test_requests_total{result="failure",tool_id="shop.find"} 1
tool_half_open_test_requests_total{result="success",tool_id="shop.find"} 1
`, "tool_circuit_breaker_open_requests_total", "tool_circuit_breaker_state", "tool_circuit_breaker_time_in_state_seconds",
		"tool_circuit_breaker_transitions_total", "tool_half_open_test_requests_total")
	for _, id := range []string{"shop.y", "shop.z"} { // the third has no place
		call("acme", id, breaker.Failed)
	}
	if _, err := m.Registry().Gather(); err != nil {
		t.Error(err)
	}
	if n := testutil.ToFloat64(m.dropped.WithLabelValues("tool_circuit_breaker_state")); n != 1 {
		t.Errorf("%v series are counted as dropped, want 1", n)
	}
}

func TestMetricsOfToolHealth(t *testing.T) {
	all := []health.Health{{ToolID: "shop.find", Status: health.Healthy}, {ToolID: "shop.find", Status: health.Unhealthy}, {ToolID: "shop.z", Status: health.Unknown}}
	m := newMetrics(t, MetricsConfig{Health: func() []health.Health { return all }, MaxTools: 1})
	compare(t, m, `
# HELP tool_health How many tools of an id, one in each tenant, are in a state; of tools that are probed, and of those whose breaker has been open.
# TYPE tool_health gauge
tool_health{state="degraded",tool_id="shop.find"} 0
tool_health{state="healthy",tool_id="shop.find"} 1
tool_health{state="unhealthy",tool_id="shop.find"} 1
tool_health{state="unknown",tool_id="shop.find"} 0
`, "tool_health")
	if n := testutil.ToFloat64(m.dropped.WithLabelValues("tool_health")); n != 1 {
		t.Errorf("%v series are counted as dropped, want 1", n)
	}
}
