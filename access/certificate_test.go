package access

import (
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

const certificateRules = `
certificates:
  - uri: spiffe://example.org/agents/*
    subject: "*"
    roles: [agent]
  - dns: "*.runners.example.org"
    tenant: acme
    workspace: ci
    roles: [agent, auditor]
  - email: ann@example.org
    subject: ann
    roles: [publisher]
  - cn: backup
    roles: [operator]
denied:
  - "00:FF:01"
`

// shown is a certificate as a handshake gives it.
func shown(change func(*x509.Certificate)) *x509.Certificate {
	c := &x509.Certificate{SerialNumber: big.NewInt(7), NotAfter: time.Now().Add(time.Hour), Raw: []byte("one")}
	change(c)
	return c
}

func uri(texts ...string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		for _, t := range texts {
			u, err := url.Parse(t)
			if err != nil {
				panic(err)
			}
			c.URIs = append(c.URIs, u)
		}
	}
}

func withRules(t *testing.T, rules string, change func(*Config)) (*Access, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "certificates.yaml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	m := newMemory()
	c := Config{Load: m.keys, Store: m, CertificatesFile: file}
	if change != nil {
		change(&c)
	}
	return must[*Access](t)(New(c)), file
}

// Each certificate and whom it stands for; "" is no caller.
func TestCertificates(t *testing.T) {
	a, _ := withRules(t, certificateRules, nil)
	for name, x := range map[string]struct {
		cert                        *x509.Certificate
		tenant, subject, roles, why string
	}{
		"a workload":              {cert: shown(uri("spiffe://example.org/agents/billing")), tenant: "default", subject: "billing", roles: "agent"},
		"a path below it":         {cert: shown(uri("spiffe://example.org/agents/billing/admin")), why: "CERTIFICATE_UNKNOWN"},
		"nothing below it":        {cert: shown(uri("spiffe://example.org/agents/")), why: "CERTIFICATE_UNKNOWN"},
		"another trust domain":    {cert: shown(uri("spiffe://example.com/agents/billing")), why: "CERTIFICATE_UNKNOWN"},
		"the second of its names": {cert: shown(uri("https://example.org", "spiffe://example.org/agents/b")), tenant: "default", subject: "b", roles: "agent"},
		"a host":                  {cert: shown(func(c *x509.Certificate) { c.DNSNames = []string{"a.runners.example.org"} }), tenant: "acme", subject: "a.runners.example.org", roles: "agent auditor"},
		"a host below it":         {cert: shown(func(c *x509.Certificate) { c.DNSNames = []string{"a.b.runners.example.org"} }), why: "CERTIFICATE_UNKNOWN"},
		"a host's name as its CN": {cert: shown(func(c *x509.Certificate) { c.Subject.CommonName = "a.runners.example.org" }), why: "CERTIFICATE_UNKNOWN"},
		"an address":              {cert: shown(func(c *x509.Certificate) { c.EmailAddresses = []string{"ann@example.org"} }), tenant: "default", subject: "ann", roles: "publisher"},
		"a common name":           {cert: shown(func(c *x509.Certificate) { c.Subject = pkix.Name{CommonName: "backup"} }), tenant: "default", subject: "backup", roles: "operator"},
		"the first rule decides":  {cert: shown(func(c *x509.Certificate) { uri("spiffe://example.org/agents/x")(c); c.Subject.CommonName = "backup" }), tenant: "default", subject: "x", roles: "agent"},
		"no name":                 {cert: shown(func(*x509.Certificate) {}), why: "CERTIFICATE_UNKNOWN"},
		"a control character":     {cert: shown(func(c *x509.Certificate) { c.DNSNames = []string{"a\n.runners.example.org"} }), why: "CERTIFICATE_UNKNOWN"},
		"a serial that is denied": {cert: shown(func(c *x509.Certificate) {
			uri("spiffe://example.org/agents/b")(c)
			c.SerialNumber = big.NewInt(0xff01)
		}), why: "CERTIFICATE_DENIED"},
		"one that begins like that": {cert: shown(func(c *x509.Certificate) {
			uri("spiffe://example.org/agents/b")(c)
			c.SerialNumber = big.NewInt(0xff0100)
		}), tenant: "default", subject: "b", roles: "agent"},
	} {
		p, err := a.AuthenticateCertificate(x.cert, nil, "192.0.2.1")
		if x.why != "" {
			if e := toolkeep.AsError(err); p != nil || e == nil || e.Code != toolkeep.Unauthenticated || e.Details["reason"] != x.why {
				t.Errorf("%s: %+v %v", name, p, err)
			}
			continue
		}
		if err != nil || p.Tenant != x.tenant || p.Subject != x.subject || strings.Join(p.Roles, " ") != x.roles || p.Method != MethodMTLS || !p.Until.Equal(x.cert.NotAfter) {
			t.Errorf("%s: %+v %v", name, p, err)
		}
	}
}

