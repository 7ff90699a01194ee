package sql

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/catalog/source"
)

// Limits of the planned tools.
const (
	maxFilters   = 8 // of a list tool
	maxSearched  = 8 // columns of a search tool
	defaultLimit = 50
	mostRows     = 1_000
	longest      = 8_000 // characters of a description
)

// Options say what is imported.
type Options struct {
	Target *Target
	// Tables are names or patterns (path.Match) of tables and views, with or without the schema; if
	// empty, the error lists the available ones.
	Tables    []string
	Namespace string // "" derives it from the database's name
	Secret    string // reference of the password, "" for none
	// Login is set if the secret is user:password instead of only the password.
	Login    bool
	Previous source.Previous
}

// Read connects, reads the schema and plans the tools. It changes nothing.
//
// Errors: E3011 with advice.
func Read(ctx context.Context, o Options) (*source.Plan, error) {
	if err := source.CheckNamespace(o.Namespace); err != nil {
		return nil, err
	}
	for _, p := range o.Tables {
		if _, err := path.Match(p, ""); err != nil {
			return nil, failed("--table %s is not a pattern", p)
		}
	}
	if o.Secret != "" {
		if err := CheckReference(o.Secret); err != nil {
			return nil, failed("%s", err)
		}
	}
	used := make(map[string]bool)
	tables, all, err := o.Target.read(ctx, func(t *table) bool {
		found := false
		for _, p := range o.Tables {
			a, _ := path.Match(p, t.name)
			b, _ := path.Match(p, t.label())
			if a || b {
				used[p], found = true, true
			}
		}
		return found
	})
	if err != nil {
		return nil, failed("%s", err)
	}
	if len(o.Tables) == 0 {
		return nil, failed("say which tables become tools with --table NAME (repeatable, * for all); there are: %s", listed(all))
	}
	for _, p := range o.Tables {
		if !used[p] {
			return nil, failed("%s has no table or view %q that this user may read; there are: %s", o.Target.URI(), p, listed(all))
		}
	}
	return o.plan(tables)
}

func failed(format string, args ...any) error {
	return toolkeep.NewError(toolkeep.ImportFailed, format, args...)
}

func listed(names []string) string {
	switch n := len(names); {
	case n == 0:
		return "none"
	case n > 40:
		return strings.Join(names[:40], ", ") + fmt.Sprintf(" and %d more", n-40)
	}
	return strings.Join(names, ", ")
}

// planner holds the state of one import.
type planner struct {
	*Options
	plan  *source.Plan
	names map[string]bool
}

func (o *Options) plan(tables []*table) (*source.Plan, error) {
	if o.Namespace == "" {
		o.Namespace = Namespace(o.Target.Database)
	}
	p := &planner{Options: o, plan: &source.Plan{Title: o.Target.URI()}, names: make(map[string]bool)}
	if o.Secret == "" && o.Target.Dialect != "sqlite" && o.Target.Password != "" {
		p.warn("the tools have no secret: the password that read the schema is not stored; name a reference to it with --secret")
	}
	for _, t := range tables {
		p.table(t)
	}
	p.plan.Items = len(p.plan.Tools) + len(p.plan.Refused)
	return p.plan, nil
}

func (p *planner) warn(format string, args ...any) {
	p.plan.Warnings = append(p.plan.Warnings, fmt.Sprintf(format, args...))
}

func (p *planner) refuse(t *table, tool, why string) {
	p.plan.Refused = append(p.plan.Refused, source.Refused{Origin: t.label() + " (" + tool + ")", Reason: why})
}

// table plans the tools of one table.
func (p *planner) table(t *table) {
	if t.unusable != "" {
		p.refuse(t, "table", t.unusable)
		return
	}
	base := t.name
	if t.schema != "" && t.schema != "public" {
		base = t.schema + "_" + t.name
	}
	if len(base) > 52 {
		base = base[:52] // tool ids have a maximum length
	}
	for _, make := range []func(*table, string) (map[string]any, string){p.list, p.get, p.search} {
		m, why := make(t, base)
		if m == nil {
			if why != "" {
				tool, reason, _ := strings.Cut(why, ": ")
				p.refuse(t, tool, reason)
			}
			continue
		}
		digest := canon.Digest(canon.Append(nil, m["execution"]))
		planned, err := source.Settle(m, toolkeep.SourceSpec{Type: "sql", URI: p.Target.URI(), Digest: digest, Metadata: map[string]any{"table": t.label()}}, p.Previous)
		if err != nil {
			p.refuse(t, m["tool_id"].(string), toolkeep.AsError(err).Message)
			continue
		}
		planned.Origin = t.label()
		p.plan.Tools = append(p.plan.Tools, planned)
	}
}

