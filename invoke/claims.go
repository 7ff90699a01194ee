package invoke

import (
	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/canon"
)

// A call that waits has no token any more when it goes on. What the token said of its caller stays with it, sealed, if a
// policy could ask for it: the policy then decides by what was so when the call was admitted, as roles do.

// callerContext binds a sealed caller to its call.
func callerContext(v *toolkeep.Invocation) []byte { return []byte("caller:" + v.Tenant + ":" + v.ID) }

// ofSessions reports whether credentials of a method may belong to a session.
func ofSessions(method string) bool {
	return method == access.MethodOAuth || method == access.MethodProxy
}

// sealCaller seals the session and the claims of a call that will wait; also that there are none.
func (p *Pipeline) sealCaller(a *activeCall) error {
	pr := a.principal
	if p.Access.Policy() == nil || pr.SessionUnknown || !ofSessions(pr.Method) {
		return nil
	}
	kept := map[string]any{"session": pr.Session}
	if pr.Claims != nil {
		kept["claims"] = pr.Claims.Tree()
	}
	sealed, err := p.Sealer.Seal(canon.Append(nil, kept), callerContext(&a.row))
	if err != nil {
		return recordUnavailable(err)
	}
	a.row.SealedCaller = sealed
	return nil
}

// openCaller returns the principal with what sealCaller stored.
func (p *Pipeline) openCaller(pr *toolkeep.Principal, row *toolkeep.Invocation) (*toolkeep.Principal, error) {
	if row.SealedCaller == nil {
		if !ofSessions(pr.Method) {
			return pr, nil
		}
		own := *pr
		own.SessionUnknown = true
		return &own, nil
	}
	raw, err := p.unseal(row.SealedCaller, callerContext(row))
	if err != nil {
		return nil, err
	}
	kept, err := canon.ParseObject(raw, canon.Limits{Properties: 2000}) // a token has at most 1,000
	if err != nil {
		return nil, err
	}
	own := *pr
	own.Session, _ = kept["session"].(string)
	if claims, there := kept["claims"].(map[string]any); there {
		own.Claims = toolkeep.NewClaims(claims)
	}
	return &own, nil
}
