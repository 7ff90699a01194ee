package canon

import (
	"bytes"
	"unicode/utf8"

	"github.com/toolkeep/toolkeep"
)

// Repairs says what ParseLoose had to change.
type Repairs struct {
	Text    bool // characters that are none became U+FFFD
	Doubled bool // a name stood twice in an object; its last value counts
}

// And is both repairs, of two parts of one result.
func (r Repairs) And(o Repairs) Repairs {
	return Repairs{Text: r.Text || o.Text, Doubled: r.Doubled || o.Doubled}
}

// Warnings tells a caller of the repairs in its result.
func (r Repairs) Warnings() (list []toolkeep.Warning) {
	if r.Text {
		list = append(list, toolkeep.Warning{Code: toolkeep.InvalidResponse, Message: "the result held characters that are not text; they were replaced by U+FFFD"})
	}
	if r.Doubled {
		list = append(list, toolkeep.Warning{Code: toolkeep.InvalidResponse, Message: "the result has a name twice in one object; its last value is given"})
	}
	return list
}

// ParseLoose is Parse for an answer that is lost if it is refused: a NUL, half of a surrogate
// pair and bytes that are not UTF-8 become U+FFFD, and of two equal names in an object the
// last value counts.
func ParseLoose(data []byte, l Limits) (v any, r Repairs, err error) {
	if v, err = Parse(data, l); err == nil || !toolkeep.IsCode(err, toolkeep.InvalidEncoding) {
		return v, r, err
	}
	repaired := repair(data)
	r.Text = !bytes.Equal(repaired, data)
	p := parsers.Get().(*parser)
	p.reset(repaired, l.filled())
	p.loose = true
	v, err = p.document()
	r.Doubled = p.doubled
	p.release()
	if err != nil {
		return nil, Repairs{}, err
	}
	return v, r, nil
}

// repair replaces what JSON text cannot hold. In valid JSON a backslash stands only in strings.
func repair(data []byte) []byte {
	const replacement = `\ufffd`
	out := make([]byte, 0, len(data))
	for i := 0; i < len(data); {
		switch c := data[i]; {
		case c == 0:
			out = append(out, replacement...)
			i++
		case c == '\\':
			n := min(2, len(data)-i) // an escaped character does not begin an escape
			switch rest := data[i:]; {
			case bytes.HasPrefix(rest, []byte(`\u0000`)):
				out, n = append(out, replacement...), 6
			case pair(rest):
				out, n = append(out, rest[:12]...), 12
			case LoneSurrogate(rest):
				out, n = append(out, replacement...), 6
			default:
				out = append(out, rest[:n]...)
			}
			i += n
		case c < utf8.RuneSelf:
			out = append(out, c)
			i++
		default:
			r, n := utf8.DecodeRune(data[i:])
			out = utf8.AppendRune(out, r)
			i += n
		}
	}
	return out
}

// pair reports whether b begins with the escapes of a surrogate pair.
func pair(b []byte) bool {
	return len(b) >= 12 && LoneSurrogate(b) && LoneSurrogate(b[6:]) && high(b[3]) && !high(b[9])
}

// high reports whether the second digit of a surrogate is that of the first half of a pair.
func high(digit byte) bool { return digit|0x20 < 'c' }
