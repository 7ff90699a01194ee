package grpctool

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// errLarge says that a result is over its limit; any other error of a shower says what
// in the response is invalid.
var errLarge = errors.New("the result is too large")

// shower builds JSON trees from messages by the rules of ProtoJSON.
type shower struct {
	types *types
	left  int64 // approximate bytes of JSON left
}

func (s *shower) spend(n int) error {
	if s.left -= int64(n); s.left < 0 {
		return errLarge
	}
	return nil
}

func (s *shower) message(m protoreflect.Message, depth int) (any, error) {
	if depth == 0 {
		return nil, fmt.Errorf("messages nest deeper than %d", maxDepth)
	}
	if special, ok := wellKnown(m.Descriptor().FullName()); ok {
		return special.read(s, m, depth)
	}
	return s.members(m, depth)
}

func (s *shower) members(m protoreflect.Message, depth int) (map[string]any, error) {
	fields := m.Descriptor().Fields()
	tree := make(map[string]any, fields.Len())
	if err := s.spend(2); err != nil {
		return nil, err
	}
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.HasPresence() && !m.Has(f) {
			continue
		}
		name := f.JSONName()
		if err := s.spend(len(name) + 4); err != nil {
			return nil, err
		}
		v, err := s.field(f, m.Get(f), depth)
		if err != nil {
			return nil, err
		}
		tree[name] = v
	}
	return tree, nil
}

func (s *shower) field(f protoreflect.FieldDescriptor, v protoreflect.Value, depth int) (any, error) {
	switch {
	case f.IsList():
		list := v.List()
		out := make([]any, list.Len())
		for i := range out {
			var err error
			if out[i], err = s.value(f, list.Get(i), depth); err != nil {
				return nil, err
			}
		}
		return out, s.spend(2 + len(out))
	case f.IsMap():
		out := make(map[string]any, v.Map().Len())
		var failed error
		v.Map().Range(func(k protoreflect.MapKey, el protoreflect.Value) bool {
			name := good(k.String())
			if failed = s.spend(len(name) + 4); failed == nil {
				out[name], failed = s.value(f.MapValue(), el, depth)
			}
			return failed == nil
		})
		return out, failed
	}
	return s.value(f, v, depth)
}

func (s *shower) value(f protoreflect.FieldDescriptor, v protoreflect.Value, depth int) (any, error) {
	if f.Message() != nil {
		return s.message(v.Message(), depth-1)
	}
	return s.scalar(f, v)
}

func (s *shower) text(t string) (any, error) {
	return t, s.spend(len(t) + 2)
}

// good replaces what JSON or its readers cannot hold: invalid UTF-8 and NUL.
func good(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

func (s *shower) scalar(f protoreflect.FieldDescriptor, v protoreflect.Value) (any, error) {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return v.Bool(), s.spend(5)
	case protoreflect.StringKind:
		return s.text(good(v.String()))
	case protoreflect.BytesKind:
		if err := s.spend(base64.StdEncoding.EncodedLen(len(v.Bytes())) + 2); err != nil {
			return nil, err
		}
		return base64.StdEncoding.EncodeToString(v.Bytes()), nil
	case protoreflect.EnumKind:
		if f.Enum().FullName() == "google.protobuf.NullValue" {
			return nil, s.spend(4)
		}
		if d := f.Enum().Values().ByNumber(v.Enum()); d != nil {
			return s.text(string(d.Name()))
		}
		return s.number(strconv.FormatInt(int64(v.Enum()), 10))
	case protoreflect.FloatKind:
		return s.float(v.Float(), 32)
	case protoreflect.DoubleKind:
		return s.float(v.Float(), 64)
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return s.number(strconv.FormatInt(v.Int(), 10))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return s.number(strconv.FormatUint(v.Uint(), 10))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return s.text(strconv.FormatInt(v.Int(), 10))
	}
	return s.text(strconv.FormatUint(v.Uint(), 10))
}

func (s *shower) number(text string) (any, error) {
	return json.Number(text), s.spend(len(text))
}

func (s *shower) float(n float64, bits int) (any, error) {
	switch {
	case math.IsNaN(n):
		return s.text("NaN")
	case math.IsInf(n, 1):
		return s.text("Infinity")
	case math.IsInf(n, -1):
		return s.text("-Infinity")
	}
	format := byte('f')
	if abs := math.Abs(n); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	text := strconv.FormatFloat(n, format, -1, bits)
	if at := len(text) - 4; format == 'e' && at > 0 && text[at] == 'e' && text[at+2] == '0' {
		text = text[:at+2] + text[at+3:] // e-07 is e-7
	}
	return s.number(text)
}

func readWrapper(s *shower, m protoreflect.Message, _ int) (any, error) {
	f := m.Descriptor().Fields().ByNumber(1)
	return s.scalar(f, m.Get(f))
}

// readAny decodes the message inside. If its type is unknown or does not match, the
// bytes are kept.
func readAny(s *shower, m protoreflect.Message, depth int) (any, error) {
	fields := m.Descriptor().Fields()
	url, raw := m.Get(fields.ByNumber(1)).String(), m.Get(fields.ByNumber(2)).Bytes()
	if url == "" && len(raw) == 0 {
		return map[string]any{}, s.spend(2)
	}
	url = good(url)
	if err := s.spend(len(url) + 12); err != nil {
		return nil, err
	}
	if d := s.types.byURL(url); d != nil && depth > 1 {
		if weigh(d, raw, maxValues) >= 0 {
			if inner, err := decode(d, raw); err == nil {
				return s.unpacked(url, inner, depth)
			}
		}
	}
	if err := s.spend(base64.StdEncoding.EncodedLen(len(raw)) + 12); err != nil {
		return nil, err
	}
	return map[string]any{"@type": url, "value": base64.StdEncoding.EncodeToString(raw)}, nil
}

