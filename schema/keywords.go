package schema

import (
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/toolkeep/toolkeep/canon"
)

// Form is what the value of a keyword contains.
type Form uint8

// The forms of keywords.
const (
	Data Form = iota // no schema: text, a number, names, any JSON
	One              // a schema; items, up to 2019-09, may be a list of schemas
	List             // a list of schemas
	Map              // schemas by name; dependencies may also contain lists of names
)

// Dialect is a set of versions of JSON Schema.
type Dialect uint8

// The dialects in the keyword table. OpenAPI 3.1 and later use Draft2020.
const (
	Draft4 Dialect = 1 << iota
	Draft6
	Draft7
	Draft2019
	Draft2020
	OpenAPI30
)

// Sets of dialects: from a draft on, or up to one.
const (
	from2019 = Draft2019 | Draft2020
	from7    = Draft7 | from2019
	from6    = Draft6 | from7
	from4    = Draft4 | from6
	to7      = Draft4 | Draft6 | Draft7
	to2019   = to7 | Draft2019
	always   = from4 | OpenAPI30
)

// Keyword is one keyword of JSON Schema.
type Keyword struct {
	Name string
	Form Form
	In   Dialect // dialects in which it has a meaning
	// InPlace says that the keyword's schemas apply to the same value as the enclosing schema, not to a part of it.
	InPlace bool
	// Type is the type of values it applies to: "string", "number", "array" or "object"; "" for all.
	Type string
}

// keywords is the only keyword table: nothing else says where in a schema other schemas stand.
var keywords = index([]Keyword{
	// Schemas for the same value.
	{"allOf", List, always, true, ""},
	{"anyOf", List, always, true, ""},
	{"oneOf", List, always, true, ""},
	{"not", One, always, true, ""},
	{"if", One, from7, true, ""},
	{"then", One, from7, true, ""},
	{"else", One, from7, true, ""},
	{"dependentSchemas", Map, from2019, true, "object"},
	{"dependencies", Map, to7, true, "object"},

	// Schemas for parts of the value.
	{"properties", Map, always, false, "object"},
	{"patternProperties", Map, from4, false, "object"},
	{"additionalProperties", One, always, false, "object"},
	{"unevaluatedProperties", One, from2019, false, "object"},
	{"propertyNames", One, from6, false, "object"},
	{"items", One, always, false, "array"},
	{"prefixItems", List, Draft2020, false, "array"},
	{"additionalItems", One, to2019, false, "array"},
	{"unevaluatedItems", One, from2019, false, "array"},
	{"contains", One, from6, false, "array"},
	{"contentSchema", One, from2019, false, "string"},

	// Schemas that apply only when referenced.
	{"$defs", Map, from2019, false, ""},
	{"definitions", Map, from4, false, ""},

	// References and names.
	{"$ref", Data, always, true, ""},
	{"$dynamicRef", Data, Draft2020, true, ""},
	{"$recursiveRef", Data, Draft2019, true, ""},
	{"$schema", Data, from4, false, ""},
	{"id", Data, Draft4, false, ""},
	{"$id", Data, from6, false, ""},
	{"$anchor", Data, from2019, false, ""},
	{"$dynamicAnchor", Data, Draft2020, false, ""},
	{"$recursiveAnchor", Data, Draft2019, false, ""},
	{"$vocabulary", Data, from2019, false, ""},
	{"$comment", Data, from7, false, ""},

	// Assertions on a value.
	{"type", Data, always, false, ""},
	{"enum", Data, always, false, ""},
	{"const", Data, from6, false, ""},
	{"multipleOf", Data, always, false, "number"},
	{"maximum", Data, always, false, "number"},
	{"minimum", Data, always, false, "number"},
	{"exclusiveMaximum", Data, always, false, "number"},
	{"exclusiveMinimum", Data, always, false, "number"},
	{"maxLength", Data, always, false, "string"},
	{"minLength", Data, always, false, "string"},
	{"pattern", Data, always, false, "string"},
	{"maxItems", Data, always, false, "array"},
	{"minItems", Data, always, false, "array"},
	{"uniqueItems", Data, always, false, "array"},
	{"maxContains", Data, from2019, false, "array"},
	{"minContains", Data, from2019, false, "array"},
	{"maxProperties", Data, always, false, "object"},
	{"minProperties", Data, always, false, "object"},
	{"required", Data, always, false, "object"},
	{"dependentRequired", Data, from2019, false, "object"},
	{"nullable", Data, OpenAPI30, false, ""},

	// Annotations.
	{"format", Data, always, false, ""},
	{"title", Data, always, false, ""},
	{"description", Data, always, false, ""},
	{"default", Data, always, false, ""},
	{"examples", Data, from6, false, ""},
	{"example", Data, OpenAPI30, false, ""},
	{"deprecated", Data, from2019 | OpenAPI30, false, ""},
	{"readOnly", Data, from7 | OpenAPI30, false, ""},
	{"writeOnly", Data, from7 | OpenAPI30, false, ""},
	{"contentEncoding", Data, from7, false, "string"},
	{"contentMediaType", Data, from7, false, "string"},
	{"discriminator", Data, OpenAPI30, false, ""},
	{"externalDocs", Data, OpenAPI30, false, ""},
	{"xml", Data, OpenAPI30, false, ""},
})

