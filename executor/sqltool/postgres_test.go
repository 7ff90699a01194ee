package sqltool

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

func TestPostgres(t *testing.T) {
	s := pgtest.Start(t)
	parts := []struct {
		name string
		run  func(*testing.T, *bench, *pgx.Conn, *pgtest.Server)
	}{
		{"Types", pgTypes}, {"Parameters", pgParameters}, {"OwnTypes", pgOwnTypes}, {"Injection", pgInjection}, {"ReadOnly", pgReadOnly},
		{"Superuser", pgSuperuser}, {"Write", pgWrite}, {"Transactions", pgTransactions}, {"Caps", pgCaps},
		{"Deadlock", pgDeadlock}, {"Serialisation", pgSerialisation}, {"Cancel", pgCancel}, {"SessionState", pgSessionState},
		{"Login", pgLogin}, {"Pool", pgPool}, {"Tenants", pgTenants},
		{"Altered", func(t *testing.T, b *bench, admin *pgx.Conn, _ *pgtest.Server) {
			altered(t, b, func(s string) { run(t, admin, s, "GRANT ALL ON thing TO PUBLIC") })
		}},
		{"LeasedLogin", func(t *testing.T, b *bench, _ *pgx.Conn, _ *pgtest.Server) { leasedLogin(t, b) }},
		{"Hammer", func(t *testing.T, b *bench, _ *pgx.Conn, _ *pgtest.Server) {
			hammer(t, b, query("SELECT $1::int AS v, pg_sleep(0.002)", "a"))
		}},
		{"Killed", pgKilled}, // last: it stops the server
	}
	for _, p := range parts {
		t.Run(p.name, func(t *testing.T) {
			b, admin := postgresBench(t, s, Config{PerPool: 4, Total: 8})
			p.run(t, b, admin, s)
		})
	}
}

func pgTypes(t *testing.T, b *bench, admin *pgx.Conn, _ *pgtest.Server) {
	repaired(b, func(literal string) string { return literal + "::json" })
	repaired(b, func(literal string) string { return "(ARRAY[" + literal + "::json])[1]" })
	run(t, admin, "CREATE TYPE mood AS ENUM ('sad', 'ok')", "CREATE TYPE pair AS (a int, b text)")
	tests := []struct{ expression, want string }{
		{"9223372036854775807::int8", "9223372036854775807"},
		{"(-9223372036854775808)::int8", "-9223372036854775808"},
		{"1::int2", "1"},
		{"0.10::numeric", "0.10"},
		{"12345678901234567890.123456789::numeric", "12345678901234567890.123456789"},
		{"'NaN'::numeric", `"NaN"`},
		{"'NaN'::float8", `"NaN"`},
		{"'Infinity'::float8", `"Infinity"`},
		{"'-Infinity'::float4", `"-Infinity"`},
		{"0.1::float8", "0.1"},
		{"1e300::float8", "1e+300"},
		{"true", "true"},
		{"NULL::int", "null"},
		{"'2026-02-03 04:05:06.789+02'::timestamptz", `"2026-02-03T02:05:06.789Z"`},
		{"'infinity'::timestamptz", `"infinity"`},
		{"'0044-03-15 12:00:00+00 BC'::timestamptz", `"0044-03-15 12:00:00+00 BC"`},
		{"'2026-02-03 04:05:06'::timestamp", `"2026-02-03T04:05:06"`},
		{"'2026-02-03'::date", `"2026-02-03"`},
		{"'04:05:06.7'::time", `"04:05:06.7"`},
		{"'1 day 02:03:04'::interval", `"P1DT2H3M4S"`},
		{`'\x00ff10'::bytea`, `"AP8Q"`},
		{`'{"b": [1, 2.50, 9007199254740993], "a": null}'::jsonb`, `{"a":null,"b":[1,2.50,9007199254740993]}`},
		{`'{"a": 1, "a": 2}'::json`, `{"a":2}`}, // with a warning, see repaired
		{"'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid", `"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"`},
		{"ARRAY[1,NULL,3]", "[1,null,3]"},
		{"ARRAY[[1,2],[3,4]]", "[[1,2],[3,4]]"},
		{`ARRAY['a "b"', 'c\d', 'NULL', '', NULL, 'e,f', '{g}']`, `["a \"b\"","c\\d","NULL","",null,"e,f","{g}"]`},
		{"'{}'::int[]", "[]"},
		{"'[0:1]={5,6}'::int[]", "[5,6]"},
		{"ARRAY[true,false]", "[true,false]"},
		{`ARRAY['{"x": 1}']::jsonb[]`, `[{"x":1}]`},
		{"int4range(1,5)", `"[1,5)"`},
		{"'10.0.0.1/8'::inet", `"10.0.0.1/8"`},
		{"'ok'::mood", `"ok"`},
		{"ROW(1,'x')::pair", `"(1,x)"`},
		{"'12.34'::money", `"$12.34"`},
		{"'a'::\"char\"", `"a"`},
		{"repeat('9', 1200)::numeric", `"` + strings.Repeat("9", 1200) + `"`},
	}
	for _, tt := range tests {
		if got := jsonOf(b.value(query("SELECT "+tt.expression+" AS v"), "{}")); got != tt.want {
			t.Errorf("%s is %s, want %s", tt.expression, got, tt.want)
		}
	}
	out := b.must(query("SELECT 1 AS id, 'x' AS id, 2 AS id, 3"), "{}")
	if got := jsonOf(out); got != `{"columns":[{"name":"id","type":"int4"},{"name":"id_2","type":"text"},{"name":"id_3","type":"int4"},{"name":"?column?","type":"int4"}],"row_count":1,"rows":[{"?column?":3,"id":1,"id_2":"x","id_3":2}],"truncated":false}` {
		t.Error(got)
	}
}

