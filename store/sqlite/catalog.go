package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/record"
)

// prepareCatalogue adds the table changes of a catalogue, key or item change.
func (s *Store) prepareCatalogue(st step, e record.Encoded) (step, error) {
	var err error
	switch c := e.Change.(type) {
	case toolkeep.PublishVersion:
		var row record.Tool
		row, err = record.EncodeVersion(c.Version)
		st.act = func(g *group, st *step) (bool, error) { return g.publish(row, st.ref) }
	case toolkeep.SetLifecycle:
		var life []byte
		life, err = record.Marshal(c.Life)
		st.act = func(g *group, st *step) (bool, error) {
			if err := g.asBefore(c, st.ref); err != nil {
				return true, err
			}
			n, err := g.exec(sqlLife, life, c.Tenant, c.ToolID, c.Version)
			if err == nil && n == 0 {
				err = fmt.Errorf("version %s: %w", st.ref, toolkeep.ErrNotFound)
			}
			return true, err
		}
	case toolkeep.PutKey:
		st.act = func(g *group, st *step) (bool, error) {
			_, err := g.exec(sqlPutKey, st.tenant, st.ref, st.data)
			return true, err
		}
	case toolkeep.RevokeKey:
		st.act = func(g *group, _ *step) (bool, error) { return g.revoke(c) }
	case toolkeep.PutDocument:
		st.act = func(g *group, st *step) (bool, error) { return true, g.putDocument(c, e, st) }
	case toolkeep.DeleteDocument:
		st.act = func(g *group, _ *step) (bool, error) { return true, g.dropDocument(c) }
	default:
		err = fmt.Errorf("sqlite: %T has no action", c)
	}
	return st, err
}

// asBefore checks that a version has the lifecycle that a change expects.
func (g *group) asBefore(c toolkeep.SetLifecycle, ref string) error {
	if c.From == nil {
		return nil
	}
	var have []byte
	err := g.queryRow(sqlLifeOf, c.Tenant, c.ToolID, c.Version).Scan(&have)
	if errors.Is(err, sql.ErrNoRows) {
		return nil // the change itself reports that
	}
	if err != nil {
		return err
	}
	same, err := record.SameLife(have, *c.From)
	if err == nil && !same {
		err = fmt.Errorf("version %s: %w", ref, toolkeep.ErrStale)
	}
	return err
}

func (g *group) publish(t record.Tool, ref string) (bool, error) {
	var digest string
	err := g.queryRow(sqlDigest, t.Tenant, t.ID, t.Version).Scan(&digest)
	switch {
	case err == nil && digest == t.Digest:
		return false, nil
	case err == nil:
		return false, fmt.Errorf("publish %s: %w", ref, toolkeep.ErrVersionExists)
	case !errors.Is(err, sql.ErrNoRows):
		return false, err
	}
	_, err = g.exec(sqlPublish, t.Tenant, t.ID, t.Version, t.Digest, t.Life, t.Raw, t.Manifest)
	return true, err
}

// revoke revokes a key; a second time changes nothing.
func (g *group) revoke(c toolkeep.RevokeKey) (bool, error) {
	var data []byte
	err := g.queryRow(sqlKeyData, c.Tenant, c.ID).Scan(&data)
	if errors.Is(err, sql.ErrNoRows) {
		return false, fmt.Errorf("key %s: %w", c.ID, toolkeep.ErrNotFound)
	}
	if err != nil {
		return false, err
	}
	k, err := record.DecodeKey(c.Tenant, c.ID, data)
	if err != nil || !k.RevokedAt.IsZero() {
		return false, err
	}
	k.RevokedAt = c.At
	if data, err = record.EncodeKey(k); err != nil {
		return false, err
	}
	_, err = g.exec(sqlPutKey, c.Tenant, c.ID, data)
	return true, err
}

// Versions returns every published version with its lifecycle, and the feed position of
// this state.
func (s *Store) Versions(ctx context.Context) ([]toolkeep.Version, int64, error) {
	var list []toolkeep.Version
	seq, err := s.snapshot(ctx, `SELECT tenant, id, version, digest, life, raw, manifest FROM versions
		ORDER BY tenant, id, version`, func(rows *sql.Rows) error {
		v, err := scanVersion(rows)
		list = append(list, v)
		return err
	})
	return list, seq, err
}

// Keys returns every API key, including revoked and expired ones, and the feed position
// of this state.
func (s *Store) Keys(ctx context.Context) ([]toolkeep.APIKey, int64, error) {
	var list []toolkeep.APIKey
	seq, err := s.snapshot(ctx, `SELECT tenant, id, data FROM api_keys ORDER BY tenant, id`, func(rows *sql.Rows) error {
		var tenant, id string
		var data sql.RawBytes
		if err := rows.Scan(&tenant, &id, &data); err != nil {
			return err
		}
		k, err := record.DecodeKey(tenant, id, data)
		list = append(list, k)
		return err
	})
	return list, seq, err
}

// snapshot reads a whole table and the feed's head in one transaction.
func (s *Store) snapshot(ctx context.Context, query string, each func(*sql.Rows) error, args ...any) (int64, error) {
	tx, err := s.read.BeginTx(ctx, nil)
	if err != nil {
		return 0, s.orClosed(err)
	}
	defer tx.Rollback()
	head, err := newest(ctx, tx, "feed")
	if err != nil {
		return 0, s.orClosed(err)
	}
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return 0, s.orClosed(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows); err != nil {
			return 0, err
		}
	}
	return head, s.orClosed(rows.Err())
}

func scanVersion(row interface{ Scan(...any) error }) (toolkeep.Version, error) {
	var t record.Tool
	if err := row.Scan(&t.Tenant, &t.ID, &t.Version, &t.Digest, &t.Life, &t.Raw, &t.Manifest); err != nil {
		return toolkeep.Version{}, err
	}
	v, err := record.DecodeVersion(t)
	return v, stored(err)
}
