package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/toolkeep/toolkeep"
)

func newMetrics(t testing.TB, c MetricsConfig) *Metrics {
	t.Helper()
	m, err := NewMetrics(c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func compare(t *testing.T, m *Metrics, want string, names ...string) {
	t.Helper()
	if err := testutil.GatherAndCompare(m.Registry(), strings.NewReader(want), names...); err != nil {
		t.Fatal(err)
	}
}

func TestMetricsOfCalls(t *testing.T) {
	m := newMetrics(t, MetricsConfig{Cache: func() CacheStats {
		return CacheStats{Hits: 1, Misses: 3, Evictions: map[string]int64{"ttl_expired": 2}}
	}})
	refused := func(code toolkeep.Code) *toolkeep.Invocation {
		return call(func(v *toolkeep.Invocation) { v.State, v.Code, v.ToolUS, v.CostUSD = toolkeep.CallRefused, code, 0, 0 })
	}
	m.Called(call(func(v *toolkeep.Invocation) { v.Missed = true }), tool(), nil, durations())
	m.Called(call(func(v *toolkeep.Invocation) { v.Attempts = 3 }), tool(), nil, durations())
	m.Called(call(func(v *toolkeep.Invocation) { v.Cached, v.CostUSD = true, 0 }), tool(), nil, nil)
	m.Called(call(func(v *toolkeep.Invocation) { v.Replayed = true }), tool(), nil, nil)
	m.Called(call(func(v *toolkeep.Invocation) { v.State, v.CostUSD = toolkeep.CallQueued, 0 }), tool(), nil, nil)
	m.Called(call(func(v *toolkeep.Invocation) { v.State, v.Code, v.CostUSD = toolkeep.CallFailed, toolkeep.Timeout, 0 }), tool(), nil, nil)
	m.Called(refused(toolkeep.PermissionDenied), tool(), nil, nil)
	m.Called(refused(toolkeep.ToolNotFound), nil, nil, nil)
	m.Called(refused(toolkeep.RateLimitExceeded), tool(), toolkeep.NewError(toolkeep.RateLimitExceeded, "x").With("limit_type", "agent_tool"), nil)
	m.Called(refused(toolkeep.RateLimitExceeded), tool(), toolkeep.NewError(toolkeep.RateLimitExceeded, "x").With("limit_type", "made up"), nil)
	m.Called(refused(toolkeep.ConcurrencyLimitExceeded), tool(), nil, nil)
	m.AuthFailed(toolkeep.Unauthenticated)

	compare(t, m, `
# HELP tool_invocation_total Calls by tool and BC-2 status; tool_id is empty where no tool was found.
# TYPE tool_invocation_total counter
tool_invocation_total{status="error",tool_id=""} 1
tool_invocation_total{status="error",tool_id="clock.now"} 3
tool_invocation_total{status="pending",tool_id="clock.now"} 1
tool_invocation_total{status="permission_denied",tool_id="clock.now"} 1
tool_invocation_total{status="success",tool_id="clock.now"} 4
tool_invocation_total{status="timeout",tool_id="clock.now"} 1
# HELP tool_cost_usd_total US dollars that calls of the tool cost.
# TYPE tool_cost_usd_total counter
tool_cost_usd_total{tool_id="clock.now"} 0.002
# HELP tool_retries_total Attempts after the first one.
# TYPE tool_retries_total counter
tool_retries_total 2
# HELP tool_timeout_total Calls that ended in a timeout.
# TYPE tool_timeout_total counter
tool_timeout_total 1
# HELP tool_auth_failures_total Requests refused by authentication or authorisation, by the name of the error.
# TYPE tool_auth_failures_total counter
tool_auth_failures_total{reason="permission_denied"} 1
tool_auth_failures_total{reason="unauthenticated"} 1
# HELP tool_rate_limit_exceeded_total Calls and other requests refused for load, by the limit that refused; upstream: it answered that it gets too many.
# TYPE tool_rate_limit_exceeded_total counter
tool_rate_limit_exceeded_total{limit_type="agent_tool"} 1
tool_rate_limit_exceeded_total{limit_type="concurrency"} 1
tool_rate_limit_exceeded_total{limit_type="upstream"} 1
# HELP tool_cache_corruptions_total Cached results that did not match their checksum and were dropped.
# TYPE tool_cache_corruptions_total counter
tool_cache_corruptions_total 0
# HELP tool_cache_hits_total Calls of the tool that the result cache answered; their share of these and tool_cache_misses_total is the tool's hit rate.
# TYPE tool_cache_hits_total counter
tool_cache_hits_total{tool_id="clock.now"} 1
# HELP tool_cache_misses_total Calls of the tool that the result cache was asked for and did not answer; refused ones and those that did not ask it are not in it.
# TYPE tool_cache_misses_total counter
tool_cache_misses_total{tool_id="clock.now"} 1
# HELP tool_cache_evictions_total Results that left the cache, by reason.
# TYPE tool_cache_evictions_total counter
tool_cache_evictions_total{eviction_reason="ttl_expired"} 2
# HELP tool_cache_hit_rate Share of the look-ups that the result cache answered, since the start.
# TYPE tool_cache_hit_rate gauge
tool_cache_hit_rate 0.25
`, "tool_invocation_total", "tool_cost_usd_total", "tool_retries_total", "tool_timeout_total", "tool_auth_failures_total",
		"tool_rate_limit_exceeded_total", "tool_cache_corruptions_total", "tool_cache_hits_total", "tool_cache_misses_total", "tool_cache_evictions_total", "tool_cache_hit_rate")

	body := scrape(t, m)
	for _, want := range []string{
		`tool_invocation_duration_ms_count{category="time"} 8`, // all that ended under their tool, except the replayed one
		`tool_invocation_duration_ms_count{category=""} 1`,
		`tool_step_duration_ms_count{step="authorise"} 2`,
		`tool_step_duration_ms_count{step="record"} 0`,
		"tool_overhead_duration_ms_count 9",
		"go_goroutines ", "process_start_time_seconds ",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in\n%s", want, body)
		}
	}
}

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	srv := httptest.NewServer(m.Handler())
	defer srv.Close()
	res, err := srv.Client().Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%d %v", res.StatusCode, err)
	}
	return string(body)
}

