package egress

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// stubProxy is a forward proxy that connects every destination to one address.
type stubProxy struct {
	*httptest.Server
	to string

	mu    sync.Mutex
	asked []string // "METHOD target authorization certificates"
}

func newStubProxy(t *testing.T, to string, secure bool, status int) *stubProxy {
	p := &stubProxy{to: to}
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		certs := 0
		if r.TLS != nil {
			certs = len(r.TLS.PeerCertificates)
		}
		p.mu.Lock()
		p.asked = append(p.asked, r.Method+" "+r.RequestURI+" "+r.Header.Get("Proxy-Authorization")+" "+strconv.Itoa(certs))
		p.mu.Unlock()
		if status != 0 {
			w.WriteHeader(status)
			return
		}
		conn, err := net.Dial("tcp", p.to)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer conn.Close()
		if r.Method != http.MethodConnect {
			r.RequestURI = ""
			out := r.Clone(r.Context())
			out.Header.Del("Proxy-Authorization")
			out.Write(conn)
			resp, err := http.ReadResponse(bufio.NewReader(conn), r)
			if err != nil {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			w.WriteHeader(resp.StatusCode)
			io.Copy(w, resp.Body)
			return
		}
		w.WriteHeader(http.StatusOK)
		client, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer client.Close()
		go func() { io.Copy(conn, rw); conn.(*net.TCPConn).CloseWrite() }()
		io.Copy(client, conn)
	}))
	if secure {
		p.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
		p.StartTLS()
	} else {
		p.Start()
	}
	t.Cleanup(p.Close)
	return p
}

func (p *stubProxy) requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

func get(t *testing.T, tr *http.Transport, target string) (string, error) {
	t.Helper()
	defer tr.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), "GET", target, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// public is a resolver that returns a public address for every name.
func public() *net.Resolver {
	return (&stubDNS{answers: []netip.Addr{netip.MustParseAddr("198.51.99.1")}}).resolver()
}

func TestProxyPlain(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello "+r.Host) }))
	defer s.Close()
	p := newStubProxy(t, s.Listener.Addr().String(), false, 0)
	proxy, err := NewProxy(ProxyConfig{URL: strings.Replace(p.URL, "http://", "http://ann:pa55@", 1)})
	if err != nil {
		t.Fatal(err)
	}
	pool := NewPool(PoolConfig{Proxy: proxy, Resolver: public()})
	defer pool.Close()
	got, err := get(t, pool.Transport("acme", AllowList{}), "http://api.example/x?y=1")
	if err != nil || got != "hello api.example" {
		t.Fatalf("the answer is %q, %v", got, err)
	}
	if want := "GET http://api.example/x?y=1 Basic YW5uOnBhNTU= 0"; len(p.requests()) != 1 || p.requests()[0] != want {
		t.Errorf("the proxy was asked %q, want %q", p.requests(), want)
	}
}

// TestProxyTunnel reaches a TLS server through a TLS proxy. Only the server sees the
// tool's certificate.
func TestProxyTunnel(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Proto+" "+r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	p := newStubProxy(t, s.Listener.Addr().String(), true, 0)
	proxy, err := NewProxy(ProxyConfig{URL: p.URL})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	roots.AddCert(p.Certificate())
	pool := NewPool(PoolConfig{Proxy: proxy, Resolver: public(), RootCAs: roots})
	defer pool.Close()
	cert := newCertificate(t, "robot")
	got, err := get(t, pool.TransportFor("acme", AllowList{}, TransportOptions{Certificate: cert}), "https://example.com/")
	if err != nil || got != "HTTP/2.0 robot" {
		t.Fatalf("the answer is %q, %v", got, err)
	}
	if want := "CONNECT example.com:443  0"; len(p.requests()) != 1 || p.requests()[0] != want {
		t.Errorf("the proxy was asked %q, want %q", p.requests(), want)
	}
}

func TestProxyRefusals(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the inner server was reached") }))
	defer s.Close()
	p := newStubProxy(t, s.Listener.Addr().String(), false, 0)
	inner := (&stubDNS{answers: []netip.Addr{netip.MustParseAddr("10.1.2.3")}}).resolver()
	tests := []struct {
		name, url string
		bypass    []string
		resolver  *net.Resolver
		trust     bool
	}{
		{name: "a literal address", url: "http://10.0.0.1/"},
		{name: "metadata", url: "http://169.254.169.254/latest/meta-data"},
		{name: "metadata, names trusted", url: "https://169.254.169.254/", trust: true},
		{name: "loopback goes past the proxy to the guard", url: s.URL},
		{name: "a name with an inner address", url: "http://wiki.example/", resolver: inner},
		{name: "a number as a name", url: "http://2130706433/", trust: true},
		{name: "an octal address", url: "http://0177.1/", trust: true},
		{name: "the proxy itself", url: p.URL, bypass: []string{"*"}},
		{name: "a bypassed inner name", url: "http://wiki.example/", bypass: []string{"wiki.example"}, resolver: inner},
		{name: "a bypassed range", url: "http://10.0.0.1/", bypass: []string{"10.0.0.0/8"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			proxy, err := NewProxy(ProxyConfig{URL: p.URL, Bypass: tt.bypass, TrustNames: tt.trust})
			if err != nil {
				t.Fatal(err)
			}
			if tt.resolver == nil {
				tt.resolver = public()
			}
			pool := NewPool(PoolConfig{Proxy: proxy, Resolver: tt.resolver})
			defer pool.Close()
			_, err = get(t, pool.Transport("acme", AllowList{}), tt.url)
			wantForbidden(t, err)
		})
	}
	if len(p.requests()) != 0 {
		t.Errorf("the proxy was asked: %q", p.requests())
	}
}

