package grpctool

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// maxDepth bounds the nesting of messages.
const maxDepth = 100

// argError is why an argument does not fit its message.
type argError struct{ at, why string }

func (m *argError) Error() string { return m.why }

// refuse returns the caller's error.
func (m *argError) refuse() *toolkeep.Error {
	at := m.at
	if at == "" {
		at = "/"
	}
	e := toolkeep.NewError(toolkeep.InvalidParameters, "the argument at %s cannot be sent: %s", at, m.why).With("pointer", m.at)
	e.NothingSent = true
	return e
}

func argErrorf(at, format string, args ...any) *argError {
	return &argError{at, fmt.Sprintf(format, args...)}
}

// writer builds messages from JSON trees by the rules of ProtoJSON.
type writer struct{ types *types }

// message builds a whole message and checks its required fields.
func (w *writer) message(d protoreflect.MessageDescriptor, v any, at string) (*dynamicpb.Message, *argError) {
	m := dynamicpb.NewMessage(d)
	if err := w.fill(m, v, at, maxDepth); err != nil {
		return nil, err
	}
	if err := proto.CheckInitialized(m); err != nil {
		return nil, argErrorf(at, "%s", toolkeep.ClipBytes(strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto: "), 300))
	}
	return m, nil
}

func (w *writer) fill(m protoreflect.Message, v any, at string, depth int) *argError {
	if depth == 0 {
		return argErrorf(at, "messages nest deeper than %d", maxDepth)
	}
	if special, ok := wellKnown(m.Descriptor().FullName()); ok {
		return special.write(w, m, v, at, depth)
	}
	return w.members(m, v, at, depth)
}

func (w *writer) members(m protoreflect.Message, v any, at string, depth int) *argError {
	tree, ok := v.(map[string]any)
	if !ok {
		return argErrorf(at, "a message is an object")
	}
	fields := m.Descriptor().Fields()
	from := make(map[protoreflect.FieldNumber]string, len(tree))
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		here := at + canon.Pointer(name)
		f := fields.ByJSONName(name)
		if f == nil {
			f = fields.ByTextName(name)
		}
		if f == nil {
			return argErrorf(here, "%s has no field %q", m.Descriptor().FullName(), toolkeep.ClipBytes(name, 300))
		}
		if other, twice := from[f.Number()]; twice {
			return argErrorf(here, "the field is given twice, as %q too", toolkeep.ClipBytes(other, 300))
		}
		from[f.Number()] = name
		value := tree[name]
		if value == nil && !takesNull(f) {
			continue
		}
		if one := f.ContainingOneof(); one != nil && !one.IsSynthetic() {
			if set := m.WhichOneof(one); set != nil {
				return argErrorf(here, "only one of %s can be given, which are the oneof %q, and %q is", fieldNames(one), one.Name(), set.JSONName())
			}
		}
		if err := w.field(m, f, value, here, depth); err != nil {
			return err
		}
	}
	return nil
}

// fieldNames returns the names of a oneof's fields.
func fieldNames(one protoreflect.OneofDescriptor) string {
	names := make([]string, one.Fields().Len())
	for i := range names {
		names[i] = strconv.Quote(one.Fields().Get(i).JSONName())
	}
	return toolkeep.ClipBytes(strings.Join(names, ", "), 1000)
}

// takesNull reports whether null is a value of the field rather than its absence.
func takesNull(f protoreflect.FieldDescriptor) bool {
	if f.IsList() || f.IsMap() {
		return false
	}
	if d := f.Message(); d != nil {
		return d.FullName() == "google.protobuf.Value"
	}
	return f.Enum() != nil && f.Enum().FullName() == "google.protobuf.NullValue"
}

func (w *writer) field(m protoreflect.Message, f protoreflect.FieldDescriptor, v any, at string, depth int) *argError {
	switch {
	case f.IsList():
		list, ok := v.([]any)
		if !ok {
			return argErrorf(at, "a repeated field is an array")
		}
		to := m.Mutable(f).List()
		for i, el := range list {
			x, err := w.value(f, to.NewElement, el, at+"/"+strconv.Itoa(i), depth)
			if err != nil {
				return err
			}
			to.Append(x)
		}
	case f.IsMap():
		tree, ok := v.(map[string]any)
		if !ok {
			return argErrorf(at, "a map is an object")
		}
		to := m.Mutable(f).Map()
		for name, el := range tree {
			here := at + canon.Pointer(name)
			key, err := mapKey(f.MapKey(), name, here)
			if err != nil {
				return err
			}
			if to.Has(key) {
				return argErrorf(here, "the key is given twice")
			}
			x, err := w.value(f.MapValue(), to.NewValue, el, here, depth)
			if err != nil {
				return err
			}
			to.Set(key, x)
		}
	default:
		x, err := w.value(f, func() protoreflect.Value { return m.NewField(f) }, v, at, depth)
		if err != nil {
			return err
		}
		m.Set(f, x)
	}
	return nil
}

// value builds one value; empty returns an empty message to fill.
func (w *writer) value(f protoreflect.FieldDescriptor, empty func() protoreflect.Value, v any, at string, depth int) (protoreflect.Value, *argError) {
	if f.Message() != nil {
		x := empty()
		return x, w.fill(x.Message(), v, at, depth-1)
	}
	return scalar(f, v, at)
}

func mapKey(f protoreflect.FieldDescriptor, name, at string) (protoreflect.MapKey, *argError) {
	var v any = name
	if f.Kind() == protoreflect.BoolKind {
		if name != "true" && name != "false" {
			return protoreflect.MapKey{}, argErrorf(at, `the keys of this map are "true" and "false"`)
		}
		v = name == "true"
	}
	x, err := scalar(f, v, at)
	if err != nil {
		return protoreflect.MapKey{}, err
	}
	return x.MapKey(), nil
}

func scalar(f protoreflect.FieldDescriptor, v any, at string) (protoreflect.Value, *argError) {
	none := protoreflect.Value{}
	switch f.Kind() {
	case protoreflect.BoolKind:
		if b, ok := v.(bool); ok {
			return protoreflect.ValueOfBool(b), nil
		}
		return none, argErrorf(at, "true or false is expected")
	case protoreflect.StringKind:
		if s, ok := v.(string); ok {
			return protoreflect.ValueOfString(s), nil
		}
		return none, argErrorf(at, "a string is expected")
	case protoreflect.BytesKind:
		if s, ok := v.(string); ok {
			if b, err := unbase64(s); err == nil {
				return protoreflect.ValueOfBytes(b), nil
			}
		}
		return none, argErrorf(at, "bytes are a string in base64")
	case protoreflect.EnumKind:
		return enum(f.Enum(), v, at)
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return float(f.Kind(), v, at)
	}
	return integer(f.Kind(), v, at)
}

// unbase64 accepts both alphabets, with or without padding.
func unbase64(s string) ([]byte, error) {
	enc := base64.StdEncoding
	if strings.ContainsAny(s, "-_") {
		enc = base64.URLEncoding
	}
	if len(s)%4 != 0 {
		enc = enc.WithPadding(base64.NoPadding)
	}
	if strings.ContainsAny(s, "\r\n") {
		return nil, errors.New("a line break") // Go's decoder would skip it
	}
	return enc.DecodeString(s)
}

func enum(d protoreflect.EnumDescriptor, v any, at string) (protoreflect.Value, *argError) {
	switch v := v.(type) {
	case nil:
		if d.FullName() == "google.protobuf.NullValue" {
			return protoreflect.ValueOfEnum(0), nil
		}
	case string:
		if x := d.Values().ByName(protoreflect.Name(v)); x != nil {
			return protoreflect.ValueOfEnum(x.Number()), nil
		}
		return protoreflect.Value{}, argErrorf(at, "%s has no value %q", d.FullName(), toolkeep.ClipBytes(v, 300))
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 32); err == nil {
			if d.IsClosed() && d.Values().ByNumber(protoreflect.EnumNumber(n)) == nil {
				return protoreflect.Value{}, argErrorf(at, "%s has no value %d", d.FullName(), n)
			}
			return protoreflect.ValueOfEnum(protoreflect.EnumNumber(n)), nil
		}
	}
	return protoreflect.Value{}, argErrorf(at, "the name of a value of %s is expected", d.FullName())
}

