package sqltool

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/toolkeep/toolkeep"
)

// maxPrepared bounds the prepared statements of a connection.
const maxPrepared = 128

// pgSession is a connection to PostgreSQL. It uses the extended protocol, which accepts
// a single statement, and the simple one for its own fixed texts.
type pgSession struct {
	c        *pgconn.PgConn
	wire     *wire
	types    *pgtype.Map
	learned  map[uint32]pgType                       // types that are not in types, by oid
	prepared map[string]*pgconn.StatementDescription // by text and declared types
	counter  int
	broken   atomic.Bool
	limit    int64  // the session's current statement time limit, seconds
	start    string // isolation level of a transaction that is yet to begin
	pending  bool
}

// dialPostgres connects and logs in.
func dialPostgres(ctx context.Context, e *Executor, b *binding, l *login) (session, error) {
	// ParseConfig is the only way to get a Config, and reads PG… variables: everything
	// they could set is set here.
	cfg, err := pgconn.ParseConfig("host=/ port=5432 user=x dbname=x sslmode=disable passfile=/dev/null")
	if err != nil {
		return nil, errors.New("the environment of the server holds PostgreSQL settings that cannot be read")
	}
	s := &pgSession{types: pgtype.NewMap(), learned: make(map[uint32]pgType), prepared: make(map[string]*pgconn.StatementDescription)}
	cfg.Host, cfg.Port, cfg.Database, cfg.User, cfg.Password = b.conn.host, uint16(b.conn.port), b.conn.database, l.user, l.password
	if b.conn.socket != "" {
		cfg.Host = b.conn.socket
	}
	cfg.TLSConfig = b.conn.secure(e.config.RootCAs, l.cert)
	cfg.Fallbacks = nil
	cfg.ConnectTimeout = 0 // ctx bounds it
	cfg.KerberosSrvName, cfg.KerberosSpn, cfg.SSLNegotiation, cfg.SSLCertMode, cfg.ChannelBinding = "", "", "postgres", "allow", "prefer"
	cfg.ValidateConnect, cfg.AfterConnect = nil, nil
	cfg.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil } // the guard resolves it
	cfg.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		if s.c != nil { // a cancel request
			w, err := e.again(ctx, b, s.wire)
			if err != nil {
				return nil, err
			}
			return w, nil
		}
		w, err := e.dial(ctx, b)
		if err != nil {
			return nil, err
		}
		s.wire = w
		return w, nil
	}
	cfg.RuntimeParams = map[string]string{
		"application_name": "toolkeep", "client_encoding": "UTF8", "DateStyle": "ISO, YMD", "TimeZone": "UTC",
		"IntervalStyle": "iso_8601", "extra_float_digits": "1", "standard_conforming_strings": "on", "bytea_output": "hex",
	}
	if !b.write {
		cfg.RuntimeParams["default_transaction_read_only"] = "on"
	}
	if s.c, err = pgconn.ConnectConfig(ctx, cfg); err != nil {
		return nil, err
	}
	if err := s.judge(b); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// judge refuses logins that a read-only transaction cannot restrict: superusers, and
// those that may run programs or write files on the server, which no transaction
// undoes.
func (s *pgSession) judge(b *binding) error {
	if b.write || b.conn.superuser {
		return nil
	}
	s.wire.allow(1 << 20)
	res, err := s.c.Exec(context.Background(), `SELECT 1 FROM pg_catalog.pg_roles
WHERE (rolsuper OR rolname IN ('pg_execute_server_program', 'pg_write_server_files'))
AND pg_catalog.pg_has_role(current_user, oid, 'MEMBER') LIMIT 1`).ReadAll()
	if err != nil {
		return err
	}
	if len(res) == 1 && len(res[0].Rows) > 0 {
		return forbidden("the tool reads only, and its login is a superuser or may run programs or write files on the database server, which a read-only transaction does not prevent; give it a role of its own, or say superuser: true in the binding's connection")
	}
	return nil
}

func (s *pgSession) usable() bool { return !s.broken.Load() && !s.c.IsClosed() }

func (s *pgSession) traffic() (sent, received int64) { return s.wire.traffic() }

