package mariatest

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServer(t *testing.T) {
	s := Start(t)
	name := s.NewDatabase(t)
	ask := func() error {
		db, err := s.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		var n int
		if err := db.QueryRow("SELECT 1").Scan(&n); err != nil {
			return err
		}
		if n != 1 {
			t.Fatal(n)
		}
		return nil
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	if err := s.Down(); err != nil {
		t.Fatal(err)
	}
	if ask() == nil {
		t.Fatal("a stopped server answers")
	}
	if err := s.Up(); err != nil {
		t.Fatal(err)
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
}
