package openapi

import (
	"encoding/json"
	"fmt"
	"slices"
	"sort"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon/yaml"
)

// Keywords by the kind of their value.
var (
	schemaKeywords = []string{"not", "if", "then", "else", "contains", "propertyNames",
		"unevaluatedItems", "unevaluatedProperties", "contentSchema"}
	mapKeywords   = []string{"patternProperties", "dependentSchemas"}
	countKeywords = []string{"maxLength", "minLength", "maxItems", "minItems", "maxContains",
		"minContains", "maxProperties", "minProperties"}
	flagKeywords = []string{"uniqueItems", "deprecated", "readOnly", "writeOnly"}
	textKeywords = []string{"format", "title", "description", "contentEncoding", "contentMediaType"}
)

// body converts the keywords of a schema, without its $ref.
func (c *conversion) body(s *object, w where) any {
	if c.dir == request && !w.base && s.has("discriminator") {
		if out := c.polymorphic(s, w); out != nil {
			return c.nullable(s, out)
		}
	}
	w.base = false
	out := map[string]any{}
	w.drop = union(w.drop, c.d.wrongWayNames(s, c.dir))
	c.texts(s, out)
	c.numbers(s, out)
	c.types(s, out)
	c.values(s, out)
	c.properties(s, out, w)
	c.items(s, out, w)
	c.applicators(s, out, w)
	c.dependencies(s, out, w)
	c.dynamic(s, out, w)
	c.lists(s, out, w)
	return c.nullable(s, out)
}

// dynamic treats $dynamicRef and $recursiveRef as if nothing overrode them.
func (c *conversion) dynamic(s *object, out map[string]any, w where) {
	for _, key := range []string{"$dynamicRef", "$recursiveRef"} {
		ref, ok := s.get(key).(string)
		if !ok {
			continue
		}
		v, reason := c.d.lookup(s, ref)
		obj, isObject := v.(*object)
		if reason != "" || !isObject {
			c.leaveOut(s, "%s could not be resolved and is left out", key)
			continue
		}
		to := c.d.definition(obj, c.dir, w.drop, w.base)
		c.link(to, defName(ref, obj), w)
		if len(out) == 0 || out["$ref"] == nil {
			out["$ref"] = to
		}
	}
}

func (c *conversion) texts(s *object, out map[string]any) {
	for _, k := range textKeywords {
		if v, ok := s.get(k).(string); ok && v != "" {
			out[k] = clean(v)
		}
	}
	for _, k := range flagKeywords {
		if v, ok := s.get(k).(bool); ok && v && (k != "uniqueItems" || !isScalar(s.get("type"))) {
			out[k] = true
		}
	}
	if p, ok := s.get("pattern").(string); ok {
		if reason := c.d.patternReason(p); reason != "" {
			c.leaveOut(s, "the pattern %q is left out: %s", toolkeep.Clip(p, 100), reason)
		} else {
			out["pattern"] = p
		}
	}
}

// isScalar reports whether a type has no items.
func isScalar(t any) bool {
	return t == "string" || t == "integer" || t == "number" || t == "boolean"
}

// numbers converts bounds. A bound beyond exact doubles cannot be in a manifest; leaving it out
// accepts more, and the upstream still checks.
func (c *conversion) numbers(s *object, out map[string]any) {
	for _, k := range countKeywords {
		if !s.has(k) {
			continue
		}
		n, ok := s.get(k).(json.Number)
		if i, whole := wholeNumber(n); ok && whole && i >= 0 {
			out[k] = json.Number(fmt.Sprint(i))
		} else if s.get(k) != nil {
			c.leaveOut(s, "%s is left out: %s is not a count", k, describe(s.get(k)))
		}
	}
	for _, k := range []string{"maximum", "minimum", "multipleOf"} {
		if n, ok := c.number(s, k); ok {
			if k == "multipleOf" && !positive(n) {
				c.leaveOut(s, "multipleOf is left out: %s is not positive", n)
				continue
			}
			out[k] = n
		}
	}
	for _, k := range []string{"exclusiveMaximum", "exclusiveMinimum"} {
		if b, ok := s.get(k).(bool); ok {
			bound := "m" + k[len("exclusiveM"):]
			if n, has := out[bound]; b && has {
				out[k] = n
				delete(out, bound)
			}
		} else if n, ok := c.number(s, k); ok {
			out[k] = n
		}
	}
}

