package sqltool

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// TestSQLiteRepairs: JSON with a defect, and text that is none, are given with a warning.
func TestSQLiteRepairs(t *testing.T) {
	b, admin := sqliteBench(t, Config{})
	runMySQL(t, admin, "CREATE TABLE docs (id INTEGER PRIMARY KEY, j JSON, txt TEXT)")
	for _, tt := range repairs {
		runMySQL(t, admin, "INSERT INTO docs (j) VALUES ('"+tt.literal+"')")
	}
	repaired(b, func(literal string) string { return "(SELECT j FROM docs WHERE j = " + literal + ")" })
	out, err := b.e.Execute(t.Context(), b.execution(b.tool(query("SELECT CAST(x'61ff' AS TEXT) AS v")), "{}"))
	if err != nil || jsonOf(out.Value.(map[string]any)["rows"]) != "[{\"v\":\"a\ufffd\"}]" || len(out.Warnings) != 1 {
		t.Errorf("%+v %v", out, err)
	}
}

func TestSQLiteTypes(t *testing.T) {
	b, admin := sqliteBench(t, Config{})
	runMySQL(t, admin, "CREATE TABLE t (d DATE, dt DATETIME, j JSON, bo BOOLEAN)", `INSERT INTO t VALUES ('2026-02-03', '2026-02-03 04:05:06.789', '{"a":[1,9007199254740993]}', 1)`)
	tests := []struct{ expression, want string }{
		{"9223372036854775807", "9223372036854775807"}, {"-9223372036854775808", "-9223372036854775808"}, {"0.1", "0.1"}, {"1e300", "1e+300"},
		{"9e999", `"Infinity"`}, {"-9e999", `"-Infinity"`}, {"x'00ff10'", `"AP8Q"`}, {"NULL", "null"}, {"'ü'", `"ü"`},
		{"(SELECT d FROM t)", `"2026-02-03"`}, {"(SELECT j FROM t)", `{"a":[1,9007199254740993]}`},
	}
	for _, tt := range tests {
		if got := jsonOf(b.value(query("SELECT "+tt.expression), "{}")); got != tt.want && strings.Trim(got, `"`) != strings.ReplaceAll(strings.Trim(tt.want, `"`), `"`, `\"`) {
			t.Errorf("%s is %s, want %s", tt.expression, got, tt.want)
		}
	}
	if got := jsonOf(b.must(query("SELECT d, dt, j, bo FROM t"), "{}")["rows"]); got != `[{"bo":1,"d":"2026-02-03","dt":"2026-02-03 04:05:06.789","j":{"a":[1,9007199254740993]}}]` {
		t.Error(got)
	}
	if got := jsonOf(b.must(query("SELECT 1 AS id, 'x' AS id"), "{}")["rows"]); got != `[{"id":1,"id_2":"x"}]` {
		t.Error(got)
	}
	for _, tt := range []struct{ statement, param, args, want string }{
		{"SELECT ?", "a", `{"a":9223372036854775807}`, "9223372036854775807"}, {"SELECT ?", "a", `{"a":1.5}`, "1.5"}, {"SELECT ?", "a", "{}", "null"},
		{"SELECT ?1 || ?1", "a", `{"a":"x"}`, `"xx"`}, {"SELECT ?", "a:bytes", `{"a":"AP8Q"}`, `"AP8Q"`}, {"SELECT ?->>'$.k'", "a:json", `{"a":{"k":"v"}}`, `"v"`},
		{"SELECT typeof(?)", "a", `{"a":true}`, `"integer"`}, {"SELECT typeof(?)", "a:integer", `{"a":2.0}`, `"integer"`},
	} {
		if got := jsonOf(b.value(query(tt.statement, tt.param), tt.args)); got != tt.want {
			t.Errorf("%s of %s is %s, want %s", tt.statement, tt.args, got, tt.want)
		}
	}
	b.refused(toolkeep.UnsafeArgument, query("SELECT ?", "a:integer"), `{"a":9223372036854775808}`)
	for _, wide := range []string{"9223372036854775808", "-9223372036854775809", "123456789012345678901234567890"} {
		e := b.refused(toolkeep.InputValidationFailed, query("SELECT ?", "a"), `{"a":`+wide+`}`)
		if f, _ := e.Details["errors"].([]toolkeep.Fault); len(f) != 1 || f[0].Pointer != "/a" || !strings.Contains(e.Message, `"a"`) || !e.NothingSent {
			t.Errorf("%s: %v %v", wide, e, f)
		}
		if got := jsonOf(b.value(query("SELECT ?", "a:text"), `{"a":`+wide+`}`)); got != `"`+wide+`"` {
			t.Errorf("%s as text is %s", wide, got)
		}
	}
	if got := jsonOf(b.value(query("SELECT ?", "a:number"), `{"a":9223372036854775808}`)); got != "9.223372036854776e+18" && got != "9223372036854775808" {
		t.Errorf("as a number: %s", got)
	}
}

