// Package policies is what people see of the attribute policy that decides calls.
package policies

import (
	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/access/policy"
)

// Engine is what decides; *policy.Engine is one.
type Engine interface {
	State() policy.State
	Stats() policy.Stats
}

// Policy is the policy of the node that is asked.
type Policy struct {
	policy.State
	Decided Decided `json:"decided"`
}

// Decided counts since the start of the node.
type Decided struct {
	Evaluated int64 `json:"evaluated" doc:"questions that the policy was asked"`
	Kept      int64 `json:"kept" doc:"questions answered from kept answers"`
	Denied    int64 `json:"denied" doc:"calls that it denied"`
	Failed    int64 `json:"failed" doc:"questions that it could not answer; their calls were denied"`
}

// List returns the policy that decides, none where roles decide alone. E3201 for all but
// operators of the home tenant, since a policy decides for all tenants.
func List(p *toolkeep.Principal, e Engine) ([]Policy, error) {
	if p.Tenant != access.HomeTenant || !p.May(toolkeep.PermOperate) {
		return nil, toolkeep.NewError(toolkeep.PermissionDenied, "a policy decides for all tenants; operators of the tenant %s (permission %s) see it", access.HomeTenant, toolkeep.PermOperate)
	}
	if e == nil {
		return []Policy{}, nil
	}
	s := e.Stats()
	return []Policy{{e.State(), Decided{Evaluated: s.Evaluated, Kept: s.Kept, Denied: s.Denied, Failed: s.Failed}}}, nil
}
