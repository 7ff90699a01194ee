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
	"github.com/toolkeep/toolkeep/executor/sqltool/mariatest"
)

func TestMySQL(t *testing.T) {
	s := mariatest.Start(t)
	parts := []struct {
		name string
		run  func(*testing.T, *bench, *sql.DB, *mariatest.Server)
	}{
		{"Types", myTypes}, {"Parameters", myParameters}, {"Instants", myInstants}, {"Injection", myInjection}, {"ReadOnly", myReadOnly}, {"Files", myFiles},
		{"Write", myWrite}, {"Transactions", myTransactions}, {"Caps", myCaps}, {"Deadlock", myDeadlock}, {"Cancel", myCancel},
		{"Login", myLogin}, {"Tenants", myTenants},
		{"Altered", func(t *testing.T, b *bench, admin *sql.DB, _ *mariatest.Server) {
			altered(t, b, func(s string) { runMySQL(t, admin, s) })
		}},
		{"Hammer", func(t *testing.T, b *bench, _ *sql.DB, _ *mariatest.Server) {
			hammer(t, b, query("SELECT CAST(? AS SIGNED) AS v, SLEEP(0.002) AS s", "a"))
		}},
		{"Killed", myKilled}, // last: it stops the server
	}
	for _, p := range parts {
		t.Run(p.name, func(t *testing.T) {
			b, admin := mysqlBench(t, s, Config{PerPool: 4, Total: 8})
			p.run(t, b, admin, s)
		})
	}
}

// TestMySQLRepairs: MySQL names the type JSON, which MariaDB does not.
func TestMySQLRepairs(t *testing.T) {
	for _, tt := range repairs {
		out := &sink{}
		if got := jsonOf(myValue([]byte(tt.literal), "JSON", out)); got != tt.want || len(out.repairs.Warnings()) != tt.warnings {
			t.Errorf("%s is %s with %+v, want %s", tt.literal, got, out.repairs, tt.want)
		}
	}
}

func myTypes(t *testing.T, b *bench, admin *sql.DB, _ *mariatest.Server) {
	runMySQL(t, admin, `CREATE TABLE t (u BIGINT UNSIGNED, i BIGINT, d DECIMAL(38,9), f DOUBLE, g FLOAT, b BIT(12), ts TIMESTAMP(3) NULL, dt DATETIME(2),
		da DATE, ti TIME(1), y YEAR, bl VARBINARY(4), tx TEXT, e ENUM('x','y'), s SET('p','q'), j JSON, id UUID, tiny TINYINT(1), n INT)`,
		`SET SESSION sql_mode=''`)
	conn, err := admin.Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, s := range []string{"SET SESSION sql_mode = ''", "SET SESSION time_zone = '+00:00'",
		`INSERT INTO t VALUES (18446744073709551615, -9223372036854775808, 12345678901234567890.123456789, 0.1, 0.1, b'101', '2026-02-03 04:05:06.789',
		'2026-02-03 04:05:06.78', '2026-02-03', '-101:05:06.7', 2026, x'00ff10', 'ü', 'y', 'p,q', '{"a": [1, 9007199254740993]}', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 1, NULL)`,
		`INSERT INTO t (ts, dt, da) VALUES ('0000-00-00 00:00:00', '0000-00-00 00:00:00', '0000-00-00')`} {
		if _, err := conn.ExecContext(context.Background(), s); err != nil {
			t.Fatal(s, err)
		}
	}
	tests := map[string]string{
		"u": "18446744073709551615", "i": "-9223372036854775808", "d": "12345678901234567890.123456789", "f": "0.1", "g": "0.1", "b": "5",
		"ts": `"2026-02-03T04:05:06.789Z"`, "dt": `"2026-02-03T04:05:06.78"`, "da": `"2026-02-03"`, "ti": `"-101:05:06.7"`, "y": "2026",
		"bl": `"AP8Q"`, "tx": `"ü"`, "e": `"y"`, "s": `"p,q"`, "j": `"{\"a\": [1, 9007199254740993]}"`,
		"id": `"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"`, "tiny": "1", "n": "null",
	}
	for column, want := range tests {
		if got := jsonOf(b.value(query("SELECT "+column+" FROM t WHERE u IS NOT NULL"), "{}")); got != want {
			t.Errorf("%s is %s, want %s", column, got, want)
		}
	}
	if got := jsonOf(b.must(query("SELECT ts, dt, da FROM t WHERE u IS NULL"), "{}")["rows"]); got != `[{"da":null,"dt":null,"ts":null}]` {
		t.Errorf("zero dates: %s", got)
	}
	if got := jsonOf(b.must(query("SELECT 1 AS id, 'x' AS id, 2 AS id"), "{}")["rows"]); got != `[{"id":1,"id_2":"x","id_3":2}]` {
		t.Error(got)
	}
}

