package rest

import (
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// tree is an object of the document.
type tree = map[string]any

// components are the named schemas of the document. They are made of types and
// their tags: json (omitempty and omitzero make a member optional), doc, enum,
// format, pattern, example, default, writeOnly, minimum, maximum, minLength, maxLength,
// minItems and maxItems; nameHint names a struct that has no name.
type components struct {
	schemas map[string]any
	types   map[string]reflect.Type
}

// componentsAt is where the document has them.
const componentsAt = "#/components/schemas/"

// described is a type that describes itself.
type described interface{ describe(c *components) tree }

var (
	timeType = reflect.TypeFor[time.Time]()
	rawType  = reflect.TypeFor[json.RawMessage]()
	textType = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// ref describes the type of v by reference.
func (c *components) ref(v any) tree { return c.of(reflect.TypeOf(v), "") }

// of describes a type; hint is the name of a struct that has none.
func (c *components) of(t reflect.Type, hint string) tree {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if d, ok := reflect.Zero(t).Interface().(described); ok {
		return d.describe(c)
	}
	switch {
	case t == timeType:
		return tree{"type": "string", "format": "date-time"}
	case t == rawType:
		return tree{}
	case reflect.PointerTo(t).Implements(textType):
		return tree{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Bool:
		return tree{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return tree{"type": "integer", "format": "int64"}
	case reflect.Float64:
		return tree{"type": "number", "format": "double"}
	case reflect.String:
		return tree{"type": "string"}
	case reflect.Slice:
		return tree{"type": "array", "items": c.of(t.Elem(), hint+"Item")}
	case reflect.Map:
		return tree{"type": "object", "additionalProperties": c.of(t.Elem(), hint+"Value")}
	case reflect.Struct:
		return c.object(t, hint)
	case reflect.Interface:
		return tree{}
	}
	panic("rest: the document has no schema for " + t.String())
}

// object describes a struct once, and gives the reference to it.
func (c *components) object(t reflect.Type, hint string) tree {
	name := t.Name()
	if name == "" {
		name = hint
	}
	name = strings.ToUpper(name[:1]) + name[1:]
	ref := tree{"$ref": componentsAt + name}
	if known := c.types[name]; known != nil {
		if known != t {
			panic("rest: the document has two schemas " + name + ": " + known.String() + " and " + t.String())
		}
		return ref
	}
	// What callers send is closed. Answers are open: clients are to pass over members
	// that come later.
	closed := strings.HasSuffix(name, "Request") || name == "Registration"
	s, members, required := tree{"type": "object"}, tree{}, []string{}
	c.types[name], c.schemas[name] = t, s
	for _, f := range reflect.VisibleFields(t) {
		key, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && key == "" || !f.IsExported() || key == "-" {
			continue
		}
		if key == "" {
			key = f.Name
		}
		m := c.member(f, t.Name()+f.Name+"Struct")
		if closed && m["type"] == "array" {
			m["type"] = []string{"array", "null"}
		}
		members[key] = m
		if !strings.Contains(options, "omit") {
			required = append(required, key)
		}
	}
	if len(members) > 0 {
		s["properties"] = members
	}
	if len(required) > 0 {
		s["required"] = required
	}
	if closed {
		s["additionalProperties"] = false
	}
	return ref
}

// member describes a field with its tags.
func (c *components) member(f reflect.StructField, hint string) tree {
	if name := f.Tag.Get("nameHint"); name != "" {
		hint = name
	}
	s := c.of(f.Type, hint)
	if doc := f.Tag.Get("doc"); doc != "" {
		s["description"] = doc
	}
	for _, name := range []string{"minItems", "maxItems", "default", "writeOnly"} {
		if v, ok := f.Tag.Lookup(name); ok {
			s[name] = tagValue(s, v)
		}
	}
	if v, ok := f.Tag.Lookup("example"); ok {
		s["examples"] = []any{tagValue(s, v)}
	}
	of := s // what a list has is said of its elements
	if items, ok := s["items"].(tree); ok {
		of = items
	}
	for _, name := range []string{"format", "pattern", "minimum", "maximum", "minLength", "maxLength"} {
		if v, ok := f.Tag.Lookup(name); ok {
			of[name] = tagValue(tree{}, v)
		}
	}
	if v, ok := f.Tag.Lookup("enum"); ok {
		list := []any{}
		for one := range strings.SplitSeq(v, ",") {
			list = append(list, tagValue(of, one))
		}
		of["enum"] = list
	}
	return s
}

// tagValue reads a tag as JSON where it is some and not wanted as text.
func tagValue(s tree, v string) any {
	var out any
	if s["type"] == "string" || json.Unmarshal([]byte(v), &out) != nil {
		return v
	}
	if _, err := strconv.ParseFloat(v, 64); err == nil {
		return json.Number(v)
	}
	return out
}

// mayBeNull says of the envelope's optional members what its reader does: null is
// as good as absent.
func (c *components) mayBeNull(names ...string) {
	for _, name := range names {
		s := c.schemas[name].(tree)
		required, _ := s["required"].([]string)
		for key, m := range s["properties"].(tree) {
			m := m.(tree)
			switch {
			case slices.Contains(required, key):
			case m["$ref"] != nil:
				ref := tree{"$ref": m["$ref"]}
				delete(m, "$ref")
				m["anyOf"] = []any{ref, tree{"type": "null"}}
			case m["type"] != nil:
				if kind, ok := m["type"].(string); ok {
					m["type"] = []string{kind, "null"}
				}
				if list, ok := m["enum"].([]any); ok {
					m["enum"] = append(list, nil)
				}
			}
		}
	}
}