// TestSQLiteTimes: times arrive as they are stored, whatever stored them and however the
// query is written.
func TestSQLiteTimes(t *testing.T) {
	b, admin := sqliteBench(t, Config{})
	runMySQL(t, admin, "CREATE TABLE t (n INTEGER PRIMARY KEY, d DATE, dt DATETIME, ts TIMESTAMP)")
	for n, text := range []string{"'2026-02-03'", "'2026-02-03 04:05:06'", "'2026-02-03T04:05:06'", "'2026-02-03T04:05:06Z'", "'2026-02-03 04:05:06.7+02:00'", "'2026-02-03 04:05:06.700'",
		"'2026-02-03 04:05:06.7 +0200 CEST'", "1770091506", "1770091506.5", "'soon'", "''", "NULL"} {
		id := fmt.Sprint(n + 1)
		runMySQL(t, admin, "INSERT INTO t VALUES ("+strings.Join([]string{id, text, text, text}, ", ")+")")
		value := strings.ToLower(strings.ReplaceAll(strings.ReplaceAll(text, "'", `"`), "NULL", "null"))
		if strings.HasPrefix(text, "'") {
			value = strings.ReplaceAll(text, "'", `"`)
		} else if strings.HasSuffix(text, ".5") {
			value = "1.7700915065e+09" // the same number
		}
		want := fmt.Sprintf(`[{"d":%s,"dt":%s,"ts":%s}]`, value, value, value)
		for _, from := range []string{"SELECT d, dt, ts FROM t WHERE n = ?", "SELECT d, dt, ts FROM t WHERE n = ?;", "SELECT d, dt, ts FROM t WHERE n = ? -- a comment", "WITH w AS (SELECT * FROM t) SELECT d, dt, ts FROM w WHERE n = ?1",
			"SELECT d, dt, ts FROM t WHERE n = ? UNION ALL SELECT 1, 2, 3 WHERE 0", "SELECT * FROM (SELECT d, dt, ts FROM t WHERE n = ? ORDER BY n LIMIT 1) ORDER BY 1"} {
			for _, mode := range []string{"", write} {
				out := b.must(query(from, "a")+mode, `{"a":`+id+`}`)
				if got := jsonOf(out["rows"]); got != want {
					t.Errorf("%s %s: %s, want %s", from, mode, got, want)
				}
			}
		}
		if text != "NULL" {
			if got := jsonOf(b.value(query("SELECT count(*) FROM t WHERE d = ?1 AND dt = ?1 AND ts = ?1", "a"), `{"a":`+value+`}`)); got != "1" {
				t.Errorf("%s finds %s rows", value, got)
			}
		}
	}
	// Order, names and types stay.
	out := b.must(query(`SELECT n, dt AS "a ""b"" c", dt, dt FROM t WHERE n < 4 ORDER BY n DESC LIMIT 2`), "{}")
	if got := jsonOf(out["rows"]); got != `[{"a \"b\" c":"2026-02-03T04:05:06","dt":"2026-02-03T04:05:06","dt_2":"2026-02-03T04:05:06","n":3},{"a \"b\" c":"2026-02-03 04:05:06","dt":"2026-02-03 04:05:06","dt_2":"2026-02-03 04:05:06","n":2}]` {
		t.Error(got)
	}
	if got := jsonOf(out["columns"]); got != `[{"name":"n","type":"integer"},{"name":"a \"b\" c","type":"datetime"},{"name":"dt","type":"datetime"},{"name":"dt_2","type":"datetime"}]` {
		t.Error(got)
	}
	if got := jsonOf(b.must(query("INSERT INTO t VALUES (?, '2026-02-03', '2026-02-03 04:05:06', '2026-02-03 04:05:06') RETURNING d, dt, ts", "a")+write, `{"a":99}`)["rows"]); got != `[{"d":"2026-02-03","dt":"2026-02-03 04:05:06","ts":"2026-02-03 04:05:06"}]` {
		t.Error(got)
	}
}

