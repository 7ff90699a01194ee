package sql

import (
	"context"
	stdsql "database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/executor/sqltool"
	"github.com/toolkeep/toolkeep/executor/sqltool/mariatest"
	"github.com/toolkeep/toolkeep/schema"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

// bounds queries the minimum and maximum of each argument of a list tool, in the database too, and
// values beyond them, which validation must refuse.
func (i *imported) bounds(tool string, args map[string][2]string) {
	i.t.Helper()
	if i.tools[tool] == nil {
		i.t.Fatalf("no tool %s among %v, refused: %v", tool, names(i.plan), i.plan.Refused)
	}
	s, err := schema.Compile(i.tools[tool].Manifest.ParametersSchema)
	if err != nil {
		i.t.Fatal(err)
	}
	faults := func(arg, value string) int {
		tree, err := canon.ParseObject([]byte(fmt.Sprintf("{%q:%s}", arg, value)), canon.Limits{})
		if err != nil {
			i.t.Fatal(err)
		}
		return len(s.Validate(context.Background(), tree))
	}
	for arg, ends := range args {
		for _, value := range ends {
			if n := faults(arg, value); n > 0 {
				i.t.Errorf("%s %s is refused", arg, value)
			}
			i.call(tool, fmt.Sprintf("{%q:%s}", arg, value))
			beyond := strings.Replace(value, "e+3", "e+4", 1)
			if value == "0" {
				beyond = "-1"
			} else if len(value) > 18 { // beyond the double that represents 64 bits
				beyond = value + "0"
			} else if beyond == value { // one more in the last digit, which is never 9
				beyond = value[:len(value)-1] + string(value[len(value)-1]+1)
			}
			if n := faults(arg, beyond); n == 0 {
				i.t.Errorf("%s %s is taken", arg, beyond)
			}
		}
	}
}

func TestBounds(t *testing.T) {
	t.Run("postgres", func(t *testing.T) {
		s := pgtest.Start(t)
		name := s.NewName(t)
		admin, err := pgx.Connect(context.Background(), s.DSN(name))
		if err != nil {
			t.Fatal(err)
		}
		defer admin.Close(context.Background())
		for _, q := range []string{`CREATE DOMAIN grade AS smallint`, `CREATE TABLE t (a int2, b int4, c int8, d grade, e real, f numeric(4,2), g serial)`,
			`CREATE INDEX ON t (a)`, `CREATE INDEX ON t (b)`, `CREATE INDEX ON t (c)`, `CREATE INDEX ON t (d)`, `CREATE INDEX ON t (e)`, `CREATE INDEX ON t (f)`,
			`CREATE ROLE reader3 LOGIN`, `GRANT SELECT ON t TO reader3`} {
			if _, err := admin.Exec(t.Context(), q); err != nil {
				t.Fatal(err)
			}
		}
		target, err := ParseTarget(fmt.Sprintf("postgres://reader3@/%s?host=%s&port=%d", name, s.Dir, s.Port))
		if err != nil {
			t.Fatal(err)
		}
		i := read(t, Options{Target: target, Tables: []string{"t"}, Namespace: "x"}, sqltool.Config{SocketDirs: []string{s.Dir}})
		i.bounds("x.list_t", map[string][2]string{
			"a": {"-32768", "32767"}, "b": {"-2147483648", "2147483647"}, "c": {"-9223372036854775808", "9223372036854775807"},
			"d": {"-32768", "32767"}, "e": {"-3.4028235e+38", "3.4028235e+38"},
		})
		for _, beyond := range []string{"-9223372036854775809", "9223372036854775808"} {
			_, err := i.e.Execute(t.Context(), &toolkeep.Execution{Tool: i.tools["x.list_t"], Args: map[string]any{"c": json.Number(beyond)}, Principal: &toolkeep.Principal{Tenant: "acme"}})
			if e := toolkeep.AsError(err); e == nil || !e.NothingSent || !strings.Contains(e.Message, "64 bits") {
				t.Errorf("%s: %v", beyond, err)
			}
		}
		i.want("x.list_t", `{"f":1e300}`, "[]") // a numeric may exceed its column
	})
	t.Run("mysql", func(t *testing.T) {
		s := mariatest.Start(t)
		name := s.NewDatabase(t)
		admin, err := s.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer admin.Close()
		exec(t, admin, "CREATE TABLE t (a TINYINT, b TINYINT UNSIGNED, c SMALLINT(5), d MEDIUMINT, e INT UNSIGNED, f BIGINT, g BIGINT(20) UNSIGNED ZEROFILL, h BIT(3), i YEAR, "+
			"KEY(a), KEY(c), KEY(d), KEY(e), KEY(f), KEY(g), KEY(h), KEY(i))",
			"CREATE USER reader2 IDENTIFIED BY '"+password+"'", "GRANT SELECT ON "+name+".* TO reader2")
		target, err := ParseTarget(fmt.Sprintf("mariadb://reader2:%s@/%s?socket=%s", password, name, s.Socket()))
		if err != nil {
			t.Fatal(err)
		}
		i := read(t, Options{Target: target, Tables: []string{"t"}, Namespace: "x", Secret: "env://X"}, sqltool.Config{SocketDirs: []string{s.Dir}})
		i.creds = []toolkeep.Credential{{Spec: toolkeep.AuthSpec{Type: "bearer"}, Value: password}}
		i.bounds("x.list_t", map[string][2]string{
			"a": {"-128", "127"}, "c": {"-32768", "32767"}, "d": {"-8388608", "8388607"}, "e": {"0", "4294967295"},
			"f": {"-9223372036854775808", "9223372036854775807"}, "g": {"0", "18446744073709551615"}, "h": {"0", "7"}, "i": {"0", "2155"},
		})
	})
	t.Run("sqlite", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "t.db")
		admin, err := stdsql.Open("sqlite", file)
		if err != nil {
			t.Fatal(err)
		}
		exec(t, admin, `CREATE TABLE t (a INTEGER PRIMARY KEY, b BIGINT)`, `CREATE INDEX b ON t (b)`)
		admin.Close()
		target, err := ParseTarget(file)
		if err != nil {
			t.Fatal(err)
		}
		i := read(t, Options{Target: target, Tables: []string{"t"}, Namespace: "x"}, sqltool.Config{SQLiteRoots: []string{filepath.Dir(file)}})
		ends := [2]string{"-9223372036854775808", "9223372036854775807"}
		i.bounds("x.list_t", map[string][2]string{"a": ends, "b": ends})
	})
}