// builder builds one statement: its text, its placeholders and the schema of its arguments.
type builder struct {
	dialect    string
	table      *table
	where      []string
	params     []any
	numbers    map[string]int // argument -> number of its placeholder
	properties map[string]any
	required   []any
	args       map[string]bool
}

func (p *planner) builder(t *table) *builder {
	return &builder{dialect: p.Target.Dialect, table: t, numbers: make(map[string]int), properties: make(map[string]any),
		args: map[string]bool{"limit": true, "offset": true, "query": true}}
}

// arg returns the placeholder of an argument; repeated calls return the same one if the database
// numbers placeholders.
func (b *builder) arg(name string, more map[string]any) string {
	if n, ok := b.numbers[name]; ok && b.dialect != "mysql" {
		return b.placeholder(n)
	}
	param := map[string]any{"name": name}
	for k, v := range more {
		param[k] = v
	}
	b.params = append(b.params, param)
	b.numbers[name] = len(b.params)
	return b.placeholder(len(b.params))
}

func (b *builder) placeholder(n int) string {
	switch b.dialect {
	case "postgres":
		return "$" + strconv.Itoa(n)
	case "sqlite":
		return "?" + strconv.Itoa(n)
	}
	return "?"
}

func (b *builder) quote(name string) string { return Quote(b.dialect, name) }

func (b *builder) from() string {
	if b.table.schema != "" {
		return b.quote(b.table.schema) + "." + b.quote(b.table.name)
	}
	return b.quote(b.table.name)
}

// page adds limit and offset.
func (b *builder) page() string {
	b.properties["limit"] = map[string]any{"type": "integer", "minimum": 1, "maximum": mostRows, "default": defaultLimit, "description": "rows at most"}
	b.properties["offset"] = map[string]any{"type": "integer", "minimum": 0, "default": 0, "description": "rows to pass over, for the next part"}
	limit := b.arg("limit", map[string]any{"type": "integer", "default": defaultLimit, "page_size": true})
	return " LIMIT " + limit + " OFFSET " + b.arg("offset", map[string]any{"type": "integer", "default": 0})
}

// order sorts by the first key, so that pages of a list are consistent.
func (b *builder) order() string {
	if len(b.table.keys) == 0 {
		return ""
	}
	names := make([]string, len(b.table.keys[0]))
	for i, n := range b.table.keys[0] {
		names[i] = b.quote(n)
	}
	return " ORDER BY " + strings.Join(names, ", ")
}

func (b *builder) selected(columns []column) string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = b.quote(c.name)
	}
	return "SELECT " + strings.Join(names, ", ") + " FROM " + b.from()
}

func (t *table) column(name string) *column {
	for i := range t.columns {
		if t.columns[i].name == name {
			return &t.columns[i]
		}
	}
	return nil
}

// light returns the columns without blobs, which would fill a list.
func (t *table) light() []column {
	out := make([]column, 0, len(t.columns))
	for _, c := range t.columns {
		if c.kind != "bytes" {
			out = append(out, c)
		}
	}
	return out
}

// list plans the tool that lists rows, with filters on indexed columns.
func (p *planner) list(t *table, base string) (map[string]any, string) {
	columns := t.light()
	if len(columns) == 0 {
		return nil, "list: the table has no columns that a list could show"
	}
	if len(columns) < len(t.columns) {
		p.warn("%s: binary columns are left out of lists", t.label())
	}
	b := p.builder(t)
	filters := 0
	var unfit, over []string
	for _, name := range t.indexed {
		switch c := t.column(name); {
		case c == nil:
		case filters == maxFilters:
			over = append(over, name)
		case b.filter(c):
			filters++
		default:
			unfit = append(unfit, name+" ("+strings.ToLower(or2(c.typ, "no type"))+")")
		}
	}
	if len(unfit) > 0 {
		p.warn("%s: the list has no filter for indexed columns whose values cannot be compared in one way: %s", t.label(), listed(unfit))
	}
	if len(over) > 0 {
		p.warn("%s: the list has filters for %d indexed columns, the most that a list has, and none for %s", t.label(), maxFilters, listed(over))
	}
	text := b.selected(columns)
	if len(b.where) > 0 {
		text += " WHERE " + strings.Join(b.where, " AND ")
	}
	text += b.order() + b.page()
	what := "List rows of " + noun(t)
	if len(t.keys) > 0 {
		what += ", ordered by " + strings.Join(t.keys[0], ", ")
	} else if !t.view {
		p.warn("%s has no key, so that lists have no order of their own and parts may overlap", t.label())
	}
	if filters > 0 {
		what += ". Filters that are left out do not narrow"
	}
	return p.manifest(b, "list_"+base, what+".", text, columns, true), ""
}

