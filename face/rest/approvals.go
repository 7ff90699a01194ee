package rest

import (
	"context"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/approval"
	"github.com/toolkeep/toolkeep/control/approvals"
)

// Approvals is what control/approvals does, which see.
type Approvals interface {
	List(p *toolkeep.Principal, state approval.State) []approvals.Approval
	Get(ctx context.Context, p *toolkeep.Principal, id string) (approvals.Approval, error)
	Decide(ctx context.Context, p *toolkeep.Principal, id string, v approvals.Verdict) (approvals.Approval, error)
	Grants(p *toolkeep.Principal) []approvals.Grant
	Revoke(ctx context.Context, p *toolkeep.Principal, id string) error
	MakeLink(ctx context.Context, p *toolkeep.Principal, id, approver string, until time.Time) (*approvals.DecisionLink, error)
	ByLink(ctx context.Context, token string) (approvals.Approval, time.Time, error)
	DecideByLink(ctx context.Context, token string, v approvals.Verdict) (approvals.Approval, error)
}

// These name the schemas in the document.
type (
	ApprovalRequest  approvals.Approval
	StandingApproval approvals.Grant
)

type listApprovalsInput struct {
	paging
	State string `query:"state" enum:"pending,approved,denied,expired,ended" doc:"only those in this state; decided ones are kept for a day"`
}

type listApprovalsOutput struct {
	Body struct {
		Approvals []ApprovalRequest `json:"approvals"`
		paged
	} `nameHint:"ApprovalList"`
}

func (a *API) listApprovals(_ context.Context, p *toolkeep.Principal, in *listApprovalsInput) (*listApprovalsOutput, error) {
	all := a.c.Approvals.List(p, approval.State(in.State))
	out := &listApprovalsOutput{}
	out.Body.Approvals = []ApprovalRequest{}
	for _, one := range cut(all, in.paging) {
		out.Body.Approvals = append(out.Body.Approvals, ApprovalRequest(one))
	}
	out.Body.paged = in.of(len(all))
	return out, nil
}

type approvalID struct {
	ID string `path:"invocation_id" maxLength:"4096" doc:"the id of the call that waits"`
}

type approvalOutput struct{ Body ApprovalRequest }

func (a *API) getApproval(ctx context.Context, p *toolkeep.Principal, in *approvalID) (*approvalOutput, error) {
	one, err := a.c.Approvals.Get(ctx, p, in.ID)
	return &approvalOutput{ApprovalRequest(one)}, err
}

// ApproveRequest says how to approve. All of it is optional.
type ApproveRequest struct {
	Parameters object         `json:"parameters,omitempty" doc:"run the call with these instead; they are validated as the caller's were, and both are kept"`
	Digest     string         `json:"digest,omitempty" maxLength:"64" doc:"of what you saw; E3963 if something else would run"`
	Reason     string         `json:"reason,omitempty" maxLength:"4096" doc:"kept with the decision"`
	Remember   *RememberInput `json:"remember,omitempty" doc:"also approve later calls of the same agent, person and version, until a time"`
}

// RememberInput makes a standing approval.
type RememberInput struct {
	For   string    `json:"for" enum:"arguments,session" doc:"those with the same arguments, or all in the same session"`
	Until time.Time `json:"until" doc:"within the next 24 hours"`
}

type approveInput struct {
	approvalID
	Body *ApproveRequest
}

func (a *API) approveCall(ctx context.Context, p *toolkeep.Principal, in *approveInput) (*approvalOutput, error) {
	v := approvals.Verdict{Approve: true}
	if b := in.Body; b != nil {
		v.Parameters, v.Digest, v.Reason = b.Parameters, b.Digest, b.Reason
		if b.Remember != nil {
			v.Remember = &approvals.Remember{For: approval.Scope(b.Remember.For), Until: b.Remember.Until}
		}
	}
	one, err := a.c.Approvals.Decide(ctx, p, in.ID, v)
	return &approvalOutput{ApprovalRequest(one)}, err
}

type denyInput struct {
	approvalID
	Body *struct {
		Digest string `json:"digest,omitempty" maxLength:"64" doc:"of what you saw; E3963 if something else would run"`
		Reason string `json:"reason,omitempty" maxLength:"4096" doc:"the caller gets it with E3212"`
	} `nameHint:"DenyRequest"`
}

func (a *API) denyCall(ctx context.Context, p *toolkeep.Principal, in *denyInput) (*approvalOutput, error) {
	v := approvals.Verdict{}
	if b := in.Body; b != nil {
		v.Digest, v.Reason = b.Digest, b.Reason
	}
	one, err := a.c.Approvals.Decide(ctx, p, in.ID, v)
	return &approvalOutput{ApprovalRequest(one)}, err
}

type listGrantsInput struct{ paging }

type listGrantsOutput struct {
	Body struct {
		Grants []StandingApproval `json:"grants"`
		paged
	} `nameHint:"StandingApprovalList"`
}

func (a *API) listGrants(_ context.Context, p *toolkeep.Principal, in *listGrantsInput) (*listGrantsOutput, error) {
	all := a.c.Approvals.Grants(p)
	out := &listGrantsOutput{}
	out.Body.Grants = []StandingApproval{}
	for _, one := range cut(all, in.paging) {
		out.Body.Grants = append(out.Body.Grants, StandingApproval(one))
	}
	out.Body.paged = in.of(len(all))
	return out, nil
}

func (a *API) revokeGrant(ctx context.Context, p *toolkeep.Principal, in *approvalID) (*struct{}, error) {
	return nil, a.c.Approvals.Revoke(ctx, p, in.ID)
}

// approvalRoutes are the routes of calls that wait for a person.
func (a *API) approvalRoutes() {
	if a.c.Approvals == nil {
		return
	}
	op := func(method, path, id, summary string) route {
		return route{method: method, path: "/api/v1/approvals" + path, id: id, tag: tagCalls, summary: summary, spares: toolkeep.PermApprove}
	}
	register(a, op("GET", "", "listApprovals", "List calls that wait for a person, or did within the last day"), "", a.listApprovals)
	register(a, op("GET", "/{invocation_id}", "getApproval", "Show one, with the arguments that would run"), "", a.getApproval)
	approve := op("POST", "/{invocation_id}/approve", "approveCall", "Approve a call; it runs once enough have")
	deny := op("POST", "/{invocation_id}/deny", "denyCall", "Deny a call; it ends with E3212")
	approve.free, deny.free = true, true
	register(a, approve, "", a.approveCall)
	register(a, deny, "", a.denyCall)
	register(a, op("GET", "/grants", "listStandingApprovals", "List standing approvals"), "", a.listGrants)
	register(a, op("DELETE", "/grants/{invocation_id}", "revokeStandingApproval", "Take a standing approval back"), "", a.revokeGrant)
	a.linkRoutes()
}
