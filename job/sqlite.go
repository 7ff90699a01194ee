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

// announce wakes the fetcher, which waits for the connection that the
// transaction holds, see doc.go.
func (s *sqliteQueue) announce() { s.d.wake() }

func (s *sqliteQueue) periodic() []Periodic {
	return []Periodic{{Name: "job.clean", Every: cleanEvery, Run: s.clean}}
}

// alone has nothing to wait for: one process owns the database.
func (s *sqliteQueue) alone(_ context.Context, f func() error) error { return f() }

func (s *sqliteQueue) inTx(ctx context.Context, f func(tx *sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit there is nothing to roll back
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

// dbTime is a time as the queue's table holds it; times compare as text.
func dbTime(t time.Time) string {
	return t.UTC().Round(time.Millisecond).Format("2006-01-02 15:04:05.000")
}

func (s *sqliteQueue) depth(ctx context.Context) (map[int]int, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT priority, count(*) FROM river_job
		WHERE queue = ? AND state = 'available' GROUP BY priority`, queueName)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // what matters is in rows.Err
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

// reclaim lets the jobs wait again that a dead process was working on. Where the
// call was enqueued anew in the meantime the old job is dropped.
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

// clean removes jobs that are over; the invocation row has their story.
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

// driver is River's SQLite driver with another way to hear of new jobs: not
// through rows of a notification table that a listener polls for, but through a
// channel. This is enough because there is one process.
type driver struct {
	*riversqlite.Driver
	wakes chan struct{}
}

func newDriver(db *sql.DB) *driver {
	return &driver{Driver: riversqlite.New(db), wakes: make(chan struct{}, 1)}
}

// wake makes the fetcher look for jobs. It never blocks; several wakes before
// the fetcher gets round to it are one.
func (d *driver) wake() {
	select {
	case d.wakes <- struct{}{}:
	default:
	}
}

// SupportsListenNotify keeps River from writing notification rows.
func (d *driver) SupportsListenNotify() bool { return false }

// GetListener gives the listener that hears wake.
func (d *driver) GetListener(p *riverdriver.GetListenenerParams) riverdriver.Listener {
	return &listener{wakes: d.wakes, schema: p.Schema}
}

// listener hands the wakes to River as if they were notifications of an insert.
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
