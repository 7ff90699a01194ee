package secret

import (
	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/redact"
)

// RedactionScope gives whose results are cleaned of a secret that a principal's reference
// found: a person's own out of that person's alone; one of a workspace or an organisation
// out of those of its tenant; what the server's operator provides (env://, file://, paths
// of Vault) out of everybody's. The zero scope, of a secret that could not be read, counts
// as the person's.
func (s Scope) RedactionScope(p *toolkeep.Principal) redact.Scope {
	switch s {
	case Server:
		return redact.AllTenants
	case Workspace, Organisation:
		return redact.TenantScope(p)
	}
	return redact.PersonScope(p)
}
