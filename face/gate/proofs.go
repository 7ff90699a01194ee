package gate

import "github.com/toolkeep/toolkeep"

// This file is the one place where request signatures and capability tokens are
// checked, for every face. None are configured yet, so each one that is sent is
// refused: passing over it would let a call through that its sender meant to
// narrow.

// proofs checks what the headers hold. E3209, E3404.
func (g *Gate) proofs(h Headers) *toolkeep.Error {
	if h.values[h.names.signature] != nil || h.values[h.names.timestamp] != nil {
		return toolkeep.NewError(toolkeep.SignatureInvalid,
			"request signatures are not configured on this server; leave X-Request-Signature and X-Request-Timestamp out")
	}
	if h.values[h.names.token] != nil {
		return g.Token()
	}
	return nil
}

// Token checks a capability token. E3209.
func (g *Gate) Token() *toolkeep.Error {
	return toolkeep.NewError(toolkeep.TokenInvalid,
		"capability tokens are not configured on this server, so the one that was sent cannot be verified; leave it out")
}
