package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

const (
	// versionTable has its own name, separate from the queue's migrations.
	versionTable = "toolkeep_schema"
	// migrationLock is the advisory lock of migrations: one node at a time.
	migrationLock = 0x746f6f6c6b656570
)

// Migrate migrates the database to the given schema version, up or down, and returns
// the versions before and after. A negative target is the newest. Migrating down drops
// the tables of the undone steps with their contents.
//
// Steps are additive: nodes of the previous version keep working while another migrates
// up, or back to their version. Those to packVersion, 11 and 12 are not: they raise the floor.
func Migrate(ctx context.Context, dsn string, target int64) (from, to int64, err error) {
	c := Config{DSN: dsn}
	if err := c.fill(); err != nil {
		return 0, 0, err
	}
	conn, err := settle(ctx, dsn, &c)
	if err != nil {
		return 0, 0, err
	}
	return migrate(ctx, conn.pool.ConnConfig, target, c.Log)
}

func migrate(ctx context.Context, conf *pgx.ConnConfig, target int64, log *slog.Logger) (from, to int64, err error) {
	db := stdlib.OpenDB(*conf)
	defer func() { err = errors.Join(err, db.Close()) }()
	err = alone(ctx, conf, migrationLock, func() error {
		from, to, err = migrateLocked(ctx, db, target, log)
		return err
	})
	return from, to, err
}

func migrateLocked(ctx context.Context, db *sql.DB, target int64, log *slog.Logger) (from, to int64, err error) {
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return 0, 0, err
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithTableName(versionTable), goose.WithDisableGlobalRegistry(true), goose.WithSlog(log), goose.WithGoMigrations(packMigration()))
	if err != nil {
		return 0, 0, fmt.Errorf("postgres: read migrations: %w", err)
	}
	sources := p.ListSources()
	newest := sources[len(sources)-1].Version
	forward := target < 0
	if forward {
		target = newest
	}
	if target > newest {
		return 0, 0, fmt.Errorf("postgres: there is no schema version %d, the newest is %d", target, newest)
	}
	if from, err = p.GetDBVersion(ctx); err != nil {
		return 0, 0, fmt.Errorf("postgres: read the schema version: %w", err)
	}
	if from > newest {
		return from, from, newer(ctx, db, from, newest, forward, log)
	}
	if target < from {
		_, err = p.DownTo(ctx, target)
	} else {
		_, err = p.UpTo(ctx, target)
	}
	if err != nil {
		return from, from, fmt.Errorf("postgres: migrate from schema version %d to %d: %w", from, target, err)
	}
	return from, target, nil
}

// newer handles a database migrated by a newer program: this program may use it unless
// the newer one has forbidden that, but cannot migrate it.
func newer(ctx context.Context, db *sql.DB, has, knows int64, forward bool, log *slog.Logger) error {
	var floor int64
	if err := db.QueryRowContext(ctx, "SELECT version FROM toolkeep_floor").Scan(&floor); err != nil {
		return fmt.Errorf("postgres: read which versions the schema allows: %w", err)
	}
	if !forward || floor > knows {
		return fmt.Errorf("postgres: the database has schema version %d, this program supports %d at most: "+
			"it was migrated by a newer version of Toolkeep; use that one", has, knows)
	}
	log.Warn("the database was migrated by a newer version of Toolkeep; this one goes on with it", "has", has, "knows", knows)
	return nil
}

// dsnError removes the connection string, which may contain a password, from an error.
func dsnError(err error) error {
	var parse *pgconn.ParseConfigError
	if errors.As(err, &parse) {
		return errors.New("postgres: the DSN cannot be read; it must be keywords (host=… user=…) or a postgres:// URL")
	}
	return fmt.Errorf("postgres: the DSN cannot be used: %w", err)
}
