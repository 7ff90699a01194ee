package access

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/jwt"
	"github.com/toolkeep/toolkeep/canon"
)

const (
	// freshlyExpired is how long after expiry a token is not counted as a failure:
	// clients learn from the refusal that they need a new one.
	freshlyExpired = time.Hour
	maxClaim       = 256 // bytes, for subject and tenant each
	maxTokenScopes = 1000
	// Limits of the claims that policies read. Of a token with more they are not known.
	maxClaims      = 64
	maxClaimsDepth = 8
)

// looksLikeToken reports whether a bearer is a JSON Web Token; an API key has no dots.
func looksLikeToken(bearer string) bool {
	return strings.HasPrefix(bearer, "eyJ") && strings.Count(bearer, ".") == 2
}

// session is a verified token. It lasts as long as the token and the issuer's keys.
type session struct {
	subject, tenant string
	onBehalf        string   // "" for none
	chain           []string // nil for none
	workspace       string   // "" for none
	id              string   // of the session at the issuer, "" for none
	claims          *toolkeep.Claims
	size            int // of the claims in bytes
	roles           []string
	until           time.Time
	rights          atomic.Pointer[rights]
}

// refusal is the reason for refusing a token.
type refusal struct {
	reason          string // for Failure
	message         string // for the caller
	proven          bool   // the signature is valid, so the claims are the issuer's
	quiet           bool   // not counted as a failure
	tenant, subject string
}

// token authenticates a caller by its access token.
func (a *Access) token(ctx context.Context, bearer, addr, net string) (*toolkeep.Principal, error) {
	if len(a.issuers) == 0 {
		return nil, a.guessed(Failure{Reason: "malformed", Addr: addr}, net, "no OAuth issuer is configured; send an API key")
	}
	if len(bearer) > jwt.MaxToken {
		return nil, a.guessed(Failure{Reason: "malformed", Addr: addr}, net, fmt.Sprintf("the token is longer than %d bytes", jwt.MaxToken))
	}
	s, no, err := a.issuers.session(ctx, bearer)
	if err != nil {
		a.tell(Failure{Reason: "issuer_unavailable", Addr: addr})
		return nil, err
	}
	if no != nil {
		f := Failure{Reason: no.reason, Tenant: no.tenant, Subject: no.subject, Addr: addr}
		switch {
		case no.quiet:
			a.tell(f)
			return nil, toolkeep.NewError(toolkeep.Unauthenticated, "%s", no.message)
		case no.proven:
			return nil, a.outdated(f, net, no.message)
		}
		return nil, a.guessed(f, net, no.message)
	}
	r := a.rightsOf(&s.rights, s.tenant, s.roles)
	return &toolkeep.Principal{Subject: s.subject, Tenant: s.tenant, Roles: r.roles, Method: MethodOAuth,
		OnBehalf: s.onBehalf, Chain: s.chain, Workspace: s.workspace, Session: s.id, Claims: s.claims,
		Permissions: r.permissions, Addr: addr, Until: s.until,
		Token: toolkeep.NewCallerToken(bearer, s.until.Add(-jwt.Skew))}, nil
}

