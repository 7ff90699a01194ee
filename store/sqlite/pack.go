package sqlite

import (
	"context"
	"database/sql"
	"strings"

	"github.com/pressly/goose/v3"

	"github.com/toolkeep/toolkeep/store/record"
)

// packVersion is the schema version since which the catalogue's manifests are packed. Its migration is not SQL: both
// ways read each manifest.
const packVersion = 8

func packMigration() *goose.Migration {
	return goose.NewGoMigration(packVersion, &goose.GoFunc{RunTx: packUp}, &goose.GoFunc{RunTx: packDown})
}

const packedTables = `CREATE TABLE versions (
	tenant   TEXT NOT NULL,
	id       TEXT NOT NULL,
	version  TEXT NOT NULL,
	digest   TEXT NOT NULL,
	life     BLOB NOT NULL, -- JSON
	outline  BLOB NOT NULL, -- the manifest without what only calls need, JSON
	manifest BLOB NOT NULL, -- the whole one as published, packed; it refers to manifest_parts
	words    BLOB NOT NULL, -- what its parameters and examples say, packed
	PRIMARY KEY (tenant, id, version)
) STRICT;

CREATE TABLE manifest_parts (
	tenant TEXT NOT NULL,
	digest BLOB NOT NULL, -- SHA-256
	data   BLOB NOT NULL,
	PRIMARY KEY (tenant, digest)
) STRICT, WITHOUT ROWID`

func packUp(ctx context.Context, tx *sql.Tx) error {
	if err := execAll(ctx, tx, `ALTER TABLE versions RENAME TO versions_raw`, packedTables); err != nil {
		return err
	}
	if err := record.Pack(ctx, tx, "?"); err != nil {
		return err
	}
	return execAll(ctx, tx, `DROP TABLE versions_raw`)
}

func packDown(ctx context.Context, tx *sql.Tx) error {
	file, err := migrationFiles.ReadFile("migrations/00002_catalogue.sql")
	if err != nil {
		return err
	}
	_, before, _ := strings.Cut(string(file), "-- +goose Up\n")
	before, _, _ = strings.Cut(before, "-- +goose Down")
	if err := execAll(ctx, tx, `ALTER TABLE versions RENAME TO versions_packed`, before); err != nil {
		return err
	}
	if err := record.Unpack(ctx, tx, "?"); err != nil {
		return err
	}
	return execAll(ctx, tx, `DROP TABLE versions_packed`, `DROP TABLE manifest_parts`)
}

func execAll(ctx context.Context, tx *sql.Tx, statements ...string) error {
	for _, s := range statements {
		if _, err := tx.ExecContext(ctx, s); err != nil {
			return err
		}
	}
	return nil
}
