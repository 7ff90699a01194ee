package oauth

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
)

// requestTime bounds one token request.
const requestTime = 10 * time.Second

// maxToken bounds a token in bytes.
const maxToken = 16 << 10

// maxLife caps a token's lifetime as stated by its server.
const maxLife = 10 * 365 * 24 * time.Hour

// granted is the response of a token endpoint.
type granted struct {
	access, refresh string
	expiry          time.Time // zero: not stated
	scopes          []string  // nil: those requested
}

// grant sends a token request. The error is a *statusError if the endpoint refuses, a
// *refusal if its response is unusable.
func (l *Logins) grant(ctx context.Context, r Ref, at string, who identity, form url.Values) (granted, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	req, err := tokenRequest(ctx, at, who, form)
	if err != nil {
		return granted{}, err
	}
	var got struct {
		Access  string `json:"access_token"`
		Type    string `json:"token_type"`
		Expires any    `json:"expires_in"` // a number; some servers send a string
		Refresh string `json:"refresh_token"`
		Scope   any    `json:"scope"`
		Error   string `json:"error"`
	}
	now := l.c.Clock()
	if _, err := l.send(r, req, &got, false); err != nil {
		return granted{}, err
	}
	switch {
	case got.Error != "": // GitHub sends it with status 200
		if len(got.Error) > 64 || !isScope(got.Error) {
			got.Error = "invalid_request"
		}
		return granted{}, &statusError{status: http.StatusBadRequest, code: got.Error}
	case !isBearer(got.Access):
		return granted{}, refuse("its authorization server gave no token that can be sent")
	case got.Type != "" && !strings.EqualFold(got.Type, "bearer"):
		return granted{}, refuse("its authorization server gave a token of the type %s, which is not supported", toolkeep.ClipBytes(got.Type, 200))
	case len(got.Refresh) > maxToken:
		got.Refresh = ""
	}
	g := granted{access: got.Access, refresh: got.Refresh}
	if s := secondsOf(got.Expires); s > 0 {
		g.expiry = now.Add(min(time.Duration(min(s, maxLife.Seconds())*float64(time.Second)), maxLife))
	}
	if s, ok := got.Scope.(string); ok && s != "" {
		g.scopes = scopesOf(s)
	}
	return g, nil
}

// tokenRequest makes a request to the token or revocation endpoint, with the client's
// identity.
func tokenRequest(ctx context.Context, at string, who identity, form url.Values) (*http.Request, error) {
	if _, err := endpoint(at); err != nil {
		return nil, refuse("the address of its token endpoint is not an https URL")
	}
	if who.method != methodBasic {
		form.Set("client_id", who.id)
	}
	if who.method == methodPost {
		form.Set("client_secret", who.secret)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, refuse("the address of its token endpoint cannot be read")
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if who.method == methodBasic { // both parts are form-encoded first (RFC 6749, 2.3.1)
		pair := url.QueryEscape(who.id) + ":" + url.QueryEscape(who.secret)
		req.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(pair)))
	}
	return req, nil
}

// revoke ends the tokens of a login at the authorization server, if it has an endpoint for
// that: the refresh token first, with which most servers end all that came from it.
func (l *Logins) revoke(ctx context.Context, r Ref, rec record) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	meta, err := l.server(ctx, r, rec.Issuer)
	if err != nil || meta == nil || meta.Revoke == "" {
		return err
	}
	who := identity{rec.ClientID, rec.ClientSecret, rec.Method}
	if r.ClientID == rec.ClientID && r.ClientSecret != nil {
		if who.secret, err = r.secret(ctx); err != nil {
			return err
		}
	}
	for _, t := range []struct{ hint, token string }{{"refresh_token", rec.Refresh}, {"access_token", rec.Access}} {
		if t.token == "" {
			continue
		}
		req, rerr := tokenRequest(ctx, meta.Revoke, who, url.Values{"token": {t.token}, "token_type_hint": {t.hint}})
		if rerr == nil {
			_, rerr = l.send(r, req, nil, false)
		}
		err = errors.Join(err, rerr)
	}
	return err
}

func secondsOf(v any) float64 {
	switch v := v.(type) {
	case float64:
		return v
	case string:
		f, err := strconv.ParseFloat(v, 64)
		if err == nil {
			return f
		}
	}
	return 0
}

// isBearer reports whether a token is valid in an Authorization header.
func isBearer(s string) bool {
	if s == "" || len(s) > maxToken {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] <= 0x20 || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// explain returns the caller's error for a login that could not begin.
func explain(r Ref, err error) error {
	var own *toolkeep.Error
	if errors.As(err, &own) {
		e := *own
		return unsent(&e)
	}
	why := "its authorization server cannot be reached now"
	var said *refusal
	var status *statusError
	switch {
	case errors.As(err, &said):
		why = said.why
	case errors.As(err, &status):
		why = status.Error()
	case errors.Is(err, context.DeadlineExceeded):
		why = "its authorization server did not answer in time"
	}
	e := toolkeep.NewError(toolkeep.MCPError, "the MCP server %s requires a login, and none can begin: %s", r.Server, why).
		With("server", r.Server).Because(err)
	return unsent(e)
}
