package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

	driver "modernc.org/sqlite" // and registers it
	codes "modernc.org/sqlite/lib"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/store/flow"
)

// Store stores everything in one SQLite file. It is safe for concurrent use.
type Store struct {
	cfg    Config
	write  *sql.DB // one connection
	read   *sql.DB
	find   *sql.DB       // for queries of one call
	finds  chan struct{} // holds one element for each of them, at most as many as find has connections
	byID   *sql.Stmt     // selects whole calls, on find
	byKey  *sql.Stmt
	hasKey *sql.Stmt // whether byKey selects one
	check  *sql.DB   // one connection, for checkpoints only

	queue   flow.Queue[step]
	ops     chan *op                      // work for the writer between groups
	ring    flow.Ring[toolkeep.Committed] // of the feed
	entries flow.Ring[toolkeep.Entry]     // of the journal
	recent  recent                        // calls that are not in the table invocations yet
	wal     walKeeper
	members members

	// recorded is the newest number of the journal that must be indexed before a reader
	// may read; indexed is the index's progress.
	recorded atomic.Int64
	indexed  atomic.Int64
	lag      atomic.Int64 // pending calls, also those that just run
	groups   atomic.Int64
	rows     atomic.Int64
	failure  atomic.Pointer[error] // of the last group, nil if it was committed

	stop       chan struct{} // ends the retention and checkpoint loops
	background sync.WaitGroup
	writerDone chan struct{}
	closing    sync.Once
	closeErr   error
}

// Open opens or creates the database, migrates its schema, finishes indexing
// interrupted by a crash, and starts the store's goroutines. ctx bounds only the
// opening. A database from a newer version is refused.
func Open(ctx context.Context, c Config) (*Store, error) {
	if err := c.fill(); err != nil {
		return nil, err
	}
	if err := makeFile(c.Path); err != nil {
		return nil, advised(err)
	}
	s := &Store{
		cfg:        c,
		ops:        make(chan *op),
		stop:       make(chan struct{}),
		writerDone: make(chan struct{}),
	}
	w, err := s.open(ctx)
	if err != nil {
		return nil, advised(errors.Join(err, s.closeDBs()))
	}
	go w.run()
	s.background.Add(2)
	go s.tendLoop()
	go s.wal.loop()
	return s, nil
}

// advised adds what the operator is to do to an error of Open.
func advised(err error) error {
	var e *driver.Error
	switch {
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return fmt.Errorf("%w: %s", err, egress.DescriptorsNote())
	case errors.As(err, &e) && (e.Code()&0xff == codes.SQLITE_CORRUPT || e.Code()&0xff == codes.SQLITE_NOTADB):
		return fmt.Errorf("%w: the database is damaged; `toolkeep doctor` says where, and `toolkeep restore` brings a backup back", err)
	}
	return err
}

