package gate

import (
	"net/http"
	"strings"
	"unicode"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/signing"
)

// Headers are the headers of an HTTP request or the metadata of an RPC, which
// have the same names in another spelling.
type Headers struct {
	values map[string][]string
	names  *names
}

type names struct {
	authorization, requestID, session, user, key, traceparent, tracestate, signature, timestamp, nonce, digest, token, agent, forwarded, forwardedFor string
	caller                                                                                                                                            [4]string // the headers of a trusted proxy that name the caller
}

var (
	inHTTP = names{"Authorization", requestIDHeader, "X-Session-Id", "X-User-Id", "Idempotency-Key", "Traceparent", "Tracestate",
		signing.HeaderSignature, signing.HeaderTimestamp, signing.HeaderNonce, signing.HeaderDigest, "X-Capability-Token", "User-Agent", "Forwarded", "X-Forwarded-For",
		[4]string{signing.HeaderSubject, signing.HeaderTenant, signing.HeaderRoles, signing.HeaderChain}}
	inMetadata = names{"authorization", "x-request-id", "x-session-id", "x-user-id", "idempotency-key", "traceparent", "tracestate",
		"x-request-signature", "x-request-timestamp", "x-request-nonce", "x-content-sha256", "x-capability-token", "user-agent", "forwarded", "x-forwarded-for",
		[4]string{"x-caller-subject", "x-caller-tenant", "x-caller-roles", "x-caller-chain"}}
)

// HTTP reads the headers of an HTTP request.
func HTTP(h http.Header) Headers { return Headers{h, &inHTTP} }

// Metadata reads the metadata of an RPC.
func Metadata(md map[string][]string) Headers { return Headers{md, &inMetadata} }

// first is a header's first value; looking by the canonical name costs nothing.
func (h Headers) first(name string) string {
	if vs := h.values[name]; len(vs) > 0 {
		return vs[0]
	}
	return ""
}

// Session is the conversation that a request belongs to, "" for none.
func (h Headers) Session() string { return h.first(h.names.session) }

// Agent is the program that asks, as it names itself.
func (h Headers) Agent() string { return h.first(h.names.agent) }

// userAgent is Agent as a record may hold it; see toolkeep.Principal.UserAgent. It is cut after it was
// redacted, since half a secret is not recognised.
func (g *Gate) userAgent(h Headers) string {
	agent := h.Agent()
	for i := range len(agent) {
		if c := agent[i]; c < ' ' || c > '~' {
			agent = strings.Map(shown, strings.ToValidUTF8(agent, ""))
			break
		}
	}
	if g.clean != nil && agent != "" {
		agent = g.clean(agent)
	}
	return toolkeep.CutBytes(agent, toolkeep.MaxUserAgent)
}

// shown drops control characters and what steers how text is written.
func shown(r rune) rune {
	if unicode.IsGraphic(r) {
		return r
	}
	return -1
}

// Call fills a call with what its headers say, except for a session that it has
// already. What is wrong with them becomes the call's Fault, so that the pipeline
// refuses and records it.
func (g *Gate) Call(h Headers, c *toolkeep.Call) {
	if c.Session == "" {
		c.Session = h.Session()
	}
	c.User = h.first(h.names.user)
	for _, key := range h.values[h.names.key] {
		switch {
		case key == "":
			fault(c, toolkeep.NewError(toolkeep.MalformedRequest, "the header Idempotency-Key is empty; leave it out, or send a key"))
		case c.Key != "" && c.Key != key:
			fault(c, toolkeep.NewError(toolkeep.InvalidParameters, "the header Idempotency-Key is sent twice, with different values"))
		default:
			c.Key = key
		}
	}
	if c.Traceparent = Traceparent(h.first(h.names.traceparent)); c.Traceparent != "" {
		c.Tracestate = Tracestate(h.values[h.names.tracestate]...)
	}
	h.tokens(c)
	if c.Signature = h.callSignature(); c.Signature != nil {
		if _, ok := g.auth.(Signatures); ok {
			return // the pipeline verifies it
		}
	}
	if err := g.proofs(h, c.Signature); err != nil {
		fault(c, err)
	}
}

func fault(c *toolkeep.Call, err *toolkeep.Error) {
	if c.Fault == nil {
		c.Fault = err
	}
}

// Traceparent is v where it can be one, else "": an invalid one is to be passed
// over, says W3C Trace Context.
func Traceparent(v string) string {
	if len(v) < 55 || len(v) > 128 {
		return ""
	}
	for i := range len(v) {
		if c := v[i]; !(c >= 'a' && c <= 'f' || c >= '0' && c <= '9' || c == '-') {
			return ""
		}
	}
	return v
}

// Tracestate is what the values of a tracestate say, "" if it cannot be passed on. It
// belongs to a valid traceparent.
func Tracestate(values ...string) string {
	v := strings.Join(values, ",")
	if len(v) > 512 {
		return ""
	}
	for i := range len(v) {
		if v[i] < ' ' || v[i] > '~' {
			return ""
		}
	}
	return v
}
