package capability

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwe"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/secret"
)

// check verifies a token for the agent's call of version 2.1.0 of weather.current, which reads.
func check(v *Tokens, text toolkeep.CapabilityToken) *toolkeep.Error {
	tok, err := v.Verify(text)
	if err != nil {
		return err
	}
	return tok.Allows(agent, tool("weather.current", "2.1.0", false))
}

// hand makes a token from parts, signed with HMAC or not at all.
func hand(t *testing.T, head, payload any, secret []byte) toolkeep.CapabilityToken {
	raw := func(v any) string {
		if s, ok := v.(string); ok {
			return b64([]byte(s))
		}
		return b64(must[[]byte](t)(json.Marshal(v)))
	}
	input := raw(head) + "." + raw(payload)
	if secret == nil {
		return toolkeep.CapabilityToken(input + ".")
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(input))
	return toolkeep.CapabilityToken(input + "." + b64(mac.Sum(nil)))
}

type m = map[string]any

func TestForgeries(t *testing.T) {
	clk := newClock()
	v := newTokens(t, Config{KeysFile: keySet(t), Issuers: []string{"runtime"}, Audience: []string{"https://here.example"}}, newStore(), clk)
	now := clk.Now().Unix()
	good := func(more m) m {
		c := claims(clk, m{"aud": "https://here.example"})
		for k, val := range more {
			if c[k] = val; val == nil {
				delete(c, k)
			}
		}
		return c
	}
	sign := func(more m) toolkeep.CapabilityToken { return signed(t, "rsa", good(more), nil) }
	raw := func(text string) toolkeep.CapabilityToken { return signed(t, "rsa", []byte(text), nil) }
	valid := sign(nil)
	nested := must[[]byte](t)(jwe.Encrypt([]byte(valid), jwe.WithKey(jwa.RSA_OAEP_256(), keys()["rsa"].Public())))
	parts := strings.Split(string(valid), ".")
	twice := strings.TrimSuffix(string(must[[]byte](t)(json.Marshal(good(nil)))), "}") + `,"tool_id":"*"}`

	const (
		none     = toolkeep.Code("")
		invalid  = toolkeep.TokenInvalid
		lacks    = toolkeep.TokenClaimsMissing
		expired  = toolkeep.TokenExpired
		mismatch = toolkeep.TokenScopeMismatch
	)
	for name, c := range map[string]struct {
		token toolkeep.CapabilityToken
		code  toolkeep.Code
	}{
		"RS256":             {valid, none},
		"ES256":             {signed(t, "ec", good(nil), nil), none},
		"EdDSA":             {signed(t, "ed", good(nil), nil), none},
		"sub for agent_did": {sign(m{"agent_did": nil, "sub": "did:agent:a"}), none},
		"audiences":         {sign(m{"aud": []string{"https://there.example", "https://here.example"}}), none},
		"a list of tools":   {sign(m{"tool_id": []string{"x.y", "weather.*"}}), none},
		"within the skew":   {sign(m{"nbf": now + 29}), none},
		"another claim":     {sign(m{"colour": "blue"}), none},
		"read":              {sign(m{"allowed_operations": []string{"read"}}), none},

		"empty":                        {"", invalid},
		"no token":                     {"Bearer", invalid},
		"alg none":                     {hand(t, m{"alg": "none", "typ": "JWT"}, good(nil), nil), invalid},
		"alg nOnE":                     {hand(t, m{"alg": "nOnE"}, good(nil), nil), invalid},
		"HS256 with the public key":    {hand(t, m{"alg": "HS256", "kid": "rsa"}, good(nil), pemOf(t, "rsa")), invalid},
		"RS256 signed by HMAC":         {hand(t, m{"alg": "RS256", "kid": "rsa"}, good(nil), pemOf(t, "rsa")), invalid},
		"PS256":                        {signed(t, "rsa", good(nil), m{"alg": jwa.PS256()}), invalid},
		"RS512":                        {signed(t, "rsa", good(nil), m{"alg": jwa.RS512()}), invalid},
		"another key under the kid":    {signed(t, "other", good(nil), m{"kid": "rsa"}), invalid},
		"an unknown kid":               {signed(t, "rsa", good(nil), m{"kid": "who"}), invalid},
		"a kid like the server's":      {signed(t, "rsa", good(nil), m{"kid": strings.Repeat("A", 43)}), invalid},
		"no kid":                       {signed(t, "rsa", good(nil), m{"kid": nil}), invalid},
		"a kid of another type":        {signed(t, "rsa", good(nil), m{"kid": "ec"}), invalid},
		"another curve":                {signed(t, "p384", good(nil), m{"kid": "ec"}), invalid},
		"a key in the header":          {signed(t, "other", good(nil), m{"kid": "who", "jku": "https://evil.example/keys"}), invalid},
		"crit":                         {hand(t, m{"alg": "RS256", "kid": "rsa", "crit": []string{"exp"}}, good(nil), []byte("x")), invalid},
		"b64 false":                    {hand(t, m{"alg": "RS256", "kid": "rsa", "b64": false, "crit": []string{"b64"}}, good(nil), []byte("x")), invalid},
		"zip":                          {hand(t, m{"alg": "RS256", "kid": "rsa", "zip": "DEF"}, good(nil), []byte("x")), invalid},
		"a header with a member twice": {hand(t, `{"alg":"none","alg":"RS256","kid":"rsa"}`, good(nil), []byte("x")), invalid},
		"another typ":                  {signed(t, "rsa", good(nil), m{"typ": "dpop+jwt"}), invalid},
		"nested encryption":            {toolkeep.CapabilityToken(nested), invalid},
		"JSON serialization":           {toolkeep.CapabilityToken(`{"payload":"` + parts[1] + `","signatures":[]}`), invalid},
		"a byte after":                 {valid + "A", invalid},
		"a part after":                 {valid + ".x", invalid},
		"a newline after":              {valid + "\n", invalid},
		"padding":                      {valid + "=", invalid},
		"no signature":                 {toolkeep.CapabilityToken(parts[0] + "." + parts[1] + "."), invalid},
		"other claims":                 {toolkeep.CapabilityToken(parts[0] + "." + b64([]byte(twice)) + "." + parts[2]), invalid},
		"oversized":                    {sign(m{"more": strings.Repeat("x", 16<<10)}), invalid},
		"a member twice":               {raw(twice), invalid},
		"no object":                    {raw(`["tool_id"]`), invalid},
		"not UTF-8":                    {raw("{\"tool_id\":\"\xff\"}"), invalid},
		"another issuer":               {sign(m{"iss": "someone"}), invalid},
		"the server's issuer":          {sign(m{"iss": Issuer}), invalid},
		"no issuer":                    {sign(m{"iss": nil}), invalid},
		"too long a life":              {sign(m{"exp": now + 86_401}), invalid},
		"sub of another":               {sign(m{"sub": "did:agent:b"}), invalid},

		"no tool":     {sign(m{"tool_id": nil}), lacks},
		"no agent":    {sign(m{"agent_did": nil}), lacks},
		"no tenant":   {sign(m{"tenant_id": nil}), lacks},
		"no exp":      {sign(m{"exp": nil}), lacks},
		"no iat":      {sign(m{"iat": nil}), lacks},
		"expired":     {sign(m{"iat": now - 600, "exp": now - 31}), expired},
		"not yet":     {sign(m{"nbf": now + 31}), expired},
		"made later":  {sign(m{"iat": now + 31}), expired},
		"no audience": {sign(m{"aud": nil}), mismatch},

		"another audience":    {sign(m{"aud": "https://there.example"}), mismatch},
		"another tenant":      {sign(m{"tenant_id": "globex"}), mismatch},
		"another agent":       {sign(m{"agent_did": "did:agent:b"}), mismatch},
		"another tool":        {sign(m{"tool_id": "weather.forecast"}), mismatch},
		"no tool at all":      {sign(m{"tool_id": []string{}}), mismatch},
		"another version":     {sign(m{"tool_version": "^3.0.0"}), mismatch},
		"no operation":        {sign(m{"allowed_operations": []string{}}), mismatch},
		"an unknown one":      {sign(m{"allowed_operations": []string{"administer"}}), mismatch},
		"a pattern in vain":   {sign(m{"tool_id": "weather"}), mismatch},
		"a tool of two types": {sign(m{"tool_id": []any{"weather.current", 7}}), invalid},
		"a broken pattern":    {sign(m{"tool_id": "weather.["}), invalid},
		"a broken range":      {sign(m{"tool_version": "newest"}), invalid},
		"null operations":     {raw(strings.Replace(twice, `,"tool_id":"*"}`, `,"credential_permissions":null}`, 1)), invalid},
		"files as a text":     {sign(m{"filesystem_permissions": "/"}), invalid},
		"an unknown member":   {sign(m{"filesystem_permissions": m{"allowed_paths": []string{"/a"}, "denied_paths": []string{"/a/b"}}}), invalid},
		"no paths":            {sign(m{"filesystem_permissions": m{"mode": "rw"}}), invalid},
		"a relative path":     {sign(m{"filesystem_permissions": m{"allowed_paths": []string{"a"}}}), invalid},
		"dots":                {sign(m{"filesystem_permissions": m{"allowed_paths": []string{"/a/../b"}}}), invalid},
		"another mode":        {sign(m{"filesystem_permissions": m{"allowed_paths": []string{"/a"}, "mode": "rwx"}}), invalid},
		"a host with a port":  {sign(m{"network_permissions": m{"allowed_hosts": []string{"a.example:1"}}}), invalid},
		"a wildcard inside":   {sign(m{"network_permissions": m{"allowed_hosts": []string{"a.*.example"}}}), invalid},
		"a port as a text":    {sign(m{"network_permissions": m{"allowed_hosts": []string{}, "allowed_ports": []string{"443"}}}), invalid},
		"secrets as a text":   {sign(m{"credential_permissions": m{"allowed_secrets": "a"}}), invalid},
		"many tools":          {sign(m{"tool_id": make100(101)}), invalid},
		"a deep chain":        {sign(m{"parent_jtis": make100(MaxDepth + 1)}), invalid},
		"a time as a text":    {sign(m{"exp": fmt.Sprint(now + 600)}), invalid},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // the second time it may be remembered
				err := check(v, c.token)
				switch {
				case err == nil && c.code == none:
				case err == nil:
					t.Fatalf("accepted; want %s", c.code)
				case err.Code != c.code:
					t.Fatalf("%s: %s (%v); want %q", err.Code, err.Message, err.Cause, c.code)
				case len(c.token) > 20 && strings.Contains(fmt.Sprint(err.Message, err.Details, err.Cause), string(c.token[len(c.token)-20:])):
					t.Fatalf("the error repeats the token: %s", err.Message)
				}
			}
		})
	}
}