func (c *conversion) number(s *object, k string) (json.Number, bool) {
	if !s.has(k) || s.get(k) == nil {
		return "", false
	}
	n, ok := s.get(k).(json.Number)
	if !ok {
		c.leaveOut(s, "%s is left out: %s is not a number", k, describe(s.get(k)))
		return "", false
	}
	if !exact(n) {
		c.leaveOut(s, "%s %s is left out: it is beyond what JSON numbers hold exactly", k, toolkeep.Clip(n.String(), 60))
		return "", false
	}
	return n, true
}

func wholeNumber(n json.Number) (int64, bool) {
	if i, err := n.Int64(); err == nil {
		return i, true
	}
	f, err := n.Float64()
	if err != nil || f != float64(int64(f)) || f > 1<<53 || f < -(1<<53) {
		return 0, false
	}
	return int64(f), true
}

func positive(n json.Number) bool {
	f, err := n.Float64()
	return err == nil && f > 0
}

var jsonTypes = []string{"string", "number", "integer", "boolean", "array", "object", "null"}

func (c *conversion) types(s *object, out map[string]any) {
	switch t := s.get("type").(type) {
	case nil:
	case string:
		if t == "file" && c.d.dialect == v20 {
			c.fail(s, "its type is a file, which is not JSON")
		}
		if t == "any" && c.d.dialect == v20 {
			return
		}
		if !slices.Contains(jsonTypes, t) {
			c.fail(s, "%q is not a type of JSON Schema", toolkeep.Clip(t, 60))
		}
		out["type"] = t
	case []any:
		var list []any
		for _, e := range t {
			name, ok := e.(string)
			if e == nil {
				name, ok = "null", true // a bare null among the types of a YAML list
			}
			if !ok || !slices.Contains(jsonTypes, name) {
				c.fail(s, "%s is not a type of JSON Schema", describe(e))
			}
			if !slices.Contains(list, any(name)) {
				list = append(list, name)
			}
		}
		if len(list) == 1 {
			out["type"] = list[0]
		} else if len(list) > 1 {
			out["type"] = list
		}
	default:
		c.fail(s, "its type is %s", describe(t))
	}
}

// values converts enum, const and the examples. A default is not converted: if the gateway filled
// it in, it would overwrite fields that a partial update leaves alone, so it becomes a sentence in
// the description.
func (c *conversion) values(s *object, out map[string]any) {
	if s.has("enum") && s.get("enum") != nil {
		c.enum(s, out)
	}
	if s.has("const") {
		if v, ok := plainValue(s.get("const")); ok {
			out["const"] = matchType(v, out["type"])
		} else {
			c.leaveOut(s, "const is left out: a manifest cannot hold it exactly")
		}
	}
	if s.has("default") && c.dir == request {
		if v, ok := plainValue(s.get("default")); ok && v != nil {
			text, _ := out["description"].(string)
			out["description"] = withDefault(text, v)
		}
	}
	var examples []any
	if l, ok := s.get("examples").([]any); ok {
		examples = append(examples, l...)
	}
	for _, key := range []string{"example", "x-example"} {
		if s.has(key) && len(examples) == 0 {
			examples = append(examples, s.get(key))
		}
	}
	if kept := smallExamples(examples); len(kept) > 0 {
		out["examples"] = kept
	}
}

func (c *conversion) enum(s *object, out map[string]any) {
	list, ok := s.get("enum").([]any)
	if !ok {
		c.fail(s, "its enum is %s, not a list", describe(s.get("enum")))
	}
	var vals []any
	for _, e := range list {
		v, ok := plainValue(e)
		if !ok {
			c.leaveOut(s, "enum is left out: a manifest cannot hold %s exactly", describe(e))
			return
		}
		vals = append(vals, matchType(v, out["type"]))
	}
	if len(vals) == 0 {
		c.leaveOut(s, "an empty enum is left out")
		return
	}
	// A value of another type than the schema's can never be given.
	if fit := slices.DeleteFunc(slices.Clone(vals), func(v any) bool { return !hasType(v, out["type"]) }); len(fit) > 0 {
		vals = fit
	}
	out["enum"] = vals
}

