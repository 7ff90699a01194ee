package oauth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/egress"
)

// maxAnswer bounds a response of an authorization server, in bytes.
const maxAnswer = 256 << 10

// maxHops bounds the redirects of a metadata request.
const maxHops = 3

// way is where and how to log in at a server.
type way struct {
	resource     string // RFC 8707
	issuer       string
	authorizeURL string
	tokenURL     string
	registerURL  string
	methods      []string // of the token endpoint; empty: not specified
	scopes       []string // from the server's metadata
	documents    bool     // supports client metadata documents
	issuerSent   bool     // the callback must name the issuer
	offline      bool     // supports offline_access
}

// resourceMetadata is the document of RFC 9728.
type resourceMetadata struct {
	Resource string   `json:"resource"`
	Servers  []string `json:"authorization_servers"`
	Scopes   []string `json:"scopes_supported"`
}

// serverMetadata is the document of RFC 8414 or OpenID Connect.
type serverMetadata struct {
	Issuer     string   `json:"issuer"`
	Authorize  string   `json:"authorization_endpoint"`
	Token      string   `json:"token_endpoint"`
	Register   string   `json:"registration_endpoint"`
	Revoke     string   `json:"revocation_endpoint"`
	Methods    []string `json:"token_endpoint_auth_methods_supported"`
	Scopes     []string `json:"scopes_supported"`
	PKCE       []string `json:"code_challenge_methods_supported"`
	Documents  bool     `json:"client_id_metadata_document_supported"`
	IssuerSent bool     `json:"authorization_response_iss_parameter_supported"`
}

// refusal is why no login can begin. Its text is Toolkeep's own and may be shown.
type refusal struct{ why string }

func (r *refusal) Error() string { return r.why }

func refuse(format string, args ...any) error { return &refusal{fmt.Sprintf(format, args...)} }

// errAbsent means that the document does not exist.
var errAbsent = errors.New("the server has no such document")

// discover finds out how to log in. It returns nil without an error if the server
// neither asked for a login nor publishes metadata.
func (l *Logins) discover(ctx context.Context, r Ref, ask challenge) (*way, error) {
	own, err := url.Parse(r.URL)
	if err != nil || own.Host == "" {
		return nil, refuse("its address cannot be read")
	}
	meta, err := l.resource(ctx, r, own, ask)
	if err != nil {
		return nil, err
	}
	w := &way{}
	issuer := origin(own)
	if meta == nil {
		if !ask.heard {
			return nil, nil
		}
		plain := *own
		plain.RawQuery, plain.Fragment = "", ""
		w.resource = plain.String()
	} else {
		if len(meta.Servers) == 0 {
			return nil, refuse("its metadata names no authorization server")
		}
		issuer, w.resource = meta.Servers[0], meta.Resource
		w.scopes = scopesOf(strings.Join(meta.Scopes[:min(len(meta.Scopes), maxScopes)], " "))
	}
	as, err := l.server(ctx, r, issuer)
	switch {
	case err != nil:
		return nil, err
	case as != nil:
	case meta == nil:
		// Revision 2025-03-26: without metadata the endpoints have fixed paths.
		as = &serverMetadata{Issuer: issuer, Authorize: issuer + "/authorize", Token: issuer + "/token", Register: issuer + "/register", PKCE: []string{"S256"}}
	default:
		return nil, refuse("its authorization server %s has no metadata", toolkeep.ClipBytes(issuer, 200))
	}
	w.issuer, w.authorizeURL, w.tokenURL, w.registerURL = as.Issuer, as.Authorize, as.Token, as.Register
	w.methods, w.documents, w.issuerSent = as.Methods, as.Documents, as.IssuerSent
	w.offline = slices.Contains(as.Scopes, "offline_access")
	return w, nil
}

func origin(u *url.URL) string { return u.Scheme + "://" + u.Host }

// resource reads the MCP server's resource metadata; nil if there is none.
func (l *Logins) resource(ctx context.Context, r Ref, own *url.URL, ask challenge) (*resourceMetadata, error) {
	var places []string
	if ask.metadata != "" {
		places = append(places, ask.metadata)
	}
	path := strings.TrimSuffix(own.EscapedPath(), "/")
	for _, p := range []string{path, ""} {
		at := origin(own) + "/.well-known/oauth-protected-resource" + p
		if p != "" && own.RawQuery != "" {
			at += "?" + own.RawQuery
		}
		if !slices.Contains(places, at) {
			places = append(places, at)
		}
	}
	var first error
	for _, at := range places {
		var meta resourceMetadata
		err := l.get(ctx, r, at, &meta)
		switch {
		case err == nil:
			if !covers(meta.Resource, own) {
				return nil, refuse("its metadata is of another resource, %s", toolkeep.ClipBytes(meta.Resource, 200))
			}
			return &meta, nil
		case ctx.Err() != nil, isOwn(err):
			return nil, err
		case first == nil && !errors.Is(err, errAbsent):
			first = err
		}
	}
	return nil, first
}

