// Package mariatest starts real MariaDB servers for tests. A server lives in a short
// directory below /tmp, starts empty, does not sync to disk, listens on a Unix socket
// and on a free loopback port, and is removed with the test.
package mariatest

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/toolkeep/toolkeep/servertest"
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
	process *servertest.Process
	names   atomic.Int64
}

var errMissing = errors.New("MariaDB is not installed; make test installs it")

// Start starts a server that is stopped when the test ends. Without MariaDB the test is
// skipped, or with TOOLKEEP_TEST_ALL=1 fails.
func Start(t testing.TB) *Server {
	t.Helper()
	servertest.Needs(t, "MariaDB")
	s, err := start()
	if errors.Is(err, errMissing) {
		servertest.Missing(t, err.Error())
	}
	if err != nil {
		t.Fatalf("MariaDB did not start: %v", err)
	}
	t.Cleanup(func() {
		if err := s.process.End(syscall.SIGTERM, quit); err != nil {
			t.Errorf("MariaDB did not stop: %v", err)
		}
		if t.Failed() {
			t.Logf("MariaDB said:\n%s", s.process.Tail())
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
	dir := s.Dir // a return of nil clears s
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
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
	if s.Port, err = servertest.FreePort(); err != nil {
		return nil, err
	}
	return s, s.Up()
}

// args are the options for both the server and its installer.
func (s *Server) args(more ...string) []string {
	args := []string{"--no-defaults", "--datadir=" + s.data}
	if s.account != nil {
		args = append(args, "--user="+s.account.Username)
	}
	return append(args, more...)
}

// Up restarts the server after Down, with the same data and port.
func (s *Server) Up() error {
	cmd := exec.Command("mariadbd", s.args("--socket="+s.Socket(), "--port="+strconv.Itoa(s.Port), "--bind-address=127.0.0.1",
		"--pid-file="+filepath.Join(s.Dir, "pid"), "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M",
		"--innodb-flush-log-at-trx-commit=0", "--skip-name-resolve", "--max-connections=200", "--tmpdir="+s.Dir)...)
	cmd.Dir = s.Dir
	db, err := s.Open("")
	if err != nil {
		return err
	}
	defer db.Close()
	p, err := servertest.Start(cmd, s.log)
	if err != nil {
		return err
	}
	s.process = p
	if err := s.process.Answer(ready, db.PingContext); err != nil {
		return errors.Join(err, s.process.End(syscall.SIGTERM, quit), errors.New(s.process.Tail()))
	}
	return nil
}

// Down kills the server, like a crash of its machine.
func (s *Server) Down() error { return s.process.End(syscall.SIGKILL, quit) }

// Socket returns the path of the server's Unix socket.
func (s *Server) Socket() string { return filepath.Join(s.Dir, "sock") }

// Open returns a handle for root on a database, "" for none.
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

// NewDatabase creates an empty database and returns its name.
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
