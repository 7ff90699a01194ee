package openapi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/egress"
)

// param is one parameter of an operation that becomes an argument.
type param struct {
	name, in   string
	arg        string
	required   bool
	style      string
	explode    bool
	reserved   bool
	allowEmpty bool
	content    string // media type, instead of a style
	xml        map[string]any
	items      []any   // styles of the lists within the list
	deepLists  string  // how deepObject writes lists, "" for the executor's default
	node       *object // the parameter
	schema     any     // nil means anything
}

const maxParams = 250 // of one operation

// parameters merges the path's parameters with the operation's, which win by name and place, and
// drops those that are not arguments.
func (d *document) parameters(op *operation, sec *security) (params []*param, body *object, form []*object, reason string) {
	own, reason := d.list(op.op.get("parameters"), "the parameters of the operation")
	if reason != "" {
		return nil, nil, nil, reason
	}
	common, reason := d.list(op.item.get("parameters"), "the parameters of the path")
	if reason != "" {
		return nil, nil, nil, reason
	}
	var order []string
	byKey := map[string]*object{}
	for _, v := range append(slices.Clone(common), own...) {
		o, reason := d.object(v, "a parameter")
		if reason != "" {
			return nil, nil, nil, reason
		}
		name, in := o.text("name"), o.text("in")
		if name == "" || in == "" {
			return nil, nil, nil, fmt.Sprintf("the parameter at %s has no name or no place", o.location())
		}
		key := in + "\x00" + name
		if in == "header" {
			key = strings.ToLower(key)
		}
		if byKey[key] == nil {
			order = append(order, key)
		}
		byKey[key] = o
	}
	if len(order) > maxParams {
		return nil, nil, nil, fmt.Sprintf("it has more than %d parameters", maxParams)
	}
	for _, key := range order {
		o := byKey[key]
		switch o.text("in") {
		case "body":
			if d.dialect != v20 {
				return nil, nil, nil, fmt.Sprintf("the parameter %q is in %q, which OpenAPI 3 does not have", toolkeep.Clip(o.text("name"), 80), "body")
			}
			if body != nil {
				return nil, nil, nil, "it has two body parameters"
			}
			body = o
		case "formData":
			if d.dialect != v20 {
				return nil, nil, nil, fmt.Sprintf("the parameter %q is in %q, which OpenAPI 3 does not have", toolkeep.Clip(o.text("name"), 80), "formData")
			}
			form = append(form, o)
		default:
			p, reason := d.parameter(op, o, sec)
			if reason != "" {
				return nil, nil, nil, reason
			}
			if p != nil {
				params = append(params, p)
			}
		}
	}
	params, reason = d.matchTemplate(op, params)
	return params, body, form, reason
}

// fixedHeaders belong to the connection or follow from the request.
var fixedHeaders = []string{"host", "content-length", "transfer-encoding", "connection", "keep-alive",
	"proxy-connection", "proxy-authorization", "proxy-authenticate", "te", "trailer", "upgrade", "expect",
	"http2-settings", "cookie", "accept-encoding"}

// parameter reads one parameter; nil means that it is not an argument.
func (d *document) parameter(op *operation, o *object, sec *security) (*param, string) {
	p := &param{name: o.text("name"), in: o.text("in"), node: o, required: o.flag("required")}
	p.allowEmpty = o.flag("allowEmptyValue") && p.in == "query"
	switch p.in {
	case "path":
		p.required = true
	case "query", "cookie":
	case "header":
		lower := strings.ToLower(p.name)
		if lower == "accept" || lower == "content-type" || lower == "authorization" {
			return nil, "" // by the standard these are determined elsewhere
		}
		if slices.Contains(fixedHeaders, lower) {
			d.warn("%s: the header %s is not an argument: it follows from the request itself", op.label(), toolkeep.Clip(p.name, 80))
			return nil, ""
		}
	case "querystring":
		if !p.node.has("content") {
			return nil, fmt.Sprintf("the parameter %q is the whole query string and has no content", toolkeep.Clip(p.name, 80))
		}
	default:
		return nil, fmt.Sprintf("the parameter %q is in %q, which is not a place of OpenAPI", toolkeep.Clip(p.name, 80), toolkeep.Clip(p.in, 40))
	}
	if sec.covers(p.in, p.name) {
		d.warn("%s: the %s parameter %s is not an argument: it carries the credential of a security scheme", op.label(), p.in, toolkeep.Clip(p.name, 80))
		return nil, ""
	}
	var reason string
	if d.dialect == v20 {
		reason = d.swaggerParameter(p)
	} else {
		reason = d.styledParameter(p)
	}
	if reason == "" && (p.in == "header" || p.in == "cookie") && !isToken(p.name) {
		reason = "its name cannot be the name of a " + p.in
	}
	if reason != "" {
		return nil, d.leaveOut(op, p, reason)
	}
	return p, ""
}

