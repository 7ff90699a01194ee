package secret

import (
	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
)

// A stored check item proves at the start that the keys are those that sealed the store: a known text, sealed like
// everything else.
const (
	CheckKind = "seal_check"
	CheckID   = "keys" // belongs to no tenant
)

const checkText = "what this store holds can be opened"

// NewCheck returns the check item, sealed with the current key.
func NewCheck(s Sealing) (toolkeep.Document, error) {
	it := toolkeep.Document{Kind: CheckKind, ID: CheckID}
	sealed, err := s.Seal([]byte(checkText), []byte(CheckKind))
	if err == nil {
		it.Body, err = json.Marshal(checkBody{sealed})
	}
	return it, err
}

// Checked returns the sealed bytes from the item's body. E3999.
func Checked(raw []byte) ([]byte, error) {
	var b checkBody
	if err := json.Unmarshal(raw, &b); err != nil || len(b.Sealed) == 0 {
		return nil, unsealable(err)
	}
	return b.Sealed, nil
}

// OpenCheck opens the sealed bytes in the item's body and returns Open's error, or nil.
func OpenCheck(s Sealing, raw []byte) error {
	sealed, err := Checked(raw)
	if err == nil {
		_, err = s.Open(sealed, []byte(CheckKind))
	}
	return err
}

type checkBody struct {
	Sealed []byte `json:"sealed"`
}
