package access

import (
	"slices"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/capability"
	"github.com/toolkeep/toolkeep/access/jwt"
)

// narrow adds the check of the call's capability token to a decision, after tenant and scope.
// A call without a token owes one only if Config.TokenRequired. Of a waiting call, which has a
// Grant, the token's times were checked when it was admitted; the rest holds now too.
func (a *Access) narrow(d Decision, p *toolkeep.Principal, t *toolkeep.Tool, c *toolkeep.Call) Decision {
	if c == nil || c.Token == "" && c.Grant == nil && !a.config.TokenRequired { // nil: what is asked is no call
		return d
	}
	grant, err := a.grant(p, t, c)
	check := Check{Name: CheckToken, Allowed: err == nil, Reason: "the capability token allows the call"}
	if err != nil {
		check.Reason = err.Message
	}
	at := len(d.Checks)
	if i := slices.IndexFunc(d.Checks, func(c Check) bool { return c.Name == CheckScope }); i >= 0 {
		at = i + 1
	}
	first := slices.IndexFunc(d.Checks, func(c Check) bool { return !c.Allowed })
	d.Checks = slices.Insert(slices.Clone(d.Checks), at, check)
	if err != nil {
		if first < 0 || first >= at {
			d.Code, d.Reason, d.Cause = err.Code, err.Message, err.Cause
		}
		d.Allowed = false
		return d
	}
	d.Grant = grant
	return d
}

// grant verifies the call's token. E3207, E3208, E3209, E3210, E3211, E3215.
func (a *Access) grant(p *toolkeep.Principal, t *toolkeep.Tool, c *toolkeep.Call) (*toolkeep.Grant, *toolkeep.Error) {
	var token *capability.Token
	switch {
	case c.Token != "":
		var err *toolkeep.Error
		if token, err = a.verify(c.Token); err != nil {
			return nil, err
		}
	case c.Grant != nil:
		if a.config.Tokens == nil {
			return nil, noTokens()
		}
		if err := a.config.Tokens.Revoked(c.Grant); err != nil {
			return nil, err
		}
		token = capability.OfGrant(c.Grant)
	default:
		return nil, toolkeep.NewError(toolkeep.TokenMissing,
			"this server demands a capability token with each call (access.mode); send one in X-Capability-Token")
	}
	if err := token.Allows(p, t); err != nil {
		return nil, err
	}
	return &token.Grant, nil
}

func (a *Access) verify(text toolkeep.CapabilityToken) (*capability.Token, *toolkeep.Error) {
	if a.config.Tokens == nil {
		return nil, noTokens()
	}
	return a.config.Tokens.Verify(text)
}

func noTokens() *toolkeep.Error {
	return toolkeep.NewError(toolkeep.TokenInvalid, "this server verifies no capability tokens; leave the one that was sent out")
}

// WithToken returns the principal of a request that is no call and carries a capability token.
// The token must be valid and the principal's own. The principal sees what both its roles and the
// token allow, and has none of its permissions. E3207, E3208, E3209, E3210, E3215.
func (a *Access) WithToken(p *toolkeep.Principal, text toolkeep.CapabilityToken) (*toolkeep.Principal, error) {
	token, err := a.verify(text)
	switch {
	case err != nil:
		return nil, err
	case token.Grant.Tenant != p.Tenant || token.Grant.Agent != p.Subject:
		return nil, toolkeep.NewError(toolkeep.TokenScopeMismatch, "the capability token is for another agent or tenant than the caller's")
	}
	own := *p
	own.Permissions, own.Narrowed = nil, token
	if ends := token.Expires.Add(jwt.Skew); own.Until.IsZero() || ends.Before(own.Until) { // streams end with the token
		own.Until = ends
	}
	return &own, nil
}

// Sees returns the principal as it sees tools for a call, which is p itself without a token. What
// is wrong with a token is for Authorise to tell.
func (a *Access) Sees(p *toolkeep.Principal, c *toolkeep.Call) *toolkeep.Principal {
	var token *capability.Token
	switch {
	case c.Token != "":
		var err *toolkeep.Error
		if token, err = a.verify(c.Token); err != nil {
			return p
		}
	case c.Grant != nil:
		token = capability.OfGrant(c.Grant)
	default:
		return p
	}
	own := *p
	own.Narrowed = token
	return &own
}

// DenyToken returns the decision refused by what the call's token does not allow.
func (d Decision) DenyToken(err *toolkeep.Error) Decision {
	checks := slices.Clone(d.Checks)
	for i := range checks {
		if checks[i].Name == CheckToken {
			checks[i].Allowed, checks[i].Reason = false, err.Message
		}
	}
	d.Checks = checks
	if d.Allowed {
		d.Allowed, d.Code, d.Reason = false, err.Code, err.Message
	}
	return d
}
