package toolkeep

import (
	"context"
	"errors"
	"iter"
	"time"
)

// Change is one change of state. The set is closed: every state that Toolkeep
// keeps is changed by one of the types below, through a store's Apply.
type Change interface{ change() }

// PublishVersion adds a version. The same digest again changes nothing; another
// digest under the same tenant, id and version is ErrVersionExists.
type PublishVersion struct{ Version Version }

// SetLifecycle replaces the lifecycle of a version. An unknown version is ErrNotFound.
type SetLifecycle struct {
	Tenant, ToolID, Version string
	Life                    Lifecycle
	By                      string
	// From, where set, is what the lifecycle must be now, else ErrStale: Life, which was
	// computed from it, would undo a change made meanwhile. Watchers may not get it.
	From *Lifecycle
}

// RecordCall appends a call that is over and was never claimed: the hot record.
// It is one narrow append-only row; what queries need follows from the feed.
type RecordCall struct{ Invocation *Invocation }

// ClaimCall inserts a call before it runs or waits. ErrIDTaken if the tenant has
// the id; ErrKeyTaken if tenant, subject and key are taken and not freed.
type ClaimCall struct{ Invocation *Invocation }

// MoveCall replaces a call's row, all but progress, cancel request and lease
// of other owners. ErrStale if the stored state is not one of From or, where
// Owner is set, the lease is another's. FreeKey lets the idempotency key go.
type MoveCall struct {
	Invocation *Invocation
	From       []CallState
	Owner      string
	FreeKey    bool
}

// RenewLeases extends the leases that owner holds on the calls; calls that it no
// longer holds are passed over.
type RenewLeases struct {
	Owner string
	Calls []CallRef
	Until time.Time
}

// RequestCancel marks a call that has not ended; the node that runs it sees the
// mark in the feed. ErrNotFound if there is none; no change if it has ended.
type RequestCancel struct {
	Call    CallRef
	By, Why string
}

// ReportProgress keeps the latest progress of a call that has not ended.
type ReportProgress struct {
	Call     CallRef
	Progress Progress
}

// MarkFetched notes that the answer of a waiting call was read.
type MarkFetched struct {
	Call CallRef
	At   time.Time
}

// Enqueue hands a waiting call's id to the queue, in the same transaction.
type Enqueue struct {
	Call     CallRef
	Priority Priority
	At       time.Time // not before; zero is now
}

// PutKey adds or replaces an API key. Only the hash of its secret is kept.
type PutKey struct{ Key APIKey }

// RevokeKey ends a key. ErrNotFound if the tenant has none of that id.
type RevokeKey struct {
	Tenant, ID string
	At         time.Time
	By         string
}

// PutDocument creates or replaces a document and raises its revision by one. Expect
// is the revision that it must have now, NoRevision if it must not exist, or
// AnyRevision; else ErrStale, which is ErrNotFound too where a revision was expected
// of a document that does not exist. Watchers get the new revision.
type PutDocument struct {
	Document Document
	Expect   int64
	// OmitBody keeps the body out of the feed: watchers get the put without it, and
	// a delete removes it. It is for large bodies that are replaced often, which would
	// stay in the feed for as long as events are kept.
	OmitBody bool
}

// DeleteDocument removes a document. ErrNotFound if there is none, with ErrStale where
// a revision was expected; ErrStale if its revision is not Expect, which is one or
// AnyRevision.
type DeleteDocument struct {
	Kind, Tenant, ID string
	Expect           int64
	By               string
}

// AppendEvent adds an event that no other change implies. The types "toolkeep.item.put"
// and "toolkeep.item.dropped" are the store's own and refused.
type AppendEvent struct{ Event Event }

func (PublishVersion) change() {}
func (SetLifecycle) change()   {}
func (RecordCall) change()     {}
func (ClaimCall) change()      {}
func (MoveCall) change()       {}
func (RenewLeases) change()    {}
func (RequestCancel) change()  {}
func (ReportProgress) change() {}
func (MarkFetched) change()    {}
func (Enqueue) change()        {}
func (PutKey) change()         {}
func (RevokeKey) change()      {}
func (PutDocument) change()    {}
func (DeleteDocument) change() {}
func (AppendEvent) change()    {}

// CallRef names a call.
type CallRef struct{ Tenant, ID string }

// Outcomes of Apply that the caller is expected to handle. Everything else that
// Apply returns means that the store could not do it (faces show E3965).
var (
	ErrNotFound      = errors.New("not found")
	ErrVersionExists = errors.New("the version exists with another digest")
	ErrIDTaken       = errors.New("the invocation id is taken")
	ErrKeyTaken      = errors.New("the idempotency key is taken")
	ErrStale         = errors.New("what is stored is in another state, or another holds it")
	ErrClosed        = errors.New("the store is closed")
)

// Applier is the one way to change state.
type Applier interface {
	// Apply commits all changes or none. It returns after the commit; concurrent
	// Applies share a transaction, and one that fails does not fail the others.
	// A cancelled ctx gives up waiting only before the changes were taken up.
	Apply(ctx context.Context, changes ...Change) error
}

// Committed is a change with its place in the feed.
type Committed struct {
	Seq    int64
	At     time.Time
	Change Change
}

// Watcher delivers the feed.
type Watcher interface {
	// Watch yields every change committed after seq, in order and without gaps,
	// those of the past first, until ctx ends or the consumer stops. An error is
	// yielded once, as the last element. Consumers must not modify what they get.
	// Claimed and moved calls come without output and sealed arguments.
	Watch(ctx context.Context, after int64) iter.Seq2[Committed, error]
	// Head is the sequence number of the newest committed change.
	Head(ctx context.Context) (int64, error)
}

// followPause is the time before a feed that broke is read again.
const followPause = time.Second

// Follow hands every change after a place in the feed to each, until ctx ends. A feed
// that breaks is reported to broken and read again from where it was, a second later.
func Follow(ctx context.Context, w Watcher, after int64, each func(Committed), broken func(error)) {
	for ctx.Err() == nil {
		for c, err := range w.Watch(ctx, after) {
			if err != nil {
				if ctx.Err() == nil {
					broken(err)
				}
				break
			}
			after = c.Seq
			each(c)
		}
		select {
		case <-ctx.Done():
		case <-time.After(followPause):
		}
	}
}

// APIKey is a stored key. Its secret is 256 random bits, so a plain SHA-256 is
// enough to keep it.
type APIKey struct {
	ID        string // public part, in logs and lists
	Tenant    string
	Subject   string // who authenticates with it
	Name      string // for people
	Hash      [32]byte
	Roles     []string
	Scope     []string // tool id patterns; empty does not narrow
	Workspace string   // whose secrets come before the tenant's own; "" is none
	CreatedAt time.Time
	CreatedBy string
	ExpiresAt time.Time // zero never
	RevokedAt time.Time // zero while valid
}

// Event is a CloudEvent as it is recorded; source is always
// "tool-execution-layer".
type Event struct {
	ID     string
	Type   string // ai.agent.tool.registered and the like
	Tenant string
	Time   time.Time
	Data   []byte // JSON object, redacted
}
