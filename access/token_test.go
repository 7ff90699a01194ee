package access

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/jwt"
	"github.com/toolkeep/toolkeep/canon"
)

func TestTokenAdmits(t *testing.T) {
	s := listen(t)
	now := &clock{}
	a := open(t, Config{OAuth: s.config(), Clock: now.Now})
	rs := map[string]any{"alg": "RS256", "kid": "rsa"}
	for name, c := range map[string]struct {
		head   map[string]any
		key    string
		claims map[string]any
		roles  []string
	}{
		"RS256":                  {rs, "rsa", nil, []string{Agent}},
		"PS256":                  {map[string]any{"alg": "PS256", "kid": "rsa", "typ": "application/AT+jwt"}, "rsa", nil, []string{Agent}},
		"ES256":                  {map[string]any{"alg": "ES256", "kid": "ec", "typ": "JWT"}, "ec", nil, []string{Agent}},
		"EdDSA":                  {map[string]any{"alg": "EdDSA", "kid": "ed", "typ": "jwt"}, "ed", nil, []string{Agent}},
		"no kid, one key fits":   {map[string]any{"alg": "ES256"}, "ec", nil, []string{Agent}},
		"own keys mean nothing":  {map[string]any{"alg": "RS256", "kid": "rsa", "jwk": jwkOf(t, "rsa2", nil), "jku": "https://evil.example"}, "rsa", nil, []string{Agent}},
		"several audiences":      {rs, "rsa", map[string]any{"aud": []any{"https://other.example", here + "/mcp"}}, []string{Agent}},
		"an MCP view's audience": {rs, "rsa", map[string]any{"aud": here + "/mcp/search"}, []string{Agent}},
		"the audience with /":    {rs, "rsa", map[string]any{"aud": here + "/"}, []string{Agent}},
		"scopes as scp":          {rs, "rsa", map[string]any{"scope": nil, "scp": []any{"tools:audit", "tools:call"}}, []string{Agent, Auditor}},
		"a role once":            {rs, "rsa", map[string]any{"scope": "also:call  tools:call tools:admin"}, []string{Admin, Agent}},
		"no known scope":         {rs, "rsa", map[string]any{"scope": "openid Tools:call"}, nil},
		"no scope":               {rs, "rsa", map[string]any{"scope": nil}, nil},
		"just expired":           {rs, "rsa", map[string]any{"exp": now.Now().Add(-29 * time.Second).Unix()}, []string{Agent}},
		"valid in a moment":      {rs, "rsa", map[string]any{"nbf": now.Now().Add(29 * time.Second).Unix(), "exp": 1.9e9 + 0.5}, []string{Agent}},
	} {
		t.Run(name, func(t *testing.T) {
			bearer := signed(t, c.head, s.claims(c.claims), c.key)
			for range 2 { // the second time from the cache
				p, err := a.Authenticate(t.Context(), bearer, addr)
				if err != nil {
					t.Fatal(err)
				}
				if p.Subject != "alice" || p.Tenant != "acme" || p.Method != MethodOAuth || p.KeyID != "" || p.Addr != addr || p.Until.IsZero() || !slices.Equal(p.Roles, c.roles) {
					t.Errorf("got %+v", p)
				}
				if p.May("anything") != slices.Contains(c.roles, Admin) {
					t.Errorf("permissions %v", p.Permissions)
				}
			}
		})
	}
	if n := s.fetches.Load(); n != 1 {
		t.Errorf("the keys were fetched %d times", n)
	}
	if err := a.OAuthHealth(t.Context()); err != nil {
		t.Error(err)
	}
	// A token without a role can do nothing; one with the role agent can.
	tool := &toolkeep.Tool{ID: "ns.a", Version: "1.0.0", Digest: "sha256:1", Manifest: &toolkeep.Manifest{SideEffects: "reads"}}
	for scope, want := range map[string]bool{"openid": false, "tools:call": true} {
		p := must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), s.token(t, map[string]any{"scope": scope}), addr))
		if got := a.Visible(p, tool); got != want {
			t.Errorf("scope %s sees the tool: %t", scope, got)
		}
	}
}

