package access

import "github.com/toolkeep/toolkeep"

// Check names, in evaluation order.
const (
	CheckTenant           = "tenant"
	CheckScope            = "scope"
	CheckToken            = "token" // of calls with a capability token, or if one is demanded
	CheckRoles            = "roles"
	CheckRequiredRoles    = "required_roles"
	CheckPermissionLevels = "permission_levels"
	CheckRisk             = "risk"
	CheckPolicy           = "policy"
)

// Check is one check of a Decision.
type Check struct {
	Name    string `json:"name"` // tenant, scope, token, roles, required_roles, permission_levels, risk, policy
	Allowed bool   `json:"allowed"`
	Reason  string `json:"reason"`
	Rule    string `json:"rule,omitempty"` // of roles and policy: the rule that made the decision
}

// Decision says whether a principal may make a call. Every check is evaluated, even
// after one has failed, so that explain can show all of them; the first failed check
// sets Code and Reason. Checks is shared between decisions: read only.
type Decision struct {
	Allowed bool          `json:"allowed"`
	Code    toolkeep.Code `json:"code,omitempty"` // "" if allowed
	Reason  string        `json:"reason"`
	Checks  []Check       `json:"checks"`
	// Approval is set if the policy allows the call only with a person's approval.
	Approval *ApprovalNeed `json:"-"`
	Cause    error         `json:"-"` // of E3206 and E3209, for the log
	// Grant is what the call's capability token allows, nil without one.
	Grant *toolkeep.Grant `json:"-"`
}

// AllowedBy returns the rule of a role and that of the policy that permit the call; the policy has none where it only
// denies. Both are "" for a call that is not permitted.
func (d *Decision) AllowedBy() (role, policy string) {
	if !d.Allowed {
		return "", ""
	}
	for i := range d.Checks {
		switch c := &d.Checks[i]; c.Name {
		case CheckRoles:
			role = c.Rule
		case CheckPolicy: // the last one decides
			policy = c.Rule
		}
	}
	return role, policy
}

// decide combines checks into a decision.
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
