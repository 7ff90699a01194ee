// Package signing signs requests with HMAC-SHA256, and verifies them: who changes or repeats a
// request is found out, also where the key or token that it carries has leaked.
//
// The signature covers these lines, joined by a newline:
//
//	TOOLKEEP-HMAC-SHA256
//	method                        POST
//	target                        /api/v1/tools/invoke?x=1, as it is sent
//	timestamp                     Unix seconds
//	nonce                         16 to 128 of A-Z a-z 0-9 - _ .
//	digest                        SHA-256 of the body, in lower-case hex
//	name:value                    for each of Signed, in its order; the value is empty where the header is absent
//
// The headers X-Request-Signature (in lower-case hex), X-Request-Timestamp, X-Request-Nonce and
// X-Content-SHA256 carry what is not in the request itself. Over gRPC the method is POST, the target
// the full name of the RPC, such as /agentic.l03.v1.ToolExecution/InvokeTool, the body the message
// before compression (without its five bytes of framing), and the headers are metadata.
package signing

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Headers of a signed request.
const (
	HeaderSignature = "X-Request-Signature"
	HeaderTimestamp = "X-Request-Timestamp"
	HeaderNonce     = "X-Request-Nonce"
	HeaderDigest    = "X-Content-Sha256"
)

// Headers by which a trusted proxy names the caller.
const (
	HeaderSubject = "X-Caller-Subject"
	HeaderTenant  = "X-Caller-Tenant"
	HeaderRoles   = "X-Caller-Roles" // separated by commas
	HeaderChain   = "X-Caller-Chain" // on whose behalf, from the first to the nearest, separated by commas
)

// Signed are the headers that a signature covers, each of which may be there once: all that say who
// calls, for whom, and what a repetition means.
var Signed = []string{"authorization", "idempotency-key", "mcp-session-id", "x-caller-chain", "x-caller-roles", "x-caller-subject",
	"x-caller-tenant", "x-capability-token", "x-session-id", "x-user-id"}

// MinKey is the least length of a key in bytes.
const MinKey = 32

// Request is a request with its signature.
type Request struct {
	Method, Target              string
	Signature, Timestamp, Nonce string
	Digest                      string
	// CallOnly says that the signature is that of a call alone (see Call), which Verify does not take.
	CallOnly bool
	// Header returns the values of a header by its lower-case name.
	Header func(name string) []string
	// Body returns the SHA-256 of the body that came. It is called once the signature is known to be
	// right, so that no other request has its body kept. An error is the caller's.
	Body func() ([sha256.Size]byte, error)
}

// text is what is signed; ok is false if a header is there twice, which could be read in two ways.
func (r *Request) text() (text []byte, ok bool) {
	var b strings.Builder
	for _, line := range []string{"TOOLKEEP-HMAC-SHA256", r.Method, r.Target, r.Timestamp, r.Nonce, r.Digest} {
		b.WriteString(line)
		b.WriteByte('\n')
	}
	for i, name := range Signed {
		values := r.Header(name)
		if len(values) > 1 {
			return nil, false
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(name)
		b.WriteByte(':')
		if len(values) == 1 {
			b.WriteString(strings.TrimSpace(values[0]))
		}
	}
	return []byte(b.String()), true
}

func sum(key, text []byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write(text)
	return m.Sum(nil)
}

// Sign signs a request with the present time and a new nonce: it sets Timestamp, Nonce, Digest and
// Signature. set is told each of their headers. A request that has one of Signed twice cannot be
// signed; set is told nothing then.
func Sign(r *Request, key, body []byte, now time.Time, set func(name, value string)) error {
	var nonce [18]byte
	_, _ = rand.Read(nonce[:]) // never fails
	digest := sha256.Sum256(body)
	r.Timestamp, r.Nonce, r.Digest = strconv.FormatInt(now.Unix(), 10), base64.RawURLEncoding.EncodeToString(nonce[:]), hex.EncodeToString(digest[:])
	text, ok := r.text()
	if !ok {
		return errors.New("a header that the signature covers is there twice; send each once")
	}
	r.Signature = hex.EncodeToString(sum(key, text))
	set(HeaderSignature, r.Signature)
	set(HeaderTimestamp, r.Timestamp)
	set(HeaderNonce, r.Nonce)
	set(HeaderDigest, r.Digest)
	return nil
}

// Nonces keep the nonces that were used, for all nodes.
type Nonces interface {
	// Claim notes a nonce, and is false if it was noted before within toolkeep.NonceKeep; see there.
	Claim(ctx context.Context, nonce [sha256.Size]byte) (bool, error)
}

// Skew is how far a timestamp may be from the server's clock, by default.
const Skew = 30 * time.Second

// Verifier verifies signatures. Nonces is required.
type Verifier struct {
	Nonces Nonces
	Skew   time.Duration // default Skew
	Now    func() time.Time
}

// reasons of refusals, in details.reason.
const (
	Missing    = "SIGNATURE_MISSING"
	Incomplete = "SIGNATURE_INCOMPLETE"
	Wrong      = "SIGNATURE_WRONG"
)

// Refused is E3404 with its reason.
func Refused(reason, format string, args ...any) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.SignatureInvalid, format, args...).With("reason", reason)
}

