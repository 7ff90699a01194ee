package overlay

import "github.com/toolkeep/toolkeep"

// Reseal seals a context's document again and returns its body; done is false if stale reports that
// it is not needed.
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