func myParameters(t *testing.T, b *bench, _ *sql.DB, _ *mariatest.Server) {
	tests := []struct{ statement, param, args, want string }{
		{"SELECT CAST(? AS UNSIGNED)", "a", `{"a":18446744073709551615}`, "18446744073709551615"},
		{"SELECT ? + 0", "a", `{"a":-9223372036854775808}`, "-9223372036854775808"},
		{"SELECT CAST(? AS DECIMAL(20,5))", "a", `{"a":0.10}`, "0.10000"},
		{"SELECT ?", "a", `{"a":"it's \\ \"x\" ? # --"}`, `"it's \\ \"x\" ? # --"`},
		{"SELECT ?", "a", `{}`, "null"},
		{"SELECT ?", "a", `{"a":true}`, "1"},
		{"SELECT ?", "a:text", `{"a":12}`, `"12"`},
		{"SELECT 5 LIMIT ?", "a:integer", `{"a":1.0}`, "5"},
		{"SELECT JSON_VALUE(?, '$.k')", "a:json", `{"a":{"k":"v"}}`, `"v"`},
		{"SELECT HEX(?)", "a:bytes", `{"a":"AP8Q"}`, `"00FF10"`},
	}
	for _, tt := range tests {
		if got := jsonOf(b.value(query(tt.statement, tt.param), tt.args)); got != tt.want {
			t.Errorf("%s of %s is %s, want %s", tt.statement, tt.args, got, tt.want)
		}
	}
	b.refused(toolkeep.UnsafeArgument, query("SELECT ?", "a"), `{"a":[1]}`)
	b.refused(toolkeep.UnsafeArgument, query("SELECT ?", "a:integer"), `{"a":1.5}`)
}

// myInstants: a timestamp parameter is the instant that it names, where it is written,
// compared and read again.
func myInstants(t *testing.T, b *bench, admin *sql.DB, _ *mariatest.Server) {
	runMySQL(t, admin, "CREATE TABLE moments (n INT PRIMARY KEY AUTO_INCREMENT, ts TIMESTAMP(6) NULL, dt DATETIME(6))")
	for in, want := range map[string]string{
		"2026-07-01T12:00:00+02:00": "2026-07-01T10:00:00.000000", "2026-07-01T10:00:00Z": "2026-07-01T10:00:00.000000", "2026-07-01T10:00:00": "2026-07-01T10:00:00.000000",
		"2026-01-01 00:30:00.5+01:00": "2025-12-31T23:30:00.500000", "2026-07-01 10:00": "2026-07-01T10:00:00.000000", "2026-07-01": "2026-07-01T00:00:00.000000",
		"2026-07-01T10:00:00.123456-0330": "2026-07-01T13:30:00.123456", "2026-07-01t10:00:00z": "2026-07-01T10:00:00.000000",
	} {
		id := jsonOf(b.must(query("INSERT INTO moments (ts, dt) VALUES (?, ?)", "a:timestamp", "a:timestamp")+write, `{"a":"`+in+`"}`)["last_insert_id"])
		if got := jsonOf(b.must(query("SELECT ts, dt FROM moments WHERE n = "+id), "{}")["rows"]); got != `[{"dt":"`+want+`","ts":"`+want+`Z"}]` {
			t.Errorf("%s is written as %s", in, got)
		}
		// Every way to write the instant finds the row, and so does what was read.
		for _, arg := range []string{in, want + "Z", want} {
			for _, column := range []string{"ts", "dt"} {
				if got := jsonOf(b.value(query("SELECT count(*) FROM moments WHERE n = "+id+" AND "+column+" = ?", "a:timestamp"), `{"a":"`+arg+`"}`)); got != "1" {
					t.Errorf("%s = %s finds %s rows of %s", column, arg, got, in)
				}
			}
		}
	}
	for _, bad := range []string{"tomorrow", "2026-13-01", "2026-07-01T25:00:00Z", ""} {
		b.refused(toolkeep.UnsafeArgument, query("SELECT ?", "a:timestamp"), `{"a":"`+bad+`"}`)
	}
}