func TestTokenRefusals(t *testing.T) {
	s := listen(t)
	now := &clock{}
	heard := &told{}
	a := open(t, Config{OAuth: s.config(), Clock: now.Now, OnFailure: heard.add, Failures: FailureLimits{PerAgent: -1, PerAddr: -1}})
	good := s.token(t, nil)
	must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), good, addr))
	parts := strings.Split(good, ".")
	rs := func(more map[string]any) map[string]any {
		h := map[string]any{"alg": "RS256", "kid": "rsa"}
		maps.Copy(h, more)
		return h
	}
	claims := func(more map[string]any) string { return signed(t, rs(nil), s.claims(more), "rsa") }
	head := func(more map[string]any) string { return signed(t, rs(more), s.claims(nil), "rsa") }

	// Algorithm confusion: the public key used as a shared secret.
	public, err := x509.MarshalPKIXPublicKey(testKeys()["rsa"].Public())
	if err != nil {
		t.Fatal(err)
	}
	secret := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
	hs := b64([]byte(`{"alg":"HS256","kid":"rsa"}`)) + "." + parts[1]
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(hs))
	all, err := json.Marshal(s.claims(nil))
	if err != nil {
		t.Fatal(err)
	}
	body := string(all)

	for name, c := range map[string]struct{ bearer, reason, says string }{
		"alg none":                {b64([]byte(`{"alg":"none","kid":"rsa"}`)) + "." + parts[1] + ".", "malformed", "signed by one of ES256, EdDSA, PS256, RS256"},
		"alg None":                {b64([]byte(`{"alg":"None"}`)) + "." + parts[1] + ".AA", "malformed", "signed by one of"},
		"no alg":                  {b64([]byte(`{"kid":"rsa"}`)) + "." + parts[1] + ".AA", "malformed", "signed by one of"},
		"HS256 by public key":     {hs + "." + b64(mac.Sum(nil)), "malformed", "signed by one of"},
		"alg twice":               {signedRaw(t, `{"alg":"none","alg":"RS256","kid":"rsa"}`, body, "RS256", "rsa"), "malformed", "not a JSON object"},
		"RS512":                   {head(map[string]any{"alg": "RS512"}), "malformed", "signed by one of"},
		"critical extension":      {head(map[string]any{"crit": []any{"x"}, "x": 1}), "malformed", "crit"},
		"unencoded payload":       {head(map[string]any{"b64": false}), "malformed", "b64"},
		"typ of a logout token":   {head(map[string]any{"typ": "logout+jwt"}), "malformed", "typ"},
		"typ a number":            {head(map[string]any{"typ": 1}), "malformed", "typ"},
		"kid a number":            {head(map[string]any{"kid": 1}), "malformed", "kid"},
		"another key's signature": {signed(t, rs(nil), s.claims(nil), "rsa2"), "wrong_signature", "signature"},
		"no signature":            {parts[0] + "." + parts[1] + ".", "wrong_signature", "signature"},
		"changed claims":          {parts[0] + "." + b64([]byte(strings.Replace(body, "alice", "admin", 1))) + "." + parts[2], "wrong_signature", "signature"},
		"PS256 for RS256":         {strings.Replace(signed(t, map[string]any{"alg": "RS256", "kid": "rsa"}, s.claims(nil), "rsa"), b64([]byte(`{"alg":"RS256","kid":"rsa"}`)), b64([]byte(`{"alg":"PS256","kid":"rsa"}`)), 1), "wrong_signature", "signature"},
		"kid of an EC key":        {signed(t, rs(map[string]any{"kid": "ec"}), s.claims(nil), "rsa"), "unknown_key", "does not publish"},
		"kid of an RSA key":       {signed(t, map[string]any{"alg": "ES256", "kid": "rsa"}, s.claims(nil), "ec"), "unknown_key", "does not publish"},
		"kid of nobody":           {head(map[string]any{"kid": "../../keys"}), "unknown_key", "does not publish"},
		"other issuer":            {claims(map[string]any{"iss": s.url + "/"}), "wrong_issuer", s.url},
		"no issuer":               {claims(map[string]any{"iss": nil}), "wrong_issuer", s.url},
		"other audience":          {claims(map[string]any{"aud": "https://other.example"}), "wrong_audience", here},
		"audience alike":          {claims(map[string]any{"aud": here + ".evil.example"}), "wrong_audience", here},
		"audience below":          {claims(map[string]any{"aud": here + "/mcpx"}), "wrong_audience", here},
		"no audience":             {claims(map[string]any{"aud": nil}), "wrong_audience", here},
		"audience an object":      {claims(map[string]any{"aud": []any{map[string]any{"a": here}, ""}}), "wrong_audience", here},
		"expired":                 {claims(map[string]any{"exp": now.Now().Add(-31 * time.Second).Unix()}), "expired", "expired"},
		"no end":                  {claims(map[string]any{"exp": nil}), "wrong_claims", "exp"},
		"end as text":             {claims(map[string]any{"exp": "2000000000"}), "wrong_claims", "exp"},
		"end beyond":              {claims(map[string]any{"exp": 1e300}), "wrong_claims", "exp"},
		"not yet":                 {claims(map[string]any{"nbf": now.Now().Add(31 * time.Second).Unix()}), "not_yet_valid", "not valid yet"},
		"nbf as text":             {claims(map[string]any{"nbf": "now"}), "wrong_claims", "nbf"},
		"no subject":              {claims(map[string]any{"sub": nil}), "wrong_claims", "sub"},
		"empty subject":           {claims(map[string]any{"sub": ""}), "wrong_claims", "sub"},
		"long subject":            {claims(map[string]any{"sub": strings.Repeat("x", 257)}), "wrong_claims", "sub"},
		"subject with newline":    {claims(map[string]any{"sub": "a\nb"}), "wrong_claims", "sub"},
		"no tenant":               {claims(map[string]any{"tenant": nil}), "wrong_claims", "tenant"},
		"tenant a list":           {claims(map[string]any{"tenant": []any{"a"}}), "wrong_claims", "tenant"},
		"scope a number":          {claims(map[string]any{"scope": 1}), "wrong_claims", "scope"},
		"scp of numbers":          {claims(map[string]any{"scp": []any{1}}), "wrong_claims", "scp"},
		"a claim twice":           {signedRaw(t, `{"alg":"RS256","kid":"rsa"}`, strings.Replace(body, `{`, `{"sub":"admin",`, 1), "RS256", "rsa"), "malformed", "not a JSON object"},
		"claims an array":         {signedRaw(t, `{"alg":"RS256","kid":"rsa"}`, "[]", "RS256", "rsa"), "malformed", "not a JSON object"},
		"padded header":           {base64.URLEncoding.EncodeToString([]byte(`{"alg":"RS256","kid":"rsa" }`)) + "." + parts[1] + "." + parts[2], "malformed", "base64url"},
		"too long":                {good + strings.Repeat("A", jwt.MaxToken), "malformed", "bytes"},
		"not a token":             {"eyJ.eyJ.eyJ", "malformed", "header"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := a.Authenticate(t.Context(), c.bearer, addr)
			e := is(t, err, toolkeep.Unauthenticated)
			if p != nil || !strings.Contains(e.Message, c.says) {
				t.Errorf("said %q, want %q", e.Message, c.says)
			}
			if f := heard.last(t); f.Reason != c.reason || f.Addr != addr {
				t.Errorf("told %+v, want %s", f, c.reason)
			}
			if strings.Contains(e.Error(), parts[2]) {
				t.Errorf("the error has the signature in it: %v", e)
			}
		})
	}
	must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), good, addr))
	// API keys still work; a bearer in neither form is reported as a malformed key.
	is(t, second(a.Authenticate(t.Context(), "eyJhbGciOiJub25lIn0", addr)), toolkeep.Unauthenticated)
}

