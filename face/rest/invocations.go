package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/face/gate"
)

// invocation is GET /api/v1/invocations/{invocation_id}.
func (a *API) invocation(w http.ResponseWriter, r *http.Request) {
	p, id, err := a.callerAndCall(r)
	if err != nil {
		a.gate.Refuse(w, r, err)
		return
	}
	v, err := a.c.Calls.Get(r.Context(), p, id)
	if err != nil {
		a.gate.Refuse(w, r, err)
		return
	}
	res := a.c.Calls.Result(v)
	a.gate.SignResult(p, res)
	if res != nil {
		lifecycleHeaders(w.Header(), res.Warnings)
	}
	a.gate.Send(w, r, http.StatusOK, gate.JSONType, appendInvocation(nil, v, res, a.wayOf(v)))
}

// callerAndCall is what the routes under one invocation begin with.
func (a *API) callerAndCall(r *http.Request) (*toolkeep.Principal, string, error) {
	p, err := a.caller(r)
	if err != nil {
		return nil, "", err
	}
	id, err := a.pathID(r, "invocation_id")
	return p, id, err
}

// caller names who asks for what is no call.
func (a *API) caller(r *http.Request) (*toolkeep.Principal, error) {
	p, err := a.gate.AuthenticateHTTP(r)
	if err != nil {
		return nil, err
	}
	return a.gate.Acting(gate.HTTP(r.Header), p)
}

// callFilter is the part of an input that selects calls.
type callFilter struct {
	ToolID  string   `query:"tool_id" maxLength:"4096" doc:"only calls of this tool"`
	State   []string `query:"state,explode" maxItems:"11" enum:"accepted,pending_approval,queued,running,input_required,succeeded,failed,refused,cancelled,expired,unknown" doc:"only calls in this state; repeatable"`
	AgentID string   `query:"agent_id" maxLength:"4096" doc:"only this agent's calls; others than your own need invocations:read"`
	Session string   `query:"session_id" maxLength:"4096"`
	Parent  string   `query:"parent_invocation_id" maxLength:"4096"`
	Since   string   `query:"since" format:"date-time" doc:"created at or after"`
	Until   string   `query:"until" format:"date-time" doc:"created before"`
	Code    string   `query:"error_code" pattern:"^E[0-9]{4}$" doc:"only calls that ended with this error; with this, face or user_id, the newest 2,000 calls that fit the rest are looked through"`
	Face    string   `query:"face" maxLength:"32" doc:"only calls by rest, cli, grpc, mcp or child"`
	UserID  string   `query:"user_id" maxLength:"4096" doc:"only calls for this person"`
}

type listInvocationsInput struct {
	paging
	callFilter
	Way bool `query:"steps" doc:"with how the steps of each call went, its attempts and its trace"`
}

// InvocationSummary is one line of the list.
type InvocationSummary struct {
	InvocationID string     `json:"invocation_id"`
	Status       string     `json:"status" doc:"BC-2 status"`
	State        string     `json:"state"`
	ToolID       string     `json:"tool_id"`
	ToolVersion  string     `json:"tool_version,omitempty"`
	AgentID      string     `json:"agent_id"`
	UserID       string     `json:"user_id,omitempty" doc:"the person that the agent acted for"`
	ActorID      string     `json:"actor_id,omitempty" doc:"who sent the call in the agent's name, where that is another"`
	Chain        []string   `json:"caller_chain,omitempty" doc:"on whose behalf the agent acted, from the first to the nearest"`
	AllowedBy    []string   `json:"allowed_by,omitempty" doc:"what permitted the call"`
	SessionID    string     `json:"session_id,omitempty"`
	Parent       string     `json:"parent_invocation_id,omitempty"`
	Face         string     `json:"face,omitempty" doc:"rest, cli, grpc or mcp"`
	ErrorCode    string     `json:"error_code,omitempty"`
	ErrorName    string     `json:"error_name,omitempty"`
	Message      string     `json:"message,omitempty"`
	CreatedAt    *time.Time `json:"created_at,omitempty"`
	StartedAt    *time.Time `json:"started_at,omitempty"`
	CompletedAt  *time.Time `json:"completed_at,omitempty"`
	DurationMS   float64    `json:"duration_ms"`
	ToolMS       float64    `json:"tool_ms" doc:"spent in the tool"`
	CacheHit     bool       `json:"cache_hit"`
	Attempts     int        `json:"attempts"`
	Fallback     string     `json:"fallback_tool_id,omitempty" doc:"the tool that was asked because this one failed"`
	Async        bool       `json:"async_mode"`
	CallID       string     `json:"call_id,omitempty"`
	Erased       bool       `json:"erased,omitempty" doc:"what was recorded of the person was erased"`
	Unreadable   bool       `json:"unreadable,omitempty" doc:"what was recorded of the person was sealed with a key that this server does not have"`
	Way          *CallWay   `json:"execution_metadata,omitempty" doc:"where the list was asked for with steps"`
}

type listInvocationsOutput struct {
	Body struct {
		Invocations []InvocationSummary `json:"invocations"`
		paged
		TotalIsLeast bool `json:"total_is_least,omitempty" doc:"total_count is not counted further: there are that many calls or more"`
	} `nameHint:"InvocationList"`
}

