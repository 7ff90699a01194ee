package egress

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/toolkeep/toolkeep"
)

func TestForbiddenRanges(t *testing.T) {
	tests := []struct {
		addr, name string
		inside     bool
	}{
		{"127.0.0.1", "loopback", true}, {"127.255.255.254", "loopback", true}, {"::1", "loopback", true},
		{"10.0.0.1", "private", true}, {"10.255.255.255", "private", true},
		{"172.16.0.1", "private", true}, {"172.31.255.255", "private", true},
		{"192.168.0.1", "private", true}, {"192.168.255.255", "private", true},
		{"169.254.0.1", "link-local", true}, {"fe80::1", "link-local", true}, {"fe80::1%eth0", "link-local", true},
		{"febf::1", "link-local", true}, {"fec0::1", "site-local", true},
		{"100.64.0.1", "carrier-grade NAT", true}, {"100.127.255.255", "carrier-grade NAT", true},
		{"fc00::1", "unique local", true}, {"fdff::1", "unique local", true},
		{"0.0.0.0", "unspecified", false}, {"0.1.2.3", "unspecified", false}, {"::", "unspecified", false},
		{"169.254.169.254", "metadata service", false}, {"169.254.170.2", "metadata service", false},
		{"fd00:ec2::254", "metadata service", false}, {"100.100.100.200", "metadata service", false},
		{"168.63.129.16", "metadata service", false}, {"fd20:ce::254", "metadata service", false},
		{"192.0.0.1", "protocol assignments", false}, {"192.0.2.1", "documentation", false},
		{"198.51.100.7", "documentation", false}, {"203.0.113.9", "documentation", false},
		{"198.18.0.1", "benchmarking", false}, {"198.19.255.255", "benchmarking", false},
		{"192.88.99.1", "6to4 relay", false},
		{"224.0.0.1", "multicast", false}, {"239.255.255.255", "multicast", false}, {"ff02::1", "multicast", false},
		{"240.0.0.1", "reserved", false}, {"255.255.255.255", "broadcast", false},
		{"::ffff:127.0.0.1", "loopback", true}, {"::ffff:169.254.169.254", "metadata service", false},
		{"::ffff:10.1.2.3", "private", true},
		{"64:ff9b::7f00:1", "NAT64 of loopback", false}, {"64:ff9b::a9fe:a9fe", "NAT64 of metadata service", false},
		{"64:ff9b::c0a8:101", "NAT64 of private", false}, {"64:ff9b:1::1", "local NAT64", false},
		{"2002:7f00:1::1", "6to4", false}, {"2002:808:808::1", "6to4", false},
		{"2001:0:4136:e378:8000:63bf:3fff:fdd2", "Teredo", false},
		{"::7f00:1", "IPv4-compatible", false}, {"::ffff:0:7f00:1", "IPv4-translated", false},
		{"2001:db8::1", "documentation", false}, {"3fff::1", "documentation", false},
		{"2001:2::1", "benchmarking", false}, {"2001:10::1", "ORCHID", false}, {"2001:20::1", "ORCHID", false},
		{"100::1", "discard", false}, {"5f00::1", "segment routing", false},

		{"8.8.8.8", "", false}, {"9.255.255.255", "", false}, {"11.0.0.0", "", false},
		{"126.255.255.255", "", false}, {"128.0.0.1", "", false},
		{"172.15.255.255", "", false}, {"172.32.0.0", "", false}, {"192.167.255.255", "", false}, {"192.169.0.0", "", false},
		{"100.63.255.255", "", false}, {"100.128.0.0", "", false}, {"169.253.255.255", "", false}, {"169.255.0.0", "", false},
		{"198.17.255.255", "", false}, {"198.20.0.0", "", false}, {"192.0.1.0", "", false}, {"223.255.255.255", "", false},
		{"1.0.0.0", "", false}, {"2606:4700::1111", "", false}, {"2a00:1450:4001::1", "", false},
		{"::ffff:8.8.8.8", "", false}, {"64:ff9b::808:808", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.addr, func(t *testing.T) {
			name, inside := forbidden(netip.MustParseAddr(tt.addr))
			if name != tt.name || inside != tt.inside {
				t.Errorf("forbidden = %q, %t; want %q, %t", name, inside, tt.name, tt.inside)
			}
		})
	}
	if name, _ := forbidden(netip.Addr{}); name == "" {
		t.Error("the zero address is let through")
	}
}

