package capability

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"

	"github.com/toolkeep/toolkeep/access/jwt"
)

const (
	maxKeyFile = 1 << 20 // bytes
	// maxPEM bounds the keys without a name, each of which is tried.
	maxPEM    = 10
	keysEvery = 5 * time.Second // between looks at the file of keys
)

// ReadKeys reads the public keys of outside issuers: PEM blocks (public keys and
// certificates), or a JWK set. Keys by kid; "" holds those without one.
func ReadKeys(file string) (map[string][]*jwt.Key, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	body, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	switch {
	case err != nil:
		return nil, err
	case len(body) > maxKeyFile:
		return nil, fmt.Errorf("%s has more than %d bytes", file, maxKeyFile)
	}
	keys, err := parseKeys(body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return keys, nil
}

func parseKeys(body []byte) (map[string][]*jwt.Key, error) {
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")) {
		keys, err := jwt.ParseSet(body)
		if err == nil && len(keys[""]) > maxPEM {
			err = fmt.Errorf("more than %d keys have no kid", maxPEM)
		}
		return keys, err
	}
	var keys []*jwt.Key
	for rest := body; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		public, err := jwt.PublicKey(block)
		if err != nil {
			return nil, err
		}
		k := jwt.NewKey(public)
		if k == nil {
			return nil, errors.New("a key is neither RSA, P-256 nor Ed25519")
		}
		if keys = append(keys, k); len(keys) > maxPEM {
			return nil, fmt.Errorf("it has more than %d PEM keys; use a JWK set, whose keys have names (kid)", maxPEM)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("it has neither a public key in PEM nor a JWK set")
	}
	return map[string][]*jwt.Key{"": keys}, nil
}

// keyFile is the file of outside issuers' keys, read again when it changes.
type keyFile struct {
	path    string
	now     func() time.Time
	fail    func(error) // told once of each error
	changed func()      // told of other keys than before, before look returns them

	mu      sync.Mutex
	looked  time.Time
	written time.Time
	size    int64
	failed  string
	keys    map[string][]*jwt.Key
}

// look reads the file if it has changed, at most every keysEvery. While it cannot be read,
// the last keys stay.
func (f *keyFile) look() (keys map[string][]*jwt.Key, err error) {
	if f.path == "" {
		return nil, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := f.now(); f.keys == nil || now.Sub(f.looked) >= keysEvery {
		f.looked = now
		err = f.read()
		if text := errText(err); text != f.failed {
			if f.failed = text; err != nil && f.fail != nil {
				f.fail(err)
			}
		}
	}
	return f.keys, err
}

func (f *keyFile) read() error {
	st, err := os.Stat(f.path)
	if err != nil || f.keys != nil && st.ModTime().Equal(f.written) && st.Size() == f.size {
		return err
	}
	keys, err := ReadKeys(f.path)
	if err != nil {
		return err
	}
	f.keys, f.written, f.size = keys, st.ModTime(), st.Size()
	if f.changed != nil {
		f.changed()
	}
	return nil
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// ownKey is one of the server's own keys.
type ownKey struct {
	id      string // RFC 7638 thumbprint
	alg     string
	made    time.Time
	public  []byte // PKIX
	sealed  []byte // PKCS #8, sealed
	key     *jwt.Key
	expires time.Time // a successor exists, and no token that the key signed is valid after this; else zero
}

// ownKeys are the server's keys by id.
type ownKeys map[string]*ownKey

// newest returns the key that signs, nil if there is none.
func (o ownKeys) newest(alg string) *ownKey {
	var found *ownKey
	for _, k := range o {
		if k.alg == alg && (found == nil || later(k, found)) {
			found = k
		}
	}
	return found
}

func later(a, b *ownKey) bool {
	if c := a.made.Compare(b.made); c != 0 {
		return c > 0
	}
	return a.id > b.id
}

// with returns a copy with a change, in which each key knows when its last token ends.
func (o ownKeys) with(life time.Duration, do func(ownKeys)) ownKeys {
	next := maps.Clone(o)
	if next == nil {
		next = ownKeys{}
	}
	do(next)
	for id, k := range next {
		own := *k
		own.expires = time.Time{}
		for _, s := range next {
			if until := s.made.Add(life + 2*jwt.Skew); s.alg == k.alg && later(s, k) && (own.expires.IsZero() || until.Before(own.expires)) {
				own.expires = until
			}
		}
		next[id] = &own
	}
	return next
}

// sorted returns the keys, the newest first.
func (o ownKeys) sorted() []*ownKey {
	return slices.SortedFunc(maps.Values(o), func(a, b *ownKey) int {
		if later(a, b) {
			return -1
		}
		return 1
	})
}

// generate makes a private key for an algorithm.
func generate(alg string) (crypto.Signer, error) {
	switch alg {
	case "RS256":
		return rsa.GenerateKey(rand.Reader, 2048)
	case "ES256":
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "EdDSA":
		_, k, err := ed25519.GenerateKey(rand.Reader)
		return k, err
	}
	return nil, fmt.Errorf("no token is signed by %q", alg)
}

func signature(alg string) jwa.SignatureAlgorithm {
	switch alg {
	case "ES256":
		return jwa.ES256()
	case "EdDSA":
		return jwa.EdDSA()
	}
	return jwa.RS256()
}

// thumbprint is the id of a public key (RFC 7638).
func thumbprint(public any) (string, error) {
	k, err := jwk.Import(public)
	if err != nil {
		return "", err
	}
	sum, err := k.Thumbprint(crypto.SHA256)
	return base64.RawURLEncoding.EncodeToString(sum), err
}
