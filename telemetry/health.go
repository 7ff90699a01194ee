package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Component is a part of the node with a health check.
type Component struct {
	Name string
	// Required parts make the node not ready while they are down; others only degrade
	// it.
	Required bool
	// Grace is how long a required part may be down before the node is not ready.
	Grace time.Duration
	// Check returns the problem, nil if there is none. It has half a second.
	Check func(ctx context.Context) error
	// Details is what anybody may see of the part, as JSON: no names, no places; it must not block. Nil shows none.
	Details func() any
}

// HealthConfig configures Health.
type HealthConfig struct {
	Version string // of the program
	// keep is how long check results are reused, so that probes from outside cannot
	// load the parts; default 500 ms. With the limit of a check, what goes down is shown within a second.
	keep  time.Duration
	Log   *slog.Logger // logs when a part goes down or recovers, and why; default discards
	Clock func() time.Time
}

// States of the node and of a component.
const (
	Up       = "UP"
	Down     = "DOWN"
	Degraded = "DEGRADED"
)

const checkLimit = 500 * time.Millisecond

// Health serves the probes of contracts/wire.md. Responses list the components and
// their states; why one is down is in the log.
type Health struct {
	version  string
	keep     time.Duration
	log      *slog.Logger
	clock    func() time.Time
	started  atomic.Bool
	draining atomic.Bool
	again    atomic.Bool

	mu    sync.Mutex // held while the checks run: concurrent probes share them
	parts []*part
	last  time.Time
}

type part struct {
	Component
	busy    atomic.Bool // a check that exceeded its time is still running
	status  string
	latency time.Duration
	since   time.Time // down since
}

// NewHealth returns a Health that is neither started nor draining.
func NewHealth(c HealthConfig) *Health {
	if c.keep == 0 {
		c.keep = 500 * time.Millisecond
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	return &Health{version: c.Version, keep: c.keep, log: c.Log, clock: c.Clock}
}

// Add adds a component; call it before the first probe.
func (h *Health) Add(c Component) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.parts = append(h.parts, &part{Component: c, status: Up})
}

// Recheck makes the next probe run the checks.
func (h *Health) Recheck() { h.again.Store(true) }

// SetStarted marks the node as started.
func (h *Health) SetStarted() { h.started.Store(true) }

// SetDraining marks the node as accepting no more calls.
func (h *Health) SetDraining() { h.draining.Store(true) }

// Draining reports whether SetDraining was called.
func (h *Health) Draining() bool { return h.draining.Load() }

// Handler serves only the probes.
func (h *Health) Handler() http.Handler {
	mux := http.NewServeMux()
	h.register(mux)
	return mux
}

// register adds the probes and their aliases to a mux.
func (h *Health) register(mux *http.ServeMux) {
	for path, probe := range map[string]func(context.Context) (report, bool){
		"/health/startup": h.startup, "/health/live": h.live,
		"/health/ready": h.ready, "/health": h.ready, "/ready": h.ready,
	} {
		mux.Handle("GET "+path, h.serve(probe))
	}
}

type report struct {
	Status     string               `json:"status"`
	Timestamp  string               `json:"timestamp"`
	Version    string               `json:"version"`
	Components map[string]component `json:"components"`
}

type component struct {
	Status    string  `json:"status"`
	LatencyMS float64 `json:"latency_ms"`
	Details   any     `json:"details,omitempty"`
}

func (h *Health) serve(probe func(context.Context) (report, bool)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rep, ok := probe(r.Context())
		rep.Timestamp, rep.Version = h.clock().UTC().Format(stampFormat), h.version
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		if !ok {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		// An error here is the prober's connection.
		_ = jsonv2.MarshalWrite(w, rep, jsonv2.Deterministic(true), jsontext.Multiline(false))
	})
}

// live reports that the process responds.
func (h *Health) live(context.Context) (report, bool) {
	return report{Status: Up, Components: map[string]component{}}, true
}

func (h *Health) startup(context.Context) (report, bool) {
	if !h.started.Load() {
		return report{Status: Down, Components: map[string]component{}}, false
	}
	return report{Status: Up, Components: map[string]component{}}, true
}

// Ready reports the result of the readiness probe.
func (h *Health) Ready(ctx context.Context) bool {
	_, ok := h.ready(ctx)
	return ok
}

// ready reports whether the node should receive calls.
func (h *Health) ready(context.Context) (report, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.clock()
	if h.again.Swap(false) || h.last.IsZero() || now.Sub(h.last) >= h.keep || now.Before(h.last) {
		h.check(now)
		h.last = now
	}
	rep := report{Status: Up, Components: make(map[string]component, len(h.parts))}
	ok := h.started.Load() && !h.draining.Load()
	for _, p := range h.parts {
		c := component{Status: p.status, LatencyMS: milliseconds(p.latency.Round(time.Microsecond))}
		if p.Details != nil {
			c.Details = p.Details()
		}
		rep.Components[p.Name] = c
		if p.status == Up {
			continue
		}
		rep.Status = Degraded
		if p.Required && now.Sub(p.since) >= p.Grace {
			ok = false
		}
	}
	if !ok {
		rep.Status = Down
	}
	return rep, ok
}

// check runs all checks concurrently. It does not use the prober's context: others
// reuse the result.
func (h *Health) check(now time.Time) {
	ctx, cancel := context.WithTimeout(context.Background(), checkLimit)
	defer cancel()
	var wg sync.WaitGroup
	errs := make([]error, len(h.parts))
	for i, p := range h.parts {
		wg.Go(func() { p.latency, errs[i] = p.ask(ctx, h.clock) })
	}
	wg.Wait()
	for i, p := range h.parts {
		h.note(p, errs[i], now)
	}
}

func (h *Health) note(p *part, err error, now time.Time) {
	switch {
	case err != nil && p.status == Up:
		p.status, p.since = Down, now
		h.log.Error("a part is down", "part", p.Name, "required", p.Required, "error", err)
	case err == nil && p.status != Up:
		h.log.Info("a part is up again", "part", p.Name, "down_for", now.Sub(p.since))
		p.status, p.since = Up, time.Time{}
	}
}

// ask runs one check, and abandons it if it ignores its context. No other is started
// until it returns.
func (p *part) ask(ctx context.Context, clock func() time.Time) (time.Duration, error) {
	if !p.busy.CompareAndSwap(false, true) {
		return checkLimit, errors.New("an earlier check has not come back")
	}
	began, done := clock(), make(chan error, 1)
	go func() {
		err := p.checked(ctx)
		p.busy.Store(false) // before the result, or the next ask would find it busy
		done <- err
	}()
	select {
	case err := <-done:
		return clock().Sub(began), err
	case <-ctx.Done():
		return clock().Sub(began), fmt.Errorf("no answer within %s", checkLimit)
	}
}

// checked runs the check and turns a panic into an error.
func (p *part) checked(ctx context.Context) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the check panicked: %v", r)
		}
	}()
	return p.Check(ctx)
}
