package gate

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/signing"
)

// Handovers is what an Auth can do beside: note the nonce of a handover, so that it is taken once. E3406,
// E3965.
type Handovers interface {
	TakeHandover(ctx context.Context, nonce string) error
}

// Sealer seals what only the nodes of one store can read.
type Sealer interface {
	Seal(plain, context []byte) ([]byte, error)
	Open(sealed, context []byte) ([]byte, error)
}

const (
	handoverHeader = "Toolkeep-Handover"
	handoverLife   = 30 * time.Second
)

var handoverContext = []byte("a request that a node checked and hands over")

// handover is what one node tells another of a request that it has checked: its nonce is taken, and
// over the connection of the nodes stands the node's certificate and not the client's.
type handover struct {
	At      int64  `json:"at"`
	Nonce   string `json:"nonce"`
	Request []byte `json:"request"`
	Addr    string `json:"addr"` // of the client
	// Caller is who calls, where no bearer says so.
	Caller *toolkeep.Principal `json:"caller,omitempty"`
	// Certificate is the client's, in DER: the stream that it opens on the other node ends with it.
	Certificate []byte `json:"certificate,omitempty"`
}

// HandOver adds to a request that Authenticate let in what the node to which it is forwarded cannot
// check again: a signature, a client certificate. body is the request's.
func (g *Gate) HandOver(r *http.Request, p *toolkeep.Principal, body []byte) error {
	r.Header.Del(handoverHeader)
	bearer := r.Header["Authorization"] != nil
	if g.sealer == nil || bearer && r.TLS == nil && HTTP(r.Header).first(inHTTP.signature) == "" {
		return nil
	}
	h := handover{At: time.Now().Unix(), Nonce: rand.Text(), Request: handedRequest(r, sha256.Sum256(body)), Addr: p.Addr}
	if !bearer {
		h.Caller = p
	}
	if p.Certificate != nil {
		h.Certificate = p.Certificate.Raw
	}
	plain, err := json.Marshal(h)
	if err != nil {
		return err
	}
	sealed, err := g.sealer.Seal(plain, handoverContext)
	if err == nil {
		r.Header.Set(handoverHeader, base64.RawURLEncoding.EncodeToString(sealed))
	}
	return err
}

// handedRequest binds a handover to its request: to all that a signature covers, and to the signature.
func handedRequest(r *http.Request, body [sha256.Size]byte) []byte {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q", r.Method, r.URL.RequestURI())
	for _, name := range slices.Concat(signing.Signed, []string{signing.HeaderSignature, signing.HeaderTimestamp, signing.HeaderNonce, signing.HeaderDigest}) {
		fmt.Fprintf(h, " %q", r.Header[http.CanonicalHeaderKey(name)])
	}
	h.Write(body[:])
	return h.Sum(nil)
}

// handedOver returns what another node says of a request, nil if it was not handed over: then it is
// checked as any other.
// One that was taken before is E3406; E3965 while that cannot be found out.
func (g *Gate) handedOver(r *http.Request) (*handover, error) {
	auth, ok := g.auth.(Handovers)
	if !ok || g.sealer == nil || r.Header[handoverHeader] == nil {
		return nil, nil
	}
	sealed, err := base64.RawURLEncoding.DecodeString(r.Header.Get(handoverHeader))
	if err != nil || len(sealed) > g.limits.HeaderBytes {
		return nil, nil
	}
	var h handover
	plain, err := g.sealer.Open(sealed, handoverContext)
	if err != nil || json.Unmarshal(plain, &h) != nil {
		return nil, nil
	}
	if age := time.Since(time.Unix(h.At, 0)); age > handoverLife || age < -handoverLife {
		return nil, nil
	}
	body, err := g.digest(r)()
	if err != nil {
		return nil, err
	}
	if !hmac.Equal(h.Request, handedRequest(r, body)) {
		return nil, nil
	}
	if err := auth.TakeHandover(r.Context(), h.Nonce); err != nil {
		return nil, err
	}
	return &h, nil
}

// authenticateHanded names the caller of a request that another node has checked.
func (g *Gate) authenticateHanded(ctx context.Context, h *handover, r *Request) (*toolkeep.Principal, error) {
	var cert *x509.Certificate
	if h.Certificate != nil {
		var err error
		if cert, err = x509.ParseCertificate(h.Certificate); err != nil {
			return nil, err
		}
	}
	if h.Caller == nil {
		bearer, err := r.Headers.bearer()
		if err != nil {
			return nil, err
		}
		p, err := g.auth.Authenticate(ctx, bearer, g.proxies.client(r.Headers, r.Peer))
		if err != nil || cert == nil {
			return p, err
		}
		own := *p // the Auth may keep p
		own.Certificate = cert
		return &own, nil
	}
	h.Caller.Certificate = cert
	if by, ok := g.auth.(Refresher); ok { // by this node's roles and rules
		return by.Refresh(ctx, h.Caller)
	}
	return h.Caller, nil
}