// pgOwnTypes: types that the driver does not know have their names, their arrays are
// arrays, and what is read is taken as an argument again.
func pgOwnTypes(t *testing.T, b *bench, admin *pgx.Conn, _ *pgtest.Server) {
	run(t, admin, "CREATE TYPE mood AS ENUM ('sad', 'o,k \"x\"', 'NULL')", "CREATE TYPE pair AS (a int, b text)", "CREATE DOMAIN grade AS smallint", "CREATE DOMAIN grades AS grade[]", "CREATE DOMAIN better AS grade",
		`CREATE SCHEMA "O""x"`, `CREATE TYPE "O""x".mood AS ENUM ('far')`, `GRANT USAGE ON SCHEMA "O""x" TO PUBLIC`, "CREATE TYPE span AS RANGE (subtype = float8)")
	for _, tt := range []struct{ expression, typ, want string }{
		{"'sad'::mood", "mood", `"sad"`},
		{`ARRAY['sad', 'o,k "x"', NULL, 'NULL']::mood[]`, "mood[]", `["sad","o,k \"x\"",null,"NULL"]`},
		{"'{}'::mood[]", "mood[]", "[]"},
		{"ARRAY[['sad'],['sad']]::mood[]", "mood[]", `[["sad"],["sad"]]`},
		{`ARRAY['far']::"O""x".mood[]`, `"O""x".mood[]`, `["far"]`},
		{"ARRAY[1, 2]::grade[]", "grade[]", "[1,2]"},
		{"ARRAY[1, 2]::better[]", "better[]", "[1,2]"},
		{"ARRAY[1, 2]::grades", "grade[]", "[1,2]"},
		{"ARRAY['(1,\"x\")']::pair[]", "pair[]", `["(1,x)"]`},
		{"ARRAY['$1.50', '$2.00']::money[]", "money[]", `["$1.50","$2.00"]`},
		{"ARRAY['<a/>']::xml[]", "xml[]", `["<a/>"]`},
		{"ARRAY['[1,2)']::span[]", "span[]", `["[1,2)"]`},
		{"ARRAY['a b']::tsvector[]", "tsvector[]", `["'a' 'b'"]`},
		{"ARRAY['(1,1),(0,0)', '(2,2),(1,1)']::box[]", "box[]", `["(1,1),(0,0)","(2,2),(1,1)"]`},
		{"'1 2'::int2vector", "int2vector", `"1 2"`},
		{"ARRAY['2026-01-02 03:04:05Z']::timestamptz[]", "timestamptz[]", `["2026-01-02T03:04:05Z"]`},
	} {
		out := b.must(query("SELECT "+tt.expression+" AS v"), "{}")
		if got := jsonOf(out["rows"]); got != `[{"v":`+tt.want+`}]` {
			t.Errorf("%s is %s, want %s", tt.expression, got, tt.want)
		}
		if got := out["columns"].([]any)[0].(map[string]any)["type"]; got != tt.typ {
			t.Errorf("%s has the type %v, want %s", tt.expression, got, tt.typ)
		}
		if tt.typ == "int2vector" {
			continue
		}
		typ := tt.typ
		if strings.HasSuffix(tt.expression, "grades") {
			typ = "grades"
		}
		for _, mode := range []string{"", write} {
			if got := jsonOf(b.value(query("SELECT $1::"+typ+" AS v", "a")+mode, `{"a":`+tt.want+`}`)); got != tt.want {
				t.Errorf("$1::%s of %s is %s", typ, tt.want, got)
			}
		}
	}
	b.refused(toolkeep.UnsafeArgument, query("SELECT $1::mood", "a"), `{"a":["sad"]}`)
	b.refused(toolkeep.UnsafeArgument, query("SELECT $1::grade[]", "a"), `{"a":[1.5]}`)
	b.refused(toolkeep.UnsafeArgument, query("SELECT $1::grade[]", "a"), `{"a":[99999]}`)
}

