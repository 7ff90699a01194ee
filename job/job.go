package job

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"

	"github.com/toolkeep/toolkeep"
)

// Runner does the work of a job.
type Runner interface {
	// Run continues the call. It returns nil if the job is done, in whatever state the
	// row is, and an error if the call must be looked at again. The context ends when
	// the queue is stopped and Stop's grace period is over.
	Run(ctx context.Context, ref toolkeep.CallRef) error
}

// Periodic is recurring work.
type Periodic struct {
	Name  string
	Every time.Duration // pause between the starts; the first run is at Start
	Run   func(ctx context.Context) error
}

// Config sets up a Queue. Runner is required, and either DB or Pool.
type Config struct {
	// DB is for NewSQLite: the write connection shared with the store, one open
	// connection, WAL. The queue never holds it while waiting.
	DB *sql.DB
	// Pool is for NewPostgres: the pool shared with the store. The queue takes one
	// connection out of it to listen, and uses others briefly.
	Pool         *pgxpool.Pool
	Runner       Runner
	Workers      int           // calls run concurrently; default 8
	PollInterval time.Duration // look for work without a notification; default 100 ms, at least 1 ms
	// Periodic work runs in its own goroutine, one function at a time, so each
	// must be short or watch its context.
	Periodic []Periodic
	Log      *slog.Logger // default: nothing is logged
	// NodeID identifies the worker of a job; default: a random one. Nodes that share a
	// queue need different ids.
	NodeID string
	// Pooled: a pooler such as PgBouncer stands before the database, past which no
	// notification comes: the queue is polled. PostgreSQL only.
	Pooled bool
	// Earlier returns the NodeID of an earlier run of this node that is certainly dead, whose
	// jobs Start takes over at once; nil or "" if there is none. PostgreSQL only.
	Earlier func() string
}

const (
	queueName      = "default"
	defaultWorkers = 8
	defaultPoll    = 100 * time.Millisecond
	fetchCooldown  = time.Millisecond
	cleanEvery     = time.Minute
	// cleanBatch bounds how long one statement of clean holds a connection.
	cleanBatch = 500
	// stopGrace is how long Stop waits for jobs after cancelling their context.
	stopGrace = 10 * time.Second
)

// Queue holds the ids of waiting calls and runs them. TTx is its database's transaction
// type, in which calls are enqueued.
type Queue[TTx any] struct {
	store    backend[TTx]
	runner   Runner
	log      *slog.Logger
	client   *river.Client[TTx]
	periodic *ticking
	working  working
	held     atomic.Bool

	mu      sync.Mutex
	started bool
	stopped chan struct{} // closed when Stop is done; nil before the first Stop
	stopErr error
}

// backend holds what differs between the databases.
type backend[TTx any] interface {
	driver() riverdriver.Driver[TTx]
	// migrator is River's driver without this package's changes.
	migrator() riverdriver.Driver[TTx]
	// settle adjusts River's configuration.
	settle(c *river.Config)
	inTx(ctx context.Context, f func(tx TTx) error) error
	// alone runs f while no other process that shares the database runs it.
	alone(ctx context.Context, f func() error) error
	// bringForward gives a waiting job the higher priority and the earlier time of
	// both.
	bringForward(ctx context.Context, tx TTx, id int64, priority int, at time.Time) error
	// announce is called after a job was inserted, in the open transaction.
	announce()
	// depth counts waiting jobs by River's priority.
	depth(ctx context.Context) (map[int]int, error)
	// reclaim takes over the jobs of dead processes, at Start and, if nodes share the
	// queue, periodically.
	reclaim(ctx context.Context) error
	// periodic is the backend's periodic work.
	periodic() []Periodic
}

// NewSQLite returns a Queue on SQLite. Enqueue works once Migrate has run; no job runs
// before Start.
func NewSQLite(c Config) (*Queue[*sql.Tx], error) {
	if c.DB == nil || c.Pool != nil {
		return nil, errors.New("job: a queue on SQLite needs Config.DB and no Config.Pool")
	}
	return newQueue(c, func(*Queue[*sql.Tx]) backend[*sql.Tx] { return newSQLite(c.DB) })
}

// NewPostgres returns a Queue on PostgreSQL, which other nodes may share.
func NewPostgres(c Config) (*Queue[pgx.Tx], error) {
	if c.Pool == nil || c.DB != nil {
		return nil, errors.New("job: a queue on PostgreSQL needs Config.Pool and no Config.DB")
	}
	if c.NodeID == "" {
		c.NodeID = "node-" + uuid.NewString()
	}
	return newQueue(c, func(q *Queue[pgx.Tx]) backend[pgx.Tx] { return newPostgres(c, q) })
}

