package toolkeep

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Change is a change of state. The set is closed: all persistent state of Toolkeep is
// changed by one of the types below, through a store's Apply.
//
// There are two kinds. What everybody must know (PublishVersion, SetLifecycle, PutKey,
// ScopeKey, RevokeKey, PutDocument, DeleteDocument) is in the feed, which has one order for all
// nodes; see Watcher. What happens in calls (RecordCall, ClaimCall, MoveCall, RenewLeases,
// RequestCancel, ReportProgress, MarkFetched, Enqueue, MoveCursor, AppendEvent, ClaimNonce) has an order for each
// call and each writer only: the end of a call and an event are entries of the journal, see
// Journal, and the rest is seen by who asks for the call, see Invocations and CallMarks. An
// Apply may have changes of both kinds, and commits all or none of them.
type Change interface{ change() }

// PublishVersion adds a version. Publishing the same digest again changes nothing;
// another digest under the same tenant, id and version is ErrVersionExists.
type PublishVersion struct{ Version Version }

// SetLifecycle replaces the lifecycle of a version. An unknown version is ErrNotFound.
type SetLifecycle struct {
	Tenant, ToolID, Version string
	Life                    Lifecycle
	By                      string
	// From, if set, is the expected current lifecycle, else ErrStale: Life, which was
	// computed from it, would undo a concurrent change. Watchers may not get it.
	From *Lifecycle
}

// RecordCall appends a call that has ended and was never claimed: the hot path. It is
// one narrow append-only row.
type RecordCall struct{ Invocation *Invocation }

// ClaimCall inserts a call before it runs or waits. ErrIDTaken if the tenant already
// has the id; ErrKeyTaken if tenant, subject and key are in use.
type ClaimCall struct{ Invocation *Invocation }

// MoveCall replaces a call's row, except progress, cancel request and other owners'
// leases. ErrStale if the stored state is not in From or, with Owner set, another owner
// has the lease. FreeKey releases the invocation's idempotency key, if the call holds it.
type MoveCall struct {
	Invocation *Invocation
	From       []CallState
	Owner      string
	FreeKey    bool
}

// RenewLeases extends the owner's leases on the calls; calls that it no longer holds
// are skipped.
type RenewLeases struct {
	Owner string
	Calls []CallRef
	Until time.Time
}

// RequestCancel marks a call that has not ended; the node that runs it asks for the mark, see
// CallMarks. ErrNotFound if there is no such call; no change if it has ended.
type RequestCancel struct {
	Call    CallRef
	By, Why string
}

// ReportProgress stores the latest progress of a call that has not ended.
type ReportProgress struct {
	Call     CallRef
	Progress Progress
}

// MarkFetched records that the result of a waiting call was read.
type MarkFetched struct {
	Call CallRef
	At   time.Time
}

// Enqueue adds a waiting call's id to the queue, in the same transaction.
type Enqueue struct {
	Call     CallRef
	Priority Priority
	At       time.Time // not before; zero is now
}

// MaxReader bounds MoveCursor.Reader in bytes.
const MaxReader = 128

// MoveCursor moves a reader's cursor forward, past what the reader is done with. ErrStale if it is not at
// From: another process has moved it. A cursor that is not stored is at 0.
type MoveCursor struct {
	Reader string
	From   int64
	To     Cursor
}

// PutKey adds or replaces an API key. Only the hash of its secret is stored.
type PutKey struct{ Key APIKey }

// RevokeKey revokes a key. ErrNotFound if the tenant has no such id.
type RevokeKey struct {
	Tenant, ID string
	At         time.Time
	By         string
	// Successor is the id of the key that takes this one's place, which is then not revoked: it expires at Expires, if not
	// sooner. ErrStale if it was revoked, has a successor, or its scope is not Scope. Watchers get the key as it is then, as a
	// PutKey.
	Successor string
	Expires   time.Time
	Scope     []string
}

// End ends a key as c says, and reports whether that changed it.
func (c RevokeKey) End(k *APIKey) bool {
	switch {
	case !k.RevokedAt.IsZero(), c.Successor != "" && (k.Successor != "" || !slices.Equal(k.Scope, c.Scope)):
		return false
	case c.Successor == "":
		k.RevokedAt = c.At
		return true
	}
	k.Successor = c.Successor
	if k.ExpiresAt.IsZero() || c.Expires.Before(k.ExpiresAt) {
		k.ExpiresAt = c.Expires
	}
	return true
}

// ScopeKey replaces the scope of a key. ErrNotFound if the tenant has no such id; ErrStale if it was revoked, or its scope is not
// From. Watchers get the key as it is then, as a PutKey.
type ScopeKey struct {
	Tenant, ID  string
	From, Scope []string
}

// Set gives a key its scope as c says, and reports whether it could.
func (c ScopeKey) Set(k *APIKey) bool {
	if !k.RevokedAt.IsZero() || !slices.Equal(k.Scope, c.From) {
		return false
	}
	k.Scope = c.Scope
	return true
}

