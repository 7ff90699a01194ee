package job

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riversqlite"
)

// sqliteQueue is the queue on SQLite, which one process owns.
type sqliteQueue struct {
	db *sql.DB
	d  *driver
}

func newSQLite(db *sql.DB) *sqliteQueue { return &sqliteQueue{db: db, d: newDriver(db)} }

func (s *sqliteQueue) driver() riverdriver.Driver[*sql.Tx]   { return s.d }
func (s *sqliteQueue) migrator() riverdriver.Driver[*sql.Tx] { return riversqlite.New(s.db) }
func (s *sqliteQueue) settle(c *river.Config)                { c.LeaderElectionDisabled = true }

// announce wakes the fetcher, which waits for the connection held by the transaction,
// see doc.go.
func (s *sqliteQueue) announce() { s.d.wake() }

func (s *sqliteQueue) periodic() []Periodic {
	return []Periodic{{Name: "job.clean", Every: cleanEvery, Run: s.clean}}
}

// alone needs no lock: one process owns the database.
func (s *sqliteQueue) alone(_ context.Context, f func() error) error { return f() }

func (s *sqliteQueue) inTx(ctx context.Context, f func(tx *sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after a commit
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func (s *sqliteQueue) bringForward(ctx context.Context, tx *sql.Tx, id int64, priority int, at time.Time) error {
	_, err := tx.ExecContext(ctx, `UPDATE river_job
		SET priority = min(priority, ?), scheduled_at = min(scheduled_at, ?)
		WHERE id = ? AND state = 'available'`, priority, dbTime(at), id)
	return err
}

// dbTime formats a time for the queue's table, where times compare as text.
func dbTime(t time.Time) string {
	return t.UTC().Round(time.Millisecond).Format("2006-01-02 15:04:05.000")
}

func (s *sqliteQueue) depth(ctx context.Context) (map[int]int, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT priority, count(*) FROM river_job
		WHERE queue = ? AND state = 'available' GROUP BY priority`, queueName)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err has the error that matters
	d := make(map[int]int)
	for rows.Next() {
		var p, n int
		if err := rows.Scan(&p, &n); err != nil {
			return nil, err
		}
		d[p] = n
	}
	return d, rows.Err()
}

// reclaim makes the jobs of a dead process wait again. If the call was enqueued again
// meanwhile, the old job is dropped.
func (s *sqliteQueue) reclaim(ctx context.Context) error {
	return s.inTx(ctx, func(tx *sql.Tx) error {
		for _, stmt := range []string{
			`UPDATE OR IGNORE river_job SET state = 'available' WHERE state = 'running' AND kind = ?`,
			`DELETE FROM river_job WHERE state = 'running' AND kind = ?`,
		} {
			if _, err := tx.ExecContext(ctx, stmt, kind); err != nil {
				return err
			}
		}
		return nil
	})
}

// clean removes finished jobs; their history is in the invocation row.
func (s *sqliteQueue) clean(ctx context.Context) error {
	for {
		r, err := s.db.ExecContext(ctx, `DELETE FROM river_job WHERE id IN (
			SELECT id FROM river_job
			WHERE finalized_at IS NOT NULL AND state IN ('completed', 'cancelled', 'discarded')
			LIMIT ?)`, cleanBatch)
		if err != nil {
			return fmt.Errorf("job: remove finished jobs: %w", err)
		}
		if n, err := r.RowsAffected(); err != nil || n < cleanBatch {
			return err
		}
	}
}

// driver is River's SQLite driver with in-process notification: a channel announces new
// jobs instead of rows in a notification table that a listener polls. One process is
// enough for this.
type driver struct {
	*riversqlite.Driver
	wakes chan struct{}
}

func newDriver(db *sql.DB) *driver {
	return &driver{Driver: riversqlite.New(db), wakes: make(chan struct{}, 1)}
}

// wake makes the fetcher look for jobs. It never blocks; wakes before the next fetch
// are merged.
func (d *driver) wake() {
	select {
	case d.wakes <- struct{}{}:
	default:
	}
}

// SupportsListenNotify keeps River from writing notification rows.
func (d *driver) SupportsListenNotify() bool { return false }

// GetListener returns the listener that receives wakes.
func (d *driver) GetListener(p *riverdriver.GetListenenerParams) riverdriver.Listener {
	return &listener{wakes: d.wakes, schema: p.Schema}
}

// listener passes wakes to River as insert notifications.
type listener struct {
	wakes  <-chan struct{}
	schema string
}

const (
	topicInsert   = "river_insert"
	payloadInsert = `{"queue":"` + queueName + `"}`
)

func (l *listener) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.wakes:
		return &riverdriver.Notification{Topic: topicInsert, Payload: payloadInsert}, nil
	}
}

func (l *listener) Close(context.Context) error            { return nil }
func (l *listener) Connect(context.Context) error          { return nil }
func (l *listener) Listen(context.Context, string) error   { return nil }
func (l *listener) Ping(context.Context) error             { return nil }
func (l *listener) Schema() string                         { return l.schema }
func (l *listener) SetAfterConnectExec(string)             {}
func (l *listener) Unlisten(context.Context, string) error { return nil }
