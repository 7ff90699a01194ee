// Package stores opens the store that the settings name, and the queue of waiting calls in its
// database.
package stores

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/job"
	"github.com/toolkeep/toolkeep/store/personal"
	"github.com/toolkeep/toolkeep/store/postgres"
	"github.com/toolkeep/toolkeep/store/sqlite"
	"github.com/toolkeep/toolkeep/telemetry"
)

// Store is what a node needs of a store; store/storetest is what it must pass.
type Store interface {
	toolkeep.Applier
	toolkeep.Watcher
	toolkeep.Members
	toolkeep.Journal
	toolkeep.Chains
	toolkeep.Cursors
	Invocations() toolkeep.Invocations
	CallMarks() toolkeep.CallMarks
	Versions(ctx context.Context) ([]toolkeep.Version, int64, error)
	Keys(ctx context.Context) ([]toolkeep.APIKey, int64, error)
	Document(ctx context.Context, kind, tenant, id string) (toolkeep.Document, error)
	Documents(ctx context.Context, kind string) ([]toolkeep.Document, int64, error)
	Health(ctx context.Context) error
	Details() any
	Close() error
}

// With both a reading call leaves a commit that takes too long.
var (
	_ toolkeep.BoundedApplier = (*sqlite.Store)(nil)
	_ toolkeep.BoundedApplier = (*postgres.Store)(nil)
	_ toolkeep.QueueWaiter    = (*sqlite.Store)(nil)
	_ toolkeep.QueueWaiter    = (*postgres.Store)(nil)
)

// With it a claim notices what other nodes changed.
var _ invoke.HeadSeer = (*postgres.Store)(nil)

// Queue is the queue of waiting calls, whatever its database.
type Queue interface {
	Migrate(ctx context.Context) error
	Start(ctx context.Context) error
	Hold()
	Stop(ctx context.Context) error
}

// sealing is a store whose records are sealed by person. Its methods come before the store's.
type sealing struct {
	beneath
	*personal.Sealed
}

type beneath struct{ Store }

// Beneath returns the store itself, for tests that break it.
func (b beneath) Beneath() Store { return b.Store }

// QueueWait implements toolkeep.QueueWaiter.
func (s sealing) QueueWait() (wait, paced time.Duration) {
	return s.Store.(toolkeep.QueueWaiter).QueueWait()
}

// seeing is a sealing store that is also an invoke.HeadSeer.
type seeing struct {
	sealing
	invoke.HeadSeer
}

// seal puts the sealing by person before the store.
func (o *Opened) seal(c Config) {
	o.Persons = personal.NewSealed(o.Store.(personal.Store), personal.NewKeys(o.Store.(personal.Documents), c.Log), c.Settings.Audit.Erasable)
	s := sealing{beneath{o.Store}, o.Persons}
	if seer, ok := o.Store.(invoke.HeadSeer); ok {
		o.Store = seeing{s, seer}
	} else {
		o.Store = s
	}
}

// Config is what a store needs beside the settings.
type Config struct {
	Settings *config.Config
	Node     string      // in the database's list of sessions
	Tends    func() bool // whether this node removes what is past its time (PostgreSQL)
	Queue    job.Config  // its runner, and who runs it; Open adds the database and the settings
	Clock    func() time.Time
	Log      *slog.Logger
}

// Opened is an open store.
type Opened struct {
	Store Store
	Queue Queue
	// Persons are the records of Store. Its keys (PersonKeys) need a sealer before the first one.
	Persons *personal.Sealed
	Stats   func() []telemetry.Sample
	Pooled  bool // a pooler stands before the database
}

// Open opens the store. ctx ends the wait for a PostgreSQL that does not answer, and nothing
// after it. What Open opened is closed again if it fails.
func Open(ctx context.Context, c Config) (*Opened, error) {
	c.Queue.Workers, c.Queue.PollInterval = c.Settings.Calls.Workers, c.Settings.Calls.Poll
	o, err := &Opened{}, error(nil)
	if c.Settings.Store.DSN != "" {
		err = o.openPostgres(ctx, c)
	} else {
		err = o.openSQLite(ctx, c)
	}
	if err == nil {
		o.seal(c)
		return o, nil
	}
	if o.Store != nil {
		err = errors.Join(err, o.Store.Close())
	}
	return nil, err
}

func (o *Opened) openSQLite(ctx context.Context, c Config) error {
	if err := datadir.CheckDatabase(c.Settings.Data); err != nil {
		return err
	}
	var queue *job.Queue[*sql.Tx]
	set := c.Settings.Store
	s, err := sqlite.Open(ctx, sqlite.Config{
		Path: filepath.Join(c.Settings.Data, datadir.Database), Synchronous: set.Synchronous, GroupDelay: set.GroupDelay, WALBytes: set.WALBytes,
		FeedKeep: set.KeepFeed, EventKeep: set.KeepEvents, InvocationKeep: set.KeepCalls, KeyKeep: c.Settings.Idempotency.TTL, ArchiveWait: c.Settings.Audit.Wait(), Clock: c.Clock, Log: c.Log,
		Enqueue: func(ctx context.Context, tx *sql.Tx, e toolkeep.Enqueue) error { return queue.Enqueue(ctx, tx, e) },
	})
	if err != nil {
		return err
	}
	o.Store = s
	o.Stats = func() []telemetry.Sample {
		st := s.Stats()
		return append(telemetry.CommitSamples(st.Groups, st.Rows), telemetry.SQLiteSamples(st.WALBytes, st.IndexLag)...)
	}
	c.Queue.DB = s.WriteDB()
	queue, err = job.NewSQLite(c.Queue)
	o.Queue = queue
	return err
}

func (o *Opened) openPostgres(ctx context.Context, c Config) error {
	conns, _ := c.Settings.Conns()
	var queue *job.Queue[pgx.Tx]
	set := c.Settings.Store
	s, err := postgres.OpenWaiting(ctx, postgres.Config{
		DSN: set.DSN, DirectDSN: set.DirectDSN, MaxConns: conns, Node: c.Node, GroupDelay: set.GroupDelay,
		FeedKeep: set.KeepFeed, EventKeep: set.KeepEvents, InvocationKeep: set.KeepCalls, KeyKeep: c.Settings.Idempotency.TTL, ArchiveWait: c.Settings.Audit.Wait(), Tends: c.Tends, Clock: c.Clock, Log: c.Log,
		Enqueue: func(ctx context.Context, tx pgx.Tx, e toolkeep.Enqueue) error { return queue.Enqueue(ctx, tx, e) },
	})
	if err != nil {
		return fmt.Errorf("store.dsn: %w", err)
	}
	o.Store, o.Pooled = s, s.Pooled()
	o.Stats = func() []telemetry.Sample {
		st := s.Stats()
		return append(telemetry.CommitSamples(st.Groups, st.Rows), telemetry.PostgresSamples(st.Retries, st.Conns)...)
	}
	c.Queue.Pool, c.Queue.Pooled = s.Pool(), o.Pooled
	queue, err = job.NewPostgres(c.Queue)
	o.Queue = queue
	return err
}
