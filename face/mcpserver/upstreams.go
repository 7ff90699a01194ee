package mcpserver

import (
	"context"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/upstream"
)

// Upstreams are the MCP servers behind the gateway, for relay views and for resources and prompts
// in the other views. Behind adapts upstream.Servers.
type Upstreams interface {
	// Names returns the servers that exist for the principal, sorted.
	Names(p *toolkeep.Principal) []string
	Get(p *toolkeep.Principal, name string) (*upstream.Spec, bool)
	Definitions(ctx context.Context, p *toolkeep.Principal, server string) (upstream.Definitions, error)
	Do(ctx context.Context, r *upstream.Request) (*upstream.Answer, error)
	// Bind attaches a client while the binding is open: notifications and questions that the
	// upstream sends outside a request go to the request's Peer.
	Bind(ctx context.Context, r *upstream.Request) (Binding, error)
}

// SessionEnder are Upstreams that start programs for one client's session.
type SessionEnder interface {
	// EndSession ends what was started for a session of the tenant.
	EndSession(tenant, session string)
}

var _ SessionEnder = behind{}

// Binding is an attached client; upstream.Binding is one.
type Binding interface {
	Info(ctx context.Context) (upstream.Info, error)
	Do(ctx context.Context, method string, params []byte) (*upstream.Answer, error)
	Notify(ctx context.Context, method string, params []byte) error
	Close()
}

// Behind adapts the servers; names returns those that exist for a principal, sorted, and exists
// reports whether one of them does.
func Behind(s *upstream.Servers, names func(p *toolkeep.Principal) []string, exists func(p *toolkeep.Principal, name string) bool) Upstreams {
	return behind{s, names, exists}
}

type behind struct {
	*upstream.Servers
	names  func(p *toolkeep.Principal) []string
	exists func(p *toolkeep.Principal, name string) bool // checked at every request, where names would go through all servers
}

func (b behind) Names(p *toolkeep.Principal) []string { return b.names(p) }

// Get finds a server among those that exist for the principal, possibly fewer than its tenant has.
func (b behind) Get(p *toolkeep.Principal, name string) (*upstream.Spec, bool) {
	spec, ok := b.Servers.Get(p, name)
	return spec, ok && b.exists(p, name)
}

func (b behind) Bind(ctx context.Context, r *upstream.Request) (Binding, error) {
	binding, err := b.Servers.Bind(ctx, r)
	if err != nil {
		return nil, err // avoids a non-nil Binding that holds nil
	}
	return binding, nil
}

// has reports whether a server of this name exists for the caller.
func (x *exchange) has(server string) bool {
	if x.s.c.Upstreams == nil {
		return false
	}
	_, ok := x.s.c.Upstreams.Get(x.p, server)
	return ok
}
