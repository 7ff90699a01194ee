// Package pgtest starts real PostgreSQL servers for tests. A server lives in a short
// directory below /tmp, starts empty, does not sync to disk, listens on a Unix socket
// and on a free loopback port, and stops with the test.
package pgtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep/servertest"
)

const (
	ready = 60 * time.Second // how long a server may take to respond
	quit  = 20 * time.Second // how long it may take to stop
)

// Server is a running PostgreSQL whose superuser is "postgres", without password.
type Server struct {
	Dir  string // the Unix socket's
	Port int    // in the socket's name and on 127.0.0.1

	bin     string
	data    string
	log     string
	account *syscall.Credential
	process *servertest.Process
	names   atomic.Int64
}

// Start starts a server that is stopped when the test ends. Without PostgreSQL
// installed the test is skipped, or fails with TOOLKEEP_TEST_ALL=1.
func Start(t testing.TB) *Server {
	t.Helper()
	return run(t, binaries)
}

// shared is the server of [NewDatabase], and whether [Main] will stop it.
var shared struct {
	sync.Mutex
	server *Server
	main   bool
	ended  []string // directories of servers that ended by themselves
}

// NewDatabase creates an empty database on a server that all tests of the process share, and returns its DSN. It is
// dropped when the test ends. Where that server has ended by itself, the next test fails with what it said, and those after it
// have a new one. A test that stops its server, or sets up what all databases of it have, calls [Start].
func NewDatabase(t testing.TB) string {
	t.Helper()
	servertest.Needs(t, "PostgreSQL")
	s, last, err := sharedServer()
	if last != "" {
		t.Errorf("the PostgreSQL that the tests before shared has ended; it said:\n%s", last)
	}
	if errors.Is(err, errMissing) {
		servertest.Missing(t, err.Error())
	}
	if err != nil {
		t.Fatalf("PostgreSQL did not start: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("PostgreSQL said:\n%s", s.process.Tail())
		}
	})
	name := s.NewName(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), ready)
		defer cancel()
		if err := s.execute(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("the database was not dropped: %v", err)
		}
	})
	return s.DSN(name)
}

// sharedServer returns the server that tests share, and once what one that has ended by itself said last.
func sharedServer() (s *Server, last string, err error) {
	shared.Lock()
	defer shared.Unlock()
	if !shared.main {
		return nil, "", errors.New("no TestMain stops it: let pgtest.Main run the tests")
	}
	if s := shared.server; s != nil && s.process.Ended() {
		last = s.process.Tail() + "\n(end of its log)"
		shared.server, shared.ended = nil, append(shared.ended, s.Dir)
	}
	if shared.server == nil {
		if shared.server, err = start(binaries); err != nil {
			shared.server = nil
		}
	}
	return shared.server, last, err
}

// Main is a [testing.M] that stops the server of [NewDatabase] after the tests.
type Main struct{ *testing.M }

// Run runs the tests.
func (m Main) Run() int {
	shared.Lock()
	shared.main = true
	shared.Unlock()
	code := m.M.Run()
	shared.Lock()
	defer shared.Unlock()
	var err error
	if s := shared.server; s != nil {
		err = errors.Join(s.stop(), os.RemoveAll(s.Dir))
	}
	for _, dir := range shared.ended {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "PostgreSQL did not stop:", err)
		return max(code, 1)
	}
	return code
}

// StartVector starts a server with the extension pgvector, as installed by
// scripts/pgvector.sh in .cache of the test's checkout.
func StartVector(t testing.TB) *Server {
	t.Helper()
	return run(t, vectorBinaries)
}

func run(t testing.TB, find func() (string, error)) *Server {
	t.Helper()
	servertest.Needs(t, "PostgreSQL")
	s, err := start(find)
	if errors.Is(err, errMissing) {
		servertest.Missing(t, err.Error())
	}
	if err != nil {
		t.Fatalf("PostgreSQL did not start: %v", err)
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Errorf("PostgreSQL did not stop: %v", err)
		}
		if t.Failed() {
			t.Logf("PostgreSQL said:\n%s", s.process.Tail())
		}
		if err := os.RemoveAll(s.Dir); err != nil {
			t.Error(err)
		}
	})
	return s
}

var (
	errMissing  = errors.New("PostgreSQL is not installed; make test installs it")
	errNoVector = fmt.Errorf("a PostgreSQL with pgvector is missing; scripts/pgvector.sh fetches it: %w", errMissing)
)

