package openapi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/egress"
)

const formType = "application/x-www-form-urlencoded"

// requestBody is the body of an operation, as an argument.
type requestBody struct {
	contentType string
	format      string // of the executor, if the content type does not determine it
	required    bool
	schema      any
	description string
	encoding    map[string]any
	order       []any // of the parts of a multipart body
	xml         map[string]any
	media       *object // the media type object of OpenAPI 3, for its examples

	others  []*requestBody // alternative bodies the caller may choose
	typeArg string         // the argument that chooses
}

// binding returns the body as executor/httptool reads it, without the members of the whole body.
func (b *requestBody) binding() map[string]any {
	m := map[string]any{"content_type": b.contentType}
	if b.format != "" {
		m["format"] = b.format
	}
	if len(b.encoding) > 0 {
		m["encoding"] = b.encoding
	}
	if len(b.order) > 1 {
		m["order"] = b.order
	}
	if b.xml != nil {
		m["xml"] = b.xml
	}
	return m
}

func isWildcard(media string) bool { return media == "*/*" || media == "application/*" }

func isXML(media string) bool {
	return media == "application/xml" || media == "text/xml" || strings.HasSuffix(media, "+xml")
}

// isText reports whether the caller writes a body of this type as text.
func isText(media string) bool {
	return (strings.HasPrefix(media, "text/") || textTypes[media] || strings.HasSuffix(media, "+yaml")) && !isXML(media) && !strings.HasSuffix(media, "*")
}

// textTypes and lineTypes are those of executor/httptool.
var (
	textTypes = map[string]bool{
		"application/yaml": true, "application/x-yaml": true, "application/toml": true, "application/graphql": true,
		"application/javascript": true, "application/x-javascript": true, "application/ecmascript": true,
		"application/sql": true, "application/sparql-query": true, "application/sparql-update": true,
		"application/x-sh": true, "application/x-pem-file": true, "application/pem-certificate-chain": true,
		"application/rtf": true, "application/csv": true, "application/jwt": true, "application/jose": true,
	}
	lineTypes = map[string]bool{
		"application/x-ndjson": true, "application/ndjson": true, "application/jsonl": true, "application/x-jsonlines": true,
		"application/jsonlines": true, "application/json-seq": true, "application/geo+json-seq": true,
	}
)

// sendable returns the content type to send for one named in a document, "" if there is none. A
// lower rank is preferred.
func sendable(name string) (contentType string, rank int) {
	media := egress.MediaType(name)
	switch {
	case !strings.Contains(media, "/") || !plainHeader(name):
		return "", 0
	case media == "application/json" || media == "text/json":
		return withoutCharset(name), 0
	case isWildcard(media):
		return "application/json", 10
	case media == "application/merge-patch+json":
		return withoutCharset(name), 20
	case media == "application/json-patch+json":
		return withoutCharset(name), 40
	case egress.IsJSON(media):
		return withoutCharset(name), 30
	case media == formType:
		return formType, 50
	case strings.HasPrefix(media, "multipart/"):
		return multipartType(name), 60
	case media == "text/plain":
		return withoutCharset(name), 70
	case isText(media):
		return withoutCharset(name), 80
	case lineTypes[media]:
		return withoutCharset(name), 85
	case isXML(media):
		return withoutCharset(name), 90
	}
	return name, 100
}

// multipartType returns the content type without a boundary, which each body generates; a multipart
// of any kind is a form.
func multipartType(name string) string {
	parts := strings.Split(withoutCharset(name), ";")
	if strings.HasSuffix(parts[0], "*") {
		parts[0] = "multipart/form-data"
	}
	parts = slices.DeleteFunc(parts, func(p string) bool { return strings.HasPrefix(strings.ToLower(p), "boundary=") })
	return strings.Join(parts, ";")
}

// withoutCharset removes the charset: bodies are sent as UTF-8. Other parameters of a media type
// belong to its meaning.
func withoutCharset(name string) string {
	parts := strings.Split(name, ";")
	out := egress.MediaType(name)
	for _, p := range parts[1:] {
		p = strings.TrimSpace(p)
		if p == "" || strings.HasPrefix(strings.ToLower(p), "charset=") {
			continue
		}
		out += ";" + p
	}
	return out
}

// bodyWay is one way to send a body.
type bodyWay struct {
	name        string // as the document writes it
	contentType string
	rank        int
	media       *object // of OpenAPI 3
	schema      any
}

