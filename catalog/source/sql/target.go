package sql

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Target is a parsed connection string.
type Target struct {
	Dialect  string // postgres, mysql, sqlite
	Host     string
	Port     int
	Socket   string // a directory for PostgreSQL, a file for MySQL
	Database string
	User     string
	Password string
	TLS      string // verify, require, off
	File     string // SQLite
}

// ParseTarget parses a connection string. The error quotes nothing of it, since it may contain a
// password.
func ParseTarget(dsn string) (*Target, error) {
	if !strings.Contains(dsn, "://") {
		if strings.Contains(dsn, "=") && !strings.ContainsAny(dsn, "/.") || dsn == "" {
			return nil, fmt.Errorf("the connection string is a URL such as postgres://user@host/database, or the path of an SQLite file")
		}
		return sqliteTarget(strings.TrimPrefix(dsn, "file:"))
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, fmt.Errorf("the connection string is not a URL; characters such as @ / ? # %% in a password are written as %%40 and so on, or the password stands in TOOLKEEP_SQL_PASSWORD")
	}
	t := &Target{Host: u.Hostname(), Database: strings.TrimPrefix(u.Path, "/"), TLS: "verify"}
	if u.User != nil {
		t.User = u.User.Username()
		t.Password, _ = u.User.Password()
	}
	if p := u.Port(); p != "" {
		if t.Port, err = strconv.Atoi(p); err != nil || t.Port < 1 || t.Port > 65535 {
			return nil, fmt.Errorf("the port of the connection string is not a number from 1 to 65535")
		}
	}
	q := u.Query()
	switch u.Scheme {
	case "postgres", "postgresql":
		t.Dialect, t.Port = "postgres", or(t.Port, 5432)
		err = t.postgres(q)
	case "mysql", "mariadb":
		t.Dialect, t.Port = "mysql", or(t.Port, 3306)
		err = t.mysql(q)
	case "sqlite", "sqlite3", "file":
		if u.Host != "" || u.User != nil {
			return nil, fmt.Errorf("an SQLite file is sqlite:///absolute/path, with three slashes")
		}
		return sqliteTarget(u.Path)
	default:
		return nil, fmt.Errorf("the scheme %q of the connection string is not known; postgres, mysql, mariadb and sqlite are", u.Scheme)
	}
	if err == nil && t.Host == "" && t.Socket == "" {
		err = fmt.Errorf("the connection string names no host")
	}
	if err == nil && t.Database == "" {
		err = fmt.Errorf("the connection string names no database")
	}
	if err == nil && t.User == "" {
		err = fmt.Errorf("the connection string names no user")
	}
	return t, err
}

func or(n, def int) int {
	if n == 0 {
		return def
	}
	return n
}

func sqliteTarget(path string) (*Target, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	return &Target{Dialect: "sqlite", File: abs, Database: strings.TrimSuffix(filepath.Base(abs), filepath.Ext(abs))}, nil
}

func (t *Target) postgres(q url.Values) error {
	for name, v := range q {
		switch name {
		case "sslmode":
			switch v[0] {
			case "disable":
				t.TLS = "off"
			case "require":
				t.TLS = "require"
			case "verify-ca", "verify-full":
			default:
				return fmt.Errorf("sslmode is disable, require or verify-full; modes that may fall back to no encryption are not accepted")
			}
		case "host":
			if !strings.HasPrefix(v[0], "/") {
				t.Host = v[0]
				continue
			}
			t.Socket, t.Host, t.TLS = filepath.Clean(v[0]), "", "off"
		case "port":
			n, err := strconv.Atoi(v[0])
			if err != nil || n < 1 || n > 65535 {
				return fmt.Errorf("port is a number from 1 to 65535")
			}
			t.Port = n
		case "application_name", "connect_timeout":
		default:
			return fmt.Errorf("the option %q of the connection string is not known; sslmode, host and port are", name)
		}
	}
	return nil
}

func (t *Target) mysql(q url.Values) error {
	for name, v := range q {
		switch name {
		case "tls", "ssl-mode", "sslmode":
			switch strings.ToLower(v[0]) {
			case "false", "disabled", "disable":
				t.TLS = "off"
			case "skip-verify", "required", "require":
				t.TLS = "require"
			case "true", "verify_identity", "verify-full", "verify_ca":
			default:
				return fmt.Errorf("tls is false, skip-verify or true")
			}
		case "socket", "unix_socket":
			t.Socket, t.Host, t.TLS = filepath.Clean(v[0]), "", "off"
		case "charset", "parseTime", "collation", "loc":
		default:
			return fmt.Errorf("the option %q of the connection string is not known; tls and socket are", name)
		}
	}
	return nil
}

