package httptool

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/executor/bindings"
)

const (
	maxXMLDepth = 64
	xmlHead     = `<?xml version="1.0" encoding="UTF-8"?>` + "\n"
)

// xmlType says how a value becomes XML, by OpenAPI's xml keywords.
type xmlType struct {
	name      string // instead of the property's
	namespace string
	prefix    string
	as        string // element, attribute, text
	wrapped   bool   // a list has its own element around it
	item      *xmlType
	members   []xmlMember // in sending order
}

type xmlMember struct {
	property string
	typ      *xmlType
}

var xmlKinds = []string{"", "element", "attribute", "text"}

// readXML reads the description of a body of XML:
//
//	{"root": "pet", "type": {...}}
func readXML(o *bindings.Object) (root string, t *xmlType) {
	if root = o.Text("root", true); root != "" && !isXMLName(root) {
		o.Fault("root", "xml", "%q cannot be the name of an element", root)
	}
	t = &xmlType{}
	if one, ok := o.Sub("type"); ok {
		t = readXMLType(one, 0)
	}
	o.Done()
	return root, t
}

func readXMLType(o *bindings.Object, depth int) *xmlType {
	t := &xmlType{}
	if depth > maxXMLDepth {
		o.Fault("", "xml", "the description of XML is nested over %d levels deep", maxXMLDepth)
		return t
	}
	t.name, t.namespace, t.prefix = o.Text("name", false), o.Text("namespace", false), o.Text("prefix", false)
	t.as, t.wrapped = o.Text("as", false), o.Flag("wrapped")
	for _, n := range []string{"name", "prefix"} {
		if s, _ := o.Tree[n].(string); s != "" && !isXMLName(s) {
			o.Fault(n, "xml", "%q cannot be the name of an element or attribute", s)
		}
	}
	if !validXML(t.namespace) {
		o.Fault("namespace", "xml", "the namespace has characters that XML cannot hold")
	}
	if t.prefix != "" && strings.ContainsRune(t.name, ':') {
		o.Fault("name", "xml", "the name has a prefix beside the prefix")
	}
	if !slices.Contains(xmlKinds, t.as) {
		o.Fault("as", "enum", "a value is sent as element, attribute or text, not %q", t.as)
	}
	if item, ok := o.Sub("item"); ok {
		t.item = readXMLType(item, depth+1)
	}
	for _, m := range o.Objects("members") {
		property := m.Text("property", true)
		t.members = append(t.members, xmlMember{property, readXMLType(m, depth+1)})
	}
	o.Done()
	return t
}

// xmlWriter writes elements.
type xmlWriter struct{ buf []byte }

func (c *codec) renderXML(at string, v any) ([]byte, *toolkeep.Error) {
	t := c.xml
	w := &xmlWriter{buf: []byte(xmlHead)}
	if list, ok := v.([]any); ok && !t.wrapped && len(list) != 1 {
		return nil, unsafe(at, "a list cannot be the root of XML: a document has one root element")
	}
	name := c.name
	if t.name != "" {
		name = t.name
	}
	if err := w.value(at, name, c.name, t, v, 0); err != nil {
		return nil, err
	}
	return w.buf, nil
}

// value writes one property: an element, or several for a list.
func (w *xmlWriter) value(at, name, property string, t *xmlType, v any, depth int) *toolkeep.Error {
	if depth > maxXMLDepth {
		return unsafe(at, "the value is nested over %d levels deep, which is not sent as XML", maxXMLDepth)
	}
	list, isList := v.([]any)
	if !isList {
		return w.element(at, name, t, v, depth)
	}
	item := &xmlType{}
	if t.item != nil {
		item = t.item
	}
	// In an unwrapped list the items' own name takes precedence, then the property's;
	// in a wrapped one the items' own, then the wrapper's.
	itemName := property
	if t.wrapped {
		itemName = name
		w.open(name, t, nil)
	}
	if item.name != "" {
		itemName = item.name
	}
	if !isXMLName(itemName) {
		return unsafe(at, "%q cannot be the name of an element", itemName)
	}
	for i, el := range list {
		here := at + "/" + strconv.Itoa(i)
		if el == nil {
			return unsafe(here, "null within a list cannot be sent as XML")
		}
		if _, nested := el.([]any); nested && !item.wrapped {
			return unsafe(here, "a list within a list cannot be sent as XML")
		}
		if err := w.value(here, itemName, itemName, item, el, depth+1); err != nil {
			return err
		}
	}
	if t.wrapped {
		w.close(name, t)
	}
	return nil
}

