package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/control/search"
	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/cache"
	"github.com/toolkeep/toolkeep/discover/minilm"
	"github.com/toolkeep/toolkeep/discover/pgvector"
	"github.com/toolkeep/toolkeep/discover/remote"
	"github.com/toolkeep/toolkeep/discover/usage"
	"github.com/toolkeep/toolkeep/store/redis"
)

// buildUsage makes what learns from how tools are used.
func (n *Node) buildUsage(context.Context) error {
	c := n.config.Search
	n.usage = usage.New(usage.Config{Store: n.store, Clean: n.redact.All().Clean,
		NoHistory: c.History == "off", Learning: usage.Learning(c.Learning),
		Weights: c.Weights(), Keep: c.HistoryKeep, Every: usage.JobEvery(n.config.Store.KeepFeed),
		Node: n.name, Clock: n.options.Clock, Log: n.logger("usage")})
	return nil
}

// Usage is what learns from how tools are used.
func (n *Node) Usage() *usage.Usage { return n.usage }

// buildIndex makes the search index, which compares meanings where an embedding service
// is configured or a model is installed.
func (n *Node) buildIndex(ctx context.Context) error {
	c := n.config.Search
	n.model = &minilm.Lazy{Dir: minilm.In(cmp.Or(c.ModelsDir, filepath.Join(n.config.Data, datadir.Models)))}
	ic := discover.Config{Weights: c.Weights(), Threshold: c.Threshold, Usage: n.usage, Log: n.logger("search")}
	there := minilm.Installed(n.model.Dir)
	switch {
	case c.Model == "none":
	case c.EmbeddingsURL != "":
		service, err := n.embeddingService(c.EmbeddingsModel, c.EmbeddingsDimensions)
		if err != nil {
			return err
		}
		// A key in a store of secrets cannot be read yet; a search tells the fault then.
		if readable(c.EmbeddingsKey) {
			ctx, cancel := context.WithTimeout(ctx, dimensionsWait)
			err = service.CheckDimensions(ctx)
			cancel()
			if err != nil {
				return err
			}
		}
		ic.Embedder = service
	case there:
		ic.Embedder = n.model
	case c.Model == minilm.Name:
		return toolkeep.NewError(toolkeep.InvalidManifest, "search.model is %s, and %s does not hold it; install it with `toolkeep models install`, or set search.model to auto", c.Model, n.model.Dir)
	}
	if err := checkVectors(n.config); err != nil {
		return err
	}
	if ic.Embedder != nil {
		var err error
		if ic.Vectors, err = n.vectors(); err != nil {
			return err
		}
		ic.Other = n.otherModel
	}
	n.index = discover.New(ic)
	return nil
}

// dimensionsWait bounds how long the start waits for the embedding service.
const dimensionsWait = 2 * time.Second

// readable reports whether a reference, or none, can be read before the stores of secrets
// are there.
func readable(reference string) bool {
	return reference == "" || strings.HasPrefix(reference, "env://") || strings.HasPrefix(reference, "file://")
}

// vectors is what keeps the vectors of tools.
func (n *Node) vectors() (discover.Backend, error) {
	c := n.config.Search
	if c.Vectors != "pgvector" {
		return discover.NewMemory(filepath.Join(n.config.Data, datadir.Vectors), n.logger("search")), nil
	}
	return pgvector.New(pgvector.Config{DSN: n.config.VectorDSN(), Name: n.name, Clock: n.options.Clock, Log: n.logger("search")})
}

// checkVectors reads the address of pgvector, if it is to be used.
func checkVectors(c *config.Config) error {
	if c.Search.Vectors != "pgvector" {
		return nil
	}
	b, err := pgvector.New(pgvector.Config{DSN: c.VectorDSN()})
	if err != nil {
		return err
	}
	return b.Close()
}

