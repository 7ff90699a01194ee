package invoke

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/toolkeep/toolkeep"
)

// retry is a tool's retry rule with the defaults filled in.
type retry struct {
	policy, jitter string
	attempts       int
	base, cap      time.Duration
	codes          []toolkeep.Code
	statuses       []int
	repeatable     bool
}

func retryOf(t *toolkeep.Tool) retry {
	r := retry{policy: "exponential", jitter: "full", attempts: 3, base: time.Second, cap: 32 * time.Second,
		repeatable: !t.Writes() || t.Manifest.Idempotent}
	s := t.Manifest.Retry
	if s == nil {
		return r
	}
	r.codes, r.statuses = s.RetryableErrors, s.RetryableStatusCodes
	if s.Policy != "" {
		r.policy = s.Policy
	}
	if s.Jitter != "" {
		r.jitter = s.Jitter
	}
	if s.MaxAttempts > 0 {
		r.attempts = s.MaxAttempts
	}
	if s.BaseDelayMS != nil {
		r.base = time.Duration(*s.BaseDelayMS) * time.Millisecond
	}
	if s.MaxDelayMS != nil {
		r.cap = time.Duration(*s.MaxDelayMS) * time.Millisecond
	}
	if r.policy == "none" {
		r.attempts = 1
	}
	return r
}

// repeats reports whether the failure may be retried: it may pass, and repeating it
// cannot do the work twice.
func (r retry) repeats(e *toolkeep.Error) bool {
	passes := e.Retryable
	if len(r.codes) > 0 {
		passes = slices.Contains(r.codes, e.Code)
	}
	if status, ok := statusOf(e); ok && slices.Contains(r.statuses, status) {
		passes = true
	}
	return passes && (r.repeatable || e.NothingSent)
}

func statusOf(e *toolkeep.Error) (int, bool) {
	switch s := e.Details["status"].(type) {
	case int:
		return s, true
	case json.Number:
		n, err := strconv.Atoi(s.String())
		return n, err == nil
	}
	return 0, false
}

// pause is the wait before the next attempt.
func (r retry) pause(attempt int, e *toolkeep.Error) time.Duration {
	if e.RetryAfter > 0 {
		return e.RetryAfter
	}
	return r.delay(attempt)
}

// delay is the pause after the given attempt.
func (r retry) delay(attempt int) time.Duration {
	d := r.base
	if r.policy == "linear" {
		d *= time.Duration(attempt)
	} else {
		for i := 1; i < attempt && d < r.cap; i++ {
			d *= 2
		}
	}
	d = min(d, r.cap)
	if d <= 0 {
		return 0
	}
	switch r.jitter {
	case "none":
		return d
	case "equal":
		return d/2 + rand.N(d/2+1)
	case "spread": // plus or minus 20 %
		return d - d/5 + rand.N(2*d/5+1)
	case "decorrelated":
		return min(r.cap, r.base+rand.N(3*d+1))
	}
	return rand.N(d + 1)
}
