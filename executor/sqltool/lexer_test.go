package sqltool

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/executor/sqltool/mariatest"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

// placed are statements with their number of placeholders, -1 if scan refuses them. The
// databases must agree (TestPlaceholdersAgree).
var placed = map[dialect][]struct {
	text   string
	params int
}{
	postgres: {
		{"SELECT $1::int, $2::text", 2}, {"SELECT $2::int, $1::int, $2::int", 2}, {"SELECT '$1', $1::int", 1}, {"SELECT 'it''s $2', $1::int", 1},
		{`SELECT E'\'$2', $1::int`, 1}, {`SELECT e'\\', $1::int`, 1}, {`SELECT '\', $1::int`, 1}, {`SELECT U&'\0041$2', $1::int`, 1}, {`SELECT $1::int AS "a$2""$3"`, 1},
		{"SELECT $$ $2 ' $$, $1::int", 1}, {"SELECT $x$ $2 $$ $y$ $x$, $1::int", 1}, {"SELECT $1::int -- $2", 1}, {"SELECT $1::int -- $2\n, $2::int", 2}, {"SELECT $1::int -- $2\r, $2::int", 2},
		{"SELECT /* $2 /* $3 */ ' */ $1::int", 1}, {"SELECT $1::int;", 1}, {"SELECT $1::int ; ; -- x", 1}, {"SELECT 1 AS a$1", 0}, {"SELECT $1::int AS é$2", 1}, {"SELECT B'1', X'1F', $1::int", 1},
		{"SELECT 1 ? 2", 0}, {"SELECT $3::int, $1::int", -1}, {"SELECT $0", -1}, {"SELECT '$1", -1}, {"SELECT $$ $1", -1}, {"SELECT /* $1", -1}, {`SELECT "a`, -1}, {"SELECT $99999999999", -1}, {"SELECT 1\x00", -1},
	},
	mysqlDB: {
		{"SELECT ?, ?", 2}, {"SELECT '?', ?", 1}, {`SELECT 'it\'s ?', ?`, 1}, {`SELECT "a ""?", ?`, 1}, {"SELECT ? AS `a``?`", 1}, {"SELECT ? # ?", 1}, {"SELECT ? -- ?", 1}, {"SELECT 1--?", 1},
		{"SELECT /* ? */ ?", 1}, {"SELECT ?;", 1}, {"SELECT '\\\\', ?", 1}, {"SELECT x'1f', ?", 1}, {"SELECT ? AS a$b", 1}, {"SELECT /*! ? */ 1", -1}, {"SELECT /*M!100000 ? */ 1", -1}, {"SELECT '?", -1}, {"SELECT `a", -1},
	},
	sqliteDB: {
		{"SELECT ?, ?", 2}, {"SELECT ?2, ?1", 2}, {"SELECT ?3, ?", 4}, {"SELECT '?', ?", 1}, {`SELECT '\', ?`, 1}, {`SELECT ? AS "a?"`, 1}, {"SELECT ? AS `a?`", 1}, {"SELECT ? AS [a?]", 1}, {"SELECT ? -- ?", 1},
		{"SELECT /* ? /* */ ?", 1}, {"SELECT ?;", 1}, {"SELECT x'1f', ?", 1}, {"SELECT '{}' -> ?", 1}, {"SELECT :a", -1}, {"SELECT @a", -1}, {"SELECT $a", -1}, {"SELECT ?0", -1}, {"SELECT [a", -1}, {"SELECT '?", -1}, {"SELECT /* ?", -1},
	},
}

func TestScan(t *testing.T) {
	for d, list := range placed {
		for _, tt := range list {
			got, err := scan(d, tt.text)
			switch {
			case tt.params < 0 && err == nil:
				t.Errorf("%s: %q passes", d, tt.text)
			case tt.params >= 0 && (err != nil || got.params != tt.params || got.statements != 1):
				t.Errorf("%s: %q has %+v, %v, want %d", d, tt.text, got, err, tt.params)
			}
		}
		for text, want := range map[string]int{"": 0, " ; ; -- x\n": 0, "SELECT 1; SELECT 2": 2, "SELECT ';'; /* ; */ ;": 1, "SELECT 1;\n--\n SELECT 2;": 2, "a;b;c": 3} {
			if got, err := scan(d, text); err != nil || got.statements != want {
				t.Errorf("%s: %q has %+v, %v, want %d statements", d, text, got, err, want)
			}
		}
	}
}

