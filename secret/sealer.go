package secret

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/toolkeep/toolkeep"
)

const (
	keyBytes   = 32
	maxKeys    = 100
	maxKeyFile = 16 << 10
	// sealV1 is the first byte of values sealed before there were several keys: AES-256-GCM, then a random nonce of
	// 12 bytes, the ciphertext and the tag of 16.
	sealV1 = 1
	// sealKeyed is the first byte of values sealed now: then the key's id of 8 bytes, nonce, ciphertext and tag. 2
	// is Vault's transit.
	sealKeyed = 3
	idBytes   = 8
	overhead  = 12 + 16
)

// keyCheck is how often a sealer checks its key file for changes.
const keyCheck = time.Second

// Sealer encrypts data at rest. It has one or more keys: the first seals, all open. It is safe for concurrent use.
type Sealer struct {
	file    string // "" if the keys are not in a file
	ring    atomic.Pointer[ring]
	checked atomic.Int64 // last check of the file, Unix milliseconds
	mu      sync.Mutex   // held while the file is read or written
	stamp   stamp        // of the file as last read
}

// ring is a list of keys; the first seals.
type ring []sealKey

type sealKey struct {
	id   [idBytes]byte
	key  []byte
	aead cipher.AEAD
}

// stamp detects a changed file.
type stamp struct {
	at   time.Time
	size int64
}

// OpenSealer reads the keys from keyFile, or creates it with one key and mode 0600. Processes that start at the
// same time all get the same key.
//
// The file has one key per line, 32 bytes as base64 or hex, and the first one seals; or it is a single key of 32
// raw bytes. A changed file is read again.
//
// E3403 if the file cannot be read or created, has other content, or is readable or writable by others than its
// owner.
func OpenSealer(keyFile string) (*Sealer, error) {
	s := &Sealer{file: keyFile}
	err := s.load()
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeKey(keyFile); err == nil {
			err = s.load()
		}
	}
	if err != nil {
		var known *toolkeep.Error
		if errors.As(err, &known) {
			return nil, known
		}
		return nil, refuse(toolkeep.SecretRetrievalFailed, "the key file %s can be neither read nor made", keyFile).Because(err)
	}
	return s, nil
}

// ParseSealer makes a Sealer from keys as text, as in an environment variable: base64 or hex, separated by spaces
// or commas; the first one seals. E3403.
func ParseSealer(text string) (*Sealer, error) {
	keys, err := parseKeys([]byte(text))
	if err != nil {
		return nil, refuse(toolkeep.SecretRetrievalFailed, "the sealing key cannot be used: %s", err)
	}
	s := &Sealer{}
	s.ring.Store(&keys)
	return s, nil
}

// NewSealer makes a Sealer with a new key held only in memory: when it is gone, nothing can open its values.
func NewSealer() (*Sealer, error) {
	key := make([]byte, keyBytes)
	rand.Read(key) // never fails
	k, err := newSealKey(key)
	s := &Sealer{}
	s.ring.Store(&ring{k})
	return s, err
}

// load reads the file. s.mu is held, or s is not shared yet.
func (s *Sealer) load() error {
	text, at, err := readKeyFile(s.file)
	if err != nil {
		return err
	}
	defer clear(text)
	keys, err := parseKeys(text)
	if err != nil {
		return refuse(toolkeep.SecretRetrievalFailed, "the key file %s cannot be used: %s; put the right one back, without it what was sealed cannot be read", s.file, err)
	}
	s.ring.Store(&keys)
	s.stamp = at
	return nil
}

