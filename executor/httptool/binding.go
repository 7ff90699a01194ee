package httptool

import (
	"crypto/x509"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/executor/bindings"
)

// binding is a parsed execution.binding, reused for many calls.
type binding struct {
	method   string
	scheme   string
	host     string
	path     []piece // of the whole path, including the server's
	params   []parameter
	body     *body
	headers  []header // fixed
	accept   string
	promised string   // the one content type that the document promises, "" if none or several
	types    []string // content types of answers that the document declares
	json     bool     // JSON is among them
	takesKey bool     // the caller's key, if any, is sent as Idempotency-Key
	replay   bool     // the transport may repeat the request
	allow    egress.AllowList
	roots    *x509.CertPool // its own authorities; nil: the pool's
	pages    *pagination    // nil: the response is one page
	stream   *stream
	readAs   string // content type to assume for responses, "" for their own
	// taken are the names used by query and cookie parameters.
	taken map[string]map[string]bool
}

// piece is escaped literal text, or the place of a parameter.
type piece struct {
	text  string
	param int // index into params, -1 for text
}

type header struct{ name, value string }

// parameter says where and how one argument is sent.
type parameter struct {
	name          string
	arg           string
	in            string // path, query, header, cookie
	style         string
	explode       bool
	allowReserved bool
	allowEmpty    bool
	json          bool
	content       *codec    // other content, instead of a style
	items         []string  // styles of nested lists, outermost first
	deepLists     string    // how deepObject writes lists, "" for listIndices
	template      *template // computes the value instead of arg
	templated     bool      // it is in binding.template
}

// body says what the request body is built from.
type body struct {
	arg      string
	all      bool      // an object of all arguments that are not parameters
	template *template // computes the value instead of arg
	markup   bool      // the template is XML with escaped arguments
	required bool

	contentType string
	codecs      []*codec // ways to send it; the first unless typeArg selects another
	typeArg     string   // argument that selects a codec by content type
}

// parse reads a manifest's binding. It reports all faults at once.
func parse(m *toolkeep.Manifest) (*binding, []toolkeep.Fault) {
	r := &bindings.Reader{}
	top, ok := r.Read(m)
	if !ok {
		return nil, r.Faults
	}
	b := &binding{method: top.Text("method", true)}
	tmpl, templated := top.Sub("template")
	server, path := top.Text("server", true), top.Text("path", !templated)
	for _, p := range top.Objects("parameters") {
		b.params = append(b.params, readParameter(p))
	}
	if o, ok := top.Sub("body"); ok {
		b.body = readBody(o)
	}
	places := map[string]string{} // places of arguments in the template
	if templated {
		b.checkTemplate(top, path)
		b.readTemplate(r, tmpl, func(at, name string) { places[at+"\x00"+name] = name })
	}
	b.headers = readHeaders(top)
	types := contentTypes(top, "response_types")
	b.pages, b.stream, b.readAs = readPagination(top), readStream(top), readResponse(top)
	b.readTLS(top, server)
	top.Done()

	b.checkMethod(r)
	b.checkParams(r)
	base := b.checkServer(r, server)
	if templated {
		b.path = append([]piece{{text: base, param: -1}}, b.path...)
	} else {
		b.compilePath(r, base, path)
	}
	b.checkArgs(r, m, places)
	b.checkQuery(r)
	b.checkPagination(r, m)
	r.Auth(m, func(at string, s toolkeep.AuthSpec) { checkSpec(r, at, s, b) })
	if len(r.Faults) > 0 {
		return nil, r.Faults
	}

	b.accept = "application/json, */*;q=0.5"
	if len(types) > 0 {
		b.accept = strings.Join(types, ", ")
	}
	if len(types) == 1 && !strings.Contains(types[0], "*") {
		b.promised = types[0]
	}
	b.types, b.json = types, slices.ContainsFunc(types, func(t string) bool { return egress.IsJSON(egress.MediaType(t)) })
	b.takesKey = m.Idempotent
	b.taken = map[string]map[string]bool{"query": {}, "cookie": {}}
	for _, p := range b.params {
		if names := b.taken[p.in]; names != nil {
			names[p.name] = true
		}
		if p.in == "header" && strings.EqualFold(p.name, keyHeader) {
			b.takesKey = true
		}
	}
	b.replay = m.Idempotent || m.SideEffects == "none" || m.SideEffects == "reads"
	if m.Permissions != nil {
		b.allow = egress.NewAllowList(m.Permissions.Network)
	}
	return b, nil
}

// contentTypes reads a list of content types.
func contentTypes(o *bindings.Object, name string) []string {
	var out []string
	for i, v := range o.List(name) {
		s, ok := v.(string)
		if !ok || !validHeaderValue(s) || s == "" {
			o.Reader.Fault(o.Pointer(name)+"/"+strconv.Itoa(i), "type", "must be a content type")
		}
		out = append(out, s)
	}
	return out
}

