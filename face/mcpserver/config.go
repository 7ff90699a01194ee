package mcpserver

import (
	"context"
	"iter"
	"log/slog"
	"net/http"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/assembly"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/secret"
)

// Calls reads calls that wait or are over.
type Calls interface {
	// Get finds one call and notes that its answer was fetched. E3013, E3704.
	Get(ctx context.Context, p *toolkeep.Principal, id string) (*toolkeep.Invocation, error)
	// Watch yields the call's row at once and at every change, and ends after the
	// final state or when ctx ends. E3013.
	Watch(ctx context.Context, p *toolkeep.Principal, id string) iter.Seq2[*toolkeep.Invocation, error]
	// Result is the receipt that a row holds.
	Result(v *toolkeep.Invocation) *toolkeep.Result
}

// Catalog is the part of catalog.Catalog that the views use.
type Catalog interface {
	Snapshot() *catalog.Snapshot
	// OnChange has fn called with each new snapshot; fn must return at once.
	OnChange(fn func(*catalog.Snapshot))
	// Describe finds a version to look at, one that is held too.
	Describe(p *toolkeep.Principal, tool, rng string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error)
}

// Search finds tools by what they are for.
type Search interface {
	Find(ctx context.Context, q discover.Query, visible func(*toolkeep.Tool) bool) ([]discover.Match, discover.Report)
	// Tools gives every tool that visible lets through.
	Tools(visible func(*toolkeep.Tool) bool) []*toolkeep.Tool
}

// Sealer makes the state that a client carries unreadable and unchangeable;
// secret.Sealer is one.
type Sealer interface {
	Seal(plain, context []byte) ([]byte, error)
	Open(sealed, context []byte) ([]byte, error)
}

// Set is a choice of tools with a name of its own at /mcp/sets/{name}. A tool is
// in it if any of the lists names it; a set of empty lists has no tools.
type Set struct {
	Title        string
	Instructions string   // for the model, sent at initialize
	Tools        []string // tool ids or patterns (path.Match)
	Namespaces   []string
	Categories   []string
	Tags         []string
}

// Config is what the face needs. Gate, Invoker, Calls, Catalog, Visible, Search
// and Sealer are required.
type Config struct {
	Gate    *gate.Gate // shared with the other faces
	Invoker toolkeep.Invoker
	Calls   Calls
	Catalog Catalog
	// Visible tells whether a tool exists for a principal.
	Visible func(p *toolkeep.Principal, t *toolkeep.Tool) bool
	Search  Search
	// Audience names who sees the same tools as the principal, with what else is left out,
	// so that answers of Search can be kept (discover.Query.Audience); nil: none are.
	Audience func(p *toolkeep.Principal, more ...string) string
	// Guide makes the contexts that find_tools answers with; nil: one over Search that has
	// learned nothing.
	Guide *assembly.Guide
	// Retrievals records searches; only tests do without.
	Retrievals Retrievals
	Sealer     Sealer // for the requestState of questions

	// Upstreams are the MCP servers behind; nil leaves out the relay views and the
	// resources and prompts of the others.
	Upstreams Upstreams
	// Set finds a set by name for a principal; nil means that there are none.
	Set func(p *toolkeep.Principal, name string) (*Set, bool)

	// ToolAuth tells how a tool stands with its secrets for a principal, nil where the
	// tool needs none; without ask it waits for nothing. nil leaves it out.
	ToolAuth func(ctx context.Context, p *toolkeep.Principal, t *toolkeep.Tool, ask bool) *secret.Auth

	View      string // what /mcp shows: all, search or auto; default auto
	AutoTools int    // how many visible tools auto lists whole; default 40
	Node      string // name of this node within a cluster, sealed into requestState; default random

	// Forward hands a request to the node of a Tag, and is false if that is not known.
	// A session, and a call that waits for an answer, live on one node; with Forward a
	// balancer may send their requests to any. nil: they must come to the right one.
	Forward func(w http.ResponseWriter, r *http.Request, tag string) bool

	// BaseURL is where clients reach the server (https://tools.example), for links to
	// blobs; default is what each request says of itself.
	BaseURL string
	Version string // of the program
	Limits  Limits
	Log     *slog.Logger // default slog.Default()
}

// limits are those of all faces and those of this one.
type limits struct {
	common
	Limits
}

type common = gate.Limits

// Limits of the face beside the gate's. Zero fields take the default.
type Limits struct {
	StreamAfter time.Duration // of a running request, until its answer becomes an event stream; default 200 ms

	Sessions          int           // in all; default 10,000
	PrincipalSessions int           // of one principal; default 100, above that its oldest idle one ends
	SessionIdle       time.Duration // without a request or an open stream; default 30 min
	SessionRequests   int           // of one session at once; default 64

	StreamEvents  int           // kept of one stream; default 256
	StreamBytes   int           // kept of one stream beside answers; default 1 MiB
	SessionBytes  int           // kept of the ended streams of one session; default 8 MiB
	EventBytes    int64         // kept of the ended streams of all sessions; default 64 MiB
	EventLifetime time.Duration // of an ended stream, for resuming; default 2 min

	ListDelay time.Duration // from a change of the catalogue to list_changed; default 200 ms
	ListTTL   time.Duration // ttlMs of lists in 2026-07-28; default 5 s
	PageSize  int           // entries of one page of a list; default 1,000
	Found     int           // tools that a session of auto collects by searching; default 128

	Parked          int           // calls that wait for an answer to a question in 2026-07-28; default 1,000
	PrincipalParked int           // of one principal; default 32
	AnswerWithin    time.Duration // of a question; default 5 min
	QuestionBytes   int           // of one question's parameters; default 1 MiB

	Listens       int           // open subscriptions/listen streams of one principal; default 100
	UpstreamWait  time.Duration // for one upstream's definitions in a list of all; default 3 s
	InvocationMax time.Duration // of get_invocation's wait; default 60 s
}

func (l Limits) withDefaults() Limits {
	gate.Default(&l.StreamAfter, 200*time.Millisecond)
	gate.Default(&l.Sessions, 10_000)
	gate.Default(&l.PrincipalSessions, 100)
	gate.Default(&l.SessionIdle, 30*time.Minute)
	gate.Default(&l.SessionRequests, 64)
	gate.Default(&l.StreamEvents, 256)
	gate.Default(&l.StreamBytes, 1<<20)
	gate.Default(&l.SessionBytes, 8<<20)
	gate.Default(&l.EventBytes, 64<<20)
	gate.Default(&l.EventLifetime, 2*time.Minute)
	gate.Default(&l.ListDelay, 200*time.Millisecond)
	gate.Default(&l.ListTTL, 5*time.Second)
	gate.Default(&l.PageSize, 1000)
	gate.Default(&l.Found, 128)
	gate.Default(&l.Parked, 1000)
	gate.Default(&l.PrincipalParked, 32)
	gate.Default(&l.AnswerWithin, 5*time.Minute)
	gate.Default(&l.QuestionBytes, 1<<20)
	gate.Default(&l.Listens, 100)
	gate.Default(&l.UpstreamWait, 3*time.Second)
	gate.Default(&l.InvocationMax, time.Minute)
	return l
}
