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

// The text of a key is tk_<id>_<secret><sum>: 12 characters of lower-case base32,
// 43 of base62 (256 random bits) and 4 of base62 that catch typing errors.
const (
	keyPrefix   = "tk_"
	idChars     = 12
	secretChars = 43
	sumChars    = 4
	keyChars    = len(keyPrefix) + idChars + 1 + secretChars + sumChars
)

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// NewKey makes a key from what spec says of Tenant, Subject, Name, Roles, Scope,
// CreatedBy and ExpiresAt; the rest of spec is not read. The text is what the
// caller sends as bearer; it cannot be had again.
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

// inBase62 writes n with leading zeros.
func inBase62(n *big.Int, chars int) string {
	out := make([]byte, chars)
	base, digit := big.NewInt(int64(len(base62))), new(big.Int)
	for i := chars - 1; i >= 0; i-- {
		n.DivMod(n, base, digit)
		out[i] = base62[digit.Int64()]
	}
	return string(out)
}

// sum is the checksum of a key's text before it.
func sum(text string) string {
	n := crc32.ChecksumIEEE([]byte(text))
	var out [sumChars]byte
	for i := range out {
		out[i] = base62[n%uint32(len(base62))]
		n /= uint32(len(base62))
	}
	return string(out[:])
}

// parseKey takes a key's text apart; ok is false if it cannot be a key.
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
