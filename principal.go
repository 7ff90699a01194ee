package toolkeep

import "time"

// Principal is who asks, as authentication established it. It is always a
// parameter and never rides in a context.
type Principal struct {
	Subject string   // stable id within the tenant; rate limits and keys are scoped by it
	Tenant  string   // never "" after authentication
	Roles   []string // names of built-in and own roles
	Method  string   // how it authenticated: api_key, oauth
	KeyID   string   // id of the API key, "" for other methods
	// Scope narrows what the roles grant to tools whose id matches one of these
	// patterns (path.Match syntax); empty does not narrow.
	Scope []string
	// Permissions are named rights outside of tools, such as act-as, from the roles.
	Permissions []string
	OnBehalf    string // the person for whom an agent acts, "" if none
	// Workspace is the part of the tenant that the credential belongs to, "" if none.
	// Secrets of the workspace come before the tenant's own (Agent 5.2).
	Workspace string
	Addr      string // remote address without port, for audit and failure limits
	// Until is when the credential ends; zero never. What it admitted goes on, but a
	// stream that stands open does not.
	Until time.Time
}

// May tells whether the principal holds a named permission.
func (p *Principal) May(permission string) bool {
	for _, q := range p.Permissions {
		if q == permission || q == "*" {
			return true
		}
	}
	return false
}

// Permissions that the faces and domains ask for. Roles grant them.
const (
	PermActAs     = "act-as"          // call as another subject of the tenant
	PermPublish   = "catalog:publish" // register, import, batch-register
	PermLifecycle = "catalog:admin"   // deprecate, block, remove, force
	PermNetwork   = "catalog:network" // publish tools that open inner addresses (permissions.network)
	PermFiles     = "catalog:files"   // publish tools that use folders of the server (permissions.filesystem)
	PermContext   = "context:admin"   // read and change what agents add to tools
	PermSecrets   = "secrets:use"     // publish tools that name a secret of the server
	// PermSecretsAdmin is for secrets of workspaces, of the organisation and of others.
	PermSecretsAdmin = "secrets:admin"
	PermKeys         = "keys:admin"       // create, list, revoke API keys
	PermInvocations  = "invocations:read" // see the calls of every principal of the tenant
	PermCancel       = "invocations:cancel"
	PermServers      = "servers:admin"  // add, change, accept and remove MCP servers, which may run programs on the host
	PermOperate      = "system:operate" // cache invalidation, reindex, log level
)