func TestAllow(t *testing.T) {
	tests := []struct {
		name  string
		allow []toolkeep.HostPort
		host  string
		addr  string
		ok    bool
	}{
		{"nothing allowed", nil, "db.internal", "10.0.0.1:80", false},
		{"public needs none", nil, "example.com", "8.8.8.8:80", true},
		{"host", []toolkeep.HostPort{{Host: "db.internal"}}, "db.internal", "10.0.0.1:80", true},
		{"host in capitals and with a dot", []toolkeep.HostPort{{Host: "DB.internal."}}, "db.INTERNAL", "10.0.0.1:80", true},
		{"another host", []toolkeep.HostPort{{Host: "db.internal"}}, "x.internal", "10.0.0.1:80", false},
		{"part of the host", []toolkeep.HostPort{{Host: "internal"}}, "db.internal", "10.0.0.1:80", false},
		{"port", []toolkeep.HostPort{{Host: "db.internal", Port: 80}}, "db.internal", "10.0.0.1:80", true},
		{"another port", []toolkeep.HostPort{{Host: "db.internal", Port: 81}}, "db.internal", "10.0.0.1:80", false},
		{"ip", []toolkeep.HostPort{{Host: "10.0.0.1"}}, "10.0.0.1", "10.0.0.1:80", true},
		{"ip behind a name", []toolkeep.HostPort{{Host: "10.0.0.1"}}, "db.internal", "10.0.0.1:80", true},
		{"another ip", []toolkeep.HostPort{{Host: "10.0.0.1"}}, "db.internal", "10.0.0.2:80", false},
		{"mapped ip", []toolkeep.HostPort{{Host: "127.0.0.1"}}, "x", "[::ffff:127.0.0.1]:80", true},
		{"ipv6", []toolkeep.HostPort{{Host: "::1"}}, "::1", "[::1]:80", true},
		{"a name does not open metadata", []toolkeep.HostPort{{Host: "db.internal"}}, "db.internal", "169.254.169.254:80", false},
		{"its address does", []toolkeep.HostPort{{Host: "169.254.169.254"}}, "169.254.169.254", "169.254.169.254:80", true},
		{"a name does not open 0.0.0.0", []toolkeep.HostPort{{Host: "db.internal"}}, "db.internal", "0.0.0.0:80", false},
		{"a name opens loopback", []toolkeep.HostPort{{Host: "localhost"}}, "localhost", "127.0.0.1:80", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := &Guard{Allow: tt.allow}
			err := g.Check(tt.host, netip.MustParseAddrPort(tt.addr))
			if (err == nil) != tt.ok {
				t.Fatalf("Check = %v, want ok %t", err, tt.ok)
			}
			if err != nil {
				wantForbidden(t, err)
				_, isIP := netip.ParseAddr(tt.host)
				listed := slices.ContainsFunc(tt.allow, func(a toolkeep.HostPort) bool { return a.Host == tt.host })
				if shown := strings.Contains(err.Error(), netip.MustParseAddrPort(tt.addr).Addr().String()); shown != (isIP == nil || listed) {
					t.Errorf("the address is shown: %t: %v", shown, err)
				}
			}
		})
	}
}

