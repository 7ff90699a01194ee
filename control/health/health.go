package health

import (
	"slices"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/limit/breaker"
)

// Status is how well a tool works; the values are those of documents, events and answers.
type Status string

// The states, from the best to the worst.
const (
	Unknown   Status = "unknown"
	Healthy   Status = "healthy"
	Degraded  Status = "degraded"
	Unhealthy Status = "unhealthy"
)

// Statuses are all states.
var Statuses = [...]Status{Unknown, Healthy, Degraded, Unhealthy}

// Shown is the status as lists have it, "" for unknown.
func (s Status) Shown() string {
	if s == Unknown {
		return ""
	}
	return string(s)
}

func (s Status) worse(than Status) bool {
	return slices.Index(Statuses[:], s) > slices.Index(Statuses[:], than)
}

// Reasons of a state.
const (
	ReasonBreakerOpen  = "breaker_open"
	ReasonBreakerHalf  = "breaker_half_open"
	ReasonUpstreamOpen = "upstream_breaker_open"
	ReasonUpstreamHalf = "upstream_breaker_half_open"
	ReasonFailureRate  = breaker.ReasonFailureRate
	ReasonSlowRate     = breaker.ReasonSlowRate
	ReasonProbeFailed  = "probe_failed"
	ReasonProbeSlow    = "probe_slow"
)

// Health is the ToolHealthStatus of Execution 5.1.
type Health struct {
	ToolID string `json:"tool_id"`
	Status Status `json:"status" enum:"unknown,healthy,degraded,unhealthy"`
	// LastCheck is when the last counted call or probe ended that this node knows.
	LastCheck time.Time      `json:"last_check_time,omitzero" doc:"when the last counted call or probe ended that the node which answers knows; absent without any"`
	ErrorRate float64        `json:"error_rate_percent" doc:"of the calls that the breaker counts; while it is open, of those that opened it; 0 without any"`
	Latency   float64        `json:"average_latency_ms" doc:"of these calls"`
	Breaker   string         `json:"circuit_breaker_state" enum:"closed,open,half_open"`
	Metadata  HealthMetadata `json:"metadata"`
}

// HealthMetadata is what else is known.
type HealthMetadata struct {
	Reasons  []string         `json:"reasons,omitempty" doc:"why it is not healthy: breaker_open, breaker_half_open, upstream_breaker_open, upstream_breaker_half_open, failure_rate, slow_call_rate, probe_failed, probe_slow"`
	Calls    int              `json:"window_calls,omitempty" doc:"counted calls of the node that answers, in the breaker's window; of shared tools for the tenant default alone"`
	Failures int              `json:"window_failures,omitempty" doc:"failures among them"`
	Slow     int              `json:"window_slow,omitempty" doc:"slow ones among them"`
	State    breaker.State    `json:"breaker_state" doc:"as circuit_breaker_state; or forced_open or forced_closed"`
	Upstream *UpstreamBreaker `json:"upstream,omitempty" doc:"the breaker of the tool's upstream, where it is not closed"`
	Probe    *Probe           `json:"probe,omitempty" doc:"what the last probe found; absent where none was made"`
}

// UpstreamBreaker is the breaker of a tool's upstream.
type UpstreamBreaker struct {
	Breaker string        `json:"breaker" doc:"such as host:shop.example:443"`
	State   breaker.State `json:"state"`
}

// Probe is what the last probe of a tool found, and the document of it.
type Probe struct {
	Status  Status    `json:"status" enum:"unknown,healthy,degraded,unhealthy" doc:"unknown: the probe could not be made"`
	Since   time.Time `json:"since" doc:"when the status began"`
	At      time.Time `json:"at" doc:"when the last one ended; on a node that makes no probes, when the status began"`
	Latency float64   `json:"latency_ms"`
	// Failures is how many in a row failed, up to now.
	Failures int    `json:"failures_in_a_row"`
	Error    string `json:"error,omitempty" doc:"code and words of what was wrong"`
	Node     string `json:"node" doc:"which made it"`
}

// of puts together what the breakers of a tool and its upstream and its last probe say. Each may be nil.
func of(tool string, own, upstream *breaker.Info, p *Probe) Health {
	h := Health{ToolID: tool, Status: Unknown, Breaker: string(breaker.Closed), Metadata: HealthMetadata{State: breaker.Closed, Probe: p}}
	is := func(s Status, why string) {
		if s.worse(h.Status) {
			h.Status = s
		}
		if why != "" {
			h.Metadata.Reasons = append(h.Metadata.Reasons, why)
		}
	}
	if p != nil {
		h.LastCheck = p.At
		switch {
		case p.Failures > 0:
			is(p.Status, ReasonProbeFailed)
		case p.Status == Degraded:
			is(p.Status, ReasonProbeSlow)
		default:
			is(p.Status, "")
		}
	}
	if own != nil {
		h.counted(own, is)
	}
	if upstream != nil {
		shown := &UpstreamBreaker{Breaker: upstream.ID, State: upstream.State}
		switch blocks(upstream.State) {
		case breaker.Open:
			is(Unhealthy, ReasonUpstreamOpen)
		case breaker.HalfOpen:
			is(Degraded, ReasonUpstreamHalf)
		default:
			shown = nil
		}
		h.Metadata.Upstream = shown
	}
	return h
}

