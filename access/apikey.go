package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"hash/crc32"
	"math/big"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
)

// A key's text is tk_<id>_<secret><sum>: 12 characters of lower-case base32, 43 of
// base62 (256 random bits) and a 4-character base62 checksum against typos.
const (
	keyPrefix   = "tk_"
	idChars     = 12
	secretChars = 43
	sumChars    = 4
	keyChars    = len(keyPrefix) + idChars + 1 + secretChars + sumChars
)

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// NewKey returns a new key with Tenant, Subject, Name, Roles, Scope, CreatedBy and
// ExpiresAt of spec; other fields of spec are ignored. text is the bearer value to
// send; it cannot be recovered later.
func NewKey(spec toolkeep.APIKey, now time.Time) (key toolkeep.APIKey, text string) {
	var id [8]byte
	rand.Read(id[:])
	var secret [32]byte
	rand.Read(secret[:])
	name := strings.ToLower(base32.StdEncoding.EncodeToString(id[:]))[:idChars]
	word := inBase62(new(big.Int).SetBytes(secret[:]), secretChars)

	key = spec
	key.ID, key.CreatedAt, key.RevokedAt = name, now.UTC(), time.Time{}
	key.Hash = sha256.Sum256([]byte(word))
	text = keyPrefix + name + "_" + word
	return key, text + sum(text)
}

// inBase62 formats n with leading zeros.
func inBase62(n *big.Int, chars int) string {
	out := make([]byte, chars)
	base, digit := big.NewInt(int64(len(base62))), new(big.Int)
	for i := chars - 1; i >= 0; i-- {
		n.DivMod(n, base, digit)
		out[i] = base62[digit.Int64()]
	}
	return string(out)
}

// sum returns the checksum of the preceding part of a key's text.
func sum(text string) string {
	n := crc32.ChecksumIEEE([]byte(text))
	var out [sumChars]byte
	for i := range out {
		out[i] = base62[n%uint32(len(base62))]
		n /= uint32(len(base62))
	}
	return string(out[:])
}

// parseKey splits a key's text; ok is false if it is not well formed.
func parseKey(text string) (id, secret string, ok bool) {
	if len(text) != keyChars || text[:len(keyPrefix)] != keyPrefix {
		return "", "", false
	}
	body, check := text[:keyChars-sumChars], text[keyChars-sumChars:]
	id, secret = body[len(keyPrefix):len(keyPrefix)+idChars], body[len(keyPrefix)+idChars+1:]
	if body[len(keyPrefix)+idChars] != '_' || sum(body) != check {
		return "", "", false
	}
	return id, secret, true
}
