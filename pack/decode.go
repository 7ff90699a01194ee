package pack

import (
	stdjson "encoding/json"
	"errors"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolkeep/toolkeep"
)

// Decode decodes a manifest that was checked before, without defaults.
func Decode(raw []byte) (*toolkeep.Manifest, error) {
	m := new(toolkeep.Manifest)
	if err := json.Unmarshal(raw, m, json.WithUnmarshalers(exactNumbers)); err != nil {
		return nil, err
	}
	return m, nil
}

// Whole returns the whole tool of an outline, without defaults in its manifest.
func (m *Manifest) Whole(outline *toolkeep.Tool) (*toolkeep.Tool, error) {
	return m.WholeBy(outline, Decode)
}

// WholeBy returns the whole tool of an outline whose packed manifest is m, decoded by decode. E3003 if it cannot be
// unpacked.
func (m *Manifest) WholeBy(outline *toolkeep.Tool, decode func(raw []byte) (*toolkeep.Manifest, error)) (*toolkeep.Tool, error) {
	raw, err := m.Raw()
	whole := *outline
	whole.Packed = nil
	if err == nil {
		whole.Raw = raw
		whole.Manifest, err = decode(raw)
	}
	if err != nil {
		return nil, toolkeep.NewError(toolkeep.RegistryUnavailable, "the stored manifest of %s cannot be read; restore it from a backup", outline.Ref()).Because(err)
	}
	return &whole, nil
}

// exactNumbers keeps numbers in untyped values as their text.
var exactNumbers = json.UnmarshalFromFunc(func(dec *jsontext.Decoder, v *any) error {
	if dec.PeekKind() != '0' {
		return errors.ErrUnsupported
	}
	n, err := dec.ReadValue()
	if err != nil {
		return err
	}
	*v = stdjson.Number(string(n))
	return nil
})
