package access

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
)

// algorithms lists the accepted signature algorithms: neither "none" nor any with a
// shared secret, since a public key could be used as that secret.
var algorithms = map[string]jwa.SignatureAlgorithm{
	"RS256": jwa.RS256(), "PS256": jwa.PS256(), "ES256": jwa.ES256(), "EdDSA": jwa.EdDSA(),
}

var algorithmNames = slices.Sorted(maps.Keys(algorithms))

const (
	maxIssuerKeys = 100
	maxKeyID      = 1024 // bytes
	maxSessions   = 8192 // verified tokens that are cached
)

// verifyKey is one key of the issuer for signatures.
type verifyKey struct {
	alg string // the only algorithm it may be used with; "" is any that fits
	raw any    // *rsa.PublicKey, *ecdsa.PublicKey, ed25519.PublicKey
}

// fits reports whether the key may verify an algorithm. The key's type decides,
// never the token.
func (k *verifyKey) fits(alg string) bool {
	if k.alg != "" && k.alg != alg {
		return false
	}
	switch raw := k.raw.(type) {
	case *rsa.PublicKey:
		return alg == "RS256" || alg == "PS256"
	case *ecdsa.PublicKey:
		return alg == "ES256" && raw.Curve == elliptic.P256()
	case ed25519.PublicKey:
		return alg == "EdDSA"
	}
	return false
}

// keyset holds the keys that the issuer published at one time, and the sessions
// that they verified.
type keyset struct {
	sum  [32]byte
	byID map[string][]*verifyKey // "" holds keys without a kid

	mu       sync.RWMutex
	verified map[[32]byte]*session // by the token's SHA-256
}

// parseKeys reads a JWK set. It skips keys that cannot verify a known algorithm; a set
// without a usable key is an error.
func parseKeys(body []byte) (*keyset, error) {
	set, err := jwk.Parse(body, jwk.WithStrictKeySetParsing(false), jwk.WithMaxKeys(maxIssuerKeys))
	if err != nil {
		return nil, fmt.Errorf("key set: %w", err)
	}
	s := &keyset{sum: sha256.Sum256(body), byID: make(map[string][]*verifyKey), verified: make(map[[32]byte]*session)}
	for i := range set.Len() {
		key, _ := set.Key(i)
		k := verifying(key)
		if k == nil {
			continue
		}
		kid, _ := key.KeyID()
		s.byID[kid] = append(s.byID[kid], k)
	}
	if len(s.byID) == 0 {
		return nil, fmt.Errorf("key set: none of its %d keys can verify %s", set.Len(), strings.Join(algorithmNames, ", "))
	}
	return s, nil
}

// verifying converts a signature key; it returns nil for other keys.
func verifying(key jwk.Key) *verifyKey {
	if use, ok := key.KeyUsage(); ok && use != "sig" {
		return nil
	}
	if ops, ok := key.KeyOps(); ok && !slices.Contains(ops, jwk.KeyOpVerify) {
		return nil
	}
	public, err := jwk.PublicKeyOf(key)
	if err != nil {
		return nil // unknown key type
	}
	k := &verifyKey{}
	if err := jwk.Export(public, &k.raw); err != nil {
		return nil
	}
	if alg, ok := key.Algorithm(); ok {
		if k.alg = alg.String(); k.alg == "Ed25519" { // its new name (RFC 9864)
			k.alg = "EdDSA"
		}
	}
	if !slices.ContainsFunc(algorithmNames, k.fits) {
		return nil
	}
	return k
}

// find returns the key that fits the token's kid and algorithm. Without a kid it
// returns the only key that fits the algorithm.
func (s *keyset) find(h header) *verifyKey {
	if s == nil {
		return nil
	}
	list := s.byID[h.kid]
	if h.kid == "" {
		list = slices.Concat(slices.Collect(maps.Values(s.byID))...)
	}
	var found *verifyKey
	for _, k := range list {
		switch {
		case !k.fits(h.alg):
		case found != nil:
			return nil // ambiguous
		default:
			found = k
		}
	}
	return found
}

func (s *keyset) session(sum [32]byte) *session {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.verified[sum]
}

// remember caches a session. A full cache is cleared first.
func (s *keyset) remember(sum [32]byte, v *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.verified) >= maxSessions {
		clear(s.verified)
	}
	s.verified[sum] = v
}
