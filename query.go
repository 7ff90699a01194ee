package toolkeep

import (
	"context"
	"slices"
	"time"
)

// InvocationFilter selects call records. Zero fields do not filter.
type InvocationFilter struct {
	Tenant  string // required
	Subject string
	ToolID  string
	State   CallState
	Session string
	Parent  string
	Since   time.Time
	Until   time.Time
	// States selects calls in one of several states.
	States []CallState
	// Code, Face and Person (see Invocation.OnBehalf) are no columns of the stores, which pass over them: the pipeline looks
	// through the newest calls that fit the rest.
	Code   Code
	Face   string
	Person string
	Offset int
	Limit  int // required, at most 200
}

// Selects reports whether a call fits the filter.
func (f *InvocationFilter) Selects(v *Invocation) bool {
	for _, c := range [...][2]string{{f.Tenant, v.Tenant}, {f.Subject, v.Subject}, {f.ToolID, v.ToolID}, {string(f.State), string(v.State)}, {f.Session, v.Session}, {f.Parent, v.Parent}} {
		if c[0] != "" && c[0] != c[1] {
			return false
		}
	}
	return (len(f.States) == 0 || slices.Contains(f.States, v.State)) && (f.Since.IsZero() || !v.CreatedAt.Before(f.Since)) &&
		(f.Until.IsZero() || v.CreatedAt.Before(f.Until)) && f.looks(v)
}

// Looks reports whether the filter has what stores pass over.
func (f *InvocationFilter) Looks() bool { return f.Code != "" || f.Face != "" || f.Person != "" }

func (f *InvocationFilter) looks(v *Invocation) bool {
	return (f.Code == "" || f.Code == v.Code) && (f.Face == "" || f.Face == v.Face) && (f.Person == "" || f.Person == v.OnBehalf)
}

// MaxTotal is how far the calls that fit a filter are counted: counting millions takes longer
// than reading any page.
const MaxTotal = 10_000

// Invocations reads call records. All methods see every Apply that returned before they
// were called.
type Invocations interface {
	// Get returns one call; ErrNotFound.
	Get(ctx context.Context, ref CallRef) (*Invocation, error)
	// ByKey returns the call that holds an idempotency key; ErrNotFound.
	ByKey(ctx context.Context, tenant, subject, key string) (*Invocation, error)
	// List returns a page, newest first, and the total number, which is counted up to
	// MaxTotal: that many means that many or more. It omits outputs and sealed arguments;
	// the other methods return whole records.
	List(ctx context.Context, f InvocationFilter) ([]*Invocation, int, error)
	// Lapsed returns running calls whose lease ended before now, and with notOwner set
	// also those of any other owner (a single-process store knows that they are dead).
	Lapsed(ctx context.Context, now time.Time, notOwner string, limit int) ([]*Invocation, error)
	// Leased returns running calls whose lease an owner has, also a lapsed one.
	Leased(ctx context.Context, owner string, limit int) ([]*Invocation, error)
	// Overdue returns waiting calls that have not started and whose deadline has
	// passed.
	Overdue(ctx context.Context, now time.Time, limit int) ([]*Invocation, error)
	// Unfetched returns ended calls whose result was due to be fetched before now and
	// was not.
	Unfetched(ctx context.Context, now time.Time, limit int) ([]*Invocation, error)
	// QueueDepth counts queued calls by priority.
	QueueDepth(ctx context.Context) (map[Priority]int, error)
}

// CallMark is what a watcher of a call waits for.
type CallMark struct {
	State    CallState
	CancelBy string // who asked to cancel it, "" if that did not happen
	Progress Progress
}

// CallMarks reads what changes in calls under way, for nodes that watch or run them.
type CallMarks interface {
	// Marks returns the marks of calls; unknown ones are left out. At most 1,000 at once.
	Marks(ctx context.Context, calls []CallRef) (map[CallRef]CallMark, error)
	// CancelRequested returns the calls that have not ended, whose lease the owner has and
	// whose cancelling was requested.
	CancelRequested(ctx context.Context, owner string) ([]CallRef, error)
}

// Blob is the metadata of a stored blob.
type Blob struct {
	ID          string
	Tenant      string
	Subject     string
	ContentType string
	Bytes       int64
	SHA256      string // in hex, in what Put returns alone
	CreatedAt   time.Time
}
