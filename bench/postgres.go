package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// database is a PostgreSQL with the settings that initdb writes, on a disk, and
// reached over TCP on loopback as nodes on other machines would.
type database struct {
	dir, port string
	cmd       *exec.Cmd
	set       string // what counts of its settings
}

// notMeasured is why a part has no numbers on this machine.
type notMeasured string

func (n notMeasured) Error() string { return string(n) }

func startDatabase() (d *database, err error) {
	bin, err := postgresBinaries()
	if err != nil {
		return nil, err
	}
	account, err := postgresAccount()
	if err != nil {
		return nil, err
	}
	// A directory of its own: the account must reach it, and sockets have short paths.
	d = &database{}
	if d.dir, err = os.MkdirTemp("/tmp", "tkbench"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			d.stop()
		}
	}()
	if account != nil {
		if err := os.Chown(d.dir, int(account.Uid), int(account.Gid)); err != nil {
			return nil, err
		}
	}
	data := filepath.Join(d.dir, "data")
	init := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres", "--auth=trust", "--locale=C.UTF-8", "--encoding=UTF8")
	init.Dir, init.SysProcAttr = d.dir, &syscall.SysProcAttr{Credential: account}
	if said, err := init.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, said)
	}
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	_, d.port, _ = net.SplitHostPort(addr)
	log, err := os.Create(filepath.Join(d.dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-k", d.dir, "-p", d.port, "-c", "listen_addresses=127.0.0.1")
	cmd.Dir, cmd.Stdout, cmd.Stderr = d.dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: account, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	d.cmd = cmd
	if err := d.waitReady(); err != nil {
		text, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("PostgreSQL does not answer: %w; its log:\n%s", err, text)
	}
	d.set, err = d.settings()
	return d, err
}

// postgresBinaries finds the newest PostgreSQL of Debian.
func postgresBinaries() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "", notMeasured("PostgreSQL is not installed (Debian: apt-get install postgresql)")
	}
	number := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		return n
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return number(a) - number(b) })), nil
}

// postgresAccount returns the account for the server, which refuses to run as root; nil is the account of bench.
func postgresAccount() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, notMeasured("root cannot run PostgreSQL, and there is no user postgres")
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(err1, err2)
}

func (d *database) dsn(name string) string {
	return "host=127.0.0.1 port=" + d.port + " user=postgres dbname=" + name + " sslmode=disable"
}

func (d *database) waitReady() error {
	deadline := time.Now().Add(60 * time.Second)
	for {
		err := d.do("postgres", func(context.Context, *pgx.Conn) error { return nil })
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// do runs f on a connection to a database.
func (d *database) do(name string, f func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, d.dsn(name))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return f(ctx, conn)
}

// settings asks the server for what counts in a comparison.
func (d *database) settings() (text string, err error) {
	err = d.do("postgres", func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `SELECT 'PostgreSQL ' || split_part(current_setting('server_version'), ' ', 1) || ' (' ||
			string_agg(name || ' ' || current_setting(name), ', ' ORDER BY name) || ')'
			FROM pg_settings WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes', 'shared_buffers')`).Scan(&text)
	})
	return text, err
}

// create makes an empty database and gives its DSN.
func (d *database) create(name string) (string, error) {
	err := d.do("postgres", func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "CREATE DATABASE "+name)
		return err
	})
	return d.dsn(name), err
}

// cpu is what PostgreSQL used: the server, the children that live, and those that
// ended, which the server has waited for.
func (d *database) cpu() time.Duration {
	server := d.cmd.Process.Pid
	own, ended, _ := times(server)
	sum := own + ended
	names, _ := filepath.Glob("/proc/[0-9]*")
	for _, name := range names {
		pid, _ := strconv.Atoi(filepath.Base(name))
		if child, _, parent := times(pid); parent == server {
			sum += child
		}
	}
	return sum
}

// stop ends the server, cutting off who is still connected, and removes its data.
func (d *database) stop() {
	if d.cmd != nil {
		_ = d.cmd.Process.Signal(syscall.SIGINT)
		_ = d.cmd.Wait()
	}
	if d.dir != "" {
		_ = os.RemoveAll(d.dir)
	}
}

// stores measures the same calls on SQLite and on PostgreSQL.
func stores(b *bench) (part, error) {
	db, err := startDatabase()
	if err != nil {
		return part{}, err
	}
	defer db.stop()
	p := part{set: fmt.Sprintf("Set: %d clients in a closed loop over REST, the call of 600 bytes, limits off; %s as initdb sets it up, on the same "+
		"disk and machine, over TCP. SQLite with NORMAL survives the death of the process, with FULL also loss of power, as PostgreSQL does here.",
		clients, db.set)}
	dsn, err := db.create("stores")
	if err != nil {
		return part{}, err
	}
	for _, store := range []struct {
		name string
		env  []string
		cpu  func() time.Duration
	}{
		{"SQLite, NORMAL", []string{"TOOLKEEP_STORE_SYNCHRONOUS=NORMAL"}, nil},
		{"SQLite, FULL", []string{"TOOLKEEP_STORE_SYNCHRONOUS=FULL"}, nil},
		{"PostgreSQL", onPostgres(dsn, b.dir), db.cpu},
	} {
		srv, err := b.server("store "+store.name, store.env...)
		if err != nil {
			return part{}, err
		}
		rows, err := bothCalls(store.name, b.d, store.cpu, srv)
		srv.stop()
		if err != nil {
			return part{}, err
		}
		p.rows = append(p.rows, rows...)
	}
	return p, nil
}

// bothCalls measures the reading and the keyed call.
func bothCalls(name string, d time.Duration, store func() time.Duration, servers ...*process) (rows [][]string, err error) {
	for _, keyed := range []bool{false, true} {
		t := overREST(echoBody(), keyed, servers...)
		t.store = store
		m, err := closedLoop(t, clients, d)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		what, beside := "reading, ", "-"
		if keyed {
			what = "keyed, "
		}
		if store != nil {
			beside = us(m.storePerCall())
		}
		rows = append(rows, []string{what + name, us(m.cpuPerCall()), beside, rate(m), m.quantiles()})
	}
	return rows, nil
}
