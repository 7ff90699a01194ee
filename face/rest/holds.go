package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Holds is what control/holds does, which see.
type Holds interface {
	Add(ctx context.Context, p *toolkeep.Principal, h toolkeep.LegalHold) (toolkeep.LegalHold, error)
	List(ctx context.Context, p *toolkeep.Principal) ([]toolkeep.LegalHold, error)
	Remove(ctx context.Context, p *toolkeep.Principal, id string) (toolkeep.LegalHold, error)
}

// holdRoutes are the routes of legal holds.
func (a *API) holdRoutes() {
	if a.c.Holds == nil {
		return
	}
	add := op("POST", "/api/v1/audit/holds", "addLegalHold", tagCalls, "Hold what was recorded: retention removes nothing that a legal hold covers")
	add.status = http.StatusCreated
	add.description = "It holds from the next retention pass on, within a minute. Retention goes by tenant and time, and keeps the entries of other agents and tools of that time too."
	register(a, add, toolkeep.PermHold, a.addHold)
	register(a, op("GET", "/api/v1/audit/holds", "listLegalHolds", tagCalls, "List the tenant's legal holds"), toolkeep.PermInvocations, a.listHolds)
	register(a, op("DELETE", "/api/v1/audit/holds/{id}", "removeLegalHold", tagCalls, "Remove a legal hold; retention may then remove what is past its time"), toolkeep.PermHold, a.removeHold)
}

// LegalHold names the schema in the document.
type LegalHold struct {
	ID     string     `json:"id"`
	From   time.Time  `json:"from" doc:"the time of the first entries that are covered"`
	Until  *time.Time `json:"until,omitempty" doc:"not included; absent: what is still to come too"`
	Agent  string     `json:"agent_did,omitempty"`
	Tool   string     `json:"tool_id,omitempty"`
	Reason string     `json:"reason"`
	By     string     `json:"by" doc:"the subject who made it"`
	At     time.Time  `json:"at" doc:"when"`
}

func shownHold(h toolkeep.LegalHold) LegalHold {
	out := LegalHold{ID: h.ID, From: h.From, Agent: h.Agent, Tool: h.Tool, Reason: h.Reason, By: h.By, At: h.At}
	if !h.Until.IsZero() {
		out.Until = &h.Until
	}
	return out
}

type addHoldInput struct {
	Body struct {
		From   time.Time  `json:"from" doc:"the time of the first entries that are covered"`
		Until  *time.Time `json:"until,omitempty" doc:"not included; absent: what is still to come too"`
		Agent  string     `json:"agent_did,omitempty" maxLength:"1000" doc:"whose entries are meant; it is kept with the hold, and narrows nothing"`
		Tool   string     `json:"tool_id,omitempty" maxLength:"1000" doc:"the tool that is meant, as agent_did"`
		Reason string     `json:"reason" minLength:"1" maxLength:"1000" doc:"why, such as the number of a case"`
	} `nameHint:"AddLegalHoldRequest"`
}

type holdOutput struct{ Body LegalHold }

func (a *API) addHold(ctx context.Context, p *toolkeep.Principal, in *addHoldInput) (*holdOutput, error) {
	h := toolkeep.LegalHold{From: in.Body.From, Agent: in.Body.Agent, Tool: in.Body.Tool, Reason: in.Body.Reason}
	if in.Body.Until != nil {
		h.Until = *in.Body.Until
	}
	h, err := a.c.Holds.Add(ctx, p, h)
	if err != nil {
		return nil, err
	}
	return &holdOutput{shownHold(h)}, nil
}

type listHoldsOutput struct {
	Body struct {
		Holds []LegalHold `json:"holds"`
	} `nameHint:"LegalHoldList"`
}

func (a *API) listHolds(ctx context.Context, p *toolkeep.Principal, _ *struct{}) (*listHoldsOutput, error) {
	list, err := a.c.Holds.List(ctx, p)
	if err != nil {
		return nil, err
	}
	out := &listHoldsOutput{}
	out.Body.Holds = make([]LegalHold, len(list))
	for i, h := range list {
		out.Body.Holds[i] = shownHold(h)
	}
	return out, nil
}

type removeHoldInput struct {
	ID string `path:"id" maxLength:"64" doc:"of the hold"`
}

func (a *API) removeHold(ctx context.Context, p *toolkeep.Principal, in *removeHoldInput) (*holdOutput, error) {
	h, err := a.c.Holds.Remove(ctx, p, in.ID)
	if err != nil {
		return nil, err
	}
	return &holdOutput{shownHold(h)}, nil
}
