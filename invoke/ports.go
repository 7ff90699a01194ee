package invoke

import (
	"context"
	"io"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/overlay"
	"github.com/toolkeep/toolkeep/resultcache"
	"github.com/toolkeep/toolkeep/secret"
)

// Catalog resolves references.
type Catalog interface {
	// Resolve finds the version for a reference among those that visible lets
	// through. Warnings say that it is deprecated or sunset (E3006).
	// Errors: E3001, E3004, E3005, E3009, E3010, E3012.
	Resolve(p *toolkeep.Principal, tool, rng string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error)
}

// Access decides who may do what.
type Access interface {
	// ActingAs gives the principal that the call is for: the caller itself, or the
	// one that it acts as. E3201.
	ActingAs(p *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Principal, error)
	// Refresh looks a stored principal up again: its key may have been revoked or
	// given other roles. E3214.
	Refresh(p *toolkeep.Principal) (*toolkeep.Principal, error)
	// Visible tells whether the tool exists for the principal.
	Visible(p *toolkeep.Principal, t *toolkeep.Tool) bool
	// NoteDenied counts a refusal: an agent that is refused again and again is
	// blocked for a while (Execution 8.8).
	NoteDenied(p *toolkeep.Principal)
	// Authorise decides one call; every check carries its reason.
	Authorise(p *toolkeep.Principal, t *toolkeep.Tool, c *toolkeep.Call) access.Decision
}

// Limits refuses for load. The Peek methods answer the same without taking.
type Limits interface {
	// TakeRequest takes from the agent's and the global bucket. E3801.
	TakeRequest(p *toolkeep.Principal) error
	PeekRequest(p *toolkeep.Principal) error
	// Take takes from the agent-and-tool and the tool's own bucket and a slot of
	// the agent's and the tool's concurrency. E3801, E3802. child leaves out the
	// agent's slot, which its root holds.
	Take(p *toolkeep.Principal, t *toolkeep.Tool, child bool) (release func(), err error)
	Peek(p *toolkeep.Principal, t *toolkeep.Tool, child bool) error
}

// Results is the result cache.
type Results interface {
	// Get gives a result that the caller may change, except for what lies behind Output,
	// Warnings and Attachments.
	Get(k resultcache.Key) (*toolkeep.Result, bool)
	Peek(k resultcache.Key) bool
	Put(k resultcache.Key, tenant, toolID string, r *toolkeep.Result, c *toolkeep.CacheSpec)
	// Do runs fn once for all calls that ask for k at the same time; shared says that
	// another call's run was used. A caller whose ctx ends leaves without stopping
	// the run while others still wait for it.
	Do(ctx context.Context, k resultcache.Key, fn func(context.Context) (*toolkeep.Result, error)) (r *toolkeep.Result, shared bool, err error)
}

// Secrets turns references into values at the last moment; secret.Resolver does.
type Secrets interface {
	// Credential gives what is sent for an auth entry; credentials made for the call end
	// with ctx. fresh: the upstream refused the last one. E3205, E3401, E3402, E3403.
	Credential(ctx context.Context, p *toolkeep.Principal, m *toolkeep.Manifest, spec toolkeep.AuthSpec, fresh bool) (secret.Equipped, error)
	// Look tells whether there is a value, without giving it. E3402, E3403.
	Look(ctx context.Context, p *toolkeep.Principal, ref string) (secret.Status, error)
	// Check is Look with what is missing or expired as E3401.
	Check(ctx context.Context, p *toolkeep.Principal, ref string) error
	// Mark changes when what the reference gives the principal changes; ok is false where
	// it gives nothing.
	Mark(ctx context.Context, p *toolkeep.Principal, ref string) (m secret.Mark, ok bool)
}

// Overlays are what agents add to tools; they only narrow.
type Overlays interface {
	// Of gives the caller's, nil for nothing. E3206.
	Of(ctx context.Context, p *toolkeep.Principal, t *toolkeep.Tool) (*overlay.Context, error)
	// Take takes a call from the bucket of the overlay's own rate; Peek looks. E3801.
	Take(p *toolkeep.Principal, t *toolkeep.Tool, c *overlay.Context) error
	Peek(p *toolkeep.Principal, t *toolkeep.Tool, c *overlay.Context) error
}

// Sealer keeps arguments of waiting calls unreadable at rest.
type Sealer interface {
	Seal(plain, context []byte) ([]byte, error)
	Open(sealed, context []byte) ([]byte, error)
}

// Blobs keeps what is too big for a result.
type Blobs interface {
	Put(ctx context.Context, b toolkeep.Blob, r io.Reader) (toolkeep.Blob, error)
}

// Store is the part of a store that the pipeline uses.
type Store interface {
	toolkeep.Applier
	toolkeep.Watcher
}

// Observer is told of every call once, when its record is made. It must not block.
type Observer interface {
	Called(v *toolkeep.Invocation, t *toolkeep.Tool, e *toolkeep.Error, steps *Steps)
}
