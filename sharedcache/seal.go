package sharedcache

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
)

// form is the first byte of a sealed value; other values belong to other builds.
const form = 1

// NamingKey derives the key for the HMACs that are the names of a use's values from the secret.
func NamingKey(secret []byte, use string) ([]byte, error) {
	return hkdf.Key(sha256.New, secret, nil, "toolkeep "+use+" cache: names", 32)
}

// newSeal returns what seals a use's values. Nonces are random, which is safe for 2^32 values under one secret.
func newSeal(secret []byte, use string) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, "toolkeep "+use+" cache: values", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// seal encrypts a value for one name.
func (c *Cache) seal(plain []byte, name string) []byte {
	out := make([]byte, 1, 1+len(plain)+c.aead.Overhead())
	out[0] = form
	return c.aead.Seal(out, nil, plain, []byte(name))
}

var errForeign = errors.New("the value under this name was not written by this deployment")

// open decrypts a value sealed for that name.
func (c *Cache) open(sealed []byte, name string) ([]byte, error) {
	if len(sealed) == 0 || sealed[0] != form {
		return nil, errForeign
	}
	plain, err := c.aead.Open(nil, nil, sealed[1:], []byte(name))
	if err != nil {
		return nil, errForeign
	}
	return plain, nil
}