// leaveOut warns that a parameter which cannot be sent is no argument. It returns the reason to refuse
// the operation if the parameter is required.
func (d *document) leaveOut(op *operation, p *param, reason string) string {
	if p.required {
		return fmt.Sprintf("the required parameter %q cannot be sent: %s", toolkeep.Clip(p.name, 80), reason)
	}
	d.warn("%s: the optional parameter %s is left out: %s", op.label(), toolkeep.Clip(p.name, 80), reason)
	return ""
}

var stylesOf = map[string][]string{
	"path":   {"simple", "label", "matrix"},
	"query":  {"form", "spaceDelimited", "pipeDelimited", "deepObject"},
	"header": {"simple"},
	"cookie": {"form", "cookie"},
}

// styledParameter reads the style or content of OpenAPI 3.
func (d *document) styledParameter(p *param) string {
	if p.node.has("content") && !p.node.has("schema") {
		return d.contentParameter(p)
	}
	p.schema = p.node.get("schema")
	p.reserved = p.node.flag("allowReserved") && (p.in == "query" || p.in == "path" && d.dialect >= v32)
	allowed := stylesOf[p.in]
	p.style = p.node.text("style")
	if p.style == "" {
		p.style = allowed[0]
	}
	if !slices.Contains(allowed, p.style) {
		return fmt.Sprintf("a parameter in %s cannot have style %q", p.in, toolkeep.Clip(p.style, 40))
	}
	p.explode = p.style == "form" || p.style == "cookie"
	if b, ok := p.node.get("explode").(bool); ok {
		p.explode = b
	}
	if p.style == "deepObject" {
		p.explode = true
	}
	p.deepLists = d.deepLists(p.node, p.style)
	return ""
}

// deepListsKey is the extension that says how deepObject writes the elements of a list, which
// OpenAPI leaves undefined: on a parameter, on the encoding of a form field, or on the document for
// all of them.
const deepListsKey = "x-deep-lists"

// deepListWays are those of executor/httptool, the default first.
var deepListWays = []string{"indices", "brackets", "repeat"}

// deepLists returns how the lists of a parameter or form field are written, "" for the default. The
// parameter's own extension comes before the option, and that before the document's extension.
func (d *document) deepLists(o *object, style string) string {
	if style != "deepObject" {
		return ""
	}
	how := d.opt.DeepLists
	if own := o.get(deepListsKey); own != nil || how == "" {
		if own == nil {
			own = d.root.get(deepListsKey)
		}
		how, _ = own.(string)
		if own != nil && !slices.Contains(deepListWays, how) {
			d.warn("%s: %s is %s; it can be %s", o.location(), deepListsKey, describe(own), strings.Join(deepListWays, ", "))
			how = ""
		}
	}
	if how == deepListWays[0] {
		how = ""
	}
	return how
}

func (d *document) contentParameter(p *param) string {
	content, reason := d.object(p.node.get("content"), "its content")
	if reason != "" {
		return reason
	}
	if len(content.keys) == 0 {
		return "its content names no media type"
	}
	for _, key := range content.keys {
		media := egress.MediaType(key)
		m, reason := d.object(content.vals[key], "its content")
		if reason != "" {
			return reason
		}
		p.schema = m.get("schema")
		if p.in != "querystring" {
			p.style = stylesOf[p.in][0]
		}
		s, _ := d.object(p.schema, "schema")
		switch {
		case egress.IsJSON(media):
			p.content = "application/json"
		case media == formType:
			p.content = formType
		case isXML(media) && s != nil && len(s.keys) > 0 && s.text("type") != "string":
			if p.xml, reason = d.xmlOf(p.schema); reason != "" {
				return reason
			}
			p.content = withoutCharset(key)
		case isText(media) || isXML(media):
			// In its own place, text is sent like any plain value.
			if p.schema = d.textBody(p.schema); p.in == "querystring" {
				p.content = "text/plain"
			}
		default:
			continue
		}
		return ""
	}
	return fmt.Sprintf("its content %q cannot stand in a parameter; JSON, text, XML and forms can", toolkeep.Clip(content.keys[0], 80))
}

