package httptool

import (
	"encoding/xml"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/executor/bindings"
)

// A template is a JSON value in whose texts {{name}} stands for an argument. A text
// that is only a placeholder becomes the argument's value; within a longer text the
// argument must be plain. {{name?}} is optional: if absent, the member, element, pair
// or header that contains it is omitted. {{{{ stands for {{.
type template struct{ node any } // string, json.Number, bool, nil, placeholder, text, []any, map[string]any

// placeholder is a text that consists of one argument.
type placeholder struct {
	name     string
	optional bool
}

// text contains arguments: literal, placeholder, literal, placeholder, …, literal.
type text struct {
	literals     []string
	placeholders []placeholder
}

const maxTemplateDepth = 64

// compile reads a template. It calls used with each argument and its place.
func compile(r *bindings.Reader, at string, v any, used func(at, name string)) *template {
	return &template{compileNode(r, at, v, used, 0)}
}

func compileNode(r *bindings.Reader, at string, v any, used func(at, name string), depth int) any {
	if depth > maxTemplateDepth {
		r.Fault(at, "template", "the template is nested over %d levels deep", maxTemplateDepth)
		return nil
	}
	switch t := v.(type) {
	case string:
		parsed, why := parseText(t)
		if why != "" {
			r.Fault(at, "template", "%s", why)
			return t
		}
		for _, p := range parsed.placeholders {
			used(at, p.name)
		}
		switch {
		case len(parsed.placeholders) == 0:
			return parsed.literals[0]
		case len(parsed.placeholders) == 1 && parsed.literals[0] == "" && parsed.literals[1] == "":
			return parsed.placeholders[0]
		}
		return parsed
	case []any:
		out := make([]any, len(t))
		for i, el := range t {
			out[i] = compileNode(r, at+"/"+strconv.Itoa(i), el, used, depth+1)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(t))
		for _, k := range slices.Sorted(maps.Keys(t)) {
			if strings.Contains(k, "{{") {
				r.Fault(at+canon.Pointer(k), "template", "an argument cannot name a member; it can be its value")
			}
			out[k] = compileNode(r, at+canon.Pointer(k), t[k], used, depth+1)
		}
		return out
	}
	return v
}

// parseText splits a text at its placeholders. why is its fault.
func parseText(s string) (t text, why string) {
	literal := ""
	for {
		before, rest, found := strings.Cut(s, "{{")
		literal += before
		if !found {
			t.literals = append(t.literals, literal)
			return t, ""
		}
		if after, escaped := strings.CutPrefix(rest, "{{"); escaped {
			literal, s = literal+"{{", after
			continue
		}
		name, tail, closed := strings.Cut(rest, "}}")
		name = strings.TrimSpace(name)
		if !closed {
			return t, "a {{ has no }} behind it; {{{{ stands for two braces as text"
		}
		p := placeholder{name: name}
		p.name, p.optional = strings.CutSuffix(name, "?")
		if p.name == "" || strings.ContainsAny(p.name, "{}\r\n") {
			return t, "between {{ and }} stands the name of an argument; {{{{ stands for two braces as text"
		}
		t.literals, t.placeholders = append(t.literals, literal), append(t.placeholders, p)
		literal, s = "", tail
	}
}

// eval computes the value. ok is false if it depends on an optional argument that is
// absent.
func (t *template) eval(args map[string]any) (v any, ok bool, err *toolkeep.Error) {
	return evalNode(t.node, args)
}

func evalNode(n any, args map[string]any) (any, bool, *toolkeep.Error) {
	switch t := n.(type) {
	case placeholder:
		v, ok := args[t.name]
		if !ok && !t.optional {
			return nil, false, missing(t.name)
		}
		return v, ok, nil
	case text:
		return t.eval(args, nil)
	case []any:
		out := make([]any, 0, len(t))
		for _, el := range t {
			v, ok, err := evalNode(el, args)
			if err != nil {
				return nil, false, err
			}
			if ok {
				out = append(out, v)
			}
		}
		return out, true, nil
	case map[string]any:
		out := make(map[string]any, len(t))
		for _, k := range slices.Sorted(maps.Keys(t)) {
			v, ok, err := evalNode(t[k], args)
			if err != nil {
				return nil, false, err
			}
			if ok {
				out[k] = v
			}
		}
		return out, true, nil
	}
	return n, true, nil
}