// With a bearer the bearer decides, unless it must be of the certificate's subject; a certificate
// that is denied comes in with none.
func TestCertificateAndBearer(t *testing.T) {
	billing, denied := shown(uri("spiffe://example.org/agents/billing")), shown(func(c *x509.Certificate) { c.SerialNumber = big.NewInt(0xff01) })
	own, other := &toolkeep.Principal{Tenant: "default", Subject: "billing"}, &toolkeep.Principal{Tenant: "default", Subject: "ann"}
	elsewhere := &toolkeep.Principal{Tenant: "acme", Subject: "billing"}
	expired := shown(func(c *x509.Certificate) {
		uri("spiffe://example.org/agents/billing")(c)
		c.NotAfter = time.Now().Add(-time.Second)
	})
	proxied := &toolkeep.Principal{Tenant: "default", Subject: "ann", Method: MethodProxy}
	for _, x := range []struct {
		name   string
		same   bool
		cert   *x509.Certificate
		bearer *toolkeep.Principal
		why    string
	}{
		{"the bearer decides", false, billing, other, ""},
		{"also with a certificate without a rule", false, shown(func(*x509.Certificate) {}), other, ""},
		{"a denied certificate", false, denied, own, "CERTIFICATE_DENIED"},
		{"of one subject", true, billing, own, ""},
		{"of two subjects", true, billing, other, "CERTIFICATE_DIFFERS"},
		{"of two tenants", true, billing, elsewhere, "CERTIFICATE_DIFFERS"},
		{"a proxy's own certificate", true, billing, proxied, ""},
		{"a proxy with a denied certificate", true, denied, proxied, "CERTIFICATE_DENIED"},
		{"no certificate", false, nil, own, ""},
		{"no certificate, where it must be of one subject", true, nil, own, "CERTIFICATE_MISSING"},
		{"a proxy without one", true, nil, proxied, ""},
		{"neither", true, nil, nil, ""},
		{"a certificate that has expired since", false, expired, own, "CERTIFICATE_EXPIRED"},
		{"and with nothing beside", false, expired, nil, "CERTIFICATE_EXPIRED"},
		{"and with a proxy", true, expired, proxied, "CERTIFICATE_EXPIRED"},
		{"a certificate without a rule", true, shown(func(*x509.Certificate) {}), own, "CERTIFICATE_DIFFERS"},
	} {
		a, _ := withRules(t, certificateRules, func(c *Config) { c.SameSubject = x.same })
		p, err := a.AuthenticateCertificate(x.cert, x.bearer, "192.0.2.1")
		if x.why == "" && (err != nil || (p == nil) != (x.bearer == nil) || p != nil && (p.Subject != x.bearer.Subject || p.Certificate != x.cert)) {
			t.Errorf("%s: %+v %v", x.name, p, err)
		}
		if e := toolkeep.AsError(err); x.why != "" && (e == nil || e.Details["reason"] != x.why) {
			t.Errorf("%s: %+v %v", x.name, p, err)
		}
	}
	m := newMemory()
	a := must[*Access](t)(New(Config{Load: m.keys, Store: m}))
	if p, err := a.AuthenticateCertificate(billing, nil, ""); p != nil || err != nil || a.CertificatesHealth(t.Context()) != nil {
		t.Errorf("without rules: %+v %v", p, err)
	}
	if p, err := a.AuthenticateCertificate(expired, own, ""); p != nil || !toolkeep.IsCode(err, toolkeep.Unauthenticated) {
		t.Errorf("expired, without rules: %+v %v", p, err)
	}
}

