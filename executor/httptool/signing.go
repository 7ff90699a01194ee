package httptool

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/executor/bindings"
)

// signer signs requests with AWS Signature Version 4.
type signer struct {
	keyID, key, session string
	region, service     string
	unsigned            bool // the body is not part of the signature
}

const (
	unsignedPayload = "UNSIGNED-PAYLOAD"
	payloadHeader   = "X-Amz-Content-Sha256"
)

// isS3 tells the services that take a path as it is, not encoded twice, and want
// the body's hash in a header.
func isS3(service string) bool {
	return service == "s3" || strings.HasPrefix(service, "s3-") || service == "s3express"
}

func newSigner(c toolkeep.Credential) (*signer, *toolkeep.Error) {
	tree, err := canon.ParseObject([]byte(c.Value), canon.Limits{})
	if err != nil {
		return nil, badCredential("the secret for aws_sigv4 must be a JSON object with access_key_id, secret_access_key and perhaps session_token")
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

// isScope tells whether s can stand in the scope of a signature.
func isScope(s string) bool { return isToken(s) && !strings.ContainsAny(s, "/,=") }

// checkSigning looks at the settings of aws_sigv4.
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

// apply signs the request as it goes out. Signed are the host, the content type and
// the headers that begin with X-Amz-: others may be changed on the way.
func (s *signer) apply(req *http.Request, body []byte, now time.Time) *toolkeep.Error {
	now = now.UTC()
	stamp := now.Format("20060102T150405Z")
	hash := unsignedPayload
	if !s.unsigned {
		sum := sha256.Sum256(body)
		hash = hex.EncodeToString(sum[:])
	}
	req.Header["X-Amz-Date"] = []string{stamp}
	if s.session != "" {
		req.Header["X-Amz-Security-Token"] = []string{s.session}
	}
	if s.unsigned || isS3(s.service) {
		req.Header[payloadHeader] = []string{hash}
	}
	names, headers := signedHeaders(req)
	query, err := canonicalQuery(req.URL.RawQuery)
	if err != nil {
		return err
	}
	canonical := sha256.Sum256([]byte(strings.Join([]string{req.Method, s.path(req.URL.EscapedPath()), query, headers, names, hash}, "\n")))
	scope := stamp[:8] + "/" + s.region + "/" + s.service + "/aws4_request"
	key := []byte("AWS4" + s.key)
	for _, part := range []string{stamp[:8], s.region, s.service, "aws4_request"} {
		key = keyed(key, part)
	}
	signature := keyed(key, "AWS4-HMAC-SHA256\n"+stamp+"\n"+scope+"\n"+hex.EncodeToString(canonical[:]))
	req.Header["Authorization"] = []string{"AWS4-HMAC-SHA256 Credential=" + s.keyID + "/" + scope +
		", SignedHeaders=" + names + ", Signature=" + hex.EncodeToString(signature)}
	return nil
}

func keyed(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// signedHeaders lists the names of what is signed and the lines of it.
func signedHeaders(req *http.Request) (names, lines string) {
	texts := map[string]string{"host": req.URL.Host}
	for name, values := range req.Header {
		if name == "Content-Type" || strings.HasPrefix(name, "X-Amz-") {
			trimmed := make([]string, len(values))
			for i, v := range values {
				trimmed[i] = strings.Join(strings.Fields(v), " ")
			}
			texts[strings.ToLower(name)] = strings.Join(trimmed, ",")
		}
	}
	sorted := slices.Sorted(maps.Keys(texts))
	for _, name := range sorted {
		lines += name + ":" + texts[name] + "\n"
	}
	return strings.Join(sorted, ";"), lines
}

// canonicalQuery is the query decoded, encoded anew and sorted.
func canonicalQuery(raw string) (string, *toolkeep.Error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return "", unsafe("", "the query cannot be signed for aws_sigv4")
	}
	var encoded [][2]string
	for name, list := range values {
		for _, v := range list {
			encoded = append(encoded, [2]string{string(escStrict.append(nil, name)), string(escStrict.append(nil, v))})
		}
	}
	slices.SortFunc(encoded, func(a, b [2]string) int {
		if c := strings.Compare(a[0], b[0]); c != 0 {
			return c
		}
		return strings.Compare(a[1], b[1])
	})
	pairs := make([]string, len(encoded))
	for i, p := range encoded {
		pairs[i] = p[0] + "=" + p[1]
	}
	return strings.Join(pairs, "&"), nil
}

// path is what the signature is made over: for S3 the path encoded once, for other
// services twice and with several slashes as one.
func (s *signer) path(escaped string) string {
	if escaped == "" {
		escaped = "/"
	}
	segments := strings.Split(escaped, "/")
	var buf []byte
	for i, seg := range segments {
		if !isS3(s.service) && seg == "" && i > 0 && i < len(segments)-1 {
			continue
		}
		if isS3(s.service) {
			if plain, err := url.PathUnescape(seg); err == nil {
				seg = plain
			}
		}
		if i > 0 {
			buf = append(buf, '/')
		}
		buf = escStrict.append(buf, seg)
	}
	return string(buf)
}

// clientCertificate reads a chain of certificates and its key, both PEM.
func clientCertificate(pem string) (*tls.Certificate, *toolkeep.Error) {
	data := []byte(pem)
	cert, err := tls.X509KeyPair(data, data)
	clear(data)
	if err != nil {
		return nil, badCredential("the secret for mtls must be PEM with a certificate, the chain behind it, and the certificate's private key without a password")
	}
	return &cert, nil
}
