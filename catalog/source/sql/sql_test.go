package sql

import (
	"context"
	stdsql "database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/catalog/source"
	"github.com/toolkeep/toolkeep/executor/sqltool"
	"github.com/toolkeep/toolkeep/executor/sqltool/mariatest"
	"github.com/toolkeep/toolkeep/schema"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const password = "hunter2-s3cret"

// imported is a plan whose tools can be called.
type imported struct {
	t     *testing.T
	plan  *source.Plan
	tools map[string]*toolkeep.Tool
	e     *sqltool.Executor
	creds []toolkeep.Credential
}

func read(t *testing.T, o Options, c sqltool.Config) *imported {
	t.Helper()
	plan, err := Read(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	i := &imported{t: t, plan: plan, tools: make(map[string]*toolkeep.Tool), e: sqltool.New(c)}
	t.Cleanup(i.e.Close)
	for _, p := range plan.Tools {
		if strings.Contains(string(p.Manifest), password) {
			t.Errorf("%s holds the password", p.Name)
		}
		tool, err := catalog.ParseManifest(p.Manifest)
		if err != nil {
			t.Fatalf("%s: %v", p.Name, err)
		}
		if faults := i.e.Check(tool.Manifest); len(faults) > 0 {
			t.Errorf("%s: %+v", p.Name, faults)
		}
		i.tools[p.Name] = tool
	}
	return i
}

// call runs a tool and returns its rows.
func (i *imported) call(name, args string) string {
	i.t.Helper()
	return string(canon.Append(nil, i.value(name, args)["rows"]))
}

// value runs a tool and validates its arguments and its result against their schemas.
func (i *imported) value(name, args string) map[string]any {
	i.t.Helper()
	tool := i.tools[name]
	if tool == nil {
		i.t.Fatalf("no tool %s among %v", name, names(i.plan))
	}
	tree, err := canon.ParseObject([]byte(args), canon.Limits{})
	if err != nil {
		i.t.Fatal(err)
	}
	if s, err := schema.Compile(tool.Manifest.ParametersSchema); err != nil {
		i.t.Fatal(err)
	} else if faults := s.Validate(context.Background(), tree); len(faults) > 0 {
		i.t.Fatalf("%s %s: the arguments are refused: %+v", name, args, faults)
	}
	out, err := i.e.Execute(i.t.Context(), &toolkeep.Execution{Tool: tool, Args: tree, Credentials: i.creds, Principal: &toolkeep.Principal{Tenant: "acme"}})
	if err != nil {
		i.t.Fatalf("%s %s: %v (because of %v)\n%s", name, args, err, toolkeep.AsError(err).Cause, tool.Manifest.Execution.Binding)
	}
	s, err := schema.Compile(tool.Manifest.ResultSchema)
	if err != nil {
		i.t.Fatal(err)
	}
	if faults := s.Validate(context.Background(), out.Value); len(faults) > 0 {
		i.t.Errorf("%s %s: the answer breaks its schema: %+v", name, args, faults)
	}
	return out.Value.(map[string]any)
}

func (i *imported) want(name, args, rows string) {
	i.t.Helper()
	if got := i.call(name, args); got != rows {
		i.t.Errorf("%s %s gives %s, want %s", name, args, got, rows)
	}
}

func names(p *source.Plan) (out []string) {
	for _, t := range p.Tools {
		out = append(out, t.Name)
	}
	return out
}

// again imports a second time and expects no change.
func again(t *testing.T, o Options, i *imported) {
	t.Helper()
	o.Previous = func(id string) *toolkeep.Tool { return i.tools[id] }
	plan, err := Read(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range plan.Tools {
		if p.Change != source.ChangeUnchanged || p.Version != catalog.FirstVersion {
			t.Errorf("%s: %s %s", p.Name, p.Change, p.Version)
		}
	}
}

func TestPostgres(t *testing.T) {
	s := pgtest.Start(t)
	name := s.NewName(t)
	admin, err := pgx.Connect(context.Background(), s.DSN(name))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.Background())
	for _, q := range []string{
		`CREATE ROLE reader LOGIN PASSWORD '` + password + `'`, `CREATE SCHEMA "Sales ""x"""`, `CREATE TYPE state AS ENUM ('new', 'it''s done')`, `CREATE DOMAIN money2 AS numeric(12,2)`,
		`CREATE TABLE orders (id bigint PRIMARY KEY, state state NOT NULL, "Customer; DROP TABLE orders; --" text NOT NULL, total money2, tags text[], doc jsonb, placed timestamptz, bin bytea, uid uuid UNIQUE NOT NULL, note varchar(50), "limit" int)`,
		`COMMENT ON TABLE orders IS 'What customers bought.'`, `COMMENT ON COLUMN orders.id IS 'number of the order'`,
		`CREATE INDEX ON orders (state)`, `CREATE INDEX ON orders (placed)`, `CREATE INDEX ON orders ("limit")`, `CREATE INDEX ON orders (lower(note))`, `CREATE INDEX ON orders (note) WHERE note IS NOT NULL`,
		`INSERT INTO orders VALUES (1, 'new', 'Ann', 12.50, '{a,b}', '{"x": 1}', '2026-01-02 03:04:05Z', '\x00ff', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '50% off', 7),
			(2, 'it''s done', 'Bob', NULL, NULL, NULL, '2026-02-02 00:00:00Z', NULL, 'b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'a_b', NULL)`,
		`CREATE VIEW "Sales ""x""".big AS SELECT id, total FROM orders WHERE total > 10`, `CREATE TABLE bare (a int, b text)`, `INSERT INTO bare VALUES (1, 'x')`,
		`CREATE TABLE hidden (a int)`, `GRANT USAGE ON SCHEMA "Sales ""x""" TO reader`, `GRANT SELECT ON orders, bare, "Sales ""x""".big TO reader`,
	} {
		if _, err := admin.Exec(t.Context(), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	target, err := ParseTarget(fmt.Sprintf("postgres://reader:%s@/%s?host=%s&port=%d", password, name, s.Dir, s.Port))
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Target: target, Tables: []string{"*"}, Namespace: "shop", Secret: "secret://shop-db"}
	i := read(t, o, sqltool.Config{SocketDirs: []string{s.Dir}})
	if got := strings.Join(names(i.plan), " "); got != "shop.list_Sales__x__big shop.list_bare shop.search_bare shop.list_orders shop.get_orders shop.search_orders" {
		t.Error(got)
	}
	if len(i.plan.Refused) != 1 || i.plan.Refused[0].Origin != "public.bare (get)" {
		t.Errorf("%+v", i.plan.Refused)
	}
	i.creds = []toolkeep.Credential{{Spec: toolkeep.AuthSpec{Type: "bearer"}, Value: password}}
	first := `{"Customer; DROP TABLE orders; --":"Ann","doc":{"x":1},"id":1,"limit":7,"note":"50% off","placed":"2026-01-02T03:04:05Z","state":"new","tags":["a","b"],"total":12.50,"uid":"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"}`
	i.want("shop.list_orders", `{"limit":1}`, "["+first+"]")
	i.want("shop.list_orders", `{"state":"new"}`, "["+first+"]")
	i.want("shop.list_orders", `{"placed_from":"2026-01-01T00:00:00Z","placed_to":"2026-02-01T00:00:00+00:00"}`, "["+first+"]")
	i.want("shop.list_orders", `{"limit_2":7}`, "["+first+"]")
	i.want("shop.list_orders", `{"id":3}`, "[]")
	i.want("shop.search_orders", `{"query":"50%"}`, "["+first+"]")
	i.want("shop.search_orders", `{"query":"ANN"}`, "["+first+"]")
	i.want("shop.search_orders", `{"query":"%"}`, "["+first+"]")
	i.want("shop.search_orders", `{"query":"'; DROP TABLE orders; --"}`, "[]")
	if got := i.call("shop.get_orders", `{"id":1}`); !strings.Contains(got, `"bin":"AP8="`) {
		t.Error(got)
	}
	i.want("shop.list_Sales__x__big", `{}`, `[{"id":1,"total":12.50}]`)
	m := i.tools["shop.list_orders"].Manifest
	if !strings.Contains(m.Description, "What customers bought.") || !strings.Contains(string(m.ParametersSchema), `it's done`) || !strings.Contains(string(i.tools["shop.get_orders"].Manifest.ParametersSchema), "number of the order") {
		t.Error("comments or the words of the enumeration are missing:", m.Description, string(m.ParametersSchema))
	}
	if m.Auth[0].Secret != "secret://shop-db" || m.Auth[0].Type != "bearer" || m.SideEffects != "reads" {
		t.Errorf("%+v", m.Auth)
	}
	again(t, o, i)

	if _, err := admin.Exec(t.Context(), "ALTER TABLE orders ADD extra int"); err != nil {
		t.Fatal(err)
	}
	o.Previous = func(id string) *toolkeep.Tool { return i.tools[id] }
	plan, err := Read(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range plan.Tools {
		if changed := p.Change != source.ChangeUnchanged; changed != strings.HasSuffix(p.Name, "_orders") {
			t.Errorf("%s: %s %s", p.Name, p.Change, p.Version)
		}
	}

	for _, bad := range []Options{{Target: target}, {Target: target, Tables: []string{"hidden"}}, {Target: target, Tables: []string{"["}}} {
		_, err := Read(t.Context(), bad)
		if e := toolkeep.AsError(err); e == nil || e.Code != toolkeep.ImportFailed || len(bad.Tables) == 0 && !strings.Contains(e.Message, "public.orders") {
			t.Errorf("%v", err)
		}
	}
	wrong := *target
	wrong.User, wrong.Socket, wrong.Host, wrong.TLS = "nobody_here", "", "127.0.0.1", "off"
	if _, err := Read(t.Context(), Options{Target: &wrong, Tables: []string{"*"}}); err == nil || strings.Contains(err.Error(), password) {
		t.Errorf("%v", err)
	}
}

func TestMySQL(t *testing.T) {
	s := mariatest.Start(t)
	name := s.NewDatabase(t)
	admin, err := s.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	exec(t, admin, "CREATE USER reader IDENTIFIED BY '"+password+"'", "GRANT SELECT ON "+name+".* TO reader",
		"CREATE TABLE orders (id BIGINT UNSIGNED PRIMARY KEY COMMENT 'number of the order', state ENUM('new','it''s, done') NOT NULL, `odd ``; name?` TEXT, total DECIMAL(12,2), placed DATETIME, bin BLOB, j JSON, KEY (state), KEY (placed)) COMMENT 'What customers bought.'",
		"INSERT INTO orders VALUES (1, 'new', '50% off', 12.50, '2026-01-02 03:04:05', x'00ff', '{}'), (2, 'it''s, done', 'a_b', NULL, NULL, NULL, NULL)",
		"CREATE VIEW big AS SELECT id, total FROM orders WHERE total > 10")
	target, err := ParseTarget(fmt.Sprintf("mariadb://reader:%s@/%s?socket=%s", password, name, s.Socket()))
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Target: target, Tables: []string{"*"}, Namespace: "shop", Secret: "env://SHOP", Login: true}
	i := read(t, o, sqltool.Config{SocketDirs: []string{s.Dir}})
	i.creds = []toolkeep.Credential{{Spec: toolkeep.AuthSpec{Type: "basic"}, Value: "reader:" + password}}
	if got := strings.Join(names(i.plan), " "); got != "shop.list_big shop.list_orders shop.get_orders shop.search_orders" {
		t.Error(got)
	}
	first := "{\"id\":1,\"j\":\"{}\",\"odd `; name?\":\"50% off\",\"placed\":\"2026-01-02T03:04:05\",\"state\":\"new\",\"total\":12.50}"
	i.want("shop.list_orders", `{"limit":1}`, "["+first+"]")
	i.want("shop.list_orders", `{"state":"new","placed_from":"2026-01-02 00:00:00"}`, "["+first+"]")
	i.want("shop.list_orders", `{"state":"it's, done","limit":5}`, "[{\"id\":2,\"j\":null,\"odd `; name?\":\"a_b\",\"placed\":null,\"state\":\"it's, done\",\"total\":null}]")
	i.want("shop.search_orders", `{"query":"50%"}`, "["+first+"]")
	i.want("shop.search_orders", `{"query":"a%"}`, "[]")
	i.want("shop.list_big", `{}`, `[{"id":1,"total":12.50}]`)
	if got := i.call("shop.get_orders", `{"id":1}`); !strings.Contains(got, `"bin":"AP8="`) {
		t.Error(got)
	}
	if !strings.Contains(i.tools["shop.get_orders"].Manifest.Description, "What customers bought.") {
		t.Error("the comment is missing")
	}
	again(t, o, i)
}

func exec(t *testing.T, db *stdsql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func TestSQLite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "books.db")
	admin, err := stdsql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, admin, `CREATE TABLE book (id INTEGER PRIMARY KEY, title TEXT NOT NULL, "odd ""; name?" TEXT, price REAL, cover BLOB)`, `CREATE INDEX by_title ON book (title)`,
		`INSERT INTO book VALUES (1, '50% off', 'x', 1.5, x'00ff'), (2, 'a_b', NULL, NULL, NULL)`, `CREATE TABLE pair (a TEXT NOT NULL, b INT NOT NULL, PRIMARY KEY (a, b)) WITHOUT ROWID`, `INSERT INTO pair VALUES ('x', 1)`,
		`CREATE VIEW cheap AS SELECT title FROM book WHERE price < 2`)
	admin.Close()
	target, err := ParseTarget(file)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Target: target, Tables: []string{"book", "pair", "cheap"}}
	i := read(t, o, sqltool.Config{SQLiteRoots: []string{filepath.Dir(file)}})
	if got := strings.Join(names(i.plan), " "); got != "books.list_book books.get_book books.search_book books.list_cheap books.search_cheap books.list_pair books.get_pair books.search_pair" {
		t.Error(got)
	}
	first := `{"id":1,"odd \"; name?":"x","price":1.5,"title":"50% off"}`
	i.want("books.list_book", `{"title":"50% off"}`, "["+first+"]")
	i.want("books.list_book", `{"limit":1,"offset":0}`, "["+first+"]")
	i.want("books.search_book", `{"query":"50%"}`, "["+first+"]")
	i.want("books.search_book", `{"query":"a%"}`, "[]")
	i.want("books.get_book", `{"id":1}`, `[{"cover":"AP8=","id":1,"odd \"; name?":"x","price":1.5,"title":"50% off"}]`)
	i.want("books.get_pair", `{"a":"x","b":1}`, `[{"a":"x","b":1}]`)
	again(t, o, i)
	if _, err := Read(t.Context(), Options{Target: &Target{Dialect: "sqlite", File: filepath.Join(t.TempDir(), "none.db")}, Tables: []string{"*"}}); err == nil {
		t.Error("a file that is not there was read")
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(file), "none.db")); err == nil {
		t.Error("a file was made")
	}
}

