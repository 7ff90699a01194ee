package export

import (
	"maps"
	"strconv"
)

// Where schemas stand within a schema, by keyword; everywhere else stands data.
var (
	oneSchema = map[string]bool{
		"items": true, "additionalProperties": true, "additionalItems": true, "not": true, "if": true, "then": true, "else": true,
		"contains": true, "propertyNames": true, "unevaluatedProperties": true, "unevaluatedItems": true, "contentSchema": true,
	}
	listOfSchemas = map[string]bool{"allOf": true, "anyOf": true, "oneOf": true, "prefixItems": true}
	mapOfSchemas  = map[string]bool{
		"properties": true, "patternProperties": true, "dependentSchemas": true, "$defs": true, "definitions": true,
	}
)

// children calls fn for every schema directly within, with its keyword and its name
// or place under that.
func children(s map[string]any, fn func(keyword, name string, child any)) {
	for _, k := range keys(s) {
		switch v := s[k].(type) {
		case []any:
			if listOfSchemas[k] || k == "items" {
				for i, e := range v {
					fn(k, strconv.Itoa(i), e)
				}
			}
		case map[string]any:
			if oneSchema[k] {
				fn(k, "", v)
			}
			if mapOfSchemas[k] {
				for _, name := range keys(v) {
					fn(k, name, v[name])
				}
			}
		}
	}
}

// visit calls fn for the schema and every schema within it that is an object, in
// order; fn returns false to stop.
func visit(v any, at string, fn func(at string, s map[string]any) bool) bool {
	s, ok := v.(map[string]any)
	if !ok {
		return true
	}
	if !fn(at, s) {
		return false
	}
	goOn := true
	children(s, func(keyword, name string, child any) {
		if !goOn {
			return
		}
		place := under(at, keyword)
		if !oneSchema[keyword] || name != "" {
			place = under(place, name)
		}
		goOn = visit(child, place, fn)
	})
	return goOn
}

// each copies a schema with fn's answer for every schema directly within.
func each(s map[string]any, fn func(v any) any) map[string]any {
	out := maps.Clone(s)
	for k, v := range s {
		switch child := v.(type) {
		case []any:
			if listOfSchemas[k] {
				list := make([]any, len(child))
				for i, e := range child {
					list[i] = fn(e)
				}
				out[k] = list
			}
		case map[string]any:
			if oneSchema[k] {
				out[k] = fn(child)
			}
			if mapOfSchemas[k] {
				m := make(map[string]any, len(child))
				for name, e := range child {
					m[name] = fn(e)
				}
				out[k] = m
			}
		}
	}
	return out
}
