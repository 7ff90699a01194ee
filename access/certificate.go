package access

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon/yaml"
	"github.com/toolkeep/toolkeep/reload"
)

// MethodMTLS is the Principal.Method of a caller that shows a client certificate and nothing else.
const MethodMTLS = "mtls"

// CertificateRule says whom certificates with a name stand for.
type CertificateRule struct {
	Kind  string // uri, dns, email or cn: which of the certificate's names
	Match string // the name; one * in it stands for any characters but "/" (uri) or "." (dns)
	// Subject is the caller's; "" is the name, and a * in it is what the * of Match stands for.
	Subject   string
	Tenant    string // default HomeTenant
	Workspace string // "" for none
	Roles     []string

	rights atomic.Pointer[rights]
}

// Certificates are the rules of a document, in their order, and the certificates that are denied.
type Certificates struct {
	Rules  []*CertificateRule
	Denied map[string]bool // serial numbers and SHA-256 fingerprints, in lower-case hex
}

// certificateKinds are the names of certificates that a rule can go by.
var certificateKinds = []string{"uri", "dns", "email", "cn"}

// ParseCertificates reads a document in YAML:
//
//	certificates:
//	  - uri: spiffe://example.org/agents/*   # or dns, email, cn
//	    subject: "*"                         # what the asterisk stands for; left out: the whole name
//	    tenant: default
//	    workspace: billing
//	    roles: [agent]
//	denied:
//	  - "3f:a2:00:17"                        # serial number
//	  - sha256:9f86d081884c7d65…             # of the whole certificate
//
// The first rule with a name of the certificate decides. Roles must be among known. The error is
// E3008 with every fault and its line.
func ParseCertificates(data []byte, known []string) (*Certificates, error) {
	r, all := &reader{lines: make(map[string]int)}, &Certificates{Denied: map[string]bool{}}
	r.whole(data, []string{"certificates", "denied"}, func(key string, n *yaml.Node, at string) {
		r.sequence(n, at, func(n *yaml.Node, at string) {
			if key == "certificates" {
				all.Rules = append(all.Rules, r.certificate(n, at, known))
				return
			}
			text := r.text(n, at)
			id := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(text, "sha256:"), ":", ""))
			raw, err := hex.DecodeString(strings.Repeat("0", len(id)%2) + id)
			switch {
			case text == "":
			case err != nil || strings.HasPrefix(text, "sha256:") && len(raw) != sha256.Size || len(raw) > sha256.Size:
				r.fault(n.Line, at, "format", "write the serial number in hexadecimal, in quotes, or sha256: and the fingerprint of the certificate")
			case strings.HasPrefix(text, "sha256:"):
				all.Denied[text[:len("sha256:")]+id] = true
			default:
				all.Denied[serialText(raw)] = true
			}
		})
	})
	if len(r.faults) > 0 {
		return nil, toolkeep.FaultsError(toolkeep.InvalidManifest, "the rules of certificates cannot be used: "+r.faults[0].Message, r.faults)
	}
	return all, nil
}

func serialText(raw []byte) string { return strings.TrimLeft(hex.EncodeToString(raw), "0") }

func (r *reader) certificate(n *yaml.Node, at string, known []string) *CertificateRule {
	c := &CertificateRule{Tenant: HomeTenant}
	r.mapping(n, at, append([]string{"subject", "tenant", "workspace", "roles"}, certificateKinds...), func(key string, n *yaml.Node, at string) {
		if key == "roles" {
			c.Roles = r.texts(n, at)
			for i, role := range c.Roles {
				if !slices.Contains(known, role) {
					r.fault(n.Line, fmt.Sprintf("%s/%d", at, i), "enum", "%s", noRole(role, known))
				}
			}
			return
		}
		text := r.text(n, at)
		if len(text) > maxSubject || !plain(text) || strings.TrimSpace(text) != text {
			r.fault(n.Line, at, "format", "at most %d bytes without control characters and outer spaces", maxSubject)
		}
		switch key {
		case "subject":
			c.Subject = text
		case "tenant":
			c.Tenant = text
		case "workspace":
			c.Workspace = text
		default:
			if c.Kind != "" {
				r.fault(n.Line, at, "oneOf", "the rule has %s already; give each name a rule of its own", c.Kind)
			}
			c.Kind, c.Match = key, text
		}
	})
	stars := strings.Count(c.Match, "*")
	switch {
	case c.Kind == "":
		r.fault(n.Line, at, "required", "the rule names no certificate; add one of %s", strings.Join(certificateKinds, ", "))
	case stars > 1:
		r.fault(n.Line, at+"/"+c.Kind, "pattern", "a name has one * at most")
	case strings.Count(c.Subject, "*") > stars:
		r.fault(n.Line, at+"/subject", "pattern", "the subject has more * than the name")
	}
	if len(c.Roles) == 0 {
		r.fault(n.Line, at+"/roles", "required", "the rule has no roles; a caller without a role could do nothing")
	}
	return c
}

