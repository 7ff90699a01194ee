package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"iter"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/flow"
	"github.com/toolkeep/toolkeep/store/record"
)

// Head returns the sequence number of the newest committed change of the feed.
func (s *Store) Head(context.Context) (int64, error) {
	head, closed := s.ring.Head()
	if closed {
		return 0, toolkeep.ErrClosed
	}
	return head, nil
}

// Watch yields every change of the feed committed after seq, in order. Changes of items
// older than EventKeep may be gone; changes of the catalogue and of keys are complete. It
// ends without an error when ctx ends, with ErrClosed when the store closes, and with the
// reason if the feed cannot be read.
func (s *Store) Watch(ctx context.Context, after int64) iter.Seq2[toolkeep.Committed, error] {
	return watch(ctx, s, &s.ring, after, s.readFeed)
}

// watch yields the elements of a ring after seq, and those that left it from the database.
func watch[T any](ctx context.Context, s *Store, ring *flow.Ring[T], seq int64, read flow.Read[T]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		err := ring.Watch(ctx, max(seq, 0), read, func(c T) bool { return yield(c, nil) })
		if err != nil && ctx.Err() == nil {
			var none T
			yield(none, s.orClosed(err))
		}
	}
}

// readFeed reads rows of the feed after seq, up to and including upTo.
func (s *Store) readFeed(ctx context.Context, seq, upTo int64) ([]toolkeep.Committed, int64, error) {
	tx, err := s.read.BeginTx(ctx, nil)
	if err != nil {
		return nil, 0, err
	}
	defer tx.Rollback()
	rows, read, err := rowsBetween(ctx, tx, "feed", seq, upTo, flow.WatchRows)
	if err != nil {
		return nil, 0, err
	}
	batch := make([]toolkeep.Committed, 0, len(rows))
	for _, r := range rows {
		c, err := record.Decode(r, published(ctx, tx))
		if err != nil {
			return nil, 0, stored(err)
		}
		if c.Change != nil {
			batch = append(batch, c)
		}
	}
	return batch, read, nil
}

// rowsBetween reads rows of the feed or the journal after seq, up to and including upTo, and
// returns how far it came.
func rowsBetween(ctx context.Context, q querier, table string, seq, upTo int64, limit int) (rows []record.Row, read int64, err error) {
	rows, err = feedRows(ctx, q, `SELECT seq, at, kind, tenant, ref, data FROM `+table+`
		WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?`, seq, upTo, limit)
	if len(rows) == limit {
		return rows, rows[limit-1].Seq, err
	}
	return rows, upTo, err
}

func feedRows(ctx context.Context, q querier, query string, args ...any) ([]record.Row, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []record.Row
	for rows.Next() {
		var r record.Row
		if err := rows.Scan(&r.Seq, &r.At, &r.Kind, &r.Tenant, &r.Ref, &r.Data); err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, rows.Err()
}

// querier is the common part of *sql.DB and *sql.Tx.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// published finds the tool of a version, which its feed row only refers to.
func published(ctx context.Context, q querier) record.Versions {
	return func(tenant, id, version string) (toolkeep.Version, error) {
		return versionOf(ctx, q, tenant, id, version)
	}
}

// newest returns the newest number of the feed or the journal, even if its row has been
// removed.
func newest(ctx context.Context, q querier, table string) (seq int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT max(
		coalesce((SELECT max(seq) FROM `+table+`), 0),
		coalesce((SELECT seq FROM sqlite_sequence WHERE name = '`+table+`'), 0))`).Scan(&seq)
	if err != nil {
		err = fmt.Errorf("sqlite: read the newest number of the %s: %w", table, err)
	}
	return seq, err
}

// stored says which store a record's error comes from.
func stored(err error) error {
	if err != nil {
		err = fmt.Errorf("sqlite: %w", err)
	}
	return err
}
