package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/pack"
	"github.com/toolkeep/toolkeep/store/record"
)

// prepareCatalogue adds the table changes of a catalogue, key or item change.
func (s *Store) prepareCatalogue(st step) (step, error) {
	var err error
	switch c := st.Change.(type) {
	case toolkeep.PublishVersion:
		var row record.Tool
		row, err = record.EncodeVersion(c.Version)
		st.act = func(ctx context.Context, g *group, st *step) (bool, error) { return g.publish(ctx, row, st.Ref) }
	case toolkeep.SetLifecycle:
		var life []byte
		life, err = record.Marshal(c.Life)
		st.act = func(ctx context.Context, g *group, st *step) (bool, error) {
			if err := g.asBefore(ctx, c, st.Ref); err != nil {
				return true, err
			}
			n, err := g.exec(ctx, sqlLife, life, text(c.Tenant), text(c.ToolID), text(c.Version))
			if err == nil && n == 0 {
				err = fmt.Errorf("version %s: %w", st.Ref, toolkeep.ErrNotFound)
			}
			return true, err
		}
	case toolkeep.PutKey:
		st.act = func(ctx context.Context, g *group, st *step) (bool, error) {
			_, err := g.exec(ctx, sqlPutKey, text(st.Tenant), text(st.Ref), st.Data)
			return true, err
		}
	case toolkeep.RevokeKey:
		st.act = func(ctx context.Context, g *group, st *step) (bool, error) {
			return g.editKey(ctx, c.Tenant, c.ID, c.Successor != "", c.End, st)
		}
	case toolkeep.ScopeKey:
		st.act = func(ctx context.Context, g *group, st *step) (bool, error) {
			return g.editKey(ctx, c.Tenant, c.ID, true, c.Set, st)
		}
	case toolkeep.PutDocument:
		e := st.Encoded
		st.act = func(ctx context.Context, g *group, st *step) (bool, error) { return true, g.putDocument(ctx, c, e, st) }
	case toolkeep.DeleteDocument:
		st.act = func(ctx context.Context, g *group, _ *step) (bool, error) { return true, g.dropDocument(ctx, c) }
	default:
		err = fmt.Errorf("postgres: %T has no action", c)
	}
	return st, err
}

// asBefore checks that a version has the lifecycle that a change expects, and locks it
// against other nodes until the transaction ends.
func (g *group) asBefore(ctx context.Context, c toolkeep.SetLifecycle, ref string) error {
	if c.From == nil {
		return nil
	}
	var have []byte
	err := g.tx.QueryRow(ctx, sqlLifeOf, text(c.Tenant), text(c.ToolID), text(c.Version)).Scan(&have)
	if errors.Is(err, pgx.ErrNoRows) {
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

func (g *group) publish(ctx context.Context, t record.Tool, ref string) (bool, error) {
	if len(t.Parts) > 0 {
		digests, data := make([][]byte, len(t.Parts)), make([][]byte, len(t.Parts))
		for i, p := range t.Parts {
			digests[i], data[i] = p.Digest[:], []byte(p.Data)
		}
		if _, err := g.exec(ctx, sqlParts, text(t.Tenant), digests, data); err != nil {
			return false, err
		}
	}
	n, err := g.exec(ctx, sqlPublish, text(t.Tenant), text(t.ID), text(t.Version), text(t.Digest), t.Life, t.Outline, t.Text, t.Words)
	if err != nil || n != 0 {
		return true, err
	}
	var digest string
	err = g.tx.QueryRow(ctx, sqlDigest, text(t.Tenant), text(t.ID), text(t.Version)).Scan(&digest)
	if err == nil && plainText(digest) != t.Digest {
		err = fmt.Errorf("publish %s: %w", ref, toolkeep.ErrVersionExists)
	}
	return false, err
}

// editKey changes a stored key by edit. With put, watchers get the whole key, and an edit that cannot be made is ErrStale;
// without it such an edit changes nothing.
func (g *group) editKey(ctx context.Context, tenant, id string, put bool, edit func(*toolkeep.APIKey) bool, st *step) (bool, error) {
	var data []byte
	err := g.tx.QueryRow(ctx, sqlKeyData, text(tenant), text(id)).Scan(&data)
	if errors.Is(err, pgx.ErrNoRows) {
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
	_, err = g.exec(ctx, sqlPutKey, text(tenant), text(id), data)
	return true, err
}

const versionColumns = `tenant, id, version, digest, life, outline, manifest, words`

// Versions returns every published version with its lifecycle, and the feed position of
// this state. Their tools are outlines whose manifests lack their defaults.
func (s *Store) Versions(ctx context.Context) ([]toolkeep.Version, int64, error) {
	var all record.Decoder
	var head int64
	err := s.moment(ctx, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, sqlReadHead).Scan(&head); err != nil {
			return err
		}
		parts, err := partsOf(ctx, tx, `SELECT tenant, digest, data FROM manifest_parts`)
		if err != nil {
			return err
		}
		all = record.Decoder{Part: parts.get}
		var n int
		if err := tx.QueryRow(ctx, `SELECT count(*) FROM versions`).Scan(&n); err != nil {
			return err
		}
		all.Expect(n)
		rows, err := tx.Query(ctx, `SELECT `+versionColumns+` FROM versions ORDER BY tenant, id, version`)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			t, err := scanTool(rows)
			if err != nil {
				return err
			}
			if err := all.Add(t); err != nil {
				return damaged(err)
			}
		}
		return rows.Err()
	})
	if err == nil {
		err = damaged(all.Flush())
	}
	if err != nil {
		return nil, 0, err
	}
	return all.List, head, nil
}