// numberText returns the text of a number, which may be in a string.
func numberText(v any) (string, bool) {
	switch v := v.(type) {
	case json.Number:
		return v.String(), true
	case string:
		return v, canon.IsNumber(v)
	}
	return "", false
}

func integer(k protoreflect.Kind, v any, at string) (protoreflect.Value, *argError) {
	none := protoreflect.Value{}
	text, ok := numberText(v)
	if !ok {
		return none, argErrorf(at, "a whole number is expected")
	}
	if strings.ContainsAny(text, ".eE") {
		// 1.0 and 1e3 are integers too.
		r, isRat := new(big.Rat), canon.Bounded(json.Number(text))
		if isRat {
			_, isRat = r.SetString(text)
		}
		if !isRat || !r.IsInt() {
			return none, argErrorf(at, "a whole number is expected")
		}
		text = r.Num().String()
	}
	switch k {
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		if n, err := strconv.ParseInt(text, 10, 32); err == nil {
			return protoreflect.ValueOfInt32(int32(n)), nil
		}
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return protoreflect.ValueOfInt64(n), nil
		}
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		if n, err := strconv.ParseUint(strings.TrimPrefix(text, "-0"), 10, 32); err == nil || text == "-0" {
			return protoreflect.ValueOfUint32(uint32(n)), nil
		}
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		if n, err := strconv.ParseUint(strings.TrimPrefix(text, "-0"), 10, 64); err == nil || text == "-0" {
			return protoreflect.ValueOfUint64(n), nil
		}
	}
	return none, argErrorf(at, "the number does not fit %s", k)
}

