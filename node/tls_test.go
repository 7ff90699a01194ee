package node_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/node"
	"github.com/toolkeep/toolkeep/proto/l03v1"
	"github.com/toolkeep/toolkeep/rpcclient"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// certificate is one with its key, and its files in a test's folder.
type certificate struct {
	cert              *x509.Certificate
	key               *ecdsa.PrivateKey
	certFile, keyFile string
}

// issue makes a certificate that by signs, itself if that is nil. change sets what
// differs from one that holds for an hour.
func issue(t *testing.T, name string, by *certificate, change func(*x509.Certificate)) *certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	change(template)
	c := &certificate{key: key}
	if by == nil {
		by = &certificate{cert: template, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, key.Public(), by.key)
	if err != nil {
		t.Fatal(err)
	}
	if c.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c.certFile, c.keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	err = errors.Join(os.WriteFile(c.certFile, encoded("CERTIFICATE", der), 0o600), os.WriteFile(c.keyFile, encoded("PRIVATE KEY", private), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func encoded(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func authority(c *x509.Certificate) {
	c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
}

func forClients(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }

func forServers(c *x509.Certificate) {
	c.ExtKeyUsage, c.IPAddresses = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, []net.IP{net.IPv4(127, 0, 0, 1)}
}

// With tls.client_ca a client without a certificate of that authority reaches
// nothing on any listener, and one with it is still who its key says.
func TestMutualTLS(t *testing.T) {
	servers, clients := issue(t, "servers", nil, authority), issue(t, "clients", nil, authority)
	own := issue(t, "toolkeep", servers, forServers)
	k := toolkeeptest.New(t, toolkeeptest.Option{Settings: map[string]string{
		"tls.cert": own.certFile, "tls.key": own.keyFile, "tls.client_ca": clients.certFile}})
	reader := k.Key("default", "reader", "auditor")

	for name, c := range map[string]struct {
		shows *certificate
		in    bool
	}{
		"its certificate":                  {issue(t, "agent", clients, forClients), true},
		"none":                             {nil, false},
		"one of a foreign authority":       {issue(t, "agent", issue(t, "clients", nil, authority), forClients), false},
		"one of the servers' authority":    {issue(t, "agent", servers, forClients), false},
		"one that it signed itself":        {issue(t, "agent", nil, forClients), false},
		"one that is for servers":          {issue(t, "agent", clients, forServers), false},
		"one that has ended":               {issue(t, "agent", clients, func(x *x509.Certificate) { forClients(x); x.NotAfter = time.Now().Add(-time.Minute) }), false},
		"one that has not begun":           {issue(t, "agent", clients, func(x *x509.Certificate) { forClients(x); x.NotBefore = time.Now().Add(10 * time.Minute) }), false},
		"the authority's, which is no key": {&certificate{cert: clients.cert, key: servers.key}, false},
	} {
		t.Run(name, func(t *testing.T) {
			speaks := speaking(servers, c.shows)
			overHTTP(t, k, speaks, reader, c.in)
			overGRPC(t, k, speaks, reader, c.in)
		})
	}
}

// TestProbesWithoutClientCertificates: metrics.tls lets probes and Prometheus in at their own listener alone.
func TestProbesWithoutClientCertificates(t *testing.T) {
	servers, clients := issue(t, "servers", nil, authority), issue(t, "clients", nil, authority)
	own := issue(t, "toolkeep", servers, forServers)
	speaks := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS13}
	speaks.RootCAs.AddCert(servers.cert)
	for setting, scheme := range map[string]string{"server": "https://", "off": "http://"} {
		t.Run(setting, func(t *testing.T) {
			k := toolkeeptest.New(t, toolkeeptest.Option{Settings: map[string]string{
				"tls.cert": own.certFile, "tls.key": own.keyFile, "tls.client_ca": clients.certFile, "metrics.tls": setting}})
			if !strings.HasPrefix(k.MetricsURL(), scheme) {
				t.Errorf("the metrics are at %s", k.MetricsURL())
			}
			base := strings.TrimSuffix(k.MetricsURL(), "/metrics")
			transport := &http.Transport{TLSClientConfig: speaks, ForceAttemptHTTP2: true}
			defer transport.CloseIdleConnections()
			for url, status := range map[string]int{
				k.MetricsURL(): http.StatusOK, base + "/health/live": http.StatusOK, base + "/health/ready": http.StatusOK, base + "/health/startup": http.StatusOK,
				base + "/api/v1/tools": http.StatusNotFound, k.URL() + "/health/live": 0,
			} {
				req, err := http.NewRequest(http.MethodGet, url, nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := transport.RoundTrip(req)
				if err != nil {
					if status != 0 {
						t.Errorf("%s: %v", url, err)
					}
					continue
				}
				resp.Body.Close()
				if resp.StatusCode != status {
					t.Errorf("%s: %d, want %d", url, resp.StatusCode, status)
				}
			}
			overGRPC(t, k, speaks, k.Key("default", "reader"), false)
		})
	}
}

func overHTTP(t *testing.T, k *toolkeeptest.Toolkeep, speaks *tls.Config, key string, in bool) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: speaks.Clone(), ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	get := func(url, key string) (int, error) {
		req, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if key != "" {
			req.Header.Set("Authorization", "Bearer "+key)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, err
	}
	for _, ask := range []struct {
		url, key string
		status   int
	}{
		{k.URL() + "/health/live", "", http.StatusOK},
		{k.URL() + "/health/ready", "", http.StatusOK},
		{k.MetricsURL(), "", http.StatusOK},
		{k.URL() + "/api/v1/tools", key, http.StatusOK},
		{k.URL() + "/api/v1/tools", "", http.StatusUnauthorized},
		{k.URL() + "/api/v1/keys", key, http.StatusForbidden},
	} {
		status, err := get(ask.url, ask.key)
		if in && (err != nil || status != ask.status) {
			t.Errorf("%s: %d %v, want %d", ask.url, status, err, ask.status)
		}
		if !in && err == nil {
			t.Errorf("%s was answered with %d", ask.url, status)
		}
	}
}

func overGRPC(t *testing.T, k *toolkeeptest.Toolkeep, speaks *tls.Config, key string, in bool) {
	t.Helper()
	for key, code := range map[string]toolkeep.Code{key: "", "": toolkeep.Unauthenticated} {
		c, err := rpcclient.Dial(k.GRPCAddr(), rpcclient.Options{TLS: speaks, Key: key})
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = c.List(t.Context(), nil)
		c.Close()
		var lost *rpcclient.Lost
		switch {
		case !in && !errors.As(err, &lost):
			t.Errorf("gRPC answered: %v", err)
		case in && code == "" && err != nil, in && code != "" && toolkeep.AsError(err).Code != code:
			t.Errorf("gRPC: %v, want %q", err, code)
		}
	}
}

// A file of authorities that lets nobody in refuses the start and says why.
func TestWrongClientCA(t *testing.T) {
	ca := issue(t, "clients", nil, authority)
	own := issue(t, "toolkeep", ca, forServers)
	ended := issue(t, "former clients", nil, func(c *x509.Certificate) { authority(c); c.NotAfter = time.Now().Add(-time.Minute) })
	read := func(path string) []byte {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	write := func(parts ...[]byte) string {
		path := filepath.Join(t.TempDir(), "ca.pem")
		if err := os.WriteFile(path, []byte(strings.Join(toStrings(parts), "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, c := range map[string]struct{ path, want string }{
		"one":                      {ca.certFile, ""},
		"two, one of which ended":  {write(read(ended.certFile), []byte("the present one:"), read(ca.certFile)), ""},
		"absent":                   {filepath.Join(t.TempDir(), "none.pem"), "no such file"},
		"a folder":                 {t.TempDir(), "is a directory"},
		"empty":                    {write(), "holds no PEM certificate"},
		"no PEM":                   {write([]byte("clients only")), "holds no PEM certificate"},
		"a private key":            {write(read(ca.certFile), read(ca.keyFile)), "block 2 is a private key"},
		"rubbish in PEM":           {write(encoded("CERTIFICATE", []byte("x"))), "certificate 1 cannot be read"},
		"the server's certificate": {own.certFile, "certificate 1 (CN=toolkeep) is not an authority's"},
		"only one that ended":      {ended.certFile, "every certificate in it has expired: CN=former clients on "},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := config.TLS{Cert: own.certFile, Key: own.keyFile, ClientCA: c.path}.Server(nil)
			if c.want == "" {
				if err != nil || got.Config.ClientAuth != tls.RequireAndVerifyClientCert {
					t.Fatal(err)
				}
				return
			}
			if err == nil || !strings.HasPrefix(err.Error(), "tls.client_ca: ") || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v, want %q", err, c.want)
			}
			cfg, loadErr := config.Load(config.Sources{Flags: map[string]string{"data": t.TempDir(), "http.addr": "127.0.0.1:0", "grpc.addr": "127.0.0.1:0",
				"metrics.addr": "127.0.0.1:0", "tls.cert": own.certFile, "tls.key": own.keyFile, "tls.client_ca": c.path}})
			if loadErr != nil {
				t.Fatal(loadErr)
			}
			n, err := node.New(t.Context(), cfg, node.Options{LogTo: io.Discard})
			if err != nil {
				t.Fatal(err)
			}
			if err := n.Start(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("start: %v", err)
			}
			if err := n.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func toStrings(parts [][]byte) (out []string) {
	for _, p := range parts {
		out = append(out, string(p))
	}
	return out
}

// With access.certificates_file a certificate alone is an identity, on each face; with
// tls.clients: optional a key alone is one too.
func TestCertificateIsIdentity(t *testing.T) {
	servers, clients := issue(t, "servers", nil, authority), issue(t, "clients", nil, authority)
	own := issue(t, "toolkeep", servers, forServers)
	rules := filepath.Join(t.TempDir(), "certificates.yaml")
	if err := os.WriteFile(rules, []byte("certificates: [{cn: 'agent-*', roles: [auditor]}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	k := toolkeeptest.New(t, toolkeeptest.Option{Settings: map[string]string{"tls.cert": own.certFile, "tls.key": own.keyFile,
		"tls.client_ca": clients.certFile, "tls.clients": "optional", "access.certificates_file": rules}})
	key := k.Key("default", "reader", "auditor")
	for name, c := range map[string]struct {
		shows  *certificate
		key    string
		status int
	}{
		"a certificate":              {issue(t, "agent-7", clients, forClients), "", http.StatusOK},
		"one that no rule is for":    {issue(t, "toaster", clients, forClients), "", http.StatusUnauthorized},
		"one and a key":              {issue(t, "toaster", clients, forClients), key, http.StatusOK},
		"a key":                      {nil, key, http.StatusOK},
		"nothing":                    {nil, "", http.StatusUnauthorized},
		"one of a foreign authority": {issue(t, "agent-7", issue(t, "clients", nil, authority), forClients), "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			speaks := speaking(servers, c.shows)
			transport := &http.Transport{TLSClientConfig: speaks.Clone(), ForceAttemptHTTP2: true}
			defer transport.CloseIdleConnections()
			for _, path := range []string{"/api/v1/tools", "/mcp"} {
				req, err := http.NewRequest(http.MethodGet, k.URL()+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				if c.key != "" {
					req.Header.Set("Authorization", "Bearer "+c.key)
				}
				resp, err := transport.RoundTrip(req)
				switch {
				case err != nil && c.status != 0:
					t.Errorf("%s: %v", path, err)
				case err != nil:
				default:
					resp.Body.Close()
					// A GET of /mcp without a session is refused after the caller is known.
					if (resp.StatusCode == http.StatusUnauthorized) != (c.status == http.StatusUnauthorized) || c.status == 0 || path != "/mcp" && resp.StatusCode != c.status {
						t.Errorf("%s: %d, want %d", path, resp.StatusCode, c.status)
					}
				}
			}
			conn, err := rpcclient.Dial(k.GRPCAddr(), rpcclient.Options{TLS: speaks, Key: c.key})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			var lost *rpcclient.Lost
			_, _, err = conn.List(t.Context(), nil)
			switch {
			case c.status == http.StatusOK && err != nil, c.status == http.StatusUnauthorized && !toolkeep.IsCode(err, toolkeep.Unauthenticated),
				c.status == 0 && !errors.As(err, &lost):
				t.Errorf("gRPC: %v", err)
			}
		})
	}
}

// TestDeniedCertificateEndsStreams: what a certificate opened ends once the certificate is denied, on each face, also where a
// key said who calls.
func TestDeniedCertificateEndsStreams(t *testing.T) {
	servers, clients := issue(t, "servers", nil, authority), issue(t, "clients", nil, authority)
	own, shows := issue(t, "toolkeep", servers, forServers), issue(t, "agent-7", clients, forClients)
	rules := filepath.Join(t.TempDir(), "certificates.yaml")
	const allowed = "certificates: [{cn: 'agent-*', roles: [admin]}]\n"
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(allowed)
	var ahead atomic.Int64
	k := toolkeeptest.New(t, toolkeeptest.Option{Settings: map[string]string{"tls.cert": own.certFile, "tls.key": own.keyFile,
		"tls.client_ca": clients.certFile, "tls.clients": "optional", "access.certificates_file": rules},
		Options: node.Options{Clock: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }}})
	speaks := speaking(servers, shows)
	transport := &http.Transport{TLSClientConfig: speaks.Clone(), ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	var open []io.ReadCloser
	for _, key := range []string{"", k.Key("default", "reader", "admin")} {
		conn, err := rpcclient.Dial(k.GRPCAddr(), rpcclient.Options{TLS: speaks, Key: key})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		waits, err := conn.Invoke(t.Context(), nil, &toolkeep.Call{Tool: "std.hash", Arguments: []byte(`{"text":"x"}`), Async: true, RequireApproval: true})
		if err != nil {
			t.Fatal(err)
		}
		send := func(method, path, body string, more ...string) *http.Response {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), method, k.URL()+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Accept", "application/json, text/event-stream")
			for i := 0; i < len(more); i += 2 {
				req.Header.Set(more[i], more[i+1])
			}
			if key != "" {
				req.Header.Set("Authorization", "Bearer "+key)
			}
			resp, err := transport.RoundTrip(req)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("%s: %+v %v", path, resp, err)
			}
			return resp
		}
		begun := send(http.MethodPost, "/mcp/all", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`, "Content-Type", "application/json")
		begun.Body.Close()
		open = append(open, send(http.MethodGet, "/mcp/all", "", "Accept", "text/event-stream", "Mcp-Session-Id", begun.Header.Get("Mcp-Session-Id")).Body,
			send(http.MethodGet, "/api/v1/invocations/"+waits.InvocationID+"/events", "", "Accept", "text/event-stream").Body)
		ctx := t.Context()
		if key != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+key)
		}
		in, err := l03v1.NewToolExecutionClient(conn.Conn()).InvokeToolStream(ctx, &l03v1.ToolInvocationRequest{Version: 1, ToolId: "std.hash", Inputs: map[string]string{"text": `"x"`}, AsyncMode: true, RequireApproval: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.Recv(); err != nil { // that it waits
			t.Fatal(err)
		}
		reads, writes := io.Pipe()
		go func() {
			_, err := in.Recv()
			if status.Code(err) == codes.Unauthenticated {
				err = nil
			} else if err == nil {
				err = errors.New("it told more")
			}
			writes.CloseWithError(err)
		}()
		open = append(open, reads)
	}
	write(allowed + "denied: [" + strconv.Quote(shows.cert.SerialNumber.Text(16)) + "]\n")
	ahead.Store(int64(time.Minute)) // after which the file is read again
	for i, stream := range open {
		text, err := io.ReadAll(stream)
		if err != nil {
			t.Errorf("stream %d ended with %v after %s", i, err, text)
		}
		stream.Close()
	}
}

// speaking is how a client speaks TLS that shows a certificate, nil for none, whatever the server asks for.
func speaking(servers, shows *certificate) *tls.Config {
	c := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	c.RootCAs.AddCert(servers.cert)
	if shows != nil {
		pair := tls.Certificate{Certificate: [][]byte{shows.cert.Raw}, PrivateKey: shows.key}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return c
}