func start(find func() (string, error)) (s *Server, err error) {
	s = &Server{}
	if s.bin, err = find(); err != nil {
		return nil, err
	}
	if s.account, err = account(); err != nil {
		return nil, err
	}
	// Socket paths must be short, so t.TempDir does not work.
	if sweep.Do(func() { err = removeLeft("/tmp", s.account) }); err != nil {
		return nil, err
	}
	if s.Dir, err = os.MkdirTemp("/tmp", "tkpg"); err != nil {
		return nil, err
	}
	dir := s.Dir
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	s.data, s.log = filepath.Join(s.Dir, "data"), filepath.Join(s.Dir, "log")
	if err = s.own(s.Dir); err != nil {
		return nil, err
	}
	if err = s.initdb(); err != nil {
		return nil, err
	}
	if s.Port, err = servertest.FreePort(); err != nil {
		return nil, err
	}
	return s, s.Up()
}

// binaries returns the directory of the newest server on this machine.
func binaries() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return "", err
	}
	slices.SortFunc(found, func(a, b string) int { return version(a) - version(b) })
	slices.Reverse(found)
	if path, err := exec.LookPath("postgres"); err == nil {
		found = append(found, filepath.Dir(path))
	}
	for _, dir := range found {
		_, e1 := os.Stat(filepath.Join(dir, "initdb"))
		_, e2 := os.Stat(filepath.Join(dir, "postgres"))
		if e1 == nil && e2 == nil {
			return dir, nil
		}
	}
	return "", errMissing
}

// vectorBinaries searches the parent directories of the test.
func vectorBinaries() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		found, err := filepath.Glob(filepath.Join(dir, ".cache", "pgserver-*", "pgserver", "pginstall", "bin"))
		if err != nil {
			return "", err
		}
		if len(found) > 0 {
			slices.Sort(found)
			return found[len(found)-1], nil
		}
		if dir == filepath.Dir(dir) {
			return "", errNoVector
		}
	}
}

func version(bin string) int {
	n, err := strconv.Atoi(filepath.Base(filepath.Dir(bin)))
	if err != nil {
		return 0
	}
	return n
}

// account returns the user that runs the server, which refuses to run as root.
func account() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("root cannot run PostgreSQL and there is no user postgres: %w", err)
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(err1, err2)
}

// sweep removes left directories, once a process.
var sweep sync.Once

// removeLeft removes the directories of an account's servers whose tests were killed: those that are over an hour old, and whose
// server does not run. Tests end sooner, so a server that starts, or was stopped to be started again, keeps its own.
func removeLeft(in string, account *syscall.Credential) error {
	uid := uint32(os.Getuid())
	if account != nil {
		uid = account.Uid
	}
	dirs, err := filepath.Glob(filepath.Join(in, "tkpg*"))
	for _, dir := range dirs {
		info, e := os.Lstat(dir)
		if e != nil || !info.IsDir() || info.Sys().(*syscall.Stat_t).Uid != uid || time.Since(info.ModTime()) < time.Hour {
			continue
		}
		text, _ := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
		line, _, _ := strings.Cut(string(text), "\n")
		if pid, e := strconv.Atoi(line); e == nil && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			continue
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

func (s *Server) own(path string) error {
	if s.account == nil {
		return nil
	}
	return os.Chown(path, int(s.account.Uid), int(s.account.Gid))
}

// template keeps the first initdb of each version for further servers: of this process, and in the checkout's .cache of
// all others.
var template = struct {
	sync.Mutex
	archive map[string][]byte // tar, by the binaries' directory
}{archive: map[string][]byte{}}

// Segments of 1 MB, not 16, nearly halve what is copied for each server.
var initdbArgs = []string{"--wal-segsize=1", "-U", "postgres", "--auth=trust", "--no-sync", "--locale=C.UTF-8", "--encoding=UTF8"}

// initdb creates the data directory, from the template if there is one.
func (s *Server) initdb() error {
	template.Lock()
	defer template.Unlock()
	archive, cached := template.archive[s.bin], ""
	if archive == nil {
		var err error
		if cached, err = s.templateFile(); err != nil {
			return err
		}
		if archive, err = os.ReadFile(cached); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if archive != nil {
		template.archive[s.bin] = archive
		if err := os.Mkdir(s.data, 0o700); err != nil {
			return err
		}
		if err := s.own(s.data); err != nil {
			return err
		}
		return s.run(bytes.NewReader(archive), nil, "tar", "-xf", "-", "-C", s.data)
	}
	if err := s.run(nil, nil, filepath.Join(s.bin, "initdb"), append([]string{"-D", s.data}, initdbArgs...)...); err != nil {
		return err
	}
	var out bytes.Buffer
	if err := s.run(nil, &out, "tar", "-cf", "-", "-C", s.data, "."); err != nil {
		return err
	}
	template.archive[s.bin] = out.Bytes()
	return writeWhole(cached, out.Bytes())
}

// templateFile returns where the template of the server's exact version is kept.
func (s *Server) templateFile() (string, error) {
	said, err := exec.Command(filepath.Join(s.bin, "postgres"), "--version").Output()
	if err != nil {
		return "", fmt.Errorf("postgres --version: %w", err)
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("the test runs outside of the module: no go.mod above it")
		}
	}
	sum := sha256.Sum256(fmt.Append(said, runtime.GOARCH, initdbArgs))
	return filepath.Join(dir, ".cache", fmt.Sprintf("pgtemplate-%x.tar", sum[:8])), nil
}

// writeWhole writes a file that others see whole or not at all.
func writeWhole(name string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), "pgtemplate-*.part")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

func (s *Server) run(in *bytes.Reader, out *bytes.Buffer, name string, args ...string) error {
	var said bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Dir = s.Dir
	cmd.Stderr = &said
	if out != nil {
		cmd.Stdout = out
	}
	if in != nil {
		cmd.Stdin = in
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.account}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(name), err, said.String())
	}
	return nil
}

