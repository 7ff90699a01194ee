package openapi

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// kinds is a set of types of JSON values.
type kinds uint8

const (
	nulls kinds = 1 << iota
	booleans
	numbers
	texts
	lists
	objects

	plainKinds = booleans | numbers | texts
	allKinds   = nulls | plainKinds | lists | objects
)

var kindNames = map[string]kinds{"null": nulls, "boolean": booleans, "integer": numbers, "number": numbers,
	"string": texts, "array": lists, "object": objects}

func kindOf(v any) kinds {
	switch v.(type) {
	case nil:
		return nulls
	case bool:
		return booleans
	case json.Number:
		return numbers
	case string:
		return texts
	case []any:
		return lists
	}
	return objects
}

// prospect finds which kinds of values converted schemas accept, as far as types, listed values,
// bounds and required properties show it: rather too many than too few.
type prospect struct{ left int }

// unsendable says why a parameter can never be sent, "" if it can.
func unsendable(q *param, schema any) string {
	l := &prospect{maxLookNodes}
	k := l.kinds(schema, 0)
	switch {
	case k == 0:
		return "no value satisfies its schema"
	case k == nulls:
		return "its schema accepts null alone, which is not sent"
	case k&plainKinds != 0 || q.content != "" || q.style == "" || q.style == "deepObject":
		return ""
	case k&lists != 0 && (l.within(schema, 0, elements)&plainKinds != 0 || len(q.items) > 0),
		k&objects != 0 && l.within(schema, 0, demanded) != 0:
		return ""
	}
	return fmt.Sprintf("lists and objects within a list or object cannot be sent in style %s", q.style)
}

func (l *prospect) spent(depth int) bool {
	l.left--
	return l.left < 0 || depth > maxLook
}

// kinds returns the kinds of the values that a schema accepts.
func (l *prospect) kinds(v any, depth int) kinds {
	s, ok := v.(map[string]any)
	if v == false {
		return 0
	}
	if !ok || l.spent(depth) {
		return allKinds
	}
	k := l.through(s, depth, l.kinds)
	if types := listOr(s["type"]); types != nil {
		k &= either(types, func(t any) kinds { name, _ := t.(string); return kindNames[name] })
	}
	if values, ok := s["enum"].([]any); ok {
		k &= either(values, kindOf)
	}
	if c, ok := s["const"]; ok {
		k &= kindOf(c)
	}
	if not, ok := s["not"]; ok {
		if m, isMap := not.(map[string]any); not == true || isMap && len(m) == 0 {
			return 0
		}
	}
	for kind, bounds := range map[kinds][2]string{texts: {"minLength", "maxLength"}, numbers: {"minimum", "maximum"},
		lists: {"minItems", "maxItems"}, objects: {"minProperties", "maxProperties"}} {
		least, most := number(s[bounds[0]]), number(s[bounds[1]])
		if least != nil && most != nil && *least > *most {
			k &^= kind
		}
	}
	if least := number(s["minItems"]); k&lists != 0 && least != nil && *least > 0 && s["prefixItems"] == nil && s["items"] != nil && l.kinds(s["items"], depth+1) == 0 {
		k &^= lists
	}
	if k&objects != 0 && slices.ContainsFunc(listOr(s["required"]), func(name any) bool { return l.member(s, name, depth) == 0 }) {
		k &^= objects
	}
	return k
}

// member returns the kinds of a property's values, 0 if an object cannot have it.
func (l *prospect) member(s map[string]any, name any, depth int) kinds {
	props, _ := s["properties"].(map[string]any)
	text, _ := name.(string)
	if p, declared := props[text]; declared {
		return l.kinds(p, depth+1)
	}
	if s["additionalProperties"] == false && s["patternProperties"] == nil {
		return 0
	}
	return allKinds
}

// through combines what the applicators of a schema say of the same value.
func (l *prospect) through(s map[string]any, depth int, each func(v any, depth int) kinds) kinds {
	k := allKinds
	if to, ok := s["$ref"].(*def); ok && to.err == "" {
		k &= each(to.frag, depth+1)
	}
	for _, part := range listOr(s["allOf"]) {
		k &= each(part, depth+1)
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		if forms, ok := s[key].([]any); ok {
			k &= either(forms, func(form any) kinds { return each(form, depth+1) })
		}
	}
	return k
}

// within returns the kinds of what own finds within a value of the schema.
func (l *prospect) within(v any, depth int, own func(l *prospect, s map[string]any, depth int) kinds) kinds {
	s, ok := v.(map[string]any)
	if !ok || l.spent(depth) {
		return allKinds
	}
	return own(l, s, depth) & l.through(s, depth, func(v any, depth int) kinds { return l.within(v, depth, own) })
}

// elements returns the kinds of the elements of a list.
func elements(l *prospect, s map[string]any, depth int) kinds {
	first, _ := s["prefixItems"].([]any)
	rest := allKinds
	if items, ok := s["items"]; ok {
		rest = l.kinds(items, depth+1)
	}
	return rest | either(first, func(item any) kinds { return l.kinds(item, depth+1) })
}

// demanded returns 0 if a required property of an object is a list or an object.
func demanded(l *prospect, s map[string]any, depth int) kinds {
	for _, name := range listOr(s["required"]) {
		if l.member(s, name, depth)&(plainKinds|nulls) == 0 {
			return 0
		}
	}
	return allKinds
}

func either(list []any, each func(v any) kinds) (k kinds) {
	for _, v := range list {
		k |= each(v)
	}
	return k
}

func number(v any) *float64 {
	n, ok := v.(json.Number)
	f, err := strconv.ParseFloat(string(n), 64)
	if !ok || err != nil {
		return nil
	}
	return &f
}
