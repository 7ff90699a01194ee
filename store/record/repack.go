package record

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/pack"
)

// A table with the manifests of 00002 is versions_raw, one with packed ones is versions_packed, while Pack or Unpack
// fills versions from it. Both run in the transaction of a migration.

// repackRows is how many rows are in memory at a time.
const repackRows = 200

// Pack fills versions and manifest_parts from versions_raw. placeholder is $ or ?, as the driver numbers its
// parameters.
func Pack(ctx context.Context, tx *sql.Tx, placeholder string) error {
	return repack(ctx, tx, placeholder, `SELECT tenant, id, version, digest, life, raw, NULL FROM versions_raw`, func(exec execer, r repacked) error {
		m, err := pack.New(&toolkeep.Tool{ID: r.id, Version: r.version, Tenant: r.tenant, Raw: r.manifest})
		if err != nil {
			return err
		}
		outline, err := EncodeOutline(m)
		if err != nil {
			return err
		}
		s := m.Stored()
		for _, p := range s.Parts {
			if err := exec(`INSERT INTO manifest_parts (tenant, digest, data) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`, p.Tenant, p.Digest[:], []byte(p.Data)); err != nil {
				return err
			}
		}
		return exec(`INSERT INTO versions (tenant, id, version, digest, life, outline, manifest, words) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
			r.tenant, r.id, r.version, r.digest, r.life, outline, s.Text, s.Words)
	})
}

// Unpack fills versions from versions_packed and manifest_parts. Programs of that schema read the typed manifest from
// raw where it has no side_effects.
func Unpack(ctx context.Context, tx *sql.Tx, placeholder string) error {
	query := strings.ReplaceAll(`SELECT data FROM manifest_parts WHERE tenant = $1 AND digest = $2`, "$", placeholder)
	return repack(ctx, tx, placeholder, `SELECT tenant, id, version, digest, life, manifest, words FROM versions_packed`, func(exec execer, r repacked) error {
		m, err := pack.Read(r.tenant, r.manifest, r.words, func(d pack.Digest) (data []byte, err error) {
			err = tx.QueryRowContext(ctx, query, r.tenant, d[:]).Scan(&data)
			return data, err
		})
		if err != nil {
			return err
		}
		raw, err := m.Raw()
		if err != nil {
			return err
		}
		return exec(`INSERT INTO versions (tenant, id, version, digest, life, raw, manifest) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
			r.tenant, r.id, r.version, r.digest, r.life, raw, []byte(`{}`))
	})
}

type execer = func(query string, args ...any) error

type repacked struct {
	tenant, id, version, digest string
	life, manifest, words       []byte
}

func repack(ctx context.Context, tx *sql.Tx, placeholder, query string, each func(execer, repacked) error) error {
	query = strings.ReplaceAll(query+fmt.Sprintf(` WHERE (tenant, id, version) > ($1, $2, $3) ORDER BY tenant, id, version LIMIT %d`, repackRows), "$", placeholder)
	exec := func(query string, args ...any) error {
		_, err := tx.ExecContext(ctx, strings.ReplaceAll(query, "$", placeholder), args...)
		return err
	}
	last := repacked{}
	for {
		list, err := repackable(ctx, tx, query, last.tenant, last.id, last.version)
		if err != nil {
			return err
		}
		for _, r := range list {
			if err := each(exec, r); err != nil {
				return fmt.Errorf("the manifest of %s@%s (tenant %q): %w; nothing was changed. If it is damaged, restore a backup, or stop all nodes and delete its row: DELETE FROM versions WHERE tenant = '%s' AND id = '%s' AND version = '%s'",
					r.id, r.version, r.tenant, err, r.tenant, r.id, r.version)
			}
		}
		if len(list) < repackRows {
			return nil
		}
		last = list[len(list)-1]
	}
}

func repackable(ctx context.Context, tx *sql.Tx, query string, after ...any) (list []repacked, err error) {
	rows, err := tx.QueryContext(ctx, query, after...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r repacked
		if err := rows.Scan(&r.tenant, &r.id, &r.version, &r.digest, &r.life, &r.manifest, &r.words); err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, rows.Err()
}