func TestTokenKeysAreOfOneType(t *testing.T) {
	s := listen(t)
	s.publish(jwkOf(t, "rsa", map[string]any{"alg": "PS256"}), jwkOf(t, "rsa2", map[string]any{"use": "enc"}), jwkOf(t, "ec", map[string]any{"key_ops": []any{"sign"}}),
		jwkOf(t, "ed", map[string]any{"alg": "Ed25519"}), jwkOf(t, "p384", nil), jwkOf(t, "weak", nil), jwkOf(t, "ec2", nil),
		map[string]any{"kty": "oct", "kid": "oct", "k": b64([]byte("0123456789abcdef0123456789abcdef"))}, map[string]any{"kty": "AKP", "kid": "pq", "pub": "AA"})
	a := open(t, Config{OAuth: s.config(), Clock: (&clock{}).Now})
	for kid, algs := range map[string]map[string]bool{
		"rsa": {"RS256": false, "PS256": true}, "rsa2": {"RS256": false, "PS256": false}, "weak": {"RS256": false},
		"ec": {"ES256": false}, "ec2": {"ES256": true}, "p384": {"ES256": false}, "ed": {"EdDSA": true},
	} {
		for alg, want := range algs {
			_, err := a.Authenticate(t.Context(), signed(t, map[string]any{"alg": alg, "kid": kid}, s.claims(nil), kid), addr)
			if (err == nil) != want {
				t.Errorf("%s by %s: %v", alg, kid, err)
			}
		}
	}
	// Two keys with the same kid are ambiguous.
	s.publish(jwkOf(t, "rsa", nil), jwkOf(t, "rsa2", map[string]any{"kid": "rsa"}), jwkOf(t, "ec", map[string]any{"kid": "rsa"}))
	b := open(t, Config{OAuth: s.config(), Clock: (&clock{}).Now})
	is(t, second(b.Authenticate(t.Context(), s.token(t, nil), addr)), toolkeep.Unauthenticated)
	must[*toolkeep.Principal](t)(b.Authenticate(t.Context(), signed(t, map[string]any{"alg": "ES256", "kid": "rsa"}, s.claims(nil), "ec"), addr))
}

