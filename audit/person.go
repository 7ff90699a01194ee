package audit

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
)

// Kinds of documents with the keys of persons; see package store/personal.
const (
	PersonKind       = "person_key"        // a person's key; the id is the hex digest of tenant and person
	PersonDigestKind = "person_digest_key" // the key of these digests
	PersonKeyBytes   = 32
)

// PersonSealer seals these keys at rest.
type PersonSealer interface {
	Sealer
	Opens(sealed []byte) bool // false is certain
}

// personBody is the body of both kinds.
type personBody struct {
	Sealed []byte `json:"sealed"`
}

func personContext(d *toolkeep.Document) []byte {
	return []byte(d.Kind + "\x00" + d.Tenant + "\x00" + d.ID)
}

// ErrPersonUnreadable means that the sealing key is not there that sealed a document.
var ErrPersonUnreadable = errors.New("the key was sealed with a sealing key that is not here")

// SealPerson returns the body of the document of a person's key.
func SealPerson(s Sealer, key []byte, d *toolkeep.Document) ([]byte, error) {
	sealed, err := s.Seal(key, personContext(d))
	if err != nil {
		return nil, err
	}
	return json.Marshal(personBody{sealed})
}

// OpenPerson returns the key that a document has.
func OpenPerson(s PersonSealer, d *toolkeep.Document) ([]byte, error) {
	var body personBody
	if err := json.Unmarshal(d.Body, &body); err != nil {
		return nil, fmt.Errorf("the document %s %s cannot be read", d.Kind, d.ID)
	}
	if !s.Opens(body.Sealed) {
		return nil, ErrPersonUnreadable
	}
	key, err := s.Open(body.Sealed, personContext(d))
	if err == nil && len(key) != PersonKeyBytes {
		err = fmt.Errorf("the document %s %s has no key of %d bytes", d.Kind, d.ID, PersonKeyBytes)
	}
	return key, err
}

// ResealPerson seals the key of a document again under the sealer's newest key. done is false if that key sealed it.
func ResealPerson(s PersonSealer, stale func([]byte) bool, d toolkeep.Document) (raw []byte, done bool, err error) {
	var body personBody
	if err := json.Unmarshal(d.Body, &body); err != nil {
		return nil, false, errors.New("the document of a person's key cannot be read")
	}
	if !stale(body.Sealed) {
		return nil, false, nil
	}
	key, err := OpenPerson(s, &d)
	if err != nil {
		return nil, false, err
	}
	raw, err = SealPerson(s, key, &d)
	return raw, err == nil, err
}
