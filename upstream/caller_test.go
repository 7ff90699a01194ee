package upstream

import (
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// TestCallerKeys: where a server acts for its callers, a session is for one token of one caller, and no other session
// keeps a token.
func TestCallerKeys(t *testing.T) {
	auth := &toolkeep.AuthSpec{Type: "oauth2_identity_assertion"}
	who := func(token string, change func(*toolkeep.Principal)) *toolkeep.Principal {
		p := &toolkeep.Principal{Tenant: "acme", Subject: "bot", OnBehalf: "ann", Token: toolkeep.NewCallerToken(token, time.Now())}
		if change != nil {
			change(p)
		}
		return p
	}
	all := []*toolkeep.Principal{
		who("1", nil), who("2", nil), who("1", func(p *toolkeep.Principal) { p.OnBehalf = "bob" }), who("1", func(p *toolkeep.Principal) { p.Tenant = "other" }),
		who("1", func(p *toolkeep.Principal) { p.Subject = "alice" }), who("1", func(p *toolkeep.Principal) { p.Workspace = "w" }), who("1", func(p *toolkeep.Principal) { p.Token = nil }),
	}
	for _, session := range []string{SessionPrincipal, SessionCall} {
		seen := map[key]bool{}
		for i, p := range all {
			k := selectSession(&Spec{Session: session, Auth: auth}, &Request{Principal: p}).key
			if seen[k] {
				t.Errorf("%s: caller %d shares a session", session, i)
			}
			seen[k] = true
			if got := principalOf(k, p); got.Token != p.Token || got.Subject != p.Subject || got.OnBehalf != p.OnBehalf {
				t.Errorf("%s: caller %d is %+v", session, i, got)
			}
			if i > 0 && i < 6 {
				if got := principalOf(k, all[0]); got.Token != nil && p.Token.Sum() != all[0].Token.Sum() {
					t.Errorf("%s: caller %d has the token of another", session, i)
				}
			}
		}
	}
	for _, session := range []string{SessionShared, SessionPrincipal, SessionCall} {
		k := selectSession(&Spec{Session: session}, &Request{Principal: all[0]}).key
		if k != selectSession(&Spec{Session: session}, &Request{Principal: all[1]}).key {
			t.Errorf("%s: tokens divide the sessions of a server that takes none", session)
		}
		if got := principalOf(k, all[0]); got.Token != nil {
			t.Errorf("%s: the session keeps the token", session)
		}
	}
}
