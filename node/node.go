// Package node is one running Toolkeep: every part made from the configuration and wired to the others. cmd/toolkeep serves
// one, toolkeeptest starts one for a test.
//
// parts is the list of them. They start in its order and stop in reverse, after
// drain: no new calls (E3912), the queue's workers end or give their calls back,
// the listeners close and wait.
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

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/access/capability"
	"github.com/toolkeep/toolkeep/access/policy"
	"github.com/toolkeep/toolkeep/approval"
	"github.com/toolkeep/toolkeep/audit"
	"github.com/toolkeep/toolkeep/audit/archive"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/control/approvals"
	"github.com/toolkeep/toolkeep/control/health"
	"github.com/toolkeep/toolkeep/control/nodes"
	"github.com/toolkeep/toolkeep/control/policies"
	"github.com/toolkeep/toolkeep/control/search"
	"github.com/toolkeep/toolkeep/control/secrets"
	"github.com/toolkeep/toolkeep/control/servers"
	"github.com/toolkeep/toolkeep/control/sinks"
	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/assembly"
	"github.com/toolkeep/toolkeep/discover/cache"
	"github.com/toolkeep/toolkeep/discover/minilm"
	"github.com/toolkeep/toolkeep/discover/usage"
	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/executor/builtin"
	"github.com/toolkeep/toolkeep/executor/filetool"
	"github.com/toolkeep/toolkeep/executor/grpctool"
	"github.com/toolkeep/toolkeep/executor/httptool"
	"github.com/toolkeep/toolkeep/executor/sqltool"
	"github.com/toolkeep/toolkeep/face/mcpserver"
	"github.com/toolkeep/toolkeep/inspect"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/job"
	"github.com/toolkeep/toolkeep/limit"
	"github.com/toolkeep/toolkeep/limit/breaker"
	"github.com/toolkeep/toolkeep/limit/bulkhead"
	"github.com/toolkeep/toolkeep/membership"
	"github.com/toolkeep/toolkeep/node/settings"
	"github.com/toolkeep/toolkeep/node/stores"
	"github.com/toolkeep/toolkeep/overlay"
	"github.com/toolkeep/toolkeep/redact"
	"github.com/toolkeep/toolkeep/resultcache"
	"github.com/toolkeep/toolkeep/schema"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/secret/tokenexchange"
	"github.com/toolkeep/toolkeep/sharedcache"
	"github.com/toolkeep/toolkeep/store/blob"
	"github.com/toolkeep/toolkeep/store/personal"
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
	// Hook is called at every step of every call (see invoke.Config), and at "admin_key" when the first admin key is in its
	// file and not yet in the store. Crash tests use it.
	Hook func(step, id string)
	// Reaper is the argv prefix under which a program of an MCP server is run:
	// the command itself, see upstream.RunReaper. Linux needs it for servers by stdio.
	Reaper []string
	Clock  func() time.Time // default time.Now
}

// Node is a running Toolkeep.
type Node struct {
	config    *config.Config
	options   Options
	name      string // survives a restart; in the database's list of sessions
	members   *membership.Members
	agreement *nodes.Agreement

	unlock  func() // releases the data directory
	redact  *redact.Redactor
	log     *telemetry.Log
	health  *telemetry.Health
	metrics *telemetry.Metrics
	queue   stores.Queue
	store   stores.Store
	stats   func() []telemetry.Sample // of the store
	persons *personal.Sealed          // with which records are sealed
	pooled  bool                      // a pooler stands before the store
	policy  *policy.Engine            // nil where roles decide alone
	bundles *policies.Recorder        // starts policy
	access  *access.Access
	catalog *catalog.Catalog
	fresh   *catalog.Fresh
	// freshness is nil, always fresh, where no other process changes the store.
	freshness    *toolkeep.Freshness
	peers        *mcpserver.Peers
	index        *discover.Index
	redis        *redis.Client // nil without one
	sharedSecret []byte        // of the caches in Redis
	// search is the index, or the cache before it, which is nil where it is switched off.
	search        assembly.Search
	searchCache   *cache.Cache
	searchControl *search.Search
	usage         *usage.Usage
	model         *minilm.Lazy
	limits        *limit.Limits
	breakers      *breaker.Breakers
	monitor       *health.Monitor // of tools
	recall        *resultcache.Cache
	http          *httptool.Executor
	files         *filetool.Executor
	sql           *sqltool.Executor
	grpc          *grpctool.Executor
	kinds         map[string]toolkeep.Executor
	blobs         *blob.Dir
	secrets       *secret.Resolver
	sealer        *secrets.Sealer
	tokens        *capability.Tokens
	audit         *audit.Audit
	reads         *audit.Reads
	archive       *archive.Archive // nil without one
	sinks         *sinks.Sinks
	keeping       secretKeeping
	approvals     *approval.Book
	approving     *approvals.Approvals
	pipeline      *invoke.Pipeline
	contexts      *overlay.Provider
	pool          *egress.Pool // of what reaches MCP servers and the services of settings
	logins        *oauth.Logins
	credentials   *servers.Credentials
	upstream      *upstream.Servers
	probe         func() servers.Pool
	servers       *servers.Servers
	faces         faces

	running   running
	rest      []part // those that Start starts
	following *toolkeep.Following

	stopOnce sync.Once
	stopErr  error
	// AdminKey is the text of the admin key if this start made it.
	AdminKey string
}

