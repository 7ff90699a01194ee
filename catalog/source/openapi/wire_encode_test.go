package openapi_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// This encoder is written from the standards alone: Swagger 2.0, OpenAPI 3.0.4, 3.1.1 and 3.2.0, RFC
// 6570 (styles) and the form encoding of the URL standard. Where they leave something open it has a
// rule, named below, and what arrives must be what the rule says:
//
//   - order: properties of an object have no order (RFC 8259 §4), so that those of a style and the
//     pairs of a query are compared sorted. The order of one list's elements counts.
//   - label: the table of 3.0.0 to 3.0.3 shows dots in a label that is not exploded; RFC 6570 §3.2.5 and
//     the table from 3.0.4 on have commas.
//   - delimited: an exploded list in spaceDelimited or pipeDelimited is "n/a" in the table; it is
//     written as in form. Their delimiters are percent-encoded (3.1.1 §4.8.12.6). Within an element a
//     delimiter other than the comma cannot be told from one between two.
//   - deep: lists in deepObject are undefined (3.1.1 §4.8.12.4); they get indices.
//   - nested: lists and objects within a list or object of another style are undefined (RFC 6570 §2.4.2).
//   - empty: an empty list or object and null are undefined variables (RFC 6570 §2.3): nothing is sent.
//   - header: a value of a header is not percent-encoded (3.1.1, Appendix D).
//   - cookie: the table has one cookie a header; several stand with "; " between them (RFC 6265 §4.2.1).
//   - reserved: with allowReserved the characters that delimit a query (&, +, ;, #, [ and ]) are still
//     percent-encoded (3.1.1, Appendix E).
//   - ranges: a body of */* or application/* is JSON.
//   - fields: in a form a property with an object, or a list with objects, is JSON as a whole where no
//     style is given (3.0.4 §4.7.14: "complex objects are stringified").

func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

