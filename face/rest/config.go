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
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/audit"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/catalog/source/function"
	"github.com/toolkeep/toolkeep/catalog/source/grpc"
	"github.com/toolkeep/toolkeep/control/caches"
	"github.com/toolkeep/toolkeep/control/health"
	"github.com/toolkeep/toolkeep/control/imports"
	"github.com/toolkeep/toolkeep/control/nodes"
	"github.com/toolkeep/toolkeep/control/servers"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/assembly"
	"github.com/toolkeep/toolkeep/discover/usage"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/invoke"
)

// Calls reads and steers calls.
type Calls interface {
	// Get finds one call and notes that its answer was fetched. E3013, E3704.
	Get(ctx context.Context, p *toolkeep.Principal, id string) (*toolkeep.Invocation, error)
	// List gives a page, newest first, and how many there are in all.
	List(ctx context.Context, p *toolkeep.Principal, f toolkeep.InvocationFilter) ([]*toolkeep.Invocation, int, error)
	// Cancel asks a call to stop; cancelled is false if it had ended. E3013, E3201.
	Cancel(ctx context.Context, p *toolkeep.Principal, id, why string) (cancelled bool, message string, err error)
	// Requeue puts a lost call into the queue again. E3013, E3963.
	Requeue(ctx context.Context, p *toolkeep.Principal, id string) (*toolkeep.Invocation, error)
	// Watch yields the call's row at once and at every change of state or
	// progress, and ends after the final state or when ctx ends. E3013.
	Watch(ctx context.Context, p *toolkeep.Principal, id string) iter.Seq2[*toolkeep.Invocation, error]
	// Follow yields what happens in the calls that the filter selects, first an event of kind open, until ctx ends. E3802.
	Follow(ctx context.Context, p *toolkeep.Principal, f toolkeep.InvocationFilter) iter.Seq2[invoke.LiveEvent, error]
	// Explain says what would happen to the call; the answer marshals to JSON.
	Explain(ctx context.Context, p *toolkeep.Principal, c *toolkeep.Call) (any, error)
	// Result is the receipt that a row holds.
	Result(v *toolkeep.Invocation) *toolkeep.Result
}

// Catalog is the part of catalog.Catalog that the routes use.
type Catalog interface {
	// Describe finds a version to look at, one that is held too.
	Describe(ctx context.Context, p *toolkeep.Principal, tool, rng string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error)
	// Find is Describe of what this node knows.
	Find(p *toolkeep.Principal, tool, rng string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error)
	SetState(ctx context.Context, p *toolkeep.Principal, toolID, version string, ch catalog.StateChange) (toolkeep.Lifecycle, error)
	HoldByHand(ctx context.Context, p *toolkeep.Principal, toolID, version string, why *string) (toolkeep.Lifecycle, error)
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
	// CreateSignedKey is CreateKey for a key whose requests must be signed with signing, which is
	// shown this once too.
	CreateSignedKey(ctx context.Context, p *toolkeep.Principal, k toolkeep.APIKey) (key toolkeep.APIKey, secret, signing string, err error)
	RotateKey(ctx context.Context, p *toolkeep.Principal, id string, overlap time.Duration) (key toolkeep.APIKey, text, secret string, err error)
	RevokeKey(ctx context.Context, p *toolkeep.Principal, id string) error
	// ListRoles gives the custom roles of the principal's tenant, and the file that they are in.
	ListRoles(p *toolkeep.Principal) (own []access.Role, file string, err error)
	SetScope(ctx context.Context, p *toolkeep.Principal, id string, scope []string, dryRun bool) (toolkeep.APIKey, error)
	ListKeys(ctx context.Context, p *toolkeep.Principal) ([]toolkeep.APIKey, error)
}

// Blobs opens what was too big for a result.
type Blobs interface {
	Open(ctx context.Context, id string) (toolkeep.Blob, io.ReadCloser, error)
}

