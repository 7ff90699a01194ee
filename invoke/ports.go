package invoke

import (
	"context"
	"io"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/approval"
	"github.com/toolkeep/toolkeep/limit"
	"github.com/toolkeep/toolkeep/overlay"
	"github.com/toolkeep/toolkeep/resultcache"
	"github.com/toolkeep/toolkeep/secret"
)

// Catalog resolves references.
type Catalog interface {
	// Resolve finds the version for a reference among the visible tools. Warnings say
	// that it is deprecated or sunset (E3006). Errors: E3001, E3004, E3005, E3009,
	// E3010, E3012.
	Resolve(ctx context.Context, p *toolkeep.Principal, tool, rng string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error)
	// Find is Resolve without a look for what other nodes published just now, without a near name in
	// E3001, and also of held versions.
	Find(p *toolkeep.Principal, tool, rng string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error)
	// Offering returns the ids of tools that declare the capability, in their order, of those that are visible; the first 20.
	Offering(p *toolkeep.Principal, capability string, visible func(*toolkeep.Tool) bool) []string
}

// Access decides who may do what.
type Access interface {
	// ActingAs returns the principal that the call is for: the caller, or the one it
	// acts as. E3201.
	ActingAs(p *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Principal, error)
	// SignedCall verifies the signature of a call alone, of a caller with these arguments. E3404,
	// E3405, E3406, E3810, E3403, E3965.
	SignedCall(ctx context.Context, p *toolkeep.Principal, c *toolkeep.Call, arguments map[string]any) error
	// Refresh looks a stored principal up again: its key may have been revoked or its
	// roles changed. E3214.
	Refresh(ctx context.Context, p *toolkeep.Principal) (*toolkeep.Principal, error)
	// Sees returns the principal as it sees tools for a call: narrowed by the call's capability token.
	Sees(p *toolkeep.Principal, c *toolkeep.Call) *toolkeep.Principal
	// Visible reports whether the tool exists for the principal, Callable whether it may call it as
	// far as that can be said without a call.
	Visible(p *toolkeep.Principal, t *toolkeep.Tool) bool
	Callable(p *toolkeep.Principal, t *toolkeep.Tool) bool
	// NoteDenied counts a refusal: after repeated ones, refusals of who acted are E3810 for a
	// while (Execution 8.8). NoteUnknown counts a call of a tool that does not exist.
	NoteDenied(p *toolkeep.Principal, tool string)
	NoteUnknown(p *toolkeep.Principal)
	// Blocked returns E3810 during that time.
	Blocked(p *toolkeep.Principal) error
	// Authorise decides one call; every check carries its reason.
	Authorise(p *toolkeep.Principal, t *toolkeep.Tool, c *toolkeep.Call) access.Decision
	// Policy returns what decides calls after the roles, nil without one.
	Policy() access.Policy
}

// Limits refuses calls over their limits. Peek checks without taking.
type Limits interface {
	// TakeRequest takes of the agent's, the tenant's and the global rate, and returns the one with the fewest left. E3801.
	TakeRequest(ctx context.Context, p *toolkeep.Principal) (toolkeep.RateLeft, error)
	// Take takes of the rates of the agent on the tool, of the tool and of its upstream, and a
	// concurrency slot of the agent and of the tool. E3801, E3802. A child call names its
	// parent's slots in above and leaves out the agent's, which its root call holds.
	Take(ctx context.Context, p *toolkeep.Principal, t *toolkeep.Tool, upstream string, above *limit.Slots) (*limit.Slots, error)
	Peek(ctx context.Context, p *toolkeep.Principal, t *toolkeep.Tool, upstream string, child bool) error
}

// Results is the result cache.
type Results interface {
	// Get returns a result that the caller may change, except the contents of Output,
	// Warnings and Attachments.
	Get(k resultcache.Key) (*toolkeep.Result, bool)
	// Stale is Get for a call that failed: it may be past its TTL, as the tool's rule allows.
	Stale(k resultcache.Key) (*toolkeep.Result, bool)
	Peek(k resultcache.Key) bool
	// Put reports whether the result was stored. Share then gives it to the other nodes, if they share any, without
	// waiting; both are for the run of Do.
	Put(k resultcache.Key, tenant, toolID string, r *toolkeep.Result, c *toolkeep.CacheSpec) bool
	Share(k resultcache.Key)
	// Fetch is Get for what other nodes shared; a result that is past its TTL it leaves to Stale.
	Fetch(ctx context.Context, k resultcache.Key, tenant, toolID string) (*toolkeep.Result, bool)
	// FetchOnce is Fetch for a call that is refused, so without a run: it asks the other nodes for a key once a second at most.
	FetchOnce(ctx context.Context, k resultcache.Key, tenant, toolID string) (*toolkeep.Result, bool)
	// Running reports whether a run of Do for k is under way that a call could share.
	Running(k resultcache.Key) bool
	// Do runs fn once for all concurrent calls with k; shared says that another call's
	// run was used. A caller whose ctx ends leaves, without stopping the run while
	// others wait for it.
	Do(ctx context.Context, k resultcache.Key, fn func(context.Context) (*toolkeep.Result, error)) (r *toolkeep.Result, shared bool, err error)
}