func make100(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("a.b%d", i))
	}
	return list
}

// TestForgerLearnsNothing: whatever is wrong with form, key or signature, the answer is the same.
func TestForgerLearnsNothing(t *testing.T) {
	clk := newClock()
	v := newTokens(t, Config{KeysFile: keySet(t), Issuers: []string{"runtime"}}, newStore(), clk)
	said := map[string]bool{}
	for _, text := range []toolkeep.CapabilityToken{
		"x", hand(t, m{"alg": "none"}, claims(clk, nil), nil), signed(t, "other", claims(clk, nil), m{"kid": "rsa"}),
		signed(t, "rsa", claims(clk, nil), m{"kid": "who"}), signed(t, "rsa", claims(clk, m{"iss": "evil"}), nil),
		toolkeep.CapabilityToken(strings.Repeat("a", 20<<10)),
	} {
		_, err := v.Verify(text)
		if err == nil || err.Code != toolkeep.TokenInvalid || err.Cause == nil {
			t.Fatalf("%v", err)
		}
		said[err.Message] = true
	}
	if len(said) != 1 {
		t.Errorf("the messages differ: %v", said)
	}
}

func TestTokensTextIsHidden(t *testing.T) {
	text := toolkeep.CapabilityToken("eyJhbGciOiJub25lIn0.e30.c2lnbmF0dXJl")
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("call", "call", toolkeep.Call{Token: text}, "token", text)
	all := log.String() + fmt.Sprintf("%v %+v %#v %s %q", text, toolkeep.Call{Token: text}, toolkeep.Call{Token: text}, text, text) +
		string(must[[]byte](t)(json.Marshal(toolkeep.Call{Token: text})))
	if strings.Contains(all, "c2lnbmF0dXJl") {
		t.Error(all)
	}
}