func myInjection(t *testing.T, b *bench, admin *sql.DB, _ *mariatest.Server) {
	runMySQL(t, admin, "CREATE TABLE victim (id int, name varchar(200))", "INSERT INTO victim VALUES (1, 'a')")
	for _, bad := range injections {
		arg := `{"a":` + string(canon.AppendString(nil, bad)) + `}`
		for _, tail := range []string{"", write} {
			out := b.must(query("SELECT ? AS v, (SELECT count(*) FROM victim WHERE name = ?) AS n", "a", "a")+tail, arg)
			if got, want := jsonOf(out["rows"]), `[{"n":0,"v":`+string(canon.AppendString(nil, bad))+`}]`; got != want {
				t.Errorf("%q: %s, want %s", bad, got, want)
			}
		}
		b.must(query("INSERT INTO victim VALUES (2, ?)", "a")+write, arg)
	}
	var n int
	if err := admin.QueryRow("SELECT count(*) FROM victim").Scan(&n); err != nil || n != 1+len(injections) {
		t.Fatal(n, err)
	}
}

func myReadOnly(t *testing.T, b *bench, admin *sql.DB, _ *mariatest.Server) {
	runMySQL(t, admin, "CREATE TABLE victim (id int)", "INSERT INTO victim VALUES (1)", "CREATE SEQUENCE counter",
		"CREATE FUNCTION writes() RETURNS INT BEGIN INSERT INTO victim VALUES (2); RETURN 1; END",
		"CREATE PROCEDURE loose() BEGIN COMMIT; SET SESSION TRANSACTION READ WRITE; INSERT INTO victim VALUES (2); SELECT 1; END",
		"CREATE PROCEDURE chain() BEGIN START TRANSACTION READ WRITE; INSERT INTO victim VALUES (2); COMMIT; SELECT 1; END")
	one := []string{
		"INSERT INTO victim VALUES (2)", "INSERT INTO victim VALUES (2) RETURNING id", "UPDATE victim SET id = 2", "DELETE FROM victim", "REPLACE INTO victim VALUES (2)",
		"SELECT writes()", "SELECT NEXT VALUE FOR counter", "SELECT SETVAL(counter, 100)", "CALL loose()", "CALL chain()", "COMMIT", "ROLLBACK", "BEGIN", "START TRANSACTION", "START TRANSACTION READ WRITE",
		"COMMIT AND CHAIN", "SET TRANSACTION READ WRITE", "SET SESSION TRANSACTION READ WRITE", "SET autocommit = 1", "SET @@session.tx_read_only = 0",
		"CREATE TABLE fresh (x int)", "CREATE TEMPORARY TABLE fresh (x int)", "CREATE TABLE fresh AS SELECT 1", "DROP TABLE victim", "TRUNCATE victim",
		"LOCK TABLES victim WRITE", "DO writes()", "SET STATEMENT tx_read_only = 0 FOR INSERT INTO victim VALUES (2)", "EXECUTE IMMEDIATE 'INSERT INTO victim VALUES (2)'",
		"PREPARE x FROM 'INSERT INTO victim VALUES (2)'", "HANDLER victim OPEN", "ANALYZE INSERT INTO victim VALUES (2)", "KILL 1", "LOAD DATA INFILE '/etc/passwd' INTO TABLE victim",
		"LOAD DATA LOCAL INFILE '/etc/passwd' INTO TABLE victim", "SELECT 1 INTO OUTFILE '/tmp/tkmark'", "SELECT 1 INTO DUMPFILE '/tmp/tkmark'", "BEGIN NOT ATOMIC INSERT INTO victim VALUES (2); END",
		"ALTER TABLE victim ADD y int", "FLUSH TABLES", "OPTIMIZE TABLE victim", "GRANT ALL ON victim TO x", "XA START 'x'", "SAVEPOINT a",
	}
	for _, statement := range one {
		_, err := b.call(t.Context(), query(statement), "{}")
		if e := asErr(err); e == nil || e.Code != toolkeep.StatementForbidden && e.Code != toolkeep.QueryFailed && e.Code != toolkeep.InvalidManifest && e.Code != toolkeep.SecretAccessDenied {
			t.Errorf("%s: %v", statement, err)
		}
	}
	// A plan carries nothing out, and there is none of what is no query.
	planned := map[string]bool{"SELECT": true, "INSERT": true, "UPDATE": true, "DELETE": true, "REPLACE": true}
	for _, statement := range one {
		verb, _, _ := strings.Cut(statement, " ")
		if out, err := b.call(t.Context(), query("EXPLAIN FORMAT=JSON "+statement), "{}"); err == nil && !planned[verb] {
			t.Errorf("the plan of %s: %s", statement, jsonOf(out))
		}
	}
	if out := b.must(query("EXPLAIN FORMAT=JSON SELECT * FROM victim"), "{}"); !strings.Contains(jsonOf(out), "query_block") {
		t.Error(jsonOf(out))
	}
	for _, l := range [][]string{
		{"SELECT 1", "COMMIT", "INSERT INTO victim VALUES (2)"},
		{"SET SESSION TRANSACTION READ WRITE", "START TRANSACTION", "INSERT INTO victim VALUES (2)"},
		{"SELECT @x := 1", "START TRANSACTION READ WRITE", "INSERT INTO victim VALUES (2)"},
	} {
		parts := make([]any, len(l))
		for i, s := range l {
			parts[i] = map[string]any{"statement": s}
		}
		_, err := b.call(t.Context(), `"statements":`+jsonOf(parts), "{}")
		if e := asErr(err); e == nil || e.Code != toolkeep.StatementForbidden {
			t.Errorf("%q: %v", l, err)
		}
	}
	// Comments that MySQL executes are refused at publish, and two statements in one
	// text by the server.
	for _, text := range []string{"SELECT 1; INSERT INTO victim VALUES (2)", "SELECT 1 /*! ; DROP TABLE victim */", "/*M!100000 INSERT INTO victim VALUES (2) */"} {
		if len(b.e.Check(b.manifest(query(text)))) == 0 {
			t.Errorf("%s passes Check", text)
		}
		for _, w := range []bool{false, true} {
			err := mySessionRun(t, b, text, w)
			if err == nil {
				t.Errorf("%s (write %t) was carried out", text, w)
			}
		}
	}
	var n int
	if err := admin.QueryRow("SELECT count(*) FROM victim WHERE id = 1").Scan(&n); err != nil || n != 1 {
		t.Error(n, err)
	}
	if err := admin.QueryRow("SELECT count(*) FROM victim").Scan(&n); err != nil || n != 1 {
		t.Error(n, err)
	}
	var next int
	if err := admin.QueryRow("SELECT NEXT VALUE FOR counter").Scan(&next); err != nil || next != 1 {
		t.Error("the sequence moved:", next, err)
	}
	if err := admin.QueryRow("SELECT count(*) FROM information_schema.TABLES WHERE TABLE_NAME = 'fresh'").Scan(&n); err != nil || n != 0 {
		t.Error(n, err)
	}
}

