package capability

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jws"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/secret"
)

// store keeps documents; nodes share one. Only what was applied with tell reaches followers.
type store struct {
	mu   sync.Mutex
	docs map[[3]string]toolkeep.Document
	// answering is called with what Document found, before it returns; an error is the answer. nil: none.
	answering func() error
}

func newStore() *store { return &store{docs: map[[3]string]toolkeep.Document{}} }

func (s *store) Apply(_ context.Context, changes ...toolkeep.Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range changes {
		switch c := c.(type) {
		case toolkeep.PutDocument:
			k := [3]string{c.Document.Kind, c.Document.Tenant, c.Document.ID}
			if _, there := s.docs[k]; there && c.Expect == toolkeep.NoRevision {
				return toolkeep.ErrStale
			}
			s.docs[k] = c.Document
		case toolkeep.DeleteDocument:
			delete(s.docs, [3]string{c.Kind, c.Tenant, c.ID})
		}
	}
	return nil
}

func (s *store) Document(_ context.Context, kind, tenant, id string) (toolkeep.Document, error) {
	s.mu.Lock()
	d, ok := s.docs[[3]string{kind, tenant, id}]
	answering := s.answering
	s.mu.Unlock()
	if answering != nil {
		if err := answering(); err != nil {
			return toolkeep.Document{}, err
		}
	}
	if ok {
		return d, nil
	}
	return toolkeep.Document{}, toolkeep.ErrNotFound
}

func (s *store) Documents(_ context.Context, kind string) (out []toolkeep.Document, _ int64, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, d := range s.docs {
		if k[0] == kind {
			out = append(out, d)
		}
	}
	return out, 1, nil
}

type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Unix(1_800_000_000, 0)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// keys are made once: RSA keys are slow.
var keys = sync.OnceValue(func() map[string]crypto.Signer {
	one := func(k crypto.Signer, err error) crypto.Signer {
		if err != nil {
			panic(err)
		}
		return k
	}
	rsaKey := func() crypto.Signer { k, err := rsa.GenerateKey(rand.Reader, 2048); return one(k, err) }
	ecKey := func(c elliptic.Curve) crypto.Signer { k, err := ecdsa.GenerateKey(c, rand.Reader); return one(k, err) }
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	return map[string]crypto.Signer{"rsa": rsaKey(), "other": rsaKey(), "ec": ecKey(elliptic.P256()), "p384": ecKey(elliptic.P384()), "ed": one(ed, err)}
})

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// keySet writes the public keys rsa, ec and ed as a JWK set.
func keySet(t testing.TB) string {
	t.Helper()
	return jwkSet(t, func(name string) string { return name }, "rsa", "ec", "ed")
}

// thumbprintSet writes public keys as a JWK set in which each is named by its thumbprint.
func thumbprintSet(t testing.TB, names ...string) string {
	t.Helper()
	return jwkSet(t, func(name string) string { return must[string](t)(thumbprint(keys()[name].Public())) }, names...)
}

func jwkSet(t testing.TB, kid func(name string) string, names ...string) string {
	t.Helper()
	set := jwk.NewSet()
	for _, name := range names {
		k := must[jwk.Key](t)(jwk.Import(keys()[name].Public()))
		if err := k.Set(jwk.KeyIDKey, kid(name)); err != nil {
			t.Fatal(err)
		}
		if err := set.AddKey(k); err != nil {
			t.Fatal(err)
		}
	}
	return write(t, must[[]byte](t)(json.Marshal(set)))
}

func pemOf(t testing.TB, names ...string) []byte {
	t.Helper()
	var out []byte
	for _, n := range names {
		raw := must[[]byte](t)(x509.MarshalPKIXPublicKey(keys()[n].Public()))
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: raw})...)
	}
	return out
}

func write(t testing.TB, body []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, body, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// newTokens are those of a node on a store.
func newTokens(t testing.TB, c Config, s *store, clk *clock) *Tokens {
	t.Helper()
	if c.Sealer == nil {
		c.Sealer = must[*secret.Sealer](t)(secret.NewSealer())
	}
	c.Store, c.Clock, c.Node = s, clk.Now, "node"
	if c.Algorithm == "" {
		c.Algorithm = "EdDSA"
	}
	v := must[*Tokens](t)(New(c))
	if err := v.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return v
}

// claims are good ones, with changes; nil removes one.
func claims(clk *clock, more map[string]any) map[string]any {
	now := clk.Now().Unix()
	m := map[string]any{"iss": "runtime", "iat": now, "exp": now + 600, "jti": "one", "tenant_id": "acme", "agent_did": "did:agent:a",
		"tool_id": "weather.current", "tool_version": "^2.0.0", "allowed_operations": []string{"execute"}}
	maps.Copy(m, more)
	maps.DeleteFunc(m, func(_ string, v any) bool { return v == nil })
	return m
}

var algs = map[string]jwa.SignatureAlgorithm{"rsa": jwa.RS256(), "other": jwa.RS256(), "ec": jwa.ES256(), "ed": jwa.EdDSA(), "p384": jwa.ES384()}

// signed is a token of an outside issuer's key.
func signed(t testing.TB, key string, payload any, head map[string]any) toolkeep.CapabilityToken {
	t.Helper()
	raw, ok := payload.([]byte)
	if !ok {
		raw = must[[]byte](t)(json.Marshal(payload))
	}
	h := jws.NewHeaders()
	for name, v := range map[string]any{"kid": key, "typ": "JWT"} {
		if over, there := head[name]; there {
			v = over
		}
		if v == nil {
			continue
		}
		if err := h.Set(name, v); err != nil {
			t.Fatal(err)
		}
	}
	for name, v := range head {
		if name != "kid" && name != "typ" {
			if err := h.Set(name, v); err != nil {
				t.Fatal(err)
			}
		}
	}
	alg := algs[key]
	if a, ok := head["alg"].(jwa.SignatureAlgorithm); ok {
		alg = a
	}
	return toolkeep.CapabilityToken(must[[]byte](t)(jws.Sign(raw, jws.WithKey(alg, keys()[key], jws.WithProtectedHeaders(h)))))
}

func tool(id, version string, writes bool) *toolkeep.Tool {
	m := &toolkeep.Manifest{SideEffects: "reads"}
	if writes {
		m.SideEffects = "writes"
	}
	return &toolkeep.Tool{ID: id, Version: version, Tenant: "acme", Manifest: m}
}

var agent = &toolkeep.Principal{Subject: "did:agent:a", Tenant: "acme"}
