package overlay

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
)

// DocumentKind is the kind of the store documents that hold contexts.
const DocumentKind = "context"

// AllTools stands for every tool of an agent.
const AllTools = "*"

// Sealer encrypts contexts at rest.
type Sealer interface {
	Seal(plain, context []byte) ([]byte, error)
	Open(sealed, context []byte) ([]byte, error)
}

// Store is the part of a store that a Provider uses.
type Store interface {
	Apply(ctx context.Context, changes ...toolkeep.Change) error
	Documents(ctx context.Context, kind string) ([]toolkeep.Document, int64, error)
	Head(ctx context.Context) (int64, error)
}

// Config sets up a Provider. Store and Sealer are required.
type Config struct {
	Store  Store
	Sealer Sealer

	// URL is the remote service, such as https://sessions.example; "": none.
	URL string
	// Bearer returns the token for each request; nil sends none.
	Bearer func(ctx context.Context) (string, error)
	// Client sends the requests and must not follow redirects; required with URL.
	Client *http.Client
	// Required refuses calls while the service is unavailable.
	Required bool
	// Timeout is per request; default 500 ms.
	Timeout time.Duration
	// Life is how long an answer is cached, and the absence of one for 30 s of it at most;
	// default 5 minutes.
	Life time.Duration
	// entries bounds the cached answers; default 10,000.
	entries int
	// Share returns this node's share of a limit that all nodes keep together, and their
	// number; nil for a node alone.
	Share func(limit int) (share, nodes int)

	Clock func() time.Time
	Log   *slog.Logger
}

// Provider returns contexts. It is safe for concurrent use.
type Provider struct {
	c      Config
	remote *remote // nil without a URL
	rates  *rates
	log    *slog.Logger

	mu     sync.RWMutex
	stored map[key]held

	position toolkeep.FeedPosition
}

type held struct {
	revision int64
	context  *Context // nil if the stored body cannot be read
}

// key identifies a context.
type key struct{ tenant, agent, tool string }

// New creates a Provider; call Start before using it.
func New(c Config) (*Provider, error) {
	if c.Store == nil || c.Sealer == nil {
		return nil, errors.New("toolcontext: the store or the sealer is missing")
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	p := &Provider{c: c, log: c.Log, stored: map[key]held{}, rates: newRates(c.Clock, c.Share)}
	if c.URL == "" {
		return p, nil
	}
	base, err := url.Parse(c.URL)
	if err != nil || base.Host == "" || base.Scheme != "https" && base.Scheme != "http" || base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return nil, errors.New("toolcontext: the address of the context service is not an http or https URL without user, query and fragment")
	}
	if c.Client == nil {
		return nil, errors.New("toolcontext: the client for the context service is missing")
	}
	p.remote = newRemote(&p.c, base)
	return p, nil
}

// Start reads the stored contexts and returns the feed position from which Follow must receive
// every change.
func (p *Provider) Start(ctx context.Context) (int64, error) {
	items, seq, err := p.c.Store.Documents(ctx, DocumentKind)
	if err != nil {
		return 0, err
	}
	for _, it := range items {
		p.put(it)
	}
	p.position.Reach(seq)
	return seq, nil
}

// Stop ends requests to the remote service and waits for them.
func (p *Provider) Stop() {
	if p.remote != nil {
		p.remote.end()
	}
}

// Follow applies one change of the feed.
func (p *Provider) Follow(c toolkeep.Committed) {
	switch ch := c.Change.(type) {
	case toolkeep.PutDocument:
		if ch.Document.Kind == DocumentKind {
			p.put(ch.Document)
		}
	case toolkeep.DeleteDocument:
		if ch.Kind == DocumentKind {
			p.drop(ch.Tenant, ch.ID)
		}
	}
	p.position.Reach(c.Seq)
}

// Applied and AwaitApplied make Provider a toolkeep.FeedFollower.
func (p *Provider) Applied() int64 { return p.position.Applied() }

func (p *Provider) AwaitApplied(ctx context.Context, seq int64) error {
	return p.position.AwaitApplied(ctx, seq)
}

