package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"

	"github.com/toolkeep/toolkeep/egress"
)

// flight follows one POST to know whether any of its message left.
//
// A body that nobody read has not left. One that was read may still sit in a
// buffer; a connection of package egress tells by its counter of written bytes,
// which over HTTP/1 nobody else moves at the same time.
type flight struct {
	mu    sync.Mutex
	conn  net.Conn
	mark  int64
	exact bool
	read  bool // from the body since the current connection was taken
	sent  bool // over an earlier connection, or for certain
}

func (f *flight) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: f.gotConn})
}

// gotConn may come more than once: the transport takes another connection if an
// idle one turns out to be dead.
func (f *flight) gotConn(info httptrace.GotConnInfo) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settle()
	f.conn, f.read = info.Conn, false
	f.mark, f.exact = egress.Written(info.Conn)
	if t, ok := info.Conn.(interface{ ConnectionState() tls.ConnectionState }); ok && t.ConnectionState().NegotiatedProtocol == "h2" {
		f.exact = false
	}
}

// settle takes over what the current connection says.
func (f *flight) settle() {
	if f.sent || !f.read {
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

// body is the request's body over data.
func (f *flight) attach(req *http.Request, data []byte) {
	req.ContentLength = int64(len(data))
	req.GetBody = func() (io.ReadCloser, error) {
		return &watched{r: bytes.NewReader(data), f: f}, nil
	}
	req.Body, _ = req.GetBody()
}

type watched struct {
	r *bytes.Reader
	f *flight
}

func (w *watched) Read(p []byte) (int, error) {
	w.f.mu.Lock()
	w.f.read = true
	w.f.mu.Unlock()
	return w.r.Read(p)
}

func (w *watched) Close() error { return nil }
