package gate

import (
	"bytes"
	"io"
	"net/http"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/signing"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/mcp"
)

// This file is the one place where capability tokens and signatures of calls are taken, for every face. A call's token
// is verified by the pipeline, that of another request here.

// proofs refuses a signature that the Auth cannot check; of is that of a call alone, nil for none. E3404.
func (g *Gate) proofs(h Headers, of *toolkeep.CallSignature) *toolkeep.Error {
	if _, ok := g.auth.(Signatures); ok { // Authenticate had it checked, but for that of a call alone
		if of != nil {
			return signing.Refused(signing.Incomplete, "a signature without %s is that of a call of a tool, and this is none; sign the request", signing.HeaderNonce)
		}
		return nil
	}
	if of != nil || h.values[h.names.signature] != nil || h.values[h.names.timestamp] != nil {
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

// withToken narrows the principal of a request that is no call by the token that it has.
func (g *Gate) withToken(c *toolkeep.Call, p *toolkeep.Principal) (*toolkeep.Principal, error) {
	switch {
	case c.Fault != nil:
		return nil, c.Fault
	case c.Token == "":
		return p, nil
	}
	v, ok := g.auth.(TokenVerifier)
	if !ok {
		return nil, toolkeep.NewError(toolkeep.TokenInvalid, "this server verifies no capability tokens; leave the one that was sent out")
	}
	return v.WithToken(p, c.Token)
}

// Keys of _meta by which messages of MCP carry what other faces have in headers.
const (
	MetaToken     = "toolkeep/capability-token"    // X-Capability-Token
	MetaSignature = "toolkeep/signature"           // X-Request-Signature, of a call alone
	MetaTimestamp = "toolkeep/signature-timestamp" // X-Request-Timestamp
	MetaRequestID = "toolkeep/request-id"          // X-Request-ID, as the signature has it
)

// TakeMeta takes the capability token and the signature of a call alone from the _meta of a message of
// MCP. What is wrong becomes the call's Fault: E3301, E3312, and E3209 for an empty token.
func TakeMeta(c *toolkeep.Call, meta []byte) {
	text := func(name string) (s string, there bool) {
		v := mcp.Get(meta, name)
		s, ok := mcp.Unquote(v)
		if v != nil && !ok {
			fault(c, toolkeep.NewError(toolkeep.MalformedRequest, "_meta[%q] must be a string", name))
		}
		return s, v != nil
	}
	if token, there := text(MetaToken); there && c.Fault == nil {
		TakeToken(c, `_meta["`+MetaToken+`"]`, token)
	}
	value, signed := text(MetaSignature)
	at, timed := text(MetaTimestamp)
	id, named := text(MetaRequestID)
	if signed || timed || named {
		c.Signature = &toolkeep.CallSignature{Value: value, Timestamp: at, RequestID: id}
	}
}

// messageDepth is how deep a message of MCP may nest; the face and the pipeline have limits of their own.
const messageDepth = 200

// signedInCall reports whether an HTTP request of MCP is one call that carries its own signature, which
// the pipeline then verifies. The body is kept for the face.
func (g *Gate) signedInCall(r *http.Request) bool {
	if r.Method != http.MethodPost || r.Body == nil || r.ContentLength > g.limits.BodyBytes {
		return false
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, g.limits.BodyBytes+1))
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), r.Body), r.Body}
	if err != nil {
		return false
	}
	list, batch, err := mcp.ParseBatch(body, canon.Limits{Bytes: g.limits.BodyBytes, Depth: messageDepth})
	if err != nil || batch || !list[0].IsRequest() || list[0].Method != mcp.MethodCallTool {
		return false
	}
	var c toolkeep.Call
	TakeMeta(&c, mcp.Get(list[0].Params, "_meta"))
	return c.Signature != nil
}