// subject returns the subject that a certificate's name gives, "" if the rule is not for it.
func (c *CertificateRule) subject(name string) string {
	before, after, star := strings.Cut(c.Match, "*")
	if !star {
		if name != c.Match {
			return ""
		}
	} else if len(name) < len(before)+len(after) || !strings.HasPrefix(name, before) || !strings.HasSuffix(name, after) {
		return ""
	}
	middle := name[len(before) : len(name)-len(after)]
	if !star {
		middle = ""
	} else if middle == "" || c.Kind == "uri" && strings.Contains(middle, "/") || c.Kind == "dns" && strings.Contains(middle, ".") {
		return ""
	}
	subject := name
	if c.Subject != "" {
		subject = strings.Replace(c.Subject, "*", middle, 1)
	}
	if len(subject) > maxSubject || !plain(subject) || strings.TrimSpace(subject) != subject {
		return ""
	}
	return subject
}

// find returns the first rule for one of the certificate's names, nil if there is none.
func (c *Certificates) find(cert *x509.Certificate) (rule *CertificateRule, subject string) {
	names := map[string][]string{"dns": cert.DNSNames, "email": cert.EmailAddresses, "cn": {cert.Subject.CommonName}}
	for _, u := range cert.URIs {
		names["uri"] = append(names["uri"], u.String())
	}
	for _, rule := range c.Rules {
		for _, name := range names[rule.Kind] {
			if subject := rule.subject(name); subject != "" {
				return rule, subject
			}
		}
	}
	return nil, ""
}

func (c *Certificates) denies(cert *x509.Certificate) bool {
	if len(c.Denied) == 0 {
		return false
	}
	sum := sha256.Sum256(cert.Raw)
	return c.Denied["sha256:"+hex.EncodeToString(sum[:])] || c.Denied[serialText(cert.SerialNumber.Bytes())]
}

// ReadCertificates reads a document of rules from a file; roles are the custom ones.
func ReadCertificates(file string, roles []Role) (*Certificates, error) {
	rules, _ := compile(roles)
	return readCertificates(file, rules)
}

func readCertificates(file string, rules ruleset) (*Certificates, error) {
	raw, err := readYAML(file, "access.certificates_file")
	if err != nil {
		return nil, err
	}
	all, err := ParseCertificates(raw, rules.names())
	if err != nil {
		return nil, relined(err, func(line string) string { return file + ", " + line })
	}
	return all, nil
}

// readYAML reads the file of a setting; one that is too long is as long as that shows.
func readYAML(file, setting string) ([]byte, error) {
	f, err := os.Open(file)
	if err == nil {
		defer f.Close()
		var raw []byte
		if raw, err = io.ReadAll(io.LimitReader(f, maxYAML+1)); err == nil {
			return raw, nil
		}
	}
	return nil, fmt.Errorf("%s cannot be read: %w", setting, err)
}

// openCertificates reads Config.CertificatesFile, which is read again when it changes.
func (a *Access) openCertificates() (err error) {
	c := &a.config
	if c.CertificatesFile == "" {
		return nil
	}
	a.certificates, err = reload.Open(reload.Config[*Certificates]{What: "the rules of client certificates (access.certificates_file)",
		Paths: []string{c.CertificatesFile}, Now: c.Clock, Log: c.Log,
		Read: func() (*Certificates, error) { return readCertificates(c.CertificatesFile, a.current.Load().rules) }})
	return err
}

// CertificatesHealth is why changed rules of certificates cannot be taken, nil while there are none.
func (a *Access) CertificatesHealth(ctx context.Context) error { return a.certificates.Health(ctx) }