func pgParameters(t *testing.T, b *bench, admin *pgx.Conn, _ *pgtest.Server) {
	run(t, admin, "CREATE TYPE mood AS ENUM ('sad', 'ok')")
	tests := []struct{ statement, param, args, want string }{
		{"SELECT $1::int8", "a", `{"a":9223372036854775807}`, "9223372036854775807"},
		{"SELECT $1::int4", "a", `{"a":1.0}`, "1"},
		{"SELECT $1::numeric", "a", `{"a":0.10}`, "0.10"},
		{"SELECT $1 + 1", "a:integer", `{"a":41}`, "42"},
		{"SELECT $1::text", "a", `{"a":"it's \\ \"x\" $1; --"}`, `"it's \\ \"x\" $1; --"`},
		{"SELECT $1::text", "a", `{}`, "null"},
		{"SELECT $1::text", "a", `{"a":null}`, "null"},
		{"SELECT $1::bool", "a", `{"a":true}`, "true"},
		{"SELECT 2 = ANY($1::int[])", "a", `{"a":[1,2]}`, "true"},
		{"SELECT 'b' = ANY($1)", "a:text[]", `{"a":["a","b"]}`, "true"},
		{"SELECT $1::text[]", "a", `{"a":["x \"y\"","c\\d",null,"NULL","{,}"]}`, `["x \"y\"","c\\d",null,"NULL","{,}"]`},
		{"SELECT $1::int[]", "a", `{"a":[[1,2],[3,4]]}`, "[[1,2],[3,4]]"},
		{"SELECT $1::mood[]::text[]", "a", `{"a":["ok"]}`, `["ok"]`},
		{"SELECT $1::jsonb", "a", `{"a":{"k":[1,"x"]}}`, `{"k":[1,"x"]}`},
		{"SELECT $1::jsonb", "a", `{"a":"text"}`, `"text"`},
		{"SELECT $1::jsonb[]", "a", `{"a":[[1],{"k":2}]}`, `[[1],{"k":2}]`},
		{"SELECT $1::bytea", "a", `{"a":"AP8Q"}`, `"AP8Q"`},
		{"SELECT $1::mood::text", "a", `{"a":"sad"}`, `"sad"`},
		{"SELECT $1::timestamptz", "a", `{"a":"2026-01-01T00:00:00+01:00"}`, `"2025-12-31T23:00:00Z"`},
		{"SELECT $1::timestamp", "a", `{"a":"2026-01-01T00:00:00.5+01:00"}`, `"2025-12-31T23:00:00.5"`},
		{"SELECT $1::timestamp", "a", `{"a":"2026-01-01 00:00:00"}`, `"2026-01-01T00:00:00"`},
		{"SELECT $1::timestamp", "a", `{"a":"infinity"}`, `"infinity"`},
		{"SELECT $1::timestamp[]", "a", `{"a":["2026-01-01T00:00:00+01:00"]}`, `["2025-12-31T23:00:00"]`},
		{"SELECT $1", "a:uuid", `{"a":"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"}`, `"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"`},
	}
	for _, tt := range tests {
		if got := jsonOf(b.value(query(tt.statement, tt.param), tt.args)); got != tt.want {
			t.Errorf("%s of %s is %s, want %s", tt.statement, tt.args, got, tt.want)
		}
	}
	for _, tt := range []struct{ statement, args string }{
		{"SELECT $1::int", `{"a":1.5}`}, {"SELECT $1::int", `{"a":[1]}`}, {"SELECT $1::text", `{"a":{}}`},
		{"SELECT $1::bytea", `{"a":"***"}`}, {"SELECT $1::int[]", `{"a":[[[[[[[1]]]]]]]}`},
	} {
		if e := b.refused(toolkeep.UnsafeArgument, query(tt.statement, "a"), tt.args); !e.NothingSent {
			t.Errorf("%s of %s: NothingSent is not set", tt.statement, tt.args)
		}
	}
	def := `"statement":"SELECT $1::int + $2::int","parameters":[{"name":"a","default":40},{"name":"b","arg":"c"}]`
	if got := jsonOf(b.value(def, `{"c":2}`)); got != "42" {
		t.Errorf("with a default: %s", got)
	}
	like := `"statement":"SELECT count(*)::int AS n FROM (VALUES ('50% off'), ('50 off'), ('a_b'), ('axb'), ('a!b')) t(x) WHERE x LIKE $1 ESCAPE '!'","parameters":[{"name":"a","like":"contains"}]`
	for arg, want := range map[string]string{"50%": "1", "a_b": "1", "a!b": "1", "": "5", "%": "1", "50": "2"} {
		if got := jsonOf(b.value(like, `{"a":`+string(canon.AppendString(nil, arg))+`}`)); got != want {
			t.Errorf("LIKE %q finds %s, want %s", arg, got, want)
		}
	}
}

// injections are arguments that would do harm as part of a statement's text.
var injections = []string{
	"'; DROP TABLE victim; --", `"; DROP TABLE victim; --`, "1; DELETE FROM victim", "' OR '1'='1", "x' UNION SELECT * FROM victim --",
	"$1", "?", "/* */ ; TRUNCATE victim", `\'; DROP TABLE victim; #`, "$$; DROP TABLE victim; $$", "'||pg_sleep(10)||'", "%' OR 1=1 --",
	"`; DROP TABLE victim", "\u02bc; DROP TABLE victim", "a\nb; DROP TABLE victim",
}

func pgInjection(t *testing.T, b *bench, admin *pgx.Conn, _ *pgtest.Server) {
	run(t, admin, "CREATE TABLE victim (id int, name text)", "INSERT INTO victim VALUES (1, 'a')", "GRANT ALL ON victim TO PUBLIC")
	for _, bad := range injections {
		arg := `{"a":` + string(canon.AppendString(nil, bad)) + `}`
		for _, tail := range []string{"", write} {
			out := b.must(query("SELECT $1::text AS v, (SELECT count(*)::int FROM victim WHERE name = $1) AS n", "a")+tail, arg)
			if got, want := jsonOf(out["rows"]), `[{"n":0,"v":`+string(canon.AppendString(nil, bad))+`}]`; got != want {
				t.Errorf("%q: %s, want %s", bad, got, want)
			}
		}
		b.must(query("INSERT INTO victim VALUES (2, $1)", "a")+write, arg)
	}
	var n int
	if err := admin.QueryRow(t.Context(), "SELECT count(*) FROM victim WHERE name = ANY($1)", injections).Scan(&n); err != nil || n != len(injections) {
		t.Fatal(n, err)
	}
}

