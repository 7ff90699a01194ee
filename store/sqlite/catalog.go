package sqlite

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/toolkeep/toolkeep"
)

// The catalogue and the keys change rarely; their feed rows are JSON and stay
// forever. A published tool is immutable and never leaves its table, so its
// feed row only names it.

// publishedRow is the feed row of a PublishVersion.
type publishedRow struct {
	ID      string             `json:"id"`
	Version string             `json:"version"`
	Life    toolkeep.Lifecycle `json:"life"`
}

type lifecycleRow struct {
	ID      string             `json:"id"`
	Version string             `json:"version"`
	Life    toolkeep.Lifecycle `json:"life"`
	By      string             `json:"by,omitempty"`
}

type revokeRow struct {
	At time.Time `json:"at"`
	By string    `json:"by,omitempty"`
}

// keyRow is an API key as it is stored, in its table and in the feed.
type keyRow struct {
	Subject   string    `json:"subject"`
	Name      string    `json:"name,omitempty"`
	Hash      string    `json:"hash"` // hexadecimal
	Roles     []string  `json:"roles,omitempty"`
	Scope     []string  `json:"scope,omitempty"`
	CreatedAt time.Time `json:"created_at,omitzero"`
	CreatedBy string    `json:"created_by,omitempty"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	RevokedAt time.Time `json:"revoked_at,omitzero"`
}

func encodeKey(k toolkeep.APIKey) ([]byte, error) {
	return marshal(keyRow{
		Subject: k.Subject, Name: k.Name, Hash: hex.EncodeToString(k.Hash[:]), Roles: k.Roles, Scope: k.Scope,
		CreatedAt: k.CreatedAt, CreatedBy: k.CreatedBy, ExpiresAt: k.ExpiresAt, RevokedAt: k.RevokedAt,
	})
}

func decodeKey(tenant, id string, data []byte) (toolkeep.APIKey, error) {
	var r keyRow
	if err := unmarshal(data, &r); err != nil {
		return toolkeep.APIKey{}, fmt.Errorf("sqlite: key %s: %w", id, err)
	}
	k := toolkeep.APIKey{
		ID: id, Tenant: tenant, Subject: r.Subject, Name: r.Name, Roles: r.Roles, Scope: r.Scope,
		CreatedAt: r.CreatedAt, CreatedBy: r.CreatedBy, ExpiresAt: r.ExpiresAt, RevokedAt: r.RevokedAt,
	}
	if n, err := hex.Decode(k.Hash[:], []byte(r.Hash)); err != nil || n != len(k.Hash) {
		return toolkeep.APIKey{}, fmt.Errorf("sqlite: key %s: %w", id, errRecord)
	}
	return k, nil
}

func preparePublish(c toolkeep.PublishVersion) (step, error) {
	t := c.Version.Tool
	if t == nil || t.Manifest == nil || t.ID == "" || t.Version == "" || t.Digest == "" || len(t.Raw) == 0 {
		return step{}, errors.New("the tool is incomplete: id, version, digest, raw and parsed manifest are needed")
	}
	manifest, err := marshal(t.Manifest)
	if err != nil {
		return step{}, err
	}
	life, err := marshal(c.Version.Life)
	if err != nil {
		return step{}, err
	}
	data, err := marshal(publishedRow{ID: t.ID, Version: t.Version, Life: c.Version.Life})
	return step{
		change: c, kind: kindPublish, tenant: t.Tenant, ref: t.Ref(), data: data,
		act: func(g *group, _ *step) (bool, error) { return g.publish(t, life, manifest) },
	}, err
}

func (g *group) publish(t *toolkeep.Tool, life, manifest []byte) (bool, error) {
	var digest string
	err := g.queryRow(sqlDigest, t.Tenant, t.ID, t.Version).Scan(&digest)
	switch {
	case err == nil && digest == t.Digest:
		return false, nil
	case err == nil:
		return false, fmt.Errorf("publish %s: %w", t.Ref(), toolkeep.ErrVersionExists)
	case !errors.Is(err, sql.ErrNoRows):
		return false, err
	}
	_, err = g.exec(sqlPublish, t.Tenant, t.ID, t.Version, t.Digest, life, t.Raw, manifest)
	return true, err
}

func prepareLifecycle(c toolkeep.SetLifecycle) (step, error) {
	life, err := marshal(c.Life)
	if err != nil {
		return step{}, err
	}
	data, err := marshal(lifecycleRow{ID: c.ToolID, Version: c.Version, Life: c.Life, By: c.By})
	ref := c.ToolID + "@" + c.Version
	return step{
		change: c, kind: kindLifecycle, tenant: c.Tenant, ref: ref, data: data,
		act: func(g *group, _ *step) (bool, error) {
			n, err := g.exec(sqlLife, life, c.Tenant, c.ToolID, c.Version)
			if err == nil && n == 0 {
				err = fmt.Errorf("version %s: %w", ref, toolkeep.ErrNotFound)
			}
			return true, err
		},
	}, err
}

func preparePutKey(c toolkeep.PutKey) (step, error) {
	if c.Key.Tenant == "" || c.Key.ID == "" {
		return step{}, errors.New("a key is named by tenant and id, one is empty")
	}
	data, err := encodeKey(c.Key)
	return step{
		change: c, kind: kindKey, tenant: c.Key.Tenant, ref: c.Key.ID, data: data,
		act: func(g *group, _ *step) (bool, error) {
			_, err := g.exec(sqlPutKey, c.Key.Tenant, c.Key.ID, data)
			return true, err
		},
	}, err
}

func prepareRevoke(c toolkeep.RevokeKey) (step, error) {
	if c.At.IsZero() {
		return step{}, errors.New("it does not say when")
	}
	data, err := marshal(revokeRow{At: c.At, By: c.By})
	return step{
		change: c, kind: kindRevoke, tenant: c.Tenant, ref: c.ID, data: data,
		act: func(g *group, _ *step) (bool, error) { return g.revoke(c) },
	}, err
}

// revoke ends a key once; a second time changes nothing.
func (g *group) revoke(c toolkeep.RevokeKey) (bool, error) {
	var data []byte
	err := g.queryRow(sqlKeyData, c.Tenant, c.ID).Scan(&data)
	if errors.Is(err, sql.ErrNoRows) {
		return false, fmt.Errorf("key %s: %w", c.ID, toolkeep.ErrNotFound)
	}
	if err != nil {
		return false, err
	}
	k, err := decodeKey(c.Tenant, c.ID, data)
	if err != nil || !k.RevokedAt.IsZero() {
		return false, err
	}
	k.RevokedAt = c.At
	if data, err = encodeKey(k); err != nil {
		return false, err
	}
	_, err = g.exec(sqlPutKey, c.Tenant, c.ID, data)
	return true, err
}

// Versions gives every published version with its lifecycle, and the position
// of the feed that this is the state of.
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

// Keys gives every API key, ended ones too, and the position of the feed that
// this is the state of.
func (s *Store) Keys(ctx context.Context) ([]toolkeep.APIKey, int64, error) {
	var list []toolkeep.APIKey
	seq, err := s.snapshot(ctx, `SELECT tenant, id, data FROM api_keys ORDER BY tenant, id`, func(rows *sql.Rows) error {
		var tenant, id string
		var data sql.RawBytes
		if err := rows.Scan(&tenant, &id, &data); err != nil {
			return err
		}
		k, err := decodeKey(tenant, id, data)
		list = append(list, k)
		return err
	})
	return list, seq, err
}

// snapshot reads a whole table and the head of the feed in one transaction.
func (s *Store) snapshot(ctx context.Context, query string, each func(*sql.Rows) error) (int64, error) {
	tx, err := s.read.BeginTx(ctx, nil)
	if err != nil {
		return 0, s.orClosed(err)
	}
	defer tx.Rollback()
	head, err := feedHead(ctx, tx)
	if err != nil {
		return 0, s.orClosed(err)
	}
	rows, err := tx.QueryContext(ctx, query)
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
	t := &toolkeep.Tool{Manifest: &toolkeep.Manifest{}}
	v := toolkeep.Version{Tool: t}
	var life, manifest []byte
	if err := row.Scan(&t.Tenant, &t.ID, &t.Version, &t.Digest, &life, &t.Raw, &manifest); err != nil {
		return v, err
	}
	if err := errors.Join(unmarshal(life, &v.Life), unmarshal(manifest, t.Manifest)); err != nil {
		return v, fmt.Errorf("sqlite: version %s: %w", t.Ref(), err)
	}
	return v, nil
}