// percent encodes all but the unreserved characters of RFC 3986 and those in keep.
func percent(s, keep string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if unreserved(c) || strings.IndexByte(keep, c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// decoded undoes the encoding of unreserved characters, which means nothing (RFC 3986 §2.3), and that
// of what else is in extra.
func decoded(s, extra string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				if c := byte(n); unreserved(c) || strings.IndexByte(extra, c) >= 0 {
					b.WriteByte(c)
				} else {
					fmt.Fprintf(&b, "%%%02X", c)
				}
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// how a parameter or a field of a form is written.
type how struct {
	style   string
	explode bool
	inner   []string // delimiters of lists within the list (2.0)
	encode  func(string) string
}

var delims = map[string]string{"form": ",", "simple": ",", "cookie": ",", "spaceDelimited": " ", "pipeDelimited": "|", "tabDelimited": "\t"}

func plainText(v any) string {
	switch t := v.(type) {
	case string:
		return t
	case json.Number:
		return t.String()
	case bool:
		return strconv.FormatBool(t)
	}
	panic(fmt.Sprintf("%T in a style", v))
}

func (h how) join(list []any, delimiters []string) string {
	between := delimiters[0]
	if between != "," {
		between = h.encode(between)
	}
	texts := make([]string, len(list))
	for i, v := range list {
		if inner, ok := v.([]any); ok {
			texts[i] = h.join(inner, delimiters[1:])
		} else {
			texts[i] = h.encode(plainText(v))
		}
	}
	return strings.Join(texts, between)
}

// members lists the properties that are not null, sorted, as name and value.
func members(obj map[string]any) (flat []any, names []string) {
	for _, k := range slices.Sorted(maps.Keys(obj)) {
		if obj[k] != nil {
			flat, names = append(flat, k, obj[k]), append(names, k)
		}
	}
	return flat, names
}

// pairs encodes a value for a query, a form or a cookie.
func (h how) pairs(name string, v any) (pairs []string) {
	pair := func(name, value string) { pairs = append(pairs, h.encode(name)+"="+value) }
	if h.style == "deepObject" {
		return h.deep(name, v)
	}
	switch t := v.(type) {
	case nil:
	case []any:
		switch {
		case len(t) == 0:
		case h.explode:
			for _, e := range t {
				if inner, ok := e.([]any); ok {
					pair(name, h.join(inner, h.inner))
				} else {
					pair(name, h.encode(plainText(e)))
				}
			}
		default:
			pair(name, h.join(t, append([]string{delims[h.style]}, h.inner...)))
		}
	case map[string]any:
		flat, names := members(t)
		switch {
		case len(names) == 0:
		case h.explode:
			for _, k := range names {
				pair(k, h.encode(plainText(t[k])))
			}
		default:
			pair(name, h.join(flat, []string{delims[h.style]}))
		}
	default:
		pair(name, h.encode(plainText(v)))
	}
	return pairs
}

func (h how) deep(name string, v any) (pairs []string) {
	switch t := v.(type) {
	case nil:
	case []any:
		for i, e := range t {
			pairs = append(pairs, h.deep(fmt.Sprintf("%s[%d]", name, i), e)...)
		}
	case map[string]any:
		_, names := members(t)
		for _, k := range names {
			pairs = append(pairs, h.deep(name+"["+k+"]", t[k])...)
		}
	default:
		pairs = append(pairs, h.encode(name)+"="+h.encode(plainText(v)))
	}
	return pairs
}

// segment encodes a value for a path.
func (h how) segment(name string, v any) string {
	name = h.encode(name)
	lead, between, each := map[string]string{"label": ".", "matrix": ";"}[h.style], ",", ""
	if d := delims[h.style]; d != "" && d != "," {
		between = h.encode(d)
	}
	if h.explode && lead != "" {
		between = lead
	}
	switch t := v.(type) {
	case []any:
		if h.style == "matrix" {
			if each = name + "="; !h.explode {
				lead, each = lead+each, ""
			}
		}
		texts := make([]string, len(t))
		for i, e := range t {
			if inner, ok := e.([]any); ok {
				texts[i] = h.join(inner, h.inner)
			} else {
				texts[i] = each + h.encode(plainText(e))
			}
		}
		return lead + strings.Join(texts, between)
	case map[string]any:
		if h.style == "matrix" && !h.explode {
			lead += name + "="
		}
		_, names := members(t)
		for i, k := range names {
			of := between
			if h.explode {
				of = "="
			}
			names[i] = h.encode(k) + of + h.encode(plainText(t[k]))
		}
		return lead + strings.Join(names, between)
	}
	text := h.encode(plainText(v))
	if h.style == "matrix" {
		if lead += name; text != "" {
			lead += "="
		}
	}
	return lead + text
}

// field encodes a value for a header.
func (h how) field(v any) string {
	switch t := v.(type) {
	case []any:
		return h.join(t, append([]string{delims[h.style]}, h.inner...))
	case map[string]any:
		flat, names := members(t)
		if !h.explode {
			return h.join(flat, []string{delims[h.style]})
		}
		for i, k := range names {
			names[i] = k + "=" + plainText(t[k])
		}
		return strings.Join(names, ",")
	}
	return plainText(v)
}

// jsonText is a value as JSON, with sorted names.
func jsonText(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func sameJSON(a, b string) bool {
	read := func(s string) (string, error) {
		var v any
		dec := json.NewDecoder(strings.NewReader(s))
		dec.UseNumber()
		if err := dec.Decode(&v); err != nil {
			return "", err
		}
		return jsonText(v), nil
	}
	x, err1 := read(a)
	y, err2 := read(b)
	return err1 == nil && err2 == nil && x == y
}

// Kinds of media types.

func mediaOf(s string) string {
	media, _, _ := strings.Cut(s, ";")
	return strings.ToLower(strings.TrimSpace(media))
}

func isJSONType(m string) bool {
	return m == "application/json" || m == "text/json" || strings.HasSuffix(m, "+json") || m == "*/*" || m == "application/*"
}

func isXMLType(m string) bool {
	return m == "application/xml" || m == "text/xml" || strings.HasSuffix(m, "+xml")
}

const formMedia = "application/x-www-form-urlencoded"

// isBytes reports whether a schema is a file: in 2.0 type file, in 3.0 a string of format binary (§4.7.14),
// from 3.1 on a schema without type or encoding, or with a contentMediaType alone (§4.8.14.3).
func isBytes(n node) bool {
	n = n.follow()
	kind := n.text("type")
	switch {
	case n.v == nil:
		return false
	case kind == "file" && n.doc.version == "2.0", n.text("format") == "binary" && (kind == "string" || kind == ""):
		return true
	case n.doc.version < "3.1" || n.has("contentEncoding") || kind != "" && kind != "string":
		return false
	case n.has("contentMediaType"):
		m := mediaOf(n.text("contentMediaType"))
		return kind == "" || !isJSONType(m) && !isXMLType(m) && !strings.HasPrefix(m, "text/")
	}
	return kind == "" && !n.has("$ref") && !slices.ContainsFunc(n.keys(), func(k string) bool {
		return !slices.Contains([]string{"description", "title", "example", "examples", "default"}, k)
	})
}

// formEncode is the encoding of application/x-www-form-urlencoded.
func formEncode(s string) string { return strings.ReplaceAll(percent(s, ""), "%20", "+") }

// encodingOf reads an Encoding Object as a style (3.1.1 §4.8.15.1.2); ok is false if it gives none.
func encodingOf(e node, encode func(string) string) (h how, ok bool) {
	if !e.has("style") && !e.has("explode") && !e.has("allowReserved") {
		return how{}, false
	}
	h = how{style: e.text("style"), encode: encode}
	if h.style == "" {
		h.style = "form"
	}
	h.explode = h.style == "form" || h.style == "deepObject"
	if b, is := e.get("explode").v.(bool); is {
		h.explode = b
	}
	return h, true
}

// form encodes a form body of OpenAPI 3.
func form(media node, v map[string]any) string {
	var pairs []string
	_, names := members(v)
	for _, name := range names {
		e := media.in("encoding").in(name)
		h, styled := encodingOf(e, formEncode)
		switch {
		case styled:
		case isJSONType(mediaOf(e.text("contentType"))) || complexValue(v[name]):
			pairs = append(pairs, formEncode(name)+"="+formEncode(jsonText(v[name])))
			continue
		default:
			h = how{style: "form", explode: true, encode: formEncode}
		}
		pairs = append(pairs, h.pairs(name, v[name])...)
	}
	return strings.Join(pairs, "&")
}

func complexValue(v any) bool {
	list, isList := v.([]any)
	_, isObject := v.(map[string]any)
	return isObject || isList && slices.ContainsFunc(list, func(e any) bool { return e == nil || nested(e) })
}

// part is one part of a multipart body.
type part struct{ name, media, data, headers string }

var noHeaders = fmt.Sprint(http.Header{})

// asBytes marks the content of a file among the values.
type asBytes string

// parts encodes a multipart body (3.1.1 §4.8.15.1.1): by the type of each property, a list as one
// part an element.
func parts(media node, v map[string]any) (out []part) {
	_, names := members(v)
	for _, name := range names {
		e := media.in("encoding").in(name)
		if h, styled := encodingOf(e, func(s string) string { return s }); styled {
			for _, pair := range h.pairs(name, v[name]) {
				key, value, _ := strings.Cut(pair, "=")
				out = append(out, part{key, "text/plain", value, noHeaders})
			}
			continue
		}
		headers := http.Header{}
		for _, h := range e.in("headers").keys() {
			if fixed := shapeOf(e.in("headers").in(h).get("schema"), 0).enum; len(fixed) == 1 {
				headers.Set(h, plainText(fixed[0]))
			}
		}
		list, isList := v[name].([]any)
		if !isList {
			list = []any{v[name]}
		}
		said, _, _ := strings.Cut(e.text("contentType"), ",")
		if said = mediaOf(said); strings.Contains(e.text("contentType"), ",") && !isFile(list) || strings.Contains(said, "*") {
			said = ""
		}
		for _, el := range list {
			p := part{name: name, media: said, headers: fmt.Sprint(headers)}
			switch t := el.(type) {
			case asBytes:
				if p.data = string(t); p.media == "" {
					p.media = "application/octet-stream"
				}
			case map[string]any, []any, nil:
				if p.data = jsonText(t); p.media == "" {
					p.media = "application/json"
				}
			default:
				if p.data = plainText(t); isJSONType(p.media) {
					p.data = jsonText(t)
				} else if p.media == "" {
					p.media = "text/plain"
				}
			}
			out = append(out, p)
		}
	}
	return out
}

func isFile(list []any) bool {
	return slices.ContainsFunc(list, func(v any) bool { _, ok := v.(asBytes); return ok })
}

// readParts reads a multipart body that arrived. A part without a content type is text (RFC 7578 §4.4).
func readParts(contentType, body string) (out []part, err error) {
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return nil, err
	}
	r := multipart.NewReader(strings.NewReader(body), params["boundary"])
	for {
		p, err := r.NextRawPart()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(p)
		if err != nil {
			return nil, err
		}
		media := mediaOf(p.Header.Get("Content-Type"))
		if media == "" {
			media = "text/plain"
		}
		name, headers := p.FormName(), http.Header(p.Header)
		headers.Del("Content-Type")
		headers.Del("Content-Disposition")
		out = append(out, part{name, media, string(data), fmt.Sprint(headers)})
	}
}

// element is XML without what has no meaning.
type element struct {
	name, text string
	attrs      []string
	children   []element
}

// xmlOf encodes a value by the XML Object (3.1.1 §4.8.26): elements of an object, sorted.
func xmlOf(schema node, name string, v any) (list []element, attribute bool) {
	s := schema.follow()
	x := s.in("xml")
	if n := x.text("name"); n != "" {
		name = n
	}
	if space := x.text("namespace"); space != "" {
		name = space + " " + name
	}
	elements, isList := v.([]any)
	if isList {
		items := s.in("items")
		own := name
		for _, e := range elements {
			some, _ := xmlOf(items, own, e)
			list = append(list, some...)
		}
		if x.flag("wrapped") {
			return []element{{name: name, children: list}}, false
		}
		return list, false
	}
	e := element{name: name}
	if obj, ok := v.(map[string]any); ok {
		_, names := members(obj)
		for _, k := range names {
			below, attr := xmlOf(propertyOf(s, k), k, obj[k])
			if attr {
				e.attrs = append(e.attrs, below[0].name+"="+below[0].text)
			} else {
				e.children = append(e.children, below...)
			}
		}
	} else if v != nil {
		e.text = plainText(v)
	}
	return []element{e}, x.flag("attribute")
}

func propertyOf(s node, name string) node {
	if p, ok := shapeOf(s, 0).props[name]; ok {
		return p
	}
	return node{doc: s.doc, file: s.file}
}

// readXML reads the XML that arrived.
func readXML(body string) (element, error) {
	d := xml.NewDecoder(strings.NewReader(body))
	stack := []element{{}}
	for {
		t, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return element{}, err
		}
		top := &stack[len(stack)-1]
		switch t := t.(type) {
		case xml.StartElement:
			e := element{name: strings.TrimSpace(t.Name.Space + " " + t.Name.Local)}
			for _, a := range t.Attr {
				if a.Name.Space != "xmlns" && a.Name.Local != "xmlns" {
					e.attrs = append(e.attrs, strings.TrimSpace(a.Name.Space+" "+a.Name.Local)+"="+a.Value)
				}
			}
			stack = append(stack, e)
		case xml.CharData:
			top.text += string(t)
		case xml.EndElement:
			stack = stack[:len(stack)-1]
			below := &stack[len(stack)-1]
			below.children = append(below.children, *top)
		}
	}
	if len(stack) != 1 || len(stack[0].children) != 1 {
		return element{}, errors.New("not one root element")
	}
	return stack[0].children[0], nil
}

// String sorts what has no order: attributes, and elements of different names.
func (e element) String() string {
	children := slices.Clone(e.children)
	slices.SortStableFunc(children, func(a, b element) int { return strings.Compare(a.name, b.name) })
	slices.Sort(e.attrs)
	text := e.text
	if len(children) > 0 {
		text = strings.TrimSpace(text)
	}
	return fmt.Sprintf("<%s %q>%q%v", e.name, e.attrs, text, children)
}
