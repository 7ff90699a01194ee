package breaker

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Limits of a Rule.
const (
	MaxSeconds = 3600   // of a window in seconds
	MaxCalls   = 10_000 // of a window in calls, and of the other numbers of calls
	MaxOpen    = 24 * time.Hour
	maxSlow    = 24 * time.Hour
)

// Rule says when a breaker opens and how it closes. The zero value is off; Defaults has the usual one.
type Rule struct {
	On            bool
	Count         bool          // the window is of calls, else of seconds
	Window        int           // calls or seconds
	MinCalls      int           // in the window, before a rate counts
	FailureRate   float64       // percent: above it the breaker opens; at 100 if all fail
	Consecutive   int           // failures in a row that open it; 0: none do
	Failures      int           // failures in the window that open it; 0: none do
	SlowRate      float64       // percent of slow calls, as FailureRate; 0: slow calls open nothing
	Slow          time.Duration // from which a call is slow
	Open          time.Duration // before test calls
	Canary        bool          // half open, let a growing share of calls through, else HalfOpenCalls of them
	HalfOpenCalls int           // test calls that must succeed: in all, or for each share of a canary
	Ignore        Codes         // with which an attempt counts as nothing, of those that count as a failure
}

// Codes is a set of Counted.
type Codes uint16

// Counted are the codes that count as a failure, some of them with some details alone (see Counts).
var Counted = [...]toolkeep.Code{toolkeep.NetworkError, toolkeep.UpstreamTimeout, toolkeep.TLSError, toolkeep.InvalidResponse, toolkeep.UpstreamServerError,
	toolkeep.GRPCError, toolkeep.MCPUnavailable, toolkeep.DBConnectionFailed, toolkeep.DBTimeout}

// CodesOf is the set of some codes, and those of them that never count.
func CodesOf[C ~string](codes []C) (set Codes, others []C) {
	for _, c := range codes {
		if i := slices.Index(Counted[:], toolkeep.Code(c)); i >= 0 {
			set |= 1 << i
		} else {
			others = append(others, c)
		}
	}
	return set, others
}

func (s Codes) has(c toolkeep.Code) bool {
	i := slices.Index(Counted[:], c)
	return i >= 0 && s&(1<<i) != 0
}

// Defaults is the rule without settings: 60 s, at least 10 calls, more than 5 % failures or 10 of them in a row, open
// for 30 s, one test call. Slow calls open nothing: what is slow for one tool is usual for another.
func Defaults() Rule {
	return Rule{On: true, Window: 60, MinCalls: 10, FailureRate: 5, Consecutive: 10, Slow: 5 * time.Second, Open: 30 * time.Second, HalfOpenCalls: 1}
}

// With returns the rule of a manifest: what it leaves out is as in r. A size of the other kind of window
// does not carry over.
func (r Rule) With(s *toolkeep.BreakerSpec) Rule {
	if s == nil {
		return r
	}
	set(&r.On, s.Enabled)
	if s.Window != "" && (s.Window == windowCount) != r.Count {
		r.Count, r.Window = s.Window == windowCount, 60
	}
	set(&r.Window, s.WindowSize)
	set(&r.MinCalls, s.MinimumCalls)
	set(&r.FailureRate, s.FailureRate)
	set(&r.Consecutive, s.ConsecutiveFailures)
	set(&r.Failures, s.ErrorCount)
	set(&r.SlowRate, s.SlowCallRate)
	if s.SlowCallMS != nil {
		r.Slow = milliseconds(*s.SlowCallMS, maxSlow)
	}
	if s.OpenMS != nil {
		r.Open = milliseconds(*s.OpenMS, MaxOpen)
	}
	if s.HalfOpen != "" {
		r.Canary = s.HalfOpen == halfOpenCanary
	}
	set(&r.HalfOpenCalls, s.HalfOpenCalls)
	if s.IgnoreErrors != nil {
		r.Ignore, _ = CodesOf(s.IgnoreErrors)
	}
	return r.bounded()
}

