// Package jwt has what every verifier of JSON Web Tokens here has in common: the accepted
// algorithms, the header, and keys that only verify what fits their type.
package jwt

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jws"

	"github.com/toolkeep/toolkeep/canon"
)

const (
	// MaxToken is the longest token in bytes.
	MaxToken = 16 << 10
	// Skew is the tolerated difference between an issuer's clock and ours.
	Skew = 30 * time.Second
	// MaxKeys bounds a key set.
	MaxKeys = 100

	maxKeyID = 1024 // bytes
)

// algorithms lists the accepted signature algorithms: neither "none" nor any with a
// shared secret, since a public key could be used as that secret.
var algorithms = map[string]jwa.SignatureAlgorithm{
	"RS256": jwa.RS256(), "PS256": jwa.PS256(), "ES256": jwa.ES256(), "EdDSA": jwa.EdDSA(),
}

// Algorithms are the names of the accepted algorithms, sorted.
var Algorithms = slices.Sorted(maps.Keys(algorithms))

// Key is a key for signatures.
type Key struct {
	alg string // the only algorithm it may be used with; "" is any that fits
	raw any    // *rsa.PublicKey, *ecdsa.PublicKey, ed25519.PublicKey
}

// NewKey returns a public key that verifies each algorithm of its type; nil if there is
// none.
func NewKey(public any) *Key {
	k := &Key{raw: public}
	if !slices.ContainsFunc(Algorithms, k.Fits) {
		return nil
	}
	return k
}

// KeyOf converts a signature key; it returns nil for other keys.
func KeyOf(key jwk.Key) *Key {
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
	k := &Key{}
	if err := jwk.Export(public, &k.raw); err != nil {
		return nil
	}
	if alg, ok := key.Algorithm(); ok {
		if k.alg = alg.String(); k.alg == "Ed25519" { // its new name (RFC 9864)
			k.alg = "EdDSA"
		}
	}
	if !slices.ContainsFunc(Algorithms, k.Fits) {
		return nil
	}
	return k
}

// Fits reports whether the key may verify an algorithm. The key's type decides,
// never the token.
func (k *Key) Fits(alg string) bool {
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

// Verify returns the payload of a token whose header names an algorithm that fits the key.
func (k *Key) Verify(token []byte, alg string) ([]byte, error) {
	if !k.Fits(alg) {
		return nil, errors.New("the key does not fit the algorithm")
	}
	return jws.Verify(token, jws.WithKey(algorithms[alg], k.raw), jws.WithAlgorithmMatch(true))
}

// ParseSet reads a JWK set, or a single JWK, into keys by kid; "" holds keys without one. It
// skips keys that cannot verify a known algorithm; a set without a usable key is an error.
func ParseSet(body []byte) (map[string][]*Key, error) {
	set, err := jwk.Parse(body, jwk.WithStrictKeySetParsing(false), jwk.WithMaxKeys(MaxKeys))
	if err != nil {
		return nil, fmt.Errorf("key set: %w", err)
	}
	byID := make(map[string][]*Key)
	for i := range set.Len() {
		key, _ := set.Key(i)
		k := KeyOf(key)
		if k == nil {
			continue
		}
		kid, _ := key.KeyID()
		byID[kid] = append(byID[kid], k)
	}
	if len(byID) == 0 {
		return nil, fmt.Errorf("key set: none of its %d keys can verify %s", set.Len(), strings.Join(Algorithms, ", "))
	}
	return byID, nil
}

// Header holds the relevant fields of a token's header.
type Header struct{ Alg, KeyID string }

// ReadHeader checks a token's header. Keys and key URLs in it (jwk, jku, x5u) are
// ignored; critical extensions are refused. types are the accepted values of typ in lower
// case, without application/; a header need not have it.
func ReadHeader(token string, types ...string) (Header, error) {
	bad := func(format string, args ...any) (Header, error) { return Header{}, fmt.Errorf(format, args...) }
	first, _, _ := strings.Cut(token, ".")
	raw, err := base64.RawURLEncoding.Strict().DecodeString(first)
	if err != nil {
		return bad("its header is not base64url")
	}
	m, err := canon.ParseObject(raw, canon.Limits{Depth: 8})
	if err != nil {
		return bad("its header is not a JSON object")
	}
	var h Header
	h.Alg, _ = m["alg"].(string)
	if _, ok := algorithms[h.Alg]; !ok {
		return bad("it must be signed by one of %s", strings.Join(Algorithms, ", "))
	}
	if kid, there := m["kid"]; there {
		var ok bool
		if h.KeyID, ok = kid.(string); !ok || h.KeyID == "" || len(h.KeyID) > maxKeyID {
			return bad("its kid must be text of 1 to %d bytes", maxKeyID)
		}
	}
	for _, name := range []string{"crit", "b64", "zip"} {
		if _, there := m[name]; there {
			return bad("its header has %s, which is not supported", name)
		}
	}
	if typ, there := m["typ"]; there {
		s, _ := typ.(string)
		if !slices.Contains(types, strings.TrimPrefix(strings.ToLower(s), "application/")) {
			return bad("its typ must be one of %s", strings.Join(types, ", "))
		}
	}
	return h, nil
}

// ErrNoClaim means that a claim is missing.
var ErrNoClaim = errors.New("it is missing")

// Moment reads a claim that is a time in seconds since 1970.
func Moment(claims map[string]any, claim string) (time.Time, error) {
	v, there := claims[claim]
	if !there {
		return time.Time{}, fmt.Errorf("the token needs the claim %s: %w", claim, ErrNoClaim)
	}
	n, _ := v.(json.Number)
	sec, err := strconv.ParseFloat(n.String(), 64)
	if err != nil || sec < 0 || sec > 253_402_300_799 { // end of the year 9999
		return time.Time{}, fmt.Errorf("the token's claim %s must be a number of seconds since 1970", claim)
	}
	return time.Unix(int64(sec), 0), nil
}
