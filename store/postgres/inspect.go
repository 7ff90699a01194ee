package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3"

	"github.com/toolkeep/toolkeep"
)

// Info is the result of Inspect.
type Info struct {
	Server string               // PostgreSQL version
	Schema int64                // schema version, 0 without a schema
	Newest int64                // newest schema version known to this program
	Floor  int64                // oldest schema version that a program must know to use the database
	Ahead  time.Duration        // how far the server's clock is ahead of this machine's
	Within time.Duration        // uncertainty of Ahead
	Nodes  []toolkeep.NodeState // that live
	Pooled bool                 // a pooler stands before it
}

// Inspect connects once and reads; it changes nothing.
func Inspect(ctx context.Context, dsn string) (info Info, err error) {
	if info.Newest, err = newestSchema(); err != nil {
		return info, err
	}
	c := Config{DSN: dsn}
	if err := c.fill(); err != nil {
		return info, err
	}
	to, err := settle(ctx, dsn, &c)
	if err != nil {
		return info, err
	}
	info.Pooled = to.pooled
	conn, err := pgx.ConnectConfig(ctx, to.pool.ConnConfig)
	if err != nil {
		return info, fmt.Errorf("postgres: connect: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	var there bool
	err = conn.QueryRow(ctx, "SELECT current_setting('server_version'), to_regclass($1) IS NOT NULL", versionTable).Scan(&info.Server, &there)
	if err != nil {
		return info, fmt.Errorf("postgres: read the server's version: %w", err)
	}
	var now time.Time
	before := time.Now()
	if err := conn.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now); err != nil {
		return info, fmt.Errorf("postgres: read the server's clock: %w", err)
	}
	info.Within = time.Since(before) / 2
	info.Ahead = now.Sub(before.Add(info.Within))
	if !there {
		return info, nil
	}
	if err := conn.QueryRow(ctx, "SELECT coalesce(max(version_id), 0) FROM "+versionTable).Scan(&info.Schema); err != nil {
		return info, fmt.Errorf("postgres: read the schema version: %w", err)
	}
	if info.Nodes, err = inspectNodes(ctx, conn); err != nil {
		return info, fmt.Errorf("postgres: read the nodes: %w", err)
	}
	if info.Schema <= info.Newest {
		return info, nil
	}
	if err := conn.QueryRow(ctx, "SELECT version FROM toolkeep_floor").Scan(&info.Floor); err != nil {
		return info, fmt.Errorf("postgres: read which versions the schema allows: %w", err)
	}
	return info, nil
}

// inspectNodes reads the nodes that live; a schema of earlier versions has none.
func inspectNodes(ctx context.Context, conn *pgx.Conn) ([]toolkeep.NodeState, error) {
	var there bool
	if err := conn.QueryRow(ctx, "SELECT to_regclass('leads') IS NOT NULL").Scan(&there); err != nil || !there {
		return nil, err
	}
	rows, err := conn.Query(ctx, `SELECT `+nodeColumns+` FROM nodes AS n WHERE seen > statement_timestamp() - $1 * interval '1 millisecond' ORDER BY name LIMIT 1000`,
		float64(toolkeep.NodeGone.Milliseconds()))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (toolkeep.NodeState, error) { return scanNode(row) })
}

// ReadDocument connects once and reads the body of a document of no tenant.
func ReadDocument(ctx context.Context, dsn, kind, id string) (body []byte, err error) {
	conf, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, dsnError(err)
	}
	conf.DefaultQueryExecMode = pgx.QueryExecModeExec // a pooler may stand before it
	conn, err := pgx.ConnectConfig(ctx, conf)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = conn.QueryRow(ctx, "SELECT body FROM items WHERE kind = $1 AND tenant = '' AND id = $2 AND NOT dropped", kind, id).Scan(&body)
	return body, err
}

// newestSchema returns the version of the last migration.
func newestSchema() (newest int64, err error) {
	newest = packVersion
	files, err := fs.ReadDir(migrationFiles, "migrations")
	if err != nil {
		return 0, err
	}
	for _, f := range files {
		v, err := goose.NumericComponent(f.Name())
		if err != nil {
			return 0, err
		}
		newest = max(newest, v)
	}
	return newest, nil
}
