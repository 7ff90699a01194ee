package gate

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
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

// The client's certificate goes to the other node, so that what it opens there ends with it; the principal that the Auth keeps
// stays without it.
func TestHandOverOfCertificate(t *testing.T) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(7)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	kept := &toolkeep.Principal{Subject: "ann"}
	auth := &handing{fakeAuth: func(string, string) (*toolkeep.Principal, error) { return kept, nil }, seen: map[string]bool{}}
	g := New(Config{Sealer: reversing{}, Auth: auth})
	for _, bearer := range []string{"", "Bearer k"} {
		r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader("{}"))
		r.TLS = &tls.ConnectionState{}
		if bearer != "" {
			r.Header.Set("Authorization", bearer)
		}
		if err := g.HandOver(r, &toolkeep.Principal{Subject: "ann", Certificate: cert}, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		p, err := g.AuthenticateHTTP(r)
		if err != nil || p.Subject != "ann" || !cert.Equal(p.Certificate) || kept.Certificate != nil {
			t.Errorf("with %q: %+v %v", bearer, p, err)
		}
	}
}
