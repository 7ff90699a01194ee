package secret

import (
	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/redact"
)

// RedactionScope returns whose results are redacted for a secret that p's reference found: a user's secret, that
// user's results alone; a workspace's or organisation's, its tenant's; the operator's (env://, file://, Vault
// paths), everyone's. The zero scope, of a secret that could not be read, counts as the user's.
func (s Scope) RedactionScope(p *toolkeep.Principal) redact.Scope {
	switch s {
	case Server:
		return redact.AllTenants
	case Workspace, Organisation:
		return redact.TenantScope(p)
	}
	return redact.PersonScope(p)
}
