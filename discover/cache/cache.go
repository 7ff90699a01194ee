package cache

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/sharedcache"
)

// Index is the search behind the cache; discover.Index implements it.
type Index interface {
	Find(ctx context.Context, q discover.Query, visible func(*toolkeep.Tool) bool) ([]discover.Match, discover.Report)
	Tools(visible func(*toolkeep.Tool) bool) []*toolkeep.Tool
	// Snapshot returns the state that a tenant's answers currently depend on.
	Snapshot(tenant string) discover.Snapshot
}

// Store stores the flushes.
type Store interface {
	toolkeep.Applier
	// Document returns ErrNotFound if there is none.
	Document(ctx context.Context, kind, tenant, id string) (toolkeep.Document, error)
}

// Config of a Cache. Index and Store are required.
type Config struct {
	Index Index
	Store Store
	// Usage is the Index's Usage; nil if it has none.
	Usage discover.Usage
	// Ranking identifies whatever else answers depend on, and is equal on nodes that answer alike:
	// the index's weights and the build, see sharedcache.Build.
	Ranking string

	Entries int           // of L1; default 20,000
	Bytes   int64         // of L1; default 100 MiB; an answer above 1/64 of it is not cached
	Life    time.Duration // in L1; default 5 min

	Remote     sharedcache.Remote // L2; nil: none
	RemoteLife time.Duration      // in L2; default 1 h
	// Patience is how long a search waits for L2, once to read and once to write; default 50 ms.
	Patience time.Duration
	// Secret is the key material for hashes and seals, 32 bytes, equal on all nodes; required with
	// a Remote, else random.
	Secret []byte

	Clock func() time.Time // default time.Now
	Log   *slog.Logger     // default discards
}

// learning is how often a tenant's learned queries are checked for changes; new ones take
// effect with that delay.
const learning = time.Minute

// overhead is the approximate size in bytes of an answer, and of a tool in it, without their texts.
const (
	overhead      = 400
	matchOverhead = 250
)

// Cache is an Index with a result cache. All methods are safe for concurrent use.
type Cache struct {
	config  Config
	index   Index
	local   *otter.Cache[key, *answer]
	hashers *sync.Pool         // of *hasher
	remote  *sharedcache.Cache // nil: none

	counts  counts
	learned sync.Map   // lesson by tenant
	mu      sync.Mutex // serialises changes of flushed
	flushed atomic.Pointer[map[string]*flushes]

	hits, remoteHits, misses, passed atomic.Int64
}

// Stats are counts of searches since the start.
type Stats struct {
	Hits, RemoteHits, Misses int64
	Passed                   int64 // not cacheable
	RemoteErrors             int64
	Entries                  int   // in L1, approximate
	Bytes                    int64 // of L1, approximate
}

// New creates an empty cache; Load the flushes before it serves.
func New(c Config) (*Cache, error) {
	if c.Index == nil || c.Store == nil {
		return nil, errors.New("cache: Index and Store are required")
	}
	orElse(&c.Entries, 20_000)
	orElse(&c.Bytes, 100<<20)
	orElse(&c.Life, 5*time.Minute)
	orElse(&c.RemoteLife, time.Hour)
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	x := &Cache{config: c, index: c.Index}
	if c.Remote != nil {
		var err error
		if x.remote, err = sharedcache.New(sharedcache.Config{Remote: c.Remote, Secret: c.Secret, Use: use, Patience: c.Patience, Clock: c.Clock, Log: c.Log}); err != nil {
			return nil, err
		}
	} else if c.Secret == nil {
		c.Secret = make([]byte, 32)
		rand.Read(c.Secret) // never fails
	}
	naming, err := sharedcache.NamingKey(c.Secret, use)
	if err != nil {
		return nil, err
	}
	x.hashers = hashers(naming)
	x.flushed.Store(&map[string]*flushes{})
	// The store bounds only weight. If an entry weighs its bytes, but at least its share of them,
	// that also bounds the entries.
	share := max(1, c.Bytes/int64(c.Entries))
	x.local = otter.Must(&otter.Options[key, *answer]{
		MaximumWeight:    uint64(min(share*int64(c.Entries), c.Bytes)),
		Weigher:          func(_ key, a *answer) uint32 { return uint32(min(max(a.size, share), math.MaxUint32)) },
		ExpiryCalculator: otter.ExpiryWritingFunc(func(e otter.Entry[key, *answer]) time.Duration { return e.Value.life }),
		Clock:            clock(c.Clock),
		Logger:           storeLog{c.Log},
	})
	return x, nil
}

