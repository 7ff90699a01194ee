package httptool

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/egress"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sink is a connection that accepts everything.
type sink struct{ net.Conn }

func (sink) Write(p []byte) (int, error) { return len(p), nil }

// h2 is a connection that claims to speak HTTP/2.
type h2 struct{ net.Conn }

func (h2) ConnectionState() tls.ConnectionState {
	return tls.ConnectionState{NegotiatedProtocol: "h2"}
}

func (c h2) NetConn() net.Conn { return c.Conn }

func TestFlight(t *testing.T) {
	fresh := func() *egress.Conn { return &egress.Conn{Conn: sink{}} }
	used := func() *egress.Conn { c := fresh(); c.Write([]byte("an earlier request")); return c }
	got := func(f *flight, c net.Conn) { f.gotConn(httptrace.GotConnInfo{Conn: c}) }
	tests := []struct {
		name string
		run  func(f *flight)
		want bool // nothing was sent
	}{
		{"no connection", func(f *flight) {}, true},
		{"a connection and no byte", func(f *flight) { got(f, used()) }, true},
		{"a byte", func(f *flight) { c := used(); got(f, c); c.Write([]byte("G")) }, false},
		{"a header that stayed in the buffer", func(f *flight) { got(f, used()); f.wroteHeader("Host", nil) }, true},
		{"a dead connection, then a new one", func(f *flight) { got(f, used()); got(f, fresh()) }, true},
		{"a byte on the first of two", func(f *flight) { c := used(); got(f, c); c.Write([]byte("G")); got(f, fresh()) }, false},
		{"a byte on the first after the second came", func(f *flight) { c := used(); got(f, c); d := fresh(); got(f, d); d.Write([]byte("G")) }, false},
		{"a connection that does not count", func(f *flight) { got(f, sink{}) }, false},
		{"HTTP/2 and others write", func(f *flight) { c := used(); got(f, h2{c}); c.Write([]byte("G")) }, true},
		{"HTTP/2 and a header", func(f *flight) { got(f, h2{used()}); f.wroteHeader(":method", nil) }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var f flight
			tt.run(&f)
			if got := f.nothingSent(); got != tt.want {
				t.Errorf("nothingSent = %t, want %t", got, tt.want)
			}
		})
	}
}

// TestHeaderLimit: a server answers with more headers than permitted.
func TestHeaderLimit(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for range 100 {
				w.Header().Add("X-Long", strings.Repeat("x", 200))
			}
		}))
		s.EnableHTTP2 = http2
		s.StartTLS()
		defer s.Close()
		roots := x509.NewCertPool()
		roots.AddCert(s.Certificate())
		e := New(Config{Egress: egress.PoolConfig{RootCAs: roots, MaxHeaderBytes: 8 << 10}})
		defer e.Close()
		_, err := execute(t, e, manifest(t, s.URL, `{"method":"GET","server":"SERVER","path":"/"}`), `{}`)
		if err == nil || err.Code != toolkeep.InvalidResponse || !strings.Contains(err.Message, "headers") || !strings.Contains(err.Message, "egress.max_header") {
			t.Fatalf("HTTP/2 %t: %v (because of %v)", http2, err, err.Cause)
		}
		if !http2 && !strings.Contains(err.Message, "8192 bytes") {
			t.Error(err.Message)
		}
	}
}
