package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/pack"
	"github.com/toolkeep/toolkeep/store/record"
)

// prepareCatalogue adds the table changes of a catalogue, key or item change.
func (s *Store) prepareCatalogue(st step, e record.Encoded) (step, error) {
	var err error
	switch c := e.Change.(type) {
	case toolkeep.PublishVersion:
		var row record.Tool
		row, err = record.EncodeVersion(c.Version)
		st.act = func(g *group, st *step) (bool, error) { return g.publish(row, st.Ref) }
	case toolkeep.SetLifecycle:
		var life []byte
		life, err = record.Marshal(c.Life)
		st.act = func(g *group, st *step) (bool, error) {
			if err := g.asBefore(c, st.Ref); err != nil {
				return true, err
			}
			n, err := g.exec(sqlLife, life, c.Tenant, c.ToolID, c.Version)
			if err == nil && n == 0 {
				err = fmt.Errorf("version %s: %w", st.Ref, toolkeep.ErrNotFound)
			}
			return true, err
		}
	case toolkeep.PutKey:
		st.act = func(g *group, st *step) (bool, error) {
			_, err := g.exec(sqlPutKey, st.Tenant, st.Ref, st.Data)
			return true, err
		}
	case toolkeep.RevokeKey:
		st.act = func(g *group, st *step) (bool, error) { return g.editKey(c.Tenant, c.ID, c.Successor != "", c.End, st) }
	case toolkeep.ScopeKey:
		st.act = func(g *group, st *step) (bool, error) { return g.editKey(c.Tenant, c.ID, true, c.Set, st) }
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
	for _, p := range t.Parts {
		if _, err := g.exec(sqlPart, p.Tenant, p.Digest[:], []byte(p.Data)); err != nil {
			return true, err
		}
	}
	_, err = g.exec(sqlPublish, t.Tenant, t.ID, t.Version, t.Digest, t.Life, t.Outline, t.Text, t.Words)
	return true, err
}

// editKey changes a stored key by edit. With put, watchers get the whole key, and an edit that cannot be made is ErrStale;
// without it such an edit changes nothing.
func (g *group) editKey(tenant, id string, put bool, edit func(*toolkeep.APIKey) bool, st *step) (bool, error) {
	var data []byte
	err := g.queryRow(sqlKeyData, tenant, id).Scan(&data)
	if errors.Is(err, sql.ErrNoRows) {
		return false, fmt.Errorf("key %s: %w", id, toolkeep.ErrNotFound)
	}
	if err != nil {
		return false, err
	}
	k, err := record.DecodeKey(tenant, id, data)
	if err != nil {
		return false, err
	}
	if !edit(&k) {
		if put {
			err = fmt.Errorf("key %s was revoked or changed: %w", id, toolkeep.ErrStale)
		}
		return false, err
	}
	if data, err = record.EncodeKey(k); err != nil {
		return false, err
	}
	if put {
		st.Kind, st.Data, st.Change = record.KindKey, data, toolkeep.PutKey{Key: k}
	}
	_, err = g.exec(sqlPutKey, tenant, id, data)
	return true, err
}

const versionColumns = `tenant, id, version, digest, life, outline, manifest, words`

// Versions returns every published version with its lifecycle, and the feed position of
// this state. Their tools are outlines whose manifests lack their defaults.
func (s *Store) Versions(ctx context.Context) ([]toolkeep.Version, int64, error) {
	var head int64
	all := record.Decoder{}
	err := s.moment(ctx, func(tx *sql.Tx) (err error) {
		if head, err = newest(ctx, tx, "feed"); err != nil {
			return err
		}
		parts := map[partKey][]byte{}
		err = each(ctx, tx, `SELECT tenant, digest, data FROM manifest_parts`, func(rows *sql.Rows) error {
			var k partKey
			var digest sql.RawBytes
			var data []byte
			if err := rows.Scan(&k.tenant, &digest, &data); err != nil {
				return err
			}
			copy(k.digest[:], digest)
			parts[k] = data
			return nil
		})
		if err != nil {
			return err
		}
		all.Part = func(tenant string, d pack.Digest) ([]byte, error) {
			if data, ok := parts[partKey{tenant, d}]; ok {
				return data, nil
			}
			return nil, errNoPart
		}
		var n int
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM versions`).Scan(&n); err != nil {
			return err
		}
		all.Expect(n)
		return each(ctx, tx, `SELECT `+versionColumns+` FROM versions ORDER BY tenant, id, version`, func(rows *sql.Rows) error {
			var t record.Tool
			var life, outline sql.RawBytes
			if err := rows.Scan(&t.Tenant, &t.ID, &t.Version, &t.Digest, &life, &outline, &t.Text, &t.Words); err != nil {
				return err
			}
			t.Life, t.Outline = life, outline
			return stored(all.Add(t))
		})
	})
	if err == nil {
		err = stored(all.Flush())
	}
	return all.List, head, s.orClosed(err)
}

type partKey struct {
	tenant string
	digest pack.Digest
}

var errNoPart = errors.New("a part of the manifest is not in the store")

// versionOf returns one published version.
func versionOf(ctx context.Context, q querier, tenant, id, version string) (toolkeep.Version, error) {
	t, err := scanTool(q.QueryRowContext(ctx, `SELECT `+versionColumns+` FROM versions WHERE tenant = ? AND id = ? AND version = ?`, tenant, id, version))
	if err != nil {
		return toolkeep.Version{}, err
	}
	v, err := record.DecodeVersion(t, func(d pack.Digest) (data []byte, err error) {
		err = q.QueryRowContext(ctx, `SELECT data FROM manifest_parts WHERE tenant = ? AND digest = ?`, tenant, d[:]).Scan(&data)
		if errors.Is(err, sql.ErrNoRows) {
			err = errNoPart
		}
		return data, err
	})
	return v, stored(err)
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
func (s *Store) snapshot(ctx context.Context, query string, row func(*sql.Rows) error, args ...any) (head int64, err error) {
	err = s.moment(ctx, func(tx *sql.Tx) error {
		if head, err = newest(ctx, tx, "feed"); err != nil {
			return err
		}
		return each(ctx, tx, query, row, args...)
	})
	return head, s.orClosed(err)
}

// moment runs read in one reading transaction.
func (s *Store) moment(ctx context.Context, read func(*sql.Tx) error) error {
	tx, err := s.read.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	return read(tx)
}

func each(ctx context.Context, q querier, query string, row func(*sql.Rows) error, args ...any) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func scanTool(row interface{ Scan(...any) error }) (t record.Tool, err error) {
	err = row.Scan(&t.Tenant, &t.ID, &t.Version, &t.Digest, &t.Life, &t.Outline, &t.Text, &t.Words)
	return t, err
}