func (p *Provider) put(it toolkeep.Document) {
	agent, tool, ok := readID(it.ID)
	if !ok {
		p.log.Error("a stored context has an id that cannot be read and is left out", "tenant", it.Tenant)
		return
	}
	h := held{revision: it.Revision}
	plain, err := p.c.Sealer.Open(it.Body, binding(it.Tenant, it.ID))
	if err == nil {
		h.context, err = Parse(plain, false)
	}
	if err != nil {
		p.log.Error("a stored context cannot be read; calls of the agent on the tool are refused until it is set again",
			"agent_id", agent, "tool_id", tool, "error", toolkeep.AsError(err).Code)
		h.context = nil
	}
	k := key{it.Tenant, agent, tool}
	p.mu.Lock()
	if old, has := p.stored[k]; !has || old.revision < it.Revision {
		p.stored[k] = h
	}
	p.mu.Unlock()
	p.forget(k)
}

func (p *Provider) drop(tenant, id string) {
	agent, tool, ok := readID(id)
	if !ok {
		return
	}
	k := key{tenant, agent, tool}
	p.mu.Lock()
	delete(p.stored, k)
	p.mu.Unlock()
	p.forget(k)
}

// forget drops the remote service's cached answers, so that a change of the stored context also
// queries the service again.
func (p *Provider) forget(k key) {
	if p.remote != nil {
		p.remote.forget(k)
	}
}

// Of returns what the agent adds to the tool; nil for nothing.
//
// Errors: E3206 with details.reason CONTEXT_UNAVAILABLE if the remote service gave no answer and is
// required, or a stored context cannot be read; E3902 ctx ended first.
func (p *Provider) Of(ctx context.Context, pr *toolkeep.Principal, t *toolkeep.Tool) (*Context, error) {
	k := key{pr.Tenant, pr.Subject, t.ID}
	p.mu.RLock()
	own, hasOwn := p.stored[k]
	all, hasAll := p.stored[key{pr.Tenant, pr.Subject, AllTools}]
	p.mu.RUnlock()
	if hasOwn && own.context == nil || hasAll && all.context == nil {
		return nil, unavailable("the stored context of the agent for the tool cannot be read; set it again with `toolkeep context set`")
	}
	if p.remote == nil {
		return join(own.context, all.context), nil
	}
	far, err := p.remote.get(ctx, k)
	if err != nil {
		if ctx.Err() != nil {
			return nil, refuse(toolkeep.Cancelled, "the call ended before the agent's context was read").Because(context.Cause(ctx))
		}
		if p.c.Required {
			return nil, unavailable("the context service returned no usable answer, so the agent's limits are unknown; try again").Because(err).After(failureLife)
		}
	}
	return join(own.context, all.context, far), nil
}

func unavailable(message string) *toolkeep.Error {
	return refuse(toolkeep.PolicyEngineUnavailable, "%s", message).With("reason", "CONTEXT_UNAVAILABLE")
}

// Take takes one call from the bucket of the context's rate, and returns what that has left. E3801 with details.limit_type context
// and the exact RetryAfter.
func (p *Provider) Take(pr *toolkeep.Principal, t *toolkeep.Tool, c *Context) (toolkeep.RateLeft, error) {
	return p.rates.take(key{pr.Tenant, pr.Subject, t.ID}, c, true)
}

// Peek answers like Take but takes nothing.
func (p *Provider) Peek(pr *toolkeep.Principal, t *toolkeep.Tool, c *Context) error {
	_, err := p.rates.take(key{pr.Tenant, pr.Subject, t.ID}, c, false)
	return err
}

// Put stores the context of an agent for a tool, or for all of its tools (*), and returns when this
// node uses it.
//
// Errors: E3201 without context:admin; E3301 an invalid name; E3310 and E3311 an invalid body;
// E3965 the store fails.
func (p *Provider) Put(ctx context.Context, pr *toolkeep.Principal, agent, tool string, body []byte) error {
	id, err := p.may(pr, agent, tool)
	if err != nil {
		return err
	}
	c, err := Parse(body, true)
	if err != nil {
		return err
	}
	sealed, err := p.c.Sealer.Seal(c.JSON(), binding(pr.Tenant, id))
	if err != nil {
		return toolkeep.AsError(err)
	}
	return p.apply(ctx, toolkeep.PutDocument{Expect: toolkeep.AnyRevision,
		Document: toolkeep.Document{Kind: DocumentKind, Tenant: pr.Tenant, ID: id, Body: sealed, UpdatedBy: pr.Subject}})
}

