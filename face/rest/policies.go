package rest

import (
	"context"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/control/policies"
)

// Policies is what control/policies does, which see.
type Policies interface {
	List(p *toolkeep.Principal) ([]policies.Policy, error)
	Who(ctx context.Context, p *toolkeep.Principal, tool, version string, offset, limit int) (*policies.Rights, error)
	What(ctx context.Context, p *toolkeep.Principal, subject, keyID string, offset, limit int) (*policies.Rights, error)
	Explain(ctx context.Context, p *toolkeep.Principal, subject, keyID string, c toolkeep.Call) ([]policies.Explained, error)
	Replay(ctx context.Context, p *toolkeep.Principal, files map[string]string, last int) (*policies.Replay, error)
}

type listPoliciesOutput struct {
	Body struct {
		Policies []policies.Policy `json:"policies" doc:"the policy that decides calls after the roles; none: roles decide alone"`
	} `nameHint:"PolicyList"`
}

func (a *API) listPolicies(_ context.Context, p *toolkeep.Principal, _ *struct{}) (*listPoliciesOutput, error) {
	list, err := a.c.Policies.List(p)
	if err != nil {
		return nil, err
	}
	out := &listPoliciesOutput{}
	out.Body.Policies = list
	return out, nil
}

type rightsOutput struct {
	Body struct {
		Rights []policies.Right `json:"rights"`
		Reads  []string         `json:"reads,omitempty" doc:"what of the input the policy reads: what is not of the caller or the tool was empty"`
		paged
	} `nameHint:"RightList"`
}

func rightsOf(r *policies.Rights, err error, in paging) (*rightsOutput, error) {
	if err != nil {
		return nil, err
	}
	out := &rightsOutput{}
	out.Body.Rights, out.Body.Reads, out.Body.paged = r.List, r.Reads, in.of(r.Total)
	return out, nil
}

type whoInput struct {
	paging
	Tool    string `query:"tool_id" required:"true" maxLength:"256" doc:"the tool"`
	Version string `query:"tool_version" maxLength:"256" doc:"its version or a range; without it, the newest"`
}

func (a *API) whoMayCall(ctx context.Context, p *toolkeep.Principal, in *whoInput) (*rightsOutput, error) {
	r, err := a.c.Policies.Who(ctx, p, in.Tool, in.Version, in.offset(), in.PageSize)
	return rightsOf(r, err, in.paging)
}

type whatInput struct {
	paging
	Subject string `query:"subject" required:"true" maxLength:"4096" doc:"whom the keys are for"`
	KeyID   string `query:"key_id" maxLength:"64" doc:"one of its keys; without it, all"`
}

func (a *API) whatItMayCall(ctx context.Context, p *toolkeep.Principal, in *whatInput) (*rightsOutput, error) {
	r, err := a.c.Policies.What(ctx, p, in.Subject, in.KeyID, in.offset(), in.PageSize)
	return rightsOf(r, err, in.paging)
}

type explainInput struct {
	Body struct {
		Subject    string `json:"subject" maxLength:"4096" doc:"whose call it is; it is explained for each of its valid API keys"`
		KeyID      string `json:"key_id,omitempty" maxLength:"64" doc:"one of its keys; without it, all"`
		ToolID     string `json:"tool_id" maxLength:"4096"`
		Version    string `json:"tool_version,omitempty" maxLength:"256" doc:"exact version or range; absent is the latest"`
		Parameters object `json:"parameters,omitempty" doc:"the tool's arguments"`
	} `nameHint:"ExplainRequest"`
}

type explainOutput struct {
	Body struct {
		Explanations []policies.Explained `json:"explanations" doc:"one a key, the oldest first"`
	} `nameHint:"ExplanationList"`
}

func (a *API) explainAs(ctx context.Context, p *toolkeep.Principal, in *explainInput) (*explainOutput, error) {
	b := &in.Body
	list, err := a.c.Policies.Explain(ctx, p, b.Subject, b.KeyID, toolkeep.Call{Tool: b.ToolID, Range: b.Version, Arguments: []byte(b.Parameters), Face: "rest"})
	if err != nil {
		return nil, err
	}
	out := &explainOutput{}
	out.Body.Explanations = list
	return out, nil
}

type replayInput struct {
	Body struct {
		Files map[string]string `json:"files" doc:"the policy: texts of its files by their path, *.rego and data.json"`
		Last  int               `json:"last,omitempty" minimum:"1" maximum:"1000" default:"100" doc:"how many of the newest calls"`
	} `nameHint:"ReplayRequest"`
}

type replayOutput struct{ Body policies.Replay }

func (a *API) replayPolicy(ctx context.Context, p *toolkeep.Principal, in *replayInput) (*replayOutput, error) {
	last := in.Body.Last
	if last == 0 {
		last = 100
	}
	r, err := a.c.Policies.Replay(ctx, p, in.Body.Files, last)
	if err != nil {
		return nil, err
	}
	return &replayOutput{*r}, nil
}

// policyRoutes are the routes of what decides calls.
func (a *API) policyRoutes() {
	if a.c.Policies == nil {
		return
	}
	register(a, op("GET", "/api/v1/policies", "listPolicies", tagAdmin, "Show the attribute policy that decides calls after the roles"), toolkeep.PermOperate, a.listPolicies)
	register(a, op("GET", "/api/v1/policies/who", "whoMayCall", tagAdmin, "Say which API keys may call a tool"), toolkeep.PermKeys, a.whoMayCall)
	register(a, op("GET", "/api/v1/policies/what", "whatItMayCall", tagAdmin, "Say which tools a subject's API keys may call"), toolkeep.PermKeys, a.whatItMayCall)
	explain := op("POST", "/api/v1/policies/explain", "explainAs", tagAdmin, "Explain what a call of another subject would do, with each of its API keys")
	explain.description = "Nothing is carried out, and nothing of the subject's limits is taken. A tool that the subject does not see is explained too; an event `ai.agent.auth.explained` says who asked."
	register(a, explain, toolkeep.PermKeys, a.explainAs)
	replay := op("POST", "/api/v1/policies/replay", "replayPolicy", tagAdmin, "Say what another policy would have decided about the newest calls")
	replay.limits = canon.Limits{Bytes: a.limits.BulkBytes, Properties: 10_000}
	register(a, replay, toolkeep.PermOperate, a.replayPolicy)
}
