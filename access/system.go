package access

import "github.com/toolkeep/toolkeep"

// HomeTenant is the operator's tenant: only its administrators can change what serves
// all tenants.
const HomeTenant = "default"

// System is the principal of the server's own actions.
func System() *toolkeep.Principal {
	return &toolkeep.Principal{Subject: "toolkeep", Tenant: HomeTenant, Roles: []string{"admin"}, Permissions: []string{"*"}, Method: "system"}
}
