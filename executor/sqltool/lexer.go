package sqltool

import (
	"fmt"
	"strings"
)

// dialect is the SQL dialect of a statement.
type dialect string

const (
	postgres dialect = "postgres"
	mysqlDB  dialect = "mysql"
	sqliteDB dialect = "sqlite"
)

// counted is the result of scan.
type counted struct {
	params     int      // placeholders: the highest number, or the number of ?
	statements int      // separated by semicolons, without empty ones
	end        int      // where the last statement ends, before its semicolon
	first      []string // first words of the last statement, at most two, in upper case
	compound   bool     // of SQLite: a word is UNION, INTERSECT or EXCEPT
}

// maxPlaceholders is the limit of the protocols of PostgreSQL and MySQL.
const maxPlaceholders = 65535

// scan counts placeholders and statements. It knows only the dialect's quotes, dollar
// quotes and comments; the database decides what a statement may do. The error is for
// the statement's author.
func scan(d dialect, text string) (counted, error) {
	s := scanner{dialect: d, text: text}
	if strings.IndexByte(text, 0) >= 0 {
		return counted{}, fmt.Errorf("the statement holds a NUL character")
	}
	for s.pos < len(s.text) {
		if err := s.token(); err != nil {
			return counted{}, err
		}
		if s.inside {
			s.found.end = s.pos
		}
	}
	for n := 1; n <= s.found.params; n++ {
		if d == postgres && !s.used[n] {
			return counted{}, fmt.Errorf("placeholder $%d is not used while $%d is", n, s.found.params)
		}
	}
	return s.found, nil
}

type scanner struct {
	dialect dialect
	text    string
	pos     int
	found   counted
	inside  bool // of a statement: something other than space and comments was seen
	leading bool // only the statement's first words and parentheses before them were seen
	trigger trigger
	used    map[int]bool
}

func (s *scanner) at(i int) byte {
	if i < len(s.text) {
		return s.text[i]
	}
	return 0
}

// token consumes one token, one comment or one character.
func (s *scanner) token() error {
	c, next := s.text[s.pos], s.at(s.pos+1)
	switch {
	case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v':
		s.pos++
		return nil
	case c == ';':
		s.pos++
		if s.trigger.holds() {
			return nil
		}
		s.inside, s.trigger = false, trigger{}
		return nil
	case c == '-' && next == '-' && (s.dialect != mysqlDB || isSpaceOrEnd(s.at(s.pos+2), s.pos+2 >= len(s.text))):
		s.line()
		return nil
	case c == '#' && s.dialect == mysqlDB:
		s.line()
		return nil
	case c == '/' && next == '*':
		return s.block()
	}
	if !s.inside {
		s.inside, s.leading = true, true
		s.found.statements++
		s.found.first = nil
	}
	if s.leading = s.leading && (isWord(c) || c == '(' && len(s.found.first) == 0) && len(s.found.first) < 2; s.leading && c != '(' {
		from := s.pos
		defer func() { s.found.first = append(s.found.first, strings.ToUpper(s.text[from:s.pos])) }()
	}
	if s.dialect == sqliteDB && !isWord(c) {
		s.trigger.other()
	}
	switch {
	case c == '\'':
		return s.quoted('\'', s.dialect == mysqlDB)
	case c == '"':
		return s.quoted('"', s.dialect == mysqlDB)
	case c == '`' && s.dialect != postgres:
		return s.quoted('`', false)
	case c == '[' && s.dialect == sqliteDB:
		return s.bracket()
	case isWord(c):
		return s.word()
	case c == '$':
		return s.dollar()
	case c == '?' && s.dialect != postgres:
		return s.question()
	case (c == ':' || c == '@') && s.dialect == sqliteDB:
		return fmt.Errorf("a placeholder of SQLite is ? or ?1 here, not a name after %q", string(c))
	}
	s.pos++
	return nil
}

// trigger tracks whether a SQLite statement creates a trigger, like SQLite's own
// sqlite3_complete: the statements inside one do not count as statements, and it ends
// with the semicolon after an END that follows a semicolon.
type trigger struct {
	first []string // first words of the statement
	last  string   // ";" or "END" if that came last, and END only after a semicolon
}

// word and other receive a statement's parts except semicolons.
func (t *trigger) word(w string) {
	w = strings.ToUpper(w)
	if len(t.first) < 6 { // EXPLAIN QUERY PLAN CREATE TEMP TRIGGER
		t.first = append(t.first, w)
	}
	if t.last != ";" || w != "END" {
		w = ""
	}
	t.last = w
}

func (t *trigger) other() { t.word("") }

// holds reports whether a semicolon is inside the trigger.
func (t *trigger) holds() bool {
	first := t.first
	for _, w := range []string{"EXPLAIN", "QUERY", "PLAN"} {
		if len(first) > 0 && first[0] == w {
			first = first[1:]
		}
	}
	if len(first) < 2 || first[0] != "CREATE" {
		return false
	}
	if first[1] == "TEMP" || first[1] == "TEMPORARY" {
		first = first[1:]
	}
	if len(first) < 2 || first[1] != "TRIGGER" || t.last == "END" {
		return false
	}
	t.last = ";"
	return true
}

