package transport

import (
	"context"
	"crypto/tls"
	"net"
	"net/http/httptrace"
	"sync"

	"github.com/toolkeep/toolkeep/egress"
)

// flight tracks one POST to know whether any of its message was sent.
//
// The body is sent after the headers. It may then still be in a buffer; a connection of
// package egress counts written bytes, and over HTTP/1 no other request changes that
// counter meanwhile.
//
// The body is not wrapped: net/http sends headers and body in one write only if it
// recognizes an in-memory body type.
type flight struct {
	mu    sync.Mutex
	conn  net.Conn
	mark  int64
	exact bool
	begun bool // headers were written on the current connection
	sent  bool // over an earlier connection, or for certain
}

func (f *flight) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: f.gotConn, WroteHeaders: f.wroteHeaders})
}

// gotConn may be called more than once: the transport takes another connection if an
// idle one is dead.
func (f *flight) gotConn(info httptrace.GotConnInfo) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settle()
	f.conn, f.begun = info.Conn, false
	f.mark, f.exact = egress.Written(info.Conn)
	if t, ok := info.Conn.(interface{ ConnectionState() tls.ConnectionState }); ok && t.ConnectionState().NegotiatedProtocol == "h2" {
		f.exact = false
	}
}

// wroteHeaders is called before the body is read.
func (f *flight) wroteHeaders() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun = true
}

// settle records what the current connection has sent.
func (f *flight) settle() {
	if f.sent || !f.begun {
		return
	}
	n, _ := egress.Written(f.conn)
	f.sent = !f.exact || n != f.mark
}

// nothingSent is called after the transport has given up.
func (f *flight) nothingSent() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settle()
	return !f.sent
}
