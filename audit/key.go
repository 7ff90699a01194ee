package audit

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
)

// KeyKind is the kind of the documents with the keys that sign checkpoints. The id is that of the key: the first 8
// bytes of the SHA-256 of its public part, in hex.
const KeyKind = "audit_key"

// Sealer encrypts values at rest.
type Sealer interface {
	Seal(plain, context []byte) ([]byte, error)
	Open(sealed, context []byte) ([]byte, error)
}

// MayOpenLater reports whether an error of Sealer.Open may pass, as that of a Vault that does not answer. E3999 is certain: the
// sealing key is not there, or what it sealed was changed.
func MayOpenLater(err error) bool {
	var known *toolkeep.Error
	return err != nil && (!errors.As(err, &known) || known.Code != toolkeep.InternalError)
}

// SigningKey is the public part of a key that signs checkpoints.
type SigningKey struct {
	ID        string    `json:"id"`
	Public    string    `json:"public" doc:"Ed25519, 32 bytes in base64"`
	CreatedAt time.Time `json:"created_at"`
}

// KeyBody is the body of a document with a key of the audit, a KeyKind or one of package archive.
type KeyBody struct {
	Sealed    []byte    `json:"sealed,omitempty"` // the key, or what it is made of, with KeyContext
	Lost      bool      `json:"lost,omitzero"`    // the operator gave up the key
	CreatedAt time.Time `json:"created_at"`
}

// KeyContext is what a key is bound to where it is sealed.
func KeyContext(kind, id string) []byte { return []byte(kind + "\x00" + id) }

// KeyID is the first 8 bytes of a SHA-256, in hex.
func KeyID(of []byte) string {
	sum := sha256.Sum256(of)
	return hex.EncodeToString(sum[:8])
}

type keyRing struct {
	store  Store
	sealer Sealer
	now    func() time.Time

	mu   sync.Mutex
	keys map[string]signKey
	away map[string]error // why a key cannot be opened now
}

type signKey struct {
	SigningKey
	private ed25519.PrivateKey
}

// load reads the keys that the sealer opens, or has opened. A document that does not open for certain is none of this
// installation.
func (k *keyRing) load(ctx context.Context) error {
	documents, _, err := k.store.Documents(ctx, KeyKind)
	if err != nil {
		return err
	}
	keys, away := make(map[string]signKey, len(documents)), map[string]error{}
	for _, d := range documents {
		if had, ok := k.keys[d.ID]; ok {
			keys[d.ID] = had
			continue
		}
		var body KeyBody
		if json.Unmarshal(d.Body, &body) != nil {
			continue
		}
		seed, err := k.sealer.Open(body.Sealed, KeyContext(KeyKind, d.ID))
		if MayOpenLater(err) {
			away[d.ID] = toolkeep.NewError(toolkeep.RecordUnavailable, "the key %s of the audit's checkpoints cannot be opened now; try again", d.ID).Because(err)
		}
		if err != nil || len(seed) != ed25519.SeedSize {
			continue
		}
		private := ed25519.NewKeyFromSeed(seed)
		public := private.Public().(ed25519.PublicKey)
		if KeyID(public) == d.ID {
			keys[d.ID] = signKey{SigningKey{ID: d.ID, Public: base64.StdEncoding.EncodeToString(public), CreatedAt: body.CreatedAt}, private}
		}
	}
	k.keys, k.away = keys, away
	return nil
}