func TestTokenClaimsConfigured(t *testing.T) {
	s := listen(t)
	c := s.config()
	c.SubjectClaim, c.TenantClaim, c.DefaultTenant = "client_id", "https://claims.example/org", "default"
	c.Audience = []string{"api://tools", "other"}
	c.JWKSURL = s.url + "/keys"
	s.set(func() { s.metadata = map[string]any{"jwks_uri": "https://nowhere.example"} })
	a := open(t, Config{OAuth: c, Clock: (&clock{}).Now})
	for _, x := range []struct {
		claims map[string]any
		who    string
	}{
		{map[string]any{"aud": "api://tools", "client_id": "bot"}, "default/bot"},
		{map[string]any{"aud": "other", "client_id": "bot", "https://claims.example/org": "o"}, "o/bot"},
		{map[string]any{"aud": here, "client_id": "bot"}, ""}, // a configured audience replaces the default
		{map[string]any{"aud": "api://tools"}, ""},
		{map[string]any{"aud": "api://tools", "client_id": "bot", "https://claims.example/org": ""}, ""},
	} {
		p, err := a.Authenticate(t.Context(), s.token(t, x.claims), addr)
		switch {
		case x.who == "":
			is(t, err, toolkeep.Unauthenticated)
		case err != nil:
			t.Error(err)
		case p.Tenant+"/"+p.Subject != x.who:
			t.Errorf("%s/%s, want %s", p.Tenant, p.Subject, x.who)
		}
	}
}

func TestTokenOff(t *testing.T) {
	s := listen(t)
	heard := &told{}
	a := open(t, Config{OnFailure: heard.add})
	e := is(t, second(a.Authenticate(t.Context(), s.token(t, nil), addr)), toolkeep.Unauthenticated)
	if !strings.Contains(e.Message, "no OAuth issuer is configured") || heard.last(t).Reason != "malformed" {
		t.Errorf("%v", e)
	}
	is(t, second(a.Refresh(t.Context(), &toolkeep.Principal{Subject: "alice", Tenant: "acme", Roles: []string{Agent}})), toolkeep.Unauthenticated)
	if err := a.OAuthHealth(t.Context()); err != nil || a.TakesTokens() {
		t.Error(err)
	}
	// An Access that was never started has nothing to wait for.
	b, err := New(Config{Load: func(context.Context) ([]toolkeep.APIKey, int64, error) { return nil, 0, nil }, Store: newMemory(), OAuth: s.config()})
	if err != nil {
		t.Fatal(err)
	}
	is(t, second(b.Authenticate(t.Context(), s.token(t, nil), addr)), toolkeep.RegistryUnavailable)
	b.Stop()
}