// Imports is what control/imports does, which see.
type Imports interface {
	OpenAPI(ctx context.Context, p *toolkeep.Principal, r imports.Request) (*imports.Plan, []catalog.Published, error)
	GRPC(ctx context.Context, p *toolkeep.Principal, o grpc.Options, pub catalog.PublishOptions) (*imports.Plan, []catalog.Published, error)
	Functions(ctx context.Context, p *toolkeep.Principal, o function.Options, pub catalog.PublishOptions) (*imports.Plan, []catalog.Published, error)
	Publish(ctx context.Context, p *toolkeep.Principal, b *imports.Batch) error
	SetAbout(ctx context.Context, p *toolkeep.Principal, namespace, text string, from catalog.AboutFrom, shared bool) error
	Choices(ctx context.Context, p *toolkeep.Principal, namespace string, shared bool) (map[string]catalog.Choice, error)
	SetChoice(ctx context.Context, p *toolkeep.Principal, namespace, title string, choice catalog.Choice, shared bool) error
}

// Config is what the face needs. Gate, Invoker, Calls, Catalog, Imports, Visible and Callable are
// required. A part that is nil leaves its routes out, of the server and of the
// document.
type Config struct {
	Gate    *gate.Gate // shared with the other faces
	Invoker toolkeep.Invoker
	Calls   Calls
	Catalog Catalog
	Imports Imports
	// Visible tells whether a tool exists for a principal, Callable whether it may call it as far as that
	// can be said without a call. The registry shows what is visible, all else what is callable.
	Visible, Callable func(p *toolkeep.Principal, t *toolkeep.Tool) bool

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
	// Reads is told of reads of tools; only tests do without.
	Reads audit.Reader
	// Retrievals records searches; only tests do without.
	Retrievals Retrievals
	Learning   Learning
	Keys       Keys
	Blobs      Blobs
	Servers    *servers.Servers
	Nodes      nodes.Members // the nodes of the store
	Policies   Policies
	Breakers   Breakers // nil: no routes
	Overview   Overview // nil: no routes
	// ToolHealth is how well a tool works that the principal may see; nil: no route.
	ToolHealth func(p *toolkeep.Principal, t *toolkeep.Tool) health.Health
	Tokens     Tokens // capability tokens; nil: no routes
	Audit      Audit  // nil: no journal is read
	Holds      Holds  // nil: there are no legal holds
	Erasure    Erasure
	Sinks      Sinks // nil: no routes
	// Set finds a set of tools by its name, as a choice; nil means that there are none.
	Set       func(p *toolkeep.Principal, name string) (includes func(*toolkeep.Tool) bool, ok bool)
	Contexts  Contexts
	Secrets   Secrets
	Approvals Approvals
	// Sessions are those of browsers; nil: no routes.
	Sessions Sessions
	NodeName string        // of this node
	BaseURL  func() string // under which people reach the server; required with Sessions
	// Invalidate drops the cached results that a tenant, "" for all, has of a tool, "" for all, on every node, and tells how many
	// this one had.
	Invalidate func(ctx context.Context, tenant, toolID, by string) (int, error)
	// TraceURL is where the trace of a call is shown, with {trace_id} in place of its id; "": nowhere.
	TraceURL string
	// Caches are this node's; nil: no route.
	Caches *caches.Caches
	// Health answers /health, /ready and /health/….
	Health http.Handler
	// Mounts are other handlers on the same port, by ServeMux pattern (/mcp, /).
	// They stand behind the same gate.
	Mounts map[string]http.Handler

	// Console answers requests for the web console, and is false for what is not its own; nil: there is none.
	Console func(w http.ResponseWriter, r *http.Request) bool

	Version string       // of the program, in the document
	Addr    string       // of Server; default 127.0.0.1:8080
	Log     *slog.Logger // default slog.Default()
}

// object is a JSON object that is passed on as it came.
type object json.RawMessage

func (o object) MarshalJSON() ([]byte, error) {
	if len(o) == 0 {
		return []byte("{}"), nil
	}
	return o, nil
}

func (o *object) UnmarshalJSON(b []byte) error {
	*o = append((*o)[:0], b...)
	return nil
}

func (object) describe(*components) tree { return tree{"type": "object", "additionalProperties": true} }
