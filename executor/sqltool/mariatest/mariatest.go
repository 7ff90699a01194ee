// Package mariatest starts real MariaDB servers for tests. A server lives in a
// short directory below /tmp, has nobody's data, does not sync to disk, listens on
// a Unix socket and on a free port of loopback, and goes with the test.
package mariatest

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

const (
	ready = 60 * time.Second // how long a server may take to answer
	quit  = 20 * time.Second // how long it may take to end
)

// Server is a running MariaDB whose user "root" has all rights and no password.
type Server struct {
	Dir  string
	Port int // on 127.0.0.1

	data    string
	log     string
	account *user.User
	cmd     *exec.Cmd
	ended   chan struct{}
	exit    error
	names   atomic.Int64
}

var errMissing = errors.New("MariaDB is not installed; make test installs it")

// Start starts a server that is stopped when the test ends. Where MariaDB is not
// installed the test is left out, and with TOOLKEEP_TEST_ALL=1 it fails.
func Start(t testing.TB) *Server {
	t.Helper()
	s, err := start()
	if errors.Is(err, errMissing) {
		if os.Getenv("TOOLKEEP_TEST_ALL") == "1" {
			t.Fatal(err)
		}
		t.Skip("LEFT OUT: ", err)
	}
	if err != nil {
		t.Fatalf("MariaDB did not start: %v", err)
	}
	t.Cleanup(func() {
		if err := s.end(syscall.SIGTERM); err != nil {
			t.Errorf("MariaDB did not stop: %v", err)
		}
		if t.Failed() {
			t.Logf("MariaDB said:\n%s", s.tail())
		}
		if err := os.RemoveAll(s.Dir); err != nil {
			t.Error(err)
		}
	})
	return s
}

func start() (s *Server, err error) {
	s = &Server{}
	for _, name := range []string{"mariadbd", "mariadb-install-db"} {
		if _, err := exec.LookPath(name); err != nil {
			return nil, errMissing
		}
	}
	if os.Getuid() == 0 {
		if s.account, err = user.Lookup("mysql"); err != nil {
			return nil, fmt.Errorf("root does not run MariaDB and there is no user mysql: %w", err)
		}
	}
	if s.Dir, err = os.MkdirTemp("/tmp", "tkmy"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(s.Dir))
		}
	}()
	s.data, s.log = filepath.Join(s.Dir, "data"), filepath.Join(s.Dir, "log")
	if err = os.Chmod(s.Dir, 0o755); err != nil {
		return nil, err
	}
	if s.account != nil {
		uid, e1 := strconv.Atoi(s.account.Uid)
		gid, e2 := strconv.Atoi(s.account.Gid)
		if err = errors.Join(e1, e2, os.Chown(s.Dir, uid, gid)); err != nil {
			return nil, err
		}
	}
	var said bytes.Buffer
	install := exec.Command("mariadb-install-db", s.args("--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve")...)
	install.Dir, install.Stdout, install.Stderr = s.Dir, &said, &said
	install.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err = install.Run(); err != nil {
		return nil, fmt.Errorf("mariadb-install-db: %w: %s", err, said.String())
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.Port = l.Addr().(*net.TCPAddr).Port
	if err = l.Close(); err != nil {
		return nil, err
	}
	return s, s.Up()
}

// args are the options that the server and its installer share.
func (s *Server) args(more ...string) []string {
	args := []string{"--no-defaults", "--datadir=" + s.data}
	if s.account != nil {
		args = append(args, "--user="+s.account.Username)
	}
	return append(args, more...)
}

// Up starts the server again after Down, on the same data and port.
func (s *Server) Up() error {
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	s.cmd = exec.Command("mariadbd", s.args("--socket="+s.Socket(), "--port="+strconv.Itoa(s.Port), "--bind-address=127.0.0.1",
		"--pid-file="+filepath.Join(s.Dir, "pid"), "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M",
		"--innodb-flush-log-at-trx-commit=0", "--skip-name-resolve", "--max-connections=200", "--tmpdir="+s.Dir)...)
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = s.Dir, log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	s.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		s.exit = cmd.Wait()
		close(ended)
	}(s.cmd, s.ended)
	if err := s.answer(); err != nil {
		return errors.Join(err, s.end(syscall.SIGTERM), errors.New(s.tail()))
	}
	return nil
}

func (s *Server) answer() error {
	ctx, cancel := context.WithTimeout(context.Background(), ready)
	defer cancel()
	db, err := s.Open("")
	if err != nil {
		return err
	}
	defer db.Close()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := db.PingContext(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-s.ended:
			return fmt.Errorf("the server ended: %w", s.exit)
		case <-ctx.Done():
			return fmt.Errorf("the server did not answer within %s: %w", ready, err)
		case <-tick.C:
		}
	}
}

// Down kills the server, as a crash of its machine would look to its clients.
func (s *Server) Down() error { return s.end(syscall.SIGKILL) }

func (s *Server) end(sig syscall.Signal) error {
	select {
	case <-s.ended:
		return nil
	default:
	}
	if err := s.cmd.Process.Signal(sig); err != nil {
		return err
	}
	limit := time.NewTimer(quit)
	defer limit.Stop()
	select {
	case <-s.ended:
		return nil
	case <-limit.C:
	}
	err := s.cmd.Process.Kill()
	<-s.ended
	return errors.Join(fmt.Errorf("it did not end within %s of %s", quit, sig), err)
}

// Socket is the server's Unix socket.
func (s *Server) Socket() string { return filepath.Join(s.Dir, "sock") }

// Open gives a handle for root on a database, "" none.
func (s *Server) Open(database string) (*sql.DB, error) {
	cfg := mysql.NewConfig()
	cfg.User, cfg.Net, cfg.Addr, cfg.DBName = "root", "unix", s.Socket(), database
	cfg.Logger = silent{}
	c, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(c), nil
}

type silent struct{}

func (silent) Print(...any) {}

// NewDatabase makes an empty database and gives its name. It goes with the server.
func (s *Server) NewDatabase(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("t%d", s.names.Add(1))
	db, err := s.Open("")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE DATABASE " + name + " CHARACTER SET utf8mb4"); err != nil {
		t.Fatal(err)
	}
	return name
}

// tail is the end of the server's log.
func (s *Server) tail() string {
	text, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	const most = 8 << 10
	if len(text) > most {
		text = text[len(text)-most:]
	}
	return strings.TrimSpace(string(text))
}
