package toolbox

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/catalog/source"
	"github.com/toolkeep/toolkeep/catalog/source/sql"
)

// Options say what is imported.
type Options struct {
	Name string // of the file, for display
	Data []byte
	// Env returns the variables for ${NAME} in hosts, ports, databases and users; nil: none.
	// Passwords are not looked up.
	Env       func(string) string
	Namespace string            // "" derives it from each source's database
	Secrets   map[string]string // source -> reference of its password
	Write     []string          // tools that write
	TLS       string            // for sources without a setting: verify, require, off; "" means verify
	Previous  source.Previous
}

// The supported kinds of Toolbox tools, and the source kind each needs.
var toolKinds = map[string]string{"postgres-sql": "postgres", "mysql-sql": "mysql", "sqlite-sql": "sqlite",
	"postgres-execute-sql": "postgres", "mysql-execute-sql": "mysql", "sqlite-execute-sql": "sqlite"}

// config is the file in one form. An entry that is not a mapping, or a toolset that is not a list,
// is nil.
type config struct {
	sources  map[string]map[string]any
	tools    map[string]map[string]any
	toolsets map[string][]any
	others   []string // other sections of the file
	odd      []string // unreadable parts, with the reason
}

// Read plans the tools of the file. It changes nothing and does not connect.
//
// Errors: E3011 with the location in the file.
func Read(o Options) (*source.Plan, error) {
	if !slices.Contains([]string{"", "verify", "require", "off"}, o.TLS) {
		return nil, failed("the TLS of sources is verify, require or off, not %q", o.TLS)
	}
	if err := source.CheckNamespace(o.Namespace); err != nil {
		return nil, err
	}
	c, err := parse(o.Data)
	if err != nil {
		return nil, err
	}
	if len(c.tools) == 0 {
		why := ""
		if len(c.odd) > 0 {
			why = ": " + c.odd[0]
		}
		return nil, failed("%s holds no tools%s", o.Name, why)
	}
	for name := range o.Secrets {
		if _, ok := c.sources[name]; !ok {
			return nil, failed("--secret names the source %q, which the file does not have", name)
		}
	}
	for _, name := range o.Write {
		if _, ok := c.tools[name]; !ok {
			return nil, failed("--write names the tool %q, which the file does not have", name)
		}
	}
	p := &planner{Options: o, config: c, names: make(map[string]bool), said: make(map[string]bool),
		plan: &source.Plan{Title: filepath.Base(o.Name), Digest: canon.Digest(o.Data), Items: len(c.tools)}}
	for _, name := range slices.Sorted(maps.Keys(c.tools)) {
		p.tool(name, c.tools[name])
	}
	for _, name := range slices.Sorted(maps.Keys(c.toolsets)) {
		p.toolset(name)
	}
	for _, what := range c.odd {
		p.warn("%s; it is left out", what)
	}
	for _, what := range c.others {
		p.warn("%s is left out: it belongs to Toolbox's own server", what)
	}
	return p.plan, nil
}

func failed(format string, args ...any) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.ImportFailed, format, args...)
}

