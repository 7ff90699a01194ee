package rpc

import (
	"context"
	"iter"
	"log/slog"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/face/gate"
)

// Calls reads and steers calls.
type Calls interface {
	// Get finds one call and notes that its answer was fetched. E3013, E3965.
	Get(ctx context.Context, p *toolkeep.Principal, id string) (*toolkeep.Invocation, error)
	// Cancel asks a call to stop; cancelled is false if it had ended. E3013, E3201.
	Cancel(ctx context.Context, p *toolkeep.Principal, id, why string) (cancelled bool, message string, err error)
	// Watch yields the call's row at once and at every change, and ends after the
	// final state or when ctx ends. E3013.
	Watch(ctx context.Context, p *toolkeep.Principal, id string) iter.Seq2[*toolkeep.Invocation, error]
	// Explain says what would happen to the call; the answer marshals to JSON.
	Explain(ctx context.Context, p *toolkeep.Principal, c *toolkeep.Call) (any, error)
	// Result is the receipt that a row holds.
	Result(v *toolkeep.Invocation) *toolkeep.Result
}

// Catalog is the part of catalog.Catalog that the services use.
type Catalog interface {
	// Describe finds a version to look at, one that is held too.
	Describe(p *toolkeep.Principal, tool, rng string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error)
	List(p *toolkeep.Principal, f catalog.Filter, visible func(*toolkeep.Tool) bool) ([]catalog.Summary, int)
	Versions(p *toolkeep.Principal, toolID string, visible func(*toolkeep.Tool) bool) ([]toolkeep.Version, error)
}

// Search finds tools by what they are for.
type Search interface {
	Find(ctx context.Context, q discover.Query, visible func(*toolkeep.Tool) bool) ([]discover.Match, discover.Report)
}

// Config is what the face needs. Gate, Invoker, Calls, Catalog and Visible are
// required.
type Config struct {
	Gate    *gate.Gate // shared with the other faces
	Invoker toolkeep.Invoker
	Calls   Calls
	Catalog Catalog
	// Visible tells whether a tool exists for a principal.
	Visible func(p *toolkeep.Principal, t *toolkeep.Tool) bool
	// Search finds tools by what they are for; without it QueryByCapability and
	// ListTools.capability_query answer E3104.
	Search Search
	// Retrievals records searches; only tests do without.
	Retrievals Retrievals
	// Audience names who sees the same tools as the principal, with what else is left out,
	// so that answers of Search can be kept (discover.Query.Audience); nil: none are.
	Audience func(p *toolkeep.Principal, more ...string) string
	// Ready is what the health service says; nil is always ready.
	Ready func(ctx context.Context) bool
	// TLS are the server's credentials, for TLS or mutual TLS; nil serves plain
	// text, which is for loopback alone.
	TLS    credentials.TransportCredentials
	Limits Limits
	Log    *slog.Logger // default slog.Default()
}

// limits are those of all faces and those of this one.
type limits struct {
	common
	Limits
}

type common = gate.Limits

// Limits of the face beside the gate's. Zero fields take the default.
type Limits struct {
	Streams        int           // calls at once on one connection; default 250
	ConnectTimeout time.Duration // until the handshake is done; default 10 s
	ConnectionIdle time.Duration // of a connection without calls; default 15 min
	// Ping is how often a silent connection is asked whether it lives; default 1 min,
	// with 20 s for the answer.
	Ping time.Duration
	// PingEvery is how often a client may ask; one that asks more often is cut off.
	// Default 10 s.
	PingEvery time.Duration
	// HealthEvery is how often a watched health is looked at; default 1 s.
	HealthEvery time.Duration
}

func (l Limits) withDefaults() Limits {
	gate.Default(&l.Streams, 250)
	gate.Default(&l.ConnectTimeout, 10*time.Second)
	gate.Default(&l.ConnectionIdle, 15*time.Minute)
	gate.Default(&l.Ping, time.Minute)
	gate.Default(&l.PingEvery, 10*time.Second)
	gate.Default(&l.HealthEvery, time.Second)
	return l
}