// Secrets resolves references just before use; secret.Resolver implements it.
type Secrets interface {
	// Credential returns what is sent for an auth entry; credentials made for the call
	// end with ctx. fresh: the upstream refused the last one. E3205, E3401, E3402,
	// E3403.
	Credential(ctx context.Context, p *toolkeep.Principal, m *toolkeep.Manifest, spec toolkeep.AuthSpec, fresh bool) (secret.Equipped, error)
	// Look reports whether there is a value, without returning it. E3402, E3403.
	Look(ctx context.Context, p *toolkeep.Principal, ref string) (secret.Status, error)
	// Check is Look with E3401 for a missing or expired value.
	Check(ctx context.Context, p *toolkeep.Principal, ref string) error
	// Fingerprint returns a value that changes when the principal's value of the reference
	// changes; ok is false if there is none.
	Fingerprint(ctx context.Context, p *toolkeep.Principal, ref string) (m secret.Fingerprint, ok bool)
}

// Overlays are agents' additions to tools; they only narrow.
type Overlays interface {
	// Of returns the caller's overlay, or nil. E3206.
	Of(ctx context.Context, p *toolkeep.Principal, t *toolkeep.Tool) (*overlay.Context, error)
	// Take takes a call from the bucket of the overlay's own rate, and returns what that has left; Peek only checks.
	// E3801.
	Take(p *toolkeep.Principal, t *toolkeep.Tool, c *overlay.Context) (toolkeep.RateLeft, error)
	Peek(p *toolkeep.Principal, t *toolkeep.Tool, c *overlay.Context) error
}

// Approvals says which calls wait for a person, and holds what they wait for; *approval.Book does.
type Approvals interface {
	// Of returns the approval that a call owes, nil for none. why says what asks for it besides the
	// rules, "" for nothing.
	Of(p *toolkeep.Principal, t *toolkeep.Tool, why string, byRisk bool) *approval.Need
	// Standing returns the standing approval that covers the call, nil for none.
	Standing(v *toolkeep.Invocation, n *approval.Need) *approval.Grant
	// Room is E3216 if too many calls of the agent or its tenant wait already.
	Room(tenant, subject string) error
	// Ask returns the request of a call, and what begins it.
	Ask(n *approval.Need, v *toolkeep.Invocation) (*approval.Request, []toolkeep.Change)
	// Close returns what ends the request of a call without a decision.
	Close(ctx context.Context, ref toolkeep.CallRef, as approval.State, at time.Time) ([]toolkeep.Change, error)
}

// Sealer encrypts the arguments of waiting calls at rest.
type Sealer interface {
	Seal(plain, context []byte) ([]byte, error)
	Open(sealed, context []byte) ([]byte, error)
}

// Blobs stores what is too large for a result.
type Blobs interface {
	Put(ctx context.Context, b toolkeep.Blob, r io.Reader) (toolkeep.Blob, error)
	// Remove removes a blob whose id was given to no caller.
	Remove(ctx context.Context, id string) error
}

// Knowledge is what this node has applied of what all nodes change; toolkeep.Freshness
// implements it.
type Knowledge interface {
	// Check returns when knowledge is recent enough to decide calls by; looked says that it
	// was not. E3003.
	Check(ctx context.Context) (looked bool, err error)
	// Applied returns the feed position up to which everything was applied.
	Applied() int64
	// AwaitApplied waits until everything up to seq was applied, or ctx ends.
	AwaitApplied(ctx context.Context, seq int64) error
}

// HeadSeer is what a store does that knows the newest feed position which its commits saw.
type HeadSeer interface{ SeenHead() int64 }

// Observer is notified once per call, when its record is made, with the time that each Step took, nil where
// none ran in this process. It must not block.
type Observer interface {
	Called(v *toolkeep.Invocation, t *toolkeep.Tool, e *toolkeep.Error, durations []time.Duration)
}