// refreshOutside is Refresh for a caller without an API key. What it showed is not stored, so its
// roles are limited to those that the configuration still gives by the way it came in; by any, if
// that was not stored. A token or certificate that has expired or been revoked since does not end the
// calls it admitted. own are the roles that the caller's own certificate gives now, nil if it is not known.
func (a *Access) refreshOutside(p *toolkeep.Principal, own []string) (*toolkeep.Principal, error) {
	var give []string
	by := func(method string) bool { return p.Method == "" || p.Method == method }
	if by(MethodOAuth) {
		give = append(give, a.issuers.roles(p.Tenant)...)
	}
	switch {
	case a.certificates == nil || !by(MethodMTLS):
	case own != nil:
		give = append(give, own...)
	default:
		give = append(give, a.certificates.Get().roles()...)
	}
	if len(a.config.Signing.Proxy) > 0 && by(MethodProxy) {
		give = append(give, a.config.Signing.ProxyRoles...)
	}
	if give == nil {
		return nil, toolkeep.NewError(toolkeep.Unauthenticated, "the call was admitted without an API key, by an OAuth issuer, a rule of certificates or a trusted proxy that is not configured any more")
	}
	now := *p
	now.Roles = nil
	for _, r := range p.Roles {
		if slices.Contains(give, r) {
			now.Roles = append(now.Roles, r)
		}
	}
	if now.Method == "" { // of a stored principal
		now.Method = MethodOAuth
	}
	r := a.current.Load().rights(now.Tenant, now.Roles)
	now.Roles, now.Permissions = r.roles, r.permissions
	return &now, nil
}

// session verifies a token, and remembers it by its digest. err means that it cannot be verified now.
func (o *issuer) session(ctx context.Context, token string, sum [sha256.Size]byte) (*session, *refusal, error) {
	h, no := readHeader(token)
	if no != nil {
		return nil, no, nil
	}
	set, key, no, err := o.key(ctx, h)
	if no != nil || err != nil {
		return nil, no, err
	}
	payload, err := key.Verify([]byte(token), h.Alg)
	if err != nil {
		return nil, &refusal{reason: "wrong_signature", message: "the token's signature is not valid"}, nil
	}
	s, no := o.read(payload)
	if no == nil {
		set.remember(sum, s)
	}
	return s, no, nil
}

// remembered returns the session of a token that the current keys have verified.
func (o *issuer) remembered(sum [32]byte) *session {
	if set := o.current(); set != nil {
		return set.session(sum)
	}
	return nil
}

// key returns the issuer's key that the token names. An unknown key triggers a fetch,
// at most one every Floor.
func (o *issuer) key(ctx context.Context, h jwt.Header) (*keyset, *jwt.Key, *refusal, error) {
	set := o.current()
	if k := set.find(h); k != nil {
		return set, k, nil, nil
	}
	fetched := o.ask(ctx)
	if set = o.current(); set == nil {
		return nil, nil, nil, o.unavailable("the keys of the token's issuer are not available now; try again shortly")
	}
	if k := set.find(h); k != nil {
		return set, k, nil, nil
	}
	if o.failing() != nil || ctx.Err() != nil { // it may be a new key
		return nil, nil, nil, o.unavailable("the token names an unknown key, and the issuer cannot be reached now; try again shortly")
	}
	no := &refusal{reason: "unknown_key", message: "the issuer does not publish the key that signed the token", quiet: !fetched}
	if h.KeyID == "" {
		no.message = "the token names no key (kid), and the issuer does not publish exactly one for its algorithm"
	}
	return nil, nil, no, nil
}

func (o *issuer) unavailable(message string) error {
	return toolkeep.NewError(toolkeep.RegistryUnavailable, "%s", message).Because(o.failing()).After(o.c.Floor)
}

// readHeader checks a token's header.
func readHeader(token string) (jwt.Header, *refusal) {
	h, err := jwt.ReadHeader(token, "at+jwt", "jwt")
	if err != nil {
		return h, &refusal{reason: "malformed", message: "the token cannot be used: " + err.Error()}
	}
	return h, nil
}