// TestSQLiteTimesAltered: a changed table is read as it is now.
func TestSQLiteTimesAltered(t *testing.T) {
	b, admin := sqliteBench(t, Config{})
	runMySQL(t, admin, "CREATE TABLE t (a DATE)", "INSERT INTO t VALUES ('2026-02-03')")
	for _, step := range []struct{ change, want string }{
		{"SELECT 1", `[{"a":"2026-02-03"}]`}, {"ALTER TABLE t ADD b DATETIME DEFAULT '2026-02-03 04:05'", `[{"a":"2026-02-03","b":"2026-02-03 04:05"}]`},
		{"ALTER TABLE t RENAME b TO c", `[{"a":"2026-02-03","c":"2026-02-03 04:05"}]`}, {"ALTER TABLE t DROP c", `[{"a":"2026-02-03"}]`}, {"ALTER TABLE t RENAME a TO x", `[{"x":"2026-02-03"}]`},
	} {
		runMySQL(t, admin, step.change)
		for _, mode := range []string{"", write} {
			if got := jsonOf(b.must(query("SELECT * FROM t")+mode, "{}")["rows"]); got != step.want {
				t.Errorf("after %s: %s, want %s", step.change, got, step.want)
			}
		}
	}
}

func TestSQLiteInjection(t *testing.T) {
	b, admin := sqliteBench(t, Config{})
	runMySQL(t, admin, "CREATE TABLE victim (id int, name text)")
	for _, bad := range injections {
		arg := `{"a":` + string(canon.AppendString(nil, bad)) + `}`
		out := b.must(query("SELECT ?1 AS v, (SELECT count(*) FROM victim WHERE name = ?1 AND id = 1) AS n", "a"), arg)
		if got, want := jsonOf(out["rows"]), `[{"n":0,"v":`+string(canon.AppendString(nil, bad))+`}]`; got != want {
			t.Errorf("%q: %s, want %s", bad, got, want)
		}
		b.must(query("INSERT INTO victim VALUES (2, ?)", "a")+write, arg)
	}
	var n int
	if err := admin.QueryRow("SELECT count(*) FROM victim").Scan(&n); err != nil || n != len(injections) {
		t.Fatal(n, err)
	}
}