func float(k protoreflect.Kind, v any, at string) (protoreflect.Value, *argError) {
	bits := 64
	if k == protoreflect.FloatKind {
		bits = 32
	}
	var n float64
	switch v {
	case "NaN":
		n = math.NaN()
	case "Infinity":
		n = math.Inf(1)
	case "-Infinity":
		n = math.Inf(-1)
	default:
		text, ok := numberText(v)
		if !ok {
			return protoreflect.Value{}, argErrorf(at, "a number is expected")
		}
		var err error
		if n, err = strconv.ParseFloat(text, bits); err != nil {
			return protoreflect.Value{}, argErrorf(at, "the number does not fit %s", k)
		}
	}
	if bits == 32 {
		return protoreflect.ValueOfFloat32(float32(n)), nil
	}
	return protoreflect.ValueOfFloat64(n), nil
}

// special is a type with its own JSON form.
type special struct {
	write func(*writer, protoreflect.Message, any, string, int) *argError
	read  func(*shower, protoreflect.Message, int) (any, error)
}

func wellKnown(name protoreflect.FullName) (special, bool) {
	own, ok := strings.CutPrefix(string(name), "google.protobuf.")
	if !ok {
		return special{}, false
	}
	switch own {
	case "Any":
		return special{writeAny, readAny}, true
	case "Timestamp":
		return special{writeTimestamp, readTimestamp}, true
	case "Duration":
		return special{writeDuration, readDuration}, true
	case "FieldMask":
		return special{writeFieldMask, readFieldMask}, true
	case "Struct":
		return special{writeStruct, readStruct}, true
	case "Value":
		return special{writeValue, readValue}, true
	case "ListValue":
		return special{writeListValue, readListValue}, true
	case "DoubleValue", "FloatValue", "Int64Value", "UInt64Value", "Int32Value", "UInt32Value", "BoolValue", "StringValue", "BytesValue":
		return special{writeWrapper, readWrapper}, true
	}
	return special{}, false
}

func writeWrapper(_ *writer, m protoreflect.Message, v any, at string, _ int) *argError {
	f := m.Descriptor().Fields().ByNumber(1)
	x, err := scalar(f, v, at)
	if err == nil {
		m.Set(f, x)
	}
	return err
}

func writeAny(w *writer, m protoreflect.Message, v any, at string, depth int) *argError {
	tree, ok := v.(map[string]any)
	if !ok {
		return argErrorf(at, `an Any is an object with "@type"`)
	}
	if len(tree) == 0 {
		return nil
	}
	url, _ := tree["@type"].(string)
	if url == "" {
		return argErrorf(at, `an Any names its type in "@type", such as type.googleapis.com/acme.Thing`)
	}
	d := w.types.byURL(url)
	if d == nil {
		return argErrorf(at+"/@type", "the tool's descriptors have no type %q", toolkeep.ClipBytes(url, 300))
	}
	inner := dynamicpb.NewMessage(d)
	var err *argError
	if _, own := wellKnown(d.FullName()); own {
		value, has := tree["value"]
		if !has || len(tree) > 2 {
			return argErrorf(at, `an Any of %s holds "@type" and "value" alone`, d.FullName())
		}
		err = w.fill(inner, value, at+"/value", depth-1)
	} else {
		rest := maps.Clone(tree)
		delete(rest, "@type")
		err = w.fill(inner, rest, at, depth-1)
	}
	if err != nil {
		return err
	}
	raw, failed := proto.MarshalOptions{Deterministic: true}.Marshal(inner)
	if failed != nil {
		return argErrorf(at, "%s", toolkeep.ClipBytes(failed.Error(), 300))
	}
	fields := m.Descriptor().Fields()
	m.Set(fields.ByNumber(1), protoreflect.ValueOfString(url))
	m.Set(fields.ByNumber(2), protoreflect.ValueOfBytes(raw))
	return nil
}

