package tokenexchange

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/egress"
)

const (
	maxAnswer  = 256 << 10
	maxToken   = 64 << 10
	maxExpires = 365 * 24 * time.Hour
)

// answer is a token endpoint's response.
type answer struct {
	token   string
	life    time.Duration // 0 is unknown
	refresh string        // "" keeps the old one
}

// exchange makes one request for a token, after the request that it needs the token of.
func (g grant) exchange(ctx context.Context, client *http.Client, now time.Time) (answer, error) {
	if g.first != nil {
		a, err := g.first.exchange(ctx, client, now)
		if err != nil {
			return answer{}, err
		}
		g.given = a.token
	}
	form, err := g.form(now)
	if err != nil {
		return answer{}, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, g.endpoint.String(), strings.NewReader(form.Encode()))
	if err != nil {
		return answer{}, unusable("the token endpoint's address cannot be used")
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "application/json")
	if g.basic {
		r.SetBasicAuth(url.QueryEscape(g.clientID), url.QueryEscape(g.clientSecret))
	}
	c := *client
	c.Timeout = 0
	c.CheckRedirect = egress.NoRedirects
	resp, err := c.Do(r)
	if err != nil {
		return answer{}, sendFailed(ctx, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	defer clear(body)
	switch {
	case err != nil:
		return answer{}, unreachable("the token endpoint's answer broke off").Because(plainCause(err))
	case len(body) > maxAnswer:
		return answer{}, unreachable("the token endpoint's answer is over the limit of 256 KiB")
	}
	return g.read(resp, body)
}

// sendFailed keeps the error of a network guard and drops anything that could contain the address.
func sendFailed(ctx context.Context, err error) *toolkeep.Error {
	var known *toolkeep.Error
	if errors.As(err, &known) {
		return known
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return unreachable("the token endpoint did not answer in time").Because(plainCause(err))
	}
	return unreachable("the token endpoint could not be reached").Because(plainCause(err))
}

func plainCause(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// read turns a response into a token or the caller's error.
func (g grant) read(resp *http.Response, body []byte) (answer, error) {
	obj, err := canon.ParseObject(body, canon.Limits{Bytes: maxAnswer})
	isJSON := err == nil && len(body) > 0
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); !isJSON && kind == "application/x-www-form-urlencoded" {
		obj, isJSON = fromForm(string(body)), true
	}
	code := errorCode(obj)
	status := resp.StatusCode
	switch {
	case status == http.StatusTooManyRequests || status == http.StatusRequestTimeout || status >= 500 ||
		code == "temporarily_unavailable" || code == "server_error" || code == "slow_down":
		return answer{}, unreachable("the token endpoint answered with status %d", status).After(egress.RetryAfter(resp.Header.Get("Retry-After"), time.Now())).With("status", status)
	case status >= 400 || isJSON && obj["error"] != nil:
		e := unusable("the token endpoint refuses the credential")
		switch {
		case g.caller != nil && code != "invalid_client":
			e = exchangeRefused(code)
		case code != "":
			e = unusable("the token endpoint refuses the credential: %s", code)
		}
		if code != "" {
			_ = e.With("oauth_error", code)
		}
		return answer{}, e.With("status", status)
	case status >= 300:
		return answer{}, unreachable("the token endpoint answered with a redirect, which is not followed with a credential").With("status", status)
	case status != http.StatusOK && status != http.StatusCreated || !isJSON:
		return answer{}, unreachable("the token endpoint answered with something that is not a token").With("status", status)
	}
	return g.token(obj)
}

func (g grant) token(obj map[string]any) (answer, error) {
	var a answer
	a.token, _ = obj[g.field].(string)
	kind, typed := obj["token_type"].(string)
	issued, given := obj["issued_token_type"].(string)
	switch {
	case a.token == "" || len(a.token) > maxToken || strings.ContainsFunc(a.token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return answer{}, unreachable("the token endpoint answered without a token that can be sent")
	case g.requested != "" && given && issued != g.requested, g.requested == idJAG && !given:
		return answer{}, unusable("the token endpoint answered with a token of another type than was asked for")
	case g.requested == idJAG || g.requested != "" && g.requested != typePrefix+"access_token" && strings.EqualFold(kind, "N_A"):
	case g.field == "access_token" && typed && kind != "" && !strings.EqualFold(kind, "bearer"):
		return answer{}, unusable("the token endpoint answered with a token of another type than bearer")
	}
	a.refresh, _ = obj["refresh_token"].(string)
	if g.refresh == "" || len(a.refresh) > maxToken {
		a.refresh = ""
	}
	a.life = lifeOf(obj["expires_in"])
	if g.field == "id_token" {
		a.life = assertionLife // Google's identity tokens live for an hour
	}
	return a, nil
}

// lifeOf parses seconds, which some servers write as text.
func lifeOf(v any) time.Duration {
	var text string
	switch v := v.(type) {
	case json.Number:
		text = v.String()
	case string:
		text = v
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || !(seconds >= 1) {
		return 0
	}
	return time.Duration(min(seconds, maxExpires.Seconds())) * time.Second
}

func fromForm(body string) map[string]any {
	values, err := url.ParseQuery(body)
	if err != nil {
		return nil
	}
	obj := make(map[string]any, len(values))
	for k := range values {
		obj[k] = values.Get(k)
	}
	return obj
}

// known lists the error codes that are passed on. Any other text could echo the request.
var known = []string{"invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type",
	"invalid_scope", "invalid_target", "access_denied", "interaction_required", "consent_required", "login_required",
	"server_error", "temporarily_unavailable", "slow_down", "invalid_token", "insufficient_scope", "invalid_resource",
	"bad_refresh_token", "incorrect_client_credentials", "unauthorized", "disabled_client", "org_internal", "deleted_client",
	"admin_policy_enforced", "unsupported_token_type"}

// errorCode returns the error of a response, with Microsoft's number if present.
func errorCode(obj map[string]any) string {
	code, _ := obj["error"].(string)
	if !slices.Contains(known, code) {
		code = ""
	}
	if list, ok := obj["error_codes"].([]any); ok && len(list) > 0 {
		if n, ok := list[0].(json.Number); ok && canon.IsInteger(n.String()) && len(n) <= 9 {
			code = strings.TrimSpace(code + " AADSTS" + n.String())
		}
	}
	return code
}

// unusable makes E3402.
func unusable(format string, args ...any) *toolkeep.Error {
	return refuse(toolkeep.SecretAccessDenied, format, args...)
}

// checkEndpoint requires TLS unless permissions.network names the exact host.
func checkEndpoint(u *url.URL, allow []toolkeep.HostPort) error {
	if u.Scheme == "https" {
		return nil
	}
	port, _ := strconv.Atoi(u.Port())
	if port == 0 {
		port = 80
	}
	for _, a := range allow {
		if strings.EqualFold(strings.TrimSuffix(a.Host, "."), strings.TrimSuffix(u.Hostname(), ".")) && (a.Port == 0 || a.Port == port) {
			return nil
		}
	}
	return unusable("the token endpoint is http, which would send the credential in the clear; use https, or name the host under permissions.network if it is meant")
}
