package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/flow"
)

// Store stores everything in one PostgreSQL database, which other nodes may share. It
// is safe for concurrent use.
type Store struct {
	cfg      Config
	conf     *pgx.ConnConfig // for the writing connection
	listenTo *pgx.ConnConfig // for the listening one; nil: the feed is polled
	pooled   bool            // see connection
	pool     *pgxpool.Pool

	queue   flow.Queue[step]
	ring    flow.Ring[toolkeep.Committed] // of the feed
	entries flow.Ring[toolkeep.Entry]     // of this writer's journal
	journal int64                         // this writer's number
	seen    atomic.Int64                  // newest position of the feed that a commit saw
	sharing atomic.Int32                  // nodes of the last beat
	direct  atomic.Pointer[[]direct]      // partitions in which calls are changed directly
	full    sync.Map                      // names of partitions that are not made, as the log has said
	behind  chan struct{}                 // wakes the follower

	groups      atomic.Int64
	rows        atomic.Int64
	retries     atomic.Int64
	failure     atomic.Pointer[error] // of the last group, nil if it was committed
	away        atomic.Bool           // failure means that the database is unreachable
	unread      atomic.Pointer[error] // of the last feed read, nil if it succeeded
	unreadSince atomic.Int64          // start of unread, nanoseconds

	life       context.Context // ends when the store closes
	end        context.CancelFunc
	background sync.WaitGroup
	writerDone chan struct{}
	closing    sync.Once
}

const (
	connectTimeout = 3 * time.Second
	// openTimeout bounds each connection of Open: no call waits for it, and a database that
	// has just started or is busy may need longer than calls should wait.
	openTimeout = 15 * time.Second
	// pingTimeout is how long a pool connection may take to prove alive before another
	// is tried.
	pingTimeout = time.Second
	readTries   = 3
	// awayTimeout bounds a read while the writer cannot reach the database: callers
	// should not wait long for a read that will likely fail.
	awayTimeout = time.Second
)

// Open connects, migrates the schema (one node at a time) and starts the store's
// goroutines. ctx bounds only the opening. A database that a newer version has made
// incompatible is refused.
func Open(ctx context.Context, c Config) (*Store, error) {
	if err := c.fill(); err != nil {
		return nil, err
	}
	to, err := settle(ctx, c.DSN, &c)
	if err != nil {
		return nil, err
	}
	if _, _, err := migrate(ctx, patient(to.pool.ConnConfig), -1, c.Log); err != nil {
		return nil, err
	}
	s := &Store{cfg: c, conf: to.writerConfig(&c), pooled: to.pooled, behind: make(chan struct{}, 1), writerDone: make(chan struct{})}
	if s.listenTo, err = to.listenConfig(ctx, &c); err != nil {
		return nil, err
	}
	if s.polled() {
		c.Log.Warn("a pooler stands before PostgreSQL, so notifications do not arrive and the feed is polled; store.direct_dsn names PostgreSQL itself", "every", c.pollInterval)
	}
	if s.pool, err = pgxpool.NewWithConfig(ctx, to.pool); err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	head, err := s.Head(ctx)
	if err == nil {
		limited, cancel := context.WithTimeout(ctx, c.timeout)
		s.tryAhead(limited)
		cancel()
		err = s.learnDirect(ctx)
	}
	if err != nil {
		s.pool.Close()
		return nil, err
	}
	w := &writer{s: s, name: c.writerName()}
	if s.journal, err = s.newWriter(ctx, w.name); err != nil {
		s.pool.Close()
		return nil, err
	}
	w.chain.Start(s.journal)
	s.queue.Start(c.groupMax)
	s.ring.Start(head, func(c *toolkeep.Committed) int64 { return c.Seq })
	s.entries.Start(0, func(e *toolkeep.Entry) int64 { return e.Seq })
	s.seen.Store(head)
	s.life, s.end = context.WithCancel(context.Background())
	go w.run()
	if !s.polled() {
		s.background.Go(s.listen)
	}
	s.background.Go(s.follow)
	s.background.Go(s.tendLoop)
	return s, nil
}

