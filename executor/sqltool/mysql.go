package sqltool

import (
	"context"
	"database/sql/driver"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/toolkeep/toolkeep"
)

// mySession is a connection to MySQL or MariaDB. Statements are prepared, because the
// server prepares only a single statement.
type mySession struct {
	c        driver.Conn
	wire     *wire
	kill     func(ctx context.Context, id string) error
	id       string
	maria    bool
	writes   bool   // the running call writes
	limit    string // the session's current time limit
	prepared map[string]driver.Stmt
	broken   atomic.Bool
}

// silent discards the driver's log, which would go to standard error.
type silent struct{}

func (silent) Print(...any) {}

func myConfig(e *Executor, b *binding, l *login, dial func(context.Context) (*wire, error)) *mysql.Config {
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.DBName = l.user, l.password, b.conn.database
	cfg.Net, cfg.Addr = "tcp", b.conn.address()
	cfg.Logger = silent{}
	// Some plugins send the password in clear text: only over an authenticated,
	// encrypted connection.
	cfg.AllowCleartextPasswords = b.conn.tls == "verify"
	cfg.CheckConnLiveness = false // begin detects a dead one
	cfg.MaxAllowedPacket = 16 << 20
	if t := b.conn.secure(e.config.RootCAs, l.cert); t != nil {
		cfg.TLS = t
		cfg.TLSConfig = "custom"
	}
	cfg.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		w, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		return w, nil
	}
	cfg.Params = map[string]string{"time_zone": "'+00:00'"}
	return cfg
}

