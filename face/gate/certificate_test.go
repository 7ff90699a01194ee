package gate

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"testing"

	"github.com/toolkeep/toolkeep"
)

// certified is an Auth that notes what it is asked of certificates.
type certified struct {
	fakeAuth
	asked []*x509.Certificate
}

func (c *certified) AuthenticateCertificate(cert *x509.Certificate, bearer *toolkeep.Principal, _ string) (*toolkeep.Principal, error) {
	c.asked = append(c.asked, cert)
	if cert == nil && bearer != nil {
		return nil, toolkeep.NewError(toolkeep.Unauthenticated, "the bearer needs a certificate")
	}
	return bearer, nil
}

// A bearer is held against the client certificate also where there is none: a
// caller who leaves it out gains nothing.
func TestBearerWithoutCertificate(t *testing.T) {
	auth := &certified{fakeAuth: func(bearer, _ string) (*toolkeep.Principal, error) {
		return &toolkeep.Principal{Subject: "ann" + bearer}, nil
	}}
	g, cert := New(Config{Auth: auth}), &x509.Certificate{}
	for name, x := range map[string]struct {
		bearer string
		over   *tls.ConnectionState
		in     bool
	}{
		"over TLS without one": {"k", &tls.ConnectionState{}, false},
		"without TLS":          {"k", nil, false},
		"with one":             {"k", &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}, true},
		"no bearer":            {"", nil, true},
	} {
		auth.asked = nil
		h := http.Header{}
		if x.bearer != "" {
			h.Set("Authorization", "Bearer "+x.bearer)
		}
		p, err := g.Authenticate(t.Context(), &Request{Headers: HTTP(h), TLS: x.over, Face: REST})
		if (err == nil) != x.in || x.in && p.Subject != "ann"+x.bearer || len(auth.asked) != 1 {
			t.Errorf("%s: %+v %v, asked %v", name, p, err, auth.asked)
		}
	}
}
