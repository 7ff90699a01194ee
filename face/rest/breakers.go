package rest

import (
	"context"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/control/breakers"
)

// Breakers is what control/breakers does, which see.
type Breakers interface {
	List(p *toolkeep.Principal) ([]breakers.Breaker, error)
	Show(p *toolkeep.Principal, id string, shared bool) (breakers.Breaker, error)
	Do(ctx context.Context, p *toolkeep.Principal, id string, shared bool, action, reason string) (breakers.Breaker, error)
}

// breakerRoutes are the routes of circuit breakers.
func (a *API) breakerRoutes() {
	if a.c.Breakers == nil {
		return
	}
	register(a, op("GET", "/api/v1/breakers", "listBreakers", tagAdmin, "List the circuit breakers that are not closed, and those of tools that were called lately"), toolkeep.PermOperate, a.listBreakers)
	register(a, op("GET", "/api/v1/breakers/{breaker}", "getBreaker", tagAdmin, "Show a circuit breaker"), toolkeep.PermOperate, a.getBreaker)
	do := op("POST", "/api/v1/breakers/{breaker}", "forceBreaker", tagAdmin, "Force a circuit breaker open or closed, or reset it")
	do.description = "It holds on all nodes, until another one: open refuses all calls, close lets all calls through, and reset leaves it closed and to its calls again."
	register(a, do, toolkeep.PermOperate, a.forceBreaker)
}

type listBreakersOutput struct {
	Body struct {
		Breakers []breakers.Breaker `json:"breakers"`
		paged
	} `nameHint:"BreakerList"`
}

func (a *API) listBreakers(_ context.Context, p *toolkeep.Principal, in *paging) (*listBreakersOutput, error) {
	list, err := a.c.Breakers.List(p)
	if err != nil {
		return nil, err
	}
	out := &listBreakersOutput{}
	out.Body.Breakers, out.Body.paged = cut(list, *in), in.of(len(list))
	return out, nil
}

type breakerInput struct {
	ID     string `path:"breaker" maxLength:"512" doc:"such as tool:shop.find or host:shop.example:443"`
	Shared bool   `query:"shared" doc:"the breaker of shared tools, where your own tenant has one of the same name; for operators of the tenant default"`
}

type breakerOutput struct{ Body breakers.Breaker }

func (a *API) getBreaker(_ context.Context, p *toolkeep.Principal, in *breakerInput) (*breakerOutput, error) {
	b, err := a.c.Breakers.Show(p, in.ID, in.Shared)
	if err != nil {
		return nil, err
	}
	return &breakerOutput{b}, nil
}

type forceBreakerInput struct {
	breakerInput
	Body struct {
		Action string `json:"action" enum:"open,close,reset"`
		Reason string `json:"reason,omitempty" maxLength:"1000" doc:"why, for those who look at it"`
	} `nameHint:"ForceBreakerRequest"`
}

func (a *API) forceBreaker(ctx context.Context, p *toolkeep.Principal, in *forceBreakerInput) (*breakerOutput, error) {
	b, err := a.c.Breakers.Do(ctx, p, in.ID, in.Shared, in.Body.Action, in.Body.Reason)
	if err != nil {
		return nil, err
	}
	return &breakerOutput{b}, nil
}
