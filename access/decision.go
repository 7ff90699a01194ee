package access

import "github.com/toolkeep/toolkeep"

// Names of checks, in the order in which they are made.
const (
	CheckTenant           = "tenant"
	CheckScope            = "scope"
	CheckRoles            = "roles"
	CheckRequiredRoles    = "required_roles"
	CheckPermissionLevels = "permission_levels"
	CheckRisk             = "risk"
)

// Check is one of the checks behind a Decision.
type Check struct {
	Name    string `json:"name"` // tenant, scope, roles, required_roles, permission_levels, risk
	Allowed bool   `json:"allowed"`
	Reason  string `json:"reason"`
}

// Decision answers whether a principal may do a call. Every check is evaluated,
// also after one has failed, so that explain can show all of them; the first
// that failed gives Code and Reason. Checks is shared between answers: read only.
type Decision struct {
	Allowed bool          `json:"allowed"`
	Code    toolkeep.Code `json:"code,omitempty"` // "" if allowed
	Reason  string        `json:"reason"`
	Checks  []Check       `json:"checks"`
}

// decide joins checks to a decision.
func decide(checks []Check) Decision {
	d := Decision{Allowed: true, Checks: checks}
	for _, c := range checks {
		if !c.Allowed {
			d.Allowed, d.Code, d.Reason = false, toolkeep.PermissionDenied, c.Reason
			return d
		}
		if c.Name == CheckRoles {
			d.Reason = c.Reason
		}
	}
	return d
}
