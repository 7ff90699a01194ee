package sqltool

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	xjson "github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/executor/bindings"
	"github.com/toolkeep/toolkeep/redact"
)

// Limits of a binding.
const (
	defaultRows   = 1_000
	maxRows       = 1_000_000
	defaultBytes  = 1_000_000
	maxBytes      = 100 << 20
	maxStatements = 32
	maxText       = 256 << 10 // bytes per statement
)

// binding is a parsed execution.binding, reused for many calls.
type binding struct {
	dialect    dialect
	conn       connection
	statements []statement
	single     bool // it stands under statement and not in statements
	all        bool // return the results of all statements, not only the last
	write      bool
	isolation  string
	apart      []toolkeep.Fault // statements that would not be part of the call's transaction
	rows       int
	bytes      int64
	allow      []toolkeep.HostPort
	// share identifies tools that may share connections.
	share [32]byte
}

// connection says where the database is, without the password.
type connection struct {
	host       string
	port       int
	socket     string // a directory for PostgreSQL, a file for MySQL
	database   string
	user       string
	tls        string // verify, require, off
	serverName string
	roots      *x509.CertPool
	superuser  bool   // accepts a login that read-only mode cannot restrict
	file       string // SQLite
}

// upstream names the database for redact.Scope.
func (c *connection) upstream() string {
	if c.host != "" {
		return redact.Host(c.host)
	}
	return "file:" + c.socket + c.file
}

type statement struct {
	text   string
	insert []string // arguments whose text stands in the statement as {{.name}}
	params []parameter
	first  []string // its first words, at most two, in upper case
}

// parameter maps an argument to one placeholder.
type parameter struct {
	arg  string
	typ  string // "" lets the database infer it
	list bool   // typ is the elements' type
	like string // contains, prefix, suffix: the value is a literal part of a pattern
	page bool   // the value is how many rows are shown; one more is asked for
	def  any
	has  bool // def is set
}

var paramTypes = []string{"", "text", "integer", "number", "boolean", "bytes", "json", "date", "time", "timestamp", "uuid"}

// parse reads a manifest's binding. It reports all faults at once.
func parse(m *toolkeep.Manifest) (*binding, []toolkeep.Fault) {
	r := &bindings.Reader{}
	top, ok := r.Read(m)
	if !ok {
		return nil, r.Faults
	}
	b := &binding{}
	switch d := top.Text("database", true); d {
	case "postgres", "mysql", "sqlite":
		b.dialect = dialect(d)
	case "":
	default:
		top.Fault("database", "enum", "the database is postgres, mysql (MariaDB too) or sqlite, not %q", d)
	}
	if o, ok := top.Sub("connection"); ok {
		b.readConnection(o)
	} else {
		top.Fault("connection", "required", "connection is required: it says where the database is")
	}
	b.readStatements(top)
	b.checkTransactions(top)
	b.all = top.Choice("results", "last", "all") == "all"
	b.write = top.Flag("write")
	b.isolation = top.Choice("isolation", "", "read committed", "repeatable read", "serializable")
	b.rows = int(top.Count("max_rows", defaultRows, maxRows))
	b.bytes = top.Count("max_bytes", defaultBytes, maxBytes)
	top.Done()
	if b.isolation != "" && b.dialect == sqliteDB {
		top.Fault("isolation", "unsupported", "SQLite has one isolation level, serializable; leave it out")
	}

	b.checkEffects(r, m)
	b.checkInsert(r, m)
	b.checkArgs(r, m)
	checkAuth(r, m, b)
	if m.Permissions != nil {
		b.allow = slices.Clone(m.Permissions.Network)
	}
	if len(r.Faults) > 0 {
		return nil, r.Faults
	}
	b.share = canon.Hash(map[string]any{
		"database": string(b.dialect), "connection": top.Tree["connection"], "write": b.write, "allow": allowKey(b.allow),
	})
	return b, nil
}

