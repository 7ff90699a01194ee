package rest

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/control/imports"
	"github.com/toolkeep/toolkeep/control/servers"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/assembly"
	"github.com/toolkeep/toolkeep/discover/usage"
)

// Auth names the caller.
type Auth interface {
	// Authenticate turns a bearer credential ("" if none was sent) and the remote
	// address into a principal. E3214, E3810.
	Authenticate(ctx context.Context, bearer, addr string) (*toolkeep.Principal, error)
}

// Calls reads and steers calls.
type Calls interface {
	// Get finds one call and notes that its answer was fetched. E3013, E3704.
	Get(ctx context.Context, p *toolkeep.Principal, id string) (*toolkeep.Invocation, error)
	// List gives a page, newest first, and how many there are in all.
	List(ctx context.Context, p *toolkeep.Principal, f toolkeep.InvocationFilter) ([]*toolkeep.Invocation, int, error)
	// Cancel asks a call to stop; cancelled is false if it had ended. E3013, E3201.
	Cancel(ctx context.Context, p *toolkeep.Principal, id, why string) (cancelled bool, message string, err error)
	// Watch yields the call's row at once and at every change of state or
	// progress, and ends after the final state or when ctx ends. E3013.
	Watch(ctx context.Context, p *toolkeep.Principal, id string) iter.Seq2[*toolkeep.Invocation, error]
	// Explain says what would happen to the call; the answer marshals to JSON.
	Explain(ctx context.Context, p *toolkeep.Principal, c *toolkeep.Call) (any, error)
	// Result is the receipt that a row holds.
	Result(v *toolkeep.Invocation) *toolkeep.Result
}

// Catalog is the part of catalog.Catalog that the routes use.
type Catalog interface {
	// Describe finds a version to look at, one that is held too.
	Describe(p *toolkeep.Principal, tool, rng string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error)
	SetState(ctx context.Context, p *toolkeep.Principal, toolID, version string, ch catalog.StateChange) (toolkeep.Lifecycle, error)
	List(p *toolkeep.Principal, f catalog.Filter, visible func(*toolkeep.Tool) bool) ([]catalog.Summary, int)
	Versions(p *toolkeep.Principal, toolID string, visible func(*toolkeep.Tool) bool) ([]toolkeep.Version, error)
}

// Search finds tools by words.
type Search interface {
	Find(ctx context.Context, q discover.Query, visible func(*toolkeep.Tool) bool) ([]discover.Match, discover.Report)
	// Tools gives every tool that visible lets through.
	Tools(visible func(*toolkeep.Tool) bool) []*toolkeep.Tool
}

// Keys keeps API keys.
type Keys interface {
	// CreateKey makes a key of the principal's tenant. Of k it reads Subject, Name,
	// Roles, Scope and ExpiresAt. The secret is shown this once.
	CreateKey(ctx context.Context, p *toolkeep.Principal, k toolkeep.APIKey) (key toolkeep.APIKey, secret string, err error)
	RevokeKey(ctx context.Context, p *toolkeep.Principal, id string) error
	ListKeys(ctx context.Context, p *toolkeep.Principal) ([]toolkeep.APIKey, error)
}

// Blobs opens what was too big for a result.
type Blobs interface {
	Open(ctx context.Context, id string) (toolkeep.Blob, io.ReadCloser, error)
}

// Rates tells how much of the request limit is left.
type Rates interface {
	// Status gives the limit a minute (0 is none), what is left and when more
	// comes.
	Status(p *toolkeep.Principal) (limit, remaining int, reset time.Duration)
}

// Imports is what control/imports does, which see.
type Imports interface {
	OpenAPI(ctx context.Context, p *toolkeep.Principal, r imports.Request) (*imports.Plan, []catalog.Published, error)
	Publish(ctx context.Context, p *toolkeep.Principal, b *imports.Batch) error
}