// TestProxyAllowList: a tool reaches an internal host through the proxy if its manifest
// lists it, and names are left to the proxy if the operator says so.
func TestProxyAllowList(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "inside") }))
	defer s.Close()
	p := newStubProxy(t, s.Listener.Addr().String(), false, 0)
	nowhere := &net.Resolver{PreferGo: true, Dial: (&net.Dialer{Control: nil}).DialContext}
	for _, tt := range []struct {
		name     string
		resolver *net.Resolver
		allow    []toolkeep.HostPort
		trust    bool
	}{
		{"named in the manifest", (&stubDNS{answers: []netip.Addr{netip.MustParseAddr("10.1.2.3")}}).resolver(), []toolkeep.HostPort{{Host: "wiki.example"}}, false},
		{"names trusted", nowhere, nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			proxy, err := NewProxy(ProxyConfig{URL: p.URL, TrustNames: tt.trust})
			if err != nil {
				t.Fatal(err)
			}
			pool := NewPool(PoolConfig{Proxy: proxy, Resolver: tt.resolver})
			defer pool.Close()
			got, err := get(t, pool.Transport("acme", NewAllowList(tt.allow)), "http://wiki.example/")
			if err != nil || got != "inside" {
				t.Fatalf("the answer is %q, %v", got, err)
			}
		})
	}
}

func TestProxyFails(t *testing.T) {
	refuses := newStubProxy(t, "", false, http.StatusProxyAuthRequired)
	gone := newStubProxy(t, "", false, 0)
	gone.Close()
	for _, tt := range []struct{ name, url, want string }{
		{"it refuses", refuses.URL, "HTTP 407"},
		{"it is gone", gone.URL, "cannot be reached"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			proxy, err := NewProxy(ProxyConfig{URL: tt.url})
			if err != nil {
				t.Fatal(err)
			}
			pool := NewPool(PoolConfig{Proxy: proxy, Resolver: public()})
			defer pool.Close()
			_, err = get(t, pool.Transport("acme", AllowList{}), "https://api.example/")
			var e *toolkeep.Error
			if !errors.As(err, &e) || e.Code != toolkeep.NetworkError || !e.NothingSent || !strings.Contains(e.Message, tt.want) {
				t.Fatalf("error = %v, want E3501 with %q", err, tt.want)
			}
		})
	}
}