// mySessionRun passes a text to the server without the binding's checks. A writing text
// that is only a comment does no harm.
func mySessionRun(t *testing.T, b *bench, text string, write bool) error {
	t.Helper()
	bd, faults := parse(b.manifest(query("SELECT 1")))
	if faults != nil {
		t.Fatal(faults)
	}
	user, pass, _ := strings.Cut(b.creds[0].Value, ":")
	s, err := dialMySQL(t.Context(), b.e, bd, &login{user: user, password: pass})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if err := s.begin(t.Context(), bd, time.Minute); err != nil {
		t.Fatal(err)
	}
	return s.run(t.Context(), &round{binding: &binding{dialect: mysqlDB, write: write}, st: &statement{text: text}, out: &sink{total: new(int64), hard: 1 << 20}, sent: new(bool)})
}

// myFiles: with the FILE privilege a query could write files on the server, so such a
// login is refused for a reading tool.
func myFiles(t *testing.T, b *bench, admin *sql.DB, s *mariatest.Server) {
	user, _, _ := strings.Cut(b.creds[0].Value, ":")
	mark := filepath.Join(s.Dir, "mark")
	b.refused(toolkeep.QueryFailed, query("SELECT 1 INTO OUTFILE '"+mark+"'"), "{}")
	runMySQL(t, admin, "GRANT FILE ON *.* TO "+user)
	e := New(Config{SocketDirs: []string{s.Dir}})
	defer e.Close()
	b.e = e
	b.refused(toolkeep.StatementForbidden, query("SELECT 1"), "{}")
	if _, err := os.Stat(mark); err == nil {
		t.Error("a file was written on the server")
	}
	b.must(query("SELECT 1")+write, "{}")
}