// filter filters by one column if its type has a plain equality; times are filtered by from and to.
func (b *builder) filter(c *column) bool {
	q := b.quote(c.name)
	word := Word(c.name, nil)
	switch c.kind {
	case "integer", "number", "text", "boolean", "uuid", "enum":
		word = Word(word, b.args)
		b.properties[word] = b.property(c, "only rows with this "+c.name)
		b.compare(q+" = ", word, c)
	case "date", "timestamp", "datetime":
		if b.dialect == "sqlite" {
			return false // the format of dates depends on the writer
		}
		from, to := Word(word+"_from", b.args), Word(word+"_to", b.args)
		b.properties[from] = b.property(c, "only rows whose "+c.name+" is this or later")
		b.properties[to] = b.property(c, "only rows whose "+c.name+" is before this")
		b.compare(q+" >= ", from, c)
		b.compare(q+" < ", to, c)
	default:
		return false
	}
	return true
}

// compare adds a filter that a missing argument leaves out. The comparison comes first, so that
// PostgreSQL infers the parameter's type.
func (b *builder) compare(left, word string, c *column) {
	first := b.arg(word, b.typed(c))
	b.where = append(b.where, "("+left+first+" OR "+b.arg(word, b.typed(c))+" IS NULL)")
}

// typed returns the type of a parameter that is compared with the column, where the database does
// not infer it.
func (b *builder) typed(c *column) map[string]any {
	if b.dialect == "mysql" && (c.kind == "timestamp" || c.kind == "datetime") {
		return map[string]any{"type": "timestamp"}
	}
	return nil
}

// get plans the tool that returns one row by its key.
func (p *planner) get(t *table, base string) (map[string]any, string) {
	var key []string
	b := p.builder(t)
	for _, k := range t.keys {
		if !slices.ContainsFunc(k, func(name string) bool {
			c := t.column(name)
			return c == nil || c.nullable || slices.Contains([]string{"bytes", "json", "list", "other"}, c.kind)
		}) {
			key = k
			break
		}
	}
	if key == nil {
		if t.view {
			return nil, ""
		}
		return nil, "get: the table has no unique key without NULL whose columns can be compared"
	}
	for _, name := range key {
		c := t.column(name)
		word := Word(c.name, b.args)
		b.properties[word] = b.property(c, or2(c.comment, "the row's "+c.name))
		b.required = append(b.required, word)
		b.where = append(b.where, b.quote(c.name)+" = "+b.arg(word, b.typed(c)))
	}
	text := b.selected(t.columns) + " WHERE " + strings.Join(b.where, " AND ")
	return p.manifest(b, "get_"+base, "Get the row of "+noun(t)+" with the given "+strings.Join(key, ", ")+"; no row if there is none.", text, t.columns, false), ""
}

// search plans the tool that searches the text columns.
func (p *planner) search(t *table, base string) (map[string]any, string) {
	if t.words {
		return p.words(t, base)
	}
	b := p.builder(t)
	var searched, over []string
	for _, c := range t.columns {
		switch {
		case c.kind != "text":
		case len(searched) == maxSearched:
			over = append(over, c.name)
		default:
			searched = append(searched, c.name)
		}
	}
	if len(searched) == 0 {
		return nil, ""
	}
	if len(over) > 0 {
		p.warn("%s: the search looks in %d text columns, the most that a search has, and not in %s", t.label(), maxSearched, listed(over))
	}
	columns := t.light()
	like := " LIKE "
	if b.dialect == "postgres" {
		like = " ILIKE "
	}
	parts := make([]string, len(searched))
	for i, name := range searched {
		parts[i] = b.quote(name) + like + b.arg("query", map[string]any{"like": "contains"}) + " ESCAPE '!'"
	}
	b.properties["query"] = map[string]any{"type": "string", "minLength": 1, "maxLength": 500, "description": "text that is looked for as it is, wherever it stands and in either case"}
	b.required = append(b.required, "query")
	text := b.selected(columns) + " WHERE (" + strings.Join(parts, " OR ") + ")" + b.order() + b.page()
	return p.manifest(b, "search_"+base, "Find rows of "+noun(t)+" that hold a text in "+strings.Join(searched, ", ")+".", text, columns, true), ""
}

// words plans the tool that searches a full-text table. Each word of the query is quoted, so that
// nothing in it is an operator.
func (p *planner) words(t *table, base string) (map[string]any, string) {
	b := p.builder(t)
	b.properties["query"] = map[string]any{"type": "string", "minLength": 1, "maxLength": 500, "description": "words that are looked for, all of them, in any order and either case"}
	b.required = append(b.required, "query")
	query := b.arg("query", map[string]any{"type": "text"})
	text := b.selected(t.columns) + " WHERE " + b.quote(t.name) + ` MATCH '"' || replace(replace(` + query + `, '"', ' '), ' ', '" "') || '"' ORDER BY rank` + b.page()
	return p.manifest(b, "search_"+base, "Find rows of "+noun(t)+" that hold all words of a query, the best first.", text, t.columns, true), ""
}