// bounded keeps a rule that was published before its limits were checked within them.
func (r Rule) bounded() Rule {
	most := MaxSeconds
	if r.Count {
		most = MaxCalls
	}
	r.Window = min(max(r.Window, 1), most)
	r.MinCalls = min(max(r.MinCalls, 1), MaxCalls)
	if r.Count { // more calls than the window has are never seen
		r.MinCalls = min(r.MinCalls, r.Window)
	}
	r.HalfOpenCalls = min(max(r.HalfOpenCalls, 1), MaxCalls)
	r.Open = min(max(r.Open, time.Millisecond), MaxOpen)
	return r
}

func set[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

func milliseconds(n int64, most time.Duration) time.Duration {
	return time.Duration(min(n, int64(most/time.Millisecond))) * time.Millisecond
}

const (
	windowCount    = "count"
	halfOpenCanary = "canary"
)

// Validate returns what two settings of a rule contradict each other in.
func (r Rule) Validate() error {
	switch {
	case !r.Count && r.Window > MaxSeconds:
		return fmt.Errorf("breaker.window_size is %d, and a window of time has at most %d seconds", r.Window, MaxSeconds)
	case r.Count && r.MinCalls > r.Window:
		return fmt.Errorf("breaker.minimum_calls is %d, more than the %d calls that breaker.window_size counts, so no rate would ever open a breaker", r.MinCalls, r.Window)
	}
	return nil
}

// Check returns the faults of a manifest's breaker: numbers beyond what is counted.
func Check(m *toolkeep.Manifest) []toolkeep.Fault {
	s := m.Breaker
	if s == nil {
		return nil
	}
	var faults []toolkeep.Fault
	fault := func(field string, value *int, most int, what string) {
		if value != nil && *value > most {
			faults = append(faults, toolkeep.Fault{Pointer: "/breaker/" + field, Rule: "range", Message: "must be at most " + strconv.Itoa(most) + what})
		}
	}
	window, what := MaxSeconds, " seconds"
	if s.Window == windowCount {
		window, what = MaxCalls, " calls"
	}
	fault("window_size", s.WindowSize, window, what)
	for _, n := range []struct {
		field string
		value *int
	}{{"minimum_calls", s.MinimumCalls}, {"consecutive_failures", s.ConsecutiveFailures}, {"error_count", s.ErrorCount}, {"half_open_calls", s.HalfOpenCalls}} {
		fault(n.field, n.value, MaxCalls, "")
	}
	for _, n := range []struct {
		field string
		value *int64
	}{{"open_ms", s.OpenMS}, {"slow_call_ms", s.SlowCallMS}} {
		if n.value != nil && *n.value > MaxOpen.Milliseconds() {
			faults = append(faults, toolkeep.Fault{Pointer: "/breaker/" + n.field, Rule: "range", Message: "must be at most 86400000, a day"})
		}
	}
	if s.Window == windowCount && s.WindowSize != nil && s.MinimumCalls != nil && *s.MinimumCalls > *s.WindowSize {
		faults = append(faults, toolkeep.Fault{Pointer: "/breaker/minimum_calls", Rule: "range", Message: "is more than window_size, which counts calls, so no rate would ever open the breaker"})
	}
	return faults
}

// failed are the codes that show that a tool does not work; true: that its whole host does not either. All others are
// the caller's doing, this server's, or no sign of a fault.
var failed = map[toolkeep.Code]bool{
	toolkeep.NetworkError: true, toolkeep.UpstreamTimeout: true, toolkeep.TLSError: true, toolkeep.MCPUnavailable: true,
	toolkeep.DBConnectionFailed: true, toolkeep.UpstreamServerError: false, toolkeep.InvalidResponse: false, toolkeep.DBTimeout: false,
}

// away are the statuses with which a proxy before a host, or a host that is overloaded, answers.
func away(status any) bool { return status == 502 || status == 503 || status == 504 }

// Counts says whether an attempt's error counts as a failure of its tool, and of its tool's host. A bad request does
// not, nor does a limit, a permission, a missing secret, or what the caller cut short.
func Counts(e *toolkeep.Error) (tool, host bool) {
	if e == nil {
		return false, false
	}
	if e.Code == toolkeep.GRPCError {
		switch e.Details["grpc_code"] {
		case "UNAVAILABLE":
			return true, true
		case "INTERNAL", "UNKNOWN", "DATA_LOSS":
			return true, false
		}
		return false, false
	}
	host, tool = failed[e.Code]
	return tool, host || tool && away(e.Details["status"])
}
