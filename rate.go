package toolkeep

import "time"

// RateLeft is what a limit of calls a minute has left after a request. The zero value is no limit.
type RateLeft struct {
	Kind      string        // details.limit_type of its refusals
	PerMinute int           // the limit, or this node's share of it
	Left      int           // requests that are admitted now; 0 with a refusal
	Reset     time.Duration // until all of the limit is left again, if nothing comes
}

// Least returns the one with fewer left, of equal ones r unless it is none.
func (r RateLeft) Least(other RateLeft) RateLeft {
	if r.Kind == "" || other.Kind != "" && other.Left < r.Left {
		return other
	}
	return r
}

// Over says which limit refuses: in Error.Rate, and in the details limit_type, remaining and reset_s (seconds, rounded up).
func (e *Error) Over(r RateLeft) *Error {
	e.Rate = r
	return e.With("limit_type", r.Kind).With("remaining", r.Left).With("reset_s", int((r.Reset+time.Second-1)/time.Second))
}
