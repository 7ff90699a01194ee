package record

import (
	stdjson "encoding/json"
	"errors"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The functions are made once: each has a cache of its own.
var (
	marshalers = json.WithMarshalers(json.MarshalToFunc(func(enc *jsontext.Encoder, n stdjson.Number) error {
		return enc.WriteValue(jsontext.Value(n))
	}))
	unmarshalers = json.WithUnmarshalers(json.UnmarshalFromFunc(func(dec *jsontext.Decoder, v *any) error {
		if dec.PeekKind() != '0' {
			return errors.ErrUnsupported
		}
		text, err := dec.ReadValue()
		*v = stdjson.Number(text)
		return err
	}))
)

// Marshal encodes this package's structs and JSON trees whose numbers are json.Number
// and keep their exact text.
func Marshal(v any) ([]byte, error) { return json.Marshal(v, json.Deterministic(true), marshalers) }

// Unmarshal reads what Marshal wrote. Numbers in trees become json.Number, never
// float64.
func Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v, unmarshalers) }
