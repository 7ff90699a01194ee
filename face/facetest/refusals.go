package facetest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
)

// Sender sends requests with raw headers (or metadata), to check that every face refuses the same.
type Sender interface {
	// Send sends a call of face.echo or, if look is set, looks up a call that does not exist. The
	// header Host is the request's own. Without an Authorization header the caller is the agent.
	Send(t *testing.T, look bool, headers ...string) Answer
}

// refusals are requests with the expected code as a call and as a lookup; "" means that the request
// passes.
func refusals() []struct {
	name       string
	headers    []string // name, value, …
	call, look toolkeep.Code
	http       bool // not applicable to gRPC
} {
	const (
		missing = toolkeep.ResourceNotFound
		denied  = toolkeep.PermissionDenied
		unknown = toolkeep.Unauthenticated
	)
	return []struct {
		name       string
		headers    []string
		call, look toolkeep.Code
		http       bool
	}{
		{"no header", nil, "", missing, false},
		{"a credential of 5,000 bytes", []string{"Authorization", "Bearer tk_" + strings.Repeat("k", 5000)}, unknown, unknown, false},
		{"a credential over the limit", []string{"Authorization", "Bearer tk_" + strings.Repeat("k", 16<<10)}, unknown, unknown, false},
		{"another scheme", []string{"Authorization", "Basic YWRtaW4="}, unknown, unknown, false},
		{"two credentials", []string{"Authorization", "Bearer a", "Authorization", "Bearer b"}, unknown, unknown, false},
		{"a capability token", []string{"X-Capability-Token", "e30.e30.e30"}, toolkeep.TokenInvalid, toolkeep.TokenInvalid, false},
		{"a signature", []string{"X-Request-Signature", strings.Repeat("ab", 32)}, toolkeep.SignatureInvalid, toolkeep.SignatureInvalid, false},
		{"a timestamp", []string{"X-Request-Timestamp", "1767225600"}, toolkeep.SignatureInvalid, toolkeep.SignatureInvalid, false},
		{"another's user", []string{"X-User-ID", "ann"}, denied, denied, false},
		{"its own user", []string{"X-User-ID", "agent"}, "", missing, false},
		{"an empty idempotency key", []string{"Idempotency-Key", ""}, toolkeep.MalformedRequest, missing, false},
		{"two idempotency keys", []string{"Idempotency-Key", "a", "Idempotency-Key", "b"}, toolkeep.InvalidParameters, missing, false},
		{"a traceparent that is none", []string{"Traceparent", "00-zz"}, "", missing, false},
		{"a rebound name", []string{"Host", "evil.example"}, denied, denied, true},
		{"the page of another site", []string{"Origin", "https://evil.example"}, denied, denied, true},
		{"a large header block", []string{"X-Large", strings.Repeat("x", 80<<10)}, toolkeep.RequestTooLarge, toolkeep.RequestTooLarge, true},
		{"a compressed body", []string{"Content-Encoding", "gzip"}, toolkeep.MalformedRequest, "", true},
		{"a body that is text", []string{"Content-Type", "text/plain"}, toolkeep.MalformedRequest, "", true},
	}
}

func (h Harness) refusals(t *testing.T) {
	s, ok := h.Face.(Sender)
	if !ok {
		t.Skip("the face's client chooses its headers itself")
	}
	for _, x := range refusals() {
		if x.http && !h.HTTP {
			continue
		}
		t.Run(x.name, func(t *testing.T) {
			want := success(`{"text":"hello"}`)
			if x.call != "" {
				want = refused(x.call)
			}
			check(t, s.Send(t, false, x.headers...), want)
			if x.look != "" {
				check(t, s.Send(t, true, x.headers...), refused(x.look))
			}
		})
	}
}

// HTTPHeaders returns a request's headers plus those of Send; authorization is used if they have
// none.
func HTTPHeaders(r *http.Request, authorization string, headers []string) http.Header {
	out := r.Header.Clone()
	if out.Get("Content-Type") == "" {
		out.Set("Content-Type", "application/json")
	}
	out.Set("Authorization", authorization)
	for i := 0; i < len(headers); i += 2 {
		out.Del(headers[i])
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		out.Add(headers[i], headers[i+1])
	}
	return out
}