func setTime(m protoreflect.Message, seconds int64, nanos int32) {
	fields := m.Descriptor().Fields()
	m.Set(fields.ByNumber(1), protoreflect.ValueOfInt64(seconds))
	m.Set(fields.ByNumber(2), protoreflect.ValueOfInt32(nanos))
}

func writeTimestamp(_ *writer, m protoreflect.Message, v any, at string, _ int) *argError {
	s, _ := v.(string)
	t, err := time.Parse(time.RFC3339Nano, s)
	if _, fraction, ok := strings.Cut(s, "."); err == nil && ok {
		digits := strings.TrimLeft(fraction, "0123456789")
		if len(fraction)-len(digits) > 9 {
			err = errors.New("too fine")
		}
	}
	if err != nil || strings.Contains(s, ",") || t.Unix() < minSeconds || t.Unix() > maxSeconds {
		return argErrorf(at, "a timestamp is written like 2026-01-31T12:00:00.5Z, years 1 to 9999, with at most 9 digits after the second")
	}
	setTime(m, t.Unix(), int32(t.Nanosecond()))
	return nil
}

const (
	minSeconds  = -62135596800 // 0001-01-01T00:00:00Z
	maxSeconds  = 253402300799 // 9999-12-31T23:59:59Z
	maxDuration = 315576000000 // seconds
)

func writeDuration(_ *writer, m protoreflect.Message, v any, at string, _ int) *argError {
	s, _ := v.(string)
	bad := argErrorf(at, "a duration is seconds with an s behind, such as 1.5s, at most 9 digits after the point")
	text, ok := strings.CutSuffix(s, "s")
	minus := strings.HasPrefix(text, "-")
	whole, fraction, pointed := strings.Cut(strings.TrimPrefix(text, "-"), ".")
	if !ok || whole == "" || !digits(whole) || !digits(fraction) || len(fraction) > 9 || pointed && fraction == "" {
		return bad
	}
	seconds, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || seconds > maxDuration {
		return bad
	}
	nanos, _ := strconv.ParseInt((fraction + "000000000")[:9], 10, 32)
	if minus {
		seconds, nanos = -seconds, -nanos
	}
	setTime(m, seconds, int32(nanos))
	return nil
}

func digits(s string) bool { return strings.Trim(s, "0123456789") == "" }

func writeFieldMask(_ *writer, m protoreflect.Message, v any, at string, _ int) *argError {
	s, ok := v.(string)
	if !ok {
		return argErrorf(at, "a field mask is a string of paths with commas between, such as user.displayName,photo")
	}
	f := m.Descriptor().Fields().ByNumber(1)
	list := m.Mutable(f).List()
	if s == "" {
		return nil
	}
	for path := range strings.SplitSeq(s, ",") {
		snake := snakeCase(path)
		if camelCase(snake) != path || path == "" {
			return argErrorf(at, "%q is not a path of a field mask; names are in lowerCamelCase", toolkeep.ClipBytes(path, 300))
		}
		list.Append(protoreflect.ValueOfString(snake))
	}
	return nil
}

func snakeCase(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= 'A' && c <= 'Z' {
			b.WriteByte('_')
			c += 'a' - 'A'
		}
		b.WriteByte(c)
	}
	return b.String()
}

func camelCase(s string) string {
	var b strings.Builder
	up := false
	for i := range len(s) {
		c := s[i]
		switch {
		case c == '_':
			up = true
			continue
		case up && c >= 'a' && c <= 'z':
			c -= 'a' - 'A'
		}
		up = false
		b.WriteByte(c)
	}
	return b.String()
}

func writeStruct(w *writer, m protoreflect.Message, v any, at string, depth int) *argError {
	tree, ok := v.(map[string]any)
	if !ok {
		return argErrorf(at, "an object is expected")
	}
	return w.field(m, m.Descriptor().Fields().ByNumber(1), tree, at, depth)
}

func writeListValue(w *writer, m protoreflect.Message, v any, at string, depth int) *argError {
	if _, ok := v.([]any); !ok {
		return argErrorf(at, "an array is expected")
	}
	return w.field(m, m.Descriptor().Fields().ByNumber(1), v, at, depth)
}

// writeValue sets the member of a google.protobuf.Value that matches the JSON value.
func writeValue(w *writer, m protoreflect.Message, v any, at string, depth int) *argError {
	number := protoreflect.FieldNumber(1)
	switch v.(type) {
	case json.Number:
		number = 2
	case string:
		number = 3
	case bool:
		number = 4
	case map[string]any:
		number = 5
	case []any:
		number = 6
	}
	return w.field(m, m.Descriptor().Fields().ByNumber(number), v, at, depth)
}
