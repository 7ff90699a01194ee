package access

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// testKeys are generated once: RSA keys are slow.
var testKeys = sync.OnceValue(func() map[string]crypto.Signer {
	one := func(k crypto.Signer, err error) crypto.Signer {
		if err != nil {
			panic(err)
		}
		return k
	}
	rsaKey := func(bits int) crypto.Signer { k, err := rsa.GenerateKey(rand.Reader, bits); return one(k, err) }
	ecKey := func(c elliptic.Curve) crypto.Signer { k, err := ecdsa.GenerateKey(c, rand.Reader); return one(k, err) }
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	return map[string]crypto.Signer{"rsa": rsaKey(2048), "rsa2": rsaKey(2048), "weak": rsaKey(1024),
		"ec": ecKey(elliptic.P256()), "ec2": ecKey(elliptic.P256()), "p384": ecKey(elliptic.P384()), "ed": one(ed, err)}
})

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// jwkOf returns a public key as a JWK.
func jwkOf(t testing.TB, kid string, more map[string]any) map[string]any {
	t.Helper()
	m := map[string]any{"kid": kid}
	switch k := testKeys()[kid].Public().(type) {
	case *rsa.PublicKey:
		m["kty"], m["n"], m["e"] = "RSA", b64(k.N.Bytes()), b64(big.NewInt(int64(k.E)).Bytes())
	case *ecdsa.PublicKey:
		raw, err := k.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		half := (len(raw) - 1) / 2
		m["kty"], m["crv"], m["x"], m["y"] = "EC", k.Params().Name, b64(raw[1:1+half]), b64(raw[1+half:])
	case ed25519.PublicKey:
		m["kty"], m["crv"], m["x"] = "OKP", "Ed25519", b64(k)
	}
	maps.Copy(m, more)
	return m
}

// signed returns a token made without the library that verifies it.
func signed(t testing.TB, head, claims map[string]any, kid string) string {
	t.Helper()
	h, err1 := json.Marshal(head)
	c, err2 := json.Marshal(claims)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return signedRaw(t, string(h), string(c), fmt.Sprint(head["alg"]), kid)
}

func signedRaw(t testing.TB, head, claims, alg, kid string) string {
	t.Helper()
	text := b64([]byte(head)) + "." + b64([]byte(claims))
	sum := sha256.Sum256([]byte(text))
	key := testKeys()[kid]
	var sig []byte
	var err error
	switch k := key.(type) {
	case *rsa.PrivateKey:
		var opts crypto.SignerOpts = crypto.SHA256
		if alg == "PS256" {
			opts = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.SHA256}
		}
		sig, err = k.Sign(rand.Reader, sum[:], opts)
	case *ecdsa.PrivateKey:
		var r, s *big.Int
		r, s, err = ecdsa.Sign(rand.Reader, k, sum[:])
		if err == nil {
			size := (k.Params().BitSize + 7) / 8
			sig = append(r.FillBytes(make([]byte, size)), s.FillBytes(make([]byte, size))...)
		}
	case ed25519.PrivateKey:
		sig = ed25519.Sign(k, []byte(text))
	}
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + b64(sig)
}

// authServer is an authorization server as a resource server sees it.
type authServer struct {
	url string

	mu       sync.Mutex
	keys     []map[string]any
	body     string // sent instead of the keys
	down     bool
	oidcOnly bool
	metadata map[string]any // overrides the default
	hold     chan struct{}  // delays responses until it is closed
	fetches  atomic.Int64   // number of key fetches
}

func (s *authServer) set(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

func (s *authServer) publish(keys ...map[string]any) { s.set(func() { s.keys, s.body = keys, "" }) }

func (s *authServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	down, keys, body, oidc, hold := s.down, s.keys, s.body, s.oidcOnly, s.hold
	meta := map[string]any{"issuer": s.url, "jwks_uri": s.url + "/keys"}
	maps.Copy(meta, s.metadata)
	s.mu.Unlock()
	switch {
	case down:
		w.WriteHeader(http.StatusBadGateway)
	case r.URL.Path == "/keys":
		s.fetches.Add(1)
		if hold != nil {
			<-hold
		}
		if body != "" {
			_, _ = io.WriteString(w, body)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": keys})
	case r.URL.Path == "/.well-known/oauth-authorization-server" && !oidc, r.URL.Path == "/.well-known/openid-configuration" && oidc:
		_ = json.NewEncoder(w).Encode(meta)
	default:
		http.NotFound(w, r)
	}
}

// RoundTrip responds without a network, for tests with a fake clock.
func (s *authServer) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	down := s.down
	s.mu.Unlock()
	if down {
		return nil, errors.New("connection refused")
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result(), nil
}

// listen starts the issuer on loopback.
func listen(t testing.TB) *authServer {
	t.Helper()
	s := &authServer{}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	s.url = srv.URL
	s.publish(jwkOf(t, "rsa", nil), jwkOf(t, "ec", nil), jwkOf(t, "ed", nil))
	return s
}

const here = "https://tools.example"

func (s *authServer) config() *OAuth {
	return &OAuth{Issuer: s.url, BaseURL: func() string { return here },
		Scopes: map[string]string{"tools:call": Agent, "tools:admin": Admin, "tools:audit": Auditor, "also:call": Agent}}
}

func (s *authServer) claims(more map[string]any) map[string]any {
	c := map[string]any{"iss": s.url, "aud": here, "sub": "alice", "tenant": "acme", "scope": "tools:call openid",
		"exp": (&clock{}).Now().Add(time.Hour).Unix(), "iat": (&clock{}).Now().Unix()}
	for k, v := range more {
		if c[k] = v; v == nil {
			delete(c, k)
		}
	}
	return c
}

func (s *authServer) token(t testing.TB, more map[string]any) string {
	t.Helper()
	return signed(t, map[string]any{"alg": "RS256", "kid": "rsa", "typ": "at+jwt"}, s.claims(more), "rsa")
}

const addr = "192.0.2.1"

// told collects the failures passed to OnFailure.
type told struct {
	mu   sync.Mutex
	list []Failure
}

func (o *told) add(f Failure) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = append(o.list, f)
}

func (o *told) last(t testing.TB) Failure {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.list) == 0 {
		t.Fatal("nothing was told")
	}
	return o.list[len(o.list)-1]
}