// covers reports whether resource metadata applies to the server: its resource must be
// the server's address or a path above it. The publisher of the metadata controls the
// whole origin, so a finer check would gain nothing.
func covers(resource string, own *url.URL) bool {
	u, err := url.Parse(resource)
	if err != nil || u.Fragment != "" || u.Scheme != own.Scheme || !strings.EqualFold(u.Hostname(), own.Hostname()) || egress.Port(u) != egress.Port(own) {
		return false
	}
	if u.RawQuery != "" && u.RawQuery != own.RawQuery {
		return false
	}
	above := strings.TrimSuffix(u.EscapedPath(), "/")
	return above == strings.TrimSuffix(own.EscapedPath(), "/") || strings.HasPrefix(own.EscapedPath(), above+"/")
}

// server reads an authorization server's metadata; nil if there is none.
func (l *Logins) server(ctx context.Context, r Ref, issuer string) (*serverMetadata, error) {
	u, err := endpoint(issuer)
	if err != nil || u.RawQuery != "" {
		return nil, refuse("the address of its authorization server, %s, is not a plain https URL", toolkeep.ClipBytes(issuer, 200))
	}
	path := strings.TrimSuffix(u.EscapedPath(), "/")
	places := []string{origin(u) + "/.well-known/oauth-authorization-server" + path, origin(u) + "/.well-known/openid-configuration" + path}
	if path != "" {
		places = append(places, origin(u)+path+"/.well-known/openid-configuration")
	}
	var first error
	for _, at := range places {
		var meta serverMetadata
		if err = l.get(ctx, r, at, &meta); err == nil {
			err = meta.check(issuer)
		}
		switch {
		case err == nil:
			return &meta, nil
		case ctx.Err() != nil, isOwn(err):
			return nil, err
		case first == nil && !errors.Is(err, errAbsent):
			first = err
		}
	}
	return nil, first
}

func (m *serverMetadata) check(issuer string) error {
	if m.Issuer == "" || strings.TrimSuffix(m.Issuer, "/") != strings.TrimSuffix(issuer, "/") {
		return refuse("the metadata of its authorization server %s is of another issuer", toolkeep.ClipBytes(issuer, 200))
	}
	if !slices.Contains(m.PKCE, "S256") {
		return refuse("its authorization server %s does not say that it supports PKCE with S256", toolkeep.ClipBytes(issuer, 200))
	}
	for _, at := range []string{m.Authorize, m.Token, m.Register} {
		if at == m.Register && at == "" {
			continue
		}
		if _, err := endpoint(at); err != nil {
			return refuse("its authorization server %s names an endpoint that is not an https URL", toolkeep.ClipBytes(issuer, 200))
		}
	}
	return nil
}

// endpoint parses an address that may receive credentials: https, or plain http on this
// machine.
func endpoint(at string) (*url.URL, error) {
	u, err := url.Parse(at)
	if err != nil || u.Host == "" || u.Fragment != "" || u.User != nil || len(at) > 2<<10 {
		return nil, errors.New("no address of an endpoint")
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())) {
		return nil, errors.New("not an https address")
	}
	return u, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// get reads a metadata document.
func (l *Logins) get(ctx context.Context, r Ref, at string, into any) error {
	if _, err := endpoint(at); err != nil {
		// The MCP server itself may be reached without TLS if its owner configured it
		// so.
		own, oerr := url.Parse(r.URL)
		u, uerr := url.Parse(at)
		if oerr != nil || uerr != nil || origin(u) != origin(own) {
			return refuse("its metadata is at no https address")
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return refuse("the address of its metadata cannot be read")
	}
	_, err = l.send(r, req, into, true)
	return err
}

// send makes a request and decodes its JSON response. A status other than 2xx is a
// *statusError; network errors come without the address. With into nil the body does not
// matter.
func (l *Logins) send(r Ref, req *http.Request, into any, follow bool) (*http.Response, error) {
	req.Header.Set("Accept", "application/json")
	client := *l.c.Client(r.Tenant, r.Network)
	client.Jar = nil
	client.CheckRedirect = func(next *http.Request, via []*http.Request) error {
		if !follow || len(via) > maxHops || next.URL.Scheme != via[0].URL.Scheme {
			return http.ErrUseLastResponse
		}
		return nil
	}
	resp, err := client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		if own := req.Context().Err(); own != nil {
			err = own
		}
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > maxAnswer:
		return nil, refuse("an answer of its authorization server is over the limit of %d bytes", maxAnswer)
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return nil, &statusError{status: resp.StatusCode, code: errorCode(data)}
	}
	if into == nil {
		return resp, nil
	}
	if kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || kind != "application/json" && !strings.HasSuffix(kind, "+json") {
		if follow {
			return nil, errAbsent // some servers return a page for every address
		}
		return nil, refuse("an answer of its authorization server is not JSON")
	}
	if err := json.Unmarshal(data, into); err != nil {
		return nil, refuse("an answer of its authorization server cannot be read") // the error's text may contain a token
	}
	return resp, nil
}

// statusError is a response other than 2xx.
type statusError struct {
	status int
	code   string // OAuth's, "" without one
}

