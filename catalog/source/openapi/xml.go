package openapi

import (
	"fmt"
	"strings"
	"unicode"
)

const maxXMLTypes = 400 // schemas that one description of XML holds

// describer describes how a schema is sent as XML, for executor/httptool.
type describer struct {
	d     *document
	types map[string]any
	names map[*object]string
	nodes int
	err   string
}

// xmlOf describes a value as XML by the xml keywords of its schema.
func (d *document) xmlOf(v any) (map[string]any, string) {
	x := &describer{d: d, types: map[string]any{}, names: map[*object]string{}}
	root := ""
	if o, ok := v.(*object); ok && o.ref() != "" {
		target, reason := d.object(o, "schema")
		if reason != "" {
			return nil, reason
		}
		root = defName(o.ref(), target)
	}
	t := x.describe(v, 0)
	s, _ := d.object(v, "schema")
	xml, _ := d.object(s.get("xml"), "xml")
	if name := xml.text("name"); name != "" {
		root = name
	}
	switch {
	case x.err != "":
		return nil, x.err
	case root == "":
		return nil, "its schema gives the root element of its XML no name"
	case !isXMLName(root):
		return nil, fmt.Sprintf("%q cannot be the name of an XML element", clip(root, 80))
	}
	out := map[string]any{"root": root, "type": t}
	if len(x.types) > 0 {
		out["types"] = x.types
	}
	return out, ""
}

func (x *describer) describe(v any, depth int) map[string]any {
	out := map[string]any{}
	o, ok := v.(*object)
	if !ok || x.err != "" {
		return out
	}
	if x.nodes++; x.nodes > maxXMLTypes || depth > maxLook*4 {
		x.err = "its XML is too large to be described"
		return out
	}
	if o.ref() != "" {
		target, reason := x.d.object(o, "schema")
		if reason != "" {
			x.err = reason
			return out
		}
		if target != nil {
			out["ref"] = x.typeName(o.ref(), target)
		}
		if x.d.dialect >= v31 {
			x.keywords(o, out)
		}
		return out
	}
	x.fill(o, out, depth)
	return out
}

// typeName gives a schema that is referred to a name in types, and describes it
// once.
func (x *describer) typeName(ref string, target *object) string {
	if name, ok := x.names[target]; ok {
		return name
	}
	base := defName(ref, target)
	name := base
	for n := 2; x.types[name] != nil; n++ {
		name = fmt.Sprintf("%s_%d", base, n)
	}
	out := map[string]any{}
	x.names[target], x.types[name] = name, out
	x.fill(target, out, 0)
	return name
}

func (x *describer) fill(o *object, out map[string]any, depth int) {
	x.keywords(o, out)
	if items := o.get("items"); items != nil {
		if item := x.describe(items, depth+1); len(item) > 0 {
			out["item"] = item
		}
	}
	var members []any
	for _, p := range x.d.propertiesOf(o) {
		if x.d.wrongWay(p.schema, request) {
			continue
		}
		m := x.describe(p.schema, depth+1)
		m["property"] = p.name
		members = append(members, m)
	}
	if len(members) > 0 {
		out["members"] = members
	}
}

// keywords reads what xml says of the schema itself.
func (x *describer) keywords(o *object, out map[string]any) {
	xml, _ := x.d.object(o.get("xml"), "xml")
	if xml == nil {
		return
	}
	for _, k := range []string{"name", "prefix"} {
		s := xml.text(k)
		if s == "" {
			continue
		}
		if !isXMLName(s) || k == "prefix" && strings.Contains(s, ":") {
			x.err = fmt.Sprintf("%q cannot be the name of an XML element", clip(s, 80))
			return
		}
		out[k] = s
	}
	if s := xml.text("namespace"); s != "" {
		out["namespace"] = clean(s)
	}
	if strings.Contains(xml.text("name"), ":") && out["prefix"] != nil {
		x.err = "a name of its XML has a prefix twice"
	}
	switch kind := xml.text("nodeType"); {
	case xml.flag("attribute") || kind == "attribute":
		out["as"] = "attribute"
	case kind == "text" || kind == "cdata":
		out["as"] = kind
	case xml.flag("wrapped") || kind == "element" && o.text("type") == "array":
		out["wrapped"] = true
	}
}

// isXMLName is what executor/httptool takes as the name of an element.
func isXMLName(s string) bool {
	if prefix, local, two := strings.Cut(s, ":"); two {
		return isXMLName(prefix) && isXMLName(local) && !strings.ContainsRune(local, ':')
	}
	if len(s) >= 3 && strings.EqualFold(s[:3], "xml") {
		return false
	}
	for i, r := range s {
		letter := r == '_' || unicode.IsLetter(r)
		if !letter && (i == 0 || r != '-' && r != '.' && (r < '0' || r > '9')) {
			return false
		}
	}
	return s != ""
}
