package sqltool

import (
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/executor/sqltool/mariatest"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

// apart are statements that end the transaction they run in, or may.
var apart = map[dialect][]string{
	postgres: {"COMMIT", "commit work", "/* a */ COMMIT -- b", "END", "ROLLBACK", "ABORT", "BEGIN", "START TRANSACTION", "COMMIT AND CHAIN", "SAVEPOINT a", "RELEASE a", "ROLLBACK TO a", "PREPARE TRANSACTION 'x'", "COMMIT PREPARED 'x'"},
	mysqlDB: {"COMMIT", "# a\ncommit", "ROLLBACK", "BEGIN", "START TRANSACTION", "SAVEPOINT a", "RELEASE SAVEPOINT a", "XA START 'x'", "LOCK TABLES t WRITE", "UNLOCK TABLES", "BEGIN NOT ATOMIC COMMIT; END",
		"CREATE TABLE fresh (n int)", "DROP TABLE IF EXISTS nothing", "ALTER TABLE t ADD y int", "TRUNCATE t", "RENAME TABLE t TO u", "GRANT SELECT ON t TO x", "SET autocommit = 1", "SET @a = 1, autocommit = 1",
		"CALL commits()", "ANALYZE TABLE t", "FLUSH TABLES", "SET STATEMENT max_statement_time = 1 FOR COMMIT", "EXECUTE IMMEDIATE 'COMMIT'", "PREPARE x FROM 'COMMIT'", "IF 1 THEN COMMIT; END IF"},
	sqliteDB: {"COMMIT", "commit;", "END", "ROLLBACK", "BEGIN", "SAVEPOINT a", "RELEASE a", "ROLLBACK TO a"},
}

// TestAllOrNone: a statement that would end the call's transaction is refused when the
// tool is published and before anything of a call is sent; whatever else stands among the
// statements, nothing of them stays when one fails.
func TestAllOrNone(t *testing.T) {
	each := map[dialect]func(t *testing.T) (b *bench, do func(string), count func() int){
		postgres: func(t *testing.T) (*bench, func(string), func() int) {
			b, admin := postgresBench(t, pgtest.Start(t), Config{})
			return b, func(s string) { run(t, admin, s) }, func() (n int) {
				if err := admin.QueryRow(t.Context(), "SELECT count(*) FROM t").Scan(&n); err != nil {
					t.Fatal(err)
				}
				return n
			}
		},
		mysqlDB: func(t *testing.T) (*bench, func(string), func() int) {
			b, admin := mysqlBench(t, mariatest.Start(t), Config{})
			return b, func(s string) { runMySQL(t, admin, s) }, func() (n int) {
				if err := admin.QueryRow("SELECT count(*) FROM t").Scan(&n); err != nil {
					t.Fatal(err)
				}
				return n
			}
		},
		sqliteDB: func(t *testing.T) (*bench, func(string), func() int) {
			b, admin := sqliteBench(t, Config{})
			return b, func(s string) { runMySQL(t, admin, s) }, func() (n int) {
				if err := admin.QueryRow("SELECT count(*) FROM t").Scan(&n); err != nil {
					t.Fatal(err)
				}
				return n
			}
		},
	}
	// Statements that are fine, or that the database refuses itself.
	other := map[dialect][]string{
		postgres: {"SELECT 1", "CREATE TABLE fresh (n int)", "DO 'BEGIN COMMIT; END'", "CALL commits()", "SET ROLE NONE", "VACUUM t", "LOCK TABLE t", "(SELECT 1)", "WITH w AS (SELECT 2) INSERT INTO t SELECT * FROM w", "PREPARE x AS SELECT 1"},
		mysqlDB:  {"SELECT 1", "(SELECT 1)", "SELECT LAST_INSERT_ID() INTO @a", "DO SLEEP(0)", "WITH w AS (SELECT 2) SELECT * FROM w", "REPLACE INTO t VALUES (2)", "SHOW TABLES", "SELECT commit_it()"},
		sqliteDB: {"SELECT 1", "CREATE TABLE fresh (n)", "CREATE TRIGGER tr AFTER INSERT ON t BEGIN SELECT 1; END", "VALUES (1)", "INSERT OR ROLLBACK INTO t VALUES (1)", "REINDEX", "DROP TABLE seed"},
	}
	for d, start := range each {
		t.Run(string(d), func(t *testing.T) {
			b, do, count := start(t)
			do("CREATE TABLE t (n INT PRIMARY KEY)")
			do("INSERT INTO t VALUES (1)")
			switch d {
			case postgres:
				do("GRANT ALL ON t TO PUBLIC")
				do("CREATE PROCEDURE commits() LANGUAGE plpgsql AS 'BEGIN COMMIT; END'")
			case mysqlDB:
				do("CREATE PROCEDURE commits() COMMIT")
			}
			several := func(middle string) string {
				return `"statements":[{"statement":"INSERT INTO t VALUES (5)"},{"statement":` + jsonOf(middle) + `},{"statement":"INSERT INTO t VALUES (1)"}]` + write
			}
			for _, statement := range apart[d] {
				faults := b.e.Check(b.manifest(several(statement)))
				if len(faults) != 1 || faults[0].Rule != "transaction" && faults[0].Rule != "one" {
					t.Errorf("%s: %+v", statement, faults)
				}
				if len(faults) == 1 && faults[0].Rule == "one" {
					continue // the texts of compound statements count as several
				}
				if e := b.refused(toolkeep.StatementForbidden, several(statement), "{}"); !e.NothingSent {
					t.Errorf("%s: something was sent", statement)
				}
			}
			for _, statement := range other[d] {
				if faults := b.e.Check(b.manifest(several(statement))); len(faults) > 0 {
					t.Errorf("%s: %+v", statement, faults)
				}
				if _, err := b.call(t.Context(), several(statement), "{}"); err == nil {
					t.Errorf("%s: the third statement did not fail", statement)
				}
				if n := count(); n != 1 {
					t.Fatalf("after %s there are %d rows", statement, n)
				}
			}
		})
	}
}