func TestOAuthConfigFaults(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*OAuth)
		at     string
	}{
		"no issuer":        {func(c *OAuth) { c.Issuer = "" }, "/oauth/issuer"},
		"plain http":       {func(c *OAuth) { c.Issuer = "http://issuer.example" }, "/oauth/issuer"},
		"http and alike":   {func(c *OAuth) { c.Issuer = "http://localhost.example" }, "/oauth/issuer"},
		"a query":          {func(c *OAuth) { c.Issuer = "https://issuer.example/?a" }, "/oauth/issuer"},
		"a password":       {func(c *OAuth) { c.Issuer = "https://u:p@issuer.example/" }, "/oauth/issuer"},
		"keys by http":     {func(c *OAuth) { c.JWKSURL = "http://issuer.example/keys" }, "/oauth/jwks_url"},
		"no own URL":       {func(c *OAuth) { c.BaseURL = nil }, "/oauth/base_url"},
		"no scopes":        {func(c *OAuth) { c.Scopes = nil }, "/oauth/scopes"},
		"an unknown role":  {func(c *OAuth) { c.Scopes = map[string]string{"a/b": "agnet"} }, "/oauth/scopes/a~1b"},
		"an http loopback": {func(c *OAuth) { c.Issuer = "http://[::1]:80/x" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := &OAuth{Issuer: "https://issuer.example", BaseURL: func() string { return here }, Scopes: map[string]string{"s": Agent}}
			c.change(o)
			_, err := New(Config{Load: func(context.Context) ([]toolkeep.APIKey, int64, error) { return nil, 0, nil }, Store: newMemory(), OAuth: o})
			if c.at == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if e := is(t, err, toolkeep.InvalidManifest); !strings.Contains(e.Message, c.at+":") {
				t.Errorf("%v", e)
			}
		})
	}
}

// TestTokenRotation: the issuer signs with a new key. One request fetches it, the
// others wait; tokens of the old key stay valid until it is withdrawn.
func TestTokenRotation(t *testing.T) {
	s := listen(t)
	c := s.config()
	now := &clock{}
	a := open(t, Config{OAuth: c, Clock: now.Now})
	old := s.token(t, nil)
	must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), old, addr))
	now.pass(time.Minute)
	next := signed(t, map[string]any{"alg": "RS256", "kid": "rsa2"}, s.claims(nil), "rsa2")

	hold := make(chan struct{})
	s.set(func() { s.hold = hold })
	s.publish(jwkOf(t, "rsa", nil), jwkOf(t, "rsa2", nil))
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := a.Authenticate(t.Context(), next, addr); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Go(func() { // tokens of known keys do not wait
		if _, err := a.Authenticate(t.Context(), old, addr); err != nil {
			t.Error(err)
		}
		close(hold)
	})
	wg.Wait()
	if n := s.fetches.Load(); n != 2 {
		t.Errorf("the keys were fetched %d times", n)
	}
	// Within Floor there is no further fetch.
	for range 20 {
		is(t, second(a.Authenticate(t.Context(), signed(t, map[string]any{"alg": "ES256", "kid": "ec"}, s.claims(nil), "ec"), addr)), toolkeep.Unauthenticated)
	}
	now.pass(29 * time.Second)
	is(t, second(a.Authenticate(t.Context(), signed(t, map[string]any{"alg": "ES256", "kid": "ec"}, s.claims(nil), "ec"), addr)), toolkeep.Unauthenticated)
	if n := s.fetches.Load(); n != 2 {
		t.Errorf("the keys were fetched %d times", n)
	}
	// The old key is withdrawn: the sessions it verified are gone.
	now.pass(2 * time.Second)
	s.publish(jwkOf(t, "rsa2", nil))
	is(t, second(a.Authenticate(t.Context(), signed(t, map[string]any{"alg": "ES256", "kid": "ec"}, s.claims(nil), "ec"), addr)), toolkeep.Unauthenticated)
	is(t, second(a.Authenticate(t.Context(), old, addr)), toolkeep.Unauthenticated)
	must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), next, addr))
}