func TestSQLiteReadOnly(t *testing.T) {
	b, admin := sqliteBench(t, Config{})
	runMySQL(t, admin, "CREATE TABLE victim (id int)", "INSERT INTO victim VALUES (1)", "CREATE VIRTUAL TABLE words USING fts5(x)",
		"INSERT INTO words VALUES ('one two')", "CREATE VIRTUAL TABLE boxes USING rtree(id, a, b)", "INSERT INTO boxes VALUES (1, 2, 3)")
	var dir string
	if err := admin.QueryRow("SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&dir); err != nil {
		t.Fatal(err)
	}
	dir = filepath.Dir(dir)
	out, in := filepath.Join(dir, "out.db"), filepath.Join(dir, "in.db")
	other, err := sql.Open("sqlite", in)
	if err != nil {
		t.Fatal(err)
	}
	runMySQL(t, other, "CREATE TABLE secret (x)")
	other.Close()
	statements := []string{
		"INSERT INTO victim VALUES (2)", "INSERT INTO victim VALUES (2) RETURNING id", "UPDATE victim SET id = 2", "DELETE FROM victim", "REPLACE INTO victim VALUES (2)",
		"WITH w AS (SELECT 2) INSERT INTO victim SELECT * FROM w", "CREATE TABLE fresh (x)", "CREATE TEMP TABLE fresh (x)", "CREATE TEMP VIEW fresh AS SELECT 1", "DROP TABLE victim",
		"CREATE TEMP TRIGGER tr AFTER INSERT ON victim BEGIN SELECT 1; END", "ALTER TABLE victim ADD y", "ATTACH '" + in + "' AS x", "ATTACH ':memory:' AS x", "ATTACH 'file:" + out + "?mode=rwc' AS x",
		"DETACH main", "VACUUM", "VACUUM INTO '" + out + "'", "REINDEX", "ANALYZE", "PRAGMA query_only = 0", "PRAGMA writable_schema = 1", "PRAGMA journal_mode = DELETE", "PRAGMA user_version = 5",
		"PRAGMA temp_store_directory = '/tmp'", "PRAGMA database_list", "SELECT * FROM pragma_query_only(0)", "SELECT load_extension('x')", "SELECT LOAD_EXTENSION('x', 'y')",
		"BEGIN", "COMMIT", "END", "ROLLBACK", "SAVEPOINT x", "RELEASE x", "INSERT INTO words VALUES ('x')", "INSERT INTO words (words) VALUES ('optimize')",
		"INSERT INTO sqlite_schema VALUES ('table', 'x', 'x', 0, '')", "SELECT writefile('" + out + "', 'x')", "SELECT readfile('/etc/passwd')", "SELECT edit('x')",
	}
	for _, statement := range statements {
		for _, list := range []string{query(statement), `"statements":[{"statement":"SELECT 1"},{"statement":` + string(canon.AppendString(nil, statement)) + `},{"statement":"SELECT 2"}]`} {
			_, err := b.call(t.Context(), list, "{}")
			if e := asErr(err); e == nil || e.Code != toolkeep.StatementForbidden && e.Code != toolkeep.QueryFailed && e.Code != toolkeep.InvalidManifest {
				t.Errorf("%s: %v", statement, err)
			}
		}
	}
	// A writing tool is also confined to its file and its transaction.
	for _, statement := range []string{"ATTACH '" + in + "' AS x", "VACUUM INTO '" + out + "'", "PRAGMA journal_mode = DELETE", "PRAGMA writable_schema = 1", "SELECT load_extension('x')", "COMMIT", "SAVEPOINT x"} {
		_, err := b.call(t.Context(), query(statement)+write, "{}")
		if e := asErr(err); e == nil || e.Code != toolkeep.StatementForbidden && e.Code != toolkeep.QueryFailed {
			t.Errorf("%s in a tool that writes: %v", statement, err)
		}
	}
	// The message says what is forbidden, for reading and writing tools.
	for statement, what := range map[string]string{"COMMIT": "COMMIT", "SAVEPOINT x": "SAVEPOINT", "ATTACH '" + in + "' AS x": "ATTACH", "PRAGMA journal_mode = DELETE": "PRAGMA journal_mode",
		"PRAGMA user_version = 5": "PRAGMA user_version", "SELECT load_extension('x')": "load_extension"} {
		for _, mode := range []string{"", write} {
			e := b.refused(toolkeep.StatementForbidden, query(statement)+mode, "{}")
			if !strings.Contains(e.Message, what) || !strings.Contains(e.Message, "forbidden") || strings.Contains(e.Message, "a tool that reads") {
				t.Errorf("%s%s: %s", statement, mode, e.Message)
			}
		}
	}
	// Two statements are refused at publish; past that check the file is still
	// read-only.
	for _, text := range []string{"SELECT 1; INSERT INTO victim VALUES (2)", "SELECT 1; COMMIT; DROP TABLE victim"} {
		if len(b.e.Check(b.manifest(query(text)))) == 0 {
			t.Errorf("%s passes Check", text)
		}
		bd, faults := parse(b.manifest(query("SELECT 1")))
		if faults != nil {
			t.Fatal(faults)
		}
		s, err := dialSQLite(t.Context(), b.e, bd, "acme")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.begin(t.Context(), bd, time.Minute); err != nil {
			t.Fatal(err)
		}
		if err := s.run(t.Context(), &round{binding: bd, st: &statement{text: text}, out: &sink{total: new(int64), hard: 1 << 20, maxRows: 10, maxBytes: 1000}, sent: new(bool)}); err == nil {
			t.Errorf("%s was carried out", text)
		}
		s.close()
	}
	for _, reads := range []string{"SELECT * FROM words WHERE words MATCH 'two'", "SELECT * FROM boxes WHERE a > 1", "SELECT name FROM pragma_table_info('victim')", "PRAGMA table_info(victim)",
		"SELECT name FROM sqlite_schema", "EXPLAIN QUERY PLAN SELECT * FROM victim", "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r LIMIT 3) SELECT * FROM r"} {
		if len(b.must(query(reads), "{}")["rows"].([]any)) == 0 {
			t.Errorf("%s gives nothing", reads)
		}
	}
	b.must(query("INSERT INTO words VALUES ('three')")+write, "{}")
	b.must(query("INSERT INTO boxes VALUES (2, 3, 4)")+write, "{}")
	if _, err := os.Stat(out); err == nil {
		t.Error("a file was written")
	}
	var n, tables int
	if err := admin.QueryRow("SELECT (SELECT count(*) FROM victim), (SELECT count(*) FROM sqlite_schema WHERE name = 'fresh')").Scan(&n, &tables); err != nil || n != 1 || tables != 0 {
		t.Error(n, tables, err)
	}
}

