package sql

import (
	stdsql "database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep/executor/sqltool"
	"github.com/toolkeep/toolkeep/executor/sqltool/mariatest"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

// onEach runs a test on an empty database of each kind: do runs a statement, read imports all tables.
func onEach(t *testing.T, test func(t *testing.T, dialect string, do func(...string), read func() *imported)) {
	t.Run("postgres", func(t *testing.T) {
		s := pgtest.Start(t)
		name := s.NewName(t)
		admin, err := stdsql.Open("pgx", s.DSN(name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { admin.Close() })
		exec(t, admin, "CREATE ROLE r_"+name+" LOGIN", "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO r_"+name)
		tested(t, "postgres", admin, fmt.Sprintf("postgres://r_%s@/%s?host=%s&port=%d", name, name, s.Dir, s.Port), sqltool.Config{SocketDirs: []string{s.Dir}}, test)
	})
	t.Run("mysql", func(t *testing.T) {
		s := mariatest.Start(t)
		name := s.NewDatabase(t)
		admin, err := s.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { admin.Close() })
		exec(t, admin, "CREATE USER r_"+name, "GRANT SELECT ON "+name+".* TO r_"+name)
		tested(t, "mysql", admin, fmt.Sprintf("mysql://r_%s@/%s?socket=%s", name, name, s.Socket()), sqltool.Config{SocketDirs: []string{s.Dir}}, test)
	})
	t.Run("sqlite", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "data.db")
		admin, err := stdsql.Open("sqlite", file)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { admin.Close() })
		tested(t, "sqlite", admin, file, sqltool.Config{SQLiteRoots: []string{filepath.Dir(file)}}, test)
	})
}

func tested(t *testing.T, dialect string, admin *stdsql.DB, dsn string, c sqltool.Config, test func(*testing.T, string, func(...string), func() *imported)) {
	test(t, dialect, func(statements ...string) { exec(t, admin, statements...) }, func() *imported {
		target, err := ParseTarget(dsn)
		if err != nil {
			t.Fatal(err)
		}
		return read(t, Options{Target: target, Tables: []string{"*"}, Namespace: "x"}, c)
	})
}

// TestListsTellMissingRows: a list and a search say truncated exactly if there are more rows.
func TestListsTellMissingRows(t *testing.T) {
	onEach(t, func(t *testing.T, _ string, do func(...string), read func() *imported) {
		var rows []string
		for n := range 1001 {
			rows = append(rows, fmt.Sprintf("(%d, 'x')", n))
		}
		do("CREATE TABLE t (n INT PRIMARY KEY, s VARCHAR(20))", "INSERT INTO t VALUES "+strings.Join(rows, ", "))
		i := read()
		for _, tt := range []struct {
			args      string
			rows      string
			truncated bool
		}{
			{`"limit":50`, "50", true}, {`"limit":50,"offset":950`, "50", true}, {`"limit":50,"offset":951`, "50", false}, {`"offset":1000`, "1", false},
			{`"limit":1000`, "1000", true}, {`"limit":1000,"offset":1`, "1000", false}, {`"limit":1`, "1", true}, {`"limit":1,"offset":1001`, "0", false},
		} {
			for tool, args := range map[string]string{"x.list_t": "{" + tt.args + "}", "x.search_t": `{"query":"X",` + tt.args + "}"} {
				out := i.value(tool, args)
				if fmt.Sprint(out["row_count"]) != tt.rows || out["truncated"] != tt.truncated {
					t.Errorf("%s %s: %v rows, truncated %v", tool, args, out["row_count"], out["truncated"])
				}
			}
		}
	})
}