// Up restarts the server after Down, on the same data and port.
func (s *Server) Up() error {
	cmd := exec.Command(filepath.Join(s.bin, "postgres"), "-D", s.data, "-k", s.Dir, "-p", strconv.Itoa(s.Port),
		"-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "full_page_writes=off",
		"-c", "wal_level=minimal", "-c", "max_wal_senders=0", "-c", "max_wal_size=1GB", "-c", "jit=off",
		"-c", "shared_buffers=32MB", "-c", "max_connections=1000", "-c", "log_min_messages=warning",
		"-c", "unix_socket_permissions=0777", "-c", "timezone=UTC")
	cmd.Dir = s.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.account}
	p, err := servertest.Start(cmd, s.log)
	if err != nil {
		return err
	}
	s.process = p
	if err := s.process.Answer(ready, s.answer); err != nil {
		return errors.Join(err, s.stop(), errors.New(s.process.Tail()))
	}
	return nil
}

func (s *Server) answer(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.DSN("postgres"))
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// Down stops the server at once; to its clients it looks like a machine crash.
func (s *Server) Down() error { return s.process.End(syscall.SIGQUIT, quit) }

// stop stops the server and closes open connections.
func (s *Server) stop() error { return s.process.End(syscall.SIGINT, quit) }

// DSN returns the connection string of a database through the Unix socket.
func (s *Server) DSN(database string) string {
	return fmt.Sprintf("host=%s port=%d user=postgres dbname=%s sslmode=disable", s.Dir, s.Port, database)
}

// TCP returns the connection string of a database at another host and port, such as
// those of a proxy in front of Addr.
func (s *Server) TCP(addr, database string) string {
	host, port, _ := net.SplitHostPort(addr)
	return fmt.Sprintf("host=%s port=%s user=postgres dbname=%s sslmode=disable", host, port, database)
}

// Addr is the server's loopback address.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)) }

// NewDatabase creates an empty database and returns its DSN. It is removed with the
// server.
func (s *Server) NewDatabase(t testing.TB) string {
	t.Helper()
	return s.DSN(s.NewName(t))
}

// NewName creates an empty database and returns its name, for DSN and TCP.
func (s *Server) NewName(t testing.TB) string {
	t.Helper()
	return s.create(t, "")
}

// NewCopy creates a copy of a database of this server, to which nothing may be connected, and returns its name.
func (s *Server) NewCopy(t testing.TB, of string) string {
	t.Helper()
	return s.create(t, " TEMPLATE "+of)
}

func (s *Server) create(t testing.TB, how string) string {
	t.Helper()
	name := fmt.Sprintf("t%d", s.names.Add(1))
	ctx, cancel := context.WithTimeout(context.Background(), ready)
	defer cancel()
	if err := s.execute(ctx, "CREATE DATABASE "+name+how); err != nil {
		t.Fatal(err)
	}
	return name
}

func (s *Server) execute(ctx context.Context, statement string) error {
	conn, err := pgx.Connect(ctx, s.DSN("postgres"))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}
