package signing

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

type nonces struct {
	seen map[[sha256.Size]byte]bool
	err  error
}

func (n *nonces) Claim(_ context.Context, nonce [sha256.Size]byte) (bool, error) {
	if n.err != nil || n.seen[nonce] {
		return false, n.err
	}
	n.seen[nonce] = true
	return true, nil
}

var (
	key   = []byte(strings.Repeat("k", MinKey))
	other = []byte(strings.Repeat("o", MinKey))
)

// signedRequest is a request of one sender, and the header that carries its signature.
func signedRequest(body string, now time.Time) (*Request, http.Header) {
	h := http.Header{"Authorization": {"Bearer tk_a"}, "X-User-Id": {"ann"}}
	r := &Request{Method: "POST", Target: "/api/v1/tools/invoke?a=1", Header: func(name string) []string { return h[http.CanonicalHeaderKey(name)] },
		Body: func() ([sha256.Size]byte, error) { return sha256.Sum256([]byte(body)), nil }}
	if err := Sign(r, key, []byte(body), now, h.Set); err != nil {
		panic(err)
	}
	return r, h
}

// Each part of a request that a signature covers, altered; and each way to leave a part out.
func TestVerify(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	body := func(text string) func() ([sha256.Size]byte, error) {
		return func() ([sha256.Size]byte, error) { return sha256.Sum256([]byte(text)), nil }
	}
	at := func(d time.Duration) string { return strconv.FormatInt(now.Add(d).Unix(), 10) }
	for name, x := range map[string]struct {
		change func(*Request, http.Header)
		want   toolkeep.Code
		reason string
	}{
		"as it was signed":             {func(*Request, http.Header) {}, "", ""},
		"an unsigned header":           {func(_ *Request, h http.Header) { h.Set("Accept", "text/plain") }, "", ""},
		"another method":               {func(r *Request, _ http.Header) { r.Method = "PUT" }, toolkeep.SignatureInvalid, Wrong},
		"another path":                 {func(r *Request, _ http.Header) { r.Target = "/api/v1/tools" }, toolkeep.SignatureInvalid, Wrong},
		"another query":                {func(r *Request, _ http.Header) { r.Target += "&b=2" }, toolkeep.SignatureInvalid, Wrong},
		"another body":                 {func(r *Request, _ http.Header) { r.Body = body("{}") }, toolkeep.BodyAltered, ""},
		"another body and its digest":  {func(r *Request, _ http.Header) { r.Body, r.Digest = body(""), strings.Repeat("e3", 32) }, toolkeep.SignatureInvalid, Wrong},
		"another nonce":                {func(r *Request, _ http.Header) { r.Nonce = strings.Repeat("n", 24) }, toolkeep.SignatureInvalid, Wrong},
		"another time within the skew": {func(r *Request, _ http.Header) { r.Timestamp = at(time.Second) }, toolkeep.SignatureInvalid, Wrong},
		"another user":                 {func(_ *Request, h http.Header) { h.Set("X-User-Id", "bob") }, toolkeep.SignatureInvalid, Wrong},
		"no user":                      {func(_ *Request, h http.Header) { h.Del("X-User-Id") }, toolkeep.SignatureInvalid, Wrong},
		"a user twice":                 {func(_ *Request, h http.Header) { h.Add("X-User-Id", "ann") }, toolkeep.SignatureInvalid, Incomplete},
		"another bearer":               {func(_ *Request, h http.Header) { h.Set("Authorization", "Bearer tk_b") }, toolkeep.SignatureInvalid, Wrong},
		"a subject that was added":     {func(_ *Request, h http.Header) { h.Set(HeaderSubject, "root") }, toolkeep.SignatureInvalid, Wrong},
		"a token that was added":       {func(_ *Request, h http.Header) { h.Set("X-Capability-Token", "a.b.c") }, toolkeep.SignatureInvalid, Wrong},
		"a key that was added":         {func(_ *Request, h http.Header) { h.Set("Idempotency-Key", "2") }, toolkeep.SignatureInvalid, Wrong},
		"a session that was added":     {func(_ *Request, h http.Header) { h.Set("X-Session-Id", "2") }, toolkeep.SignatureInvalid, Wrong},
		"no signature":                 {func(r *Request, _ http.Header) { r.Signature = "" }, toolkeep.SignatureInvalid, Incomplete},
		"half a signature":             {func(r *Request, _ http.Header) { r.Signature = r.Signature[:32] }, toolkeep.SignatureInvalid, Wrong},
		"a signature that is no hex":   {func(r *Request, _ http.Header) { r.Signature = "x" + r.Signature[1:] }, toolkeep.SignatureInvalid, Wrong},
		"no nonce":                     {func(r *Request, _ http.Header) { r.Nonce = "" }, toolkeep.SignatureInvalid, Incomplete},
		"a short nonce":                {func(r *Request, _ http.Header) { r.Nonce = "1" }, toolkeep.SignatureInvalid, Incomplete},
		"a nonce with a line":          {func(r *Request, _ http.Header) { r.Nonce = strings.Repeat("n", 24) + "\n" }, toolkeep.SignatureInvalid, Incomplete},
		"no digest":                    {func(r *Request, _ http.Header) { r.Digest = "" }, toolkeep.SignatureInvalid, Incomplete},
		"no timestamp":                 {func(r *Request, _ http.Header) { r.Timestamp = "" }, toolkeep.TimestampInvalid, ""},
		"a timestamp in words":         {func(r *Request, _ http.Header) { r.Timestamp = "now" }, toolkeep.TimestampInvalid, ""},
		"a stale timestamp":            {func(r *Request, _ http.Header) { r.Timestamp = at(-31 * time.Second) }, toolkeep.TimestampInvalid, ""},
		"a timestamp to come":          {func(r *Request, _ http.Header) { r.Timestamp = at(31 * time.Second) }, toolkeep.TimestampInvalid, ""},
		"the largest timestamp":        {func(r *Request, _ http.Header) { r.Timestamp = "9223372036854775807" }, toolkeep.TimestampInvalid, ""},
	} {
		r, h := signedRequest(`{"a":1}`, now)
		x.change(r, h)
		v := &Verifier{Nonces: &nonces{seen: map[[sha256.Size]byte]bool{}}, Now: func() time.Time { return now }}
		err := v.Verify(t.Context(), r, "me", Fixed(other, key))
		if x.want == "" && err == nil {
			continue
		}
		e := toolkeep.AsError(err)
		if e == nil || e.Code != x.want || x.reason != "" && e.Details["reason"] != x.reason {
			t.Errorf("%s: %v, want %s %s", name, err, x.want, x.reason)
		}
		if e != nil && (strings.Contains(e.Error(), h.Get(HeaderSignature)) || strings.Contains(e.Error(), string(key))) {
			t.Errorf("%s: the error helps a forger: %v", name, err)
		}
	}
}

