package access

import "github.com/toolkeep/toolkeep"

// HomeTenant is the tenant of the operator: what serves all tenants is changed by its
// administrators alone.
const HomeTenant = "default"

// System is the principal of what a server does by itself.
func System() *toolkeep.Principal {
	return &toolkeep.Principal{Subject: "toolkeep", Tenant: HomeTenant, Roles: []string{"admin"}, Permissions: []string{"*"}, Method: "system"}
}
