package openapi

import (
	"fmt"
	"slices"
	"strings"
)

const formType = "application/x-www-form-urlencoded"

// requestBody is what an operation sends, as an argument.
type requestBody struct {
	contentType string
	required    bool
	schema      any
	description string
	encoding    map[string]any
	media       *object // the media type object of OpenAPI 3, for its examples
}

// mediaType is a content type without parameters, in lower case.
func mediaType(s string) string {
	s, _, _ = strings.Cut(s, ";")
	return strings.ToLower(strings.TrimSpace(s))
}

func isJSON(media string) bool {
	return media == "application/json" || media == "text/json" ||
		strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json")
}

func isWildcard(media string) bool { return media == "*/*" || media == "application/*" }

// isText tells whether a body of this type is written as text by the caller. XML
// and event streams are not: their text is not what their schema describes.
func isText(media string) bool {
	return strings.HasPrefix(media, "text/") && media != "text/xml" && media != "text/event-stream" && !strings.HasSuffix(media, "*")
}

// sendable gives the content type to send for one that a document names, "" if
// it cannot be sent yet. rank is lower for what is preferred.
func sendable(name string) (contentType string, rank int) {
	media := mediaType(name)
	switch {
	case media == "application/json" || media == "text/json":
		return withoutCharset(name), 0
	case isWildcard(media):
		return "application/json", 1
	case media == "application/json-patch+json":
		return withoutCharset(name), 4
	case media == "application/merge-patch+json":
		return withoutCharset(name), 2
	case isJSON(media):
		return withoutCharset(name), 3
	case media == formType:
		return formType, 5
	case media == "text/plain":
		return withoutCharset(name), 6
	case isText(media):
		return withoutCharset(name), 7
	}
	return "", 0
}

// withoutCharset leaves out the charset: what is sent is UTF-8. Other parameters
// of a media type belong to its meaning.
func withoutCharset(name string) string {
	parts := strings.Split(name, ";")
	out := mediaType(name)
	for _, p := range parts[1:] {
		p = strings.TrimSpace(p)
		if p == "" || strings.HasPrefix(strings.ToLower(p), "charset=") {
			continue
		}
		out += ";" + p
	}
	return out
}

// choose picks the media type to send. A JSON Patch is preferred where its
// schema is a list, because nothing else is then meant.
func (d *document) choose(types []string, isList func(string) bool) (name, contentType string) {
	best := 100
	for _, t := range types {
		ct, rank := sendable(t)
		if ct == "" || !plainHeader(ct) {
			continue
		}
		if rank == 4 && isList(t) {
			rank = 2
		}
		if rank < best {
			best, name, contentType = rank, t, ct
		}
	}
	return name, contentType
}

func plainHeader(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return len(s) <= 200
}

func cannotSend(types []string) string {
	if len(types) == 0 {
		return "its body names no media type"
	}
	names := make([]string, 0, len(types))
	for _, t := range types {
		names = append(names, clip(t, 80))
	}
	if len(names) > 4 {
		names = append(names[:4], "…")
	}
	return "body only as " + strings.Join(names, " or ") + ", which cannot be sent yet"
}

// body finds out what the operation sends; nil if nothing.
func (d *document) body(op *operation, swagger *object, form []*object) (*requestBody, string) {
	var b *requestBody
	var reason string
	required := false
	switch {
	case d.dialect != v20:
		if op.op.get("requestBody") == nil {
			return nil, ""
		}
		var o *object
		if o, reason = d.object(op.op.get("requestBody"), "the request body"); reason != "" {
			return nil, reason
		}
		required = o.flag("required")
		if c, none := d.object(o.get("content"), ""); !required && none == "" && len(c.keys) == 0 {
			d.warn("%s: its optional body is left out: it names no media type", op.label())
			return nil, ""
		}
		b, reason = d.contentBody(o)
	case swagger != nil && len(form) > 0:
		return nil, "it has both a body and form fields"
	case swagger != nil:
		required = swagger.flag("required")
		b, reason = d.swaggerBody(op, swagger)
	case len(form) > 0:
		required = slices.ContainsFunc(form, func(o *object) bool { return o.flag("required") })
		b, reason = d.formBody(op, form)
	default:
		return nil, ""
	}
	switch op.method {
	case "GET", "HEAD", "OPTIONS":
		if required {
			return nil, fmt.Sprintf("it needs a body with %s, which cannot be sent yet", op.method)
		}
		d.warn("%s: its optional body is left out: %s carries none", op.label(), op.method)
		return nil, ""
	}
	if reason != "" {
		return nil, reason
	}
	b.required = required
	return b, ""
}

func (d *document) contentBody(o *object) (*requestBody, string) {
	content, reason := d.object(o.get("content"), "the content of the request body")
	if reason != "" {
		return nil, reason
	}
	name, contentType := d.choose(content.keys, func(t string) bool {
		m, reason := d.object(content.vals[t], "media")
		if reason != "" {
			return false
		}
		s, reason := d.object(m.get("schema"), "schema")
		return reason == "" && s.text("type") == "array"
	})
	if contentType == "" {
		return nil, cannotSend(content.keys)
	}
	b := &requestBody{contentType: contentType, description: o.text("description")}
	if content.vals[name] != nil {
		if b.media, reason = d.object(content.vals[name], "the content "+clip(name, 80)); reason != "" {
			return nil, reason
		}
	}
	b.schema = b.media.get("schema")
	media := mediaType(contentType)
	if isText(media) && !isJSON(media) {
		b.schema = d.textBody(b.schema)
	}
	if media == formType {
		b.encoding, reason = d.encoding(b.media)
	}
	return b, reason
}

