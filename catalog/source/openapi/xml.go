package openapi

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/toolkeep/toolkeep"
)

const maxXMLTypes = 400 // schemas in one XML description

// describer describes how a schema is sent as XML, for executor/httptool.
type describer struct {
	d     *document
	path  []*object // the schemas that enclose the current one
	nodes int
	err   string
}

// xmlOf describes a value as XML using the xml keywords of its schema.
func (d *document) xmlOf(v any) (map[string]any, string) {
	x := &describer{d: d}
	root := ""
	if o, ok := v.(*object); ok && o.ref() != "" {
		target, reason := d.object(o, "schema")
		if reason != "" {
			return nil, reason
		}
		root = defName(o.ref(), target)
	}
	t := x.describe(v)
	s, _ := d.object(v, "schema")
	xml, _ := d.object(s.get("xml"), "xml")
	if name := xml.text("name"); name != "" {
		root = name
	}
	switch {
	case x.err != "":
		return nil, x.err
	case root == "":
		return nil, "its schema does not name the root element of its XML"
	case !isXMLName(root):
		return nil, fmt.Sprintf("%q cannot be the name of an XML element", toolkeep.Clip(root, 80))
	}
	return map[string]any{"root": root, "type": t}, ""
}

func (x *describer) describe(v any) map[string]any {
	out := map[string]any{}
	o, ok := v.(*object)
	if !ok || x.err != "" {
		return out
	}
	target := o
	if o.ref() != "" {
		if target, x.err = x.d.object(o, "schema"); x.err != "" || target == nil {
			return out
		}
	}
	if slices.Contains(x.path, target) {
		x.err = "its XML nests elements in themselves without an end, which is not sent"
		return out
	}
	if x.nodes++; x.nodes > maxXMLTypes || len(x.path) > maxLook*4 {
		x.err = "its XML is too large to be described"
		return out
	}
	x.path = append(x.path, target)
	x.fill(target, out)
	x.path = x.path[:len(x.path)-1]
	if target != o && x.d.dialect >= v31 {
		x.keywords(o, out) // keywords next to a reference win
	}
	return out
}

func (x *describer) fill(o *object, out map[string]any) {
	x.keywords(o, out)
	if items := o.get("items"); items != nil {
		if item := x.describe(items); len(item) > 0 {
			out["item"] = item
		}
	}
	var members []any
	for _, p := range x.d.propertiesOf(o) {
		if x.d.wrongWay(p.schema, request) {
			continue
		}
		m := x.describe(p.schema)
		m["property"] = p.name
		members = append(members, m)
	}
	if len(members) > 0 {
		out["members"] = members
	}
}

// keywords reads the xml keywords of the schema itself.
func (x *describer) keywords(o *object, out map[string]any) {
	xml, _ := x.d.object(o.get("xml"), "xml")
	if xml == nil {
		return
	}
	if s := xml.text("namespace"); s != "" {
		out["namespace"] = clean(s)
		delete(out, "prefix")
	}
	for _, k := range []string{"name", "prefix"} {
		s := xml.text(k)
		if s == "" {
			continue
		}
		if !isXMLName(s) || k == "prefix" && strings.Contains(s, ":") {
			x.err = fmt.Sprintf("%q cannot be the name of an XML element", toolkeep.Clip(s, 80))
			return
		}
		out[k] = s
	}
	if strings.Contains(xml.text("name"), ":") && out["prefix"] != nil {
		x.err = "a name of its XML has a prefix twice"
	}
	switch kind := xml.text("nodeType"); {
	case xml.flag("attribute") || kind == "attribute":
		out["as"] = "attribute"
	case kind == "text" || kind == "cdata": // equivalent when read
		out["as"] = "text"
	case xml.flag("wrapped") || kind == "element" && o.text("type") == "array":
		out["wrapped"] = true
	}
}

// isXMLName is the same check as in executor/httptool.
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
