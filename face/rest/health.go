package rest

import (
	"context"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/control/health"
)

type toolHealthInput struct {
	ToolID string `path:"tool_id" maxLength:"4096" example:"weather.current"`
}

type toolHealthOutput struct {
	Body health.Health `nameHint:"ToolHealthStatus"`
}

func (a *API) getToolHealth(ctx context.Context, p *toolkeep.Principal, in *toolHealthInput) (*toolHealthOutput, error) {
	v, _, err := a.c.Catalog.Describe(ctx, p, in.ToolID, "", a.visible(p))
	if err != nil {
		return nil, err
	}
	return &toolHealthOutput{a.c.ToolHealth(p, v.Tool)}, nil
}