func TestKeyFileIsReadAgain(t *testing.T) {
	clk := newClock()
	file := write(t, pemOf(t, "other", "rsa"))
	v := newTokens(t, Config{KeysFile: file}, newStore(), clk)
	token := signed(t, "rsa", claims(clk, nil), m{"kid": "of-the-issuer"}) // PEM keys have no names
	if err := check(v, token); err != nil {
		t.Fatal(err, err.Cause)
	}
	replace := func(body string) {
		if err := os.WriteFile(file, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		clk.Add(keysEvery)
	}
	replace("broken")
	if err := check(v, token); err != nil {
		t.Errorf("a broken file ended the keys: %v", err)
	}
	replace(string(pemOf(t, "ec")))
	if err := check(v, token); err == nil || err.Code != toolkeep.TokenInvalid {
		t.Errorf("the token of a removed key: %v", err)
	}
	if err := check(v, signed(t, "ec", claims(clk, nil), nil)); err != nil {
		t.Error(err)
	}
	for name, body := range map[string]string{"nothing": "", "no key": "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n", "a set without a key": `{"keys":[]}`} {
		if _, err := New(Config{Store: newStore(), Sealer: must[*secret.Sealer](t)(secret.NewSealer()), KeysFile: write(t, []byte(body))}); !toolkeep.IsCode(err, toolkeep.InvalidManifest) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func mint(t testing.TB, v *Tokens, c Claims, parent *Token) (toolkeep.CapabilityToken, *Claims) {
	t.Helper()
	text, made, err := v.Mint(t.Context(), c, parent)
	if err != nil {
		t.Fatal(err, toolkeep.AsError(err).Details)
	}
	return toolkeep.CapabilityToken(text), made
}

func wish(clk *clock) Claims {
	return Claims{Grant: toolkeep.Grant{Tenant: "acme", Agent: "did:agent:a", Tools: []string{"weather.*"}}, Expires: clk.Now().Add(time.Hour)}
}

// TestNodes: a token of one node is good on another at once, a revocation when it has followed
// the feed, and both survive a start.
func TestNodes(t *testing.T) {
	for _, alg := range []string{"RS256", "ES256", "EdDSA"} {
		t.Run(alg, func(t *testing.T) {
			clk, s, seal := newClock(), newStore(), must[*secret.Sealer](t)(secret.NewSealer())
			a := newTokens(t, Config{Sealer: seal, Algorithm: alg}, s, clk)
			b := newTokens(t, Config{Sealer: seal, Algorithm: alg}, s, clk)
			parent, made := mint(t, a, wish(clk), nil)
			held, err := b.Verify(parent)
			if err != nil {
				t.Fatal(err, err.Cause)
			}
			child, _ := mint(t, b, Claims{Grant: toolkeep.Grant{Tenant: "acme", Agent: "did:agent:a", Tools: []string{"weather.current"}}}, held)
			if err := check(a, child); err != nil {
				t.Fatal(err, err.Cause)
			}
			changes := must[[]toolkeep.Change](t)(a.Revoke("acme", made.Grant.ID, "admin"))
			if err := s.Apply(t.Context(), changes...); err != nil {
				t.Fatal(err)
			}
			for _, c := range changes {
				b.Follow(toolkeep.Committed{Change: c})
			}
			later := newTokens(t, Config{Sealer: seal, Algorithm: alg}, s, clk)
			for name, on := range map[string]*Tokens{"that followed": b, "that started": later} {
				for which, text := range map[string]toolkeep.CapabilityToken{"token": parent, "child": child} {
					if err := check(on, text); err == nil || err.Code != toolkeep.TokenRevoked {
						t.Errorf("the %s on the node %s: %v", which, name, err)
					}
				}
			}
			if err := later.Revoked(&toolkeep.Grant{Tenant: "globex", ID: made.Grant.ID}); err != nil {
				t.Error("a revocation holds in another tenant")
			}
		})
	}
}

func TestRotation(t *testing.T) {
	clk, s := newClock(), newStore()
	v := newTokens(t, Config{}, s, clk)
	old, _ := mint(t, v, wish(clk), nil)
	clk.Add(time.Second)
	first := must[string](t)(v.RotateKey(t.Context(), "admin", false, nil))
	fresh, _ := mint(t, v, wish(clk), nil)
	for _, text := range []toolkeep.CapabilityToken{old, fresh} {
		if err := check(v, text); err != nil {
			t.Fatal(err, err.Cause)
		}
	}
	if set := string(must[[]byte](t)(v.PublicKeys())); !strings.Contains(set, first) || strings.Count(set, `"kid"`) != 2 || strings.Contains(set, `"d"`) {
		t.Error(set)
	}
	// A key that was replaced signs nothing for long, also not for a thief.
	var stolen *ownKey
	for _, k := range v.own {
		if k.id != first {
			stolen = k
		}
	}
	if want := clk.Now().Add(DefaultLife + time.Minute); !stolen.expires.Equal(want) {
		t.Errorf("the old key ends at %s, not %s", stolen.expires, want)
	}
	if must[string](t)(v.RotateKey(t.Context(), "admin", true, nil)) == first {
		t.Error("no new key")
	}
	for _, text := range []toolkeep.CapabilityToken{old, fresh} {
		if err := check(v, text); err == nil || err.Code != toolkeep.TokenInvalid {
			t.Errorf("a dropped key verifies: %v", err)
		}
	}
	clk.Add(3 * DefaultLife)
	if must[string](t)(v.RotateKey(t.Context(), "admin", false, nil)) == "" || len(v.own) != 2 {
		t.Errorf("%d keys", len(v.own))
	}
}

// TestRotationByClockBehind: a new key signs, whichever node's clock made the one before.
func TestRotationByClockBehind(t *testing.T) {
	clk := newClock()
	v := newTokens(t, Config{}, newStore(), clk)
	mint(t, v, wish(clk), nil)
	for range 3 {
		clk.Add(-time.Minute)
		kid := must[string](t)(v.RotateKey(t.Context(), "admin", false, nil))
		text, _ := mint(t, v, wish(clk), nil)
		head, _, err := Show(string(text))
		if err != nil || !strings.Contains(string(head), kid) {
			t.Errorf("%s signed, not the new key %s (%v)", head, kid, err)
		}
		if k := v.own[kid]; !k.expires.IsZero() {
			t.Errorf("the new key ends at %s, as if it were replaced", k.expires)
		}
	}
}

// TestReseal: a key is sealed again and still signs.
func TestReseal(t *testing.T) {
	clk, s, seal := newClock(), newStore(), must[*secret.Sealer](t)(secret.NewSealer())
	v := newTokens(t, Config{Sealer: seal}, s, clk)
	old, _ := mint(t, v, wish(clk), nil)
	docs, _, _ := s.Documents(t.Context(), KeyKind)
	if _, done, err := Reseal(seal, func([]byte) bool { return false }, docs[0]); done || err != nil {
		t.Error(done, err)
	}
	body, done, err := Reseal(seal, func([]byte) bool { return true }, docs[0])
	if !done || err != nil || bytes.Equal(body, docs[0].Body) {
		t.Fatal(done, err)
	}
	docs[0].Body = body
	if err := s.Apply(t.Context(), toolkeep.PutDocument{Document: docs[0], Expect: toolkeep.AnyRevision}); err != nil {
		t.Fatal(err)
	}
	later := newTokens(t, Config{Sealer: seal}, s, clk)
	mint(t, later, wish(clk), nil)
	if err := check(later, old); err != nil || len(later.own) != 1 {
		t.Error(err, len(later.own))
	}
}

func TestRevocationListIsBounded(t *testing.T) {
	clk := newClock()
	v := newTokens(t, Config{}, newStore(), clk)
	add := func(n int) {
		for i := range n {
			for _, c := range must[[]toolkeep.Change](t)(v.Revoke("acme", fmt.Sprint(i), "admin")) {
				v.Follow(toolkeep.Committed{Change: c})
			}
		}
	}
	add(50)
	for i := range MaxRevoked - 50 {
		v.revoked[revokedID{"acme", fmt.Sprint("x", i)}] = clk.Now().Add(time.Hour)
	}
	if _, err := v.Revoke("acme", "more", "admin"); !toolkeep.IsCode(err, toolkeep.ResourceExhausted) {
		t.Error(err)
	}
	if _, err := v.Revoke("globex", "more", "admin"); err != nil {
		t.Error(err)
	}
	clk.Add(v.kept() + time.Second)
	if n := len(must[[]toolkeep.Change](t)(v.Revoke("acme", "more", "admin"))); n != 100 {
		t.Errorf("%d changes; those that need not be kept go", n)
	}
}

func TestConcurrently(t *testing.T) {
	clk := newClock()
	v := newTokens(t, Config{KeysFile: keySet(t)}, newStore(), clk)
	token := signed(t, "ed", claims(clk, nil), nil)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 50 {
				if err := check(v, token); err != nil {
					t.Error(err)
				}
				if i == 0 {
					if _, err := v.RotateKey(t.Context(), "admin", false, nil); err != nil {
						t.Error(err)
					}
				}
				if i == 1 {
					if _, _, err := v.Mint(t.Context(), wish(clk), nil); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
}

func FuzzClaims(f *testing.F) {
	clk := newClock()
	f.Add(must[[]byte](f)(json.Marshal(claims(clk, m{"network_permissions": m{"allowed_hosts": []string{"*.a"}, "allowed_ports": []int{1}}}))))
	f.Add([]byte(`{"tool_id":[],"filesystem_permissions":{"allowed_paths":["/"],"mode":"rw"}}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		c, err := readClaims(payload, "x")
		if err != nil {
			var own *claimsError
			if !errors.As(err, &own) || own.code.Info().Kind != toolkeep.KindRefusal {
				t.Errorf("%v", err)
			}
			return
		}
		if c.Grant.Tools == nil || c.Grant.Agent == "" || c.Grant.Tenant == "" || c.Grant.ID == "" || c.Expires.IsZero() || c.IssuedAt.IsZero() {
			t.Errorf("%+v", c)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	clk := newClock()
	v := newTokens(b, Config{KeysFile: keySet(b)}, newStore(), clk)
	for _, key := range []string{"rsa", "ec", "ed"} {
		token := signed(b, key, claims(clk, nil), nil)
		b.Run("cold/"+key, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				clear(v.verified)
				if _, err := v.Verify(token); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("cached/"+key, func(b *testing.B) {
			b.ReportAllocs()
			t := tool("weather.current", "2.1.0", false)
			for b.Loop() {
				tok, err := v.Verify(token)
				if err != nil || tok.Allows(agent, t) != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
