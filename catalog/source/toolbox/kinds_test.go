package toolbox

import (
	"context"
	stdsql "database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/executor/sqltool"
	"github.com/toolkeep/toolkeep/executor/sqltool/mariatest"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

// prebuilt calls a tool of each of Toolbox's own kinds for a database.
type prebuilt struct {
	t     *testing.T
	e     *sqltool.Executor
	tools map[string]*toolkeep.Tool // by kind
	creds []toolkeep.Credential
}

func readKinds(t *testing.T, dialect, source string, e *sqltool.Executor) *prebuilt {
	t.Helper()
	all, err := kinds()
	if err != nil {
		t.Fatal(err)
	}
	text := "sources: {db: " + source + "}\ntools:\n"
	n := 0
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		if strings.HasPrefix(kind, dialect+"-") {
			text += fmt.Sprintf("  %s: {kind: %s, source: db}\n", kind, kind)
			n++
		}
	}
	plan, err := Read(Options{Name: "prebuilt.yaml", Data: []byte(text)})
	if err != nil || len(plan.Tools) != n || n == 0 {
		t.Fatalf("%d of %d kinds: %v %+v", len(plan.Tools), n, err, plan)
	}
	p := &prebuilt{t: t, e: e, tools: map[string]*toolkeep.Tool{}}
	for _, one := range plan.Tools {
		tool, err := catalog.ParseManifest(one.Manifest)
		if err != nil {
			t.Fatalf("%s: %v", one.Origin, err)
		}
		if faults := e.Check(tool.Manifest); len(faults) > 0 || tool.Writes() {
			t.Errorf("%s: %+v", one.Origin, faults)
		}
		p.tools[one.Origin] = tool
	}
	return p
}

// rows calls a tool, with the defaults of its parameters, and returns its rows as JSON.
func (p *prebuilt) rows(kind, args string) (string, error) {
	p.t.Helper()
	tool := p.tools[kind]
	var schema struct {
		Properties map[string]struct {
			Default json.RawMessage `json:"default"`
		} `json:"properties"`
	}
	given := map[string]json.RawMessage{}
	if err := json.Unmarshal(tool.Manifest.ParametersSchema, &schema); err != nil {
		p.t.Fatal(err)
	}
	for name, s := range schema.Properties {
		if s.Default != nil {
			given[name] = s.Default
		}
	}
	if err := json.Unmarshal([]byte(args), &given); err != nil {
		p.t.Fatal(err)
	}
	raw, err := json.Marshal(given)
	if err != nil {
		p.t.Fatal(err)
	}
	tree, err := canon.ParseObject(raw, canon.Limits{})
	if err != nil {
		p.t.Fatal(err)
	}
	out, err := p.e.Execute(context.Background(), &toolkeep.Execution{Tool: tool, Args: tree, MaxBytes: 10 << 20,
		Principal: &toolkeep.Principal{Subject: "agent", Tenant: "acme"}, Credentials: p.creds})
	if err != nil {
		return "", fmt.Errorf("%w (because of %v)", err, toolkeep.AsError(err).Cause)
	}
	return string(canon.Append(nil, out.Value.(map[string]any)["rows"])), nil
}

// holds calls each tool and looks for texts in its rows; - before a text: it is not there.
func (p *prebuilt) holds(all []called) {
	p.t.Helper()
	tried := map[string]bool{}
	for _, c := range all {
		tried[c.kind] = true
		got, err := p.rows(c.kind, c.args)
		if err != nil {
			p.t.Errorf("%s %s: %v", c.kind, c.args, err)
			continue
		}
		for _, want := range c.want {
			if without, ok := strings.CutPrefix(want, "-"); ok == strings.Contains(got, without) {
				p.t.Errorf("%s %s: %q in %s", c.kind, c.args, want, got)
			}
		}
	}
	for kind := range p.tools {
		if !tried[kind] {
			p.t.Errorf("%s is not called", kind)
		}
	}
}

type called struct {
	kind, args string
	want       []string
}

