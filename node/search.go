package node

import (
	"cmp"
	"context"
	"path/filepath"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/control/search"
	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/cache"
	"github.com/toolkeep/toolkeep/discover/minilm"
	"github.com/toolkeep/toolkeep/discover/pgvector"
	"github.com/toolkeep/toolkeep/discover/usage"
	"github.com/toolkeep/toolkeep/examples/bookshop"
	"github.com/toolkeep/toolkeep/executor/builtin"
	"github.com/toolkeep/toolkeep/node/settings"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/sharedcache"
	"github.com/toolkeep/toolkeep/store/redis"
	"github.com/toolkeep/toolkeep/telemetry"
)

// buildUsage makes what learns from how tools are used.
func (n *Node) buildUsage(context.Context) error {
	c := n.config.Search
	n.usage = usage.New(usage.Config{Store: n.store, Clean: n.redact.All().Clean,
		NoHistory: c.History == "off", Learning: usage.Learning(c.Learning),
		Weights: c.Weights(), Keep: c.HistoryKeep, Every: usage.JobEvery(n.config.Store.KeepFeed),
		Lead: n.members.Lead, Shared: n.members.Shared, Node: n.name, Clock: n.options.Clock, Log: n.logger("usage")})
	return nil
}

// Usage is what learns from how tools are used.
func (n *Node) Usage() *usage.Usage { return n.usage }

// buildIndex makes the search index, which compares meanings where an embedding service
// is configured or a model is installed.
func (n *Node) buildIndex(ctx context.Context) (err error) {
	c := n.config.Search
	n.model = &minilm.Lazy{Dir: minilm.In(cmp.Or(c.ModelsDir, filepath.Join(n.config.Data, datadir.Models)))}
	models := &search.Models{Setting: c.Model, BuiltIn: n.model, Service: c.Service(), AskService: !secret.NeedsStore(c.EmbeddingsKey)}
	models.Service.Key = n.credential(c.EmbeddingsKey)
	ic := discover.Config{Weights: c.Weights(), Threshold: c.Threshold, Usage: n.usage, Log: n.logger("search"), About: func(t *toolkeep.Tool) string { return n.catalog.Snapshot().About(t) },
		Last: func(t *toolkeep.Tool) bool { return builtin.Published(t) || bookshop.Published(t) }}
	if ic.Embedder, err = models.Embedder(ctx); err != nil {
		return err
	}
	if err := n.config.CheckVectors(); err != nil {
		return err
	}
	if ic.Embedder != nil {
		if ic.Vectors, err = n.vectors(); err != nil {
			return err
		}
		ic.Other = models.Earlier
	}
	n.index = discover.New(ic)
	return nil
}

// vectors is what keeps the vectors of tools.
func (n *Node) vectors() (discover.Backend, error) {
	c := n.config.Search
	if c.Vectors != "pgvector" {
		return discover.NewMemory(filepath.Join(n.config.Data, datadir.Vectors), n.logger("search")), nil
	}
	_, conns := n.config.Conns()
	return pgvector.New(pgvector.Config{DSN: n.config.VectorDSN(), MaxConns: conns, Pooled: n.pooled && n.config.VectorDSN() == n.config.Store.DSN, Name: n.name, Sweeps: n.leads(workVectors), Clock: n.options.Clock, Log: n.logger("search")})
}

func (n *Node) startIndex(context.Context) error {
	if err := n.index.Start(); err != nil {
		n.logger("search").Warn("search compares only words until the vector store answers", "error", err)
	}
	return nil
}

// buildSearch puts the cache before the index, unless it is switched off.
func (n *Node) buildSearch(context.Context) error {
	n.search = n.index
	admin := search.Config{Index: n.index, Store: n.store, Clock: n.options.Clock, Log: n.logger("search")}
	defer func() { n.searchControl = search.New(admin) }()
	s := n.config.Search
	if !s.Cache.Enabled {
		return nil
	}
	c := cache.Config{Index: n.index, Store: n.store, Usage: n.usage, Ranking: sharedcache.Build(n.options.Version, n.config.Search.Ranking()),
		Entries: s.Cache.Entries, Bytes: s.Cache.Bytes, Life: s.Cache.TTL, RemoteLife: s.Cache.SharedTTL, Patience: s.Cache.Wait,
		Clock: n.options.Clock, Log: n.logger("search")}
	if n.redis != nil {
		c.Secret, c.Remote = n.sharedSecret, n.redis.Cache(settings.SearchCache, s.Cache.SharedEntries, n.options.Clock)
	}
	made, err := cache.New(c)
	if err != nil {
		return err
	}
	n.searchCache, n.search, admin.Cache = made, made, made
	return nil
}

func (n *Node) closeSearch() {
	n.searchControl.Stop()
	if n.searchCache != nil {
		n.searchCache.Close()
	}
}

// buildRedis makes the connections to Redis that all uses of it share, where one is
// configured. A server that is away keeps nothing from starting.
func (n *Node) buildRedis(ctx context.Context) (err error) {
	c := settings.Redis(n.config.Redis)
	c.Name = n.name
	c.Password = n.credential(n.config.Redis.Password)
	if n.redis, err = redis.New(c); err != nil {
		return err
	}
	n.sharedSecret, err = sharedcache.Secret(ctx, n.store, n.sealer, n.name, n.logger("redis"))
	if err != nil || secret.NeedsStore(n.config.Redis.Password) {
		return err // stores of secrets are not there yet; health says it then
	}
	return n.redis.Elsewhere(ctx, settings.RedisUses(n.config)...)
}

// shareLimits has Redis count the limits of all nodes.
func (n *Node) shareLimits(ctx context.Context) error {
	n.limits.UseCounter(n.redis.Limits(), 0, n.logger("rate_limiter"))
	n.health.Add(telemetry.Component{Name: "shared_limits", Check: n.limits.Health})
	return nil
}