// parse reads either form of the file.
func parse(data []byte) (*config, error) {
	docs, err := catalog.ManifestsFromYAML(data)
	if err != nil {
		e := toolkeep.AsError(err)
		out := failed("the file is not YAML that can be read: %s", e.Message)
		out.Details = e.Details
		return nil, out
	}
	c := &config{sources: map[string]map[string]any{}, tools: map[string]map[string]any{}, toolsets: map[string][]any{}}
	for i, raw := range docs {
		doc, err := canon.ParseObject(raw, canon.Limits{Bytes: catalog.MaxYAMLBytes, Properties: 200_000})
		if err != nil {
			c.odd = append(c.odd, fmt.Sprintf("document %d of the file is not a mapping", i+1))
			continue
		}
		if kind, ok := doc["kind"].(string); ok {
			if err := c.single(i+1, kind, doc); err != nil {
				return nil, err
			}
			continue
		}
		if err := c.whole(doc); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// whole reads a document with sources, tools and toolsets.
func (c *config) whole(doc map[string]any) error {
	for _, part := range slices.Sorted(maps.Keys(doc)) {
		entries, ok := doc[part].(map[string]any)
		if !ok {
			if doc[part] != nil { // else it is empty
				c.odd = append(c.odd, part+" is not a mapping of names")
			}
			continue
		}
		for name, v := range entries {
			switch part {
			case "sources", "tools":
				entry, _ := v.(map[string]any) // nil is reported where it is used
				if err := c.put(part, name, entry); err != nil {
					return err
				}
			case "toolsets":
				c.toolsets[name], _ = v.([]any)
			default:
				c.others = append(c.others, strings.TrimSuffix(part, "s")+" "+name)
			}
		}
	}
	slices.Sort(c.others)
	return nil
}

// single reads a document of one source, tool or toolset, whose kind of database is under type.
func (c *config) single(number int, kind string, doc map[string]any) error {
	name, _ := doc["name"].(string)
	if name == "" {
		c.odd = append(c.odd, fmt.Sprintf("document %d of the file, of kind %s, has no name", number, kind))
		return nil
	}
	doc = maps.Clone(doc)
	doc["kind"] = doc["type"]
	switch strings.TrimSuffix(kind, "s") {
	case "source":
		return c.put("sources", name, doc)
	case "tool":
		return c.put("tools", name, doc)
	case "toolset":
		c.toolsets[name], _ = doc["tools"].([]any)
	default:
		c.others = append(c.others, kind+" "+name)
	}
	return nil
}

func (c *config) put(part, name string, entry map[string]any) error {
	into := c.sources
	if part == "tools" {
		into = c.tools
	}
	if _, twice := into[name]; twice {
		return failed("%s has two entries with the name %q", part, name)
	}
	into[name] = entry
	return nil
}

type planner struct {
	Options
	config *config
	plan   *source.Plan
	names  map[string]bool
	said   map[string]bool
}

// warn reports each warning once.
func (p *planner) warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !p.said[text] {
		p.said[text] = true
		p.plan.Warnings = append(p.plan.Warnings, text)
	}
}

func (p *planner) tool(name string, t map[string]any) {
	m, from, why := p.manifest(name, t)
	if why == "" {
		about := toolkeep.SourceSpec{Type: "sql", URI: from.URI(), Digest: canon.Digest(canon.Append(nil, t)), Metadata: map[string]any{"toolbox": name}}
		planned, err := source.Settle(m, about, p.Previous)
		if err == nil {
			planned.Origin = name
			p.plan.Tools = append(p.plan.Tools, planned)
			return
		}
		e := toolkeep.AsError(err)
		why = e.Message
		if faults, ok := e.Details["errors"].([]toolkeep.Fault); ok && len(faults) > 0 {
			why += ": " + faults[0].Pointer + " " + faults[0].Message
		}
	}
	p.plan.Refused = append(p.plan.Refused, source.Refused{Origin: name, Reason: why})
}

// manifest builds one tool's manifest, or returns why it cannot.
func (p *planner) manifest(name string, t map[string]any) (m map[string]any, from *sql.Target, why string) {
	t = withStatement(t)
	kind, _ := t["kind"].(string)
	dialect, ok := toolKinds[kind]
	switch {
	case t == nil:
		return nil, nil, "it is not a mapping of settings such as kind, source and statement"
	case !ok:
		return nil, nil, fmt.Sprintf("tools of kind %q are not supported here; postgres-sql, mysql-sql and sqlite-sql are, their -execute-sql, and the kinds of Toolbox's prebuilt files for these databases", kind)
	}
	sourceName, _ := t["source"].(string)
	src, ok := p.config.sources[sourceName]
	switch {
	case !ok:
		return nil, nil, fmt.Sprintf("its source %q does not stand in the file", sourceName)
	case src == nil:
		return nil, nil, fmt.Sprintf("its source %q is not a mapping of settings such as kind, host and database", sourceName)
	}
	from, why = p.target(sourceName, src)
	if why != "" {
		return nil, nil, why
	}
	if from.Dialect != dialect {
		return nil, nil, fmt.Sprintf("a tool of kind %s needs a source of kind %s, and %q is of kind %s", kind, dialect, sourceName, from.Dialect)
	}
	statement, _ := t["statement"].(string)
	templates := t["templateParameters"]
	free := strings.HasSuffix(kind, "-execute-sql")
	if free {
		statement = "{{.sql}}"
		templates = []any{map[string]any{"name": "sql", "type": "string", "description": "the one statement to run; it may only read"}}
	}
	if strings.TrimSpace(statement) == "" {
		return nil, nil, "it has no statement"
	}
	params, schema, why := parameters(t["parameters"], dialect)
	if why != "" {
		return nil, nil, why
	}
	insert, why := inserts(templates, statement, dialect, schema)
	if why != "" {
		return nil, nil, why
	}
	roles, why := requiredRoles(t["authRequired"])
	if why != "" {
		return nil, nil, why
	}
	write := slices.Contains(p.Write, name)
	if write && len(insert) > 0 {
		return nil, nil, "text of the caller becomes part of its statement, which a tool that writes may not do; leave it out of --write"
	}
	if len(insert) > 0 {
		p.warn("%s puts text of its caller into its statement: it only reads, and has risk high, so that it is off until a person can approve its calls and a policy admits high risk", name)
	}
	if !write && !free && !looksLikeQuery(statement) {
		p.warn("%s looks as if it writes; it reads only, and the database will refuse it, unless --write %s says otherwise", name, name)
	}
	if len(roles) > 0 {
		p.warn("%s asks for a login of Toolbox's auth services (authRequired); here its callers need one of the roles %s", name, listed(roles))
	}
	description, _ := t["description"].(string)
	if description = strings.TrimSpace(description); description == "" {
		description = name
	}
	m = p.assemble(name, sourceName, description, strings.TrimSpace(statement), from, params, schema, write)
	if len(roles) > 0 {
		m["required_roles"] = roles
	}
	if len(insert) > 0 {
		m["execution"].(map[string]any)["binding"].(map[string]any)["insert"] = insert
		m["risk"] = "high"
	}
	return m, from, ""
}

// requiredRoles returns the auth services of which a caller needs one, as roles.
func requiredRoles(v any) ([]any, string) {
	list, ok := v.([]any)
	if v != nil && !ok {
		return nil, "its authRequired is not a list of names"
	}
	for _, e := range list {
		if s, ok := e.(string); !ok || s == "" {
			return nil, "its authRequired is not a list of names"
		}
	}
	return list, ""
}

func listed(names []any) string {
	texts := make([]string, len(names))
	for i, n := range names {
		texts[i] = fmt.Sprint(n)
	}
	return strings.Join(texts, ", ")
}

// Actions of a template that are supported: a parameter, a list with commas, and a part that
// stands where a parameter is not empty.
var (
	action   = regexp.MustCompile(`\{\{.*?\}\}`)
	inserted = regexp.MustCompile(`^\{\{\s*(?:(array|if)\s+)?\.([A-Za-z_][A-Za-z0-9_]*)\s*\}\}$`)
	ended    = regexp.MustCompile(`^\{\{\s*end\s*\}\}$`)
)

// inserts adds the templateParameters to the schema of the arguments and returns their names.
func inserts(v any, statement, dialect string, schema map[string]any) ([]any, string) {
	params, more, why := parameters(v, dialect)
	if why != "" || len(params) == 0 {
		return nil, why
	}
	properties := schema["properties"].(map[string]any)
	var names []any
	for name, p := range more["properties"].(map[string]any) {
		if properties[name] != nil {
			return nil, fmt.Sprintf("two parameters have the name %s", name)
		}
		if t := p.(map[string]any)["type"]; t != "string" && t != "array" {
			return nil, fmt.Sprintf("the templateParameter %s is of type %v; text and lists of text become part of a statement here", name, t)
		}
		properties[name] = p
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
	bare := map[string]bool{} // used outside of their {{if}}
	within, open := "", false // if and end do not nest
	for _, a := range action.FindAllString(statement, -1) {
		m, end := inserted.FindStringSubmatch(a), ended.MatchString(a)
		begin := m != nil && m[1] == "if"
		if begin && open || end && !open || !end && (m == nil || !slices.Contains(names, any(m[2]))) {
			return nil, unsupported(a)
		}
		switch open = open && !end || begin; {
		case begin:
			within = m[2]
		case end:
			within = ""
		case m[2] != within:
			bare[m[2]] = true
		}
	}
	if open {
		return nil, unsupported("{{if}} without {{end}}")
	}
	needed, _ := more["required"].([]any)
	for _, name := range names {
		p := properties[name.(string)].(map[string]any)
		switch {
		case p["default"] != nil:
		case !slices.Contains(needed, name) && !bare[name.(string)] && p["type"] == "array":
			p["default"] = []any{}
		case !slices.Contains(needed, name) && !bare[name.(string)]:
			p["default"] = ""
		default: // without a default the statement has no text for it
			required, _ := schema["required"].([]any)
			schema["required"] = append(required, name)
		}
	}
	return names, ""
}

func unsupported(action string) string {
	return fmt.Sprintf("its statement has %s; of templates {{.name}}, {{array .name}} and {{if .name}}…{{end}}, one not within another, of a templateParameter are supported", toolkeep.Clip(action, 100))
}

func (p *planner) assemble(name, sourceName, description, statement string, from *sql.Target, params []any, schema map[string]any, write bool) map[string]any {
	reference := p.reference(sourceName)
	binding := map[string]any{"database": from.Dialect, "connection": from.Connection(true), "statement": statement}
	if len(params) > 0 {
		binding["parameters"] = params
	}
	namespace := p.Namespace
	if namespace == "" {
		namespace = sql.Namespace(from.Database)
	}
	m := map[string]any{
		"schema_version": 1, "tool_id": namespace + "." + p.word(name), "description": toolkeep.Clip(description, 8000),
		"category": "database", "tags": []any{"sql", from.Dialect, "toolbox"}, "parameters_schema": schema,
		"side_effects": "reads", "idempotent": true,
		"execution": map[string]any{"kind": "sql", "binding": binding},
	}
	if write {
		binding["write"] = true
		m["side_effects"], m["idempotent"] = "writes", false
	}
	m["permissions"] = from.Permissions(write)
	if auth := sql.Auth(reference, false); auth != nil && from.Dialect != "sqlite" {
		m["auth"] = auth
	}
	return m
}

var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)

// word keeps the tool's name if possible, since agents know it.
func (p *planner) word(name string) string {
	if plainName.MatchString(name) && !p.names[name] {
		p.names[name] = true
		return name
	}
	return sql.Word(name, p.names)
}

var comments = regexp.MustCompile(`(?s)^(\s+|--[^\n]*\n|/\*.*?\*/|\()+`)

// looksLikeQuery is a guess for the user's benefit; the database enforces read-only access.
func looksLikeQuery(statement string) bool {
	word := strings.ToUpper(comments.ReplaceAllString(statement, ""))
	for _, w := range []string{"SELECT", "WITH", "VALUES", "TABLE", "SHOW", "EXPLAIN"} {
		if strings.HasPrefix(word, w) {
			return true
		}
	}
	return false
}

var variable = regexp.MustCompile(`^\$\{([A-Za-z_][A-Za-z0-9_]*)(?::([^}]*))?\}$`)

// reference returns the secret reference of the source's password: the user's, or the variable
// named in the file. A password in the file itself is not used.
func (p *planner) reference(name string) string {
	if ref := p.Secrets[name]; ref != "" {
		return ref
	}
	password, ok := p.config.sources[name]["password"]
	if !ok || password == "" {
		return ""
	}
	if m := variable.FindStringSubmatch(fmt.Sprint(password)); m != nil {
		p.warn("the password of source %s is read from the server's variable %s (env://%s), which its setting secrets.env must allow; --secret %s=… names another place", name, m[1], m[1], name)
		return "env://" + m[1]
	}
	p.warn("source %s has its password in the file; it is not imported. Put it into a secret and name it with --secret %s=secret://…", name, name)
	return ""
}

// target reads a source of a supported kind.
func (p *planner) target(name string, s map[string]any) (*sql.Target, string) {
	kind, _ := s["kind"].(string)
	t := &sql.Target{Dialect: kind, TLS: p.TLS}
	if t.TLS == "" {
		t.TLS = "verify"
	}
	var missing []string
	text := func(key string) string {
		v, ok := s[key]
		if !ok || v == nil {
			return ""
		}
		value := fmt.Sprint(v)
		m := variable.FindStringSubmatch(value)
		if m == nil {
			return value
		}
		if p.Env != nil {
			if got := p.Env(m[1]); got != "" {
				return got
			}
		}
		if m[2] == "" {
			missing = append(missing, m[1])
		}
		return m[2]
	}
	switch kind {
	case "sqlite":
		file := text("database")
		if file == "" || file == ":memory:" {
			return nil, fmt.Sprintf("source %s is not a file", name)
		}
		target, err := sql.ParseTarget(file)
		if err != nil {
			return nil, fmt.Sprintf("source %s: %s", name, err)
		}
		if len(missing) == 0 {
			return target, ""
		}
	case "postgres", "mysql":
		t.Host, t.Database, t.User = text("host"), text("database"), text("user")
		port := text("port")
		if port == "" {
			port = map[string]string{"postgres": "5432", "mysql": "3306"}[kind]
		}
		n, err := strconv.Atoi(port)
		if err != nil || n < 1 || n > 65535 {
			return nil, fmt.Sprintf("source %s: its port is not a number from 1 to 65535", name)
		}
		t.Port = n
		p.options(name, t, s["queryParams"])
		switch {
		case len(missing) > 0:
		case t.Host == "" || t.Database == "" || t.User == "":
			return nil, fmt.Sprintf("source %s lacks host, database or user", name)
		case strings.HasPrefix(t.Host, "/"):
			t.Socket, t.Host, t.TLS = filepath.Clean(t.Host), "", "off"
			return t, ""
		default:
			return t, ""
		}
	default:
		return nil, fmt.Sprintf("source %s is of kind %q, which is not supported here; postgres, mysql and sqlite are", name, kind)
	}
	return nil, fmt.Sprintf("source %s needs the variables %s, which are not set here", name, strings.Join(missing, ", "))
}

// options reads TLS from a source's queryParams.
func (p *planner) options(name string, t *sql.Target, v any) {
	params, _ := v.(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(params)) {
		value := strings.ToLower(fmt.Sprint(params[key]))
		switch key + "=" + value {
		case "sslmode=disable", "tls=false":
			t.TLS = "off"
		case "sslmode=require", "tls=skip-verify":
			t.TLS = "require"
		case "sslmode=verify-full", "sslmode=verify-ca", "tls=true":
			t.TLS = "verify"
		default:
			p.warn("source %s: the option %s is left out", name, key)
		}
	}
}

// parameters builds the binding's parameters and the schema of the arguments.
func parameters(v any, dialect string) (params []any, schema map[string]any, why string) {
	list, ok := v.([]any)
	if v != nil && !ok {
		return nil, nil, "parameters is not a list"
	}
	properties := make(map[string]any, len(list))
	var required []any
	for i, e := range list {
		q, _ := e.(map[string]any)
		name, _ := q["name"].(string)
		if name == "" {
			return nil, nil, fmt.Sprintf("parameter %d has no name", i+1)
		}
		if properties[name] != nil {
			return nil, nil, fmt.Sprintf("two parameters have the name %s", name)
		}
		for _, key := range []string{"authServices", "authSources"} {
			if l, ok := q[key].([]any); ok && len(l) > 0 {
				return nil, nil, fmt.Sprintf("parameter %s is filled from a login of Toolbox's auth services, which this server does not have", name)
			}
		}
		for _, key := range []string{"embeddedBy", "valueFromParam"} {
			if q[key] != nil {
				return nil, nil, fmt.Sprintf("parameter %s uses %s, which is Toolbox's own", name, key)
			}
		}
		property, why := property(q, 0)
		if why != "" {
			return nil, nil, fmt.Sprintf("parameter %s: %s", name, why)
		}
		param := map[string]any{"name": name}
		switch typ := q["type"]; {
		case typ == "map", typ == "array" && dialect != "postgres":
			param["type"] = "json"
		}
		if def, ok := q["default"]; ok {
			property["default"], param["default"] = def, def
		} else if q["required"] != false {
			required = append(required, name)
		}
		properties[name] = property
		params = append(params, param)
	}
	schema = map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		schema["required"] = required
	}
	return params, schema, ""
}

