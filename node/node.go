package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/control/search"
	"github.com/toolkeep/toolkeep/control/secrets"
	"github.com/toolkeep/toolkeep/control/servers"
	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/cache"
	"github.com/toolkeep/toolkeep/discover/usage"
	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/executor/builtin"
	"github.com/toolkeep/toolkeep/executor/filetool"
	"github.com/toolkeep/toolkeep/executor/grpctool"
	"github.com/toolkeep/toolkeep/executor/httptool"
	"github.com/toolkeep/toolkeep/executor/mcptool"
	"github.com/toolkeep/toolkeep/executor/sqltool"
	"github.com/toolkeep/toolkeep/face/mcpserver"
	"github.com/toolkeep/toolkeep/face/rest"
	"github.com/toolkeep/toolkeep/face/rpc"
	"github.com/toolkeep/toolkeep/inspect"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/limit"
	"github.com/toolkeep/toolkeep/overlay"
	"github.com/toolkeep/toolkeep/redact"
	"github.com/toolkeep/toolkeep/resultcache"
	"github.com/toolkeep/toolkeep/schema"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/secret/tokenexchange"
	"github.com/toolkeep/toolkeep/store/blob"
	"github.com/toolkeep/toolkeep/store/redis"
	"github.com/toolkeep/toolkeep/telemetry"
	"github.com/toolkeep/toolkeep/upstream"
	"github.com/toolkeep/toolkeep/upstream/oauth"
)

// Options are what a node needs beside its configuration.
type Options struct {
	Version string
	LogTo   io.Writer // default os.Stderr
	// Executors are added to the built-in ones, or replace the one of their kind.
	Executors []toolkeep.Executor
	// Hook is called at every step of every call (see invoke.Config), and at
	// "admin_key" when the first admin key is in its file and not yet in the store.
	// Crash tests use it.
	Hook func(step, id string)
	// Reaper is the argv prefix under which a program of an MCP server is run:
	// the command itself, see upstream.RunReaper. Linux needs it for servers by stdio.
	Reaper []string
	Clock  func() time.Time
}

// Node is a running Toolkeep.
type Node struct {
	config  *config.Config
	options Options
	name    string // in leases and in the database's list of sessions

	unlock  func() // releases the data directory
	redact  *redact.Redactor
	log     *telemetry.Log
	health  *telemetry.Health
	metrics *telemetry.Metrics
	queue   workQueue
	store   Store
	stats   func() []telemetry.Sample // of the store
	access  *access.Access
	catalog *catalog.Catalog
	fresh   *catalog.Fresh
	peers   *mcpserver.Peers
	index   *discover.Index
	redis   *redis.Client // nil without one
	// search is the index, or the cache before it, which is nil where it is switched off.
	search        searcher
	searchCache   *cache.Cache
	searchControl *search.Search
	usage         *usage.Usage
	model         *lazyModel
	limits        *limit.Limits
	recall        *resultcache.Cache
	http          *httptool.Executor
	files         *filetool.Executor
	sql           *sqltool.Executor
	grpc          *grpctool.Executor
	kinds         map[string]toolkeep.Executor
	blobs         *blob.Dir
	secrets       *secret.Resolver
	sealer        *secrets.Sealer
	keeping       secretKeeping
	pipeline      *invoke.Pipeline
	contexts      *overlay.Provider
	pool          *egress.Pool // of what reaches MCP servers and the services of settings
	logins        *oauth.Logins
	credentials   *servers.Credentials
	upstream      *upstream.Servers
	probe         func() servers.Pool
	servers       *servers.Servers
	faces         faces

	follow   context.CancelFunc
	done     sync.WaitGroup
	stopOnce sync.Once
	stopErr  error
	// AdminKey is the text of the admin key if this start made it.
	AdminKey string
}

