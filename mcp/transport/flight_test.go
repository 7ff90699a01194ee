package transport

import (
	"net"
	"net/http/httptrace"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/egress"
)

// TestFlight checks what counts as sent, over connections with and without a counter.
func TestFlight(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	guard := egress.Guard{Allow: []toolkeep.HostPort{{Host: "127.0.0.1"}}}
	dial := func() net.Conn {
		c, err := guard.DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		far, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close(); _ = far.Close() })
		return c
	}
	counted, second := dial(), dial()
	plain, other := net.Pipe()
	defer plain.Close()
	defer other.Close()

	got := func(f *flight, c net.Conn) { f.gotConn(httptrace.GotConnInfo{Conn: c}) }
	begin := func(f *flight) { f.wroteHeaders() }
	send := func(c net.Conn) {
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		do   func(f *flight)
		want bool
	}{
		{"no connection", func(f *flight) {}, true},
		{"headers not written", func(f *flight) { got(f, plain) }, true},
		{"headers done, nobody counts", func(f *flight) { got(f, plain); begin(f) }, false},
		{"headers done, all in a buffer", func(f *flight) { got(f, counted); begin(f) }, true},
		{"headers done and bytes written", func(f *flight) { got(f, counted); begin(f); send(counted) }, false},
		{"a part of the headers written", func(f *flight) { got(f, counted); send(counted) }, true},
		{"first connection dead, second unused", func(f *flight) { got(f, counted); begin(f); got(f, second) }, true},
		{"sent over the first, not the second", func(f *flight) { got(f, counted); begin(f); send(counted); got(f, second) }, false},
		{"sent over the second", func(f *flight) { got(f, counted); begin(f); got(f, second); begin(f); send(second) }, false},
	} {
		f := new(flight)
		c.do(f)
		if f.nothingSent() != c.want {
			t.Errorf("%s: nothing sent %v", c.name, !c.want)
		}
	}
}
