package vault

import (
	"container/list"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
)

const (
	// sealTransit is the first byte of values sealed by Transit: then the length of the wrapped data key (2 bytes),
	// that key as Vault wrote it, a nonce of 12 bytes, the ciphertext and the tag of 16.
	sealTransit = 2
	sealTimeout = 30 * time.Second

	keyUses   = 1 << 20 // seals per data key; random nonces are safe up to 2^32
	keyLife   = time.Hour
	keysKept  = 256 // unwrapped data keys
	openFresh = 10 * time.Minute
)

// Transit seals with envelope encryption: Vault's transit engine makes and wraps a data key, and AES-256-GCM under
// that key encrypts. Plaintext never leaves the process, and sealing needs a request to Vault only once per hour or
// million seals. Unwrapped data keys stay in memory for ten minutes. It is safe for concurrent use.
//
// The policy needs update on transit/datakey/plaintext/<key> and transit/decrypt/<key>.
type Transit struct {
	client     *client
	mount, key string

	mu      sync.Mutex
	seal    *dataKey
	pending *pendingKey
	opened  map[string]*list.Element // by wrapped key
	recent  *list.List               // of *dataKey, latest first
}

type dataKey struct {
	wrapped string
	aead    cipher.AEAD
	since   time.Time
	uses    int
}

type pendingKey struct {
	done chan struct{}
	key  *dataKey
	err  error
}

// Transit returns a sealer with the named key of the transit engine; mount "" is transit.
func (s *Store) Transit(mount, key string) (*Transit, error) {
	if mount == "" {
		mount = "transit"
	}
	mount = trimmed(mount)
	if cleanPath(mount) == "" || cleanPath(key) == "" || strings.Contains(key, "/") {
		return nil, wrong("vault.transit_key and vault.transit_mount must name a key and the mount of its transit engine, such as toolkeep and transit")
	}
	return &Transit{client: s.client, mount: mount, key: key, opened: make(map[string]*list.Element), recent: list.New()}, nil
}

// Key returns the name of the transit key.
func (t *Transit) Key() string { return t.key }

// Seal encrypts plain and binds it to context: Open needs the same context.
//
// E3402 Vault refuses, E3403 Vault is unreachable.
func (t *Transit) Seal(plain, context []byte) ([]byte, error) {
	k, err := t.sealKey()
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, 3+len(k.wrapped)+len(plain)+28)
	out = append(out, sealTransit)
	out = binary.BigEndian.AppendUint16(out, uint16(len(k.wrapped)))
	out = append(out, k.wrapped...)
	return k.aead.Seal(out, nil, plain, bound(out, context)), nil
}

// Open decrypts what Seal made.
//
// E3999 it was changed or belongs to another context, E3402 Vault refuses, for example because the key is gone;
// E3403 Vault is unreachable.
func (t *Transit) Open(sealed, context []byte) ([]byte, error) {
	if len(sealed) < 3 || sealed[0] != sealTransit {
		return nil, unsealable(errors.New("it was not sealed by Vault's transit"))
	}
	head := 3 + int(binary.BigEndian.Uint16(sealed[1:]))
	if len(sealed) < head+28 {
		return nil, unsealable(errors.New("too short"))
	}
	k, err := t.openKey(string(sealed[3:head]))
	if err != nil {
		return nil, err
	}
	plain, err := k.aead.Open(nil, nil, sealed[head:], bound(sealed[:head], context))
	if err != nil {
		return nil, unsealable(err)
	}
	return plain, nil
}

// bound authenticates the head as well.
func bound(head, context []byte) []byte { return slices.Concat(head, context) }

func unsealable(why error) error {
	return toolkeep.NewError(toolkeep.InternalError, "what was sealed cannot be opened: it was changed, or another key sealed it").Because(why)
}

// sealKey returns the current data key.
func (t *Transit) sealKey() (*dataKey, error) {
	t.mu.Lock()
	if k := t.seal; k != nil && k.uses < keyUses && t.client.config.Now().Sub(k.since) < keyLife {
		k.uses++
		t.mu.Unlock()
		return k, nil
	}
	f := t.pending
	if f == nil {
		f = &pendingKey{done: make(chan struct{})}
		t.pending = f
		t.mu.Unlock()
		f.key, f.err = t.newKey()
		t.mu.Lock()
		t.pending = nil
		if f.err == nil {
			t.seal = f.key
			t.keep(f.key)
		}
		t.mu.Unlock()
		close(f.done)
		return f.key, f.err
	}
	t.mu.Unlock()
	<-f.done
	return f.key, f.err
}

func (t *Transit) newKey() (*dataKey, error) {
	ctx, cancel := context.WithTimeout(t.client.life, sealTimeout)
	defer cancel()
	return t.fetch(ctx, "make a data key with "+t.mount+"/"+t.key,
		put(ctx, t.mount+"/datakey/plaintext/"+t.key, map[string]any{"bits": 256}), "")
}

// openKey unwraps a data key.
func (t *Transit) openKey(wrapped string) (*dataKey, error) {
	if !strings.HasPrefix(wrapped, "vault:v") {
		return nil, unsealable(errors.New("its data key is not one of Vault's"))
	}
	t.mu.Lock()
	if el, ok := t.opened[wrapped]; ok {
		k := el.Value.(*dataKey)
		if t.client.config.Now().Sub(k.since) < openFresh || k == t.seal {
			t.recent.MoveToFront(el)
			t.mu.Unlock()
			return k, nil
		}
		t.drop(el)
	}
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.client.life, sealTimeout)
	defer cancel()
	k, err := t.fetch(ctx, "open a data key with "+t.mount+"/"+t.key,
		put(ctx, t.mount+"/decrypt/"+t.key, map[string]any{"ciphertext": wrapped}), wrapped)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	t.keep(k)
	t.mu.Unlock()
	return k, nil
}

// fetch requests a data key; wrapped is "" for a new one.
func (t *Transit) fetch(ctx context.Context, what string, r request, wrapped string) (*dataKey, error) {
	b, err := t.client.do(ctx, what, r)
	if err != nil {
		if e := toolkeep.AsError(err); e.Code == toolkeep.SecretNotFound { // the key or the engine does not exist
			e.Code = toolkeep.SecretAccessDenied
		}
		return nil, err
	}
	defer clear(b)
	var a struct {
		Data struct {
			Plaintext  string `json:"plaintext"`
			Ciphertext string `json:"ciphertext"`
		} `json:"data"`
	}
	if json.Unmarshal(b, &a) != nil {
		return nil, malformed()
	}
	if wrapped == "" {
		wrapped = a.Data.Ciphertext
	}
	key, err := base64.StdEncoding.DecodeString(a.Data.Plaintext)
	defer clear(key)
	if err != nil || len(key) != 32 || !strings.HasPrefix(wrapped, "vault:v") || len(wrapped) > 1<<15 {
		return nil, malformed()
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, toolkeep.AsError(err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, toolkeep.AsError(err)
	}
	return &dataKey{wrapped: wrapped, aead: aead, since: t.client.config.Now(), uses: 1}, nil
}

// keep stores an unwrapped key. t.mu is held.
func (t *Transit) keep(k *dataKey) {
	if el, ok := t.opened[k.wrapped]; ok {
		t.drop(el)
	}
	t.opened[k.wrapped] = t.recent.PushFront(k)
	if t.recent.Len() > keysKept {
		t.drop(t.recent.Back())
	}
}

func (t *Transit) drop(el *list.Element) {
	delete(t.opened, t.recent.Remove(el).(*dataKey).wrapped)
}
