// Command vaulttest is a real Vault server for tests: Vault's own core and HTTP
// face with the few engines that the tests use, without its command line, its
// user interface and its hundred plugins. It is no part of what Toolkeep ships.
//
//	vaulttest -listen 127.0.0.1:0 [-data DIR] [-cert FILE -key FILE]
//
// It prints the address that it listens on as its first line, comes up sealed and
// not initialised, and ends at SIGTERM or when its standard input ends.
package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	kubernetes "github.com/hashicorp/vault-plugin-auth-kubernetes"
	kv "github.com/hashicorp/vault-plugin-secrets-kv"
	"github.com/hashicorp/vault/builtin/credential/approle"
	awsauth "github.com/hashicorp/vault/builtin/credential/aws"
	"github.com/hashicorp/vault/builtin/logical/database"
	"github.com/hashicorp/vault/builtin/logical/transit"
	vaulthttp "github.com/hashicorp/vault/http"
	"github.com/hashicorp/vault/internalshared/configutil"
	"github.com/hashicorp/vault/plugins/database/postgresql"
	"github.com/hashicorp/vault/sdk/helper/consts"
	"github.com/hashicorp/vault/sdk/logical"
	"github.com/hashicorp/vault/sdk/physical"
	"github.com/hashicorp/vault/sdk/physical/file"
	"github.com/hashicorp/vault/sdk/physical/inmem"
	"github.com/hashicorp/vault/vault"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "vaulttest:", err)
		os.Exit(1)
	}
}

func run() error {
	listen := flag.String("listen", "127.0.0.1:0", "address to listen on")
	data := flag.String("data", "", "folder of the storage; empty keeps it in memory")
	cert := flag.String("cert", "", "PEM file of the certificate; empty serves plain HTTP")
	key := flag.String("key", "", "PEM file of its key")
	flag.Parse()

	logger := hclog.New(&hclog.LoggerOptions{Output: os.Stderr, Level: hclog.Warn})
	storage, err := openStorage(*data, logger)
	if err != nil {
		return err
	}
	engines := builtins{
		consts.PluginTypeSecrets: {
			"kv":       factory(kv.Factory),
			"transit":  factory(transit.Factory),
			"database": factory(database.Factory),
		},
		consts.PluginTypeCredential: {
			"approle":    factory(approle.Factory),
			"aws":        factory(awsauth.Factory),
			"kubernetes": factory(kubernetes.Factory),
		},
		consts.PluginTypeDatabase: {
			"postgresql-database-plugin": postgresql.New,
		},
	}
	core, err := vault.NewCore(&vault.CoreConfig{
		Physical:        storage,
		BuiltinRegistry: engines,
		LogicalBackends: map[string]logical.Factory{
			"kv": kv.Factory, "transit": transit.Factory, "database": database.Factory,
		},
		CredentialBackends: map[string]logical.Factory{
			"approle": approle.Factory, "aws": awsauth.Factory, "kubernetes": kubernetes.Factory,
		},
		Logger:       logger,
		DisableMlock: true,
	})
	if err != nil {
		return err
	}
	ln, err := listener(*listen, *cert, *key)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           vaulthttp.Handler.Handler(&vault.HandlerProperties{Core: core, ListenerConfig: &configutil.Listener{}}),
		ReadHeaderTimeout: 10 * time.Second,
	}
	fmt.Println(ln.Addr())

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	go func() { // the pipe closes when the parent process ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	if err := server.Serve(ln); err != http.ErrServerClosed {
		return err
	}
	return core.Shutdown()
}

func openStorage(dir string, logger hclog.Logger) (physical.Backend, error) {
	if dir == "" {
		return inmem.NewInmem(nil, logger)
	}
	return file.NewFileBackend(map[string]string{"path": dir}, logger)
}

func listener(addr, cert, key string) (net.Listener, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil || cert == "" {
		return ln, err
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	return tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}), nil
}

// builtins is the registry of the linked engines, by kind and name.
type builtins map[consts.PluginType]map[string]func() (any, error)

func factory(f logical.Factory) func() (any, error) {
	return func() (any, error) { return f, nil }
}

// Get returns the engine of that name.
func (b builtins) Get(name string, kind consts.PluginType) (func() (any, error), bool) {
	f, ok := b[kind][name]
	return f, ok
}

// Contains reports whether there is an engine of that name.
func (b builtins) Contains(name string, kind consts.PluginType) bool {
	_, ok := b[kind][name]
	return ok
}

// Keys lists the engines of one kind.
func (b builtins) Keys(kind consts.PluginType) []string {
	names := make([]string, 0, len(b[kind]))
	for name := range b[kind] {
		names = append(names, name)
	}
	return names
}

// DeprecationStatus returns supported for every engine.
func (b builtins) DeprecationStatus(name string, kind consts.PluginType) (consts.DeprecationStatus, bool) {
	return consts.Supported, b.Contains(name, kind)
}

// IsBuiltinEntPlugin returns false: no engine here is from the enterprise edition.
func (builtins) IsBuiltinEntPlugin(string, consts.PluginType) bool { return false }
