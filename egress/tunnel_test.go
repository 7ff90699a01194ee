package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// tunnelled connects through a Dialer with the settings and returns the server's
// response to "ping\n".
func tunnelled(t *testing.T, c PoolConfig, g *Guard, addr string) (string, error) {
	t.Helper()
	conn, err := c.Dialer(g)(t.Context(), addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if n, ok := Written(conn); n != 0 || !ok {
		t.Errorf("%d bytes count before any was written (%v)", n, ok)
	}
	io.WriteString(conn, "ping\n")
	if n, _ := Written(conn); n != 5 {
		t.Errorf("%d bytes count after 5", n)
	}
	return bufio.NewReader(conn).ReadString('\n')
}

// startLines serves one greeting and a response to each line.
func startLines(t *testing.T, answer string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				r := bufio.NewReader(conn)
				for {
					line, err := r.ReadString('\n')
					if err != nil {
						return
					}
					io.WriteString(conn, answer+line)
				}
			}()
		}
	}()
	return l.Addr().String()
}

func TestTunnel(t *testing.T) {
	server := startLines(t, "pong ")
	plain, secure := newStubProxy(t, server, false, 0), newStubProxy(t, server, true, 0)
	socks := startSOCKS(t, server, "ann", "pa55")
	for _, tt := range []struct{ name, url, asked string }{
		{"http", plain.URL, "CONNECT api.example:50051  0"},
		{"http with a password", strings.Replace(plain.URL, "http://", "http://ann:pa55@", 1), "CONNECT api.example:50051 Basic YW5uOnBhNTU= 0"},
		{"https", secure.URL, "CONNECT api.example:50051  0"},
		{"socks5", "socks5://ann:pa55@" + socks, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := NewProxy(ProxyConfig{URL: tt.url})
			if err != nil {
				t.Fatal(err)
			}
			c := PoolConfig{Proxy: p, Resolver: public(), RootCAs: secure.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
			got, err := tunnelled(t, c, &Guard{Resolver: c.Resolver}, "api.example:50051")
			if err != nil || got != "pong ping\n" {
				t.Fatalf("the answer is %q, %v", got, err)
			}
			asked := append(plain.requests(), secure.requests()...)
			if tt.asked != "" && !strings.Contains(strings.Join(asked, "\n"), tt.asked) {
				t.Errorf("the proxies were asked %q, want %q", asked, tt.asked)
			}
		})
	}
}

// TestTunnelHearsWhoSpeaksFirst: an HTTP/2 server greets first, and its bytes may
// arrive with the proxy's.
func TestTunnelHearsWhoSpeaksFirst(t *testing.T) {
	proxy := serveOnce(t, func(conn net.Conn, r *bufio.Reader) {
		if _, err := http.ReadRequest(r); err != nil {
			t.Error(err)
		}
		io.WriteString(conn, "HTTP/1.1 200 Connection established\r\nX-A: b\r\n\r\nhello")
		line, _ := r.ReadString('\n')
		io.WriteString(conn, " "+line)
	})
	p, err := NewProxy(ProxyConfig{URL: "http://" + proxy, TrustNames: true})
	if err != nil {
		t.Fatal(err)
	}
	got, err := tunnelled(t, PoolConfig{Proxy: p}, &Guard{}, "api.example:443")
	if err != nil || got != "hello ping\n" {
		t.Fatalf("heard %q, %v", got, err)
	}
}

// serveOnce serves one connection and stops with the test.
func serveOnce(t *testing.T, serve func(net.Conn, *bufio.Reader)) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-done })
	go func() {
		defer close(done)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		serve(conn, bufio.NewReader(conn))
	}()
	return l.Addr().String()
}

// TestTunnelRefusals checks what TestProxyRefusals does, for connections that are not
// HTTP.
func TestTunnelRefusals(t *testing.T) {
	server := startLines(t, "the inner server was reached: ")
	p := newStubProxy(t, server, false, 0)
	inner := (&stubDNS{answers: []netip.Addr{netip.MustParseAddr("10.1.2.3")}}).resolver()
	for _, tt := range []struct {
		name, addr string
		bypass     []string
		resolver   *net.Resolver
		trust      bool
	}{
		{name: "a literal address", addr: "10.0.0.1:443"},
		{name: "metadata, names trusted", addr: "169.254.169.254:80", trust: true},
		{name: "loopback goes past the proxy to the guard", addr: server},
		{name: "a name with an inner address", addr: "wiki.example:50051", resolver: inner},
		{name: "a number as a name", addr: "2130706433:50051", trust: true},
		{name: "the proxy itself", addr: strings.TrimPrefix(p.URL, "http://"), bypass: []string{"*"}},
		{name: "a bypassed inner name", addr: "wiki.example:50051", bypass: []string{"wiki.example"}, resolver: inner},
		{name: "a bypassed range", addr: "10.0.0.1:50051", bypass: []string{"10.0.0.0/8"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			proxy, err := NewProxy(ProxyConfig{URL: p.URL, Bypass: tt.bypass, TrustNames: tt.trust})
			if err != nil {
				t.Fatal(err)
			}
			if tt.resolver == nil {
				tt.resolver = public()
			}
			_, err = tunnelled(t, PoolConfig{Proxy: proxy, Resolver: tt.resolver}, &Guard{Resolver: tt.resolver}, tt.addr)
			wantForbidden(t, err)
		})
	}
	if len(p.requests()) != 0 {
		t.Errorf("the proxy was asked: %q", p.requests())
	}
}

