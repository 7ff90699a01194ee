// Package search is what people decide about search: which kept answers are dropped,
// which tools are indexed again, and which model embeds them. An order is a document of the store, so every node
// carries it out.
package search

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/discover/cache"
)

// orderKind is the kind of the document by which one node has all index tools again.
const orderKind = "search_reindex"

// order is its body.
type order struct {
	All        bool     `json:"all,omitempty"`
	IDs        []string `json:"ids,omitempty"`
	Embeddings bool     `json:"embeddings,omitempty"` // make the vectors again too
}

// Index is what is searched; *discover.Index is one.
type Index interface {
	Tools(visible func(*toolkeep.Tool) bool) []*toolkeep.Tool
	Reindex(ids []string, embeddings bool) (queued int)
}

// Cache keeps answers; *cache.Cache is one.
type Cache interface {
	Flush(ctx context.Context, tenant, by string, scope cache.Scope, id string) error
	Load(flushed []toolkeep.Document)
	Follow(c toolkeep.Committed)
}

// Store keeps orders and flushes.
type Store interface {
	toolkeep.Applier
	Documents(ctx context.Context, kind string) ([]toolkeep.Document, int64, error)
}

// Config is what Search asks.
type Config struct {
	Index Index
	Cache Cache // nil: no answers are kept
	Store Store
	Clock func() time.Time // default time.Now
	Log   *slog.Logger
}

// Search looks after the search of tenants. Start reads what was decided before; Follow
// carries out what is decided from then on.
type Search struct {
	c       Config
	orders  reindexer
	done    sync.WaitGroup
	stopped chan struct{}
	once    sync.Once
}

// New makes a Search.
func New(c Config) *Search {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	s := &Search{c: c, stopped: make(chan struct{})}
	s.orders = reindexer{do: s.reindex, spawn: s.done.Go}
	return s
}

// AllTenants is the scope of a flush for every tenant.
const AllTenants = "all_tenants"

// TenantOf returns whose results and answers a flush drops: the principal's tenant's, or with AllTenants every tenant's, which is
// "". E3201 for AllTenants unless the principal is an operator of the home tenant.
func TenantOf(p *toolkeep.Principal, scope string) (string, error) {
	switch {
	case scope != AllTenants:
		return p.Tenant, nil
	case p.Tenant != access.HomeTenant || !p.May(toolkeep.PermOperate):
		return "", toolkeep.NewError(toolkeep.PermissionDenied, "operators of the tenant %s (permission %s) drop what is cached for all tenants; scope all drops that of your own", access.HomeTenant, toolkeep.PermOperate)
	}
	return "", nil
}

// Flush drops kept answers of the principal's tenant on every node: of all scopes, or of the user, tool or strategy that id
// names; with AllTenants those of every tenant. E3201, E3301, E3965.
func (s *Search) Flush(ctx context.Context, p *toolkeep.Principal, scope, id string) error {
	tenant, err := TenantOf(p, scope)
	if err != nil || s.c.Cache == nil {
		return err
	}
	if scope == AllTenants {
		scope = string(cache.All)
	}
	return s.c.Cache.Flush(ctx, tenant, p.Subject, cache.Scope(scope), id)
}

// Reindex has every node take tools apart again, all that the tenant can see where ids is
// nil, and with embeddings make their vectors again too. It tells how many tools that
// will be. E3965.
func (s *Search) Reindex(ctx context.Context, p *toolkeep.Principal, ids []string, embeddings bool) (queued int, err error) {
	o := order{All: ids == nil, IDs: ids, Embeddings: embeddings}
	body, err := json.Marshal(o)
	if err != nil {
		return 0, err
	}
	err = s.c.Store.Apply(ctx, toolkeep.PutDocument{Expect: toolkeep.AnyRevision,
		Document: toolkeep.Document{Kind: orderKind, Tenant: p.Tenant, ID: "order", Body: body, UpdatedBy: p.Subject}})
	if err != nil {
		return 0, toolkeep.NewError(toolkeep.RecordUnavailable, "the reindex request could not be stored; no tool is indexed again").Because(err)
	}
	return len(s.ids(p.Tenant, o)), nil
}

// Start takes over earlier flushes and gives the place in the feed after which Follow is
// to be told. Earlier orders are done: a start takes all tools apart.
func (s *Search) Start(ctx context.Context) (after int64, err error) {
	flushed, after, err := s.c.Store.Documents(ctx, cache.DocumentKind)
	if err != nil {
		return 0, err
	}
	if s.c.Cache != nil {
		s.c.Cache.Load(flushed)
	}
	return after, nil
}

// Follow takes a change of the feed. It does not wait for the order that it brings.
func (s *Search) Follow(c toolkeep.Committed) {
	if s.c.Cache != nil {
		s.c.Cache.Follow(c)
	}
	put, ok := c.Change.(toolkeep.PutDocument)
	if !ok || put.Document.Kind != orderKind {
		return
	}
	d := put.Document
	var o order
	if err := json.Unmarshal(d.Body, &o); err != nil {
		s.c.Log.Warn("a reindex request cannot be read", "tenant", d.Tenant, "error", err)
		return
	}
	s.c.Log.Info("tools are to be reindexed", "all", o.All, "ids", len(o.IDs), "embeddings", o.Embeddings, "tenant", d.Tenant, "by", d.UpdatedBy)
	s.orders.take(d.Tenant, o)
}

// Stop waits for the order under way and drops the others. Follow must have ended.
func (s *Search) Stop() {
	s.once.Do(func() { close(s.stopped) })
	s.done.Wait()
}

// reindex carries out orders. A tool whose vectors are made again is not taken apart
// twice.
func (s *Search) reindex(orders folded) {
	select {
	case <-s.stopped: // the next start takes all tools apart anyway
		return
	default:
	}
	began := s.c.Clock()
	seen := map[string]bool{}
	for _, embeddings := range []bool{true, false} {
		var ids []string
		for of, o := range orders {
			if of.embeddings != embeddings {
				continue
			}
			for _, id := range s.ids(of.tenant, o) {
				if !seen[id] {
					seen[id] = true
					ids = append(ids, id)
				}
			}
		}
		if len(ids) == 0 {
			continue
		}
		did := s.c.Index.Reindex(ids, embeddings)
		s.c.Log.Info("tools were reindexed", "tools", did, "embeddings", embeddings, "orders", len(orders), "took", s.c.Clock().Sub(began).String())
	}
}

// ids are the tools of an order that the tenant can see; never nil, which would be all
// tools of all tenants.
func (s *Search) ids(tenant string, o order) []string {
	wanted := map[string]bool{}
	for _, id := range o.IDs {
		wanted[id] = true
	}
	ids := []string{}
	for _, t := range s.c.Index.Tools(func(t *toolkeep.Tool) bool { return t.Tenant == "" || t.Tenant == tenant }) {
		if o.All || wanted[t.ID] {
			ids = append(ids, t.ID)
		}
	}
	return slices.Compact(ids)
}
