package sqltool

import (
	"context"
	"database/sql"
	"errors"
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
	"github.com/toolkeep/toolkeep/executor/executortest"
	"github.com/toolkeep/toolkeep/executor/sqltool/mariatest"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

// promptly bounds a test's waits.
const promptly = time.Minute

// bench is one database and a binding's connection to it.
type bench struct {
	t          testing.TB
	e          *Executor
	database   string // of the binding
	connection string // JSON
	allow      []toolkeep.HostPort
	auth       []toolkeep.AuthSpec
	creds      []toolkeep.Credential
}

// tool returns a tool; rest are binding members besides database and connection.
func (b *bench) tool(rest string, edit ...func(*toolkeep.Manifest)) *toolkeep.Tool {
	b.t.Helper()
	return executortest.Tool(b.manifest(rest, edit...))
}

func (b *bench) manifest(rest string, edit ...func(*toolkeep.Manifest)) *toolkeep.Manifest {
	m := &toolkeep.Manifest{
		SchemaVersion: 1, ToolID: "test.tool", Version: "1.0.0", Description: "A tool of the tests.",
		ParametersSchema: []byte(`{"type":"object"}`), SideEffects: "reads", Auth: b.auth,
		Execution: toolkeep.ExecutionSpec{Kind: "sql",
			Binding: fmt.Appendf(nil, `{"database":%q,"connection":%s,%s}`, b.database, b.connection, rest)},
	}
	m.Permissions = &toolkeep.Permissions{Network: b.allow}
	m.Permissions.Filesystem = append(m.Permissions.Filesystem, struct {
		Path string `json:"path"`
		Mode string `json:"mode,omitempty"`
	}{"/", "rw"})
	if strings.Contains(rest, `"write":true`) {
		m.SideEffects = "writes"
	}
	if strings.Contains(rest, `"insert":`) {
		m.Risk = "high"
	}
	for _, f := range edit {
		f(m)
	}
	return m
}

// query is the binding of a statement with the arguments a, b, …
func query(statement string, params ...string) string {
	list := make([]any, len(params))
	for i, p := range params {
		name, typ, _ := strings.Cut(p, ":")
		entry := map[string]any{"name": name}
		if typ != "" {
			entry["type"] = typ
		}
		list[i] = entry
	}
	return `"statement":` + string(canon.AppendString(nil, statement)) + `,"parameters":` + string(canon.Append(nil, list))
}

const write = `,"write":true`

func (b *bench) execution(tool *toolkeep.Tool, args string) *toolkeep.Execution {
	tree, err := canon.ParseObject([]byte(args), canon.Limits{})
	if err != nil {
		b.t.Fatal(err)
	}
	return &toolkeep.Execution{Tool: tool, Args: tree, Principal: &toolkeep.Principal{Subject: "agent", Tenant: "acme"},
		Credentials: b.creds, MaxBytes: 10 << 20}
}

// call runs a tool.
func (b *bench) call(ctx context.Context, rest, args string) (map[string]any, error) {
	b.t.Helper()
	out, err := b.e.Execute(ctx, b.execution(b.tool(rest), args))
	if err != nil {
		return nil, err
	}
	return out.Value.(map[string]any), nil
}

// must runs a tool that must succeed.
func (b *bench) must(rest, args string) map[string]any {
	b.t.Helper()
	out, err := b.call(b.t.Context(), rest, args)
	if err != nil {
		b.t.Fatalf("%s %s: %v (because of %v)", rest, args, err, toolkeep.AsError(err).Cause)
	}
	return out
}

// value returns the only value of the only row.
func (b *bench) value(rest, args string) any {
	b.t.Helper()
	out := b.must(rest, args)
	rows := out["rows"].([]any)
	if len(rows) != 1 || len(rows[0].(map[string]any)) != 1 {
		b.t.Fatalf("%s: not one value: %s", rest, canon.Append(nil, out))
	}
	for _, v := range rows[0].(map[string]any) {
		return v
	}
	return nil
}

// repairs are SQL expressions of JSON with defects, and of text that is none; texts of JSON
// are given in %s as a literal.
var repairs = []struct {
	literal, want string
	warnings      int
}{
	{`{"a":1,"a":[2]}`, `{"a":[2]}`, 1},
	{`["\ud83d"]`, "[\"\ufffd\"]", 1},
	{`["x\u0000y"]`, "[\"x\ufffdy\"]", 1},
	{`{"a":"\ude00","a":"\ude00"}`, "{\"a\":\"\ufffd\"}", 2},
	{`{"a":"\ud83d\ude00"}`, `{"a":"😀"}`, 0},
}

// repaired holds JSON with defects, as the database gives it, against what the tool answers.
func repaired(b *bench, expression func(literal string) string) {
	b.t.Helper()
	for _, tt := range repairs {
		statement := query("SELECT " + expression("'"+tt.literal+"'") + " AS v")
		out, err := b.e.Execute(b.t.Context(), b.execution(b.tool(statement), "{}"))
		if err != nil {
			b.t.Errorf("%s: %v", tt.literal, err)
			continue
		}
		if got := jsonOf(out.Value.(map[string]any)["rows"]); got != `[{"v":`+tt.want+`}]` || len(out.Warnings) != tt.warnings {
			b.t.Errorf("%s is %s with the warnings %v, want %s and %d", tt.literal, got, out.Warnings, tt.want, tt.warnings)
		}
	}
}

// refused runs a tool that must fail, and returns its error.
func (b *bench) refused(code toolkeep.Code, rest, args string) *toolkeep.Error {
	b.t.Helper()
	out, err := b.call(b.t.Context(), rest, args)
	if err == nil {
		b.t.Errorf("%s %s: it worked, want %s: %s", rest, args, code, canon.Append(nil, out))
		return &toolkeep.Error{}
	}
	e := toolkeep.AsError(err)
	if e.Code != code {
		b.t.Errorf("%s %s: %v (because of %v), want %s", rest, args, e, e.Cause, code)
	}
	return e
}

func jsonOf(v any) string { return string(canon.Append(nil, v)) }

// await polls until ok, as nothing signals events in another process.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	limit := time.NewTimer(promptly)
	defer limit.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-limit.C:
			t.Fatalf("it did not happen: %s", what)
		case <-tick.C:
		}
	}
}