// allowKey is the allow-list as part of the share key: a connection permitted by one
// tool's list is not used for a tool with another list.
func allowKey(hosts []toolkeep.HostPort) []any {
	texts := make([]string, len(hosts))
	for i, h := range hosts {
		texts[i] = strings.ToLower(strings.TrimSuffix(h.Host, ".")) + " " + strconv.Itoa(h.Port)
	}
	slices.Sort(texts)
	texts = slices.Compact(texts)
	out := make([]any, len(texts))
	for i, t := range texts {
		out[i] = t
	}
	return out
}

func (b *binding) readConnection(o *bindings.Object) {
	c := &b.conn
	if b.dialect == sqliteDB {
		c.file = o.Text("file", true)
		switch {
		case c.file == "":
		case !filepath.IsAbs(c.file) || filepath.Clean(c.file) != c.file:
			o.Fault("file", "path", "the file is an absolute path without . and .., below one of the server's sql.sqlite_roots")
		case strings.IndexByte(c.file, 0) >= 0:
			o.Fault("file", "path", "the path holds a NUL character")
		}
		o.Done()
		return
	}
	c.host, c.socket = o.Text("host", false), o.Text("socket", false)
	switch {
	case c.host == "" && c.socket == "", c.host != "" && c.socket != "":
		o.Fault("host", "required", "either host or socket is required")
	case c.socket != "" && (!filepath.IsAbs(c.socket) || filepath.Clean(c.socket) != c.socket):
		o.Fault("socket", "path", "the socket is an absolute path without . and ..: the directory for PostgreSQL, the file for MySQL")
	case strings.ContainsAny(c.host, "/,@ \x00") || strings.Contains(c.host, "://") || strings.Count(c.host, ":") == 1:
		o.Fault("host", "host", "the host is one name or address without port, user or scheme; the port stands under port")
	}
	port := int64(5432)
	if b.dialect == mysqlDB {
		port = 3306
	}
	c.port = int(o.Count("port", port, 65535))
	c.database = o.Text("database", false)
	c.user = o.Text("user", false)
	if b.dialect == postgres && c.database == "" {
		o.Fault("database", "required", "database is required")
	}
	for name, v := range map[string]string{"database": c.database, "user": c.user} {
		if strings.IndexByte(v, 0) >= 0 {
			o.Fault(name, "text", "%s holds a NUL character", name)
		}
	}
	if c.socket != "" {
		c.tls = o.Choice("tls", "off")
	} else {
		c.tls = o.Choice("tls", "verify", "require", "off")
	}
	c.serverName = o.Text("server_name", false)
	if ca := o.Text("ca", false); ca != "" {
		c.roots = x509.NewCertPool()
		if !c.roots.AppendCertsFromPEM([]byte(ca)) {
			o.Fault("ca", "pem", "ca holds no certificate in PEM form")
		}
	}
	if (c.serverName != "" || c.roots != nil) && c.tls != "verify" {
		o.Fault("tls", "conflict", "server_name and ca need tls: verify")
	}
	c.superuser = o.Flag("superuser")
	o.Done()
}

func (b *binding) readStatements(top *bindings.Object) {
	_, one := top.Tree["statement"]
	_, many := top.Tree["statements"]
	if one == many {
		top.Fault("statement", "required", "either statement or statements is required")
	}
	if b.single = one; one {
		b.statements = []statement{b.readStatement(top)}
	}
	list := top.Objects("statements")
	if many && (len(list) == 0 || len(list) > maxStatements) {
		top.Fault("statements", "size", "statements holds 1 to %d statements", maxStatements)
	}
	for _, o := range list {
		b.statements = append(b.statements, b.readStatement(o))
		o.Done()
	}
}

// at is the pointer of a statement's members.
func (b *binding) at(i int) string {
	if b.single {
		return bindings.At
	}
	return bindings.At + "/statements/" + strconv.Itoa(i)
}

