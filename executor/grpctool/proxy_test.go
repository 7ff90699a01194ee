package grpctool

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/executor/grpctool/grpctest"
)

// connectProxy is a proxy that connects every destination to one address.
type connectProxy struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string // "METHOD target authorization"
}

func startProxy(t *testing.T, to string) *connectProxy {
	p := &connectProxy{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.asked = append(p.asked, r.Method+" "+r.RequestURI+" "+r.Header.Get("Proxy-Authorization"))
		p.mu.Unlock()
		if r.Header.Get("Proxy-Authorization") != "Basic YW5uOnBhNTU=" {
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		server, err := net.Dial("tcp", to)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer server.Close()
		w.WriteHeader(http.StatusOK)
		client, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer client.Close()
		go func() { io.Copy(server, rw); server.(*net.TCPConn).CloseWrite() }()
		io.Copy(client, server)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *connectProxy) requests() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.asked, "\n")
}

func (p *connectProxy) executor(t *testing.T, c egress.ProxyConfig) *Executor {
	c.URL, c.TrustNames = strings.Replace(p.URL, "http://", "http://"+c.URL, 1), true
	proxy, err := egress.NewProxy(c)
	if err != nil {
		t.Fatal(err)
	}
	e := New(Config{Egress: egress.PoolConfig{Proxy: proxy}})
	t.Cleanup(e.Close)
	return e
}

// TestProxy calls through a proxy that requires a password: in plain text, over TLS,
// and with a client certificate, which the proxy cannot see.
func TestProxy(t *testing.T) {
	ca := grpctest.NewAuthority(t)
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(ca.PEM)
	secure := &tls.Config{Certificates: []tls.Certificate{ca.Server(t, "kinds.example")}}
	mutual := &tls.Config{Certificates: secure.Certificates, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}
	_, mine := ca.Client(t, "tool")
	for _, tt := range []struct {
		name   string
		server *tls.Config
		creds  []toolkeep.Credential
	}{
		{"plaintext", nil, nil},
		{"TLS", secure, nil},
		{"mTLS", mutual, []toolkeep.Credential{{Spec: toolkeep.AuthSpec{Type: "mtls"}, Value: mine}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := grpctest.Start(t, grpctest.Options{TLS: tt.server})
			p := startProxy(t, s.Addr)
			binding := map[string]any{"target": "kinds.example:50051"}
			if tt.server != nil {
				binding["plaintext"], binding["tls"] = nil, map[string]any{"ca": string(ca.PEM)}
			}
			x := execution(importTools(t, s).with(t, "Kinds_Sum", binding), args(t, `{"messages":[{"n":2},{"n":3}]}`))
			x.Credentials = tt.creds
			e := p.executor(t, egress.ProxyConfig{URL: "ann:pa55@"})
			for range 2 {
				if got, _, err := run(t, e, x); err != nil || got != `{"n":"5"}` {
					t.Fatalf("%s %v", got, err)
				}
			}
			if got, want := p.requests(), "CONNECT kinds.example:50051 Basic YW5uOnBhNTU="; got != want {
				t.Errorf("the proxy was asked %q, want %q once", got, want)
			}
		})
	}
}

func TestProxyRefuses(t *testing.T) {
	s := grpctest.Start(t, grpctest.Options{})
	p := startProxy(t, s.Addr)
	ts := importTools(t, s)
	call := func(e *Executor, target string, edit ...func(*toolkeep.Manifest)) *toolkeep.Error {
		t.Helper()
		_, _, err := run(t, e, execution(ts.with(t, "Kinds_Sum", map[string]any{"target": target}, edit...), args(t, `{"messages":[]}`)))
		return err
	}
	e := p.executor(t, egress.ProxyConfig{URL: "ann:wrong@"})
	err := call(e, "kinds.example:50051")
	wantCode(t, err, toolkeep.NetworkError)
	if !err.NothingSent || !strings.Contains(err.Message, "HTTP 407") || strings.Contains(err.Error(), "wrong") {
		t.Errorf("a refused password: %v", err)
	}
	before := p.requests()
	// A destination that the manifest does not open is not requested from the proxy
	// either.
	closed := func(m *toolkeep.Manifest) { m.Permissions = nil }
	for _, target := range []string{"10.0.0.1:50051", "169.254.169.254:80", s.Addr, "2130706433:50051"} {
		err := call(e, target, closed)
		wantCode(t, err, toolkeep.DestinationForbidden)
		if !err.NothingSent {
			t.Errorf("%s: something was sent", target)
		}
	}
	// Loopback is reached directly if the manifest opens it.
	if err := call(e, s.Addr); err != nil {
		t.Errorf("loopback: %v", err)
	}
	if p.requests() != before {
		t.Errorf("the proxy was asked: %s", p.requests())
	}
}
