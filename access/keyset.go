package access

import (
	"crypto/sha256"
	"maps"
	"slices"
	"sync"

	"github.com/toolkeep/toolkeep/access/jwt"
)

// Limits of the verified tokens that are cached, and of their claims in bytes, of which one takes about so many beside its text.
const (
	maxSessions     = 8192
	maxSessionBytes = 16 << 20
	claimBytes      = 48
)

// keyset holds the keys that the issuer published at one time, and the sessions
// that they verified.
type keyset struct {
	sum  [32]byte
	byID map[string][]*jwt.Key // "" holds keys without a kid

	mu       sync.RWMutex
	verified map[[32]byte]*session // by the token's SHA-256
	bytes    int                   // of their claims
}

// parseKeys reads a JWK set. It skips keys that cannot verify a known algorithm; a set
// without a usable key is an error.
func parseKeys(body []byte) (*keyset, error) {
	byID, err := jwt.ParseSet(body)
	if err != nil {
		return nil, err
	}
	return &keyset{sum: sha256.Sum256(body), byID: byID, verified: make(map[[32]byte]*session)}, nil
}

// find returns the key that fits the token's kid and algorithm. Without a kid it
// returns the only key that fits the algorithm.
func (s *keyset) find(h jwt.Header) *jwt.Key {
	if s == nil {
		return nil
	}
	list := s.byID[h.KeyID]
	if h.KeyID == "" {
		list = slices.Concat(slices.Collect(maps.Values(s.byID))...)
	}
	var found *jwt.Key
	for _, k := range list {
		switch {
		case !k.Fits(h.Alg):
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
	if old := s.verified[sum]; old != nil {
		s.bytes -= old.size
	}
	if len(s.verified) >= maxSessions || s.bytes+v.size > maxSessionBytes {
		clear(s.verified)
		s.bytes = 0
	}
	s.verified[sum] = v
	s.bytes += v.size
}
