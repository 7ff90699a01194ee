package rest

import (
	"context"

	"github.com/toolkeep/toolkeep"
)

// Contexts keeps what agents add to tools.
type Contexts interface {
	// Put stores the context of an agent for a tool, or for all of its tools (*).
	// E3201, E3301, E3310.
	Put(ctx context.Context, p *toolkeep.Principal, agent, tool string, body []byte) error
	// Get gives the stored context as JSON. E3201, E3013.
	Get(ctx context.Context, p *toolkeep.Principal, agent, tool string) ([]byte, error)
	// Delete removes it. E3201, E3013.
	Delete(ctx context.Context, p *toolkeep.Principal, agent, tool string) error
}

// ContextPath names a context.
type ContextPath struct {
	AgentID string `path:"agent_id" maxLength:"512" doc:"subject of the agent's credential"`
	ToolID  string `path:"tool_id" maxLength:"512" doc:"namespace.name, or * for all of the agent's tools"`
}

type putContextInput struct {
	ContextPath
	Body object `doc:"credentials (name: secret reference), config (timeout in ms, retry_max_attempts, rate_limit_per_minute) and session_context (facts)"`
}

type contextOutput struct{ Body object }

func (a *API) putContext(ctx context.Context, p *toolkeep.Principal, in *putContextInput) (*struct{}, error) {
	return nil, a.c.Contexts.Put(ctx, p, in.AgentID, a.toolID(p, in.ToolID), []byte(in.Body))
}

func (a *API) getContext(ctx context.Context, p *toolkeep.Principal, in *ContextPath) (*contextOutput, error) {
	raw, err := a.c.Contexts.Get(ctx, p, in.AgentID, a.toolID(p, in.ToolID))
	if err != nil {
		return nil, err
	}
	return &contextOutput{Body: object(raw)}, nil
}

func (a *API) deleteContext(ctx context.Context, p *toolkeep.Principal, in *ContextPath) (*struct{}, error) {
	return nil, a.c.Contexts.Delete(ctx, p, in.AgentID, a.toolID(p, in.ToolID))
}

// contextRoutes are the routes of agents' contexts.
func (a *API) contextRoutes() {
	if a.c.Contexts == nil {
		return
	}
	op := func(method, id, summary string) route {
		return op(method, "/api/v1/context/agent/{agent_id}/tool/{tool_id}", id, tagAdmin, summary)
	}
	register(a, op("GET", "getContext", "Read what an agent adds to a tool, as stored"), toolkeep.PermContext, a.getContext)
	register(a, op("PUT", "putContext", "Set what an agent adds to a tool, in place of what was stored"), toolkeep.PermContext, a.putContext)
	register(a, op("DELETE", "deleteContext", "Remove what an agent adds to a tool from the store"), toolkeep.PermContext, a.deleteContext)
}
