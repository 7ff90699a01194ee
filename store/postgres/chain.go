package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/record"
)

var _ toolkeep.Chains = (*Store)(nil)

const (
	linkWhere = ` WHERE writer = $1 AND entry > $2 AND entry <= $3 AND ($4::boolean OR tenant = $5)`
	// One statement, so that calls and events are those of one moment.
	sqlLinks = `(SELECT entry, 8 AS kind, 0 AS at, tenant, '' AS id, hash, stamp, NULL::bytea AS data FROM invocations` + linkWhere + ` AND entry IS NOT NULL AND NOT $7::boolean ORDER BY entry LIMIT $6)
		UNION ALL (SELECT entry, 10, 0, tenant, '', hash, stamp, NULL FROM events` + linkWhere + ` ORDER BY entry LIMIT $6) ORDER BY entry LIMIT $6`
	sqlWholeLinks = `(SELECT entry, 8 AS kind, 0::bigint AS at, tenant, id, hash, stamp, coalesce(ended, data) AS data FROM invocations` + linkWhere + ` AND entry IS NOT NULL AND NOT $7::boolean ORDER BY entry LIMIT $6)
		UNION ALL (SELECT entry, 10, at, tenant, id, hash, stamp, data FROM events` + linkWhere + ` ORDER BY entry LIMIT $6) ORDER BY entry LIMIT $6`
)

// KeepsFrom returns the time since which the journal is whole; see toolkeep.Chains.
func (s *Store) KeepsFrom() time.Time {
	return s.cfg.Clock().Add(-min(s.cfg.EventKeep, s.cfg.InvocationKeep))
}

// ChainWriters returns the writers of this database with entries after a position.
func (s *Store) ChainWriters(ctx context.Context, after toolkeep.JournalPosition) (list []toolkeep.ChainWriter, err error) {
	ids, seqs := make([]int64, 0, len(after)), make([]int64, 0, len(after))
	for id, seq := range after {
		ids, seqs = append(ids, id), append(seqs, seq)
	}
	err = s.read(ctx, func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, sqlBehind, ids, seqs)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (w toolkeep.ChainWriter, err error) {
			w.First = 1
			var from int64
			err = row.Scan(&w.ID, &from, &w.Newest)
			return w, err
		})
		return err
	})
	return list, err
}

// Links returns entries of a writer; see toolkeep.Chains.
func (s *Store) Links(ctx context.Context, q toolkeep.LinkQuery) (list []toolkeep.Link, read int64, err error) {
	if q.Limit < 1 || q.Limit > maxEntries {
		return nil, 0, errors.New("postgres: links are read in parts of 1 to 1,000")
	}
	query := sqlLinks
	if q.Content {
		query = sqlWholeLinks
	}
	err = s.read(ctx, func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, query, q.Writer, q.After, q.UpTo, q.All, text(q.Tenant), q.Limit, q.Events)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, scanLink)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	for i := range list {
		list[i].Writer = q.Writer
	}
	if len(list) == q.Limit {
		return list, list[len(list)-1].Seq, nil
	}
	return list, q.UpTo, nil
}

func scanLink(row pgx.CollectableRow) (toolkeep.Link, error) {
	var r record.Row
	var hash []byte
	var stamp *int64
	if err := row.Scan(&r.Seq, &r.Kind, &r.At, &r.Tenant, &r.Ref, &hash, &stamp, &r.Data); err != nil {
		return toolkeep.Link{}, err
	}
	r.Tenant, r.Ref = plainText(r.Tenant), plainText(r.Ref)
	l := record.Chained(r, 0, hash)
	if stamp != nil {
		l.Stamp = *stamp
	}
	return l, nil
}

// Entry reads the entry of a link.
func (s *Store) Entry(l toolkeep.Link) (*toolkeep.Entry, error) {
	e, err := record.ReadLink(l)
	if err != nil {
		return nil, damage{fmt.Errorf("postgres: %w", err)}
	}
	return e, nil
}

const (
	// Times are nanoseconds; a call's is when it was created, by which calls are found.
	sqlNewest = `(SELECT writer, entry, 8 AS kind, 0::bigint AS at, tenant, id, hash, coalesce(ended, data) AS data, created AS key FROM invocations
			WHERE tenant = $1 AND created >= $2 AND (created, id) < ($3, $4) AND created <= $3 AND entry IS NOT NULL ORDER BY created DESC, id DESC LIMIT $5)
		UNION ALL (SELECT writer, entry, 10, at, tenant, id, hash, data, at * 1000 FROM events
			WHERE tenant = $1 AND at >= $2 / 1000 AND (at * 1000, id) < ($3, $4) AND at <= $3 / 1000 ORDER BY at DESC, id DESC LIMIT $5)
		ORDER BY key DESC, id DESC LIMIT $5`
)

// Newest returns a tenant's entries, the newest first; see toolkeep.Chains. A cursor is a time in nanoseconds and an id.
func (s *Store) Newest(ctx context.Context, q toolkeep.NewestQuery) (list []toolkeep.Link, cursors []string, next string, err error) {
	if q.Limit < 1 || q.Limit > maxEntries {
		return nil, nil, "", errors.New("postgres: entries are read in parts of 1 to 1,000")
	}
	var since, until int64 = 0, math.MaxInt64
	id := ""
	if !q.Since.IsZero() {
		since = record.Nanos(q.Since)
	}
	if !q.Until.IsZero() {
		until = record.Nanos(q.Until)
	}
	if q.Before != "" {
		at, rest, ok := strings.Cut(q.Before, ".")
		n, err := strconv.ParseInt(at, 10, 64)
		if !ok || err != nil {
			return nil, nil, "", toolkeep.ErrNotFound
		}
		if n < until {
			until, id = n, rest
		}
	}
	err = s.read(ctx, func(ctx context.Context) error {
		list, cursors = nil, nil
		rows, err := s.pool.Query(ctx, sqlNewest, text(q.Tenant), since, until, text(id), q.Limit)
		if err != nil {
			return err
		}
		var r record.Row
		var writer, key int64
		var hash []byte
		_, err = pgx.ForEachRow(rows, []any{&writer, &r.Seq, &r.Kind, &r.At, &r.Tenant, &r.Ref, &hash, &r.Data, &key}, func() error {
			row := r
			row.Tenant, row.Ref = plainText(r.Tenant), plainText(r.Ref)
			list = append(list, record.Chained(row, writer, hash))
			cursors = append(cursors, strconv.FormatInt(key, 10)+"."+row.Ref)
			return nil
		})
		return err
	})
	if err != nil {
		return nil, nil, "", err
	}
	if len(list) == q.Limit {
		next = cursors[q.Limit-1]
	}
	return list, cursors, next, nil
}
