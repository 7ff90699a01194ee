package gate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"net/http"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/signing"
)

// This file is the one place where signed requests are checked, for every face: Authenticate calls
// it before a face has read anything.

// Signatures is what an Auth can do beside: check signatures of requests.
type Signatures interface {
	// Signed checks the signature of a request of the principal at a face; r is nil if it has none,
	// which is refused where one is demanded. E3404, E3405, E3406, E3408, E3810, E3403, E3965.
	Signed(ctx context.Context, p *toolkeep.Principal, face string, r *signing.Request) error
	// MustSign reports whether a signature is demanded of the principal at a face.
	MustSign(p *toolkeep.Principal, face string) bool
	// AuthenticateProxy returns the principal that a trusted proxy names in signed headers. trusted
	// says whether the peer may be one. E3214 and those of Signed.
	AuthenticateProxy(ctx context.Context, r *signing.Request, trusted bool, addr string) (*toolkeep.Principal, error)
	// Unsigned counts a signature that the gate refuses with err, as Signed does. The error is err,
	// or E3810 during a block.
	Unsigned(p *toolkeep.Principal, err error) error
}

// Faces of a Request.
const (
	REST = "rest"
	MCP  = "mcp"
	GRPC = "grpc"
)

// signed returns what an HTTP request or an RPC shows of its signature, nil if it has none.
func (r *Request) signed() *signing.Request {
	h := r.Headers
	if h.values[h.names.signature] == nil && h.values[h.names.timestamp] == nil && h.values[h.names.nonce] == nil {
		return nil
	}
	return r.signing()
}

func (r *Request) signing() *signing.Request {
	h := r.Headers
	s := &signing.Request{Method: r.Method, Target: r.Target, Signature: h.first(h.names.signature), Timestamp: h.first(h.names.timestamp),
		Nonce: h.first(h.names.nonce), Digest: h.first(h.names.digest), Header: h.lower, Body: r.Body}
	s.CallOnly = h.callSignature() != nil
	for _, name := range []string{h.names.signature, h.names.timestamp, h.names.nonce, h.names.digest} {
		if len(h.values[name]) > 1 { // a proxy may have read another one
			s.Signature = ""
		}
	}
	return s
}

// callSignature returns the signature of a call alone, nil for none.
func (h Headers) callSignature() *toolkeep.CallSignature {
	if h.values[h.names.nonce] != nil || h.values[h.names.digest] != nil || len(h.values[h.names.signature]) != 1 || h.first(h.names.signature) == "" {
		return nil
	}
	return &toolkeep.CallSignature{Value: h.first(h.names.signature), Timestamp: h.first(h.names.timestamp), RequestID: h.first(h.names.requestID)}
}

// Signed reports whether there is a signature, of the request or of a call alone.
func (h Headers) Signed() bool { return h.values[h.names.signature] != nil }

// lower returns the values of a header by its lower-case name.
func (h Headers) lower(name string) []string {
	if h.names == &inHTTP {
		name = http.CanonicalHeaderKey(name)
	}
	return h.values[name]
}

// digest returns the SHA-256 of a request's body, which it keeps for the face. E3330, E3312.
func (g *Gate) digest(r *http.Request) func() ([sha256.Size]byte, error) {
	return func() (sum [sha256.Size]byte, err error) {
		limit := g.limits.BulkBytes // the face has its own
		if r.ContentLength > limit {
			return sum, tooLarge(limit)
		}
		var body []byte
		if r.Body != nil {
			if body, err = io.ReadAll(io.LimitReader(r.Body, limit+1)); err != nil {
				return sum, readFailed(err)
			}
		}
		if int64(len(body)) > limit {
			return sum, tooLarge(limit)
		}
		if r.ContentLength >= 0 && int64(len(body)) != r.ContentLength {
			return sum, readFailed(io.ErrUnexpectedEOF)
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		return sha256.Sum256(body), nil
	}
}
