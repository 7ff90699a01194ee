package gate

import (
	"context"
	"crypto/x509"

	"github.com/toolkeep/toolkeep"
)

// certificate is the client's, which the handshake has verified; nil for none.
func (r *Request) certificate() *x509.Certificate {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil
	}
	return r.TLS.PeerCertificates[0]
}

// Certificates is what an Auth can do beside: name the caller by its client certificate, nil without
// one, or hold it against the caller that a bearer names, nil without one. The answer nil, nil means
// that no certificate names a caller. E3214, E3810.
type Certificates interface {
	AuthenticateCertificate(cert *x509.Certificate, bearer *toolkeep.Principal, addr string) (*toolkeep.Principal, error)
}

// proveCertificate is the prover of client certificates. E3214, E3810.
func (g *Gate) proveCertificate(_ context.Context, s sender, p *toolkeep.Principal) (*toolkeep.Principal, error) {
	by, ok := g.auth.(Certificates)
	if !ok {
		return p, nil
	}
	return by.AuthenticateCertificate(s.certificate(), p, s.addr)
}
