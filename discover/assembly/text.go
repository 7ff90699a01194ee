package assembly

import (
	"errors"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Text is the content of a message in the providers' JSON forms: a string, null for nothing, or a
// list of parts, each an object with a type. Text parts are read (text, and input_text and
// output_text of OpenAI's newer interface), one per line; pictures, calls and other parts are
// skipped.
type Text string

var (
	errText = errors.New("must be a string, or a list of parts with a type")
	errPart = errors.New("a part of text has its text as a string")
)

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (t *Text) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	switch dec.PeekKind() {
	case 'n':
		*t = ""
		_, err := dec.ReadToken()
		return err
	case '"':
		var s string
		err := json.UnmarshalDecode(dec, &s)
		*t = Text(s)
		return err
	case '[':
	default:
		return errText
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	var said []string
	for dec.PeekKind() != ']' {
		if dec.PeekKind() != '{' {
			return errText
		}
		var part struct {
			Type string         `json:"type"`
			Text jsontext.Value `json:"text"`
		}
		if err := json.UnmarshalDecode(dec, &part); err != nil {
			return err
		}
		switch part.Type {
		case "":
			return errText
		case "text", "input_text", "output_text":
			var s string
			if part.Text.Kind() != '"' || json.Unmarshal(part.Text, &s) != nil {
				return errPart
			}
			said = append(said, s)
		}
	}
	*t = Text(strings.Join(said, "\n"))
	_, err := dec.ReadToken()
	return err
}
