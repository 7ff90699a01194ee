package rest

import (
	"context"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/control/overview"
)

// Overview is what control/overview does, which see.
type Overview interface {
	Show(ctx context.Context, p *toolkeep.Principal, window time.Duration) (*overview.OverviewReport, error)
	Limits(p *toolkeep.Principal) (*overview.LimitReport, error)
}

// overviewRoutes tell what the node did lately.
func (a *API) overviewRoutes() {
	requeue := op("POST", "/api/v1/invocations/{invocation_id}/requeue", "requeueInvocation", tagCalls, "Put a lost call into the queue again")
	requeue.description = "A running call whose node renews its lease no more, or a queued one that no worker takes. Of a synchronous call it ends the record and frees the key. E3963 where the call is not lost, or may have taken effect."
	register(a, requeue, toolkeep.PermCancel, a.requeue)
	if a.c.Overview == nil {
		return
	}
	register(a, op("GET", "/api/v1/overview", "getOverview", tagAdmin, "Read what this node's calls of your tenant did lately, by minute"), toolkeep.PermInvocations, a.overview)
	register(a, op("GET", "/api/v1/limits", "getLimits", tagAdmin, "Read the limits in force, and whom they refused lately"), toolkeep.PermOperate, a.limitReport)
}

type overviewInput struct {
	Window string `query:"window" pattern:"^[0-9]{1,6}[smh]$" default:"1h" doc:"how far back, from 5m to 6h"`
}

type overviewOutput struct {
	Body overview.OverviewReport
}

func (a *API) overview(ctx context.Context, p *toolkeep.Principal, in *overviewInput) (*overviewOutput, error) {
	window, _ := time.ParseDuration(in.Window) // the schema has checked it
	r, err := a.c.Overview.Show(ctx, p, window)
	if err != nil {
		return nil, err
	}
	return &overviewOutput{*r}, nil
}

type limitsOutput struct{ Body overview.LimitReport }

func (a *API) limitReport(_ context.Context, p *toolkeep.Principal, _ *struct{}) (*limitsOutput, error) {
	r, err := a.c.Overview.Limits(p)
	if err != nil {
		return nil, err
	}
	return &limitsOutput{*r}, nil
}

type requeueInput struct {
	InvocationID string `path:"invocation_id" maxLength:"4096"`
}

type requeueOutput struct{ Body InvocationSummary }

func (a *API) requeue(ctx context.Context, p *toolkeep.Principal, in *requeueInput) (*requeueOutput, error) {
	v, err := a.c.Calls.Requeue(ctx, p, in.InvocationID)
	if err != nil {
		return nil, err
	}
	return &requeueOutput{summarise(v)}, nil
}
