package canon

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	stdjson "encoding/json"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Append appends v to dst as JSON without spaces: keys sorted by their bytes, numbers with their exact text, and
// only the escapes that JSON requires. Equal trees give equal bytes.
//
// In addition to the types of a tree it accepts Go's integers, float64 and *big.Int, so that an executor may pass
// on what its library returned. Invalid UTF-8 is written as U+FFFD, and a json.Number that is no JSON number as a
// string, so that the output is always JSON. Any other type, NaN and the infinities are a bug of the caller and
// panic; Check finds them beforehand.
func Append(dst []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...)
	case bool:
		return strconv.AppendBool(dst, v)
	case string:
		return AppendString(dst, v)
	case stdjson.Number:
		if !IsNumber(string(v)) {
			return AppendString(dst, string(v))
		}
		return append(dst, v...)
	case map[string]any:
		return appendObject(dst, v)
	case []any:
		dst = append(dst, '[')
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = Append(dst, e)
		}
		return append(dst, ']')
	}
	return appendForeign(dst, v)
}

// Strings returns texts as an array of a tree.
func Strings(list []string) []any {
	all := make([]any, len(list))
	for i, s := range list {
		all[i] = s
	}
	return all
}

func appendForeign(dst []byte, v any) []byte {
	switch v := v.(type) {
	case int:
		return strconv.AppendInt(dst, int64(v), 10)
	case int64:
		return strconv.AppendInt(dst, v, 10)
	case int32:
		return strconv.AppendInt(dst, int64(v), 10)
	case uint64:
		return strconv.AppendUint(dst, v, 10)
	case uint32:
		return strconv.AppendUint(dst, uint64(v), 10)
	case *big.Int:
		return v.Append(dst, 10)
	case float64:
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			return appendES6(dst, v)
		}
	}
	panic(fmt.Sprintf("canon: %T has no place in a JSON tree", v))
}

func appendObject(dst []byte, obj map[string]any) []byte {
	var few [16]string
	keys := few[:0]
	for k := range obj {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	dst = append(dst, '{')
	for i, k := range keys {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(AppendString(dst, k), ':')
		dst = Append(dst, obj[k])
	}
	return append(dst, '}')
}

// AppendString appends s to dst as a JSON string. Only the quote, the backslash and control characters are escaped;
// invalid UTF-8 becomes U+FFFD.
func AppendString(dst []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			// The error means that invalid UTF-8 was replaced, as documented.
			dst, _ = jsontext.AppendQuote(dst, s)
			return dst
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}

// Check returns why Append cannot write v: a type outside JSON trees, NaN, an infinity, or nesting deeper than
// depth. It is for values that did not come from Parse.
func Check(v any, depth int) error {
	switch v := v.(type) {
	case nil, bool, string, stdjson.Number, int, int64, int32, uint64, uint32, *big.Int:
		return nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("a number is %v, which JSON cannot hold", v)
		}
		return nil
	case map[string]any:
		if depth <= 0 {
			return fmt.Errorf("arrays and objects are nested too deeply")
		}
		for k, e := range v {
			if err := Check(e, depth-1); err != nil {
				return fmt.Errorf("in %q: %w", k, err)
			}
		}
		return nil
	case []any:
		if depth <= 0 {
			return fmt.Errorf("arrays and objects are nested too deeply")
		}
		for i, e := range v {
			if err := Check(e, depth-1); err != nil {
				return fmt.Errorf("in element %d: %w", i, err)
			}
		}
		return nil
	}
	return fmt.Errorf("the Go type %T has no place in JSON", v)
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 2048); return &b }}

// maxPooled keeps a huge buffer out of the pool.
const maxPooled = 1 << 20

// Hash returns the SHA-256 of Append's output. Two trees have equal hashes only if they are equal; 1 and 1.0
// differ.
func Hash(v any) [32]byte {
	b := buffers.Get().(*[]byte)
	*b = Append((*b)[:0], v)
	sum := sha256.Sum256(*b)
	if cap(*b) <= maxPooled {
		buffers.Put(b)
	}
	return sum
}

// Digest returns "sha256:" and the 64 lower-case hex digits of data's SHA-256.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// CallID returns the deterministic id of a call (Agent 6.1): a hash over tool@version, the hash of its arguments
// after coercion, and seq, the number of equal calls before it within the run or session. It is "call_" and 32 hex
// digits. Each part is delimited, so different triples never collide by concatenation.
func CallID(tool, version string, argsHash [32]byte, seq int) string {
	b := make([]byte, 0, 256)
	b = binary.AppendUvarint(b, uint64(len(tool)))
	b = append(b, tool...)
	b = append(b, '@')
	b = append(b, version...)
	b = append(b, 0)
	b = append(b, argsHash[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(seq))
	sum := sha256.Sum256(b)
	out := make([]byte, 0, 37)
	out = append(out, "call_"...)
	return string(hex.AppendEncode(out, sum[:16]))
}