// New makes a node and everything in it. Nothing listens before Start. What New
// opened is closed again if it fails. ctx ends the wait for a PostgreSQL that does
// not answer, and nothing after it.
func New(ctx context.Context, c *config.Config, o Options) (n *Node, err error) {
	n = &Node{config: c, options: o, name: "node-" + uuid.NewString()}
	defer func() {
		if err != nil {
			n.release()
		}
	}()
	if err := os.MkdirAll(c.Data, 0o700); err != nil {
		return n, fmt.Errorf("the data directory cannot be made: %w", err)
	}
	if n.unlock, err = datadir.Lock(c.Data); err != nil {
		return n, err
	}
	n.redact = redact.NewRedactor(o.Clock)
	n.log = telemetry.NewLog(telemetry.LogConfig{Out: o.LogTo, Text: c.Log.Format == "text", Level: c.Log.Level,
		Components: c.Log.Components, Clean: n.redact.Log(), BufferBytes: c.Log.Buffer, Clock: o.Clock})
	n.log.Start()
	if err := n.buildStore(ctx); err != nil {
		return n, err
	}
	for _, build := range []func(context.Context) error{n.buildSealer, n.buildAccess, n.buildCatalog, n.buildPipeline, n.buildFaces} {
		if err := build(context.WithoutCancel(ctx)); err != nil {
			return n, err
		}
	}
	return n, nil
}

func (n *Node) logger(component string) *slog.Logger { return n.log.Logger(component) }

// runner hands the queue's ids to the pipeline, which is made after the queue.
type runner struct{ n *Node }

func (r runner) Run(ctx context.Context, ref toolkeep.CallRef) error {
	return r.n.pipeline.Run(ctx, ref)
}

func (n *Node) sweepBlobs(ctx context.Context) error {
	_, err := n.blobs.Sweep(ctx, n.now().Add(-n.config.Store.KeepCalls))
	return err
}

func (n *Node) now() time.Time {
	if n.options.Clock != nil {
		return n.options.Clock()
	}
	return time.Now()
}

func (n *Node) buildAccess(ctx context.Context) error {
	roles, err := access.ReadRoles(n.config.Access.Roles, n.config.Access.RolesFile)
	if err != nil {
		return err
	}
	c := access.Config{Load: n.store.Keys, Store: n.store, Roles: roles, Clock: n.options.Clock,
		Log: n.logger("permission_manager"), OnFailure: n.authFailed}
	if o := n.config.OAuth; o.Enabled() {
		c.OAuth = &access.OAuth{Issuer: o.Issuer, BaseURL: n.publicURL, Audience: o.Audience, JWKSURL: o.JWKSURL,
			SubjectClaim: o.SubjectClaim, TenantClaim: o.TenantClaim, DefaultTenant: o.DefaultTenant, WorkspaceClaim: o.WorkspaceClaim, Scopes: o.Roles()}
	}
	n.access, err = access.New(c)
	if err != nil {
		return err
	}
	if err := n.access.Start(ctx); err != nil {
		return err
	}
	n.AdminKey, err = n.access.Bootstrap(ctx, func(text string) error {
		path := filepath.Join(n.config.Data, datadir.AdminKey)
		if text == "" { // another node was first
			return os.Remove(path)
		}
		err := datadir.WriteFile(path, text+"\n")
		n.hook("admin_key")
		return err
	})
	return err
}

func (n *Node) hook(point string) {
	if n.options.Hook != nil {
		n.options.Hook(point, "")
	}
}

// authFailed counts who could not authenticate; refused calls are counted by
// their record.
func (n *Node) authFailed(f access.Failure) {
	if n.metrics == nil || f.Reason == "denied" {
		return
	}
	code := toolkeep.Unauthenticated
	if f.Reason == "blocked" {
		code = toolkeep.AuthFailuresLimited
	}
	n.metrics.AuthFailed(code)
}

