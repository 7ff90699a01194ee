package transport

import (
	"errors"
	"strconv"
	"time"
)

var (
	// ErrSession says that the server no longer knows the session. A new
	// connection has to be made.
	ErrSession = errors.New("the MCP server no longer knows the session")
	// ErrClosed is the cause of a Write after Close.
	ErrClosed = errors.New("the connection is closed")
	// ErrJunk ends a stdio connection whose peer writes too much that is no message.
	ErrJunk = errors.New("the peer writes too much that is not MCP")
	// ErrUnreadable is in the Lost of an answer that came over stdio and is no message.
	ErrUnreadable = errors.New("its answer cannot be read")
)

// SendError is why a message was not delivered, or why nobody knows.
type SendError struct {
	// NothingSent: no byte of the message left.
	NothingSent bool
	// Refused: the message left, and an HTTP status of the server says that it did
	// not act on it (4xx but for 408 and 409). After what the status asks for, the
	// message may be sent again.
	Refused bool
	// Status is the HTTP status, 0 where there was none.
	Status int
	// RetryAfter is what the server asks for; 0 where it does not, at most an hour.
	RetryAfter time.Duration
	// Err is the cause: ErrSession, ErrClosed, the context's error, an *mcp.Error
	// from the body of the refusal, what the dialler or a hook said. It holds no URL,
	// no header and nothing of a body that was not JSON-RPC, but may name the host.
	Err error
}

// Error is for the operator: a network's error names host and address.
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

// Unwrap gives the cause.
func (e *SendError) Unwrap() error { return e.Err }

// NotExecuted tells whether the peer cannot have acted on the message.
func (e *SendError) NotExecuted() bool { return e.NothingSent || e.Refused }