// TestRefusalSaysWhatToAdd: the error names the entry that would allow it, and says if
// an address entry is needed.
func TestRefusalSaysWhatToAdd(t *testing.T) {
	for _, c := range []struct{ host, addr, want string }{
		{"db.internal", "10.1.2.3:5432", `the tool's server db.internal:5432 has an address in a forbidden range (private); if it is meant to be reached, add {"host": "db.internal", "port": 5432} to permissions.network`},
		{"10.1.2.3", "10.1.2.3:5432", `the tool's server 10.1.2.3:5432 is in a forbidden range (private); if it is meant to be reached, add {"host": "10.1.2.3", "port": 5432} to permissions.network`},
		{"::ffff:10.1.2.3", "[::ffff:10.1.2.3]:5432", `the tool's server 10.1.2.3:5432 is in a forbidden range (private); if it is meant to be reached, add {"host": "10.1.2.3", "port": 5432} to permissions.network`},
		{"fd00::1", "[fd00::1]:80", `the tool's server [fd00::1]:80 is in a forbidden range (unique local); if it is meant to be reached, add {"host": "fd00::1", "port": 80} to permissions.network`},
		{"listed.internal", "10.1.2.3:5432", `the tool's server listed.internal:5432 has the address 10.1.2.3 in a forbidden range (private); if it is meant to be reached, add {"host": "listed.internal", "port": 5432} to permissions.network`},
		{"listed.internal", "169.254.169.254:80", `listed.internal:80 has the address 169.254.169.254 in a forbidden range (`},
		{"listed.internal", "169.254.169.254:80", `it can only be opened by its IP address: add {"host": "169.254.169.254", "port": 80} to permissions.network`},
		{"169.254.169.254", "169.254.169.254:80", `the tool's server 169.254.169.254:80 is in a forbidden range (`},
		{"db.internal", "169.254.169.254:80", `it can only be opened by its IP address: add {"host": "its IP address", "port": 80} to permissions.network`},
	} {
		g := &Guard{Allow: []toolkeep.HostPort{{Host: "Listed.internal.", Port: 1}, {Host: "10.9.9.9", Port: 1}}}
		addr := netip.MustParseAddrPort(c.addr)
		err := g.Check(c.host, addr)
		wantForbidden(t, err)
		shown := strings.Contains(toolkeep.AsError(err).Message, addr.Addr().Unmap().String())
		if !strings.Contains(err.Error(), c.want) || shown != (c.host != "db.internal") {
			t.Errorf("%s at %s: %v", c.host, c.addr, err)
		}
		if cause := errors.Unwrap(err); cause == nil || !strings.Contains(cause.Error(), c.addr) {
			t.Errorf("the operator is told %v", cause)
		}
	}
	// Adding that entry allows it.
	g := &Guard{Allow: []toolkeep.HostPort{{Host: "db.internal", Port: 5432}}}
	if err := g.Check("db.internal.", netip.MustParseAddrPort("10.1.2.3:5432")); err != nil {
		t.Error(err)
	}
}

func wantForbidden(t *testing.T, err error) {
	t.Helper()
	var e *toolkeep.Error
	if !errors.As(err, &e) || e.Code != toolkeep.DestinationForbidden || !e.NothingSent {
		t.Fatalf("error = %v, want E3505 with nothing sent", err)
	}
}

func TestDialLoopback(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hi") }))
	defer s.Close()
	port := s.URL[strings.LastIndexByte(s.URL, ':')+1:]
	for _, host := range []string{"127.0.0.1", "[::ffff:127.0.0.1]", "localhost", "0.0.0.0", "127.1", "2130706433", "0x7f.1"} {
		t.Run(host, func(t *testing.T) {
			conn, err := (&Guard{}).DialContext(t.Context(), "tcp", host+":"+port)
			if err == nil {
				conn.Close()
				t.Fatal("the connection was made")
			}
			// Unusual spellings of an address may also be unknown names.
			var dns *net.DNSError
			if !errors.As(err, &dns) {
				wantForbidden(t, err)
			}
		})
	}
	n, _ := strconv.Atoi(port)
	g := &Guard{Allow: []toolkeep.HostPort{{Host: "127.0.0.1", Port: n}}}
	conn, err := g.DialContext(t.Context(), "tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if n, ok := Written(conn); n != 0 || !ok {
		t.Errorf("Written = %d, %t before anything was", n, ok)
	}
	io.WriteString(conn, "GET ")
	if n, _ := Written(conn); n != 4 {
		t.Errorf("Written = %d, want 4", n)
	}
	if _, ok := Written(&net.TCPConn{}); ok {
		t.Error("Written counts a connection of somebody else")
	}
	if _, err := g.DialContext(t.Context(), "unix", "/tmp/x"); err == nil {
		t.Error("a Unix socket was dialled")
	}
}

// TestRebinding resolves a name that is public on the first query and local on the
// second. Only the address of the connection counts.
func TestRebinding(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	port := s.URL[strings.LastIndexByte(s.URL, ':')+1:]

	dns := &stubDNS{answers: []netip.Addr{netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("127.0.0.1")}}
	resolver := dns.resolver()
	first, err := resolver.LookupNetIP(t.Context(), "ip4", "rebind.example")
	if err != nil || len(first) != 1 || first[0].Unmap() != dns.answers[0] {
		t.Fatalf("the first answer is %v, %v", first, err)
	}
	_, err = (&Guard{Resolver: resolver}).DialContext(t.Context(), "tcp4", "rebind.example:"+port)
	if err == nil {
		t.Fatal("the second answer was let through")
	}
	wantForbidden(t, err)
	if dns.count() < 2 {
		t.Fatalf("the name was asked for %d times", dns.count())
	}
}

