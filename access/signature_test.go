package access

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/signing"
)

// plainSealer seals by adding the context.
type plainSealer struct{ away bool }

func (s *plainSealer) Seal(plain, context []byte) ([]byte, error) {
	return slices.Concat([]byte("sealed:"), context, plain), nil
}

func (s *plainSealer) Open(sealed, context []byte) ([]byte, error) {
	plain, ok := bytes.CutPrefix(sealed, append([]byte("sealed:"), context...))
	if !ok || s.away {
		return nil, errors.New("it cannot be opened")
	}
	return plain, nil
}

func fixedSecret(text string) Secret {
	return func(context.Context) (string, error) { return text, nil }
}

// signedBy is a request that a secret signs.
func signedBy(c *clock, secret string, headers ...string) *signing.Request {
	h := http.Header{}
	for i := 0; i < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	r := &signing.Request{Method: "POST", Target: "/x", Header: func(name string) []string { return h[http.CanonicalHeaderKey(name)] },
		Body: func() ([sha256.Size]byte, error) { return sha256.Sum256(nil), nil }}
	if err := signing.Sign(r, []byte(secret), nil, c.Now(), func(string, string) {}); err != nil {
		panic(err)
	}
	return r
}

const longSecret = "a shared secret of more than 32 bytes"

// A key that requires signatures passes with its own secret alone, on every node; others sign where
// a face demands it. What fails blocks failures, never a request that is signed well.
func TestSigned(t *testing.T) {
	c := new(clock)
	sealer := &plainSealer{}
	more := Config{Signing: Signing{Sealer: sealer, Faces: []string{"grpc"}, Shared: []Secret{fixedSecret(longSecret), fixedSecret("old " + longSecret)}}}
	a, h := listening(t, c, more)
	boss := &toolkeep.Principal{Tenant: "default", Subject: "boss", Roles: []string{Admin}, Permissions: []string{"*"}}
	key, text, secret, err := a.CreateSignedKey(t.Context(), boss, toolkeep.APIKey{Subject: "runtime", Roles: []string{Agent}})
	if err != nil || !key.RequireSignature || key.Signing != nil || !strings.HasPrefix(secret, "tks_") || len(secret) < signing.MinKey {
		t.Fatalf("%+v %v", key, err)
	}
	if list := must[[]toolkeep.APIKey](t)(a.ListKeys(t.Context(), boss)); list[0].Signing != nil || !list[0].RequireSignature {
		t.Errorf("%+v", list)
	}
	_, plainText, err := a.CreateKey(t.Context(), boss, toolkeep.APIKey{Subject: "plain", Roles: []string{Agent}})
	if err != nil {
		t.Fatal(err)
	}
	signs := must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), text, "192.0.2.1"))
	plain := must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), plainText, "192.0.2.2"))
	once := signedBy(c, secret)
	for _, x := range []struct {
		name string
		p    *toolkeep.Principal
		face string
		r    *signing.Request
		want toolkeep.Code
	}{
		{"its own secret", signs, "rest", once, ""},
		{"the same again", signs, "mcp", once, toolkeep.ReplayDetected},
		{"no signature", signs, "rest", nil, toolkeep.SignatureInvalid},
		{"the shared secret", signs, "rest", signedBy(c, longSecret), toolkeep.SignatureInvalid},
		{"a key without a secret", plain, "rest", nil, ""},
		{"at a face that demands one", plain, "grpc", nil, toolkeep.SignatureInvalid},
		{"the shared secret there", plain, "grpc", signedBy(c, longSecret), ""},
		{"the former shared secret", plain, "grpc", signedBy(c, "old "+longSecret), ""},
		{"another's secret", plain, "grpc", signedBy(c, secret), toolkeep.SignatureInvalid},
		{"a signature that is not demanded, wrong", plain, "rest", signedBy(c, secret), toolkeep.SignatureInvalid},
	} {
		if err := a.Signed(t.Context(), x.p, x.face, x.r); codeOf(err) != x.want {
			t.Errorf("%s: %v, want %q", x.name, err, x.want)
		}
	}
	// A request without a bearer that another caller sends again, with a certificate of its own.
	ann, bob, seen := &toolkeep.Principal{Tenant: "default", Subject: "ann", Method: MethodMTLS}, &toolkeep.Principal{Tenant: "acme", Subject: "bob", Method: MethodMTLS}, signedBy(c, longSecret)
	if err := a.Signed(t.Context(), ann, "grpc", seen); err != nil {
		t.Error(err)
	}
	if err := a.Signed(t.Context(), bob, "grpc", seen); codeOf(err) != toolkeep.ReplayDetected {
		t.Errorf("sent again by another caller: %v", err)
	}
	if err := a.TakeHandover(t.Context(), "n"); err != nil {
		t.Error(err)
	}
	if err := a.TakeHandover(t.Context(), "n"); codeOf(err) != toolkeep.ReplayDetected {
		t.Errorf("a handover again: %v", err)
	}
	// Another node of the store knows what was sent here.
	more.Clock, more.Store, more.Load = c.Now, h.store, h.store.keys
	b := must[*Access](t)(New(more))
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer b.Stop()
	if err := b.Signed(t.Context(), signs, "rest", once); codeOf(err) != toolkeep.ReplayDetected {
		t.Errorf("replayed to another node: %v", err)
	}
	if err := b.Signed(t.Context(), signs, "rest", signedBy(c, secret)); err != nil {
		t.Errorf("signed for another node: %v", err)
	}
	blocked := 0
	for range 20 {
		if codeOf(a.Signed(t.Context(), signs, "rest", signedBy(c, "wrong "+longSecret))) == toolkeep.AuthFailuresLimited {
			blocked++
		}
		if err := a.Signed(t.Context(), signs, "rest", signedBy(c, secret)); err != nil {
			t.Fatalf("a valid signature during a block: %v", err)
		}
	}
	if blocked < 10 {
		t.Errorf("%d of 20 were blocked", blocked)
	}
	for _, helps := range []string{once.Signature, once.Nonce, secret, longSecret, text} {
		if strings.Contains(h.out.String(), helps) {
			t.Error("the log helps a forger")
		}
	}
	h.store.mu.Lock()
	h.store.fail = errors.New("away")
	h.store.mu.Unlock()
	if err := a.Signed(t.Context(), signs, "rest", signedBy(c, secret)); codeOf(err) != toolkeep.RecordUnavailable {
		t.Errorf("without the store: %v", err)
	}
	sealer.away = true
	c2 := must[*Access](t)(New(Config{Clock: c.Now, Load: func(context.Context) ([]toolkeep.APIKey, int64, error) {
		k := a.keys.Load().byID[key.ID].key
		return []toolkeep.APIKey{k}, 0, nil
	}, Store: newMemory(), Signing: more.Signing}))
	if err := c2.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer c2.Stop()
	if err := c2.Signed(t.Context(), signs, "rest", signedBy(c, secret)); codeOf(err) != toolkeep.SecretRetrievalFailed {
		t.Errorf("without the sealer: %v", err)
	}
}

