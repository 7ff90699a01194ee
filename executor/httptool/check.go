package httptool

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	xjson "github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/executor/bindings"
)

// checkParams refuses two parameters for one place, and duplicate headers.
func (b *binding) checkParams(r *bindings.Reader) {
	seen := make(map[string]bool)
	for i, p := range b.params {
		key := p.in + " " + p.name
		if p.in == "header" {
			key = strings.ToLower(key)
		}
		if seen[key] {
			r.Fault(paramPointer(i)+"/name", "unique", "there are two %s parameters with the name %q", p.in, p.name)
		}
		seen[key] = true
	}
}

// checkArgs compares the arguments with those in the schema, if it lists any.
func (b *binding) checkArgs(r *bindings.Reader, m *toolkeep.Manifest, places map[string]string) {
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	// The schema check reports an unreadable schema.
	if xjson.Unmarshal(m.ParametersSchema, &schema) != nil || len(schema.Properties) == 0 {
		return
	}
	const rule, message = "argument", "parameters_schema has no property %q"
	known := func(at, arg string) {
		if _, ok := schema.Properties[arg]; !ok && arg != "" {
			r.Fault(at, rule, message, arg)
		}
	}
	for i, p := range b.params {
		if !p.templated {
			known(paramPointer(i)+"/arg", p.arg)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(places)) {
		at, _, _ := strings.Cut(key, "\x00")
		known(at, places[key])
	}
	if b.body == nil {
		return
	}
	known(bindings.At+"/body/arg", b.body.arg)
	known(bindings.At+"/body/type_arg", b.body.typeArg)
}

// checkTemplate refuses members that the template replaces.
func (b *binding) checkTemplate(top *bindings.Object, path string) {
	if path != "" {
		top.Fault("path", "template", "the path stands in template")
	}
	if len(b.params) > 0 {
		top.Fault("parameters", "template", "with a template there are no parameters: query, headers and cookies stand in it")
	}
	if b.body != nil {
		top.Fault("body", "template", "with a template the body stands in it")
	}
}

// checkQuery refuses a whole-query parameter beside other query parameters.
func (b *binding) checkQuery(r *bindings.Reader) {
	whole := slices.IndexFunc(b.params, func(p parameter) bool { return p.in == wholeQuery })
	if whole < 0 {
		return
	}
	for i, p := range b.params {
		if p.in == "query" || p.in == wholeQuery && i != whole {
			r.Fault(paramPointer(i)+"/in", "unsupported", "the parameter %q is the whole query, so that there can be no other in query", b.params[whole].name)
		}
	}
}

// checkSpec refuses credentials that cannot be sent.
func checkSpec(r *bindings.Reader, at string, s toolkeep.AuthSpec, b *binding) {
	if !validHeaderValue(s.Prefix) {
		r.Fault(at+"/prefix", "header", "the prefix has characters that a header cannot hold")
	}
	if s.In == "env" {
		r.Fault(at+"/in", "unsupported", "in env is for tools that start a program; an HTTP request has no environment")
		return
	}
	switch s.Type {
	case "none":
		return
	case "api_key":
		if s.Name == "" {
			r.Fault(at+"/name", "required", "an api_key needs the name of its header, query parameter, cookie or property")
		}
	case "basic":
		if s.In != "" && s.In != "header" {
			r.Fault(at+"/in", "unsupported", "basic goes into a header, not into %q", s.In)
		}
		if s.Prefix != "" {
			r.Fault(at+"/prefix", "unsupported", "basic has its own prefix")
		}
	case "bearer", "oauth2_client_credentials", "oauth2_refresh", "google_service_account", "azure_ad", "oauth2_token_exchange", "oauth2_identity_assertion":
		if s.In != "" && s.In != "header" && s.Name == "" {
			r.Fault(at+"/name", "required", "a token in %s needs the name of its parameter or property", s.In)
		}
	case "aws_sigv4":
		checkSigning(r, at, s, b)
		return
	case "mtls":
		if b.scheme == "http" {
			r.Fault(at+"/type", "unsupported", "a client certificate needs a server with https")
		}
		for name, v := range map[string]string{"in": s.In, "name": s.Name, "prefix": s.Prefix} {
			if v != "" {
				r.Fault(at+"/"+name, "unsupported", "a client certificate is part of the connection and has no %s", name)
			}
		}
		return
	default:
		r.Fault(at+"/type", "unsupported", "authentication of type %q cannot be sent", s.Type)
		return
	}
	switch s.In {
	case "", "header":
		if s.Name != "" && (!egress.IsToken(s.Name) || fixedHeaders[strings.ToLower(s.Name)]) {
			r.Fault(at+"/name", "header", "%q cannot be set as a header", s.Name)
		}
	case "cookie":
		if s.Name != "" && !egress.IsToken(s.Name) {
			r.Fault(at+"/name", "token", "%q cannot be the name of a cookie", s.Name)
		}
	case "query":
		if i := slices.IndexFunc(b.params, func(p parameter) bool { return p.in == wholeQuery }); i >= 0 && (b.params[i].content == nil || b.params[i].content.format != asForm) {
			r.Fault(at+"/in", "unsupported", "the query is one value, which no secret can be added to")
		}
	case "body":
		if b.body == nil || slices.ContainsFunc(b.body.codecs, func(c *codec) bool {
			return c.format != asJSON && c.format != asForm && c.format != asMultipart
		}) {
			r.Fault(at+"/in", "unsupported", "a secret in the body needs a JSON, form or multipart body")
		}
	default:
		r.Fault(at+"/in", "unsupported", "a secret in %q cannot be sent", s.In)
	}
}

// fixedHeaders belong to the connection or are computed.
var fixedHeaders = map[string]bool{
	"host": true, "content-length": true, "transfer-encoding": true,
	"connection": true, "keep-alive": true, "proxy-connection": true,
	"proxy-authorization": true, "proxy-authenticate": true, "te": true,
	"trailer": true, "upgrade": true, "expect": true, "http2-settings": true,
	"cookie": true, "content-type": true, "accept-encoding": true,
}

// checkHeaderName refuses header names that a binding must not set.
func checkHeaderName(o *bindings.Object, member, name string) {
	switch {
	case name == "":
	case !egress.IsToken(name):
		o.Fault(member, "token", "%q cannot be the name of a header", name)
	case fixedHeaders[strings.ToLower(name)]:
		o.Fault(member, "header", "the header %s cannot be set: it follows from the request itself (cookies are parameters in cookie, the content type is the body's)", name)
	}
}

// validHeaderValue refuses control characters other than tab.
func validHeaderValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// validCookieValue is RFC 6265's cookie-octet.
func validCookieValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("\",;\\", c) >= 0 {
			return false
		}
	}
	return true
}

func isAlnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
