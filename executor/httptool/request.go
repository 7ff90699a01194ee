package httptool

import (
	"encoding/base64"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

const keyHeader = "Idempotency-Key"

// request is one HTTP request before it is sent.
type request struct {
	method  string
	url     *url.URL
	header  http.Header
	body    []byte
	hasBody bool
	// keys are the query parameters that carry credentials; a redirect within the
	// origin gets them again.
	keys []header
}

// build makes the request of one call. Every error has NothingSent set.
func (b *binding) build(x *toolkeep.Execution) (*request, *toolkeep.Error) {
	r := &request{method: b.method, header: make(http.Header, 8)}
	r.header["Accept"] = []string{b.accept}
	r.header["User-Agent"] = []string{"toolkeep"}
	for _, h := range b.headers {
		r.header.Set(h.name, h.value)
	}
	cred, err := placeCredentials(x.Credentials)
	if err != nil {
		return nil, err
	}
	path, err := b.renderPath(x.Args)
	if err != nil {
		return nil, err
	}
	query, err := b.renderParams(r, x.Args, cred)
	if err != nil {
		return nil, err
	}
	if err := b.renderBody(r, x.Args, cred); err != nil {
		return nil, err
	}
	decoded, uerr := url.PathUnescape(path)
	if uerr != nil {
		return nil, unsafe("", "the path cannot be built from these arguments")
	}
	r.url = &url.URL{Scheme: b.scheme, Host: b.host, Path: decoded, RawPath: path, RawQuery: query}
	for _, h := range cred.headers {
		r.header.Set(h.name, h.value)
	}
	r.keys = cred.query
	return r, b.forward(r, x)
}

// forward adds trace context and idempotency key.
func (b *binding) forward(r *request, x *toolkeep.Execution) *toolkeep.Error {
	if x.Traceparent != "" && validHeaderValue(x.Traceparent) {
		r.header["Traceparent"] = []string{x.Traceparent}
	}
	if x.Key == "" || !b.takesKey || r.header.Get(keyHeader) != "" {
		return nil
	}
	if !validHeaderValue(x.Key) {
		return unsafe("", "the idempotency key has a control character, which a header cannot hold")
	}
	r.header[keyHeader] = []string{x.Key}
	return nil
}

func (b *binding) renderPath(args map[string]any) (string, *toolkeep.Error) {
	buf := make([]byte, 0, 128)
	for _, p := range b.path {
		if p.param < 0 {
			buf = append(buf, p.text...)
			continue
		}
		param := &b.params[p.param]
		var err *toolkeep.Error
		if buf, err = appendPath(buf, param, args[param.arg]); err != nil {
			return "", err
		}
	}
	path := string(buf)
	// Each value is safe alone; two of them side by side may still make "..".
	if len(b.path) > 1 && hasDots(path) {
		return "", unsafe("", "the arguments would lead to another path: \".\" and \"..\" cannot be segments of it")
	}
	return path, nil
}

// renderParams fills headers and cookies and returns the query.
func (b *binding) renderParams(r *request, args map[string]any, cred *placed) (string, *toolkeep.Error) {
	query := pairs{sep: "&", taken: b.taken["query"], keys: cred.query}
	cookie := pairs{sep: "; ", taken: b.taken["cookie"], keys: cred.cookies}
	for i := range b.params {
		p := &b.params[i]
		v, ok := args[p.arg]
		if !ok || p.in == "path" || v == nil && !p.allowEmpty {
			continue
		}
		var err *toolkeep.Error
		switch p.in {
		case "query":
			err = query.parameter(p, v, escStrict)
		case "cookie":
			if obj, isObject := v.(map[string]any); isObject && p.explode {
				err = cookieNames(p, obj)
			}
			if err == nil {
				err = cookie.parameter(p, v, escStrict)
			}
		case "header":
			if v == nil {
				continue
			}
			var s string
			if s, err = headerText(p, v); err == nil {
				r.header.Set(p.name, s)
			}
		}
		if err != nil {
			return "", err
		}
	}
	for _, h := range cred.query {
		query.add(h.name, h.value, escStrict)
	}
	for _, h := range cred.cookies {
		cookie.raw(h.name, h.value) // encoded it would be another secret
	}
	if len(cookie.buf) > 0 {
		r.header["Cookie"] = []string{string(cookie.buf)}
	}
	return string(query.buf), nil
}

func cookieNames(p *parameter, obj map[string]any) *toolkeep.Error {
	for _, k := range slices.Sorted(maps.Keys(obj)) {
		if !isToken(k) {
			return unsafe(canon.Pointer(p.arg, k), "%q cannot be the name of a cookie", k)
		}
	}
	return nil
}

func (b *binding) renderBody(r *request, args map[string]any, cred *placed) *toolkeep.Error {
	if b.body == nil {
		return nil
	}
	v, ok := args[b.body.arg]
	if !ok && len(cred.body) == 0 {
		if b.body.required {
			e := toolkeep.NewError(toolkeep.MissingParameter, "the argument %s is the request's body and must be given", b.body.arg).With("pointer", canon.Pointer(b.body.arg))
			e.NothingSent = true
			return e
		}
		return nil
	}
	r.hasBody = true
	r.header["Content-Type"] = []string{b.body.contentType}
	if b.body.text {
		s, ok := plain(v)
		if !ok {
			return unsafe(canon.Pointer(b.body.arg), "the argument %s is sent as text and must be a plain value", b.body.arg)
		}
		r.body = []byte(s)
		return nil
	}
	if len(cred.body) > 0 || b.body.form {
		obj, isObject := v.(map[string]any)
		if !isObject && ok && v != nil {
			return unsafe(canon.Pointer(b.body.arg), "the argument %s must be an object to be sent as this body", b.body.arg)
		}
		if b.body.form {
			return b.renderForm(r, obj, cred)
		}
		v = withSecrets(obj, cred.body)
	}
	r.body = canon.Append(nil, v)
	return nil
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

// formField is how a field without an encoding is sent: OpenAPI gives plain
// values and lists style form exploded, and objects JSON.
var (
	formField       = parameter{in: "form", style: "form", explode: true}
	formObjectField = parameter{in: "form", json: true}
)

func (b *binding) renderForm(r *request, obj map[string]any, cred *placed) *toolkeep.Error {
	w := pairs{sep: "&", names: escForm, taken: make(map[string]bool, len(obj)), keys: cred.body}
	for name := range obj {
		w.taken[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(obj)) {
		v := obj[name]
		if v == nil || slices.ContainsFunc(cred.body, func(h header) bool { return h.name == name }) {
			continue
		}
		field := b.body.encoding[name]
		if field == nil {
			f := formField
			if needsJSON(v) {
				f = formObjectField
			}
			f.name, f.arg = name, name
			field = &f
		}
		if err := w.parameter(field, v, escForm); err != nil {
			p, _ := err.Details["pointer"].(string)
			return err.With("pointer", canon.Pointer(b.body.arg)+p)
		}
	}
	for _, s := range cred.body {
		w.add(s.name, s.value, escForm)
	}
	r.body = w.buf
	return nil
}

// needsJSON tells whether a form field without encoding is sent as JSON: an
// object, or a list with anything but plain values.
func needsJSON(v any) bool {
	switch t := v.(type) {
	case map[string]any:
		return true
	case []any:
		return slices.ContainsFunc(t, func(el any) bool { _, ok := plain(el); return !ok })
	}
	return false
}

// placed are the call's credentials by where they go.
type placed struct {
	headers, query, cookies, body []header
}

func placeCredentials(creds []toolkeep.Credential) (*placed, *toolkeep.Error) {
	p := &placed{}
	for _, c := range creds {
		name, value, in := c.Spec.Name, c.Value, c.Spec.In
		switch c.Spec.Type {
		case "none":
			continue
		case "api_key":
			value = withPrefix(c.Spec.Prefix, value)
		case "bearer":
			prefix := c.Spec.Prefix
			if prefix == "" {
				prefix = "Bearer"
			}
			value, in = withPrefix(prefix, value), "header"
		case "basic":
			if !strings.Contains(value, ":") {
				return nil, badCredential("the secret for basic authentication must have the form user:password")
			}
			value, in = "Basic "+base64.StdEncoding.EncodeToString([]byte(value)), "header"
		default:
			return nil, badCredential("authentication of type " + c.Spec.Type + " cannot be sent yet")
		}
		if name == "" {
			name = "Authorization"
		}
		h := header{name, value}
		switch in {
		case "", "header":
			if !validHeaderValue(value) {
				return nil, badCredential("the secret has a line break or another control character, which a header cannot hold")
			}
			p.headers = append(p.headers, h)
		case "query":
			p.query = append(p.query, h)
		case "cookie":
			if !validCookieValue(value) {
				return nil, badCredential("the secret has characters that a cookie cannot hold")
			}
			p.cookies = append(p.cookies, h)
		case "body":
			p.body = append(p.body, h)
		default:
			return nil, badCredential("a secret in " + in + " cannot be sent yet")
		}
	}
	return p, nil
}

func badCredential(why string) *toolkeep.Error {
	e := toolkeep.NewError(toolkeep.SecretAccessDenied, "%s", why)
	e.NothingSent = true
	return e
}

func withPrefix(prefix, value string) string {
	if prefix == "" {
		return value
	}
	if isAlnum(prefix[len(prefix)-1]) {
		prefix += " "
	}
	return prefix + value
}