// New makes a node and everything in it. Nothing listens before Start. What New opened is closed again if it fails. ctx ends the
// wait for a PostgreSQL that does not answer, and nothing after it.
func New(ctx context.Context, c *config.Config, o Options) (*Node, error) {
	n := newNode(c, o)
	parts := n.parts(ctx)
	split := slices.IndexFunc(parts, func(p part) bool { return p.name == built })
	n.rest = parts[split+1:]
	if err := n.running.start(context.WithoutCancel(ctx), parts[:split]); err != nil {
		n.running.stop()
		return nil, err
	}
	return n, nil
}

func newNode(c *config.Config, o Options) *Node {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	return &Node{config: c, options: o, redact: redact.NewRedactor(o.Clock)}
}

// built is the part after which New is done.
const built = "built"

// parts are all parts of a node, in the order in which they start; they stop in reverse.
// opening bounds the wait for the store.
func (n *Node) parts(opening context.Context) []part {
	return []part{
		{"data directory", n.claim, func() { n.unlock() }},
		{"log", n.startLog, func() { n.log.Stop() }},
		{"name", n.buildMembers, nil},
		{"store", func(context.Context) error { return n.openStore(opening) }, n.closeStore},
		{"membership", func(ctx context.Context) error { return n.members.Start(ctx, n.store) }, func() { n.members.Stop() }},
		{"queue", func(context.Context) error { return n.queue.Migrate(opening) }, nil},
		{"vault", n.buildVault, n.closeVault},
		{"sealer", n.buildSealer, nil},
		{"audit", n.buildAudit, func() { n.audit.Stop() }},
		{"limits", n.buildLimits, nil},
		{"connections", n.buildPool, func() { n.pool.Close() }},
		{"policy", n.buildPolicy, func() { n.policy.Stop() }},
		{"access", n.buildAccess, func() { n.access.Stop() }},
		{"keys", func(ctx context.Context) error { return n.access.Start(ctx) }, nil},
		{"admin key", n.makeAdminKey, nil},
		{"secrets", n.buildSecrets, func() { n.keeping.minter.Close() }},
		{"sinks", n.buildSinks, func() { n.closed("outbox", n.sinks.Stop()) }},
		{"upstream", n.buildUpstream, n.stopUpstream},
		{"http tools", n.buildHTTP, func() { n.http.Close() }},
		{"file tools", n.buildFiles, nil},
		{"grpc tools", n.buildGRPC, func() { n.grpc.Close() }},
		{"sql tools", n.buildSQL, func() { n.sql.Close() }},
		{"catalog", n.buildCatalog, func() { n.catalog.Stop() }},
		{"servers", n.buildServers, func() { n.servers.Stop() }},
		{"usage", n.buildUsage, func() { n.usage.Stop() }},
		{"index", n.buildIndex, func() { n.closed("search", n.index.Close(), n.model.Close()) }},
		{"redis", when(n.config.Redis.URL != "", n.buildRedis), func() { n.closed("redis", n.redis.Close()) }},
		{"search", n.buildSearch, n.closeSearch},
		{"versions", n.startCatalog, nil},
		{"result cache", n.buildResults, func() { n.recall.Stop() }},
		{"agreement", n.buildAgreement, nil},
		{"telemetry", n.buildTelemetry, nil},
		{"shared limits", when(n.config.SharesLimits(), n.shareLimits), func() { n.limits.StopCounter() }},
		{"overlays", n.buildContexts, func() { n.contexts.Stop() }},
		{"approvals", n.buildApprovals, nil},
		{"reads", n.buildReads, func() { n.reads.Stop() }},
		{"calls", n.buildPipeline, func() { n.pipeline.Stop() }},
		{"decisions", n.buildDecisions, nil},
		{"faces", n.buildFaces, n.closeFaces},
		{name: built},
		{"builtin tools", when(n.config.Examples.Std(), func(ctx context.Context) error { return builtin.Publish(ctx, n.catalog) }), nil},
		{"spool and sweeps", func(ctx context.Context) error { return n.pipeline.Start(ctx) }, nil},
		{"learning", func(ctx context.Context) error { return n.usage.Start(ctx) }, nil},
		{"vectors", n.startIndex, nil},
		{"followers", n.startFollowing, func() { n.following.Stop() }},
		{"feed of results", n.followResults, nil},
		{"feed of overlays", func(ctx context.Context) error { return n.following.Start(ctx, "context", "contexts", n.contexts) }, nil},
		{"feed of approvals", func(ctx context.Context) error { return n.following.Start(ctx, "approvals", "approvals", n.approvals) }, nil},
		{"feed of breakers", func(ctx context.Context) error { return n.following.Start(ctx, "breakers", "breakers", n.breakers) }, func() { n.breakers.Stop() }},
		{"feed of search", func(ctx context.Context) error { return n.following.Start(ctx, "search", "flushes", n.searchControl) }, nil},
		{"feed of health", func(ctx context.Context) error { return n.following.Start(ctx, "health", "health", n.monitor) }, nil},
		{"feed of secrets", func(ctx context.Context) error {
			return n.following.Start(ctx, "secret_manager", "secrets", n.keeping.local)
		}, nil},
		{"feed of persons", func(ctx context.Context) error {
			return n.following.Start(ctx, "audit", "persons' keys", n.persons.PersonKeys())
		}, nil},
		{"freshness", n.watchStore, nil},
		{"policy files", n.followPolicy, nil},
		{"mcp servers", func(ctx context.Context) error { return n.servers.Start(ctx) }, nil},
		{"leader work", n.startLeading, func() { n.members.Yield() }},
		{"workers", func(context.Context) error { return n.queue.Start(n.following.Context()) }, nil},
		{"listeners", n.listen, nil},
		{"peers", when(n.config.Store.DSN != "", n.startPeers), func() { n.peers.Stop() }},
		{"examples", when(n.config.Examples.Enabled, n.startExamples), nil},
		{"announcement", n.announce, nil},
	}
}

