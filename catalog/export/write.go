package export

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/schema"
)

// convert converts one schema. reason says why it cannot.
func (c *converter) convert(v any, at string) (out map[string]any, reason string) {
	if !c.spend() {
		return nil, tooMuch
	}
	switch s := v.(type) {
	case located:
		return c.convert(s.v, s.at)
	case bool:
		if s {
			return c.anything(map[string]any{}, at)
		}
		return nil, "nothing is allowed there"
	case map[string]any:
		return c.schema(s, at)
	}
	return nil, "there is no schema"
}

func (c *converter) schema(s map[string]any, at string) (map[string]any, string) {
	if ref, ok := s["$ref"].(string); ok {
		if !bindsMore(s) {
			return c.refer(s, ref, at)
		}
	}
	if one := onlyReference(s); one != "" {
		c.lose(under(at, "allOf"), "allOf", "its one part is referred to directly")
		rest := maps.Clone(s)
		delete(rest, "allOf")
		return c.refer(rest, one, at)
	}
	if has(s, "$ref", "allOf") {
		if c.active[at] {
			return nil, c.recursive()
		}
		flat, reason := c.flatten(s, at, nil)
		if reason != "" {
			return nil, reason
		}
		c.lose(at, "allOf", "its parts are written as one schema")
		c.active[at] = true
		defer delete(c.active, at)
		s = flat
	}
	for _, k := range []string{"anyOf", "oneOf"} {
		if list, ok := s[k].([]any); ok {
			return c.alternatives(s, k, list, at)
		}
	}
	return c.typed(s, at)
}

// recursive refuses a schema that contains itself.
func (c *converter) recursive() string {
	return "the schema leads back to itself, which is not exported for " + c.rules.who
}

// onlyReference returns the reference of an allOf that has only descriptive text beside it.
func onlyReference(s map[string]any) string {
	list, ok := s["allOf"].([]any)
	if !ok || len(list) != 1 || s["$ref"] != nil {
		return ""
	}
	m, _ := list[0].(map[string]any)
	if ref, ok := m["$ref"].(string); ok && len(m) == 1 {
		rest := maps.Clone(s)
		delete(rest, "allOf")
		if !bindsMore(rest) {
			return ref
		}
	}
	return ""
}

// bindsMore reports whether a reference has constraints beside it.
func bindsMore(s map[string]any) bool {
	for k := range s {
		if k != "$ref" && !descriptive[k] && !silent[k] && !strings.HasPrefix(k, "x-") && !slices.Contains([]string{"example", "nullable", "xml", "externalDocs"}, k) {
			return true
		}
	}
	return false
}

// refer writes a reference, and the schema that it refers to once.
func (c *converter) refer(s map[string]any, ref, at string) (map[string]any, string) {
	target, pointer, ok := c.resolve(ref)
	if !ok {
		return nil, outside(ref)
	}
	d := c.defs[pointer]
	switch {
	case pointer == "" || d != nil && d.busy:
		return nil, c.recursive()
	case d == nil:
		d = &definition{name: freeName(c.names, pointer), busy: true}
		c.names[d.name], c.defs[pointer] = true, d
		d.out, d.reason = c.convert(target, pointer)
		d.busy = false
	}
	if d.reason != "" {
		return nil, d.reason
	}
	for _, k := range keys(s) {
		if k != "$ref" && !silent[k] {
			c.lose(under(at, k), k, c.rules.who+" accepts nothing beside a $ref")
		}
	}
	return map[string]any{"$ref": "#/$defs/" + d.name}, ""
}