// pgReadOnly tries all escapes from a reading tool. Each is refused and changes
// nothing.
func pgReadOnly(t *testing.T, b *bench, admin *pgx.Conn, _ *pgtest.Server) {
	mark := filepath.Join(os.TempDir(), fmt.Sprintf("tkmark%d", os.Getpid()))
	run(t, admin, "CREATE TABLE victim (id int)", "INSERT INTO victim VALUES (1)", "CREATE SEQUENCE counter",
		"GRANT ALL ON ALL TABLES IN SCHEMA public TO PUBLIC", "GRANT ALL ON SEQUENCE counter TO PUBLIC",
		"CREATE FUNCTION writes() RETURNS int LANGUAGE plpgsql AS 'BEGIN INSERT INTO victim VALUES (2); RETURN 1; END'",
		"CREATE FUNCTION definer() RETURNS int LANGUAGE plpgsql SECURITY DEFINER AS 'BEGIN INSERT INTO victim VALUES (2); RETURN 1; END'",
		"CREATE FUNCTION loose() RETURNS int LANGUAGE plpgsql SET transaction_read_only = off AS 'BEGIN INSERT INTO victim VALUES (2); RETURN 1; END'",
		"CREATE FUNCTION setter() RETURNS int LANGUAGE plpgsql AS 'BEGIN SET TRANSACTION READ WRITE; INSERT INTO victim VALUES (2); RETURN 1; END'",
		"CREATE FUNCTION commits() RETURNS int LANGUAGE plpgsql AS 'BEGIN COMMIT; INSERT INTO victim VALUES (2); RETURN 1; END'",
		"CREATE PROCEDURE proc(INOUT x int) LANGUAGE plpgsql AS 'BEGIN COMMIT; INSERT INTO victim VALUES (2); END'",
		"CREATE FUNCTION dynamic(q text) RETURNS int LANGUAGE plpgsql AS 'BEGIN EXECUTE q; RETURN 1; END'")
	one := []string{
		"INSERT INTO victim VALUES (2) RETURNING id", "WITH w AS (INSERT INTO victim VALUES (2) RETURNING id) SELECT * FROM w",
		"UPDATE victim SET id = 2 RETURNING id", "DELETE FROM victim RETURNING id", "INSERT INTO victim VALUES (2)",
		"SELECT writes()", "SELECT definer()", "SELECT loose()", "SELECT setter()", "SELECT nextval('counter')",
		"SELECT set_config('transaction_read_only', 'off', false)", "SELECT set_config('transaction_read_only', 'off', true), writes()",
		"WITH s AS MATERIALIZED (SELECT set_config('transaction_read_only', 'off', true) AS x) SELECT x, writes() FROM s",
		"SET TRANSACTION READ WRITE", "SET transaction_read_only = off", "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
		"COMMIT", "ROLLBACK", "COMMIT AND CHAIN", "BEGIN", "END", "SAVEPOINT a", "PREPARE x AS INSERT INTO victim VALUES (2)",
		"PREPARE TRANSACTION 'x'", "DO 'BEGIN INSERT INTO victim VALUES (2); END'", "CREATE TABLE fresh (x int)", "CREATE TEMP TABLE fresh (x int)",
		"CREATE TABLE fresh AS SELECT 1", "SELECT 1 AS x INTO fresh", "DROP TABLE victim", "TRUNCATE victim", "LOCK TABLE victim", "VACUUM victim",
		"LISTEN x", "NOTIFY x", "COPY victim TO PROGRAM 'touch " + mark + "'", "COPY (SELECT 1) TO '" + mark + "'", "COPY victim FROM PROGRAM 'echo 5'",
		"COPY victim TO STDOUT", "COPY victim FROM STDIN", "CALL proc(1)", "SELECT dynamic('COMMIT')", "SELECT dynamic('INSERT INTO victim VALUES (2)')",
		"SELECT dynamic('SET TRANSACTION READ WRITE')", "EXPLAIN ANALYZE INSERT INTO victim VALUES (2)", "SELECT commits()", "DISCARD ALL",
		"DECLARE c CURSOR FOR SELECT 1", "DEALLOCATE ALL", "RESET ALL", "SELECT setval('counter', 9)", "EXECUTE nothing", "FETCH ALL FROM nothing",
		"SELECT query_to_xml('INSERT INTO victim VALUES (2) RETURNING id', true, true, '')", "TABLE victim FOR UPDATE", "SELECT * FROM victim FOR UPDATE",
	}
	for _, statement := range one {
		_, err := b.call(t.Context(), query(statement), "{}")
		if e := asErr(err); e == nil || e.Code != toolkeep.StatementForbidden && e.Code != toolkeep.QueryFailed {
			t.Errorf("%s: %v", statement, err)
		}
	}
	// Nor in a list of statements, which could prepare for each other.
	lists := [][]string{
		{"COMMIT AND CHAIN", "SET TRANSACTION READ WRITE", "INSERT INTO victim VALUES (2) RETURNING id"},
		{"SELECT 1", "COMMIT", "INSERT INTO victim VALUES (2) RETURNING id"},
		{"SELECT set_config('default_transaction_read_only', 'off', false)", "SELECT writes()"},
		{"SELECT set_config('default_transaction_read_only', 'off', false)", "ROLLBACK", "SELECT writes()"},
		{"SHOW transaction_read_only", "SET TRANSACTION READ WRITE", "SELECT writes()"},
	}
	for _, l := range lists {
		parts := make([]any, len(l))
		for i, s := range l {
			parts[i] = map[string]any{"statement": s}
		}
		_, err := b.call(t.Context(), `"statements":`+jsonOf(parts), "{}")
		if e := asErr(err); e == nil || e.Code != toolkeep.StatementForbidden {
			t.Errorf("%q: %v", l, err)
		}
	}
	// PostgreSQL 15 lets a read-only transaction create a large object; the rollback
	// removes it.
	b.call(t.Context(), query("SELECT lo_create(0)"), "{}")
	// State left in a reading session would affect the next call.
	b.must(query("SELECT set_config('default_transaction_read_only', 'off', false), set_config('search_path', 'evil', false), pg_advisory_lock(7)"), "{}")
	if got := jsonOf(b.value(query("SELECT current_setting('default_transaction_read_only') || current_setting('search_path') AS v"), "{}")); got != `"on\"$user\", public"` {
		t.Errorf("the next call finds %s", got)
	}
	var locks, rows, tables int
	if err := admin.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM pg_largeobject_metadata) + (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'), (SELECT count(*) FROM victim),
		(SELECT count(*) FROM pg_class WHERE relname = 'fresh')`).Scan(&locks, &rows, &tables); err != nil || locks != 0 || rows != 1 || tables != 0 {
		t.Error("after all of it:", locks, rows, tables, err)
	}
	var called bool
	if err := admin.QueryRow(t.Context(), "SELECT is_called FROM counter").Scan(&called); err != nil || called {
		t.Error("the sequence moved", err)
	}
	if _, err := os.Stat(mark); err == nil {
		os.Remove(mark)
		t.Error("a program was run on the server")
	}
	// The server too refuses several statements in one text: safety does not depend on
	// the check at publish.
	for _, text := range []string{"SELECT 1; INSERT INTO victim VALUES (2)", "SELECT 1; COMMIT; DROP TABLE victim"} {
		if faults := b.e.Check(b.manifest(query(text))); len(faults) == 0 {
			t.Errorf("%s passes Check", text)
		}
		m := pgSessionOf(t, b)
		err := m.run(t.Context(), &round{binding: &binding{dialect: postgres}, st: &statement{text: text}, out: &sink{total: new(int64), hard: 1 << 20}, sent: new(bool)})
		if e := classify(err); err == nil || e.Details["sqlstate"] != "42601" {
			t.Errorf("%s: %v", text, err)
		}
		m.close()
	}
}

// pgSessionOf returns a session in its transaction, as in a call.
func pgSessionOf(t *testing.T, b *bench) session {
	t.Helper()
	bd, faults := parse(b.manifest(query("SELECT 1")))
	if faults != nil {
		t.Fatal(faults)
	}
	s, err := dialPostgres(t.Context(), b.e, bd, &login{user: bd.conn.user})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.begin(t.Context(), bd, time.Minute); err != nil {
		t.Fatal(err)
	}
	return s
}

// pgSuperuser: a superuser's functions reach beyond any transaction, so such a login is
// refused unless the binding permits it, and COPY to a program is refused even then.
func pgSuperuser(t *testing.T, b *bench, admin *pgx.Conn, s *pgtest.Server) {
	mark := filepath.Join(s.Dir, "mark")
	plain := b.connection
	for _, how := range []string{"GRANT pg_execute_server_program TO ", "ALTER ROLE "} {
		role := strings.TrimSuffix(plain[strings.Index(plain, `"user":"`)+8:], `"}`)
		if strings.HasPrefix(how, "ALTER") {
			run(t, admin, how+role+" SUPERUSER")
		} else {
			run(t, admin, how+role)
		}
		b.connection = plain
		e := New(Config{SocketDirs: []string{s.Dir}})
		b.e = e
		if err := b.refused(toolkeep.StatementForbidden, query("SELECT 1"), "{}"); !err.NothingSent {
			t.Error("NothingSent is not set")
		}
		b.connection = strings.TrimSuffix(plain, "}") + `,"superuser":true}`
		b.must(query("SELECT 1"), "{}")
		b.refused(toolkeep.StatementForbidden, query("COPY (SELECT 1) TO PROGRAM 'touch "+mark+"'"), "{}")
		b.refused(toolkeep.StatementForbidden, query("COPY (SELECT 1) TO '"+mark+"'"), "{}")
		b.refused(toolkeep.StatementForbidden, query("COPY pg_class FROM PROGRAM 'touch "+mark+"'"), "{}")
		e.Close()
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("a program was run or a file written on the server")
	}
}

func pgWrite(t *testing.T, b *bench, admin *pgx.Conn, _ *pgtest.Server) {
	run(t, admin, "CREATE TABLE item (id serial PRIMARY KEY, name text UNIQUE)", "GRANT ALL ON item, item_id_seq TO PUBLIC")
	if got := jsonOf(b.must(query("INSERT INTO item (name) VALUES ($1)", "a")+write, `{"a":"x"}`)["rows_affected"]); got != "1" {
		t.Error("rows_affected:", got)
	}
	if got := jsonOf(b.must(query("INSERT INTO item (name) VALUES ($1) RETURNING id, name", "a")+write, `{"a":"y"}`)); !strings.Contains(got, `"rows":[{"id":2,"name":"y"}]`) || !strings.Contains(got, `"rows_affected":1`) {
		t.Error(got)
	}
	e := b.refused(toolkeep.QueryFailed, query("INSERT INTO item (name) VALUES ($1)", "a")+write, `{"a":"x"}`)
	if e.Details["sqlstate"] != "23505" || e.NothingSent || e.Retryable {
		t.Errorf("%+v", e)
	}
	b.refused(toolkeep.StatementForbidden, query("COMMIT")+write, "{}")
	for _, statement := range []string{"COPY item FROM STDIN"} {
		tool := b.tool(query(statement)+write, func(m *toolkeep.Manifest) { m.Execution.TimeoutMS = 500 })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if _, err := b.e.Execute(ctx, b.execution(tool, "{}")); err == nil {
			t.Errorf("%s in a tool that writes is carried out", statement)
		}
		cancel()
	}
	var n int
	if err := admin.QueryRow(t.Context(), "SELECT count(*) FROM item").Scan(&n); err != nil || n != 2 {
		t.Error(n, err)
	}
	// More rows than the cap: the write stands, the result is cut.
	out := b.must(query("INSERT INTO item (name) SELECT 'n' || g FROM generate_series(1, 50) g RETURNING id")+`,"max_rows":5`+write, "{}")
	if got := len(out["rows"].([]any)); got != 5 || out["truncated"] != true || jsonOf(out["rows_affected"]) != "50" {
		t.Error(jsonOf(out))
	}
	if err := admin.QueryRow(t.Context(), "SELECT count(*) FROM item").Scan(&n); err != nil || n != 52 {
		t.Error(n, err)
	}
}

func pgTransactions(t *testing.T, b *bench, admin *pgx.Conn, _ *pgtest.Server) {
	run(t, admin, "CREATE TABLE account (id int PRIMARY KEY, amount int CHECK (amount >= 0))", "INSERT INTO account VALUES (1, 10), (2, 0)", "GRANT ALL ON account TO PUBLIC")
	move := `"statements":[
		{"statement":"UPDATE account SET amount = amount + $1 WHERE id = 2","parameters":[{"name":"n","type":"integer"}]},
		{"statement":"UPDATE account SET amount = amount - $1 WHERE id = 1","parameters":[{"name":"n","type":"integer"}]},
		{"statement":"SELECT id, amount FROM account ORDER BY id"}],"isolation":"serializable"` + write
	if got := jsonOf(b.must(move, `{"n":4}`)["rows"]); got != `[{"amount":6,"id":1},{"amount":4,"id":2}]` {
		t.Error(got)
	}
	b.refused(toolkeep.QueryFailed, move, `{"n":7}`) // the second breaks the CHECK, the first is undone
	all := b.must(move+`,"results":"all"`, `{"n":1}`)["results"].([]any)
	if len(all) != 3 || jsonOf(all[0].(map[string]any)["rows_affected"]) != "1" || jsonOf(all[2].(map[string]any)["rows"]) != `[{"amount":5,"id":1},{"amount":5,"id":2}]` {
		t.Error(jsonOf(all))
	}
	if got := b.value(query("SELECT current_setting('transaction_isolation') AS v")+`,"isolation":"repeatable read"`, "{}"); got != "repeatable read" {
		t.Error(got)
	}
}

func pgCaps(t *testing.T, b *bench, admin *pgx.Conn, _ *pgtest.Server) {
	// Dropped rows are not computed: half a minute's worth ends at once.
	b.must(query("SELECT g AS n, pg_sleep(0.02) FROM generate_series(1, 1500) g")+`,"max_rows":1`, "{}")
	await(t, "the rest of the statement is gone", func() bool {
		var n int
		err := admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(0.02)%' AND pid <> pg_backend_pid() AND state <> 'idle'").Scan(&n)
		return err == nil && n == 0
	})
	out := b.must(query("SELECT g AS n FROM generate_series(1, 100000000) g"), "{}")
	if len(out["rows"].([]any)) != 1000 || out["truncated"] != true || out["warning"] == nil {
		t.Errorf("%d rows, truncated %v", len(out["rows"].([]any)), out["truncated"])
	}
	out = b.must(query("SELECT g AS n FROM generate_series(1, 1000) g"), "{}")
	if len(out["rows"].([]any)) != 1000 || out["truncated"] != false || out["warning"] != nil {
		t.Errorf("%d rows, truncated %v", len(out["rows"].([]any)), out["truncated"])
	}
	out = b.must(query("SELECT repeat('x', 1000) AS v FROM generate_series(1, 500) g")+`,"max_bytes":10000`, "{}")
	if n := len(out["rows"].([]any)); n != 9 || out["truncated"] != true {
		t.Errorf("%d rows of 1 KB within 10,000 bytes", n)
	}
	b.refused(toolkeep.ResultTooLarge, query("SELECT repeat('x', 20000) AS v")+`,"max_bytes":10000`, "{}")
	// An oversized value is not buffered.
	b.refused(toolkeep.ResultTooLarge, query("SELECT repeat('x', 100000000) AS v")+`,"max_bytes":50000000`, "{}")
	b.must(query("SELECT 1"), "{}")
}

func pgDeadlock(t *testing.T, b *bench, admin *pgx.Conn, _ *pgtest.Server) {
	run(t, admin, "CREATE TABLE item (id int PRIMARY KEY, n int)", "INSERT INTO item VALUES (1, 0), (2, 0)", "GRANT ALL ON item TO PUBLIC",
		"ALTER SYSTEM SET deadlock_timeout = '20ms'", "SELECT pg_reload_conf()")
	tool := func(first, second int) string {
		return fmt.Sprintf(`"statements":[{"statement":"UPDATE item SET n = n + 1 WHERE id = %d"},{"statement":"SELECT pg_sleep(0.05)"},{"statement":"UPDATE item SET n = n + 1 WHERE id = %d"}]`, first, second) + write
	}
	var wg sync.WaitGroup
	for _, rest := range []string{tool(1, 2), tool(2, 1), tool(1, 2), tool(2, 1)} {
		wg.Go(func() {
			if _, err := b.call(t.Context(), rest, "{}"); err != nil && asErr(err).Code != toolkeep.DBDeadlock {
				t.Errorf("%v (because of %v)", err, asErr(err).Cause)
			}
		})
	}
	wg.Wait()
	var a, c, found int
	if err := admin.QueryRow(t.Context(), "SELECT (SELECT n FROM item WHERE id = 1), (SELECT n FROM item WHERE id = 2), (SELECT deadlocks FROM pg_stat_database WHERE datname = current_database())").Scan(&a, &c, &found); err != nil || a != c || a == 0 {
		t.Error("half of a transaction stands:", a, c, err)
	}
	t.Logf("%d of 4 transactions stand, the server found %d deadlocks", a, found)

	// A permanent deadlock is reported after the retries.
	run(t, admin, "CREATE FUNCTION always() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '40P01'; END $$")
	e := b.refused(toolkeep.DBDeadlock, query("SELECT always()"), "{}")
	if e.Details["tries"] != maxTries || !e.Retryable || e.NothingSent {
		t.Errorf("%+v", e)
	}
}

// pgSerialisation runs two transactions that each read what the other writes.
func pgSerialisation(t *testing.T, b *bench, admin *pgx.Conn, _ *pgtest.Server) {
	run(t, admin, "CREATE TABLE item (id int)", "INSERT INTO item VALUES (1)", "GRANT ALL ON item TO PUBLIC",
		"CREATE SEQUENCE tries", "GRANT ALL ON tries TO PUBLIC",
		"CREATE FUNCTION twice() RETURNS int LANGUAGE plpgsql AS $$ BEGIN IF nextval('tries') < 3 THEN RAISE EXCEPTION 'no' USING ERRCODE = '40001'; END IF; RETURN 1; END $$")
	if got := jsonOf(b.must(query("SELECT twice() AS v")+`,"isolation":"serializable"`+write, "{}")["rows"]); got != `[{"v":1}]` {
		t.Error(got)
	}
	var n int
	if err := admin.QueryRow(t.Context(), "SELECT last_value FROM tries").Scan(&n); err != nil || n != 3 {
		t.Errorf("%d tries, want 3 (%v)", n, err)
	}
}

// pgCancel checks the server's own list: the statement is gone.
func pgCancel(t *testing.T, b *bench, admin *pgx.Conn, s *pgtest.Server) {
	tcp := *b
	tcp.connection = fmt.Sprintf(`{"host":"localhost","port":%d,"tls":"off",%s`, s.Port, b.connection[strings.Index(b.connection, `"database"`):])
	tcp.allow = []toolkeep.HostPort{{Host: "localhost"}}
	running := func() bool {
		var n int
		if err := admin.QueryRow(context.Background(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND query LIKE '%pg_sleep(299)%' AND pid <> pg_backend_pid()").Scan(&n); err != nil {
			t.Error(err)
		}
		return n > 0
	}
	for name, rest := range map[string]string{"read": query("SELECT pg_sleep(299)"), "write": query("SELECT pg_sleep(299)") + write, "tcp": query("SELECT pg_sleep(299)")} {
		b := b
		if name == "tcp" {
			b = &tcp
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := b.call(ctx, rest, "{}")
			done <- err
		}()
		await(t, "the statement runs", running)
		cancel()
		if err := <-done; asErr(err) == nil || asErr(err).Code != toolkeep.Cancelled || asErr(err).NothingSent {
			t.Errorf("%s: %v", name, err)
		}
		if running() {
			t.Errorf("%s: the statement still runs when the call is over", name)
		}
	}
	// The server's own limit ends an uncancelled call: a tool's timeout.
	tool := b.tool(query("SELECT pg_sleep(299)"), func(m *toolkeep.Manifest) { m.Execution.TimeoutMS = 50 })
	_, err := b.e.Execute(t.Context(), b.execution(tool, "{}"))
	if e := asErr(err); e == nil || e.Code != toolkeep.DBTimeout || e.Details["sqlstate"] != "57014" {
		t.Errorf("%v", err)
	}
}

func pgSessionState(t *testing.T, b *bench, admin *pgx.Conn, _ *pgtest.Server) {
	b.e.pools.perKey = 1 // so that both calls use the same session
	b.must(query("SELECT set_config('search_path', 'evil', false), set_config('statement_timeout', '1', false), pg_advisory_lock(1)")+write, "{}")
	b.must(query("CREATE TEMP TABLE victim (x int)")+write, "{}")
	b.must(query("SET TimeZone = 'Asia/Tokyo'")+write, "{}")
	if got := b.value(query("SELECT current_setting('search_path') || ' ' || current_setting('TimeZone') || ' ' || coalesce(to_regclass('pg_temp.victim')::text, 'none') AS v")+write, "{}"); got != `"$user", public UTC none` {
		t.Errorf("the next call finds %q", got)
	}
	var locks, sessions int
	if err := admin.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'), (SELECT count(*) FROM pg_stat_activity WHERE application_name = 'toolkeep' AND datname = current_database())").Scan(&locks, &sessions); err != nil || locks != 0 || sessions != 1 {
		t.Error(locks, sessions, err)
	}
}

func pgLogin(t *testing.T, b *bench, admin *pgx.Conn, s *pgtest.Server) {
	for _, rest := range []string{`"user":"nobody_here"`, `"user":"x","database":"nothing_here"`} {
		other := *b
		other.connection = fmt.Sprintf(`{"socket":%q,"port":%d,"database":"postgres",%s}`, s.Dir, s.Port, rest)
		if strings.Contains(rest, "nothing_here") {
			other.connection = fmt.Sprintf(`{"socket":%q,"port":%d,"user":"postgres","database":"nothing_here"}`, s.Dir, s.Port)
		}
		_, err := other.call(t.Context(), query("SELECT 1"), "{}")
		e := asErr(err)
		if e == nil || e.Code != toolkeep.SecretAccessDenied && e.Code != toolkeep.DBConnectionFailed || !e.NothingSent {
			t.Errorf("%s: %v", rest, err)
		}
	}
	// TLS with a server that has none, and TCP through the guard.
	tcp := *b
	for mode, want := range map[string]toolkeep.Code{"off": "", "verify": toolkeep.DBConnectionFailed, "require": toolkeep.DBConnectionFailed} {
		user := strings.TrimSuffix(b.connection[strings.Index(b.connection, `"database"`):], "}")
		tcp.connection = fmt.Sprintf(`{"host":"localhost","port":%d,"tls":%q,%s}`, s.Port, mode, user)
		tcp.allow = []toolkeep.HostPort{{Host: "localhost", Port: s.Port}}
		if want == "" {
			tcp.must(query("SELECT 1"), "{}")
		} else if e := tcp.refused(want, query("SELECT 1"), "{}"); e.Details["reason"] != "tls" {
			t.Errorf("%s: %+v", mode, e.Details)
		}
		tcp.allow = nil
		tcp.refused(toolkeep.DestinationForbidden, query("SELECT 1"), "{}")
	}
	outside := *b
	outside.e = New(Config{})
	defer outside.e.Close()
	outside.refused(toolkeep.DestinationForbidden, query("SELECT 1"), "{}")
	if len(outside.e.Check(outside.manifest(query("SELECT 1")))) == 0 {
		t.Error("a socket in no folder of the operator's passes Check")
	}
}

// pgPool fills the pool with waiting calls, and expects an error for one more.
func pgPool(t *testing.T, b *bench, admin *pgx.Conn, s *pgtest.Server) {
	b.e.pools.perKey, b.e.pools.wait = 2, 50*time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { b.call(ctx, query("SELECT pg_sleep(298)"), "{}") })
	}
	await(t, "both run", func() bool {
		var n int
		err := admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(298)%' AND wait_event = 'PgSleep' AND pid <> pg_backend_pid()").Scan(&n)
		return err == nil && n == 2
	})
	e := b.refused(toolkeep.DBConnectionFailed, query("SELECT 1"), "{}")
	if e.Details["reason"] != "busy" || !e.NothingSent || !e.Retryable {
		t.Errorf("%+v", e)
	}
	cancel()
	wg.Wait()
	b.must(query("SELECT 1"), "{}")
	if open, idle := b.e.pools.counts(); open != 1 || idle != 1 {
		t.Errorf("%d open, %d idle", open, idle)
	}
	// Idle connections of other tools are closed when the total is reached.
	b.e.pools.total = 2
	for i := range 4 {
		b.must(query("SELECT 1")+fmt.Sprintf(`,"max_rows":%d`, i+1), "{}") // one key: shared
	}
	other := *b
	other.connection = strings.TrimSuffix(b.connection, "}") + `,"superuser":true}`
	other.must(query("SELECT 1"), "{}")
	third := *b
	third.must(query("SELECT 1")+write, "{}")
	if open, _ := b.e.pools.counts(); open != 2 {
		t.Errorf("%d open, over the cap", open)
	}
	b.e.pools.idleFor = time.Nanosecond
	b.e.pools.sweep()
	if open, _ := b.e.pools.counts(); open != 0 {
		t.Errorf("%d open after all were idle too long", open)
	}
}

// pgTenants: tenants and credentials never share sessions.
func pgTenants(t *testing.T, b *bench, _ *pgx.Conn, _ *pgtest.Server) {
	pid := func(tenant, secret string) string {
		x := b.execution(b.tool(query("SELECT pg_backend_pid() AS v")), "{}")
		x.Principal = &toolkeep.Principal{Subject: "agent", Tenant: tenant}
		x.Credentials = []toolkeep.Credential{{Spec: toolkeep.AuthSpec{Type: "bearer"}, Value: secret}}
		out, err := b.e.Execute(t.Context(), x)
		if err != nil {
			t.Fatal(err)
		}
		return jsonOf(out.Value.(map[string]any)["rows"])
	}
	a := pid("one", "secret-1")
	if pid("one", "secret-1") != a {
		t.Error("the same tenant and credential get another session")
	}
	if pid("two", "secret-1") == a || pid("one", "secret-2") == a {
		t.Error("a session is shared between tenants or credentials")
	}
}

func pgKilled(t *testing.T, b *bench, admin *pgx.Conn, s *pgtest.Server) {
	b.must(query("SELECT 1"), "{}")
	// A session that died while idle does not fail a call.
	run(t, admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'toolkeep'")
	b.must(query("SELECT 1"), "{}")
	done := make(chan error, 1)
	go func() {
		_, err := b.call(t.Context(), query("SELECT pg_sleep(297)"), "{}")
		done <- err
	}()
	await(t, "the statement runs", func() bool {
		var n int
		err := admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(297)%' AND wait_event = 'PgSleep' AND pid <> pg_backend_pid()").Scan(&n)
		return err == nil && n == 1
	})
	if err := s.Down(); err != nil {
		t.Fatal(err)
	}
	if e := asErr(<-done); e == nil || e.Code != toolkeep.DBConnectionFailed || e.NothingSent || !e.Retryable {
		t.Errorf("%v", e)
	}
	if e := b.refused(toolkeep.DBConnectionFailed, query("SELECT 1"), "{}"); !e.NothingSent {
		t.Error("NothingSent is not set for a server that is down")
	}
	if err := s.Up(); err != nil {
		t.Fatal(err)
	}
	b.must(query("SELECT 1"), "{}")
}