// Connection returns the target as the connection of a binding: everything except the password, and
// without the user if the secret contains it.
func (t *Target) Connection(withUser bool) map[string]any {
	if t.Dialect == "sqlite" {
		return map[string]any{"file": t.File}
	}
	c := map[string]any{"database": t.Database, "port": t.Port}
	if t.Socket != "" {
		c["socket"] = t.Socket
		if t.Dialect == "mysql" {
			delete(c, "port")
		}
	} else {
		c["host"], c["tls"] = t.Host, t.TLS
	}
	if withUser {
		c["user"] = t.User
	}
	return c
}

// Permissions returns what a tool needs to reach the database: the host, usually an internal one,
// or the file or socket of the server.
func (t *Target) Permissions(write bool) map[string]any {
	mode := "ro"
	switch {
	case t.Host != "":
		return map[string]any{"network": []any{map[string]any{"host": t.Host, "port": t.Port}}}
	case t.Socket != "":
		return map[string]any{"filesystem": []any{map[string]any{"path": t.Socket, "mode": mode}}}
	case write:
		mode = "rw"
	}
	return map[string]any{"filesystem": []any{map[string]any{"path": t.File, "mode": mode}}}
}

// URI identifies the database without user and password.
func (t *Target) URI() string {
	switch {
	case t.Dialect == "sqlite":
		return (&url.URL{Scheme: "sqlite", Path: t.File}).String()
	case t.Socket != "":
		return (&url.URL{Scheme: t.Dialect, Path: "/" + t.Database}).String()
	}
	return (&url.URL{Scheme: t.Dialect, Host: net.JoinHostPort(t.Host, strconv.Itoa(t.Port)), Path: "/" + t.Database}).String()
}

// Quote quotes a name by the database's rules.
func Quote(dialect, name string) string {
	if dialect == "mysql" {
		return "`" + strings.ReplaceAll(name, "`", "``") + "`"
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

// Word makes a name that tools and arguments may have out of any name: letters,
// digits and _, not beginning with a digit, at most 64 characters.
func Word(name string, taken map[string]bool) string {
	var w strings.Builder
	for _, c := range name {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', c == '_', '0' <= c && c <= '9' && w.Len() > 0:
			w.WriteRune(c)
		case '0' <= c && c <= '9':
			w.WriteByte('_')
			w.WriteRune(c)
		default:
			w.WriteByte('_')
		}
	}
	base := w.String()
	if len(base) > 60 {
		base = base[:60]
	}
	if base == "" {
		base = "_"
	}
	word := base
	for n := 2; taken[word]; n++ {
		word = base + "_" + strconv.Itoa(n)
	}
	if taken != nil {
		taken[word] = true
	}
	return word
}

// Namespace makes the part of a tool's id before the dot.
func Namespace(name string) string {
	var w strings.Builder
	for _, c := range strings.ToLower(name) {
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9' && w.Len() > 0:
			w.WriteRune(c)
		case w.Len() > 0:
			w.WriteByte('-')
		}
	}
	s := w.String()
	if len(s) > 32 {
		s = s[:32]
	}
	if s = strings.Trim(s, "-"); s == "" {
		return "sql"
	}
	return s
}

// Auth is the auth entry of a tool: the secret is the password of the connection's
// user, or user:password where login is set. nil without a reference.
func Auth(reference string, login bool) []any {
	if reference == "" {
		return nil
	}
	typ := "bearer"
	if login {
		typ = "basic"
	}
	return []any{map[string]any{"type": typ, "secret": reference}}
}

// References that a secret may be.
var schemes = []string{"secret", "vault", "env", "file"}

// CheckReference refuses what is no reference; it quotes nothing of it.
func CheckReference(ref string) error {
	scheme, rest, ok := strings.Cut(ref, "://")
	if !ok || rest == "" || !slices.Contains(schemes, scheme) {
		return fmt.Errorf("a secret is named by a reference such as secret://shop-db or env://TOOLKEEP_SECRET_SHOP; never give the secret itself on the command line")
	}
	return nil
}
