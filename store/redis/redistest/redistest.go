// Package redistest starts real Redis servers for tests. A server lives in a short
// directory below /tmp, stores nothing on disk, listens on a Unix socket and on a free
// loopback port, and stops with the test.
package redistest

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/toolkeep/toolkeep/servertest"
)

const (
	ready = 20 * time.Second // how long a server may take to respond
	quit  = 10 * time.Second // how long it may take to stop
)

// Server is a running Redis.
type Server struct {
	Dir  string
	Port int // on 127.0.0.1; with TLS if Start was given certificate files

	args    []string
	process *servertest.Process // nil before the first Up
}

// Start starts a server with additional redis-server arguments; it stops when the test
// ends. Without Redis installed the test is skipped, or fails with TOOLKEEP_TEST_ALL=1.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	servertest.Needs(t, "Redis")
	if _, err := exec.LookPath("redis-server"); err != nil {
		servertest.Missing(t, "redis-server is not installed; make test installs it")
	}
	// Socket paths must be short, so t.TempDir does not work.
	dir, err := os.MkdirTemp("/tmp", "tkredis")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Dir: dir, args: args}
	t.Cleanup(func() {
		s.Down(t)
		if t.Failed() && s.process != nil {
			t.Logf("Redis said:\n%s", s.process.Tail())
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if s.Port, err = servertest.FreePort(); err != nil {
		t.Fatal(err)
	}
	s.Up(t)
	return s
}

func (s *Server) socket() string { return filepath.Join(s.Dir, "s") }

// URL returns the server's Unix socket URL.
func (s *Server) URL() string { return "unix://" + s.socket() }

// TCP returns the server's loopback URL, with redis or rediss as scheme.
func (s *Server) TCP(scheme string) string {
	return scheme + "://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port))
}

// Up restarts the server after Down, on the same socket and port. Its data is lost.
func (s *Server) Up(t testing.TB) {
	t.Helper()
	args := []string{"--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--dir", s.Dir, "--unixsocket", s.socket(),
		"--unixsocketperm", "700", "--daemonize", "no", "--maxmemory", "64mb"}
	if port := strconv.Itoa(s.Port); strings.Contains(strings.Join(s.args, " "), "--tls-cert-file") {
		args = append(args, "--port", "0", "--tls-port", port)
	} else {
		args = append(args, "--port", port)
	}
	cmd := exec.Command("redis-server", append(args, s.args...)...)
	cmd.Dir = s.Dir
	p, err := servertest.Start(cmd, filepath.Join(s.Dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	s.process = p
	if err := s.process.Answer(ready, s.ping); err != nil {
		t.Fatalf("Redis did not start: %v\n%s", err, s.process.Tail())
	}
}

// ping accepts any response, including a server's request for a password.
func (s *Server) ping(ctx context.Context) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", s.socket())
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err == nil && strings.HasPrefix(line, "-LOADING") {
		return errors.New(line)
	}
	return err
}

// Down kills the server, like a machine crash; a second call is harmless.
func (s *Server) Down(t testing.TB) {
	if s.process == nil {
		return
	}
	if err := s.process.End(syscall.SIGKILL, quit); err != nil {
		t.Errorf("Redis did not end: %v", err)
	}
}

// Freeze suspends the server without closing its connections, like a network that drops
// all packets; Thaw resumes it.
func (s *Server) Freeze(t testing.TB) {
	t.Helper()
	if err := s.process.Freeze(); err != nil {
		t.Fatal(err)
	}
}

// Thaw ends Freeze.
func (s *Server) Thaw(t testing.TB) {
	t.Helper()
	if err := s.process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// Client returns a go-redis client for tests that inspect the stored data.
func (s *Server) Client(t testing.TB) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Network: "unix", Addr: s.socket()})
	t.Cleanup(func() { _ = c.Close() })
	return c
}
