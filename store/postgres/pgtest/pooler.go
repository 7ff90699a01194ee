package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep/servertest"
)

// Pooler starts a PgBouncer before the server, with its own defaults but for the mode,
// "session" or "transaction", and the settings given. It returns the DSN of each database
// through it. It is stopped when the test ends.
func (s *Server) Pooler(t testing.TB, mode string, settings ...string) (dsn func(database string) string) {
	t.Helper()
	servertest.Needs(t, "PgBouncer")
	bin, err := exec.LookPath("pgbouncer")
	if err != nil {
		bin = "/usr/sbin/pgbouncer"
	}
	if _, err := os.Stat(bin); err != nil {
		servertest.Missing(t, "PgBouncer is not installed; make test installs it")
	}
	port, err := servertest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "tkpb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	text := fmt.Sprintf("[databases]\n* = host=%s port=%d user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir =\nauth_type = any\npool_mode = %s\n",
		s.Dir, s.Port, port, mode)
	for _, line := range settings {
		text += line + "\n"
	}
	ini := filepath.Join(dir, "pgbouncer.ini")
	if err := errors.Join(os.WriteFile(ini, []byte(text), 0o644), s.own(dir), s.own(ini)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, ini)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.account}
	p, err := servertest.Start(cmd, filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("PgBouncer said:\n%s", p.Tail())
		}
		if err := p.End(syscall.SIGTERM, quit); err != nil {
			t.Errorf("PgBouncer did not stop: %v", err)
		}
	})
	dsn = func(database string) string {
		return fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=%s sslmode=disable", port, database)
	}
	err = p.Answer(ready, func(ctx context.Context) error {
		conf, err := pgx.ParseConfig(dsn("postgres"))
		if err != nil {
			return err
		}
		conf.DefaultQueryExecMode = pgx.QueryExecModeExec
		conn, err := pgx.ConnectConfig(ctx, conf)
		if err != nil {
			return err
		}
		return errors.Join(conn.Ping(ctx), conn.Close(ctx))
	})
	if err != nil {
		t.Fatalf("PgBouncer does not answer: %v", err)
	}
	return dsn
}
