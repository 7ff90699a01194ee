package toolkeep

import (
	"context"
	"time"
)

// InvocationFilter selects records of calls. Zero fields do not filter.
type InvocationFilter struct {
	Tenant  string // required
	Subject string
	ToolID  string
	State   CallState
	Session string
	Parent  string
	Since   time.Time
	Until   time.Time
	Offset  int
	Limit   int // required, at most 200
}

// Invocations reads records of calls. All methods see every Apply that returned
// before they were called.
type Invocations interface {
	// Get finds one call; ErrNotFound.
	Get(ctx context.Context, ref CallRef) (*Invocation, error)
	// ByKey finds the call that holds an idempotency key; ErrNotFound.
	ByKey(ctx context.Context, tenant, subject, key string) (*Invocation, error)
	// List gives a page, newest first, and how many there are in all. Outputs and
	// sealed arguments are left out; the other methods give whole records.
	List(ctx context.Context, f InvocationFilter) ([]*Invocation, int, error)
	// Lapsed gives running calls whose lease ended before now, and with notOwner
	// set also those that any other owner holds (a store with one process knows
	// that they are dead).
	Lapsed(ctx context.Context, now time.Time, notOwner string, limit int) ([]*Invocation, error)
	// Overdue gives waiting calls that have not started and whose deadline is past.
	Overdue(ctx context.Context, now time.Time, limit int) ([]*Invocation, error)
	// Unfetched gives ended calls whose answer was to be fetched before now and was not.
	Unfetched(ctx context.Context, now time.Time, limit int) ([]*Invocation, error)
	// QueueDepth counts queued calls by priority.
	QueueDepth(ctx context.Context) (map[Priority]int, error)
}

// Blob is what is known of a stored blob.
type Blob struct {
	ID          string
	Tenant      string
	Subject     string
	ContentType string
	Bytes       int64
	CreatedAt   time.Time
}