func TestTokenExpiresWhileRemembered(t *testing.T) {
	s := listen(t)
	now := &clock{}
	heard := &told{}
	a := open(t, Config{OAuth: s.config(), Clock: now.Now, OnFailure: heard.add})
	bearer := s.token(t, map[string]any{"exp": now.Now().Add(time.Minute).Unix()})
	must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), bearer, addr))
	now.pass(89 * time.Second)
	must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), bearer, addr))
	now.pass(time.Second)
	// Any number of requests with a freshly expired token blocks no caller.
	for range 50 {
		is(t, second(a.Authenticate(t.Context(), bearer, addr)), toolkeep.Unauthenticated)
	}
	if f := heard.last(t); f.Reason != "expired" || f.Subject != "alice" || f.Tenant != "acme" {
		t.Errorf("told %+v", f)
	}
	fresh := s.token(t, map[string]any{"exp": now.Now().Add(3 * time.Hour).Unix()})
	must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), fresh, addr))
	// A client that keeps sending it is blocked, only from that address, and with it alone.
	now.pass(time.Hour)
	for range 10 {
		is(t, second(a.Authenticate(t.Context(), bearer, addr)), toolkeep.Unauthenticated)
	}
	is(t, second(a.Authenticate(t.Context(), bearer, addr)), toolkeep.AuthFailuresLimited)
	is(t, second(a.Authenticate(t.Context(), bearer, "198.51.100.1")), toolkeep.Unauthenticated)
	must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), fresh, addr))
	must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), fresh, "198.51.100.1"))
	must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), s.token(t, map[string]any{"sub": "bob", "exp": now.Now().Add(time.Hour).Unix()}), addr))
}

// TestTokenFailuresCount: forged tokens block the address, not the subject they name.
func TestTokenFailuresCount(t *testing.T) {
	s := listen(t)
	now := &clock{}
	a := open(t, Config{OAuth: s.config(), Clock: now.Now, Failures: FailureLimits{PerAddr: 20}})
	good := s.token(t, nil)
	must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), good, addr))
	forged := signed(t, map[string]any{"alg": "RS256", "kid": "rsa"}, s.claims(nil), "rsa2")
	for range 19 {
		is(t, second(a.Authenticate(t.Context(), forged, addr)), toolkeep.Unauthenticated)
	}
	must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), good, addr)) // alice is not blocked
	is(t, second(a.Authenticate(t.Context(), forged, addr)), toolkeep.Unauthenticated)
	is(t, second(a.Authenticate(t.Context(), forged, addr)), toolkeep.AuthFailuresLimited)
	must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), good, addr)) // never a valid token
	p := must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), good, "198.51.100.1"))
	for range 10 {
		a.NoteDenied(p, "std.echo")
	}
	must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), good, "203.0.113.1"))
	is(t, a.Blocked(p), toolkeep.AuthFailuresLimited)
}

func TestTokenRefresh(t *testing.T) {
	s := listen(t)
	a := open(t, Config{OAuth: s.config(), Clock: (&clock{}).Now, Roles: []Role{{Name: "relay", Permissions: []string{toolkeep.PermActAs}}}})
	// A stored principal loses a role that no scope maps to any more.
	p := must[*toolkeep.Principal](t)(a.Refresh(t.Context(), &toolkeep.Principal{Subject: "alice", Tenant: "acme", Roles: []string{Auditor, "relay", Agent}, OnBehalf: "x"}))
	if !slices.Equal(p.Roles, []string{Auditor, Agent}) || p.Method != MethodOAuth || p.Subject != "alice" || p.OnBehalf != "x" || !p.May(toolkeep.PermInvocations) || p.May(toolkeep.PermActAs) {
		t.Errorf("%+v", p)
	}
	if p := must[*toolkeep.Principal](t)(a.Refresh(t.Context(), &toolkeep.Principal{Subject: "alice", Tenant: "acme", Roles: []string{"relay"}})); len(p.Roles)+len(p.Permissions) != 0 {
		t.Errorf("%+v", p)
	}
}