// bodyWays lists how a body can be sent, preferred first. A JSON Patch is preferred if its schema
// is a list, because only a patch fits; a multipart body before other forms if it has a file. All
// binary types are one way: the file says which type it is.
func (d *document) bodyWays(types []string, media func(string) (*object, any)) []bodyWay {
	var list []bodyWay
	binary := -1
	for _, t := range types {
		c := bodyWay{name: t}
		if c.contentType, c.rank = sendable(t); c.contentType == "" {
			continue
		}
		c.media, c.schema = media(t)
		s, _ := d.object(c.schema, "schema")
		switch {
		case c.rank == 40 && s.text("type") == "array":
			c.rank = 20
		case c.rank == 60 && d.hasFiles(c.schema):
			c.rank = 45
		case c.rank == 10 && s.text("type") == "string" && s.text("format") == "binary":
			c.contentType, c.rank = "application/octet-stream", 100
		case c.rank == 100 && d.isEncoded(s):
			if c.rank = 95; strings.Contains(c.contentType, "*") {
				c.contentType = "application/octet-stream"
			}
		}
		if c.rank == 100 && binary >= 0 {
			if joined := list[binary].contentType + ", " + c.contentType; len(joined) <= 200 {
				list[binary].contentType = joined
			}
			continue
		}
		if c.rank == 100 {
			binary = len(list)
		}
		list = append(list, c)
	}
	slices.SortStableFunc(list, func(a, b bodyWay) int { return a.rank - b.rank })
	return list
}

// maxOthers bounds the alternative bodies a tool offers.
const maxOthers = 3

// chooseBody builds the body of the first bodyWay that can be sent. Others are offered to the
// caller if they have another schema.
func (d *document) chooseBody(types []string, media func(string) (*object, any)) (*requestBody, string) {
	var first *requestBody
	var refusals []string
	var schemas []any
	for _, c := range d.bodyWays(types, media) {
		target, _ := d.object(c.schema, "schema")
		if first != nil && (len(first.others) == maxOthers || c.rank == 10 || slices.Contains(schemas, any(target)) || sameBody(first.contentType, c.contentType)) {
			continue
		}
		b, reason := d.oneBody(c)
		switch {
		case reason != "":
			refusals = append(refusals, reason)
			continue
		case first == nil:
			first = b
		case c.schema != nil:
			first.others = append(first.others, b)
		}
		schemas = append(schemas, target)
	}
	if first == nil {
		if len(refusals) > 0 {
			return nil, strings.Join(slices.Compact(refusals), "; ")
		}
		return nil, cannotSend(types)
	}
	return first, ""
}

// sameBody reports types that are written alike and differ only in their meaning upstream, such as
// versions of one vendor's JSON.
func sameBody(a, b string) bool {
	a, b = egress.MediaType(a), egress.MediaType(b)
	patch := func(s string) bool { return strings.HasSuffix(s, "patch+json") }
	return a == b || egress.IsJSON(a) && egress.IsJSON(b) && !patch(a) && !patch(b)
}

// oneBody builds the body of one bodyWay.
func (d *document) oneBody(c bodyWay) (*requestBody, string) {
	b := &requestBody{contentType: c.contentType, media: c.media, schema: c.schema}
	media := egress.MediaType(c.contentType)
	s, _ := d.object(c.schema, "schema")
	var reason string
	switch {
	case c.rank == 95:
		b.format = "text" // the argument is the encoded text, which is sent unchanged
	case c.rank == 100:
		b.schema = fileSchema(s.text("description"), c.contentType)
	case egress.IsJSON(media):
	case media == formType:
		b.encoding, reason = d.encoding(c.media)
	case strings.HasPrefix(media, "multipart/"):
		reason = d.multipart(b, c.media)
	case lineTypes[media]:
		if item := c.media.get("itemSchema"); item != nil {
			b.schema = c.media.arrayOf(item)
		}
		if b.schema == nil {
			b.schema = made{"type": "array"}
		}
	case isXML(media):
		if s == nil || s.text("type") == "string" || len(s.keys) == 0 {
			b.schema = d.textBody(c.schema)
			break
		}
		b.xml, reason = d.xmlOf(c.schema)
	default:
		b.schema = d.textBody(c.schema)
	}
	return b, reason
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
		names = append(names, toolkeep.Clip(t, 80))
	}
	if len(names) > 4 {
		names = append(names[:4], "…")
	}
	return "body only as " + strings.Join(names, " or ") + ", which is not a content type"
}

// body determines the body of an operation; nil if it has none.
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
	case "HEAD":
		// HTTP gives such a body no meaning; it is sent if the document requires it.
		if !required {
			d.warn("%s: its optional body is left out: %s carries none", op.label(), op.method)
			return nil, ""
		}
	}
	if reason != "" {
		return nil, reason
	}
	b.required = required
	if _, file := b.schema.(made); file && b.description != "" && len(b.others) == 0 {
		b.schema, b.description = fileSchema(b.description, b.contentType), ""
	}
	return b, ""
}

