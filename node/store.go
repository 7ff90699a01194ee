package node

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/job"
	"github.com/toolkeep/toolkeep/store/blob"
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
	_ toolkeep.QueueAger      = (*sqlite.Store)(nil)
	_ toolkeep.QueueAger      = (*postgres.Store)(nil)
)

// With it a claim notices what other nodes changed.
var _ invoke.HeadSeer = (*postgres.Store)(nil)

// workQueue is the queue of waiting calls, whatever its database.
type workQueue interface {
	Migrate(ctx context.Context) error
	Start(ctx context.Context) error
	Hold()
	Stop(ctx context.Context) error
}

func (n *Node) openStore(ctx context.Context) (err error) {
	if n.blobs, err = blob.Open(n.config.BlobDir()); err != nil {
		return err
	}
	if n.config.Store.DSN != "" {
		err = n.buildPostgres(ctx)
	} else {
		err = n.buildSQLite(ctx)
	}
	if err != nil && n.store != nil {
		n.closeStore()
	}
	return err
}

func (n *Node) closeStore() {
	if err := n.store.Close(); err != nil {
		n.logger("store").Error("the store did not close cleanly", "error", err)
	}
}

func (n *Node) buildSQLite(ctx context.Context) error {
	c := n.config.Store
	if err := datadir.CheckDatabase(n.config.Data); err != nil {
		return err
	}
	var queue *job.Queue[*sql.Tx]
	s, err := sqlite.Open(ctx, sqlite.Config{
		Path: filepath.Join(n.config.Data, datadir.Database), Synchronous: c.Synchronous, GroupDelay: c.GroupDelay, WALBytes: c.WALBytes,
		FeedKeep: c.KeepFeed, EventKeep: c.KeepEvents, InvocationKeep: c.KeepCalls, Clock: n.options.Clock, Log: n.logger("store"),
		Enqueue: func(ctx context.Context, tx *sql.Tx, e toolkeep.Enqueue) error { return queue.Enqueue(ctx, tx, e) },
	})
	if err != nil {
		return err
	}
	n.store = s
	n.stats = func() []telemetry.Sample {
		st := s.Stats()
		return append(telemetry.CommitSamples(st.Groups, st.Rows), telemetry.SQLiteSamples(st.WALBytes, st.IndexLag)...)
	}
	work := n.queueConfig()
	work.DB = s.WriteDB()
	queue, err = job.NewSQLite(work)
	n.queue = queue
	return err
}

func (n *Node) buildPostgres(ctx context.Context) error {
	c := n.config.Store
	conns, _ := n.config.Conns()
	var queue *job.Queue[pgx.Tx]
	s, err := postgres.OpenWaiting(ctx, postgres.Config{
		DSN: c.DSN, DirectDSN: c.DirectDSN, MaxConns: conns, Node: n.name, GroupDelay: c.GroupDelay,
		FeedKeep: c.KeepFeed, EventKeep: c.KeepEvents, InvocationKeep: c.KeepCalls, Tends: n.leads(workRetention), Clock: n.options.Clock, Log: n.logger("store"),
		Enqueue: func(ctx context.Context, tx pgx.Tx, e toolkeep.Enqueue) error { return queue.Enqueue(ctx, tx, e) },
	})
	if err != nil {
		return fmt.Errorf("store.dsn: %w", err)
	}
	n.store = s
	n.stats = func() []telemetry.Sample {
		st := s.Stats()
		return append(telemetry.CommitSamples(st.Groups, st.Rows), telemetry.PostgresSamples(st.Retries, st.Conns)...)
	}
	work := n.queueConfig()
	work.Pool, work.Pooled, n.pooled = s.Pool(), s.Pooled(), s.Pooled()
	queue, err = job.NewPostgres(work)
	n.queue = queue
	return err
}

func (n *Node) queueConfig() job.Config {
	return job.Config{Runner: runner{n}, Workers: n.config.Calls.Workers, PollInterval: n.config.Calls.Poll, Log: n.logger("queue"), NodeID: n.members.Owner(), Earlier: n.members.Earlier,
		Periodic: []job.Periodic{
			{Name: "sweep", Every: time.Second, Run: func(ctx context.Context) error { return n.pipeline.Sweep(ctx) }},
			{Name: "approvals", Every: 5 * time.Second, Run: n.sweepApprovals},
			{Name: "blobs", Every: time.Hour, Run: n.sweepBlobs},
		}}
}
