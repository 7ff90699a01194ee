package postgres

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// PostgreSQL's codes that decide what comes next.
const (
	uniqueViolation = "23505"
	divisionByZero  = "22012" // what a fenced writer gets, see fence
)

func code(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// Unreachable tells of an error of Open that nobody answered, or somebody who is
// not ready yet or has no room. Waiting may mend that, and nothing else does.
func Unreachable(err error) bool {
	switch c := code(err); {
	case c != "":
		return strings.HasPrefix(c, "08") || strings.HasPrefix(c, "57P") || strings.HasPrefix(c, "53")
	case errors.Is(err, context.Canceled):
		return false
	}
	var op *net.OpError
	if errors.As(err, &op) && strings.HasSuffix(op.Op, " error") { // what TLS calls an alert
		return false
	}
	var network net.Error // its time-outs among them
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// isLost tells that the connection is gone or of no use: the server said
// nothing, or said that it is going.
func isLost(err error) bool {
	if err == nil || isDamage(err) {
		return false
	}
	switch c := code(err); {
	case c == "":
		return true
	// connection, shutdown, idle too long in a transaction, a server that became a standby
	case strings.HasPrefix(c, "08"), strings.HasPrefix(c, "57P"), c == "25P03", c == "25006":
		return true
	}
	return false
}

// isPassing tells that the same transaction may well succeed in a moment.
func isPassing(err error) bool {
	c := code(err)
	if isLost(err) || c == divisionByZero {
		return true
	}
	if len(c) < 2 {
		return false
	}
	switch c[:2] {
	case "40", "53", "55", "57": // deadlocks, resources, locks, cancelled by a timeout
		return true
	}
	return false
}

// isOwn tells that the server refused what a statement holds, rather than the
// transaction that it is in.
func isOwn(err error) bool {
	c := code(err)
	if len(c) < 2 || c == divisionByZero {
		return false
	}
	switch c[:2] {
	case "22", "23", "54": // data, constraint, limits
		return true
	}
	return false
}

// damage is what a row was found to be, which trying again does not mend.
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