// element writes one element with its attributes and content.
func (w *xmlWriter) element(at, name string, t *xmlType, v any, depth int) *toolkeep.Error {
	if !isXMLName(name) {
		return unsafe(at, "%q cannot be the name of an element", name)
	}
	obj, isObject := v.(map[string]any)
	if !isObject {
		w.open(name, t, nil)
		if err := w.text(at, v); err != nil {
			return err
		}
		w.close(name, t)
		return nil
	}
	members := t.members
	known := make(map[string]bool, len(members))
	for _, m := range members {
		known[m.property] = true
	}
	for _, k := range slices.Sorted(maps.Keys(obj)) {
		if !known[k] {
			members = append(slices.Clip(members), xmlMember{k, &xmlType{}})
		}
	}
	var attributes []xmlAttribute
	for _, m := range members {
		mt := m.typ
		if mt.as != "attribute" || obj[m.property] == nil {
			continue
		}
		here := at + canon.Pointer(m.property)
		s, ok := plain(obj[m.property])
		if !ok || !validXML(s) {
			return unsafe(here, "the property %q is sent as an attribute of XML and must be a plain value without control characters", m.property)
		}
		a := xmlAttribute{name: mt.nameOr(m.property), typ: mt, value: s}
		if !isXMLName(a.name) {
			return unsafe(here, "%q cannot be the name of an attribute", a.name)
		}
		attributes = append(attributes, a)
	}
	w.open(name, t, attributes)
	for _, m := range members {
		mt := m.typ
		mv := obj[m.property]
		here := at + canon.Pointer(m.property)
		var err *toolkeep.Error
		switch {
		case mv == nil || mt.as == "attribute":
		case mt.as == "text":
			err = w.text(here, mv)
		default:
			err = w.value(here, mt.nameOr(m.property), m.property, mt, mv, depth+1)
		}
		if err != nil {
			return err
		}
	}
	w.close(name, t)
	return nil
}

func (t *xmlType) nameOr(property string) string {
	if t.name != "" {
		return t.name
	}
	return property
}

type xmlAttribute struct {
	name, value string
	typ         *xmlType
}

func (t *xmlType) qualified(name string) string {
	if t.prefix != "" {
		return t.prefix + ":" + name
	}
	return name
}

func (w *xmlWriter) open(name string, t *xmlType, attributes []xmlAttribute) {
	w.buf = append(append(w.buf, '<'), t.qualified(name)...)
	declared := map[string]bool{}
	declare := func(t *xmlType) {
		if t.namespace == "" || declared[t.prefix] {
			return
		}
		declared[t.prefix] = true
		w.buf = append(w.buf, " xmlns"...)
		if t.prefix != "" {
			w.buf = append(append(w.buf, ':'), t.prefix...)
		}
		w.buf = append(w.buf, `="`...)
		w.escape(t.namespace, true)
		w.buf = append(w.buf, '"')
	}
	declare(t)
	for _, a := range attributes {
		if a.typ.prefix != "" { // an attribute without a prefix has no namespace
			declare(a.typ)
		}
	}
	for _, a := range attributes {
		w.buf = append(append(append(w.buf, ' '), a.typ.qualified(a.name)...), `="`...)
		w.escape(a.value, true)
		w.buf = append(w.buf, '"')
	}
	w.buf = append(w.buf, '>')
}

func (w *xmlWriter) close(name string, t *xmlType) {
	w.buf = append(append(append(w.buf, "</"...), t.qualified(name)...), '>')
}

func (w *xmlWriter) text(at string, v any) *toolkeep.Error {
	s, ok := plain(v)
	if !ok {
		return unsafe(at, "the value cannot be sent as text of an XML element")
	}
	if !validXML(s) {
		return unsafe(at, "the text has a control character that XML cannot hold")
	}
	w.escape(s, false)
	return nil
}

// escape writes text for an element, or for an attribute, where its quote and white
// space are encoded.
func (w *xmlWriter) escape(s string, attribute bool) { w.buf = appendXML(w.buf, s, attribute) }

func appendXML(dst []byte, s string, attribute bool) []byte {
	for i := range len(s) {
		switch c := s[i]; {
		case c == '&':
			dst = append(dst, "&amp;"...)
		case c == '<':
			dst = append(dst, "&lt;"...)
		case c == '>':
			dst = append(dst, "&gt;"...)
		case c == '"' && attribute:
			dst = append(dst, "&quot;"...)
		case c == '\'' && attribute:
			dst = append(dst, "&apos;"...)
		case c == '\r' || attribute && (c == '\n' || c == '\t'):
			dst = append(append(append(dst, "&#x"...), strings.ToUpper(strconv.FormatInt(int64(c), 16))...), ';')
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// validXML reports whether the text is valid in XML 1.0.
func validXML(s string) bool {
	for _, r := range s {
		if r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xfffe || r == 0xffff {
			return false
		}
	}
	return utf8.ValidString(s)
}

// isXMLName reports whether s can name an element or attribute: letters, digits and
// . _ - with a letter or _ first, optionally after a prefix, but not xmlns or xml….
func isXMLName(s string) bool {
	if prefix, local, two := strings.Cut(s, ":"); two {
		return isXMLName(prefix) && isXMLName(local) && !strings.ContainsRune(local, ':')
	}
	if len(s) >= 3 && strings.EqualFold(s[:3], "xml") {
		return false
	}
	for i, r := range s {
		letter := r == '_' || unicode.IsLetter(r) && r != utf8.RuneError
		if !letter && (i == 0 || r != '-' && r != '.' && (r < '0' || r > '9')) {
			return false
		}
	}
	return s != ""
}