func myWrite(t *testing.T, b *bench, admin *sql.DB, _ *mariatest.Server) {
	runMySQL(t, admin, "CREATE TABLE item (id int AUTO_INCREMENT PRIMARY KEY, name varchar(50) UNIQUE)")
	out := b.must(query("INSERT INTO item (name) VALUES (?), ('z')", "a")+write, `{"a":"x"}`)
	if jsonOf(out["rows_affected"]) != "2" || jsonOf(out["last_insert_id"]) != "1" {
		t.Error(jsonOf(out))
	}
	out = b.must(query("UPDATE item SET name = CONCAT(name, '2')")+write, "{}")
	if jsonOf(out["rows_affected"]) != "2" || out["last_insert_id"] != nil {
		t.Error(jsonOf(out))
	}
	out = b.must(query("INSERT INTO item (name) VALUES (?), ('v') RETURNING id", "a")+write, `{"a":"w"}`)
	if jsonOf(out["row_count"]) != "2" || jsonOf(out["rows_affected"]) != "2" {
		t.Error(jsonOf(out))
	}
	out = b.must(query("DELETE FROM item WHERE name IN ('v', 'w') RETURNING name")+write, `{}`)
	if jsonOf(out["rows_affected"]) != "2" {
		t.Error(jsonOf(out))
	}
	if out = b.must(query("SELECT id FROM item")+write, `{}`); out["rows_affected"] != nil {
		t.Error(jsonOf(out))
	}
	e := b.refused(toolkeep.QueryFailed, query("INSERT INTO item (name) VALUES (?)", "a")+write, `{"a":"x2"}`)
	if e.Details["sqlstate"] != "23000" || e.NothingSent {
		t.Errorf("%+v", e)
	}
	var n int
	if err := admin.QueryRow("SELECT count(*) FROM item").Scan(&n); err != nil || n != 2 {
		t.Error(n, err)
	}
}

func myTransactions(t *testing.T, b *bench, admin *sql.DB, _ *mariatest.Server) {
	runMySQL(t, admin, "CREATE TABLE account (id int PRIMARY KEY, amount int CHECK (amount >= 0))", "INSERT INTO account VALUES (1, 10), (2, 0)")
	move := `"statements":[
		{"statement":"UPDATE account SET amount = amount + ? WHERE id = 2","parameters":[{"name":"n","type":"integer"}]},
		{"statement":"UPDATE account SET amount = amount - ? WHERE id = 1","parameters":[{"name":"n","type":"integer"}]},
		{"statement":"SELECT id, amount FROM account ORDER BY id"}],"isolation":"serializable"` + write
	if got := jsonOf(b.must(move, `{"n":4}`)["rows"]); got != `[{"amount":6,"id":1},{"amount":4,"id":2}]` {
		t.Error(got)
	}
	b.refused(toolkeep.QueryFailed, move, `{"n":7}`)
	all := b.must(move+`,"results":"all"`, `{"n":1}`)["results"].([]any)
	if len(all) != 3 || jsonOf(all[2].(map[string]any)["rows"]) != `[{"amount":5,"id":1},{"amount":5,"id":2}]` {
		t.Error(jsonOf(all))
	}
	// What no rollback undoes is told.
	runMySQL(t, admin, "CREATE TABLE old (id int) ENGINE = MyISAM")
	half := `"statements":[{"statement":"INSERT INTO account VALUES (3, 1)"},{"statement":"INSERT INTO %s VALUES (3, 1)"},{"statement":"INSERT INTO account VALUES (1, 1)"}]` + write
	if e := b.refused(toolkeep.QueryFailed, strings.Replace(half, "%s VALUES (3, 1)", "old VALUES (3)", 1), "{}"); !strings.Contains(e.Message, "MyISAM") {
		t.Error(e.Message)
	}
	if e := b.refused(toolkeep.QueryFailed, strings.Replace(half, "%s", "account", 1), "{}"); strings.Contains(e.Message, "MyISAM") {
		t.Error(e.Message)
	}
	var n int
	if err := admin.QueryRow("SELECT count(*) FROM account").Scan(&n); err != nil || n != 2 {
		t.Error(n, err)
	}
}

