package secret

import (
	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
)

// The store has one item that tells at the start whether the keys are those with which
// it was sealed: a known text, sealed like everything else.
const (
	CheckKind = "seal_check"
	CheckID   = "keys" // of no tenant
)

const checkText = "what this store holds can be opened"

// NewCheck gives the item, sealed as anything would be now.
func NewCheck(s Sealing) (toolkeep.Document, error) {
	it := toolkeep.Document{Kind: CheckKind, ID: CheckID}
	sealed, err := s.Seal([]byte(checkText), []byte(CheckKind))
	if err == nil {
		it.Body, err = json.Marshal(checkBody{sealed})
	}
	return it, err
}

// Checked gives what is sealed in the item's body. E3999.
func Checked(raw []byte) ([]byte, error) {
	var b checkBody
	if err := json.Unmarshal(raw, &b); err != nil || len(b.Sealed) == 0 {
		return nil, unsealable(err)
	}
	return b.Sealed, nil
}

// OpenCheck tells whether the sealer opens what the item's body holds: nil, or the
// error of Open.
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
