package sqltool

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/executor/sqltool/mariatest"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

const needle = "needle-in-the-statement"

// garbler is a proxy before a database. Once a client has sent the needle, it replaces
// the database's output with nonsense.
func garbler(t *testing.T, to string, nonsense []byte) (port int) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() { l.Close(); all.Wait() })
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				t.Error(err)
				client.Close()
				continue
			}
			var armed atomic.Bool
			pump := func(to, from net.Conn, each func([]byte) []byte) {
				defer to.Close()
				b := make([]byte, 64<<10)
				for {
					n, err := from.Read(b)
					if n > 0 {
						if _, err := to.Write(each(b[:n])); err != nil {
							return
						}
					}
					if err != nil {
						return
					}
				}
			}
			all.Go(func() {
				pump(server, client, func(b []byte) []byte {
					if bytes.Contains(b, []byte(needle)) {
						armed.Store(true)
					}
					return b
				})
			})
			all.Go(func() {
				pump(client, server, func(b []byte) []byte {
					if armed.Load() {
						return nonsense
					}
					return b
				})
			})
		}
	})
	return l.Addr().(*net.TCPAddr).Port
}

// TestGarbledAnswers: an invalid database response ends the call as a broken connection
// without NothingSent, and the next call gets another connection.
func TestGarbledAnswers(t *testing.T) {
	pg, maria := pgtest.Start(t), mariatest.Start(t)
	for _, tt := range []struct {
		name     string
		nonsense string
	}{
		{"postgres", "\xff\xff\xff\xff\xff\xff\xff\xff"}, {"postgres", "D\x00\x00\x00\x0a\x00\x01\x7f\xff\xff\xff"}, {"postgres", "HTTP/1.1 200 OK\r\n\r\n"}, {"postgres", "D\x00\x00\x00\x02"},
		{"mysql", "\x01\x00\x00\x63\xff"}, {"mysql", "\x01\x00\x00\x01\xfb"}, {"mysql", "\x02\x00\x00\x01\x00\x01"},
	} {
		t.Run(tt.name+strconv.Quote(tt.nonsense), func(t *testing.T) {
			var b *bench
			var at int
			statement := "SELECT $1::text AS v"
			if tt.name == "postgres" {
				b, _ = postgresBench(t, pg, Config{})
				at = pg.Port
			} else {
				b, _ = mysqlBench(t, maria, Config{})
				at, statement = maria.Port, "SELECT ? AS v"
			}
			port := garbler(t, net.JoinHostPort("127.0.0.1", strconv.Itoa(at)), []byte(tt.nonsense))
			socket := b.connection[strings.Index(b.connection, `"database"`):]
			b.connection = fmt.Sprintf(`{"host":"127.0.0.1","port":%d,"tls":"off",%s`, port, socket)
			b.allow = []toolkeep.HostPort{{Host: "127.0.0.1", Port: port}}
			if len(b.creds) == 0 {
				b.auth = []toolkeep.AuthSpec{{Type: "bearer", Secret: "env://X"}}
				b.creds = []toolkeep.Credential{{Spec: b.auth[0], Value: password}}
			}
			defer b.e.Close() // before waiting for the proxy
			for range 2 {
				ctx, cancel := context.WithTimeout(t.Context(), promptly)
				_, err := b.call(ctx, query(statement, "a"), `{"a":"`+needle+`"}`)
				cancel()
				e := toolkeep.AsError(err)
				if e == nil || e.Code != toolkeep.DBConnectionFailed || e.NothingSent || e.Message == "" {
					t.Fatalf("the error is %v (because of %v), want E3601 with something sent", e, e.Cause)
				}
				if out := b.must(query(statement, "a"), `{"a":"well"}`); !strings.Contains(jsonOf(out["rows"]), "well") {
					t.Fatalf("the next call answers %v", out)
				}
			}
		})
	}
}
