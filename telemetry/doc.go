// Package telemetry tells the operator what happens: Prometheus metrics, log
// lines, and health.
//
// All three follow contracts/wire.md. Nothing here blocks a call: metrics of a
// tool are found by one lock-free look-up, the log line of a call is encoded by
// hand and handed to a bounded buffer that another goroutine writes out, and what
// does not fit is dropped and counted.
//
// No label and no log line holds a secret. Labels hold no agent, request or
// tenant, and no text that a caller can choose: a call whose tool was not found
// counts under the empty tool_id, since the id in it is the caller's own.
package telemetry

import (
	"time"

	"github.com/toolkeep/toolkeep"
)

// StepNames are the steps of a call, in their order; the durations handed to
// Called stand in the same order.
var StepNames = [12]string{"admit", "resolve", "authorise", "validate", "limit", "recall",
	"approve", "claim", "equip", "execute", "inspect", "record"}

const (
	stepAuthorise = 2
	stepValidate  = 3
)

// Observer is told of every call and passes it on to metrics and log.
type Observer struct {
	Metrics *Metrics // may be nil
	Log     *Log     // may be nil
}

// Called notes one call: its record, the tool it resolved to (nil if it did not),
// its error (nil without one) and how long each step took (0 if not reached). It
// never blocks and keeps nothing of what it is given.
func (o *Observer) Called(v *toolkeep.Invocation, t *toolkeep.Tool, e *toolkeep.Error, durations []time.Duration) {
	if o.Metrics != nil {
		o.Metrics.Called(v, t, e, durations)
	}
	if o.Log != nil {
		o.Log.Called(v, t, e, durations)
	}
}
