package sqltool

import (
	"context"
	"database/sql"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

// cpu reports this process's CPU time per operation.
func cpu(b *testing.B, f func()) {
	b.Helper()
	b.ReportAllocs()
	f() // connects and prepares
	before := spent(b)
	for b.Loop() {
		f()
	}
	b.ReportMetric(float64(spent(b)-before)/float64(b.N)/1e3, "cpu-µs/op")
}

func spent(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// The same query, one row of five columns by key: through the executor, and directly
// with and without a read-only transaction.
func BenchmarkPostgres(b *testing.B) {
	s := pgtest.Start(b)
	bb, admin := postgresBench(b, s, Config{})
	run(b, admin, "CREATE TABLE item (id int PRIMARY KEY, name text, price numeric, made timestamptz, ok bool)",
		"INSERT INTO item SELECT g, 'item ' || g, g * 1.5, now(), true FROM generate_series(1, 1000) g", "GRANT SELECT ON item TO PUBLIC")
	const text = "SELECT id, name, price, made, ok FROM item WHERE id = $1"
	x := bb.execution(bb.tool(query(text, "id")), `{"id":500}`)
	b.Run("executor", func(b *testing.B) {
		cpu(b, func() {
			if _, err := bb.e.Execute(context.Background(), x); err != nil {
				b.Fatal(err)
			}
		})
	})
	direct := func(b *testing.B, q interface {
		QueryRow(context.Context, string, ...any) pgx.Row
	}) {
		var id int
		var name string
		var price, made any
		var ok bool
		if err := q.QueryRow(context.Background(), text, 500).Scan(&id, &name, &price, &made, &ok); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("direct in a transaction", func(b *testing.B) {
		cpu(b, func() {
			tx, err := admin.BeginTx(context.Background(), pgx.TxOptions{AccessMode: pgx.ReadOnly})
			if err != nil {
				b.Fatal(err)
			}
			direct(b, tx)
			if err := tx.Rollback(context.Background()); err != nil {
				b.Fatal(err)
			}
		})
	})
	b.Run("direct", func(b *testing.B) { cpu(b, func() { direct(b, admin) }) })
}

func BenchmarkSQLite(b *testing.B) {
	bb, admin := sqliteBench(b, Config{})
	runMySQL(b, admin, "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price REAL, made TEXT, ok INT)",
		"WITH RECURSIVE g(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g LIMIT 1000) INSERT INTO item SELECT n, 'item ' || n, n * 1.5, datetime(), 1 FROM g")
	const text = "SELECT id, name, price, made, ok FROM item WHERE id = ?"
	x := bb.execution(bb.tool(query(text, "id")), `{"id":500}`)
	b.Run("executor", func(b *testing.B) {
		cpu(b, func() {
			if _, err := bb.e.Execute(context.Background(), x); err != nil {
				b.Fatal(err)
			}
		})
	})
	direct := func(b *testing.B, q *sql.Stmt) {
		var id, ok int
		var name, made string
		var price float64
		if err := q.QueryRow(500).Scan(&id, &name, &price, &made, &ok); err != nil {
			b.Fatal(err)
		}
	}
	st, err := admin.Prepare(text)
	if err != nil {
		b.Fatal(err)
	}
	defer st.Close()
	b.Run("direct in a transaction", func(b *testing.B) {
		cpu(b, func() {
			tx, err := admin.Begin()
			if err != nil {
				b.Fatal(err)
			}
			own := tx.Stmt(st)
			direct(b, own)
			own.Close()
			if err := tx.Rollback(); err != nil {
				b.Fatal(err)
			}
		})
	})
	b.Run("direct", func(b *testing.B) { cpu(b, func() { direct(b, st) }) })
}