func (n *Node) claim(context.Context) (err error) {
	if err := os.MkdirAll(n.config.Data, 0o700); err != nil {
		return fmt.Errorf("the data directory cannot be made: %w", err)
	}
	n.unlock, err = datadir.Lock(n.config.Data)
	return err
}

func (n *Node) startLog(context.Context) error {
	c := n.config.Log
	n.log = telemetry.NewLog(telemetry.LogConfig{Out: n.options.LogTo, Text: c.Format == "text", Level: c.Level,
		Components: c.Components, Clean: n.redact.Log(), BufferBytes: c.Buffer, Clock: n.options.Clock})
	n.log.Start()
	return nil
}

// closed says of a component that it did not close cleanly.
func (n *Node) closed(component string, errs ...error) {
	if err := errors.Join(errs...); err != nil {
		n.logger(component).Warn("it did not close cleanly", "error", err)
	}
}

func (n *Node) logger(component string) *slog.Logger { return n.log.Logger(component) }

// runner hands the queue's ids to the pipeline, which is made after the queue.
type runner struct{ n *Node }

func (r runner) Run(ctx context.Context, ref toolkeep.CallRef) error {
	return r.n.pipeline.Run(ctx, ref)
}

// openStore opens the store, its queue and the folder of blobs.
func (n *Node) openStore(ctx context.Context) (err error) {
	if n.blobs, err = blob.Open(n.config.BlobDir()); err != nil {
		return err
	}
	o, err := stores.Open(ctx, stores.Config{Settings: n.config, Node: n.name, Tends: n.leads(workRetention), Clock: n.options.Clock, Log: n.logger("store"),
		Queue: job.Config{Runner: runner{n}, Log: n.logger("queue"), NodeID: n.members.Owner(), Earlier: n.members.Earlier, Periodic: []job.Periodic{
			{Name: "sweep", Every: time.Second, Run: func(ctx context.Context) error { return n.pipeline.Sweep(ctx) }},
			{Name: "approvals", Every: 5 * time.Second, Run: n.leading(workApprovals, func(ctx context.Context) error { return n.approving.Sweep(ctx) })},
			{Name: "blobs", Every: time.Hour, Run: n.leading(n.workBlobs(), n.sweepBlobs)},
		}}})
	if err == nil {
		n.store, n.queue, n.stats, n.pooled, n.persons = o.Store, o.Queue, o.Stats, o.Pooled, o.Persons
	}
	return err
}

