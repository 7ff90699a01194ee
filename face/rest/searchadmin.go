package rest

import (
	"context"
	"net/http"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/control/search"
)

// SearchAdmin looks after the search of the principal's tenant, on every node;
// *search.Search of control is one.
type SearchAdmin interface {
	// Flush drops kept answers of search: of all scopes, or of the user, tool or
	// strategy that id names; of every tenant with search.AllTenants. E3201, E3301, E3965.
	Flush(ctx context.Context, p *toolkeep.Principal, scope, id string) error
	// Reindex takes tools apart again, all that the tenant can see where ids is nil, and with
	// embeddings makes their vectors again too. It tells how many tools that will be. E3965.
	Reindex(ctx context.Context, p *toolkeep.Principal, ids []string, embeddings bool) (queued int, err error)
}

// audience is who may be given the same answers as the principal.
func (a *API) audience(p *toolkeep.Principal, more ...string) string {
	if a.c.Audience == nil {
		return ""
	}
	return a.c.Audience(p, more...)
}

type invalidateInput struct {
	Body struct {
		Scope    string `json:"scope" enum:"all,user,tool,strategy,all_tenants" doc:"all and tool drop cached results of tools and kept answers of search, user and strategy answers alone. All are those of your tenant, on every node; all_tenants drops what all does of every tenant, for operators of the tenant default"`
		UserID   string `json:"userId,omitempty" maxLength:"256" doc:"required for scope user: the subject of a credential"`
		ToolID   string `json:"toolId,omitempty" maxLength:"4096" doc:"required for scope tool"`
		Strategy string `json:"strategy,omitempty" enum:"hybrid,semantic,keyword,category,session" doc:"required for scope strategy"`
	} `nameHint:"InvalidateRequest"`
}

// what is the one id that goes with the scope.
func (in *invalidateInput) what() (string, error) {
	b := &in.Body
	id := ""
	for _, x := range []struct{ scope, field, value string }{{"user", "userId", b.UserID}, {"tool", "toolId", b.ToolID}, {"strategy", "strategy", b.Strategy}} {
		if (x.scope == b.Scope) != (x.value != "") {
			return "", toolkeep.NewError(toolkeep.MalformedRequest, "%s goes with scope %s, and only with it", x.field, x.scope)
		}
		id += x.value
	}
	return id, nil
}

// known returns the id of a tool, E3001 if it does not exist for the principal. One that is blocked or
// removed may have results that are to go.
func (a *API) known(p *toolkeep.Principal, name string) (id string, err error) {
	list, err := a.c.Catalog.Versions(p, name, a.visible(p))
	if err != nil {
		return "", err
	}
	return list[0].Tool.ID, nil
}

func (a *API) invalidate(ctx context.Context, p *toolkeep.Principal, in *invalidateInput) (*invalidateOutput, error) {
	id, err := in.what()
	if err != nil {
		return nil, err
	}
	scope := in.Body.Scope
	tenant, err := search.TenantOf(p, scope)
	if err != nil {
		return nil, err
	}
	if scope == "tool" {
		if id, err = a.known(p, id); err != nil {
			return nil, err
		}
	}
	if a.c.SearchAdmin != nil {
		if err := a.c.SearchAdmin.Flush(ctx, p, scope, id); err != nil {
			return nil, err
		}
	} else if scope == "user" || scope == "strategy" {
		return nil, toolkeep.NewError(toolkeep.MalformedRequest, "the search cache is off; there is nothing of scope %s to drop", scope)
	}
	if scope != "user" && scope != "strategy" {
		return invalidated(a.c.Invalidate(ctx, tenant, id, p.Subject))
	}
	return invalidated(0, nil)
}

type reindexInput struct {
	Body struct {
		Scope      string   `json:"scope" enum:"all,specific" doc:"all tools that your tenant can see, or those of toolIds"`
		ToolIDs    []string `json:"toolIds,omitempty" maxItems:"1000" doc:"required for scope specific"`
		Embeddings bool     `json:"forceEmbeddingRegeneration,omitempty" doc:"make the vectors again too; the old ones count until then"`
	} `nameHint:"ReindexRequest"`
}

type reindexOutput struct {
	Body struct {
		Status     string `json:"status" enum:"success"`
		Queued     int    `json:"queued" doc:"tools that are taken apart again, on every node, from now on"`
		Embeddings int    `json:"embeddings" doc:"of them, those whose vectors are made again"`
	} `nameHint:"ReindexAnswer"`
}

func (a *API) reindex(ctx context.Context, p *toolkeep.Principal, in *reindexInput) (*reindexOutput, error) {
	b := &in.Body
	if (b.Scope == "specific") != (len(b.ToolIDs) > 0) {
		return nil, toolkeep.NewError(toolkeep.MalformedRequest, "toolIds goes with scope specific, and only with it")
	}
	var ids []string
	for _, id := range b.ToolIDs {
		v, _, err := a.c.Catalog.Describe(ctx, p, id, "", a.visible(p))
		if err != nil {
			return nil, err
		}
		ids = append(ids, v.Tool.ID)
	}
	n, err := a.c.SearchAdmin.Reindex(ctx, p, ids, b.Embeddings)
	if err != nil {
		return nil, err
	}
	out := &reindexOutput{}
	out.Body.Status, out.Body.Queued = "success", n
	if b.Embeddings {
		out.Body.Embeddings = n
	}
	return out, nil
}

// searchAdminRoutes are those of Discovery 8.2 that act.
func (a *API) searchAdminRoutes() {
	op := func(method, path, id, summary string) route {
		return op(method, "/api/v1/tools/admin"+path, id, tagAdmin, summary)
	}
	if a.c.Invalidate != nil {
		register(a, op("DELETE", "/cache/invalidate", "invalidateCache", "Drop cached results and kept answers of search"), toolkeep.PermOperate, a.invalidate)
	}
	if a.c.SearchAdmin != nil {
		again := op("POST", "/reindex", "reindex", "Index tools again, in the background")
		again.status = http.StatusAccepted
		register(a, again, toolkeep.PermOperate, a.reindex)
	}
}
