// Package vaulttest starts real Vault servers for tests, or only Vault's KV plugin if that is enough: the programs
// of tools/vaulttest and tools/kvtest, which scripts/test-deps.sh builds.
package vaulttest

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/vault/api"

	"github.com/toolkeep/toolkeep/servertest"
)

const ready = 60 * time.Second

// Server is a running Vault, unsealed and empty. It ends with the test.
type Server struct {
	URL    string // https://127.0.0.1:PORT
	CAFile string // PEM file of its CA
	Root   string // the root token

	t         testing.TB
	dir, addr string
	unsealKey string
	client    *api.Client
	cmd       *exec.Cmd
	stdin     io.Closer
	log       *os.File
}

// Start starts a server on a free loopback port, with TLS and storage that survives Kill. If the program is not
// built, it fails if TOOLKEEP_TEST_ALL is set and otherwise skips.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{t: t, dir: t.TempDir(), addr: "127.0.0.1:0"}
	s.certificate()
	program := binary(t, "vaulttest")
	s.run(program)
	t.Cleanup(s.Kill)
	s.init()
	return s
}

// binary returns a built program of tools, named by the checksum of its sources.
func binary(t testing.TB, name string) string {
	t.Helper()
	servertest.Needs(t, "Vault")
	dir := filepath.Join(moduleRoot(t), "tools", name)
	h := sha256.New()
	for _, source := range []string{"go.mod", "go.sum", "main.go"} {
		b, err := os.ReadFile(filepath.Join(dir, source))
		if err != nil {
			t.Fatal(err)
		}
		h.Write(b)
	}
	program := filepath.Join(dir, ".bin", name+"-"+hex.EncodeToString(h.Sum(nil)))
	if _, err := os.Stat(program); err != nil {
		servertest.Missing(t, name+" is not built for the tests; scripts/test-deps.sh builds it")
	}
	return program
}

func moduleRoot(t testing.TB) string {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if b, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil && strings.HasPrefix(string(b), "module github.com/toolkeep/toolkeep\n") {
			return dir
		}
	}
	t.Fatal("the test does not run inside the module")
	return ""
}