func (n *Node) buildCatalog(ctx context.Context) error {
	egress, err := n.egressConfig()
	if err != nil {
		return err
	}
	n.http = httptool.New(httptool.Config{Clock: n.options.Clock, Egress: egress})
	if err := n.buildSecrets(); err != nil {
		return err
	}
	if err := n.buildUpstream(); err != nil {
		return err
	}
	if err := n.buildFiles(); err != nil {
		return err
	}
	if err := n.buildGRPC(); err != nil {
		return err
	}
	if err := n.buildSQL(); err != nil {
		return err
	}
	checkers := make(map[string]catalog.Checker)
	n.kinds = n.executors()
	for kind, ex := range n.kinds {
		checkers[kind] = func(m *toolkeep.Manifest) []toolkeep.Fault {
			return slices.Concat(ex.Check(m), tokenexchange.CheckManifest(m), limit.Check(m), resultcache.Check(m))
		}
	}
	n.catalog = catalog.New(catalog.Config{Store: n.store, Load: n.store.Versions, Checkers: checkers, Clock: n.options.Clock,
		Log: n.logger("tool_registry"), MaxActive: n.config.Catalog.KeepActive, RemoveAfter: n.config.Catalog.RemovalAfter, Home: System().Tenant})
	n.fresh = &catalog.Fresh{Catalog: n.catalog}
	n.buildServers()
	n.buildUsage()
	if err := n.buildIndex(); err != nil {
		return err
	}
	if err := n.buildRedis(); err != nil {
		return err
	}
	if err := n.buildSearchCache(ctx); err != nil {
		return err
	}
	indexed := int64(0)
	n.catalog.OnChange(func(s *catalog.Snapshot) {
		if versions, ok := s.Changed(indexed); ok {
			n.index.Change(versions)
		} else {
			n.index.Update(s.All())
		}
		indexed = s.Seq()
	})
	return n.catalog.Start(ctx)
}

// executors are all that carry out tools, by kind.
func (n *Node) executors() map[string]toolkeep.Executor {
	all := map[string]toolkeep.Executor{
		"http":    n.http,
		"mcp":     mcptool.New(n.upstream),
		"file":    n.files,
		"sql":     n.sql,
		"grpc":    n.grpc,
		"builtin": builtin.New(builtin.Config{Clock: n.options.Clock, Dir: filepath.Join(n.config.Data, "notes")}),
	}
	for _, ex := range n.options.Executors {
		all[ex.Kind()] = ex
	}
	return all
}

func (n *Node) buildPipeline(context.Context) error {
	c := n.config
	n.limits = limit.New(limit.Config{PerAgentRPM: c.Limits.AgentPerMinute, PerToolRPM: c.Limits.AgentToolPerMinute,
		GlobalRPM: c.Limits.GlobalPerMinute, Concurrent: c.Limits.AgentConcurrent, Clock: n.options.Clock})
	n.recall = resultcache.New(resultcache.Config{Off: !c.Cache.Enabled, TTL: c.Cache.TTL, Entries: c.Cache.Entries, Bytes: c.Cache.Bytes, Clock: n.options.Clock, Log: n.logger("tool_cache")})
	err := n.buildTelemetry()
	if err != nil {
		return err
	}
	if err := n.buildContexts(); err != nil {
		return err
	}
	schemas := schema.NewCache(0)
	n.pipeline, err = invoke.New(invoke.Config{
		Catalog: n.fresh, Access: n.access, Limits: n.limits, Results: n.recall, Secrets: n.secrets, Sealer: n.sealer, Blobs: n.blobs,
		Store: n.store, Invocations: n.store.Invocations(), Executors: n.kinds, Schemas: schemas, Overlays: n.contexts,
		Inspector: inspect.New(inspect.Config{HardBytes: c.Calls.MaxResult, Schemas: schemas}), Redact: n.redact,
		Observer: observer{&telemetry.Observer{Metrics: n.metrics, Log: n.log}},
		Node:     n.name, SyncLimit: c.Calls.SyncLimit, WaitLimit: c.Calls.WaitLimit, ResultLife: c.Calls.ResultLifetime,
		Lease: c.Calls.Lease, HardBytes: c.Calls.MaxResult, KeyBytes: c.HTTP.MaxKey,
		Arguments: canon.Limits{Bytes: c.HTTP.MaxBody, Depth: c.HTTP.MaxDepth, Properties: c.HTTP.MaxProperties},
		SpoolPath: filepath.Join(c.Data, datadir.Spool), Alone: c.Store.DSN == "", Clock: n.options.Clock, Log: n.logger("invoke"), Hook: n.options.Hook,
	})
	return err
}

func (n *Node) secretDirs() []string {
	if len(n.config.Secrets.Dirs) > 0 {
		return n.config.Secrets.Dirs
	}
	dir, err := filepath.Abs(filepath.Join(n.config.Data, "secrets"))
	if err != nil {
		return nil
	}
	return []string{dir}
}

