package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(Main{m}) }

func TestServer(t *testing.T) {
	for range 2 { // the second comes from the template
		s := Start(t)
		name := s.NewName(t)
		for _, dsn := range []string{s.DSN(name), s.TCP(s.Addr(), name), s.NewDatabase(t)} {
			query(t, dsn)
		}
		if err := s.Down(); err != nil {
			t.Fatal(err)
		}
		if _, err := pgx.Connect(context.Background(), s.DSN(name)); err == nil {
			t.Fatal("a stopped server answers")
		}
		if err := s.Up(); err != nil {
			t.Fatal(err)
		}
		query(t, s.DSN(name))
	}
}

// TestSharedServerThatEnded: the end of the shared server is told once, with its log, and the tests behind have another.
func TestSharedServerThatEnded(t *testing.T) {
	query(t, NewDatabase(t))
	first, last, err := sharedServer()
	if err != nil || last != "" {
		t.Fatal(last, err)
	}
	dead := Start(t)
	if err := dead.Down(); err != nil {
		t.Fatal(err)
	}
	shared.Lock()
	shared.server = dead
	shared.Unlock()
	second, last, err := sharedServer()
	if err != nil || second == dead || !strings.Contains(last, "immediate shutdown") {
		t.Fatal(last, err)
	}
	query(t, second.NewDatabase(t))
	if third, last, err := sharedServer(); err != nil || third != second || last != "" {
		t.Fatal(last, err)
	}
	if err := errors.Join(second.stop(), os.RemoveAll(second.Dir)); err != nil {
		t.Fatal(err)
	}
	shared.Lock()
	shared.server = first
	shared.Unlock()
}

func TestRemoveLeft(t *testing.T) {
	in, old := t.TempDir(), time.Now().Add(-2*time.Hour)
	left := func(name, pid string, at time.Time) {
		data := filepath.Join(in, name, "data")
		if err := os.MkdirAll(data, 0o700); err != nil {
			t.Fatal(err)
		}
		if pid != "" {
			if err := os.WriteFile(filepath.Join(data, "postmaster.pid"), []byte(pid+"\n/tmp\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chtimes(filepath.Join(in, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	left("tkpg-dead", "2147483647", old)
	left("tkpg-none", "", old)
	left("tkpg-runs", fmt.Sprint(os.Getpid()), old)
	left("tkpg-new", "2147483647", time.Now())
	left("other", "2147483647", old)
	if err := removeLeft(in, &syscall.Credential{Uid: uint32(os.Getuid()) + 1}); err != nil {
		t.Fatal(err)
	}
	if got := names(t, in); got != "other tkpg-dead tkpg-new tkpg-none tkpg-runs" {
		t.Errorf("of another account: %s", got)
	}
	if err := removeLeft(in, nil); err != nil {
		t.Fatal(err)
	}
	if got := names(t, in); got != "other tkpg-new tkpg-runs" {
		t.Errorf("what stays: %s", got)
	}
}

func names(t *testing.T, in string) string {
	t.Helper()
	list, err := os.ReadDir(in)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func TestVectorServer(t *testing.T) {
	s := StartVector(t)
	conn, err := pgx.Connect(t.Context(), s.NewDatabase(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), "CREATE EXTENSION vector"); err != nil {
		t.Fatal(err)
	}
	var near float64
	if err := conn.QueryRow(t.Context(), "SELECT '[1,2]'::vector <-> '[1,4]'").Scan(&near); err != nil || near != 2 {
		t.Fatal(near, err)
	}
}

func query(t *testing.T, dsn string) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	var n int
	if err := conn.QueryRow(ctx, "SELECT 1").Scan(&n); err != nil || n != 1 {
		t.Fatal(n, err)
	}
}
