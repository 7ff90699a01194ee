package mcp

import (
	"context"
	"errors"
)

// Conn is a connection to one peer, with messages in both directions in any order.
//
// Read returns the peer's next message; one goroutine calls it. io.EOF means that
// either side closed the connection, any other error that it is permanently broken. An
// error of ctx leaves the connection usable.
//
// Write sends one message to the peer; many goroutines may call it. Over HTTP ctx
// covers the whole exchange: it must live until the response has been read, and its end
// closes the stream that would carry the response. The message must not change until
// Write returns.
//
// Close ends the connection and its goroutines, waits for them, and may be called more
// than once.
type Conn interface {
	Read(ctx context.Context) (*Message, error)
	Write(ctx context.Context, m *Message) error
	Close() error
}

// ErrTooLarge is a reader's error for an event or a line over its limit.
var ErrTooLarge = errors.New("the message is over its size limit")
