package rest

import (
	"context"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit/outbox"
	"github.com/toolkeep/toolkeep/control/sinks"
)

// Sinks is what control/sinks does, which see.
type Sinks interface {
	List(ctx context.Context, p *toolkeep.Principal) ([]sinks.Sink, error)
	Replay(ctx context.Context, p *toolkeep.Principal, name string) (outbox.Replayed, error)
}

func (a *API) sinkRoutes() {
	if a.c.Sinks == nil {
		return
	}
	register(a, op("GET", "/api/v1/admin/sinks", "listSinks", tagAdmin, "List the sinks that records and events are delivered to, and how far each is"), toolkeep.PermOperate, a.listSinks)
	replay := op("POST", "/api/v1/admin/sinks/{name}/replay", "replaySink", tagAdmin, "Send the events again that a sink refused")
	replay.description = "It sends those in the data directory of the node that answers, for at most 20 s; ask again while there are `remaining` ones."
	register(a, replay, toolkeep.PermOperate, a.replaySink)
}

type listSinksOutput struct {
	Body struct {
		Sinks []sinks.Sink `json:"sinks"`
	} `nameHint:"SinkList"`
}

func (a *API) listSinks(ctx context.Context, p *toolkeep.Principal, _ *struct{}) (*listSinksOutput, error) {
	list, err := a.c.Sinks.List(ctx, p)
	if err != nil {
		return nil, err
	}
	out := &listSinksOutput{}
	out.Body.Sinks = list
	return out, nil
}

type replaySinkInput struct {
	Name string `path:"name" maxLength:"64" doc:"of the sink"`
}

type replaySinkOutput struct{ Body outbox.Replayed }

func (a *API) replaySink(ctx context.Context, p *toolkeep.Principal, in *replaySinkInput) (*replaySinkOutput, error) {
	r, err := a.c.Sinks.Replay(ctx, p, in.Name)
	if err != nil {
		return nil, err
	}
	return &replaySinkOutput{r}, nil
}