func TestSeriesLimit(t *testing.T) {
	m := newMetrics(t, MetricsConfig{MaxTools: 2, maxCategories: 1})
	for i := range 4 {
		tl := tool()
		tl.ID = fmt.Sprintf("x.t%d", i)
		m.Called(call(func(v *toolkeep.Invocation) { v.ToolID, v.Category = tl.ID, fmt.Sprint("c", i) }), tl, nil, nil)
		m.Called(call(func(v *toolkeep.Invocation) { v.ToolID, v.Category = tl.ID, "c0" }), tl, nil, nil)
	}
	// A caller can name unknown tools as often as it likes.
	for i := range 10 {
		m.Called(call(func(v *toolkeep.Invocation) {
			v.ToolID, v.State, v.Code, v.CostUSD = fmt.Sprint("made.up", i), toolkeep.CallRefused, toolkeep.ToolNotFound, 0
		}), nil, nil, nil)
	}
	compare(t, m, `
# HELP tool_invocation_total Calls by tool and BC-2 status; tool_id is empty where no tool was found.
# TYPE tool_invocation_total counter
tool_invocation_total{status="error",tool_id=""} 10
tool_invocation_total{status="success",tool_id="x.t0"} 2
tool_invocation_total{status="success",tool_id="x.t1"} 2
# HELP tool_metric_series_dropped_total Observations dropped because the metric had reached its limit of series.
# TYPE tool_metric_series_dropped_total counter
tool_metric_series_dropped_total{metric="tool_cost_usd_total"} 4
tool_metric_series_dropped_total{metric="tool_invocation_duration_ms"} 3
tool_metric_series_dropped_total{metric="tool_invocation_total"} 4
`, "tool_invocation_total", "tool_metric_series_dropped_total")
}

func TestQueueDepthAndSamples(t *testing.T) {
	var err error
	m := newMetrics(t, MetricsConfig{
		QueueDepth: func(context.Context) (map[toolkeep.Priority]int, error) {
			return map[toolkeep.Priority]int{toolkeep.High: 2, toolkeep.Low: 1}, err
		},
		Samples: []func() []Sample{func() []Sample {
			return []Sample{{Name: "toolkeep_store_wal_bytes", Help: "Bytes.", Value: 7},
				{Name: "toolkeep_store_commits_total", Help: "Commits.", Counter: true, Value: 3}}
		}},
	})
	want := `
# HELP tool_queue_depth Calls that wait for a worker, by priority.
# TYPE tool_queue_depth gauge
tool_queue_depth{priority="high"} 2
tool_queue_depth{priority="low"} 1
tool_queue_depth{priority="normal"} 0
`
	samples := `
# HELP toolkeep_store_commits_total Commits.
# TYPE toolkeep_store_commits_total counter
toolkeep_store_commits_total 3
# HELP toolkeep_store_wal_bytes Bytes.
# TYPE toolkeep_store_wal_bytes gauge
toolkeep_store_wal_bytes 7
`
	names := []string{"tool_queue_depth", "toolkeep_store_commits_total", "toolkeep_store_wal_bytes"}
	compare(t, m, want+samples, names...)
	err = errors.New("the store is down")
	compare(t, m, samples, names...)
}

