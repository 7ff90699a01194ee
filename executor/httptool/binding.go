package httptool

import (
	"net/url"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/egress"
)

// binding is execution.binding read and ready to be used many times.
type binding struct {
	method   string
	scheme   string
	host     string
	path     []piece // of the whole path, the server's included
	params   []parameter
	body     *body
	headers  []header // fixed
	accept   string
	promised string // the one content type that the document promises, "" if none or several
	takesKey bool   // an Idempotency-Key is sent where the caller has one
	replay   bool   // the request may be repeated by the transport
	allow    egress.AllowList
	// taken are the names of the query and cookie parameters.
	taken map[string]map[string]bool
}

// piece is literal escaped text, or the place of a parameter.
type piece struct {
	text  string
	param int // index into params, -1 for text
}

type header struct{ name, value string }

// parameter says where one argument goes and how.
type parameter struct {
	name          string
	arg           string
	in            string // path, query, header, cookie
	style         string
	explode       bool
	allowReserved bool
	allowEmpty    bool
	json          bool
}

// body says which argument is the request body.
type body struct {
	arg         string
	contentType string
	form        bool // application/x-www-form-urlencoded
	text        bool // text/*
	required    bool
	encoding    map[string]*parameter
}

const formType = "application/x-www-form-urlencoded"

