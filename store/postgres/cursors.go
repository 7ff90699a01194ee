package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/record"
)

var _ toolkeep.Cursors = (*Store)(nil)

func (g *group) moveCursor(ctx context.Context, c toolkeep.MoveCursor) error {
	query, args := sqlFirstCursor, []any{text(c.Reader), c.To.Writer, c.To.Seq, record.Micros(c.To.At)}
	if c.From > 0 {
		query, args = sqlCursor, append(args, c.From)
	}
	n, err := g.exec(ctx, query, args...)
	if err == nil && n == 0 {
		err = fmt.Errorf("cursor of %s at writer %d: %w", c.Reader, c.To.Writer, toolkeep.ErrStale)
	}
	return err
}

// Cursors returns a reader's cursors; see toolkeep.Cursors.
func (s *Store) Cursors(ctx context.Context, reader string) (list []toolkeep.Cursor, err error) {
	err = s.read(ctx, func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, `SELECT writer, seq, at FROM cursors WHERE reader = $1 ORDER BY writer`, text(reader))
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (c toolkeep.Cursor, err error) {
			var at int64
			err = row.Scan(&c.Writer, &c.Seq, &at)
			c.At = record.FromMicros(at)
			return c, err
		})
		return err
	})
	return list, err
}
