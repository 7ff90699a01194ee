package gate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/toolkeep/toolkeep"
)

// Auth names the caller.
type Auth interface {
	// Authenticate turns a bearer credential ("" if none was sent) and the remote
	// address into a principal. E3214, E3810.
	Authenticate(ctx context.Context, bearer, addr string) (*toolkeep.Principal, error)
}

// Request is what a request shows of who sends it.
type Request struct {
	Headers Headers
	Peer    string               // the peer's address without port
	TLS     *tls.ConnectionState // nil without TLS
	Face    string
	// Method, Target and Body are what a signature covers; see package signing.
	Method, Target string
	Body           func() ([sha256.Size]byte, error)
	// InCall reports whether it is one call whose message has its own signature, which the pipeline
	// verifies; nil where messages have none.
	InCall func() bool
	// session and csrf are the cookie of a browser's session and what goes with it; at REST alone.
	session, csrf string
}

// sender is a request whose sender is to be named.
type sender struct {
	*Request
	bearer string // "" for none
	addr   string // of the client
}

// prover names the sender of a request by one kind of credential. p is the caller that those before it have named, nil for
// none; it is returned as it is where the request has no credential of this kind.
type prover func(g *Gate, ctx context.Context, s sender, p *toolkeep.Principal) (*toolkeep.Principal, error)

// provers are asked in this order. A further kind of credential is a file with its prover, and its name here.
var provers = []prover{(*Gate).proveProxy, (*Gate).proveBearer, (*Gate).proveSession, (*Gate).proveCertificate}

// Authenticate names the caller of a request. Its user and its proofs are not checked: those of a
// call are the pipeline's, which records the refusal. A bearer decides before a client certificate.
// Headers of a trusted proxy stand alone; a signature, where there is one or one is demanded, must be
// right. E3214, E3810; E3404, E3405, E3406, E3408, E3403 and E3965 of signatures.
func (g *Gate) Authenticate(ctx context.Context, r *Request) (*toolkeep.Principal, error) {
	addr := g.proxies.client(r.Headers, r.Peer)
	bearer, err := r.Headers.bearer()
	if err != nil {
		if limited := g.guessed(ctx, addr); limited != nil {
			return nil, limited
		}
		return nil, err
	}
	var p *toolkeep.Principal
	for _, prove := range provers {
		if p, err = prove(g, ctx, sender{r, bearer, addr}, p); err != nil {
			return nil, err
		}
	}
	if p == nil {
		if p, err = g.auth.Authenticate(ctx, "", addr); err != nil {
			return nil, err
		}
	}
	if by, ok := g.auth.(Signatures); ok {
		signed := r.signed()
		if signed == nil && r.InCall != nil && by.MustSign(p, r.Face) && r.InCall() {
			return g.named(p, r.Headers, p.Addr), nil
		}
		if err := by.Signed(ctx, p, r.Face, signed); err != nil {
			return nil, err
		}
	}
	return g.named(p, r.Headers, p.Addr), nil
}

// named returns the principal as of the program that the headers name, and of an address.
func (g *Gate) named(p *toolkeep.Principal, h Headers, addr string) *toolkeep.Principal {
	agent := g.userAgent(h)
	if agent == p.UserAgent && addr == p.Addr {
		return p
	}
	own := *p // the Auth may keep p
	own.UserAgent, own.Addr = agent, addr
	return &own
}

// AuthenticateHTTP is Authenticate for an HTTP request.
func (g *Gate) AuthenticateHTTP(r *http.Request) (*toolkeep.Principal, error) {
	face := REST
	if r.URL.Path == "/mcp" || strings.HasPrefix(r.URL.Path, "/mcp/") {
		face = MCP
	}
	q := &Request{Headers: HTTP(r.Header), Peer: Address(r.RemoteAddr), TLS: r.TLS, Face: face, Method: r.Method, Target: r.RequestURI, Body: g.digest(r)}
	if face == REST {
		q.session, q.csrf = g.session(r)
	}
	if face == MCP { // nodes hand over nothing else
		q.InCall = func() bool { return g.signedInCall(r) }
		switch h, err := g.handedOver(r); {
		case err != nil:
			return nil, err
		case h != nil:
			p, err := g.authenticateHanded(r.Context(), h, q)
			if err != nil {
				return nil, err
			}
			return g.named(p, q.Headers, cmp.Or(h.Addr, p.Addr)), nil
		}
	}
	return g.Authenticate(r.Context(), q)
}

// check refuses proofs that cannot be checked and a user that the principal may not act
// for, and returns the principal narrowed by its capability token.
func (g *Gate) check(h Headers, p *toolkeep.Principal, more []func(*toolkeep.Call)) (*toolkeep.Principal, error) {
	narrowed, err := p, error(nil)
	c := toolkeep.Call{Signature: h.callSignature()}
	h.tokens(&c)
	for _, take := range more {
		take(&c)
	}
	if e := g.proofs(h, c.Signature); e != nil {
		if by, ok := g.auth.(Signatures); ok {
			return p, by.Unsigned(p, e)
		}
		err = e
	} else if narrowed, err = g.withToken(&c, p); err == nil {
		if user := h.first(h.names.user); user != "" && user != p.Subject && user != p.OnBehalf {
			err = Need(narrowed, toolkeep.PermActAs)
		}
	}
	g.Note(p, err)
	return narrowed, err
}

