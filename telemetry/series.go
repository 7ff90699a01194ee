package telemetry

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/toolkeep/toolkeep"
)

// series finds the metrics of a label value without building label strings, and refuses
// new values above a limit. Looking up a known value takes no lock.
type series[V any] struct {
	max  int
	make func(name string) V

	known sync.Map // string -> V
	mu    sync.Mutex
	count int
}

func (s *series[V]) get(name string) (V, bool) {
	if v, ok := s.known.Load(name); ok {
		return v.(V), true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := s.known.Load(name); ok {
		return v.(V), true
	}
	// The empty name is the gateway's own and always has a place.
	if s.count >= s.max && name != "" {
		var none V
		return none, false
	}
	v := s.make(name)
	s.known.Store(name, v)
	if name != "" {
		s.count++
	}
	return v, true
}

// statuses lists those of BC-2; a status is counted by its index here.
var statuses = [...]string{"pending", "pending_approval", "running", "success", "error", "timeout", "cancelled", "permission_denied"}

// statusOf returns the BC-2 status, except that an unavailable dependency is an error:
// as permission_denied it would point the operator at a caller who did nothing.
func statusOf(v *toolkeep.Invocation) int {
	s := v.State.BC2(v.Code)
	if v.Code.Away() {
		s = "error"
	}
	for i := range statuses {
		if statuses[i] == s {
			return i
		}
	}
	return 4 // error
}

// toolSeries holds the metrics of one tool, each created on first use.
type toolSeries struct {
	m       *Metrics
	id      string
	byState [len(statuses)]atomic.Pointer[prometheus.Counter]
	cost    atomic.Pointer[prometheus.Counter]
	cached  atomic.Pointer[prometheus.Counter]
	missed  atomic.Pointer[prometheus.Counter]
}

func (m *Metrics) newToolSeries(id string) *toolSeries { return &toolSeries{m: m, id: id} }

func (s *toolSeries) call(status int) prometheus.Counter {
	return once(&s.byState[status], func() prometheus.Counter {
		return s.m.calls.WithLabelValues(s.id, statuses[status])
	})
}

func (s *toolSeries) spent() prometheus.Counter {
	return once(&s.cost, func() prometheus.Counter { return s.m.cost.WithLabelValues(s.id) })
}

func (s *toolSeries) hit() prometheus.Counter {
	return once(&s.cached, func() prometheus.Counter { return s.m.cacheHits.WithLabelValues(s.id) })
}

func (s *toolSeries) miss() prometheus.Counter {
	return once(&s.missed, func() prometheus.Counter { return s.m.cacheMiss.WithLabelValues(s.id) })
}

// once may create the counter twice under a race; the vector returns the same one.
func once(p *atomic.Pointer[prometheus.Counter], make func() prometheus.Counter) prometheus.Counter {
	if c := p.Load(); c != nil {
		return *c
	}
	c := make()
	p.Store(&c)
	return c
}

// queueCollector reads the queue's depth at every scrape.
type queueCollector struct {
	ask func(ctx context.Context) (map[toolkeep.Priority]int, error)
}

const queueAskLimit = 500 * time.Millisecond

func queueDesc() *prometheus.Desc {
	return prometheus.NewDesc("tool_queue_depth", "Calls that wait for a worker, by priority.", []string{"priority"}, nil)
}

func (q *queueCollector) Describe(ch chan<- *prometheus.Desc) { ch <- queueDesc() }

func (q *queueCollector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), queueAskLimit)
	defer cancel()
	depth, err := q.ask(ctx)
	if err != nil {
		return // an omitted metric means that the depth is unknown
	}
	for _, p := range []toolkeep.Priority{toolkeep.High, toolkeep.Normal, toolkeep.Low} {
		ch <- prometheus.MustNewConstMetric(queueDesc(), prometheus.GaugeValue, float64(depth[p]), string(p))
	}
}

// cacheCollector reads the result cache's counts at every scrape.
type cacheCollector struct{ ask func() CacheStats }

func hitRateDesc() *prometheus.Desc {
	return prometheus.NewDesc("tool_cache_hit_rate", "Share of the look-ups that the result cache answered, since the start.", nil, nil)
}

func evictionsDesc() *prometheus.Desc {
	return prometheus.NewDesc("tool_cache_evictions_total", "Results that left the cache, by reason.", []string{"eviction_reason"}, nil)
}

func corruptionsDesc() *prometheus.Desc {
	return prometheus.NewDesc("tool_cache_corruptions_total", "Cached results that did not match their checksum and were dropped.", nil, nil)
}

func (c *cacheCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- corruptionsDesc()
	ch <- hitRateDesc()
	ch <- evictionsDesc()
}

func (c *cacheCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.ask()
	rate := 0.0
	if all := s.Hits + s.Misses; all > 0 {
		rate = float64(s.Hits) / float64(all)
	}
	ch <- prometheus.MustNewConstMetric(hitRateDesc(), prometheus.GaugeValue, rate)
	ch <- prometheus.MustNewConstMetric(corruptionsDesc(), prometheus.CounterValue, float64(s.Corruptions))
	for reason, n := range s.Evictions {
		ch <- prometheus.MustNewConstMetric(evictionsDesc(), prometheus.CounterValue, float64(n), reason)
	}
}

// sampleCollector exposes numbers counted by other parts. It describes nothing in
// advance, since the names are not known.
type sampleCollector struct{ ask []func() []Sample }

func (*sampleCollector) Describe(chan<- *prometheus.Desc) {}

func (s *sampleCollector) Collect(ch chan<- prometheus.Metric) {
	for _, ask := range s.ask {
		for _, one := range ask() {
			desc := prometheus.NewDesc(one.Name, one.Help, nil, nil)
			kind := prometheus.GaugeValue
			if one.Counter {
				kind = prometheus.CounterValue
			}
			metric, err := prometheus.NewConstMetric(desc, kind, one.Value)
			if err != nil {
				metric = prometheus.NewInvalidMetric(desc, err)
			}
			ch <- metric
		}
	}
}
