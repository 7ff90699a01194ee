package openapi

import (
	"slices"
	"sort"
)

// look bounds the search of a schema for its properties' flags: the number of schemas, and the
// depth of nested parts.
type look struct {
	d    *document
	left int
}

const (
	maxLook      = 8
	maxLookNodes = 2_000
)

func (l *look) spent(depth int) bool {
	l.left--
	return l.left < 0 || depth > maxLook
}

// parts returns the schemas of an allOf.
func (l *look) parts(o *object) []*object {
	all, _ := o.get("allOf").([]any)
	var out []*object
	for _, e := range all {
		if part, reason := l.d.object(e, "part"); reason == "" && part != o {
			out = append(out, part)
		}
		if len(out) > maxLookNodes {
			break
		}
	}
	return out
}

// wrongWay reports whether a property is excluded in the direction: read-only in a request,
// write-only in a response. The flag may be on the schema, on its reference's target, or in a part
// of its allOf.
func (d *document) wrongWay(v any, dir direction) bool {
	l := &look{d, maxLookNodes}
	return l.wrongWay(v, dir, 0)
}

func (l *look) wrongWay(v any, dir direction, depth int) bool {
	flag := "readOnly"
	if dir == response {
		flag = "writeOnly"
	}
	o, ok := v.(*object)
	if !ok || l.spent(depth) {
		return false
	}
	if o.flag(flag) {
		return true
	}
	if o.ref() != "" {
		next, reason := l.d.next(o)
		return reason == "" && l.wrongWay(next, dir, depth+1)
	}
	all, _ := o.get("allOf").([]any)
	for _, e := range all {
		if l.wrongWay(e, dir, depth+1) {
			return true
		}
	}
	return false
}

// wrongWayNames returns the properties of a schema, and of its allOf, that are excluded in the
// direction. No part may list them as required.
func (d *document) wrongWayNames(o *object, dir direction) []string {
	if !o.has("properties") && !o.has("allOf") {
		return nil
	}
	l := &look{d, maxLookNodes}
	names := l.wrongWayNames(o, dir, 0, nil)
	sort.Strings(names)
	return slices.Compact(names)
}

func (l *look) wrongWayNames(o *object, dir direction, depth int, names []string) []string {
	if l.spent(depth) {
		return names
	}
	if props, ok := o.get("properties").(*object); ok {
		for _, k := range props.keys {
			if l.wrongWay(props.vals[k], dir, 0) {
				names = append(names, k)
			}
		}
	}
	for _, part := range l.parts(o) {
		names = l.wrongWayNames(part, dir, depth+1, names)
	}
	return names
}

// relevant returns the names in drop that the schema, or a part of its allOf, requires and would
// not drop by itself. Equal schemas are then converted only once.
func (d *document) relevant(o *object, dir direction, drop []string) []string {
	l := &look{d, maxLookNodes}
	names := l.relevant(o, drop, 0, nil)
	if l.left < 0 {
		names = slices.Clone(drop)
	}
	own := d.wrongWayNames(o, dir)
	names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(own, name) })
	sort.Strings(names)
	return slices.Compact(names)
}

func (l *look) relevant(o *object, drop []string, depth int, names []string) []string {
	if l.spent(depth) {
		l.left = -1 // unknown: keep everything
		return names
	}
	list, _ := o.get("required").([]any)
	for _, e := range list {
		if name, ok := e.(string); ok && slices.Contains(drop, name) {
			names = append(names, name)
		}
	}
	if o.ref() != "" {
		if to, reason := l.d.object(o, "part"); reason == "" && to != o {
			names = l.relevant(to, drop, depth+1, names)
		}
	}
	for _, part := range l.parts(o) {
		names = l.relevant(part, drop, depth+1, names)
	}
	return names
}

// property finds the schema of a property, including the parts of an allOf.
func (d *document) property(o *object, name string) *object {
	l := &look{d, maxLookNodes}
	return l.property(o, name, 0)
}

func (l *look) property(o *object, name string, depth int) *object {
	if l.spent(depth) {
		return nil
	}
	if props, reason := l.d.object(o.get("properties"), "properties"); reason == "" && props.has(name) {
		p, _ := l.d.object(props.vals[name], "property")
		return p
	}
	for _, part := range l.parts(o) {
		if p := l.property(part, name, depth+1); p != nil {
			return p
		}
	}
	return nil
}
