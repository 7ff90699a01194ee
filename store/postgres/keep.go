package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep"
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
			if s.cfg.Tends() {
				if err := s.tend(s.life); err != nil && !s.closed() {
					s.cfg.Log.Error("old records could not be removed", "error", err)
				}
			}
			if err := s.read(s.life, s.learnDirect); err != nil && !s.closed() {
				s.cfg.Log.Warn("the partitions could not be read", "error", err)
			}
		}
	}
}

// tend makes one retention pass in small transactions. It does nothing if another node
// is at it. What fails is in the error and does not stop the rest.
func (s *Store) tend(ctx context.Context) error {
	now := s.cfg.Clock()
	events, calls := now.Add(-s.cfg.EventKeep), now.Add(-s.cfg.InvocationKeep)
	s.tryAhead(ctx)
	holds, err := s.holds(ctx)
	if err != nil {
		return err // nothing goes while it is not known what is held
	}
	past := calls.Add(-s.cfg.ArchiveWait)
	floors, err := s.floors(ctx, past)
	if err != nil {
		return err // nothing goes while it is not known what waits
	}
	callParts, err := s.dropCalls(ctx, calls, holds, floors)
	eventParts, err1 := s.dropEvents(ctx, events, holds)
	errs := []error{err, err1}
	passes := []pass{
		s.trimFeed("calls", 0, record.LastCallKind, now.Add(-s.cfg.FeedKeep)), // of programs before the journal
		s.trimFeed("events", record.KindEvent, record.KindEvent, events),
		remove("items", "dropped AND at < $1", record.Nanos(events)), // the remains of items
		remove("call_keys", "created < $1", record.Nanos(now.Add(-s.cfg.KeyKeep))),
		forgetNonces(now),
	}
	if len(holds.list) == 0 { // readers of the journal need those of what is held
		passes = append(passes, s.dropWriters)
	}
	for _, name := range eventParts {
		passes = append(passes, remove(name, "at < $1"+s.orArchived(name, record.Micros(events.Add(-s.cfg.ArchiveWait)))+holds.not("at", record.Micros, 0), record.Micros(events)))
	}
	for _, name := range callParts {
		passes = append(passes, remove(name, "created < $1 AND"+ended+s.orFloor(name, floors, past)+holds.not("created", record.Nanos, toolkeep.LegalHoldReach), record.Nanos(calls)))
	}
	if s.cfg.InvocationKeep < s.cfg.KeyKeep {
		passes = append(passes, remove("call_keys AS k",
			"created < $1 AND NOT EXISTS (SELECT FROM invocations AS i WHERE i.tenant = k.tenant AND i.id = k.id)", record.Nanos(calls)))
	}
	for _, pass := range passes {
		for more := true; more; {
			if same, err := s.standAs(ctx, holds); !same || err != nil {
				return errors.Join(append(errs, err)...)
			}
			var err error
			more, err = s.alone(ctx, pass)
			if err != nil && code(err) != undefinedTable { // a partition that another node dropped
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// pass is one transaction of a retention pass; more: another may find rows, too.
type pass func(ctx context.Context, tx pgx.Tx) (more bool, err error)

// alone runs one transaction of a pass, unless another node runs one.
func (s *Store) alone(ctx context.Context, pass pass) (more bool, err error) {
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
func (s *Store) trimFeed(name string, low, high int64, cutoff time.Time) pass {
	name = "trimmed " + name
	return func(ctx context.Context, tx pgx.Tx) (bool, error) {
		var from, head int64
		err := tx.QueryRow(ctx, `SELECT coalesce((SELECT seq FROM trimmed WHERE name = $1), 0), seq FROM feed_head`, name).Scan(&from, &head)
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
		_, err = tx.Exec(ctx, `INSERT INTO trimmed (name, seq) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET seq = excluded.seq`, name, upTo)
		return true, err
	}
}

// remove deletes rows of a table in a condition with one argument.
func remove(table, where string, arg int64) pass {
	query := fmt.Sprintf(`DELETE FROM %s WHERE ctid = ANY(ARRAY(SELECT ctid FROM %[1]s WHERE %s LIMIT $2 FOR UPDATE SKIP LOCKED))`, table, where)
	return func(ctx context.Context, tx pgx.Tx) (bool, error) {
		tag, err := tx.Exec(ctx, query, arg, tendRows)
		return tag.RowsAffected() == tendRows, err
	}
}

// forgetNonces removes nonces that need not be kept.
func forgetNonces(now time.Time) pass {
	return func(ctx context.Context, tx pgx.Tx) (bool, error) {
		cutoff := record.Micros(now.Add(-toolkeep.NonceKeep))
		var over int64 // the newest of those that are too many
		err := tx.QueryRow(ctx, `SELECT coalesce((SELECT at FROM nonces ORDER BY at DESC LIMIT 1 OFFSET $1), 0)`, toolkeep.MaxNonces).Scan(&over)
		if err != nil {
			return false, err
		}
		return remove("nonces", "at < $1", max(cutoff, min(over+1, record.Micros(now.Add(-toolkeep.NonceHold)))))(ctx, tx)
	}
}

// sqlAlive shows that a writer is alive.
const sqlAlive = `UPDATE writers SET at = now() WHERE id = $1`

// dropWriters removes the rows of writers whose entries are all past their retention, and the cursors
// in what they wrote. A live writer that loses its row inserts it again.
func (s *Store) dropWriters(ctx context.Context, tx pgx.Tx) (bool, error) {
	_, err := tx.Exec(ctx, `DELETE FROM writers WHERE at < now() - make_interval(secs => $1)`,
		(max(s.cfg.EventKeep, s.cfg.InvocationKeep) + s.cfg.ArchiveWait + 24*time.Hour).Seconds())
	if err != nil {
		return false, err
	}
	_, err = tx.Exec(ctx, `DELETE FROM cursors AS c WHERE NOT EXISTS (SELECT FROM writers AS w WHERE w.id = c.writer)`)
	return false, err
}