// alternatives converts anyOf and oneOf. What stands beside them and is more than words and a type is written instead
// of them: it usually describes the value, and the alternatives which properties go together.
func (c *converter) alternatives(s map[string]any, k string, list []any, at string) (map[string]any, string) {
	rest := maps.Clone(s)
	delete(rest, k)
	kinds := types(rest["type"])
	beside := maps.Clone(rest)
	delete(beside, "type")
	if bindsMore(beside) || len(kinds) > 1 || len(kinds) == 1 && scalarTypes[kinds[0]] {
		c.lose(under(at, k), k, "what the alternatives add to the rest is told no more")
		return c.schema(rest, at)
	}
	if len(kinds) == 1 {
		c.lose(under(at, "type"), "type", "each alternative says it")
	}
	to := k
	if k == "oneOf" && !c.rules.oneOf {
		c.lose(under(at, k), k, "it is written as anyOf, which may match more than one")
		to = "anyOf"
	}
	var alternatives []any
	why := "no alternative is left"
	for i, e := range list {
		place := under(at, k, strconv.Itoa(i))
		if l, ok := e.(located); ok {
			e, place = l.v, l.at
		}
		if m, ok := e.(map[string]any); ok && len(kinds) == 1 && !has(m, "type", "$ref", "allOf", "anyOf", "oneOf") {
			m = maps.Clone(m)
			m["type"] = kinds[0]
			e = m
		}
		one, reason := c.convert(e, place)
		if reason != "" {
			why = reason
			c.lose(place, "alternative", reason)
			continue
		}
		if !slices.ContainsFunc(alternatives, func(x any) bool { return reflect.DeepEqual(x, one) }) {
			alternatives = append(alternatives, one)
		}
	}
	if len(alternatives) == 0 {
		return nil, why
	}
	out := map[string]any{to: alternatives}
	c.words(out, rest)
	for _, w := range keys(beside) {
		if out[w] == nil && !silent[w] {
			c.lose(under(at, w), w, c.rules.who+" does not have it")
		}
	}
	return out, ""
}

// typed converts a schema by its type.
func (c *converter) typed(s map[string]any, at string) (map[string]any, string) {
	kinds := types(s["type"])
	if len(kinds) == 0 {
		if kinds = inferred(s); len(kinds) == 0 {
			return c.anything(s, at)
		}
		if !has(s, "enum", "const") && !c.rules.anything {
			c.lose(under(at, "type"), "values of other types", "the schema names no type; "+kinds[0]+" is the type that its keywords imply")
		}
		if c.rules.anything && !has(s, "enum", "const") {
			kinds = nil
		}
	}
	if len(kinds) == 0 { // for a form that needs no type
		return c.untyped(s, at)
	}
	if len(kinds) == 1 {
		switch kinds[0] {
		case "object":
			return c.finished(s, at, "object", c.object)
		case "array":
			return c.finished(s, at, "array", c.array)
		}
	}
	structured := slices.DeleteFunc(slices.Clone(kinds), func(k string) bool { return scalarTypes[k] })
	switch {
	case len(structured) == 0:
		return c.scalar(s, at, kinds)
	case c.rules.anything:
		out, reason := c.untyped(s, at)
		if reason == "" && s["type"] != nil {
			out["type"] = s["type"]
		}
		return out, reason
	case len(kinds) == 2 && slices.Contains(kinds, "null"):
		one := maps.Clone(s)
		one["type"] = structured[0]
		out, reason := c.typed(one, at)
		if reason == "" {
			c.lose(under(at, "type"), "type", "null is written as an alternative")
			out = nullable(out)
		}
		return out, reason
	}
	return nil, c.rules.who + " has no schema of several types with objects or arrays among them"
}

// inferred returns the types that a schema's keywords apply to.
func inferred(s map[string]any) []string {
	if v, ok := s["const"]; ok {
		return []string{kindOf(v)}
	}
	if list, ok := s["enum"].([]any); ok {
		var kinds []string
		for _, v := range list {
			if k := kindOf(v); !slices.Contains(kinds, k) {
				kinds = append(kinds, k)
			}
		}
		return kinds
	}
	for _, kind := range []string{"object", "array", "string", "number"} {
		for k := range s {
			if schema.Find(k).Type == kind {
				return []string{kind}
			}
		}
	}
	if has(s, "format") {
		return []string{"string"}
	}
	return nil
}

func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	}
	return "number"
}

// anything converts a schema that allows every value.
func (c *converter) anything(s map[string]any, at string) (map[string]any, string) {
	if c.rules.anything {
		return c.untyped(s, at)
	}
	out := map[string]any{"anyOf": []any{
		map[string]any{"type": "string"}, map[string]any{"type": "number"}, map[string]any{"type": "boolean"}, map[string]any{"type": "null"},
	}}
	c.lose(at, "objects and arrays", c.rules.who+" has no schema for any value; plain values are left")
	c.words(out, s)
	c.finish(out, s, at, "")
	return out, ""
}

// untyped converts a schema without type, with all keywords that the form supports.
func (c *converter) untyped(s map[string]any, at string) (map[string]any, string) {
	out := map[string]any{}
	if has(s, "properties", "required", "additionalProperties") {
		sub, reason := c.object(s, at)
		if reason != "" {
			return nil, reason
		}
		delete(sub, "type")
		maps.Copy(out, sub)
	}
	if has(s, "items", "prefixItems") {
		sub, reason := c.array(s, at)
		if reason != "" {
			return nil, reason
		}
		delete(sub, "type")
		maps.Copy(out, sub)
	}
	c.finish(out, s, at, "*")
	return out, ""
}

