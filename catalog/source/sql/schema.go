package sql

import (
	"context"
	"crypto/tls"
	stdsql "database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/egress"
)

// Limits of reading a schema.
const (
	maxTables  = 10_000
	maxColumns = 1_600
)

// table is a table or a view.
type table struct {
	schema, name string
	view         bool
	comment      string
	words        bool   // a full-text table of SQLite's FTS5
	unusable     string // why no tool can read it, "" for others
	columns      []column
	keys         [][]string // columns of unique indexes, the primary key first
	indexed      []string   // first columns of indexes
}

// column is one column with the type data a tool needs.
type column struct {
	name, typ string // typ as the database writes it
	kind      string // integer, number, text, boolean, date, time, timestamp (with zone), datetime, uuid, json, bytes, enum, list, other
	words     []string
	least     json.Number // smallest and largest value of the type, "" without a limit
	most      json.Number
	nullable  bool
	loose     bool // the format of its times depends on what wrote them (SQLite)
	comment   string
}

// label returns the table's name for display and for --table.
func (t *table) label() string {
	if t.schema == "" {
		return t.name
	}
	return t.schema + "." + t.name
}

// open opens the database with the target's TLS setting.
func (t *Target) open() (*stdsql.DB, error) {
	switch t.Dialect {
	case "postgres":
		cfg, err := pgx.ParseConfig("host=/ port=5432 user=x dbname=x sslmode=disable passfile=/dev/null")
		if err != nil {
			return nil, fmt.Errorf("the environment holds PostgreSQL settings that cannot be read")
		}
		cfg.Host, cfg.Port, cfg.Database, cfg.User, cfg.Password = t.Host, uint16(t.Port), t.Database, t.User, t.Password
		if t.Socket != "" {
			cfg.Host = t.Socket
		}
		cfg.TLSConfig, cfg.Fallbacks = t.secure(), nil
		cfg.RuntimeParams = map[string]string{"application_name": "toolkeep import", "default_transaction_read_only": "on"}
		return stdlib.OpenDB(*cfg), nil
	case "mysql":
		cfg := mysql.NewConfig()
		cfg.User, cfg.Passwd, cfg.DBName = t.User, t.Password, t.Database
		cfg.Net, cfg.Addr = "tcp", net.JoinHostPort(t.Host, strconv.Itoa(t.Port))
		if t.Socket != "" {
			cfg.Net, cfg.Addr = "unix", t.Socket
		}
		cfg.TLS = t.secure()
		cfg.Logger = silent{}
		cfg.AllowCleartextPasswords = t.TLS == "verify" && t.Socket == ""
		c, err := mysql.NewConnector(cfg)
		if err != nil {
			return nil, fmt.Errorf("the connection cannot be set up")
		}
		return stdsql.OpenDB(c), nil
	}
	return stdsql.Open("sqlite", "file:"+(&url.URL{Path: t.File}).EscapedPath()+"?mode=ro&_pragma=query_only(1)&_pragma=trusted_schema(0)&_defensive=1")
}

type silent struct{}

func (silent) Print(...any) {}

func (t *Target) secure() *tls.Config {
	if t.TLS == "off" {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.Host, InsecureSkipVerify: t.TLS == "require"}
}