// hasType reports whether a value is of the type, or one of the types, of a schema; null counts as any.
func hasType(v, t any) bool {
	kind := ""
	switch v.(type) {
	case string:
		kind = "string"
	case json.Number:
		kind = "number"
	case bool:
		kind = "boolean"
	case []any:
		kind = "array"
	case map[string]any:
		kind = "object"
	}
	list, ok := t.([]any)
	if !ok {
		list = []any{t}
	}
	return kind == "" || t == nil || slices.Contains(list, any(kind)) || kind == "number" && slices.Contains(list, any("integer"))
}

// matchType repairs values that YAML parsed as another type than the schema's, such as an unquoted
// 1.0 or true in an enum of strings.
func matchType(v any, t any) any {
	name, ok := soleType(t)
	if !ok {
		return v
	}
	switch v := v.(type) {
	case json.Number, bool:
		if name == "string" {
			s, _ := scalarText(v)
			return s
		}
	case string:
		switch name {
		case "integer", "number":
			read, _ := yaml.Plain(v, true)
			if n, ok := read.(json.Number); ok && exact(n) {
				return n
			}
		case "boolean":
			if v == "true" || v == "false" {
				return v == "true"
			}
		}
	}
	return v
}

// soleType returns the only type besides null.
func soleType(t any) (string, bool) {
	switch t := t.(type) {
	case string:
		return t, true
	case []any:
		name := ""
		for _, e := range t {
			if e == "null" {
				continue
			}
			if name != "" {
				return "", false
			}
			name, _ = e.(string)
		}
		return name, name != ""
	}
	return "", false
}

func (c *conversion) properties(s *object, out map[string]any, w where) {
	if props := c.mapping(s, "properties"); props != nil {
		conv := map[string]any{}
		for _, name := range props.keys {
			if c.d.wrongWay(props.vals[name], c.dir) {
				continue
			}
			conv[name] = c.schema(props.vals[name], w.child(), props)
		}
		out["properties"] = conv
	}
	if list, ok := s.get("required").([]any); ok {
		if names := distinct(list, w.drop); len(names) > 0 {
			out["required"] = names
		}
	}
	if s.has("additionalProperties") && s.get("additionalProperties") != nil {
		if b, ok := s.get("additionalProperties").(bool); !ok || !b {
			out["additionalProperties"] = c.schema(s.get("additionalProperties"), w.child(), s)
		}
	}
}

