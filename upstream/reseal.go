package upstream

import (
	"encoding/base64"
	"strings"

	"github.com/toolkeep/toolkeep"
)

// Prefixes of a literal value in a stored spec: SealedScheme for a secret, KeptScheme
// for one that does not look like a secret and is not redacted from results and logs.
// The sealed value follows in base64 (URL, no padding).
const (
	SealedScheme = "sealed://"
	KeptScheme   = "kept://"
)

// SealedValue is the context that binds sealed literal values.
var SealedValue = []byte("mcp_server value")

// Sealer encrypts values at rest.
type Sealer interface {
	Seal(plain, context []byte) ([]byte, error)
	Open(sealed, context []byte) ([]byte, error)
}

// Reseal seals the literal values of a stored server again and returns its body; done
// is false if stale reports true for none of them. The change ends the server's
// sessions, like any change of a spec.
func Reseal(s Sealer, stale func([]byte) bool, it toolkeep.Document) (body []byte, done bool, err error) {
	spec, err := ParseSpec(it.ID, it.Tenant, it.Body)
	if err != nil {
		return nil, false, err
	}
	again := func(v string) (string, error) {
		fresh, err := resealValue(s, stale, v)
		done = done || fresh != v
		return fresh, err
	}
	for _, values := range []map[string]string{spec.Env, spec.Headers} {
		for name, v := range values {
			if values[name], err = again(v); err != nil {
				return nil, false, err
			}
		}
	}
	if spec.OAuth != nil {
		login := *spec.OAuth
		if login.ClientSecret, err = again(login.ClientSecret); err != nil {
			return nil, false, err
		}
		spec.OAuth = &login
	}
	if !done {
		return nil, false, nil
	}
	return spec.Body(), true, nil
}

// resealValue seals v again, or returns it unchanged if it is not sealed or not stale.
func resealValue(s Sealer, stale func([]byte) bool, v string) (string, error) {
	scheme, text, _ := strings.Cut(v, "://")
	if scheme += "://"; scheme != SealedScheme && scheme != KeptScheme {
		return v, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || !stale(raw) {
		return v, err
	}
	plain, err := s.Open(raw, SealedValue)
	if err != nil {
		return v, err
	}
	defer clear(plain)
	if raw, err = s.Seal(plain, SealedValue); err != nil {
		return v, err
	}
	return scheme + base64.RawURLEncoding.EncodeToString(raw), nil
}