func (c *converter) words(out, s map[string]any) {
	for _, w := range []string{"title", "description", "default"} {
		if v, ok := s[w]; ok && c.rules.keywords[w] {
			out[w] = v
		}
	}
}

func (c *converter) finished(s map[string]any, at, kind string, write func(map[string]any, string) (map[string]any, string)) (map[string]any, string) {
	out, reason := write(s, at)
	if reason == "" {
		c.finish(out, s, at, kind)
	}
	return out, reason
}

// scalar converts strings, numbers, booleans and null.
func (c *converter) scalar(s map[string]any, at string, kinds []string) (map[string]any, string) {
	out := map[string]any{"type": typeOf(kinds)}
	kind := "*"
	if len(kinds) == 1 {
		kind = kinds[0]
	}
	c.finish(out, s, at, kind)
	if _, typed := s["type"]; !typed && c.rules.anything && has(out, "enum", "const") {
		delete(out, "type") // the values imply it
	}
	return out, ""
}

// enum writes the values that the form accepts.
func (c *converter) enum(out, s map[string]any, at string) {
	if v, ok := s["const"]; ok {
		switch kind := kindOf(v); {
		case c.rules.constant && c.rules.values[kind]:
			out["const"] = v
		case c.rules.values[kind]:
			out["enum"] = []any{v}
			c.lose(under(at, "const"), "const", "it is written as an enum of one value")
		default:
			c.lose(under(at, "const"), "const", c.rules.who+" accepts no such value")
		}
	}
	list, ok := s["enum"].([]any)
	if !ok || out["enum"] != nil {
		return
	}
	kept := make([]any, 0, len(list))
	for i, v := range list {
		if c.rules.values[kindOf(v)] {
			kept = append(kept, v)
		} else {
			c.lose(under(at, "enum", strconv.Itoa(i)), "value of an enum", c.rules.who+" takes no "+kindOf(v)+" there")
		}
	}
	if len(kept) > 0 {
		out["enum"] = kept
	}
}

// finish copies the supported keywords and reports the others. kind is the type of the schema, "*" for any.
func (c *converter) finish(out, s map[string]any, at, kind string) {
	c.enum(out, s, at)
	for _, k := range keys(s) {
		switch _, done := out[k]; {
		case done, silent[k], slices.Contains([]string{"type", "enum", "const", "properties", "required", "items", "prefixItems", "additionalProperties", "$ref", "allOf"}, k):
			continue
		}
		of := schema.Find(k).Type
		fits := of == "" || kind == "*" || of == kind || of == "number" && kind == "integer"
		switch {
		case !fits:
			c.lose(under(at, k), k, "it does not describe values of the type "+kind)
		case c.rules.closed && kind == "object" && k == "unevaluatedProperties" && s[k] == false:
		case c.rules.keywords[k] && c.keeps(k, s[k], kind):
			out[k] = s[k]
		default:
			c.lose(under(at, k), k, c.rules.who+" does not have it")
		}
	}
}

// keeps reports whether the form supports a keyword with this value.
func (c *converter) keeps(k string, v any, kind string) bool {
	switch k {
	case "format":
		return c.rules.takes(k, v) && (c.rules.formats == nil || kind == "string" || kind == "*")
	case "pattern":
		text, _ := v.(string)
		_, err := regexp.Compile(text) // no look-around and no back references
		return err == nil
	}
	return c.rules.takes(k, v)
}

// array converts an array without its other keywords.
func (c *converter) array(s map[string]any, at string) (map[string]any, string) {
	out := map[string]any{"type": "array"}
	if list, ok := s["prefixItems"].([]any); ok {
		if !c.rules.tuples {
			return nil, c.rules.who + " has no arrays with a schema for each position"
		}
		var places []any
		for i, e := range list {
			one, reason := c.convert(e, under(at, "prefixItems", strconv.Itoa(i)))
			if reason != "" {
				return nil, reason
			}
			places = append(places, one)
		}
		out["prefixItems"] = places
	}
	items, ok := s["items"]
	switch {
	case !ok && c.rules.anything:
		return out, ""
	case !ok:
		items = true
	case items == false && c.rules.anything:
		c.lose(under(at, "items"), "items", c.rules.who+" may not read that there are no more")
		return out, ""
	case items == true && c.rules.anything:
		out["items"] = map[string]any{}
		c.lose(under(at, "items"), "items", "true is written as an empty schema")
		return out, ""
	}
	one, reason := c.convert(items, under(at, "items"))
	if reason != "" {
		return nil, reason
	}
	out["items"] = one
	return out, ""
}

