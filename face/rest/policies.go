package rest

import (
	"context"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/control/policies"
)

type listPoliciesOutput struct {
	Body struct {
		Policies []policies.Policy `json:"policies" doc:"the policy that decides calls after the roles; none: roles decide alone"`
	} `nameHint:"PolicyList"`
}

func (a *API) listPolicies(_ context.Context, p *toolkeep.Principal, _ *struct{}) (*listPoliciesOutput, error) {
	list, err := policies.List(p, a.c.Policy)
	if err != nil {
		return nil, err
	}
	out := &listPoliciesOutput{}
	out.Body.Policies = list
	return out, nil
}
