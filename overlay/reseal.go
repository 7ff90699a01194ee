package overlay

import "github.com/toolkeep/toolkeep"

// Reseal seals the document of a context again and gives its body; done is false where
// stale says that there is no need.
func Reseal(s Sealer, stale func([]byte) bool, it toolkeep.Document) (body []byte, done bool, err error) {
	if !stale(it.Body) {
		return nil, false, nil
	}
	plain, err := s.Open(it.Body, binding(it.Tenant, it.ID))
	if err != nil {
		return nil, false, err
	}
	defer clear(plain)
	body, err = s.Seal(plain, binding(it.Tenant, it.ID))
	return body, err == nil, err
}