const password = "s3cr/et+v&lue \"x\""

// postgresBench creates a database with a role that may read and write its tables, and
// an administrator's connection.
func postgresBench(t testing.TB, s *pgtest.Server, c Config) (*bench, *pgx.Conn) {
	t.Helper()
	name := s.NewName(t)
	admin, err := pgx.Connect(context.Background(), s.DSN(name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { admin.Close(context.Background()) })
	role := "r_" + name
	run(t, admin, `CREATE ROLE `+role+` LOGIN PASSWORD '`+password+`'`, `GRANT ALL ON SCHEMA public TO `+role)
	c.SocketDirs = append(c.SocketDirs, s.Dir)
	e := New(c)
	t.Cleanup(e.Close)
	return &bench{t: t, e: e, database: "postgres",
		connection: fmt.Sprintf(`{"socket":%q,"port":%d,"database":%q,"user":%q}`, s.Dir, s.Port, name, role)}, admin
}

func run(t testing.TB, conn *pgx.Conn, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := conn.Exec(context.Background(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func mysqlBench(t testing.TB, s *mariatest.Server, c Config) (*bench, *sql.DB) {
	t.Helper()
	name := s.NewDatabase(t)
	admin, err := s.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { admin.Close() })
	role := "r_" + name
	runMySQL(t, admin, "CREATE USER "+role+" IDENTIFIED BY '"+password+"'", "GRANT ALL ON "+name+".* TO "+role)
	c.SocketDirs = append(c.SocketDirs, s.Dir)
	e := New(c)
	t.Cleanup(e.Close)
	basic := toolkeep.AuthSpec{Type: "basic", Secret: "env://X"}
	return &bench{t: t, e: e, database: "mysql", auth: []toolkeep.AuthSpec{basic},
		creds:      []toolkeep.Credential{{Spec: basic, Value: role + ":" + password}},
		connection: fmt.Sprintf(`{"socket":%q,"database":%q}`, s.Socket(), name)}, admin
}

func runMySQL(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func sqliteBench(t testing.TB, c Config) (*bench, *sql.DB) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "tksl")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "data.db")
	admin, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		admin.Close()
		os.RemoveAll(dir)
	})
	if err := admin.Ping(); err != nil {
		t.Fatal(err)
	}
	runMySQL(t, admin, "CREATE TABLE seed (x)")
	c.SQLiteRoots = append(c.SQLiteRoots, dir)
	e := New(c)
	t.Cleanup(e.Close)
	return &bench{t: t, e: e, database: "sqlite", connection: fmt.Sprintf(`{"file":%q}`, file)}, admin
}

// slow returns channels that signal when a statement runs on the server and when it is
// gone; running checks it.
func slow(t testing.TB, running func() bool) (started, stopped chan struct{}) {
	started, stopped = make(chan struct{}, 100), make(chan struct{}, 100)
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		was := false
		for {
			select {
			case <-end:
				return
			case <-tick.C:
			}
			is := running()
			switch {
			case is && !was:
				started <- struct{}{}
			case was && !is:
				stopped <- struct{}{}
			}
			was = is
		}
	}()
	t.Cleanup(func() { close(end); <-done })
	return started, stopped
}

func asErr(err error) *toolkeep.Error {
	var e *toolkeep.Error
	errors.As(err, &e)
	return e
}

// hammer calls from many goroutines and cancels every third call at some point: a late
// cancel must not hit another call, and no response may reach another caller.
func hammer(t *testing.T, b *bench, rest string) {
	tool := b.tool(rest)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 40 {
				n := g*1000 + i
				ctx, cancel := context.WithCancel(t.Context())
				if i%3 == 0 {
					time.AfterFunc(time.Duration(i%7)*time.Millisecond, cancel)
				}
				x := b.execution(tool, fmt.Sprintf(`{"a":%d}`, n))
				out, err := b.e.Execute(ctx, x)
				cancelled := i%3 == 0
				switch e := asErr(err); {
				case err == nil:
					row := out.Value.(map[string]any)["rows"].([]any)[0].(map[string]any)
					if jsonOf(row["v"]) != fmt.Sprint(n) {
						t.Errorf("call %d got %s", n, jsonOf(row))
					}
				case cancelled && e.Code == toolkeep.Cancelled:
				default:
					t.Errorf("call %d: %v (because of %v)", n, err, e.Cause)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if open, idle := b.e.pools.counts(); open != idle {
		t.Errorf("%d sessions are open, %d of them idle", open, idle)
	}
}

// altered changes a table while statements on it are prepared in several sessions.
func altered(t *testing.T, b *bench, do func(string)) {
	t.Helper()
	do("CREATE TABLE thing (a int)")
	do("INSERT INTO thing VALUES (1)")
	for _, rest := range []string{query("SELECT * FROM thing"), query("SELECT * FROM thing") + write} {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { b.must(rest, "{}") })
		}
		wg.Wait()
	}
	do("ALTER TABLE thing ADD b int DEFAULT 2")
	for _, rest := range []string{query("SELECT * FROM thing"), query("SELECT * FROM thing") + write} {
		for range 4 {
			if got := jsonOf(b.must(rest, "{}")["rows"]); got != `[{"a":1,"b":2}]` {
				t.Error(got)
			}
		}
	}
}
