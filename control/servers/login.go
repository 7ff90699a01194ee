package servers

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/upstream"
	"github.com/toolkeep/toolkeep/upstream/oauth"
)

// Authorize is for upstream.Config: it speaks OAuth for HTTP servers whose definition has
// no credentials of its own.
func (c *Credentials) Authorize(_ context.Context, spec *upstream.Spec, p *toolkeep.Principal) (upstream.Authorizer, error) {
	if !wantsLogin(spec) {
		return nil, nil
	}
	if p.Subject == "" {
		return noLogin{spec.Name, spec.Filled().Session}, nil
	}
	if spec.Auth != nil {
		return &callerAuth{c: c, spec: spec, p: p}, nil
	}
	return c.Logins.Account(c.account(spec, p)), nil
}

// wantsLogin tells whether a definition leaves the Authorization header to logins.
func wantsLogin(spec *upstream.Spec) bool {
	for name := range spec.Headers {
		if strings.EqualFold(name, "Authorization") {
			return false
		}
	}
	return true
}

// account is the principal's at a server.
func (c *Credentials) account(spec *upstream.Spec, p *toolkeep.Principal) oauth.Ref {
	r := oauth.Ref{Server: spec.Name, URL: spec.URL, Tenant: p.Tenant, Subject: p.Subject, Network: spec.Network}
	if o := spec.OAuth; o != nil {
		r.ClientID, r.Scopes = o.ClientID, o.Scopes
		if o.ClientSecret != "" {
			who := *p
			r.ClientSecret = func(ctx context.Context) (string, error) { return c.value(ctx, spec, &who, o.ClientSecret) }
		}
	}
	return r
}

// noLogin is the authorizer of a session that belongs to a whole tenant: one principal's
// account must not be used for all.
type noLogin struct{ server, session string }

var errSharedSession = errors.New("the session belongs to a whole tenant")

func (noLogin) Header(context.Context) (http.Header, error) { return nil, nil }

func (n noLogin) Unauthorized(context.Context, *http.Response) error {
	if n.session != upstream.SessionShared {
		e := toolkeep.NewError(toolkeep.LoginRequired, "the MCP server %s wants each person's login", n.server)
		e.NothingSent = true
		return e
	}
	e := toolkeep.NewError(toolkeep.SecretAccessDenied, "the MCP server %s requires a login, and its session is shared; set session to principal, or give it an Authorization header", n.server).
		Because(errSharedSession)
	e.NothingSent = true
	return e
}

// httpServer gives the definition of a server that a principal sees and may log in at.
// E3013, E3301.
func (s *Servers) httpServer(p *toolkeep.Principal, name string) (*upstream.Spec, error) {
	doc, err := s.find(p, name)
	if err == nil && !s.visible(p, serverID{doc.Tenant, doc.ID}) {
		err = noServer(name)
	}
	if err != nil {
		return nil, err
	}
	spec, err := upstream.ParseSpec(doc.ID, doc.Tenant, doc.Body)
	if err == nil && spec.Transport == upstream.Stdio {
		err = toolkeep.NewError(toolkeep.InvalidParameters, "the MCP server %s is a program that Toolkeep runs, and has no logins", name)
	}
	return spec, err
}

// Login is nil if the principal can use the server, and E3407 with the address where a
// login is missing, also one that the server wants for its tools alone and not for its
// lists. E3013, E3301, and what the server answers.
func (s *Servers) Login(ctx context.Context, p *toolkeep.Principal, name string) error {
	spec, err := s.httpServer(p, name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	if _, err := s.c.Pool.Refresh(ctx, p, spec.Name); err != nil {
		return err
	}
	if !wantsLogin(spec) || spec.Filled().Session == upstream.SessionShared {
		return nil
	}
	r := s.c.Credentials.account(spec, p)
	token, err := s.c.Credentials.Logins.Token(ctx, r)
	if err != nil || token != "" {
		return err
	}
	return s.c.Credentials.Logins.Login(ctx, r, nil)
}

// Logout forgets the principal's login at a server. E3013, E3301, E3965.
func (s *Servers) Logout(ctx context.Context, p *toolkeep.Principal, name string) error {
	spec, err := s.httpServer(p, name)
	if err != nil {
		return err
	}
	return s.c.Credentials.Logins.Logout(ctx, s.c.Credentials.account(spec, p))
}
