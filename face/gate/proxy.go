package gate

import (
	"context"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/signing"
)

// named reports whether headers name the caller, as a trusted proxy does.
func (h Headers) named() bool {
	for _, name := range &h.names.caller {
		if h.values[name] != nil {
			return true
		}
	}
	return false
}

// proveProxy is the prover of signed headers in which a trusted proxy names the caller. E3214 for
// them beside a bearer, which counts as a guess (E3810), and as Signatures.
func (g *Gate) proveProxy(ctx context.Context, s sender, p *toolkeep.Principal) (*toolkeep.Principal, error) {
	if !s.Headers.named() {
		return p, nil
	}
	by, ok := g.auth.(Signatures)
	switch {
	case s.bearer != "":
		if err := g.guessed(ctx, s.addr); err != nil {
			return nil, err
		}
		return nil, toolkeep.NewError(toolkeep.Unauthenticated, "%s and its like are for trusted proxies and stand alone; send them or Authorization, and not both", signing.HeaderSubject).
			With("reason", "PROXY_AND_BEARER")
	case !ok:
		return nil, toolkeep.NewError(toolkeep.Unauthenticated, "this server believes no proxies; leave %s out, and send a key", signing.HeaderSubject).
			With("reason", "PROXY_UNKNOWN")
	}
	return by.AuthenticateProxy(ctx, s.signing(), len(g.proxies) == 0 || g.proxies.has(s.Peer), s.addr)
}
