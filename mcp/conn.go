package mcp

import (
	"context"
	"errors"
)

// Conn is one peer: messages both ways, in no fixed order.
//
// Read gives the next message of the peer; one goroutine calls it. io.EOF means
// that the connection was closed by either side, any other error that it is
// broken for good. An error of ctx leaves the connection as it is.
//
// Write hands one message to the peer; many goroutines may call it. Over HTTP
// ctx is the context of the whole exchange: it must live until the answer to a
// request has been read, and its end closes the stream on which the answer would
// come. The message must not change until Write has returned.
//
// Close ends the connection and everything that works for it, waits for that, and
// may be called more than once.
type Conn interface {
	Read(ctx context.Context) (*Message, error)
	Write(ctx context.Context, m *Message) error
	Close() error
}

// ErrTooLarge is what a reader says about an event or a line over its limit.
var ErrTooLarge = errors.New("the message is over its size limit")