func TestTunnelAllowed(t *testing.T) {
	server := startLines(t, "")
	p := newStubProxy(t, server, false, 0)
	inner := (&stubDNS{answers: []netip.Addr{netip.MustParseAddr("10.1.2.3")}}).resolver()
	proxy, err := NewProxy(ProxyConfig{URL: p.URL})
	if err != nil {
		t.Fatal(err)
	}
	c := PoolConfig{Proxy: proxy, Resolver: inner}
	allow := []toolkeep.HostPort{{Host: "wiki.example"}}
	if got, err := tunnelled(t, c, &Guard{Allow: allow, Resolver: inner}, "wiki.example:50051"); err != nil || got != "ping\n" {
		t.Errorf("an inner host of the manifest: %q, %v", got, err)
	}
	// Loopback never uses the proxy; the guard allows it if it is listed.
	host, port, _ := net.SplitHostPort(server)
	n, _ := strconv.Atoi(port)
	if got, err := tunnelled(t, c, &Guard{Allow: []toolkeep.HostPort{{Host: host, Port: n}}}, server); err != nil || got != "ping\n" {
		t.Errorf("loopback: %q, %v", got, err)
	}
	if n := len(p.requests()); n != 1 {
		t.Errorf("the proxy was asked %d times", n)
	}
}

func TestTunnelFails(t *testing.T) {
	refuses := newStubProxy(t, "", false, http.StatusProxyAuthRequired)
	gone := newStubProxy(t, "", false, 0)
	gone.Close()
	silent := serveOnce(t, func(_ net.Conn, r *bufio.Reader) { io.Copy(io.Discard, r) })
	endless := serveOnce(t, func(conn net.Conn, r *bufio.Reader) {
		http.ReadRequest(r)
		io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
		for {
			if _, err := io.WriteString(conn, "X-Filler: "+strings.Repeat("x", 1000)+"\r\n"); err != nil {
				return
			}
		}
	})
	for _, tt := range []struct{ name, url, want string }{
		{"it refuses", refuses.URL, "HTTP 407"},
		{"it is gone", gone.URL, "cannot be reached"},
		{"it says nothing", "http://" + silent, "did not connect"},
		{"its answer does not end", "http://" + endless, "did not connect"},
		{"a wrong password", "socks5://ann:wrong@" + startSOCKS(t, "", "ann", "pa55"), "did not connect"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			proxy, err := NewProxy(ProxyConfig{URL: tt.url, TrustNames: true})
			if err != nil {
				t.Fatal(err)
			}
			_, err = tunnelled(t, PoolConfig{Proxy: proxy, ConnectTimeout: 300 * time.Millisecond}, &Guard{}, "api.example:443")
			var e *toolkeep.Error
			if !errors.As(err, &e) || e.Code != toolkeep.NetworkError || !e.NothingSent || !strings.Contains(e.Message, tt.want) || e.Details["reason"] != "proxy" {
				t.Fatalf("error = %v, want E3501 with %q", err, tt.want)
			}
			if strings.Contains(fmt.Sprint(e, e.Cause), "wrong") {
				t.Errorf("the password is in %v, because of %v", e, e.Cause)
			}
		})
	}
}

// TestTunnelCancelled cancels a connection that the proxy delays.
func TestTunnelCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	silent := serveOnce(t, func(_ net.Conn, r *bufio.Reader) {
		http.ReadRequest(r)
		cancel()
		io.Copy(io.Discard, r)
	})
	proxy, err := NewProxy(ProxyConfig{URL: "http://" + silent, TrustNames: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (PoolConfig{Proxy: proxy}).Dialer(&Guard{})(ctx, "api.example:443"); err == nil {
		t.Fatal("it connected")
	}
}

// startSOCKS is a SOCKS5 proxy (RFC 1928, 1929) that accepts one user and connects
// every name to one address.
func startSOCKS(t *testing.T, to, user, password string) string {
	return serveOnce(t, func(conn net.Conn, r *bufio.Reader) {
		read := func(n int) []byte {
			b := make([]byte, n)
			io.ReadFull(r, b)
			return b
		}
		read(int(read(2)[1]))
		conn.Write([]byte{5, 2})
		read(1)
		u := string(read(int(read(1)[0])))
		if pw := string(read(int(read(1)[0]))); u != user || pw != password {
			conn.Write([]byte{1, 1})
			return
		}
		conn.Write([]byte{1, 0})
		head := read(4)
		if head[3] != 3 {
			t.Errorf("the proxy is asked for an address of type %d, want a name", head[3])
			return
		}
		if name := string(read(int(read(1)[0]))); name != "api.example" {
			t.Errorf("the proxy is asked for %q", name)
		}
		read(2)
		out, err := net.Dial("tcp", to)
		if err != nil {
			t.Error(err)
			return
		}
		defer out.Close()
		conn.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
		go func() { io.Copy(out, r); out.(*net.TCPConn).CloseWrite() }()
		io.Copy(conn, out)
	})
}
