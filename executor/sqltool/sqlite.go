package sqltool

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/toolkeep/toolkeep"
)

// sqliteLength bounds one value or row of a database file, in bytes.
const sqliteLength = 32 << 20

// liteSession is an open SQLite file. The end of a statement's context interrupts it.
type liteSession struct {
	db       *sql.DB
	conn     *sql.Conn
	prepared map[string]*liteStatement
	schema   driver.Value // the schema's version when forget last looked
	broken   atomic.Bool
	// own is set while this package's own texts run, which the authorizer permits; a
	// session is used by one goroutine at a time.
	own bool
	// denied is what the authorizer refused in the running statement, or "".
	denied string
}

func dialSQLite(ctx context.Context, e *Executor, b *binding, tenant string) (session, error) {
	real, terr := e.sqliteFile(b.conn.file, tenant)
	if terr != nil {
		return nil, terr
	}
	q := url.Values{"_defensive": {"1"}, "_error_rc": {"1"}, "_pragma": {"busy_timeout(1000)", "trusted_schema(0)", "cell_size_check(1)"}}
	q.Set("mode", "rw")
	if !b.write {
		q.Set("mode", "ro")
		q.Add("_pragma", "query_only(1)")
	}
	connector, err := sqlite.NewConnector("file:" + (&url.URL{Path: real}).EscapedPath() + "?" + q.Encode())
	if err != nil {
		return nil, err
	}
	s := &liteSession{db: sql.OpenDB(connector), prepared: make(map[string]*liteStatement)}
	s.db.SetMaxOpenConns(1)
	if err := s.open(ctx, b.write); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *liteSession) open(ctx context.Context, write bool) (err error) {
	if s.conn, err = s.db.Conn(ctx); err != nil {
		return err
	}
	for id, n := range map[int]int{sqlite3.SQLITE_LIMIT_ATTACHED: 0, sqlite3.SQLITE_LIMIT_LENGTH: sqliteLength,
		sqlite3.SQLITE_LIMIT_SQL_LENGTH: maxText, sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 100} {
		if _, err := sqlite.Limit(s.conn, id, n); err != nil {
			return err
		}
	}
	return s.conn.Raw(func(c any) error {
		r, ok := c.(sqlite.AuthorizerRegisterer)
		if !ok {
			return errors.New("the SQLite driver accepts no authorizer")
		}
		return r.RegisterAuthorizer(func(action sqlite.AuthorizerActionCode, arg1, arg2, _, _ string) sqlite.AuthorizerReturnCode {
			if s.own || authorized(action, arg1, arg2, write) {
				return sqlite.AuthorizerOK
			}
			if s.denied == "" {
				s.denied = denial(action, arg1)
			}
			return sqlite.AuthorizerDeny
		})
	})
}

// readPragmas only return information, and take at most a table name.
var readPragmas = map[string]bool{"table_info": true, "table_xinfo": true, "table_list": true, "index_list": true,
	"index_info": true, "index_xinfo": true, "foreign_key_list": true,
	"data_version": true} // FTS5 needs data_version

// authorized decides what a tool's statement may compile to; SQLite asks for each part.
// mode=ro already stops a reading tool from changing anything; this excludes what would
// reach beyond the file or outlive the call.
func authorized(action sqlite.AuthorizerActionCode, arg1, arg2 string, write bool) bool {
	switch action {
	case sqlite.AuthSelect, sqlite.AuthRead, sqlite.AuthRecursive, sqlite.AuthInsert, sqlite.AuthUpdate, sqlite.AuthDelete:
		return true
	case sqlite.AuthFunction:
		return !strings.EqualFold(arg2, "load_extension")
	case sqlite.AuthPragma:
		return readPragmas[strings.ToLower(arg1)]
	case sqlite.AuthAttach, sqlite.AuthDetach, sqlite.AuthTransaction, sqlite.AuthSavepoint:
		return false
	}
	return write
}

// denial returns what no tool's statement may do; "" for what only a reading tool may
// not do.
func denial(action sqlite.AuthorizerActionCode, arg string) string {
	switch action {
	case sqlite.AuthFunction:
		return "load_extension is forbidden; a tool's statement loads no code"
	case sqlite.AuthPragma:
		return "PRAGMA " + strings.ToValidUTF8(arg[:min(len(arg), 64)], "") + " is forbidden; a tool may only use those that describe tables and indexes, such as table_info"
	case sqlite.AuthAttach, sqlite.AuthDetach:
		return "ATTACH, DETACH and VACUUM are forbidden; a tool stays within the one file of its connection"
	case sqlite.AuthTransaction, sqlite.AuthSavepoint:
		return "BEGIN, COMMIT, ROLLBACK, SAVEPOINT and RELEASE are forbidden; each call is one transaction, which the server begins and ends"
	}
	return ""
}

func (s *liteSession) usable() bool { return !s.broken.Load() }

func (s *liteSession) traffic() (sent, received int64) { return 0, 0 }

