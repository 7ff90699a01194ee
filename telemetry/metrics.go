package telemetry

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/control/health"
	"github.com/toolkeep/toolkeep/control/overview"
	"github.com/toolkeep/toolkeep/limit/breaker"
	"github.com/toolkeep/toolkeep/limit/bulkhead"
)

// MetricsConfig configures Metrics. The zero value works.
type MetricsConfig struct {
	Service, Version string // labels of toolkeep_build_info
	// MaxTools is the number of tool ids with their own series; default 10,000. Metrics
	// of further ones are dropped and counted in tool_metric_series_dropped_total.
	MaxTools int
	// maxCategories is the same for categories; default 1,000.
	maxCategories int
	// QueueDepth counts waiting calls; called at every scrape, with half a second at
	// most. nil omits tool_queue_depth.
	QueueDepth func(ctx context.Context) (map[toolkeep.Priority]int, error)
	// Cache returns the result cache's counts; called at every scrape. nil omits
	// tool_cache_hit_rate and tool_cache_evictions_total.
	Cache func() CacheStats
	// Breakers returns the circuit breakers that have been open; called at every scrape. nil omits their metrics.
	Breakers func() []breaker.Info
	// Bulkheads returns what the bulkheads do; called at every scrape. nil omits their metrics.
	Bulkheads func() []bulkhead.Stat
	// Health returns the health of the tools that are probed or whose breakers have been open; called at every scrape. nil omits
	// tool_health.
	Health func() []health.Health
	// Samples are called at every scrape and must not block.
	Samples []func() []Sample
}

// CacheStats counts since the start.
type CacheStats struct {
	Hits, Misses int64
	Evictions    map[string]int64 // by reason; a small fixed set
	Corruptions  int64
}

// Sample is a number counted by another part, such as the store.
type Sample struct {
	Name    string // Prometheus name
	Help    string
	Counter bool // only increases; otherwise a gauge
	Value   float64
}

// Metrics counts calls under the Prometheus names of contracts/wire.md.
type Metrics struct {
	// Recent has the counts of the last hours by tenant, of which Prometheus knows nothing.
	Recent *overview.Recent

	registry *prometheus.Registry

	calls      *prometheus.CounterVec
	cost       *prometheus.CounterVec
	cacheHits  *prometheus.CounterVec
	cacheMiss  *prometheus.CounterVec
	duration   *prometheus.HistogramVec
	limited    *prometheus.CounterVec
	authFailed *prometheus.CounterVec
	dropped    *prometheus.CounterVec
	rotations  *prometheus.CounterVec
	retries    prometheus.Counter
	timeouts   prometheus.Counter
	overhead   prometheus.Observer
	steps      [len(StepNames)]prometheus.Observer

	tools      series[*toolSeries]
	categories series[prometheus.Observer]
}

// NewMetrics returns Metrics with its own registry, including Go and process metrics.
func NewMetrics(c MetricsConfig) (*Metrics, error) {
	if c.MaxTools == 0 {
		c.MaxTools = 10_000
	}
	if c.maxCategories == 0 {
		c.maxCategories = 1_000
	}
	m := &Metrics{Recent: overview.NewRecent(time.Now()), registry: prometheus.NewRegistry()}
	m.define()
	m.tools = series[*toolSeries]{max: c.MaxTools, make: m.newToolSeries}
	m.categories = series[prometheus.Observer]{max: c.maxCategories,
		make: func(name string) prometheus.Observer { return m.duration.WithLabelValues(name) }}

	overhead := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "tool_overhead_duration_ms",
		Help: "Milliseconds of a call outside of its tool.", Buckets: overheadBuckets})
	steps := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "tool_step_duration_ms",
		Help: "Milliseconds of one step of a call.", Buckets: stepBuckets}, []string{"step"})
	m.overhead = overhead
	for i, name := range StepNames {
		m.steps[i] = steps.WithLabelValues(name)
	}

	all := []prometheus.Collector{m.calls, m.cost, m.cacheHits, m.cacheMiss, m.duration, m.limited, m.authFailed, m.dropped, m.rotations,
		m.retries, m.timeouts, overhead, steps,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})}
	all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "toolkeep_build_info",
		Help: "1; the labels say what runs.", ConstLabels: prometheus.Labels{"service": c.Service, "version": c.Version}},
		func() float64 { return 1 }))
	if c.QueueDepth != nil {
		all = append(all, &queueCollector{ask: c.QueueDepth})
	}
	if c.Cache != nil {
		all = append(all, &cacheCollector{ask: c.Cache})
	}
	if c.Breakers != nil {
		all = append(all, newBreakerCollector(c.Breakers, c.MaxTools, m.dropped))
	}
	if c.Bulkheads != nil {
		all = append(all, bulkheadCollector(c.Bulkheads))
	}
	if c.Health != nil {
		all = append(all, newToolHealthCollector(c.Health, c.MaxTools, m.dropped))
	}
	if len(c.Samples) > 0 {
		all = append(all, &sampleCollector{ask: c.Samples})
	}
	for _, col := range all {
		if err := m.registry.Register(col); err != nil {
			return nil, err
		}
	}
	return m, nil
}

