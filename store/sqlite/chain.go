package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/record"
)

var _ toolkeep.Chains = (*Store)(nil)

// beginRun gives the chain of this process its number; one that wrote no entry leaves none.
func (w *writer) beginRun(ctx context.Context) error {
	tx, end, err := w.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if _, err := tx.ExecContext(ctx, `DELETE FROM runs WHERE first > ?`, w.entry); err != nil {
		return err
	}
	var id int64
	err = tx.QueryRowContext(ctx, `INSERT INTO runs (first, at) VALUES (?, ?) RETURNING id`, w.entry+1, record.Micros(w.s.cfg.Clock())).Scan(&id)
	if err != nil {
		return err
	}
	w.chain.Start(id)
	return tx.Commit()
}

// KeepsFrom returns the time since which the journal is whole; see toolkeep.Chains.
func (s *Store) KeepsFrom() time.Time {
	return s.cfg.Clock().Add(-min(s.cfg.EventKeep, s.cfg.InvocationKeep))
}

// ChainWriters returns the runs of this file with entries after a position.
func (s *Store) ChainWriters(ctx context.Context, after toolkeep.JournalPosition) (list []toolkeep.ChainWriter, err error) {
	head, closed := s.entries.Head()
	if closed {
		return nil, toolkeep.ErrClosed
	}
	rows, err := s.read.QueryContext(ctx, `SELECT id, first, lead(first) OVER (ORDER BY id) FROM runs ORDER BY id`)
	if err != nil {
		return nil, s.orClosed(err)
	}
	defer rows.Close()
	for rows.Next() {
		w := toolkeep.ChainWriter{}
		var next *int64
		if err := rows.Scan(&w.ID, &w.First, &next); err != nil {
			return nil, err
		}
		w.Newest = head
		if next != nil {
			w.Newest = *next - 1
		}
		if w.Newest >= w.First && w.Newest > after[w.ID] {
			list = append(list, w)
		}
	}
	return list, s.orClosed(rows.Err())
}

// A short entry's data is that of its call.
const linkColumns = `j.seq, j.at, j.kind, j.tenant, j.ref, j.hash, CASE WHEN j.kind = 9 THEN coalesce(i.ended, i.data) ELSE j.data END`
const linkTables = ` FROM journal AS j LEFT JOIN invocations AS i ON j.kind = 9 AND i.tenant = j.tenant AND i.id = j.ref`

// Links returns entries of a run; see toolkeep.Chains.
func (s *Store) Links(ctx context.Context, q toolkeep.LinkQuery) ([]toolkeep.Link, int64, error) {
	if q.Limit < 1 || q.Limit > maxEntries {
		return nil, 0, errors.New("sqlite: links are read in parts of 1 to 1,000")
	}
	if s.closed() {
		return nil, 0, toolkeep.ErrClosed
	}
	query := `SELECT j.seq, 0, 0, j.tenant, '', j.hash, NULL FROM journal AS j`
	if q.Content {
		query = `SELECT ` + linkColumns + linkTables
	}
	query += ` WHERE j.seq > ? AND j.seq <= ? AND j.seq >= (SELECT first FROM runs WHERE id = ?)
		AND j.seq < coalesce((SELECT min(first) FROM runs WHERE id > ?), 9223372036854775807)`
	args := []any{q.After, q.UpTo, q.Writer, q.Writer}
	if q.Events {
		query += ` AND j.kind = 10`
	}
	if !q.All {
		query, args = query+` AND j.tenant = ?`, append(args, q.Tenant)
	}
	list, err := s.links(ctx, query+` ORDER BY j.seq LIMIT ?`, append(args, q.Limit)...)
	if err != nil {
		return nil, 0, s.orClosed(err)
	}
	for i := range list {
		list[i].Writer, list[i].Stamp = q.Writer, list[i].Seq // runs follow each other
	}
	if len(list) == q.Limit {
		return list, list[len(list)-1].Seq, nil
	}
	return list, q.UpTo, nil
}

