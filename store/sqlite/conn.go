package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
)

// writeConnector opens the connection that writes, which prepares what begins and commits its groups once: SQLite's driver
// prepares both for every transaction.
type writeConnector struct {
	driver driver.Driver
	dsn    string
}

// openWriter opens the pool with the only connection that writes.
func openWriter(dsn string) (*sql.DB, error) {
	db, err := openDB(dsn, 1)
	if err != nil {
		return nil, err
	}
	of := db.Driver()
	if err := db.Close(); err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	db = sql.OpenDB(writeConnector{of, dsn})
	db.SetMaxOpenConns(1)
	db.SetMaxIdleConns(1)
	return db, nil
}

func (c writeConnector) Driver() driver.Driver { return c.driver }

// Connect opens a connection.
func (c writeConnector) Connect(context.Context) (driver.Conn, error) {
	opened, err := c.driver.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	conn, ok := opened.(driverConn)
	if !ok {
		return nil, errors.Join(errors.New("sqlite: the driver's connections lack what the writer needs"), opened.Close())
	}
	w := &writeConn{driverConn: conn}
	if w.begin, err = prepared(conn, "BEGIN IMMEDIATE"); err == nil {
		w.commit, err = prepared(conn, "COMMIT")
	}
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

func prepared(conn driver.Conn, text string) (driver.StmtExecContext, error) {
	st, err := conn.Prepare(text)
	if err != nil {
		return nil, err
	}
	return st.(driver.StmtExecContext), nil
}

// driverConn is what database/sql uses of a connection of SQLite's driver.
type driverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

type writeConn struct {
	driverConn
	begin, commit driver.StmtExecContext
}

// Close finalises the statements first: SQLite keeps a connection open, and its log, that has some left.
func (c *writeConn) Close() error {
	var errs []error
	for _, st := range []driver.StmtExecContext{c.begin, c.commit} {
		if st != nil {
			errs = append(errs, st.(driver.Stmt).Close())
		}
	}
	return errors.Join(append(errs, c.driverConn.Close())...)
}

// BeginTx begins a transaction. One with a context that may end, or with options, is the driver's own.
func (c *writeConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if ctx.Done() != nil || opts != (driver.TxOptions{}) {
		return c.driverConn.BeginTx(ctx, opts)
	}
	if _, err := c.begin.ExecContext(ctx, nil); err != nil {
		return nil, err
	}
	return writeTx{c}, nil
}

type writeTx struct{ c *writeConn }

// Commit commits. A transaction that could not be committed is rolled back, as database/sql expects.
func (t writeTx) Commit() error {
	_, err := t.c.commit.ExecContext(context.Background(), nil)
	if err != nil {
		_ = t.Rollback() // an error if SQLite has ended the transaction itself
	}
	return err
}

func (t writeTx) Rollback() error {
	_, err := t.c.ExecContext(context.Background(), "ROLLBACK", nil)
	return err
}
