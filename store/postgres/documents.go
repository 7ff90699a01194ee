package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/record"
)

// putDocument checks and writes in one statement, which returns no row if the item is
// not as expected.
func (g *group) putDocument(ctx context.Context, c toolkeep.PutDocument, e record.Encoded, st *step) error {
	it, query := &c.Document, sqlPutDocument
	if c.Expect > 0 {
		query = sqlNextDocument
	}
	body := it.Body
	if body == nil {
		body = []byte{}
	}
	var revision int64
	err := g.tx.QueryRow(ctx, query, text(it.Kind), text(it.Tenant), text(it.ID), record.Nanos(it.UpdatedAt), text(it.UpdatedBy),
		body, c.Expect).Scan(&revision)
	if errors.Is(err, pgx.ErrNoRows) {
		return g.notAsExpected(ctx, it.Kind, it.Tenant, it.ID, c.Expect)
	}
	if err != nil {
		return err
	}
	st.Encoded = record.WithRevision(e, c, revision)
	return nil
}

func (g *group) dropDocument(ctx context.Context, c toolkeep.DeleteDocument) error {
	n, err := g.exec(ctx, sqlDropDocument, text(c.Kind), text(c.Tenant), text(c.ID), record.Nanos(g.at), text(c.By), c.Expect)
	if err == nil && n == 0 {
		err = g.notAsExpected(ctx, c.Kind, c.Tenant, c.ID, c.Expect)
	}
	return err
}

// notAsExpected returns the reason why a put or drop changed no row. Another node's
// later change may alter the reason, not the outcome.
func (g *group) notAsExpected(ctx context.Context, kind, tenant, id string, expect int64) error {
	var has int64
	err := g.tx.QueryRow(ctx, sqlDocument, text(kind), text(tenant), text(id)).Scan(&has)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return record.ItemMissing(kind, id, expect)
	case err != nil:
		return err
	}
	return record.ItemStale(kind, id, has, expect)
}

const itemColumns = `kind, tenant, id, revision, at, by, body`

// Document returns one item; ErrNotFound.
func (s *Store) Document(ctx context.Context, kind, tenant, id string) (it toolkeep.Document, err error) {
	err = s.read(ctx, func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, `SELECT `+itemColumns+` FROM items
			WHERE kind = $1 AND tenant = $2 AND id = $3 AND NOT dropped`, text(kind), text(tenant), text(id))
		if err != nil {
			return err
		}
		it, err = pgx.CollectExactlyOneRow(rows, scanDocument)
		if errors.Is(err, pgx.ErrNoRows) {
			err = record.ItemMissing(kind, id, toolkeep.AnyRevision)
		}
		return err
	})
	return it, err
}

// Documents returns every item of a kind, by tenant and id, and the feed position of
// this state.
func (s *Store) Documents(ctx context.Context, kind string) ([]toolkeep.Document, int64, error) {
	return snapshot(ctx, s, `SELECT `+itemColumns+` FROM items
		WHERE kind = $1 AND NOT dropped ORDER BY tenant, id`, scanDocument, text(kind))
}

func scanDocument(row pgx.CollectableRow) (it toolkeep.Document, err error) {
	var at int64
	err = row.Scan(&it.Kind, &it.Tenant, &it.ID, &it.Revision, &at, &it.UpdatedBy, &it.Body)
	for _, s := range []*string{&it.Kind, &it.Tenant, &it.ID, &it.UpdatedBy} {
		*s = plainText(*s)
	}
	if len(it.Body) == 0 {
		it.Body = nil
	}
	it.UpdatedAt = record.FromNanos(at)
	return it, err
}