var (
	durationBuckets = []float64{1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000}
	overheadBuckets = []float64{0.05, 0.1, 0.2, 0.3, 0.5, 1, 2, 5, 10, 25, 50, 100, 200, 1000}
	stepBuckets     = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 50, 250, 1000, 10_000}
)

func (m *Metrics) define() {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m.calls = counter("tool_invocation_total", "Calls by tool and BC-2 status; tool_id is empty where no tool was found.", "tool_id", "status")
	m.cost = counter("tool_cost_usd_total", "US dollars that calls of the tool cost.", "tool_id")
	m.cacheHits = counter("tool_cache_hits_total", "Calls of the tool that the result cache answered; their share of these and tool_cache_misses_total is the tool's hit rate.", "tool_id")
	m.cacheMiss = counter("tool_cache_misses_total", "Calls of the tool that the result cache was asked for and did not answer; refused ones and those that did not ask it are not in it.", "tool_id")
	m.duration = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "tool_invocation_duration_ms",
		Help: "Milliseconds of a whole call, by the tool's category.", Buckets: durationBuckets}, []string{"category"})
	m.limited = counter("tool_rate_limit_exceeded_total", "Calls and other requests refused for load, by the limit that refused; upstream: it answered that it gets too many.", "limit_type")
	m.authFailed = counter("tool_auth_failures_total", "Requests refused by authentication or authorisation, by the name of the error.", "reason")
	m.dropped = counter("tool_metric_series_dropped_total", "Observations dropped because the metric had reached its limit of series.", "metric")
	m.rotations = counter("tool_secret_rotation_total", "Secrets that took the place of others: success when stored, failure when they could not be, picked_up when a call saw another version than the one before it.", "status")
	for _, status := range []string{Rotated, NotRotated, "picked_up"} {
		m.rotations.WithLabelValues(status)
	}
	m.retries = prometheus.NewCounter(prometheus.CounterOpts{Name: "tool_retries_total", Help: "Attempts after the first one."})
	m.timeouts = prometheus.NewCounter(prometheus.CounterOpts{Name: "tool_timeout_total", Help: "Calls that ended in a timeout."})
}

// Handler serves the metrics in the Prometheus text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorHandling:       promhttp.ContinueOnError, // a failing collector hides no other
		MaxRequestsInFlight: 4,
		Timeout:             10 * time.Second,
	})
}

// Server serves the metrics at /metrics, and the probes for those that have no client
// certificate.
func (m *Metrics) Server(h *Health) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m.Handler())
	h.register(mux)
	return &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: 60 * time.Second, IdleTimeout: 2 * time.Minute}
}

// Registry returns the registry, for the collectors of other parts.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// Called counts one call; see Observer.
func (m *Metrics) Called(v *toolkeep.Invocation, t *toolkeep.Tool, e *toolkeep.Error, durations []time.Duration) {
	m.countCall(v, t)
	if v.Attempts > 1 && !v.Replayed {
		m.retries.Add(float64(v.Attempts - 1))
	}
	m.countError(v, e)
	m.Recent.Called(v, e)
	for i, d := range durations {
		if d > 0 && i < len(m.steps) {
			m.steps[i].Observe(milliseconds(d))
		}
	}
}

