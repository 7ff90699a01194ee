package sqltool

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/executor/executortest"
	"github.com/toolkeep/toolkeep/executor/sqltool/mariatest"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

// secretCase also passes the secret as an argument, so that the database repeats it.
func secretCase(b *bench, name, rest string, code toolkeep.Code) *executortest.Case {
	spec := toolkeep.AuthSpec{Type: "bearer", Secret: "env://X"}
	creds := b.creds
	if creds == nil {
		creds = []toolkeep.Credential{{Spec: spec, Value: password}}
	}
	return &executortest.Case{Name: name, Tool: b.tool(rest), Code: code, Credentials: creds,
		Args: map[string]any{"a": creds[0].Value}}
}

func testCase(b *bench, name, rest string, code toolkeep.Code, args map[string]any) *executortest.Case {
	if args == nil {
		args = map[string]any{}
	}
	return &executortest.Case{Name: name, Tool: b.tool(rest), Code: code, Args: args, Credentials: b.creds}
}

func bads(b *bench) []executortest.Bad {
	return []executortest.Bad{
		{Name: "no statement", Manifest: b.manifest(`"write":false`), Pointer: "/execution/binding/statement"},
		{Name: "two statements", Manifest: b.manifest(query("SELECT 1; SELECT 2")), Pointer: "/execution/binding/statement"},
		{Name: "placeholders", Manifest: b.manifest(query("SELECT 1", "a")), Pointer: "/execution/binding/parameters"},
		{Name: "unknown field", Manifest: b.manifest(query("SELECT 1") + `,"template":true`), Pointer: "/execution/binding/template"},
		{Name: "writes unsaid", Manifest: b.manifest(query("SELECT 1"), func(m *toolkeep.Manifest) { m.SideEffects = "" }), Pointer: "/side_effects"},
		{Name: "reads unsaid", Manifest: b.manifest(query("SELECT 1")+write, func(m *toolkeep.Manifest) { m.SideEffects = "reads" }), Pointer: "/side_effects"},
		{Name: "API key", Manifest: b.manifest(query("SELECT 1"), func(m *toolkeep.Manifest) { m.Auth = []toolkeep.AuthSpec{{Type: "api_key"}} }), Pointer: "/auth/0/type"},
	}
}

// closed is the same database at a port without a listener.
func closed(b *bench) *bench {
	other := *b
	other.connection = `{"host":"127.0.0.1","port":1,"database":"x","user":"x","tls":"off"}`
	other.allow = []toolkeep.HostPort{{Host: "127.0.0.1"}}
	return &other
}

func shutOut(b *bench) *bench {
	other := closed(b)
	other.allow = nil
	return other
}

const noMalformed = "the protocol's reader is the driver's; nonsense breaks the connection, which is E3601 (TestGarbledAnswers)"