// selects is the filter that an input describes. E3201.
func (a *API) selects(p *toolkeep.Principal, in *callFilter) (toolkeep.InvocationFilter, error) {
	f := toolkeep.InvocationFilter{Tenant: p.Tenant, Subject: in.AgentID, ToolID: a.toolID(p, in.ToolID), Session: in.Session, Parent: in.Parent,
		Code: toolkeep.Code(in.Code), Face: in.Face, Person: in.UserID}
	for _, s := range in.State {
		f.States = append(f.States, toolkeep.CallState(s))
	}
	if len(f.States) == 1 {
		f.State, f.States = f.States[0], nil
	}
	if !p.May(toolkeep.PermInvocations) {
		if in.AgentID != "" && in.AgentID != p.Subject {
			return f, gate.Need(p, toolkeep.PermInvocations)
		}
		f.Subject = p.Subject
	}
	// The schema has checked both formats.
	f.Since, _ = time.Parse(time.RFC3339, in.Since)
	f.Until, _ = time.Parse(time.RFC3339, in.Until)
	return f, nil
}

func (a *API) listInvocations(ctx context.Context, p *toolkeep.Principal, in *listInvocationsInput) (*listInvocationsOutput, error) {
	f, err := a.selects(p, &in.callFilter)
	if err != nil {
		return nil, err
	}
	f.Offset, f.Limit = in.offset(), in.PageSize
	rows, total, err := a.c.Calls.List(ctx, p, f)
	if err != nil {
		return nil, err
	}
	out := &listInvocationsOutput{}
	out.Body.Invocations = make([]InvocationSummary, len(rows))
	for i, v := range rows {
		out.Body.Invocations[i] = summarise(v)
		if in.Way {
			out.Body.Invocations[i].Way = a.wayOf(v)
		}
	}
	out.Body.paged = in.of(total)
	out.Body.TotalIsLeast = total == toolkeep.MaxTotal || f.Looks()
	return out, nil
}

func summarise(v *toolkeep.Invocation) InvocationSummary {
	s := InvocationSummary{
		InvocationID: v.ID, Status: v.State.BC2(v.Code), State: string(v.State), ToolID: v.ToolID, ToolVersion: v.Version,
		AgentID: v.Subject, UserID: v.OnBehalf, ActorID: v.Actor, Chain: v.Chain, AllowedBy: v.AllowedBy(), SessionID: v.Session, Parent: v.Parent, Face: v.Face, Message: v.Message,
		CreatedAt: given(v.CreatedAt), StartedAt: given(v.StartedAt), CompletedAt: given(v.EndedAt),
		DurationMS: float64(v.TotalUS) / 1000, ToolMS: float64(v.ToolUS) / 1000,
		CacheHit: v.Cached, Attempts: v.Attempts, Async: v.Async, CallID: v.CallID,
		Erased: v.Withheld == toolkeep.Erased, Unreadable: v.Withheld == toolkeep.Unreadable,
	}
	if v.Fallback != nil {
		s.Fallback = v.Fallback.Tool
	}
	if v.Code != "" {
		s.ErrorCode, s.ErrorName = string(v.Code), v.Code.Info().Name
	}
	return s
}

// given is the time, or nil for none.
func given(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// CancelRequest is BC-2's ToolCancelRequest. All of it is optional: the path
// and the credential say the same.
type CancelRequest struct {
	InvocationID string        `json:"invocation_id,omitempty" maxLength:"4096" doc:"must equal the path's"`
	AgentContext *AgentContext `json:"agent_context,omitempty"`
	Reason       string        `json:"reason,omitempty" maxLength:"4096" doc:"kept with the call"`
}

// AgentContext is BC-2's.
type AgentContext struct {
	AgentDID  string `json:"agent_did,omitempty" maxLength:"4096" doc:"your own subject, unless you hold act-as"`
	TenantID  string `json:"tenant_id,omitempty" maxLength:"4096" doc:"your own tenant"`
	UserDID   string `json:"user_did,omitempty" maxLength:"4096" doc:"the person the agent acts for"`
	SessionID string `json:"session_id,omitempty" maxLength:"4096"`
}

type cancelInput struct {
	InvocationID string `path:"invocation_id" maxLength:"4096"`
	Body         *CancelRequest
}

func (*cancelInput) needs(_ *API, p *toolkeep.Principal, body tree) error {
	c, _ := body["agent_context"].(map[string]any)
	return own(p, textOf(c["tenant_id"]), textOf(c["agent_did"]))
}

type cancelOutput struct {
	Body struct {
		InvocationID string `json:"invocation_id"`
		Cancelled    bool   `json:"cancelled" doc:"false if the call had ended before"`
		Message      string `json:"message"`
	} `nameHint:"CancelResponse"`
}

func (a *API) cancel(ctx context.Context, p *toolkeep.Principal, in *cancelInput) (*cancelOutput, error) {
	why := ""
	if b := in.Body; b != nil {
		why = b.Reason
		if b.InvocationID != "" && b.InvocationID != in.InvocationID {
			return nil, toolkeep.NewError(toolkeep.MalformedRequest, "invocation_id of the body and of the path have different values")
		}
	}
	done, message, err := a.c.Calls.Cancel(ctx, p, in.InvocationID, why)
	if err != nil {
		return nil, err
	}
	out := &cancelOutput{}
	out.Body.InvocationID, out.Body.Cancelled, out.Body.Message = in.InvocationID, done, message
	return out, nil
}

// own checks that the ids of an agent_context, "" for none, are the principal's.
func own(p *toolkeep.Principal, tenant, agent string) error {
	if tenant != "" && tenant != p.Tenant {
		return toolkeep.NewError(toolkeep.PermissionDenied, "agent_context.tenant_id is not your tenant").With("reason", "RBAC_DENIED")
	}
	if agent != "" && agent != p.Subject {
		return gate.Need(p, toolkeep.PermActAs)
	}
	return nil
}
