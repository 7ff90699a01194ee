package sqltool

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/egress"
)

// maxMessage is how many bytes of a database's message a caller sees.
const maxMessage = 600

// failure turns an error into the caller's error.
func (c *call) failure(ctx context.Context, err error) *toolkeep.Error {
	e := c.cause(ctx, err)
	if c.kept {
		e.Message += "; tables of an engine without transactions, such as MyISAM, keep what the call wrote before"
		e.Retryable = false
	}
	return e
}

func (c *call) cause(ctx context.Context, err error) *toolkeep.Error {
	var own *toolkeep.Error
	if errors.As(err, &own) && ctx.Err() == nil {
		e := *own
		return &e
	}
	if ctx.Err() != nil {
		return ended(ctx).Because(errors.New(c.x.Cleaned(err.Error())))
	}
	e := classify(err)
	if e.Code == toolkeep.QueryFailed || e.Code == toolkeep.StatementForbidden {
		e.Message = c.x.Cleaned(e.Message)
	}
	return e.Because(errors.New(c.x.Cleaned(err.Error())))
}

func classify(err error) *toolkeep.Error {
	var (
		pg *pgconn.PgError
		my *mysql.MySQLError
		sl *sqlite.Error
	)
	switch {
	case errors.As(err, &pg):
		return classifyPostgres(pg)
	case errors.As(err, &my):
		return classifyMySQL(my)
	case errors.As(err, &sl):
		return classifySQLite(sl)
	}
	return unreachable(err)
}

// unreachable is the error for a failed connection.
func unreachable(err error) *toolkeep.Error {
	var (
		dns  *net.DNSError
		op   *net.OpError
		late net.Error
	)
	say := func(reason, text string) *toolkeep.Error {
		return toolkeep.NewError(toolkeep.DBConnectionFailed, "%s", text).With("reason", reason)
	}
	switch {
	case isTLS(err):
		return say("tls", "no secure connection to the tool's database could be made: its certificate or the TLS handshake was refused, or it offers no TLS")
	case errors.As(err, &dns):
		return say("dns", "the name of the tool's database server could not be found in DNS")
	case errors.Is(err, context.DeadlineExceeded):
		return say("connect", "connecting to the tool's database took too long")
	case errors.As(err, &op) && op.Op == "dial":
		return say("connect", "the tool's database does not accept connections")
	case errors.As(err, &late) && late.Timeout():
		return say("connect", "the tool's database did not answer in time")
	}
	return say("reset", "the connection to the tool's database broke")
}

// isTLS recognizes TLS errors, including the drivers' own texts.
func isTLS(err error) bool {
	text := err.Error()
	return egress.IsTLS(err) || errors.Is(err, mysql.ErrNoTLS) ||
		strings.Contains(text, "tls: ") || strings.Contains(text, "server refused TLS connection")
}

// refused is the error for a statement that the database refused. It includes the
// database's message, which helps the query's author; the caller of refused redacts
// credentials.
func refused(code toolkeep.Code, sqlstate, message string) *toolkeep.Error {
	message = strings.ToValidUTF8(toolkeep.ClipBytes(message, maxMessage), "\uFFFD")
	intro := "the database refused the statement: "
	if code == toolkeep.StatementForbidden {
		intro = "the database allows the statement only to read: "
	}
	e := toolkeep.NewError(code, "%s", intro+message)
	if sqlstate != "" {
		e.With("sqlstate", sqlstate)
	}
	return e
}

func forbidden(why string) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.StatementForbidden, "%s", why)
}

func deadlock(sqlstate string) *toolkeep.Error {
	e := toolkeep.NewError(toolkeep.DBDeadlock, "another transaction was in the way (deadlock, serialisation failure or a lock held too long); the call was rolled back")
	if sqlstate != "" {
		e.With("sqlstate", sqlstate)
	}
	return e
}

func late(sqlstate string) *toolkeep.Error {
	e := toolkeep.NewError(toolkeep.DBTimeout, "the statement was over its time limit; the database cancelled it")
	if sqlstate != "" {
		e.With("sqlstate", sqlstate)
	}
	return e
}

// badLogin is E3402, so that a rotated password is fetched again.
func badLogin(sqlstate string) *toolkeep.Error {
	e := toolkeep.NewError(toolkeep.SecretAccessDenied, "the database refused the tool's login; its user or password is wrong, or it may not connect from here")
	if sqlstate != "" {
		e.With("sqlstate", sqlstate)
	}
	return e
}

func classifyPostgres(err *pgconn.PgError) *toolkeep.Error {
	state := err.Code
	switch {
	case state == "28P01", state == "28000":
		return badLogin(state)
	case state == "57014":
		return late(state)
	case state == "40001", state == "40P01":
		return deadlock(state)
	case state == "25006":
		return refused(toolkeep.StatementForbidden, state, err.Message)
	case state == "25001" && strings.Contains(err.Routine, "XactReadOnly"):
		return refused(toolkeep.StatementForbidden, state, err.Message)
	case strings.HasPrefix(state, "08"), state == "57P01", state == "57P02", state == "57P03", state == "53300":
		return toolkeep.NewError(toolkeep.DBConnectionFailed, "the tool's database accepts no connection now or ended this one").With("sqlstate", state).With("reason", "server")
	case state == "3D000":
		return toolkeep.NewError(toolkeep.DBConnectionFailed, "the tool's database does not exist on its server").With("sqlstate", state).With("reason", "database")
	}
	return refused(toolkeep.QueryFailed, state, err.Message)
}

func classifyMySQL(err *mysql.MySQLError) *toolkeep.Error {
	state := string(err.SQLState[:])
	if err.SQLState == [5]byte{} {
		state = ""
	}
	var e *toolkeep.Error
	switch err.Number {
	case 1045, 1698, 1044, 1251, 1862, 1820:
		e = badLogin(state)
	case 1040, 1053, 1129, 1130, 1203, 1226, 3159, 1152, 1927:
		e = toolkeep.NewError(toolkeep.DBConnectionFailed, "the tool's database accepts no connection now or ended this one").With("reason", "server").With("sqlstate", state)
	case 1049:
		e = toolkeep.NewError(toolkeep.DBConnectionFailed, "the tool's database does not exist on its server").With("reason", "database").With("sqlstate", state)
	case 1213, 1205:
		e = deadlock(state)
	case 1969, 3024, 1317:
		e = late(state)
	case 1792, 1290, 1568:
		e = refused(toolkeep.StatementForbidden, state, err.Message)
	default:
		e = refused(toolkeep.QueryFailed, state, err.Message)
	}
	return e.With("errno", number(int(err.Number)))
}

// Primary result codes of SQLite.
const (
	sqliteBusy      = 5
	sqliteLocked    = 6
	sqliteReadOnly  = 8
	sqliteInterrupt = 9
	sqliteCantOpen  = 14
	sqliteAuth      = 23
	sqliteNotADB    = 26
)

func classifySQLite(err *sqlite.Error) *toolkeep.Error {
	var e *toolkeep.Error
	switch err.Code() & 0xff {
	case sqliteBusy, sqliteLocked:
		e = deadlock("")
	case sqliteReadOnly, sqliteAuth:
		e = refused(toolkeep.StatementForbidden, "", err.Error())
	case sqliteInterrupt:
		e = late("")
	case sqliteCantOpen, sqliteNotADB:
		e = toolkeep.NewError(toolkeep.DBConnectionFailed, "the tool's database file cannot be opened as a database").With("reason", "file")
	default:
		e = refused(toolkeep.QueryFailed, "", err.Error())
	}
	return e.With("errno", number(err.Code()))
}