// versionOf returns one published version.
func versionOf(ctx context.Context, q querier, tenant, id, version string) (toolkeep.Version, error) {
	t, err := scanTool(q.QueryRow(ctx, `SELECT `+versionColumns+` FROM versions WHERE tenant = $1 AND id = $2 AND version = $3`,
		text(tenant), text(id), text(version)))
	if err != nil {
		return toolkeep.Version{}, err
	}
	var digests [][]byte
	if _, err := pack.Read(tenant, t.Text, nil, func(d pack.Digest) ([]byte, error) {
		digests = append(digests, d[:])
		return nil, nil
	}); err != nil {
		return toolkeep.Version{}, damaged(err)
	}
	var found parts
	if len(digests) > 0 {
		found, err = partsOf(ctx, q, `SELECT tenant, digest, data FROM manifest_parts WHERE tenant = $1 AND digest = ANY($2)`, text(tenant), digests)
		if err != nil {
			return toolkeep.Version{}, err
		}
	}
	v, err := record.DecodeVersion(t, func(d pack.Digest) ([]byte, error) { return found.get(t.Tenant, d) })
	return v, damaged(err)
}

type querier interface {
	Query(ctx context.Context, query string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, query string, args ...any) pgx.Row
}

type partKey struct {
	tenant string
	digest pack.Digest
}

type parts map[partKey][]byte

func (p parts) get(tenant string, d pack.Digest) ([]byte, error) {
	if data, ok := p[partKey{tenant, d}]; ok {
		return data, nil
	}
	return nil, errors.New("a part of the manifest is not in the store")
}

func partsOf(ctx context.Context, q querier, query string, args ...any) (parts, error) {
	rows, err := q.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	found := parts{}
	for rows.Next() {
		var k partKey
		var digest, data []byte
		if err := rows.Scan(&k.tenant, &digest, &data); err != nil {
			return nil, err
		}
		k.tenant = plainText(k.tenant)
		copy(k.digest[:], digest)
		found[k] = data
	}
	return found, rows.Err()
}

// Keys returns every API key, including revoked and expired ones, and the feed position
// of this state.
func (s *Store) Keys(ctx context.Context) ([]toolkeep.APIKey, int64, error) {
	return snapshot(ctx, s, `SELECT tenant, id, data FROM api_keys ORDER BY tenant, id`, func(row pgx.CollectableRow) (toolkeep.APIKey, error) {
		var tenant, id string
		var data []byte
		if err := row.Scan(&tenant, &id, &data); err != nil {
			return toolkeep.APIKey{}, err
		}
		k, err := record.DecodeKey(plainText(tenant), plainText(id), data)
		return k, damaged(err)
	})
}

// snapshot reads a whole table and the feed's head in one snapshot.
func snapshot[T any](ctx context.Context, s *Store, query string, scan pgx.RowToFunc[T], args ...any) (list []T, head int64, err error) {
	err = s.moment(ctx, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, sqlReadHead).Scan(&head); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, query, args...)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, scan)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return list, head, nil
}

// moment runs read in a transaction whose statements all see one snapshot.
func (s *Store) moment(ctx context.Context, read func(pgx.Tx) error) error {
	return s.read(ctx, func(ctx context.Context) error { return pgx.BeginTxFunc(ctx, s.pool, oneMoment(), read) })
}

// oneMoment returns the options of a transaction whose statements all see one snapshot.
func oneMoment() pgx.TxOptions {
	return pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
}

func scanTool(row pgx.Row) (t record.Tool, err error) {
	err = row.Scan(&t.Tenant, &t.ID, &t.Version, &t.Digest, &t.Life, &t.Outline, &t.Text, &t.Words)
	for _, s := range []*string{&t.Tenant, &t.ID, &t.Version, &t.Digest} {
		*s = plainText(*s)
	}
	return t, err
}
