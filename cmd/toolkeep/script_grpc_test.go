package main

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/toolkeep/toolkeep/executor/grpctool/grpctest"
)

// TestScriptsOnGRPC runs testdata/script/grpc/*.txtar beside gRPC servers: at
// $KINDS one that speaks plaintext and both versions of reflection, at $OLD_PORT one
// with v1alpha alone, at $SAFE one whose TLS wants the client certificate client.pem
// and whose own is signed by ca.pem. $PROTOS is a folder with their .proto files and
// kinds.binpb, their descriptor set. $PROXY is an HTTP proxy that takes kinds.example:50051
// for $KINDS and lets nothing else through.
func TestScriptsOnGRPC(t *testing.T) {
	ca := grpctest.NewAuthority(t)
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(ca.PEM)
	_, client := ca.Client(t, "toolkeep")
	kinds := grpctest.Start(t, grpctest.Options{})
	old := grpctest.Start(t, grpctest.Options{Reflection: "v1alpha"})
	safe := grpctest.Start(t, grpctest.Options{TLS: &tls.Config{Certificates: []tls.Certificate{ca.Server(t, "kinds.internal")},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}})
	protos := t.TempDir()
	files := map[string]string{"kinds.binpb": string(kinds.Set), "ca.pem": string(ca.PEM), "client.pem": client}
	for name, text := range grpctest.Sources() {
		files[name] = text
	}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(protos, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(protos, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, oldPort, err := net.SplitHostPort(old.Addr)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.Host != "kinds.example:50051" {
			http.Error(w, "not here", http.StatusForbidden)
			return
		}
		out, err := net.Dial("tcp", kinds.Addr)
		if err != nil {
			t.Error(err)
			return
		}
		defer out.Close()
		w.WriteHeader(http.StatusOK)
		in, buffered, err := http.NewResponseController(w).Hijack() // buffered holds the first bytes of a fast client
		if err != nil {
			t.Error(err)
			return
		}
		defer in.Close()
		go func() { _, _ = io.Copy(out, buffered); _ = out.(*net.TCPConn).CloseWrite() }()
		_, _ = io.Copy(in, out)
	}))
	t.Cleanup(proxy.Close)
	p := scripts("grpc")
	setup := p.Setup
	p.Setup = func(e *testscript.Env) error {
		e.Setenv("KINDS", kinds.Addr)
		e.Setenv("OLD_PORT", oldPort)
		e.Setenv("SAFE", safe.Addr)
		e.Setenv("PROTOS", protos)
		e.Setenv("PROXY", proxy.URL)
		return setup(e)
	}
	testscript.Run(t, p)
}
