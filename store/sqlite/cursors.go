package sqlite

import (
	"context"
	"fmt"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/record"
)

var _ toolkeep.Cursors = (*Store)(nil)

func (g *group) moveCursor(c toolkeep.MoveCursor) error {
	id, args := sqlFirstCursor, []any{c.Reader, c.To.Writer, c.To.Seq, record.Micros(c.To.At)}
	if c.From > 0 {
		id, args = sqlCursor, append(args, c.From)
	}
	n, err := g.exec(id, args...)
	if err == nil && n == 0 {
		err = fmt.Errorf("cursor of %s at writer %d: %w", c.Reader, c.To.Writer, toolkeep.ErrStale)
	}
	return err
}

// Cursors returns a reader's cursors; see toolkeep.Cursors.
func (s *Store) Cursors(ctx context.Context, reader string) (list []toolkeep.Cursor, err error) {
	rows, err := s.read.QueryContext(ctx, `SELECT writer, seq, at FROM cursors WHERE reader = ? ORDER BY writer`, reader)
	if err != nil {
		return nil, s.orClosed(err)
	}
	defer rows.Close()
	for rows.Next() {
		var c toolkeep.Cursor
		var at int64
		if err := rows.Scan(&c.Writer, &c.Seq, &at); err != nil {
			return nil, err
		}
		c.At = record.FromMicros(at)
		list = append(list, c)
	}
	return list, s.orClosed(rows.Err())
}