// read returns the tables that match the patterns, and the labels of all tables.
func (t *Target) read(ctx context.Context, chosen func(*table) bool) (tables []*table, all []string, err error) {
	db, err := t.open()
	if err != nil {
		return nil, nil, err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	db.SetConnMaxLifetime(10 * time.Minute)
	if err := t.greet(ctx, db); err != nil {
		return nil, nil, err
	}
	r := reader{ctx: ctx, db: db}
	list := map[string]func() []*table{"postgres": r.pgTables, "mysql": r.myTables, "sqlite": r.liteTables}[t.Dialect]()
	detail := map[string]func(*table){"postgres": r.pgTable, "mysql": r.myTable, "sqlite": r.liteTable}[t.Dialect]
	for _, tb := range list {
		all = append(all, tb.label())
		if r.err == nil && chosen(tb) {
			if tb.unusable == "" {
				detail(tb)
			}
			tables = append(tables, tb)
		}
	}
	switch {
	case r.err == nil:
	case t.Dialect == "sqlite":
		return nil, nil, fmt.Errorf("reading the schema of the SQLite file %s: %s", t.File, t.liteAdvice(r.err))
	default:
		return nil, nil, fmt.Errorf("reading the schema: %s", t.hide(r.err))
	}
	return tables, all, nil
}

// greet connects. If the server is not such a database, or does not answer, the error says so in
// place of the driver's message.
func (t *Target) greet(ctx context.Context, db *stdsql.DB) error {
	within, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	err := db.PingContext(within)
	if err == nil {
		return nil
	}
	var (
		pgSaid  *pgconn.PgError
		mySaid  *mysql.MySQLError
		network *net.OpError
		name    *net.DNSError
		where   = t.Socket
	)
	if where == "" {
		where = net.JoinHostPort(t.Host, strconv.Itoa(t.Port))
	}
	switch {
	case t.Dialect == "sqlite":
		return fmt.Errorf("opening the SQLite file %s: %s", t.File, t.liteAdvice(err))
	case errors.As(err, &pgSaid), errors.As(err, &mySaid), errors.As(err, &name):
	case ctx.Err() == nil && within.Err() != nil:
		return fmt.Errorf("connecting to the database: %s did not answer as %s does within %s; is it the right port?", where, product[t.Dialect], connectTime)
	case strings.Contains(err.Error(), "refused TLS"), errors.Is(err, mysql.ErrNoTLS):
		return fmt.Errorf("connecting to the database: %s", t.hide(noTLS(t.Dialect, where)))
	case errors.As(err, &network) && network.Op == "dial", egress.IsTLS(err):
	default:
		return fmt.Errorf("connecting to the database: what listens at %s does not speak as %s does; is it the right port? (%s)", where, product[t.Dialect], toolkeep.Clip(t.hide(err), 200))
	}
	return fmt.Errorf("connecting to the database: %s", t.hide(err))
}

// liteAdvice gives advice for an SQLite error, which names no file and reports a folder as out of
// memory.
func (t *Target) liteAdvice(err error) string {
	info, bad := os.Stat(t.File)
	var said *sqlite.Error
	switch {
	case errors.Is(bad, os.ErrNotExist):
		return "there is no such file; an import makes none, so check the path"
	case bad != nil:
		return "it cannot be reached (" + bad.Error() + "); give this user the right to read it"
	case !info.Mode().IsRegular():
		return "it is not a file; name the database's file"
	case !errors.As(err, &said):
		return err.Error()
	}
	switch said.Code() & 0xff {
	case sqlite3.SQLITE_NOTADB:
		return "it is not an SQLite database, or an encrypted one; name the database's file"
	case sqlite3.SQLITE_CORRUPT:
		return "it is damaged (" + said.Error() + "); restore it from a backup, or see what `.recover` of SQLite's shell can save"
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return "another process holds it locked; import again once that is done"
	case sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY:
		return "it cannot be opened (" + said.Error() + "); this user needs the right to read it, and in WAL mode to write in its folder"
	}
	return said.Error()
}

const connectTime = 15 * time.Second

var product = map[string]string{"postgres": "PostgreSQL", "mysql": "MySQL"}

func noTLS(dialect, where string) error {
	if dialect == "mysql" {
		return fmt.Errorf("%s takes no TLS; add ?tls=false if that is meant", where)
	}
	return fmt.Errorf("%s takes no TLS; add ?sslmode=disable if that is meant, or check the port", where)
}

// hide removes the password from a driver's message.
func (t *Target) hide(err error) string {
	text := err.Error()
	if len(t.Password) >= 4 {
		text = strings.ReplaceAll(text, t.Password, "[secret]")
	}
	return text
}

// reader runs the queries of one import; the first error ends it.
type reader struct {
	ctx context.Context
	db  *stdsql.DB
	err error
}

// rows runs a query and scans each row with scan.
func (r *reader) rows(limit int, scan func(func(...any) error) error, query string, args ...any) {
	if r.err != nil {
		return
	}
	rows, err := r.db.QueryContext(r.ctx, query, args...)
	if err != nil {
		r.err = err
		return
	}
	defer rows.Close()
	for n := 0; rows.Next(); n++ {
		if n == limit {
			r.err = fmt.Errorf("there are more than %d", limit)
			return
		}
		if r.err = scan(rows.Scan); r.err != nil {
			return
		}
	}
	r.err = rows.Err()
}

func (r *reader) pgTables() (out []*table) {
	r.rows(maxTables, func(scan func(...any) error) error {
		t := &table{}
		var kind string
		err := scan(&t.schema, &t.name, &kind, &t.comment)
		t.view = kind == "v" || kind == "m"
		out = append(out, t)
		return err
	}, `SELECT n.nspname, c.relname, c.relkind::text, coalesce(obj_description(c.oid, 'pg_class'), '')
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'v', 'm', 'p', 'f') AND NOT c.relispartition
AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\_toast%' AND n.nspname NOT LIKE 'pg\_temp%'
AND has_table_privilege(c.oid, 'SELECT') ORDER BY 1, 2`)
	return out
}

func (r *reader) pgTable(t *table) {
	r.rows(maxColumns, func(scan func(...any) error) error {
		c := column{}
		var base, category, enum string
		err := scan(&c.name, &c.typ, &base, &category, &c.nullable, &c.comment, &enum)
		c.kind = pgKind(base, category)
		c.least, c.most = pgBounds(base)
		if c.kind == "enum" {
			if c.words = strings.Split(enum, "\x1f"); enum == "" {
				c.kind = "other"
			}
		}
		t.columns = append(t.columns, c)
		return err
	}, `SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod),
coalesce(b.typname, ty.typname), ty.typcategory::text, NOT a.attnotnull, coalesce(col_description(a.attrelid, a.attnum), ''),
coalesce((SELECT string_agg(e.enumlabel, chr(31) ORDER BY e.enumsortorder) FROM pg_catalog.pg_enum e WHERE e.enumtypid IN (ty.oid, b.oid)), '')
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_type ty ON ty.oid = a.atttypid LEFT JOIN pg_catalog.pg_type b ON b.oid = ty.typbasetype AND ty.typtype = 'd'
WHERE n.nspname = $1 AND c.relname = $2 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`, t.schema, t.name)
	r.rows(maxColumns, func(scan func(...any) error) error {
		var unique bool
		var names string
		err := scan(&unique, &names)
		t.index(unique, strings.Split(names, "\x1f"))
		return err
	}, `SELECT i.indisunique, string_agg(a.attname, chr(31) ORDER BY k.n)
FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL unnest(i.indkey[0:i.indnkeyatts - 1]) WITH ORDINALITY AS k(attnum, n)
JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE n.nspname = $1 AND c.relname = $2 AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid, i.indisunique, i.indisprimary ORDER BY i.indisprimary DESC, i.indisunique DESC, i.indexrelid`, t.schema, t.name)
}

func pgKind(base, category string) string {
	switch base {
	case "int2", "int4", "int8":
		return "integer"
	case "numeric", "float4", "float8":
		return "number"
	case "text", "varchar", "bpchar", "citext", "name":
		return "text"
	case "bool":
		return "boolean"
	case "date", "uuid", "time":
		return base
	case "bytea":
		return "bytes"
	case "timestamp":
		return "datetime"
	case "json", "jsonb":
		return "json"
	case "timestamptz":
		return "timestamp"
	case "int2vector", "oidvector": // their text is no array's
		return "other"
	}
	switch category {
	case "E":
		return "enum"
	case "A":
		return "list"
	}
	return "other"
}

// pgBounds returns the limits of a PostgreSQL type. The server refuses values beyond them, so the
// tool's schema must refuse them first.
func pgBounds(base string) (least, most json.Number) {
	switch base {
	case "int2":
		return bits(16, true)
	case "int4":
		return bits(32, true)
	case "int8":
		return bits(64, true)
	case "float4":
		return double(math.MaxFloat32, 32)
	case "float8":
		return double(math.MaxFloat64, 64)
	}
	return "", ""
}

// myBounds returns the limits of a MySQL type; full contains unsigned, and the length of a bit. For
// a value beyond them the server finds nothing.
func myBounds(base, full string) (least, most json.Number) {
	signed := !strings.Contains(full, "unsigned")
	switch base {
	case "tinyint":
		return bits(8, signed)
	case "smallint":
		return bits(16, signed)
	case "mediumint":
		return bits(24, signed)
	case "int":
		return bits(32, signed)
	case "bigint":
		return bits(64, signed)
	case "year":
		return "0", "2155"
	case "bit":
		n := 1
		if _, length, ok := strings.Cut(full, "("); ok {
			n, _ = strconv.Atoi(strings.TrimRight(length, ") "))
		}
		if n >= 1 && n <= 64 {
			return bits(n, false)
		}
	case "float":
		return double(math.MaxFloat32, 32)
	case "double":
		return double(math.MaxFloat64, 64)
	}
	return "", ""
}

// bits returns the limits of an integer of n bits. Manifests hold numbers as doubles (RFC 8785), so
// limits above 53 bits are the next power of two as a double; the executor refuses values between
// that and the type's own limit.
func bits(n int, signed bool) (least, most json.Number) {
	size := n
	if signed {
		size--
	}
	end := math.Ldexp(1, size)
	last := end - 1
	if size > 53 {
		last = end
	}
	text := func(f float64) json.Number { return json.Number(strconv.FormatFloat(f, 'f', -1, 64)) }
	if signed {
		return text(-end), text(last)
	}
	return "0", text(last)
}

func double(most float64, size int) (json.Number, json.Number) {
	text := strconv.FormatFloat(most, 'e', -1, size)
	return json.Number("-" + text), json.Number(text)
}

// index records an index over the columns, in order of importance.
func (t *table) index(unique bool, names []string) {
	if unique {
		t.keys = append(t.keys, names)
	}
	if !slices.Contains(t.indexed, names[0]) {
		t.indexed = append(t.indexed, names[0])
	}
}

func (r *reader) myTables() (out []*table) {
	r.rows(maxTables, func(scan func(...any) error) error {
		t := &table{}
		var kind string
		err := scan(&t.name, &kind, &t.comment)
		if t.view = strings.Contains(kind, "VIEW"); t.view {
			t.comment = "" // for a view the server returns VIEW
		}
		out = append(out, t)
		return err
	}, `SELECT TABLE_NAME, TABLE_TYPE, TABLE_COMMENT FROM information_schema.TABLES
WHERE TABLE_SCHEMA = DATABASE() AND TABLE_TYPE IN ('BASE TABLE', 'VIEW', 'SYSTEM VERSIONED') ORDER BY 1`)
	return out
}

func (r *reader) myTable(t *table) {
	r.rows(maxColumns, func(scan func(...any) error) error {
		c := column{}
		var base, nullable string
		err := scan(&c.name, &c.typ, &base, &nullable, &c.comment)
		c.nullable = nullable == "YES"
		c.kind, c.words = myKind(strings.ToLower(base), c.typ)
		c.least, c.most = myBounds(strings.ToLower(base), strings.ToLower(c.typ))
		t.columns = append(t.columns, c)
		return err
	}, `SELECT COLUMN_NAME, COLUMN_TYPE, DATA_TYPE, IS_NULLABLE, COLUMN_COMMENT FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ? ORDER BY ORDINAL_POSITION`, t.name)
	var name string
	var unique bool
	var columns []string
	flush := func() {
		if len(columns) > 0 {
			t.index(unique, columns)
		}
		columns = nil
	}
	r.rows(10*maxColumns, func(scan func(...any) error) error {
		var index, column string
		var free int
		err := scan(&index, &free, &column)
		if index != name {
			flush()
		}
		name, unique = index, free == 0
		columns = append(columns, column)
		return err
	}, `SELECT INDEX_NAME, NON_UNIQUE, COLUMN_NAME FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ? AND COLUMN_NAME IS NOT NULL AND INDEX_TYPE IN ('BTREE', 'HASH')
ORDER BY INDEX_NAME <> 'PRIMARY', NON_UNIQUE, INDEX_NAME, SEQ_IN_INDEX`, t.name)
	flush()
}

func myKind(base, full string) (string, []string) {
	switch base {
	case "tinyint", "smallint", "mediumint", "int", "bigint", "year", "bit":
		return "integer", nil
	case "decimal", "float", "double":
		return "number", nil
	case "char", "varchar", "text", "tinytext", "mediumtext", "longtext":
		return "text", nil
	case "date", "json", "uuid":
		return base, nil
	case "datetime", "timestamp":
		return base, nil
	case "time":
		return "time", nil
	case "binary", "varbinary", "blob", "tinyblob", "mediumblob", "longblob":
		return "bytes", nil
	case "enum":
		return "enum", enumWords(full)
	}
	return "other", nil
}

// enumWords parses enum('a','b').
func enumWords(s string) (out []string) {
	_, s, _ = strings.Cut(s, "(")
	for {
		_, rest, ok := strings.Cut(s, "'")
		if !ok {
			return out
		}
		var w strings.Builder
		i := 0
		for ; i < len(rest); i++ {
			if rest[i] == '\'' {
				if i+1 < len(rest) && rest[i+1] == '\'' {
					i++
				} else {
					break
				}
			}
			w.WriteByte(rest[i])
		}
		out = append(out, w.String())
		s = rest[min(i+1, len(rest)):]
	}
}

// liteTables leaves out shadow tables, in which a virtual table keeps its data. Those of a module
// that this build does not have are known by their names.
func (r *reader) liteTables() (out []*table) {
	modules := make(map[string]bool)
	r.rows(maxTables, func(scan func(...any) error) error {
		var name string
		err := scan(&name)
		modules[strings.ToLower(name)] = true
		return err
	}, `SELECT name FROM pragma_module_list`)
	shadows := make(map[string]bool)
	r.rows(maxTables, func(scan func(...any) error) error {
		t := &table{}
		var kind, made string
		err := scan(&t.name, &kind, &made)
		t.view = kind == "view"
		if kind == "virtual" {
			module := strings.ToLower(madeWith(made))
			t.words = module == "fts5"
			if !modules[module] {
				t.unusable = "it is a virtual table of the module " + strconv.Quote(module) + ", which this server does not have"
				for _, end := range []string{"content", "segments", "segdir", "docsize", "stat", "node", "parent", "rowid", "data", "idx", "config"} {
					shadows[t.name+"_"+end] = true
				}
			}
		}
		out = append(out, t)
		return err
	}, `SELECT l.name, l.type, coalesce(s.sql, '') FROM pragma_table_list l LEFT JOIN sqlite_schema s ON s.name = l.name AND s.type IN ('table', 'view')
WHERE l.schema = 'main' AND l.type IN ('table', 'view', 'virtual') AND l.name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY l.name`)
	return slices.DeleteFunc(out, func(t *table) bool { return shadows[t.name] })
}

var virtual = regexp.MustCompile("(?is)^\\s*CREATE\\s+VIRTUAL\\s+TABLE\\s+(?:IF\\s+NOT\\s+EXISTS\\s+)?(?:\"(?:[^\"]|\"\")*\"|'(?:[^']|'')*'|`(?:[^`]|``)*`|\\[[^\\]]*\\]|[^\\s.]+)\\s+USING\\s+[\"'`\\[]?(\\w+)")

// madeWith returns the module of a virtual table's definition.
func madeWith(sql string) string {
	if m := virtual.FindStringSubmatch(sql); m != nil {
		return m[1]
	}
	return ""
}

func (r *reader) liteTable(t *table) {
	if t.words {
		// Its own columns have no types; the rows are named by their rowid.
		row := column{name: "rowid", typ: "INTEGER", kind: "integer"}
		row.least, row.most = bits(64, true)
		t.columns, t.keys = []column{row}, [][]string{{"rowid"}}
	}
	var primary []string
	rowid := false
	r.rows(maxColumns, func(scan func(...any) error) error {
		c := column{}
		var notNull, pk int
		err := scan(&c.name, &c.typ, &notNull, &pk)
		if c.kind = liteKind(strings.ToUpper(c.typ)); c.kind == "integer" {
			c.least, c.most = bits(64, true)
		}
		c.loose = c.kind == "date" || c.kind == "datetime"
		c.nullable = notNull == 0 && pk == 0
		if pk > 0 {
			primary = append(primary, c.name)
			rowid = strings.EqualFold(c.typ, "INTEGER")
		}
		t.columns = append(t.columns, c)
		return err
	}, `SELECT name, type, "notnull", pk FROM pragma_table_xinfo(?) WHERE hidden <> 1 ORDER BY cid`, t.name)
	if len(primary) == 1 && rowid {
		t.index(true, primary) // it is the rowid and has no separate index
	}
	type entry struct {
		name, origin string
		unique       bool
	}
	var list []entry
	r.rows(maxColumns, func(scan func(...any) error) error {
		var e entry
		var unique int
		err := scan(&e.name, &unique, &e.origin)
		e.unique = unique == 1
		list = append(list, e)
		return err
	}, `SELECT name, "unique", origin FROM pragma_index_list(?) WHERE NOT partial ORDER BY origin <> 'pk', "unique" DESC, name`, t.name)
	for _, e := range list {
		var names []string
		expression := false
		r.rows(maxColumns, func(scan func(...any) error) error {
			var name stdsql.NullString
			err := scan(&name)
			expression = expression || !name.Valid
			names = append(names, name.String)
			return err
		}, `SELECT name FROM pragma_index_info(?) ORDER BY seqno`, e.name)
		if len(names) > 0 && !expression {
			t.index(e.unique, names)
		}
	}
}

// liteKind uses the declared type, which SQLite does not enforce.
func liteKind(typ string) string {
	switch {
	case strings.HasPrefix(typ, "JSON"):
		return "json"
	case typ == "DATE":
		return "date"
	case typ == "DATETIME", typ == "TIMESTAMP":
		return "datetime"
	case strings.HasPrefix(typ, "BOOL"), strings.Contains(typ, "INT"):
		return "integer"
	case strings.Contains(typ, "CHAR"), strings.Contains(typ, "CLOB"), strings.Contains(typ, "TEXT"):
		return "text"
	case strings.Contains(typ, "BLOB"):
		return "bytes"
	case strings.Contains(typ, "REAL"), strings.Contains(typ, "FLOA"), strings.Contains(typ, "DOUB"), strings.Contains(typ, "NUMERIC"), strings.Contains(typ, "DECIMAL"):
		return "number"
	}
	return "other"
}