// TestTriggersAreOne checks what SQLite itself takes for one statement.
func TestTriggersAreOne(t *testing.T) {
	b, admin := sqliteBench(t, Config{})
	runMySQL(t, admin, "CREATE TABLE victim (id int, name text)", "CREATE TABLE log (line text)")
	const body = " AFTER INSERT ON victim BEGIN INSERT INTO log VALUES (CASE WHEN new.id = 1 THEN 'end;' ELSE 'x' END); /* ; END; */ DELETE FROM log WHERE line = 'END;'; END"
	for _, text := range []string{"CREATE TRIGGER a" + body, "create trigger if not exists b" + body + " ;", "CREATE /* x */ TEMP TRIGGER c" + body + "; -- end;\n"} {
		if n, err := scan(sqliteDB, text); err != nil || n.statements != 1 {
			t.Errorf("%s: %+v %v", text, n, err)
		}
		if _, err := b.call(t.Context(), query(text)+write, "{}"); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	b.must(query("INSERT INTO victim VALUES (1, ?)", "a")+write, `{"a":"x"}`)
	var n int
	if err := admin.QueryRow("SELECT count(*) FROM log").Scan(&n); err != nil || n < 2 { // the third is on another connection
		t.Errorf("the triggers left %d lines, %v", n, err)
	}
	for text, want := range map[string]int{
		"CREATE TRIGGER a" + body + "; DELETE FROM victim": 2, "CREATE TABLE trigger_ (a); DELETE FROM victim": 2, "SELECT 1; CREATE TRIGGER a" + body: 2,
		"CREATE TEMP TABLE x (a); SELECT 1; END": 3, "EXPLAIN CREATE TRIGGER a" + body + "; SELECT 1": 2, `CREATE "x" TRIGGER; SELECT 1`: 2,
	} {
		if got, err := scan(sqliteDB, text); err != nil || got.statements != want {
			t.Errorf("%s: %+v %v, want %d statements", text, got, err, want)
		}
	}
	// SQLite refuses what only looks like a trigger, and the rest does nothing.
	for _, text := range []string{"CREATE TRIGGER a; DELETE FROM victim; END", "CREATE TRIGGER z AFTER INSERT ON victim; DELETE FROM victim; END;"} {
		if _, err := b.call(t.Context(), query(text)+write, "{}"); err == nil {
			t.Errorf("%s is carried out", text)
		}
	}
	if err := admin.QueryRow("SELECT count(*) FROM victim").Scan(&n); err != nil || n != 1 {
		t.Errorf("%d rows are left, %v", n, err)
	}
}

// TestPlaceholdersAgree compares with the databases.
func TestPlaceholdersAgree(t *testing.T) {
	pg, _ := postgresBench(t, pgtest.Start(t), Config{})
	s := pgSessionOf(t, pg).(*pgSession)
	defer s.close()
	for i, tt := range placed[postgres] {
		if tt.params < 0 || strings.Contains(tt.text, "1 ? 2") {
			continue
		}
		sd, err := s.c.Prepare(context.Background(), fmt.Sprintf("p%d", i), tt.text, nil)
		if err != nil || len(sd.ParamOIDs) != tt.params {
			t.Errorf("%q: PostgreSQL counts otherwise: %+v %v", tt.text, sd, err)
		}
	}
	my, _ := mysqlBench(t, mariatest.Start(t), Config{})
	bd, faults := parse(my.manifest(query("SELECT 1")))
	if faults != nil {
		t.Fatal(faults)
	}
	user, pass, _ := strings.Cut(my.creds[0].Value, ":")
	m, err := dialMySQL(t.Context(), my.e, bd, &login{user: user, password: pass})
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	lite, _ := sqliteBench(t, Config{})
	for _, tt := range placed[mysqlDB] {
		if tt.params < 0 {
			continue
		}
		st, err := m.(*mySession).c.(driver.ConnPrepareContext).PrepareContext(context.Background(), tt.text)
		if err != nil || st.NumInput() != tt.params {
			t.Errorf("%q: MariaDB counts otherwise: %v", tt.text, err)
			continue
		}
		st.Close()
	}
	for _, tt := range placed[sqliteDB] {
		if tt.params < 0 {
			continue
		}
		// SQLite refuses a call that binds fewer than the statement has.
		list := make([]string, tt.params)
		args := make(map[string]any)
		for i := range list {
			list[i] = fmt.Sprintf("p%d", i)
			args[list[i]] = "x"
		}
		if _, err := lite.call(t.Context(), query(tt.text, list...), string(canon.Append(nil, args))); err != nil && !strings.Contains(err.Error(), "malformed JSON") && !strings.Contains(err.Error(), "JSON path") {
			t.Errorf("%q: %v", tt.text, err)
		}
	}
}

func FuzzScan(f *testing.F) {
	for d, list := range placed {
		for _, tt := range list {
			f.Add(string(d), tt.text)
		}
	}
	f.Fuzz(func(t *testing.T, d, text string) {
		switch dialect(d) {
		case postgres, mysqlDB, sqliteDB:
		default:
			return
		}
		got, err := scan(dialect(d), text)
		if err != nil {
			return
		}
		if got.params < 0 || got.params > maxPlaceholders || got.statements > len(text) {
			t.Fatalf("%+v", got)
		}
		// Placeholders in a string or a comment do not count.
		quoted := "SELECT '" + strings.NewReplacer("'", "''", `\`, `\\`).Replace(strings.ReplaceAll(text, "\x00", "")) + "'"
		if d != string(mysqlDB) {
			quoted = "SELECT '" + strings.ReplaceAll(text, "'", "''") + "'"
		}
		if got, err := scan(dialect(d), quoted); err != nil || got.params != 0 || got.statements != 1 {
			t.Fatalf("%q quoted has %+v, %v", text, got, err)
		}
	})
}

// FuzzLike compares the patterns with SQLite's own LIKE.
func FuzzLike(f *testing.F) {
	b, _ := sqliteBench(f, Config{})
	tool := b.tool(`"statement":"SELECT ?1 LIKE ?2 ESCAPE '!' AS a, ?1 LIKE ?3 ESCAPE '!' AS b, ?1 LIKE ?4 ESCAPE '!' AS c","parameters":[{"name":"t"},{"name":"s","like":"contains"},{"name":"s2","arg":"s","like":"prefix"},{"name":"s3","arg":"s","like":"suffix"}]`)
	for _, s := range []string{"", "%", "_", "!", "50%", "a_b", "!%", "!!_", `\%`, "it's"} {
		f.Add("x"+s+"y", s)
		f.Add("xzzy", s)
	}
	f.Fuzz(func(t *testing.T, text, part string) {
		if !utf8.ValidString(text) || !utf8.ValidString(part) || strings.ContainsRune(text+part, 0) || len(part) > 1000 {
			return
		}
		x := b.execution(tool, "{}")
		x.Args = map[string]any{"t": text, "s": part}
		out, err := b.e.Execute(context.Background(), x)
		if err != nil {
			t.Fatal(err)
		}
		lower := func(s string) string { // SQLite folds only ASCII
			return strings.Map(func(r rune) rune {
				if 'A' <= r && r <= 'Z' {
					return r + 'a' - 'A'
				}
				return r
			}, s)
		}
		a, p := lower(text), lower(part)
		want := fmt.Sprintf(`[{"a":%d,"b":%d,"c":%d}]`, bit(strings.Contains(a, p)), bit(strings.HasPrefix(a, p)), bit(strings.HasSuffix(a, p)))
		if got := jsonOf(out.Value.(map[string]any)["rows"]); got != want {
			t.Fatalf("%q in %q: %s, want %s", part, text, got, want)
		}
	})
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
