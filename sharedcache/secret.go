package sharedcache

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"

	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
)

// The document with the secret that the nodes use to seal shared values. It is itself sealed.
const (
	secretKind  = "search_cache_key"
	secretID    = "key"
	secretBytes = 32
)

// Sealer encrypts values at rest.
type Sealer interface {
	Seal(plain, context []byte) ([]byte, error)
	Open(sealed, context []byte) ([]byte, error)
}

// Store keeps the secret.
type Store interface {
	toolkeep.Applier
	// Document returns ErrNotFound if there is none.
	Document(ctx context.Context, kind, tenant, id string) (toolkeep.Document, error)
}

// Secret returns Config.Secret for the nodes on a store, and creates it if absent. A secret
// that can no longer be opened is replaced: values sealed with it are expendable. node names the
// creator.
func Secret(ctx context.Context, store Store, s Sealer, node string, log *slog.Logger) (secret []byte, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("the secret of the shared caches: %w", err)
		}
	}()
	const tries = 10
	for range tries {
		doc, err := store.Document(ctx, secretKind, "", secretID)
		if err != nil && !errors.Is(err, toolkeep.ErrNotFound) {
			return nil, err
		}
		if err == nil {
			if plain := openSecret(s, doc.Body); plain != nil {
				return plain, nil
			}
			log.Warn("the secret of the shared caches cannot be opened; a new one is made, and they start empty")
		}
		plain := make([]byte, secretBytes)
		rand.Read(plain) // never fails
		sealed, err := s.Seal(plain, []byte(secretKind))
		if err != nil {
			return nil, err
		}
		body, err := json.Marshal(map[string][]byte{"sealed": sealed})
		if err != nil {
			return nil, err
		}
		err = store.Apply(ctx, toolkeep.PutDocument{Expect: doc.Revision, Document: toolkeep.Document{Kind: secretKind, ID: secretID, Body: body, UpdatedBy: node}})
		if err == nil {
			return plain, nil
		}
		if !errors.Is(err, toolkeep.ErrStale) {
			return nil, err
		}
	}
	return nil, errors.New("other nodes keep changing it")
}

// openSecret returns nil if the body has no secret, or does not open.
func openSecret(s Sealer, raw []byte) []byte {
	var body struct {
		Sealed []byte `json:"sealed"`
	}
	if json.Unmarshal(raw, &body) != nil {
		return nil
	}
	plain, err := s.Open(body.Sealed, []byte(secretKind))
	if err != nil || len(plain) != secretBytes {
		return nil
	}
	return plain
}
