package toolkeeptest_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/node"
	"github.com/toolkeep/toolkeep/proto/l03v1"
	"github.com/toolkeep/toolkeep/rpcclient"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

func dialRPC(t *testing.T, k *toolkeeptest.Toolkeep, o rpcclient.Options) *rpcclient.Client {
	t.Helper()
	o.Key = k.AdminKey
	c, err := rpcclient.Dial(k.GRPCAddr(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestGRPCIsAnnounced(t *testing.T) {
	t.Parallel()
	for _, off := range []bool{false, true} {
		settings := map[string]string{}
		if off {
			settings["grpc.addr"] = "off"
		}
		k := toolkeeptest.New(t, toolkeeptest.Option{Settings: settings})
		raw, err := os.ReadFile(filepath.Join(k.Dir, "server.json"))
		if err != nil {
			t.Fatal(err)
		}
		var info struct{ GRPC string }
		if err := json.Unmarshal(raw, &info); err != nil || info.GRPC != k.GRPCAddr() || (info.GRPC == "") != off {
			t.Errorf("%s, %q, %v", raw, k.GRPCAddr(), err)
		}
		if off {
			continue
		}
		r, err := dialRPC(t, k, rpcclient.Options{}).Invoke(t.Context(), nil, &toolkeep.Call{Tool: "std.echo", Arguments: []byte(`{"a":1}`)})
		if err != nil || r.State != toolkeep.CallSucceeded {
			t.Errorf("%+v %v", r, err)
		}
	}
}

// TestGRPCPortTaken: the error for a port in use names the setting's address, and
// nothing keeps running.
func TestGRPCPortTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := filepath.Join(t.TempDir(), "data")
	c, err := config.Load(config.Sources{Flags: map[string]string{"data": dir, "http.addr": "127.0.0.1:0", "metrics.addr": "127.0.0.1:0",
		"grpc.addr": l.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.New(t.Context(), c, node.Options{LogTo: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(t.Context()); err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("start: %v", err)
	}
	if err := n.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	toolkeeptest.Open(t, dir)
}

func TestGRPCSpeaksTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"toolkeep"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	err = errors.Join(os.WriteFile(certFile, cert, 0o600),
		os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	k := toolkeeptest.New(t, toolkeeptest.Option{Settings: map[string]string{"tls.cert": certFile, "tls.key": keyFile}})
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	call := &toolkeep.Call{Tool: "std.echo", Arguments: []byte(`{}`)}
	if _, err := dialRPC(t, k, rpcclient.Options{TLS: &tls.Config{RootCAs: pool, ServerName: "toolkeep"}}).Invoke(t.Context(), nil, call); err != nil {
		t.Error(err)
	}
	if _, err := dialRPC(t, k, rpcclient.Options{}).Invoke(t.Context(), nil, call); err == nil {
		t.Error("plain text was answered")
	}
}

// TestGRPCDrain: while the node drains, running gRPC calls finish, new ones get E3912,
// and a stream that only follows a waiting call is closed.
func TestGRPCDrain(t *testing.T) {
	t.Parallel()
	k, g, _ := queueing(t, 2)
	c := dialRPC(t, k, rpcclient.Options{})
	type outcome struct {
		res *toolkeep.Result
		err error
	}
	under := make(chan outcome, 1)
	go func() {
		r, err := c.Invoke(context.Background(), nil, &toolkeep.Call{Tool: "gate.read", Arguments: []byte(named("under"))})
		under <- outcome{r, err}
	}()
	g.awaits(t, "under")
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+k.AdminKey)
	in, err := l03v1.NewToolExecutionClient(c.Conn()).InvokeToolStream(ctx, &l03v1.ToolInvocationRequest{
		ToolId: "gate.read", Inputs: map[string]string{"name": `"waits"`}, AsyncMode: true})
	if err != nil {
		t.Fatal(err)
	}
	first, err := in.Recv()
	if err != nil || first.GetProgress().GetInvocationId() == "" {
		t.Fatalf("%v %v", first, err)
	}
	g.awaits(t, "waits")

	stopped := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		stopped <- k.Stop(ctx)
	}()
	waitUntil(t, "new calls are refused", func() bool {
		_, err := c.Invoke(context.Background(), nil, &toolkeep.Call{Tool: "std.echo"})
		return err != nil && toolkeep.IsCode(err, toolkeep.Draining)
	})
	g.openAll()
	if o := <-under; o.err != nil || o.res.State != toolkeep.CallSucceeded {
		t.Errorf("%+v", o)
	}
	for {
		u, err := in.Recv()
		if err != nil || u.GetResult() != nil {
			break // its result or E3912, whichever comes first
		}
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