func (m *Metrics) countCall(v *toolkeep.Invocation, t *toolkeep.Tool) {
	id, category := "", ""
	if t != nil {
		id, category = t.ID, v.Category
	}
	s, ok := m.tools.get(id)
	if !ok {
		m.dropped.WithLabelValues("tool_invocation_total").Inc()
	} else {
		s.call(statusOf(v)).Inc()
		if v.Cached {
			s.hit().Inc()
		}
		if v.Missed {
			s.miss().Inc()
		}
	}
	if v.CostUSD > 0 && !v.Replayed {
		if ok {
			s.spent().Add(v.CostUSD)
		} else {
			m.dropped.WithLabelValues("tool_cost_usd_total").Inc()
		}
	}
	if !v.State.Ended() || v.Replayed {
		return // a waiting call's time is counted at its end, and a cached result took none
	}
	if h, ok := m.categories.get(category); ok {
		h.Observe(float64(v.TotalUS) / 1000)
	} else {
		m.dropped.WithLabelValues("tool_invocation_duration_ms").Inc()
	}
	if over := v.TotalUS - v.ToolUS; over > 0 {
		m.overhead.Observe(float64(over) / 1000)
	}
}

func (m *Metrics) countError(v *toolkeep.Invocation, e *toolkeep.Error) {
	if v.Code == "" || v.Replayed {
		return
	}
	info := v.Code.Info()
	switch {
	case v.Code == toolkeep.RateLimitExceeded || v.Code == toolkeep.ConcurrencyLimitExceeded:
		m.limited.WithLabelValues(limitType(v.Code, e)).Inc()
	case info.BC6 == "UNAUTHORIZED" && info.Kind == toolkeep.KindRefusal && !v.Code.Away():
		m.AuthFailed(v.Code)
	case info.BC6 == "TIMEOUT":
		m.timeouts.Inc()
	}
}

// Limited counts a request of the principal that is no call, such as a list or a search, and was refused by a limit.
func (m *Metrics) Limited(pr *toolkeep.Principal, e *toolkeep.Error) {
	m.Recent.Limited(pr, e)
	m.limited.WithLabelValues(limitType(e.Code, e)).Inc()
}

// AuthFailed counts a request refused before it became a call, such as one without a
// valid key.
func (m *Metrics) AuthFailed(c toolkeep.Code) {
	m.authFailed.WithLabelValues(c.Info().Name).Inc()
}

// Unauthenticated counts a request that could not authenticate, by the reason of an
// access.Failure. What was denied is counted by its record.
func (m *Metrics) Unauthenticated(reason string) {
	switch {
	case m == nil || reason == "denied": // nil: nothing is counted before there are metrics
	case reason == "blocked":
		m.AuthFailed(toolkeep.AuthFailuresLimited)
	default:
		m.AuthFailed(toolkeep.Unauthenticated)
	}
}

// Statuses of SecretRotated beside picked_up.
const (
	Rotated    = "success"
	NotRotated = "failure"
)

// SecretRotated counts a secret that took, or could not take, the place of another.
func (m *Metrics) SecretRotated(status string) {
	if m != nil {
		m.rotations.WithLabelValues(status).Inc()
	}
}

// limitType returns the label of a limit refusal, from a fixed set.
func limitType(c toolkeep.Code, e *toolkeep.Error) string {
	kind := ""
	if e != nil {
		kind, _ = e.Details["limit_type"].(string)
	}
	if c == toolkeep.ConcurrencyLimitExceeded {
		return "concurrency"
	}
	switch kind {
	case "agent", "agent_tool", "tool", "tenant", "global", "context":
		return kind
	case "upstream":
		return "upstream_limit" // limits.upstream_per_minute
	}
	return "upstream" // the tool's own upstream responded 429
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
