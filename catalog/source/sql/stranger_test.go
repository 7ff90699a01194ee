package sql

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/toolkeep/toolkeep"
)

// TestStrangers: the error names a server that is not the expected database.
func TestStrangers(t *testing.T) {
	web := func(c net.Conn) {
		bufio.NewReader(c).ReadByte()
		io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
	}
	mail := func(c net.Conn) { io.WriteString(c, "220 mail.example ESMTP ready\r\n") }
	mute := func(net.Conn) {}
	for _, tt := range []struct {
		name, dsn string
		serve     func(net.Conn)
		want      []string
	}{
		{"HTTP for PostgreSQL", "postgres://u@ADDR/db?sslmode=disable", web, []string{"ADDR does not speak as PostgreSQL does", "right port"}},
		{"HTTP for PostgreSQL with TLS", "postgres://u@ADDR/db", web, []string{"ADDR", "sslmode=disable", "check the port"}},
		{"mail for PostgreSQL", "postgres://u@ADDR/db?sslmode=disable", mail, []string{"ADDR does not speak as PostgreSQL does"}},
		{"one that hangs up", "postgres://u@ADDR/db?sslmode=disable", mute, []string{"ADDR does not speak as PostgreSQL does"}},
		{"mail for MySQL", "mysql://u@ADDR/db?tls=false", mail, []string{"ADDR does not speak as MySQL does"}},
		{"one that hangs up on MySQL", "mysql://u@ADDR/db?tls=false", mute, []string{"ADDR does not speak as MySQL does"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var all sync.WaitGroup
			defer all.Wait()
			defer l.Close()
			all.Go(func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					tt.serve(c)
					c.Close()
				}
			})
			target, err := ParseTarget(strings.ReplaceAll(tt.dsn, "ADDR", l.Addr().String()))
			if err != nil {
				t.Fatal(err)
			}
			target.Password = password
			_, err = Read(t.Context(), Options{Target: target, Tables: []string{"*"}})
			e := toolkeep.AsError(err)
			if e == nil || e.Code != toolkeep.ImportFailed {
				t.Fatalf("%v", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(e.Message, strings.ReplaceAll(want, "ADDR", l.Addr().String())) {
					t.Errorf("%q is not in %s", want, e.Message)
				}
			}
		})
	}
}
