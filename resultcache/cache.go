package resultcache

import (
	"context"
	"encoding/json"
	"hash/maphash"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/sharedcache"
)

// Limits of a TTL, from a manifest or the configuration.
const (
	MinTTL     = time.Second
	MaxTTL     = toolkeep.MaxCacheTTL
	DefaultTTL = 300 * time.Second
)

// forever is the TTL of an entry that only eviction or invalidation removes.
const forever = 100 * 365 * 24 * time.Hour

// overhead is the approximate size of an entry besides its output, in bytes.
const overhead = 640

// Config configures a Cache. The zero value works.
type Config struct {
	Off     bool             // store nothing; equal concurrent calls still share one run
	TTL     time.Duration    // for tools that set none; default DefaultTTL
	Entries int              // default 10,000
	Bytes   int64            // default 100 MiB; larger entries than a quarter of it are not stored
	Clock   func() time.Time // default time.Now
	// Store tells other nodes of Drop; nil: there are none.
	Store Store
	// Shared keeps results for all nodes, and those that come after a restart; nil: there is none. It needs Store.
	Shared *sharedcache.Cache
	Warm   int    // results that are read from Shared before they are asked for, at most; 0 is none
	Node   string // this node's name, under which it lists its warm results
	// carry copies the trace of the caller that starts a shared run into the run's
	// context, and nothing else; nil copies nothing.
	carry func(run, caller context.Context) context.Context
	Log   *slog.Logger // default discards
}

// Eviction reasons, labels of tool_cache_evictions_total.
const (
	CapacityExceeded   = "capacity_exceeded"   // too many entries
	MemoryPressure     = "memory_pressure"     // too many bytes
	TTLExpired         = "ttl_expired"         // TTL expired
	ManualInvalidation = "manual_invalidation" // Invalidate or a change of the tool
)

// sweepEvery is how often expired entries are removed while the cache is idle. Expired entries
// are never returned, swept or not.
const sweepEvery = 30 * time.Second

// Stats counts since the start; Entries and Bytes are current.
type Stats struct {
	Hits         int64            // look-ups that memory answered
	Misses       int64            // look-ups that neither memory nor Config.Shared answered
	Shared       int64            // callers that got the result of another's run
	SharedHits   int64            // results that were not in memory and came from Config.Shared
	SharedErrors int64            // requests that Config.Shared did not answer
	Unsent       int64            // results that Config.Shared did not take: they came too fast, or it did not answer
	Oversize     int64            // results that are too large for Config.Shared
	Evictions    map[string]int64 // by reason
	Corruptions  int64            // entries that did not match their checksum, or the seal of Config.Shared, and were dropped
	Entries      int
	Bytes        int64
}

// Cache keeps results in memory, and with Config.Shared for all nodes. It works from New on; Start starts the sweeping of
// expired entries and what the nodes share, Stop ends it and the shared runs.
type Cache struct {
	config Config
	seed   maphash.Seed
	store  *otter.Cache[Key, *entry]
	index  index

	hits, misses, shared atomic.Int64
	sharing              sharing

	mu      sync.Mutex // guards the fields below
	runs    map[Key]*sharedRun
	ticks   int64            // orders run starts and invalidations
	dropped map[string]int64 // tool id -> tick of its last invalidation while runs were in progress
	floor   int64            // results of runs started up to this tick are not stored
	started bool
	stopped bool

	running sync.WaitGroup // shared runs and the sweeper
	stop    chan struct{}
}

// entry is one stored result. It is immutable, except corrupt.
type entry struct {
	tenant  string // the caller's
	tool    string
	result  toolkeep.Result
	size    int64
	stored  time.Time
	ttl     time.Duration
	stale   time.Duration // how long after ttl it may stand in for a failure
	warm    bool          // it is read from Config.Shared before it is asked for
	sum     uint64
	corrupt atomic.Bool // it is being dropped for that
}

// left is how long an entry is still of use.
func (e *entry) left(now time.Time) time.Duration { return e.ttl + e.stale - max(0, now.Sub(e.stored)) }

// checksum covers what a caller gets of a result.
func (c *Cache) checksum(r *toolkeep.Result) uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	h.Write(r.Output)
	maphash.WriteComparable(&h, struct {
		tool, version  string
		state          toolkeep.CallState
		truncated      bool
		started, ended int64
	}{r.ToolID, r.ToolVersion, r.State, r.Truncated, r.StartedAt.UnixNano(), r.EndedAt.UnixNano()})
	for _, a := range r.Attachments {
		maphash.WriteComparable(&h, a)
	}
	if len(r.Warnings) > 0 {
		raw, _ := json.Marshal(r.Warnings) // what has no JSON is not shown either
		h.Write(raw)
	}
	return h.Sum64()
}