// textBody keeps the schema of a text body if it describes text.
func (d *document) textBody(s any) any {
	o, reason := d.object(s, "schema")
	if reason == "" && o.text("type") == "string" {
		return s
	}
	return textSchema
}

// encoding translates how fields of a form are written. A field without an entry
// follows the executor's rule, which is the standard's.
func (d *document) encoding(media *object) (map[string]any, string) {
	if media.get("encoding") == nil {
		return nil, ""
	}
	enc, reason := d.object(media.get("encoding"), "the encoding of the body")
	if reason != "" {
		return nil, reason
	}
	out := map[string]any{}
	for _, field := range enc.keys {
		o, reason := d.object(enc.vals[field], "the encoding of "+clip(field, 80))
		if reason != "" {
			return nil, reason
		}
		style := o.text("style")
		content := o.text("contentType")
		switch {
		case style != "" || o.has("explode") || o.has("allowReserved"):
			e, reason := styledField(o, style)
			if reason != "" {
				return nil, fmt.Sprintf("the form field %q cannot be sent: %s", clip(field, 80), reason)
			}
			out[field] = e
		case content == "":
		case isJSON(mediaType(content)):
			out[field] = map[string]any{"content_type": "application/json"}
		case strings.HasPrefix(mediaType(content), "text/") || isWildcard(mediaType(content)):
		default:
			return nil, fmt.Sprintf("the form field %q is of type %q, which cannot be sent yet", clip(field, 80), clip(content, 80))
		}
	}
	if len(out) == 0 {
		return nil, ""
	}
	return out, ""
}

func styledField(o *object, style string) (map[string]any, string) {
	if style == "" {
		style = "form"
	}
	if !slices.Contains(stylesOf["query"], style) {
		return nil, fmt.Sprintf("a form field cannot have style %q", clip(style, 40))
	}
	e := map[string]any{"style": style}
	explode := style == "form" || style == "deepObject"
	if b, ok := o.get("explode").(bool); ok && style != "deepObject" {
		explode = b
	}
	if explode {
		e["explode"] = true
	}
	if o.flag("allowReserved") {
		e["allow_reserved"] = true
	}
	return e, ""
}

// consumes gives the media types of a Swagger 2.0 operation, in or out.
func (d *document) swaggerTypes(op *operation, key string) []string {
	v := op.op.get(key)
	if !op.op.has(key) {
		v = d.root.get(key)
	}
	list, _ := d.list(v, key)
	var types []string
	for _, e := range list {
		if s, ok := e.(string); ok {
			types = append(types, s)
		}
	}
	return types
}

func (d *document) swaggerBody(op *operation, o *object) (*requestBody, string) {
	types := d.swaggerTypes(op, "consumes")
	if len(types) == 0 {
		types = []string{"application/json"}
	}
	_, contentType := d.choose(types, func(string) bool {
		s, reason := d.object(o.get("schema"), "schema")
		return reason == "" && s.text("type") == "array"
	})
	if contentType == "" {
		return nil, cannotSend(types)
	}
	b := &requestBody{contentType: contentType, description: o.text("description"), schema: o.get("schema")}
	if media := mediaType(contentType); isText(media) && !isJSON(media) {
		b.schema = d.textBody(b.schema)
	}
	return b, ""
}

// formBody makes one object of the form fields of Swagger 2.0.
func (d *document) formBody(op *operation, fields []*object) (*requestBody, string) {
	types := d.swaggerTypes(op, "consumes")
	for _, f := range fields {
		if f.text("type") == "file" {
			return nil, cannotSend([]string{"multipart/form-data"})
		}
	}
	if len(types) > 0 && !slices.ContainsFunc(types, func(t string) bool { return mediaType(t) == formType || isWildcard(mediaType(t)) }) {
		// Documents often say JSON for the whole and still have form fields.
		if slices.ContainsFunc(types, func(t string) bool { return strings.HasPrefix(mediaType(t), "multipart/") }) {
			return nil, cannotSend(types)
		}
		if op.op.has("consumes") {
			return nil, "it has form fields but consumes only " + clip(strings.Join(types, ", "), 200)
		}
	}
	props, required := newObject(op.op.src, op.op.line), []any{}
	b := &requestBody{contentType: formType}
	for _, f := range fields {
		s := swaggerSchema(f)
		if s.src != nil && f.has("description") && !s.has("description") && s != f.get("schema") {
			s.set("description", f.vals["description"])
		}
		name := f.text("name")
		props.set(name, s)
		if f.flag("required") {
			required = append(required, name)
		}
		if f.text("type") != "array" {
			continue
		}
		style, explode, reason := collectionStyle(f, "form")
		if reason != "" {
			return nil, fmt.Sprintf("the form field %q cannot be sent: %s", clip(name, 80), reason)
		}
		if b.encoding == nil {
			b.encoding = map[string]any{}
		}
		e := map[string]any{"style": style}
		if explode {
			e["explode"] = true
		}
		b.encoding[name] = e
	}
	s := newObject(op.op.src, op.op.line)
	s.set("type", "object")
	s.set("properties", props)
	s.set("required", required)
	s.set("additionalProperties", false)
	b.schema = s
	return b, ""
}