func (s *pgSession) close() {
	if s.broken.Load() {
		s.wire.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.c.Close(ctx)
}

// stop makes the server cancel the session's statement.
func (s *pgSession) stop(ctx context.Context) {
	s.broken.Store(true)
	s.wire.SetDeadline(time.Now().Add(stopTime))
	_ = s.c.CancelRequest(ctx) // if it fails, the deadline ends the session
}

// simple runs fixed texts of this package.
func (s *pgSession) simple(sql string) error {
	s.wire.allow(0)
	_, err := s.c.Exec(context.Background(), sql).ReadAll()
	if err != nil {
		s.broken.Store(true)
	}
	return err
}

// begin sets the time limit, in whole seconds so that most calls need not change it,
// and begins the transaction. A reading call with one statement begins together with
// that statement: see exchange.
func (s *pgSession) begin(_ context.Context, b *binding, limit time.Duration) error {
	if seconds := int64((limit + time.Second - 1) / time.Second); seconds != s.limit {
		if err := s.simple(fmt.Sprintf("SET statement_timeout = '%ds'", seconds)); err != nil {
			return err
		}
		s.limit = seconds
	}
	mode := "READ ONLY"
	if b.write {
		mode = "READ WRITE"
	}
	level := ""
	switch b.isolation {
	case "read committed":
		level = "ISOLATION LEVEL READ COMMITTED "
	case "repeatable read":
		level = "ISOLATION LEVEL REPEATABLE READ "
	case "serializable":
		level = "ISOLATION LEVEL SERIALIZABLE "
	}
	text := "BEGIN TRANSACTION " + level + mode
	if s.pending = !b.write && len(b.statements) == 1; s.pending {
		s.start = text
		return nil
	}
	return s.simple(text)
}

func (s *pgSession) end(_ context.Context, commit bool) error {
	if !commit && s.c.TxStatus() == 'I' {
		return nil // it was begun and rolled back with its statement, or never begun
	}
	if !commit {
		// Advisory locks are all that a read-only transaction can leave behind.
		return s.simple("ROLLBACK; SELECT pg_catalog.pg_advisory_unlock_all()")
	}
	if err := s.simple("COMMIT"); err != nil {
		return err
	}
	// The call is committed: a later failure only costs the session.
	s.limit = 0
	_ = s.simple("CLOSE ALL; UNLISTEN *; SET SESSION AUTHORIZATION DEFAULT; RESET ROLE; RESET ALL; SELECT pg_catalog.pg_advisory_unlock_all(); DISCARD TEMP; DISCARD SEQUENCES")
	return nil
}

// declared maps a binding's type names to PostgreSQL types.
var declared = map[string]uint32{
	"text": pgtype.TextOID, "integer": pgtype.Int8OID, "number": pgtype.NumericOID, "boolean": pgtype.BoolOID,
	"bytes": pgtype.ByteaOID, "json": pgtype.JSONBOID, "date": pgtype.DateOID, "time": pgtype.TimeOID,
	"timestamp": pgtype.TimestamptzOID, "uuid": pgtype.UUIDOID,
}

var declaredLists = map[string]uint32{
	"text": pgtype.TextArrayOID, "integer": pgtype.Int8ArrayOID, "number": pgtype.NumericArrayOID, "boolean": pgtype.BoolArrayOID,
	"bytes": pgtype.ByteaArrayOID, "json": pgtype.JSONBArrayOID, "date": pgtype.DateArrayOID, "time": pgtype.TimeArrayOID,
	"timestamp": pgtype.TimestamptzArrayOID, "uuid": pgtype.UUIDArrayOID,
}

// prepare has the server parse the statement and learns the types that it uses, once per connection.
func (s *pgSession) prepare(st *statement) (*pgconn.StatementDescription, error) {
	key := st.text
	oids := make([]uint32, len(st.params))
	for i, p := range st.params {
		if p.list {
			oids[i] = declaredLists[p.typ]
		} else {
			oids[i] = declared[p.typ]
		}
		key += "\x00" + fmt.Sprint(oids[i])
	}
	if sd, ok := s.prepared[key]; ok {
		return sd, nil
	}
	if len(s.prepared) >= maxPrepared {
		s.broken.Store(true) // it is closed after this call, with its prepared statements
	}
	s.counter++
	sd, err := s.c.Prepare(context.Background(), fmt.Sprintf("tk%d", s.counter), st.text, oids)
	if err != nil {
		return nil, err
	}
	types := slices.Clone(sd.ParamOIDs)
	for _, f := range sd.Fields {
		types = append(types, f.DataTypeOID)
	}
	if err := s.learn(types); err != nil {
		return nil, err
	}
	s.prepared[key] = sd
	return sd, nil
}

func (s *pgSession) run(_ context.Context, r *round) error {
	s.wire.allow(r.out.hard)
	sd, err := s.prepare(r.st)
	if err != nil {
		return s.broke(r, err)
	}
	// The server describes the result. Only a statement that returns rows can be a
	// query: this excludes COMMIT, SET, DO, COPY, CALL without results and the like,
	// some of which a read-only transaction would allow.
	if !r.binding.write && len(sd.Fields) == 0 {
		return forbidden("the statement returns no rows, so it is not a query; a tool that does something else needs write: true in its binding")
	}
	if len(sd.ParamOIDs) != len(r.args) {
		return toolkeep.NewError(toolkeep.QueryFailed, "the database counts %d placeholders in the statement and the binding has %d", len(sd.ParamOIDs), len(r.args))
	}
	s.wire.allow(r.out.hard)
	values := make([][]byte, len(r.args))
	for i, a := range r.args {
		v, terr := s.encode(a, sd.ParamOIDs[i])
		if terr != nil {
			return terr
		}
		values[i] = v
	}
	if err := s.exchange(r, sd, values); err != nil {
		return s.broke(r, err)
	}
	if !s.pending && s.c.TxStatus() != 'T' && s.usable() {
		s.broken.Store(true)
		return forbidden("the statement ended the transaction that the call runs in; COMMIT, ROLLBACK and the like have no place in a tool")
	}
	return nil
}

// exchange sends the statement and reads the response. A query that is a call's only
// statement is sent together with its transaction: BEGIN READ ONLY, the query,
// ROLLBACK, and the release of advisory locks. The server runs them in order; after an
// error it skips the rest, and end rolls back.
//
// A query requests one row more than its cap, and the server computes no more. A write
// runs to its end.
func (s *pgSession) exchange(r *round, sd *pgconn.StatementDescription, values [][]byte) error {
	list := []pgproto3.Bind{{PreparedStatement: sd.Name, Parameters: values}}
	most := uint32(0)
	if !r.binding.write {
		most = uint32(r.out.maxRows) + 1
	}
	at := 0
	if s.pending {
		list = slices.Insert(list, 0, pgproto3.Bind{})
		list = append(list, pgproto3.Bind{}, pgproto3.Bind{})
		at = 1
		for i, text := range map[int]string{0: s.start, 2: "ROLLBACK", 3: "SELECT pg_catalog.pg_advisory_unlock_all()"} {
			own, err := s.prepare(&statement{text: text})
			if err != nil {
				return err
			}
			list[i].PreparedStatement = own.Name
		}
	}
	f := s.c.Frontend()
	for i := range list {
		f.SendBind(&list[i])
		e := pgproto3.Execute{}
		if i == at {
			e.MaxRows = most
		}
		f.SendExecute(&e)
	}
	f.SendSync(&pgproto3.Sync{})
	*r.sent = true
	if err := f.Flush(); err != nil {
		s.broken.Store(true)
		return err
	}
	return s.answer(r, sd, at)
}

// answer reads the server's response up to ReadyForQuery. at is the position of the
// call's own statement among those sent.
func (s *pgSession) answer(r *round, sd *pgconn.StatementDescription, at int) error {
	rows := s.reader(r, sd)
	var failed error
	for n := 0; ; {
		msg, err := s.c.ReceiveMessage(context.Background())
		if err != nil {
			s.broken.Store(true)
			if failed != nil {
				return failed
			}
			return err
		}
		switch m := msg.(type) {
		case *pgproto3.DataRow:
			if n != at || failed != nil {
				continue
			}
			if terr := rows(m.Values); terr != nil {
				s.drop()
				return terr
			}
			if r.out.cut == "bytes" && !r.binding.write && r.last {
				s.drop() // the rest may be endless
				return nil
			}
		case *pgproto3.CommandComplete:
			if tag := pgconn.NewCommandTag(string(m.CommandTag)); n == at && r.binding.write && !tag.Select() {
				r.out.affected, r.out.changed = tag.RowsAffected(), true
			}
			n++
		case *pgproto3.PortalSuspended, *pgproto3.EmptyQueryResponse:
			n++
		case *pgproto3.CopyInResponse:
			// The server ignores Sync while it waits for COPY data.
			f := s.c.Frontend()
			f.Send(&pgproto3.CopyFail{Message: "a tool has no data to copy"})
			f.SendSync(&pgproto3.Sync{})
			if err := f.Flush(); err != nil {
				s.broken.Store(true)
				return err
			}
		case *pgproto3.ErrorResponse:
			if failed == nil {
				failed = pgconn.ErrorResponseToPgError(m)
			}
		case *pgproto3.ReadyForQuery:
			return failed
		}
	}
}

// broke marks a session whose connection is broken.
func (s *pgSession) broke(r *round, err error) error {
	if s.wire.spent.Load() {
		s.broken.Store(true)
		return tooLarge(r.out.hard)
	}
	var pg *pgconn.PgError
	var own *toolkeep.Error
	if !errors.As(err, &pg) && !errors.As(err, &own) || outdated(err) {
		s.broken.Store(true)
	}
	return err
}

// outdated reports whether a prepared statement no longer matches its tables, or is
// gone.
func outdated(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "0A000" && strings.Contains(pg.Routine, "RevalidateCachedQuery") || pg.Code == "26000")
}

// reader reads rows into the sink, up to its caps.
func (s *pgSession) reader(r *round, sd *pgconn.StatementDescription) func([][]byte) *toolkeep.Error {
	out, fields := r.out, sd.Fields
	out.describe(len(fields), func(i int) string { return fields[i].Name }, func(i int) string { return s.typeName(fields[i].DataTypeOID) })
	decode := make([]func([]byte) any, len(fields))
	for i, f := range fields {
		decode[i] = s.decoder(f.DataTypeOID, out)
	}
	return func(values [][]byte) *toolkeep.Error {
		if out.cut != "" || out.full() || len(values) != len(fields) {
			return nil
		}
		row := make(map[string]any, len(fields))
		size := int64(2)
		for i, raw := range values {
			var v any
			if raw != nil {
				v = decode[i](raw)
			}
			row[out.columns[i].name] = v
			size += weigh(v) + int64(len(out.columns[i].name)) + 4
		}
		return out.add(row, size)
	}
}

// drop aborts a statement and its connection in mid-response. It tells the server,
// which would notice the closed connection only when its buffer is full.
func (s *pgSession) drop() {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	s.stop(ctx)
	s.wire.Close()
}
