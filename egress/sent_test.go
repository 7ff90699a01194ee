package egress

import (
	"crypto/tls"
	"net"
	"net/http/httptrace"
	"testing"
)

// sink is a connection that accepts everything and does not count.
type sink struct{ net.Conn }

func (sink) Write(p []byte) (int, error) { return len(p), nil }

// h2 is a connection that claims to speak HTTP/2.
type h2 struct{ net.Conn }

func (h2) ConnectionState() tls.ConnectionState {
	return tls.ConnectionState{NegotiatedProtocol: "h2"}
}

func (c h2) NetConn() net.Conn { return c.Conn }

// TestSentTracker checks what counts as sent, over connections with and without a counter.
func TestSentTracker(t *testing.T) {
	fresh := func() *Conn { return &Conn{Conn: sink{}} }
	used := func() *Conn { c := fresh(); send(c); return c }
	got := func(s *SentTracker, c net.Conn) { s.gotConn(httptrace.GotConnInfo{Conn: c}) }
	headers := func(s *SentTracker) { s.wroteField("Host", nil); s.wroteHeaders() }
	for _, c := range []struct {
		name       string
		run        func(s *SentTracker)
		all, after bool // nothing was sent: of the request, and after the headers
	}{
		{"no connection", func(*SentTracker) {}, true, true},
		{"a connection and no byte", func(s *SentTracker) { got(s, used()) }, true, true},
		{"a part of the headers", func(s *SentTracker) { c := used(); got(s, c); s.wroteField("Host", nil); send(c) }, false, true},
		{"headers that stayed in the buffer", func(s *SentTracker) { got(s, used()); headers(s) }, true, true},
		{"headers, then a byte", func(s *SentTracker) { c := used(); got(s, c); headers(s); send(c) }, false, false},
		{"a dead connection, then a new one", func(s *SentTracker) { got(s, used()); headers(s); got(s, fresh()) }, true, true},
		{"a byte on the first of two", func(s *SentTracker) { c := used(); got(s, c); headers(s); send(c); got(s, fresh()) }, false, false},
		{"a byte on the second", func(s *SentTracker) {
			got(s, used())
			headers(s)
			d := fresh()
			got(s, d)
			headers(s)
			send(d)
		}, false, false},
		{"no counter", func(s *SentTracker) { got(s, sink{}) }, false, true},
		{"no counter, and headers", func(s *SentTracker) { got(s, sink{}); headers(s) }, false, false},
		{"HTTP/2, and others write", func(s *SentTracker) { c := used(); got(s, h2{c}); send(c) }, true, true},
		{"HTTP/2 and a header", func(s *SentTracker) { got(s, h2{used()}); s.wroteField(":method", nil) }, false, true},
		{"HTTP/2 and all headers", func(s *SentTracker) { got(s, h2{used()}); headers(s) }, false, false},
	} {
		for _, s := range []*SentTracker{{}, {BodyOnly: true}} {
			c.run(s)
			want := c.all
			if s.BodyOnly {
				want = c.after
			}
			if s.NothingSent() != want {
				t.Errorf("%s, body only %v: nothing sent is %v", c.name, s.BodyOnly, !want)
			}
		}
	}
}

func send(c net.Conn) { _, _ = c.Write([]byte("x")) }