func TestKindsOfPostgres(t *testing.T) {
	s := pgtest.Start(t)
	name := s.NewName(t)
	admin, err := pgx.Connect(t.Context(), s.DSN(name))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.Background())
	for _, sql := range []string{
		"CREATE SCHEMA shop", "GRANT USAGE ON SCHEMA shop TO PUBLIC", "CREATE ROLE reader_" + name + " LOGIN", "GRANT pg_read_all_stats TO reader_" + name,
		"CREATE TABLE shop.author (id int PRIMARY KEY, name text NOT NULL DEFAULT 'unknown')", "COMMENT ON TABLE shop.author IS 'people who write'",
		"CREATE TABLE shop.book (id serial PRIMARY KEY, author int REFERENCES shop.author, title text)", "CREATE INDEX by_title ON shop.book (title)",
		"CREATE VIEW shop.titles AS SELECT title FROM shop.book", "GRANT SELECT ON ALL TABLES IN SCHEMA shop TO PUBLIC", "GRANT SELECT ON ALL SEQUENCES IN SCHEMA shop TO PUBLIC",
		"CREATE FUNCTION shop.touch() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
		"CREATE TRIGGER touched BEFORE INSERT OR UPDATE ON shop.book FOR EACH ROW EXECUTE FUNCTION shop.touch()",
		"INSERT INTO shop.author SELECT g, 'name ' || g % 2 FROM generate_series(1, 40) g", "ANALYZE",
		"BEGIN", "LOCK TABLE shop.book IN SHARE MODE", // held until the end of the test
	} {
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	e := sqltool.New(sqltool.Config{SocketDirs: []string{s.Dir}})
	defer e.Close()
	p := readKinds(t, "postgres", fmt.Sprintf("{kind: postgres, host: %q, port: %d, database: %s, user: reader_%s}", s.Dir, s.Port, name, name), e)
	if _, err := p.rows("postgres-list-query-stats", `{}`); err == nil || !strings.Contains(err.Error(), "pg_stat_statements") {
		t.Errorf("the extension is not there: %v", err)
	}
	p.tools["postgres-list-query-stats"] = nil
	delete(p.tools, "postgres-list-query-stats")
	p.holds([]called{
		{"postgres-list-tables", `{}`, []string{`"author"`, `"book"`, "people who write", `"is_not_nullable":true`, "FOREIGN KEY", "by_title", "touched", "unknown", "-pg_class"}},
		{"postgres-list-tables", `{"table_names":"author , nothing"}`, []string{`"author"`, "-by_title"}},
		{"postgres-list-tables", `{"output_format":"simple"}`, []string{`"object_name":"book"`, `"object_details":null`}},
		{"postgres-list-views", `{}`, []string{`"viewname":"titles"`, "SELECT"}},
		{"postgres-list-views", `{"viewname":"nothing"}`, []string{"-titles"}},
		{"postgres-list-schemas", `{}`, []string{`"schema_name":"shop"`, `"tables":2`, `"views":1`, `"functions":1`, `"PUBLIC":["USAGE"]`, "-information_schema"}},
		{"postgres-list-indexes", `{"table_name":"book"}`, []string{`"index_name":"by_title"`, `"index_type":"btree"`, "-author_pkey"}},
		{"postgres-list-triggers", `{}`, []string{`"trigger_name":"touched"`, `"timing":"BEFORE"`, `"events":"INSERT, UPDATE"`, `"activation_level":"ROW"`, `"status":"ENABLED"`}},
		{"postgres-list-sequences", `{"schema_name":"shop"}`, []string{`"sequencename":"book_id_seq"`, `"increment_by":1`}},
		{"postgres-list-available-extensions", `{}`, []string{`"name":"plpgsql"`, "default_version"}},
		{"postgres-list-installed-extensions", `{}`, []string{`"name":"plpgsql"`, `"schema":"pg_catalog"`}},
		{"postgres-database-overview", `{}`, []string{"pg_version", `"is_replica":false`, "uptime", "max_connections"}},
		{"postgres-list-active-queries", `{"min_duration":"1 hour"}`, []string{"[]"}},
		{"postgres-long-running-transactions", `{"min_duration":"0 seconds"}`, []string{"LOCK TABLE shop.book", "idle in transaction"}},
		{"postgres-list-locks", `{"only_current_database":true}`, []string{`"mode":"ShareLock"`, `"table_name":"shop.book"`, `"granted":true`}},
		{"postgres-replication-stats", `{}`, []string{"[]"}},
		{"postgres-get-column-cardinality", `{"schema_name":"shop","table_name":"author"}`, []string{`{"column_name":"id","estimated_cardinality":40},{"column_name":"name","estimated_cardinality":2}`}},
	})
}

