// Package redistest starts real Redis servers for tests. A server lives in a short
// directory below /tmp, keeps nothing on disk, listens on a Unix socket and on a free
// port of loopback, and goes with the test.
package redistest

import (
	"bufio"
	"errors"
	"fmt"
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
)

const (
	ready = 20 * time.Second // how long a server may take to answer
	quit  = 10 * time.Second // how long it may take to end
)

// Server is a running Redis.
type Server struct {
	Dir  string
	Port int // of 127.0.0.1; with TLS where Start was given files for it

	args  []string
	cmd   *exec.Cmd
	ended chan struct{}
}

// Start starts a server that is stopped when the test ends, with more arguments of
// redis-server. Where Redis is not installed the test is left out, and with
// TOOLKEEP_TEST_ALL=1 it fails.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		const missing = "redis-server is not installed; make test installs it"
		if os.Getenv("TOOLKEEP_TEST_ALL") == "1" {
			t.Fatal(missing)
		}
		t.Skip("LEFT OUT: ", missing)
	}
	// Sockets have short paths, so t.TempDir will not do.
	dir, err := os.MkdirTemp("/tmp", "tkredis")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Dir: dir, args: args}
	t.Cleanup(func() {
		s.Down(t)
		if t.Failed() {
			text, _ := os.ReadFile(s.log())
			t.Logf("Redis said:\n%s", text[max(0, len(text)-8<<10):])
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Port = l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s.Up(t)
	return s
}

func (s *Server) log() string    { return filepath.Join(s.Dir, "log") }
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
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	args := []string{"--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--dir", s.Dir, "--unixsocket", s.socket(),
		"--unixsocketperm", "700", "--daemonize", "no", "--maxmemory", "64mb"}
	if port := strconv.Itoa(s.Port); strings.Contains(strings.Join(s.args, " "), "--tls-cert-file") {
		args = append(args, "--port", "0", "--tls-port", port)
	} else {
		args = append(args, "--port", port)
	}
	s.cmd = exec.Command("redis-server", append(args, s.args...)...)
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = s.Dir, log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		_ = cmd.Wait() // how it ended is in its log
		close(ended)
	}(s.cmd, s.ended)
	if err := s.answer(); err != nil {
		text, _ := os.ReadFile(s.log())
		t.Fatalf("Redis did not start: %v\n%s", err, text)
	}
}

// answer waits until the server takes connections and commands.
func (s *Server) answer() error {
	limit := time.After(ready)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := s.ping()
		if err == nil {
			return nil
		}
		select {
		case <-s.ended:
			return errors.New("the server ended")
		case <-limit:
			return fmt.Errorf("the server did not answer within %s: %w", ready, err)
		case <-tick.C:
		}
	}
}

// ping is content with any answer: a server with a password gives one too.
func (s *Server) ping() error {
	c, err := net.Dial("unix", s.socket())
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
func (s *Server) Down(t testing.TB) { s.signal(t, syscall.SIGKILL) }

// Freeze stops the server without closing its connections, as a network that
// swallows everything would; Thaw lets it go on.
func (s *Server) Freeze(t testing.TB) { s.send(t, syscall.SIGSTOP) }

// Thaw ends Freeze.
func (s *Server) Thaw(t testing.TB) { s.send(t, syscall.SIGCONT) }

func (s *Server) send(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

func (s *Server) signal(t testing.TB, sig syscall.Signal) {
	if s.ended == nil {
		return
	}
	select {
	case <-s.ended:
		return
	default:
	}
	if err := s.cmd.Process.Signal(sig); err != nil {
		t.Errorf("Redis cannot be ended: %v", err)
		return
	}
	limit := time.NewTimer(quit)
	defer limit.Stop()
	select {
	case <-s.ended:
	case <-limit.C:
		t.Errorf("Redis did not end within %s", quit)
	}
}

// Client is a connection of the go-redis library for tests that look at what is kept.
func (s *Server) Client(t testing.TB) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Network: "unix", Addr: s.socket()})
	t.Cleanup(func() { _ = c.Close() })
	return c
}
