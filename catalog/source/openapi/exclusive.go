package openapi

import (
	"slices"

	"github.com/toolkeep/toolkeep/canon"
)

// Documents write oneOf for "one of these forms", also where forms overlap: a value that fits two of
// them is meant, and refused by JSON Schema's oneOf. A oneOf is therefore kept only where its forms
// exclude each other, and is anyOf elsewhere.

// maxForms bounds the forms that are compared with each other.
const maxForms = 40

// exclusive reports whether no value can fit two of the forms, as far as types, listed values and
// required properties show it.
func (d *document) exclusive(list []any) bool {
	if len(list) > maxForms {
		return false
	}
	l := &look{d, maxLookNodes}
	for i, a := range list {
		for _, b := range list[:i] {
			if !l.apart(a, b, 0) {
				return false
			}
		}
	}
	return true
}

// apart reports whether no value fits both schemas.
func (l *look) apart(v, w any, depth int) bool {
	a, why := l.d.object(v, "form")
	b, whyNot := l.d.object(w, "form")
	if why != "" || whyNot != "" || a == b || l.spent(depth) {
		return false
	}
	one, two := l.shape(a), l.shape(b)
	switch {
	case one.types != nil && two.types != nil && !slices.ContainsFunc(one.types, func(t string) bool { return slices.Contains(two.types, t) }):
		return true
	case one.values != nil && two.values != nil && !slices.ContainsFunc(one.values, func(t string) bool { return slices.Contains(two.values, t) }):
		return true
	case !slices.Equal(one.types, []string{"object"}) || !slices.Equal(two.types, one.types):
		return false // required properties say nothing about a value that is no object
	}
	// Required names that one direction leaves out exclude nothing.
	left := append(l.d.wrongWayNames(a, request), l.d.wrongWayNames(a, response)...)
	left = append(append(left, l.d.wrongWayNames(b, request)...), l.d.wrongWayNames(b, response)...)
	kept := func(names []string) []string {
		return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(left, name) })
	}
	one.required, two.required = kept(one.required), kept(two.required)
	for _, name := range one.required {
		if two.closed && !slices.Contains(two.names, name) {
			return true
		}
		p, q := l.property(a, name, 0), l.property(b, name, 0)
		if p != nil && q != nil && slices.Contains(two.required, name) && l.apart(p, q, depth+1) {
			return true
		}
	}
	return slices.ContainsFunc(two.required, func(name string) bool {
		return one.closed && !slices.Contains(one.names, name)
	})
}

// shape is what a schema certainly demands of a value.
type shape struct {
	types    []string // nil: any; an integer is a number
	values   []string // of enum or const, nil: any
	required []string
	names    []string // of its properties
	closed   bool     // no other properties than names
}

func (l *look) shape(o *object) shape {
	s := l.ownShape(o)
	for _, part := range l.parts(o) {
		if l.spent(0) {
			break
		}
		p := l.ownShape(part)
		if s.types == nil {
			s.types = p.types
		}
		if s.values == nil {
			s.values = p.values
		}
		s.required = append(s.required, p.required...)
	}
	return s
}

func (l *look) ownShape(o *object) (s shape) {
	nullable := o.flag("nullable") || o.flag("x-nullable")
	for _, t := range listOr(o.get("type")) {
		name, ok := t.(string)
		if t == nil {
			name, ok = "null", true
		}
		if ok && name != "any" {
			if name == "integer" {
				name = "number"
			}
			s.types = append(s.types, name)
		}
	}
	if nullable && s.types != nil {
		s.types = append(s.types, "null")
	}
	values, ok := o.get("enum").([]any)
	if !ok && o.has("const") {
		values = []any{o.get("const")}
	}
	for _, e := range values {
		v, ok := plainValue(e)
		text, err := canon.JCS(canon.Append(nil, matchType(v, o.get("type"))))
		if !ok || err != nil {
			s.values = nil
			return s
		}
		s.values = append(s.values, string(text))
	}
	if nullable && s.values != nil {
		s.values = append(s.values, "null")
	}
	for _, e := range listOr(o.get("required")) {
		if name, ok := e.(string); ok {
			s.required = append(s.required, name)
		}
	}
	if props, reason := l.d.object(o.get("properties"), "properties"); reason == "" {
		s.names = props.keys
	}
	s.closed = o.get("additionalProperties") == false && !o.has("patternProperties") && !o.has("allOf")
	return s
}

func listOr(v any) []any {
	if list, ok := v.([]any); ok {
		return list
	}
	if v == nil {
		return nil
	}
	return []any{v}
}
