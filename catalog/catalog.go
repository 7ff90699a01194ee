package catalog

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Store is the catalogue's view of a store.
type Store interface {
	toolkeep.Applier
	toolkeep.Watcher
}

// Checker checks a manifest's binding before it is published; an executor's Check method is one. Pointers are from
// the manifest's root.
type Checker = func(*toolkeep.Manifest) []toolkeep.Fault

// Config configures a Catalog. Store is required for Start and for every change.
type Config struct {
	Store Store
	// Load returns all versions, each once and for the catalogue alone, and the feed position that they reflect; nil reads
	// the feed from its beginning.
	Load func(ctx context.Context) ([]toolkeep.Version, int64, error)
	// Checkers by execution.kind. A manifest of a kind without one is refused.
	Checkers    map[string]Checker
	Clock       func() time.Time // default time.Now
	Log         *slog.Logger     // default slog.Default()
	MaxActive   int              // active versions of one tool; default 5
	RemoveAfter time.Duration    // from deprecation to the earliest removal; default 90 days
	Defaults    Defaults         // of what manifests leave out
	// Home is the only tenant whose administrators may publish and change tools of all tenants; "" allows those of
	// every tenant.
	Home string
}

// Catalog is the catalogue of tools. All methods are safe for concurrent use.
type Catalog struct {
	store       Store
	load        func(ctx context.Context) ([]toolkeep.Version, int64, error)
	checkers    map[string]Checker
	now         func() time.Time
	log         *slog.Logger
	maxActive   int
	removeAfter time.Duration
	home        string
	read        *reader

	current atomic.Pointer[Snapshot]
	ranges  ranges

	busy     busy // serialises Publish, SetState and SetHolds per tool
	follower follower

	notify    sync.Mutex
	started   bool
	listeners []func(*Snapshot)

	lifetime sync.Mutex
	cancel   context.CancelFunc // nil while not running
	done     sync.WaitGroup
}

// New makes an empty catalogue; Start fills it.
func New(cfg Config) *Catalog {
	c := &Catalog{
		store: cfg.Store, load: cfg.Load, checkers: cfg.Checkers,
		now: cfg.Clock, log: cfg.Log, maxActive: cfg.MaxActive, removeAfter: cfg.RemoveAfter, home: cfg.Home, read: newReader(cfg.Defaults),
	}
	if c.now == nil {
		c.now = time.Now
	}
	if c.log == nil {
		c.log = slog.Default()
	}
	if c.maxActive <= 0 {
		c.maxActive = 5
	}
	if c.removeAfter <= 0 {
		c.removeAfter = 90 * 24 * time.Hour
	}
	c.current.Store(emptySnapshot(c.read))
	return c
}

// today returns the time for lifecycles: UTC without monotonic clock, in microseconds, so that it survives a store
// unchanged.
func (c *Catalog) today() time.Time { return c.now().UTC().Truncate(time.Microsecond) }

// Snapshot returns the current snapshot.
func (c *Catalog) Snapshot() *Snapshot { return c.current.Load() }

// OnChange registers fn for each new snapshot, in order, and calls it at once with the current one if the catalogue
// runs. Snapshots of a burst are merged, so fn does not see every single change. fn runs on the catalogue's
// goroutine: until it returns, no newer snapshot appears. It must not call OnChange, Stop or anything that changes
// the catalogue.
func (c *Catalog) OnChange(fn func(*Snapshot)) {
	c.notify.Lock()
	defer c.notify.Unlock()
	c.listeners = append(c.listeners, fn)
	if c.started {
		fn(c.current.Load())
	}
}

// Start loads the versions, calls the listeners with the first snapshot and follows the feed until Stop. Starting a
// running catalogue does nothing; after Stop it can start again. ctx bounds only the loading.
//
// Errors: E3003 if the store cannot be read.
func (c *Catalog) Start(ctx context.Context) error {
	c.lifetime.Lock()
	defer c.lifetime.Unlock()
	if c.cancel != nil {
		return nil
	}
	if c.store == nil {
		return toolkeep.NewError(toolkeep.InternalError, "the catalogue has no store").Because(errors.New("catalog: Config.Store is nil"))
	}
	first, err := c.first(ctx)
	if err != nil {
		return err
	}
	c.show(first)
	c.follower.reset(first.seq)
	run, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	c.done.Go(func() { c.follow(run, first.seq) })
	c.done.Go(func() { c.build(run) })
	if c.load != nil {
		return nil
	}
	// Without Load the whole history comes through the feed: wait for it.
	head, err := c.store.Head(ctx)
	if err == nil {
		err = c.await(ctx, head)
	}
	if err != nil {
		c.stopLocked()
		return unreadable(err)
	}
	return nil
}

// first returns the snapshot of what Load returns.
func (c *Catalog) first(ctx context.Context) (*Snapshot, error) {
	s := emptySnapshot(c.read)
	if c.load == nil {
		return s, nil
	}
	versions, seq, err := c.load(ctx)
	if err != nil {
		return nil, unreadable(err)
	}
	s.load(versions, c.unreadable)
	s.seq = seq
	if store, ok := c.store.(documents); ok {
		abouts, _, err := store.Documents(ctx, KindAbout)
		if err != nil {
			return nil, unreadable(err)
		}
		choices, _, err := store.Documents(ctx, KindChoice)
		if err != nil {
			return nil, unreadable(err)
		}
		s.hear(abouts)
		for i := range choices { // the feed may bring them again
			s.keepChoice(&choices[i])
		}
	}
	return s, nil
}

// Stop stops following the feed and waits for it. The last snapshot stays readable. It may be called more than
// once.
func (c *Catalog) Stop() {
	c.lifetime.Lock()
	defer c.lifetime.Unlock()
	c.stopLocked()
}

func (c *Catalog) stopLocked() {
	if c.cancel == nil {
		return
	}
	c.cancel()
	c.done.Wait()
	c.cancel = nil
	c.follower.close()
}

func (c *Catalog) running() bool {
	c.lifetime.Lock()
	defer c.lifetime.Unlock()
	return c.cancel != nil
}

// show publishes a snapshot and calls the listeners.
func (c *Catalog) show(s *Snapshot) {
	c.notify.Lock()
	defer c.notify.Unlock()
	c.started = true
	c.current.Store(s)
	for _, fn := range c.listeners {
		fn(s)
	}
}

// unreadable reports an unusable version from the store.
func (c *Catalog) unreadable(id, version string, err error) {
	c.log.Error("a version in the store cannot be used and is left out of the catalogue", "tool", id, "version", version, "error", err)
}

func unreadable(err error) error {
	return toolkeep.NewError(toolkeep.RegistryUnavailable, "the catalogue cannot be read from the store now; try again").Because(err)
}
