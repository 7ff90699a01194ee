package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/record"
)

// putDocument checks and writes in one statement, which returns no row if the item is
// not as expected.
func (g *group) putDocument(c toolkeep.PutDocument, e record.Encoded, st *step) error {
	it, id := &c.Document, sqlPutDocument
	if c.Expect > 0 {
		id = sqlNextDocument
	}
	var revision int64
	err := g.queryRow(id, it.Kind, it.Tenant, it.ID, record.Nanos(it.UpdatedAt), it.UpdatedBy, it.Body, c.Expect).Scan(&revision)
	if errors.Is(err, sql.ErrNoRows) {
		return g.notAsExpected(it.Kind, it.Tenant, it.ID, c.Expect)
	}
	if err != nil {
		return err
	}
	placed := record.WithRevision(e, c, revision)
	st.Encoded = placed
	return nil
}

func (g *group) dropDocument(c toolkeep.DeleteDocument) error {
	n, err := g.exec(sqlDropDocument, c.Kind, c.Tenant, c.ID, record.Nanos(g.at), c.By, c.Expect)
	if err == nil && n == 0 {
		err = g.notAsExpected(c.Kind, c.Tenant, c.ID, c.Expect)
	}
	return err
}

// notAsExpected returns the reason why a put or drop changed no row.
func (g *group) notAsExpected(kind, tenant, id string, expect int64) error {
	var has int64
	err := g.queryRow(sqlDocument, kind, tenant, id).Scan(&has)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return record.ItemMissing(kind, id, expect)
	case err != nil:
		return err
	}
	return record.ItemStale(kind, id, has, expect)
}

const itemColumns = `kind, tenant, id, revision, at, by, body`

// Document returns one item; ErrNotFound.
func (s *Store) Document(ctx context.Context, kind, tenant, id string) (toolkeep.Document, error) {
	it, err := scanDocument(s.read.QueryRowContext(ctx, `SELECT `+itemColumns+` FROM items
		WHERE kind = ? AND tenant = ? AND id = ? AND dropped = 0`, kind, tenant, id))
	if errors.Is(err, sql.ErrNoRows) {
		return it, record.ItemMissing(kind, id, toolkeep.AnyRevision)
	}
	return it, s.orClosed(err)
}

// Documents returns every item of a kind, by tenant and id, and the feed position of
// this state.
func (s *Store) Documents(ctx context.Context, kind string) ([]toolkeep.Document, int64, error) {
	var list []toolkeep.Document
	seq, err := s.snapshot(ctx, `SELECT `+itemColumns+` FROM items
		WHERE kind = ? AND dropped = 0 ORDER BY tenant, id`, func(rows *sql.Rows) error {
		it, err := scanDocument(rows)
		list = append(list, it)
		return err
	}, kind)
	return list, seq, err
}

func scanDocument(row interface{ Scan(...any) error }) (toolkeep.Document, error) {
	var it toolkeep.Document
	var at int64
	err := row.Scan(&it.Kind, &it.Tenant, &it.ID, &it.Revision, &at, &it.UpdatedBy, &it.Body)
	if len(it.Body) == 0 {
		it.Body = nil
	}
	it.UpdatedAt = record.FromNanos(at)
	return it, err
}

// forgetDocument removes the remains of items dropped before cutoff.
func (s *Store) forgetDocument(ctx context.Context, cutoff time.Time) error {
	for ctx.Err() == nil {
		var last sql.NullInt64
		err := s.read.QueryRowContext(ctx, `SELECT max(at) FROM (
			SELECT at FROM items WHERE dropped = 1 AND at < ? ORDER BY at LIMIT ?)`, record.Nanos(cutoff), tendRows).Scan(&last)
		if err != nil || !last.Valid {
			return err
		}
		err = s.maintain(ctx, statement{`DELETE FROM items WHERE dropped = 1 AND at <= ?`, []any{last.Int64}})
		if err != nil {
			return fmt.Errorf("sqlite: remove dropped items: %w", err)
		}
	}
	return ctx.Err()
}