func missing(name string) *toolkeep.Error {
	e := toolkeep.NewError(toolkeep.MissingParameter, "the argument %s is needed for the request and must be given", name).With("pointer", canon.Pointer(name))
	e.NothingSent = true
	return e
}

// eval fills in the arguments, each through escape if set.
func (t text) eval(args map[string]any, escape func(string) (string, bool)) (any, bool, *toolkeep.Error) {
	var b strings.Builder
	for i, p := range t.placeholders {
		b.WriteString(t.literals[i])
		v, given := args[p.name]
		if !given || v == nil && p.optional {
			if !p.optional {
				return nil, false, missing(p.name)
			}
			return nil, false, nil
		}
		s, ok := plain(v)
		if !ok {
			return nil, false, unsafe(canon.Pointer(p.name), "the argument %s stands within a text and must be a plain value", p.name)
		}
		if escape != nil {
			if s, ok = escape(s); !ok {
				return nil, false, unsafe(canon.Pointer(p.name), "the argument %s has a control character, which XML cannot hold", p.name)
			}
		}
		b.WriteString(s)
	}
	b.WriteString(t.literals[len(t.literals)-1])
	return b.String(), true, nil
}

// readTemplate reads binding.template, for APIs without a document:
//
//	{ "path": "/orders/{{id}}", "query": {"page": "{{page?}}"}, "headers": {"X-Team": "{{team}}"},
//	  "cookies": {"lang": "{{lang?}}"}, "body": {"note": "{{note}}"}, "content_type": "application/json" }
//
// It is compiled to parameters and a body, as for a document.
func (b *binding) readTemplate(r *bindings.Reader, o *bindings.Object, used func(at, name string)) {
	b.templatePath(r, o.Pointer("path"), o.Text("path", true), used)
	b.templateParams(r, o, "query", "query", used)
	b.templateParams(r, o, "headers", "header", used)
	b.templateParams(r, o, "cookies", "cookie", used)
	v, hasBody := o.Member("body")
	contentType := o.Text("content_type", false)
	if contentType == "" && hasBody {
		contentType = "application/json"
	}
	if !hasBody {
		if contentType != "" {
			o.Fault("content_type", "unsupported", "content_type belongs to a body")
		}
		if o.Tree["encoding"] != nil {
			o.Fault("encoding", "unsupported", "encoding belongs to a body")
		}
		o.Member("encoding")
		o.Done()
		return
	}
	b.body = &body{contentType: contentType, codecs: []*codec{readCodec(o, contentType)}}
	if !validHeaderValue(contentType) {
		o.Fault("content_type", "header", "the content type has characters that a header cannot hold")
	}
	b.body.template = compile(r, o.Pointer("body"), v, used)
	if s, isText := v.(string); isText && isXML(egress.MediaType(contentType)) && b.body.codecs[0].format == asText {
		b.body.markup = true
		checkMarkup(r, o.Pointer("body"), s)
	}
	if _, isText := b.body.template.node.(text); isText && !b.body.markup && egress.MediaType(contentType) != "text/plain" && b.body.codecs[0].format != asJSON {
		r.Fault(o.Pointer("body"), "template", "arguments cannot stand within a text of %q, where they could change its meaning; they can in text/plain, in XML, and as values of JSON or a form", contentType)
	}
	o.Done()
}

