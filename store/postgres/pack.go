package postgres

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
	tenant   TEXT COLLATE "C" NOT NULL,
	id       TEXT COLLATE "C" NOT NULL,
	version  TEXT COLLATE "C" NOT NULL,
	digest   TEXT COLLATE "C" NOT NULL,
	life     BYTEA NOT NULL, -- JSON, kept to the byte
	outline  BYTEA NOT NULL, -- the manifest without what only calls need, JSON
	manifest BYTEA NOT NULL, -- the whole one as published, packed; it refers to manifest_parts
	words    BYTEA NOT NULL, -- what its parameters and examples say, packed
	PRIMARY KEY (tenant, id, version)
);

CREATE TABLE manifest_parts (
	tenant TEXT COLLATE "C" NOT NULL,
	digest BYTEA NOT NULL, -- SHA-256
	data   BYTEA NOT NULL,
	PRIMARY KEY (tenant, digest)
)`

func packUp(ctx context.Context, tx *sql.Tx) error {
	if err := execAll(ctx, tx, `ALTER TABLE versions RENAME TO versions_raw`, `ALTER TABLE versions_raw RENAME CONSTRAINT versions_pkey TO versions_raw_pkey`, packedTables); err != nil {
		return err
	}
	if err := record.Pack(ctx, tx, "$"); err != nil {
		return err
	}
	return execAll(ctx, tx, `DROP TABLE versions_raw`,
		// Programs before this step cannot read packed manifests.
		`UPDATE toolkeep_floor SET version = greatest(version, 8)`)
}

func packDown(ctx context.Context, tx *sql.Tx) error {
	file, err := migrationFiles.ReadFile("migrations/00002_catalogue.sql")
	if err != nil {
		return err
	}
	_, before, _ := strings.Cut(string(file), "-- +goose Up\n")
	before, _, _ = strings.Cut(before, "-- +goose Down")
	if err := execAll(ctx, tx, `ALTER TABLE versions RENAME TO versions_packed`, `ALTER TABLE versions_packed RENAME CONSTRAINT versions_pkey TO versions_packed_pkey`, before); err != nil {
		return err
	}
	if err := record.Unpack(ctx, tx, "$"); err != nil {
		return err
	}
	return execAll(ctx, tx, `DROP TABLE versions_packed`, `DROP TABLE manifest_parts`, `UPDATE toolkeep_floor SET version = 1 WHERE version = 8`)
}

func execAll(ctx context.Context, tx *sql.Tx, statements ...string) error {
	for _, s := range statements {
		if _, err := tx.ExecContext(ctx, s); err != nil {
			return err
		}
	}
	return nil
}