func TestProxyURLs(t *testing.T) {
	for _, bad := range []string{"", "proxy.example:3128", "ftp://proxy.example", "http://", "http://proxy.example/path", "http://u:hunter2@proxy.example/?q", "http://u:hunter2@[::1"} {
		_, err := NewProxy(ProxyConfig{URL: bad})
		if err == nil {
			t.Errorf("%q is taken", bad)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
	for in, want := range map[string]string{"http://p.example": "p.example:80", "https://p.example/": "p.example:443", "socks5://[::1]": "[::1]:1080", "http://u:p@p.example:3128": "p.example:3128"} {
		if p, err := NewProxy(ProxyConfig{URL: in}); err != nil || p.addr != want {
			t.Errorf("%s is dialled as %v, %v; want %s", in, p, err, want)
		}
	}
}

func newCertificate(t *testing.T, name string) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestPoolOptions(t *testing.T) {
	p := NewPool(PoolConfig{})
	defer p.Close()
	one, two := newCertificate(t, "one"), newCertificate(t, "two")
	again := *one
	stolen := tls.Certificate{Certificate: one.Certificate, PrivateKey: two.PrivateKey}
	roots := x509.NewCertPool()
	base := p.TransportFor("a", AllowList{}, TransportOptions{Certificate: one})
	if p.TransportFor("a", AllowList{}, TransportOptions{Certificate: &again}) != base {
		t.Error("the same certificate gets another transport")
	}
	for name, other := range map[string]*http.Transport{
		"no certificate":         p.Transport("a", AllowList{}),
		"another certificate":    p.TransportFor("a", AllowList{}, TransportOptions{Certificate: two}),
		"the chain, no key":      p.TransportFor("a", AllowList{}, TransportOptions{Certificate: &stolen}),
		"another tenant":         p.TransportFor("b", AllowList{}, TransportOptions{Certificate: one}),
		"another allow-list":     p.TransportFor("a", NewAllowList([]toolkeep.HostPort{{Host: "x"}}), TransportOptions{Certificate: one}),
		"authorities of its own": p.TransportFor("a", AllowList{}, TransportOptions{Certificate: one, RootCAs: roots}),
	} {
		if other == base {
			t.Errorf("%s shares the transport", name)
		}
	}
	if p.Transport("a", AllowList{}) != p.TransportFor("a", AllowList{}, TransportOptions{}) {
		t.Error("no options are options")
	}
}

func TestPoolSettings(t *testing.T) {
	p := NewPool(PoolConfig{MinTLS: tls.VersionTLS13, ConnsPerHost: 7, IdlePerHost: 3, Idle: 5, IdleTimeout: time.Second, ConnectTimeout: 2 * time.Second, MaxHeaderBytes: 9})
	defer p.Close()
	tr := p.Transport("a", AllowList{})
	if tr.TLSClientConfig.MinVersion != tls.VersionTLS13 || tr.MaxConnsPerHost != 7 || tr.MaxIdleConnsPerHost != 3 || tr.MaxIdleConns != 5 ||
		tr.IdleConnTimeout != time.Second || tr.TLSHandshakeTimeout != 2*time.Second || tr.MaxResponseHeaderBytes != 9 {
		t.Errorf("the transport does not follow the settings: %+v", tr)
	}
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.TLS = &tls.Config{MaxVersion: tls.VersionTLS12}
	s.Config.ErrorLog = nil
	s.StartTLS()
	defer s.Close()
	u, _ := url.Parse(s.URL)
	n, _ := strconv.Atoi(u.Port())
	_, err := get(t, p.Transport("a", NewAllowList([]toolkeep.HostPort{{Host: u.Hostname(), Port: n}})), s.URL)
	var alert tls.AlertError
	if err == nil || !errors.As(err, &alert) && !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("a server of TLS 1.2 gave %v", err)
	}
}

func TestLoadRoots(t *testing.T) {
	dir := t.TempDir()
	good, empty, bad := filepath.Join(dir, "good.pem"), filepath.Join(dir, "empty.pem"), filepath.Join(dir, "none.pem")
	cert := newCertificate(t, "authority")
	os.WriteFile(good, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), 0o600)
	os.WriteFile(empty, []byte("nothing"), 0o600)
	if roots, err := LoadRoots(nil); roots != nil || err != nil {
		t.Errorf("without files: %v, %v", roots, err)
	}
	roots, err := LoadRoots([]string{good})
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots}); err != nil {
		t.Errorf("the file's authority is not trusted: %v", err)
	}
	for _, name := range []string{empty, bad} {
		if _, err := LoadRoots([]string{good, name}); err == nil || !strings.Contains(err.Error(), filepath.Base(name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestProxySOCKS reaches a server by name through a SOCKS5 proxy.
func TestProxySOCKS(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello "+r.Host) }))
	defer s.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan string, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		client, err := l.Accept()
		if err != nil {
			return
		}
		defer client.Close()
		asked <- serveSOCKS(client, s.Listener.Addr().String())
	}()
	defer func() { l.Close(); <-done }()
	proxy, err := NewProxy(ProxyConfig{URL: "socks5://" + l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	pool := NewPool(PoolConfig{Proxy: proxy, Resolver: public()})
	defer pool.Close()
	got, err := get(t, pool.Transport("acme", AllowList{}), "http://api.example/")
	if err != nil || got != "hello api.example" {
		t.Fatalf("the answer is %q, %v", got, err)
	}
	if name := <-asked; name != "api.example:80" {
		t.Errorf("the proxy was asked for %s", name)
	}
}

// serveSOCKS serves one connection (RFC 1928), connects it to the address to, and
// returns the requested destination.
func serveSOCKS(client net.Conn, to string) string {
	head := make([]byte, 2)
	if _, err := io.ReadFull(client, head); err != nil {
		return err.Error()
	}
	io.CopyN(io.Discard, client, int64(head[1]))
	client.Write([]byte{5, 0})
	request := make([]byte, 5)
	if _, err := io.ReadFull(client, request); err != nil || request[3] != 3 {
		return "no name"
	}
	name := make([]byte, int(request[4])+2)
	if _, err := io.ReadFull(client, name); err != nil {
		return err.Error()
	}
	n := len(name) - 2
	server, err := net.Dial("tcp", to)
	if err != nil {
		return err.Error()
	}
	defer server.Close()
	client.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
	go func() { io.Copy(server, client); server.(*net.TCPConn).CloseWrite() }()
	io.Copy(client, server)
	return string(name[:n]) + ":" + strconv.Itoa(int(binary.BigEndian.Uint16(name[n:])))
}
