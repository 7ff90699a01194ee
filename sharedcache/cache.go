package sharedcache

import (
	"context"
	"crypto/cipher"
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

// sealing is what sealing adds to a value at most, in bytes.
const sealing = 64

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
	Use      string
	Patience time.Duration    // of a request; default 50 ms
	Clock    func() time.Time // default time.Now
	Log      *slog.Logger     // default discards
}

// Cache keeps one use's values in the store. It is safe for concurrent use.
type Cache struct {
	config Config
	aead   cipher.AEAD
	naming []byte

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
	naming, err := NamingKey(c.Secret, c.Use)
	if err != nil {
		return nil, err
	}
	aead, err := newSeal(c.Secret, c.Use)
	return &Cache{config: c, aead: aead, naming: naming}, err
}

// Name returns the name of what a key stands for, an HMAC: it says nothing of the key, and cannot be guessed.
func (c *Cache) Name(key []byte) string {
	h := hmac.New(sha256.New, c.naming)
	h.Write(key)
	return hex.EncodeToString(h.Sum(nil))
}

// Get returns the value that was Put under a name; nil if there is none, if it does not open, or if the store fails.
func (c *Cache) Get(ctx context.Context, name string) []byte {
	if !c.ready() {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, c.config.Patience)
	defer cancel()
	raw, err := c.config.Remote.Get(wait, name)
	c.report(ctx, err)
	if err != nil || raw == nil {
		return nil
	}
	if len(raw) <= MaxBytes {
		if plain, err := c.open(raw, name); err == nil {
			return plain
		}
	}
	c.foreign.Add(1)
	c.config.Log.Debug("a shared value is skipped", "cache", c.config.Use, "error", errForeign)
	return nil
}

// Put stores a value for life, if it has no more than MaxBytes sealed and the store takes it.
func (c *Cache) Put(ctx context.Context, name string, plain []byte, life time.Duration) {
	if len(plain) > MaxBytes-sealing || !c.ready() {
		return
	}
	wait, cancel := context.WithTimeout(ctx, c.config.Patience)
	defer cancel()
	c.report(ctx, c.config.Remote.Put(wait, name, c.seal(plain, name), life))
}

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