// The same request is taken once. While nonces cannot be asked, and with a key that is none of the
// sender's or too short, nothing is taken. What was refused for another reason leaves its nonce.
func TestReplay(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	kept := &nonces{seen: map[[sha256.Size]byte]bool{}}
	v := &Verifier{Nonces: kept, Now: func() time.Time { return now }}
	r, _ := signedRequest("{}", now)
	for i, want := range []toolkeep.Code{"", toolkeep.ReplayDetected, toolkeep.ReplayDetected} {
		if i == 0 {
			for _, keys := range [][][]byte{nil, {other}, {[]byte("short")}, {nil}} {
				if err := v.Verify(t.Context(), r, "me", Fixed(keys...)); !toolkeep.IsCode(err, toolkeep.SignatureInvalid) {
					t.Errorf("with other keys: %v", err)
				}
			}
		}
		if err := v.Verify(t.Context(), r, "me", Fixed(key)); (want != "" || err != nil) && !toolkeep.IsCode(err, want) {
			t.Errorf("%d: %v, want %q", i, err, want)
		}
	}
	if err := v.Verify(t.Context(), r, "another sender", Fixed(key)); err != nil {
		t.Errorf("another sender's nonce: %v", err)
	}
	kept.err = errors.New("the store is away")
	fresh, _ := signedRequest("{}", now)
	if err := v.Verify(t.Context(), fresh, "me", Fixed(key)); !toolkeep.IsCode(err, toolkeep.RecordUnavailable) {
		t.Errorf("without nonces: %v", err)
	}
}

