package oauth

import (
	"errors"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
)

// ErrRenewing says that a node is renewing the token right now.
var ErrRenewing = errors.New("the login is being renewed")

// Reseal seals a token's item again and returns its body; done is false if stale
// reports that there is no need. ErrRenewing: a new revision would make the renewing
// node lose its new token, so try again later.
func Reseal(s Sealer, stale func([]byte) bool, it toolkeep.Document, now time.Time) (body []byte, done bool, err error) {
	if !stale(it.Body) {
		return nil, false, nil
	}
	place := []byte(TokenKind + "\x00" + it.Tenant + "\x00" + it.ID)
	plain, err := s.Open(it.Body, place)
	if err != nil {
		return nil, false, err
	}
	defer clear(plain)
	var rec record
	if err := json.Unmarshal(plain, &rec); err != nil {
		return nil, false, err
	}
	if rec.Renewing.After(now) {
		return nil, false, ErrRenewing
	}
	body, err = s.Seal(plain, place)
	return body, err == nil, err
}
