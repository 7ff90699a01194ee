package openapi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/egress"
)

// fileSchema is the schema of a file argument: its bytes in base64, or an object with more details.
// types are the content types that the upstream accepts.
func fileSchema(description, types string) made {
	text := strings.TrimSpace(clean(description))
	if text != "" && !strings.HasSuffix(text, ".") {
		text += "."
	}
	kind := map[string]any{"type": "string"}
	if types != "" {
		kind["description"] = "One of " + types + "."
	}
	return made{
		"description": strings.TrimSpace(text + " A file: its bytes in base64, or an object with base64 or text."),
		"anyOf": []any{
			map[string]any{"type": "string", "contentEncoding": "base64"},
			map[string]any{
				"type": "object",
				"properties": map[string]any{
					"base64":       map[string]any{"type": "string", "contentEncoding": "base64"},
					"text":         map[string]any{"type": "string"},
					"file_name":    map[string]any{"type": "string"},
					"content_type": kind,
				},
				"additionalProperties": false,
			},
		},
	}
}

// isFile reports whether a value is sent as bytes: a string of format binary, a file of 2.0, or
// from 3.1 on a schema with only a content type.
func (d *document) isFile(s *object) bool {
	if s == nil {
		return false
	}
	kind := s.text("type")
	if kind == "file" && d.dialect == v20 || s.text("format") == "binary" && (kind == "string" || kind == "") {
		return true
	}
	if d.dialect < v31 || s.text("contentEncoding") != "" || kind != "" && kind != "string" {
		return false
	}
	if media := egress.MediaType(s.text("contentMediaType")); media != "" {
		return kind == "" || !egress.IsJSON(media) && !isText(media) && !isXML(media)
	}
	return kind == "" && !slices.ContainsFunc(s.keys, func(k string) bool {
		return k != "description" && k != "title" && k != "example" && k != "examples" && k != "default"
	})
}

// isEncoded reports whether a text holds encoded bytes, and is sent as it is: format byte until 3.0,
// contentEncoding from 3.1 on.
func (d *document) isEncoded(s *object) bool {
	if d.dialect >= v31 {
		return s.text("contentEncoding") != ""
	}
	return s.text("format") == "byte" && s.text("type") == "string"
}

// elementOf returns the schema of one part's content: for a list, its items.
func (d *document) elementOf(v any) (s *object, list bool) {
	s, _ = d.object(v, "schema")
	if s.text("type") != "array" && !(s.has("items") && s.text("type") == "") {
		return s, false
	}
	item, _ := d.object(s.get("items"), "schema")
	return item, true
}

// hasFiles reports whether a property of a schema is a file or a list of files.
func (d *document) hasFiles(v any) bool {
	for _, p := range d.propertiesOf(v) {
		if s, _ := d.elementOf(p.schema); d.isFile(s) {
			return true
		}
	}
	return false
}

type property struct {
	name   string
	schema any
}

// propertiesOf lists the properties of a schema and of its allOf, in document order.
func (d *document) propertiesOf(v any) []property {
	l := &look{d, maxLookNodes}
	return l.propertiesOf(v, 0, nil)
}

func (l *look) propertiesOf(v any, depth int, list []property) []property {
	o, _ := l.d.object(v, "schema")
	if o == nil || l.spent(depth) {
		return list
	}
	props, _ := l.d.object(o.get("properties"), "properties")
	if props != nil {
		for _, k := range props.keys {
			if !slices.ContainsFunc(list, func(p property) bool { return p.name == k }) {
				list = append(list, property{k, props.vals[k]})
			}
		}
	}
	for _, key := range []string{"allOf", "anyOf", "oneOf"} {
		parts, _ := o.get(key).([]any)
		for _, p := range parts {
			list = l.propertiesOf(p, depth+1, list)
		}
	}
	return list
}

// propertyOf returns a property's schema from the document.
func propertyOf(d *document, v any, name string) any {
	for _, p := range d.propertiesOf(v) {
		if p.name == name {
			return p.schema
		}
	}
	return nil
}

