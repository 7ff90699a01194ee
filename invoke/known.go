package invoke

import (
	"sync"
	"sync/atomic"

	"github.com/toolkeep/toolkeep/redact"
	"github.com/toolkeep/toolkeep/secret"
)

// Whoever sets a secret chooses its value, and everybody may set their own. Were all of
// them known to the whole process, a caller could have words taken out of everybody's
// results. So a user's own secret is known to the call that takes it and to those below
// it; a secret of a workspace or an organisation to the calls of its tenant; what the
// server's operator provides (env://, file://, paths of Vault) to all. The log knows
// all of them.

// tenantSecrets are those of each tenant that calls in flight hold.
type tenantSecrets struct{ known sync.Map } // *redact.Secrets by tenant

func (p *Pipeline) ofTenant(tenant string) *redact.Secrets {
	if s, ok := p.tenants.known.Load(tenant); ok {
		return s.(*redact.Secrets)
	}
	s, _ := p.tenants.known.LoadOrStore(tenant, redact.NewSecrets(p.Clock))
	return s.(*redact.Secrets)
}

// known cleans what the call's tenant and the call itself hold, after what all know. It
// may come to know more while the call runs.
type known struct {
	all    cleaning // what the process or, for a child, the parent knows
	tenant *redact.Secrets
	own    atomic.Pointer[redact.Secrets] // nil while it has no secret of its own
}

func (k *known) Clean(text string) string {
	text = k.all.Clean(text)
	if k.tenant.Holds() {
		text = k.tenant.Clean(text)
	}
	if own := k.own.Load(); own != nil {
		text = own.Clean(text)
	}
	return text
}

func (k *known) CleanValue(v any) any {
	v = k.all.CleanValue(v)
	if k.tenant.Holds() {
		v = k.tenant.CleanValue(v)
	}
	if own := k.own.Load(); own != nil {
		v = own.CleanValue(v)
	}
	return v
}

// hold makes values known to those whom a scope concerns, until release and a while
// longer, and in the call for as long as it lasts.
func (p *Pipeline) hold(k *known, scope secret.Scope, values []string) (release func()) {
	if len(values) == 0 {
		return func() {}
	}
	var to *redact.Secrets
	switch scope {
	case secret.Server:
		return p.Redact.Hold(values...)
	case secret.Workspace, secret.Organisation:
		to = k.tenant
	default: // a user's, or of nobody knows whom because reading it failed
		if to = k.own.Load(); to == nil {
			to = redact.NewSecrets(p.Clock)
		}
	}
	forget, unlog := to.Hold(values...), func() {}
	if scope != secret.Workspace && scope != secret.Organisation {
		k.own.Store(to)
		forget = func() {}
	}
	if p.Logs != nil {
		unlog = p.Logs.Hold(values...)
	}
	return func() { forget(); unlog() }
}