func (e *statusError) Error() string {
	if e.code != "" {
		return fmt.Sprintf("it answered HTTP %d (%s)", e.status, e.code)
	}
	return fmt.Sprintf("it answered HTTP %d", e.status)
}

// Is treats a client error without an OAuth code as an absent document.
func (e *statusError) Is(target error) bool {
	return target == errAbsent && e.status >= 300 && e.status < 500 && e.status != http.StatusTooManyRequests
}

// errorCode reads the OAuth error code from a body.
func errorCode(data []byte) string {
	var body struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(data, &body) != nil || len(body.Error) > 64 || !isScope(body.Error) {
		return ""
	}
	return body.Error
}

// isOwn reports whether the error is Toolkeep's own, such as a forbidden address.
func isOwn(err error) bool {
	var e *toolkeep.Error
	return errors.As(err, &e)
}

// identity is Toolkeep's client registration at an authorization server.
type identity struct {
	id, secret string
	method     string // none, client_secret_post or client_secret_basic
}

// Client authentication methods at the token endpoint.
const (
	methodNone  = "none"
	methodPost  = "client_secret_post"
	methodBasic = "client_secret_basic"
)

// client finds or creates the client registration: the manual one, a client metadata
// document, or dynamic registration.
func (l *Logins) client(ctx context.Context, r Ref, w *way, redirect string) (identity, error) {
	if r.ClientID != "" {
		secret, err := r.secret(ctx)
		return identity{r.ClientID, secret, chooseMethod(w.methods, secret)}, err
	}
	if id := l.documentURL(); id != "" && w.documents {
		return identity{id: id, method: methodNone}, nil
	}
	if w.registerURL == "" {
		return identity{}, refuse("its authorization server %s does not register clients automatically: register one there with the redirect address %s and name it in the server's definition (oauth.client_id)",
			toolkeep.ClipBytes(w.issuer, 200), redirect)
	}
	return l.register(ctx, r, w, redirect)
}

// chooseMethod picks the authentication method; unspecified means client_secret_basic
// (RFC 8414).
func chooseMethod(known []string, secret string) string {
	switch {
	case secret == "":
		return methodNone
	case slices.Contains(known, methodBasic) || !slices.Contains(known, methodPost):
		return methodBasic
	}
	return methodPost
}

func (l *Logins) documentURL() string {
	if l.c.ClientID != "" {
		return l.c.ClientID
	}
	if base := l.c.PublicURL(); strings.HasPrefix(base, "https://") {
		return base + MetadataPath
	}
	return ""
}

// registration is the request of RFC 7591, and also the client metadata document.
type registration struct {
	ClientID  string   `json:"client_id,omitempty"`
	Name      string   `json:"client_name"`
	Redirects []string `json:"redirect_uris"`
	Grants    []string `json:"grant_types"`
	Responses []string `json:"response_types"`
	Method    string   `json:"token_endpoint_auth_method"`
	Kind      string   `json:"application_type"`
}

func registrationFor(redirect, method string) registration {
	g := registration{Name: "Toolkeep", Redirects: []string{redirect}, Grants: []string{"authorization_code", "refresh_token"},
		Responses: []string{"code"}, Method: method, Kind: "web"}
	if u, err := url.Parse(redirect); err == nil && loopback(u.Hostname()) {
		g.Kind = "native"
	}
	return g
}

// register registers the client dynamically (RFC 7591), without a secret if possible.
func (l *Logins) register(ctx context.Context, r Ref, w *way, redirect string) (identity, error) {
	method := methodNone
	if len(w.methods) > 0 && !slices.Contains(w.methods, methodNone) {
		method = chooseMethod(w.methods, "some")
	}
	body, err := json.Marshal(registrationFor(redirect, method))
	if err != nil {
		return identity{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.registerURL, bytes.NewReader(body))
	if err != nil {
		return identity{}, refuse("the address of its registration cannot be read")
	}
	req.Header.Set("Content-Type", "application/json")
	var got struct {
		ID     string `json:"client_id"`
		Secret string `json:"client_secret"`
		Method string `json:"token_endpoint_auth_method"`
	}
	if _, err := l.send(r, req, &got, false); err != nil {
		var status *statusError
		if errors.As(err, &status) && status.status < 500 {
			return identity{}, refuse("its authorization server %s does not register clients automatically (%s): register one there with the redirect address %s and name it in the server's definition (oauth.client_id)",
				toolkeep.ClipBytes(w.issuer, 200), status, redirect)
		}
		return identity{}, err
	}
	if got.ID == "" || len(got.ID) > 2<<10 {
		return identity{}, refuse("its authorization server %s registered a client without an id", toolkeep.ClipBytes(w.issuer, 200))
	}
	switch {
	case got.Secret == "":
		got.Method = methodNone
	case got.Method == "":
		got.Method = methodBasic // RFC 7591's default
	case got.Method != methodBasic && got.Method != methodPost && got.Method != methodNone:
		return identity{}, refuse("its authorization server %s requires a client to authenticate by %s, which is not supported", toolkeep.ClipBytes(w.issuer, 200), toolkeep.ClipBytes(got.Method, 200))
	}
	return identity{got.ID, got.Secret, got.Method}, nil
}