// read checks the claims of a token with a valid signature.
func (o *issuer) read(payload []byte) (*session, *refusal) {
	m, err := canon.ParseObject(payload, canon.Limits{Depth: 32})
	if err != nil {
		return nil, &refusal{reason: "malformed", message: "the token's claims are not a JSON object"}
	}
	if iss, _ := m["iss"].(string); iss != o.c.Issuer {
		return nil, &refusal{reason: "wrong_issuer", message: "the token's issuer (iss) must be " + o.c.Issuer}
	}
	s := &session{}
	no := &refusal{reason: "wrong_claims", proven: true}
	if s.subject, err = name(m, o.c.SubjectClaim); err != nil {
		no.message = "the token's claim " + o.c.SubjectClaim + " must name the subject: " + err.Error()
		return nil, no
	}
	no.subject = s.subject
	if err := o.readActors(m, s); err != nil {
		no.message = err.Error()
		return nil, no
	}
	no.subject = s.subject
	s.tenant, err = name(m, o.c.TenantClaim)
	if errors.Is(err, jwt.ErrNoClaim) && o.c.DefaultTenant != "" {
		s.tenant, err = o.c.DefaultTenant, nil
	}
	if err != nil {
		no.message = "the token's claim " + o.c.TenantClaim + " must name the tenant: " + err.Error()
		return nil, no
	}
	if !o.mayName(s.tenant) {
		no.message = "the token's issuer has no callers of the tenant that it names"
		return nil, no
	}
	no.tenant = s.tenant
	if o.c.WorkspaceClaim != "" {
		if s.workspace, err = name(m, o.c.WorkspaceClaim); err != nil && !errors.Is(err, jwt.ErrNoClaim) {
			no.message = "the token's claim " + o.c.WorkspaceClaim + " must name the workspace: " + err.Error()
			return nil, no
		}
	}
	if id, err := name(m, "sid"); err == nil { // else it is not known: what only policies read refuses no token
		s.id = id
	}
	if !o.forUs(m["aud"]) {
		no.reason, no.message = "wrong_audience", "the token is for another server; ask the issuer for one whose audience (aud) is "+o.audience()[0]
		return nil, no
	}
	exp, err := jwt.Moment(m, "exp")
	if err != nil {
		no.message = err.Error()
		return nil, no
	}
	if s.until = exp.Add(jwt.Skew); !o.now().Before(s.until) {
		return nil, o.expired(s.tenant, s.subject, s.until)
	}
	if nbf, err := jwt.Moment(m, "nbf"); err == nil && o.now().Add(jwt.Skew).Before(nbf) {
		no.reason, no.message = "not_yet_valid", "the token is not valid yet"
		return nil, no
	} else if err != nil && !errors.Is(err, jwt.ErrNoClaim) {
		no.message = err.Error()
		return nil, no
	}
	scopes, err := scopesOf(m)
	if err != nil {
		no.message = err.Error()
		return nil, no
	}
	s.roles = o.grants(scopes)
	s.readClaims(m)
	return s, nil
}

// readClaims keeps the claims for policies, but for those that identify the token or the session, and what an ID token
// was bound to: they say nothing of the caller, and could help to use either again. The chain has what act says.
func (s *session) readClaims(m map[string]any) {
	for _, name := range [...]string{"act", "jti", "sid", "nonce", "at_hash", "c_hash", "s_hash"} {
		delete(m, name)
	}
	if len(m) <= maxClaims && canon.Check(m, maxClaimsDepth) == nil {
		text := canon.Append(nil, m)
		s.claims, s.size = toolkeep.NewClaims(m), len(text)+claimBytes*bytes.Count(text, []byte(","))
	}
}

func (o *issuer) expired(tenant, subject string, until time.Time) *refusal {
	return &refusal{reason: "expired", message: "the token expired; ask the issuer for another", proven: true,
		quiet: o.now().Sub(until) < freshlyExpired, tenant: tenant, subject: subject}
}

// audience returns the accepted values of aud.
func (o *issuer) audience() []string {
	if len(o.c.Audience) > 0 {
		return o.c.Audience
	}
	return []string{o.c.BaseURL()}
}

