package gate

import (
	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/signing"
)

// This file is the one place where capability tokens are taken, for every face. A call's token
// is verified by the pipeline, that of another request here.

// proofs refuses a signature that the Auth cannot check. E3404.
func (g *Gate) proofs(h Headers) *toolkeep.Error {
	if _, ok := g.auth.(Signatures); ok { // Authenticate had it checked, but for that of a call alone
		if h.callSignature() != nil {
			return signing.Refused(signing.Incomplete, "a signature without %s is that of a call of a tool, and this is none; sign the request", signing.HeaderNonce)
		}
		return nil
	}
	if h.values[h.names.signature] != nil || h.values[h.names.timestamp] != nil {
		return toolkeep.NewError(toolkeep.SignatureInvalid,
			"request signatures are not configured on this server; leave X-Request-Signature and X-Request-Timestamp out")
	}
	return nil
}

// TakeToken takes a capability token of a call, of which there is one, in a header or in the
// message: where names the place. What is wrong becomes the call's Fault: E3209 for an empty one,
// E3301 for two that differ.
func TakeToken(c *toolkeep.Call, where, text string) {
	switch {
	case text == "":
		fault(c, toolkeep.NewError(toolkeep.TokenInvalid, "%s is empty; leave it out, or send a capability token", where))
	case c.Token != "" && c.Token != toolkeep.CapabilityToken(text):
		fault(c, toolkeep.NewError(toolkeep.InvalidParameters, "the call has two capability tokens that differ, one of them in %s; send one", where))
	default:
		c.Token = toolkeep.CapabilityToken(text)
	}
}

// tokens takes the token in the headers.
func (h Headers) tokens(c *toolkeep.Call) {
	for _, text := range h.values[h.names.token] {
		TakeToken(c, "the header X-Capability-Token", text)
	}
}

// TokenVerifier is what an Auth can do beside: verify the capability token of a request that is
// no call, and return the principal narrowed by it. E3207 to E3210, E3215.
type TokenVerifier interface {
	WithToken(p *toolkeep.Principal, text toolkeep.CapabilityToken) (*toolkeep.Principal, error)
}

// withToken narrows the principal of a request that is no call by the token in its headers.
func (g *Gate) withToken(h Headers, p *toolkeep.Principal) (*toolkeep.Principal, error) {
	if h.values[h.names.token] == nil {
		return p, nil
	}
	var c toolkeep.Call
	if h.tokens(&c); c.Fault != nil {
		return nil, c.Fault
	}
	v, ok := g.auth.(TokenVerifier)
	if !ok {
		return nil, toolkeep.NewError(toolkeep.TokenInvalid, "this server verifies no capability tokens; leave the one that was sent out")
	}
	return v.WithToken(p, c.Token)
}
