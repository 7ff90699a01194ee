package grpc

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/toolkeep/toolkeep"
)

// maxInline is how deep messages are nested before they go into $defs.
const maxInline = 5

// shape builds JSON Schemas of messages.
type shape struct {
	input bool
	apart map[protoreflect.FullName]bool // in $defs
	defs  map[string]any
}

// parameters returns the schema of a method's arguments.
func parameters(d protoreflect.MethodDescriptor) map[string]any {
	s := newShape(d.Input(), true)
	if d.IsStreamingClient() {
		return s.finish(map[string]any{"type": "object", "required": []any{"messages"}, "additionalProperties": false,
			"properties": map[string]any{"messages": map[string]any{"type": "array", "items": s.message(d.Input(), 1),
				"description": "The messages of the stream, in order."}}})
	}
	if wrapped(d.Input()) {
		return s.finish(map[string]any{"type": "object", "required": []any{"value"}, "additionalProperties": false,
			"properties": map[string]any{"value": s.message(d.Input(), 1)}})
	}
	return s.finish(s.body(d.Input(), 0))
}

// result returns the schema of a method's result.
func result(d protoreflect.MethodDescriptor) map[string]any {
	s := newShape(d.Output(), false)
	if d.IsStreamingServer() {
		return s.finish(map[string]any{"type": "object", "required": []any{"messages", "complete"},
			"properties": map[string]any{"messages": map[string]any{"type": "array", "items": s.message(d.Output(), 1)},
				"complete": map[string]any{"type": "boolean", "description": "false where a limit cut the stream off"}}})
	}
	return s.finish(s.body(d.Output(), 0))
}

// wrapped reports whether the message is not an object in JSON, so that it needs a name as an
// argument.
func wrapped(d protoreflect.MessageDescriptor) bool {
	own, ok := strings.CutPrefix(string(d.FullName()), "google.protobuf.")
	switch own {
	case "Timestamp", "Duration", "FieldMask", "Value", "ListValue", "DoubleValue", "FloatValue", "Int64Value", "UInt64Value",
		"Int32Value", "UInt32Value", "BoolValue", "StringValue", "BytesValue":
		return ok
	}
	return false
}

func newShape(d protoreflect.MessageDescriptor, input bool) *shape {
	s := &shape{input: input, apart: map[protoreflect.FullName]bool{}, defs: map[string]any{}}
	s.survey(d, map[protoreflect.FullName]bool{}, 0)
	return s
}

// survey finds messages that occur twice, which includes all recursive ones, or very deep.
func (s *shape) survey(d protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool, depth int) {
	if s.special(d) != nil {
		return
	}
	if seen[d.FullName()] {
		s.apart[d.FullName()] = true
		return
	}
	seen[d.FullName()] = true
	if depth > 0 && depth%maxInline == 0 {
		s.apart[d.FullName()] = true
	}
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		if f.IsMap() {
			f = f.MapValue()
		}
		if sub := f.Message(); sub != nil {
			s.survey(sub, seen, depth+1)
		}
	}
}

func (s *shape) finish(schema map[string]any) map[string]any {
	if len(s.defs) > 0 {
		schema["$defs"] = s.defs
	}
	return schema
}

// message returns the schema of a message at the place of use.
func (s *shape) message(d protoreflect.MessageDescriptor, depth int) map[string]any {
	name := string(d.FullName())
	if !s.apart[d.FullName()] {
		return s.body(d, depth)
	}
	if s.defs[name] == nil {
		s.defs[name] = true // it may be used within itself
		s.defs[name] = s.body(d, 0)
	}
	return map[string]any{"$ref": "#/$defs/" + name}
}

func (s *shape) body(d protoreflect.MessageDescriptor, depth int) map[string]any {
	if special := s.special(d); special != nil {
		return special
	}
	properties, required := map[string]any{}, []any{}
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		properties[f.JSONName()] = s.field(f, depth)
		if f.Cardinality() == protoreflect.Required {
			required = append(required, f.JSONName())
		}
	}
	schema := map[string]any{"type": "object", "properties": properties}
	if s.input {
		schema["additionalProperties"] = false
	}
	if len(required) > 0 {
		schema["required"] = required
	}
	if text := comment(d); text != "" && depth > 0 {
		schema["description"] = toolkeep.CutBytes(text, maxFieldText)
	}
	var rules []any
	for i := range d.Oneofs().Len() {
		if o := d.Oneofs().Get(i); !o.IsSynthetic() && o.Fields().Len() > 1 {
			rules = append(rules, oneOf(o))
		}
	}
	if len(rules) > 0 {
		schema["allOf"] = rules
	}
	return schema
}

// oneOf accepts one of the members, or none.
func oneOf(o protoreflect.OneofDescriptor) map[string]any {
	var one []any
	for i := range o.Fields().Len() {
		one = append(one, map[string]any{"required": []any{o.Fields().Get(i).JSONName()}})
	}
	return map[string]any{"oneOf": append(slices.Clone(one), map[string]any{"not": map[string]any{"anyOf": one}})}
}

