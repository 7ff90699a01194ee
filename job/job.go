package job

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
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

// Config sets up a Queue. DB and Runner are required.
type Config struct {
	// DB is the write connection that the queue shares with the store: one open
	// connection, WAL. The queue never holds it across a wait.
	DB           *sql.DB
	Runner       Runner
	Workers      int           // calls worked at the same time; default 8
	PollInterval time.Duration // look for work that nobody announced; default 100 ms, at least 1 ms
	// Periodic work runs in its own goroutine, one function at a time, so each
	// must be short or watch its context.
	Periodic []Periodic
	Log      *slog.Logger // default: nothing is logged
	NodeID   string       // who worked a job, for people; default: a random one
}

const (
	queueName      = "default"
	defaultWorkers = 8
	defaultPoll    = 100 * time.Millisecond
	fetchCooldown  = time.Millisecond
	cleanEvery     = time.Minute
	// stopGrace is how long Stop waits for jobs whose context it has cancelled.
	stopGrace = 10 * time.Second
)

// Queue holds the ids of waiting calls and works them.
type Queue struct {
	db       *sql.DB
	runner   Runner
	log      *slog.Logger
	client   *river.Client[*sql.Tx]
	driver   *driver
	periodic *ticking

	mu      sync.Mutex
	started bool
	stopped chan struct{} // closed when Stop is through; nil before the first Stop
	stopErr error
}

// New makes a Queue. Enqueue works from here on, once Migrate has run; nothing
// is worked before Start.
func New(c Config) (*Queue, error) {
	switch {
	case c.DB == nil:
		return nil, errors.New("job: Config.DB is missing")
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
	q := &Queue{db: c.DB, runner: c.Runner, log: c.Log, driver: newDriver(c.DB)}

	tasks := append([]Periodic{{Name: "job.clean", Every: cleanEvery, Run: q.clean}}, c.Periodic...)
	t, err := newTicking(tasks, c.Log)
	if err != nil {
		return nil, err
	}
	q.periodic = t

	workers := river.NewWorkers()
	if err := river.AddWorkerSafely(workers, &callWorker{q: q}); err != nil {
		return nil, fmt.Errorf("job: %w", err)
	}
	q.client, err = river.NewClient(q.driver, &river.Config{
		ID:                     c.NodeID,
		Queues:                 map[string]river.QueueConfig{queueName: {MaxWorkers: c.Workers}},
		Workers:                workers,
		Hooks:                  []rivertype.Hook{&waitingOnce{}},
		FetchCooldown:          fetchCooldown,
		FetchPollInterval:      max(c.PollInterval, fetchCooldown),
		JobTimeout:             -1, // deadlines are the pipeline's
		MaxAttempts:            3,  // only for a job that cannot be read; the row decides about the rest
		LeaderElectionDisabled: true,
		Logger:                 slog.New(&quiet{c.Log.Handler()}),
	})
	if err != nil {
		return nil, fmt.Errorf("job: %w", err)
	}
	return q, nil
}

// Migrate brings the queue's tables to the newest version. It is safe to repeat.
func (q *Queue) Migrate(ctx context.Context) error {
	return q.migrate(ctx, rivermigrate.DirectionUp, nil)
}

// MigrateDown takes all of the queue's tables away, with what waits in them.
func (q *Queue) MigrateDown(ctx context.Context) error {
	return q.migrate(ctx, rivermigrate.DirectionDown, &rivermigrate.MigrateOpts{TargetVersion: -1})
}

func (q *Queue) migrate(ctx context.Context, d rivermigrate.Direction, o *rivermigrate.MigrateOpts) error {
	m, err := rivermigrate.New(riversqlite.New(q.db), &rivermigrate.Config{Logger: slog.New(&quiet{q.log.Handler()})})
	if err != nil {
		return fmt.Errorf("job: migrate %s: %w", d, err)
	}
	if _, err := m.Migrate(ctx, d, o); err != nil {
		return fmt.Errorf("job: migrate %s: %w", d, err)
	}
	return nil
}

// Start takes up what a dead process left behind and begins to work. The context
// bounds the start only. A queue that was stopped does not start again.
func (q *Queue) Start(ctx context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.stopped != nil:
		return errors.New("job: the queue was stopped; make a new one")
	case q.started:
		return nil
	}
	if err := q.reclaim(ctx); err != nil {
		return err
	}
	if err := q.client.Start(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("job: start: %w", err)
	}
	q.periodic.start()
	q.started = true
	return nil
}

// Stop ends the periodic work, takes up no more jobs and waits for the running
// ones until ctx ends; then it cancels them and waits up to 10 s more. A job cut
// off waits for the next Start. The error says that jobs did not end even then.
// Later calls wait for the first one and give its error.
func (q *Queue) Stop(ctx context.Context) error {
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
	if started {
		q.stopErr = q.drain(ctx)
	}
	return q.stopErr
}

func (q *Queue) drain(ctx context.Context) error {
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