// Pool returns the read pool, which the queue shares.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// Apply commits all changes or none.
//
// Invocations are copied, so the caller may modify and move its own again after Apply
// has returned. The contents of slices and maps in a change are not copied: watchers
// get them, and the caller must not write to them any more.
//
// Outcomes are those of package toolkeep (ErrNotFound, ErrVersionExists, ErrIDTaken,
// ErrKeyTaken, ErrStale, ErrClosed), the error of Config.Enqueue, and PostgreSQL's
// error if it could not commit within Config.Timeout. After such a failure because the
// database was unreachable, Apply fails at once until the writer has reached it again.
func (s *Store) Apply(ctx context.Context, changes ...toolkeep.Change) error {
	return s.apply(ctx, false, changes)
}

// ApplyWithin is Apply for a caller that waits only until ctx ends; see
// toolkeep.BoundedApplier.
func (s *Store) ApplyWithin(ctx context.Context, changes ...toolkeep.Change) error {
	return s.apply(ctx, true, changes)
}

// QueueWait implements toolkeep.QueueWaiter.
func (s *Store) QueueWait() (wait, paced time.Duration) { return s.queue.Wait() }

func (s *Store) apply(ctx context.Context, leave bool, changes []toolkeep.Change) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.unreachable(); err != nil {
		return err
	}
	r := s.queue.Request(ctx)
	r.Leave = leave
	for _, c := range changes {
		st, err := s.prepare(c)
		if err != nil {
			s.queue.Release(r)
			return err
		}
		r.Plain = r.Plain && st.act == nil
		r.Steps = append(r.Steps, st)
	}
	return s.queue.Do(r)
}

// Close commits the queued changes and closes all connections. Later calls of the
// store's methods return ErrClosed. It waits, and may be called again. Other users of
// Pool must be done with it.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.queue.Close()
		<-s.writerDone
		s.end()
		s.ring.Close()
		s.entries.Close()
		s.background.Wait()
		s.pool.Close()
	})
	return nil
}

func (s *Store) closed() bool { return s.life != nil && s.life.Err() != nil }

// unreachable returns why the writer cannot reach the database, nil if it can as far as
// is known.
func (s *Store) unreachable() error {
	if !s.away.Load() || s.closed() {
		return nil
	}
	if err := s.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// read runs the read-only f within Config.Timeout and until the store closes. After a
// lost connection it retries on another, then on a fresh one: all connections in the
// pool may be dead. A failed attempt must leave nothing behind in what f writes to.
func (s *Store) read(ctx context.Context, f func(ctx context.Context) error) error {
	if s.closed() {
		return toolkeep.ErrClosed
	}
	limit := s.cfg.timeout
	if s.away.Load() {
		limit = min(limit, awayTimeout)
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if s.life != nil {
		defer context.AfterFunc(s.life, cancel)()
	}
	err := f(limited)
	for try := 1; try < readTries && isLost(err) && limited.Err() == nil; try++ {
		if try == readTries-1 {
			s.pool.Reset()
		}
		err = f(limited)
	}
	switch {
	case err == nil || errors.Is(err, toolkeep.ErrNotFound):
		return err
	case s.closed():
		return toolkeep.ErrClosed
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("postgres: %w", err)
}

// Health reports whether the store can read and whether its last transaction was
// committed. It writes nothing.
func (s *Store) Health(ctx context.Context) error {
	if s.closed() {
		return toolkeep.ErrClosed
	}
	if err := s.failure.Load(); err != nil {
		return *err
	}
	if err := s.unread.Load(); err != nil && time.Now().UnixNano()-s.unreadSince.Load() > s.cfg.timeout.Nanoseconds() {
		return fmt.Errorf("postgres: the feed cannot be followed: %w", *err)
	}
	_, err := s.Head(ctx)
	return err
}

// Stats holds numbers for metrics.
type Stats struct {
	Head     int64 // newest feed position seen by this node
	Groups   int64 // transactions committed since Open
	Rows     int64 // rows of feed and journal committed by this node since Open
	Retries  int64 // retried transactions
	Conns    int64 // connections of the pool
	MaxConns int64
}

// Stats returns the store's numbers. It never blocks on the database.
func (s *Store) Stats() Stats {
	head, _ := s.ring.Head()
	p := s.pool.Stat()
	return Stats{
		Head: head, Groups: s.groups.Load(), Rows: s.rows.Load(), Retries: s.retries.Load(),
		Conns: int64(p.TotalConns()), MaxConns: int64(p.MaxConns()),
	}
}
