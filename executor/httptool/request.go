package httptool

import (
	"crypto/tls"
	"encoding/base64"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/egress"
)

const keyHeader = "Idempotency-Key"

// request is one HTTP request before it is sent.
type request struct {
	method  string
	url     *url.URL
	header  http.Header
	body    []byte
	hasBody bool
	// keys are the query parameters with credentials; they are sent again after a
	// redirect within the origin.
	keys []header
	// sign signs the final request; certificate authenticates to the server. Both are
	// used only for the first origin.
	sign        *signer
	certificate *tls.Certificate
}

// build builds one call's request. Every error has NothingSent set.
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
	r.sign, r.certificate = cred.sign, cred.certificate
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
		if x.Tracestate != "" && validHeaderValue(x.Tracestate) {
			r.header["Tracestate"] = []string{x.Tracestate}
		}
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
	// Each value is safe alone, but two adjacent ones may form "..".
	if len(b.path) > 1 && egress.HasDotSegments(path) {
		return "", unsafe("", "the arguments would lead to another path: \".\" and \"..\" cannot be segments of it")
	}
	return path, nil
}

// argument returns a parameter's value, from its template or its argument.
func (p *parameter) argument(args map[string]any) (v any, ok bool, err *toolkeep.Error) {
	if p.template != nil {
		return p.template.eval(args)
	}
	v, ok = args[p.arg]
	return v, ok, nil
}

// renderParams fills headers and cookies and returns the query.
func (b *binding) renderParams(r *request, args map[string]any, cred *sentCredentials) (string, *toolkeep.Error) {
	query := pairs{sep: "&", taken: b.taken["query"], keys: cred.query}
	cookie := pairs{sep: "; ", taken: b.taken["cookie"], keys: cred.cookies}
	for i := range b.params {
		p := &b.params[i]
		if p.in == "path" {
			continue
		}
		v, ok, err := p.argument(args)
		if err != nil {
			return "", err
		}
		if !ok || v == nil && !p.allowEmpty {
			continue
		}
		switch p.in {
		case "query":
			err = query.parameter(p, v, escStrict)
		case wholeQuery:
			query.buf, err = wholeText(p, v, cred.query)
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
		cookie.raw(h.name, h.value) // encoding would change the secret
	}
	if len(cookie.buf) > 0 {
		r.header["Cookie"] = []string{string(cookie.buf)}
	}
	return string(query.buf), nil
}

// wholeText encodes the parameter that is the whole query. A form is the query itself;
// anything else is one value, encoded as a whole.
func wholeText(p *parameter, v any, keys []header) ([]byte, *toolkeep.Error) {
	at := canon.Pointer(p.arg)
	if p.json {
		return escStrict.append(nil, string(canon.Append(nil, v))), nil
	}
	if obj, ok := v.(map[string]any); ok && p.content.format == asForm {
		for _, k := range keys {
			if _, taken := obj[k.name]; taken {
				return nil, unsafe(at+canon.Pointer(k.name), "the property %q would be sent under the name of a credential", k.name)
			}
		}
	}
	text, _, err := p.content.render(at, v, nil)
	if err != nil || p.content.format == asForm {
		return text, err
	}
	return escStrict.append(nil, string(text)), nil
}

func cookieNames(p *parameter, obj map[string]any) *toolkeep.Error {
	for _, k := range slices.Sorted(maps.Keys(obj)) {
		if !egress.IsToken(k) {
			return unsafe(canon.Pointer(p.arg, k), "%q cannot be the name of a cookie", k)
		}
	}
	return nil
}

func (b *binding) renderBody(r *request, args map[string]any, cred *sentCredentials) *toolkeep.Error {
	if b.body == nil {
		return nil
	}
	v, ok, err := b.bodyValue(args)
	if err != nil {
		return err
	}
	if !ok && len(cred.body) == 0 {
		if b.body.required {
			e := toolkeep.NewError(toolkeep.MissingParameter, "the argument %s is the request's body and must be given", b.body.arg).With("pointer", canon.Pointer(b.body.arg))
			e.NothingSent = true
			return e
		}
		return nil
	}
	c, err := b.body.choose(args)
	if err != nil {
		return err
	}
	at := ""
	if b.body.arg != "" {
		at = canon.Pointer(b.body.arg)
	}
	data, contentType, err := c.render(at, v, cred.body)
	if err != nil {
		return err
	}
	r.hasBody, r.body = true, data
	r.header["Content-Type"] = []string{contentType}
	return nil
}

// bodyValue returns the value that the body encodes.
func (b *binding) bodyValue(args map[string]any) (any, bool, *toolkeep.Error) {
	switch {
	case b.body.all:
		return b.rest(args), true, nil
	case b.body.template == nil:
		v, ok := args[b.body.arg]
		return v, ok, nil
	case b.body.markup:
		if t, ok := b.body.template.node.(text); ok {
			return t.eval(args, escapeMarkup)
		}
	}
	return b.body.template.eval(args)
}

// choose selects the codec of the body.
func (b *body) choose(args map[string]any) (*codec, *toolkeep.Error) {
	v := args[b.typeArg]
	if b.typeArg == "" || v == nil {
		return b.codecs[0], nil
	}
	s, _ := v.(string)
	for _, c := range b.codecs {
		if c.contentType == s {
			return c, nil
		}
		if c.format != asBinary || s == "" {
			continue
		}
		if one, err := pickType("", s, c.contentType); err == nil {
			return &codec{format: asBinary, contentType: one}, nil
		}
	}
	return nil, unsafe(canon.Pointer(b.typeArg), "the argument %s names no content type that the body can have", b.typeArg)
}

// rest returns the arguments that are not parameters.
func (b *binding) rest(args map[string]any) map[string]any {
	rest := maps.Clone(args)
	for _, p := range b.params {
		delete(rest, p.arg)
	}
	if b.pages != nil {
		delete(rest, b.pages.maxArg)
	}
	if rest == nil {
		rest = map[string]any{}
	}
	return rest
}

// sentCredentials are the call's credentials by place.
type sentCredentials struct {
	headers, query, cookies, body []header

	sign        *signer
	certificate *tls.Certificate
}

func placeCredentials(creds []toolkeep.Credential) (*sentCredentials, *toolkeep.Error) {
	p := &sentCredentials{}
	for _, c := range creds {
		name, value, in := c.Spec.Name, c.Value, c.Spec.In
		switch c.Spec.Type {
		case "none":
			continue
		case "api_key":
			value = withPrefix(c.Spec.Prefix, value)
		case "bearer", "oauth2_client_credentials", "oauth2_refresh", "google_service_account", "azure_ad", "oauth2_token_exchange", "oauth2_identity_assertion":
			// Outside of a header the token has no prefix unless the manifest sets one.
			prefix := c.Spec.Prefix
			if prefix == "" && (in == "" || in == "header") {
				prefix = "Bearer"
			}
			value = withPrefix(prefix, value)
		case "basic":
			if !strings.Contains(value, ":") {
				return nil, badCredential("the secret for basic authentication must have the form user:password")
			}
			value, in = "Basic "+base64.StdEncoding.EncodeToString([]byte(value)), "header"
		case "aws_sigv4":
			var err *toolkeep.Error
			if p.sign, err = newSigner(c); err != nil {
				return nil, err
			}
			continue
		case "mtls":
			cert, err := clientCertificate(value)
			if err != nil {
				return nil, err
			}
			p.certificate = cert
			continue
		default:
			return nil, badCredential("authentication of type " + c.Spec.Type + " cannot be sent")
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
			return nil, badCredential("a secret in " + in + " cannot be sent")
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
