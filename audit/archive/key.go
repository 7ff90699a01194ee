package archive

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit"
)

// KeyKind is the kind of the documents with the archive's keys, from which those of the segments are derived. The id is
// that of the key: the first 8 bytes of its SHA-256, in hex.
const KeyKind = "audit_archive_key"

const author = "toolkeep"

// Store is what the package needs of a store.
type Store interface {
	toolkeep.Applier
	toolkeep.Chains
	toolkeep.Cursors
	Document(ctx context.Context, kind, tenant, id string) (toolkeep.Document, error)
	Documents(ctx context.Context, kind string) ([]toolkeep.Document, int64, error)
}

// dataSecret is a key of the archive.
type dataSecret struct {
	id      string
	key     []byte
	created time.Time
	lost    bool // given up since it was opened: it reads and does not seal
}

type keyRing struct {
	store  Store
	sealer audit.Sealer
	now    func() time.Time

	mu   sync.Mutex
	keys map[string]dataSecret
	away map[string]error // why a key cannot be opened now; those that were given up are not there
}

// load reads the keys that the sealer opens, or has opened. k.mu is held.
func (k *keyRing) load(ctx context.Context) error {
	documents, _, err := k.store.Documents(ctx, KeyKind)
	if err != nil {
		return err
	}
	keys, away := make(map[string]dataSecret, len(documents)), map[string]error{}
	for _, d := range documents {
		var body audit.KeyBody
		err := json.Unmarshal(d.Body, &body)
		if had, ok := k.keys[d.ID]; ok {
			had.lost = had.lost || err == nil && body.Lost
			keys[d.ID] = had
			continue
		}
		if err == nil && body.Lost {
			continue
		}
		var key []byte
		if err == nil {
			key, err = k.sealer.Open(body.Sealed, audit.KeyContext(KeyKind, d.ID))
		}
		switch {
		case err == nil && len(key) == keyBytes && audit.KeyID(key) == d.ID:
			keys[d.ID] = dataSecret{id: d.ID, key: key, created: body.CreatedAt}
		case audit.MayOpenLater(err):
			away[d.ID] = fmt.Errorf("the archive's key %s cannot be opened now: %w", d.ID, err)
		default:
			away[d.ID] = fmt.Errorf("the sealing key of this node does not open the archive's key %s: give it the one that sealed it (secrets.seal_key); if that is lost, give it up with the file seal.lost in the data directory", d.ID)
		}
	}
	k.keys, k.away = keys, away
	return nil
}

// newest returns the key that seals segments, the oldest that opens, so that all nodes agree on it; one is made if
// there is none, or the operator gave up all. One that cannot be opened is no reason to make another.
func (k *keyRing) newest(ctx context.Context) (dataSecret, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.load(ctx); err != nil {
		return dataSecret{}, err
	}
	var use dataSecret
	for _, key := range k.keys {
		if key.lost {
			continue
		}
		if c := key.created.Compare(use.created); use.id == "" || c < 0 || c == 0 && key.id < use.id {
			use = key
		}
	}
	if use.id != "" {
		return use, nil
	}
	for _, err := range k.away {
		return use, err
	}
	key := make([]byte, keyBytes)
	rand.Read(key) // never fails
	use = dataSecret{id: audit.KeyID(key), key: key, created: k.now().UTC()}
	sealed, err := k.sealer.Seal(key, audit.KeyContext(KeyKind, use.id))
	if err != nil {
		return dataSecret{}, err
	}
	body, err := json.Marshal(audit.KeyBody{Sealed: sealed, CreatedAt: use.created})
	if err != nil {
		return dataSecret{}, err
	}
	err = k.store.Apply(ctx, toolkeep.PutDocument{Document: toolkeep.Document{Kind: KeyKind, ID: use.id, Body: body, UpdatedBy: author}, Expect: toolkeep.NoRevision})
	if err == nil {
		k.keys[use.id] = use
	}
	return use, err
}

// find returns a key by its id.
func (k *keyRing) find(ctx context.Context, id string) (dataSecret, bool, error) {
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

// GiveUp returns the body for a KeyKind document that cannot be opened: what its key sealed stays unreadable, and another
// key is made. done is false if it can be opened, or was given up before.
func GiveUp(s audit.PersonSealer, d *toolkeep.Document) (raw []byte, done bool, err error) {
	var body audit.KeyBody
	if json.Unmarshal(d.Body, &body) == nil {
		if body.Lost {
			return nil, false, nil
		}
		if s.Opens(body.Sealed) {
			if _, err := s.Open(body.Sealed, audit.KeyContext(KeyKind, d.ID)); err == nil || audit.MayOpenLater(err) {
				return nil, false, err
			}
		}
	}
	raw, err = json.Marshal(audit.KeyBody{Lost: true, CreatedAt: body.CreatedAt})
	return raw, err == nil, err
}