// entryOf returns an intact entry and its age. A corrupt one is dropped, counted and logged (E3702).
func (c *Cache) entryOf(k Key) (e *entry, age time.Duration, ok bool) {
	if e, ok = c.store.GetIfPresent(k); !ok {
		return nil, 0, false
	}
	if c.checksum(&e.result) != e.sum {
		if e.corrupt.CompareAndSwap(false, true) {
			c.config.Log.Error("a cached result was corrupt; it was dropped, and the tool runs again", "code", toolkeep.CacheCorrupt, "tool_id", e.tool)
		}
		c.store.Invalidate(k)
		return nil, 0, false
	}
	return e, max(0, c.config.Clock().Sub(e.stored)), true
}

// New returns a Cache.
func New(c Config) *Cache {
	if c.TTL < MinTTL {
		c.TTL = DefaultTTL
	}
	c.TTL = min(c.TTL.Truncate(time.Second), MaxTTL)
	if c.Entries <= 0 {
		c.Entries = 10_000
	}
	if c.Bytes <= 0 {
		c.Bytes = 100 << 20
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	cache := &Cache{
		config:  c,
		seed:    maphash.MakeSeed(),
		runs:    make(map[Key]*sharedRun),
		dropped: make(map[string]int64),
		stop:    make(chan struct{}),
	}
	cache.sharing.init()
	cache.index.init(c.Entries)
	// otter bounds either entries or weight. With a weight of an entry's bytes, but at
	// least its share of them, one bound keeps both.
	share := max(1, c.Bytes/int64(c.Entries))
	cache.store = otter.Must(&otter.Options[Key, *entry]{
		MaximumWeight: uint64(share * int64(c.Entries)),
		Weigher: func(_ Key, e *entry) uint32 {
			return uint32(min(max(e.size, share), math.MaxUint32))
		},
		ExpiryCalculator: otter.ExpiryWritingFunc(func(e otter.Entry[Key, *entry]) time.Duration { return max(1, e.Value.left(c.Clock())) }),
		OnAtomicDeletion: cache.index.removed,
		Clock:            clock(c.Clock),
		Logger:           storeLog{c.Log},
	})
	return cache
}

// clock is otter's time source. It does not tick: the Cache does the sweeping.
type clock func() time.Time

func (c clock) NowNano() int64                      { return c().UnixNano() }
func (c clock) Tick(time.Duration) <-chan time.Time { return nil }

// storeLog passes otter's log records on.
type storeLog struct{ log *slog.Logger }

func (l storeLog) Warn(ctx context.Context, msg string, err error) {
	l.log.WarnContext(ctx, "result cache: "+msg, "error", err)
}

func (l storeLog) Error(ctx context.Context, msg string, err error) {
	l.log.ErrorContext(ctx, "result cache: "+msg, "error", err)
}

// Get returns a cached result: the caller's own copy, with Cached and Age set and without the
// fields of the call that produced it (ids, attempts, times except StartedAt and
// EndedAt, sizes, cost). The contents of Output, Warnings and Attachments are shared
// and must not be modified; appending is safe.
func (c *Cache) Get(k Key) (*toolkeep.Result, bool) {
	if c.config.Off {
		return nil, false
	}
	e, age, ok := c.entryOf(k)
	if !ok || age >= e.ttl {
		c.misses.Add(1)
		return nil, false
	}
	c.hits.Add(1)
	return e.copy(age), true
}

// Stale is Get for a call that failed: it also returns a result that is past its TTL by at most the rule's
// stale_if_error_s. It counts nothing.
func (c *Cache) Stale(k Key) (*toolkeep.Result, bool) {
	if c.config.Off {
		return nil, false
	}
	e, age, ok := c.entryOf(k)
	if !ok {
		return nil, false
	}
	return e.copy(age), true
}

func (e *entry) copy(age time.Duration) *toolkeep.Result {
	r := e.result
	r.Age = age
	return &r
}

// Peek reports whether Get would return a result; it counts nothing.
func (c *Cache) Peek(k Key) bool {
	e, ok := c.store.GetEntryQuietly(k)
	return ok && c.config.Clock().Sub(e.Value.stored) < e.Value.ttl
}

// Put stores a copy of a successful result for the TTL of the rule: ttl_s within 1 s
// and 24 h, Config.TTL if unset, or until invalidation with policy forever. Other
// results and policies are not stored, nor is the result of a shared run (Do) if the
// tool was invalidated since the run began. It reports whether the result was stored.
func (c *Cache) Put(k Key, tenant, toolID string, r *toolkeep.Result, spec *toolkeep.CacheSpec) bool {
	ttl := c.lifetime(spec)
	if c.config.Off || ttl == 0 || r == nil || r.Error != nil || (r.State != "" && r.State != toolkeep.CallSucceeded) {
		return false
	}
	e := &entry{tenant: tenant, tool: toolID, result: kept(r), stored: c.config.Clock(), ttl: ttl, warm: spec.Warm}
	if ttl != forever {
		e.stale = min(time.Duration(spec.StaleIfErrorS)*time.Second, MaxTTL)
	}
	began := c.begin(k)
	return c.keep(k, e, func() bool { return !c.outdated(toolID, began) })
}

// keep stores an entry that is current, before and after it is stored.
func (c *Cache) keep(k Key, e *entry, current func() bool) bool {
	e.size, e.sum = sizeOf(&e.result), c.checksum(&e.result)
	if e.size > c.config.Bytes/4 || !current() {
		return false
	}
	if e.warm && !c.sharing.warms.Swap(true) && c.config.Shared == nil {
		c.config.Log.Info("cache.warm of manifests has no effect, because no results are kept in Redis; set redis.url", "tool_id", e.tool)
	}
	c.index.adding(k, e)
	c.store.Set(k, e)
	// An invalidation between the check and Set has missed the entry.
	if !current() {
		c.store.Invalidate(k)
		return false
	}
	return true
}

// lifetime returns a rule's TTL; 0 means do not store.
func (c *Cache) lifetime(s *toolkeep.CacheSpec) time.Duration {
	switch {
	case s == nil:
		return 0
	case s.Policy == "forever":
		return forever
	case s.Policy != "ttl":
		return 0
	case s.TTLSeconds == 0:
		return c.config.TTL
	default:
		seconds := min(s.TTLSeconds, int(MaxTTL/time.Second))
		return max(time.Duration(seconds)*time.Second, MinTTL)
	}
}

// kept returns the part of a result that holds for every call it answers.
func kept(r *toolkeep.Result) toolkeep.Result {
	return toolkeep.Result{
		ToolID: r.ToolID, ToolVersion: r.ToolVersion, State: r.State,
		Output: slices.Clip(slices.Clone(r.Output)), Warnings: cloneWarnings(r.Warnings),
		Cached: true, Truncated: r.Truncated, Attachments: slices.Clip(slices.Clone(r.Attachments)),
		StartedAt: r.StartedAt, EndedAt: r.EndedAt,
	}
}

func cloneWarnings(ws []toolkeep.Warning) []toolkeep.Warning {
	ws = slices.Clip(slices.Clone(ws))
	for i := range ws {
		ws[i].Details = maps.Clone(ws[i].Details)
	}
	return ws
}

func sizeOf(r *toolkeep.Result) int64 {
	n := overhead + len(r.Output)
	for _, w := range r.Warnings {
		n += 128 + len(w.Message)
	}
	for _, a := range r.Attachments {
		n += 64 + len(a.URL) + len(a.ContentType)
	}
	return int64(n)
}

// Invalidate drops every result that a tenant has of a tool, of all versions and
// principals, and returns their number; "" is every tenant, or every tool. Results of
// the tool's shared runs in progress are not stored, whatever the tenant.
func (c *Cache) Invalidate(tenant, toolID string) int {
	tools := []string{toolID}
	if toolID == "" {
		c.markAll()
		tools = c.index.toolIDs()
	}
	n := 0
	for _, tool := range tools {
		c.mark(tool)
		for _, k := range c.index.keys(tool) {
			if tenant != "" {
				if e, ok := c.store.GetIfPresent(k); !ok || e.tenant != tenant {
					continue
				}
			}
			if _, ok := c.store.Invalidate(k); ok {
				n++
			}
		}
	}
	return n
}

// Stats returns the counts.
func (c *Cache) Stats() Stats {
	s := Stats{Hits: c.hits.Load(), Shared: c.shared.Load(), SharedHits: c.sharing.hits.Load(), Unsent: c.sharing.unsent.Load(), Oversize: c.sharing.oversize.Load()}
	s.Misses = c.misses.Load() - s.SharedHits // read last: each of the latter is a miss in memory
	c.index.stats(&s)
	if c.config.Shared != nil {
		s.SharedErrors = c.config.Shared.Failures()
		s.Corruptions += c.config.Shared.Foreign()
	}
	return s
}

// Stop cancels the shared runs and waits for them and for the sweeper. Afterwards
// results can still be read, and Do runs each caller's own function.
func (c *Cache) Stop() {
	c.mu.Lock()
	if !c.stopped {
		c.stopped = true
		close(c.stop)
		for _, f := range c.runs {
			f.cancel()
		}
	}
	c.mu.Unlock()
	c.running.Wait()
	c.store.StopAllGoroutines()
}

// Check returns the faults of a manifest's cache rule, before it is published; nil if
// there are none.
func Check(m *toolkeep.Manifest) []toolkeep.Fault {
	switch {
	case m.Cache == nil:
		return nil
	case m.SideEffects != "none" && m.Cache.Policy == "forever":
		return []toolkeep.Fault{{Pointer: "/cache/policy", Rule: "side_effects",
			Message: `forever is only for tools with side_effects none; use ttl`}}
	case m.SideEffects == "writes" && m.Cache.Policy == "ttl":
		return []toolkeep.Fault{{Pointer: "/cache/policy", Rule: "side_effects",
			Message: "results of a tool that writes are never cached; leave cache out or declare side_effects reads"}}
	}
	return nil
}