// TestRedirectIsDialledTheSame follows a redirect from an allowed host to a forbidden
// one.
func TestRedirectIsDialledTheSame(t *testing.T) {
	secret := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the inner server was reached") }))
	defer secret.Close()
	front := httptest.NewServer(http.RedirectHandler(secret.URL, http.StatusFound))
	defer front.Close()
	u, _ := url.Parse(front.URL)
	n, _ := strconv.Atoi(u.Port())
	p := NewPool(PoolConfig{})
	defer p.Close()
	tr := p.Transport("t", NewAllowList([]toolkeep.HostPort{{Host: "127.0.0.1", Port: n}}))
	resp, err := (&http.Client{Transport: tr}).Get(front.URL)
	if err == nil {
		resp.Body.Close()
		t.Fatal("the redirect was followed")
	}
	wantForbidden(t, err)
}

func TestNoProxy(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	if tr := NewPool(PoolConfig{}).Transport("t", AllowList{}); tr.Proxy != nil || tr.TLSClientConfig.MinVersion < 0x0303 || tr.MaxResponseHeaderBytes == 0 {
		t.Error("the transport uses a proxy, old TLS or unbounded headers")
	}
}

func TestPool(t *testing.T) {
	p := NewPool(PoolConfig{Max: 3})
	defer p.Close()
	a := NewAllowList([]toolkeep.HostPort{{Host: "a.example"}, {Host: "B.example.", Port: 1}})
	same := NewAllowList([]toolkeep.HostPort{{Host: "b.example", Port: 1}, {Host: "A.example"}, {Host: "a.example"}})
	t1 := p.Transport("one", a)
	if p.Transport("one", same) != t1 {
		t.Error("the same list in another order gets another transport")
	}
	if p.Transport("two", a) == t1 {
		t.Error("two tenants share a transport")
	}
	if p.Transport("one", AllowList{}) == t1 {
		t.Error("two allow-lists share a transport")
	}
	if p.Transport("one", NewAllowList([]toolkeep.HostPort{{Host: "a.example"}, {Host: "b.example", Port: 2}})) == t1 {
		t.Error("two ports share a transport")
	}
	if p.Len() != 3 {
		t.Errorf("Len = %d, want 3", p.Len())
	}
	p.Close()
	p.Close()
	if p.Len() != 0 || !p.Transport("one", a).DisableKeepAlives || p.Len() != 0 {
		t.Error("the closed pool keeps transports")
	}
}

// TestPoolHammer uses a pool from many goroutines under the race detector.
func TestPoolHammer(t *testing.T) {
	p := NewPool(PoolConfig{Max: 4})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 200 {
				p.Transport(strconv.Itoa((i+j)%7), AllowList{}).CloseIdleConnections()
			}
		})
	}
	wg.Wait()
	if p.Len() > 4 {
		t.Errorf("Len = %d, over the bound", p.Len())
	}
	p.Close()
}

// stubDNS answers A queries with one address after the other, then repeats the last.
type stubDNS struct {
	mu      sync.Mutex
	answers []netip.Addr
	asked   int
}

func (d *stubDNS) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked
}

func (d *stubDNS) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go d.serve(server)
		return client, nil
	}}
}

// serve speaks DNS over a stream: each message has a two-byte length prefix.
func (d *stubDNS) serve(c net.Conn) {
	defer c.Close()
	for {
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, query); err != nil {
			return
		}
		reply := d.reply(query)
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}

func (d *stubDNS) reply(query []byte) []byte {
	end := 12
	for query[end] != 0 {
		end += int(query[end]) + 1
	}
	end += 5 // root label, type and class
	isA := query[end-3] == 1 && query[end-4] == 0
	reply := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, query[12:end]...)
	if !isA {
		return reply
	}
	d.mu.Lock()
	addr := d.answers[min(d.asked, len(d.answers)-1)].As4()
	d.asked++
	d.mu.Unlock()
	reply[7] = 1
	reply = append(reply, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
	return append(reply, addr[:]...)
}
