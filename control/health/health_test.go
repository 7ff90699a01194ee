package health

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/limit/breaker"
)

// TestOf: the worst that is known counts, and the numbers are those of the calls.
func TestOf(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_800_000_000, 0)
	rule := breaker.Defaults()
	rule.SlowRate = 50
	info := func(state breaker.State, calls, failures, slow int) *breaker.Info {
		i := &breaker.Info{ID: "tool:a.b", State: state, Calls: calls, Failures: failures, Slow: slow, LatencyMS: 12, Rule: rule}
		if calls > 0 {
			i.Last = at
		}
		return i
	}
	opened := info(breaker.Open, 0, 0, 0)
	opened.Record = breaker.Record{State: breaker.Open, Since: at, Calls: 10, Failures: 4, LatencyMS: 30}
	well, late := &Probe{Status: Healthy, At: at}, &Probe{Status: Degraded, At: at}
	down := &Probe{Status: Unhealthy, Failures: Failures, At: at.Add(time.Minute)}
	for name, c := range map[string]struct {
		own, upstream *breaker.Info
		probe         *Probe
		want          Status
		breaker       string
		rate          float64
		reasons       string
	}{
		"nothing":                        {want: Unknown, breaker: "closed"},
		"no call in the window":          {own: info(breaker.Closed, 0, 0, 0), want: Unknown, breaker: "closed"},
		"calls":                          {own: info(breaker.Closed, 100, 5, 50), want: Healthy, breaker: "closed", rate: 5},
		"failures":                       {own: info(breaker.Closed, 100, 6, 0), want: Degraded, breaker: "closed", rate: 6, reasons: "failure_rate"},
		"slow calls":                     {own: info(breaker.Closed, 100, 0, 51), want: Degraded, breaker: "closed", reasons: "slow_call_rate"},
		"a good probe":                   {own: info(breaker.Closed, 0, 0, 0), probe: well, want: Healthy, breaker: "closed"},
		"a good probe and failures":      {own: info(breaker.Closed, 10, 1, 0), probe: well, want: Degraded, breaker: "closed", rate: 10, reasons: "failure_rate"},
		"a slow probe":                   {probe: late, want: Degraded, breaker: "closed", reasons: "probe_slow"},
		"bad probes and good calls":      {own: info(breaker.Closed, 10, 0, 0), probe: down, want: Unhealthy, breaker: "closed", reasons: "probe_failed"},
		"a probe that could not be made": {own: info(breaker.Closed, 10, 0, 0), probe: &Probe{Status: Unknown}, want: Healthy, breaker: "closed"},
		"open":                           {own: opened, probe: well, want: Unhealthy, breaker: "open", rate: 40, reasons: "breaker_open"},
		"half open":                      {own: info(breaker.HalfOpen, 0, 0, 0), want: Degraded, breaker: "half_open", reasons: "breaker_half_open"},
		"forced open":                    {own: info(breaker.ForcedOpen, 0, 0, 0), want: Unhealthy, breaker: "open", reasons: "breaker_open"},
		"forced closed":                  {own: info(breaker.ForcedClosed, 10, 10, 0), want: Degraded, breaker: "closed", rate: 100, reasons: "failure_rate"},
		"the upstream is open":           {own: info(breaker.Closed, 10, 0, 0), upstream: info(breaker.Open, 0, 0, 0), want: Unhealthy, breaker: "closed", reasons: "upstream_breaker_open"},
		"the upstream is half open":      {upstream: info(breaker.HalfOpen, 0, 0, 0), want: Degraded, breaker: "closed", reasons: "upstream_breaker_half_open"},
		"the upstream is closed":         {upstream: info(breaker.Closed, 10, 10, 0), want: Unknown, breaker: "closed"},
	} {
		h := of("a.b", c.own, c.upstream, c.probe)
		if h.ToolID != "a.b" || h.Status != c.want || h.Breaker != c.breaker || h.ErrorRate != c.rate || strings.Join(h.Metadata.Reasons, " ") != c.reasons {
			t.Errorf("%s: %+v", name, h)
		}
		if shown := h.Metadata.Upstream != nil; shown != (c.upstream != nil && c.upstream.State != breaker.Closed) {
			t.Errorf("%s: the upstream's breaker is %+v", name, h.Metadata.Upstream)
		}
		raw, err := json.Marshal(h)
		if err != nil || strings.Contains(string(raw), "last_check_time") != !h.LastCheck.IsZero() {
			t.Errorf("%s: %s, %v", name, raw, err)
		}
	}
	if h := of("a.b", opened, nil, nil); h.Latency != 30 || !h.LastCheck.Equal(at) {
		t.Errorf("of an open breaker: %+v", h)
	}
	if h := of("a.b", info(breaker.Closed, 1, 0, 0), nil, down); h.Latency != 12 || !h.LastCheck.Equal(down.At) {
		t.Errorf("the last check is that of %s", h.LastCheck)
	}
}

// executor is one of a kind.
type executor struct{ kind string }

func (e executor) Kind() string                            { return e.kind }
func (executor) Check(*toolkeep.Manifest) []toolkeep.Fault { return nil }
func (executor) Execute(context.Context, *toolkeep.Execution) (*toolkeep.Output, error) {
	return nil, nil
}

type networked struct{ executor }

func (networked) UpstreamOf(*toolkeep.Principal, *toolkeep.Tool) string { return "" }

func TestCheck(t *testing.T) {
	t.Parallel()
	up := &toolkeep.HealthSpec{Endpoint: "/up", IntervalS: 1}
	for name, c := range map[string]struct {
		health *toolkeep.HealthSpec
		ex     toolkeep.Executor
		want   []string
	}{
		"none":            {nil, executor{"file"}, nil},
		"no endpoint":     {&toolkeep.HealthSpec{IntervalS: 5}, executor{"file"}, nil},
		"a network":       {up, networked{executor{"http"}}, nil},
		"no network":      {up, executor{"file"}, []string{"/health/endpoint"}},
		"a long interval": {&toolkeep.HealthSpec{Endpoint: "/up", IntervalS: MaxInterval + 1}, networked{executor{"http"}}, []string{"/health/interval_s"}},
	} {
		var at []string
		for _, f := range Check(&toolkeep.Manifest{Health: c.health}, c.ex, &prober{}) {
			at = append(at, f.Pointer)
		}
		if !slices.Equal(at, c.want) {
			t.Errorf("%s: faults at %q, want %q", name, at, c.want)
		}
	}
}