func dialMySQL(ctx context.Context, e *Executor, b *binding, l *login) (session, error) {
	s := &mySession{prepared: make(map[string]driver.Stmt)}
	connector, err := mysql.NewConnector(myConfig(e, b, l, func(ctx context.Context) (w *wire, err error) {
		s.wire, err = e.dial(ctx, b)
		return s.wire, err
	}))
	if err != nil {
		return nil, err
	}
	if s.c, err = connector.Connect(ctx); err != nil {
		return nil, err
	}
	s.kill = func(ctx context.Context, id string) error {
		other, err := mysql.NewConnector(myConfig(e, b, l, func(ctx context.Context) (*wire, error) { return e.again(ctx, b, s.wire) }))
		if err != nil {
			return err
		}
		c, err := other.Connect(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.(driver.ExecerContext).ExecContext(ctx, "KILL "+id, nil)
		return err
	}
	if err := s.judge(b); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// judge identifies the server, makes the session read-only, and refuses logins that
// could write files on the server: no transaction prevents that.
func (s *mySession) judge(b *binding) error {
	row, err := s.ask("SELECT CONNECTION_ID(), VERSION()")
	if err != nil {
		return err
	}
	s.id, s.maria = row[0], strings.Contains(row[1], "MariaDB")
	if _, err := strconv.ParseUint(s.id, 10, 64); err != nil {
		return errors.New("the server gave no number for its connection")
	}
	if b.write {
		return nil
	}
	if !b.conn.superuser {
		row, err := s.ask(`SELECT COUNT(*) FROM information_schema.USER_PRIVILEGES WHERE PRIVILEGE_TYPE IN ('FILE', 'SUPER')
AND GRANTEE = CONCAT('''', REPLACE(SUBSTRING(CURRENT_USER(), 1, CHAR_LENGTH(CURRENT_USER()) - LOCATE('@', REVERSE(CURRENT_USER()))), '''', ''''''), '''@''', SUBSTRING_INDEX(CURRENT_USER(), '@', -1), '''')`)
		if err != nil {
			return err
		}
		if row[0] != "0" {
			return forbidden("the tool reads only, and its login has the privilege FILE or SUPER, which a read-only transaction does not hold; give it a user of its own, or say superuser: true in the binding's connection")
		}
	}
	return s.ours("SET SESSION TRANSACTION READ ONLY")
}

func (s *mySession) usable() bool { return !s.broken.Load() }

func (s *mySession) traffic() (sent, received int64) { return s.wire.traffic() }

func (s *mySession) close() {
	if s.broken.Load() {
		s.wire.Close()
	}
	s.c.Close()
}

// stop makes the server end this connection and its statement.
func (s *mySession) stop(ctx context.Context) {
	s.broken.Store(true)
	s.wire.SetDeadline(time.Now().Add(stopTime))
	_ = s.kill(ctx, s.id) // if it fails, the deadline ends the session
}

// ours runs a fixed text of this package.
func (s *mySession) ours(text string) error {
	s.wire.allow(0)
	_, err := s.c.(driver.ExecerContext).ExecContext(context.Background(), text, nil)
	if err != nil {
		s.broken.Store(true)
	}
	return err
}

// ask runs a fixed query of this package and returns its only row as text.
func (s *mySession) ask(text string) (out []string, err error) {
	defer func() {
		if err != nil {
			s.broken.Store(true)
		}
	}()
	s.wire.allow(0)
	rows, err := s.c.(driver.QueryerContext).QueryContext(context.Background(), text, nil)
	if err != nil {
		return nil, err
	}
	raw := make([]driver.Value, len(rows.Columns()))
	if err := rows.Next(raw); err != nil {
		return nil, errors.Join(err, rows.Close())
	}
	for _, v := range raw {
		out = append(out, asText(v))
	}
	return out, rows.Close()
}

func asText(v driver.Value) string {
	if b, ok := v.([]byte); ok {
		return string(b)
	}
	return fmt.Sprint(v)
}

func (s *mySession) begin(_ context.Context, b *binding, limit time.Duration) error {
	// Whole seconds, so that most calls need not change the limit.
	seconds := int64((limit + time.Second - 1) / time.Second)
	want := fmt.Sprintf("SET SESSION max_execution_time = %d", seconds*1000)
	if s.maria {
		want = fmt.Sprintf("SET SESSION max_statement_time = %d", seconds)
	}
	if want != s.limit {
		if err := s.ours(want); err != nil {
			return err
		}
		s.limit = want
	}
	if b.write {
		// The session remembers the last insert id of other calls.
		if _, err := s.ask("SELECT LAST_INSERT_ID(0)"); err != nil {
			return err
		}
	}
	s.writes = b.write
	if b.isolation != "" {
		if err := s.ours("SET TRANSACTION ISOLATION LEVEL " + strings.ToUpper(b.isolation)); err != nil {
			return err
		}
	}
	if b.write {
		return s.ours("START TRANSACTION READ WRITE")
	}
	return s.ours("START TRANSACTION READ ONLY")
}

func (s *mySession) end(_ context.Context, commit bool) error {
	if commit {
		return s.ours("COMMIT")
	}
	if err := s.ours("ROLLBACK"); err != nil || !s.writes {
		return err
	}
	// The list may still hold the failed statement's own error.
	rows, err := s.c.(driver.QueryerContext).QueryContext(context.Background(), "SHOW WARNINGS", nil)
	if err != nil {
		s.broken.Store(true)
		return err
	}
	kept := false
	raw := make([]driver.Value, len(rows.Columns()))
	for rows.Next(raw) == nil {
		kept = kept || len(raw) > 1 && asText(raw[1]) == notRolledBack
	}
	if err := rows.Close(); err != nil || !kept {
		return err
	}
	return errKept
}

// notRolledBack is the code of the warning that a rollback left rows of tables without
// transactions (ER_WARNING_NOT_COMPLETE_ROLLBACK).
const notRolledBack = "1196"

// errKept is end's error after a rollback that could not undo everything.
var errKept = errors.New("tables of an engine without transactions were not rolled back")

func (s *mySession) run(_ context.Context, r *round) error {
	s.wire.allow(r.out.hard)
	st, err := s.prepare(r)
	if err != nil {
		return s.broke(r, err)
	}
	if st.NumInput() != len(r.args) {
		return toolkeep.NewError(toolkeep.QueryFailed, "the database counts %d placeholders in the statement and the binding has %d", st.NumInput(), len(r.args))
	}
	args := make([]driver.NamedValue, len(r.args))
	for i, a := range r.args {
		v, terr := a.native(mysqlDB)
		if terr != nil {
			return terr
		}
		args[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	*r.sent = true
	rows, err := st.(driver.StmtQueryContext).QueryContext(context.Background(), args)
	if err != nil {
		return s.broke(r, err)
	}
	if err := s.rows(r, rows); err != nil {
		return s.broke(r, err)
	}
	if r.binding.write && len(r.out.columns) == 0 {
		row, err := s.ask("SELECT ROW_COUNT(), LAST_INSERT_ID()")
		if err != nil {
			return err
		}
		r.out.affected, _ = strconv.ParseInt(row[0], 10, 64)
		r.out.affected = max(r.out.affected, 0)
		if row[1] != "0" {
			r.out.lastID = json.Number(row[1])
		}
		r.out.changed = true
	} else if r.binding.write && r.out.cut == "" && returning(r.st.text) {
		// ROW_COUNT() is then -1, and every changed row was returned.
		r.out.affected, r.out.changed = int64(len(r.out.rows)), true
	}
	return nil
}

// returning reports whether a statement that returns rows is a write (MariaDB's
// RETURNING); it does not detect one after a comment.
func returning(text string) bool {
	word, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	return slices.Contains([]string{"INSERT", "REPLACE", "DELETE"}, strings.ToUpper(word))
}

func (s *mySession) broke(r *round, err error) error {
	if s.wire.spent.Load() {
		s.broken.Store(true)
		return tooLarge(r.out.hard)
	}
	var my *mysql.MySQLError
	var own *toolkeep.Error
	if !errors.As(err, &my) && !errors.As(err, &own) {
		s.broken.Store(true)
	}
	return err
}

// prepare has the server parse the statement, once per connection. For a reading tool
// the server also parses it after EXPLAIN FORMAT=JSON (without a format, COMMIT would
// be parsed as a table name), which accepts only SELECT, INSERT, UPDATE, DELETE and
// REPLACE; a read-only transaction refuses the last four. So the server's own grammar
// excludes COMMIT, START TRANSACTION, SET, CALL and the like. The text is parsed, never
// executed. One that begins with EXPLAIN FORMAT=JSON itself was parsed so already.
func (s *mySession) prepare(r *round) (driver.Stmt, error) {
	text := r.st.text
	if st, ok := s.prepared[text]; ok {
		return st, nil
	}
	c := s.c.(driver.ConnPrepareContext)
	st, err := c.PrepareContext(context.Background(), text)
	if err != nil {
		return nil, err
	}
	if plan := "EXPLAIN FORMAT=JSON "; !r.binding.write && !strings.HasPrefix(text, plan) {
		explain, err := c.PrepareContext(context.Background(), plan+text)
		var my *mysql.MySQLError
		switch {
		case err == nil:
			explain.Close()
		case errors.As(err, &my) && my.Number == 1345:
			// It parsed: it queries a view whose tables the user may not see.
		case errors.As(err, &my) && (my.Number == 1064 || my.Number == 1295):
			st.Close()
			return nil, forbidden("the database does not treat the statement as a query; a tool that does something else needs write: true in its binding")
		default:
			st.Close()
			return nil, err
		}
	}
	if len(s.prepared) >= maxPrepared {
		s.broken.Store(true)
	}
	s.prepared[text] = st
	return st, nil
}

// drop aborts a statement and its connection in mid-response. It tells the server,
// which would notice the closed connection only when its buffer is full.
func (s *mySession) drop(rows driver.Rows) {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	s.stop(ctx)
	s.wire.Close()
	rows.Close()
}

func (s *mySession) rows(r *round, rows driver.Rows) error {
	names := rows.Columns()
	types := make([]string, len(names))
	if t, ok := rows.(driver.RowsColumnTypeDatabaseTypeName); ok {
		for i := range names {
			types[i] = t.ColumnTypeDatabaseTypeName(i)
		}
	}
	out := r.out
	out.describe(len(names), func(i int) string { return names[i] }, func(i int) string { return strings.ToLower(types[i]) })
	raw := make([]driver.Value, len(names))
	leave := !r.binding.write && r.last
	for len(names) > 0 {
		err := rows.Next(raw)
		if err == io.EOF {
			break
		}
		if err != nil {
			rows.Close()
			return err
		}
		if out.cut != "" {
			continue
		}
		if !out.full() {
			row := make(map[string]any, len(names))
			size := int64(2)
			for i, v := range raw {
				tree := myValue(v, types[i], out)
				row[out.columns[i].name] = tree
				size += weigh(tree) + int64(len(out.columns[i].name)) + 4
			}
			if terr := out.add(row, size); terr != nil {
				s.drop(rows)
				return terr
			}
		}
		if out.cut != "" && leave {
			s.drop(rows)
			return nil
		}
	}
	return rows.Close()
}

// myValue converts a MySQL value to a JSON tree.
func myValue(v driver.Value, typ string, out *sink) any {
	var text string
	switch v := v.(type) {
	case nil:
		return nil
	case int64:
		return json.Number(strconv.FormatInt(v, 10))
	case uint64:
		return json.Number(strconv.FormatUint(v, 10))
	case float32:
		return double(float64(v), 32)
	case float64:
		return double(v, 64)
	case []byte:
		text = string(v)
	case string:
		text = v
	default:
		return fmt.Sprint(v)
	}
	switch typ {
	case "BLOB", "TINYBLOB", "MEDIUMBLOB", "LONGBLOB", "BINARY", "VARBINARY", "GEOMETRY", "VECTOR":
		return base64.StdEncoding.EncodeToString([]byte(text))
	case "BIT":
		var n uint64
		for i := range len(text) {
			n = n<<8 | uint64(text[i])
		}
		return json.Number(strconv.FormatUint(n, 10))
	case "DECIMAL", "BIGINT", "UNSIGNED BIGINT", "FLOAT", "DOUBLE":
		return numeral(text)
	case "JSON":
		return out.document([]byte(text))
	case "TIMESTAMP":
		if strings.HasPrefix(text, "0000-00-00") {
			return nil
		}
		return strings.Replace(text, " ", "T", 1) + "Z"
	case "DATETIME":
		if strings.HasPrefix(text, "0000-00-00") {
			return nil
		}
		return strings.Replace(text, " ", "T", 1)
	case "DATE":
		if text == "0000-00-00" {
			return nil
		}
	}
	return out.text(text)
}