func (s *shape) field(f protoreflect.FieldDescriptor, depth int) map[string]any {
	var schema map[string]any
	switch {
	case f.IsMap():
		schema = map[string]any{"type": "object", "additionalProperties": s.value(f.MapValue(), depth)}
		if names := keyNames(f.MapKey()); names != nil {
			schema["propertyNames"] = names
		}
	case f.IsList():
		schema = map[string]any{"type": "array", "items": s.value(f, depth)}
	default:
		schema = s.value(f, depth)
	}
	text := comment(f)
	if f.HasDefault() && f.Enum() == nil {
		text = strings.TrimSpace(fmt.Sprintf("%s\n\nNot given, it is read as %s.", text, defaultText(f)))
	} else if f.HasDefault() {
		text = strings.TrimSpace(text + "\n\nNot given, it is read as " + string(f.DefaultEnumValue().Name()) + ".")
	}
	if text != "" {
		schema["description"] = toolkeep.CutBytes(text, maxFieldText)
	}
	if o, ok := f.Options().(*descriptorpb.FieldOptions); ok && o.GetDeprecated() {
		schema["deprecated"] = true
	}
	return schema
}

func defaultText(f protoreflect.FieldDescriptor) string {
	switch f.Kind() {
	case protoreflect.StringKind:
		return fmt.Sprintf("%q", toolkeep.CutBytes(f.Default().String(), 200))
	case protoreflect.BytesKind:
		return fmt.Sprintf("the bytes %x", toolkeep.CutBytes(string(f.Default().Bytes()), 100))
	}
	return fmt.Sprint(f.Default().Interface())
}

func keyNames(f protoreflect.FieldDescriptor) map[string]any {
	switch f.Kind() {
	case protoreflect.StringKind:
		return nil
	case protoreflect.BoolKind:
		return map[string]any{"enum": []any{"true", "false"}}
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return map[string]any{"pattern": "^[0-9]+$"}
	}
	return map[string]any{"pattern": "^-?[0-9]+$"}
}

func (s *shape) value(f protoreflect.FieldDescriptor, depth int) map[string]any {
	if d := f.Message(); d != nil {
		return s.message(d, depth+1)
	}
	return s.scalar(f)
}

func integer(least, most string) map[string]any {
	m := map[string]any{"type": "integer", "minimum": json.Number(least)}
	if most != "" {
		m["maximum"] = json.Number(most)
	}
	return m
}

func (s *shape) scalar(f protoreflect.FieldDescriptor) map[string]any {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return map[string]any{"type": "boolean"}
	case protoreflect.StringKind:
		return map[string]any{"type": "string"}
	case protoreflect.BytesKind:
		return map[string]any{"type": "string", "contentEncoding": "base64"}
	case protoreflect.EnumKind:
		return s.enum(f.Enum())
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return map[string]any{"anyOf": []any{map[string]any{"type": "number"}, map[string]any{"enum": []any{"NaN", "Infinity", "-Infinity"}}}}
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return integer("-2147483648", "2147483647")
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return integer("0", "4294967295")
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return s.long("^-?[0-9]{1,19}$")
	}
	return s.long("^[0-9]{1,20}$")
}

// long is a 64-bit number. The executor checks the range: JSON's canonical form cannot hold the
// largest numbers exactly.
func (s *shape) long(pattern string) map[string]any {
	if s.input {
		return map[string]any{"type": []any{"integer", "string"}, "pattern": pattern}
	}
	return map[string]any{"type": "string", "pattern": pattern}
}

func (s *shape) enum(d protoreflect.EnumDescriptor) map[string]any {
	if d.FullName() == "google.protobuf.NullValue" {
		return map[string]any{"type": "null"}
	}
	names := []any{}
	for i := range d.Values().Len() {
		names = append(names, string(d.Values().Get(i).Name()))
	}
	named := map[string]any{"type": "string", "enum": names}
	if d.IsClosed() {
		return named
	}
	// A newer server may return a value without a name here, and takes it back.
	return map[string]any{"anyOf": []any{named, integer("-2147483648", "2147483647")}}
}

// special returns the schema of a type with its own JSON form, nil for others.
func (s *shape) special(d protoreflect.MessageDescriptor) map[string]any {
	own, ok := strings.CutPrefix(string(d.FullName()), "google.protobuf.")
	if !ok {
		return nil
	}
	switch own {
	case "Timestamp":
		return map[string]any{"type": "string", "format": "date-time"}
	case "Duration":
		return map[string]any{"type": "string", "pattern": `^-?[0-9]{1,12}(\.[0-9]{1,9})?s$`, "description": "Seconds with an s behind, such as 1.5s."}
	case "FieldMask":
		return map[string]any{"type": "string", "description": "Paths in lowerCamelCase with commas between, such as user.displayName,photo."}
	case "Struct":
		return map[string]any{"type": "object"}
	case "Value":
		return map[string]any{"description": "Any JSON value."}
	case "ListValue":
		return map[string]any{"type": "array"}
	case "Any":
		schema := map[string]any{"type": "object", "properties": map[string]any{"@type": map[string]any{"type": "string",
			"description": "URL of the type, such as type.googleapis.com/acme.Thing; the type's members stand beside it."}}}
		if s.input {
			schema["required"] = []any{"@type"}
		}
		return schema
	case "DoubleValue", "FloatValue", "Int64Value", "UInt64Value", "Int32Value", "UInt32Value", "BoolValue", "StringValue", "BytesValue":
		return s.scalar(d.Fields().ByNumber(1))
	}
	return nil
}