// list returns the keys, the oldest first.
func (k *keyRing) list(ctx context.Context) ([]signKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.load(ctx); err != nil {
		return nil, err
	}
	list := make([]signKey, 0, len(k.keys))
	for _, key := range k.keys {
		list = append(list, key)
	}
	slices.SortFunc(list, func(a, b signKey) int {
		if c := a.CreatedAt.Compare(b.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return list, nil
}

// signer returns the oldest key, which all nodes agree on, and makes one if there is none.
func (k *keyRing) signer(ctx context.Context) (signKey, error) {
	list, err := k.list(ctx)
	if err != nil {
		return signKey{}, err
	}
	if len(list) > 0 {
		return list[0], nil
	}
	if err := k.isAway(); err != nil {
		return signKey{}, err
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return signKey{}, err
	}
	public := private.Public().(ed25519.PublicKey)
	id := KeyID(public)
	sealed, err := k.sealer.Seal(private.Seed(), KeyContext(KeyKind, id))
	if err != nil {
		return signKey{}, err
	}
	key := signKey{SigningKey{ID: id, Public: base64.StdEncoding.EncodeToString(public), CreatedAt: k.now().UTC()}, private}
	body, err := json.Marshal(KeyBody{Sealed: sealed, CreatedAt: key.CreatedAt})
	if err != nil {
		return signKey{}, err
	}
	return key, k.store.Apply(ctx, toolkeep.PutDocument{Document: toolkeep.Document{Kind: KeyKind, ID: id, Body: body, UpdatedBy: author}, Expect: toolkeep.NoRevision})
}

// isAway returns why a key cannot be opened now.
func (k *keyRing) isAway() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, err := range k.away {
		return err
	}
	return nil
}

// find returns a key by its id.
func (k *keyRing) find(ctx context.Context, id string) (signKey, bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key, ok := k.keys[id]
	if ok {
		return key, true, nil
	}
	err := k.load(ctx)
	if err == nil {
		err = k.away[id]
	}
	key, ok = k.keys[id]
	return key, ok, err
}

// Reseal seals the key of a document with a KeyBody again under the sealer's newest key. done is false if that key sealed it,
// or the key was given up.
func Reseal(s Sealer, stale func([]byte) bool, d toolkeep.Document) (raw []byte, done bool, err error) {
	var body KeyBody
	if err := json.Unmarshal(d.Body, &body); err != nil {
		return nil, false, errors.New("the document of the key cannot be read")
	}
	if body.Lost || !stale(body.Sealed) {
		return nil, false, nil
	}
	key, err := s.Open(body.Sealed, KeyContext(d.Kind, d.ID))
	if err != nil {
		return nil, false, err
	}
	if body.Sealed, err = s.Seal(key, KeyContext(d.Kind, d.ID)); err != nil {
		return nil, false, err
	}
	raw, err = json.Marshal(body)
	return raw, err == nil, err
}

// signed is the body of a document with a statement.
type signed struct {
	Statement []byte `json:"statement"` // JSON, as it was signed
	Key       string `json:"key"`
	Signature []byte `json:"signature"`
}

func message(kind, tenant string, statement []byte) []byte {
	return append([]byte("toolkeep "+kind+" 1\x00"+tenant+"\x00"), statement...)
}

// sign returns the body of a document of a kind.
func sign(key signKey, kind, tenant string, statement any) (body, raw []byte, err error) {
	if raw, err = json.Marshal(statement, json.Deterministic(true)); err != nil {
		return nil, nil, err
	}
	body, err = json.Marshal(signed{raw, key.ID, ed25519.Sign(key.private, message(kind, tenant, raw))})
	return body, raw, err
}

var errUnsigned = errors.New("no key of this installation signed it")

// open checks a document's signature and reads its statement.
func (k *keyRing) open(ctx context.Context, d toolkeep.Document, statement any) (raw []byte, err error) {
	var s signed
	if json.Unmarshal(d.Body, &s) != nil {
		return nil, errUnsigned
	}
	key, ok, err := k.find(ctx, s.Key)
	if err != nil {
		return nil, err
	}
	if !ok || !ed25519.Verify(key.private.Public().(ed25519.PublicKey), message(d.Kind, d.Tenant, s.Statement), s.Signature) {
		return nil, errUnsigned
	}
	if err := json.Unmarshal(s.Statement, statement); err != nil {
		return nil, fmt.Errorf("%w: it cannot be read", errUnsigned)
	}
	return s.Statement, nil
}