// AuthenticateCertificate returns the principal of a client certificate, which the TLS handshake has
// verified, nil for none; bearer is the principal of the key, token or signed headers that came with it, nil if none did. Without
// rules no certificate names a caller: the answer is then bearer. A bearer decides; with
// Config.SameSubject it must come with a certificate, of its own subject and tenant. E3214 for a certificate
// that has expired since the handshake, that is denied, or that no rule is for where there is no bearer;
// details.reason is CERTIFICATE_EXPIRED, CERTIFICATE_DENIED, CERTIFICATE_UNKNOWN, CERTIFICATE_DIFFERS or CERTIFICATE_MISSING.
func (a *Access) AuthenticateCertificate(cert *x509.Certificate, bearer *toolkeep.Principal, addr string) (*toolkeep.Principal, error) {
	f := Failure{Addr: addr}
	if bearer != nil {
		f.Tenant, f.Subject, f.KeyID = bearer.Tenant, bearer.Subject, bearer.KeyID
	}
	refuse := func(reason, code, message string) error {
		f.Reason = reason
		err := a.outdated(f, network(addr), message)
		if e := toolkeep.AsError(err); e.Code == toolkeep.Unauthenticated {
			err = e.With("reason", code)
		}
		return err
	}
	same := a.config.SameSubject && bearer != nil && bearer.Method != MethodProxy // a proxy's certificate is its own
	switch {
	case cert == nil && same:
		return nil, refuse("other_certificate", "CERTIFICATE_MISSING", "the key or token holds here only with the client certificate of its subject (access.same_subject); send that too")
	case cert == nil:
		return bearer, nil
	case a.config.Clock().After(cert.NotAfter):
		return nil, refuse("expired_certificate", "CERTIFICATE_EXPIRED", "the client certificate has expired since the connection was opened; open another with a valid one")
	case a.certificates == nil:
		return withCertificate(bearer, cert), nil
	}
	all := a.certificates.Get()
	if all.denies(cert) {
		return nil, refuse("denied_certificate", "CERTIFICATE_DENIED", "the client certificate is denied here; ask for another")
	}
	if bearer != nil && !same {
		return withCertificate(bearer, cert), nil
	}
	rule, subject := all.find(cert)
	switch {
	case bearer != nil && (rule == nil || subject != bearer.Subject || rule.Tenant != bearer.Tenant):
		return nil, refuse("other_certificate", "CERTIFICATE_DIFFERS", "the key or token belongs to another subject than the client certificate; send the certificate's own")
	case bearer != nil:
		return withCertificate(bearer, cert), nil
	case rule == nil:
		return nil, refuse("unknown_certificate", "CERTIFICATE_UNKNOWN", "no rule names a caller for this client certificate; send the header Authorization: Bearer and a key, or ask for a rule in access.certificates_file")
	}
	r := a.rightsOf(&rule.rights, rule.Tenant, rule.Roles)
	return &toolkeep.Principal{Subject: subject, Tenant: rule.Tenant, Workspace: rule.Workspace, Roles: r.roles, Method: MethodMTLS,
		Permissions: r.permissions, Addr: addr, Until: cert.NotAfter, Certificate: cert}, nil
}

func withCertificate(p *toolkeep.Principal, cert *x509.Certificate) *toolkeep.Principal {
	if p == nil {
		return nil
	}
	own := *p // p may be kept for other requests
	own.Certificate = cert
	return &own
}

func certificateGone(why string) error {
	return toolkeep.NewError(toolkeep.Unauthenticated, "the client certificate that admitted the caller %s", why)
}

// refreshCertificate is Refresh for the certificate with which a principal came in; without it there is nothing to
// look up. It returns the roles that the certificate's rule gives now, where it named the caller, and the subject that
// the caller's own must be, unless it may act as another; "" is any. E3214.
func (a *Access) refreshCertificate(p *toolkeep.Principal) (roles []string, subject string, err error) {
	cert := p.Certificate
	if cert == nil {
		return nil, "", nil
	}
	if a.config.Clock().After(cert.NotAfter) {
		return nil, "", certificateGone("has expired")
	}
	if a.certificates == nil {
		return nil, "", nil
	}
	all := a.certificates.Get()
	if all.denies(cert) {
		return nil, "", certificateGone("is denied now")
	}
	names := p.Method == MethodMTLS
	if !names && (!a.config.SameSubject || p.Method == MethodProxy) {
		return nil, "", nil
	}
	rule, subject := all.find(cert)
	if rule == nil || rule.Tenant != p.Tenant || names && rule.Workspace != p.Workspace {
		return nil, "", certificateGone("names no such caller any more")
	}
	if !names {
		return nil, subject, nil
	}
	return rule.Roles, subject, nil
}

// roles returns all roles that the rules give.
func (c *Certificates) roles() (all []string) {
	for _, r := range c.Rules {
		all = append(all, r.Roles...)
	}
	return all
}
