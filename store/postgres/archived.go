package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/record"
)

// What the archive of the audit has not had stays Config.ArchiveWait longer: a partition is not dropped while it has an
// entry past the archive's cursors, and from those that are emptied row by row such rows are not deleted.

// orArchived is a condition for events of a table that may go: archived, or older than past.
func (s *Store) orArchived(table string, past int64) string {
	if s.cfg.ArchiveWait == 0 {
		return ""
	}
	return fmt.Sprintf(" AND (at < %d OR entry IS NULL OR entry <= coalesce((SELECT c.seq FROM cursors AS c WHERE c.reader = '%s' AND c.writer = %s.writer), 0))",
		past, toolkeep.ArchiveReader, table)
}

// floors are the rows of VALUES with each writer and the number up to which its calls may go: those that are archived, or
// ended before past. Calls are removed by when they were made, and wait for the archive by when they ended, which their data
// alone says; a writer's entries are in that order.
func (s *Store) floors(ctx context.Context, past time.Time) (values string, err error) {
	if s.cfg.ArchiveWait == 0 {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, scanTime)
	defer cancel()
	rows, err := s.pool.Query(ctx, `SELECT w.id, coalesce(c.seq, 0), w.entry FROM writers AS w LEFT JOIN cursors AS c ON c.reader = $1 AND c.writer = w.id`, toolkeep.ArchiveReader)
	if err != nil {
		return "", err
	}
	var writers [][3]int64
	var id, seq, entry int64
	if _, err := pgx.ForEachRow(rows, []any{&id, &seq, &entry}, func() error { writers = append(writers, [3]int64{id, seq, entry}); return nil }); err != nil {
		return "", err
	}
	values = "(0::bigint, 0::bigint)"
	for _, w := range writers {
		floor, err := s.floor(ctx, w[0], w[1], w[2], past)
		if err != nil {
			return "", err
		}
		values += fmt.Sprintf(", (%d, %d)", w[0], floor)
	}
	return values, nil
}

// floor looks in a writer's entries after one number, up to and including another, for the last of those that ended before past.
func (s *Store) floor(ctx context.Context, writer, low, high int64, past time.Time) (int64, error) {
	for middle := low; low < high; middle = low + (high-low)/2 {
		links, _, err := s.Links(ctx, toolkeep.LinkQuery{Writer: writer, After: middle, UpTo: high, All: true, Content: true, Limit: 1})
		switch {
		case err != nil:
			return 0, err
		case len(links) == 0 || !s.endedBefore(links[0], past):
			if middle == low { // the next one waits, or there is none
				return low, nil
			}
			high = middle
		default:
			low = links[0].Seq
		}
	}
	return low, nil
}

// endedBefore reports whether an entry is older than a time; one that cannot be read now is not.
func (s *Store) endedBefore(l toolkeep.Link, past time.Time) bool {
	e, err := s.Entry(l)
	return err == nil && e != nil && e.At.Before(past)
}

// orFloor is a condition for calls of a table that may go: up to their floor, never of the journal, or so old that they ended
// before past in any case; those of a writer that is gone by when they were made.
func (s *Store) orFloor(table, floors string, past time.Time) string {
	if s.cfg.ArchiveWait == 0 {
		return ""
	}
	return fmt.Sprintf(" AND (entry IS NULL OR created < %d OR entry <= coalesce((SELECT f.entry FROM (VALUES %s) AS f (writer, entry) WHERE f.writer = %s.writer), CASE WHEN created < %d THEN entry ELSE 0 END))",
		record.Nanos(past.Add(-toolkeep.LegalHoldReach)), floors, table, record.Nanos(past))
}

// sqlWaits looks for an entry in a partition that the archive has not had: of writers with entries past its cursor, in the
// index of the writer's numbers.
const sqlWaits = `SELECT EXISTS (SELECT FROM writers AS w LEFT JOIN cursors AS c ON c.reader = $1 AND c.writer = w.id
	WHERE w.entry > coalesce(c.seq, 0) AND EXISTS (SELECT FROM %s AS p WHERE p.writer = w.id AND p.entry > coalesce(c.seq, 0)))`

// waits reports whether a partition of events that ended before cutoff must stay for the archive.
func (s *Store) waits(ctx context.Context, part partition, cutoff time.Time) (waits bool, err error) {
	if s.cfg.ArchiveWait == 0 || !part.end.After(cutoff.Add(-s.cfg.ArchiveWait)) {
		return false, nil
	}
	return s.hasRow(ctx, fmt.Sprintf(sqlWaits, part.name), toolkeep.ArchiveReader)
}

// callsWait reports whether a partition of calls has one above its floor.
func (s *Store) callsWait(ctx context.Context, part partition, floors string, past time.Time) (waits bool, err error) {
	if s.cfg.ArchiveWait == 0 {
		return false, nil
	}
	return s.hasRow(ctx, fmt.Sprintf(`SELECT EXISTS (SELECT FROM (VALUES %s) AS f (writer, entry) WHERE EXISTS (SELECT FROM %s AS p
		WHERE p.writer = f.writer AND p.entry > f.entry AND p.created >= $1))`, floors, part.name), record.Nanos(past.Add(-toolkeep.LegalHoldReach)))
}

func (s *Store) hasRow(ctx context.Context, query string, arg any) (has bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, scanTime)
	defer cancel()
	err = s.pool.QueryRow(ctx, query, arg).Scan(&has)
	if code(err) == undefinedTable { // another node dropped it
		return true, nil
	}
	return has, err
}