func TestKindsOfMySQL(t *testing.T) {
	s := mariatest.Start(t)
	name := s.NewDatabase(t)
	admin, err := s.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	for _, sql := range []string{
		"CREATE TABLE author (id int PRIMARY KEY, name varchar(50) NOT NULL DEFAULT 'unknown') COMMENT 'people who write'",
		"CREATE TABLE book (id int PRIMARY KEY, author int, title varchar(50), KEY by_title (title), FOREIGN KEY (author) REFERENCES author (id))",
		"CREATE TABLE loose (a int)",
		"CREATE TRIGGER touched BEFORE INSERT ON book FOR EACH ROW SET NEW.title = TRIM(NEW.title)",
		"CREATE USER reader_" + name, "GRANT SELECT, TRIGGER ON " + name + ".* TO reader_" + name, "GRANT PROCESS ON *.* TO reader_" + name,
	} {
		if _, err := admin.Exec(sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	e := sqltool.New(sqltool.Config{SocketDirs: []string{s.Dir}})
	defer e.Close()
	p := readKinds(t, "mysql", fmt.Sprintf("{kind: mysql, host: %q, database: %s, user: reader_%s}", s.Socket(), name, name), e)
	if got := p.tools["mysql-get-query-plan"].Manifest.Risk; got != "high" {
		t.Errorf("the plan of a caller's statement has risk %q", got)
	}
	p.holds([]called{
		{"mysql-list-tables", `{}`, []string{`"object_name":"author"`, "people who write", "by_title", "touched", "unknown", "-innodb"}},
		{"mysql-list-tables", `{"table_names":"author, nothing"}`, []string{`"author"`, "-by_title"}},
		{"mysql-list-tables", `{"output_format":"simple"}`, []string{`"object_name":"book"`, `"columns":null`}},
		{"mysql-list-active-queries", `{}`, []string{"["}},
		{"mysql-list-tables-missing-unique-indexes", `{}`, []string{`"table_name":"loose"`, "-author"}},
		{"mysql-list-table-fragmentation", `{"data_free_threshold_bytes":0}`, []string{`"table_name":"book"`, "fragmentation_percentage"}},
		{"mysql-list-table-fragmentation", `{"data_free_threshold_bytes":0,"table_name":"loose"}`, []string{"-book"}},
		{"mysql-get-query-plan", `{"sql_statement":"SELECT * FROM book WHERE id = 1"}`, []string{"query_block"}},
	})
}

// TestOptionalPart: what stands between if and end is left out where the argument is empty.
func TestOptionalPart(t *testing.T) {
	db := filepath.Join(t.TempDir(), "books.db")
	admin, err := stdsql.Open("sqlite", db)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	for _, s := range []string{"CREATE TABLE book (id)", "CREATE TABLE author (id)"} {
		if _, err := admin.Exec(s); err != nil {
			t.Fatal(err)
		}
	}
	plan, err := Read(Options{Name: "x.yaml", Data: []byte(`
sources: {lite: {kind: sqlite, database: ` + db + `}}
tools:
  tables:
    kind: sqlite-sql
    source: lite
    description: Tables.
    statement: |
      SELECT name FROM sqlite_master {{if .only}}
      WHERE name = '{{.only}}' {{ end }} ORDER BY name;
    templateParameters: [{name: only, type: string, description: one, required: false}]
  given:
    kind: sqlite-sql
    source: lite
    description: A default stands for the argument.
    statement: "SELECT name FROM {{.table}}"
    templateParameters: [{name: table, type: string, description: one, default: author}]
  needed:
    kind: sqlite-sql
    source: lite
    description: An argument of which a use stands outside of its if.
    statement: "SELECT name FROM {{.table}} {{if .table}}ORDER BY name{{end}}"
    templateParameters: [{name: table, type: string, description: one, required: false}]
  nested: {kind: sqlite-sql, source: lite, description: N., statement: "SELECT 1 {{if .a}}{{if .a}}{{end}}{{end}}", templateParameters: [{name: a, type: string, description: a}]}
  open: {kind: sqlite-sql, source: lite, description: N., statement: "SELECT 1 {{if .a}}", templateParameters: [{name: a, type: string, description: a}]}
  shut: {kind: sqlite-sql, source: lite, description: N., statement: "SELECT 1 {{end}} {{.a}}", templateParameters: [{name: a, type: string, description: a}]}
`)})
	if err != nil || len(plan.Tools) != 3 || len(plan.Refused) != 3 {
		t.Fatalf("%v %+v", err, plan)
	}
	byName := map[string]*toolkeep.Tool{}
	for _, m := range plan.Tools {
		tool, err := catalog.ParseManifest(m.Manifest)
		if err != nil {
			t.Fatal(err)
		}
		byName[tool.ID[strings.LastIndex(tool.ID, ".")+1:]] = tool
	}
	tool := byName["tables"]
	if a, b := string(tool.Manifest.ParametersSchema), string(byName["needed"].Manifest.ParametersSchema); strings.Contains(a, "required") || !strings.Contains(b, `"required":["table"]`) || strings.Contains(string(byName["given"].Manifest.ParametersSchema), "required") {
		t.Errorf("%s\n%s", a, b)
	}
	for _, r := range plan.Refused {
		if !strings.Contains(r.Reason, "{{end}}") {
			t.Errorf("%+v", r)
		}
	}
	e := sqltool.New(sqltool.Config{SQLiteRoots: []string{filepath.Dir(db)}})
	defer e.Close()
	p := &prebuilt{t: t, e: e, tools: map[string]*toolkeep.Tool{"tables": tool}}
	p.holds([]called{
		{"tables", `{}`, []string{`[{"name":"author"},{"name":"book"}]`}},
		{"tables", `{"only":"book"}`, []string{`[{"name":"book"}]`}},
	})
}
