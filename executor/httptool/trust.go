package httptool

import (
	"crypto/x509"
	"strings"

	"github.com/toolkeep/toolkeep/executor/bindings"
)

const maxCA = 256 << 10 // bytes of a binding's authorities

// readTLS reads tls.ca: the authorities for this tool's servers, instead of the
// system's and those of egress.ca_files.
func (b *binding) readTLS(top *bindings.Object, server string) {
	o, ok := top.Sub("tls")
	if !ok {
		return
	}
	ca := o.Text("ca", true)
	o.Done()
	if !strings.HasPrefix(strings.ToLower(server), "https:") {
		top.Fault("tls", "unsupported", "tls is for servers of https; %q is none", strings.SplitN(server, ":", 2)[0])
	}
	b.roots = x509.NewCertPool()
	if ca != "" && (len(ca) > maxCA || !b.roots.AppendCertsFromPEM([]byte(ca))) {
		o.Fault("ca", "pem", "ca must hold certificates in PEM form, at most %d bytes", maxCA)
	}
}