func TestParseTarget(t *testing.T) {
	for dsn, want := range map[string]string{
		"postgres://u:p%40w@h/db":                           "postgres h 5432  db u p@w verify postgres://h:5432/db",
		"postgresql://u@[::1]:5433/db?sslmode=disable":      "postgres ::1 5433  db u  off postgres://[::1]:5433/db",
		"postgres://u@/db?host=/run/pg":                     "postgres  5432 /run/pg db u  off postgres:///db",
		"mysql://u:x@h:3307/db?tls=skip-verify":             "mysql h 3307  db u x require mysql://h:3307/db",
		"mariadb://u@/db?socket=/run/my.sock":               "mysql  3306 /run/my.sock db u  off mysql:///db",
		"sqlite:///srv/a.db":                                "sqlite  0  a   off? ",
		"/srv/a.db":                                         "sqlite  0  a   off? ",
		"postgres://u:" + password + "@h/db?sslmode=prefer": "",
		"postgres://u:" + password + "@h/":                  "",
		"postgres://u:" + password + "@h:99999/db":          "",
		"postgres://h/db":                                   "",
		"oracle://u:" + password + "@h/db":                  "",
		"postgres://u:" + password + "#@h/db":               "",
		"postgres://u:" + password + "@h/db?service=x":      "",
		"sqlite://relative/a.db":                            "",
		"host=x password=" + password:                       "",
	} {
		target, err := ParseTarget(dsn)
		if want == "" {
			if err == nil || strings.Contains(err.Error(), password) {
				t.Errorf("%s: %+v %v", dsn, target, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", dsn, err)
			continue
		}
		got := fmt.Sprintf("%s %s %d %s %s %s %s %s %s", target.Dialect, target.Host, target.Port, target.Socket, target.Database, target.User, target.Password, target.TLS, target.URI())
		if target.Dialect == "sqlite" {
			got, want = target.File+" "+target.URI(), "/srv/a.db sqlite:///srv/a.db"
		}
		if got != want {
			t.Errorf("%s: %s, want %s", dsn, got, want)
		}
	}
}

func TestNames(t *testing.T) {
	taken := map[string]bool{}
	for in, want := range map[string]string{"a b": "a_b", "9x": "_9x", "": "_", "ü": "_", strings.Repeat("a", 80): strings.Repeat("a", 60)} {
		if got := Word(in, nil); got != want {
			t.Errorf("Word(%q) = %q, want %q", in, got, want)
		}
	}
	if a, b := Word("x", taken), Word("x", taken); a != "x" || b != "x_2" {
		t.Error(a, b)
	}
	for in, want := range map[string]string{"Shop DB": "shop-db", "9": "sql", "---": "sql", "t1_x": "t1-x"} {
		if got := Namespace(in); got != want {
			t.Errorf("Namespace(%q) = %q, want %q", in, got, want)
		}
	}
	if got := enumWords("enum('a','it''s','b,c')"); !slices.Equal(got, []string{"a", "it's", "b,c"}) {
		t.Errorf("%q", got)
	}
}

// TestFullText: a full-text table has a search, and the tables in which it keeps its data are no tools.
func TestFullText(t *testing.T) {
	file := filepath.Join(t.TempDir(), "notes.db")
	admin, err := stdsql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, admin, `CREATE VIRTUAL TABLE note USING fts5(title, body, source UNINDEXED)`, `CREATE VIRTUAL TABLE "Using 'x"" y" USING FTS5 (a)`, `CREATE VIRTUAL TABLE box USING rtree(id, a, b)`,
		`CREATE TABLE plain (note_data TEXT, note_id INTEGER)`, `CREATE TABLE note_book (id INTEGER PRIMARY KEY)`,
		`INSERT INTO note VALUES ('Lamps', 'a blue "lamp", 50% off', 7), ('Chairs', 'red chair; lamp beside', 'x'), ('Off', 'nothing', NULL)`, `INSERT INTO "Using 'x"" y" VALUES ('it')`,
		// A table of a module that this build does not have, with its shadows.
		`PRAGMA writable_schema = 1`, `INSERT INTO sqlite_schema VALUES ('table', 'old', 'old', 0, 'CREATE VIRTUAL TABLE old USING fts4(a)')`, `PRAGMA writable_schema = 0`, `CREATE TABLE old_content (docid INTEGER PRIMARY KEY)`)
	admin.Close()
	target, err := ParseTarget(file)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Target: target, Tables: []string{"*"}}
	i := read(t, o, sqltool.Config{SQLiteRoots: []string{filepath.Dir(file)}})
	if got := strings.Join(names(i.plan), " "); got != "notes.list_Using__x__y notes.get_Using__x__y notes.search_Using__x__y notes.list_box notes.list_note notes.get_note notes.search_note notes.list_note_book notes.get_note_book notes.list_plain notes.search_plain" {
		t.Error(got)
	}
	refused := ""
	for _, r := range i.plan.Refused {
		refused += r.Origin + ": " + r.Reason + "\n"
	}
	if !strings.Contains(refused, `old (table): it is a virtual table of the module "fts4"`) || strings.Contains(refused, "old_content") {
		t.Error(refused)
	}
	lamps, chairs := `{"body":"a blue \"lamp\", 50% off","rowid":1,"source":7,"title":"Lamps"}`, `{"body":"red chair; lamp beside","rowid":2,"source":"x","title":"Chairs"}`
	for query, want := range map[string]string{
		"blue": "[" + lamps + "]", "lamp  BLUE": "[" + lamps + "]", "50% off": "[" + lamps + "]", "chairs lamp": "[" + chairs + "]", `"lamp" blue`: "[" + lamps + "]",
		"blue OR red": "[]", "lamp NOT blue": "[]", "title:lamps": "[]", "lam*": "[]", `"`: "[]", "(": "[]", "'; DROP TABLE note; --": "[]", "7": "[]",
	} {
		i.want("notes.search_note", string(canon.Append(nil, map[string]any{"query": query})), want)
	}
	if got := i.value("notes.search_note", `{"query":"lamp","limit":1}`); got["truncated"] != true {
		t.Error(string(canon.Append(nil, got)))
	}
	i.want("notes.get_note", `{"rowid":2}`, "["+chairs+"]")
	i.want("notes.search_Using__x__y", `{"query":"it"}`, `[{"a":"it","rowid":1}]`)
	again(t, o, i)
}