func readKeyFile(keyFile string) ([]byte, stamp, error) {
	f, err := os.Open(keyFile)
	if err != nil {
		return nil, stamp{}, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, stamp{}, err
	}
	if fi.Mode().Perm()&0o077 != 0 {
		return nil, stamp{}, refuse(toolkeep.SecretRetrievalFailed, "the key file %s is open to others than its owner (mode %04o): chmod 600 it, and make a new key if others may have read it", keyFile, fi.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	return text, stamp{fi.ModTime(), fi.Size()}, err
}

// parseKeys parses one key of 32 raw bytes, or several as text.
func parseKeys(text []byte) (ring, error) {
	if len(text) == keyBytes {
		k, err := newSealKey(bytes.Clone(text))
		return ring{k}, err
	}
	var keys ring
	for _, word := range bytes.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\r' || r == '\t' }) {
		raw, ok := decodeKey(string(word))
		if !ok {
			return nil, errors.New("it must hold keys of 32 bytes, each as base64 or hex")
		}
		k, err := newSealKey(raw)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(keys, func(o sealKey) bool { return o.id == k.id }) {
			keys = append(keys, k)
		}
	}
	switch {
	case len(keys) == 0:
		return nil, errors.New("it holds no key")
	case len(keys) > maxKeys:
		return nil, errors.New("it holds more than 100 keys")
	}
	return keys, nil
}

func decodeKey(word string) ([]byte, bool) {
	if raw, err := hex.DecodeString(word); err == nil && len(raw) == keyBytes {
		return raw, true
	}
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		if raw, err := enc.DecodeString(word); err == nil && len(raw) == keyBytes {
			return raw, true
		}
	}
	return nil, false
}

// newSealKey identifies the key by a hash, which reveals nothing of it.
func newSealKey(key []byte) (sealKey, error) {
	sum := sha256.Sum256(append([]byte("toolkeep seal key\x00"), key...))
	k := sealKey{id: [idBytes]byte(sum[:idBytes]), key: key}
	block, err := aes.NewCipher(key)
	if err != nil {
		return k, err
	}
	k.aead, err = cipher.NewGCMWithRandomNonce(block)
	return k, err
}

// makeKey writes the whole key under another name and then links it, so that readers never see half a key and the
// first of several writers wins.
func makeKey(keyFile string) error {
	key := make([]byte, keyBytes)
	rand.Read(key) // never fails
	tmp, err := writeBeside(keyFile, key)
	if err != nil {
		return err
	}
	defer os.Remove(tmp)
	if err := os.Link(tmp, keyFile); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(filepath.Dir(keyFile))
}

// writeBeside writes and syncs a file with mode 0600 into the folder of path.
func writeBeside(path string, content []byte) (string, error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".key-*")
	if err != nil {
		return "", err
	}
	_, err = tmp.Write(content)
	if err == nil {
		err = tmp.Sync()
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		os.Remove(tmp.Name())
		return "", err
	}
	return tmp.Name(), nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// AddKey adds a new key, which seals from now on; the old keys stay in the file and still open. It returns the new
// key's id.
//
// E3403 if the keys are not in a file, or it cannot be written.
func (s *Sealer) AddKey() (string, error) {
	if s.file == "" {
		return "", refuse(toolkeep.SecretRetrievalFailed, "the sealing key comes from the environment: put a new key before the others there, restart, and reseal without a new key")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	unlock, err := lockFolder(filepath.Dir(s.file))
	if err == nil {
		defer unlock()
		err = s.addKey()
	}
	if err != nil {
		var known *toolkeep.Error
		if errors.As(err, &known) {
			return "", known
		}
		return "", refuse(toolkeep.SecretRetrievalFailed, "the key file %s cannot be written; put a new key, 32 random bytes as base64, on a line before the others, and reseal without a new key", s.file).Because(err)
	}
	return s.Newest(), nil
}

// addKey replaces the file as a whole. s.mu and the folder's lock are held, so that no process drops another's key.
func (s *Sealer) addKey() error {
	if err := s.load(); err != nil {
		return err
	}
	old := *s.ring.Load()
	if len(old) >= maxKeys {
		return refuse(toolkeep.SecretRetrievalFailed, "the key file %s holds %d keys; take out those that seal nothing any more", s.file, len(old))
	}
	key := make([]byte, keyBytes)
	rand.Read(key) // never fails
	var b strings.Builder
	for _, k := range append([][]byte{key}, keysOf(old)...) {
		b.WriteString(base64.StdEncoding.EncodeToString(k))
		b.WriteByte('\n')
	}
	tmp, err := writeBeside(s.file, []byte(b.String()))
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, s.file); err != nil {
		os.Remove(tmp)
		return err
	}
	if err := syncDir(filepath.Dir(s.file)); err != nil {
		return err
	}
	return s.load()
}

func keysOf(r ring) [][]byte {
	all := make([][]byte, len(r))
	for i, k := range r {
		all[i] = k.key
	}
	return all
}

// lockFolder locks out other processes until unlock; the lock ends with the process.
func lockFolder(dir string) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX); err != nil {
		d.Close()
		return nil, err
	}
	return func() { d.Close() }, nil
}

