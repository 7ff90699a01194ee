package grpctool

import (
	"crypto/tls"
	"encoding/base64"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/executor/bindings"
)

// checkSpec refuses what gRPC cannot send.
func checkSpec(r *bindings.Reader, at string, s toolkeep.AuthSpec, b *binding) {
	switch {
	case s.Type == "none":
		return
	case s.Type == "mtls":
		if b.plaintext {
			r.Fault(at+"/type", "unsupported", "a client certificate needs TLS; the binding says plaintext")
		}
		return
	case s.Type == "api_key":
		if s.Name == "" {
			r.Fault(at+"/name", "required", "an api_key needs the name of its metadata")
		}
	case s.Type == "bearer", s.Minted():
	case s.Type == "basic":
		if s.Prefix != "" {
			r.Fault(at+"/prefix", "unsupported", "basic has its own prefix")
		}
	default:
		r.Fault(at+"/type", "unsupported", "authentication of type %q cannot be sent over gRPC", s.Type)
		return
	}
	if s.In != "" && s.In != "header" {
		r.Fault(at+"/in", "unsupported", "a gRPC call has metadata alone, which is in header; %q is not there", s.In)
	}
	if !plainText(s.Prefix) {
		r.Fault(at+"/prefix", "metadata", "the prefix has characters that metadata cannot hold")
	}
	if s.Name != "" {
		if why := metadataFault(strings.ToLower(s.Name), ""); why != "" {
			r.Fault(at+"/name", "metadata", "%s", why)
		}
	}
}

// attachCredentials puts the call's credentials into metadata, or returns the client certificate.
func attachCredentials(creds []toolkeep.Credential, b *binding) (md []pair, cert *tls.Certificate, err *toolkeep.Error) {
	for _, c := range creds {
		name, value := strings.ToLower(c.Spec.Name), c.Value
		switch {
		case c.Spec.Type == "none":
			continue
		case c.Spec.Type == "mtls":
			if b.plaintext {
				return nil, nil, badCredential("a client certificate cannot be shown over a plaintext connection")
			}
			pair, failed := tls.X509KeyPair([]byte(value), []byte(value))
			if failed != nil {
				// The error could quote a line of the key.
				return nil, nil, badCredential("the secret for mtls must be a certificate chain and its key in PEM form")
			}
			cert = &pair
			continue
		case c.Spec.In != "" && c.Spec.In != "header":
			return nil, nil, badCredential("a secret in " + c.Spec.In + " cannot be sent over gRPC")
		case c.Spec.Type == "api_key":
			if value = withPrefix(c.Spec.Prefix, value); name == "" {
				return nil, nil, badCredential("an api_key needs the name of its metadata")
			}
		case c.Spec.Type == "bearer", c.Spec.Minted():
			prefix := c.Spec.Prefix
			if prefix == "" {
				prefix = "Bearer"
			}
			value = withPrefix(prefix, value)
		case c.Spec.Type == "basic":
			if !strings.Contains(value, ":") {
				return nil, nil, badCredential("the secret for basic authentication must have the form user:password")
			}
			value = "Basic " + base64.StdEncoding.EncodeToString([]byte(value))
		default:
			return nil, nil, badCredential("authentication of type " + c.Spec.Type + " cannot be sent over gRPC")
		}
		if name == "" {
			name = "authorization"
		}
		if metadataFault(name, value) != "" {
			return nil, nil, badCredential("the secret has a line break or another character that metadata cannot hold, or is over 8 KiB")
		}
		md = append(md, pair{name, value})
	}
	return md, cert, nil
}

func badCredential(why string) *toolkeep.Error {
	e := toolkeep.NewError(toolkeep.SecretAccessDenied, "%s", why)
	e.NothingSent = true
	return e
}

func withPrefix(prefix, value string) string {
	if prefix == "" {
		return value
	}
	switch c := prefix[len(prefix)-1]; {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		prefix += " "
	}
	return prefix + value
}