func TestBadSampleHidesNothingElse(t *testing.T) {
	m := newMetrics(t, MetricsConfig{Samples: []func() []Sample{func() []Sample {
		return []Sample{{Name: "twice_total", Help: "x", Counter: true}, {Name: "twice_total", Help: "x", Counter: true}, {Name: "", Help: "x"}}
	}}})
	if body := scrape(t, m); !strings.Contains(body, "tool_retries_total 0") {
		t.Fatal(body)
	}
}

// contractNames are fixed by contracts/wire.md, so the linter does not apply.
var contractNames = map[string]bool{"tool_invocation_duration_ms": true, "tool_overhead_duration_ms": true, "tool_step_duration_ms": true}

func TestNamesPassTheLinter(t *testing.T) {
	l := NewLog(LogConfig{Out: io.Discard})
	m := newMetrics(t, MetricsConfig{Samples: []func() []Sample{l.Samples},
		QueueDepth: func(context.Context) (map[toolkeep.Priority]int, error) { return nil, nil },
		Cache:      func() CacheStats { return CacheStats{Evictions: map[string]int64{"ttl_expired": 2}} }})
	m.Called(call(nil), tool(), nil, durations())
	m.AuthFailed(toolkeep.Unauthenticated)
	problems, err := testutil.GatherAndLint(m.Registry())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if !contractNames[p.Metric] {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

func TestRegistryTakesMore(t *testing.T) {
	m := newMetrics(t, MetricsConfig{})
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "more_total", Help: "x"})
	if err := m.Registry().Register(c); err != nil {
		t.Fatal(err)
	}
}

func TestMetricsHammer(t *testing.T) {
	m := newMetrics(t, MetricsConfig{MaxTools: 20, maxCategories: 5})
	o := &Observer{Metrics: m, Log: NewLog(LogConfig{Out: io.Discard})}
	const workers, each = 8, 300
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range each {
				tl := tool()
				tl.ID = fmt.Sprint("x.t", i%30)
				o.Called(call(func(v *toolkeep.Invocation) { v.ToolID, v.Category = tl.ID, fmt.Sprint(i%7) }), tl, nil, durations())
			}
		})
	}
	wg.Go(func() {
		for range 10 {
			if _, err := m.Registry().Gather(); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	all := 0.0
	for name, families := range map[string]*prometheus.CounterVec{"calls": m.calls, "dropped": m.dropped} {
		ch := make(chan prometheus.Metric, 1000)
		families.Collect(ch)
		close(ch)
		for c := range ch {
			if name == "calls" || strings.Contains(c.Desc().String(), "dropped") && hasLabel(c, "tool_invocation_total") {
				all += value(c)
			}
		}
	}
	if all != workers*each {
		t.Fatalf("counted %v of %d calls", all, workers*each)
	}
}

func BenchmarkObserver(b *testing.B) {
	l := NewLog(LogConfig{Out: io.Discard})
	l.Start()
	defer l.Stop()
	o := &Observer{Metrics: newMetrics(b, MetricsConfig{}), Log: l}
	d := durations()
	for i := range d {
		d[i] = time.Duration(i+1) * time.Microsecond
	}
	v, tl := call(nil), tool()
	b.ReportAllocs()
	for b.Loop() {
		o.Called(v, tl, nil, d)
	}
}

// TestADependencyAway: a call refused because the context service did not respond is an
// error, not an authorisation failure.
func TestADependencyAway(t *testing.T) {
	m := newMetrics(t, MetricsConfig{})
	v := call(func(v *toolkeep.Invocation) {
		v.State, v.Code, v.ToolUS, v.CostUSD = toolkeep.CallRefused, toolkeep.PolicyEngineUnavailable, 0, 0
	})
	m.Called(v, tool(), nil, nil)
	compare(t, m, `
# HELP tool_invocation_total Calls by tool and BC-2 status; tool_id is empty where no tool was found.
# TYPE tool_invocation_total counter
tool_invocation_total{status="error",tool_id="clock.now"} 1
`, "tool_invocation_total", "tool_auth_failures_total")
	if x := oneLine(t, LogConfig{}, v, nil)["execution"].(map[string]any); x["status"] != "error" || x["state"] != "refused" {
		t.Errorf("execution %v", x)
	}
}
