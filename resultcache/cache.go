package resultcache

import (
	"context"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/toolkeep/toolkeep"
)

// Limits of a lifetime, whoever sets it.
const (
	MinTTL     = time.Second
	MaxTTL     = 24 * time.Hour
	DefaultTTL = 300 * time.Second
)

// forever is the lifetime of an entry that only capacity or a change ends.
const forever = 100 * 365 * 24 * time.Hour

// overhead is about what an entry costs beside its output, in bytes.
const overhead = 640

// Config bounds a Cache. The zero value works.
type Config struct {
	Off     bool             // keep nothing; equal calls at the same time still share one run
	TTL     time.Duration    // for tools that name none; default DefaultTTL
	Entries int              // default 10,000
	Bytes   int64            // default 100 MiB; an entry beyond a quarter of it is not kept
	Clock   func() time.Time // default time.Now
	// Carry takes the trace of the caller that starts a shared run over into the
	// run's context, and nothing else; nil carries nothing.
	Carry func(run, caller context.Context) context.Context
	// Sweep is how often expired entries are cleared while nobody uses the cache;
	// default 30 s. They are never given out, swept or not.
	Sweep time.Duration
	Log   *slog.Logger // default discards
}

// Reasons for which an entry went, labels of tool_cache_evictions_total.
const (
	CapacityExceeded   = "capacity_exceeded"   // too many entries
	MemoryPressure     = "memory_pressure"     // too many bytes
	TTLExpired         = "ttl_expired"         // its time was over
	ManualInvalidation = "manual_invalidation" // Invalidate or a change of the tool
)

// Stats counts since the start; Entries and Bytes are as of now.
type Stats struct {
	Hits, Misses int64
	Shared       int64            // callers that got another's run
	Evictions    map[string]int64 // by reason
	Entries      int
	Bytes        int64
}

// Cache keeps results in memory. It works from New on; Start and Stop frame the
// sweeping of expired entries and the end of shared runs.
type Cache struct {
	config Config
	store  *otter.Cache[Key, *entry]
	index  index

	hits, misses, shared atomic.Int64

	mu      sync.Mutex // guards what follows
	runs    map[Key]*sharedRun
	ticks   int64            // orders starts of runs and invalidations
	dropped map[string]int64 // tool id -> tick of its last invalidation while runs were on
	floor   int64            // runs started up to this tick are not kept
	started bool
	stopped bool

	running sync.WaitGroup // shared runs and the sweeper
	stop    chan struct{}
}

// entry is one kept result. Nothing in it changes.
type entry struct {
	tenant string // of whoever called
	tool   string
	result toolkeep.Result
	size   int64
	ttl    time.Duration
}

// New makes a Cache.
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
	if c.Sweep <= 0 {
		c.Sweep = 30 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	cache := &Cache{
		config:  c,
		runs:    make(map[Key]*sharedRun),
		dropped: make(map[string]int64),
		stop:    make(chan struct{}),
	}
	cache.index.init(c.Entries)
	// The store bounds either entries or weight. With a weight of an entry's bytes,
	// but at least its share of them, the one bound keeps both.
	share := max(1, c.Bytes/int64(c.Entries))
	cache.store = otter.Must(&otter.Options[Key, *entry]{
		MaximumWeight: uint64(share * int64(c.Entries)),
		Weigher: func(_ Key, e *entry) uint32 {
			return uint32(min(max(e.size, share), math.MaxUint32))
		},
		ExpiryCalculator: otter.ExpiryWritingFunc(func(e otter.Entry[Key, *entry]) time.Duration { return e.Value.ttl }),
		OnAtomicDeletion: cache.index.removed,
		Clock:            clock(c.Clock),
		Logger:           storeLog{c.Log},
	})
	return cache
}

// clock lets the store tell the time. It does not tick: sweeping is the Cache's.
type clock func() time.Time

func (c clock) NowNano() int64                      { return c().UnixNano() }
func (c clock) Tick(time.Duration) <-chan time.Time { return nil }

// storeLog hands the store's complaints to the log.
type storeLog struct{ log *slog.Logger }