// object converts an object without its other keywords.
func (c *converter) object(s map[string]any, at string) (map[string]any, string) {
	out := map[string]any{"type": "object"}
	properties, _ := s["properties"].(map[string]any)
	needed := strs(s["required"])
	written := make(map[string]any, len(properties))
	var required []any
	names := keys(properties)
	for _, n := range needed {
		if _, ok := properties[n]; !ok && c.rules.closed && !slices.Contains(names, n) {
			names = append(names, n) // it has no schema but is required
		}
	}
	slices.Sort(names)
	for _, name := range names {
		place := under(at, "properties", name)
		p, ok := properties[name]
		if !ok {
			p = true
		}
		if l, ok := p.(located); ok {
			place = l.at
		}
		sub, reason := c.convert(p, place)
		if reason != "" {
			if slices.Contains(needed, name) {
				return nil, "the required property " + strconv.Quote(toolkeep.Clip(name, 80)) + " cannot be written: " + reason
			}
			c.lose(place, "property", reason)
			continue
		}
		optional := !slices.Contains(needed, name)
		if c.rules.required && optional {
			c.absent++
			sub = nullable(sub)
		}
		if c.rules.required || !optional {
			required = append(required, name)
		}
		written[name] = sub
	}
	if _, ok := s["properties"]; ok || c.rules.closed {
		out["properties"] = written
	}
	switch {
	case c.rules.required:
		if required == nil {
			required = []any{}
		}
		out["required"] = required
	case s["required"] != nil:
		out["required"] = s["required"] // in their own order, including those without a schema
	}
	return out, c.others(out, s, at, len(written))
}

// others converts the rules for an object's further properties.
func (c *converter) others(out, s map[string]any, at string, properties int) string {
	more, said := s["additionalProperties"]
	if l, ok := more.(located); ok {
		more = l.v
	}
	if c.rules.closed {
		out["additionalProperties"] = false
		if properties == 0 && at != "" && more != false && s["unevaluatedProperties"] != false {
			return c.rules.who + " has no objects whose properties are not known"
		}
		switch {
		case said && more != false:
			c.lose(under(at, "additionalProperties"), "additionalProperties", c.rules.who+" closes every object")
		case !said && s["unevaluatedProperties"] != false:
			c.shut++
		}
		return ""
	}
	if !said {
		return ""
	}
	if b, ok := more.(bool); ok {
		out["additionalProperties"] = b
		return ""
	}
	sub, reason := c.convert(s["additionalProperties"], under(at, "additionalProperties"))
	if reason != "" {
		c.lose(under(at, "additionalProperties"), "additionalProperties", reason)
		return ""
	}
	out["additionalProperties"] = sub
	return ""
}

// nullable allows null in addition.
func nullable(s map[string]any) map[string]any {
	if allowsNull(s) {
		return s
	}
	if list, ok := s["anyOf"].([]any); ok {
		out := maps.Clone(s)
		out["anyOf"] = append(slices.Clone(list), map[string]any{"type": "null"})
		return out
	}
	kinds := types(s["type"])
	if len(kinds) == 0 || s["const"] != nil || slices.Contains(kinds, "object") || slices.Contains(kinds, "array") {
		return map[string]any{"anyOf": []any{s, map[string]any{"type": "null"}}}
	}
	out := maps.Clone(s)
	if !slices.Contains(kinds, "null") {
		out["type"] = typeOf(append(kinds, "null"))
	}
	if values, ok := s["enum"].([]any); ok && !slices.Contains(values, nil) {
		out["enum"] = append(slices.Clone(values), nil)
	}
	return out
}

func allowsNull(s map[string]any) bool {
	if list, ok := s["anyOf"].([]any); ok {
		return slices.ContainsFunc(list, func(e any) bool { m, _ := e.(map[string]any); return m["type"] == "null" })
	}
	if values, ok := s["enum"].([]any); ok && !slices.Contains(values, nil) {
		return false
	}
	return s["const"] == nil && slices.Contains(types(s["type"]), "null")
}