func TestConformancePostgres(t *testing.T) {
	s := pgtest.Start(t)
	executortest.Run(t, func(t *testing.T) executortest.Harness {
		b, admin := postgresBench(t, s, Config{})
		sleeping := testCase(b, "slow", query("SELECT pg_sleep(300)"), "", nil)
		var once sync.Mutex
		sleeping.Started, sleeping.Stopped = slow(t, func() bool {
			once.Lock()
			defer once.Unlock()
			var n int
			err := admin.QueryRow(context.Background(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND query LIKE '%pg_sleep(300)%' AND pid <> pg_backend_pid()").Scan(&n)
			return err == nil && n > 0
		})
		return executortest.Harness{
			Executor: b.e, Kind: "sql", Late: toolkeep.DBTimeout,
			Good: b.manifest(query("SELECT 1 AS one")), Bad: bads(b),
			Works: testCase(b, "works", query("SELECT $1::jsonb AS v, repeat('x', 500) AS w", "body:json"), "",
				map[string]any{"body": map[string]any{"list": []any{"a", nil, true}}}),
			Slow:  sleeping,
			Large: testCase(b, "large", query("SELECT repeat('x', 5000) AS v"), "", nil),
			Unsent: []*executortest.Case{
				testCase(closed(b), "connection refused", query("SELECT 1"), toolkeep.DBConnectionFailed, nil),
				testCase(shutOut(b), "forbidden", query("SELECT 1"), toolkeep.DestinationForbidden, nil),
				testCase(b, "no such table", query("SELECT * FROM nothing"), toolkeep.QueryFailed, nil),
				testCase(b, "no query", query("DO 'BEGIN END'"), toolkeep.StatementForbidden, nil),
			},
			Sent: []*executortest.Case{
				testCase(b, "division", query("SELECT 1/$1::int", "a"), toolkeep.QueryFailed, map[string]any{"a": number(0)}),
			},
			Retryable: []*executortest.Case{
				testCase(closed(b), "connection refused", query("SELECT 1"), toolkeep.DBConnectionFailed, nil),
			},
			Permanent: []*executortest.Case{
				testCase(b, "division", query("SELECT 1/$1::int", "a"), toolkeep.QueryFailed, map[string]any{"a": number(0)}),
				testCase(b, "no query", query("DO 'BEGIN END'"), toolkeep.StatementForbidden, nil),
			},
			Leaky: []*executortest.Case{
				secretCase(b, "the database's message", query("SELECT $1::text::int", "a"), toolkeep.QueryFailed),
				secretCase(closed(b), "connection refused", query("SELECT $1::text", "a"), toolkeep.DBConnectionFailed),
			},
			Told:  []*executortest.Case{secretCase(b, "a value", query("SELECT $1::text AS v", "a"), "")},
			Lacks: map[string]string{"Malformed": noMalformed},
		}
	})
}

func TestConformanceMySQL(t *testing.T) {
	s := mariatest.Start(t)
	executortest.Run(t, func(t *testing.T) executortest.Harness {
		b, admin := mysqlBench(t, s, Config{})
		runMySQL(t, admin, "CREATE FUNCTION boom(x TEXT) RETURNS INT NO SQL BEGIN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = x; RETURN 1; END")
		sleeping := testCase(b, "slow", query("SELECT SLEEP(300)"), "", nil)
		sleeping.Started, sleeping.Stopped = slow(t, func() bool {
			var n int
			err := admin.QueryRow("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE = 'User sleep' AND INFO = 'SELECT SLEEP(300)'").Scan(&n)
			return err == nil && n > 0
		})
		return executortest.Harness{
			Executor: b.e, Kind: "sql", Late: toolkeep.DBTimeout,
			Good: b.manifest(query("SELECT 1 AS one")), Bad: bads(b),
			Works: testCase(b, "works", query("SELECT ? AS v, REPEAT('x', 500) AS w", "body:json"), "",
				map[string]any{"body": map[string]any{"list": []any{"a", nil, true}}}),
			Slow:  sleeping,
			Large: testCase(b, "large", query("SELECT REPEAT('x', 5000) AS v"), "", nil),
			Unsent: []*executortest.Case{
				testCase(closed(b), "connection refused", query("SELECT 1"), toolkeep.DBConnectionFailed, nil),
				testCase(shutOut(b), "forbidden", query("SELECT 1"), toolkeep.DestinationForbidden, nil),
				testCase(b, "no such table", query("SELECT * FROM nothing"), toolkeep.QueryFailed, nil),
				testCase(b, "no query", query("COMMIT"), toolkeep.StatementForbidden, nil),
			},
			Sent: []*executortest.Case{
				testCase(b, "two rows", query("SELECT ? = (SELECT 1 UNION SELECT 2)", "a"), toolkeep.QueryFailed, map[string]any{"a": number(0)}),
			},
			Retryable: []*executortest.Case{
				testCase(closed(b), "connection refused", query("SELECT 1"), toolkeep.DBConnectionFailed, nil),
			},
			Permanent: []*executortest.Case{
				testCase(b, "no such table", query("SELECT * FROM nothing"), toolkeep.QueryFailed, nil),
				testCase(b, "no query", query("COMMIT"), toolkeep.StatementForbidden, nil),
			},
			Leaky: []*executortest.Case{
				secretCase(b, "the database's message", query("SELECT boom(?)", "a"), toolkeep.QueryFailed),
				secretCase(closed(b), "connection refused", query("SELECT ?", "a"), toolkeep.DBConnectionFailed),
			},
			Told:  []*executortest.Case{secretCase(b, "a value", query("SELECT ? AS v", "a"), "")},
			Lacks: map[string]string{"Malformed": noMalformed},
		}
	})
}

func TestConformanceSQLite(t *testing.T) {
	executortest.Run(t, func(t *testing.T) executortest.Harness {
		b, _ := sqliteBench(t, Config{})
		outside := *b
		outside.connection = `{"file":"/etc/passwd"}`
		secretly := func(name, rest string, code toolkeep.Code) *executortest.Case {
			c := testCase(b, name, rest, code, map[string]any{"a": password})
			c.Credentials = []toolkeep.Credential{{Spec: toolkeep.AuthSpec{Type: "none"}, Value: password}}
			return c
		}
		return executortest.Harness{
			Executor: b.e, Kind: "sql", Late: toolkeep.DBTimeout,
			Good: b.manifest(query("SELECT 1 AS one")), Bad: bads(b),
			Works: testCase(b, "works", query("SELECT ? AS v, ? AS w", "body:json", "w"), "",
				map[string]any{"body": map[string]any{"list": []any{"a", nil, true}}, "w": strings.Repeat("x", 500)}),
			Slow:  testCase(b, "slow", query("WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r) SELECT count(*) FROM r"), "", nil),
			Large: testCase(b, "large", query("SELECT printf('%5000d', 1) AS v"), "", nil),
			Unsent: []*executortest.Case{
				testCase(&outside, "forbidden", query("SELECT 1"), toolkeep.DestinationForbidden, nil),
				testCase(b, "no such table", query("SELECT * FROM nothing"), toolkeep.QueryFailed, nil),
				testCase(b, "ATTACH", query("ATTACH 'x' AS y"), toolkeep.StatementForbidden, nil),
			},
			Sent: []*executortest.Case{
				testCase(b, "bad path", query("SELECT json_extract('{}', ?)", "a"), toolkeep.QueryFailed, map[string]any{"a": "["}),
			},
			Permanent: []*executortest.Case{
				testCase(b, "no such table", query("SELECT * FROM nothing"), toolkeep.QueryFailed, nil),
			},
			Leaky: []*executortest.Case{secretly("the database's message", query("SELECT json_extract('{}', ?)", "a"), toolkeep.QueryFailed)},
			Told:  []*executortest.Case{secretly("a value", query("SELECT ? AS v", "a"), "")},
			Lacks: map[string]string{
				"Malformed": "there is no protocol: SQLite reads the file in this process",
				"Retryable": "a file that is locked is tested with two writers (TestSQLiteBusy)",
				"Stopped":   "SQLite runs in this process: when Execute returns, it has stopped",
			},
		}
	})
}