// counted takes what the tool's own breaker says.
func (h *Health) counted(b *breaker.Info, is func(Status, string)) {
	m := &h.Metadata
	h.Breaker, m.State = string(blocks(b.State)), b.State
	m.Calls, m.Failures, m.Slow = b.Calls, b.Failures, b.Slow
	if b.Last.After(h.LastCheck) {
		h.LastCheck = b.Last.UTC()
	}
	calls, failures := b.Calls, b.Failures
	h.Latency = b.LatencyMS
	switch blocks(b.State) {
	case breaker.Open:
		is(Unhealthy, ReasonBreakerOpen)
	case breaker.HalfOpen:
		is(Degraded, ReasonBreakerHalf)
	default:
		if calls == 0 {
			return
		}
		is(Healthy, "")
		if over(failures, calls, b.Rule.FailureRate) {
			is(Degraded, ReasonFailureRate)
		}
		if b.Rule.SlowRate > 0 && over(b.Slow, calls, b.Rule.SlowRate) {
			is(Degraded, ReasonSlowRate)
		}
	}
	if r := b.Record; h.Breaker != string(breaker.Closed) {
		calls, failures, h.Latency = int(r.Calls), int(r.Failures), r.LatencyMS
		if r.Since.After(h.LastCheck) {
			h.LastCheck = r.Since
		}
	}
	if calls > 0 {
		h.ErrorRate = float64(failures) * 100 / float64(calls)
	}
}

// blocks is a breaker's state without who made it so.
func blocks(s breaker.State) breaker.State {
	switch s {
	case breaker.Open, breaker.ForcedOpen:
		return breaker.Open
	case breaker.HalfOpen:
		return breaker.HalfOpen
	}
	return breaker.Closed
}

func over(n, calls int, percent float64) bool {
	return float64(n)*100 > percent*float64(calls) || percent >= 100 && n == calls
}

// next is what is known after a probe that took so long and ended with err at a time.
func (p *Probe) next(err *toolkeep.Error, took time.Duration, at time.Time, node string) *Probe {
	n := &Probe{Status: Healthy, Since: at, At: at, Latency: float64(took.Microseconds()) / 1000, Node: node}
	switch {
	case err == nil:
		if took >= Slow {
			n.Status = Degraded
		}
	case tells(err):
		n.Status, n.Failures, n.Error = Degraded, 1, words(err)
		if p != nil {
			n.Failures += p.Failures
		}
		if n.Failures >= Failures {
			n.Status = Unhealthy
		}
	default:
		n.Status, n.Error = Unknown, words(err)
	}
	if p != nil && p.Status == n.Status {
		n.Since = p.Since
	}
	return n
}

// confirmed is what is known after a probe that found n by itself. The first one says; later, one that differs from the probe before
// changes no status, so that an endpoint which comes and goes keeps the one that it had.
func (f *found) confirmed(n *Probe) *Probe {
	is, was := *n, f.Probe
	if was == nil {
		return &is
	}
	if f.last == nil || !f.last.like(n) {
		is = *was
		is.At, is.Latency, is.Node = n.At, n.Latency, n.Node
	} else if is.Status == was.Status {
		is.Since = was.Since
	}
	return &is
}

// like reports whether two probes found the same: both failed, or have one status.
func (p *Probe) like(n *Probe) bool {
	if p.Failures > 0 || n.Failures > 0 {
		return p.Failures > 0 && n.Failures > 0
	}
	return p.Status == n.Status
}

// tells reports whether an error says something of the tool, and not of what this server may or can do.
func tells(err *toolkeep.Error) bool {
	return counts(err) || err.Code == toolkeep.InvalidResponse || err.Code == toolkeep.UpstreamClientError
}

// counts reports whether the tool's breaker is told of an error. What can be the fault of the endpoint alone it is not told of.
func counts(err *toolkeep.Error) bool {
	tool, _ := breaker.Counts(err)
	return tool && err.Code != toolkeep.InvalidResponse
}

const maxWords = 300 // bytes of an error that are kept

func words(err *toolkeep.Error) string {
	return toolkeep.ClipBytes(string(err.Code)+": "+err.Message, maxWords)
}