// Keys returns the keys with which a sender may sign. It is asked once the headers of a signature and
// its timestamp can be right. Its error is the caller's.
type Keys func(context.Context) ([][]byte, error)

// Fixed are keys that are at hand.
func Fixed(keys ...[]byte) Keys {
	return func(context.Context) ([][]byte, error) { return keys, nil }
}

// Verify checks a request against the keys with which its sender may sign; scope distinguishes the
// nonces of senders. It says which check failed and nothing of what was expected. Errors: E3404 for
// a signature that is incomplete or wrong, E3405 for a timestamp that is none or too far away, E3408
// for another body than the signed one, E3406 for a nonce that was used, E3965 while the nonces
// cannot be asked, and those of keys and Request.Body.
func (v *Verifier) Verify(ctx context.Context, r *Request, scope string, keys Keys) error {
	if r.Signature == "" || r.Nonce == "" || r.Digest == "" {
		return Refused(Incomplete, "a signed request has the headers %s, %s, %s and %s", HeaderSignature, HeaderTimestamp, HeaderNonce, HeaderDigest)
	}
	if !plainNonce(r.Nonce) {
		return Refused(Incomplete, "%s must be 16 to 128 letters, digits, hyphens, underscores and dots, new for each request", HeaderNonce)
	}
	if err := v.timely(r.Timestamp); err != nil {
		return err
	}
	text, ok := r.text()
	if !ok {
		return Refused(Incomplete, "a header that the signature covers is there twice; send each once")
	}
	_, equal, err := matches(ctx, r.Signature, text, keys)
	if err != nil {
		return err
	}
	if !equal {
		return Refused(Wrong, "the request's signature does not match; sign the lines that docs/identity.md lists with the caller's signing secret")
	}
	body, err := r.Body()
	if err != nil {
		return err
	}
	if want, err := hex.DecodeString(r.Digest); err != nil || !hmac.Equal(want, body[:]) {
		return toolkeep.NewError(toolkeep.BodyAltered, "the body is not the one that was signed: its SHA-256 is not that of %s", HeaderDigest)
	}
	return v.claim(ctx, NonceOf(scope, r.Nonce))
}

// claim takes a nonce. E3406, E3965.
func (v *Verifier) claim(ctx context.Context, nonce [sha256.Size]byte) error {
	fresh, err := v.Nonces.Claim(ctx, nonce)
	switch {
	case err != nil:
		return toolkeep.NewError(toolkeep.RecordUnavailable, "it cannot be found out now whether this signed request was sent before; nothing was executed").
			Because(err).After(time.Second)
	case !fresh:
		return toolkeep.NewError(toolkeep.ReplayDetected, "this signed request was received before; sign each request again, with a new %s", HeaderNonce)
	}
	return nil
}

// Once takes a nonce that came without a signature; scope distinguishes those who make them. E3406, E3965.
func (v *Verifier) Once(ctx context.Context, scope, nonce string) error {
	return v.claim(ctx, NonceOf(scope, nonce))
}

