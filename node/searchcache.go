package node

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/control/search"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/cache"
	"github.com/toolkeep/toolkeep/telemetry"
)

// searcher is what faces search with: the index, or the cache before it.
type searcher interface {
	Find(ctx context.Context, q discover.Query, visible func(*toolkeep.Tool) bool) ([]discover.Match, discover.Report)
	Tools(visible func(*toolkeep.Tool) bool) []*toolkeep.Tool
}

// buildSearch puts the cache before the index, unless it is switched off.
func (n *Node) buildSearch(ctx context.Context) error {
	n.search = n.index
	admin := search.Config{Index: n.index, Store: n.store, Clock: n.options.Clock, Log: n.logger("search")}
	defer func() { n.searchControl = search.New(admin) }()
	s := n.config.Search
	if !s.Cache.Enabled {
		return nil
	}
	c := cache.Config{Index: n.index, Store: n.store, Usage: n.usage, Ranking: n.ranking(),
		Entries: s.Cache.Entries, Bytes: s.Cache.Bytes, Life: s.Cache.TTL, RemoteLife: s.Cache.SharedTTL, Patience: s.Cache.Wait,
		Clock: n.options.Clock, Log: n.logger("search")}
	if n.redis != nil {
		var err error
		if c.Secret, err = cache.SharedSecret(ctx, n.store, n.sealer, n.name, n.logger("search")); err != nil {
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
	n.searchCache, n.search, admin.Cache = made, made, made
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

func (n *Node) closeSearch() {
	n.searchControl.Stop()
	if n.searchCache != nil {
		n.searchCache.Close()
	}
}