func (n *Node) buildTelemetry() (err error) {
	version := n.config.Service.Version
	if version == "" {
		version = n.options.Version
	}
	n.health = telemetry.NewHealth(telemetry.HealthConfig{Version: version, Log: n.logger("health"), Clock: n.options.Clock})
	n.health.Add(telemetry.Component{Name: "store", Required: true, Grace: n.config.Catalog.StaleFor, Check: n.store.Health})
	n.health.Add(telemetry.Component{Name: "record_spool", Check: func(context.Context) error {
		if waiting, lost := n.pipeline.Spooled(); waiting > 0 {
			return fmt.Errorf("%d records wait for the store, %d are lost since the start", waiting, lost)
		}
		return nil
	}})
	if n.access.TakesTokens() {
		n.health.Add(telemetry.Component{Name: "oauth_issuer", Check: n.access.OAuthHealth})
	}
	n.health.Add(telemetry.Component{Name: "search", Check: n.searchHealth})
	n.health.Add(telemetry.Component{Name: "usage", Check: n.usageHealth})
	if n.redis != nil {
		n.health.Add(telemetry.Component{Name: "redis", Check: n.redisHealth})
	}
	n.metrics, err = telemetry.NewMetrics(telemetry.MetricsConfig{MaxTools: n.config.Metrics.MaxTools,
		QueueDepth: func(ctx context.Context) (map[toolkeep.Priority]int, error) {
			return n.store.Invocations().QueueDepth(ctx)
		},
		Cache: func() telemetry.CacheStats {
			s := n.recall.Stats()
			return telemetry.CacheStats{Hits: s.Hits, Misses: s.Misses, Evictions: s.Evictions}
		},
		Samples: []func() []telemetry.Sample{n.log.Samples, n.stats, n.spoolSamples, n.searchSamples, n.searchCacheSamples, n.usageSamples}})
	if err != nil {
		return err
	}
	if err := n.observeSecrets(); err != nil {
		return err
	}
	return n.metrics.Registry().Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "toolkeep_build_info",
		Help: "1; the labels say what runs.", ConstLabels: prometheus.Labels{"service": n.config.Service.Name, "version": version}},
		func() float64 { return 1 }))
}

func (n *Node) spoolSamples() []telemetry.Sample {
	waiting, lost := n.pipeline.Spooled()
	return []telemetry.Sample{
		{Name: "toolkeep_spool_records", Help: "Records that wait for the store.", Value: float64(waiting)},
		{Name: "toolkeep_spool_lost_total", Help: "Records that could not be kept.", Counter: true, Value: float64(lost)},
	}
}

// observer fits telemetry's Observer to the pipeline's.
type observer struct{ *telemetry.Observer }

func (o observer) Called(v *toolkeep.Invocation, t *toolkeep.Tool, e *toolkeep.Error, steps *invoke.Steps) {
	o.Observer.Called(v, t, e, steps.Durations[:])
}