// forUs reports whether aud names this server. Without a configured audience that is
// the server's URL or one of its MCP endpoints, which clients name as the resource.
func (o *issuer) forUs(aud any) bool {
	list, ok := aud.([]any)
	if !ok {
		list = []any{aud}
	}
	for _, v := range list {
		s, ok := v.(string)
		if !ok || s == "" {
			continue
		}
		if len(o.c.Audience) > 0 {
			if slices.Contains(o.c.Audience, s) {
				return true
			}
			continue
		}
		if rest, ok := strings.CutPrefix(s, o.c.BaseURL()); ok && (rest == "" || rest == "/" || isResource(rest)) {
			return true
		}
	}
	return false
}

// grants returns the roles of scopes, sorted and without duplicates.
func (o *issuer) grants(scopes []string) []string {
	var roles []string
	for _, s := range scopes {
		if r, ok := o.c.Scopes[s]; ok {
			roles = append(roles, r)
		}
	}
	slices.Sort(roles)
	return slices.Compact(roles)
}

// readActors reads who acts for the token's subject (act, RFC 8693 4.1). The caller is then the current actor, and
// acts on behalf of the token's subject and of the earlier actors, the nested ones.
func (o *issuer) readActors(m map[string]any, s *session) error {
	var actors []string // the current one first
	for at, act := "act", m["act"]; act != nil; at += ".act" {
		one, ok := act.(map[string]any)
		if !ok {
			return fmt.Errorf("the token's claim %s must be an object that names who acts", at)
		}
		if len(actors) == toolkeep.MaxChain {
			return fmt.Errorf("the token's claim act names more than %d actors", toolkeep.MaxChain)
		}
		actor, err := name(one, o.c.SubjectClaim)
		if errors.Is(err, jwt.ErrNoClaim) {
			actor, err = name(one, "sub")
		}
		if err != nil {
			return fmt.Errorf("the token's claim %s must name who acts (sub): %w", at, err)
		}
		if iss, there := one["iss"]; there && iss != o.c.Issuer { // its names are not this issuer's
			from, err := name(one, "iss")
			if err == nil && len(from)+len(actor) >= maxClaim {
				err = fmt.Errorf("iss and sub must have fewer than %d bytes together", maxClaim)
			}
			if err != nil {
				return fmt.Errorf("the token's claim %s must name the issuer of who acts: %w", at, err)
			}
			actor = from + "#" + actor
		}
		actors, act = append(actors, actor), one["act"]
	}
	if actors == nil || len(actors) == 1 && actors[0] == s.subject {
		return nil
	}
	s.chain = []string{s.subject}
	for _, earlier := range slices.Backward(actors[1:]) {
		s.chain = append(s.chain, earlier)
	}
	if actors[0] != s.subject {
		s.onBehalf, s.subject = s.subject, actors[0]
	}
	return nil
}

// name reads a claim with a subject, tenant or workspace.
func name(m map[string]any, claim string) (string, error) {
	v, there := m[claim]
	if !there || v == nil {
		return "", jwt.ErrNoClaim
	}
	s, ok := v.(string)
	if !ok || s == "" || len(s) > maxClaim || !plain(s) || strings.TrimSpace(s) != s {
		return "", fmt.Errorf("it must be text of 1 to %d bytes, without control characters and without spaces at its ends", maxClaim)
	}
	return s, nil
}

// scopesOf returns a token's scopes: scope, separated by spaces, or scp, which may also
// be an array. A token may have neither.
func scopesOf(m map[string]any) ([]string, error) {
	var out []string
	for _, claim := range []string{"scope", "scp"} {
		switch v := m[claim].(type) {
		case nil:
		case string:
			out = append(out, strings.Fields(v)...)
		case []any:
			for _, e := range v {
				s, ok := e.(string)
				if !ok {
					return nil, fmt.Errorf("the token's claim %s must be a list of strings", claim)
				}
				out = append(out, s)
			}
		default:
			return nil, fmt.Errorf("the token's claim %s must be a string or a list of strings", claim)
		}
	}
	if len(out) > maxTokenScopes {
		return nil, fmt.Errorf("the token has more than %d scopes", maxTokenScopes)
	}
	return out, nil
}
