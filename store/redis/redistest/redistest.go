// Package redistest starts real Redis servers for tests. A server lives in a short
// directory below /tmp, keeps nothing on disk, listens on a Unix socket and on a free
// port of loopback, and goes with the test.
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
	ready = 20 * time.Second // how long a server may take to answer
	quit  = 10 * time.Second // how long it may take to end
)

// Server is a running Redis.
type Server struct {
	Dir  string
	Port int // of 127.0.0.1; with TLS where Start was given files for it

	args    []string
	process *servertest.Process // nil before the first Up
}

// Start starts a server that is stopped when the test ends, with more arguments of
// redis-server. Where Redis is not installed the test is left out, and with
// TOOLKEEP_TEST_ALL=1 it fails.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	servertest.Needs(t, "Redis")
	if _, err := exec.LookPath("redis-server"); err != nil {
		servertest.Missing(t, "redis-server is not installed; make test installs it")
	}
	// Sockets have short paths, so t.TempDir will not do.
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

// URL addresses the server through its Unix socket.
func (s *Server) URL() string { return "unix://" + s.socket() }

// TCP addresses the server through loopback, with redis or rediss as scheme.
func (s *Server) TCP(scheme string) string {
	return scheme + "://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port))
}

// Up starts the server again after Down, on the same socket and port. What it held is
// gone.
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

// ping is content with any answer: a server with a password gives one too.
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

// Down kills the server, as a crash of its machine would; twice is harmless.
func (s *Server) Down(t testing.TB) {
	if s.process == nil {
		return
	}
	if err := s.process.End(syscall.SIGKILL, quit); err != nil {
		t.Errorf("Redis did not end: %v", err)
	}
}

// Freeze stops the server without closing its connections, as a network that
// swallows everything would; Thaw lets it go on.
func (s *Server) Freeze(t testing.TB) { s.send(t, syscall.SIGSTOP) }

// Thaw ends Freeze.
func (s *Server) Thaw(t testing.TB) { s.send(t, syscall.SIGCONT) }

func (s *Server) send(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if err := s.process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// Client is a connection of the go-redis library for tests that look at what is kept.
func (s *Server) Client(t testing.TB) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Network: "unix", Addr: s.socket()})
	t.Cleanup(func() { _ = c.Close() })
	return c
}