func (n *Node) closeStore() {
	if err := n.store.Close(); err != nil {
		n.logger("store").Error("the store did not close cleanly", "error", err)
	}
}

func (n *Node) sweepBlobs(ctx context.Context) error {
	_, err := n.blobs.Sweep(ctx, n.options.Clock().Add(-n.config.Store.KeepCalls))
	return err
}

func (n *Node) buildAccess(context.Context) error {
	t := n.config.Tokens.Capability(n.publicURL)
	t.Store, t.Sealer, t.Node, t.Clock, t.Log = n.store, n.sealer, n.name, n.options.Clock, n.logger("permission_manager")
	t.Wait = n.config.Calls.WaitLimit + approval.MaxExpires // an approved call begins its wait again
	var err error
	if n.tokens, err = capability.New(t); err != nil {
		return err
	}
	c := n.config.Callers(n.credential)
	c.Tokens, c.Load, c.Store, c.Clock, c.Log, c.Share, c.BaseURL, c.OAuth = n.tokens, n.store.Keys, n.store, n.options.Clock, t.Log, n.limits.Share, n.publicURL, n.config.OAuth.Access(n.publicURL)
	c.Sessions.Documents, c.Signing.Sealer, c.OnFailure = n.store.Documents, n.sealer, func(f access.Failure) { n.metrics.Unauthenticated(f.Reason) }
	c.Fresh = func(ctx context.Context) error { _, err := n.freshness.Check(ctx); return err }
	if n.policy != nil {
		c.Policy = n.policy
	}
	n.access, err = access.New(c)
	return err
}

// makeAdminKey makes the first key of a store, and writes its text.
func (n *Node) makeAdminKey(ctx context.Context) (err error) {
	n.AdminKey, err = n.keyFile().Bootstrap(ctx, n.access)
	return err
}

func (n *Node) keyFile() access.KeyFile {
	return access.KeyFile{Path: filepath.Join(n.config.Data, datadir.AdminKey), Written: func() { n.hook("admin_key") }}
}

func (n *Node) hook(point string) { n.hooked(point)("") }

// hooked tells crash tests what a part is about to do with what.
func (n *Node) hooked(point string) func(what string) {
	return func(what string) {
		if n.options.Hook != nil {
			n.options.Hook(point, what)
		}
	}
}

func (n *Node) buildCatalog(context.Context) error {
	checkers := make(map[string]catalog.Checker)
	n.kinds = n.executors()
	for kind, ex := range n.kinds {
		checkers[kind] = func(m *toolkeep.Manifest) []toolkeep.Fault {
			return slices.Concat(ex.Check(m), tokenexchange.CheckManifest(m), limit.Check(m), breaker.Check(m), resultcache.Check(m), inspect.Check(m), health.Check(m, ex, n.http))
		}
	}
	n.catalog = catalog.New(catalog.Config{Store: n.store, Load: n.store.Versions, Checkers: checkers, Clock: n.options.Clock,
		Log: n.logger("tool_registry"), MaxActive: n.config.Catalog.KeepActive, RemoveAfter: n.config.Catalog.RemovalAfter, Defaults: n.config.ToolDefaults(), Home: access.HomeTenant})
	n.fresh = &catalog.Fresh{Catalog: n.catalog}
	return nil
}

