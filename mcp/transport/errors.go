package transport

import (
	"errors"
	"strconv"
	"time"
)

var (
	// ErrSession says that the server no longer knows the session. Open a new
	// connection.
	ErrSession = errors.New("the MCP server no longer has the session")
	// ErrClosed is the cause of a Write after Close.
	ErrClosed = errors.New("the connection is closed")
	// ErrJunk ends a stdio connection whose peer writes too much that is not a message.
	ErrJunk = errors.New("the peer writes too much that is not MCP")
	// ErrUnreadable is the Lost of an unreadable response over stdio.
	ErrUnreadable = errors.New("its answer cannot be read")
)

// SendError is why a message was not delivered, or may not have been.
type SendError struct {
	// NothingSent: no byte of the message was sent.
	NothingSent bool
	// Refused: the message was sent, and the HTTP status says that the server did not
	// act on it (4xx except 408 and 409). It may be sent again once the status is dealt
	// with.
	Refused bool
	// Status is the HTTP status, or 0.
	Status int
	// RetryAfter is the server's requested delay, at most an hour; 0 if it names none.
	RetryAfter time.Duration
	// Err is the cause: ErrSession, ErrClosed, the context's error, an *mcp.Error from
	// the response body, or an error of the dialler or a hook. It contains no URL, no
	// header and no part of a body that is not JSON-RPC, but may name the host.
	Err error
}

// Error is for the operator: network errors name host and address.
func (e *SendError) Error() string {
	s := "the message was not delivered"
	if !e.NothingSent && !e.Refused {
		s = "the message may not have been delivered"
	}
	if e.Status != 0 {
		s += " (HTTP " + strconv.Itoa(e.Status) + ")"
	}
	return s + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *SendError) Unwrap() error { return e.Err }

// NotExecuted reports whether the peer certainly did not act on the message.
func (e *SendError) NotExecuted() bool { return e.NothingSent || e.Refused }
