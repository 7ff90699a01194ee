package httptool

import (
	"encoding/base64"
	"maps"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/executor/bindings"
)

const formType = "application/x-www-form-urlencoded"

// maxBody bounds a request body.
const maxBody = 64 << 20

// Formats of a body, a body part, or a parameter with content.
const (
	asJSON      = "json"
	asText      = "text" // a plain value as is
	asForm      = "form" // application/x-www-form-urlencoded
	asXML       = "xml"  // an element, described by xml
	asBinary    = "binary"
	asMultipart = "multipart"
	asLines     = "lines" // a list, one JSON text per line
)

var formats = []string{asJSON, asText, asForm, asXML, asBinary, asMultipart, asLines}

// codec encodes a value in one media type.
type codec struct {
	format      string
	contentType string // for binary may be a list or ranges; then the value chooses
	fields      map[string]*field
	order       []string // of multipart parts; the others follow by name
	xml         *xmlType
	name        string // root element of XML
}

// field says how a form property or a multipart part is sent.
type field struct {
	parameter          // style; without one content applies
	styled    bool     // style was given
	file      bool     // the value is a file
	fileName  string   // default file name
	headers   []header // of the part
}

// formatOf returns the default format of a content type.
func formatOf(contentType string) string {
	media := egress.MediaType(contentType)
	switch {
	case egress.IsJSON(media):
		return asJSON
	case media == formType:
		return asForm
	case strings.HasPrefix(media, "multipart/"):
		return asMultipart
	case lineTypes[media]:
		return asLines
	case strings.HasPrefix(media, "text/") || textTypes[media] || isXML(media) || strings.HasSuffix(media, "+yaml"):
		return asText
	}
	return asBinary
}

func isXML(media string) bool {
	return media == "application/xml" || media == "text/xml" || strings.HasSuffix(media, "+xml")
}

// textTypes are types outside of text/ whose argument is the text itself.
var textTypes = map[string]bool{
	"application/yaml": true, "application/x-yaml": true, "application/toml": true, "application/graphql": true,
	"application/javascript": true, "application/x-javascript": true, "application/ecmascript": true,
	"application/sql": true, "application/sparql-query": true, "application/sparql-update": true,
	"application/x-sh": true, "application/x-pem-file": true, "application/pem-certificate-chain": true,
	"application/rtf": true, "application/csv": true, "application/jwt": true, "application/jose": true,
}

// lineTypes hold one JSON text per line.
var lineTypes = map[string]bool{
	"application/x-ndjson": true, "application/ndjson": true, "application/jsonl": true, "application/x-jsonlines": true,
	"application/jsonlines": true, "application/json-seq": true, "application/geo+json-seq": true,
}

// readCodec reads content_type, format and the format's members.
func readCodec(o *bindings.Object, contentType string) *codec {
	c := &codec{contentType: contentType, format: o.Text("format", false)}
	if c.format != "" && !slices.Contains(formats, c.format) {
		o.Fault("format", "enum", "a body's format is %s, not %q", strings.Join(formats, ", "), c.format)
	}
	doc, hasXML := o.Sub("xml")
	if c.format == "" && contentType != "" {
		if c.format = formatOf(contentType); hasXML && isXML(egress.MediaType(contentType)) {
			c.format = asXML
		}
	}
	switch {
	case hasXML && c.format != asXML:
		o.Fault("xml", "unsupported", "xml describes a body of XML, not of %q", contentType)
	case c.format == asXML && !hasXML:
		o.Fault("xml", "required", "format xml needs xml, the description of its elements")
	case hasXML:
		c.name, c.xml = readXML(doc)
	}
	c.readFields(o)
	if c.format != asBinary && strings.ContainsAny(contentType, "*,") {
		o.Fault("content_type", "unsupported", "the content type %q is a range; only a binary body can leave the choice to its argument", contentType)
	}
	return c
}

func (c *codec) readFields(o *bindings.Object) {
	enc, ok := o.Sub("encoding")
	if ok {
		c.fields = make(map[string]*field)
		for _, name := range enc.Names() {
			if f, ok := enc.Sub(name); ok {
				c.fields[name] = readField(f, name, c.format)
			}
		}
		enc.Done()
		if len(c.fields) > 0 && c.format != asForm && c.format != asMultipart {
			o.Fault("encoding", "unsupported", "encoding applies to %s and multipart bodies alone", formType)
		}
	}
	if list, ok := o.Member("order"); ok {
		names, isList := list.([]any)
		for _, n := range names {
			s, isText := n.(string)
			isList = isList && isText
			c.order = append(c.order, s)
		}
		if !isList || c.format != asMultipart {
			o.Fault("order", "type", "order is a list of the names of a multipart body's parts")
		}
	}
}

