package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// versionTable has its own name, separate from the queue's migrations.
const versionTable = "toolkeep_schema"

// Migrate migrates the database at path to the given schema version, up or down, and
// returns the versions before and after. A negative target is the newest. Migrating
// down drops the tables of the undone steps with their contents; it is refused while calls stand in the table claims
// alone, as a server that was killed leaves them. No store may have the file open.
func Migrate(ctx context.Context, path string, target int64) (from, to int64, err error) {
	c := Config{Path: path}
	if err := c.fill(); err != nil {
		return 0, 0, err
	}
	if err := makeFile(c.Path); err != nil {
		return 0, 0, err
	}
	db, err := openDB(c.dsn(false), 1)
	if err != nil {
		return 0, 0, err
	}
	defer db.Close()
	return migrate(ctx, db, target, c.Log)
}

func migrate(ctx context.Context, db *sql.DB, target int64, log *slog.Logger) (from, to int64, err error) {
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return 0, 0, err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, files,
		goose.WithTableName(versionTable), goose.WithDisableGlobalRegistry(true), goose.WithSlog(log), goose.WithGoMigrations(packMigration()))
	if err != nil {
		return 0, 0, fmt.Errorf("sqlite: read migrations: %w", err)
	}
	sources := p.ListSources()
	newest := sources[len(sources)-1].Version
	if target < 0 {
		target = newest
	}
	if target > newest {
		return 0, 0, fmt.Errorf("sqlite: there is no schema version %d, the newest is %d", target, newest)
	}
	from, err = p.GetDBVersion(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("sqlite: read the schema version: %w", err)
	}
	if from > newest {
		return from, from, fmt.Errorf("sqlite: the database has schema version %d, this program supports %d at most: "+
			"it was written by a newer version of Toolkeep; use that one", from, newest)
	}
	if target < from {
		if from >= claimsVersion && target < claimsVersion {
			err = noClaims(ctx, db)
		}
		if err == nil {
			_, err = p.DownTo(ctx, target)
		}
	} else {
		_, err = p.UpTo(ctx, target)
	}
	if err != nil {
		return from, from, fmt.Errorf("sqlite: migrate from schema version %d to %d: %w", from, target, err)
	}
	if 0 < from && from < packVersion && target >= packVersion {
		shrink(ctx, db, log)
	}
	return from, target, nil
}

// claimsVersion is the schema version with the table claims.
const claimsVersion = 16

// noClaims refuses to drop the table claims while calls are nowhere else, as a server that was killed leaves them.
func noClaims(ctx context.Context, db *sql.DB) error {
	var n int
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM claims`).Scan(&n); err != nil {
		return err
	}
	if n != 0 {
		return fmt.Errorf("%d rows of the table claims are not in the table of calls yet, because the server did not stop by itself; start it once and stop it, which copies them", n)
	}
	return nil
}

// shrink gives the space of the unpacked manifests back to the file system. Without it the
// store works as well, and uses the free pages again.
func shrink(ctx context.Context, db *sql.DB, log *slog.Logger) {
	if _, err := db.ExecContext(ctx, "VACUUM"); err != nil {
		log.Warn("the database is migrated, but its file could not be made smaller; it needs as much free space as the file has, and VACUUM of the sqlite3 program does it later, while no server runs", "error", err)
	}
}