// textSchema is the schema of values sent as text, regardless of their own.
var textSchema = &object{keys: []string{"type"}, vals: map[string]any{"type": "string"}}

// swaggerKeywords are the schema keywords on a parameter of 2.0.
var swaggerKeywords = []string{"type", "format", "items", "maximum", "exclusiveMaximum", "minimum",
	"exclusiveMinimum", "maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "enum",
	"multipleOf", "default", "x-nullable", "x-example", "example"}

// swaggerParameter reads a parameter of Swagger 2.0 that is not the body.
func (d *document) swaggerParameter(p *param) string {
	p.schema = swaggerSchema(p.node)
	p.style = stylesOf[p.in][0]
	if p.node.text("type") == "file" {
		return "it is a file outside of a form"
	}
	if p.node.text("type") != "array" {
		return ""
	}
	var reason string
	p.style, p.explode, p.items, reason = collectionStyle(p.node, p.in)
	return reason
}

// swaggerSchema builds a schema from the keywords of a parameter.
func swaggerSchema(o *object) *object {
	s := o.empty()
	for _, k := range swaggerKeywords {
		if o.has(k) {
			s.set(k, o.vals[k])
		}
	}
	if o.has("schema") && !o.has("type") {
		// Some documents have it; the standard allows it only in a body.
		if inner, ok := o.get("schema").(*object); ok {
			return inner
		}
	}
	return s
}

// collectionStyle converts collectionFormat. in is query, form, path or header. items are the
// styles of nested lists, which have their own formats.
func collectionStyle(o *object, in string) (style string, explode bool, items []any, reason string) {
	flat := "simple"
	if in == "query" || in == "form" || in == "cookie" {
		flat = "form"
	}
	used := map[string]bool{}
	style, reason = delimitedStyle(o.text("collectionFormat"), flat)
	if o.text("collectionFormat") == "multi" {
		if flat != "form" {
			return "", false, nil, fmt.Sprintf("collectionFormat \"multi\" is for query and form, not for %s", in)
		}
		style, explode, reason = "form", true, ""
	} else {
		used[strings.Replace(style, "form", "simple", 1)] = true
	}
	inner, _ := o.get("items").(*object)
	for inner.text("type") == "array" && reason == "" {
		var s string
		if s, reason = delimitedStyle(inner.text("collectionFormat"), "simple"); reason == "" && used[s] {
			reason = "it is a list of lists with one delimiter for both"
		}
		used[s] = true
		items = append(items, s)
		inner, _ = inner.get("items").(*object)
	}
	if inner.text("type") == "object" && len(items) > 0 {
		reason = "it is a list of lists of objects, which its place cannot hold"
	}
	return style, explode, items, reason
}

// delimitedStyle returns the style of a delimited collectionFormat; csv is the default.
func delimitedStyle(format, csv string) (string, string) {
	switch format {
	case "", "csv":
		return csv, ""
	case "ssv":
		return "spaceDelimited", ""
	case "tsv":
		return "tabDelimited", ""
	case "pipes":
		return "pipeDelimited", ""
	}
	return "", fmt.Sprintf("collectionFormat %q is none of Swagger 2.0", toolkeep.Clip(format, 40))
}

// matchTemplate matches the path template with the path parameters. A name in the template without
// a parameter becomes a required text; a parameter not in the template is left out.
func (d *document) matchTemplate(op *operation, params []*param) ([]*param, string) {
	params, reason := d.expand(op, params)
	if reason != "" {
		return nil, reason
	}
	var out []*param
	declared := map[string]bool{}
	for _, p := range params {
		if p.in == "path" {
			if !slices.Contains(op.template.names, p.name) {
				d.warn("%s: the path parameter %s is left out: the path does not name it", op.label(), toolkeep.Clip(p.name, 80))
				continue
			}
			declared[p.name] = true
		}
		out = append(out, p)
	}
	for _, name := range op.template.names {
		if declared[name] {
			continue
		}
		if !isPlainName(name) {
			return nil, fmt.Sprintf("the path names {%s}, but no parameter in path does", toolkeep.Clip(name, 80))
		}
		d.warn("%s: the path names {%s} but no parameter declares it; it is taken as a required text", op.label(), toolkeep.Clip(name, 80))
		declared[name] = true
		node := newObject(op.op.src, op.op.line)
		out = append(out, &param{name: name, in: "path", required: true, style: "simple", node: node, schema: textSchema})
	}
	return out, ""
}

func isPlainName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '-' || c == '.') {
			return false
		}
	}
	return s != ""
}