func noun(t *table) string {
	kind := "the table "
	if t.view {
		kind = "the view "
	}
	return kind + t.label()
}

func or2(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

func (p *planner) manifest(b *builder, name, what, text string, columns []column, pages bool) map[string]any {
	description := what
	if b.table.comment != "" {
		description += "\n\n" + b.table.comment
	}
	binding := map[string]any{"database": p.Target.Dialect, "connection": p.Target.Connection(!p.Login), "statement": text}
	if len(b.params) > 0 {
		binding["parameters"] = b.params
	}
	if pages {
		binding["max_rows"] = mostRows
	}
	schema := map[string]any{"type": "object", "properties": b.properties, "additionalProperties": false}
	if len(b.required) > 0 {
		schema["required"] = b.required
	}
	result := resultSchema(columns)
	for _, part := range []struct {
		what   string
		schema *map[string]any
		limit  int
	}{{"arguments", &schema, source.MaxParameters}, {"result", &result, source.MaxResult}} {
		var lost string
		if *part.schema, lost = source.Shrink(*part.schema, part.limit); lost != "" {
			p.warn("%s: the schema of the %s of %s %s", b.table.label(), part.what, name, lost)
		}
	}
	m := map[string]any{
		"schema_version": 1, "tool_id": p.Namespace + "." + Word(name, p.names), "description": toolkeep.Clip(description, longest),
		"short_description": toolkeep.Clip(what, 100), "category": "database", "tags": []any{"sql", p.Target.Dialect},
		"parameters_schema": schema, "result_schema": result,
		"result": map[string]any{"strict": false}, "side_effects": "reads", "idempotent": true,
		"execution": map[string]any{"kind": "sql", "binding": binding},
	}
	m["permissions"] = p.Target.Permissions(false)
	if a := Auth(p.Secret, p.Login); a != nil && p.Target.Dialect != "sqlite" {
		m["auth"] = a
	}
	return m
}

// property returns the schema of an argument that is compared with the column.
func (b *builder) property(c *column, what string) map[string]any {
	p := map[string]any{"description": toolkeep.Clip(what, 500)}
	if c.loose {
		p["type"] = []any{"string", "number"}
		return p
	}
	switch c.kind {
	case "integer":
		p["type"] = "integer"
		c.bound(p)
	case "number":
		p["type"] = "number"
		c.bound(p)
	case "boolean":
		p["type"] = "boolean"
	case "enum":
		words := make([]any, len(c.words))
		for i, w := range c.words {
			words[i] = w
		}
		p["enum"] = words
	case "date", "uuid":
		p["type"], p["format"] = "string", c.kind
	case "timestamp":
		p["type"], p["format"] = "string", "date-time"
	case "datetime":
		p["type"] = "string"
		p["description"] = toolkeep.Clip(what, 400) + ", as 2026-01-31 23:59:59; a time with a zone is taken as UTC"
	default:
		p["type"] = "string"
	}
	return p
}

// bound adds the limits of the column's type to the schema of an argument.
func (c *column) bound(p map[string]any) {
	if c.most != "" {
		p["minimum"], p["maximum"] = c.least, c.most
	}
}

// resultSchema returns the schema of a result.
func resultSchema(columns []column) map[string]any {
	properties := make(map[string]any, len(columns))
	for _, c := range columns {
		properties[c.name] = c.value()
	}
	return map[string]any{
		"type": "object",
		"properties": map[string]any{
			"rows":      map[string]any{"type": "array", "items": map[string]any{"type": "object", "properties": properties}},
			"row_count": map[string]any{"type": "integer"},
			"truncated": map[string]any{"type": "boolean", "description": "true if rows are missing at the end"},
			"warning":   map[string]any{"type": "string"},
			"columns":   map[string]any{"type": "array", "items": map[string]any{"type": "object"}},
		},
		"required": []any{"rows", "row_count", "truncated", "columns"},
	}
}

// value returns the schema of the column's values.
func (c *column) value() map[string]any {
	v := make(map[string]any)
	if c.comment != "" {
		v["description"] = toolkeep.Clip(c.comment, 500)
	}
	var types []any
	switch c.kind {
	case "date", "datetime":
		if types = []any{"string"}; c.loose {
			types = append(types, "number")
		}
	case "integer":
		types = []any{"integer"}
	case "number":
		types = []any{"number", "string"} // NaN and infinities are text
	case "boolean":
		types = []any{"boolean"}
	case "list":
		types = []any{"array"}
	case "json", "other":
		return v
	case "bytes":
		types = []any{"string"}
		v["contentEncoding"] = "base64"
	default:
		types = []any{"string"}
	}
	if c.nullable {
		types = append(types, "null")
	}
	if len(types) == 1 {
		v["type"] = types[0]
	} else {
		v["type"] = types
	}
	return v
}