// Newest returns the id of the sealing key, in hex.
func (s *Sealer) Newest() string {
	id := (*s.ring.Load())[0].id
	return hex.EncodeToString(id[:])
}

// IDs returns the ids of all keys, the sealing one first. An id is a hash that reveals nothing of its key.
func (s *Sealer) IDs() (ids []string) {
	for _, k := range s.keys() {
		ids = append(ids, hex.EncodeToString(k.id[:]))
	}
	return ids
}

// Keys returns the number of keys.
func (s *Sealer) Keys() int { return len(*s.ring.Load()) }

// keys returns the current keys; a changed file is read again.
func (s *Sealer) keys() ring {
	now := time.Now().UnixMilli()
	last := s.checked.Load()
	if s.file == "" || now-last < keyCheck.Milliseconds() || !s.checked.CompareAndSwap(last, now) {
		return *s.ring.Load()
	}
	return s.reread()
}

// reread reads the file if it has changed. If that fails, the keys stay.
func (s *Sealer) reread() ring {
	if s.file != "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		if fi, err := os.Stat(s.file); err == nil && (stamp{fi.ModTime(), fi.Size()}) != s.stamp {
			_ = s.load()
		}
	}
	return *s.ring.Load()
}

// Seal encrypts plain and binds it to context, such as tenant and call id. Open needs the same context, which is
// not in the result.
func (s *Sealer) Seal(plain, context []byte) ([]byte, error) {
	k := s.keys()[0]
	out := make([]byte, 0, len(plain)+1+idBytes+overhead)
	out = append(append(out, sealKeyed), k.id[:]...)
	return k.aead.Seal(out, nil, plain, bound(out, context)), nil
}

// Open decrypts what Seal made with any of its keys. E3999 if it was changed, belongs to another context or was
// sealed under a missing key.
func (s *Sealer) Open(sealed, context []byte) ([]byte, error) {
	switch {
	case len(sealed) >= 1+overhead && sealed[0] == sealV1:
		var err error
		for _, k := range s.keys() { // it does not name its key; a wrong one never opens it
			var plain []byte
			if plain, err = k.aead.Open(nil, nil, sealed[1:], bound(sealed[:1], context)); err == nil {
				return plain, nil
			}
		}
		return nil, unsealable(err)
	case len(sealed) >= 1+idBytes+overhead && sealed[0] == sealKeyed:
		head := sealed[:1+idBytes]
		k, ok := s.key([idBytes]byte(head[1:]))
		if !ok {
			return nil, unsealable(errors.New("the key " + hex.EncodeToString(head[1:]) + " is not there"))
		}
		plain, err := k.aead.Open(nil, nil, sealed[len(head):], bound(head, context))
		if err != nil {
			return nil, unsealable(err)
		}
		return plain, nil
	}
	return nil, unsealable(errors.New("too short, or of an unknown version"))
}

// key finds a key, also one just added to the file.
func (s *Sealer) key(id [idBytes]byte) (sealKey, bool) {
	for _, keys := range []func() ring{s.keys, s.reread} {
		all := keys()
		if i := slices.IndexFunc(all, func(k sealKey) bool { return k.id == id }); i >= 0 {
			return all[i], true
		}
	}
	return sealKey{}, false
}

// Opens implements Opener. A value sealed before keys had ids is assumed to open.
func (s *Sealer) Opens(sealed []byte) bool {
	switch {
	case len(sealed) > idBytes && sealed[0] == sealKeyed:
		_, ok := s.key([idBytes]byte(sealed[1 : 1+idBytes]))
		return ok
	case len(sealed) > 0 && sealed[0] == sealV1:
		return true
	}
	return false
}

// Stale reports whether a value was sealed with another key than the current one, so that it needs resealing.
func (s *Sealer) Stale(sealed []byte) bool {
	newest := s.keys()[0].id
	return len(sealed) < 1+idBytes || sealed[0] != sealKeyed || !bytes.Equal(sealed[1:1+idBytes], newest[:])
}

// bound authenticates the bytes before the nonce as well.
func bound(head, context []byte) []byte { return slices.Concat(head, context) }

func unsealable(cause error) error {
	return toolkeep.NewError(toolkeep.InternalError, "the sealed data cannot be opened: it was changed, or it was sealed with another key").Because(cause)
}