// A call's own signature covers tool, agent, parameters and request id; its vector is that of
// contracts/wire.md.
func TestVerifyCall(t *testing.T) {
	now := time.Unix(1_767_225_610, 0)
	v := &Verifier{Nonces: &nonces{seen: map[[sha256.Size]byte]bool{}}, Now: func() time.Time { return now }}
	keys := Fixed([]byte("0123456789abcdef0123456789abcdef"))
	signed := Call{Signature: "2c4039a0d43a15053226181d047aa22775d347e1dca0db6b718c8ccb7bf97664", Timestamp: "1767225600", RequestID: "4b0f7c1e-7d53-4c55-9a39-0d0b7f1f6a11",
		Tool: "weather.current", Agent: "agent_456", Parameters: []byte(`{"city":"Paris","units":"metric"}`)}
	for name, x := range map[string]struct {
		change func(*Call)
		want   toolkeep.Code
	}{
		"another tool":       {func(c *Call) { c.Tool = "weather.other" }, toolkeep.SignatureInvalid},
		"another agent":      {func(c *Call) { c.Agent = "agent_457" }, toolkeep.SignatureInvalid},
		"another request id": {func(c *Call) { c.RequestID = "1" }, toolkeep.SignatureInvalid},
		"other parameters":   {func(c *Call) { c.Parameters = []byte(`{}`) }, toolkeep.SignatureInvalid},
		"two lines":          {func(c *Call) { c.Tool, c.Agent = c.Tool+"\n"+c.Agent, "" }, toolkeep.SignatureInvalid},
		"no signature":       {func(c *Call) { c.Signature = "" }, toolkeep.SignatureInvalid},
		"another time":       {func(c *Call) { c.Timestamp = "1767225601" }, toolkeep.SignatureInvalid},
		"a time long ago":    {func(c *Call) { c.Timestamp = "1767225000" }, toolkeep.TimestampInvalid},
	} {
		c := signed
		x.change(&c)
		if err := v.VerifyCall(t.Context(), &c, "me", keys); !toolkeep.IsCode(err, x.want) {
			t.Errorf("%s: %v, want %s", name, err, x.want)
		}
	}
	again := signed
	again.Signature = strings.ToUpper(again.Signature)
	if err := v.VerifyCall(t.Context(), &signed, "me", keys); err != nil {
		t.Error(err)
	}
	for _, c := range []Call{signed, again} {
		if err := v.VerifyCall(t.Context(), &c, "me", keys); !toolkeep.IsCode(err, toolkeep.ReplayDetected) {
			t.Errorf("again: %v", err)
		}
	}
}

// A header that is there twice could be read in two ways: such a request is not signed, and not sent.
func TestSignTwice(t *testing.T) {
	for _, name := range Signed {
		r := httptest.NewRequest("GET", "http://127.0.0.1/", nil)
		r.Header.Add(name, "a")
		r.Header.Add(name, "b")
		q := &Request{Header: func(name string) []string { return r.Header[http.CanonicalHeaderKey(name)] }}
		if err := Sign(q, key, nil, time.Now(), func(name, _ string) { t.Errorf("%s is set", name) }); err == nil || q.Signature != "" {
			t.Errorf("%s twice: signed", name)
		}
		tr := &Transport{Key: key, Next: roundTripper(func(*http.Request) (*http.Response, error) {
			t.Errorf("%s twice: sent", name)
			return nil, errors.New("sent")
		})}
		if _, err := tr.RoundTrip(r); err == nil {
			t.Errorf("%s twice: no error", name)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestVector is the one of contracts/wire.md.
func TestVector(t *testing.T) {
	r := &Request{Method: "POST", Target: "/api/v1/tools/invoke", Timestamp: "1767225600", Nonce: "4b0f7c1e-7d53-4c55-9a39-0d0b7f1f6a11",
		Header: func(name string) []string {
			return map[string][]string{"authorization": {"Bearer tk_example"}, "x-user-id": {"ann"}}[name]
		}}
	digest := sha256.Sum256([]byte(`{"tool_id":"weather.current"}`))
	r.Digest = hex.EncodeToString(digest[:])
	text, _ := r.text()
	const want = "b0288838b8959621f82329fa2ce27887709801816abe7bfbf60bf5083cbf378f"
	if got := hex.EncodeToString(sum([]byte("0123456789abcdef0123456789abcdef"), text)); got != want {
		t.Errorf("%s\n%s", got, text)
	}
}
