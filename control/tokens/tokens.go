// Package tokens is what people decide about capability tokens: who may make one, narrow one for
// a sub-agent, revoke one and rotate the keys. Package access/capability makes them.
package tokens

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/access/capability"
	"github.com/toolkeep/toolkeep/canon"
)

// Types of events.
const (
	eventMinted  = "ai.agent.auth.token_minted"
	eventRevoked = "ai.agent.auth.token_revoked"
	eventRotated = "ai.agent.auth.token_key_rotated"
)

// DefaultLife is how long a token lives for which nothing else is asked.
const DefaultLife = time.Hour

// Config configures Tokens; all but Clock is required.
type Config struct {
	Tokens *capability.Tokens
	Store  toolkeep.Applier
	Clock  func() time.Time // default time.Now
}

// Tokens does what people decide.
type Tokens struct{ c Config }

// New returns Tokens.
func New(c Config) *Tokens {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	return &Tokens{c}
}

func need(p *toolkeep.Principal, what string) error {
	if p.May(toolkeep.PermTokens) {
		return nil
	}
	return toolkeep.NewError(toolkeep.PermissionDenied, "%s needs the permission %s, which none of your roles grants", what, toolkeep.PermTokens).
		With("reason", "RBAC_DENIED").With("permission", toolkeep.PermTokens)
}

// Mint makes a token for an agent of the principal's tenant. It needs tokens:admin. With a
// parent, which must be the principal's own valid token, it needs no permission: the new token is
// within the parent's. The answer is the only copy. Errors: E3201, E3301; the parent's E3207 to
// E3210 and E3215; E3965.
func (s *Tokens) Mint(ctx context.Context, p *toolkeep.Principal, c capability.Claims, parent toolkeep.CapabilityToken) (string, *capability.Claims, error) {
	var of *capability.Token
	if parent == "" {
		if err := need(p, "making a token without a parent"); err != nil {
			return "", nil, err
		}
		if c.Expires.IsZero() {
			c.Expires = s.c.Clock().Add(DefaultLife)
		}
	} else {
		held, err := s.c.Tokens.Verify(parent)
		if err != nil {
			return "", nil, err
		}
		if held.Grant.Tenant != p.Tenant || held.Grant.Agent != p.Subject {
			return "", nil, toolkeep.NewError(toolkeep.TokenScopeMismatch, "the parent is for another agent or tenant than the caller's; only its holder may hand it on")
		}
		of = held
	}
	c.Grant.Tenant = p.Tenant
	text, made, err := s.c.Tokens.Mint(ctx, c, of)
	if err != nil {
		return "", nil, err
	}
	g := &made.Grant
	data := map[string]any{"jti": g.ID, "agent_did": g.Agent, "by": p.Subject, "tools": list(g.Tools), "expires_at": made.Expires.UTC().Format(time.RFC3339)}
	if len(g.Parents) > 0 {
		data["parent_jtis"] = list(g.Parents)
	}
	// A token of which there is no record is not handed out.
	if err := s.tell(ctx, eventMinted, p.Tenant, data); err != nil {
		return "", nil, err
	}
	return text, made, nil
}

// Revoke revokes a token of the principal's tenant by its jti, and every token that was made from
// it, on all nodes within a second. A jti that is not known is revoked too: the server knows no
// list of tokens. It needs tokens:admin. E3201, E3301, E3922, E3965.
func (s *Tokens) Revoke(ctx context.Context, p *toolkeep.Principal, jti string) error {
	if err := need(p, "revoking a token"); err != nil {
		return err
	}
	if err := capability.CheckID(jti); err != nil {
		return toolkeep.NewError(toolkeep.InvalidParameters, "the jti %s; `toolkeep token inspect` shows that of a token", err)
	}
	changes, err := s.c.Tokens.Revoke(p.Tenant, jti, p.Subject)
	if err != nil {
		return err
	}
	return s.tell(ctx, eventRevoked, p.Tenant, map[string]any{"jti": jti, "by": p.Subject}, changes...)
}

// RotateKey makes a new key for tokens that this server makes, of all tenants. With drop, every
// such token ends at once; else old ones live until they expire. It needs tokens:admin in the
// home tenant. E3201, E3965.
func (s *Tokens) RotateKey(ctx context.Context, p *toolkeep.Principal, drop bool) (kid string, err error) {
	if p.Tenant != access.HomeTenant {
		return "", toolkeep.NewError(toolkeep.PermissionDenied, "the keys of tokens serve all tenants; administrators of the tenant %s rotate them", access.HomeTenant)
	}
	if err := need(p, "rotating the keys of tokens"); err != nil {
		return "", err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return "", err
	}
	return s.c.Tokens.RotateKey(ctx, p.Subject, drop, func(kid string) []toolkeep.Change {
		return []toolkeep.Change{s.event(id, eventRotated, p.Tenant, map[string]any{"kid": kid, "by": p.Subject, "drop_old": drop})}
	})
}

// PublicKeys returns the keys that verify the server's tokens, as a JWK set. They are no secret.
func (s *Tokens) PublicKeys() ([]byte, error) { return s.c.Tokens.PublicKeys() }

// tell commits an event with changes, which this node then knows.
func (s *Tokens) tell(ctx context.Context, kind, tenant string, data map[string]any, changes ...toolkeep.Change) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	if err := s.c.Store.Apply(ctx, append(changes, s.event(id, kind, tenant, data))...); err != nil {
		return toolkeep.NewError(toolkeep.RecordUnavailable, "the store cannot be written now; nothing was changed, try again").Because(err)
	}
	for _, c := range changes {
		s.c.Tokens.Follow(toolkeep.Committed{Change: c})
	}
	return nil
}

func (s *Tokens) event(id uuid.UUID, kind, tenant string, data map[string]any) toolkeep.Change {
	return toolkeep.AppendEvent{Event: toolkeep.Event{ID: id.String(), Type: kind, Tenant: tenant, Time: s.c.Clock().UTC(), Data: canon.Append(nil, data)}}
}

func list(texts []string) []any {
	out := make([]any, len(texts))
	for i, t := range texts {
		out[i] = t
	}
	return out
}