func (b *binding) readStatement(o *bindings.Object) statement {
	st := statement{text: o.Text("statement", true)}
	for _, p := range o.Objects("parameters") {
		st.params = append(st.params, b.readParameter(p))
		p.Done()
	}
	st.insert = b.readInsert(o)
	if st.text == "" || b.dialect == "" {
		return st
	}
	if len(st.text) > maxText {
		o.Fault("statement", "size", "the statement has %d bytes; at most %d are accepted", len(st.text), maxText)
		return st
	}
	text, missing, unused := st.filled(nil)
	switch {
	case missing != "":
		o.Fault("statement", "insert", "the statement has {{.%s}}, which insert does not list", missing)
		return st
	case unused != "":
		o.Fault("insert", "insert", "the statement has no {{.%s}}", unused)
		return st
	}
	n, err := scan(b.dialect, text)
	st.first = n.first
	switch {
	case err != nil:
		o.Fault("statement", "sql", "%s", err)
	case n.statements != 1:
		o.Fault("statement", "one", "there are %d statements; write exactly one, and several that belong together under statements", n.statements)
	case n.params != len(st.params):
		o.Fault("parameters", "placeholders", "the statement has %d placeholders and parameters lists %d", n.params, len(st.params))
	}
	pages := 0
	for _, p := range st.params {
		if p.page {
			pages++
		}
	}
	if pages > 1 {
		o.Fault("parameters", "one", "%d parameters say page_size; a statement has one", pages)
	}
	return st
}

func (b *binding) readParameter(o *bindings.Object) parameter {
	name := o.Text("name", true)
	p := parameter{arg: o.Text("arg", false), typ: o.Text("type", false)}
	if p.arg == "" {
		p.arg = name
	}
	p.typ, p.list = strings.CutSuffix(p.typ, "[]")
	switch {
	case !slices.Contains(paramTypes, p.typ) || p.list && p.typ == "":
		o.Fault("type", "enum", "the type is one of %s, or one of them with [] for PostgreSQL, or left out", strings.Join(paramTypes[1:], ", "))
	case p.list && b.dialect != postgres && b.dialect != "":
		o.Fault("type", "unsupported", "only PostgreSQL accepts arrays; pass JSON and take it apart in the statement")
	}
	p.like = o.Choice("like", "", "contains", "prefix", "suffix")
	if p.like != "" && p.typ != "" && (p.typ != "text" || p.list) {
		o.Fault("like", "conflict", "like makes a pattern of a text")
	}
	if p.page = o.Flag("page_size"); p.page && (p.typ != "integer" || p.list) {
		o.Fault("page_size", "conflict", "a page size has the type integer")
	}
	p.def, p.has = o.Member("default")
	return p
}

// checkEffects requires that manifest and binding agree on whether the tool writes.
func (b *binding) checkEffects(r *bindings.Reader, m *toolkeep.Manifest) {
	writes := m.SideEffects == "" || m.SideEffects == "writes"
	for _, st := range b.statements {
		if b.write && slices.ContainsFunc(st.params, func(p parameter) bool { return p.page }) {
			r.Fault(bindings.At+"/write", "conflict", "a page_size asks for one row more than is shown, so a statement that writes would change one row more; use a plain parameter")
		}
	}
	switch {
	case b.write && !writes:
		r.Fault("/side_effects", "conflict", "the binding says write: true, so side_effects must be writes")
	case !b.write && writes:
		r.Fault("/side_effects", "conflict", "without write: true in the binding the database is opened to read; say side_effects: reads, or write: true")
	}
}

// checkFilesystem requires a local file or socket to be listed under
// permissions.filesystem, which needs a separate permission to publish.
func (b *binding) checkFilesystem(m *toolkeep.Manifest) []toolkeep.Fault {
	path, mode := b.conn.file, "ro"
	switch {
	case b.conn.socket != "":
		path = b.socketFile()
	case path == "":
		return nil
	case b.write:
		mode = "rw"
	}
	if m.Permissions != nil {
		for _, f := range m.Permissions.Filesystem {
			rel, err := filepath.Rel(f.Path, path)
			if err == nil && filepath.IsLocal(rel) && (mode == "ro" || f.Mode == "rw") {
				return nil
			}
		}
	}
	return []toolkeep.Fault{{Pointer: "/permissions/filesystem", Rule: "required",
		Message: "the database is a file of the server; name it under permissions.filesystem: [{path: " + path + ", mode: " + mode + "}]"}}
}

