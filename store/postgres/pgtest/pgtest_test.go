package pgtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