// TestLeftOutFilters: an indexed column without a filter, and a text column that a search leaves out, are told.
func TestLeftOutFilters(t *testing.T) {
	file := filepath.Join(t.TempDir(), "wide.db")
	admin, err := stdsql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	columns := []string{"at DATETIME", "doc JSON", "raw BLOB", "free"}
	for n := range 10 {
		columns = append(columns, fmt.Sprintf("c%d TEXT", n))
	}
	exec(t, admin, "CREATE TABLE wide ("+strings.Join(columns, ", ")+")")
	for _, c := range columns {
		name, _, _ := strings.Cut(c, " ")
		exec(t, admin, "CREATE INDEX i_"+name+" ON wide ("+name+")")
	}
	admin.Close()
	target, err := ParseTarget(file)
	if err != nil {
		t.Fatal(err)
	}
	i := read(t, Options{Target: target, Tables: []string{"wide"}}, sqltool.Config{SQLiteRoots: []string{filepath.Dir(file)}})
	told := strings.Join(i.plan.Warnings, "\n")
	filters := string(i.tools["wide.list_wide"].Manifest.ParametersSchema)
	for _, c := range columns {
		name, _, _ := strings.Cut(c, " ")
		if has := strings.Contains(filters, `"`+name+`"`); has == strings.Contains(told, name) && name != "c8" && name != "c9" {
			t.Errorf("%s has a filter: %v, and is told: %v", name, has, !has)
		}
	}
	if !strings.Contains(told, "none for c8, c9") || !strings.Contains(told, "not in c8, c9") {
		t.Error(told)
	}
}