// startCatalog reads the versions, and has the index follow them.
func (n *Node) startCatalog(ctx context.Context) error {
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

func (n *Node) buildResults(context.Context) (err error) {
	c, log := n.config.Cache, n.logger("tool_cache")
	rc := resultcache.Config{Off: !c.Enabled, TTL: c.TTL, Entries: c.Entries, Bytes: c.Bytes, Warm: c.Warm, Node: n.name, Store: n.store, Clock: n.options.Clock, Log: log}
	if n.config.SharesResults() {
		rc.Shared, err = sharedcache.New(sharedcache.Config{Remote: n.redis.Cache(settings.ResultCache, c.SharedEntries, n.options.Clock), Secret: n.sharedSecret, Use: settings.ResultCache, Build: sharedcache.Build(n.options.Version, settings.OfResults(n.config)), Clock: n.options.Clock, Log: log})
	}
	n.recall = resultcache.New(rc)
	return err
}

// buildLimits makes the limits, divided among the nodes that live, and the breakers.
func (n *Node) buildLimits(context.Context) error {
	rates := n.config.Limits.Rates()
	rates.Clock = n.options.Clock
	n.limits = limit.New(rates)
	n.limits.SetNodes(n.members.Rank())
	n.breakers = breaker.New(breaker.Config{Rule: n.config.Breaker.Rule(), Retries: n.config.Calls.Retries(), Store: n.store, Node: n.name, Home: access.HomeTenant, Clock: n.options.Clock, Log: n.logger("breakers"), Tell: func(ctx context.Context, to, text string) error { return n.redis.Publish(ctx, to, text) }})
	return nil
}

func (n *Node) buildPipeline(context.Context) (err error) {
	c := n.config
	schemas := schema.NewCache(0)
	var knowledge invoke.Knowledge
	if c.Store.DSN != "" {
		n.freshness = toolkeep.NewFreshness(n.store, c.Store.MaxStaleness, n.access, n.catalog, n.contexts, n.approvals)
		n.health.Add(telemetry.Component{Name: "feed", Required: true, Check: n.freshness.Health})
		knowledge = n.freshness
	}
	n.pipeline, err = invoke.New(invoke.Config{
		Catalog: n.fresh, Access: n.access, Limits: n.limits, Results: n.recall, Secrets: n.secrets, Sealer: n.sealer, Blobs: n.blobs,
		Store: n.store, Invocations: n.store.Invocations(), Marks: n.store.CallMarks(), Executors: n.kinds, Schemas: schemas, Overlays: n.contexts, Knowledge: knowledge, Approvals: n.approvals, Breakers: n.breakers, Bulkheads: bulkhead.New(c.Limits.Bulkheads()), ApprovalWait: c.Approvals.Wait,
		Inspector: inspect.New(inspect.Config{HardBytes: c.Calls.MaxResult, Schemas: schemas, CoerceTo: c.Tools.Targets()}), Redact: n.redact,
		Observer: &telemetry.Observer{Metrics: n.metrics, Log: n.log},
		Node:     n.members.Owner(), Earlier: n.members.Earlier(), Leads: n.leads(workSweep), SyncLimit: c.Calls.SyncLimit, HedgeAfter: c.Calls.HedgeAfter, WaitLimit: c.Calls.WaitLimit, ResultLife: c.Calls.ResultLifetime,
		Lease: c.Calls.Lease, HardBytes: c.Calls.MaxResult, KeyBytes: c.HTTP.MaxKey, ResultMemory: c.Calls.ResultBytes(), NoSummaries: !c.Audit.ResultSummary, Personal: c.Audit.PersonalData(), QuoteArguments: c.Audit.Inputs == "redacted",
		RecordWait: c.Calls.RecordWait, KeptBytes: c.Idempotency.MaxBytes, StoreWait: c.Store.MaxWait, Load: c.Calls.Load(), OnStoreAway: func() { n.health.Recheck() },
		Arguments: canon.Limits{Bytes: c.HTTP.MaxBody, Depth: c.HTTP.MaxDepth, Properties: c.HTTP.MaxProperties},
		SpoolPath: filepath.Join(c.Data, datadir.Spool), Alone: c.Store.DSN == "", Clock: n.options.Clock, StoreClock: n.members.ClockDifference, Log: n.logger("invoke"), Hook: n.options.Hook,
	})
	n.monitor = health.New(health.Config{Snapshot: func() health.Snapshot { return n.catalog.Snapshot() }, Breakers: n.breakers, Upstreams: n.pipeline, Prober: n.http, Store: n.store,
		Node: n.name, Home: access.HomeTenant, Clock: n.options.Clock, Log: n.logger("health")})
	return err
}

func (n *Node) buildTelemetry(context.Context) (err error) {
	version := n.config.Service.Version
	if version == "" {
		version = n.options.Version
	}
	n.health = telemetry.NewHealth(telemetry.HealthConfig{Version: version, Log: n.logger("health"), Clock: n.options.Clock})
	add := func(there bool, c telemetry.Component) {
		if there {
			n.health.Add(c)
		}
	}
	n.health.Add(telemetry.Component{Name: "store", Required: true, Grace: n.config.Catalog.StaleFor, Check: n.storeHealth, Details: n.store.Details})
	n.health.Add(telemetry.Component{Name: "nodes", Required: true, Check: n.members.Health, Details: func() any { return nodes.CountOf(n.members) }})
	n.health.Add(telemetry.Component{Name: "agreement", Required: true, Check: n.agreement.Ready, Details: func() any { return n.agreement.Differences() }})
	n.health.Add(telemetry.Component{Name: "differences", Check: n.agreement.Health})
	n.health.Add(telemetry.Component{Name: "record_spool", Check: func(context.Context) error { return n.pipeline.RecordHealth() }})
	n.health.Add(telemetry.Component{Name: "file_descriptors", Check: func(ctx context.Context) error { return n.faces.listeners.Health(ctx) }})
	add(n.config.TLS.Enabled(), telemetry.Component{Name: "certificates", Check: n.faces.certificatesHealth(n.access)})
	add(n.config.Access.RolesFile != "", telemetry.Component{Name: "roles", Check: n.access.RolesHealth})
	add(n.access.TakesTokens(), telemetry.Component{Name: "oauth_issuer", Check: n.access.OAuthHealth})
	add(n.policy != nil, telemetry.Component{Name: "policy", Check: n.policy.Health})
	add(n.sinks.Any(), telemetry.Component{Name: "sinks", Check: n.sinks.Health})
	add(n.archive != nil, telemetry.Component{Name: "audit_archive", Check: n.archive.Health})
	n.health.Add(telemetry.Component{Name: "search", Check: n.index.Health})
	n.health.Add(telemetry.Component{Name: "usage", Check: n.usage.Health})
	add(n.redis != nil, telemetry.Component{Name: "redis", Check: func(ctx context.Context) error { return n.redis.Health(ctx, settings.RedisUses(n.config)...) }})
	add(n.keeping.vault != nil, telemetry.Component{Name: "secret_store", Check: n.keeping.vault.Health}) // tools without secrets of it go on without it
	n.metrics, err = telemetry.NewMetrics(telemetry.MetricsConfig{Service: n.config.Service.Name, Version: version, MaxTools: n.config.Metrics.MaxTools, Breakers: n.breakers.Changed, Health: func() []health.Health { return n.monitor.Known() }, Bulkheads: func() []bulkhead.Stat { return n.pipeline.Bulkheads.Stats() },
		QueueDepth: func(ctx context.Context) (map[toolkeep.Priority]int, error) {
			return n.store.Invocations().QueueDepth(ctx)
		},
		Cache: func() telemetry.CacheStats {
			s := n.recall.Stats()
			return telemetry.CacheStats{Hits: s.Hits + s.SharedHits, Misses: s.Misses, Evictions: s.Evictions, Corruptions: s.Corruptions}
		},
		Samples: []func() []telemetry.Sample{n.log.Samples, n.stats, n.samples}})
	return err
}

// storeHealth asks the store, unless calls know already that it does not answer.
func (n *Node) storeHealth(ctx context.Context) error {
	if err := n.pipeline.StoreHealth(); err != nil {
		return err
	}
	return n.store.Health(ctx)
}

// samples are those of parts that count for themselves.
func (n *Node) samples() []telemetry.Sample {
	all := slices.Concat(telemetry.SpoolSamples(n.pipeline.Spooled()), telemetry.ResultSamples(n.pipeline.HeldByResults()), telemetry.OverloadSamples(n.pipeline.Overload()), telemetry.SharedResultSamples(n.recall.Stats()), telemetry.IndexSamples(n.index.Len(), n.index.Embedding()), telemetry.UsageSamples(n.usage.Stats()), telemetry.ReadSamples(n.reads.Stats()))
	for _, part := range []struct {
		there bool
		of    func() []telemetry.Sample
	}{
		{n.policy != nil, func() []telemetry.Sample { return telemetry.PolicySamples(n.policy.Stats()) }},
		{n.sinks.Any(), func() []telemetry.Sample { return telemetry.SinkSamples(n.sinks.Stats()) }},
		{n.archive != nil, func() []telemetry.Sample {
			return telemetry.ArchiveSamples(n.archive.State(), n.options.Clock(), n.store.KeepsFrom())
		}},
		{n.searchCache != nil, func() []telemetry.Sample { return telemetry.SearchCacheSamples(n.searchCache.Stats()) }},
	} {
		if part.there {
			all = append(all, part.of()...)
		}
	}
	return all
}

// Start opens the listeners and lets the queue work. ctx bounds the start alone. After an
// error the parts that started go on until Stop.
func (n *Node) Start(ctx context.Context) error { return n.running.start(ctx, n.rest) }

func (n *Node) startFollowing(context.Context) error {
	n.following = toolkeep.NewFollowing(n.store, n.logger)
	return nil
}

// followResults drops cached results of tools that change.
func (n *Node) followResults(ctx context.Context) error {
	after, err := n.recall.Start(ctx)
	if err == nil {
		n.following.Follow("tool_cache", "cached results", after, n.recall.Follow, n.recall.Broke)
	}
	return err
}

func (n *Node) watchStore(context.Context) error {
	n.following.Go(func(ctx context.Context) {
		n.fresh.Watch(ctx, n.store.Health, n.config.Catalog.StaleFor, n.options.Clock)
	})
	if n.freshness != nil {
		n.following.Go(n.freshness.Run)
	}
	return nil
}

// Stop drains and ends everything. New calls are taken for drain.grace, then they get E3912; those
// under way have until ctx ends, then they are cancelled. It may be called twice.
func (n *Node) Stop(ctx context.Context) error {
	n.stopOnce.Do(func() {
		n.stopErr = n.drain(ctx)
		n.running.stop()
	})
	return n.stopErr
}

// answerGrace is how long calls that were cut off have to record and answer.
const answerGrace = 2 * time.Second

// drain ends what is under way, in an order of its own: parts are stopped afterwards.
func (n *Node) drain(ctx context.Context) error {
	n.health.SetDraining()
	n.faces.gate.Leave()
	toolkeep.Sleep(ctx, n.config.Drain.Grace)
	n.faces.mcp.Drain()
	n.peers.Drain()
	n.peers.Leave(ctx)
	n.queue.Hold() // first: who is refused may count on it that no waiting call begins
	n.pipeline.Drain()
	late, over := context.WithCancel(context.WithoutCancel(ctx))
	defer over()
	stop := context.AfterFunc(ctx, func() {
		n.pipeline.Interrupt()
		n.faces.listeners.Interrupt()
		grace := time.AfterFunc(answerGrace, over)
		context.AfterFunc(late, func() { grace.Stop() })
	})
	defer stop()
	// The listeners stay open while calls are under way, so that new ones get E3912
	// and probes are told, instead of a refused connection.
	err := n.queue.Stop(ctx)
	n.pipeline.Idle(late)
	_ = os.Remove(filepath.Join(n.config.Data, datadir.Server))
	err = errors.Join(err, n.faces.listeners.Shutdown(late))
	n.faces.listeners.Interrupt()
	return err
}

// Pipeline is the node's Invoker, with what can be asked of calls.
func (n *Node) Pipeline() *invoke.Pipeline { return n.pipeline }

// Catalog is the node's catalogue.
func (n *Node) Catalog() *catalog.Catalog { return n.catalog }

// Tokens makes and verifies capability tokens.
func (n *Node) Tokens() *capability.Tokens { return n.tokens }

// Store is the node's store.
func (n *Node) Store() stores.Store { return n.store }

// Access is who may come in.
func (n *Node) Access() *access.Access { return n.access }

// Handler is the HTTP face.
func (n *Node) Handler() http.Handler { return n.faces.api }
