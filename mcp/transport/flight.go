package transport

import (
	"context"
	"crypto/tls"
	"net"
	"net/http/httptrace"
	"sync"

	"github.com/toolkeep/toolkeep/egress"
)

// flight follows one POST to know whether any of its message left.
//
// The body has not left before the headers are written. Then it may still sit in a
// buffer; a connection of package egress tells by its counter of written bytes,
// which over HTTP/1 nobody else moves at the same time.
//
// The body itself is left alone: net/http sends headers and body in one write only
// if it knows the body's type as one that lies in memory.
type flight struct {
	mu    sync.Mutex
	conn  net.Conn
	mark  int64
	exact bool
	begun bool // the headers were written since the current connection was taken
	sent  bool // over an earlier connection, or for certain
}

func (f *flight) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: f.gotConn, WroteHeaders: f.wroteHeaders})
}

// gotConn may come more than once: the transport takes another connection if an
// idle one turns out to be dead.
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

// wroteHeaders comes before the body is read.
func (f *flight) wroteHeaders() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun = true
}

// settle takes over what the current connection says.
func (f *flight) settle() {
	if f.sent || !f.begun {
		return
	}
	n, _ := egress.Written(f.conn)
	f.sent = !f.exact || n != f.mark
}

// nothingSent is asked after the transport gave up.
func (f *flight) nothingSent() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settle()
	return !f.sent
}
