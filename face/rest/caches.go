package rest

import (
	"context"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/control/caches"
)

// CacheState is caches.State.
type CacheState caches.State

type listCachesOutput struct {
	Body struct {
		Node   string       `json:"node" doc:"whose caches these are: the one that answers"`
		Caches []CacheState `json:"caches"`
	} `nameHint:"CacheList"`
}

func (a *API) listCaches(_ context.Context, p *toolkeep.Principal, _ *struct{}) (*listCachesOutput, error) {
	list, err := a.c.Caches.List(p)
	if err != nil {
		return nil, err
	}
	out := &listCachesOutput{}
	out.Body.Node = a.c.Caches.Node
	for _, s := range list {
		out.Body.Caches = append(out.Body.Caches, CacheState(s))
	}
	return out, nil
}
