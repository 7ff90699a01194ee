package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/record"
)

// Config configures a store. Only Path is required.
type Config struct {
	// Path is the database file. Its directory must exist; only the owner can read the
	// file.
	Path string
	// Synchronous is NORMAL (default: a commit survives a crash of the process) or FULL
	// (it also survives a power loss, at one fsync per group).
	Synchronous string
	// GroupDelay is how long the writer waits for a group when more than one Apply is
	// in progress and they arrive fast enough; default 0.5 ms, negative disables it.
	GroupDelay time.Duration
	// groupMax bounds the Applies of one transaction; default 512.
	groupMax int
	// busyTimeout is how long to wait for another process's lock, or for the queue's
	// use of the write connection; default 5 s.
	busyTimeout time.Duration
	// WALBytes is the size above which the write-ahead log is truncated; default 64
	// MiB.
	WALBytes int64
	// FeedKeep is how long ended calls stay in the journal; default 7 days. The newest
	// feedKeepRows stay whatever their age. Changes of the catalogue and of keys stay in
	// the feed forever.
	FeedKeep time.Duration
	// feedKeepRows default 100,000.
	feedKeepRows int64
	// EventKeep is how long events and changes of items stay; default 90 days.
	EventKeep time.Duration
	// InvocationKeep is how long records of ended calls stay; default 30 days.
	InvocationKeep time.Duration
	// KeyKeep is how long an idempotency key is valid, from when its call was made; default 24 hours.
	KeyKeep time.Duration
	// ArchiveWait is how much longer entries of the journal stay that toolkeep.ArchiveReader has not had; 0 where there is
	// no archive.
	ArchiveWait time.Duration
	// Enqueue passes a call to the queue within the store's transaction. Without it an
	// Apply with toolkeep.Enqueue fails. It must use only tx: any other use of the
	// write connection would wait for the transaction it is in.
	Enqueue func(ctx context.Context, tx *sql.Tx, e toolkeep.Enqueue) error
	// Clock default time.Now.
	Clock func() time.Time
	// Log default slog.Default.
	Log *slog.Logger
}

// tendEvery is the pause between retention passes.
const tendEvery = time.Minute

func (c *Config) fill() error {
	if c.Path == "" || strings.HasPrefix(c.Path, ":") || strings.HasPrefix(c.Path, "file:") {
		return errors.New("sqlite: Path must name a file")
	}
	switch c.Synchronous = strings.ToUpper(c.Synchronous); c.Synchronous {
	case "":
		c.Synchronous = "NORMAL"
	case "NORMAL", "FULL":
	default:
		return fmt.Errorf("sqlite: Synchronous is %q, it must be NORMAL or FULL", c.Synchronous)
	}
	orDuration(&c.GroupDelay, 500*time.Microsecond)
	orDuration(&c.busyTimeout, 5*time.Second)
	orDuration(&c.FeedKeep, 7*24*time.Hour)
	orDuration(&c.EventKeep, 90*24*time.Hour)
	orDuration(&c.InvocationKeep, 30*24*time.Hour)
	orDuration(&c.KeyKeep, record.KeyHolds)
	if c.groupMax <= 0 {
		c.groupMax = 512
	}
	if c.WALBytes <= 0 {
		c.WALBytes = 64 << 20
	}
	if c.feedKeepRows <= 0 {
		c.feedKeepRows = 100_000
	}
	if c.busyTimeout < 0 || c.FeedKeep < 0 || c.EventKeep < 0 || c.InvocationKeep < 0 || c.KeyKeep < 0 || c.ArchiveWait < 0 {
		return errors.New("sqlite: durations other than GroupDelay must not be negative")
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return nil
}

func orDuration(d *time.Duration, def time.Duration) {
	if *d == 0 {
		*d = def
	}
}
