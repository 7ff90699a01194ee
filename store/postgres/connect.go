package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// outside are the connections besides the pool: one writes, one listens, and the queue takes
// one out of the pool for itself to listen.
const outside = 3

// sessionParams are asked for at the start of each connection that no pooler stands before.
// idle is among them on every such connection.
const idle = "idle_in_transaction_session_timeout"

func sessionParams(c *Config) map[string]string {
	return map[string]string{
		// A node that vanishes during a transaction must not hold its locks.
		idle: millis(c.timeout), "tcp_user_timeout": millis(c.timeout),
		"tcp_keepalives_idle": "5", "tcp_keepalives_interval": "2", "tcp_keepalives_count": "3",
	}
}

// connection is how a process connects.
type connection struct {
	pool *pgxpool.Config
	// pooled: a pooler such as PgBouncer stands before the database. It may give each
	// transaction another session, so nothing of a session is used: no parameters, no named
	// statements, no LISTEN, no lock that outlives its transaction.
	pooled bool
}

// settle configures every connection for a DSN. It connects once to find out whether a
// pooler stands before the database.
func settle(ctx context.Context, dsn string, c *Config) (*connection, error) {
	p, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, dsnError(err)
	}
	p.MaxConns = int32(max(2, c.MaxConns-outside))
	p.PingTimeout = pingTimeout
	conf := p.ConnConfig
	if conf.ConnectTimeout == 0 || conf.ConnectTimeout > connectTimeout {
		conf.ConnectTimeout = connectTimeout
	}
	if conf.RuntimeParams["application_name"] == "" {
		conf.RuntimeParams["application_name"] = "toolkeep " + c.Node
	}
	given := maps.Clone(conf.RuntimeParams)
	maps.Copy(conf.RuntimeParams, sessionParams(c))
	to := &connection{pool: p}
	if to.pooled, err = throughPooler(ctx, conf); err != nil {
		return nil, err
	}
	if to.pooled {
		conf.RuntimeParams = given
		if conf.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement { // unless the DSN names another
			conf.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		}
	}
	return to, nil
}

// throughPooler connects and tells whether a pooler stands before the database: it refuses
// session parameters, or drops them.
func throughPooler(ctx context.Context, conf *pgx.ConnConfig) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	probe := patient(conf)
	probe.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn, err := pgx.ConnectConfig(ctx, probe)
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == protocolViolation {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("postgres: connect: %w", err)
	}
	defer func() {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingTimeout)
		defer cancel()
		_ = conn.Close(limited) // nothing to lose on it
	}()
	var is string
	if err := conn.QueryRow(ctx, `SELECT setting FROM pg_settings WHERE name = $1`, idle).Scan(&is); err != nil {
		return false, fmt.Errorf("postgres: read the session's parameters: %w", err)
	}
	return is != conf.RuntimeParams[idle], nil
}

// patient is for the connections of Open.
func patient(conf *pgx.ConnConfig) *pgx.ConnConfig {
	conf = conf.Copy()
	conf.ConnectTimeout = openTimeout
	return conf
}

// writerConfig is for the connections outside the pool.
func (to *connection) writerConfig(c *Config) *pgx.ConnConfig {
	conf := to.pool.ConnConfig.Copy()
	if !to.pooled {
		conf.RuntimeParams["statement_timeout"] = millis(c.timeout)
	}
	return conf
}

// listenConfig is for the connection that listens, nil where none can: the feed is polled.
func (to *connection) listenConfig(ctx context.Context, c *Config) (*pgx.ConnConfig, error) {
	if c.DirectDSN == "" {
		if to.pooled {
			return nil, nil
		}
		return to.writerConfig(c), nil
	}
	direct, err := settle(ctx, c.DirectDSN, c)
	if err != nil {
		return nil, fmt.Errorf("store.direct_dsn: %w", err)
	}
	return direct.writerConfig(c), nil
}

func millis(d time.Duration) string { return strconv.FormatInt(max(1, d.Milliseconds()), 10) }

// Pooled reports whether a pooler stands before the database.
func (s *Store) Pooled() bool { return s.pooled }

// polled reports whether the feed is only polled, as nothing listens.
func (s *Store) polled() bool { return s.listenTo == nil }

// Details is what health shows of the store; nil is nothing.
func (s *Store) Details() any {
	if !s.pooled {
		return nil
	}
	notifications := "direct"
	if s.polled() {
		notifications = "polled"
	}
	return map[string]string{"pooler": "yes", "notifications": notifications}
}

// alone runs f in the transaction of one connection of conf that has the advisory lock; of
// all processes one at a time. The lock is the transaction's, so that a pooler cannot keep it.
func alone(ctx context.Context, conf *pgx.ConnConfig, lock int64, f func() error) (err error) {
	conn, err := pgx.ConnectConfig(ctx, conf)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL "+idle+" = 0"); err != nil { // f takes as long as it takes
			return err
		}
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", lock); err != nil {
			return fmt.Errorf("wait for the other node that migrates: %w", err)
		}
		return f()
	})
}
