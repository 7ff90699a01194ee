package postgres

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/toolkeep/toolkeep"
)

// PostgreSQL error codes that the writer handles.
const (
	uniqueViolation  = "23505"
	lockNotAvailable = "55P03"
	undefinedTable   = "42P01"
	// protocolViolation is what PgBouncer answers to a parameter that it does not know.
	protocolViolation = "08P01"
	divisionByZero    = "22012" // from a fenced writer, see fence
)

func code(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// Unreachable reports whether an error of Open means that the server did not respond,
// is not ready yet or has no free connection, so that waiting may help.
func Unreachable(err error) bool {
	switch c := code(err); {
	case c != "":
		return strings.HasPrefix(c, "08") || strings.HasPrefix(c, "57P") || strings.HasPrefix(c, "53")
	case errors.Is(err, context.Canceled):
		return false
	}
	var op *net.OpError
	if errors.As(err, &op) && strings.HasSuffix(op.Op, " error") { // crypto/tls reports an alert this way
		return false
	}
	var network net.Error // includes timeouts
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// isLost reports whether the connection is lost or unusable: the server did not
// respond, or is shutting down.
func isLost(err error) bool {
	if err == nil || isDamage(err) || errors.Is(err, toolkeep.ErrNotFound) {
		return false
	}
	switch c := code(err); {
	case c == "":
		return true
	// connection, shutdown, idle in transaction for too long, a server that became a
	// standby
	case strings.HasPrefix(c, "08"), strings.HasPrefix(c, "57P"), c == "25P03", c == "25006":
		return true
	}
	return false
}

// isPassing reports whether the same transaction may succeed on a retry.
func isPassing(err error) bool {
	c := code(err)
	if isLost(err) || c == divisionByZero {
		return true
	}
	if len(c) < 2 {
		return false
	}
	switch c[:2] {
	case "40", "53", "55", "57": // deadlocks, resources, locks, timeouts
		return true
	}
	return false
}

// isOwn reports whether the server rejected the contents of a statement, rather than
// its transaction.
func isOwn(err error) bool {
	c := code(err)
	if len(c) < 2 || c == divisionByZero {
		return false
	}
	switch c[:2] {
	case "22", "23", "54": // data, constraints, limits
		return true
	}
	return false
}

// damage is the error of a damaged row; retrying does not help.
type damage struct{ error }

func (d damage) Unwrap() error { return d.error }

func damaged(err error) error {
	if err == nil {
		return nil
	}
	return damage{err}
}

func isDamage(err error) bool {
	var d damage
	return errors.As(err, &d)
}
