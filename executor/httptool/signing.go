package httptool

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/executor/bindings"
)

// signer signs requests with AWS Signature Version 4.
type signer struct {
	keyID, key, session string
	region, service     string
	unsigned            bool // the body is not signed
}

const (
	unsignedPayload = "UNSIGNED-PAYLOAD"
	payloadHeader   = "X-Amz-Content-Sha256"
)

// isS3 reports whether a service signs the path encoded once and requires the body's
// hash in a header.
func isS3(service string) bool {
	return service == "s3" || strings.HasPrefix(service, "s3-") || service == "s3express"
}

func newSigner(c toolkeep.Credential) (*signer, *toolkeep.Error) {
	tree, err := canon.ParseObject([]byte(c.Value), canon.Limits{})
	if err != nil {
		return nil, badCredential("the secret for aws_sigv4 must be a JSON object with access_key_id, secret_access_key and optionally session_token")
	}
	text := func(name string) string { s, _ := tree[name].(string); return s }
	s := &signer{keyID: text("access_key_id"), key: text("secret_access_key"), session: text("session_token")}
	if s.keyID == "" || s.key == "" {
		return nil, badCredential("the secret for aws_sigv4 has no access_key_id or no secret_access_key")
	}
	if !isScope(s.keyID) || !validHeaderValue(s.session) {
		return nil, badCredential("the secret for aws_sigv4 has characters that a header cannot hold")
	}
	s.region, _ = c.Spec.Settings["region"].(string)
	s.service, _ = c.Spec.Settings["service"].(string)
	s.unsigned, _ = c.Spec.Settings["unsigned_payload"].(bool)
	return s, nil
}

// isScope reports whether s is valid in a signature's scope.
func isScope(s string) bool { return egress.IsToken(s) && !strings.ContainsAny(s, "/,=") }

// checkSigning checks the settings of aws_sigv4.
func checkSigning(r *bindings.Reader, at string, s toolkeep.AuthSpec, b *binding) {
	for _, name := range []string{"region", "service"} {
		if v, _ := s.Settings[name].(string); !isScope(v) {
			r.Fault(at+"/settings/"+name, "required", "aws_sigv4 needs settings.%s, such as eu-central-1 and execute-api", name)
		}
	}
	v, given := s.Settings["unsigned_payload"]
	if unsigned, isBool := v.(bool); given && !isBool {
		r.Fault(at+"/settings/unsigned_payload", "type", "unsigned_payload is true or false")
	} else if unsigned && b.scheme == "http" {
		r.Fault(at+"/settings/unsigned_payload", "unsupported", "a body may stay unsigned over https alone")
	}
	for _, f := range [][2]string{{"in", s.In}, {"name", s.Name}, {"prefix", s.Prefix}} {
		if f[1] != "" {
			r.Fault(at+"/"+f[0], "unsupported", "a signature goes into headers of its own; aws_sigv4 has no %s", f[0])
		}
	}
}

// apply signs the final request. It signs the host, the content type and the X-Amz-
// headers: others may change on the way.
func (s *signer) apply(req *http.Request, body []byte, now time.Time) *toolkeep.Error {
	hash := unsignedPayload
	if !s.unsigned {
		sum := sha256.Sum256(body)
		hash = hex.EncodeToString(sum[:])
	}
	if s.unsigned || isS3(s.service) {
		req.Header[payloadHeader] = []string{hash}
	}
	// The signer signs every header, changes the URL, and encodes paths for S3 or
	// twice, so it gets a copy.
	signed := &http.Request{Method: req.Method, Host: req.URL.Host, Header: http.Header{},
		URL: &url.URL{Scheme: req.URL.Scheme, Opaque: "//" + req.URL.Host + s.path(req.URL.EscapedPath()), RawQuery: req.URL.RawQuery}}
	for name, values := range req.Header {
		if name == "Content-Type" || strings.HasPrefix(name, "X-Amz-") {
			signed.Header[name] = values
		}
	}
	credentials := aws.Credentials{AccessKeyID: s.keyID, SecretAccessKey: s.key, SessionToken: s.session}
	if err := v4.NewSigner().SignHTTP(req.Context(), credentials, signed, hash, s.service, s.region, now, func(o *v4.SignerOptions) {
		o.DisableURIPathEscaping = isS3(s.service)
	}); err != nil {
		return badCredential("the request cannot be signed for aws_sigv4").Because(err)
	}
	maps.Copy(req.Header, signed.Header)
	return nil
}

// path is the signed path: for S3 each segment is encoded once, for other services
// repeated slashes are merged.
func (s *signer) path(escaped string) string {
	if escaped == "" {
		return "/"
	}
	segments := strings.Split(escaped, "/")
	if !isS3(s.service) {
		last := len(segments) - 1
		inner := slices.DeleteFunc(segments[1:last], func(seg string) bool { return seg == "" })
		return "/" + strings.Join(append(inner, segments[last]), "/")
	}
	for i, seg := range segments {
		if plain, err := url.PathUnescape(seg); err == nil {
			segments[i] = string(escStrict.append(nil, plain))
		}
	}
	return strings.Join(segments, "/")
}

// clientCertificate reads a certificate chain and its key, both PEM.
func clientCertificate(pem string) (*tls.Certificate, *toolkeep.Error) {
	data := []byte(pem)
	cert, err := tls.X509KeyPair(data, data)
	clear(data)
	if err != nil {
		return nil, badCredential("the secret for mtls must be PEM with a certificate, the chain behind it, and the certificate's private key without a password")
	}
	return &cert, nil
}