// Acting is for requests that are no calls. It returns the principal with the person that the
// headers name, which it must be allowed to act for. A capability token must be valid and the
// principal's own: the principal then sees what the token allows, and has none of its permissions.
// more takes the proofs of a call that the message itself has, into the call that it gets. Errors:
// E3201, E3404; E3207 to E3210, E3301 and E3215; E3311 and E3330 for a name that no record can hold.
func (g *Gate) Acting(h Headers, p *toolkeep.Principal, more ...func(*toolkeep.Call)) (*toolkeep.Principal, error) {
	p, err := g.check(h, p, more)
	if err != nil {
		return nil, err
	}
	user := h.first(h.names.user)
	switch {
	case user == "" || user == p.Subject || user == p.OnBehalf:
		return p, nil
	case len(user) > g.limits.KeyBytes:
		return nil, toolkeep.NewError(toolkeep.RequestTooLarge, "the user has %d bytes; at most %d are allowed", len(user), g.limits.KeyBytes).With("limit_bytes", g.limits.KeyBytes)
	case !utf8.ValidString(user):
		return nil, toolkeep.NewError(toolkeep.InvalidEncoding, "the user is not UTF-8 text")
	}
	return p.As("", user)
}

// For returns who acts in a call of the principal, to say which tools exist for it; the principal itself where it may not act
// so, which the pipeline refuses.
func (g *Gate) For(p *toolkeep.Principal, c *toolkeep.Call) *toolkeep.Principal {
	if by, ok := g.auth.(interface {
		ActingAs(*toolkeep.Principal, *toolkeep.Call) (*toolkeep.Principal, error)
	}); ok {
		if acting, err := by.ActingAs(p, c); err == nil {
			return acting
		}
	}
	return p
}

// Trail is what an Auth can do beside: tell of a refused authorisation of what is no
// call.
type Trail interface {
	NoteRefused(p *toolkeep.Principal, permission string)
}

// refusals are the codes of refused authorisations.
var refusals = []toolkeep.Code{toolkeep.PermissionDenied, toolkeep.SignatureInvalid, toolkeep.TokenInvalid, toolkeep.TokenClaimsMissing,
	toolkeep.TokenRevoked, toolkeep.TokenExpired, toolkeep.TokenScopeMismatch}

// Note tells the Auth's trail if err refuses an authorisation. A call's refusal, which
// names its record, was told by the pipeline.
func (g *Gate) Note(p *toolkeep.Principal, err error) {
	t, ok := g.auth.(Trail)
	if e := toolkeep.AsError(err); ok && e != nil && e.InvocationID == "" &&
		slices.Contains(refusals, e.Code) {
		permission, _ := e.Details["permission"].(string)
		t.NoteRefused(p, permission)
	}
}

// Client is the address of a request's client, without port, as far as trusted proxies say it.
func (g *Gate) Client(r *http.Request) string {
	return g.proxies.client(HTTP(r.Header), Address(r.RemoteAddr))
}

// Address is a remote address without its port.
func Address(addr string) string {
	if strings.LastIndexByte(addr, ':') >= 0 {
		return withoutPort(addr)
	}
	return addr
}

// Need checks a named permission, "" for none. E3201.
func Need(p *toolkeep.Principal, permission string) error {
	if permission == "" || p.May(permission) {
		return nil
	}
	return toolkeep.NewError(toolkeep.PermissionDenied, "this needs the permission %s, which none of your roles grants", permission).
		With("reason", "RBAC_DENIED").With("permission", permission)
}

// Refresher is what an Auth can do beside: look a principal up again, long after it
// came in. E3214.
type Refresher interface {
	Refresh(ctx context.Context, p *toolkeep.Principal) (*toolkeep.Principal, error)
}

// StillEvery is how often a stream on which nothing is sent asks Still, so that it ends
// within a second of its credential.
const StillEvery = 500 * time.Millisecond

// Still tells whether the principal that opened a stream may come in now with all that
// it could then. A stream outlives the credential that opened it, so this is asked
// before anything is sent on it.
func (g *Gate) Still(p *toolkeep.Principal) bool {
	over := func(p *toolkeep.Principal) bool { return !p.Until.IsZero() && !time.Now().Before(p.Until) }
	if over(p) {
		return false
	}
	r, ok := g.auth.(Refresher)
	if !ok {
		return true
	}
	now, err := r.Refresh(context.Background(), p)
	switch {
	case toolkeep.IsCode(err, toolkeep.Unauthenticated), toolkeep.IsCode(err, toolkeep.PermissionDenied), toolkeep.IsCode(err, toolkeep.TokenRevoked):
		return false
	case err != nil || now == p:
		return true // it cannot be looked up now
	}
	return !over(now) && within(p.Roles, now.Roles) && within(p.Permissions, now.Permissions) &&
		slices.Equal(p.Scope, now.Scope) && p.Workspace == now.Workspace
}

func within(some, all []string) bool {
	return slices.Equal(some, all) || !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}

// Gone is what a stream ends with when Still is false. E3214.
func Gone() *toolkeep.Error {
	return toolkeep.NewError(toolkeep.Unauthenticated,
		"the key or token that opened this stream is not valid any more, or its rights were narrowed; open it again with a valid one")
}

// While is ctx until the principal may not come in any more; its cause is then Gone.
func (g *Gate) While(ctx context.Context, p *toolkeep.Principal) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		tick := time.NewTicker(StillEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if !g.Still(p) {
					cancel(Gone())
				}
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}