func (s *liteSession) close() {
	if s.conn != nil {
		_ = s.conn.Raw(func(any) error {
			for _, st := range s.prepared {
				st.stmt.Close()
			}
			return nil
		})
		s.conn.Close()
	}
	s.db.Close()
}

// stop does nothing more: the context interrupts the driver.
func (s *liteSession) stop(context.Context) { s.broken.Store(true) }

// ours runs a fixed text of this package.
func (s *liteSession) ours(text string, row []driver.Value) error {
	err := s.conn.Raw(func(c any) error {
		s.own = true
		defer func() { s.own = false }()
		if row == nil {
			_, err := c.(driver.ExecerContext).ExecContext(context.Background(), text, nil)
			return err
		}
		rows, err := c.(driver.QueryerContext).QueryContext(context.Background(), text, nil)
		if err != nil {
			return err
		}
		defer rows.Close()
		return rows.Next(row)
	})
	if err != nil {
		s.broken.Store(true)
	}
	return err
}

func (s *liteSession) begin(_ context.Context, b *binding, _ time.Duration) error {
	if b.write {
		err := s.ours("BEGIN IMMEDIATE", nil)
		var busy *sqlite.Error
		if errors.As(err, &busy) && busy.Code()&0xff == sqliteBusy {
			s.broken.Store(false) // nothing was begun
		}
		if err != nil {
			return err
		}
		return s.ours(forgetRow, nil)
	}
	return s.ours("BEGIN", nil)
}

// SQLite remembers the last inserted row and the number of changes per connection, also
// from earlier calls. forgetRow resets them to noRow and 0.
const (
	noRow     = -9223372036854775807
	forgetRow = "CREATE TEMP TABLE IF NOT EXISTS toolkeep_row (id INTEGER PRIMARY KEY); " +
		"INSERT OR REPLACE INTO temp.toolkeep_row VALUES (-9223372036854775807); DELETE FROM temp.toolkeep_row WHERE 0"
)

func (s *liteSession) end(_ context.Context, commit bool) error {
	if commit {
		return s.ours("COMMIT", nil)
	}
	return s.ours("ROLLBACK", nil)
}