// Start opens the listeners and lets the queue work. ctx bounds the start alone.
func (n *Node) Start(ctx context.Context) error {
	if err := n.publishBuiltins(ctx); err != nil {
		return err
	}
	if err := n.pipeline.Start(ctx); err != nil {
		return err
	}
	n.recall.Start()
	if err := n.startUsage(ctx); err != nil {
		return err
	}
	if err := n.index.Start(); err != nil {
		n.logger("search").Warn("search compares words alone until what keeps the vectors answers", "error", err)
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	n.follow = stop
	n.done.Add(1)
	go n.followFeed(run)
	if err := n.startContexts(ctx, run); err != nil {
		return err
	}
	if err := n.startSearch(ctx, run); err != nil {
		return err
	}
	if err := n.startSecrets(ctx, run); err != nil {
		return err
	}
	n.done.Go(func() { n.fresh.Watch(run, n.store.Health, n.config.Catalog.StaleFor, n.now) })
	if err := n.servers.Start(ctx); err != nil {
		return err
	}
	if err := n.queue.Start(run); err != nil {
		return err
	}
	if err := n.startFaces(); err != nil {
		return err
	}
	if err := n.startPeers(ctx); err != nil {
		return err
	}
	if n.config.Examples.Enabled {
		if err := n.startExamples(ctx); err != nil {
			return err
		}
	}
	n.health.SetStarted()
	return n.announce()
}

// followFeed drops cached results of tools that change.
func (n *Node) followFeed(ctx context.Context) {
	defer n.done.Done()
	after, err := n.store.Head(ctx)
	if err != nil {
		n.recall.Invalidate("", "")
	}
	n.watch(ctx, after, n.recall.Follow, func(err error) {
		n.logger("tool_cache").Warn("the feed broke; cached results are dropped and it is taken up again", "error", err)
		n.recall.Invalidate("", "")
	})
}

// watch is toolkeep.Follow of the store.
func (n *Node) watch(ctx context.Context, after int64, each func(toolkeep.Committed), broken func(error)) {
	toolkeep.Follow(ctx, n.store, after, each, broken)
}

// Stop drains and ends everything. New calls get E3912 at once; those under way
// have until ctx ends, then they are cancelled. It may be called twice.
func (n *Node) Stop(ctx context.Context) error {
	n.stopOnce.Do(func() { n.stopErr = n.stop(ctx) })
	return n.stopErr
}

// answerGrace is how long calls that were cut off have to record and answer.
const answerGrace = 2 * time.Second

func (n *Node) stop(ctx context.Context) error {
	n.health.SetDraining()
	n.faces.mcp.Drain()
	n.peers.Leave(ctx)
	n.queue.Hold() // first: who is refused may count on it that no waiting call begins
	n.pipeline.Drain()
	late, over := context.WithCancel(context.WithoutCancel(ctx))
	defer over()
	stop := context.AfterFunc(ctx, func() {
		n.pipeline.Interrupt()
		n.faces.interrupt()
		grace := time.AfterFunc(answerGrace, over)
		context.AfterFunc(late, func() { grace.Stop() })
	})
	defer stop()
	// The listeners stay open while calls are under way, so that new ones get E3912
	// and probes are told, instead of a refused connection.
	err := n.queue.Stop(ctx)
	n.pipeline.Idle(late)
	err = errors.Join(err, n.stopFaces(late))
	n.release()
	return err
}

// release ends what New made, as far as it came.
func (n *Node) release() {
	if n.faces.interrupt != nil {
		n.faces.interrupt()
	}
	if n.follow != nil {
		n.follow()
	}
	n.done.Wait()
	if n.peers != nil {
		n.peers.Stop()
	}
	if n.faces.mcp != nil {
		n.faces.mcp.Close()
	}
	if n.pipeline != nil {
		n.pipeline.Stop()
	}
	if n.contexts != nil {
		n.contexts.Stop()
	}
	n.closeSearchCache()
	n.closeRedis()
	n.closeIndex()
	n.stopUsage()
	if n.servers != nil {
		n.servers.Stop()
	}
	if n.upstream != nil {
		now, cancel := context.WithCancel(context.Background())
		cancel() // no call is under way any more
		n.logins.Stop()
		_ = n.upstream.Stop(now) // it has no error, and leaves nothing behind
		n.pool.Close()
	}
	n.stopSecrets()
	if n.recall != nil {
		n.recall.Stop()
	}
	if n.http != nil {
		n.http.Close()
	}
	if n.grpc != nil {
		n.grpc.Close()
	}
	if n.sql != nil {
		n.sql.Close()
	}
	if n.catalog != nil {
		n.catalog.Stop()
	}
	if n.access != nil {
		n.access.Stop()
	}
	if n.store != nil {
		if err := n.store.Close(); err != nil {
			n.logger("store").Error("the store did not close cleanly", "error", err)
		}
	}
	if n.log != nil {
		n.log.Stop()
	}
	if n.unlock != nil {
		n.unlock()
	}
}

// Pipeline is the node's Invoker, with what can be asked of calls.
func (n *Node) Pipeline() *invoke.Pipeline { return n.pipeline }

// Catalog is the node's catalogue.
func (n *Node) Catalog() *catalog.Catalog { return n.catalog }

// Store is the node's store.
func (n *Node) Store() Store { return n.store }

// Access is who may come in.
func (n *Node) Access() *access.Access { return n.access }

// Handler is the HTTP face.
func (n *Node) Handler() http.Handler { return n.faces.api }

// System is access.System.
func System() *toolkeep.Principal { return access.System() }

var (
	_ rest.Calls = (*invoke.Pipeline)(nil)
	_ rpc.Calls  = (*invoke.Pipeline)(nil)
)