// multipart determines how the parts of a body are sent and replaces the document's schemas of
// files.
func (d *document) multipart(b *requestBody, media *object) string {
	enc, reason := d.object(media.get("encoding"), "the encoding of the body")
	if media.get("encoding") != nil && reason != "" {
		return reason
	}
	if b.schema == nil && media.get("itemSchema") != nil || media.has("prefixEncoding") || media.has("itemEncoding") {
		return d.multipartList(b, media)
	}
	root, _ := d.object(b.schema, "schema")
	if root.text("type") == "array" {
		return d.multipartList(b, media)
	}
	b.encoding = map[string]any{}
	files := map[string]made{}
	for _, p := range d.propertiesOf(b.schema) {
		if d.wrongWay(p.schema, request) {
			continue
		}
		b.order = append(b.order, p.name)
		e, reason := d.object(enc.get(p.name), "the encoding of "+toolkeep.Clip(p.name, 80))
		if enc.get(p.name) != nil && reason != "" {
			return reason
		}
		entry, file, reason := d.part(p, e)
		if reason != "" {
			return fmt.Sprintf("the part %q cannot be sent: %s", toolkeep.Clip(p.name, 80), reason)
		}
		if file {
			s, _ := d.elementOf(p.schema)
			types, _ := entry["content_type"].(string)
			files[p.name] = fileSchema(s.text("description"), types)
		}
		if reason := d.partHeaders(p.name, e, entry); reason != "" {
			return reason
		}
		if len(entry) > 0 {
			b.encoding[p.name] = entry
		}
	}
	if len(files) > 0 {
		b.schema = d.withFiles(b.schema, files, 0)
	}
	return ""
}

// part says how one property of a multipart body is sent.
func (d *document) part(p property, e *object) (entry map[string]any, file bool, reason string) {
	s, _ := d.elementOf(p.schema)
	content := strings.TrimSpace(e.text("contentType"))
	if !plainHeader(content) {
		return nil, false, "its content type is none"
	}
	media := egress.MediaType(content)
	style := e.text("style")
	switch {
	case style != "" || e.has("explode") || e.has("allowReserved"):
		entry, reason = d.styledField(e, style)
		delete(entry, "allow_reserved") // parts are not percent-encoded
		return entry, false, reason
	case d.isFile(s) && (content == "" || s.text("format") == "binary" || isBinary(content) || strings.ContainsAny(content, ",*")) || content != "" && !d.isEncoded(s) && (s.text("type") == "" || s.text("type") == "string") && isBinary(content):
		entry = map[string]any{"file": true}
		if content == "" {
			content = s.text("contentMediaType")
		}
		if content != "" && plainHeader(content) && egress.MediaType(content) != "application/octet-stream" {
			entry["content_type"] = content
		}
		return entry, true, ""
	case s.text("contentEncoding") != "" || content != "" && isBinary(content) && d.isEncoded(s):
		// The argument is the encoded text, which is sent unchanged.
		if content == "" || strings.ContainsAny(content, ",*") {
			content = "application/octet-stream"
			if m := s.text("contentMediaType"); m != "" && plainHeader(m) {
				content = m
			}
		}
		return map[string]any{"content_type": content, "format": "text"}, false, ""
	case content == "" || strings.ContainsAny(content, ",*"):
		return map[string]any{}, false, ""
	case isXML(media) && s.text("type") != "string":
		xml, reason := d.xmlOf(itemsOf(d, p.schema))
		if reason != "" {
			return nil, false, reason
		}
		return map[string]any{"content_type": withoutCharset(content), "xml": xml}, false, ""
	case strings.HasPrefix(media, "multipart/") || lineTypes[media]:
		return nil, false, fmt.Sprintf("its content type is %q", toolkeep.Clip(content, 80))
	case isBinary(content):
		return map[string]any{"content_type": content, "format": "json"}, false, ""
	}
	return map[string]any{"content_type": content}, false, ""
}

func itemsOf(d *document, v any) any {
	s, _ := d.object(v, "schema")
	if s.text("type") == "array" {
		return s.get("items")
	}
	return v
}

// isBinary reports whether a list of content types has a binary one.
func isBinary(types string) bool {
	for t := range strings.SplitSeq(types, ",") {
		m := egress.MediaType(t)
		if m != "" && !egress.IsJSON(m) && !isText(m) && !isXML(m) && m != formType && !lineTypes[m] && !isWildcard(m) &&
			!strings.HasPrefix(m, "multipart/") && !strings.HasPrefix(m, "text/") {
			return true
		}
	}
	return false
}