// otherModel gives the model that tools were embedded by before: the own one, if it is
// still installed, or another one of the same service, which it says itself if it does
// not have it any more.
func (n *Node) otherModel(s discover.Space) discover.Embedder {
	if s.Model == minilm.Name && s.Dimensions == minilm.Dimensions && minilm.Installed(n.model.Dir) {
		return n.model
	}
	url := n.config.Search.EmbeddingsURL
	name, same := strings.CutSuffix(s.Model, "@"+url)
	if url == "" || !same {
		return nil
	}
	e, err := n.embeddingService(name, s.Dimensions)
	if err != nil {
		return nil // it was another name once, which nothing can be asked for
	}
	return e
}

func (n *Node) embeddingService(model string, dimensions int) (*remote.Embedder, error) {
	c := n.config.Search
	rc := remote.Config{URL: c.EmbeddingsURL, Model: model, Dimensions: dimensions}
	if c.EmbeddingsKey != "" {
		rc.Key = n.credential(c.EmbeddingsKey)
	}
	return remote.New(rc)
}

func (n *Node) startIndex(context.Context) error {
	if err := n.index.Start(); err != nil {
		n.logger("search").Warn("search compares only words until the vector store answers", "error", err)
	}
	return nil
}

func (n *Node) closeIndex() {
	if err := errors.Join(n.index.Close(), n.model.Close()); err != nil {
		n.logger("search").Warn("the index was not closed cleanly", "error", err)
	}
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
	c := cache.Config{Index: n.index, Store: n.store, Usage: n.usage, Ranking: cache.Ranking(n.options.Version, n.config.Search.Ranking()),
		Entries: s.Cache.Entries, Bytes: s.Cache.Bytes, Life: s.Cache.TTL, RemoteLife: s.Cache.SharedTTL, Patience: s.Cache.Wait,
		Clock: n.options.Clock, Log: n.logger("search")}
	if n.redis != nil {
		var err error
		if c.Secret, err = cache.SharedSecret(ctx, n.store, n.sealer, n.name, n.logger("search")); err != nil {
			return fmt.Errorf("the secret of the shared cache of searches: %w", err)
		}
		// Stores of secrets are not there yet; health says it then.
		if readable(n.config.Redis.Password) {
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

// redisHealth tells that Redis is away, without which all goes on.
func (n *Node) redisHealth(ctx context.Context) error {
	if err := n.redis.Health(ctx); err != nil {
		return err
	}
	return n.redis.Elsewhere(ctx, searchCache)
}

func (n *Node) closeSearch() {
	n.searchControl.Stop()
	if n.searchCache != nil {
		n.searchCache.Close()
	}
}

// buildRedis makes the connections to Redis that all uses of it share, where one is
// configured. A server that is away keeps nothing from starting.
func (n *Node) buildRedis(context.Context) (err error) {
	if n.config.Redis.URL == "" {
		return nil
	}
	c := redisConfig(n.config.Redis)
	c.Name = n.name
	if n.config.Redis.Password != "" {
		c.Password = n.credential(n.config.Redis.Password)
	}
	n.redis, err = redis.New(c)
	return err
}

// redisConfig is what the settings under redis say.
func redisConfig(c config.Redis) redis.Config {
	return redis.Config{URL: c.URL, CAFile: c.CAFile, ServerName: c.ServerName, CertFile: c.ClientCert, KeyFile: c.ClientKey,
		Prefix: c.Prefix, Conns: c.MaxConns, Timeout: c.Timeout}
}

// checkRedis says what is wrong with the settings, of files too.
func checkRedis(c config.Redis) error {
	if c.URL == "" {
		return nil
	}
	client, err := redis.New(redisConfig(c))
	if err != nil {
		return err
	}
	if c.Password == "" { // which nobody can read here
		err = elsewhere(context.Background(), client, c.Timeout)
	}
	return errors.Join(err, client.Close())
}

// searchCache is the name of the cache of searches in Redis.
const searchCache = "search"

// elsewhere refuses a cluster that would answer every use of the cache with a
// redirection. A server that does not answer within the timeout is for later.
func elsewhere(ctx context.Context, client *redis.Client, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(timeout, time.Second))
	defer cancel()
	return client.Elsewhere(ctx, searchCache)
}

func (n *Node) closeRedis() {
	if n.redis == nil {
		return
	}
	if err := n.redis.Close(); err != nil {
		n.logger("search").Warn("the connections to Redis did not close cleanly", "error", err)
	}
}