func TestSQLiteRoots(t *testing.T) {
	b, _ := sqliteBench(t, Config{})
	var file string
	fmt.Sscanf(b.connection, `{"file":%q}`, &file)
	root := filepath.Dir(file)
	outside := filepath.Join(t.TempDir(), "other.db")
	other, err := sql.Open("sqlite", outside)
	if err != nil {
		t.Fatal(err)
	}
	runMySQL(t, other, "CREATE TABLE x (y)")
	other.Close()
	link := filepath.Join(root, "link.db")
	if err := os.Symlink(outside, link); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(root, "folder")
	if err := os.Symlink(filepath.Dir(outside), folder); err != nil {
		t.Fatal(err)
	}
	odd := filepath.Join(root, "odd ?mode=rwc&x=#%41.db")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(odd, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, ok := range map[string]bool{file: true, odd: true, outside: false, link: false, filepath.Join(folder, "other.db"): false,
		filepath.Join(root, "absent.db"): true, root: false, "/etc/passwd": false, "/proc/self/mem": false} {
		one := *b
		one.connection = fmt.Sprintf(`{"file":%q}`, path)
		if faults := one.e.Check(one.manifest(query("SELECT 1"))); (len(faults) == 0) != ok {
			t.Errorf("%s: %v", path, faults)
		}
		_, err := one.call(t.Context(), query("SELECT count(*) FROM seed"), "{}")
		switch {
		case path == file, path == odd:
			if err != nil {
				t.Errorf("%s: %v", path, err)
			}
		case ok:
			if e := asErr(err); e == nil || e.Code != toolkeep.DBConnectionFailed || !e.NothingSent {
				t.Errorf("%s: %v", path, err)
			}
		default:
			if e := asErr(err); e == nil || e.Code != toolkeep.DestinationForbidden {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(root, "absent.db")); err == nil {
		t.Error("a file was made")
	}
	for _, path := range []string{"relative.db", "/a/../b", ":memory:"} {
		one := *b
		one.connection = fmt.Sprintf(`{"file":%q}`, path)
		if len(one.e.Check(one.manifest(query("SELECT 1")))) == 0 {
			t.Errorf("%s passes Check", path)
		}
	}
	garbage := filepath.Join(root, "garbage.db")
	if err := os.WriteFile(garbage, []byte(strings.Repeat("this is no database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	one := *b
	one.connection = fmt.Sprintf(`{"file":%q}`, garbage)
	one.refused(toolkeep.DBConnectionFailed, query("SELECT * FROM seed"), "{}")
}

// TestSQLiteTenants: each tenant has its own folder.
func TestSQLiteTenants(t *testing.T) {
	b, _ := sqliteBench(t, Config{})
	root := filepath.Dir(strings.TrimSuffix(strings.TrimPrefix(b.connection, `{"file":"`), `"}`))
	for _, tenant := range []string{"one", "two"} {
		if err := os.Mkdir(filepath.Join(root, tenant), 0o700); err != nil {
			t.Fatal(err)
		}
		db, err := sql.Open("sqlite", filepath.Join(root, tenant, "x.db"))
		if err != nil {
			t.Fatal(err)
		}
		runMySQL(t, db, "CREATE TABLE mine (x)")
		db.Close()
	}
	e := New(Config{SQLiteRoots: []string{root + "/{tenant}"}})
	defer e.Close()
	one := *b
	one.e, one.connection = e, fmt.Sprintf(`{"file":%q}`, filepath.Join(root, "one", "x.db"))
	if faults := e.Check(one.manifest(query("SELECT 1"))); len(faults) != 0 {
		t.Error(faults)
	}
	for tenant, ok := range map[string]bool{"one": true, "two": false, "": false, "..": false, "two/../one": false, "none": false} {
		x := one.execution(one.tool(query("SELECT * FROM mine")), "{}")
		x.Principal = &toolkeep.Principal{Tenant: tenant}
		if _, err := e.Execute(t.Context(), x); (err == nil) != ok || err != nil && asErr(err).Code != toolkeep.DestinationForbidden {
			t.Errorf("tenant %q: %v", tenant, err)
		}
	}
	// The file must be listed under permissions.filesystem, with rw for a writing tool.
	for _, edit := range []func(*toolkeep.Manifest){
		func(m *toolkeep.Manifest) { m.Permissions = nil },
		func(m *toolkeep.Manifest) { m.Permissions.Filesystem[0].Path = "/elsewhere" },
		func(m *toolkeep.Manifest) { m.Permissions.Filesystem[0].Mode = "ro" },
	} {
		if faults := e.Check(one.manifest(query("SELECT 1")+write, edit)); len(faults) != 1 || faults[0].Pointer != "/permissions/filesystem" {
			t.Errorf("%+v", faults)
		}
	}
}

func TestSQLiteWrite(t *testing.T) {
	b, admin := sqliteBench(t, Config{})
	runMySQL(t, admin, "CREATE TABLE account (id INTEGER PRIMARY KEY, amount int CHECK (amount >= 0))", "INSERT INTO account VALUES (1, 10), (2, 0)")
	out := b.must(query("INSERT INTO account (amount) VALUES (?)", "a")+write, `{"a":5}`)
	if jsonOf(out["rows_affected"]) != "1" || jsonOf(out["last_insert_id"]) != "3" {
		t.Error(jsonOf(out))
	}
	for statement, want := range map[string]string{
		"UPDATE account SET amount = amount":                                     `3 null`,
		"CREATE TABLE other (id INTEGER PRIMARY KEY, n int)":                     `0 null`,
		"INSERT OR IGNORE INTO account VALUES (3, 1)":                            `0 null`,
		"INSERT INTO account VALUES (3, 5) ON CONFLICT DO UPDATE SET amount = 5": `1 null`,
	} {
		out := b.must(query(statement)+write, `{}`)
		if got := jsonOf(out["rows_affected"]) + " " + jsonOf(out["last_insert_id"]); got != want {
			t.Errorf("%s: %s, want %s", statement, got, want)
		}
	}
	// RETURNING also returns rows; a query changes none, whatever ran before it.
	out = b.must(query("INSERT INTO account (amount) VALUES (1), (2), (3) RETURNING id")+`,"max_rows":2`+write, `{}`)
	if jsonOf(out["row_count"]) != "2" || out["truncated"] != true || jsonOf(out["rows_affected"]) != "3" {
		t.Error(jsonOf(out))
	}
	out = b.must(query("DELETE FROM account WHERE id > 3 RETURNING id")+write, `{}`)
	if jsonOf(out["row_count"]) != "3" || jsonOf(out["rows_affected"]) != "3" || out["last_insert_id"] != nil {
		t.Error(jsonOf(out))
	}
	if out = b.must(query("SELECT id FROM account")+write, `{}`); out["rows_affected"] != nil {
		t.Error(jsonOf(out))
	}
	// The same id as in the previous call.
	for _, table := range []string{"other", "account"} {
		runMySQL(t, admin, "DELETE FROM "+table+" WHERE id = 7")
		out := b.must(query("INSERT INTO "+table+" VALUES (7, 1)")+write, `{}`)
		if jsonOf(out["last_insert_id"]) != "7" {
			t.Errorf("%s: %s", table, jsonOf(out))
		}
	}
	runMySQL(t, admin, "DELETE FROM account WHERE id = 7")
	move := `"statements":[
		{"statement":"UPDATE account SET amount = amount + ? WHERE id = 2","parameters":[{"name":"n"}]},
		{"statement":"UPDATE account SET amount = amount - ? WHERE id = 1","parameters":[{"name":"n"}]},
		{"statement":"SELECT id, amount FROM account WHERE id < 3 ORDER BY id"}]` + write
	if got := jsonOf(b.must(move, `{"n":4}`)["rows"]); got != `[{"amount":6,"id":1},{"amount":4,"id":2}]` {
		t.Error(got)
	}
	b.refused(toolkeep.QueryFailed, move, `{"n":7}`)
	all := b.must(move+`,"results":"all"`, `{"n":1}`)["results"].([]any)
	if len(all) != 3 || jsonOf(all[2].(map[string]any)["rows"]) != `[{"amount":5,"id":1},{"amount":5,"id":2}]` {
		t.Error(jsonOf(all))
	}
}

func TestSQLiteAltered(t *testing.T) {
	b, admin := sqliteBench(t, Config{})
	altered(t, b, func(s string) { runMySQL(t, admin, s) })
}

func TestSQLiteCaps(t *testing.T) {
	b, _ := sqliteBench(t, Config{})
	out := b.must(query("WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r) SELECT n FROM r"), "{}")
	if len(out["rows"].([]any)) != 1000 || out["truncated"] != true || out["warning"] == nil {
		t.Errorf("%d rows, truncated %v", len(out["rows"].([]any)), out["truncated"])
	}
	b.refused(toolkeep.QueryFailed, query("SELECT zeroblob(1000000000)"), "{}") // over sqliteLength
	b.refused(toolkeep.ResultTooLarge, query("SELECT hex(zeroblob(10000000))")+`,"max_bytes":50000000`, "{}")
}

// TestSQLiteBusy: another writer holds the file.
func TestSQLiteBusy(t *testing.T) {
	b, admin := sqliteBench(t, Config{})
	holder, err := admin.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	if _, err := holder.ExecContext(t.Context(), "BEGIN EXCLUSIVE"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := b.call(ctx, query("INSERT INTO seed VALUES (1)")+write, "{}")
		done <- err
	}()
	var held error
	select {
	case held = <-done:
		if e := asErr(held); e == nil || e.Code != toolkeep.DBDeadlock || !e.NothingSent || !e.Retryable {
			t.Errorf("%v", held)
		}
	case <-time.After(promptly):
		t.Fatal("the call waits for the lock without end")
	}
	cancel()
	if _, err := holder.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { b.must(query("INSERT INTO seed VALUES (1)")+write, "{}") })
	}
	wg.Wait()
	if got := jsonOf(b.value(query("SELECT count(*) FROM seed"), "{}")); got != "8" {
		t.Error(got)
	}
}

func TestConfigFolders(t *testing.T) {
	for folder, ok := range map[string]bool{"/srv/db": true, "/srv/{tenant}/db": true, "/srv/x{tenant}": true,
		"": false, "x": false, "{tenant}": false, "/srv/../x": false, "/srv/{tenat}": false, "/srv/{tenant": false, "/a\x00": false} {
		for setting, c := range map[string]Config{"sql.sqlite_roots": {SQLiteRoots: []string{"/ok", folder}}, "sql.socket_dirs": {SocketDirs: []string{folder}}} {
			err := c.Validate()
			if ok != (err == nil) {
				t.Errorf("%s %q: %v", setting, folder, err)
			} else if e := asErr(err); err != nil && (e == nil || e.Code != toolkeep.InvalidManifest || !strings.Contains(e.Message, setting)) {
				t.Errorf("%s %q: %v", setting, folder, err)
			}
		}
	}
}