func (s *Store) open(ctx context.Context) (*writer, error) {
	var err error
	if s.write, err = openWriter(s.cfg.dsn(false)); err != nil {
		return nil, err
	}
	if err := s.write.PingContext(ctx); err != nil {
		return nil, fmt.Errorf("sqlite: open %s: %w", filepath.Base(s.cfg.Path), err)
	}
	if _, _, err := migrate(ctx, s.write, -1, s.cfg.Log); err != nil {
		return nil, err
	}
	if s.read, err = openDB(s.cfg.dsn(true), max(4, runtime.GOMAXPROCS(0))); err != nil {
		return nil, err
	}
	s.finds = make(chan struct{}, max(2, runtime.GOMAXPROCS(0)))
	if s.find, err = openDB(s.cfg.dsn(true), cap(s.finds)); err != nil {
		return nil, err
	}
	if s.byID, err = s.find.PrepareContext(ctx, `SELECT `+callColumns+` FROM invocations WHERE tenant = ? AND id = ?`); err != nil {
		return nil, err
	}
	if s.byKey, err = s.find.PrepareContext(ctx, `SELECT `+callColumns+` FROM invocations WHERE `+byKeyWhere); err != nil {
		return nil, err
	}
	if s.hasKey, err = s.find.PrepareContext(ctx, `SELECT 1 FROM invocations WHERE `+byKeyWhere); err != nil {
		return nil, err
	}
	if s.check, err = openDB(s.cfg.dsn(false), 1); err != nil {
		return nil, err
	}
	head, err := newest(ctx, s.write, "feed")
	if err != nil {
		return nil, err
	}
	entry, err := newest(ctx, s.write, "journal")
	if err != nil {
		return nil, err
	}
	s.queue.Start(s.cfg.groupMax)
	s.ring.Start(head, func(c *toolkeep.Committed) int64 { return c.Seq })
	s.entries.Start(entry, func(e *toolkeep.Entry) int64 { return e.Seq })
	s.wal.start(s)
	w, err := newWriter(ctx, s, head, entry)
	if err != nil {
		return nil, err
	}
	if err := w.beginRun(ctx); err != nil {
		return nil, fmt.Errorf("sqlite: begin the chain of the journal: %w", err)
	}
	if err := w.recoverIndex(ctx); err != nil {
		return nil, fmt.Errorf("sqlite: index what the journal holds: %w", err)
	}
	return w, nil
}

// Details is what health shows of the store: nothing.
func (s *Store) Details() any { return nil }

// WriteDB returns the only connection that writes. The queue shares it; every Apply
// waits while it is in use.
func (s *Store) WriteDB() *sql.DB { return s.write }

// Close commits the queued changes, finishes indexing, and closes the database. Later
// calls of the store's methods return ErrClosed. It waits, and may be called again.
func (s *Store) Close() error {
	s.closing.Do(func() {
		close(s.stop)
		s.queue.Close()
		<-s.writerDone
		s.ring.Close()
		s.entries.Close()
		s.background.Wait()
		s.closeErr = s.closeDBs()
	})
	return s.closeErr
}

func (s *Store) closed() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

func (s *Store) closeDBs() error {
	var errs []error
	// The write connection is closed last: the last connection to close empties the
	// log.
	for _, db := range []*sql.DB{s.read, s.find, s.check, s.write} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}

// orClosed returns ErrClosed for any error after the store was closed.
func (s *Store) orClosed(err error) error {
	if err != nil && s.closed() {
		return toolkeep.ErrClosed
	}
	return err
}

// makeFile creates the file readable only by its owner, before SQLite would create it
// readable by all. SQLite gives the log the same mode.
func makeFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("sqlite: %w", err)
	}
	return f.Close()
}

func openDB(dsn string, conns int) (*sql.DB, error) {
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

// dsn returns the file's DSN with the settings for every connection of a pool.
func (c *Config) dsn(readOnly bool) string {
	q := url.Values{"_pragma": {fmt.Sprintf("busy_timeout(%d)", c.busyTimeout.Milliseconds())}}
	if readOnly {
		q.Set("mode", "ro")
		q.Add("_pragma", "query_only(1)")
	} else {
		q.Set("mode", "rw")
		q.Set("_txlock", "immediate")
		q.Add("_pragma", "journal_mode(WAL)")
		q.Add("_pragma", "synchronous("+c.Synchronous+")")
		q.Add("_pragma", "foreign_keys(1)")
		q.Add("_pragma", "wal_autocheckpoint(0)")
		// A page of 4 KB takes 9 KB of memory, because the allocator rounds up to
		// powers of two: this is 18 MB at most. Twice as much made no call cheaper.
		q.Add("_pragma", "cache_size(-8192)")
		// Savepoint undo data stays in memory instead of a file.
		q.Add("_pragma", "temp_store(MEMORY)")
	}
	return "file:" + (&url.URL{Path: c.Path}).EscapedPath() + "?" + q.Encode()
}