// What a trusted proxy may say of a caller, and what it may not.
func TestAuthenticateProxy(t *testing.T) {
	c := new(clock)
	a, h := listening(t, c, Config{Signing: Signing{Proxy: []Secret{fixedSecret(longSecret)}, ProxyRoles: []string{Agent, Auditor}, ProxyTenants: []string{"default", "acme"}}})
	for name, x := range map[string]struct {
		headers   []string
		secret    string
		untrusted bool
		want      toolkeep.Code
		reason    string
	}{
		"a caller":               {headers: []string{"X-Caller-Subject", "billing", "X-Caller-Roles", "agent, auditor", "X-User-Id", "ann", "X-Caller-Chain", "ann, planner"}},
		"of another tenant":      {headers: []string{"X-Caller-Subject", "billing", "X-Caller-Tenant", "acme"}},
		"of no proxy's address":  {headers: []string{"X-Caller-Subject", "billing"}, untrusted: true, want: toolkeep.Unauthenticated, reason: "PROXY_UNKNOWN"},
		"with a foreign secret":  {headers: []string{"X-Caller-Subject", "billing"}, secret: "not " + longSecret, want: toolkeep.SignatureInvalid, reason: signing.Wrong},
		"an administrator":       {headers: []string{"X-Caller-Subject", "billing", "X-Caller-Roles", "agent,admin"}, want: toolkeep.Unauthenticated, reason: "PROXY_ROLE"},
		"an unknown role":        {headers: []string{"X-Caller-Subject", "billing", "X-Caller-Roles", "agent,"}, want: toolkeep.Unauthenticated, reason: "PROXY_ROLE"},
		"of a foreign tenant":    {headers: []string{"X-Caller-Subject", "billing", "X-Caller-Tenant", "other"}, want: toolkeep.Unauthenticated, reason: "PROXY_TENANT"},
		"nobody":                 {headers: []string{"X-Caller-Tenant", "default"}, want: toolkeep.Unauthenticated, reason: "PROXY_NAME"},
		"a name with a control":  {headers: []string{"X-Caller-Subject", "a\x01b"}, want: toolkeep.Unauthenticated, reason: "PROXY_NAME"},
		"a chain with a hole":    {headers: []string{"X-Caller-Subject", "a", "X-Caller-Chain", "ann,,b"}, want: toolkeep.Unauthenticated, reason: "PROXY_NAME"},
		"a chain of 17":          {headers: []string{"X-Caller-Subject", "a", "X-Caller-Chain", strings.Repeat("x,", 16) + "x"}, want: toolkeep.Unauthenticated, reason: "PROXY_CHAIN"},
		"a name of 300 bytes":    {headers: []string{"X-Caller-Subject", strings.Repeat("a", 300)}, want: toolkeep.Unauthenticated, reason: "PROXY_NAME"},
		"a session of 300 bytes": {headers: []string{"X-Caller-Subject", "a", "X-Session-Id", strings.Repeat("a", 300)}, want: toolkeep.Unauthenticated, reason: "PROXY_NAME"},
		"a session with a bell":  {headers: []string{"X-Caller-Subject", "a", "X-Session-Id", "a\ab"}, want: toolkeep.Unauthenticated, reason: "PROXY_NAME"},
		"a user with a new line": {headers: []string{"X-Caller-Subject", "a", "X-User-Id", "a\nb"}, want: toolkeep.Unauthenticated, reason: "PROXY_NAME"},
	} {
		if x.secret == "" {
			x.secret = longSecret
		}
		p, err := a.AuthenticateProxy(t.Context(), signedBy(c, x.secret, x.headers...), !x.untrusted, "192.0.2.7")
		if x.want != "" {
			if e := toolkeep.AsError(err); p != nil || e == nil || e.Code != x.want || e.Details["reason"] != x.reason {
				t.Errorf("%s: %+v %v", name, p, err)
			}
			continue
		}
		if err != nil || p.Subject != "billing" || p.Method != MethodProxy {
			t.Errorf("%s: %+v %v", name, p, err)
		}
		if name == "a caller" && (fmt.Sprintf("%v %v %s %s", p.Roles, p.Chain, p.OnBehalf, p.Tenant) != "[agent auditor] [ann planner] ann default") {
			t.Errorf("%+v", p)
		}
		if now, err := a.Refresh(t.Context(), p); err != nil || !slices.Equal(now.Roles, p.Roles) {
			t.Errorf("%s, later: %+v %v", name, now, err)
		}
	}
	if _, err := New(Config{Load: h.store.keys, Store: h.store, Signing: Signing{ProxyRoles: []string{"agnet"}}}); !toolkeep.IsCode(err, toolkeep.InvalidManifest) {
		t.Errorf("an unknown role to give: %v", err)
	}
	r := signedBy(c, longSecret, "X-Caller-Subject", "billing")
	must[*toolkeep.Principal](t)(a.AuthenticateProxy(t.Context(), r, true, "192.0.2.8"))
	if _, err := a.AuthenticateProxy(t.Context(), r, true, "192.0.2.8"); codeOf(err) != toolkeep.ReplayDetected {
		t.Errorf("replayed: %v", err)
	}
	ahead := new(clock)
	ahead.pass(time.Minute)
	headers := func(h http.Header) func(*signing.Request) {
		return func(r *signing.Request) {
			r.Header = func(name string) []string { return h[http.CanonicalHeaderKey(name)] }
		}
	}
	for name, x := range map[string]struct {
		signed *signing.Request
		change func(*signing.Request)
		want   toolkeep.Code
	}{
		"another subject": {signedBy(c, longSecret, "X-Caller-Subject", "billing"), headers(http.Header{"X-Caller-Subject": {"root"}}), toolkeep.SignatureInvalid},
		"a role more":     {signedBy(c, longSecret, "X-Caller-Subject", "billing"), headers(http.Header{"X-Caller-Subject": {"billing"}, "X-Caller-Roles": {"agent"}}), toolkeep.SignatureInvalid},
		"a subject twice": {signedBy(c, longSecret, "X-Caller-Subject", "billing"), headers(http.Header{"X-Caller-Subject": {"billing", "root"}}), toolkeep.SignatureInvalid},
		"another target":  {signedBy(c, longSecret, "X-Caller-Subject", "billing"), func(r *signing.Request) { r.Target = "/y" }, toolkeep.SignatureInvalid},
		"another nonce":   {signedBy(c, longSecret, "X-Caller-Subject", "billing"), func(r *signing.Request) { r.Nonce += "0" }, toolkeep.SignatureInvalid},
		"no signature":    {signedBy(c, longSecret, "X-Caller-Subject", "billing"), func(r *signing.Request) { r.Signature = "" }, toolkeep.SignatureInvalid},
		"another body": {signedBy(c, longSecret, "X-Caller-Subject", "billing"), func(r *signing.Request) {
			r.Body = func() ([sha256.Size]byte, error) { return sha256.Sum256([]byte("x")), nil }
		}, toolkeep.BodyAltered},
		"of the future": {signedBy(ahead, longSecret, "X-Caller-Subject", "billing"), func(*signing.Request) {}, toolkeep.TimestampInvalid},
	} {
		x.change(x.signed)
		if p, err := a.AuthenticateProxy(t.Context(), x.signed, true, "192.0.2.9"); p != nil || codeOf(err) != x.want {
			t.Errorf("%s: %+v %v, want %s", name, p, err, x.want)
		}
	}
	c.pass(time.Minute)
	if _, err := a.AuthenticateProxy(t.Context(), r, true, "192.0.2.8"); codeOf(err) != toolkeep.TimestampInvalid {
		t.Errorf("late: %v", err)
	}
	if strings.Contains(h.out.String(), r.Signature) || strings.Contains(h.out.String(), longSecret) {
		t.Error("the log helps a forger")
	}
}

