package sqltool

import (
	"slices"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/executor/sqltool/mariatest"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

// TestInsertedText: the text of a caller becomes part of a statement that only reads, and
// the database refuses whatever else it says.
func TestInsertedText(t *testing.T) {
	free := `"statement":"{{.sql}}","insert":["sql"]`
	part := func(placeholder string) string {
		return `"statement":"SELECT {{array .columns}} FROM {{ .table }} WHERE n = ` + placeholder + `","insert":["columns","table"],"parameters":[{"name":"n","type":"integer"}]`
	}
	check := func(t *testing.T, b *bench, placeholder string, count func() int) {
		if got := jsonOf(b.must(free, `{"sql":"SELECT n FROM victim ORDER BY n"}`)["rows"]); got != `[{"n":1}]` {
			t.Error(got)
		}
		if got := jsonOf(b.must(part(placeholder), `{"columns":["n","n + 1 AS m"],"table":"victim","n":1}`)["rows"]); got != `[{"m":2,"n":1}]` {
			t.Error(got)
		}
		for _, bad := range []string{"INSERT INTO victim VALUES (2)", "DELETE FROM victim", "DROP TABLE victim", "COMMIT", "BEGIN", "CREATE TABLE fresh (n int)", "UPDATE victim SET n = 2",
			"SELECT 1; DROP TABLE victim", "SELECT 1; COMMIT; DROP TABLE victim", "/*! DROP TABLE victim */", "WITH w AS (SELECT 2) INSERT INTO victim SELECT * FROM w", "", ";", "SELECT '", "SELECT ?, $1", "SET a = 1"} {
			_, err := b.call(t.Context(), free, `{"sql":`+jsonOf(bad)+`}`)
			if e := asErr(err); e == nil || e.Code != toolkeep.UnsafeArgument && e.Code != toolkeep.StatementForbidden && e.Code != toolkeep.QueryFailed {
				t.Errorf("%s: %v", bad, err)
			}
		}
		for _, bad := range []string{`{}`, `{"sql":1}`, `{"sql":["a",1]}`, `{"sql":null}`, `{"sql":` + jsonOf("SELECT '"+strings.Repeat("x", maxText)+"'") + `}`} {
			if e := b.refused(toolkeep.UnsafeArgument, free, bad); !e.NothingSent {
				t.Errorf("%.80s: something was sent", bad)
			}
		}
		for _, bad := range []string{`{"columns":["n"],"table":"victim; DROP TABLE victim","n":1}`, `{"columns":["n"],"table":"victim -- ","n":1}`, `{"columns":["n"],"table":"victim WHERE 1 = ` + placeholder + ` --","n":1}`} {
			_, err := b.call(t.Context(), part(placeholder), bad)
			if err == nil && !strings.Contains(bad, "WHERE") {
				t.Errorf("%s was carried out", bad)
			}
		}
		two := `"statements":[{"statement":"SELECT 1"},{` + free + `}]`
		for _, c := range []struct{ binding, risk, pointer string }{
			{free + write, "high", "/insert"},
			{free, "low", "/risk"},
			{two + write, "high", "/statements/1/insert"},
			{`"statement":"SELECT {{.a}}","insert":["b"]`, "high", "/statement"},
			{`"statement":"SELECT {{.a}}","insert":["a","b"]`, "high", "/insert"},
			{`"statement":"SELECT 1","insert":["b"]`, "high", "/insert"},
			{`"statement":"SELECT 1","insert":[1]`, "high", "/insert"},
		} {
			faults := b.e.Check(b.manifest(c.binding, func(m *toolkeep.Manifest) { m.Risk = c.risk }))
			if !slices.ContainsFunc(faults, func(f toolkeep.Fault) bool { return strings.HasSuffix(f.Pointer, c.pointer) }) {
				t.Errorf("%s, risk %s: %v", c.binding, c.risk, faults)
			}
		}
		if n := count(); n != 1 {
			t.Errorf("there are %d rows", n)
		}
	}
	t.Run("postgres", func(t *testing.T) {
		b, admin := postgresBench(t, pgtest.Start(t), Config{})
		run(t, admin, "CREATE TABLE victim (n int)", "INSERT INTO victim VALUES (1)", "GRANT ALL ON victim TO PUBLIC")
		check(t, b, "$1", func() (n int) {
			if err := admin.QueryRow(t.Context(), "SELECT count(*) FROM victim WHERE n = 1").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		})
		b.connection = strings.Replace(b.connection, "{", `{"superuser":true,`, 1)
		if len(b.e.Check(b.manifest(free))) == 0 {
			t.Error("a superuser's statement passes Check")
		}
	})
	t.Run("mysql", func(t *testing.T) {
		b, admin := mysqlBench(t, mariatest.Start(t), Config{})
		runMySQL(t, admin, "CREATE TABLE victim (n int)", "INSERT INTO victim VALUES (1)")
		check(t, b, "?", func() (n int) {
			if err := admin.QueryRow("SELECT count(*) FROM victim WHERE n = 1").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		})
	})
	t.Run("sqlite", func(t *testing.T) {
		b, admin := sqliteBench(t, Config{})
		runMySQL(t, admin, "CREATE TABLE victim (n int)", "INSERT INTO victim VALUES (1)")
		check(t, b, "?", func() (n int) {
			if err := admin.QueryRow("SELECT count(*) FROM victim WHERE n = 1").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		})
	})
}
