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

// Runner does what a job is about.
type Runner interface {
	// Run carries the call on. It returns nil if this job is done with, whatever
	// state the row is in, and an error if the call must be looked at again. The
	// context ends when the queue is stopped and the patience of Stop is over.
	Run(ctx context.Context, ref toolkeep.CallRef) error
}

// Periodic is work that comes back.
type Periodic struct {
	Name  string
	Every time.Duration // pause between the starts; the first run is at Start
	Run   func(ctx context.Context) error
}

// Config sets up a Queue. Runner is required, and either DB or Pool.
type Config struct {
	// DB is for NewSQLite: the write connection that the queue shares with the
	// store, one open connection, WAL. The queue never holds it across a wait.
	DB *sql.DB
	// Pool is for NewPostgres: the pool that the queue shares with the store. The
	// queue holds one connection to listen, and others for moments.
	Pool         *pgxpool.Pool
	Runner       Runner
	Workers      int           // calls worked at the same time; default 8
	PollInterval time.Duration // look for work that nobody announced; default 100 ms, at least 1 ms
	// Periodic work runs in its own goroutine, one function at a time, so each
	// must be short or watch its context.
	Periodic []Periodic
	Log      *slog.Logger // default: nothing is logged
	// NodeID says who works a job; default: a random one. Nodes that share a queue
	// must not share it.
	NodeID string
}

const (
	queueName      = "default"
	defaultWorkers = 8
	defaultPoll    = 100 * time.Millisecond
	fetchCooldown  = time.Millisecond
	cleanEvery     = time.Minute
	// cleanBatch bounds how long one statement of clean holds a connection.
	cleanBatch = 500
	// stopGrace is how long Stop waits for jobs whose context it has cancelled.
	stopGrace = 10 * time.Second
)

// Queue holds the ids of waiting calls and works them. TTx is the transaction of
// its database, in which calls are enqueued.
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
	stopped chan struct{} // closed when Stop is through; nil before the first Stop
	stopErr error
}

// backend is what differs between the databases.
type backend[TTx any] interface {
	driver() riverdriver.Driver[TTx]
	// migrator is a driver without this package's own ideas.
	migrator() riverdriver.Driver[TTx]
	// settle sets what River should do differently.
	settle(c *river.Config)
	inTx(ctx context.Context, f func(tx TTx) error) error
	// alone runs f while no other process that shares the database does.
	alone(ctx context.Context, f func() error) error
	// bringForward makes a waiting job as urgent as the more urgent of two wishes.
	bringForward(ctx context.Context, tx TTx, id int64, priority int, at time.Time) error
	// announce is called when a job was inserted, in its open transaction.
	announce()
	// depth counts waiting jobs by River's priority.
	depth(ctx context.Context) (map[int]int, error)
	// reclaim takes up the jobs of dead processes; at Start, and where others share
	// the queue from time to time.
	reclaim(ctx context.Context) error
	// periodic is what the backend has to do from time to time.
	periodic() []Periodic
}

// NewSQLite makes a Queue on SQLite. Enqueue works from here on, once Migrate
// has run; nothing is worked before Start.
func NewSQLite(c Config) (*Queue[*sql.Tx], error) {
	if c.DB == nil || c.Pool != nil {
		return nil, errors.New("job: a queue on SQLite needs Config.DB and no Config.Pool")
	}
	return newQueue(c, func(*Queue[*sql.Tx]) backend[*sql.Tx] { return newSQLite(c.DB) })
}

// NewPostgres makes a Queue on PostgreSQL, which other nodes may share.
func NewPostgres(c Config) (*Queue[pgx.Tx], error) {
	if c.Pool == nil || c.DB != nil {
		return nil, errors.New("job: a queue on PostgreSQL needs Config.Pool and no Config.DB")
	}
	if c.NodeID == "" {
		c.NodeID = "node-" + uuid.NewString()
	}
	return newQueue(c, func(q *Queue[pgx.Tx]) backend[pgx.Tx] { return newPostgres(c.Pool, q) })
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
		JobTimeout:        -1, // deadlines are the pipeline's
		MaxAttempts:       3,  // only for a job that cannot be read; the row decides about the rest
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

// MigrateDown takes all of the queue's tables away, with what waits in them.
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

// Start takes up what a dead process left behind and begins to work. The context
// bounds the start only. A queue that was stopped does not start again.
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

// Hold lets no more jobs begin; those under way go on, and Stop must follow soon. A
// job that is taken up all the same goes back to its place in the line, where another
// node may have it.
func (q *Queue[TTx]) Hold() { q.held.Store(true) }

// Stop ends the periodic work, takes up no more jobs and waits for the running
// ones until ctx ends; then it cancels them and waits up to 10 s more. A job cut
// off waits for the next Start. The error says that jobs did not end even then.
// Later calls wait for the first one and give its error.
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
