package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	json "github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/cache"
	"github.com/toolkeep/toolkeep/telemetry"
)

// searcher is what faces search with: the index, or the cache before it.
type searcher interface {
	Find(ctx context.Context, q discover.Query, visible func(*toolkeep.Tool) bool) ([]discover.Match, discover.Report)
	Tools(visible func(*toolkeep.Tool) bool) []*toolkeep.Tool
}

// buildSearchCache puts the cache before the index, unless it is switched off.
func (n *Node) buildSearchCache(ctx context.Context) error {
	n.search = n.index
	s := n.config.Search
	if !s.Cache.Enabled {
		return nil
	}
	c := cache.Config{Index: n.index, Store: n.store, Usage: n.usage, Ranking: n.ranking(),
		Entries: s.Cache.Entries, Bytes: s.Cache.Bytes, Life: s.Cache.TTL, RemoteLife: s.Cache.SharedTTL, Patience: s.Cache.Wait,
		Clock: n.options.Clock, Log: n.logger("search")}
	if n.redis != nil {
		var err error
		if c.Secret, err = n.cacheSecret(ctx); err != nil {
			return fmt.Errorf("the secret of the shared cache of searches: %w", err)
		}
		// Stores of secrets are not there yet; health says it then.
		if p := n.config.Redis.Password; p == "" || strings.HasPrefix(p, "env://") || strings.HasPrefix(p, "file://") {
			if err = elsewhere(ctx, n.redis, n.config.Redis.Timeout); err != nil {
				return err
			}
		}
		c.Remote = n.redis.Cache(searchCache, s.Cache.SharedEntries, n.options.Clock)
	}
	made, err := cache.New(c)
	if err != nil {
		return err
	}
	n.searchCache, n.search = made, made
	return nil
}

// ranking names what scores depend on beside tools and questions. Nodes of different
// builds may rank differently, so they do not share answers.
func (n *Node) ranking() string {
	c := n.config.Search
	build := n.options.Version
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" || s.Key == "vcs.modified" {
				build += " " + s.Value
			}
		}
	}
	// These rank nothing, and may differ.
	c.Cache, c.ModelsDir, c.EmbeddingsKey, c.VectorsDSN = config.SearchCache{}, "", "", ""
	return fmt.Sprintf("%s %+v", build, c)
}

// cacheKeyKind is the item with the secret that the nodes of a deployment seal shared
// answers with. It is itself sealed.
const (
	cacheKeyKind = "search_cache_key"
	cacheKeyID   = "key"
)

// cacheSecret gives the secret that the store holds, or makes it. One that cannot be
// opened any more is replaced: nothing that it sealed is needed.
func (n *Node) cacheSecret(ctx context.Context) ([]byte, error) {
	context := []byte(cacheKeyKind)
	const tries = 10
	for range tries {
		item, err := n.store.Document(ctx, cacheKeyKind, "", cacheKeyID)
		if err != nil && !errors.Is(err, toolkeep.ErrNotFound) {
			return nil, err
		}
		if err == nil {
			var body struct {
				Sealed []byte `json:"sealed"`
			}
			if json.Unmarshal(item.Body, &body) == nil {
				if plain, err := n.sealer.Open(body.Sealed, context); err == nil && len(plain) == 32 {
					return plain, nil
				}
			}
			n.logger("search").Warn("the secret of the shared cache of searches cannot be opened; a new one is made and the cache begins anew")
		}
		plain := make([]byte, 32)
		if _, err := rand.Read(plain); err != nil {
			return nil, err
		}
		sealed, err := n.sealer.Seal(plain, context)
		if err != nil {
			return nil, err
		}
		body, err := json.Marshal(map[string][]byte{"sealed": sealed})
		if err != nil {
			return nil, err
		}
		err = n.store.Apply(ctx, toolkeep.PutDocument{Expect: item.Revision, Document: toolkeep.Document{Kind: cacheKeyKind, ID: cacheKeyID, Body: body, UpdatedBy: n.name}})
		if err == nil {
			return plain, nil
		}
		if !errors.Is(err, toolkeep.ErrStale) {
			return nil, err
		}
	}
	return nil, errors.New("other nodes keep changing it")
}

// reindexKind is the item by which one node has all index anew.
const reindexKind = "search_reindex"

// reindexOrder is its body.
type reindexOrder struct {
	All        bool     `json:"all,omitempty"`
	IDs        []string `json:"ids,omitempty"`
	Embeddings bool     `json:"embeddings,omitempty"`
}

