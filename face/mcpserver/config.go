package mcpserver

import (
	"context"
	"iter"
	"log/slog"
	"net/http"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/assembly"
	"github.com/toolkeep/toolkeep/discover/usage"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/secret"
)

// Calls reads calls that are waiting or finished.
type Calls interface {
	// Get returns one call and records that its answer was fetched. E3013, E3704.
	Get(ctx context.Context, p *toolkeep.Principal, id string) (*toolkeep.Invocation, error)
	// Watch yields the call's row at once and after every change, and ends after the final state or
	// when ctx ends. E3013.
	Watch(ctx context.Context, p *toolkeep.Principal, id string) iter.Seq2[*toolkeep.Invocation, error]
	// Result returns the receipt stored in a row.
	Result(v *toolkeep.Invocation) *toolkeep.Result
}

// Catalog is the part of catalog.Catalog that the views use.
type Catalog interface {
	Snapshot() *catalog.Snapshot
	// OnChange registers fn to be called with each new snapshot; fn must return at once.
	OnChange(fn func(*catalog.Snapshot))
	// Describe resolves a version for display, including one on hold.
	Describe(ctx context.Context, p *toolkeep.Principal, tool, rng string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error)
	// Find is Describe of what this node knows.
	Find(p *toolkeep.Principal, tool, rng string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error)
}

// Search finds tools by purpose.
type Search interface {
	Find(ctx context.Context, q discover.Query, visible func(*toolkeep.Tool) bool) ([]discover.Match, discover.Report)
	// Tools returns every tool for which visible is true.
	Tools(visible func(*toolkeep.Tool) bool) []*toolkeep.Tool
}

// Sealer encrypts and authenticates the state that a client carries; secret.Sealer implements it.
type Sealer interface {
	Seal(plain, context []byte) ([]byte, error)
	Open(sealed, context []byte) ([]byte, error)
}

// Set is a named selection of tools at /mcp/sets/{name}. A tool is in the set if any of the lists
// names it; a set with empty lists has no tools.
type Set struct {
	Title        string   `json:"title"`
	Instructions string   `json:"instructions"` // for the model, sent at initialize
	Tools        []string `json:"tools"`        // tool ids or patterns (path.Match)
	Namespaces   []string `json:"namespaces"`
	Categories   []string `json:"categories"`
	Tags         []string `json:"tags"`
}

// Config is what the face needs. Gate, Invoker, Calls, Catalog, Visible, Callable, Search
// and Sealer are required.
type Config struct {
	Gate    *gate.Gate // shared with the other faces
	Invoker toolkeep.Invoker
	Calls   Calls
	Catalog Catalog
	// Visible reports whether a tool exists for a principal, so that a call of it says why it is refused;
	// Callable whether the principal may call it as far as that can be said without a call. Lists, searches and
	// descriptions show what is callable.
	Visible, Callable func(p *toolkeep.Principal, t *toolkeep.Tool) bool
	Search            Search
	// Audience returns a key for the principals that see the same tools, after further exclusions,
	// so that results of Search can be cached (discover.Query.Audience); nil: no caching.
	Audience func(p *toolkeep.Principal, more ...string) string
	// Guide assembles the contexts that find_tools returns; nil: one over Search without learned
	// data.
	Guide *assembly.Guide
	// Reads is told of reads of tools; only tests leave it nil.
	Reads audit.Reader
	// Retrievals records searches; only tests leave it nil.
	Retrievals usage.Recorder
	Sealer     Sealer // for the requestState of questions

	// Upstreams are the MCP servers behind the gateway; nil disables the relay views, and resources
	// and prompts in the other views.
	Upstreams Upstreams
	// Set finds a set by name for a principal; nil: there are no sets.
	Set func(p *toolkeep.Principal, name string) (*Set, bool)

	// ToolAuth returns the state of a tool's secrets for a principal, nil if the tool needs none;
	// with ask false it never blocks. nil: not shown.
	ToolAuth func(ctx context.Context, p *toolkeep.Principal, t *toolkeep.Tool, ask bool) *secret.Auth

	View      string // what /mcp shows: all, search or auto; default auto
	AutoTools int    // how many visible tools auto lists whole; default 40
	Node      string // name of this node in the cluster, sealed into requestState; default random

	// Forward hands a request to the node of a Tag, and returns toolkeep.ErrNotFound if there is no
	// such node, else why it could not be answered: E3913 with an exact NothingSent if the node is away. A session, and a call that waits for an answer,
	// live on one node; with Forward a load balancer may send their requests to any node. nil:
	// requests must reach the right node.
	Forward func(w http.ResponseWriter, r *http.Request, tag string) error

	// BaseURL is where clients reach the server (https://tools.example), for links to blobs;
	// default is taken from each request.
	BaseURL string
	Version string // of the program
	Limits  Limits
	// Share returns this node's share of a limit that all nodes keep together, and their
	// number; nil for a node alone.
	Share func(limit int) (share, nodes int)
	Log   *slog.Logger // default slog.Default()
}

// limits combines the limits shared by all faces with those of this face.
type limits struct {
	common
	Limits
}

type common = gate.Limits

// Limits are this face's own limits, in addition to the gate's. Zero fields take the default.
type Limits struct {
	streamAfter time.Duration // run time of a request before its answer becomes an event stream; default 200 ms

	Sessions          int           // total of this node; default 10,000
	PrincipalSessions int           // per principal, of which Config.Share is this node's; default 100, above that its oldest idle session ends
	SessionIdle       time.Duration // without a request or an open stream; default 30 min

	streamEvents int // kept per stream; default 256
	sessionBytes int // kept for ended streams, per session; default 8 MiB

	listDelay time.Duration // from a catalogue change to list_changed; default 200 ms
	pageSize  int           // list entries per page; default 1,000

	principalParked int           // calls per principal that wait for an answer in 2026-07-28; default 32
	answerWithin    time.Duration // time to answer a question; default 5 min
}

const (
	sessionRequests  = 64              // concurrent requests per session
	sessionFound     = 128             // tools that a session of view auto collects by searching
	streamBytes      = 1 << 20         // kept per stream, not counting answers
	maxEventBytes    = 64 << 20        // kept for ended streams, all sessions
	eventLifetime    = 2 * time.Minute // of an ended stream, for resuming
	listTTL          = 5 * time.Second // ttlMs of lists in 2026-07-28
	maxParked        = 1000            // calls that wait for an answer in 2026-07-28
	questionBytes    = 1 << 20         // parameters of one question
	principalListens = 100             // open subscriptions/listen streams per principal
	upstreamWait     = 3 * time.Second // for one upstream's definitions when listing all
	invocationMax    = time.Minute     // longest wait of get_invocation
	// approvalWait is how long a tools/call waits for a person: many clients give up after a minute,
	// and cancel the call.
	approvalWait = 50 * time.Second
)

func (l Limits) withDefaults() Limits {
	gate.Default(&l.streamAfter, 200*time.Millisecond)
	gate.Default(&l.Sessions, 10_000)
	gate.Default(&l.PrincipalSessions, 100)
	gate.Default(&l.SessionIdle, 30*time.Minute)
	gate.Default(&l.streamEvents, 256)
	gate.Default(&l.sessionBytes, 8<<20)
	gate.Default(&l.listDelay, 200*time.Millisecond)
	gate.Default(&l.pageSize, 1000)
	gate.Default(&l.principalParked, 32)
	gate.Default(&l.answerWithin, 5*time.Minute)
	return l
}