func paramPointer(i int) string {
	return bindings.At + "/parameters/" + strconv.Itoa(i)
}

func readParameter(o *bindings.Object) parameter {
	p := parameter{
		name:          o.Text("name", true),
		arg:           o.Text("arg", false),
		in:            o.Text("in", true),
		style:         o.Text("style", false),
		explode:       o.Flag("explode"),
		allowReserved: o.Flag("allow_reserved"),
		allowEmpty:    o.Flag("allow_empty"),
	}
	if p.arg == "" {
		p.arg = p.name
	}
	readItems(o, &p)
	p.deepLists = readDeepLists(o, p.style)
	if content := o.Text("content", false); content != "" {
		p.readContent(o, content)
	}
	allowed, known := styles[p.in]
	switch {
	case p.in == wholeQuery:
		if p.content == nil && !p.json {
			o.Fault("content", "required", "a parameter that is the whole query needs content")
		}
		if p.style != "" {
			o.Fault("style", "unsupported", "a parameter that is the whole query has content in place of a style")
		}
	case !known && p.in != "":
		o.Fault("in", "enum", "a parameter is in path, query, querystring, header or cookie, not %q", p.in)
	case known && p.style == "":
		p.style = allowed[0]
	case known && !slices.Contains(allowed, p.style):
		o.Fault("style", "enum", "a parameter in %s has style %s, not %q", p.in, strings.Join(allowed, ", "), p.style)
	}
	if p.allowReserved && p.in != "query" && p.in != "path" {
		o.Fault("allow_reserved", "unsupported", "allow_reserved applies to parameters in query and path alone")
	}
	if p.in == "header" {
		checkHeaderName(o, "name", p.name)
	}
	if p.in == "cookie" && p.name != "" && !egress.IsToken(p.name) {
		o.Fault("name", "token", "%q cannot be the name of a cookie", p.name)
	}
	o.Done()
	return p
}

// wholeQuery is the place of a parameter that is the whole query (OpenAPI 3.2).
const wholeQuery = "querystring"

// styles lists the styles of each place, the default first. Besides OpenAPI 3's it has
// the collection formats of Swagger 2.0: ssv, pipes and tsv are spaceDelimited,
// pipeDelimited and tabDelimited, also in path and header.
var styles = map[string][]string{
	"path":   {"simple", "label", "matrix", "spaceDelimited", "pipeDelimited", "tabDelimited"},
	"query":  {"form", "spaceDelimited", "pipeDelimited", "deepObject", "tabDelimited"},
	"header": {"simple", "spaceDelimited", "pipeDelimited", "tabDelimited"},
	"cookie": {"form", "cookie"},
}

// itemStyles are the styles of a list within a list.
var itemStyles = []string{"simple", "spaceDelimited", "pipeDelimited", "tabDelimited"}

const maxItemStyles = 8

// readItems reads the styles of nested lists, a feature of Swagger 2.0.
func readItems(o *bindings.Object, p *parameter) {
	for i, v := range o.List("item_styles") {
		s, _ := v.(string)
		if !slices.Contains(itemStyles, s) || i >= maxItemStyles {
			o.Reader.Fault(o.Pointer("item_styles")+"/"+strconv.Itoa(i), "enum", "a list within a list has style %s", strings.Join(itemStyles, ", "))
			return
		}
		if slices.Contains(p.items, s) || !p.explode && delimiter(s) == delimiter(p.style) {
			o.Reader.Fault(o.Pointer("item_styles")+"/"+strconv.Itoa(i), "unsupported", "a list and the lists within it cannot have the same delimiter")
		}
		p.items = append(p.items, s)
	}
}

// readContent reads a media type given instead of a style.
func (p *parameter) readContent(o *bindings.Object, content string) {
	if egress.IsJSON(egress.MediaType(content)) && o.Tree["format"] == nil {
		p.json = true
		return
	}
	p.content = readCodec(o, content)
	switch p.content.format {
	case asMultipart, asLines, asBinary:
		o.Fault("content", "unsupported", "a parameter with content %q cannot be sent: JSON, text, XML and forms can", content)
	}
}