// PutDocument creates or replaces a document and increments its revision. Expect is its
// expected current revision, NoRevision if it must not exist, or AnyRevision; else
// ErrStale, which is also ErrNotFound if a revision was expected of a document that
// does not exist. Watchers get the new revision.
type PutDocument struct {
	Document Document
	Expect   int64
	// OmitBody keeps the body out of the feed: watchers get the put without it, and a
	// delete removes it. Use it for large bodies that are replaced often, which would
	// otherwise stay in the feed for as long as events are kept.
	OmitBody bool
}

// DeleteDocument removes a document. ErrNotFound if there is none, together with
// ErrStale if a revision was expected; ErrStale if its revision is not Expect, which is
// a revision or AnyRevision.
type DeleteDocument struct {
	Kind, Tenant, ID string
	Expect           int64
	By               string
}

// AppendEvent adds an event that no other change implies to the journal. The types "toolkeep.item.put"
// and "toolkeep.item.dropped" are reserved for the store and refused.
type AppendEvent struct{ Event Event }

// ClaimNonce notes the nonce of a signed request. ErrNonceTaken if it is noted already; the store
// forgets it after NonceKeep, or when MaxNonces newer ones are noted and NonceHold is over.
type ClaimNonce struct {
	Nonce [32]byte // a hash, so that nothing of a request is kept
	At    time.Time
}

// How long nonces are kept, and how many.
const (
	NonceKeep = 24 * time.Hour
	NonceHold = 15 * time.Minute // by far longer than a signature's timestamp is taken
	MaxNonces = 1_000_000
)

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
func (MoveCursor) change()     {}
func (PutKey) change()         {}
func (ScopeKey) change()       {}
func (RevokeKey) change()      {}
func (PutDocument) change()    {}
func (DeleteDocument) change() {}
func (AppendEvent) change()    {}
func (ClaimNonce) change()     {}

// CallRef identifies a call.
type CallRef struct{ Tenant, ID string }

// Errors of Apply that callers are expected to handle. Any other error means that the
// store failed (faces show E3965).
var (
	ErrNotFound      = errors.New("not found")
	ErrVersionExists = errors.New("the version exists with another digest")
	ErrIDTaken       = errors.New("the invocation id is taken")
	ErrKeyTaken      = errors.New("the idempotency key is taken")
	ErrNonceTaken    = errors.New("the nonce was used before")
	ErrStale         = errors.New("what is stored is in another state, or another holds it")
	ErrClosed        = errors.New("the store is closed")
	ErrKeyAway       = errors.New("the key of a record cannot be read now")   // of reading an entry, which can be read later
	ErrInDoubt       = errors.New("the last attempt may have been committed") // beside the store's failure
)

// Applier is the only way to change state.
type Applier interface {
	// Apply commits all changes or none, and returns after the commit. Concurrent
	// Applies share a transaction, and one that fails does not fail the others.
	// Cancelling ctx stops the wait only before the changes are taken up.
	Apply(ctx context.Context, changes ...Change) error
}

// BoundedApplier is an Applier that need not keep its caller until a commit ends.
type BoundedApplier interface {
	// ApplyWithin is Apply that returns when ctx ends: with ctx's error if the changes are
	// not committed and will not be, and with a *PendingError while their commit is under way.
	ApplyWithin(ctx context.Context, changes ...Change) error
}

// QueueWaiter is an Applier whose changes wait in a queue.
type QueueWaiter interface {
	// QueueWait is how long a change that comes now will wait, as far as is known: paced is what those before it
	// will take at the pace of the last ones, and wait is that, and at least as long as the oldest has waited. 0 without any.
	QueueWait() (wait, paced time.Duration)
}

// PendingError means that a commit is under way and may succeed.
type PendingError struct {
	End <-chan error // receives the outcome once: nil or the error of Apply
}

func (*PendingError) Error() string { return "the commit had not ended when its caller left" }

// APIKey is a stored key. Its secret is 256 random bits, so a plain SHA-256 is enough
// to store it.
type APIKey struct {
	ID        string // public part, in logs and lists
	Tenant    string
	Subject   string // authenticated by the key
	Name      string // for people
	Hash      [32]byte
	Roles     []string
	Scope     []string // tool id patterns; empty does not narrow
	Workspace string   // its secrets take precedence over the tenant's; "" is none
	CreatedAt time.Time
	CreatedBy string
	ExpiresAt time.Time // zero means never
	RevokedAt time.Time // zero while valid
	Successor string    // id of the key that was made to take its place, "" for none
	// RequireSignature demands that each request with the key is signed with the secret that is
	// sealed in Signing.
	RequireSignature bool
	Signing          []byte
}

// Event is a recorded CloudEvent; source is always "tool-execution-layer".
type Event struct {
	ID     string
	Type   string // ai.agent.tool.registered and the like
	Tenant string
	Time   time.Time
	Data   []byte // JSON object, redacted
	// Person is whose data the event has, "" for none. It is not stored: it says with whose key Data
	// is sealed.
	Person string
	// Sealed is the whole of Data, sealed with the person's key, where Data has only what is found by
	// search. It is set between a store and what seals for it alone.
	Sealed []byte
}
