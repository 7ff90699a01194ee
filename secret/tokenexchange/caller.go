package tokenexchange

import (
	"encoding/hex"
	"net/url"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
)

const (
	exchangeGrant = "urn:ietf:params:oauth:grant-type:token-exchange"
	typePrefix    = "urn:ietf:params:oauth:token-type:"
	idJAG         = typePrefix + "id-jag"
)

// Reasons of errors about the caller's token, in details.reason.
const (
	callerMissing = "CALLER_TOKEN_MISSING"
	callerExpired = "CALLER_TOKEN_EXPIRED"
	callerRefused = "CALLER_TOKEN_REFUSED"
	callerAsked   = "CALLER_CONSENT_REQUIRED"
	targetRefused = "TARGET_REFUSED"
)

// fromCaller lists parameters that settings.params cannot set in an exchange.
var fromCaller = []string{"subject_token", "subject_token_type", "actor_token", "actor_token_type", "requested_token_type", "audience", "resource"}

// tokenType returns the URI of a setting's type of token: its last word, or the URI itself.
func (s *settings) tokenType(name, otherwise string) string {
	v := s.text(name)
	switch v {
	case "":
		return otherwise
	case "access_token", "id_token", "jwt":
		return typePrefix + v
	}
	if u, err := url.Parse(v); err != nil || u.Scheme == "" || strings.ContainsAny(v, " \t\r\n") {
		s.fault("/settings/"+name, "enum", "settings."+name+" must be access_token, id_token, jwt or the URI of a type of token")
	}
	return v
}

// flag returns a setting that must be true or false.
func (s *settings) flag(name string) bool {
	v, ok := s.spec.Settings[name]
	if !ok || v == nil {
		return false
	}
	set, ok := v.(bool)
	if !ok {
		s.fault("/settings/"+name, "type", "settings."+name+" must be true or false")
	}
	return set
}

// checkCaller validates the settings of the types that need the caller's token, and returns the endpoint of the
// identity provider, nil without one.
func (s *settings) checkCaller() (idp *url.URL) {
	s.tokenType("subject_token_type", "")
	for name := range s.params() {
		if given, _ := s.spec.Settings["params"].(map[string]any); given[name] == nil {
			continue
		}
		for _, own := range fromCaller {
			if name == own {
				s.fault("/settings/params/"+name, "enum", "settings.params cannot set "+name)
			}
		}
	}
	if s.spec.Type == Exchange {
		s.tokenType("requested_token_type", "")
		s.flag("actor")
		return nil
	}
	if s.text("audience") == "" {
		s.fault("/settings/audience", "required", s.spec.Type+" needs settings.audience, the issuer of the authorization server at token_url")
	}
	text := s.text("idp_token_url")
	if text == "" {
		s.fault("/settings/idp_token_url", "required", s.spec.Type+" needs settings.idp_token_url, the token endpoint of the identity provider")
		return nil
	}
	idp, why := parseEndpoint(text)
	if why != "" {
		s.fault("/settings/idp_token_url", "format", why)
	}
	return idp
}

// exchangeOf makes the grant that exchanges the caller's token (RFC 8693).
func (g *grant) exchangeOf(s *settings, c credential) error {
	g.kind, g.subjectType = exchangeGrant, s.tokenType("subject_token_type", typePrefix+"access_token")
	g.requested = s.tokenType("requested_token_type", "")
	if s.flag("actor") {
		actor := *g
		actor.kind, actor.subjectType, actor.requested, actor.scope, actor.params = "client_credentials", "", "", "", nil
		g.first, g.takes = &actor, "actor_token"
	}
	return c.need(c.ClientID != "" && c.ClientSecret != "", "must be client_id:client_secret, or JSON with client_id and client_secret")
}

// assertionOf makes the two grants of an identity assertion: the identity provider at idp exchanges the caller's token
// for an assertion, and the authorization server of the upstream takes that for an access token.
func (g *grant) assertionOf(s *settings, c credential, idp *url.URL) error {
	first := *g
	first.endpoint, first.kind, first.subjectType, first.requested = idp, exchangeGrant, s.tokenType("subject_token_type", typePrefix+"id_token"), idJAG
	if c.IDPClientID != "" {
		first.clientID, first.clientSecret = c.IDPClientID, c.IDPClientSecret
	}
	g.kind, g.params = jwtBearer, nil
	g.first, g.takes = &first, "assertion"
	for _, one := range []*grant{g, &first} { // a public client has nothing to prove
		one.basic = one.basic && one.clientSecret != ""
	}
	return c.need(c.ClientID != "" && (c.IDPClientID != "" || c.IDPClientSecret == ""),
		"must be client_id:client_secret, or JSON with client_id, client_secret if it has one and, where the identity provider knows Toolkeep as another client, idp_client_id and idp_client_secret")
}

// forCaller adds the caller's token.
func (g *grant) forCaller(p *toolkeep.Principal, now time.Time) error {
	if p == nil || p.Token == nil {
		return unusable("the tool acts with its caller's own access token, and the call has none").With("reason", callerMissing)
	}
	if !now.Before(p.Token.Ends()) {
		return unusable("the access token that the call came with has expired; send the call again with a new one").With("reason", callerExpired)
	}
	g.caller = p.Token
	if g.subjectType == "" {
		g.first.caller = p.Token
	}
	return nil
}

// holderOf is what tells the tokens of callers apart: the person and the agent as well as the token.
func holderOf(p *toolkeep.Principal) []string {
	sum := p.Token.Sum()
	return []string{hex.EncodeToString(sum[:]), p.Subject, p.OnBehalf, p.Workspace}
}

// exchangeRefused is the error of a refused exchange, by the server's error code.
func exchangeRefused(code string) *toolkeep.Error {
	name, _, _ := strings.Cut(code, " ")
	reason, what := "", "the authorization server refuses to exchange the caller's token"
	switch name {
	case "":
	case "interaction_required", "consent_required", "login_required":
		reason = callerAsked
		what += ": " + code + "; the person must sign in there or consent first"
	case "invalid_grant", "invalid_token":
		reason = callerRefused
		what += ": " + code + "; it may have ended, or be for another audience than this server exchanges"
	case "invalid_target", "invalid_resource":
		reason = targetRefused
		what += ": " + code + "; it issues no token for the tool's settings.audience and settings.resource to this client or person"
	default:
		what += ": " + code
	}
	e := unusable("%s", what)
	if reason != "" {
		_ = e.With("reason", reason)
	}
	return e
}