func readField(o *bindings.Object, name, format string) *field {
	f := &field{parameter: parameter{
		name:          name,
		arg:           name,
		in:            "form",
		style:         o.Text("style", false),
		explode:       o.Flag("explode"),
		allowReserved: o.Flag("allow_reserved"),
	}}
	f.styled = f.style != ""
	readItems(o, &f.parameter)
	f.deepLists = readDeepLists(o, f.style)
	content := o.Text("content_type", false)
	if !validHeaderValue(content) {
		o.Fault("content_type", "header", "the content type has characters that a header cannot hold")
	}
	multipart := format == asMultipart
	if multipart {
		f.file, f.fileName = o.Flag("file"), o.Text("file_name", false)
		if !validHeaderValue(f.fileName) {
			o.Fault("file_name", "header", "the name of the file has characters that a header cannot hold")
		}
		f.readHeaders(o)
	}
	if f.styled && !slices.Contains(styles["query"], f.style) {
		o.Fault("style", "enum", "a form field has style %s, not %q", strings.Join(styles["query"], ", "), f.style)
	}
	switch {
	case f.styled:
	case f.file:
		f.content = &codec{format: asBinary, contentType: content}
	case content == "":
		if f.style = "form"; multipart {
			f.style = "" // chosen by the kind of value
		}
	default:
		c := readCodec(o, content)
		switch {
		case c.format == asMultipart || c.format == asLines || !multipart && c.format == asForm:
			o.Fault("content_type", "unsupported", "a field of %q within a body of its kind cannot be sent", content)
		case c.format == asJSON && !multipart:
			f.json = true
		case !multipart && (c.format == asText || c.format == asBinary):
			f.style = "form" // a form is text: binary content is the argument's base64
		default:
			f.content = c
		}
	}
	o.Done()
	return f
}

func (f *field) readHeaders(o *bindings.Object) {
	hs, ok := o.Sub("headers")
	if !ok {
		return
	}
	for _, name := range hs.Names() {
		switch checkHeaderName(hs, name, name); strings.ToLower(name) {
		case "content-disposition":
			hs.Fault(name, "header", "the header %s of a part follows from the part itself", name)
		}
		v := hs.Text(name, false)
		if !validHeaderValue(v) {
			hs.Fault(name, "header", "the value has characters that a header cannot hold")
		}
		f.headers = append(f.headers, header{name, v})
	}
	hs.Done()
}

// render encodes a value and returns its content type. secrets are the credentials that
// go into the body.
func (c *codec) render(at string, v any, secrets []header) ([]byte, string, *toolkeep.Error) {
	data, contentType, err := c.encode(at, v, secrets)
	if err == nil && len(data) > maxBody {
		err = unsafe(at, "the request's body would be over %d MiB", maxBody>>20)
	}
	return data, contentType, err
}

func (c *codec) encode(at string, v any, secrets []header) ([]byte, string, *toolkeep.Error) {
	switch c.format {
	case asText:
		s, ok := plain(v)
		if !ok {
			return nil, "", unsafe(at, "the value is sent as text (%s) and must be a plain value", c.contentType)
		}
		return []byte(s), c.contentType, nil
	case asBinary:
		f, err := readFile(at, v, c.contentType)
		return f.data, f.contentType, err
	case asXML:
		data, err := c.renderXML(at, v)
		return data, c.contentType, err
	case asLines:
		data, err := c.renderLines(at, v)
		return data, c.contentType, err
	case asMultipart:
		return c.renderMultipart(at, v, secrets)
	}
	if c.format == asForm || len(secrets) > 0 {
		obj, isObject := v.(map[string]any)
		if !isObject && v != nil {
			return nil, "", unsafe(at, "the value must be an object to be sent as %s", c.contentType)
		}
		if c.format == asForm {
			data, err := c.renderForm(at, obj, secrets)
			return data, c.contentType, err
		}
		v = withSecrets(obj, secrets)
	}
	return canon.Append(nil, v), c.contentType, nil
}

func (c *codec) renderLines(at string, v any) ([]byte, *toolkeep.Error) {
	list, ok := v.([]any)
	if !ok {
		return nil, unsafe(at, "the value must be a list: each element is sent as one line of %s", c.contentType)
	}
	var buf []byte
	for _, el := range list {
		if strings.HasSuffix(egress.MediaType(c.contentType), "json-seq") {
			buf = append(buf, 0x1e) // RFC 7464
		}
		buf = append(canon.Append(buf, el), '\n')
	}
	return buf, nil
}

// withSecrets copies the body, which belongs to the call, and adds credentials.
func withSecrets(obj map[string]any, secrets []header) map[string]any {
	out := make(map[string]any, len(obj)+len(secrets))
	maps.Copy(out, obj)
	for _, s := range secrets {
		out[s.name] = s.value
	}
	return out
}

