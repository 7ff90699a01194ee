package sharedcache

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// MaxBytes bounds a sealed value, in bytes.
const MaxBytes = 100 << 10

// MaxPlain bounds a value before it is sealed, in bytes.
const MaxPlain = MaxBytes - 64

// pause is how long the store is not used after a failure.
const pause = time.Second

// Remote is a byte store shared by the nodes. It may drop values at any time.
type Remote interface {
	// Get returns the value of a name; nil if there is none.
	Get(ctx context.Context, name string) ([]byte, error)
	// Put stores value for life.
	Put(ctx context.Context, name string, value []byte, life time.Duration) error
}

// Config of a Cache. Remote, Secret and Use are required.
type Config struct {
	Remote Remote
	// Secret is the key material, 32 bytes, equal on all nodes; see Secret.
	Secret []byte
	// Use is what is kept, such as "search". Values of one use do not open as those of another.
	Use string
	// Build is the program and its settings, as far as values depend on them; see Build. Values of one are not found with another.
	Build    string
	Patience time.Duration    // of a request; default 50 ms
	Clock    func() time.Time // default time.Now
	Log      *slog.Logger     // default discards
}

// Cache keeps one use's values in the store. It is safe for concurrent use.
type Cache struct {
	config Config
	use    string // Config.Use and Config.Build
	naming []byte
	last   atomic.Pointer[dayKey] // the one that was used last
	back   chan struct{}

	failures, foreign atomic.Int64
	down              atomic.Bool

	mu    sync.Mutex // guards what follows
	err   error      // of the last attempt; nil if it succeeded
	again time.Time  // when the next attempt is allowed
}

// New returns a Cache.
func New(c Config) (*Cache, error) {
	if c.Remote == nil || c.Use == "" || len(c.Secret) != secretBytes {
		return nil, errors.New("sharedcache: Remote, Use and a Secret of 32 bytes are required")
	}
	if c.Patience <= 0 {
		c.Patience = 50 * time.Millisecond
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	use := c.Use
	if c.Build != "" {
		use += " of " + c.Build
	}
	naming, err := NamingKey(c.Secret, use)
	return &Cache{config: c, use: use, naming: naming, back: make(chan struct{}, 1)}, err
}

// Name returns the name of what a key stands for, an HMAC: it says nothing of the key, and cannot be guessed.
func (c *Cache) Name(key []byte) string {
	h := hmac.New(sha256.New, c.naming)
	h.Write(key)
	return hex.EncodeToString(h.Sum(nil))
}

// Get returns the value that was Put under a name; nil if there is none, if it does not open, or if the store fails.
func (c *Cache) Get(ctx context.Context, name string) []byte {
	plain, _ := c.Read(ctx, name, c.config.Patience)
	return plain
}

// Read is Get with a patience of its own. The error says that the store does not answer, or was left alone.
func (c *Cache) Read(ctx context.Context, name string, patience time.Duration) ([]byte, error) {
	if !c.ready() {
		return nil, errAway
	}
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	raw, err := c.config.Remote.Get(wait, name)
	c.report(ctx, err)
	if err != nil || raw == nil {
		return nil, err
	}
	if len(raw) <= MaxBytes {
		if plain, err := c.open(raw, name); err == nil {
			return plain, nil
		}
	}
	c.foreign.Add(1)
	c.config.Log.Debug("a shared value is skipped", "cache", c.config.Use, "error", errForeign)
	return nil, nil
}

// Put stores a value for life, if it has no more than MaxPlain bytes and the store takes it.
func (c *Cache) Put(ctx context.Context, name string, plain []byte, life time.Duration) {
	c.Write(ctx, name, plain, life, c.config.Patience)
}

// Write is Put with a patience of its own. It reports whether the store took the value.
func (c *Cache) Write(ctx context.Context, name string, plain []byte, life, patience time.Duration) bool {
	if len(plain) > MaxPlain || !c.ready() {
		return false
	}
	sealed, err := c.seal(plain, name)
	if err != nil {
		return false
	}
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = c.config.Remote.Put(wait, name, sealed, life)
	c.report(ctx, err)
	return err == nil
}

// Back receives when the store answers again after a failure. It is for one reader.
func (c *Cache) Back() <-chan struct{} { return c.back }

var errAway = errors.New("the shared cache does not answer")

// Failures counts the requests that the store did not answer, since the start. A nil Cache has none.
func (c *Cache) Failures() int64 {
	if c == nil {
		return 0
	}
	return c.failures.Load()
}

// Foreign counts the values that did not open: they were damaged, moved, or written by others.
func (c *Cache) Foreign() int64 { return c.foreign.Load() }

// Err returns why the store is currently not used; nil if it is. A nil Cache has no reason.
func (c *Cache) Err() error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// ready reports whether the store may be used; while it fails, for one request in a second.
func (c *Cache) ready() bool {
	if !c.down.Load() {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		return true
	}
	now := c.config.Clock()
	if now.Before(c.again) {
		return false
	}
	c.again = now.Add(pause)
	return true
}

// report records the outcome of an attempt. ctx is the caller's: its end says nothing about the store.
func (c *Cache) report(ctx context.Context, err error) {
	if err == nil && !c.down.Load() || ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		if c.err != nil {
			c.config.Log.Info("the shared cache answers again", "cache", c.config.Use)
			select {
			case c.back <- struct{}{}:
			default:
			}
		}
		c.err = nil
		c.down.Store(false)
		return
	}
	c.failures.Add(1)
	if c.err == nil {
		c.config.Log.Warn("the shared cache does not answer; work goes on without it", "cache", c.config.Use, "error", err)
	}
	c.err, c.again = err, c.config.Clock().Add(pause)
	c.down.Store(true)
}