func readBody(o *bindings.Object) *body {
	b := &body{all: o.Flag("all")}
	b.arg = o.Text("arg", !b.all)
	b.contentType, b.required = o.Text("content_type", true), o.Flag("required")
	if b.all && b.arg != "" {
		o.Fault("arg", "unsupported", "all sends the arguments together, so that arg names none of them")
	}
	if !validHeaderValue(b.contentType) {
		o.Fault("content_type", "header", "the content type has characters that a header cannot hold")
	}
	b.codecs = []*codec{readCodec(o, b.contentType)}
	for _, other := range o.Objects("others") {
		contentType := other.Text("content_type", true)
		if !validHeaderValue(contentType) {
			other.Fault("content_type", "header", "the content type has characters that a header cannot hold")
		}
		b.codecs = append(b.codecs, readCodec(other, contentType))
		other.Done()
	}
	if b.typeArg = o.Text("type_arg", len(b.codecs) > 1); b.typeArg != "" && len(b.codecs) == 1 {
		o.Fault("type_arg", "unsupported", "type_arg chooses among others, and there are none")
	}
	o.Done()
	return b
}

func readHeaders(top *bindings.Object) []header {
	o, ok := top.Sub("headers")
	if !ok {
		return nil
	}
	var hs []header
	for _, name := range o.Names() {
		value := o.Text(name, false)
		checkHeaderName(o, name, name)
		if !validHeaderValue(value) {
			o.Fault(name, "header", "the value has characters that a header cannot hold")
		}
		hs = append(hs, header{name, value})
	}
	o.Done()
	return hs
}

// checkMethod accepts the methods of OpenAPI and any other upper-case token. TRACE is
// refused because its response repeats the request with its credentials, and CONNECT
// because it opens a tunnel.
func (b *binding) checkMethod(r *bindings.Reader) {
	at := bindings.At + "/method"
	switch {
	case b.method == "":
	case b.method == "TRACE":
		r.Fault(at, "unsupported", "the method TRACE cannot be sent: its answer repeats the request with its credentials")
	case b.method == "CONNECT":
		r.Fault(at, "unsupported", "the method CONNECT cannot be sent: it opens a tunnel")
	case !egress.IsToken(b.method) || len(b.method) > 64 || b.method != strings.ToUpper(b.method):
		r.Fault(at, "enum", "the method is one of GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS and QUERY, or another HTTP method, in capitals, not %q", b.method)
	}
}

// checkServer parses the server and returns its escaped path without a trailing slash.
func (b *binding) checkServer(r *bindings.Reader, server string) string {
	at := bindings.At + "/server"
	if server == "" {
		return ""
	}
	u, err := url.Parse(server)
	switch {
	case err != nil:
		r.Fault(at, "uri", "the server is not a URL")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Hostname() == "":
		r.Fault(at, "uri", "the server must be an absolute http or https URL")
	case u.User != nil:
		r.Fault(at, "userinfo", "the server must not hold a user or password; say it under auth")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.ContainsRune(server, '#'):
		r.Fault(at, "uri", "the server must have neither query nor fragment")
	case strings.ContainsAny(server, "{}"):
		r.Fault(at, "uri", "the server still has variables; give each a value")
	case egress.HasDotSegments(u.EscapedPath()):
		r.Fault(at, "uri", "the server's path must not have \".\" or \"..\" segments")
	default:
		b.scheme, b.host = u.Scheme, u.Host
		return strings.TrimRight(u.EscapedPath(), "/")
	}
	return ""
}

// compilePath splits the path template at its parameters.
func (b *binding) compilePath(r *bindings.Reader, base, path string) {
	at := bindings.At + "/path"
	if path == "" {
		return
	}
	if path[0] != '/' || strings.ContainsAny(path, "?#") {
		r.Fault(at, "path", "the path must begin with / and have no query or fragment; those are parameters")
		return
	}
	used := make([]bool, len(b.params))
	b.path = append(b.path, piece{text: base, param: -1})
	rest := path
	for rest != "" {
		text, after, found := strings.Cut(rest, "{")
		if strings.ContainsRune(text, '}') {
			r.Fault(at, "path", "the path has a } without its {")
			return
		}
		if text != "" {
			b.path = append(b.path, piece{text: escapeLiteral(text), param: -1})
		}
		if !found {
			break
		}
		name, tail, closed := strings.Cut(after, "}")
		if !closed || name == "" || strings.ContainsRune(name, '{') {
			r.Fault(at, "path", "the path has a { without its } or without a name")
			return
		}
		i := slices.IndexFunc(b.params, func(p parameter) bool { return p.in == "path" && p.name == name })
		if i < 0 {
			r.Fault(at, "path", "the path has {%s}, but there is no parameter of that name in path", name)
		} else {
			used[i] = true
			b.path = append(b.path, piece{param: i})
		}
		rest = tail
	}
	if literal := strings.NewReplacer("{", "", "}", "").Replace(path); egress.HasDotSegments(literal) {
		r.Fault(at, "path", "the path must not have \".\" or \"..\" segments")
	}
	for i, p := range b.params {
		if p.in == "path" && !used[i] {
			r.Fault(paramPointer(i)+"/name", "path", "there is no {%s} in the path", p.name)
		}
	}
}