// Call is a call with a signature of the call alone, which has no nonce: HMAC-SHA256 over the lines
// L03-HMAC-SHA256, timestamp, request id, tool id, agent id, and the hex SHA-256 of the parameters. It
// leaves out what else a request says; see contracts/wire.md.
type Call struct {
	Signature, Timestamp, RequestID string
	Tool, Agent                     string
	Parameters                      []byte // in the form of RFC 8785
}

func (c *Call) text() []byte {
	digest := sha256.Sum256(c.Parameters)
	return []byte(strings.Join([]string{"L03-HMAC-SHA256", c.Timestamp, c.RequestID, c.Tool, c.Agent, hex.EncodeToString(digest[:])}, "\n"))
}

// VerifyCall is Verify for a call. Its signature is its nonce. E3404, E3405, E3406, E3965.
func (v *Verifier) VerifyCall(ctx context.Context, c *Call, scope string, keys Keys) error {
	if c.Signature == "" {
		return Refused(Incomplete, "a signed call has the header %s", HeaderSignature)
	}
	if err := v.timely(c.Timestamp); err != nil {
		return err
	}
	if strings.ContainsAny(c.RequestID+c.Tool+c.Agent, "\n\r") { // they could be read as other lines
		return Refused(Incomplete, "an id of a signed call has more than one line")
	}
	got, equal, err := matches(ctx, c.Signature, c.text(), keys)
	if err != nil {
		return err
	}
	if !equal {
		return Refused(Wrong, "the call's signature does not match; sign the lines that contracts/wire.md lists with the caller's signing secret")
	}
	return v.claim(ctx, NonceOf("call/"+scope, hex.EncodeToString(got)))
}

// timely checks a timestamp. E3405.
func (v *Verifier) timely(text string) error {
	skew := v.Skew
	if skew <= 0 {
		skew = Skew
	}
	at, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return toolkeep.NewError(toolkeep.TimestampInvalid, "%s must be the time in Unix seconds", HeaderTimestamp)
	}
	if now := v.Now().Unix(); at < now-int64(skew/time.Second) || at > now+int64(skew/time.Second) {
		return toolkeep.NewError(toolkeep.TimestampInvalid, "the request was signed more than %s before or after now, by this server's clock; set the clock, and sign the request again", skew)
	}
	return nil
}

// matches reports whether a signature, in hex, is that of one of the keys, which are asked only for
// what can be one. All are tried, so that the time tells nothing.
func matches(ctx context.Context, signature string, text []byte, keys Keys) (got []byte, equal bool, err error) {
	if got, err = hex.DecodeString(signature); err != nil || len(got) != sha256.Size {
		return nil, false, nil
	}
	all, err := keys(ctx)
	for _, key := range all {
		if len(key) >= MinKey && hmac.Equal(got, sum(key, text)) {
			equal = true
		}
	}
	return got, equal, err
}

func plainNonce(s string) bool {
	if len(s) < 16 || len(s) > 128 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.') {
			return false
		}
	}
	return true
}

// NonceOf is what is kept of a sender's nonce.
func NonceOf(scope, nonce string) [sha256.Size]byte {
	return sha256.Sum256([]byte(strconv.Itoa(len(scope)) + ":" + scope + nonce))
}

// Transport signs each request that it sends.
type Transport struct {
	Next http.RoundTripper // default http.DefaultTransport
	Key  []byte
}

// RoundTrip implements http.RoundTripper. It reads the body whole.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(r.Body)
		if err = errors.Join(err, r.Body.Close()); err != nil {
			return nil, err
		}
	}
	own := r.Clone(r.Context())
	own.Body, own.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	if len(body) == 0 {
		own.Body = http.NoBody
	}
	own.GetBody = nil // a repetition would have the same nonce
	if err := Sign(&Request{Method: own.Method, Target: own.URL.RequestURI(), Header: func(name string) []string { return own.Header[http.CanonicalHeaderKey(name)] }},
		t.Key, body, time.Now(), own.Header.Set); err != nil {
		return nil, err
	}
	next := t.Next
	if next == nil {
		next = http.DefaultTransport
	}
	return next.RoundTrip(own)
}