// startSearchCache takes over what was flushed before and follows what nodes flush and
// have indexed anew, until run ends.
func (n *Node) startSearchCache(ctx, run context.Context) error {
	flushed, after, err := n.store.Documents(ctx, cache.DocumentKind)
	if err != nil {
		return err
	}
	if n.searchCache != nil {
		n.searchCache.Load(flushed)
	}
	orders := &reindexer{spawn: n.done.Go, do: func(o folded) {
		if run.Err() == nil { // the next start takes all tools apart anyway
			n.reindex(o)
		}
	}}
	n.done.Go(func() {
		n.watch(run, after, func(c toolkeep.Committed) { n.followSearch(c, orders) }, func(err error) {
			n.logger("search").Warn("the feed of flushes broke; it is taken up again", "error", err)
		})
	})
	return nil
}

func (n *Node) followSearch(c toolkeep.Committed, orders *reindexer) {
	if n.searchCache != nil {
		n.searchCache.Follow(c)
	}
	put, ok := c.Change.(toolkeep.PutDocument)
	if !ok || put.Document.Kind != reindexKind {
		return
	}
	var order reindexOrder
	if err := json.Unmarshal(put.Document.Body, &order); err != nil {
		n.logger("search").Warn("an order to index anew cannot be read", "tenant", put.Document.Tenant, "error", err)
		return
	}
	n.logger("search").Info("tools are to be indexed anew", "all", order.All, "ids", len(order.IDs), "embeddings", order.Embeddings,
		"tenant", put.Document.Tenant, "by", put.Document.UpdatedBy)
	orders.take(put.Document.Tenant, order) // flushes do not wait for it
}

// reindexable are the ids of an order that the tenant can see; never nil, which would
// be all tools of all tenants.
func (n *Node) reindexable(tenant string, order reindexOrder) []string {
	wanted := map[string]bool{}
	for _, id := range order.IDs {
		wanted[id] = true
	}
	ids := []string{}
	for _, t := range n.index.Tools(func(t *toolkeep.Tool) bool { return t.Tenant == "" || t.Tenant == tenant }) {
		if order.All || wanted[t.ID] {
			ids = append(ids, t.ID)
		}
	}
	return slices.Compact(ids)
}

// searchAdmin is rest.SearchAdmin.
type searchAdmin struct{ n *Node }

func (a searchAdmin) FlushSearch(ctx context.Context, p *toolkeep.Principal, scope, id string) error {
	if a.n.searchCache == nil {
		return nil // nothing is kept
	}
	return a.n.searchCache.Flush(ctx, p.Tenant, p.Subject, cache.Scope(scope), id)
}

func (a searchAdmin) Reindex(ctx context.Context, p *toolkeep.Principal, ids []string, embeddings bool) (int, error) {
	order := reindexOrder{All: ids == nil, IDs: ids, Embeddings: embeddings}
	body, err := json.Marshal(order)
	if err != nil {
		return 0, err
	}
	err = a.n.store.Apply(ctx, toolkeep.PutDocument{Expect: toolkeep.AnyRevision,
		Document: toolkeep.Document{Kind: reindexKind, Tenant: p.Tenant, ID: "order", Body: body, UpdatedBy: p.Subject}})
	if err != nil {
		return 0, toolkeep.NewError(toolkeep.RecordUnavailable, "the order could not be stored; nothing is indexed anew").Because(err)
	}
	return len(a.n.reindexable(p.Tenant, order)), nil
}

// redisHealth tells that Redis is away, without which all goes on.
func (n *Node) redisHealth(ctx context.Context) error {
	if err := n.redis.Health(ctx); err != nil {
		return err
	}
	return n.redis.Elsewhere(ctx, searchCache)
}

func (n *Node) searchCacheSamples() []telemetry.Sample {
	if n.searchCache == nil {
		return nil
	}
	s := n.searchCache.Stats()
	return []telemetry.Sample{
		{Name: "toolkeep_search_cache_hits_total", Help: "Searches answered from the process's cache.", Counter: true, Value: float64(s.Hits)},
		{Name: "toolkeep_search_cache_shared_hits_total", Help: "Searches answered from Redis.", Counter: true, Value: float64(s.RemoteHits)},
		{Name: "toolkeep_search_cache_misses_total", Help: "Searches that went to the index although their answer is kept.", Counter: true, Value: float64(s.Misses)},
		{Name: "toolkeep_search_cache_passed_total", Help: "Searches whose answer is not kept.", Counter: true, Value: float64(s.Passed)},
		{Name: "toolkeep_search_cache_shared_errors_total", Help: "Questions that Redis did not answer.", Counter: true, Value: float64(s.RemoteErrors)},
		{Name: "toolkeep_search_cache_entries", Help: "Answers kept in the process, about.", Value: float64(s.Entries)},
		{Name: "toolkeep_search_cache_bytes", Help: "Bytes of them, about.", Value: float64(s.Bytes)},
	}
}

func (n *Node) closeSearchCache() {
	if n.searchCache != nil {
		n.searchCache.Close()
	}
}
