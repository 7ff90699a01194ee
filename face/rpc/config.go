package rpc

import (
	"context"
	"crypto/tls"
	"iter"
	"log/slog"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit"
	"github.com/toolkeep/toolkeep/catalog"
	toolhealth "github.com/toolkeep/toolkeep/control/health"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/assembly"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/secret"
)

// Calls reads and controls calls.
type Calls interface {
	// Get returns one call and records that its answer was fetched. E3013, E3965.
	Get(ctx context.Context, p *toolkeep.Principal, id string) (*toolkeep.Invocation, error)
	// Cancel asks a call to stop; cancelled is false if it had ended. E3013, E3201.
	Cancel(ctx context.Context, p *toolkeep.Principal, id, why string) (cancelled bool, message string, err error)
	// Watch yields the call's row at once and after every change, and ends after the final state or
	// when ctx ends. E3013.
	Watch(ctx context.Context, p *toolkeep.Principal, id string) iter.Seq2[*toolkeep.Invocation, error]
	// Explain returns what would happen to the call; the answer marshals to JSON.
	Explain(ctx context.Context, p *toolkeep.Principal, c *toolkeep.Call) (any, error)
	// Result returns the receipt stored in a row.
	Result(v *toolkeep.Invocation) *toolkeep.Result
}

// Catalog is the part of catalog.Catalog that the services use.
type Catalog interface {
	// Describe resolves a version for display, including one on hold.
	Describe(ctx context.Context, p *toolkeep.Principal, tool, rng string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error)
	// Find is Describe of what this node knows.
	Find(p *toolkeep.Principal, tool, rng string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error)
	List(p *toolkeep.Principal, f catalog.Filter, visible func(*toolkeep.Tool) bool) ([]catalog.Summary, int)
	Versions(p *toolkeep.Principal, toolID string, visible func(*toolkeep.Tool) bool) ([]toolkeep.Version, error)
}

// Search finds tools by purpose.
type Search interface {
	Find(ctx context.Context, q discover.Query, visible func(*toolkeep.Tool) bool) ([]discover.Match, discover.Report)
	// Tools returns every tool that visible admits.
	Tools(visible func(*toolkeep.Tool) bool) []*toolkeep.Tool
}

// Config is what the face needs. Gate, Invoker, Calls, Catalog, Visible and Callable are
// required.
type Config struct {
	Gate    *gate.Gate // shared with the other faces
	Invoker toolkeep.Invoker
	Calls   Calls
	Catalog Catalog
	// Visible reports whether a tool exists for a principal, Callable whether it may call it as far as
	// that can be said without a call. The registry's lists show what is visible, searches what is callable.
	Visible, Callable func(p *toolkeep.Principal, t *toolkeep.Tool) bool
	// Search finds tools by purpose; without it QueryByCapability, ToolContext and
	// ListTools.capability_query answer E3104.
	Search Search
	// ToolAuth returns the state of a tool's secrets for a principal, for auth_status, nil for a
	// tool that needs none; ask lets it ask the store of a reference. nil leaves the field empty.
	ToolAuth func(ctx context.Context, p *toolkeep.Principal, t *toolkeep.Tool, ask bool) *secret.Auth
	// ToolHealth returns how well a tool works that the principal may see; nil: GetToolHealth is not served.
	ToolHealth func(p *toolkeep.Principal, t *toolkeep.Tool) toolhealth.Health
	// Guide assembles contexts; nil: one over Search without learned data.
	Guide *assembly.Guide
	// Reads is told of reads of tools; only tests leave it nil.
	Reads audit.Reader
	// Retrievals records searches and feedback; only tests leave it nil.
	Retrievals Retrievals
	// Audience returns a key for the principals that see the same tools, after further exclusions,
	// so that results of Search can be cached (discover.Query.Audience); nil: no caching.
	Audience func(p *toolkeep.Principal, more ...string) string
	// Ready is the health service's status; nil means always ready.
	Ready func(ctx context.Context) bool
	// TLS is what the server shows and asks for, for TLS or mutual TLS; nil serves plain text,
	// for loopback only.
	TLS *tls.Config
	// healthEvery is the interval at which a watched health status is checked; default 1 s.
	healthEvery time.Duration
	Log         *slog.Logger // default slog.Default()
}

// Limits of this face, in addition to the gate's.
const (
	maxStreams     = 250              // concurrent calls per connection
	connectTimeout = 10 * time.Second // for the handshake
	connectionIdle = 15 * time.Minute // of a connection without calls
	pingTime       = time.Minute      // interval of keepalive pings on a silent connection
	pingWait       = 20 * time.Second // for the answer
	// pingEvery is the shortest interval at which a client may ping; a client that pings more often
	// is disconnected.
	pingEvery = 10 * time.Second
)
