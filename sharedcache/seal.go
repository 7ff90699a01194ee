package sharedcache

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// A sealed value begins with its form, other values belong to other builds, and the day of its key.
const (
	form   = 2
	header = 1 + 4
)

// NamingKey derives the key for the HMACs that are the names of a use's values from the secret.
func NamingKey(secret []byte, use string) ([]byte, error) {
	return hkdf.Key(sha256.New, secret, nil, "toolkeep "+use+" cache: names", 32)
}

// newSeal returns what seals a use's values on one day. Nonces are random, which is safe for 2^32 values of a day.
func newSeal(secret []byte, use string, day uint32) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, fmt.Sprintf("toolkeep %s cache: values of day %d", use, day), 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// dayKey is what seals on one day.
type dayKey struct {
	day  uint32
	aead cipher.AEAD
}

// keyOf returns what seals on a day. To derive it costs more than to seal.
func (c *Cache) keyOf(day uint32) (cipher.AEAD, error) {
	if k := c.last.Load(); k != nil && k.day == day {
		return k.aead, nil
	}
	aead, err := newSeal(c.config.Secret, c.use, day)
	if err == nil {
		c.last.Store(&dayKey{day, aead})
	}
	return aead, err
}

// seal encrypts a value for one name.
func (c *Cache) seal(plain []byte, name string) ([]byte, error) {
	day := uint32(c.config.Clock().Unix() / int64(24*time.Hour/time.Second))
	aead, err := c.keyOf(day)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 1, header+len(plain)+aead.Overhead())
	out[0] = form
	return aead.Seal(binary.BigEndian.AppendUint32(out, day), nil, plain, []byte(name)), nil
}

var errForeign = errors.New("the value under this name was not written by this deployment")

// open decrypts a value sealed for that name.
func (c *Cache) open(sealed []byte, name string) ([]byte, error) {
	if len(sealed) < header || sealed[0] != form {
		return nil, errForeign
	}
	aead, err := c.keyOf(binary.BigEndian.Uint32(sealed[1:]))
	if err != nil {
		return nil, err
	}
	plain, err := aead.Open(nil, nil, sealed[header:], []byte(name))
	if err != nil {
		return nil, errForeign
	}
	return plain, nil
}
