package invoke

import (
	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/redact"
	"github.com/toolkeep/toolkeep/secret"
)

// ScopeOf gives whose results are cleaned of a secret that a principal's reference
// found: a person's own out of that person's alone; one of a workspace or an organisation
// out of those of its tenant; what the server's operator provides (env://, file://, paths
// of Vault) out of everybody's. One of which nobody knows whose it is, because reading it
// failed, counts as the person's.
func ScopeOf(scope secret.Scope, p *toolkeep.Principal) redact.Scope {
	switch scope {
	case secret.Server:
		return redact.AllTenants
	case secret.Workspace, secret.Organisation:
		return redact.TenantScope(p)
	}
	return redact.PersonScope(p)
}

// view cleans what the call shows: for a child all that its parent's does.
func (f *flight) view() *redact.Cleaner {
	if f.clean == nil {
		f.clean = f.p.Redact.For(f.principal)
	}
	return f.clean
}

// clear takes out of a result that another's call brought what this caller has as a secret
// and that one had not.
func (f *flight) clear(res *toolkeep.Result) {
	if f.tool().Manifest.PublicResult() && len(res.Output) > 0 {
		res.Output = f.view().CleanJSON(res.Output)
	}
}