func myCaps(t *testing.T, b *bench, admin *sql.DB, _ *mariatest.Server) {
	b.must(query("SELECT seq, SLEEP(0.02) AS s FROM seq_1_to_1500")+`,"max_rows":1`, "{}")
	await(t, "the rest of the statement is gone", func() bool {
		var n int
		err := admin.QueryRow("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE 'SELECT seq, SLEEP(0.02)%'").Scan(&n)
		return err == nil && n == 0
	})
	out := b.must(query("SELECT seq FROM seq_1_to_100000000"), "{}")
	if len(out["rows"].([]any)) != 1000 || out["truncated"] != true || out["warning"] == nil {
		t.Errorf("%d rows, truncated %v", len(out["rows"].([]any)), out["truncated"])
	}
	out = b.must(query("SELECT REPEAT('x', 1000) AS v FROM seq_1_to_500")+`,"max_bytes":10000`, "{}")
	if n := len(out["rows"].([]any)); n != 9 || out["truncated"] != true {
		t.Errorf("%d rows of 1 KB within 10,000 bytes", n)
	}
	b.refused(toolkeep.ResultTooLarge, query("SELECT REPEAT('x', 15000000) AS v")+`,"max_bytes":50000000`, "{}")
	b.must(query("SELECT 1"), "{}")
}