// TestWideTables: the schemas of a wide table's tools are made smaller, and a warning tells it.
func TestWideTables(t *testing.T) {
	file := filepath.Join(t.TempDir(), "wide.db")
	admin, err := stdsql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	columns := []string{"id INTEGER PRIMARY KEY"}
	for n := range 1500 {
		columns = append(columns, fmt.Sprintf("a_column_with_a_long_name_%d INTEGER", n))
	}
	exec(t, admin, "CREATE TABLE wide ("+strings.Join(columns, ", ")+")")
	admin.Close()
	target, err := ParseTarget(file)
	if err != nil {
		t.Fatal(err)
	}
	i := read(t, Options{Target: target, Tables: []string{"wide"}}, sqltool.Config{SQLiteRoots: []string{filepath.Dir(file)}})
	for name, tool := range i.tools {
		m := tool.Manifest
		if len(m.ParametersSchema) > source.MaxParameters || len(m.ResultSchema) > source.MaxResult {
			t.Errorf("%s: %d and %d bytes", name, len(m.ParametersSchema), len(m.ResultSchema))
		}
	}
	if told := strings.Join(i.plan.Warnings, "\n"); !strings.Contains(told, "wide: the schema of the result of list_wide is larger than 64 KiB") {
		t.Error(told)
	}
}
