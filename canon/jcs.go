package canon

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/toolkeep/toolkeep"
)

// jcsLimits exceed those of a request, because manifests contain schemas.
var jcsLimits = Limits{Bytes: 16 << 20, Depth: 200, Properties: 200_000, Elements: 1_000_000}

// JCS returns the RFC 8785 form of data.
//
// Numbers become what ECMAScript prints for the nearest IEEE double. A number that this would change is E3311 with
// details.pointer: a whole number such as 9007199254740993 that no double holds, one out of range, one that
// underflows to zero, and a fraction of more than 17 significant digits that does not round-trip. A fraction of up
// to 17 digits passes as in RFC 8785, since that is how programs write a double.
//
// Other errors are those of Parse, with limits of 16 MiB, depth 200, 200,000 properties and 1,000,000 elements.
func JCS(data []byte) ([]byte, error) {
	v, err := Parse(data, jcsLimits)
	if err != nil {
		return nil, err
	}
	return JCSOf(v, len(data))
}

// JCSOf returns the RFC 8785 form of a value that Parse returned, of about size bytes. Its errors are those of numbers.
func JCSOf(v any, size int) ([]byte, error) {
	w := jcsWriter{out: make([]byte, 0, size)}
	if err := w.value(v); err != nil {
		return nil, err
	}
	return w.out, nil
}

// JCSExact is JCSOf for what must not change unseen: a number that is not the one which the nearest double prints, however
// few its digits, stands as it was written.
func JCSExact(v any, size int) []byte {
	w := jcsWriter{out: make([]byte, 0, size), exact: true}
	_ = w.value(v) // its errors are those of numbers
	return w.out
}

type jcsWriter struct {
	out   []byte
	path  []string
	exact bool // numbers that a double would change are written as they are
}

func (w *jcsWriter) value(v any) error {
	switch v := v.(type) {
	case json.Number:
		return w.number(string(v))
	case map[string]any:
		return w.object(v)
	case []any:
		w.out = append(w.out, '[')
		for i, e := range v {
			if i > 0 {
				w.out = append(w.out, ',')
			}
			w.path = append(w.path, strconv.Itoa(i))
			if err := w.value(e); err != nil {
				return err
			}
			w.path = w.path[:len(w.path)-1]
		}
		w.out = append(w.out, ']')
		return nil
	}
	w.out = Append(w.out, v)
	return nil
}

func (w *jcsWriter) object(obj map[string]any) error {
	keys := make([]string, 0, len(obj))
	for k := range obj {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, compareUTF16)
	w.out = append(w.out, '{')
	for i, k := range keys {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		w.out = append(AppendString(w.out, k), ':')
		w.path = append(w.path, k)
		if err := w.value(obj[k]); err != nil {
			return err
		}
		w.path = w.path[:len(w.path)-1]
	}
	w.out = append(w.out, '}')
	return nil
}

func (w *jcsWriter) number(s string) error {
	start := len(w.out)
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(f, 0) {
		return w.inexact(start, s)
	}
	w.out = appendES6(w.out, f)
	want, got := toDecimal(s), toDecimal(string(w.out[start:]))
	if want == got {
		return nil
	}
	isWhole := want.exp >= len(want.digits)
	if w.exact || isWhole || len(want.digits) > 17 || got.digits == "" {
		return w.inexact(start, s)
	}
	return nil
}

// inexact ends a number of which start is the place in out.
func (w *jcsWriter) inexact(start int, s string) error {
	if w.exact {
		w.out = append(w.out[:start], s...)
		return nil
	}
	if len(s) > 40 {
		s = s[:37] + "..."
	}
	pointer := Pointer(w.path...)
	return toolkeep.NewError(toolkeep.InvalidEncoding,
		"the number %s at %q does not fit into an IEEE 754 double; write it as a string", s, pointer).
		With("pointer", pointer)
}

// appendES6 writes f as ECMAScript's Number::toString does.
func appendES6(dst []byte, f float64) []byte {
	if f == 0 {
		return append(dst, '0') // also minus zero
	}
	format := byte('f')
	if abs := math.Abs(f); abs < 1e-6 || abs >= 1e21 {
		format = 'e'
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, f, format, -1, 64)
	if format == 'e' {
		// strconv writes at least two exponent digits, ECMAScript no leading zeros.
		if n := len(dst); n-start >= 4 && dst[n-4] == 'e' && dst[n-2] == '0' {
			dst[n-2] = dst[n-1]
			dst = dst[:n-1]
		}
	}
	return dst
}

// compareUTF16 compares strings by their UTF-16 code units. That differs from byte order if a character beyond
// U+FFFF meets one from U+E000 on.
func compareUTF16(a, b string) int {
	for a != "" && b != "" {
		ra, na := utf8.DecodeRuneInString(a)
		rb, nb := utf8.DecodeRuneInString(b)
		if ra != rb {
			if hiA, hiB := ra > 0xFFFF, rb > 0xFFFF; hiA != hiB {
				return cmp.Compare(firstUnit(ra), firstUnit(rb))
			}
			return cmp.Compare(ra, rb)
		}
		a, b = a[na:], b[nb:]
	}
	return strings.Compare(a, b)
}

func firstUnit(r rune) rune {
	if r > 0xFFFF {
		r, _ = utf16.EncodeRune(r)
	}
	return r
}