func orElse[T int | int64 | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

// clock gives otter the time. It does not tick: expired entries leave when their room is needed,
// and are never returned.
type clock func() time.Time

func (c clock) NowNano() int64                      { return c().UnixNano() }
func (c clock) Tick(time.Duration) <-chan time.Time { return nil }

type storeLog struct{ log *slog.Logger }

func (l storeLog) Warn(ctx context.Context, msg string, err error) {
	l.log.WarnContext(ctx, "search cache: "+msg, "error", err)
}

func (l storeLog) Error(ctx context.Context, msg string, err error) {
	l.log.ErrorContext(ctx, "search cache: "+msg, "error", err)
}

// Close stops otter's goroutines. It does not close the Remote.
func (c *Cache) Close() { c.local.StopAllGoroutines() }

// Stats returns the counts.
func (c *Cache) Stats() Stats {
	return Stats{Hits: c.hits.Load(), RemoteHits: c.remoteHits.Load(), Misses: c.misses.Load(), Passed: c.passed.Load(),
		RemoteErrors: c.remote.Failures(), Entries: c.local.EstimatedSize(), Bytes: int64(c.local.WeightedSize())}
}

// RemoteHealth returns why L2 is currently not used; nil if it is, or there is none.
func (c *Cache) RemoteHealth() error { return c.remote.Err() }

// Tools passes through to the index.
func (c *Cache) Tools(visible func(*toolkeep.Tool) bool) []*toolkeep.Tool {
	return c.index.Tools(visible)
}

// Search is Find without a tenant; its results are not cached.
func (c *Cache) Search(query string, limit int, visible func(*toolkeep.Tool) bool) []discover.Match {
	found, _ := c.Find(context.Background(), discover.Query{Text: query, Limit: limit}, visible)
	return found
}

// Find returns the index's answer, or a cached one that is still valid; the report says which. The
// shared parts of a cached answer (Why, the report's Terms) must not be modified.
func (c *Cache) Find(ctx context.Context, ask discover.Query, visible func(*toolkeep.Tool) bool) ([]discover.Match, discover.Report) {
	k, ok := c.key(ask)
	if !ok {
		c.passed.Add(1)
		return c.index.Find(ctx, ask, visible)
	}
	at := moment{view: c.index.Snapshot(ask.Session.Tenant), flushed: c.flushes(ask.Session.Tenant)}
	if a, ok := c.local.GetIfPresent(k); ok {
		if found, ok := c.show(a, at, ask, visible); ok {
			c.hits.Add(1)
			return found, a.hit()
		}
	}
	if a := c.fetch(ctx, k); a != nil {
		if found, ok := c.show(a, at, ask, visible); ok {
			c.remoteHits.Add(1)
			c.keep(k, a)
			return found, a.hit()
		}
	}
	c.misses.Add(1)
	found, report := c.index.Find(ctx, ask, visible)
	now := moment{view: c.index.Snapshot(ask.Session.Tenant), flushed: c.flushes(ask.Session.Tenant)}
	if report.Degraded != "" && !report.Partial && !at.view.WordsAlone() || !at.view.Settled() || now != at {
		return found, report // built while something was missing or changing
	}
	a := newAnswer(found, report, at, c.config.Clock())
	a.life = c.config.Life
	c.keep(k, a)
	c.send(ctx, k, a)
	return found, report
}

// moment is the state an answer was built from.
type moment struct {
	view    discover.Snapshot
	flushed *flushes
}

// answer is one cached answer. It is immutable once cached.
type answer struct {
	Sum    [32]byte        // of the snapshot
	Rev    int64           // of the tenant's flushes
	Made   time.Time       // by the clock of the node that made it
	Found  []kept          // best first
	Report discover.Report // CacheHit is false
	size   int64
	life   time.Duration // in L1
}

// kept is one tool of an answer: the match with the tool's identity instead of the tool.
type kept struct {
	ID, Tenant, Version, Digest string
	Match                       discover.Match
}

func newAnswer(found []discover.Match, report discover.Report, at moment, now time.Time) *answer {
	a := &answer{Sum: at.view.Sum(), Rev: at.flushed.rev, Made: now, Report: report, Found: make([]kept, len(found))}
	a.Report.Terms = slices.Clip(slices.Clone(report.Terms))
	for i, m := range found {
		t := m.Tool
		m.Tool = nil
		m.Why = slices.Clip(slices.Clone(m.Why))
		a.Found[i] = kept{ID: t.ID, Tenant: t.Tenant, Version: t.Version, Digest: t.Digest, Match: m}
	}
	a.weigh()
	return a
}

// weigh computes the approximate size of the answer in bytes.
func (a *answer) weigh() {
	n := overhead
	for _, w := range a.Report.Terms {
		n += 16 + len(w)
	}
	for i := range a.Found {
		k := &a.Found[i]
		n += matchOverhead + len(k.ID) + len(k.Tenant) + len(k.Version) + len(k.Digest)
		for _, w := range k.Match.Why {
			n += 16 + len(w)
		}
	}
	a.size = int64(n)
}

// hit returns the answer's report for a cache hit.
func (a *answer) hit() discover.Report {
	r := a.Report
	r.CacheHit = true
	return r
}

// show returns the answer's tools in their current versions; ok is false if it is no longer valid.
func (c *Cache) show(a *answer, at moment, ask discover.Query, visible func(*toolkeep.Tool) bool) (found []discover.Match, ok bool) {
	if a.Sum != at.view.Sum() || !at.flushed.allow(a, ask) || c.over(a) {
		return nil, false
	}
	if len(a.Found) == 0 {
		return nil, true
	}
	found = make([]discover.Match, len(a.Found))
	for i := range a.Found {
		k := &a.Found[i]
		t := at.view.Tool(k.ID, k.Tenant)
		if t == nil || t.Version != k.Version || t.Digest != k.Digest || visible != nil && !visible(t) {
			return nil, false
		}
		found[i] = k.Match
		found[i].Tool = t
	}
	return found, true
}

// over reports whether an answer has exceeded the maximum age. An answer from a node whose clock is
// ahead counts as new.
func (c *Cache) over(a *answer) bool {
	return c.config.Clock().Sub(a.Made) >= max(c.config.Life, c.config.RemoteLife)
}

// keep puts an answer into L1.
func (c *Cache) keep(k key, a *answer) {
	if a.size <= c.config.Bytes/64 {
		c.local.Set(k, a)
	}
}