func (d *document) contentBody(o *object) (*requestBody, string) {
	content, reason := d.object(o.get("content"), "the content of the request body")
	if reason != "" {
		return nil, reason
	}
	if content == nil || len(content.keys) == 0 {
		return nil, cannotSend(nil)
	}
	bad := ""
	b, reason := d.chooseBody(content.keys, func(t string) (*object, any) {
		if content.vals[t] == nil {
			return nil, nil
		}
		m, why := d.object(content.vals[t], "the content "+toolkeep.Clip(t, 80))
		if why != "" && bad == "" {
			bad = why
		}
		return m, m.get("schema")
	})
	if reason == "" {
		reason = bad
	}
	if reason != "" {
		return nil, reason
	}
	b.description = o.text("description")
	return b, ""
}

// textBody keeps the schema of a text body if it describes text.
func (d *document) textBody(s any) any {
	o, reason := d.object(s, "schema")
	if reason == "" && o.text("type") == "string" {
		return s
	}
	return textSchema
}

// encoding converts how fields of a form are written. A field without an entry follows the
// executor's default, which is the standard's.
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
		o, reason := d.object(enc.vals[field], "the encoding of "+toolkeep.Clip(field, 80))
		if reason != "" {
			return nil, reason
		}
		style := o.text("style")
		content := o.text("contentType")
		switch {
		case style != "" || o.has("explode") || o.has("allowReserved"):
			e, reason := d.styledField(o, style)
			if reason != "" {
				return nil, fmt.Sprintf("the form field %q cannot be sent: %s", toolkeep.Clip(field, 80), reason)
			}
			out[field] = e
		case content == "":
		case egress.IsJSON(egress.MediaType(content)):
			out[field] = map[string]any{"content_type": "application/json"}
		case isXML(egress.MediaType(content)):
			schema, _ := d.object(media.get("schema"), "schema")
			prop := d.property(schema, field)
			if prop == nil || prop.text("type") == "string" {
				continue // the text of the XML
			}
			xml, reason := d.xmlOf(propertyOf(d, schema, field))
			if reason != "" {
				return nil, fmt.Sprintf("the form field %q cannot be sent: %s", toolkeep.Clip(field, 80), reason)
			}
			out[field] = map[string]any{"content_type": withoutCharset(content), "xml": xml}
		}
	}
	if len(out) == 0 {
		return nil, ""
	}
	return out, ""
}

func (d *document) styledField(o *object, style string) (map[string]any, string) {
	if style == "" {
		style = "form"
	}
	if !slices.Contains(stylesOf["query"], style) {
		return nil, fmt.Sprintf("a form field cannot have style %q", toolkeep.Clip(style, 40))
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
	if how := d.deepLists(o, style); how != "" {
		e["deep_lists"] = how
	}
	return e, ""
}

// swaggerTypes returns the request or response media types of a Swagger 2.0 operation.
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
	schema := o.get("schema")
	if s, _ := d.object(schema, "schema"); s.text("type") == "file" {
		schema = nil
	}
	b, reason := d.chooseBody(types, func(string) (*object, any) { return nil, schema })
	if reason != "" {
		return nil, reason
	}
	b.description, b.media = o.text("description"), nil
	return b, ""
}

// formBody builds one object from the form fields of Swagger 2.0.
func (d *document) formBody(op *operation, fields []*object) (*requestBody, string) {
	types := d.swaggerTypes(op, "consumes")
	has := func(f func(media string) bool) bool {
		return slices.ContainsFunc(types, func(t string) bool { return f(egress.MediaType(t)) })
	}
	files := slices.ContainsFunc(fields, func(f *object) bool { return f.text("type") == "file" })
	multi := files
	if !files && len(types) > 0 && !has(func(m string) bool { return m == formType || isWildcard(m) }) {
		// Documents often declare JSON globally and still have form fields.
		if multi = has(func(m string) bool { return strings.HasPrefix(m, "multipart/") }); !multi && op.op.has("consumes") {
			return nil, "it has form fields but consumes only " + toolkeep.Clip(strings.Join(types, ", "), 200)
		}
	}
	props, required := newObject(op.op.src, op.op.line), []any{}
	b := &requestBody{contentType: formType, encoding: map[string]any{}}
	if multi {
		b.contentType = "multipart/form-data"
	}
	for _, f := range fields {
		name := f.text("name")
		if f.flag("required") {
			required = append(required, name)
		}
		if multi {
			b.order = append(b.order, name)
		}
		if f.text("type") == "file" {
			props.set(name, fileSchema(f.text("description"), ""))
			b.encoding[name] = map[string]any{"file": true}
			continue
		}
		s := swaggerSchema(f)
		if s.src != nil && f.has("description") && !s.has("description") && s != f.get("schema") {
			s.set("description", f.vals["description"])
		}
		props.set(name, s)
		if f.text("type") != "array" {
			continue
		}
		style, explode, items, reason := collectionStyle(f, "form")
		if reason != "" {
			return nil, fmt.Sprintf("the form field %q cannot be sent: %s", toolkeep.Clip(name, 80), reason)
		}
		e := map[string]any{"style": style}
		if explode {
			e["explode"] = true
		}
		if len(items) > 0 {
			e["item_styles"] = items
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