// Ten thousand forged requests of a hundred agents' names, from their addresses: none passes, each
// is told, by itself or in a number, and the agents themselves always pass, from the same addresses.
func TestTenThousandForgeries(t *testing.T) {
	c := new(clock)
	a, h := listening(t, c, Config{Signing: Signing{Sealer: &plainSealer{}}})
	boss := &toolkeep.Principal{Tenant: "default", Subject: "boss", Roles: []string{Admin}, Permissions: []string{"*"}}
	const agents, each = 100, 100
	codes := map[toolkeep.Code]int{}
	for i := range agents {
		_, text, secret, err := a.CreateSignedKey(t.Context(), boss, toolkeep.APIKey{Subject: fmt.Sprint("agent", i), Roles: []string{Agent}})
		if err != nil {
			t.Fatal(err)
		}
		addr := fmt.Sprintf("192.0.2.%d", i)
		for n := range each {
			p, err := a.Authenticate(t.Context(), text, addr) // a key that leaked, without its signing secret
			if err != nil {
				t.Fatal(err)
			}
			var r *signing.Request
			if n%2 == 0 {
				r = signedBy(c, longSecret)
			}
			err = a.Signed(t.Context(), p, "rest", r)
			if err == nil {
				t.Fatal("a forgery passed")
			}
			codes[codeOf(err)]++
			if n%20 == 0 {
				if err := a.Signed(t.Context(), p, "rest", signedBy(c, secret)); err != nil {
					t.Fatalf("agent %d, after %d forgeries: %v", i, n, err)
				}
			}
		}
	}
	if codes[toolkeep.SignatureInvalid] != agents*10 || codes[toolkeep.AuthFailuresLimited] != agents*(each-10) {
		t.Errorf("%v", codes)
	}
	a.Stop() // ends the minute and writes what is left
	told := int64(0)
	for _, line := range h.lines(t, "access refused") {
		if line["reason"] != "wrong_signature" && line["reason"] != "blocked" {
			t.Errorf("%v", line)
		}
		told++
	}
	for _, line := range h.lines(t, "access refused further times within a minute") {
		told += int64(line["times"].(float64))
	}
	if told != agents*each {
		t.Errorf("%d of %d forgeries are told", told, agents*each)
	}
}

