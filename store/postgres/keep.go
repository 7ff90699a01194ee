package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep/store/record"
)

const (
	// tendRows is how many rows one transaction removes.
	tendRows = 1000
	// tendLock is the advisory lock of the retention pass: one node at a time.
	tendLock = 0x746f6f6c74656e64
)

// tendLoop removes rows past their retention.
func (s *Store) tendLoop() {
	t := time.NewTicker(s.cfg.tendEvery)
	defer t.Stop()
	for {
		select {
		case <-s.life.Done():
			return
		case <-t.C:
			err := s.read(s.life, func(ctx context.Context) error {
				_, err := s.pool.Exec(ctx, sqlAlive, s.journal)
				return err
			})
			if err != nil && !s.closed() {
				s.cfg.Log.Warn("the writer's row could not be kept", "error", err)
			}
			if !s.cfg.Tends() {
				continue
			}
			if err := s.tend(s.life); err != nil && !s.closed() {
				s.cfg.Log.Error("old records could not be removed", "error", err)
			}
		}
	}
}

// tend makes one retention pass in small transactions. It does nothing if another node
// is at it.
func (s *Store) tend(ctx context.Context) error {
	now := s.cfg.Clock()
	for _, pass := range []func(context.Context, pgx.Tx) (more bool, err error){
		s.trimFeed("calls", 0, record.LastCallKind, now.Add(-s.cfg.FeedKeep)), // of programs before the journal
		s.trimFeed("events", record.KindEvent, record.KindEvent, now.Add(-s.cfg.EventKeep)),
		s.dropInvocations(now.Add(-s.cfg.InvocationKeep)),
		forgetDocument(now.Add(-s.cfg.EventKeep)),
		s.dropEvents(now.Add(-s.cfg.EventKeep)),
		s.dropWriters,
	} {
		for more := true; more; {
			var err error
			if more, err = s.alone(ctx, pass); err != nil {
				return err
			}
		}
	}
	return nil
}

// alone runs one transaction of a pass, unless another node runs one.
func (s *Store) alone(ctx context.Context, pass func(context.Context, pgx.Tx) (bool, error)) (more bool, err error) {
	limited, cancel := context.WithTimeout(ctx, s.cfg.timeout)
	defer cancel()
	err = pgx.BeginFunc(limited, s.pool, func(tx pgx.Tx) error {
		var got bool
		if err := tx.QueryRow(limited, `SELECT pg_try_advisory_xact_lock($1)`, int64(tendLock)).Scan(&got); err != nil || !got {
			return err
		}
		more, err = pass(limited, tx)
		return err
	})
	return more && err == nil, err
}

// trimFeed removes rows of some kinds older than cutoff, from where the last pass
// stopped. The newest feedKeepRows stay.
func (s *Store) trimFeed(name string, low, high int64, cutoff time.Time) func(context.Context, pgx.Tx) (bool, error) {
	name = "trimmed " + name
	return func(ctx context.Context, tx pgx.Tx) (bool, error) {
		var from, head int64
		err := tx.QueryRow(ctx, `SELECT coalesce((SELECT seq FROM marks WHERE name = $1), 0), seq FROM feed_head`, name).Scan(&from, &head)
		if err != nil {
			return false, err
		}
		// The last of the next rows that are all old enough.
		var upTo int64
		err = tx.QueryRow(ctx, `SELECT coalesce(max(seq), 0) FROM (
				SELECT seq, max(at) OVER (ORDER BY seq) AS newest FROM (
					SELECT seq, at FROM feed WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT $3
				) AS next
			) AS old WHERE newest < $4`, from, head-s.cfg.feedKeepRows, tendRows, record.Micros(cutoff)).Scan(&upTo)
		if err != nil || upTo == 0 {
			return false, err
		}
		_, err1 := tx.Exec(ctx, `DELETE FROM feed WHERE seq > $1 AND seq <= $2 AND kind BETWEEN $3 AND $4`, from, upTo, low, high)
		if err1 != nil {
			return false, err1
		}
		_, err = tx.Exec(ctx, `INSERT INTO marks (name, seq) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET seq = excluded.seq`, name, upTo)
		return true, err
	}
}

// dropInvocations removes ended calls created before cutoff.
func (s *Store) dropInvocations(cutoff time.Time) func(context.Context, pgx.Tx) (bool, error) {
	return func(ctx context.Context, tx pgx.Tx) (bool, error) {
		tag, err := tx.Exec(ctx, `DELETE FROM invocations WHERE ctid = ANY(ARRAY(
			SELECT ctid FROM invocations WHERE created < $1 AND`+ended+` LIMIT $2 FOR UPDATE SKIP LOCKED))`, record.Nanos(cutoff), tendRows)
		return tag.RowsAffected() == tendRows, err
	}
}

// forgetDocument removes the remains of items dropped before cutoff.
func forgetDocument(cutoff time.Time) func(context.Context, pgx.Tx) (bool, error) {
	return func(ctx context.Context, tx pgx.Tx) (bool, error) {
		tag, err := tx.Exec(ctx, `DELETE FROM items WHERE ctid = ANY(ARRAY(
			SELECT ctid FROM items WHERE dropped AND at < $1 LIMIT $2 FOR UPDATE SKIP LOCKED))`, record.Nanos(cutoff), tendRows)
		return tag.RowsAffected() == tendRows, err
	}
}

// dropEvents removes events older than cutoff.
func (s *Store) dropEvents(cutoff time.Time) func(context.Context, pgx.Tx) (bool, error) {
	return func(ctx context.Context, tx pgx.Tx) (bool, error) {
		tag, err := tx.Exec(ctx, `DELETE FROM events WHERE ctid = ANY(ARRAY(
			SELECT ctid FROM events WHERE at < $1 LIMIT $2 FOR UPDATE SKIP LOCKED))`, record.Micros(cutoff), tendRows)
		return tag.RowsAffected() == tendRows, err
	}
}

// sqlAlive shows that a writer is alive.
const sqlAlive = `UPDATE writers SET at = now() WHERE id = $1`

// dropWriters removes the rows of writers whose entries are all past their retention. A live
// writer that loses its row inserts it again.
func (s *Store) dropWriters(ctx context.Context, tx pgx.Tx) (bool, error) {
	_, err := tx.Exec(ctx, `DELETE FROM writers WHERE at < now() - make_interval(secs => $1)`,
		(max(s.cfg.EventKeep, s.cfg.InvocationKeep) + 24*time.Hour).Seconds())
	return false, err
}