// Changed rules hold without a restart; broken ones leave the last and show in health. A call that
// was admitted keeps only roles that some rule still gives.
func TestCertificateRulesReload(t *testing.T) {
	now := time.Now()
	a, file := withRules(t, certificateRules, func(c *Config) { c.Clock = func() time.Time { return now } })
	billing := shown(uri("spiffe://example.org/agents/billing"))
	in := func() *toolkeep.Principal {
		now = now.Add(10 * time.Second)
		p, _ := a.AuthenticateCertificate(billing, nil, "")
		return p
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	admitted := in()
	write("certificates: nobody")
	for range 3 {
		if in() == nil {
			t.Fatal("broken rules replaced the last ones")
		}
	}
	if a.CertificatesHealth(t.Context()) == nil {
		t.Error("broken rules are well")
	}
	sum := sha256.Sum256(billing.Raw)
	write("certificates: [{cn: backup, roles: [operator]}, {uri: 'spiffe://example.org/agents/*', roles: [agent]}]\ndenied: ['sha256:" + hex.EncodeToString(sum[:]) + "']")
	if in() != nil || a.CertificatesHealth(t.Context()) != nil {
		t.Errorf("a certificate denied since came in; health %v", a.CertificatesHealth(t.Context()))
	}
	if p, err := a.Refresh(t.Context(), &toolkeep.Principal{Tenant: "default", Subject: "x", Roles: []string{"publisher", "agent"}}); !toolkeep.IsCode(err, toolkeep.RegistryUnavailable) {
		t.Errorf("before Start: %+v %v", p, err)
	}
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer a.Stop()
	admitted.Roles = []string{"publisher", "agent"}
	other := shown(func(c *x509.Certificate) { uri("spiffe://example.org/agents/other")(c); c.Raw = []byte("other") })
	own := must[*toolkeep.Principal](t)(a.AuthenticateCertificate(other, nil, ""))
	keyed := must[*toolkeep.Principal](t)(a.AuthenticateCertificate(other, &toolkeep.Principal{Tenant: "default", Subject: "x", Roles: []string{"agent"}}, ""))
	for _, p := range []*toolkeep.Principal{own, keyed} {
		if _, err := a.Refresh(t.Context(), p); err != nil {
			t.Errorf("of a certificate that is not denied: %v", err)
		}
		p.Certificate = billing
		if _, err := a.Refresh(t.Context(), p); !toolkeep.IsCode(err, toolkeep.Unauthenticated) {
			t.Errorf("of a denied certificate: %v", err)
		}
	}
	admitted.Certificate = nil // as a call that waits has it
	if p, err := a.Refresh(t.Context(), admitted); err != nil || strings.Join(p.Roles, " ") != "agent" || p.Method != MethodMTLS {
		t.Errorf("%+v %v", p, err)
	}
}

// What a certificate opened ends where its rule names another subject or none: for who came in by it, and with
// access.same_subject for a key or token beside it, not for a proxy.
func TestRuleOfAnotherSubjectEnds(t *testing.T) {
	cert := shown(uri("spiffe://example.org/agents/billing"))
	key, _ := NewKey(toolkeep.APIKey{Tenant: "default", Subject: "billing", Roles: []string{"agent"}}, time.Now())
	const same, other, none = certificateRules, "certificates: [{uri: 'spiffe://example.org/agents/*', subject: ledger, roles: [agent]}]", "certificates: [{cn: backup, roles: [agent]}]"
	for name, x := range map[string]struct {
		method string // "" stands for a token
		must   bool   // be of the certificate's subject
		rules  string
		ends   bool
	}{
		"by itself, another":       {MethodMTLS, false, other, true},
		"by itself, none":          {MethodMTLS, false, none, true},
		"by itself, the same":      {MethodMTLS, false, same, false},
		"a key, another":           {"api_key", true, other, true},
		"a key, none":              {"api_key", true, none, true},
		"a key, the same":          {"api_key", true, same, false},
		"a key, another, as may":   {"api_key", false, other, false},
		"a token, another":         {"", true, other, true},
		"a token, none":            {"", true, none, true},
		"a token, the same":        {"", true, same, false},
		"a token, another, as may": {"", false, other, false},
		"a proxy, none":            {MethodProxy, true, none, false},
	} {
		a, _ := withRules(t, x.rules, func(c *Config) {
			c.SameSubject, c.Signing = x.must, Signing{Proxy: []Secret{fixedSecret(longSecret)}, ProxyRoles: []string{"agent"}, ProxyTenants: []string{"default"}}
			if err := c.Store.(*memory).Apply(t.Context(), toolkeep.PutKey{Key: key}); err != nil {
				t.Fatal(err)
			}
		})
		if err := a.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		p := &toolkeep.Principal{Tenant: "default", Subject: "billing", Roles: []string{"agent"}, Method: x.method, Certificate: cert}
		if x.method == "api_key" {
			p.KeyID = key.ID
		}
		if _, err := a.Refresh(t.Context(), p); x.ends != toolkeep.IsCode(err, toolkeep.Unauthenticated) || !x.ends && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		a.Stop()
	}
}

func TestCertificateRuleFaults(t *testing.T) {
	for name, x := range map[string]struct{ give, at, want string }{
		"empty":              {"", "", "not readable"},
		"unknown":            {"certificate: []", "/certificate", "the nearest known key is certificates"},
		"no name":            {"certificates: [{roles: [agent]}]", "/certificates/0", "names no certificate"},
		"two names":          {"certificates: [{cn: a, dns: b, roles: [agent]}]", "/certificates/0/dns", "has cn already"},
		"two asterisks":      {"certificates: [{cn: '*a*', roles: [agent]}]", "/certificates/0/cn", "one *"},
		"a subject's own":    {"certificates: [{cn: a, subject: '*', roles: [agent]}]", "/certificates/0/subject", "more *"},
		"no role":            {"certificates: [{cn: a}]", "/certificates/0/roles", "no roles"},
		"an unknown role":    {"certificates: [{cn: a, roles: [agnet]}]", "/certificates/0/roles/0", "did you mean agent?"},
		"a serial in words":  {"certificates: [{cn: a, roles: [agent]}]\ndenied: [xyz]", "/denied/0", "hexadecimal"},
		"a short sum":        {"certificates: [{cn: a, roles: [agent]}]\ndenied: ['sha256:aa']", "/denied/0", "fingerprint"},
		"a number":           {"certificates: [{cn: a, roles: [agent]}]\ndenied: [17]", "/denied/0", "in quotes"},
		"a control in names": {"certificates: [{cn: \"a\\n\", roles: [agent]}]", "/certificates/0/cn", "control"},
	} {
		_, err := ParseCertificates([]byte(x.give), []string{"agent"})
		e := toolkeep.AsError(err)
		if e == nil || e.Code != toolkeep.InvalidManifest || len(e.Faults()) == 0 || e.Faults()[0].Pointer != x.at || !strings.Contains(e.Faults()[0].Message, x.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
