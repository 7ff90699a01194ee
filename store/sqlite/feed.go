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

// Head returns the sequence number of the newest committed change.
func (s *Store) Head(context.Context) (int64, error) {
	_, head, closed := s.ring.Bounds()
	if closed {
		return 0, toolkeep.ErrClosed
	}
	return head, nil
}

// Watch yields every change committed after seq, in order and without gaps. Changes of
// calls older than FeedKeep may be gone, as may events and item changes older than
// EventKeep; changes of the catalogue and of keys are complete. Claimed and moved calls
// have no output or sealed arguments. It ends without an error when ctx ends, with
// ErrClosed when the store closes, and with the reason if the feed cannot be read.
func (s *Store) Watch(ctx context.Context, after int64) iter.Seq2[toolkeep.Committed, error] {
	return func(yield func(toolkeep.Committed, error) bool) {
		err := s.ring.Watch(ctx, max(after, 0), s.readFeed, func(c toolkeep.Committed) bool { return yield(c, nil) })
		if err != nil && ctx.Err() == nil {
			yield(toolkeep.Committed{}, s.orClosed(err))
		}
	}
}

// readFeed reads rows from the database after seq, up to and including upTo.
func (s *Store) readFeed(ctx context.Context, seq, upTo int64) ([]toolkeep.Committed, error) {
	tx, err := s.read.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	rows, err := feedRows(ctx, tx, `SELECT seq, at, kind, tenant, ref, data FROM feed
		WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?`, seq, upTo, flow.WatchRows)
	if err != nil {
		return nil, err
	}
	batch := make([]toolkeep.Committed, len(rows))
	for i, r := range rows {
		if batch[i], err = record.Decode(r, published(ctx, tx)); err != nil {
			return nil, stored(err)
		}
	}
	return batch, nil
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
		return scanVersion(q.QueryRowContext(ctx, `SELECT tenant, id, version, digest, life, raw, manifest
			FROM versions WHERE tenant = ? AND id = ? AND version = ?`, tenant, id, version))
	}
}

// feedHead returns the newest position, even if its row has been removed.
func feedHead(ctx context.Context, q querier) (head int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT max(
		coalesce((SELECT max(seq) FROM feed), 0),
		coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'feed'), 0))`).Scan(&head)
	if err != nil {
		err = fmt.Errorf("sqlite: read the head of the feed: %w", err)
	}
	return head, err
}

// stored says which store a record's error comes from.
func stored(err error) error {
	if err != nil {
		err = fmt.Errorf("sqlite: %w", err)
	}
	return err
}