// TestTokenHammer sends many requests with good and bad tokens while keys rotate and
// roles change.
func TestTokenHammer(t *testing.T) {
	s := listen(t)
	c := s.config()
	c.Floor, c.Every = time.Nanosecond, time.Millisecond
	a := open(t, Config{OAuth: c, Failures: FailureLimits{PerAgent: -1, PerAddr: -1}})
	until := map[string]any{"exp": time.Now().Add(time.Hour).Unix()}
	stable := signed(t, map[string]any{"alg": "ES256", "kid": "ec"}, s.claims(until), "ec")
	turning := s.token(t, until)
	forged := signed(t, map[string]any{"alg": "ES256", "kid": "ec"}, s.claims(until), "ec2")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 150 {
				if _, err := a.Authenticate(t.Context(), stable, addr); err != nil {
					t.Error(err)
				}
				if _, err := a.Authenticate(t.Context(), forged, addr); err == nil {
					t.Error("a forged token was taken")
				}
				if p, err := a.Authenticate(t.Context(), turning, addr); err == nil && p.Subject != "alice" {
					t.Errorf("%+v", p)
				}
			}
		})
	}
	wg.Go(func() {
		for i := range 60 {
			keys := []map[string]any{jwkOf(t, "ec", nil)}
			if i%2 == 0 {
				keys = append(keys, jwkOf(t, "rsa", nil))
			}
			s.publish(keys...)
			if err := a.SetRoles(nil); err != nil {
				t.Error(err)
			}
			_ = a.OAuthHealth(t.Context())
		}
	})
	wg.Wait()
}

func FuzzToken(f *testing.F) {
	s := listen(f)
	o, faults := newIssuer(*s.config(), "/oauth", must2(compile(nil)), (&clock{}).Now, nil)
	if len(faults) > 0 {
		f.Fatal(faults)
	}
	f.Add(`{"alg":"RS256","kid":"rsa"}`, `{"iss":"a","aud":["b"],"exp":1e9,"scope":"a b","scp":["c"]}`)
	f.Add(`{"alg":"none"}`, `[]`)
	f.Fuzz(func(t *testing.T, head, claims string) {
		h, no := readHeader(b64([]byte(head)) + ".x.y")
		if no == nil && !slices.Contains(jwt.Algorithms, h.Alg) {
			t.Errorf("algorithm %q", h.Alg)
		}
		v, no := o.read([]byte(claims))
		if no != nil {
			return
		}
		if v.subject == "" || v.tenant == "" || !o.now().Before(v.until) || !plain(v.subject+v.tenant) {
			t.Errorf("%+v", v)
		}
	})
}

func must2(rules ruleset, _ []toolkeep.Fault) ruleset { return rules }