// Get returns the stored context in its JSON form. E3201, E3013.
func (p *Provider) Get(_ context.Context, pr *toolkeep.Principal, agent, tool string) ([]byte, error) {
	if _, err := p.may(pr, agent, tool); err != nil {
		return nil, err
	}
	p.mu.RLock()
	h, has := p.stored[key{pr.Tenant, agent, tool}]
	p.mu.RUnlock()
	if !has {
		return nil, noContext(agent, tool)
	}
	if h.context == nil {
		return nil, unavailable("the stored context cannot be read, perhaps because the seal key changed; set it again")
	}
	return h.context.JSON(), nil
}

// Delete removes a stored context. E3201, E3013, E3965.
func (p *Provider) Delete(ctx context.Context, pr *toolkeep.Principal, agent, tool string) error {
	id, err := p.may(pr, agent, tool)
	if err != nil {
		return err
	}
	err = p.apply(ctx, toolkeep.DeleteDocument{Kind: DocumentKind, Tenant: pr.Tenant, ID: id, Expect: toolkeep.AnyRevision, By: pr.Subject})
	if errors.Is(err, toolkeep.ErrNotFound) {
		return noContext(agent, tool)
	}
	return err
}

func noContext(agent, tool string) error {
	return toolkeep.NewError(toolkeep.ResourceNotFound, "no context is stored for the agent %q and the tool %q", toolkeep.ClipBytes(agent, maxName), toolkeep.ClipBytes(tool, maxName))
}

var toolID = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}\.[A-Za-z_][A-Za-z0-9_-]{0,63}$`)

// may checks the permission and the names, and returns the document id.
func (p *Provider) may(pr *toolkeep.Principal, agent, tool string) (string, error) {
	if pr == nil || !pr.May(toolkeep.PermContext) {
		return "", toolkeep.NewError(toolkeep.PermissionDenied, "to read and change contexts you need the permission %s; ask an administrator for a role that grants it", toolkeep.PermContext).
			With("reason", "RBAC_DENIED").With("permission", toolkeep.PermContext)
	}
	id := makeID(agent, tool)
	switch {
	case agent == "":
		return "", toolkeep.NewError(toolkeep.InvalidParameters, "the agent is not named")
	case tool != AllTools && !toolID.MatchString(tool):
		return "", toolkeep.NewError(toolkeep.InvalidParameters, "%q is not a tool id such as shop.list_orders, nor * for all tools", toolkeep.ClipBytes(tool, maxName))
	case len(id) > toolkeep.MaxDocumentID:
		return "", toolkeep.NewError(toolkeep.InvalidParameters, "the names of agent and tool are too long together; %d bytes are possible", toolkeep.MaxDocumentID)
	}
	return id, nil
}

// makeID returns the document id; the agent is escaped, so that ids are unambiguous.
func makeID(agent, tool string) string { return url.PathEscape(agent) + "/" + tool }

func readID(id string) (agent, tool string, ok bool) {
	for i := range id {
		if id[i] == '/' {
			agent, err := url.PathUnescape(id[:i])
			return agent, id[i+1:], err == nil && agent != "" && i+1 < len(id)
		}
	}
	return "", "", false
}

// binding ties a sealed body to its place.
func binding(tenant, id string) []byte { return []byte("context\x00" + tenant + "\x00" + id) }

// apply commits a change and waits until Follow has seen it.
func (p *Provider) apply(ctx context.Context, ch toolkeep.Change) error {
	if err := p.c.Store.Apply(ctx, ch); err != nil {
		var own *toolkeep.Error
		if errors.Is(err, toolkeep.ErrNotFound) || errors.As(err, &own) {
			return err
		}
		return toolkeep.NewError(toolkeep.RecordUnavailable, "the store could not take the context and nothing was changed; try again").Because(err)
	}
	// The change is committed, so a failure from here on is not reported to the caller.
	if err := p.position.Await(ctx, p.c.Store); err != nil {
		p.log.Warn("a context was stored, but this node has not read it yet", "error", err)
	}
	return nil
}