// Config is what the face needs. Auth, Invoker, Calls, Catalog, Imports and Visible are
// required. A part that is nil leaves its routes out, of the server and of the
// document.
type Config struct {
	Auth    Auth
	Invoker toolkeep.Invoker
	Calls   Calls
	Catalog Catalog
	Imports Imports
	// Visible tells whether a tool exists for a principal.
	Visible func(p *toolkeep.Principal, t *toolkeep.Tool) bool

	Search Search
	// Audience names who sees the same tools as the principal, with what else is left out,
	// so that answers of Search can be kept (discover.Query.Audience); nil: none are.
	Audience func(p *toolkeep.Principal, more ...string) string
	// SearchAdmin flushes kept answers and reindexes; nil: neither is there.
	SearchAdmin SearchAdmin
	// Indexing tells how far search knows what was published; nil: by words alone.
	Indexing Indexing
	// Guide makes contexts and finds related tools; nil: one over Search that has learned
	// nothing.
	Guide *assembly.Guide
	// Analytics is how a tool fared for a tenant, ok is false for one that it has not
	// called; nil leaves it out.
	Analytics func(tenant, tool string) (a usage.ToolAnalytics, ok bool)
	// Retrievals records searches; only tests do without.
	Retrievals Retrievals
	Learning   Learning
	Keys       Keys
	Blobs      Blobs
	Servers    *servers.Servers
	// Set finds a set of tools by its name, as a choice; nil means that there are none.
	Set      func(p *toolkeep.Principal, name string) (includes func(*toolkeep.Tool) bool, ok bool)
	Contexts Contexts
	Secrets  Secrets
	// Invalidate drops the cached results that a tenant has of a tool, "" of all, and
	// tells how many.
	Invalidate func(tenant, toolID string) int
	// Challenge is the value of WWW-Authenticate for a refused path, its error, and
	// whether credentials were sent; nil names the scheme alone.
	Challenge func(path string, err error, sent bool) string
	Rates     Rates
	// Health answers /health, /ready and /health/….
	Health http.Handler
	// Mounts are other handlers on the same port, by ServeMux pattern (/mcp, /).
	// They get the Host and Origin rules, and no others; OwnOrigins are the paths
	// whose handler has an Origin rule of its own.
	Mounts     map[string]http.Handler
	OwnOrigins []string

	Version string // of the program, in the document
	Addr    string // of NewServer; default 127.0.0.1:8080
	Limits  Limits
	// AllowedHosts are the names beside loopback under which the server is
	// reached, with or without port; "*" allows any.
	AllowedHosts []string
	Log          *slog.Logger // default slog.Default()
}

// Limits on what comes in. Zero fields take the default.
type Limits struct {
	BodyBytes     int64         // one body; default 1 MiB
	BulkBytes     int64         // batch-register and import; default 16 MiB
	HeaderBytes   int           // the header block; default 64 KiB
	KeyBytes      int           // a key or id; default 4 KiB
	HeaderTimeout time.Duration // until the header block is read; default 10 s
	BodyTimeout   time.Duration // until the body is read; default 30 s
	WriteTimeout  time.Duration // until an answer or event is taken; default 30 s
	IdleTimeout   time.Duration // between requests; default 2 min
	KeepAlive     time.Duration // between comments of an event stream; default 15 s
}

func (l Limits) withDefaults() Limits {
	orInt(&l.BodyBytes, 1<<20)
	orInt(&l.BulkBytes, 16<<20)
	orInt(&l.HeaderBytes, 64<<10)
	orInt(&l.KeyBytes, 4<<10)
	orInt(&l.HeaderTimeout, 10*time.Second)
	orInt(&l.BodyTimeout, 30*time.Second)
	orInt(&l.WriteTimeout, 30*time.Second)
	orInt(&l.IdleTimeout, 2*time.Minute)
	orInt(&l.KeepAlive, 15*time.Second)
	return l
}

func orInt[T ~int | ~int64](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

// object is a JSON object that is passed on as it came; see bridge.go.
type object json.RawMessage