// What cannot be right reads no secret, and what can reads them once in a while, however many requests
// come; a rotation serves within seconds, and one request that goes away fails no other.
func TestSecretsAreKept(t *testing.T) {
	c := new(clock)
	reads, secret, fail := 0, longSecret, error(nil)
	read := func(ctx context.Context) (string, error) {
		reads++
		return secret, errors.Join(fail, ctx.Err())
	}
	a, _ := listening(t, c, Config{Signing: Signing{Shared: []Secret{read}, Proxy: []Secret{read}, ProxyRoles: []string{Agent}, ProxyTenants: []string{"default"}}})
	p := &toolkeep.Principal{Tenant: "default", Subject: "a", Method: MethodOAuth, Addr: "192.0.2.9"}
	check := map[string]func(*signing.Request) error{
		"a request": func(r *signing.Request) error { return a.Signed(t.Context(), p, "rest", r) },
		"a proxy's": func(r *signing.Request) error {
			return second(a.AuthenticateProxy(t.Context(), r, true, "192.0.2.9"))
		},
	}
	for name, do := range check {
		reads = 0
		for what, change := range map[string]func(*signing.Request){
			"no signature":       func(r *signing.Request) { r.Signature = "" },
			"no hex":             func(r *signing.Request) { r.Signature = "x" },
			"a short signature":  func(r *signing.Request) { r.Signature = "abcd" },
			"no nonce":           func(r *signing.Request) { r.Nonce = "" },
			"no digest":          func(r *signing.Request) { r.Digest = "" },
			"a stale timestamp":  func(r *signing.Request) { r.Timestamp = "1" },
			"a doubled header":   func(r *signing.Request) { r.Header = func(string) []string { return []string{"a", "b"} } },
			"the call's own one": func(r *signing.Request) { r.Nonce, r.Digest, r.CallOnly = "", "", true },
		} {
			r := signedBy(c, longSecret, "X-Caller-Subject", "a")
			change(r)
			if err := do(r); (err == nil) != r.CallOnly || reads != 0 {
				if name != "a proxy's" || err == nil || reads != 0 {
					t.Errorf("%s, %s: %v, %d reads", name, what, err, reads)
				}
			}
		}
		for range 100 {
			if err := do(signedBy(c, "not "+longSecret, "X-Caller-Subject", "a")); err == nil {
				t.Fatal("a forgery passed")
			}
		}
		if err := do(signedBy(c, longSecret, "X-Caller-Subject", "a")); err != nil || reads != 1 {
			t.Errorf("%s: %v after %d reads", name, err, reads)
		}
		secret = "next " + longSecret
		c.pass(secretsKept)
		if err := do(signedBy(c, secret, "X-Caller-Subject", "a")); err != nil || reads != 2 {
			t.Errorf("%s, after a rotation: %v after %d reads", name, err, reads)
		}
		c.pass(secretsKept)
		fail = errors.New("away")
		for range 10 {
			if err := do(signedBy(c, secret, "X-Caller-Subject", "a")); codeOf(err) != toolkeep.SecretRetrievalFailed || reads != 3 {
				t.Errorf("%s, away: %v after %d reads", name, err, reads)
			}
		}
		fail = nil
		c.pass(secretsFailed)
		if err := do(signedBy(c, secret, "X-Caller-Subject", "a")); err != nil || reads != 4 {
			t.Errorf("%s, back: %v after %d reads", name, err, reads)
		}
		c.pass(secretsKept)
		secret = longSecret
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.shared.get(gone); err != nil {
		t.Errorf("a read for a request that went away: %v", err)
	}
}

// Results wait for a store of secrets that hangs for a second at most, and only while there is no key; one that was read
// signs on.
func TestResultKeyWhileItsStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hangs atomic.Bool
		var secret atomic.Pointer[string]
		rotate := func(to string) { secret.Store(&to) }
		var log bytes.Buffer
		a, err := New(Config{Load: func(context.Context) ([]toolkeep.APIKey, int64, error) { return nil, 0, nil }, Store: newMemory(), Log: slog.New(slog.NewTextHandler(&log, nil)), Signing: Signing{Results: func(ctx context.Context) (string, error) {
			if hangs.Load() {
				<-ctx.Done()
				return "", ctx.Err()
			}
			return *secret.Load(), nil
		}}})
		if err != nil {
			t.Fatal(err)
		}
		get := func(want string, most time.Duration) {
			t.Helper()
			from := time.Now()
			key, err := a.ResultKey()
			if took := time.Since(from); string(key) != want || (err == nil) != (want != "") || took > most {
				t.Errorf("%q %v after %v, want %q within %v", key, err, took, want, most)
			}
		}
		rotate(longSecret)
		hangs.Store(true)
		get("", secretsFirst)
		get("", 0) // the read is under way
		time.Sleep(secretsWait)
		hangs.Store(false)
		get(longSecret, 0)
		rotate("next " + longSecret)
		time.Sleep(secretsKept + secretsFailed) // a busy server reads beside
		get(longSecret, 0)
		synctest.Wait()
		get(*secret.Load(), 0)
		time.Sleep(time.Hour) // after a pause the key of before the pause signs none
		rotate("third " + longSecret)
		get(*secret.Load(), 0)
		hangs.Store(true)
		time.Sleep(secretsKept + secretsFailed)
		for range 30 {
			get(*secret.Load(), 0)
			time.Sleep(time.Second)
		}
		time.Sleep(time.Hour)
		get(*secret.Load(), 0)
		a.Stop() // and the read ends
		get(*secret.Load(), 0)
		if n := strings.Count(log.String(), "cannot be read"); n != 1 || strings.Contains(log.String(), longSecret) {
			t.Errorf("the log has %d lines of it: %s", n, &log)
		}
	})
}

// A signature that a request cannot have counts as one that does not match.
func TestUnsigned(t *testing.T) {
	c := new(clock)
	a, _ := listening(t, c, Config{})
	p := &toolkeep.Principal{Tenant: "default", Subject: "a", Addr: "192.0.2.9"}
	for i := range 12 {
		want := toolkeep.SignatureInvalid
		if i >= 10 {
			want = toolkeep.AuthFailuresLimited
		}
		if err := a.Unsigned(p, signing.Refused(signing.Incomplete, "no call")); codeOf(err) != want {
			t.Errorf("%d: %v", i, err)
		}
	}
}