// property returns the JSON Schema of a Toolbox parameter.
func property(q map[string]any, depth int) (map[string]any, string) {
	typ, _ := q["type"].(string)
	p := make(map[string]any)
	if d, ok := q["description"].(string); ok && d != "" {
		p["description"] = d
	}
	switch typ {
	case "string", "integer", "boolean":
		p["type"] = typ
	case "float":
		p["type"] = "number"
	case "array":
		p["type"] = "array"
		items, ok := q["items"].(map[string]any)
		if !ok || depth > 4 {
			return nil, "an array says under items what it holds"
		}
		inner, why := property(items, depth+1)
		if why != "" {
			return nil, why
		}
		p["items"] = inner
	case "map":
		p["type"] = "object"
		if t, ok := q["valueType"].(string); ok && t != "" {
			inner, why := property(map[string]any{"type": t}, depth+1)
			if why != "" {
				return nil, why
			}
			p["additionalProperties"] = inner
		}
	default:
		return nil, fmt.Sprintf("the type %q is not known; string, integer, float, boolean, array and map are", typ)
	}
	for from, to := range map[string]string{"minValue": "minimum", "maxValue": "maximum"} {
		if n, ok := q[from].(json.Number); ok {
			p[to] = n
		}
	}
	if words, ok := q["allowedValues"].([]any); ok && len(words) > 0 {
		if typ == "string" && slices.ContainsFunc(words, func(w any) bool { s, _ := w.(string); return strings.ContainsAny(s, `^$.*+?[](){}|\`) }) {
			var patterns []any // Toolbox reads them as regular expressions
			for _, w := range words {
				s, _ := w.(string)
				patterns = append(patterns, map[string]any{"pattern": "^(?:" + s + ")$"})
			}
			p["anyOf"] = patterns
		} else {
			p["enum"] = words
		}
	}
	if words, ok := q["excludedValues"].([]any); ok && len(words) > 0 {
		p["not"] = map[string]any{"enum": words}
	}
	return p, ""
}

// toolset reports a toolset's content, since sets belong into a file of the server.
func (p *planner) toolset(name string) {
	var ids []string
	if p.config.toolsets[name] == nil {
		p.warn("toolset %s is left out: it is not a list of tools", name)
		return
	}
	for _, e := range p.config.toolsets[name] {
		tool, _ := e.(string)
		for _, t := range p.plan.Tools {
			if t.Origin == tool {
				ids = append(ids, t.Name)
			}
		}
	}
	p.warn("toolset %s is a set of the server's mcp.sets_file: %s", name, strings.Join(ids, ", "))
}
