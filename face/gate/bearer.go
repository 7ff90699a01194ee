package gate

import (
	"context"
	"strings"

	"github.com/toolkeep/toolkeep"
)

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

// proveBearer is the prover of API keys and access tokens, which the Auth tells apart. E3214, E3810.
func (g *Gate) proveBearer(ctx context.Context, s sender, p *toolkeep.Principal) (*toolkeep.Principal, error) {
	if s.bearer == "" {
		return p, nil
	}
	return g.auth.Authenticate(ctx, s.bearer, s.addr)
}

// guessed counts and logs credentials that cannot be read, as a bearer that is no credential. E3810
// during a block of the address.
func (g *Gate) guessed(ctx context.Context, addr string) error {
	if _, err := g.auth.Authenticate(ctx, unreadable, addr); toolkeep.IsCode(err, toolkeep.AuthFailuresLimited) {
		return err
	}
	return nil
}
