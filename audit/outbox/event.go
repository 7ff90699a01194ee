package outbox

import (
	"context"
	"encoding/json"
	"time"

	"github.com/toolkeep/toolkeep/audit"
)

// Event is an entry of the journal on its way to a sink.
type Event struct {
	ID     string
	Type   string
	Tenant string
	Time   time.Time
	Writer int64  // who wrote it
	Number int64  // its number among the writer's entries
	JSON   []byte // a CloudEvent of version 1.0
}

// Sink takes events. The outbox calls it from one goroutine at a time.
type Sink interface {
	// Deliver delivers events, in their order, and returns how many of the first are confirmed.
	//
	// A *Refused says that an event after those, and where there is one alone that event, will never be
	// accepted. Every other error is a sink that is down. Errors are shown to operators and logged, so they
	// have no secrets in them.
	Deliver(ctx context.Context, events []Event) (done int, err error)
	// Close ends the sink's connections. It may be called without a Deliver before.
	Close() error
}

// Refused is the error for an event that the sink never accepts.
type Refused struct{ Err error }

func (e *Refused) Error() string { return e.Err.Error() }
func (e *Refused) Unwrap() error { return e.Err }

// Later is the error of a sink that says when to try again.
type Later struct {
	Err   error
	After time.Duration
}

func (e *Later) Error() string { return e.Err.Error() }
func (e *Later) Unwrap() error { return e.Err }

func newEvent(e *audit.Entry) (Event, error) {
	raw, err := json.Marshal(e)
	return Event{ID: e.ID, Type: e.Type, Tenant: e.Tenant, Time: e.Time, Writer: e.Writer, Number: e.Number, JSON: raw}, err
}

// readEvent reads what newEvent wrote.
func readEvent(raw []byte) (Event, error) {
	var e audit.Entry
	err := json.Unmarshal(raw, &e)
	return Event{ID: e.ID, Type: e.Type, Tenant: e.Tenant, Time: e.Time, Writer: e.Writer, Number: e.Number, JSON: raw}, err
}
