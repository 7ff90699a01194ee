package secret

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/toolkeep/toolkeep"
)

const (
	keyBytes = 32
	// sealV1 is the first byte of what Seal makes: AES-256-GCM, then a random
	// nonce of 12 bytes, the ciphertext and the tag of 16.
	sealV1   = 1
	overhead = 1 + 12 + 16
)

// Sealer encrypts what must be unreadable at rest. It is safe for concurrent use.
type Sealer struct{ aead cipher.AEAD }

// OpenSealer reads the key of 32 bytes from keyFile, and makes it with mode 0600
// if there is none. Of several processes that start at once all get the same key.
//
// E3403 if it cannot be read or made, has another size, or can be read or
// written by others than its owner.
func OpenSealer(keyFile string) (*Sealer, error) {
	key, err := readKey(keyFile)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeKey(keyFile); err == nil {
			key, err = readKey(keyFile)
		}
	}
	if err != nil {
		var known *toolkeep.Error
		if errors.As(err, &known) {
			return nil, known
		}
		return nil, refuse(toolkeep.SecretRetrievalFailed, "the key file %s can be neither read nor made", keyFile).Because(err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, toolkeep.AsError(err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, toolkeep.AsError(err)
	}
	return &Sealer{aead: aead}, nil
}

func readKey(keyFile string) ([]byte, error) {
	f, err := os.Open(keyFile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if fi.Mode().Perm()&0o077 != 0 {
		return nil, refuse(toolkeep.SecretRetrievalFailed, "the key file %s is open to others than its owner (mode %04o): chmod 600 it, and make a new key if somebody may have read it", keyFile, fi.Mode().Perm())
	}
	key, err := io.ReadAll(io.LimitReader(f, keyBytes+1))
	if err != nil {
		return nil, err
	}
	if len(key) != keyBytes {
		return nil, refuse(toolkeep.SecretRetrievalFailed, "the key file %s does not hold a key of 32 bytes; put the right one back, without it waiting calls cannot be read", keyFile)
	}
	return key, nil
}

// makeKey writes the whole key under another name and then links it, so that no
// reader sees half a key and the first of several makers wins.
func makeKey(keyFile string) error {
	dir := filepath.Dir(keyFile)
	tmp, err := os.CreateTemp(dir, ".key-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	key := make([]byte, keyBytes)
	rand.Read(key) // never fails
	_, err = tmp.Write(key)
	if err == nil {
		err = tmp.Sync()
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if err := os.Link(tmp.Name(), keyFile); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Seal encrypts plain and binds it to context, such as tenant and call id:
// Open wants the same. Context is not kept in the result.
func (s *Sealer) Seal(plain, context []byte) ([]byte, error) {
	out := make([]byte, 1, len(plain)+overhead)
	out[0] = sealV1
	return s.aead.Seal(out, nil, plain, bound(context)), nil
}

// Open decrypts what Seal made. E3999 if it was changed, belongs to another
// context or was sealed under another key.
func (s *Sealer) Open(sealed, context []byte) ([]byte, error) {
	if len(sealed) < overhead || sealed[0] != sealV1 {
		return nil, unsealable(errors.New("too short, or of an unknown version"))
	}
	plain, err := s.aead.Open(nil, nil, sealed[1:], bound(context))
	if err != nil {
		return nil, unsealable(err)
	}
	return plain, nil
}

// bound puts the version under the seal as well.
func bound(context []byte) []byte {
	return append([]byte{sealV1}, context...)
}

func unsealable(cause error) error {
	return toolkeep.NewError(toolkeep.InternalError, "the kept arguments of this call cannot be opened: they were changed, or the server's key file is another one").Because(cause)
}
