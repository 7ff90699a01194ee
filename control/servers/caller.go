package servers

import (
	"context"
	"net/http"
	"sync"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/redact"
	"github.com/toolkeep/toolkeep/upstream"
)

// callerAuth authorizes the session of one caller's token at a server with auth: its requests have the token that the
// caller's was exchanged for. E3402, E3403 as secret.Minter, before anything is sent.
type callerAuth struct {
	c    *Credentials
	spec *upstream.Spec
	p    *toolkeep.Principal

	mu   sync.Mutex
	last string // the token that was sent last
}

func (a *callerAuth) Header(ctx context.Context) (http.Header, error) {
	token, err := a.mint(ctx, false)
	if err != nil {
		return nil, err
	}
	return http.Header{"Authorization": {"Bearer " + token}}, nil
}

// Unauthorized gets a new token in place of a refused one, once: a new token that is refused too is E3402.
func (a *callerAuth) Unauthorized(ctx context.Context, r *http.Response) error {
	if r.StatusCode == http.StatusUnauthorized {
		a.mu.Lock()
		before := a.last
		a.mu.Unlock()
		token, err := a.mint(ctx, true)
		if err != nil || token != before {
			return err
		}
	}
	e := toolkeep.NewError(toolkeep.SecretAccessDenied, "the MCP server %s refuses the token of its caller (HTTP %d)", a.spec.Name, r.StatusCode).
		With("server", a.spec.Name).With("status", r.StatusCode)
	e.NothingSent = true
	return e
}

func (a *callerAuth) mint(ctx context.Context, fresh bool) (string, error) {
	plain, err := a.c.value(ctx, a.spec, a.p, a.spec.Auth.Secret)
	if err != nil {
		return "", err
	}
	v, _, err := a.c.Minter.Mint(ctx, a.p, a.spec.Network, *a.spec.Auth, plain, fresh)
	if err != nil {
		return "", err
	}
	defer v.Wipe()
	token := v.Text()
	a.c.Redact.Hold(redact.Scope{Tenant: a.p.Tenant, Person: a.p.Subject, Upstream: redact.URLHost(a.spec.URL)}, token)() // known for a while after
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = token
	return token, nil
}