func index(list []Keyword) map[string]*Keyword {
	m := make(map[string]*Keyword, len(list))
	for i := range list {
		m[list[i].Name] = &list[i]
	}
	return m
}

// Find returns a keyword by name; the zero Keyword if no dialect has it.
func Find(name string) Keyword {
	if k := keywords[name]; k != nil {
		return *k
	}
	return Keyword{}
}

// Place is the position of a schema in its parent.
type Place struct {
	Keyword *Keyword
	Name    string // under the keyword: a property, a pattern, an index; "" for a single schema
	only    bool
}

// Pointer returns the place as a JSON Pointer.
func (p Place) Pointer() string {
	if p.only {
		return canon.Pointer(p.Keyword.Name)
	}
	return canon.Pointer(p.Keyword.Name, p.Name)
}

// Below iterates over the schemas directly within s, which are objects, true or false, by keyword and then by name
// or index. It knows the keywords of all dialects.
func Below(s map[string]any) iter.Seq2[Place, any] {
	return func(yield func(Place, any) bool) {
		var room [8]*Keyword
		held := room[:0]
		for name := range s {
			if k := keywords[name]; k != nil && k.Form != Data {
				held = append(held, k)
			}
		}
		slices.SortFunc(held, func(a, b *Keyword) int { return strings.Compare(a.Name, b.Name) })
		for _, k := range held {
			if !k.each(s[k.Name], yield) {
				return
			}
		}
	}
}

func (k *Keyword) each(v any, yield func(Place, any) bool) bool {
	list, isList := v.([]any)
	named, isMap := v.(map[string]any)
	switch {
	case k.Form == One && isSchema(v):
		return yield(Place{k, "", true}, v)
	case k.Form == Map && isMap:
		for _, name := range sortedKeys(named) {
			if isSchema(named[name]) && !yield(Place{k, name, false}, named[name]) {
				return false
			}
		}
	case isList && (k.Form == List || k.Name == "items"):
		for i, e := range list {
			if isSchema(e) && !yield(Place{k, strconv.Itoa(i), false}, e) {
				return false
			}
		}
	}
	return true
}

func isSchema(v any) bool {
	switch v.(type) {
	case map[string]any, bool:
		return true
	}
	return false
}

// maxWalk limits the depth of Walk; no parsed schema is as deep.
const maxWalk = 1000

// Walk visits a schema and every object schema within it, parents first, each with its JSON Pointer. It stops and
// returns false when visit returns false. It does not follow references.
func Walk(s any, visit func(at string, s map[string]any) bool) bool {
	return walk(s, "", maxWalk, visit)
}

func walk(v any, at string, left int, visit func(string, map[string]any) bool) bool {
	s, ok := v.(map[string]any)
	if !ok || left == 0 {
		return true
	}
	if !visit(at, s) {
		return false
	}
	for p, below := range Below(s) {
		if !walk(below, at+p.Pointer(), left-1, visit) {
			return false
		}
	}
	return true
}

// Replace returns a copy of s with each direct subschema replaced by f's result.
func Replace(s map[string]any, f func(p Place, v any) any) map[string]any {
	out := maps.Clone(s)
	copied := ""
	for p, v := range Below(s) {
		name := p.Keyword.Name
		if p.only {
			out[name] = f(p, v)
			continue
		}
		first := name != copied
		copied = name
		switch held := out[name].(type) {
		case map[string]any:
			if first {
				held = maps.Clone(held)
				out[name] = held
			}
			held[p.Name] = f(p, v)
		case []any:
			if first {
				held = slices.Clone(held)
				out[name] = held
			}
			i, _ := strconv.Atoi(p.Name)
			held[i] = f(p, v)
		}
	}
	return out
}