func isSpaceOrEnd(c byte, end bool) bool { return end || c <= ' ' }

// isWord reports whether c can be part of an identifier or a number.
func isWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c >= 0x80
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func (s *scanner) line() {
	for s.pos < len(s.text) && s.text[s.pos] != '\n' {
		// PostgreSQL also ends a comment at a carriage return.
		if s.dialect == postgres && s.text[s.pos] == '\r' {
			return
		}
		s.pos++
	}
}

// block skips a comment; PostgreSQL's nest. MySQL executes the content of /*! … */
// depending on its version, so such a statement is ambiguous.
func (s *scanner) block() error {
	if s.dialect == mysqlDB {
		rest := s.text[s.pos+2:]
		if strings.HasPrefix(rest, "!") || strings.HasPrefix(rest, "M!") {
			return fmt.Errorf("comments that MySQL executes (/*! … */) are refused; write the statement plainly")
		}
	}
	depth := 1
	for s.pos += 2; s.pos < len(s.text); {
		switch {
		case s.text[s.pos] == '*' && s.at(s.pos+1) == '/':
			s.pos += 2
			if depth--; depth == 0 {
				return nil
			}
		case s.dialect == postgres && s.text[s.pos] == '/' && s.at(s.pos+1) == '*':
			depth++
			s.pos += 2
		default:
			s.pos++
		}
	}
	return fmt.Errorf("a comment is not ended")
}

// quoted skips a string or a quoted identifier; a doubled quote is an escaped one.
func (s *scanner) quoted(quote byte, backslash bool) error {
	for s.pos++; s.pos < len(s.text); s.pos++ {
		switch c := s.text[s.pos]; {
		case c == '\\' && backslash:
			s.pos++
		case c == quote && s.at(s.pos+1) == quote:
			s.pos++
		case c == quote:
			s.pos++
			return nil
		}
	}
	return fmt.Errorf("a quote %c is not closed", quote)
}

func (s *scanner) bracket() error {
	end := strings.IndexByte(s.text[s.pos:], ']')
	if end < 0 {
		return fmt.Errorf("a bracket [ is not closed")
	}
	s.pos += end + 1
	return nil
}

// word skips an identifier, a keyword or a number. It may contain $; in PostgreSQL E'…'
// is a string with backslashes.
func (s *scanner) word() error {
	from := s.pos
	if s.dialect == sqliteDB {
		defer func() {
			w := s.text[from:s.pos]
			s.trigger.word(w)
			s.found.compound = s.found.compound || strings.EqualFold(w, "UNION") || strings.EqualFold(w, "INTERSECT") || strings.EqualFold(w, "EXCEPT")
		}()
	}
	digits := isDigit(s.text[from])
	for s.pos < len(s.text) && (isWord(s.text[s.pos]) || s.text[s.pos] == '$' && !digits) {
		s.pos++
	}
	if s.dialect == postgres && s.at(s.pos) == '\'' && s.pos-from == 1 && (s.text[from] == 'e' || s.text[from] == 'E') {
		return s.quoted('\'', true)
	}
	return nil
}

func (s *scanner) dollar() error {
	if s.dialect == sqliteDB {
		return fmt.Errorf("a placeholder of SQLite is ? or ?1 here, not a name after $")
	}
	if s.dialect != postgres {
		s.pos++
		return nil
	}
	if isDigit(s.at(s.pos + 1)) {
		s.pos++
		n, err := s.number()
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("placeholders begin with $1")
		}
		if s.used == nil {
			s.used = make(map[int]bool)
		}
		s.used[n] = true
		s.found.params = max(s.found.params, n)
		return nil
	}
	end := s.pos + 1
	for end < len(s.text) && isWord(s.text[end]) {
		end++
	}
	if s.at(end) != '$' {
		s.pos++
		return nil
	}
	tag := s.text[s.pos : end+1]
	close := strings.Index(s.text[end+1:], tag)
	if close < 0 {
		return fmt.Errorf("a dollar quote %s is not closed", tag)
	}
	s.pos = end + 1 + close + len(tag)
	return nil
}

func (s *scanner) question() error {
	s.pos++
	n := s.found.params + 1
	if s.dialect == sqliteDB && isDigit(s.at(s.pos)) {
		var err error
		if n, err = s.number(); err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("placeholders begin with ?1")
		}
	}
	if n > maxPlaceholders {
		return fmt.Errorf("there are more than %d placeholders", maxPlaceholders)
	}
	s.found.params = max(s.found.params, n)
	return nil
}

func (s *scanner) number() (int, error) {
	n := 0
	for s.pos < len(s.text) && isDigit(s.text[s.pos]) {
		if n = n*10 + int(s.text[s.pos]-'0'); n > maxPlaceholders {
			return 0, fmt.Errorf("the number of a placeholder is over %d", maxPlaceholders)
		}
		s.pos++
	}
	return n, nil
}
