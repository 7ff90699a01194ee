package gate

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Auth names the caller.
type Auth interface {
	// Authenticate turns a bearer credential ("" if none was sent) and the remote
	// address into a principal. E3214, E3810.
	Authenticate(ctx context.Context, bearer, addr string) (*toolkeep.Principal, error)
}

// maxBearer is the longest credential in bytes; tokens of large organisations are
// long.
const maxBearer = 16 << 10

// unreadable is no credential of any kind.
const unreadable = "?"

// bearer is the credential that was sent, "" for none. E3214.
func (h Headers) bearer() (string, error) {
	hs := h.values[h.names.authorization]
	if len(hs) == 0 {
		return "", nil
	}
	scheme, rest, ok := strings.Cut(hs[0], " ")
	if len(hs) > 1 || !ok || !strings.EqualFold(scheme, "Bearer") || len(rest) > maxBearer {
		return "", toolkeep.NewError(toolkeep.Unauthenticated, "send one header of the form Authorization: Bearer <key>")
	}
	return strings.TrimSpace(rest), nil
}

// Authenticate names the caller of a request from a peer's address without port. Its
// user and its proofs are not checked: those of a call are the pipeline's, which records
// the refusal. E3214, E3810.
func (g *Gate) Authenticate(ctx context.Context, h Headers, peer string) (*toolkeep.Principal, error) {
	addr := g.proxies.client(h, peer)
	bearer, err := h.bearer()
	if err != nil {
		// It counts as a bearer that is no credential does.
		if _, counted := g.auth.Authenticate(ctx, unreadable, addr); toolkeep.IsCode(counted, toolkeep.AuthFailuresLimited) {
			return nil, counted
		}
		return nil, err
	}
	return g.auth.Authenticate(ctx, bearer, addr)
}

// AuthenticateHTTP is Authenticate for an HTTP request.
func (g *Gate) AuthenticateHTTP(r *http.Request) (*toolkeep.Principal, error) {
	return g.Authenticate(r.Context(), HTTP(r.Header), Address(r.RemoteAddr))
}

// Check is for requests that are no calls: it refuses proofs that cannot be
// checked and a user that the principal may not act for. E3201, E3209, E3404.
func (g *Gate) Check(h Headers, p *toolkeep.Principal) (err error) {
	if e := g.proofs(h); e != nil {
		err = e
	} else if user := h.first(h.names.user); user != "" && user != p.Subject && user != p.OnBehalf {
		err = Need(p, toolkeep.PermActAs)
	}
	g.Note(p, err)
	return err
}

// Trail is what an Auth can do beside: tell of a refused authorisation of what is no
// call.
type Trail interface {
	NoteRefused(p *toolkeep.Principal, permission string)
}

// Note tells the Auth's trail if err refuses an authorisation. A call's refusal, which
// names its record, was told by the pipeline.
func (g *Gate) Note(p *toolkeep.Principal, err error) {
	t, ok := g.auth.(Trail)
	if e := toolkeep.AsError(err); ok && e != nil && e.InvocationID == "" &&
		(e.Code == toolkeep.PermissionDenied || e.Code == toolkeep.TokenInvalid || e.Code == toolkeep.SignatureInvalid) {
		permission, _ := e.Details["permission"].(string)
		t.NoteRefused(p, permission)
	}
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
	Refresh(p *toolkeep.Principal) (*toolkeep.Principal, error)
}

// Still tells whether the principal that opened a stream may come in now. A stream
// outlives the credential that opened it, so this is asked before anything is sent
// on it.
func (g *Gate) Still(p *toolkeep.Principal) bool {
	if !p.Until.IsZero() && !time.Now().Before(p.Until) {
		return false
	}
	r, ok := g.auth.(Refresher)
	if !ok {
		return true
	}
	_, err := r.Refresh(p)
	return err == nil || !toolkeep.IsCode(err, toolkeep.Unauthenticated)
}
