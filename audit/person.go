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
	Sealed []byte `json:"sealed,omitempty"` // empty: the operator gave up the key
	Lost   bool   `json:"lost,omitempty"`   // an earlier key of the document was given up
}

func personContext(d *toolkeep.Document) []byte {
	return []byte(d.Kind + "\x00" + d.Tenant + "\x00" + d.ID)
}

// ErrPersonUnreadable means that a document cannot be opened: the sealing key is not there that sealed it, or it is
// damaged. ErrPersonLost is the one that means that the operator gave it up (see GiveUpPerson).
var (
	ErrPersonUnreadable = errors.New("the key was sealed with a sealing key that is not here, or is damaged")
	ErrPersonLost       = fmt.Errorf("the key was given up: %w", ErrPersonUnreadable)
)

// SealPerson returns the body of the document of a person's key; lost says that it stands for one that was given up.
func SealPerson(s Sealer, key []byte, d *toolkeep.Document, lost bool) ([]byte, error) {
	sealed, err := s.Seal(key, personContext(d))
	if err != nil {
		return nil, err
	}
	return json.Marshal(personBody{sealed, lost})
}

// OpenPerson returns the key that a document has, and whether an earlier one was given up. Errors beside
// ErrPersonUnreadable are Vault's, which may pass.
func OpenPerson(s PersonSealer, d *toolkeep.Document) (key []byte, lost bool, err error) {
	var body personBody
	if err := json.Unmarshal(d.Body, &body); err != nil {
		return nil, false, fmt.Errorf("%w: the document %s %s cannot be read", ErrPersonUnreadable, d.Kind, d.ID)
	}
	if len(body.Sealed) == 0 && body.Lost {
		return nil, true, ErrPersonLost
	}
	if !s.Opens(body.Sealed) {
		return nil, body.Lost, ErrPersonUnreadable
	}
	key, err = s.Open(body.Sealed, personContext(d))
	if e := (*toolkeep.Error)(nil); errors.As(err, &e) && e.Code == toolkeep.InternalError {
		err = fmt.Errorf("%w: %w", ErrPersonUnreadable, err)
	}
	if err == nil && len(key) != PersonKeyBytes {
		err = fmt.Errorf("%w: the document %s %s has no key of %d bytes", ErrPersonUnreadable, d.Kind, d.ID, PersonKeyBytes)
	}
	return key, body.Lost, err
}

// GiveUpPerson returns the body for a document that cannot be opened: its key is given up, and another one may be made.
// done is false if it can be opened, or was given up before.
func GiveUpPerson(s PersonSealer, d *toolkeep.Document) (raw []byte, done bool, err error) {
	_, _, err = OpenPerson(s, d)
	switch {
	case err == nil, errors.Is(err, ErrPersonLost):
		return nil, false, nil
	case !errors.Is(err, ErrPersonUnreadable) && !toolkeep.IsCode(err, toolkeep.SecretAccessDenied): // Vault does not answer
		return nil, false, err
	}
	raw, err = json.Marshal(personBody{Lost: true})
	return raw, err == nil, err
}

// ResealPerson seals the key of a document again under the sealer's newest key. done is false if that key sealed it,
// or its key was given up.
func ResealPerson(s PersonSealer, stale func([]byte) bool, d toolkeep.Document) (raw []byte, done bool, err error) {
	var body personBody
	if err := json.Unmarshal(d.Body, &body); err != nil {
		return nil, false, errors.New("the document of a person's key cannot be read")
	}
	if len(body.Sealed) == 0 && body.Lost || !stale(body.Sealed) {
		return nil, false, nil
	}
	key, lost, err := OpenPerson(s, &d)
	if err != nil {
		return nil, false, err
	}
	raw, err = SealPerson(s, key, &d, lost)
	return raw, err == nil, err
}