// distinct returns the distinct names of a list, without those to drop.
func distinct(list []any, drop []string) []any {
	names, seen := []any{}, map[string]bool{}
	for _, name := range drop {
		seen[name] = true
	}
	for _, e := range list {
		if name, ok := scalarText(e); ok && !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}

// mapping returns a keyword whose value maps names to schemas, following a reference in its place.
func (c *conversion) mapping(s *object, key string) *object {
	v := s.get(key)
	if v == nil {
		return nil
	}
	o, ok := v.(*object)
	if ok && o.ref() != "" {
		next, reason := c.d.follow(o)
		if reason != "" {
			panic(refused(reason))
		}
		o, ok = next.(*object)
	}
	if !ok {
		c.fail(s, "its %s is %s, not a mapping", key, describe(v))
	}
	return o
}

// items converts the items of all drafts: a list of schemas is prefixItems, and additionalItems is
// 2020-12's items.
func (c *conversion) items(s *object, out map[string]any, w where) {
	prefix, isList := s.get("items").([]any)
	rest, hasRest := any(nil), false
	if isList {
		rest, hasRest = s.get("additionalItems"), s.has("additionalItems")
	} else {
		if s.has("items") && s.get("items") != nil {
			rest, hasRest = s.get("items"), true
		}
		prefix, _ = s.get("prefixItems").([]any)
	}
	if len(prefix) > 0 {
		var conv []any
		for _, e := range prefix {
			conv = append(conv, c.schema(e, w.child(), s))
		}
		out["prefixItems"] = conv
	}
	if hasRest {
		out["items"] = c.schema(rest, w.child(), s)
	}
}

func (c *conversion) applicators(s *object, out map[string]any, w where) {
	for _, k := range schemaKeywords {
		if !s.has(k) {
			continue
		}
		lost := c.lost
		at := w.under(k)
		at.strict = at.strict || k == "not" || k == "if"
		out[k] = c.schema(s.get(k), at, s)
		// Inside these, leaving out a constraint refuses more, not less.
		if c.lost > lost && (k == "not" || k == "if") {
			c.leaveOut(s, "%s is left out, because a part of it was", k)
			delete(out, k)
		}
	}
	for _, k := range mapKeywords {
		m := c.mapping(s, k)
		if m == nil {
			continue
		}
		conv := map[string]any{}
		for _, name := range m.keys {
			if k == "patternProperties" {
				if reason := c.d.patternReason(name); reason != "" {
					c.leaveOut(m, "the property pattern %q is left out: %s", toolkeep.Clip(name, 100), reason)
					continue
				}
			}
			conv[name] = c.schema(m.vals[name], w.under(k), m)
		}
		out[k] = conv
	}
}

// dependencies converts dependentRequired, and dependencies of older drafts.
func (c *conversion) dependencies(s *object, out map[string]any, w where) {
	need := map[string]any{}
	for _, k := range []string{"dependencies", "dependentRequired"} {
		m := c.mapping(s, k)
		if m == nil {
			continue
		}
		for _, name := range m.keys {
			list, ok := m.vals[name].([]any)
			if !ok {
				if k == "dependentRequired" {
					c.fail(m, "its %s is %s, not a list", toolkeep.Clip(name, 60), describe(m.vals[name]))
				}
				deps, _ := out["dependentSchemas"].(map[string]any)
				if deps == nil {
					deps = map[string]any{}
					out["dependentSchemas"] = deps
				}
				deps[name] = c.schema(m.vals[name], w.under(k), m)
				continue
			}
			need[name] = distinct(list, nil)
		}
	}
	if len(need) > 0 {
		out["dependentRequired"] = need
	}
}

// lists converts allOf, anyOf and oneOf.
func (c *conversion) lists(s *object, out map[string]any, w where) {
	for _, k := range []string{"allOf", "anyOf", "oneOf"} {
		v := s.get(k)
		if v == nil {
			continue
		}
		list, ok := v.([]any)
		if !ok {
			c.fail(s, "its %s is %s, not a list", k, describe(v))
		}
		var conv []any
		for _, e := range list {
			at := w.under(k)
			if k == "allOf" {
				at = w.beside()
				at.base = true
			}
			conv = append(conv, c.schema(e, at, s))
		}
		if len(conv) == 0 {
			continue
		}
		switch {
		case k != "oneOf":
		case s.has("discriminator"):
			k = c.discriminate(s, list, conv)
		case !w.strict && !c.d.exclusive(list):
			k = "anyOf"
		}
		if _, taken := out[k]; taken {
			all, _ := out["allOf"].([]any)
			out["allOf"] = append(all, map[string]any{k: conv})
			continue
		}
		out[k] = conv
	}
}

// nullable accepts null if the document says so as in 2.0 (x-nullable) or 3.0.
func (c *conversion) nullable(s *object, out map[string]any) any {
	if !s.flag("nullable") && !s.flag("x-nullable") {
		return out
	}
	if list, ok := out["enum"].([]any); ok && !slices.Contains(list, any(nil)) {
		out["enum"] = append(slices.Clone(list), nil)
	}
	for _, k := range []string{"allOf", "anyOf", "oneOf", "$ref", "not", "const", "if"} {
		if _, ok := out[k]; ok {
			return orNull(out)
		}
	}
	switch t := out["type"].(type) {
	case string:
		if t != "null" {
			out["type"] = []any{t, "null"}
		}
	case []any:
		if !slices.Contains(t, any("null")) {
			out["type"] = append(slices.Clone(t), "null")
		}
	}
	return out
}

// orNull accepts null next to a schema whose other parts would refuse it.
func orNull(out map[string]any) map[string]any {
	wrapped := map[string]any{"anyOf": []any{out, map[string]any{"type": "null"}}}
	for _, k := range []string{"title", "description", "deprecated", "readOnly", "writeOnly"} {
		if v, ok := out[k]; ok {
			wrapped[k] = v
			delete(out, k)
		}
	}
	return wrapped
}

func union(a, b []string) []string {
	if len(b) == 0 {
		return a
	}
	out := append(slices.Clone(a), b...)
	sort.Strings(out)
	return slices.Compact(out)
}
