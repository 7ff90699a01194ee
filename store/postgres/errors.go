package postgres

import (
	"context"
	"errors"
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

// isLost tells that the connection is gone or of no use: the server said
// nothing, or said that it is going.
func isLost(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	switch c := code(err); {
	case c == "":
		return true
	case strings.HasPrefix(c, "08"), strings.HasPrefix(c, "57P"), c == "25P03": // connection, shutdown, idle too long
		return true
	}
	return false
}

// isOwn tells that the server refused what a statement holds, rather than the
// transaction that it is in.
func isOwn(err error) bool {
	c := code(err)
	if c == "" || c == divisionByZero {
		return false
	}
	switch c[:2] {
	case "22", "23", "42", "54": // data, constraint, statement, limits
		return true
	}
	return false
}
