package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"
	_ "modernc.org/sqlite"

	"github.com/toolkeep/toolkeep/executor/sqltool/mariatest"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

// sqliteShell stands in for sqlite3 DB SQL on hosts without it.
func sqliteShell() {
	db, err := sql.Open("sqlite", os.Args[1])
	if err == nil {
		_, err = db.Exec(os.Args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// startOrders starts a PostgreSQL set up as in docs/sql-tools.md. It returns the folder of its socket and the port
// in its name.
func startOrders(t *testing.T) (dir, port string) {
	t.Helper()
	pg := pgtest.Start(t)
	run := func(database string, statements ...string) {
		conn, err := pgx.Connect(context.Background(), pg.DSN(database))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		for _, s := range statements {
			if _, err := conn.Exec(t.Context(), s); err != nil {
				t.Fatal(s, err)
			}
		}
	}
	run("postgres", "CREATE ROLE reader LOGIN PASSWORD 'hunter2-s3cret'", "CREATE DATABASE shop")
	run("shop", "CREATE TABLE orders (id bigint PRIMARY KEY, state text, note text)", "CREATE INDEX ON orders (state)",
		"INSERT INTO orders VALUES (17, 'new', '50% off')", "CREATE SCHEMA sales", "CREATE TABLE sales.day (day date PRIMARY KEY, total numeric)",
		"GRANT USAGE ON SCHEMA sales TO reader", "GRANT SELECT ON orders, sales.day TO reader")
	return pg.Dir, strconv.Itoa(pg.Port)
}

func cmdSQLite(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: sqlite DB FILE")
	}
	db, err := sql.Open("sqlite", ts.MkAbs(args[0]))
	ts.Check(err)
	defer db.Close()
	_, err = db.Exec(ts.ReadFile(args[1]))
	ts.Check(err)
}

// TestScriptsOnDatabases runs testdata/script/databases/*.txtar with a PostgreSQL and a MariaDB. Each has the
// database shop, whose user reader has the password in $PASSWORD. $PG_PORT and $MY_PORT are their ports on
// 127.0.0.1.
func TestScriptsOnDatabases(t *testing.T) {
	const password = "hunter2-s3cret"
	pg, maria := pgtest.Start(t), mariatest.Start(t)
	conn, err := pgx.Connect(context.Background(), pg.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, s := range []string{"CREATE ROLE reader LOGIN PASSWORD '" + password + "'", "CREATE DATABASE shop"} {
		if _, err := conn.Exec(t.Context(), s); err != nil {
			t.Fatal(s, err)
		}
	}
	shop, err := pgx.Connect(context.Background(), pg.DSN("shop"))
	if err != nil {
		t.Fatal(err)
	}
	defer shop.Close(context.Background())
	db, err := maria.Open("")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	const table = "CREATE TABLE product (id int PRIMARY KEY, name varchar(50) NOT NULL, price decimal(20,2))"
	const rows = "INSERT INTO product VALUES (1, '50% off', 1.50), (2, 'lamp', 12345678901.25)"
	for _, s := range []string{table, rows, "GRANT SELECT ON product TO reader"} {
		if _, err := shop.Exec(t.Context(), s); err != nil {
			t.Fatal(s, err)
		}
	}
	for _, s := range []string{"CREATE DATABASE shop", "USE shop", table, rows, "CREATE USER reader IDENTIFIED BY '" + password + "'", "GRANT SELECT ON shop.* TO reader"} {
		if _, err := db.Exec(s); err != nil {
			t.Fatal(s, err)
		}
	}
	p := scripts("databases")
	setup := p.Setup
	p.Setup = func(e *testscript.Env) error {
		e.Setenv("PG_PORT", strconv.Itoa(pg.Port))
		e.Setenv("MY_PORT", strconv.Itoa(maria.Port))
		e.Setenv("PASSWORD", password)
		return setup(e)
	}
	testscript.Run(t, p)
}
