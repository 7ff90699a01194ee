package toolkeeptest_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

func TestHostileBodies(t *testing.T) {
	t.Parallel()
	k := toolkeeptest.New(t)
	c := admin(t, k)
	props := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"p%d":%d`, i, i)
		}
		return "{" + b.String()[1:] + "}"
	}
	nested := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	whole := func(n int) string { // a body of exactly n bytes
		rest := n - len(envelope("std.echo", `{"t":""}`))
		return envelope("std.echo", `{"t":"`+strings.Repeat("x", rest)+`"}`)
	}
	for _, x := range []struct {
		name, body string
		status     int
		code       toolkeep.Code
	}{
		{"1,000 properties", envelope("std.echo", props(1000)), 200, ""},
		{"10,000 properties", envelope("std.echo", props(10_000)), 413, toolkeep.RequestTooLarge},
		{"1,001 properties in two objects", envelope("std.echo", `{"a":`+props(500)+`,"b":`+props(499)+`}`), 413, toolkeep.RequestTooLarge},
		{"50 deep", envelope("std.echo", nested(50)), 200, ""},
		{"60 deep", envelope("std.echo", nested(60)), 400, toolkeep.InvalidEncoding},
		{"9,000 deep", envelope("std.echo", nested(9_000)), 400, toolkeep.InvalidEncoding},
		{"100,000 open brackets", `{"tool_id":"std.echo","parameters":{"a":` + strings.Repeat("[", 100_000), 400, ""},
		{"100,000 open brackets elsewhere", `{"tool_id":"std.echo","dry_run":` + strings.Repeat("[", 100_000), 400, ""},
		{"1 MiB", whole(1 << 20), 200, ""},
		{"1 MiB and 1 byte", whole(1<<20 + 1), 413, toolkeep.RequestTooLarge},
		{"not UTF-8", envelope("std.echo", "{\"t\":\"\xff\xfe\"}"), 400, toolkeep.InvalidEncoding},
		{"an overlong form", envelope("std.echo", "{\"t\":\"\xc0\xaf\"}"), 400, toolkeep.InvalidEncoding},
		{"half a surrogate pair", envelope("std.echo", `{"t":"\ud800"}`), 400, toolkeep.InvalidEncoding},
		{"NUL", envelope("std.echo", "{\"t\":\"a\\u0000b\"}"), 400, toolkeep.InvalidEncoding},
		{"a key twice", envelope("std.echo", `{"t":1,"t":2}`), 400, toolkeep.InvalidEncoding},
		{"a key twice, escaped", envelope("std.echo", `{"t":1,"\u0074":2}`), 400, toolkeep.InvalidEncoding},
		{"a key twice, deep", envelope("std.echo", `{"a":[{"t":1,"t":1}]}`), 400, toolkeep.InvalidEncoding},
		{"tool_id twice", `{"tool_id":"std.echo","tool_id":"std.hash","parameters":{}}`, 400, toolkeep.InvalidEncoding},
		{"parameters twice", `{"tool_id":"std.echo","parameters":{},"parameters":{"a":1}}`, 400, toolkeep.InvalidEncoding},
		{"no JSON", "hello", 400, toolkeep.MalformedRequest},
		{"a list", "[]", 400, toolkeep.MalformedRequest},
		{"null", "null", 400, toolkeep.MalformedRequest},
		{"cut off", `{"tool_id":"std.echo","parameters":{"a":`, 400, toolkeep.MalformedRequest},
		{"two objects", envelope("std.echo", "{}") + "{}", 400, toolkeep.MalformedRequest},
		{"an unknown field", envelope("std.echo", "{}", `"tool":"x"`), 400, toolkeep.MalformedRequest},
		{"parameters are a list", envelope("std.echo", "[1]"), 400, toolkeep.MalformedRequest},
		{"a number without end", envelope("std.echo", `{"n":1e999999}`), 413, toolkeep.RequestTooLarge},
		{"a number of 100,000 digits", envelope("std.echo", `{"n":`+strings.Repeat("9", 100_000)+`}`), 413, toolkeep.RequestTooLarge},
		{"a long tool_id", envelope(strings.Repeat("x", 5000), "{}"), 413, toolkeep.RequestTooLarge},
		{"a long key", envelope("std.echo", "{}", keyed(strings.Repeat("k", 5000))), 413, toolkeep.RequestTooLarge},
		{"NUL in the tool's id", envelope("std.echo\x00", "{}"), 400, ""},
		{"a path for a tool", envelope("../../etc/passwd", "{}"), 404, toolkeep.ToolNotFound},
		{"an endless timeout", envelope("std.echo", "{}", `"timeout_seconds":1e300`), 400, ""},
		{"a negative timeout", envelope("std.echo", "{}", `"timeout_seconds":-1`), 400, ""},
		{"a range that is none", envelope("std.echo", "{}", `"tool_version":">>>=1 || ((("`), 0, ""},
		{"an id that is no UUID", envelope("std.echo", "{}", `"invocation_id":"'; DROP TABLE invocations; --"`), 400, toolkeep.InvalidParameters},
		{"an unknown priority", envelope("std.echo", "{}", `"execution_options":{"priority":"asap"}`), 400, ""},
		{"a control character before the key", envelope("std.echo", "{}", "\"request_id\":\"\\u001fchild:x:1\""), 400, toolkeep.InvalidParameters},
	} {
		t.Run(x.name, func(t *testing.T) {
			a := c.do("POST", "/api/v1/tools/invoke", x.body)
			if a.status >= 500 {
				t.Fatalf("a server error: %s", a)
			}
			if x.status != 0 && a.status != x.status {
				t.Fatalf("status %d, want %d: %.500s", a.status, x.status, a.body)
			}
			if x.code != "" {
				a.refused(t, x.code)
			}
			if a.id(t) == "" {
				t.Errorf("the refusal has no record")
			}
			if len(a.body) > 8<<10 && a.status != 200 {
				t.Errorf("the refusal has %d bytes", len(a.body))
			}
		})
	}
	c.call("std.echo", `{"still":"here"}`).success(t)
}

func TestHostileRequests(t *testing.T) {
	t.Parallel()
	k := toolkeeptest.New(t)
	c := admin(t, k)
	good := envelope("std.echo", "{}")
	for _, x := range []struct {
		name   string
		header []string
		status int
	}{
		{"another type", []string{"Content-Type", "text/plain"}, 400},
		{"another charset", []string{"Content-Type", "application/json; charset=latin1"}, 400},
		{"a compressed body", []string{"Content-Encoding", "gzip"}, 400},
		{"70 KiB of headers", []string{"X-Long", strings.Repeat("x", 70<<10)}, 431},
		{"300 KiB of headers", []string{"X-Long", strings.Repeat("x", 300<<10)}, 431},
		{"another site's page", []string{"Origin", "https://evil.example"}, 403},
		{"no key", []string{"Authorization", ""}, 401},
		{"another scheme", []string{"Authorization", "Basic dXNlcjpwYXNz"}, 401},
		{"a long key", []string{"Authorization", "Bearer " + strings.Repeat("k", 8<<10)}, 401},
		{"a signature", []string{"X-Request-Signature", "00"}, 401},
		{"a capability token", []string{"X-Capability-Token", "x"}, 401},
		{"two keys that differ", []string{"Idempotency-Key", "other"}, 0},
		{"a broken traceparent", []string{"Traceparent", "00-zz"}, 200},
		{"an odd request id", []string{"X-Request-Id", "a b<script>"}, 200},
	} {
		t.Run(x.name, func(t *testing.T) {
			body := good
			if x.status == 0 {
				body, x.status = envelope("std.echo", "{}", keyed("one")), 400
			}
			a := c.do("POST", "/api/v1/tools/invoke", body, x.header...)
			if a.status != x.status {
				t.Errorf("status %d, want %d: %.500s", a.status, x.status, a.body)
			}
			if id := a.header.Get("X-Request-Id"); strings.ContainsAny(id, " <") {
				t.Errorf("X-Request-Id %q", id)
			}
		})
	}
	for path, status := range map[string]int{"/api/v1/nothing": 404, "/api/v1/tools/../../etc/passwd": 0, "/api/v1/blobs/..%2f..%2fadmin.key": 404,
		"/api/v1/invocations/%00": 400, "/api/v1/tools/%ff": 0, "/api/v1/invocations?page=99999999999999999999": 400} {
		if a := c.do("GET", path, ""); a.status >= 500 || status != 0 && a.status != status {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	c.do("DELETE", "/api/v1/tools/invoke", "").want(t, 404)
	c.do("PUT", "/api/v1/invocations", "").want(t, 405)
}

// TestSlowAndBrokenBodies: bodies that arrive in pieces are read; truncated ones leave
// nothing behind.
func TestSlowAndBrokenBodies(t *testing.T) {
	t.Parallel()
	k := toolkeeptest.New(t)
	host := strings.TrimPrefix(k.URL(), "http://")
	body := envelope("std.echo", `{"a":1}`)
	open := func() net.Conn {
		conn, err := net.Dial("tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	head := "POST /api/v1/tools/invoke HTTP/1.1\r\nHost: " + host + "\r\nContent-Type: application/json\r\nAuthorization: Bearer " + k.AdminKey + "\r\n"

	t.Run("one byte at a time", func(t *testing.T) {
		conn := open()
		fmt.Fprintf(conn, "%sContent-Length: %d\r\n\r\n", head, len(body))
		for i := range len(body) {
			if _, err := conn.Write([]byte{body[i]}); err != nil {
				t.Fatal(err)
			}
		}
		wantStatus(t, conn, 200)
	})
	t.Run("in chunks", func(t *testing.T) {
		conn := open()
		fmt.Fprintf(conn, "%sTransfer-Encoding: chunked\r\n\r\n", head)
		for _, c := range body {
			fmt.Fprintf(conn, "1\r\n%c\r\n", c)
		}
		io.WriteString(conn, "0\r\n\r\n")
		wantStatus(t, conn, 200)
	})
	t.Run("more chunks than allowed", func(t *testing.T) {
		conn := open()
		go func() {
			fmt.Fprintf(conn, "%sTransfer-Encoding: chunked\r\n\r\n", head)
			piece := strings.Repeat(" ", 64<<10)
			for range 40 {
				if _, err := fmt.Fprintf(conn, "%x\r\n%s\r\n", len(piece), piece); err != nil {
					return
				}
			}
		}()
		wantStatus(t, conn, 413)
	})
	t.Run("broken off", func(t *testing.T) {
		for _, n := range []int{0, 10, len(body) - 1} {
			conn := open()
			fmt.Fprintf(conn, "%sContent-Length: %d\r\n\r\n%s", head, len(body), body[:n])
			conn.(*net.TCPConn).CloseWrite()
			if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
				resp.Body.Close()
				if resp.StatusCode >= 500 || resp.StatusCode < 400 {
					t.Errorf("%d bytes of the body: %s", n, resp.Status)
				}
			}
		}
	})
	t.Run("smuggled", func(t *testing.T) {
		conn := open()
		fmt.Fprintf(conn, "%sContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /api/v1/keys HTTP/1.1\r\n\r\n", head)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode < 400 || resp.StatusCode >= 500 {
			t.Errorf("%s", resp.Status)
		}
	})
	admin(t, k).call("std.echo", "{}").success(t)
}

func wantStatus(t *testing.T, conn net.Conn, status int) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != status {
		t.Errorf("status %d, want %d: %s", resp.StatusCode, status, raw)
	}
}