// partHeaders reads the headers of a part that have a fixed value. Others cannot be sent: they are
// left out, or refuse the operation if required.
func (d *document) partHeaders(field string, e *object, entry map[string]any) string {
	headers, _ := d.object(e.get("headers"), "headers")
	if headers == nil {
		return ""
	}
	out := map[string]any{}
	for _, name := range headers.keys {
		lower := strings.ToLower(name)
		if lower == "content-type" || lower == "content-disposition" || slices.Contains(fixedHeaders, lower) {
			continue // set by the part itself
		}
		if !isToken(name) {
			return fmt.Sprintf("the part %q cannot be sent: %q cannot be the name of a header", toolkeep.Clip(field, 80), toolkeep.Clip(name, 80))
		}
		node, reason := d.object(headers.vals[name], "a header")
		if reason != "" {
			return reason
		}
		s, _ := d.object(node.get("schema"), "schema")
		v := s.get("const")
		if list, _ := s.get("enum").([]any); len(list) == 1 {
			v = list[0]
		}
		if text, ok := scalarText(v); ok && plainHeader(text) {
			out[name] = text
		} else if node.flag("required") {
			return fmt.Sprintf("the part %q cannot be sent: its header %q has no fixed value", toolkeep.Clip(field, 80), toolkeep.Clip(name, 80))
		} else {
			d.warn("the header %s of the part %s is left out: it has no fixed value", toolkeep.Clip(name, 80), toolkeep.Clip(field, 80))
		}
	}
	if len(out) > 0 {
		entry["headers"] = out
	}
	return ""
}

// multipartList is a body whose parts are the elements of a list. They have no names, and each is
// sent according to its value's type.
func (d *document) multipartList(b *requestBody, media *object) string {
	if egress.MediaType(b.contentType) == "multipart/form-data" {
		return "the parts of a form need names, and its schema is a list"
	}
	if media.has("prefixEncoding") || media.has("itemEncoding") {
		return "the parts of its list have encodings by position (prefixEncoding, itemEncoding), which is not supported"
	}
	root, _ := d.object(b.schema, "schema")
	parts, reason := d.list(root.get("prefixItems"), "prefixItems")
	if reason != "" {
		return reason
	}
	parts = append(slices.Clip(parts), root.get("items"))
	if item := media.get("itemSchema"); item != nil {
		b.schema, parts = media.arrayOf(item), []any{item}
	}
	for _, p := range parts {
		if s, _ := d.object(p, "schema"); d.isFile(s) {
			return "the parts of its list are files, which need names"
		}
	}
	return ""
}

// withFiles copies a schema, with file schemas for the file properties.
func (d *document) withFiles(v any, files map[string]made, depth int) any {
	o, _ := d.object(v, "schema")
	if o == nil || depth > maxLook {
		return v
	}
	out := o.empty()
	for _, k := range o.keys {
		switch val := o.vals[k].(type) {
		case *object:
			if k != "properties" {
				out.set(k, val)
				continue
			}
			props, _ := d.object(val, "properties")
			copied := newObject(o.src, o.line)
			if props != nil {
				copied.res = props.res
				for _, name := range props.keys {
					copied.set(name, d.fileOr(props.vals[name], files[name]))
				}
			}
			out.set(k, copied)
		case []any:
			if k != "allOf" && k != "anyOf" && k != "oneOf" {
				out.set(k, val)
				continue
			}
			parts := make([]any, len(val))
			for i, p := range val {
				parts[i] = d.withFiles(p, files, depth+1)
			}
			out.set(k, parts)
		default:
			out.set(k, val)
		}
	}
	return out
}

// fileOr returns the schema of a file, or of a list of files, for a property.
func (d *document) fileOr(v any, file made) any {
	if file == nil {
		return v
	}
	_, list := d.elementOf(v)
	if !list {
		return file
	}
	whole, _ := d.object(v, "schema")
	out := whole.empty()
	for _, k := range whole.keys {
		out.set(k, whole.vals[k])
	}
	out.set("items", file)
	return out
}

// anySchema returns a schema that accepts the body in any of its forms.
func (b *requestBody) anySchema() any {
	if len(b.others) == 0 || b.schema == nil {
		return b.schema
	}
	all := &object{vals: map[string]any{}}
	list := []any{b.schema}
	for _, o := range b.others {
		if !slices.ContainsFunc(list, func(v any) bool { return sameSchema(v, o.schema) }) {
			list = append(list, o.schema)
		}
	}
	if len(list) == 1 {
		return b.schema
	}
	all.set("anyOf", list)
	return all
}

func sameSchema(a, b any) bool {
	x, ok1 := a.(*object)
	y, ok2 := b.(*object)
	return ok1 && ok2 && x == y
}

// typeSchema returns the schema of the argument that chooses the body's form. Within a range any
// type is allowed.
func (b *requestBody) typeSchema() map[string]any {
	var types []any
	ranges := false
	for _, o := range append([]*requestBody{b}, b.others...) {
		for t := range strings.SplitSeq(o.contentType, ",") {
			t = strings.TrimSpace(t)
			ranges = ranges || strings.HasSuffix(t, "*")
			types = append(types, t)
		}
	}
	s := map[string]any{"type": "string", "description": "How the body is sent. Default: " + toolkeep.Clip(b.contentType, 200) + "."}
	if ranges {
		s["examples"] = types
	} else {
		s["enum"] = types
	}
	return s
}
