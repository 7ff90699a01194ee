package cache

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"sync"
)

// form is the first byte of a sealed answer; other values belong to other builds.
const form = 1

// seals derives keys and seals answers from one secret. Nonces are random, which is safe for 2^32
// answers under one secret.
type seals struct {
	pool *sync.Pool // of *hasher
	aead cipher.AEAD
}

func newSeals(secret []byte) (*seals, error) {
	if secret == nil {
		secret = make([]byte, 32)
		if _, err := rand.Read(secret); err != nil {
			return nil, err
		}
	}
	naming, err := hkdf.Key(sha256.New, secret, nil, "toolkeep search cache: names", 32)
	if err != nil {
		return nil, err
	}
	sealing, err := hkdf.Key(sha256.New, secret, nil, "toolkeep search cache: answers", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(sealing)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return &seals{pool: hashers(naming), aead: aead}, err
}

// seal encrypts an answer for one key.
func (s *seals) seal(plain []byte, name string) []byte {
	out := make([]byte, 1, 1+len(plain)+s.aead.Overhead())
	out[0] = form
	return s.aead.Seal(out, nil, plain, []byte(name))
}

var errForeign = errors.New("the entry under this key was not written by this deployment")

// open decrypts a value sealed for that key.
func (s *seals) open(sealed []byte, name string) ([]byte, error) {
	if len(sealed) == 0 || sealed[0] != form {
		return nil, errForeign
	}
	plain, err := s.aead.Open(nil, nil, sealed[1:], []byte(name))
	if err != nil {
		return nil, errForeign
	}
	return plain, nil
}
