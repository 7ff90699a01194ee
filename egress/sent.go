package egress

import (
	"context"
	"crypto/tls"
	"net"
	"net/http/httptrace"
	"sync"
)

// SentTracker tracks one HTTP request to know whether any of it was sent. The zero value
// counts every byte; it is used for one request.
//
// An HTTP/1 connection carries one request at a time, so its counter of written bytes is
// exact. An HTTP/2 connection is shared: there the first header encoded for the stream
// counts as sent, or with BodyOnly the end of the headers. A connection that was not made
// by a Guard has no counter, and counts as sent once it is taken.
type SentTracker struct {
	// BodyOnly counts what is sent after the headers, for a message whose headers alone
	// have no effect. The body may still be in a buffer then. It is not wrapped to see
	// it, because net/http sends headers and a body that it knows in one write.
	BodyOnly bool

	mu     sync.Mutex
	conn   net.Conn
	mark   int64
	exact  bool // mark is conn's counter, which no other request changes
	shared bool // HTTP/2
	begun  bool // what counts may be written to conn from now on
	sent   bool // over an earlier connection, or for certain
}

// Trace returns the context for the request.
func (s *SentTracker) Trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: s.gotConn, WroteHeaderField: s.wroteField, WroteHeaders: s.wroteHeaders})
}

// gotConn may be called more than once: the transport takes another connection if an
// idle one is dead.
func (s *SentTracker) gotConn(info httptrace.GotConnInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle()
	s.conn = info.Conn
	s.mark, s.exact = Written(info.Conn)
	s.shared = false
	if t, ok := info.Conn.(interface{ ConnectionState() tls.ConnectionState }); ok && t.ConnectionState().NegotiatedProtocol == "h2" {
		s.shared, s.exact = true, false
	}
	s.begun = !s.BodyOnly && !s.shared
}

func (s *SentTracker) wroteField(string, []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = s.begun || s.shared && !s.BodyOnly
}

// wroteHeaders is called before the body is read.
func (s *SentTracker) wroteHeaders() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = true
}

// settle records what the current connection has sent.
func (s *SentTracker) settle() {
	if s.sent || !s.begun {
		return
	}
	n, _ := Written(s.conn)
	s.sent = !s.exact || n != s.mark
}

// NothingSent reports whether certainly nothing that counts was sent. Call it after the
// transport has given up, when its connection is closed.
func (s *SentTracker) NothingSent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle()
	return !s.sent
}
