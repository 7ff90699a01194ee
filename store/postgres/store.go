package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/flow"
)

// Store keeps everything in one PostgreSQL database, which other nodes may
// share. It is safe for concurrent use.
type Store struct {
	cfg  Config
	conf *pgx.ConnConfig // of the connections that write and listen
	pool *pgxpool.Pool

	queue  flow.Queue[step]
	ring   flow.Ring
	behind chan struct{} // the follower should look at the feed

	groups      atomic.Int64
	rows        atomic.Int64
	retries     atomic.Int64
	failure     atomic.Pointer[error] // of the last group, nil if it was committed
	away        atomic.Bool           // failure is that the database could not be reached
	unread      atomic.Pointer[error] // of the last look at the feed, nil if it was read
	unreadSince atomic.Int64          // when that began, nanoseconds

	life       context.Context // ends when the store closes
	end        context.CancelFunc
	background sync.WaitGroup
	writerDone chan struct{}
	closing    sync.Once
}

const (
	connectTimeout = 3 * time.Second
	// pingTimeout is how long a connection of the pool may take to show that it is
	// alive before another is tried.
	pingTimeout = time.Second
	readTries   = 3
	// awayTimeout bounds a read while the writer does not reach the database: a
	// caller should not wait long for what is known to be of little hope.
	awayTimeout = time.Second
)

// Open connects, brings the schema up to date (one node at a time), and starts
// the store's goroutines. ctx bounds the opening only. A database that a newer
// version has made unusable for this one is refused.
func Open(ctx context.Context, c Config) (*Store, error) {
	if err := c.fill(); err != nil {
		return nil, err
	}
	pool, err := pgxpool.ParseConfig(c.DSN)
	if err != nil {
		return nil, dsnError(err)
	}
	settle(pool, &c)
	if _, _, err := migrate(ctx, pool.ConnConfig, -1, c.Log); err != nil {
		return nil, err
	}
	s := &Store{cfg: c, conf: writerConfig(pool.ConnConfig, &c), behind: make(chan struct{}, 1), writerDone: make(chan struct{})}
	if s.pool, err = pgxpool.NewWithConfig(ctx, pool); err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	head, err := s.Head(ctx)
	if err != nil {
		s.pool.Close()
		return nil, err
	}
	s.queue.Start(c.GroupMax)
	s.ring.Start(head)
	s.life, s.end = context.WithCancel(context.Background())
	go newWriter(s).run()
	s.background.Go(s.listen)
	s.background.Go(s.follow)
	s.background.Go(s.tendLoop)
	return s, nil
}

// settle sets what every connection needs.
func settle(p *pgxpool.Config, c *Config) {
	p.MaxConns = int32(c.MaxConns)
	p.PingTimeout = pingTimeout
	if p.ConnConfig.ConnectTimeout == 0 || p.ConnConfig.ConnectTimeout > connectTimeout {
		p.ConnConfig.ConnectTimeout = connectTimeout
	}
	set := p.ConnConfig.RuntimeParams
	if set["application_name"] == "" {
		set["application_name"] = "toolkeep " + c.Node
	}
	// A node that vanishes in the middle of a transaction must not hold its locks.
	set["idle_in_transaction_session_timeout"] = millis(c.Timeout)
	set["tcp_user_timeout"] = millis(c.Timeout)
	set["tcp_keepalives_idle"], set["tcp_keepalives_interval"], set["tcp_keepalives_count"] = "5", "2", "3"
}

// writerConfig is for the connections that do not come from the pool.
func writerConfig(base *pgx.ConnConfig, c *Config) *pgx.ConnConfig {
	conf := base.Copy()
	conf.RuntimeParams["statement_timeout"] = millis(c.Timeout)
	return conf
}

func millis(d time.Duration) string { return strconv.FormatInt(max(1, d.Milliseconds()), 10) }

// Pool is the pool that reads. The queue shares it.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// Apply commits all changes or none.
//
// Invocations are copied, so the caller may change its own and move it again
// after Apply returned. What slices and maps inside of a change point to is not
// copied: watchers get it, and the caller must not write to it any more.
//
// Outcomes are those of package toolkeep (ErrNotFound, ErrVersionExists,
// ErrIDTaken, ErrKeyTaken, ErrStale, ErrClosed), the error of Config.Enqueue,
// and what PostgreSQL says when it could not commit within Config.Timeout. Once
// that was because the database could not be reached, Apply fails at once until
// the writer has reached it again.
func (s *Store) Apply(ctx context.Context, changes ...toolkeep.Change) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.unreachable(); err != nil {
		return err
	}
	r := s.queue.Request(ctx)
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

// Close commits what was queued and closes all connections. Later calls of the
// store's methods give ErrClosed. It waits, and may be called again. Whoever
// shares Pool must be done with it.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.queue.Close()
		<-s.writerDone
		s.end()
		s.ring.Close()
		s.background.Wait()
		s.pool.Close()
	})
	return nil
}

func (s *Store) closed() bool { return s.life != nil && s.life.Err() != nil }

// unreachable gives why the writer does not reach the database, nil if it does as
// far as it knows.
func (s *Store) unreachable() error {
	if !s.away.Load() || s.closed() {
		return nil
	}
	if err := s.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// read runs f, which only reads, within Config.Timeout and until the store
// closes. Where a connection was lost it is tried on another, and then on a
// fresh one: those that lie in the pool may all be dead. No attempt may leave
// anything behind in what f writes to.
func (s *Store) read(ctx context.Context, f func(ctx context.Context) error) error {
	if s.closed() {
		return toolkeep.ErrClosed
	}
	limit := s.cfg.Timeout
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

// Health says whether the store can read and whether its last transaction was
// committed. It writes nothing.
func (s *Store) Health(ctx context.Context) error {
	if s.closed() {
		return toolkeep.ErrClosed
	}
	if err := s.failure.Load(); err != nil {
		return *err
	}
	if err := s.unread.Load(); err != nil && time.Now().UnixNano()-s.unreadSince.Load() > s.cfg.Timeout.Nanoseconds() {
		return fmt.Errorf("postgres: the feed cannot be followed: %w", *err)
	}
	_, err := s.Head(ctx)
	return err
}

// Stats are numbers for metrics.
type Stats struct {
	Head     int64 // newest position of the feed that this node has seen
	Groups   int64 // transactions committed since Open
	Rows     int64 // feed rows that this node committed since Open
	Retries  int64 // transactions that had to be done again
	Conns    int64 // connections of the pool
	MaxConns int64
}

// Stats gives the store's numbers. It never blocks on the database.
func (s *Store) Stats() Stats {
	_, head, _ := s.ring.Bounds()
	p := s.pool.Stat()
	return Stats{
		Head: head, Groups: s.groups.Load(), Rows: s.rows.Load(), Retries: s.retries.Load(),
		Conns: int64(p.TotalConns()), MaxConns: int64(p.MaxConns()),
	}
}