func (s *shower) unpacked(url string, inner protoreflect.Message, depth int) (any, error) {
	if _, own := wellKnown(inner.Descriptor().FullName()); own {
		v, err := s.message(inner, depth-1)
		return map[string]any{"@type": url, "value": v}, err
	}
	tree, err := s.members(inner, depth-1)
	if err != nil {
		return nil, err
	}
	tree["@type"] = url
	return tree, nil
}

func timeOf(m protoreflect.Message) (seconds, nanos int64) {
	fields := m.Descriptor().Fields()
	return m.Get(fields.ByNumber(1)).Int(), m.Get(fields.ByNumber(2)).Int()
}

// fraction writes nanoseconds as 0, 3, 6 or 9 digits.
func fraction(nanos int64) string {
	if nanos == 0 {
		return ""
	}
	t := fmt.Sprintf(".%09d", nanos)
	t = strings.TrimSuffix(t, "000")
	return strings.TrimSuffix(t, "000")
}

func readTimestamp(s *shower, m protoreflect.Message, _ int) (any, error) {
	seconds, nanos := timeOf(m)
	if seconds < minSeconds || seconds > maxSeconds || nanos < 0 || nanos > 999_999_999 {
		return nil, errors.New("a timestamp is out of the years 1 to 9999")
	}
	return s.text(time.Unix(seconds, 0).UTC().Format("2006-01-02T15:04:05") + fraction(nanos) + "Z")
}

func readDuration(s *shower, m protoreflect.Message, _ int) (any, error) {
	seconds, nanos := timeOf(m)
	if seconds < -maxDuration || seconds > maxDuration || nanos < -999_999_999 || nanos > 999_999_999 || seconds > 0 && nanos < 0 || seconds < 0 && nanos > 0 {
		return nil, errors.New("a duration is out of its range")
	}
	sign := ""
	if seconds < 0 || nanos < 0 {
		sign, seconds, nanos = "-", -seconds, -nanos
	}
	return s.text(sign + strconv.FormatInt(seconds, 10) + fraction(nanos) + "s")
}

func readFieldMask(s *shower, m protoreflect.Message, _ int) (any, error) {
	list := m.Get(m.Descriptor().Fields().ByNumber(1)).List()
	paths := make([]string, list.Len())
	for i := range paths {
		// A path without a lowerCamelCase form is returned as received.
		p := good(list.Get(i).String())
		if paths[i] = camelCase(p); snakeCase(paths[i]) != p {
			paths[i] = p
		}
	}
	return s.text(strings.Join(paths, ","))
}

func readStruct(s *shower, m protoreflect.Message, depth int) (any, error) {
	f := m.Descriptor().Fields().ByNumber(1)
	return s.field(f, m.Get(f), depth)
}

func readListValue(s *shower, m protoreflect.Message, depth int) (any, error) {
	f := m.Descriptor().Fields().ByNumber(1)
	return s.field(f, m.Get(f), depth)
}

func readValue(s *shower, m protoreflect.Message, depth int) (any, error) {
	f := m.WhichOneof(m.Descriptor().Oneofs().Get(0))
	if f == nil {
		return nil, s.spend(4)
	}
	if f.Kind() == protoreflect.DoubleKind {
		if n := m.Get(f).Float(); math.IsNaN(n) || math.IsInf(n, 0) {
			return nil, errors.New("a google.protobuf.Value holds a number that JSON does not have")
		}
	}
	return s.value(f, m.Get(f), depth)
}

// maxValues bounds the fields and elements of one response: decoded, each takes far
// more memory than its one or two bytes on the wire.
const maxValues = 2_000_000

// weigh counts the values of an encoded message and returns the rest of the budget, or
// -1 if it is exceeded. Bytes that are not protobuf are left to the decoder.
func weigh(d protoreflect.MessageDescriptor, raw []byte, left int) int {
	return weighAt(d, raw, left, maxDepth)
}

func weighAt(d protoreflect.MessageDescriptor, raw []byte, left, depth int) int {
	if depth == 0 {
		return left
	}
	for len(raw) > 0 {
		number, wire, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return left
		}
		size := protowire.ConsumeFieldValue(number, wire, raw[n:])
		if size < 0 {
			return left
		}
		value := raw[n : n+size]
		raw = raw[n+size:]
		if left--; left < 0 {
			return -1
		}
		f := d.Fields().ByNumber(number)
		if f == nil {
			continue
		}
		switch {
		case f.Message() != nil && wire == protowire.BytesType:
			inner, _ := protowire.ConsumeBytes(value)
			left = weighAt(f.Message(), inner, left, depth-1)
		case f.Message() != nil && wire == protowire.StartGroupType:
			inner, _ := protowire.ConsumeGroup(number, value)
			left = weighAt(f.Message(), inner, left, depth-1)
		case f.IsList() && wire == protowire.BytesType && f.Kind() != protoreflect.StringKind && f.Kind() != protoreflect.BytesKind:
			left -= len(value) / packedSize(f.Kind())
		}
		if left < 0 {
			return -1
		}
	}
	return left
}

// packedSize is the minimum size of an element of a packed list.
func packedSize(k protoreflect.Kind) int {
	switch k {
	case protoreflect.DoubleKind, protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind:
		return 8
	case protoreflect.FloatKind, protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind:
		return 4
	}
	return 1
}