func newQueue[TTx any](c Config, open func(*Queue[TTx]) backend[TTx]) (*Queue[TTx], error) {
	switch {
	case c.Runner == nil:
		return nil, errors.New("job: Config.Runner is missing")
	case c.Workers < 0 || c.PollInterval < 0:
		return nil, errors.New("job: Config.Workers and Config.PollInterval must not be negative")
	}
	if c.Workers == 0 {
		c.Workers = defaultWorkers
	}
	if c.PollInterval == 0 {
		c.PollInterval = defaultPoll
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	q := &Queue[TTx]{runner: c.Runner, log: c.Log}
	q.store = open(q)
	t, err := newTicking(append(q.store.periodic(), c.Periodic...), c.Log)
	if err != nil {
		return nil, err
	}
	q.periodic = t

	workers := river.NewWorkers()
	if err := river.AddWorkerSafely(workers, &callWorker{run: q.run, again: q.again, held: &q.held, working: &q.working, log: q.log}); err != nil {
		return nil, fmt.Errorf("job: %w", err)
	}
	conf := &river.Config{
		ID:                c.NodeID,
		Queues:            map[string]river.QueueConfig{queueName: {MaxWorkers: c.Workers}},
		Workers:           workers,
		Hooks:             []rivertype.Hook{&waitingOnce{}},
		FetchCooldown:     fetchCooldown,
		FetchPollInterval: max(c.PollInterval, fetchCooldown),
		JobTimeout:        -1, // deadlines belong to the pipeline
		MaxAttempts:       3,  // only for a job that cannot be decoded; the row decides the rest
		Logger:            slog.New(&quiet{c.Log.Handler()}),
	}
	q.store.settle(conf)
	q.client, err = river.NewClient(q.store.driver(), conf)
	if err != nil {
		return nil, fmt.Errorf("job: %w", err)
	}
	return q, nil
}

// Migrate brings the queue's tables to the newest version. It is safe to repeat.
func (q *Queue[TTx]) Migrate(ctx context.Context) error {
	return q.migrate(ctx, rivermigrate.DirectionUp, nil)
}

// MigrateDown drops all of the queue's tables, including waiting jobs.
func (q *Queue[TTx]) MigrateDown(ctx context.Context) error {
	return q.migrate(ctx, rivermigrate.DirectionDown, &rivermigrate.MigrateOpts{TargetVersion: -1})
}

func (q *Queue[TTx]) migrate(ctx context.Context, d rivermigrate.Direction, o *rivermigrate.MigrateOpts) error {
	m, err := rivermigrate.New(q.store.migrator(), &rivermigrate.Config{Logger: slog.New(&quiet{q.log.Handler()})})
	if err == nil {
		err = q.store.alone(ctx, func() error {
			_, err := m.Migrate(ctx, d, o)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("job: migrate %s: %w", d, err)
	}
	return nil
}

// Start takes over the jobs of dead processes and starts the workers. ctx bounds the
// start only. A stopped queue cannot be started again.
func (q *Queue[TTx]) Start(ctx context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.stopped != nil:
		return errors.New("job: the queue was stopped; make a new one")
	case q.started:
		return nil
	}
	if err := q.store.reclaim(ctx); err != nil {
		return fmt.Errorf("job: start: take up the jobs of a dead process: %w", err)
	}
	if err := q.client.Start(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("job: start: %w", err)
	}
	q.periodic.start()
	q.started = true
	return nil
}

// Hold stops new jobs from starting; running jobs continue, and Stop must follow soon.
// A job fetched after Hold returns to its place in the queue, where another node may
// take it.
func (q *Queue[TTx]) Hold() { q.held.Store(true) }

// Stop ends the periodic work, fetches no more jobs and waits for running jobs until
// ctx ends; then it cancels them and waits up to 10 s more. An interrupted job waits
// for the next Start. The error says that jobs were still running after that. Later
// calls wait for the first and return its error.
func (q *Queue[TTx]) Stop(ctx context.Context) error {
	q.mu.Lock()
	if first := q.stopped; first != nil {
		q.mu.Unlock()
		select {
		case <-first:
			return q.stopErr
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	q.stopped = make(chan struct{})
	started := q.started
	q.mu.Unlock()

	defer close(q.stopped)
	q.Hold()
	if started {
		q.stopErr = q.drain(ctx)
	}
	return q.stopErr
}

func (q *Queue[TTx]) drain(ctx context.Context) error {
	q.periodic.cancel()
	err := q.client.Stop(ctx)
	if err != nil {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
		defer cancel()
		if err = q.client.StopAndCancel(grace); err != nil {
			err = fmt.Errorf("job: some jobs did not end within %s after they were cancelled: %w", stopGrace, err)
		}
	}
	q.periodic.wait()
	return err
}