// formField is the default encoding of a form field: in OpenAPI plain values and lists
// are style form exploded, objects are JSON.
var (
	formField       = parameter{in: "form", style: "form", explode: true}
	formObjectField = parameter{in: "form", json: true}
)

func (c *codec) renderForm(at string, obj map[string]any, secrets []header) ([]byte, *toolkeep.Error) {
	w := pairs{sep: "&", names: escForm, taken: make(map[string]bool, len(obj)), keys: secrets}
	for name := range obj {
		w.taken[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(obj)) {
		v := obj[name]
		if v == nil || isSecret(secrets, name) {
			continue
		}
		p := c.formField(name, v)
		if err := w.parameter(p, v, escForm); err != nil {
			return nil, within(at, err)
		}
	}
	for _, s := range secrets {
		w.add(s.name, s.value, escForm)
	}
	return w.buf, nil
}

func isSecret(secrets []header, name string) bool {
	return slices.ContainsFunc(secrets, func(h header) bool { return h.name == name })
}

// within prefixes an error's pointer with the place of the value.
func within(at string, err *toolkeep.Error) *toolkeep.Error {
	p, _ := err.Details["pointer"].(string)
	return err.With("pointer", at+p)
}

func (c *codec) formField(name string, v any) *parameter {
	if f := c.fields[name]; f != nil {
		return &f.parameter
	}
	p := formField
	if needsJSON(v) {
		p = formObjectField
	}
	p.name, p.arg = name, name
	return &p
}

// needsJSON reports whether a form field without encoding is sent as JSON: an object,
// or a list that contains anything but plain values.
func needsJSON(v any) bool {
	switch t := v.(type) {
	case map[string]any:
		return true
	case []any:
		return slices.ContainsFunc(t, func(el any) bool { _, ok := plain(el); return !ok })
	}
	return false
}

// file is a value with binary content.
type file struct {
	data        []byte
	name        string
	contentType string
}

// readFile reads a file from an argument: its bytes in base64, or an object with base64
// or text, and optionally content_type and file_name. allowed are the binding's content
// types, separated by commas.
func readFile(at string, v any, allowed string) (file, *toolkeep.Error) {
	f := file{}
	obj, isObject := v.(map[string]any)
	if !isObject {
		obj = map[string]any{"base64": v}
	}
	coded, hasCoded := obj["base64"].(string)
	text, hasText := obj["text"].(string)
	switch {
	case hasCoded == hasText:
		return f, unsafe(at, "a file is its bytes as base64, or an object with either base64 or text")
	case hasText:
		f.data = []byte(text)
	default:
		var err error
		if f.data, err = decodeBase64(coded); err != nil {
			return f, unsafe(at, "the file is not base64")
		}
	}
	for _, k := range slices.Sorted(maps.Keys(obj)) {
		s, isText := obj[k].(string)
		switch k {
		case "base64", "text":
		case "content_type":
			f.contentType = s
		case "file_name":
			f.name = s
		default:
			return f, unsafe(at+canon.Pointer(k), "a file has base64 or text, content_type and file_name, not %q", k)
		}
		if !isText {
			return f, unsafe(at+canon.Pointer(k), "%s of a file must be a string", k)
		}
	}
	var err *toolkeep.Error
	f.contentType, err = pickType(at, f.contentType, allowed)
	return f, err
}

// pickType chooses a file's content type: its own if the binding allows it, else the
// binding's first.
func pickType(at, said, allowed string) (string, *toolkeep.Error) {
	if said != "" && (!validHeaderValue(said) || strings.ContainsAny(said, "*,") || !strings.Contains(egress.MediaType(said), "/")) {
		return "", unsafe(at, "content_type must be a content type such as image/png")
	}
	if allowed == "" {
		allowed = "*/*"
	}
	first := ""
	for a := range strings.SplitSeq(allowed, ",") {
		a = strings.TrimSpace(a)
		before, star := strings.CutSuffix(a, "*")
		switch {
		case a == "*/*" || star && strings.HasPrefix(egress.MediaType(said), strings.ToLower(before)) || said != "" && egress.MediaType(a) == egress.MediaType(said):
			if said != "" {
				return said, nil
			}
		}
		if first == "" && !star {
			first = a
		}
	}
	switch {
	case said != "":
		return "", unsafe(at, "a file of %q cannot be sent here; the upstream takes %s", said, allowed)
	case first != "":
		return first, nil
	case allowed == "*/*" || allowed == "application/*":
		return "application/octet-stream", nil
	}
	return "", unsafe(at, "content_type of the file must be given: the upstream takes %s", allowed)
}

// decodeBase64 accepts both alphabets, with or without padding.
func decodeBase64(s string) ([]byte, error) {
	s = strings.TrimRight(s, "=")
	if strings.ContainsAny(s, "-_") {
		return base64.RawURLEncoding.DecodeString(s)
	}
	return base64.RawStdEncoding.DecodeString(s)
}
