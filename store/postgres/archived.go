package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/toolkeep/toolkeep"
)

// What the archive of the audit has not had stays Config.ArchiveWait longer: a partition is not dropped while it has an
// entry past the archive's cursors, and from those that are emptied row by row such rows are not deleted.

// orArchived is a condition for rows of a table that may go: archived, never of the journal, or older than past in column.
func (s *Store) orArchived(table, column string, past int64) string {
	if s.cfg.ArchiveWait == 0 {
		return ""
	}
	return fmt.Sprintf(" AND (%s < %d OR entry IS NULL OR entry <= coalesce((SELECT c.seq FROM cursors AS c WHERE c.reader = '%s' AND c.writer = %s.writer), 0))",
		column, past, toolkeep.ArchiveReader, table)
}

// sqlWaits looks for an entry in a partition that the archive has not had: of writers with entries past its cursor, in the
// index of the writer's numbers.
const sqlWaits = `SELECT EXISTS (SELECT FROM writers AS w LEFT JOIN cursors AS c ON c.reader = $1 AND c.writer = w.id
	WHERE w.entry > coalesce(c.seq, 0) AND EXISTS (SELECT FROM %s AS p WHERE p.writer = w.id AND p.entry > coalesce(c.seq, 0)))`

// waits reports whether a partition that ended before cutoff must stay for the archive.
func (s *Store) waits(ctx context.Context, part partition, cutoff time.Time) (waits bool, err error) {
	if s.cfg.ArchiveWait == 0 || !part.end.After(cutoff.Add(-s.cfg.ArchiveWait)) {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, scanTime)
	defer cancel()
	err = s.pool.QueryRow(ctx, fmt.Sprintf(sqlWaits, part.name), toolkeep.ArchiveReader).Scan(&waits)
	if code(err) == undefinedTable { // another node dropped it
		return true, nil
	}
	return waits, err
}