// certificate makes a self-signed certificate for 127.0.0.1.
func (s *Server) certificate() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	s.must(err)
	now := time.Now()
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "vault"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"vault.test"},
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	s.must(err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	s.must(err)
	s.CAFile = filepath.Join(s.dir, "cert.pem")
	s.must(os.WriteFile(s.CAFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	s.must(os.WriteFile(filepath.Join(s.dir, "key.pem"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
}

func (s *Server) run(program string) {
	s.t.Helper()
	var err error
	s.log, err = os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	s.must(err)
	s.cmd = exec.Command(program, "-listen", s.addr, "-data", filepath.Join(s.dir, "data"), "-cert", s.CAFile, "-key", filepath.Join(s.dir, "key.pem"))
	s.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir, "TMPDIR=" + s.dir}
	s.cmd.Stderr = s.log
	s.stdin, err = s.cmd.StdinPipe() // closing it ends the server, even if this process dies
	s.must(err)
	out, err := s.cmd.StdoutPipe()
	s.must(err)
	s.must(s.cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		s.fail("the server did not start: %v", err)
	}
	s.addr = strings.TrimSpace(line)
	s.URL = "https://" + s.addr
}

// init initialises and unseals a new server.
func (s *Server) init() {
	s.t.Helper()
	config := api.DefaultConfig()
	s.must(config.Error)
	config.Address = s.URL
	s.must(config.ConfigureTLS(&api.TLSConfig{CACert: s.CAFile}))
	var err error
	s.client, err = api.NewClient(config)
	s.must(err)
	s.client.ClearNamespace()
	s.t.Cleanup(config.HttpClient.CloseIdleConnections)
	answer, err := s.client.Sys().Init(&api.InitRequest{SecretShares: 1, SecretThreshold: 1})
	if err != nil {
		s.fail("init: %v", err)
	}
	s.Root, s.unsealKey = answer.RootToken, answer.KeysB64[0]
	s.client.SetToken(s.Root)
	s.unseal()
}

func (s *Server) unseal() {
	s.t.Helper()
	if _, err := s.client.Sys().Unseal(s.unsealKey); err != nil {
		s.fail("unseal: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), ready)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		h, err := s.client.Sys().HealthWithContext(ctx)
		if err == nil && h.Initialized && !h.Sealed && !h.Standby {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.fail("not ready after %s: %v", ready, err)
		}
	}
}

// Kill ends the server as a crash would. It may be called more than once.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	_ = s.stdin.Close()
	_ = s.log.Close()
	s.cmd = nil
}

// Restart restarts a killed server at the same address, with its data.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	s.run(binary(s.t, "vaulttest"))
	s.unseal()
}

// Seal seals the server.
func (s *Server) Seal() {
	s.t.Helper()
	s.must(s.client.Sys().Seal())
}

// Client returns an API client with the root token.
func (s *Server) Client() *api.Client { return s.client }

// Write writes to an API path as root and returns the response.
func (s *Server) Write(path string, data map[string]any) *api.Secret {
	s.t.Helper()
	answer, err := s.client.Logical().Write(path, data)
	if err != nil {
		s.fail("write %s: %v", path, err)
	}
	return answer
}

// Delete deletes an API path as root.
func (s *Server) Delete(path string) {
	s.t.Helper()
	if _, err := s.client.Logical().Delete(path); err != nil {
		s.fail("delete %s: %v", path, err)
	}
}

// Mount mounts an engine, such as kv with the option version 2.
func (s *Server) Mount(path, engine string, options map[string]string) {
	s.t.Helper()
	if err := s.client.Sys().Mount(path, &api.MountInput{Type: engine, Options: options}); err != nil {
		s.fail("mount %s: %v", path, err)
	}
}

// EnableAuth mounts an auth method of the same name.
func (s *Server) EnableAuth(method string) {
	s.t.Helper()
	if err := s.client.Sys().EnableAuthWithOptions(method, &api.EnableAuthOptions{Type: method}); err != nil {
		s.fail("auth %s: %v", method, err)
	}
}

// Policy writes a policy.
func (s *Server) Policy(name, rules string) {
	s.t.Helper()
	if err := s.client.Sys().PutPolicy(name, rules); err != nil {
		s.fail("policy %s: %v", name, err)
	}
}

// Token makes a child token of root with the policies and, if not "", the ttl.
func (s *Server) Token(ttl string, policies ...string) string {
	s.t.Helper()
	answer, err := s.client.Auth().Token().Create(&api.TokenCreateRequest{Policies: policies, TTL: ttl})
	if err != nil {
		s.fail("token: %v", err)
	}
	return answer.Auth.ClientToken
}

// AppRole creates a role of the approle method and returns its role id and secret id.
func (s *Server) AppRole(name string, settings map[string]any) (roleID, secretID string) {
	s.t.Helper()
	s.Write("auth/approle/role/"+name, settings)
	role, err := s.client.Logical().Read("auth/approle/role/" + name + "/role-id")
	s.must(err)
	id := s.Write("auth/approle/role/"+name+"/secret-id", nil)
	return role.Data["role_id"].(string), id.Data["secret_id"].(string)
}

// Status sends an API request with a token and returns the response status.
func (s *Server) Status(token, path string) int {
	s.t.Helper()
	r, err := http.NewRequest(http.MethodGet, s.URL+"/v1/"+path, nil)
	s.must(err)
	r.Header.Set("X-Vault-Token", token)
	resp, err := s.client.CloneConfig().HttpClient.Do(r)
	s.must(err)
	_ = resp.Body.Close()
	return resp.StatusCode
}

func (s *Server) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// fail fails the test with the end of the server's log.
func (s *Server) fail(format string, args ...any) {
	s.t.Helper()
	b, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	s.t.Fatalf(format+"\n%s", append(args, b[max(0, len(b)-4000):])...)
}