// templatePath compiles a path: {{name}} becomes a path parameter.
func (b *binding) templatePath(r *bindings.Reader, at, path string, used func(at, name string)) {
	parsed, why := parseText(path)
	switch {
	case path == "":
		return
	case why != "":
		r.Fault(at, "template", "%s", why)
		return
	case path[0] != '/' || strings.ContainsAny(strings.Join(parsed.literals, ""), "?#"):
		r.Fault(at, "path", "the path must begin with / and have no query or fragment; those have members of their own")
		return
	case egress.HasDotSegments(strings.Join(parsed.literals, "x")):
		r.Fault(at, "path", "the path must not have \".\" or \"..\" segments")
	}
	for i, literal := range parsed.literals {
		if literal != "" {
			b.path = append(b.path, piece{text: escapeLiteral(literal), param: -1})
		}
		if i == len(parsed.placeholders) {
			break
		}
		p := parsed.placeholders[i]
		if p.optional {
			r.Fault(at, "template", "{{%s?}} cannot be left out: it is part of the path", p.name)
		}
		used(at, p.name)
		n := slices.IndexFunc(b.params, func(q parameter) bool { return q.in == "path" && q.name == p.name })
		if n < 0 {
			n = len(b.params)
			b.params = append(b.params, parameter{name: p.name, arg: p.name, in: "path", style: "simple", templated: true})
		}
		b.path = append(b.path, piece{param: n})
	}
}

func (b *binding) templateParams(r *bindings.Reader, o *bindings.Object, member, in string, used func(at, name string)) {
	list, ok := o.Sub(member)
	if !ok {
		return
	}
	for _, name := range list.Names() {
		v, _ := list.Member(name)
		switch v.(type) {
		case map[string]any:
			list.Fault(name, "type", "a template of a %s is a text, number, boolean or list", in)
			continue
		case []any:
			if in != "query" {
				list.Fault(name, "type", "a template of a %s is a text, number or boolean", in)
				continue
			}
		}
		p := parameter{name: name, arg: name, in: in, style: styles[in][0], explode: in == "query", templated: true}
		switch in {
		case "header":
			checkHeaderName(list, name, name)
		case "cookie":
			if !egress.IsToken(name) {
				list.Fault(name, "token", "%q cannot be the name of a cookie", name)
			}
		}
		p.template = compile(r, list.Pointer(name), v, used)
		if at, isPlace := p.template.node.(placeholder); isPlace {
			p.arg = at.name
		}
		if s, isText := p.template.node.(string); isText && in == "header" && !validHeaderValue(s) {
			list.Fault(name, "header", "the value has characters that a header cannot hold")
		}
		b.params = append(b.params, p)
	}
	list.Done()
}

// checkMarkup requires XML with arguments only in text and attribute values, where they
// can be escaped.
func checkMarkup(r *bindings.Reader, at, s string) {
	parsed, why := parseText(s)
	if why != "" {
		return // already reported
	}
	joined := strings.Join(parsed.literals, "")
	if strings.Contains(joined, "<!") || strings.Contains(strings.TrimPrefix(joined, "<?xml"), "<?") {
		r.Fault(at, "template", "a template of XML may have no comments, CDATA, document types or processing instructions")
		return
	}
	mark := "toolkeepplace"
	for strings.Contains(joined, mark) {
		mark += "x"
	}
	d := xml.NewDecoder(strings.NewReader(strings.Join(parsed.literals, mark)))
	found, depth, roots := 0, 0, 0
	for {
		t, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			r.Fault(at, "template", "the template is not XML, or an argument stands where it cannot be escaped")
			return
		}
		switch t := t.(type) {
		case xml.StartElement:
			if depth == 0 {
				roots++
			}
			depth++
			for _, a := range t.Attr {
				if a.Name.Space != "xmlns" && a.Name.Local != "xmlns" {
					found += strings.Count(a.Value, mark)
				}
			}
		case xml.EndElement:
			depth--
		case xml.CharData:
			found += strings.Count(string(t), mark)
		}
	}
	if found != len(parsed.placeholders) || roots != 1 {
		r.Fault(at, "template", "the template must have one root element, and arguments can stand in the text of an element or the value of an attribute alone")
	}
}

// escapeMarkup escapes an argument for both an element and an attribute.
func escapeMarkup(s string) (string, bool) {
	return string(appendXML(nil, s, true)), validXML(s)
}
