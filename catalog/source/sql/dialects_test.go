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

// TestTimesFindTheirRow: a time that a list shows finds its row again, and so does the same instant in
// another zone where the column holds instants.
func TestTimesFindTheirRow(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string, do func(...string), read func() *imported) {
		instant := map[string]string{"postgres": "timestamptz", "mysql": "TIMESTAMP(6)", "sqlite": "TIMESTAMP"}[dialect]
		local := map[string]string{"postgres": "timestamp", "mysql": "DATETIME(6)", "sqlite": "DATETIME"}[dialect]
		for n, value := range []string{"2026-07-01 10:00:00", "2026-07-01 10:00:00.25", "1999-12-31 23:59:59"} {
			for name, typ := range map[string]string{"instant": instant, "local": local, "day": "DATE"} {
				table := fmt.Sprintf("t%d_%s", n, name)
				do("CREATE TABLE "+table+" (at "+typ+" PRIMARY KEY NOT NULL)", "INSERT INTO "+table+" VALUES ('"+value+"')")
			}
		}
		i := read()
		lists := 0
		for name := range i.tools {
			table, ok := strings.CutPrefix(name, "x.list_")
			if !ok {
				continue
			}
			lists++
			rows := i.value(name, "{}")["rows"].([]any)
			at := rows[0].(map[string]any)["at"].(string)
			zone := strings.HasSuffix(at, "Z")
			if want := dialect != "sqlite" && strings.HasSuffix(table, "instant"); zone != want {
				t.Errorf("%s: %s has a zone: %v", table, at, zone)
			}
			same := []string{at}
			if zone {
				same = append(same, strings.TrimSuffix(at, "Z")+"+00:00", strings.Replace(strings.TrimSuffix(at, "Z"), "T10", "T12", 1)+map[bool]string{true: "+02:00", false: "Z"}[strings.Contains(at, "T10")])
			}
			for _, arg := range same {
				if got := i.value("x.get_"+table, fmt.Sprintf("{%q:%q}", "at", arg))["rows"].([]any); len(got) != 1 {
					t.Errorf("%s: %s of %s finds %v", table, arg, at, got)
				}
				if dialect == "sqlite" {
					continue // it has no filters on times
				}
				if got := i.value("x.list_"+table, fmt.Sprintf("{%q:%q}", "at_from", arg))["rows"].([]any); len(got) != 1 {
					t.Errorf("%s: from %s of %s finds %v", table, arg, at, got)
				}
			}
		}
		if lists != 9 {
			t.Errorf("%d lists", lists)
		}
	})
}
