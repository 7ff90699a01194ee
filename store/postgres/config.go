package postgres

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/record"
)

// Config configures a store. Only DSN is required.
type Config struct {
	// DSN is a connection string, as keywords or as a URL. A search_path in it selects
	// another schema for the tables, which must exist.
	DSN string
	// DirectDSN is the same database without a pooler before it, to listen; "" is DSN, or the
	// feed is polled if a pooler stands before that.
	DirectDSN string
	// MaxConns bounds the connections; default 10, at least 6. One writes, one listens, one
	// listens for the queue, and the rest is the pool that reads and the queue share.
	MaxConns int
	// Node names this process in PostgreSQL's list of sessions; default "node".
	Node string
	// timeout bounds one read, and one transaction of the writer including retries
	// after a lost connection and lock waits; default 5 s.
	timeout time.Duration
	// GroupDelay is how long the writer waits for a group when more than one Apply is
	// in progress and they arrive fast enough; default 0.5 ms, negative disables it. It
	// is multiplied by the number of live nodes, at most 8.
	GroupDelay time.Duration
	// groupMax bounds the Applies of one transaction; default 512.
	groupMax int
	// pollInterval is how often the feed is read without a notification; default 500
	// ms.
	pollInterval time.Duration
	// FeedKeep is how long what programs before the journal left of calls stays in the
	// feed; default 7 days. The newest feedKeepRows stay whatever their age.
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
	// Tends tells whether this node makes retention passes; default it does. A lock sees to it
	// that one node at a time makes them.
	Tends func() bool
	// tendEvery is the pause between retention passes; default 1 minute.
	tendEvery time.Duration
	// Enqueue passes a call to the queue within the store's transaction. Without it an
	// Apply with toolkeep.Enqueue fails. It may be called again for the same change if
	// the transaction is retried.
	Enqueue func(ctx context.Context, tx pgx.Tx, e toolkeep.Enqueue) error
	// Clock default time.Now.
	Clock func() time.Time
	// machine is the machine's own time, of which the difference to PostgreSQL's is known; default time.Now.
	machine func() time.Time
	// otherBytes is the size of a default partition from which on no other is made; default the constant.
	otherBytes int64
	// Log default slog.Default.
	Log *slog.Logger
}

func (c *Config) fill() error {
	if c.DSN == "" {
		return errors.New("postgres: DSN is missing")
	}
	for _, d := range []struct {
		field *time.Duration
		def   time.Duration
	}{
		{&c.timeout, 5 * time.Second}, {&c.GroupDelay, 500 * time.Microsecond}, {&c.pollInterval, 500 * time.Millisecond},
		{&c.FeedKeep, 7 * 24 * time.Hour}, {&c.EventKeep, 90 * 24 * time.Hour}, {&c.InvocationKeep, 30 * 24 * time.Hour}, {&c.KeyKeep, record.KeyHolds},
		{&c.tendEvery, time.Minute},
	} {
		if *d.field == 0 {
			*d.field = d.def
		}
		if *d.field < 0 && d.field != &c.GroupDelay {
			return errors.New("postgres: durations other than GroupDelay must not be negative")
		}
	}
	if c.ArchiveWait < 0 {
		return errors.New("postgres: ArchiveWait must not be negative")
	}
	if c.MaxConns <= 0 {
		c.MaxConns = 10
	}
	c.MaxConns = max(c.MaxConns, 6)
	if c.groupMax <= 0 {
		c.groupMax = 512
	}
	if c.feedKeepRows <= 0 {
		c.feedKeepRows = 100_000
	}
	if c.Node == "" {
		c.Node = "node"
	}
	if c.Tends == nil {
		c.Tends = func() bool { return true }
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.machine == nil {
		c.machine = time.Now
	}
	if c.otherBytes <= 0 {
		c.otherBytes = otherBytes
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return nil
}

// writerName returns a name that is unique to this run of the node.
func (c *Config) writerName() string { return c.Node + "/" + uuid.NewString() }
