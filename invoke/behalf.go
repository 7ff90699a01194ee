package invoke

import (
	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/secret"
)

// Reasons for which a call has no token of its caller, in details.reason.
const (
	callerMissing = "CALLER_TOKEN_MISSING"
	callerWaits   = "CALLER_TOKEN_CANNOT_WAIT"
)

// actsForCaller reports whether the call needs its caller's own token: every alternative of the tool's auth does, or
// the first does and the call has one, or the tool's executor says so.
func (p *Pipeline) actsForCaller(a *activeCall) bool {
	m := a.tool.Manifest
	if ex, ok := p.Executors[m.Execution.Kind].(toolkeep.CallerActor); ok && ex.ActsForCaller(a.principal, a.tool) {
		return true
	}
	for _, spec := range m.Auth {
		if !needsCaller(spec) {
			return false
		}
		if takesCaller(a.principal, spec) {
			return true
		}
	}
	return len(m.Auth) > 0
}

// takesCaller reports whether a call uses the alternative with its caller's own token. No call goes past such a one.
func takesCaller(p *toolkeep.Principal, spec toolkeep.AuthSpec) bool {
	return p.Token != nil && needsCaller(spec)
}

// mayActForCaller reports whether the result may be what the caller's own token let see.
func (p *Pipeline) mayActForCaller(a *activeCall) bool {
	for _, spec := range a.tool.Manifest.Auth {
		if takesCaller(a.principal, spec) {
			return true
		}
	}
	return p.actsForCaller(a)
}

func needsCaller(spec toolkeep.AuthSpec) bool {
	for _, s := range secret.Entries(spec) {
		if s.NeedsCaller() {
			return true
		}
	}
	return false
}

// withCaller refuses a call of a tool that acts with its caller's own rights if it has no token of its caller, or
// could not keep it: tokens are not stored, so no call that waits has one. E3402.
func (p *Pipeline) withCaller(a *activeCall) error {
	switch {
	case !p.actsForCaller(a):
		return nil
	case a.mode == modeWorker:
		return noToken(callerWaits, "%s acts with its caller's own access token, which is not kept for a call that waits or was interrupted; send the call again, neither async nor so that it needs approval", a.tool.Ref())
	case a.principal.Token == nil:
		return callerUnknown(a.tool.Ref())
	case a.call.Async:
		return noToken(callerWaits, "%s acts with its caller's own access token, which is not kept for a call that waits; send the call without async", a.tool.Ref())
	}
	return nil
}

// withoutApproval refuses to park a call that could not run after it was approved. E3402.
func (p *Pipeline) withoutApproval(a *activeCall, why string) error {
	if !p.actsForCaller(a) {
		return nil
	}
	return noToken(callerWaits, "%s needs a person's approval (%s), and acts with its caller's own access token, which is not kept for a call that waits; lower what asks for the approval, or give the tool an auth of its own", a.tool.Ref(), why)
}

func callerUnknown(ref string) *toolkeep.Error {
	return noToken(callerMissing, "%s acts with its caller's own access token, and the call came without one for this person; call it with an access token of an issuer (oauth.issuer, oauth.issuers_file) as the bearer, and not for another agent_id or user_id", ref)
}

func noToken(reason, format string, args ...any) *toolkeep.Error {
	e := toolkeep.NewError(toolkeep.SecretAccessDenied, format, args...).With("reason", reason)
	e.NothingSent = true
	return e
}
