// Package telemetry provides Prometheus metrics, log lines and health for the operator.
//
// All three follow contracts/wire.md. Nothing here blocks a call: a tool's metrics are
// found by one lock-free look-up, and a call's log line is encoded by hand and passed
// to a bounded buffer that another goroutine writes out; what does not fit is dropped
// and counted.
//
// No label or log line contains a secret. Labels contain no agent, request or tenant,
// and no text that a caller can choose: a call whose tool was not found counts under
// the empty tool_id, since the caller chose that id.
package telemetry

import (
	"time"

	"github.com/toolkeep/toolkeep"
)

// StepNames lists the steps of a call in order; the durations passed to Called have the
// same order.
var StepNames = [12]string{"admit", "resolve", "authorise", "validate", "limit", "recall",
	"approve", "claim", "equip", "execute", "inspect", "record"}

const (
	stepAuthorise = 2
	stepValidate  = 3
)

// Observer receives every call and passes it on to metrics and log.
type Observer struct {
	Metrics *Metrics // may be nil
	Log     *Log     // may be nil
}

// Called records a call: its record, its resolved tool (nil if there is none), its
// error (nil without one) and the duration of each step (0 if not reached). It never
// blocks and retains none of its arguments.
func (o *Observer) Called(v *toolkeep.Invocation, t *toolkeep.Tool, e *toolkeep.Error, durations []time.Duration) {
	if o.Metrics != nil {
		o.Metrics.Called(v, t, e, durations)
	}
	if o.Log != nil {
		o.Log.Called(v, t, e, durations)
	}
}