func (l storeLog) Warn(ctx context.Context, msg string, err error) {
	l.log.WarnContext(ctx, "result cache: "+msg, "error", err)
}

func (l storeLog) Error(ctx context.Context, msg string, err error) {
	l.log.ErrorContext(ctx, "result cache: "+msg, "error", err)
}

// Get finds a result. What it returns is the caller's own copy with Cached set
// and without what belongs to the call that made it (ids, attempts, times but
// StartedAt and EndedAt, sizes, cost). What lies behind Output, Warnings and
// Attachments is shared and must not be modified; appending to them is safe.
func (c *Cache) Get(k Key) (*toolkeep.Result, bool) {
	if c.config.Off {
		return nil, false
	}
	e, ok := c.store.GetIfPresent(k)
	if !ok {
		c.misses.Add(1)
		return nil, false
	}
	c.hits.Add(1)
	r := e.result
	return &r, true
}

// Peek tells whether Get would find something; it counts nothing.
func (c *Cache) Peek(k Key) bool {
	_, ok := c.store.GetEntryQuietly(k)
	return ok
}

// Put keeps a copy of a result that succeeded, for as long as the rule says: ttl_s
// within 1 s and 24 h, Config.TTL where unset, or until it is invalidated with
// policy forever. Any other result or policy is not kept, nor is the result of a
// shared run (Do) if the tool was invalidated since the run began.
func (c *Cache) Put(k Key, tenant, toolID string, r *toolkeep.Result, spec *toolkeep.CacheSpec) {
	ttl := c.lifetime(spec)
	if c.config.Off || ttl == 0 || r == nil || r.Error != nil || (r.State != "" && r.State != toolkeep.CallSucceeded) {
		return
	}
	e := &entry{tenant: tenant, tool: toolID, result: kept(r), size: sizeOf(r), ttl: ttl}
	if e.size > c.config.Bytes/4 {
		return
	}
	began := c.begin(k)
	if c.outdated(toolID, began) {
		return
	}
	c.index.adding(k, e)
	c.store.Set(k, e)
	// An invalidation between the look and the Set has passed the entry by.
	if c.outdated(toolID, began) {
		c.store.Invalidate(k)
	}
}

// lifetime reads a rule; 0 is not to be kept.
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

// kept is the part of a result that is true of every call that it answers.
func kept(r *toolkeep.Result) toolkeep.Result {
	return toolkeep.Result{
		ToolID: r.ToolID, ToolVersion: r.ToolVersion, State: r.State,
		Output: slices.Clone(r.Output), Warnings: cloneWarnings(r.Warnings),
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
// principals, and says how many; "" is every tenant, or every tool. Shared runs of the
// tool that are on are not kept, whosever they are.
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

// Follow drops the results of a tool whose versions or lifecycle changed. Give
// it every change of the feed.
func (c *Cache) Follow(change toolkeep.Committed) {
	switch ch := change.Change.(type) {
	case toolkeep.PublishVersion:
		if ch.Version.Tool != nil {
			c.Invalidate("", ch.Version.Tool.ID)
		}
	case toolkeep.SetLifecycle:
		c.Invalidate("", ch.ToolID)
	}
}

// Stats gives the counts.
func (c *Cache) Stats() Stats {
	s := Stats{Hits: c.hits.Load(), Misses: c.misses.Load(), Shared: c.shared.Load()}
	c.index.stats(&s)
	return s
}

// Start begins the sweeping of expired entries.
func (c *Cache) Start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started || c.stopped {
		return
	}
	c.started = true
	c.running.Go(func() {
		t := time.NewTicker(c.config.Sweep)
		defer t.Stop()
		for {
			select {
			case <-c.stop:
				return
			case <-t.C:
				c.store.CleanUp()
			}
		}
	})
}

// Stop cancels the shared runs and waits for them and for the sweeper. Results
// can still be read afterwards, and Do runs each caller's own function.
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

// Check looks at a manifest's cache rule before it is published and returns what
// is wrong with it; nil if all is well.
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