func (s *liteSession) run(ctx context.Context, r *round) error {
	args := make([]driver.NamedValue, len(r.args))
	for i, a := range r.args {
		v, terr := a.native(sqliteDB)
		if terr != nil {
			return terr
		}
		args[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	before := make([]driver.Value, 1)
	if r.binding.write {
		if err := s.ours("SELECT total_changes()", before); err != nil {
			return err
		}
	}
	if err := s.forget(r.st.text); err != nil {
		return err
	}
	var terr *toolkeep.Error
	s.denied = ""
	err := s.conn.Raw(func(c any) error {
		st, err := s.prepare(ctx, c, r.st.text, args)
		if err != nil {
			return err
		}
		*r.sent = true
		rows, err := st.stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
		if err != nil {
			return err
		}
		terr, err = s.rows(r, rows, st.types)
		return errors.Join(err, rows.Close())
	})
	var lite *sqlite.Error
	switch {
	case s.denied != "" && errors.As(err, &lite):
		return forbidden(s.denied).With("errno", number(lite.Code()))
	case err != nil:
		return err
	case terr != nil:
		return terr
	}
	if !r.binding.write {
		return nil
	}
	row := make([]driver.Value, 3)
	if err := s.ours("SELECT changes(), last_insert_rowid(), total_changes()", row); err != nil {
		return err
	}
	returns := len(r.out.columns) > 0 // true for a query too, where changes() is from an earlier statement
	if returns && row[2] == before[0] {
		return nil
	}
	r.out.affected, _ = row[0].(int64)
	if id, _ := row[1].(int64); id != noRow && !returns {
		r.out.lastID = json.Number(strconv.FormatInt(id, 10))
	}
	r.out.changed = true
	return nil
}

// liteStatement is a prepared statement. A wrapped one names the columns of a query, as
// of one version of the schema; types are what they are declared with.
type liteStatement struct {
	stmt    driver.Stmt
	wrapped bool
	types   []string
	schema  driver.Value
}

// forget drops a wrapped statement that is older than a change of the schema.
func (s *liteSession) forget(text string) error {
	st, ok := s.prepared[text]
	if ok && !st.wrapped {
		return nil
	}
	version := make([]driver.Value, 1)
	if err := s.ours("PRAGMA schema_version", version); err != nil {
		return err
	}
	if s.schema = version[0]; ok && st.schema != s.schema {
		st.stmt.Close()
		delete(s.prepared, text)
	}
	return nil
}

// prepare compiles a statement, once per connection.
func (s *liteSession) prepare(ctx context.Context, c any, text string, args []driver.NamedValue) (*liteStatement, error) {
	if st, ok := s.prepared[text]; ok {
		return st, nil
	}
	conn := c.(driver.ConnPrepareContext)
	plain, err := conn.PrepareContext(context.Background(), text)
	if err != nil {
		return nil, err
	}
	st := &liteStatement{stmt: plain}
	asStored, types, err := unconverted(ctx, c, text, args)
	if err != nil {
		plain.Close()
		return nil, err
	}
	if asStored != "" {
		if wrapped, err := conn.PrepareContext(context.Background(), asStored); err == nil {
			plain.Close()
			st = &liteStatement{stmt: wrapped, wrapped: true, types: types, schema: s.schema}
		}
	}
	if len(s.prepared) >= maxPrepared {
		s.broken.Store(true)
	}
	s.prepared[text] = st
	return st, nil
}

// unconverted returns a query around a query whose columns the driver could convert, with
// the types that they are declared with; "" for other statements. The driver makes times
// of texts in columns declared DATE, DATETIME or TIMESTAMP, which loses how the text is
// written and whether it names a zone. An expression has no declared type, so its values
// arrive as they are stored. The error is one that a later try may not meet.
func unconverted(ctx context.Context, c any, text string, args []driver.NamedValue) (string, []string, error) {
	n, err := scan(sqliteDB, text)
	if err != nil {
		return "", nil, nil
	}
	body := text[:n.end] + "\n"
	rows, err := c.(driver.QueryerContext).QueryContext(ctx, "SELECT * FROM ("+body+") LIMIT 0", args)
	if err != nil {
		if ctx.Err() != nil || passing(err) {
			return "", nil, err
		}
		return "", nil, nil // not a query
	}
	defer rows.Close()
	names, types := rows.Columns(), columnTypes(rows)
	converts := func(t string) bool { return t == "DATE" || t == "DATETIME" || t == "TIMESTAMP" }
	// The types of a compound query's parts may differ.
	if !n.compound && !slices.ContainsFunc(types, converts) {
		return "", nil, nil
	}
	inner, outer := make([]string, len(names)), make([]string, len(names))
	seen := make(map[string]bool, len(names))
	for i, name := range names {
		// A subquery's second column of one name has a number.
		if base, number, ok := cutLast(name, ":"); ok && seen[base] && strings.Trim(number, "0123456789") == "" {
			name = base
		}
		seen[name] = true
		inner[i] = "c" + strconv.Itoa(i)
		outer[i] = "+" + inner[i] + ` AS "` + strings.ReplaceAll(name, `"`, `""`) + `"`
	}
	return "WITH toolkeep_rows (" + strings.Join(inner, ", ") + ") AS (" + body + ") SELECT " + strings.Join(outer, ", ") + " FROM toolkeep_rows", types, nil
}

// passing reports whether an error says nothing about the statement: the database is busy or locked, the call was
// interrupted, or the file could not be read.
func passing(err error) bool {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code() & 0xff {
	case sqliteBusy, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR:
		return true
	}
	return false
}

// cutLast is strings.Cut at the last separator.
func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// columnTypes returns the declared types of the columns, in upper case.
func columnTypes(rows driver.Rows) []string {
	types := make([]string, len(rows.Columns()))
	if t, ok := rows.(driver.RowsColumnTypeDatabaseTypeName); ok {
		for i := range types {
			types[i] = t.ColumnTypeDatabaseTypeName(i)
		}
	}
	return types
}

func (s *liteSession) rows(r *round, rows driver.Rows, types []string) (*toolkeep.Error, error) {
	names := rows.Columns()
	if types == nil {
		types = columnTypes(rows)
	}
	out := r.out
	out.describe(len(names), func(i int) string { return names[i] }, func(i int) string { return strings.ToLower(types[i]) })
	raw := make([]driver.Value, len(names))
	for {
		err := rows.Next(raw)
		if err == io.EOF {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if out.cut != "" {
			continue
		}
		if !out.full() {
			row := make(map[string]any, len(names))
			size := int64(2)
			for i, v := range raw {
				tree := liteValue(v, types[i], out)
				row[out.columns[i].name] = tree
				size += weigh(tree) + int64(len(out.columns[i].name)) + 4
			}
			if terr := out.add(row, size); terr != nil {
				return terr, nil
			}
		}
		if out.cut != "" && !r.binding.write {
			return nil, nil // closing the rows resets the statement
		}
	}
}

// liteValue converts a SQLite value to a JSON tree. Types are those of the values; the
// column's declared type only matters for JSON, and for the times that the driver makes
// of what a statement returns that is not a query (RETURNING).
func liteValue(v driver.Value, typ string, out *sink) any {
	switch v := v.(type) {
	case int64:
		return json.Number(strconv.FormatInt(v, 10))
	case float64:
		return double(v, 64)
	case string:
		if strings.HasPrefix(typ, "JSON") {
			return out.document([]byte(v))
		}
		return out.text(v)
	case []byte:
		return base64.StdEncoding.EncodeToString(v)
	case time.Time:
		if typ == "DATE" && v.Equal(v.Truncate(24*time.Hour)) {
			return v.Format(time.DateOnly)
		}
		if v.Location() == time.UTC {
			return v.Format("2006-01-02 15:04:05.999999999")
		}
		return v.Format(time.RFC3339Nano)
	case bool:
		return v
	}
	return nil
}

// double writes a float as the shortest exact JSON number; what is not a JSON number
// becomes text.
func double(f float64, bits int) any {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return json.Number(strconv.FormatFloat(f, 'g', -1, bits))
}