func myDeadlock(t *testing.T, b *bench, admin *sql.DB, _ *mariatest.Server) {
	runMySQL(t, admin, "CREATE TABLE item (id int PRIMARY KEY, n int)", "INSERT INTO item VALUES (1, 0), (2, 0)")
	tool := func(first, second int) string {
		return fmt.Sprintf(`"statements":[{"statement":"UPDATE item SET n = n + 1 WHERE id = %d"},{"statement":"SELECT SLEEP(0.05)"},{"statement":"UPDATE item SET n = n + 1 WHERE id = %d"}]`, first, second) + write
	}
	var before, after int
	var name string
	if err := admin.QueryRow("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'").Scan(&name, &before); err != nil {
		t.Fatal(err)
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
	var x, y int
	if err := admin.QueryRow("SELECT (SELECT n FROM item WHERE id = 1), (SELECT n FROM item WHERE id = 2)").Scan(&x, &y); err != nil || x != y || x == 0 {
		t.Error("half of a transaction stands:", x, y, err)
	}
	if err := admin.QueryRow("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'").Scan(&name, &after); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d of 4 transactions stand, the server found %d deadlocks", x, after-before)
	runMySQL(t, admin, "CREATE FUNCTION always() RETURNS INT NO SQL BEGIN SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213; RETURN 1; END")
	if e := b.refused(toolkeep.DBDeadlock, query("SELECT always()"), "{}"); e.Details["tries"] != maxTries || e.NothingSent {
		t.Errorf("%+v", e)
	}
}

func myCancel(t *testing.T, b *bench, admin *sql.DB, s *mariatest.Server) {
	tcp := *b
	tcp.connection = fmt.Sprintf(`{"host":"localhost","port":%d,"tls":"off"}`, s.Port)
	tcp.allow = []toolkeep.HostPort{{Host: "localhost"}}
	running := func() bool {
		var n int
		if err := admin.QueryRow("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE = 'User sleep' AND INFO LIKE 'SELECT SLEEP(299%'").Scan(&n); err != nil {
			t.Error(err)
		}
		return n > 0
	}
	for name, rest := range map[string]string{"read": query("SELECT SLEEP(299)"), "write": query("SELECT SLEEP(299.5)") + write, "tcp": query("SELECT SLEEP(299.25)")} {
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
		await(t, name+": the statement is gone", func() bool { return !running() })
	}
	tool := b.tool(query("SELECT COUNT(*) FROM seq_1_to_1000000000 a, seq_1_to_1000000000 b WHERE a.seq + b.seq < 0"), func(m *toolkeep.Manifest) { m.Execution.TimeoutMS = 50 })
	_, err := b.e.Execute(t.Context(), b.execution(tool, "{}"))
	if e := asErr(err); e == nil || e.Code != toolkeep.DBTimeout || jsonOf(e.Details["errno"]) != "1969" {
		t.Errorf("%v", err)
	}
}

func myLogin(t *testing.T, b *bench, _ *sql.DB, s *mariatest.Server) {
	user, _, _ := strings.Cut(b.creds[0].Value, ":")
	wrong := *b
	wrong.creds = []toolkeep.Credential{{Spec: b.auth[0], Value: user + ":wrong-password"}}
	if e := wrong.refused(toolkeep.SecretAccessDenied, query("SELECT 1"), "{}"); !e.NothingSent || strings.Contains(fmt.Sprintf("%v %v", e, e.Cause), "wrong-password") {
		t.Errorf("%+v", e)
	}
	wrong.creds = []toolkeep.Credential{{Spec: b.auth[0], Value: "no colon"}}
	wrong.refused(toolkeep.SecretAccessDenied, query("SELECT 1"), "{}")
	tcp := *b
	for mode, want := range map[string]toolkeep.Code{"off": "", "verify": toolkeep.DBConnectionFailed} {
		tcp.connection = fmt.Sprintf(`{"host":"localhost","port":%d,"tls":%q}`, s.Port, mode)
		tcp.allow = []toolkeep.HostPort{{Host: "localhost", Port: s.Port}}
		if want == "" {
			tcp.must(query("SELECT 1"), "{}")
		} else if e := tcp.refused(want, query("SELECT 1"), "{}"); e.Details["reason"] != "tls" {
			t.Errorf("%s: %+v (because of %v)", mode, e.Details, e.Cause)
		}
		tcp.allow = nil
		tcp.refused(toolkeep.DestinationForbidden, query("SELECT 1"), "{}")
	}
}

func myTenants(t *testing.T, b *bench, _ *sql.DB, _ *mariatest.Server) {
	id := func(tenant string) string {
		x := b.execution(b.tool(query("SELECT CONNECTION_ID() AS v")), "{}")
		x.Principal = &toolkeep.Principal{Subject: "agent", Tenant: tenant}
		out, err := b.e.Execute(t.Context(), x)
		if err != nil {
			t.Fatal(err)
		}
		return jsonOf(out.Value.(map[string]any)["rows"])
	}
	a := id("one")
	if id("one") != a {
		t.Error("the same tenant gets another session")
	}
	if id("two") == a {
		t.Error("a session is shared between tenants")
	}
}

func myKilled(t *testing.T, b *bench, admin *sql.DB, s *mariatest.Server) {
	var id int
	if err := admin.QueryRow("SELECT 1").Scan(&id); err != nil {
		t.Fatal(err)
	}
	conn := jsonOf(b.value(query("SELECT CONNECTION_ID() AS v"), "{}"))
	runMySQL(t, admin, "KILL "+conn)
	b.must(query("SELECT 1"), "{}") // a session that died while idle does not fail a call
	done := make(chan error, 1)
	go func() {
		_, err := b.call(t.Context(), query("SELECT SLEEP(297)"), "{}")
		done <- err
	}()
	await(t, "the statement runs", func() bool {
		var n int
		err := admin.QueryRow("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE = 'User sleep' AND INFO = 'SELECT SLEEP(297)'").Scan(&n)
		return err == nil && n == 1
	})
	if err := s.Down(); err != nil {
		t.Fatal(err)
	}
	if e := asErr(<-done); e == nil || e.Code != toolkeep.DBConnectionFailed || e.NothingSent || !e.Retryable {
		t.Errorf("%+v", e)
	}
	if e := b.refused(toolkeep.DBConnectionFailed, query("SELECT 1"), "{}"); !e.NothingSent {
		t.Error("NothingSent is not set for a server that is down")
	}
	if err := s.Up(); err != nil {
		t.Fatal(err)
	}
	b.must(query("SELECT 1"), "{}")
}