func BenchmarkToken(b *testing.B) {
	s := listen(b)
	a := open(b, Config{OAuth: s.config(), Clock: (&clock{}).Now})
	for alg, kid := range map[string]string{"RS256": "rsa", "ES256": "ec", "EdDSA": "ed"} {
		bearer := signed(b, map[string]any{"alg": alg, "kid": kid}, s.claims(nil), kid)
		b.Run(alg+" first", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if set := a.issuers[0].current(); set != nil {
					clear(set.verified)
				}
				if _, err := a.Authenticate(b.Context(), bearer, addr); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(alg+" known", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := a.Authenticate(b.Context(), bearer, addr); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestRefreshByMethod: a stored caller keeps the roles that the way it came in still gives, and none
// that only another way gives; one whose way was not stored keeps those of any.
func TestRefreshByMethod(t *testing.T) {
	s := listen(t)
	file := filepath.Join(t.TempDir(), "certificates.yaml")
	if err := os.WriteFile(file, []byte("certificates: [{cn: '*', roles: [operator]}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	all := Config{Clock: (&clock{}).Now, OAuth: s.config(), CertificatesFile: file,
		Signing: Signing{Proxy: []Secret{fixedSecret(longSecret)}, ProxyRoles: []string{Publisher}}}
	a := open(t, all)
	for method, want := range map[string][]string{
		MethodOAuth: {Auditor, Agent}, MethodMTLS: {Operator}, MethodProxy: {Publisher}, "": {Auditor, Agent, Operator, Publisher},
	} {
		stored := &toolkeep.Principal{Subject: "alice", Tenant: "acme", Method: method, Roles: []string{Auditor, Agent, Operator, Publisher}}
		p := must[*toolkeep.Principal](t)(a.Refresh(t.Context(), stored))
		if !slices.Equal(p.Roles, want) || method != "" && p.Method != method {
			t.Errorf("%s: %v by %s", method, p.Roles, p.Method)
		}
	}
	all.OAuth = nil
	b := open(t, all)
	is(t, second(b.Refresh(t.Context(), &toolkeep.Principal{Subject: "alice", Tenant: "acme", Method: MethodOAuth, Roles: []string{Operator}})), toolkeep.Unauthenticated)
}

// TestTokenClaims: a principal has the claims of its token within the limits, and none that identify the token; of a token with
// more they are not known, and it is taken all the same.
func TestTokenClaims(t *testing.T) {
	s := listen(t)
	a := open(t, Config{OAuth: s.config()})
	many, deep := map[string]any{}, any("x")
	for i := range maxClaims {
		many[fmt.Sprint("c", i)] = i
	}
	for range maxClaimsDepth {
		deep = []any{deep}
	}
	for name, c := range map[string]struct {
		claims map[string]any
		known  bool
	}{
		"some":          {map[string]any{"dept": "finance", "groups": []any{"a"}}, true},
		"the tokens id": {map[string]any{"jti": "secret-1", "nonce": "secret-2", "at_hash": "secret-3", "c_hash": "secret-4", "s_hash": "secret-5"}, true},
		"too many":      {many, false},
		"too deep":      {map[string]any{"a": deep}, false},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				p := must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), s.token(t, c.claims), addr))
				tree := p.Claims.Tree()
				if raw := string(canon.Append(nil, tree)); (tree != nil) != c.known || strings.Contains(raw, "secret-") || c.known && !strings.Contains(raw, `"sub":"alice"`) {
					t.Errorf("%s", raw)
				}
				for name, v := range c.claims {
					if kept, there := tree[name]; there && !reflect.DeepEqual(kept, v) {
						t.Errorf("%s is %v, want %v", name, kept, v)
					}
				}
				if acts, err := p.As("other", "ann"); err != nil || acts.Claims != p.Claims {
					t.Errorf("who acts as another has %v, %v", acts.Claims, err)
				}
			}
		})
	}
	p := must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), s.token(t, map[string]any{"sid": "s-1"}), addr))
	if _, there := p.Claims.Tree()["sid"]; there || p.Session != "s-1" {
		t.Errorf("the session is %q, and a claim: %v", p.Session, there)
	}
	for _, sid := range []any{5, []any{"s-1"}, "", " s-1", strings.Repeat("s", maxClaim+1), nil} {
		if p, err := a.Authenticate(t.Context(), s.token(t, map[string]any{"sid": sid}), addr); err != nil || p.Session != "" {
			t.Errorf("sid %v: %+v %v", sid, p, err)
		}
	}
}

// TestSessionsTakeWhatTheyTake: a token that is verified twice counts once, and each element of its claims counts.
func TestSessionsTakeWhatTheyTake(t *testing.T) {
	many, few := &session{}, &session{}
	many.readClaims(map[string]any{"a": slices.Repeat([]any{"1"}, 100)})
	few.readClaims(map[string]any{"a": strings.Repeat("1", 400)})
	if many.size < 100*claimBytes || few.size > 500 {
		t.Errorf("100 elements count %d, one text %d", many.size, few.size)
	}
	s := &keyset{verified: make(map[[32]byte]*session)}
	for range 3 {
		s.remember([32]byte{1}, few)
	}
	if s.remember([32]byte{2}, many); s.bytes != few.size+many.size {
		t.Errorf("%d bytes of %d and %d", s.bytes, few.size, many.size)
	}
}