// parse reads the binding of a manifest. Every fault is found at once.
func parse(m *toolkeep.Manifest) (*binding, []toolkeep.Fault) {
	r := &reader{}
	tree, err := canon.ParseObject(m.Execution.Binding, canon.Limits{})
	if err != nil {
		r.fault(bindingPointer, "json", "the binding is not a JSON object: %s", toolkeep.AsError(err).Message)
		return nil, r.faults
	}
	top := r.object(bindingPointer, tree)
	b := &binding{method: top.text("method", true)}
	server, path := top.text("server", true), top.text("path", true)
	for _, p := range top.objects("parameters") {
		b.params = append(b.params, readParameter(p))
	}
	if o, ok := top.sub("body"); ok {
		b.body = readBody(o)
	}
	b.headers = readHeaders(top)
	types := top.texts("response_types")
	top.done()

	b.checkMethod(r)
	b.checkParams(r)
	base := b.checkServer(r, server)
	b.compilePath(r, base, path)
	b.checkArgs(r, m)
	checkAuth(r, m, b)
	if len(r.faults) > 0 {
		return nil, r.faults
	}

	b.accept = "application/json, */*;q=0.5"
	if len(types) > 0 {
		b.accept = strings.Join(types, ", ")
	}
	if len(types) == 1 && !strings.Contains(types[0], "*") {
		b.promised = types[0]
	}
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

func readParameter(o *object) parameter {
	p := parameter{
		name:          o.text("name", true),
		arg:           o.text("arg", false),
		in:            o.text("in", true),
		style:         o.text("style", false),
		explode:       o.flag("explode"),
		allowReserved: o.flag("allow_reserved"),
		allowEmpty:    o.flag("allow_empty"),
	}
	if p.arg == "" {
		p.arg = p.name
	}
	if content := o.text("content", false); content != "" {
		p.json = true
		if !isJSON(content) {
			o.fault("content", "unsupported", "a parameter with content %q cannot be sent yet; application/json can", content)
		}
	}
	allowed, known := styles[p.in]
	switch {
	case !known && p.in != "":
		o.fault("in", "enum", "a parameter is in path, query, header or cookie, not %q", p.in)
	case known && p.style == "":
		p.style = allowed[0]
	case known && !slices.Contains(allowed, p.style):
		o.fault("style", "enum", "a parameter in %s has style %s, not %q", p.in, strings.Join(allowed, ", "), p.style)
	}
	if p.allowReserved && p.in != "query" {
		o.fault("allow_reserved", "unsupported", "allow_reserved applies to query parameters alone")
	}
	if p.in == "header" {
		checkHeaderName(o, "name", p.name)
	}
	if p.in == "cookie" && p.name != "" && !isToken(p.name) {
		o.fault("name", "token", "%q cannot be the name of a cookie", p.name)
	}
	o.done()
	return p
}

// styles lists what OpenAPI allows in each place, the default first.
var styles = map[string][]string{
	"path":   {"simple", "label", "matrix"},
	"query":  {"form", "spaceDelimited", "pipeDelimited", "deepObject"},
	"header": {"simple"},
	"cookie": {"form"},
}

func readBody(o *object) *body {
	b := &body{
		arg:         o.text("arg", true),
		contentType: o.text("content_type", true),
		required:    o.flag("required"),
	}
	media := mediaType(b.contentType)
	b.form = media == formType
	b.text = strings.HasPrefix(media, "text/")
	if b.contentType != "" && !b.form && !b.text && !isJSON(media) {
		o.fault("content_type", "unsupported", "a body of %q cannot be sent yet; JSON, %s and text can", b.contentType, formType)
	} else if !validHeaderValue(b.contentType) {
		o.fault("content_type", "header", "the content type has characters that a header cannot hold")
	}
	if enc, ok := o.sub("encoding"); ok {
		b.encoding = make(map[string]*parameter)
		for _, name := range enc.names() {
			field, ok := enc.sub(name)
			if !ok {
				continue
			}
			b.encoding[name] = readEncoding(field, name)
		}
		enc.done()
		if !b.form && len(b.encoding) > 0 {
			o.fault("encoding", "unsupported", "encoding applies to %s bodies alone", formType)
		}
	}
	o.done()
	return b
}

func readEncoding(o *object, name string) *parameter {
	p := &parameter{
		name:          name,
		arg:           name,
		in:            "form",
		style:         o.text("style", false),
		explode:       o.flag("explode"),
		allowReserved: o.flag("allow_reserved"),
	}
	content := o.text("content_type", false)
	switch {
	case p.style != "" && !slices.Contains(styles["query"], p.style):
		o.fault("style", "enum", "a form field has style %s, not %q", strings.Join(styles["query"], ", "), p.style)
	case p.style == "" && isJSON(content):
		p.json = true
	case p.style == "" && content != "" && !strings.HasPrefix(mediaType(content), "text/"):
		o.fault("content_type", "unsupported", "a form field of %q cannot be sent yet; JSON and text can", content)
	case p.style == "":
		p.style = "form"
	}
	o.done()
	return p
}

func readHeaders(top *object) []header {
	o, ok := top.sub("headers")
	if !ok {
		return nil
	}
	var hs []header
	for _, name := range o.names() {
		value := o.text(name, false)
		checkHeaderName(o, name, name)
		if !validHeaderValue(value) {
			o.fault(name, "header", "the value has characters that a header cannot hold")
		}
		hs = append(hs, header{name, value})
	}
	o.done()
	return hs
}

// mediaType is the content type without parameters, in lower case.
func mediaType(s string) string {
	s, _, _ = strings.Cut(s, ";")
	return strings.ToLower(strings.TrimSpace(s))
}

func isJSON(contentType string) bool {
	media := mediaType(contentType)
	return media == "application/json" || media == "text/json" || strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json")
}

func (b *binding) checkMethod(r *reader) {
	switch b.method {
	case "", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS":
	case "TRACE", "CONNECT":
		r.fault(bindingPointer+"/method", "unsupported", "the method %s cannot be sent", b.method)
	default:
		r.fault(bindingPointer+"/method", "enum", "the method is one of GET, HEAD, POST, PUT, PATCH, DELETE and OPTIONS in capitals, not %q", b.method)
	}
}

// checkServer takes the server apart and returns its escaped path without a
// slash at the end.
func (b *binding) checkServer(r *reader, server string) string {
	at := bindingPointer + "/server"
	if server == "" {
		return ""
	}
	u, err := url.Parse(server)
	switch {
	case err != nil:
		r.fault(at, "uri", "the server is not a URL")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Hostname() == "":
		r.fault(at, "uri", "the server must be an absolute http or https URL")
	case u.User != nil:
		r.fault(at, "userinfo", "the server must not hold a user or password; say it under auth")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.ContainsRune(server, '#'):
		r.fault(at, "uri", "the server must have neither query nor fragment")
	case strings.ContainsAny(server, "{}"):
		r.fault(at, "uri", "the server still has variables; give each a value")
	case hasDots(u.EscapedPath()):
		r.fault(at, "uri", "the server's path must not have \".\" or \"..\" segments")
	default:
		b.scheme, b.host = u.Scheme, u.Host
		return strings.TrimRight(u.EscapedPath(), "/")
	}
	return ""
}

// compilePath cuts the template at its parameters.
func (b *binding) compilePath(r *reader, base, path string) {
	at := bindingPointer + "/path"
	if path == "" {
		return
	}
	if path[0] != '/' || strings.ContainsAny(path, "?#") {
		r.fault(at, "path", "the path must begin with / and have no query or fragment; those are parameters")
		return
	}
	used := make([]bool, len(b.params))
	b.path = append(b.path, piece{text: base, param: -1})
	rest := path
	for rest != "" {
		text, after, found := strings.Cut(rest, "{")
		if strings.ContainsRune(text, '}') {
			r.fault(at, "path", "the path has a } without its {")
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
			r.fault(at, "path", "the path has a { without its } or without a name")
			return
		}
		i := slices.IndexFunc(b.params, func(p parameter) bool { return p.in == "path" && p.name == name })
		if i < 0 {
			r.fault(at, "path", "the path has {%s}, but there is no parameter of that name in path", name)
		} else {
			used[i] = true
			b.path = append(b.path, piece{param: i})
		}
		rest = tail
	}
	if literal := strings.NewReplacer("{", "", "}", "").Replace(path); hasDots(literal) {
		r.fault(at, "path", "the path must not have \".\" or \"..\" segments")
	}
	for i, p := range b.params {
		if p.in == "path" && !used[i] {
			r.fault(paramPointer(i)+"/name", "path", "there is no {%s} in the path", p.name)
		}
	}
}

// hasDots tells whether an escaped path has a "." or ".." segment.
func hasDots(path string) bool {
	for seg := range strings.SplitSeq(path, "/") {
		if plain, err := url.PathUnescape(seg); err != nil || plain == "." || plain == ".." {
			return true
		}
	}
	return false
}
