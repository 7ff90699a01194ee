package toolbox

import (
	"context"
	stdsql "database/sql"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/catalog/source"
	"github.com/toolkeep/toolkeep/executor/sqltool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const file = `
sources:
  pg:
    kind: postgres
    host: ${PG_HOST:db.internal}
    port: 5432
    database: hotels
    user: reader
    password: ${PG_PASSWORD}
    queryParams: {sslmode: disable, application_name: x}
  my: {kind: mysql, host: my.internal, port: 3307, database: shop, user: "${MY_USER}", password: in-the-file-4711}
  lite: {kind: sqlite, database: FILE}
  cloud: {kind: cloud-sql-postgres, project: p, region: r, instance: i, database: d}
authServices:
  google: {kind: google, clientId: x}
tools:
  search-hotels:
    kind: postgres-sql
    source: pg
    description: Search for hotels by name.
    parameters:
      - {name: name, type: string, description: part of the name}
      - {name: stars, type: array, description: which, items: {name: star, type: integer, description: one}, default: [4, 5]}
      - {name: near, type: float, description: km, required: false, minValue: 0, maxValue: 50}
      - {name: tier, type: string, description: tier, allowedValues: [luxury, budget]}
    statement: SELECT * FROM hotels WHERE name ILIKE '%' || $1 || '%' AND stars = ANY($2) AND ($3::float8 IS NULL OR km < $3) AND tier = $4;
    authRequired: [google]
  book-hotel:
    kind: mysql-sql
    source: my
    description: Book.
    parameters: [{name: id, type: integer, description: which}, {name: extra, type: map, description: more, valueType: string}]
    statement: UPDATE hotels SET booked = 1, extra = ? WHERE id = ?
  find:
    kind: sqlite-sql
    source: lite
    description: Find a book.
    parameters: [{name: title, type: string, description: the title}]
    statement: |
      -- by title
      SELECT id, title FROM book WHERE title = ?;
  template:
    kind: postgres-sql
    source: pg
    description: Any table.
    templateParameters: [{name: table, type: string, description: the table}]
    statement: SELECT * FROM {{.table}} WHERE id = $1
    parameters: [{name: id, type: integer, description: which}]
  columns:
    kind: mysql-sql
    source: my
    description: Some columns.
    templateParameters: [{name: names, type: array, description: columns, items: {name: n, type: string, description: one}}]
    statement: "SELECT {{array .names}} FROM hotels"
  branch: {kind: postgres-sql, source: pg, description: B., statement: "SELECT {{range .a}}1{{end}}", templateParameters: [{name: a, type: string, description: a}]}
  number: {kind: postgres-sql, source: pg, description: N., statement: "SELECT 1 LIMIT {{.n}}", templateParameters: [{name: n, type: integer, description: n}]}
  free: {kind: postgres-execute-sql, source: pg, description: Anything.}
  other: {kind: bigquery-sql, source: pg, description: Another., statement: SELECT 1}
  in-the-cloud: {kind: postgres-sql, source: cloud, description: Cloud., statement: SELECT 1}
  nowhere: {kind: postgres-sql, source: gone, description: Gone., statement: SELECT 1}
  mismatch: {kind: mysql-sql, source: pg, description: Wrong., statement: SELECT 1}
  me: {kind: postgres-sql, source: pg, description: Me., statement: "SELECT $1", parameters: [{name: email, type: string, description: mine, authServices: [{name: google, field: email}]}]}
  odd: {kind: postgres-sql, source: pg, description: Odd., statement: "SELECT $1", parameters: [{name: a, type: decimal, description: x}]}
toolsets:
  all: [search-hotels, find, free]
`

func options(t *testing.T, data string) Options {
	db := filepath.Join(t.TempDir(), "books.db")
	return Options{Name: "tools.yaml", Data: []byte(strings.ReplaceAll(data, "FILE", db)), Env: func(name string) string {
		return map[string]string{"MY_USER": "clerk", "PG_PASSWORD": "never-seen-4711"}[name]
	}}
}

func TestRead(t *testing.T) {
	o := options(t, file)
	o.Write = []string{"book-hotel"}
	plan, err := Read(o)
	if err != nil {
		t.Fatal(err)
	}
	refused := map[string]string{
		"branch": "{{range", "number": "is of type integer", "other": "bigquery-sql", "in-the-cloud": "cloud-sql-postgres", "nowhere": `"gone"`,
		"mismatch": "needs a source of kind mysql", "me": "auth services", "odd": `"decimal"`,
	}
	if len(plan.Refused) != len(refused) || plan.Items != len(plan.Tools)+len(plan.Refused) {
		t.Errorf("%d refused, %d tools, %d items", len(plan.Refused), len(plan.Tools), plan.Items)
	}
	for _, r := range plan.Refused {
		if want := refused[r.Origin]; want == "" || !strings.Contains(r.Reason, want) {
			t.Errorf("%s: %s", r.Origin, r.Reason)
		}
	}
	tools := make(map[string]*toolkeep.Tool)
	e := sqltool.New(sqltool.Config{})
	defer e.Close()
	for _, p := range plan.Tools {
		if strings.Contains(string(p.Manifest), "4711") {
			t.Errorf("%s holds a password", p.Name)
		}
		tool, err := catalog.ParseManifest(p.Manifest)
		if err != nil {
			t.Fatal(err)
		}
		tools[p.Name] = tool
	}
	hotels, book, find := tools["hotels.search-hotels"], tools["shop.book-hotel"], tools["books.find"]
	if hotels == nil || book == nil || find == nil {
		t.Fatal(tools)
	}
	if got := string(hotels.Manifest.ParametersSchema); got != `{"additionalProperties":false,"properties":{"name":{"description":"part of the name","type":"string"},"near":{"description":"km","maximum":50,"minimum":0,"type":"number"},"stars":{"default":[4,5],"description":"which","items":{"description":"one","type":"integer"},"type":"array"},"tier":{"description":"tier","enum":["luxury","budget"],"type":"string"}},"required":["name","tier"],"type":"object"}` {
		t.Error(got)
	}
	if got := string(hotels.Manifest.Execution.Binding); !strings.Contains(got, `"connection":{"database":"hotels","host":"db.internal","port":5432,"tls":"off","user":"reader"}`) {
		t.Error(got)
	}
	if hotels.Manifest.Auth[0].Secret != "env://PG_PASSWORD" || hotels.Writes() || !book.Writes() || book.Manifest.Auth != nil {
		t.Errorf("%+v %+v", hotels.Manifest.Auth, book.Manifest)
	}
	if got := strings.Join(hotels.Manifest.RequiredRoles, " "); got != "google" {
		t.Errorf("search-hotels needs the roles %q", got)
	}
	free, template, columns := tools["hotels.free"], tools["hotels.template"], tools["shop.columns"]
	if free == nil || template == nil || columns == nil {
		t.Fatal(tools)
	}
	for _, tool := range []*toolkeep.Tool{free, template, columns} {
		if tool.Manifest.Risk != "high" || tool.Writes() || strings.Contains(string(tool.Manifest.Execution.Binding), `"write"`) {
			t.Errorf("%s: %+v", tool.ID, tool.Manifest)
		}
	}
	if got := string(free.Manifest.ParametersSchema); !strings.Contains(got, `"required":["sql"]`) {
		t.Error(got)
	}
	for _, tool := range []*toolkeep.Tool{hotels, book, free, template, columns} {
		if faults := e.Check(tool.Manifest); len(faults) > 0 {
			t.Errorf("%s: %+v", tool.ID, faults)
		}
	}
	said := strings.Join(plan.Warnings, "\n")
	for _, want := range []string{"env://PG_PASSWORD", "source my has its password in the file", "authRequired", "toolset all", "authService google is left out", "application_name is left out"} {
		if !strings.Contains(said, want) {
			t.Errorf("no warning about %q in %s", want, said)
		}
	}
	if strings.Contains(said, "4711") {
		t.Error("a warning holds a password")
	}
	// With --write, text of a caller does not become a statement.
	o.Write = []string{"free", "template"}
	if plan, err = Read(o); err != nil {
		t.Fatal(err)
	}
	writing := 0
	for _, r := range plan.Refused {
		if strings.Contains(r.Reason, "leave it out of --write") {
			writing++
		}
	}
	if writing != 2 {
		t.Errorf("%+v", plan.Refused)
	}
	o.Write = nil
	o.Previous = func(id string) *toolkeep.Tool { return tools[id] }
	plan, err = Read(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range plan.Tools {
		if unchanged := p.Change == source.ChangeUnchanged; unchanged != (p.Origin != "book-hotel") {
			t.Errorf("%s: %s", p.Name, p.Change)
		}
	}
	if !strings.Contains(strings.Join(plan.Warnings, "\n"), "book-hotel looks as if it writes") {
		t.Error(plan.Warnings)
	}
}

// TestAuthRequired: a demand that cannot be kept refuses the tool.
func TestAuthRequired(t *testing.T) {
	for in, want := range map[string]string{`google`: "authRequired is not a list", `[1]`: "authRequired is not a list", `[""]`: "authRequired is not a list", `[]`: "", `[a, my-auth]`: "", ``: ""} {
		plan, err := Read(options(t, "sources: {lite: {kind: sqlite, database: FILE}}\ntools: {one: {kind: sqlite-sql, source: lite, description: One., statement: SELECT 1, authRequired: "+in+"}}"))
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case want == "" && len(plan.Tools) == 1:
		case want != "" && len(plan.Refused) == 1 && strings.Contains(plan.Refused[0].Reason, want):
		default:
			t.Errorf("%s: %+v", in, plan)
		}
	}
}

// TestCall calls a planned tool.
func TestCall(t *testing.T) {
	o := options(t, file)
	db := filepath.Join(filepath.Dir(t.TempDir()), "books.db")
	o.Data = []byte(strings.ReplaceAll(file, "FILE", db))
	admin, err := stdsql.Open("sqlite", db)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"CREATE TABLE book (id INTEGER PRIMARY KEY, title TEXT)", "INSERT INTO book VALUES (1, 'Emma'), (2, 'Ulysses')"} {
		if _, err := admin.Exec(s); err != nil {
			t.Fatal(err)
		}
	}
	admin.Close()
	plan, err := Read(o)
	if err != nil {
		t.Fatal(err)
	}
	e := sqltool.New(sqltool.Config{SQLiteRoots: []string{filepath.Dir(db)}})
	defer e.Close()
	for _, p := range plan.Tools {
		if p.Origin != "find" {
			continue
		}
		tool, err := catalog.ParseManifest(p.Manifest)
		if err != nil {
			t.Fatal(err)
		}
		out, err := e.Execute(context.Background(), &toolkeep.Execution{Tool: tool, Args: map[string]any{"title": "Emma"}})
		if err != nil {
			t.Fatal(err)
		}
		if got := string(canon.Append(nil, out.Value.(map[string]any)["rows"])); got != `[{"id":1,"title":"Emma"}]` {
			t.Error(got)
		}
		return
	}
	t.Error("the tool find is missing")
}

// TestDocuments reads the form with one document per entry.
func TestDocuments(t *testing.T) {
	plan, err := Read(options(t, `
kind: sources
name: pg
type: postgres
host: h
database: d
user: u
---
kind: tools
name: one
type: postgres-sql
source: pg
description: One.
statement: SELECT 1
---
kind: toolsets
name: set
tools: [one]
---
kind: embeddingModels
name: m
type: gemini
`))
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Tools) != 1 || plan.Tools[0].Name != "d.one" || len(plan.Warnings) != 2 || !strings.Contains(plan.Warnings[0], "d.one") {
		t.Errorf("%+v", plan)
	}
}

func TestBad(t *testing.T) {
	for name, data := range map[string]string{
		"no YAML": "a: [", "a list": "[1]", "no tools": "sources: {}", "two of a name": "kind: tools\nname: a\ntype: x\n---\nkind: tools\nname: a\ntype: x",
		"no name": "kind: tools\ntype: x", "tools is a list": "tools: [1]"} {
		if _, err := Read(Options{Name: "x", Data: []byte(data)}); toolkeep.AsError(err) == nil || !toolkeep.IsCode(err, toolkeep.ImportFailed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	o := Options{Name: "x", Data: []byte("tools: {a: {kind: x}}"), Write: []string{"b"}}
	if _, err := Read(o); err == nil {
		t.Error("--write takes a tool that is not there")
	}
	o = Options{Name: "x", Data: []byte("tools: {a: {kind: x}}"), Namespace: "A B"}
	if _, err := Read(o); err == nil || !strings.Contains(err.Error(), `"A B" is not a namespace`) {
		t.Error(err)
	}
}

// TestNoMapping refuses entries that are not mappings and reads the others.
func TestNoMapping(t *testing.T) {
	plan, err := Read(options(t, `
sources:
  lite: {kind: sqlite, database: FILE}
  broken: some text
tools:
  fine: {kind: sqlite-sql, source: lite, description: Fine., statement: SELECT 1}
  words: SELECT 1
  list: [1, 2]
  empty:
  onto-broken: {kind: sqlite-sql, source: broken, description: Broken., statement: SELECT 1}
toolsets:
  all: [fine, words]
  text: fine
`))
	if err != nil {
		t.Fatal(err)
	}
	var refused []string
	for _, r := range plan.Refused {
		if !strings.Contains(r.Reason, "is not a mapping") {
			t.Errorf("%+v", r)
		}
		refused = append(refused, r.Origin)
	}
	if got := strings.Join(refused, " "); got != "empty list onto-broken words" {
		t.Error(got)
	}
	if len(plan.Tools) != 1 || plan.Tools[0].Name != "books.fine" || plan.Items != 5 {
		t.Errorf("%+v", plan)
	}
	if got := strings.Join(plan.Warnings, "\n"); !strings.Contains(got, "toolset text is left out: it is not a list of tools") || !strings.Contains(got, "books.fine") {
		t.Error(got)
	}
}

// TestOddDocuments skips invalid documents and sections, and reads the others.
func TestOddDocuments(t *testing.T) {
	plan, err := Read(options(t, `
sources:
  lite: {kind: sqlite, database: FILE}
authServices: 5
toolsets:
---
kind: tools
type: sqlite-sql
---
- a list
---
kind: tools
name: fine
type: sqlite-sql
source: lite
description: Fine.
statement: SELECT 1
`))
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Tools) != 1 || plan.Tools[0].Name != "books.fine" || len(plan.Refused) != 0 {
		t.Errorf("%+v", plan)
	}
	got := strings.Join(plan.Warnings, "\n")
	for _, want := range []string{"authServices is not a mapping of names; it is left out", "document 2 of the file, of kind tools, has no name; it is left out", "document 3 of the file is not a mapping; it is left out"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
	if strings.Contains(got, "toolsets") {
		t.Error(got)
	}
	if _, err := Read(options(t, "tools: 5")); err == nil || !strings.Contains(err.Error(), "holds no tools: tools is not a mapping of names") {
		t.Error(err)
	}
}

// FuzzRead: no file crashes the reader, and the catalogue accepts every planned manifest.
func FuzzRead(f *testing.F) {
	f.Add([]byte(file))
	f.Add([]byte("kind: tools\nname: a\ntype: sqlite-sql\nsource: s\nstatement: x"))
	f.Fuzz(func(t *testing.T, data []byte) {
		plan, err := Read(Options{Name: "x", Data: data})
		if err != nil {
			return
		}
		for _, p := range plan.Tools {
			if _, err := catalog.ParseManifest(p.Manifest); err != nil {
				t.Fatal(err)
			}
		}
	})
}
