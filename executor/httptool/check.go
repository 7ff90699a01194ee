package httptool

import (
	"encoding/json"
	"strconv"
	"strings"

	xjson "github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// checkParams refuses two parameters for one place and headers set twice.
func (b *binding) checkParams(r *reader) {
	seen := make(map[string]bool)
	for i, p := range b.params {
		key := p.in + " " + p.name
		if p.in == "header" {
			key = strings.ToLower(key)
		}
		if seen[key] {
			r.fault(paramPointer(i)+"/name", "unique", "there are two %s parameters with the name %q", p.in, p.name)
		}
		seen[key] = true
	}
}

// checkArgs compares the arguments with those that the schema lists, if it does.
func (b *binding) checkArgs(r *reader, m *toolkeep.Manifest) {
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	// A schema that cannot be read is the schema check's to refuse.
	if xjson.Unmarshal(m.ParametersSchema, &schema) != nil || len(schema.Properties) == 0 {
		return
	}
	const rule, message = "argument", "parameters_schema has no property %q"
	for i, p := range b.params {
		if _, ok := schema.Properties[p.arg]; !ok && p.arg != "" {
			r.fault(paramPointer(i)+"/arg", rule, message, p.arg)
		}
	}
	if b.body != nil && b.body.arg != "" {
		if _, ok := schema.Properties[b.body.arg]; !ok {
			r.fault(bindingPointer+"/body/arg", rule, message, b.body.arg)
		}
	}
}

// checkAuth refuses what cannot be sent yet, alternative by alternative.
func checkAuth(r *reader, m *toolkeep.Manifest, b *binding) {
	for i, spec := range m.Auth {
		at := "/auth/" + strconv.Itoa(i)
		checkSpec(r, at, spec, b)
		also, ok := spec.Settings["also"]
		if !ok {
			continue
		}
		var more []toolkeep.AuthSpec
		if err := xjson.Unmarshal(canon.Append(nil, also), &more, xjson.RejectUnknownMembers(true)); err != nil {
			r.fault(at+"/settings/also", "type", "also must be a list of auth entries")
			continue
		}
		for j, s := range more {
			checkSpec(r, at+"/settings/also/"+strconv.Itoa(j), s, b)
		}
	}
}

func checkSpec(r *reader, at string, s toolkeep.AuthSpec, b *binding) {
	if !validHeaderValue(s.Prefix) {
		r.fault(at+"/prefix", "header", "the prefix has characters that a header cannot hold")
	}
	switch s.Type {
	case "none":
		return
	case "api_key":
		if s.Name == "" {
			r.fault(at+"/name", "required", "an api_key needs the name of its header, query parameter, cookie or property")
		}
	case "bearer", "basic":
		if s.In != "" && s.In != "header" {
			r.fault(at+"/in", "unsupported", "%s goes into a header; %q cannot be sent yet", s.Type, s.In)
		}
		if s.Type == "basic" && s.Prefix != "" {
			r.fault(at+"/prefix", "unsupported", "basic has its own prefix")
		}
	default:
		r.fault(at+"/type", "unsupported", "authentication of type %q cannot be sent yet; none, api_key, bearer and basic can", s.Type)
		return
	}
	switch s.In {
	case "", "header":
		if s.Name != "" && (!isToken(s.Name) || fixedHeaders[strings.ToLower(s.Name)]) {
			r.fault(at+"/name", "header", "%q cannot be set as a header", s.Name)
		}
	case "cookie":
		if !isToken(s.Name) {
			r.fault(at+"/name", "token", "%q cannot be the name of a cookie", s.Name)
		}
	case "query":
	case "body":
		if b.body == nil || b.body.text {
			r.fault(at+"/in", "unsupported", "a secret in the body needs a JSON or form body")
		}
	default:
		r.fault(at+"/in", "unsupported", "a secret in %q cannot be sent yet", s.In)
	}
}

// fixedHeaders belong to the connection or are made from something else.
var fixedHeaders = map[string]bool{
	"host": true, "content-length": true, "transfer-encoding": true,
	"connection": true, "keep-alive": true, "proxy-connection": true,
	"proxy-authorization": true, "proxy-authenticate": true, "te": true,
	"trailer": true, "upgrade": true, "expect": true, "http2-settings": true,
	"cookie": true, "content-type": true, "accept-encoding": true,
}

// checkHeaderName refuses names that the binding may not set.
func checkHeaderName(o *object, member, name string) {
	switch {
	case name == "":
	case !isToken(name):
		o.fault(member, "token", "%q cannot be the name of a header", name)
	case fixedHeaders[strings.ToLower(name)]:
		o.fault(member, "header", "the header %s cannot be set: it follows from the request itself (cookies are parameters in cookie, the content type is the body's)", name)
	}
}

// isToken tells whether s can be a header's or a cookie's name (RFC 9110 token).
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !isAlnum(c) && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
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