// checkArgs compares the arguments with those in the schema, if it lists any.
func (b *binding) checkArgs(r *bindings.Reader, m *toolkeep.Manifest) {
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if xjson.Unmarshal(m.ParametersSchema, &schema) != nil || schema.Properties == nil {
		return // reported by the schema check
	}
	for i, st := range b.statements {
		for j, p := range st.params {
			if _, ok := schema.Properties[p.arg]; !ok && p.arg != "" {
				r.Fault(b.at(i)+"/parameters/"+strconv.Itoa(j)+"/arg", "argument", "parameters_schema has no property %q", p.arg)
			}
		}
		for _, name := range st.insert {
			if _, ok := schema.Properties[name]; !ok {
				r.Fault(b.at(i)+"/insert", "argument", "parameters_schema has no property %q", name)
			}
		}
	}
}

// checkAuth refuses credentials that a database cannot use.
func checkAuth(r *bindings.Reader, m *toolkeep.Manifest, b *binding) {
	named := b.conn.user != "" || b.dialect == sqliteDB || b.dialect == ""
	if len(m.Auth) == 0 && !named {
		r.Fault(bindings.At+"/connection/user", "required", "user is required where auth gives none")
	}
	for i, spec := range m.Auth {
		at := bindings.AuthAt(i)
		gives := checkSpec(r, at, spec, b)
		more, _ := r.Also(at, spec)
		for j, s := range more {
			gives = checkSpec(r, bindings.AlsoAt(at, j), s, b) || gives
		}
		if !named && !gives {
			r.Fault(bindings.At+"/connection/user", "required", "user is required: auth of type %s gives none", spec.Type)
		}
	}
}

// checkSpec reports whether the spec names a user.
func checkSpec(r *bindings.Reader, at string, s toolkeep.AuthSpec, b *binding) (user bool) {
	if s.Type == "none" {
		return false
	}
	if b.dialect == sqliteDB {
		r.Fault(at+"/type", "unsupported", "SQLite files have no logins; leave auth out")
		return false
	}
	if s.In != "" || s.Name != "" || s.Prefix != "" {
		r.Fault(at+"/in", "unsupported", "a database takes the secret at its login; leave out in, name and prefix")
	}
	switch s.Type {
	case "basic":
		return true
	case "bearer", "oauth2_client_credentials", "oauth2_refresh", "google_service_account", "azure_ad":
	case "mtls":
		if b.conn.tls == "off" {
			r.Fault(at+"/type", "conflict", "a client certificate needs TLS; connection.tls is off")
		}
	case "api_key":
		r.Fault(at+"/type", "unsupported", "use basic for user:password, or bearer for a password alone")
	default:
		r.Fault(at+"/type", "unsupported", "a database login cannot be made with auth of type %q; basic, bearer, mtls and the minted tokens can", s.Type)
	}
	return false
}

// address is the host and port of a network database.
func (c *connection) address() string { return net.JoinHostPort(c.host, strconv.Itoa(c.port)) }

// secure returns the connection's TLS config; nil means none.
func (c *connection) secure(roots *x509.CertPool, cert *tls.Certificate) *tls.Config {
	if c.tls == "off" {
		return nil
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.host, RootCAs: roots}
	if c.serverName != "" {
		t.ServerName = c.serverName
	}
	if c.roots != nil {
		t.RootCAs = c.roots
	}
	if c.tls == "require" {
		t.InsecureSkipVerify = true // as the manifest requests: encrypted, but unauthenticated
	}
	if cert != nil {
		t.Certificates = []tls.Certificate{*cert}
	}
	return t
}