func (s *Store) links(ctx context.Context, query string, args ...any) ([]toolkeep.Link, error) {
	rows, err := s.read.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []toolkeep.Link
	for rows.Next() {
		var r record.Row
		var hash []byte
		if err := rows.Scan(&r.Seq, &r.At, &r.Kind, &r.Tenant, &r.Ref, &hash, &r.Data); err != nil {
			return nil, err
		}
		l := record.Chained(r, 0, hash)
		l.Gone = r.Kind == record.KindShort && r.Data == nil
		list = append(list, l)
	}
	return list, rows.Err()
}

// Entry reads the entry of a link.
func (s *Store) Entry(l toolkeep.Link) (*toolkeep.Entry, error) {
	e, err := record.ReadLink(l)
	if err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	return e, nil
}

// newestWindow is how many numbers one Newest looks at: entries of other tenants lie between.
const newestWindow = 20_000

// Newest returns a tenant's entries, the newest first; see toolkeep.Chains. A cursor is a number.
func (s *Store) Newest(ctx context.Context, q toolkeep.NewestQuery) (list []toolkeep.Link, cursors []string, next string, err error) {
	if q.Limit < 1 || q.Limit > maxEntries {
		return nil, nil, "", errors.New("sqlite: entries are read in parts of 1 to 1,000")
	}
	head, closed := s.entries.Head()
	if closed {
		return nil, nil, "", toolkeep.ErrClosed
	}
	before := head + 1
	if q.Before != "" {
		n, err := strconv.ParseInt(q.Before, 10, 64)
		if err != nil || n < 1 {
			return nil, nil, "", toolkeep.ErrNotFound
		}
		before = min(n, before)
	}
	low := max(before-newestWindow, 0)
	query, args := `SELECT `+linkColumns+linkTables+` WHERE j.seq < ? AND j.seq >= ? AND j.tenant = ?`, []any{before, low, q.Tenant}
	if !q.Until.IsZero() {
		query, args = query+` AND j.at < ?`, append(args, record.Micros(q.Until))
	}
	if !q.Since.IsZero() {
		query, args = query+` AND j.at >= ?`, append(args, record.Micros(q.Since))
	}
	if list, err = s.links(ctx, query+` ORDER BY j.seq DESC LIMIT ?`, append(args, q.Limit)...); err != nil {
		return nil, nil, "", s.orClosed(err)
	}
	runs, err := s.runs(ctx)
	if err != nil {
		return nil, nil, "", s.orClosed(err)
	}
	for i := range list {
		list[i].Writer = runOf(runs, list[i].Seq)
		cursors = append(cursors, strconv.FormatInt(list[i].Seq, 10))
	}
	if len(list) == q.Limit {
		return list, cursors, cursors[q.Limit-1], nil
	}
	// Numbers and times have the same order.
	var older bool
	err = s.read.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM journal WHERE seq < ? AND seq >= 1 AND at >= ?)`, low, sinceMicros(q.Since)).Scan(&older)
	if err != nil {
		return nil, nil, "", s.orClosed(err)
	}
	if low > 1 && older {
		next = strconv.FormatInt(low, 10)
	}
	return list, cursors, next, nil
}

func sinceMicros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return record.Micros(t)
}

type run struct{ id, first int64 }

// runs returns all runs, the oldest first.
func (s *Store) runs(ctx context.Context) (list []run, err error) {
	rows, err := s.read.QueryContext(ctx, `SELECT id, first FROM runs ORDER BY id`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r run
		if err := rows.Scan(&r.id, &r.first); err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, rows.Err()
}

// runOf returns the run that wrote an entry, 0 for one from before the chain.
func runOf(list []run, seq int64) (id int64) {
	for _, r := range list {
		if r.first <= seq {
			id = r.id
		}
	}
	return id
}
